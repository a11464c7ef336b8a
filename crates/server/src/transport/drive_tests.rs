//! Batching of writes, measured with a writer that counts them; clients that do not read.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use ahp_types::actions::{RootActiveSessionsChangedAction, StateAction};
use innkeeper_core::ChannelUri;
use innkeeper_core::state::Action;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream,
};

use super::*;
use crate::transport::progress::STALL_TIMEOUT;
use crate::transport::stdio;

/// Counts the writes.
struct Counting(DuplexStream, Arc<AtomicUsize>);

impl AsyncWrite for Counting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[tokio::test(start_paused = true)]
async fn slow_stream_is_written_immediately_and_flood_in_batches() {
    let shared = ServerContext::without_agents().await;
    let writes = Arc::new(AtomicUsize::new(0));
    let (mut input, host_input) = tokio::io::duplex(1 << 16);
    let (host_output, output) = tokio::io::duplex(1 << 24);
    let mut output = BufReader::new(output).lines();
    let serving = stdio::serve(Arc::clone(&shared), host_input, Counting(host_output, Arc::clone(&writes)));
    let story = async {
        let initialize = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersions":["1.0.0"],"#,
            r#""clientId":"c","initialSubscriptions":["ahp-root://"]}}"#,
            "\n"
        );
        let start = Instant::now();
        input.write_all(initialize.as_bytes()).await.unwrap();
        output.next_line().await.unwrap().unwrap();
        for _ in 0..20 {
            input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"listSessions\"}\n").await.unwrap();
            output.next_line().await.unwrap().unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO, "sequential requests are answered without delay");

        let mut published = 0..;
        for (actions, apart, expected) in
            [(100, Duration::from_millis(1), 100..=100), (10_000, Duration::from_micros(10), 100..=2_500)]
        {
            writes.store(0, Ordering::Relaxed);
            let mut sent = Vec::new();
            for number in published.by_ref().take(actions) {
                let action = RootActiveSessionsChangedAction { active_sessions: number };
                let action = Action::own(StateAction::RootActiveSessionsChanged(action));
                shared.host.store().commit(&ChannelUri::root(), &action, None).unwrap();
                sent.push(number);
                tokio::time::advance(apart).await;
            }
            for number in sent {
                let line = output.next_line().await.unwrap().unwrap();
                assert!(line.contains(&format!("\"activeSessions\":{number}}}")), "{number}: {line}");
            }
            let writes = writes.load(Ordering::Relaxed);
            assert!(expected.contains(&writes), "{writes} writes for {actions} actions every {apart:?}");
        }
    };
    tokio::select! {
        // Poll the server first, so that it writes before the client continues.
        biased;
        () = serving => panic!("the connection ended"),
        () = story => {}
    }
}

/// Sends requests whose responses do not fit into the output.
async fn ask_much(input: &mut DuplexStream) {
    for id in 0..200 {
        let request = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
        input.write_all(request.as_bytes()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_nothing_is_closed_after_timeout() {
    let shared = ServerContext::without_agents().await;
    let (mut input, host_input) = tokio::io::duplex(1 << 16);
    let (host_output, _output) = tokio::io::duplex(1024);
    let start = Instant::now();
    ask_much(&mut input).await;
    stdio::serve(Arc::clone(&shared), host_input, host_output).await;
    assert_eq!(start.elapsed(), STALL_TIMEOUT);
    let metrics = shared.counters.render(&shared.host, None);
    assert!(metrics.contains("closed_total{reason=\"too_slow\"} 1"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_slowly_stays_connected() {
    let shared = ServerContext::without_agents().await;
    let (mut input, host_input) = tokio::io::duplex(1 << 16);
    let (host_output, mut output) = tokio::io::duplex(1024);
    ask_much(&mut input).await;
    let serving = stdio::serve(shared, host_input, host_output);
    let reading = async {
        for _ in 0..100 {
            tokio::time::sleep(STALL_TIMEOUT - Duration::from_secs(1)).await;
            output.read_exact(&mut [0; 64]).await.unwrap();
        }
    };
    tokio::select! {
        () = serving => panic!("the connection ended"),
        () = reading => {}
    }
}
