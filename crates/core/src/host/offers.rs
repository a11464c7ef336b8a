//! Publishes the agents' offers on the root channel, and again when they change.

use std::sync::Arc;

use ahp_types::actions::{RootAgentsChangedAction, StateAction};
use ahp_types::state::AgentInfo;
use tokio::task::JoinSet;

use super::Host;
use crate::agent::AgentProvider;
use crate::channel::ChannelUri;
use crate::state::{Action, ChannelState};

/// The published information about each agent.
pub(super) fn agents_of(providers: &[Arc<dyn AgentProvider>]) -> Vec<AgentInfo> {
    providers.iter().map(|provider| provider.offer().borrow().info.clone()).collect()
}

impl Host {
    /// Publishes the current offers.
    pub(super) fn publish_agents(&self) {
        let agents = agents_of(&self.providers);
        let action = StateAction::RootAgentsChanged(RootAgentsChangedAction { agents });
        if let Err(error) = self.store.commit(&ChannelUri::root(), &Action::own(action), None) {
            tracing::error!(%error, "cannot publish agents");
        }
    }

    /// Publishes the agents when the offer of one of them changes.
    pub(super) async fn watch_offers(self: Arc<Self>) {
        let mut offers = JoinSet::new();
        for provider in &self.providers {
            let mut offer = provider.offer();
            offers.spawn(async move { offer.changed().await.is_ok().then_some(offer) });
        }
        // An offer may have changed before this task started.
        if !self.shows(&agents_of(&self.providers)) {
            self.publish_agents();
        }
        loop {
            let changed = tokio::select! {
                () = self.ending.cancelled() => return,
                changed = offers.join_next() => changed,
            };
            // No provider can change its offer.
            let Some(changed) = changed else { return };
            let Some(mut offer) = changed.ok().flatten() else { continue };
            offers.spawn(async move { offer.changed().await.is_ok().then_some(offer) });
            if !self.shows(&agents_of(&self.providers)) {
                self.publish_agents();
            }
        }
    }

    fn shows(&self, agents: &[AgentInfo]) -> bool {
        let shown = |state: &ChannelState| state.root().is_some_and(|root| root.agents == agents);
        self.store.read(&ChannelUri::root(), shown).unwrap_or(false)
    }
}
