//! When the driver reports what was used, and for which turn.

use std::sync::Mutex;

use innkeeper_core::edits::NoRecorder;
use innkeeper_core::model::{ModelAccess, ModelEndpoint};
use innkeeper_core::usage::ModelUse;

use super::tests::Scene;
use super::*;

/// A model endpoint whose requests the test adds.
#[derive(Default)]
struct CountedModels {
    used: Mutex<ModelUse>,
    is_free: bool,
}

impl CountedModels {
    fn request(&self, output_tokens: u64) {
        let mut used = self.used.lock().unwrap();
        *used = used.plus(ModelUse { requests: 1, output_tokens, ..ModelUse::default() });
    }
}

impl ModelEndpoint for CountedModels {
    fn access(&self, _: Uuid) -> ModelAccess {
        panic!("the test starts the runtime itself")
    }

    fn mark_turn(&self, _: Uuid, _: &str) {}

    fn take_usage(&self, _: Uuid) -> ModelUse {
        std::mem::take(&mut self.used.lock().unwrap())
    }

    fn is_free(&self, _: Uuid) -> bool {
        self.is_free
    }
}

/// A report: its turn, requests, output tokens and cost in billionths of a dollar.
type Seen = (Option<String>, u64, u64, Option<u64>);

/// The next report or end of a turn; `None` for an end.
async fn next(scene: &mut Scene) -> Option<Seen> {
    loop {
        match scene.events.recv().await.unwrap() {
            AgentEvent::Used { turn, report } => {
                let turn = turn.map(|turn| turn.as_str().to_owned());
                let used = report.used;
                return Some((turn, used.requests, used.output_tokens, used.nano_dollars));
            }
            AgentEvent::TurnEnded { .. } | AgentEvent::Closed { .. } => return None,
            _ => {}
        }
    }
}

async fn start(models: CountedModels) -> (Scene, Arc<CountedModels>) {
    let models = Arc::new(models);
    (Scene::with(NoRecorder::shared(), Arc::clone(&models) as Arc<dyn ModelEndpoint>).await, models)
}

#[tokio::test(start_paused = true)]
async fn usage_is_reported_before_the_end_of_its_turn_and_nothing_is_reported_twice() {
    let (mut scene, models) = start(CountedModels::default()).await;
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    models.request(5);
    scene.runtime.result(json!({"user_message_uuids": [first], "total_cost_usd": 0.5})).await;
    assert_eq!(next(&mut scene).await, Some((Some("first".to_owned()), 1, 5, Some(500_000_000))));
    assert_eq!(next(&mut scene).await, None);

    // A command without a model call.
    scene.prompt("second", None).await;
    let second = scene.runtime.prompt().await;
    scene.runtime.result(json!({"user_message_uuids": [second], "total_cost_usd": 0.5})).await;
    assert_eq!(next(&mut scene).await, None);
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn usage_of_a_cancelled_turn_is_reported_without_a_turn() {
    let (mut scene, models) = start(CountedModels::default()).await;
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    scene.runtime.lifecycle(&first, "started").await;
    scene.cancel("first").await;
    let interrupt = scene.runtime.request("interrupt").await;
    models.request(3);
    let aborted = json!({"user_message_uuids": [first], "subtype": "error_during_execution",
        "terminal_reason": "aborted_streaming", "total_cost_usd": 0.25});
    scene.runtime.result(aborted).await;
    assert_eq!(next(&mut scene).await, Some((None, 1, 3, Some(250_000_000))));
    scene.runtime.agree(&interrupt).await;

    scene.prompt("second", None).await;
    let second = scene.runtime.prompt().await;
    models.request(4);
    scene.runtime.result(json!({"user_message_uuids": [second], "total_cost_usd": 0.75})).await;
    assert_eq!(next(&mut scene).await, Some((Some("second".to_owned()), 1, 4, Some(500_000_000))));
    scene.stop().await;
}

#[tokio::test(start_paused = true)]
async fn usage_of_work_that_ends_with_the_runtime_is_reported() {
    let (mut scene, models) = start(CountedModels { is_free: true, ..CountedModels::default() }).await;
    scene.prompt("first", None).await;
    let first = scene.runtime.prompt().await;
    models.request(1);
    scene.runtime.result(json!({"user_message_uuids": [first], "total_cost_usd": 0.5})).await;
    let reported = next(&mut scene).await;
    assert_eq!(reported, Some((Some("first".to_owned()), 1, 1, None)), "a free model has no cost");
    assert_eq!(next(&mut scene).await, None);
    models.request(9);
    scene.close.cancel();
    assert_eq!(next(&mut scene).await, Some((None, 1, 9, None)));
    scene.stop().await;
}
