//! Keeps the list of models up to date.
//!
//! Owns the task that asks the gateway for the upstream's models: at the start, after the
//! credentials were replaced, and periodically. The last list is kept while the upstream does not
//! answer, but not for other credentials: it belongs to their account.

use std::sync::Arc;
use std::time::Duration;

use innkeeper_core::clock::{Clock, SystemClock};
use innkeeper_core::model::{CatalogueProblem, ModelCatalogue, ModelLookup, OfferedModel, PolicyState};
use innkeeper_gateway::{ApiError, GatewayHandle, ModelList, ModelPolicy, UpstreamModel};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::UpstreamName;

/// How long the start of the host waits for the first list. Clients of a host whose upstream
/// answers quickly, such as the demo model, then see the models at once.
const FIRST_LIST: Duration = Duration::from_millis(250);

/// Time until the next request after a failed one.
const RETRY: Duration = Duration::from_secs(60);

/// The task that keeps the list up to date. Dropping this does not end it.
#[derive(Debug)]
pub(crate) struct ModelRefresh {
    current: CurrentModels,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

/// The models of the last list.
#[derive(Clone, Debug)]
pub(crate) struct CurrentModels {
    source: &'static str,
    lists: watch::Receiver<Option<Arc<ModelList>>>,
    catalogue: watch::Receiver<ModelCatalogue>,
}

impl ModelRefresh {
    /// Starts asking for the models.
    pub(crate) fn start(gateway: Arc<GatewayHandle>, upstream: UpstreamName, period: Duration) -> Self {
        let (list_sender, lists) = watch::channel(None);
        let service = upstream.service().to_owned();
        let empty = ModelCatalogue { service, ..ModelCatalogue::default() };
        let (catalogue_sender, catalogue) = watch::channel(empty);
        let (cancel, tasks) = (CancellationToken::new(), TaskTracker::new());
        let publisher = ModelPublisher {
            source: upstream.as_str(),
            lists: list_sender,
            catalogue: catalogue_sender,
            clock: Arc::new(SystemClock),
        };
        let ended = cancel.clone();
        tasks.spawn(async move { ended.run_until_cancelled(publisher.run(&gateway, period)).await });
        tasks.close();
        let current = CurrentModels { source: upstream.as_str(), lists, catalogue };
        Self { current, cancel, tasks }
    }

    /// Waits a short time for the first list or its failure.
    pub(crate) async fn listed_soon(&self) {
        let mut catalogue = self.current.catalogue();
        let is_known =
            |catalogue: &ModelCatalogue| !catalogue.models.is_empty() || catalogue.problem.is_some();
        // A later list is published when it arrives.
        tokio::time::timeout(FIRST_LIST, catalogue.wait_for(is_known)).await.map(drop).ok();
    }

    pub(crate) fn current(&self) -> CurrentModels {
        self.current.clone()
    }

    /// Ends the task. Receivers of the catalogue are told that there are no more changes.
    pub(crate) async fn stop(&self) {
        self.cancel.cancel();
        self.tasks.wait().await;
    }
}

impl CurrentModels {
    pub(crate) fn catalogue(&self) -> watch::Receiver<ModelCatalogue> {
        self.catalogue.clone()
    }

    /// Finds a model by an id in any spelling.
    pub(crate) fn find(&self, id: &str) -> ModelLookup {
        let list = self.lists.borrow().clone();
        let Some(list) = list else { return ModelLookup::Accepted };
        match list.find(id) {
            Ok(Some(model)) => ModelLookup::Listed(Box::new(offered(model, self.source))),
            Ok(None) => ModelLookup::Accepted,
            Err(unknown) => ModelLookup::Unknown(unknown.nearest),
        }
    }
}

struct ModelPublisher {
    source: &'static str,
    lists: watch::Sender<Option<Arc<ModelList>>>,
    catalogue: watch::Sender<ModelCatalogue>,
    clock: Arc<dyn Clock>,
}

/// Whose models the published list contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Account {
    /// The account of the current credentials.
    Same,
    /// Credentials were replaced since.
    Other,
}

impl ModelPublisher {
    async fn run(self, gateway: &GatewayHandle, period: Duration) {
        let mut listed_at = None;
        let mut account = Account::Same;
        loop {
            let listed = tokio::select! {
                biased;
                // A list for earlier credentials must not be published.
                () = gateway.credentials_replaced() => {
                    account = Account::Other;
                    continue;
                }
                listed = gateway.model_list() => listed,
            };
            let pause = match listed {
                Ok(list) => {
                    listed_at = Some(self.clock.now());
                    account = Account::Same;
                    self.publish(list);
                    period
                }
                Err(error) => {
                    if account == Account::Other {
                        listed_at = None;
                        self.clear();
                    }
                    self.report(&error, CatalogueProblem { message: error.to_string(), listed_at });
                    period.min(RETRY)
                }
            };
            tokio::select! {
                biased;
                () = gateway.credentials_replaced() => account = Account::Other,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn publish(&self, list: ModelList) {
        let models: Vec<OfferedModel> =
            list.models().iter().map(|model| offered(model, self.source)).collect();
        self.lists.send_replace(Some(Arc::new(list)));
        self.catalogue.send_if_modified(|catalogue| {
            let is_new = catalogue.models != models || catalogue.problem.is_some();
            (catalogue.models, catalogue.problem) = (models, None);
            is_new
        });
    }

    fn clear(&self) {
        self.lists.send_replace(None);
        self.catalogue.send_modify(|catalogue| catalogue.models.clear());
    }

    fn report(&self, error: &ApiError, problem: CatalogueProblem) {
        let problem = Some(problem);
        self.catalogue.send_if_modified(|catalogue| {
            let is_new = catalogue.problem != problem;
            if is_new {
                tracing::warn!(%error, "cannot list the models");
            }
            catalogue.problem = problem;
            is_new
        });
    }
}

fn offered(model: &UpstreamModel, source: &str) -> OfferedModel {
    OfferedModel {
        id: model.id.clone(),
        name: model.name.clone(),
        source: source.to_owned(),
        vendor: model.vendor.clone(),
        context_window: model.context_window,
        max_prompt_tokens: model.max_prompt_tokens,
        max_output_tokens: model.max_output_tokens,
        vision: model.vision,
        efforts: model.efforts.clone(),
        multiplier: model.multiplier,
        policy: model.policy.map(|policy| match policy {
            ModelPolicy::Enabled => PolicyState::Enabled,
            ModelPolicy::Disabled => PolicyState::Disabled,
            ModelPolicy::Unconfigured => PolicyState::Unconfigured,
        }),
    }
}

#[cfg(test)]
#[path = "model_refresh_tests.rs"]
mod tests;
