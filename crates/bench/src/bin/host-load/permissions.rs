//! Measures how much time the host adds to a tool call that one of its permission rules
//! allows, compared with a bare runtime whose permission requests are allowed at once.
//!
//! All runtimes use the same options and the same demo model, and alternate turn by turn, so
//! that changes in machine speed affect all. A second bare runtime calls a hook before each
//! use of a tool, as the runtimes of the host do; it shows which part of the added time the
//! runtime itself needs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ahp::{Client, ClientConfig, ClientEventStream, SubscriptionEvent};
use ahp_types::actions::{ChatToolCallReadyAction, StateAction};
use ahp_types::commands::CreateSessionParams;
use ahp_types::common::ROOT_RESOURCE_URI;
use ahp_ws::WebSocketTransport;
use anyhow::{Context as _, Result, bail, ensure};
use innkeeper_core::ChannelUri;
use innkeeper_testkit::{HostOptions, TestHost};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::bare::{BareRuntime, HookUse};
use crate::call_times::CallTimes;
use crate::report::{LoadReport, percentiles};
use crate::turn::version;

/// Maximum milliseconds that a permission answered by a rule may add to a tool call, at the median.
const ADDED_LIMIT: f64 = 1.0;

/// Tool calls of a turn.
const CALLS: usize = 20;

/// Unmeasured turns of each runtime and tool, in which the runtime compiles its code.
const WARM_UP: usize = 1;

/// Measured turns of each runtime and tool.
const ROUNDS: usize = 8;

/// Timeout of a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// The rules that allow the calls.
const RULES: [&str; 2] = ["Edit(made/**)", "Bash(touch:*)"];

/// Events that the client keeps: more than a turn causes.
const EVENT_BUFFER: usize = 16_384;

/// Tools that need permission.
#[derive(Clone, Copy, Debug)]
enum MeasuredTool {
    /// Starts no process, so its time varies least.
    Write,
    /// The rule is matched against the parsed command.
    Shell,
}

impl MeasuredTool {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "Write",
            Self::Shell => "Bash",
        }
    }

    /// A prompt that makes the demo model request this many calls, one after the other.
    fn script(self, folder: &Path, calls: usize) -> String {
        let call = || match self {
            // The runtime does not replace a file that it has not read.
            Self::Write => {
                let path = folder.join("made").join(Uuid::new_v4().to_string());
                json!({"file_path": path, "content": "text"})
            }
            Self::Shell => json!({"command": "touch file", "description": "Touch a file"}),
        };
        let mut script = "#demo\n".to_owned();
        script.extend((0..calls).map(|_| format!("tool {} {}\n", self.name(), call())));
        script + "text Done."
    }
}

/// Measures one runtime.
pub(crate) async fn measure(
    innkeeper: &Path,
    claude: &Path,
    quick: bool,
    report: &mut LoadReport,
) -> Result<()> {
    let host = TestHost::start(HostOptions::new(innkeeper, Some(PathBuf::from(claude)))).await?;
    let mut client = RuleClient::connect(&host).await?;
    // The first message starts the host's runtime, whose options the bare runtimes copy.
    let first = MeasuredTool::Shell.script(&host.work_dir(), 1);
    in_time("host", client.tool_calls(&first)).await?;
    let bare = BareRuntime::beside(&host, HookUse::None).await?;
    let hooked = BareRuntime::beside(&host, HookUse::BeforeEachUse).await?;
    let mut runtimes = ComparedRuntimes { folder: host.work_dir(), bare, hooked, client };
    for tool in [MeasuredTool::Write, MeasuredTool::Shell] {
        let times = runtimes.times(tool, quick).await?;
        let what = format!("{} with permission, {}: bare runtime, p50", tool.name(), version(claude));
        add_rows(&what, times, report);
    }
    Ok(())
}

/// Adds the times of a bare runtime, of a bare runtime with a hook, and of the host.
fn add_rows(what: &str, times: [Vec<f64>; 3], report: &mut LoadReport) {
    let [bare, hooked, ruled] = times.map(|times| percentiles(times, [50, 90]));
    let ([bare_p50, bare_p90], [hooked_p50, _], [ruled_p50, ruled_p90]) = (bare, hooked, ruled);
    report.record(what, bare_p50, "ms");
    report.record("  bare runtime with a hook, p50", hooked_p50, "ms");
    report.record("  through the host, allowed by a rule, p50", ruled_p50, "ms");
    let note = format!("ratio {:.2}", ruled_p50 / bare_p50);
    report.within("  added by the host, p50", ruled_p50 - bare_p50, "ms", ADDED_LIMIT, note);
    report.record("    by the hook, without the host", hooked_p50 - bare_p50, "ms");
    report.record("    by the rest of the host", ruled_p50 - hooked_p50, "ms");
    report.record("  bare runtime, p90", bare_p90, "ms");
    report.record("  through the host, p90", ruled_p90, "ms");
}

/// Runtimes with the same options.
struct ComparedRuntimes {
    folder: PathBuf,
    bare: BareRuntime,
    hooked: BareRuntime,
    client: RuleClient,
}

impl ComparedRuntimes {
    /// Times of a tool's calls: of the bare runtime, of the one with a hook, and of the host.
    async fn times(&mut self, tool: MeasuredTool, quick: bool) -> Result<[Vec<f64>; 3]> {
        let (warm_up, rounds, calls) = if quick { (0, 1, 3) } else { (WARM_UP, ROUNDS, CALLS) };
        let mut times: [Vec<f64>; 3] = Default::default();
        for round in 0..warm_up + rounds {
            for turn in 0..times.len() {
                // Each round starts with another runtime.
                let side = (round + turn) % times.len();
                let text = tool.script(&self.folder, calls);
                let measured = match side {
                    0 => in_time("bare runtime", self.bare.tool_calls(&text)).await?,
                    1 => in_time("bare runtime with a hook", self.hooked.tool_calls(&text)).await?,
                    _ => in_time("host", self.client.tool_calls(&text)).await?,
                };
                let (completed, allowed) = (measured.calls.len(), measured.allowed);
                ensure!(completed == calls, "{completed} of {calls} tool calls were completed");
                ensure!(allowed == calls, "permission was requested for {allowed} of {calls} tool calls");
                if let Some(times) = times.get_mut(side).filter(|_| round >= warm_up) {
                    times.extend(measured.calls);
                }
            }
        }
        Ok(times)
    }
}

async fn in_time(runtime: &str, turn: impl Future<Output = Result<CallTimes>>) -> Result<CallTimes> {
    let ended = tokio::time::timeout(TURN_TIMEOUT, turn).await;
    ended.with_context(|| format!("timed out waiting for a turn of the {runtime}"))?
}

/// The official client with one chat, in a session with a rule.
struct RuleClient {
    client: Client,
    events: ClientEventStream,
    chat: String,
    turns: u64,
}

impl RuleClient {
    /// Creates a session in the host's working directory and subscribes to its chat.
    async fn connect(host: &TestHost) -> Result<Self> {
        let transport = WebSocketTransport::connect(&host.address()?).await?;
        let config = ClientConfig { subscription_buffer: EVENT_BUFFER, ..ClientConfig::default() };
        let client = Client::connect(transport, config).await?;
        let events = client.events();
        let (versions, root) = (vec!["1.0.0".to_owned()], vec![ROOT_RESOURCE_URI.to_owned()]);
        client.initialize("permissions".to_owned(), versions, root).await?;
        let session = format!("claude:/{}", Uuid::new_v4());
        let params = CreateSessionParams {
            channel: session.clone(),
            meta: None,
            provider: Some("claude".to_owned()),
            working_directories: Some(vec![host.work_uri()]),
            config: serde_json::from_value(json!({"permissions": {"allow": RULES}}))?,
            active_client: None,
            progress_token: None,
        };
        let () = client.request("createSession", params).await?;
        let chat = ChannelUri::default_chat_of(&ChannelUri::new(&session)).as_str().to_owned();
        client.subscribe(chat.clone()).await?;
        Ok(Self { client, events, chat, turns: 0 })
    }

    /// Runs a turn with tool calls; returns their times.
    async fn tool_calls(&mut self, text: &str) -> Result<CallTimes> {
        self.turns += 1;
        let action = json!({"type": "chat/turnStarted", "turnId": format!("turn-{}", self.turns),
            "startedAt": "2025-11-15T09:00:05.000Z", "message": {"text": text, "origin": {"kind": "user"}}});
        self.client.dispatch(self.chat.clone(), serde_json::from_value(action)?).await?;
        let mut times = CallTimes::default();
        loop {
            let event = self.events.recv().await.context("the host closed the connection")?;
            let SubscriptionEvent::Action(envelope) = event.event else { continue };
            ensure!(envelope.rejection_reason.is_none(), "the host rejected the message: {envelope:?}");
            #[expect(clippy::wildcard_enum_match_arm, reason = "only actions about calls and the end matter")]
            match envelope.action {
                StateAction::ChatToolCallStart(_) => times.start(),
                StateAction::ChatToolCallReady(ready) => times.allowed += usize::from(is_by_rule(&ready)),
                StateAction::ChatToolCallComplete(complete) => {
                    ensure!(complete.result.success, "a tool call failed: {complete:?}");
                    times.complete()?;
                }
                StateAction::ChatTurnComplete(_) => return Ok(times),
                StateAction::ChatError(error) => bail!("the turn failed: {error:?}"),
                _ => {}
            }
        }
    }
}

/// Whether a rule allowed the call.
fn is_by_rule(ready: &ChatToolCallReadyAction) -> bool {
    let explained = ready.meta.as_ref().and_then(|meta| meta.get("innkeeper.permission"));
    let rule = explained.and_then(|explained| explained.get("rule")).and_then(Value::as_str);
    ready.confirmed.is_some() && rule.is_some_and(|rule| RULES.contains(&rule))
}
