//! What a client of one chat knows: a snapshot, and every action since, folded with the
//! official reducer.

use ahp::reducers::apply_action_to_chat;
use ahp_types::actions::ActionEnvelope;
use ahp_types::state::{ChatState, Snapshot, SnapshotState};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// A chat as a client sees it.
#[derive(Clone, Debug)]
pub struct Mirror {
    channel: String,
    /// The chat's state.
    pub state: ChatState,
    /// The number of the last action that is in it.
    pub seq: u64,
    /// How many frames were folded.
    pub frames: usize,
}

impl Mirror {
    /// Begins with a snapshot.
    pub fn new(snapshot: &Value) -> Result<Self> {
        let snapshot: Snapshot = serde_json::from_value(snapshot.clone()).context("no snapshot")?;
        let SnapshotState::Chat(state) = snapshot.state else { bail!("not the snapshot of a chat") };
        let seq = u64::try_from(snapshot.from_seq)?;
        Ok(Self { channel: snapshot.resource, state: *state, seq, frames: 0 })
    }

    /// Folds a message, if it is an action on the chat.
    pub fn take(&mut self, text: &[u8]) -> Result<()> {
        let mut message: Value = serde_json::from_slice(text)?;
        if message["method"] != "action" {
            return Ok(());
        }
        self.frames += 1;
        self.fold(message["params"].take())
    }

    /// Takes the answer to a reconnect: what was missed, or everything anew.
    pub fn resume(&mut self, answer: &mut Value) -> Result<()> {
        match answer["type"].as_str() {
            Some("replay") => {
                let actions = answer["actions"].as_array_mut().context("a replay without actions")?;
                actions.iter_mut().try_for_each(|action| self.fold(action.take()))
            }
            Some("snapshot") => {
                *self = Self { frames: self.frames, ..Self::new(&answer["snapshots"][0])? };
                Ok(())
            }
            _ => bail!("no answer to a reconnect: {answer}"),
        }
    }

    fn fold(&mut self, envelope: Value) -> Result<()> {
        let envelope: ActionEnvelope = serde_json::from_value(envelope)?;
        let (seq, last) = (envelope.server_seq, self.seq);
        ensure!(seq > last, "envelope {seq} came after {last}");
        self.seq = seq;
        if envelope.channel == self.channel && envelope.rejection_reason.is_none() {
            apply_action_to_chat(&mut self.state, &envelope.action);
        }
        Ok(())
    }
}
