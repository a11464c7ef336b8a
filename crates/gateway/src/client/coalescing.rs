//! Coalesces reads from a socket that delivers many small chunks.
//!
//! Normally each chunk is read when it arrives. When chunks arrive faster than
//! a reader can distinguish, a few of them are left to accumulate, like the
//! interrupt coalescing of network drivers: one wake-up, one read and one write
//! then carry several chunks. Bytes and their order never change, no chunk
//! waits longer than [`HOLD`], and the end of a stream is not delayed.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long chunks may accumulate. The timer resolution of a millisecond is
/// added; both together are too short to be noticed.
const HOLD: Duration = Duration::from_millis(2);

/// Chunks accumulate if their average interval is shorter than this. A fast
/// model takes ten times as long for each.
const FAST: Duration = Duration::from_millis(1);

/// Upper bound of a counted interval, and the initial average: about two dozen
/// chunks in quick succession are read one by one before any accumulate.
const LONG: Duration = Duration::from_millis(16);

/// The latest interval or size counts 1/8 in the average.
const WEIGHT: u32 = 8;

/// Bytes at which accumulated chunks are read early. Also the most that is read
/// when the timer fires: more would already have been read.
const HIGH: usize = 8 * 1024;

/// Larger chunks than this are read one by one.
const SMALL: u32 = 2 * 1024;

/// A socket whose reads can be coalesced.
pub(super) trait LowWaterSocket: AsyncRead + AsyncWrite + Unpin {
    /// Sets how many bytes must be available for the socket to be readable. If
    /// they are, it becomes readable; the end of the stream always makes it so.
    fn set_low_water(&self, bytes: usize) -> io::Result<()>;

    /// Reads the available bytes, however few, or fails with `WouldBlock`.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::os::fd::AsRawFd as _;

    use nix::libc;
    use nix::sys::socket::{MsgFlags, SetSockOpt as _, recv};
    use nix::{setsockopt_impl, sockopt_impl};
    use tokio::net::TcpStream;

    sockopt_impl!(LowWater, SetOnly, libc::SOL_SOCKET, libc::SO_RCVLOWAT, i32);

    pub(super) fn set_low_water(socket: &TcpStream, bytes: usize) -> io::Result<()> {
        let bytes = i32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(LowWater.set(socket, &bytes)?)
    }

    pub(super) fn read_now(socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?)
    }
}

/// On other systems a socket is not known to become readable again when the
/// low-water mark is lowered, so reads are not coalesced.
#[cfg(not(target_os = "linux"))]
mod linux {
    use std::io;

    use tokio::net::TcpStream;

    pub(super) fn set_low_water(_: &TcpStream, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read_now(_: &TcpStream, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl LowWaterSocket for TcpStream {
    fn set_low_water(&self, bytes: usize) -> io::Result<()> {
        linux::set_low_water(self, bytes)
    }

    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        linux::read_now(self, buffer)
    }
}

/// A socket that is read in fewer, larger reads while many small chunks arrive.
pub(super) struct CoalescingSocket<W> {
    socket: W,
    rate: ArrivalRate,
    mode: ReadMode,
    /// Created on first use; most connections never need it.
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadMode {
    /// Each chunk is read when it arrives.
    Immediate,
    /// Chunks accumulate until the timer fires.
    Coalescing,
    /// The last read filled the buffer; the rest is read immediately.
    Remainder,
}

impl<W: LowWaterSocket> CoalescingSocket<W> {
    pub(super) fn new(socket: W) -> Self {
        Self { socket, rate: ArrivalRate::default(), mode: ReadMode::Immediate, timer: None }
    }

    /// Updates the state after `count` of at most `most` bytes were read.
    fn after_read(&mut self, count: usize, most: usize) -> io::Result<()> {
        let now = Instant::now();
        match self.mode {
            ReadMode::Immediate if self.rate.is_fast_after(now, count) => self.start_coalescing(now),
            ReadMode::Immediate => {}
            ReadMode::Coalescing | ReadMode::Remainder if count == most => self.mode = ReadMode::Remainder,
            ReadMode::Coalescing if !self.rate.is_worth_it(count) => return self.stop_coalescing(),
            ReadMode::Coalescing | ReadMode::Remainder => self.arm_timer(now),
        }
        Ok(())
    }

    fn start_coalescing(&mut self, now: Instant) {
        // Where the mark is unsupported, reads continue one by one.
        if self.socket.set_low_water(HIGH).is_ok() {
            self.arm_timer(now);
        } else {
            self.rate = ArrivalRate::default();
        }
    }

    fn arm_timer(&mut self, now: Instant) {
        self.mode = ReadMode::Coalescing;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(now + HOLD),
            None => self.timer = Some(Box::pin(sleep_until(now + HOLD))),
        }
    }

    /// Returns to reading each chunk when it arrives.
    fn stop_coalescing(&mut self) -> io::Result<()> {
        self.rate = ArrivalRate::default();
        match std::mem::replace(&mut self.mode, ReadMode::Immediate) {
            ReadMode::Immediate => Ok(()),
            ReadMode::Coalescing | ReadMode::Remainder => self.socket.set_low_water(1),
        }
    }

    /// Reads the accumulated chunks if the timer fired.
    fn poll_coalesced(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.mode == ReadMode::Coalescing
            && let Some(timer) = &mut self.timer
        {
            ready!(timer.as_mut().poll(context));
        }
        let most = buffer.remaining().min(HIGH);
        match self.socket.read_now(buffer.initialize_unfilled_to(most)) {
            Ok(count) => {
                buffer.advance(count);
                Poll::Ready(self.after_read(count, most))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The socket was polled just before, so it wakes this task when data arrives.
                self.stop_coalescing()?;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<W: LowWaterSocket> AsyncRead for CoalescingSocket<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let most = buffer.remaining();
        match Pin::new(&mut this.socket).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                Poll::Ready(this.after_read(most.saturating_sub(buffer.remaining()), most))
            }
            Poll::Pending if this.mode != ReadMode::Immediate => this.poll_coalesced(context, buffer),
            ready_or_not @ (Poll::Ready(_) | Poll::Pending) => ready_or_not,
        }
    }
}

impl<W: LowWaterSocket> AsyncWrite for CoalescingSocket<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // The next bytes are the start of a response and must not be delayed.
        self.stop_coalescing()?;
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stop_coalescing()?;
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

impl<W> fmt::Debug for CoalescingSocket<W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CoalescingSocket").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// Moving averages of the interval and size of chunks.
#[derive(Debug)]
struct ArrivalRate {
    /// Average time between two chunks.
    pause: Duration,
    /// Average bytes per chunk.
    size: u32,
    last: Option<Instant>,
}

impl Default for ArrivalRate {
    fn default() -> Self {
        Self { pause: LONG, size: 0, last: None }
    }
}

impl ArrivalRate {
    /// Records a chunk that was read alone; returns whether chunks arrive fast and small.
    fn is_fast_after(&mut self, now: Instant, count: usize) -> bool {
        let pause = self.last.map_or(LONG, |last| now.saturating_duration_since(last).min(LONG));
        self.last = Some(now);
        self.pause = (self.pause * (WEIGHT - 1) + pause) / WEIGHT;
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(2 * SMALL);
        self.size = if self.size == 0 { count } else { (self.size * (WEIGHT - 1) + count) / WEIGHT };
        self.pause < FAST && self.size <= SMALL
    }

    /// Whether `count` bytes are clearly more than a single chunk.
    fn is_worth_it(&self, count: usize) -> bool {
        u32::try_from(count).is_ok_and(|count| count > self.size.saturating_add(self.size / 2))
    }
}

#[cfg(test)]
#[path = "coalescing_tests.rs"]
mod tests;
