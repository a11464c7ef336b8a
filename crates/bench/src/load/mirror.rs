//! The state of one chat in a client: a snapshot and every later action, applied with the
//! official reducer.

use ahp::reducers::apply_action_to_chat;
use ahp_types::actions::ActionEnvelope;
use ahp_types::state::{ChatState, Snapshot, SnapshotState};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// A client's copy of a chat.
#[derive(Clone, Debug)]
pub struct Mirror {
    channel: String,
    /// The chat's state.
    pub state: ChatState,
    /// Sequence number of the last applied action.
    pub seq: u64,
    /// Number of applied frames.
    pub frames: usize,
}

impl Mirror {
    /// Creates a mirror from a snapshot.
    pub fn new(snapshot: &Value) -> Result<Self> {
        let snapshot: Snapshot = serde_json::from_value(snapshot.clone()).context("invalid snapshot")?;
        let SnapshotState::Chat(state) = snapshot.state else { bail!("not a chat snapshot") };
        let seq = u64::try_from(snapshot.from_seq)?;
        Ok(Self { channel: snapshot.resource, state: *state, seq, frames: 0 })
    }

    /// Applies a message if it is an action on the chat.
    pub fn take(&mut self, text: &[u8]) -> Result<()> {
        let mut message: Value = serde_json::from_slice(text)?;
        if message["method"] != "action" {
            return Ok(());
        }
        self.frames += 1;
        self.fold(message["params"].take())
    }

    /// Applies the response to `reconnect`: a replay or a new snapshot.
    pub fn resume(&mut self, response: &mut Value) -> Result<()> {
        match response["type"].as_str() {
            Some("replay") => {
                let actions = response["actions"].as_array_mut().context("replay has no actions")?;
                actions.iter_mut().try_for_each(|action| self.fold(action.take()))
            }
            Some("snapshot") => {
                *self = Self { frames: self.frames, ..Self::new(&response["snapshots"][0])? };
                Ok(())
            }
            _ => bail!("invalid reconnect response: {response}"),
        }
    }

    fn fold(&mut self, envelope: Value) -> Result<()> {
        let envelope: ActionEnvelope = serde_json::from_value(envelope)?;
        let (seq, last) = (envelope.server_seq, self.seq);
        ensure!(seq > last, "envelope {seq} received after {last}");
        self.seq = seq;
        if envelope.channel == self.channel && envelope.rejection_reason.is_none() {
            apply_action_to_chat(&mut self.state, &envelope.action);
        }
        Ok(())
    }
}
