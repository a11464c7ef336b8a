//! A killed host leaves no processes, and the leftovers of a killed warden are swept.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use innkeeper_claude::process_registry::ProcessRegistry;
use innkeeper_claude::{
    ApiEndpoint, BoxFuture, ClaudeSession, IncomingRequest, LaunchOptions, McpServer, PermissionAnswer,
    Program, SessionOptions,
};
use innkeeper_testkit::{eventually, processes};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::for_both_runtimes;
use crate::scripted_model::ScriptedModel;
use crate::support::*;

for_both_runtimes!(host_killed_by_sigkill_leaves_no_process_of_a_real_runtime);

/// Directory for the reports of the child host, and the runtime that it starts.
const DIRECTORY: &str = "HOST_TEST_DIRECTORY";
const RUNTIME: &str = "HOST_TEST_RUNTIME";

/// Starts a child in its own session that ignores SIGTERM and similar signals, and a daemon.
fn children() -> String {
    let child = r#"
const child = spawn('bash', ['-c', 'trap "" TERM HUP INT; echo ready; while :; do sleep 1; done'],
  { detached: true, stdio: ['ignore', 'pipe', 'ignore'] });
child.stdout.once('data', () => { say(String(child.pid)); startDaemon(); });
"#;
    format!("function startDaemon() {{ {DAEMON} }}\n{child}")
}

/// The host of a test below, run as a separate process. Reports the ids of a runtime, of its child in another
/// session and of a daemon, then waits to be killed.
#[tokio::test]
#[ignore = "run by another test in a separate process"]
async fn child_host_with_scripted_runtime() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("not started by another test"));
    let place = Place::new();
    let mut options = place.scripted(&children());
    options.scratch_dir = directory.join("scratch");
    options.registry = Some(directory.join("running"));
    let (session, mut events) = start(options).await;
    let (child, daemon) = (said_pid(&mut events).await, said_pid(&mut events).await);
    report(&directory, &[session.pid().unwrap(), child, daemon]);
    std::future::pending::<()>().await;
}

/// The same with a real runtime: a shell command under a subagent, and two MCP servers.
#[tokio::test]
#[ignore = "run by another test in a separate process"]
async fn child_host_with_real_runtime() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("not started by another test"));
    let program = Program::from_path(std::env::var_os(RUNTIME).expect("not started by another test"));
    let (place, model) = (Place::new(), ScriptedModel::start().await.unwrap());
    let mut launch = place.options(program);
    launch.scratch_dir = directory.join("scratch");
    // The variable by which the test finds every process.
    launch.environment.insert(DIRECTORY.into(), directory.clone().into());
    launch.endpoint = Some(ApiEndpoint {
        base_url: model.base_url().to_owned(),
        bearer: model.bearer(&launch.conversation.id().to_string()),
    });
    for name in ["one", "two"] {
        let script = place.write(&format!("{name}.js"), MCP_SERVER);
        let pid_file = directory.join(format!("{name}.pid"));
        let server = McpServer::Stdio {
            command: "node".to_owned(),
            args: vec![script.display().to_string(), pid_file.display().to_string()],
            env: std::collections::BTreeMap::new(),
        };
        launch.mcp.servers.insert(name.to_owned(), server);
    }
    let handler = |request, _cancel| -> BoxFuture<'static, Result<serde_json::Value, String>> {
        let IncomingRequest::CanUseTool(question) = request else { panic!("{request:?}") };
        Box::pin(std::future::ready(Ok(PermissionAnswer::allow().to_json(&question))))
    };
    let options = SessionOptions::new(launch).with_handler(handler);
    let session = ClaudeSession::start(options, CancellationToken::new()).await.unwrap();
    let command = directory.join("command.pid");
    let shell = format!("echo $$ > {0}.part; mv {0}.part {0}; sleep 600; true", command.display());
    let bash = format!("tool Bash {}", json!({ "command": shell, "description": "d" }));
    let task = json!({ "description": "d", "subagent_type": "general-purpose", "run_in_background": false,
        "prompt": format!("#demo\n{bash}\ntext done") });
    let _turn = session.send(format!("#demo\ntool Task {task}\ntext done")).unwrap();
    let files = [command, directory.join("one.pid"), directory.join("two.pid")];
    until(|| files.iter().all(|file| pid_in(file).is_some())).await;
    let mut pids: Vec<u32> = files.iter().filter_map(|file| pid_in(file)).collect();
    pids.push(session.pid().unwrap());
    report(&directory, &pids);
    std::future::pending::<()>().await;
}

/// A server without tools that reports its process id.
const MCP_SERVER: &str = r#"
const fs = require('node:fs');
fs.writeFileSync(process.argv[2], String(process.pid) + '\n');
process.on('SIGTERM', () => {});
process.on('SIGINT', () => {});
setInterval(() => {}, 1000);
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const result = method === 'initialize'
    ? { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'x', version: '1' } }
    : { tools: [] };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\n');
});
"#;

fn pid_in(file: &Path) -> Option<u32> {
    std::fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Reports process ids to the test.
fn report(directory: &Path, pids: &[u32]) {
    let words: Vec<String> = pids.iter().map(ToString::to_string).collect();
    // Renamed into place, so that an existing report is complete.
    std::fs::write(directory.join("pids.part"), words.join(" ")).unwrap();
    std::fs::rename(directory.join("pids.part"), directory.join("pids.ready")).unwrap();
}

/// Starts a host and waits for the process ids that it reports.
async fn host(directory: &Path, test: &str, runtime: &str) -> (Child, Vec<u32>) {
    std::fs::create_dir_all(directory.join("scratch")).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the host itself is the subject of the test")]
    let mut host = tokio::process::Command::new(std::env::current_exe().unwrap());
    let host = host
        .args(["--exact", test, "--ignored"])
        .env(DIRECTORY, directory)
        .env(RUNTIME, runtime)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let report = directory.join("pids.ready");
    until(|| report.exists()).await;
    let text = std::fs::read_to_string(&report).unwrap();
    let pids: Vec<u32> = text.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| lives(*pid)), "{pids:?}");
    (host, pids)
}

fn kill_now(pid: u32) {
    kill(Pid::from_raw(pid.try_into().unwrap()), Signal::SIGKILL).unwrap();
}

fn count(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[tokio::test]
async fn host_killed_by_sigkill_leaves_no_process_and_no_secret() {
    let place = Place::new();
    let directory = place.path("reports");
    let (mut host, pids) = host(&directory, "host::child_host_with_scripted_runtime", "").await;
    assert_eq!(count(&directory.join("scratch")), 1, "expected the settings file");
    kill_now(host.id().unwrap());
    host.wait().await.unwrap();
    let gone = || pids.iter().all(|pid| !lives(*pid));
    eventually(Duration::from_secs(2), "all processes exit", gone).await.unwrap();
    until(|| count(&directory.join("scratch")) == 0).await;
    // Only the record remains, which the next host sweeps.
    let registry = ProcessRegistry::new(directory.join("running"));
    let sweep = registry.sweep().unwrap();
    assert_eq!((sweep.ended.len(), sweep.processes), (1, 0));
    assert_eq!(registry.list().unwrap(), []);
}

#[tokio::test]
async fn sweep_kills_only_leftovers_of_killed_host_and_warden() {
    let place = Place::new();
    let directory = place.path("reports");
    let (mut host, pids) = host(&directory, "host::child_host_with_scripted_runtime", "").await;
    let registry = ProcessRegistry::new(directory.join("running"));
    let other = place.scripted(&children());
    let options = LaunchOptions { registry: Some(directory.join("running")), ..other };
    let (bystander, _events) = start(options).await;
    assert_eq!(registry.sweep().unwrap().live.len(), 2, "expected both hosts to be live");
    let listed = registry.list().unwrap();
    let watched: Vec<u32> = listed.iter().filter_map(|runtime| runtime.warden).collect();
    let warden = *watched.iter().find(|warden| parent(pids[0]) == **warden).unwrap();
    // First the warden, so that it cannot kill the process tree, then immediately the host.
    kill_now(warden);
    kill_now(host.id().unwrap());
    host.wait().await.unwrap();
    assert!(lives(pids[1]), "the detached child exited before the sweep");
    assert!(lives(pids[2]), "the daemon exited before the sweep");

    let sweep = tokio::task::spawn_blocking(move || registry.sweep().unwrap()).await.unwrap();
    assert_eq!((sweep.live.len(), sweep.ended.len()), (1, 1), "{sweep:?}");
    assert!(sweep.processes >= 2, "{sweep:?}");
    assert!(pids.iter().all(|pid| !lives(*pid)));
    assert!(lives(bystander.pid().unwrap()));
}

#[tokio::test]
async fn stopped_warden_continues_when_its_host_is_killed() {
    let place = Place::new();
    let directory = place.path("reports");
    let (mut host, pids) = host(&directory, "host::child_host_with_scripted_runtime", "").await;
    kill(Pid::from_raw(parent(pids[0]).try_into().unwrap()), Signal::SIGSTOP).unwrap();
    kill_now(host.id().unwrap());
    host.wait().await.unwrap();
    let gone = || pids.iter().all(|pid| !lives(*pid));
    eventually(Duration::from_secs(2), "all processes exit", gone).await.unwrap();
}

async fn host_killed_by_sigkill_leaves_no_process_of_a_real_runtime(program: Program) {
    let place = Place::new();
    let directory = place.path("reports");
    let path = match &program {
        Program::Native(path) | Program::Node { script: path, .. } => path.display().to_string(),
    };
    let test = "host::child_host_with_real_runtime";
    let (mut host, pids) = host(&directory, test, &path).await;
    assert_eq!(pids.len(), 4);
    let marked = || processes::with_variable(DIRECTORY, &directory);
    // The host, the warden, the runtime and the shell with its child; MCP servers inherit few variables.
    assert!(marked().len() >= 5, "{:?}", marked());
    kill_now(host.id().unwrap());
    host.wait().await.unwrap();
    let gone = || marked().is_empty() && pids.iter().all(|pid| !lives(*pid));
    eventually(Duration::from_secs(2), "all processes exit", gone).await.unwrap();
    until(|| count(&directory.join("scratch")) == 0).await;
}
