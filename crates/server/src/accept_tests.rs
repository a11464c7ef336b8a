//! Sockets that send no request, send too many, or do not read their responses.

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use super::*;

/// Much longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(3600);

fn acceptor(request_timeout: Duration) -> Acceptor {
    let router = Router::new()
        .route("/", get(|| async { "here" }))
        .route("/large", get(|| async { "x".repeat(1 << 20) }));
    Acceptor {
        router,
        tls: None,
        sockets: 4,
        descriptors: usize::MAX,
        request_timeout,
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
    }
}

fn info() -> SocketInfo {
    SocketInfo { progress: WriteProgress::default(), descriptors: Descriptors::Enough }
}

async fn ask(socket: &mut TcpStream) -> String {
    socket.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn idle_sockets_do_not_block_new_ones_and_oldest_is_closed_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = acceptor(TIMEOUT);
    let (tasks, stop) = (acceptor.tasks.clone(), acceptor.stop.clone());
    tasks.spawn(acceptor.run(listener));
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut newcomer = TcpStream::connect(address).await.unwrap();
    assert!(ask(&mut newcomer).await.ends_with("here"));
    // End of file or a reset: either way the socket is closed.
    assert_eq!(silent[0].read(&mut [0]).await.unwrap_or(0), 0);
    // The remaining sockets are still served.
    assert!(ask(&mut silent[3]).await.ends_with("here"));
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn socket_that_sends_requests_without_reading_is_closed_after_timeout() {
    let acceptor = acceptor(Duration::from_secs(10));
    let (mut client, socket) = tokio::io::duplex(1024);
    let flood = async {
        // Fails as soon as the other side is closed.
        while client.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_ok() {}
    };
    let start = Instant::now();
    tokio::join!(flood, acceptor.serve(socket, info()));
    assert_eq!(start.elapsed(), acceptor.request_timeout + RESPONSE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn keep_alive_socket_is_closed_between_two_responses() {
    let acceptor = acceptor(Duration::from_secs(10));
    let (mut client, socket) = tokio::io::duplex(1024);
    let asking = async {
        let mut answers = 0;
        while client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.is_ok() {
            let mut answer = vec![0; 1024];
            let read = client.read(&mut answer).await.unwrap();
            if read == 0 {
                break;
            }
            assert!(answer.get(..read).unwrap().ends_with(b"here"));
            answers += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        answers
    };
    let start = Instant::now();
    let (answers, ()) = tokio::join!(asking, acceptor.serve(socket, info()));
    assert!(answers >= 9, "{answers} answers");
    assert!(start.elapsed() <= acceptor.request_timeout + Duration::from_secs(1), "{:?}", start.elapsed());
}
