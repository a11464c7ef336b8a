//! Measures how much time the host adds to the first delta of a warm turn, compared with
//! a bare runtime. Both use the same options and the same demo model and alternate turn
//! by turn, so that changes in machine speed affect both.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use innkeeper_bench::load::Socket;
use innkeeper_bench::monotonic_nanos;
use innkeeper_core::ChannelUri;
use innkeeper_testkit::{HostOptions, TestHost};
use serde_json::json;
use uuid::Uuid;

use crate::bare::{BareRuntime, HookUse};
use crate::report::{LoadReport, percentiles};

/// Maximum milliseconds that the host may add at the median.
const ADDED_LIMIT: f64 = 1.5;

/// Unmeasured turns on each side, in which the runtime compiles its code.
const WARM_UP: usize = 10;

/// Measured turns on each side.
const ROUNDS: usize = 200;

/// Pause between turns, in which a runtime finishes its work after the result.
const PAUSE: Duration = Duration::from_millis(20);

/// Timeout of a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// A prompt that makes the demo model respond at once with one short text.
const PROMPT: &str = "#demo\ntext Good evening, a room is free.";

/// Measures one runtime.
pub(crate) async fn measure(
    innkeeper: &Path,
    claude: &Path,
    quick: bool,
    report: &mut LoadReport,
) -> Result<()> {
    let (warm_up, rounds) = if quick { (1, 5) } else { (WARM_UP, ROUNDS) };
    let options = HostOptions {
        arguments: vec!["--no-token".to_owned()],
        ..HostOptions::new(innkeeper, Some(PathBuf::from(claude)))
    };
    let host = TestHost::start(options).await?;
    let mut client = TurnClient::connect(&host).await?;
    // The first message starts the host's runtime, whose options the bare runtime copies.
    in_time(client.turn(PROMPT)).await?;
    let mut runtime = BareRuntime::beside(&host, HookUse::None).await?;
    in_time(runtime.turn(PROMPT)).await?;
    let (mut bare, mut through_host) = (Vec::new(), Vec::new());
    for round in 0..warm_up + rounds {
        let measured = if round % 2 == 0 {
            let first = in_time(runtime.turn(PROMPT)).await?;
            (first, in_time(client.turn(PROMPT)).await?)
        } else {
            let first = in_time(client.turn(PROMPT)).await?;
            (in_time(runtime.turn(PROMPT)).await?, first)
        };
        if round >= warm_up {
            bare.push(measured.0.as_secs_f64() * 1e3);
            through_host.push(measured.1.as_secs_f64() * 1e3);
        }
    }
    let what = format!("first delta of a warm turn, {}: bare runtime, p50", version(claude));
    let [bare_p50, bare_p99] = percentiles(bare, [50, 99]);
    let [host_p50, host_p99] = percentiles(through_host, [50, 99]);
    report.record(&what, bare_p50, "ms");
    report.record("  through the host, p50", host_p50, "ms");
    report.within("  added by the host, p50", host_p50 - bare_p50, "ms", ADDED_LIMIT, String::new());
    report.record("  bare runtime, p99", bare_p99, "ms");
    report.record("  through the host, p99", host_p99, "ms");
    Ok(())
}

/// The name of the runtime's installation directory, which is its version.
pub(crate) fn version(claude: &Path) -> String {
    let folder = claude.parent().and_then(Path::file_name).unwrap_or(claude.as_os_str());
    folder.to_string_lossy().into_owned()
}

async fn in_time(turn: impl Future<Output = Result<Duration>>) -> Result<Duration> {
    let took = tokio::time::timeout(TURN_TIMEOUT, turn).await.context("timed out waiting for a turn")??;
    tokio::time::sleep(PAUSE).await;
    Ok(took)
}

/// A client with one chat.
#[derive(Debug)]
struct TurnClient {
    socket: Socket,
    chat: String,
    turns: u64,
}

impl TurnClient {
    /// Creates a session in the host's working directory and subscribes to its chat.
    async fn connect(host: &TestHost) -> Result<Self> {
        let address = host.socket()?.trim_start_matches("ws://").trim_end_matches('/').parse();
        let (mut socket, _) =
            Socket::open(address.context("invalid address in the ready line")?, "turn", &[]).await?;
        let session = format!("claude:/{}", Uuid::new_v4());
        let params =
            json!({"channel": session, "provider": "claude", "workingDirectories": [host.work_uri()]});
        socket.request("createSession", params).await?;
        let chat = ChannelUri::default_chat_of(&ChannelUri::new(&session)).as_str().to_owned();
        socket.request("subscribe", json!({"channel": chat})).await?;
        Ok(Self { socket, chat, turns: 0 })
    }

    /// Runs a turn; returns the time to its first delta.
    async fn turn(&mut self, text: &str) -> Result<Duration> {
        self.turns += 1;
        let action = json!({"type": "chat/turnStarted", "turnId": format!("turn-{}", self.turns),
            "startedAt": "2025-11-15T09:00:05.000Z", "message": {"text": text, "origin": {"kind": "user"}}});
        let params = json!({"channel": self.chat, "clientSeq": self.turns, "action": action});
        let since = monotonic_nanos();
        self.socket.notify("dispatchAction", params).await?;
        let (mut first_delta, mut completed, mut failed) = (None, false, None);
        while !completed {
            let each = |text: &[u8]| {
                let is = |kind: &[u8]| memchr::memmem::find(text, kind).is_some();
                if first_delta.is_none() && is(br#""type":"chat/delta""#) {
                    first_delta = Some(monotonic_nanos());
                }
                completed |= is(br#""type":"chat/turnComplete""#);
                if is(br#""type":"chat/error""#) || is(br#""rejectionReason""#) {
                    failed = Some(String::from_utf8_lossy(text).into_owned());
                }
            };
            self.socket.read(each).await?;
            if let Some(frame) = &failed {
                bail!("the turn failed: {frame}");
            }
        }
        let first_delta = first_delta.context("the turn ended without a delta")?;
        Ok(Duration::from_nanos(first_delta.saturating_sub(since)))
    }
}
