//! Routes a client's dispatch to the session that owns its channel.

use ahp_types::actions::RootConfigChangedAction;
use ahp_types::common::JsonObject;

use super::{Host, lock};
use crate::action::{Dispatched, meaning};
use crate::attachments::{AttachmentSources, ReadAttachments};
use crate::channel::ChannelUri;
use crate::session::{ClientDispatch, chats_to_pin, message_in};
use crate::state::{Action, ChannelState, DispatchTicket, Origin};
use crate::storage::Change;

/// Why a dispatch to an existing session is rejected when the session cannot be reached.
const UNREACHABLE: &str = "the session is temporarily unavailable; try again";

/// A dispatch that no session has received.
enum Undelivered {
    /// Its channel does not exist.
    UnknownChannel(ChannelUri),
    /// It is rejected, for this reason.
    Rejected(Box<ClientDispatch>, String),
}

impl Host {
    /// Handles an action that a client dispatched, unless it repeats an earlier dispatch.
    /// Waits for an earlier copy of the dispatch, for the session to load, for a place in its
    /// queue and, on the root channel, for storage.
    pub async fn dispatch(&self, channel: ChannelUri, action: Action, origin: Origin) {
        self.dispatch_reading(channel, action, origin, None).await;
    }

    /// Like [`Self::dispatch`]. First reads the attachments of a message from the sources.
    pub async fn dispatch_reading(
        &self,
        channel: ChannelUri,
        action: Action,
        origin: Origin,
        sources: Option<&AttachmentSources>,
    ) {
        let ticket = DispatchTicket::claim(&self.store, &channel, &action, origin).await;
        let Some(ticket) = ticket else { return };
        let read = match (sources, message_in(action.typed())) {
            (Some(sources), Some(message)) => sources.read(&ticket.origin().client, message).await,
            _ => Ok(ReadAttachments::default()),
        };
        let Ok(read) = read else {
            // Not handled: the client sends the message again when it reconnects.
            tracing::debug!(%channel, "the client disconnected while its attachments were read");
            return;
        };
        let action = read.rewritten(action);
        let dispatch = ClientDispatch { channel, action, ticket, snapshots: read.snapshots };
        if dispatch.channel.is_root() {
            return self.dispatch_to_root(&dispatch).await;
        }
        if let Some(address) = self.changesets.address_of(&dispatch.channel) {
            return self.dispatch_to_changeset(&dispatch, &address.session).await;
        }
        // Attached chats may belong to any session.
        self.load_or_log(&chats_to_pin(message_in(dispatch.action.typed()))).await;
        match self.deliver(Box::new(dispatch)).await {
            Ok(()) => {}
            // Not rejected: the protocol says to ignore actions for unknown channels.
            Err(Undelivered::UnknownChannel(channel)) => {
                tracing::debug!(%channel, "ignoring action for unknown channel");
            }
            Err(Undelivered::Rejected(dispatch, reason)) => {
                let ClientDispatch { channel, action, ticket, .. } = &*dispatch;
                if let Err(error) = self.store.reject(channel, action, ticket.origin(), &reason) {
                    tracing::error!(%channel, %error, "cannot send rejection");
                }
            }
        }
    }

    /// Sends a dispatch to the session that owns its channel.
    async fn deliver(&self, mut dispatch: Box<ClientDispatch>) -> Result<(), Undelivered> {
        // Tried twice, since the session may be unloading at this moment.
        for _ in 0..2 {
            if let Err(error) = self.load(&dispatch.channel).await {
                tracing::error!(channel = %dispatch.channel, %error, "cannot load session");
                return Err(Undelivered::Rejected(dispatch, error.to_string()));
            }
            let session = self.addresses.session_of(&dispatch.channel);
            let session = session.as_ref().unwrap_or(&dispatch.channel);
            let handle = lock(&self.sessions).by_uri.get(session).cloned();
            if let Some(handle) = handle {
                match handle.dispatch(dispatch).await {
                    Ok(()) => return Ok(()),
                    Err(back) => dispatch = back,
                }
            } else if let Some(reason) = self.rejection_without_session(&dispatch.channel) {
                return Err(Undelivered::Rejected(dispatch, reason.to_owned()));
            } else {
                return Err(Undelivered::UnknownChannel(dispatch.channel));
            }
        }
        Err(Undelivered::Rejected(dispatch, UNREACHABLE.to_owned()))
    }

    /// Why a channel without a session takes no actions; `None` if the channel is unknown.
    fn rejection_without_session(&self, channel: &ChannelUri) -> Option<&'static str> {
        match self.store.read(channel, |state| matches!(state, ChannelState::ResourceWatch(_))) {
            Some(true) => Some("this channel is read-only"),
            Some(false) => Some(UNREACHABLE),
            None => self.stored_session_of(channel).map(|_| UNREACHABLE),
        }
    }

    async fn dispatch_to_root(&self, dispatch: &ClientDispatch) {
        let ClientDispatch { channel, action, ticket, .. } = dispatch;
        let dispatched = meaning(action.typed()).dispatched();
        let outcome = if let Some(Dispatched::RootConfigChanged(changed)) = dispatched {
            let _alone = self.root_config.acquire().await;
            match self.changed_root_config(changed) {
                // VS Code sends the same configuration from every window.
                None => self.store.echo_unchanged(channel, action, ticket.origin()),
                Some(values) => match self.storage.write(vec![Change::PutRootConfig { values }]).await {
                    Ok(()) => self.store.commit(channel, action, Some(ticket.origin())),
                    Err(error) => self.store.reject(channel, action, ticket.origin(), &error.to_string()),
                },
            }
        } else {
            let reason = "clients may not dispatch this action on the root channel";
            self.store.reject(channel, action, ticket.origin(), reason)
        };
        if let Err(error) = outcome {
            tracing::error!(%error, "cannot answer action on the root channel");
        }
    }

    /// The configuration after the action, if the action changes it.
    fn changed_root_config(&self, changed: &RootConfigChangedAction) -> Option<JsonObject> {
        let old = self
            .store
            .read(&ChannelUri::root(), |state| Some(state.root()?.config.as_ref()?.values.clone()))
            .flatten()
            .unwrap_or_default();
        let mut values = if changed.replace == Some(true) { JsonObject::new() } else { old.clone() };
        values.extend(changed.config.clone());
        (values != old).then_some(values)
    }
}
