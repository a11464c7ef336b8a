use std::sync::Mutex;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use innkeeper_gateway::{
    Gateway, GatewayConfig, ModelListFuture, UnlistedModels, Upstream, UpstreamFuture, UpstreamRequest,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;

const PERIOD: Duration = Duration::from_secs(900);

/// An upstream with a scripted list.
#[derive(Debug)]
struct ScriptedUpstream {
    listed: Mutex<Result<&'static [&'static str], &'static str>>,
    replaced: Notify,
}

impl ScriptedUpstream {
    fn set(&self, listed: Result<&'static [&'static str], &'static str>) {
        *self.listed.lock().unwrap() = listed;
    }

    fn list(&self) -> Result<ModelList, ApiError> {
        let ids = (*self.listed.lock().unwrap()).map_err(ApiError::authentication)?;
        let model = |id: &&str| UpstreamModel { id: (*id).to_owned(), ..UpstreamModel::default() };
        Ok(ModelList::new(ids.iter().map(model), UnlistedModels::Rejected))
    }
}

impl Upstream for ScriptedUpstream {
    fn messages(&self, _: UpstreamRequest) -> UpstreamFuture<'_> {
        panic!("no request is expected")
    }

    fn count_tokens(&self, _: UpstreamRequest) -> UpstreamFuture<'_> {
        panic!("no request is expected")
    }

    fn models(&self, _: UpstreamRequest) -> UpstreamFuture<'_> {
        panic!("no request is expected")
    }

    fn model_list(&self) -> ModelListFuture<'_> {
        async { self.list() }.boxed()
    }

    fn credentials_replaced(&self) -> BoxFuture<'_, ()> {
        self.replaced.notified().boxed()
    }
}

struct Refreshed {
    upstream: Arc<ScriptedUpstream>,
    refresh: ModelRefresh,
    catalogue: watch::Receiver<ModelCatalogue>,
}

impl Refreshed {
    async fn start(listed: Result<&'static [&'static str], &'static str>) -> Self {
        let upstream = Arc::new(ScriptedUpstream { listed: Mutex::new(listed), replaced: Notify::new() });
        let shared = Arc::clone(&upstream) as Arc<dyn Upstream>;
        let config = GatewayConfig { listen: ([127, 0, 0, 1], 0).into(), upstream: shared };
        let gateway = Arc::new(Gateway::start(config).await.unwrap());
        let refresh = ModelRefresh::start(gateway, UpstreamName::Copilot, PERIOD);
        refresh.listed_soon().await;
        let mut catalogue = refresh.current().catalogue();
        catalogue.mark_unchanged();
        Self { upstream, refresh, catalogue }
    }

    /// The ids, the cause of a failed refresh, and whether the time of the list is known.
    fn shown(&mut self) -> (Vec<String>, Option<String>, bool) {
        let catalogue = self.catalogue.borrow_and_update();
        let ids = catalogue.models.iter().map(|model| model.id.clone()).collect();
        let problem = catalogue.problem.clone();
        let is_dated = problem.as_ref().is_some_and(|problem| problem.listed_at.is_some());
        (ids, problem.map(|problem| problem.message), is_dated)
    }

    async fn until(&mut self, holds: impl Fn(&ModelCatalogue) -> bool) {
        self.catalogue.wait_for(holds).await.unwrap();
    }
}

fn problem_of(catalogue: &ModelCatalogue) -> Option<&str> {
    catalogue.problem.as_ref().map(|problem| problem.message.as_str())
}

#[tokio::test(start_paused = true)]
async fn list_is_refreshed_periodically_and_kept_with_its_time_after_a_failure() {
    let mut refreshed = Refreshed::start(Ok(&["one"])).await;
    assert_eq!(refreshed.shown(), (vec!["one".to_owned()], None, false));
    let began = Instant::now();
    refreshed.upstream.set(Ok(&["one", "two"]));
    refreshed.catalogue.changed().await.unwrap();
    assert_eq!(refreshed.shown().0, ["one", "two"]);
    assert!((PERIOD..PERIOD + RETRY).contains(&began.elapsed()), "{:?}", began.elapsed());
    refreshed.upstream.set(Err("it is down"));
    refreshed.catalogue.changed().await.unwrap();
    let ids = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(refreshed.shown(), (ids.clone(), Some("it is down".to_owned()), true));
    assert!(matches!(refreshed.refresh.current().find("two"), ModelLookup::Listed(_)));
    let began = Instant::now();
    refreshed.upstream.set(Ok(&["one", "two"]));
    refreshed.catalogue.changed().await.unwrap();
    assert_eq!(refreshed.shown(), (ids, None, false));
    assert!((RETRY..PERIOD).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn replaced_credentials_refresh_the_list_and_failure_clears_the_one_of_the_other_account() {
    let mut refreshed = Refreshed::start(Err("not signed in")).await;
    assert_eq!(refreshed.shown(), (vec![], Some("not signed in".to_owned()), false));
    assert_eq!(refreshed.refresh.current().find("any"), ModelLookup::Accepted);
    let began = Instant::now();
    refreshed.upstream.set(Ok(&["one"]));
    refreshed.upstream.replaced.notify_one();
    refreshed.until(|catalogue| catalogue.models.len() == 1 && catalogue.problem.is_none()).await;
    assert_eq!(refreshed.refresh.current().find("any"), ModelLookup::Unknown(vec!["one".to_owned()]));
    refreshed.upstream.set(Err("signed out"));
    refreshed.upstream.replaced.notify_one();
    refreshed.until(|catalogue| problem_of(catalogue) == Some("signed out")).await;
    assert_eq!(refreshed.shown(), (vec![], Some("signed out".to_owned()), false));
    assert_eq!(refreshed.refresh.current().find("any"), ModelLookup::Accepted);
    assert!(began.elapsed() < RETRY, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn receivers_learn_that_the_refresh_has_stopped() {
    let mut refreshed = Refreshed::start(Ok(&["one"])).await;
    refreshed.refresh.stop().await;
    assert!(refreshed.catalogue.changed().await.is_err());
}
