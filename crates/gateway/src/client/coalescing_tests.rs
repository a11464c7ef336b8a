use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::*;

/// The longest delay of a chunk: the hold time and the timer resolution.
const LONGEST: Duration = HOLD.saturating_add(Duration::from_millis(1));

/// Size of a chunk, as a benchmark model sends it.
const CHUNK: usize = 160;

/// An in-memory socket with the low-water behaviour of a real one.
#[derive(Clone, Default)]
struct FakeSocket(Arc<Mutex<FakeSocketState>>);

struct FakeSocketState {
    received: VecDeque<u8>,
    low_water: usize,
    ended: bool,
    reader: Option<Waker>,
}

impl Default for FakeSocketState {
    fn default() -> Self {
        Self { received: VecDeque::new(), low_water: 1, ended: false, reader: None }
    }
}

impl FakeSocketState {
    fn is_readable(&self) -> bool {
        self.ended || self.received.len() >= self.low_water
    }

    fn wake_reader(&mut self) {
        if self.is_readable()
            && let Some(reader) = self.reader.take()
        {
            reader.wake();
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = self.received.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(self.received.drain(..count)) {
            *place = byte;
        }
        count
    }
}

impl FakeSocket {
    fn send(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap();
        state.received.extend(bytes);
        state.wake_reader();
    }

    fn end(&self) {
        let mut state = self.0.lock().unwrap();
        state.ended = true;
        state.wake_reader();
    }

    fn low_water(&self) -> usize {
        self.0.lock().unwrap().low_water
    }
}

impl LowWaterSocket for FakeSocket {
    fn set_low_water(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.low_water = bytes;
        state.wake_reader();
        Ok(())
    }

    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        if state.received.is_empty() && !state.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(state.read(buffer))
    }
}

impl AsyncRead for FakeSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.lock().unwrap();
        if !state.is_readable() {
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = state.read(buffer.initialize_unfilled());
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FakeSocket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The time and the bytes of each read.
type Reads = Vec<(Instant, Vec<u8>)>;

async fn read_all(mut socket: CoalescingSocket<FakeSocket>) -> Reads {
    let mut reads = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = socket.read(&mut buffer).await.unwrap();
        reads.push((Instant::now(), buffer[..count].to_vec()));
        if count == 0 {
            return reads;
        }
    }
}

/// Sends chunks, each after a pause, then the end; returns the send times and the reads.
async fn run(script: &[(Duration, Vec<u8>)]) -> (Vec<Instant>, Reads) {
    let socket = FakeSocket::default();
    let send = async {
        let mut sent = Vec::new();
        for (pause, chunk) in script {
            sleep(*pause).await;
            socket.send(chunk);
            sent.push(Instant::now());
        }
        socket.end();
        sent
    };
    tokio::join!(send, read_all(CoalescingSocket::new(socket.clone())))
}

fn equal_chunks(count: usize, pause: Duration) -> Vec<(Duration, Vec<u8>)> {
    (0..count).map(|number| (pause, vec![number as u8; CHUNK])).collect()
}

/// The delay of each byte.
fn delays(script: &[(Duration, Vec<u8>)], sent: &[Instant], reads: &Reads) -> Vec<Duration> {
    let sent = script.iter().zip(sent).flat_map(|((_, chunk), at)| chunk.iter().map(move |_| *at));
    let received = reads.iter().flat_map(|(at, bytes)| bytes.iter().map(move |_| *at));
    sent.zip(received).map(|(sent, received)| received - sent).collect()
}

#[tokio::test(start_paused = true)]
async fn chunks_at_model_speed_are_read_when_they_arrive() {
    // Paused tokio timers have millisecond resolution, so 1 ms is the shortest pause that is not fast.
    for pause in [1, 3, 20].map(Duration::from_millis) {
        let script = equal_chunks(500, pause);
        let (sent, reads) = run(&script).await;
        assert_eq!(reads.len(), script.len() + 1);
        assert!(delays(&script, &sent, &reads).iter().all(Duration::is_zero));
    }
}

/// Five chunks per millisecond, which is fast enough to be coalesced.
fn burst(count: usize) -> Vec<(Duration, Vec<u8>)> {
    (0..count)
        .map(|number| (Duration::from_millis(u64::from(number % 5 == 0)), vec![number as u8; CHUNK]))
        .collect()
}

/// Like [`run`], but yields after each chunk so that the reader is woken for it.
async fn run_yielding(script: &[(Duration, Vec<u8>)]) -> (Vec<Instant>, Reads) {
    let socket = FakeSocket::default();
    let send = async {
        let mut sent = Vec::new();
        for (pause, chunk) in script {
            if pause.is_zero() {
                tokio::task::yield_now().await;
            } else {
                sleep(*pause).await;
            }
            socket.send(chunk);
            sent.push(Instant::now());
        }
        tokio::task::yield_now().await;
        socket.end();
        sent
    };
    tokio::join!(send, read_all(CoalescingSocket::new(socket.clone())))
}

#[tokio::test(start_paused = true)]
async fn fast_chunks_are_read_in_fewer_reads_within_hold_time() {
    let script = burst(2_000);
    let (sent, reads) = run_yielding(&script).await;
    assert!(reads.len() < script.len() / 4, "{} reads", reads.len());
    let delays = delays(&script, &sent, &reads);
    assert_eq!(delays.len(), 2_000 * CHUNK);
    assert!(delays.iter().all(|delay| *delay <= LONGEST), "{:?}", delays.iter().max());
    // The first chunks are not delayed.
    assert!(delays.iter().take(20 * CHUNK).all(Duration::is_zero));
}

#[tokio::test(start_paused = true)]
async fn end_of_stream_is_not_delayed_and_includes_accumulated_bytes() {
    let script = burst(501);
    let (sent, reads) = run_yielding(&script).await;
    let last = *sent.last().unwrap();
    let bytes: usize = reads.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(bytes, 501 * CHUNK);
    assert_eq!(reads.last().unwrap().0, last);
}

#[tokio::test(start_paused = true)]
async fn slow_chunks_after_a_burst_are_read_when_they_arrive() {
    let mut script = burst(500);
    script.extend(equal_chunks(10, Duration::from_millis(30)));
    let (sent, reads) = run_yielding(&script).await;
    let delays = delays(&script, &sent, &reads);
    assert!(delays.iter().rev().take(9 * CHUNK).all(Duration::is_zero));
}

#[tokio::test(start_paused = true)]
async fn write_stops_coalescing() {
    let fake = FakeSocket::default();
    let mut socket = CoalescingSocket::new(fake.clone());
    let mut buffer = [0; CHUNK];
    let mut count = 0;
    while fake.low_water() == 1 {
        fake.send(&[0; CHUNK]);
        socket.read_exact(&mut buffer).await.unwrap();
        count += 1;
        assert!(count < 100, "reads are never coalesced");
    }
    socket.write_all(b"GET").await.unwrap();
    assert_eq!(fake.low_water(), 1);
    let before = Instant::now();
    fake.send(&[1; CHUNK]);
    socket.read_exact(&mut buffer).await.unwrap();
    assert_eq!((Instant::now(), buffer), (before, [1; CHUNK]));
}

#[tokio::test(start_paused = true)]
async fn rest_of_a_full_read_is_not_delayed_again() {
    let fake = FakeSocket::default();
    let mut socket = CoalescingSocket::new(fake.clone());
    let mut buffer = [0; CHUNK];
    while fake.low_water() == 1 {
        fake.send(&[0; CHUNK]);
        socket.read_exact(&mut buffer).await.unwrap();
    }
    let before = Instant::now();
    fake.send(&[1; 10 * CHUNK]);
    for _ in 0..10 {
        socket.read_exact(&mut buffer).await.unwrap();
        assert!(before.elapsed() <= LONGEST);
    }
}

#[tokio::test(start_paused = true)]
async fn large_chunks_are_not_coalesced() {
    let fake = FakeSocket::default();
    let mut socket = CoalescingSocket::new(fake.clone());
    let mut buffer = vec![0; 4096];
    for _ in 0..200 {
        fake.send(&[0; 4096]);
        socket.read_exact(&mut buffer).await.unwrap();
        assert_eq!(fake.low_water(), 1);
    }
}

#[tokio::test]
async fn all_bytes_of_a_burst_arrive_in_order_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let chunk: Vec<u8> = (0..CHUNK).map(|number| number as u8).collect();
    let send = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        for number in 0..5_000_u32 {
            socket.write_all(&chunk).await.unwrap();
            if number % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    let receive = async {
        let mut socket = CoalescingSocket::new(TcpStream::connect(address).await.unwrap());
        let mut received = Vec::new();
        socket.read_to_end(&mut received).await.unwrap();
        received
    };
    let ((), received) = tokio::join!(send, receive);
    assert_eq!(received, chunk.repeat(5_000));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn tcp_socket_becomes_readable_when_low_water_mark_is_lowered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    LowWaterSocket::set_low_water(&client, HIGH).unwrap();
    server.write_all(b"few").await.unwrap();
    // The bytes have arrived, but the socket is not reported as readable.
    let mut buffer = [0; 8];
    let silent = tokio::time::timeout(Duration::from_millis(50), client.read(&mut buffer)).await;
    assert!(silent.is_err());
    LowWaterSocket::set_low_water(&client, 1).unwrap();
    assert_eq!(client.read(&mut buffer).await.unwrap(), 3);
    assert_eq!(LowWaterSocket::read_now(&client, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    // The end of the stream is reported regardless of the mark.
    LowWaterSocket::set_low_water(&client, HIGH).unwrap();
    server.write_all(b"end").await.unwrap();
    drop(server);
    assert_eq!(client.read(&mut buffer).await.unwrap(), 3);
    assert_eq!(client.read(&mut buffer).await.unwrap(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_keep_their_order_and_no_chunk_exceeds_hold_time(
        chunks in proptest::collection::vec((0_u64..4, 1_usize..600, 1_usize..40), 1..60),
    ) {
        // Bursts of equal chunks with a pause before each burst.
        let mut number = 0_u8;
        let mut script = Vec::new();
        for (pause, size, count) in chunks {
            for place in 0..count {
                number = number.wrapping_add(1);
                let pause = if place == 0 { pause } else { 0 };
                script.push((Duration::from_millis(pause), vec![number; size]));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (sent, reads) = runtime.unwrap().block_on(run_yielding(&script));
        let wanted: Vec<u8> = script.iter().flat_map(|(_, chunk)| chunk.clone()).collect();
        let received: Vec<u8> = reads.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        prop_assert_eq!(&received, &wanted);
        prop_assert!(delays(&script, &sent, &reads).iter().all(|delay| *delay <= LONGEST));
    }
}
