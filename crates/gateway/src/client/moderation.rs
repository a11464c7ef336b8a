//! When a socket is read whose pieces come one by one.
//!
//! Owns the choice between reading each piece as it comes and, where they
//! come faster than anybody can tell apart, letting a few of them gather, as
//! network drivers do under load: one wake-up, one read and one write then
//! carry several pieces. Bytes and their order never change, no piece waits
//! longer than a hold, and the end of a stream does not wait at all.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long pieces may gather. The timer's grain of a millisecond is added to
/// it; both together are far below what a person sees or a program notices.
const HOLD: Duration = Duration::from_millis(2);

/// Pieces that come closer together than this, on average, may gather. A fast
/// model takes ten times as long for each.
const FAST: Duration = Duration::from_millis(1);

/// What a pause counts for at most, and what a stream begins with: about two
/// dozen pieces in quick succession are passed on singly before any gather.
const LONG: Duration = Duration::from_millis(16);

/// How much the latest of the pauses and sizes counts in their average.
const WEIGHT: u32 = 8;

/// Bytes at which a gathering is read before its time. Also the most that is
/// read at its end: had there been more, it would have been read already.
const HIGH: usize = 8 * 1024;

/// Larger pieces than this are worth a read each.
const SMALL: u32 = 2 * 1024;

/// What can be moderated.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin {
    /// Sets how many bytes must have come for the wire to be readable. If
    /// they have, it becomes readable; its end makes it readable in any case.
    fn set_low_water(&self, bytes: usize) -> io::Result<()>;

    /// Reads what is there, however little, or fails with `WouldBlock`.
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

/// Elsewhere than on Linux a socket is not known to tell again that it is
/// readable when the mark is lowered, so that nothing gathers.
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

impl Wire for TcpStream {
    fn set_low_water(&self, bytes: usize) -> io::Result<()> {
        linux::set_low_water(self, bytes)
    }

    fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        linux::read_now(self, buffer)
    }
}

/// A wire that is read in fewer, larger pieces while many small ones come.
pub(super) struct Moderated<W> {
    wire: W,
    pace: Pace,
    gathering: Gathering,
    /// Made when it is first needed, which for most connections is never.
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathering {
    /// Each piece is read as it comes.
    No,
    /// Pieces are left until the timer fires.
    Yes,
    /// They were read, but did not fit: the rest is due at once.
    Rest,
}

impl<W: Wire> Moderated<W> {
    pub(super) fn new(wire: W) -> Self {
        Self { wire, pace: Pace::default(), gathering: Gathering::No, timer: None }
    }

    /// Decides how to go on after so many bytes were read, of at most so many.
    fn took(&mut self, count: usize, most: usize) -> io::Result<()> {
        let now = Instant::now();
        match self.gathering {
            Gathering::No if self.pace.is_fast_after(now, count) => self.gather(now),
            Gathering::No => {}
            Gathering::Yes | Gathering::Rest if count == most => self.gathering = Gathering::Rest,
            Gathering::Yes if !self.pace.is_worth_it(count) => return self.release(),
            Gathering::Yes | Gathering::Rest => self.wind(now),
        }
        Ok(())
    }

    fn gather(&mut self, now: Instant) {
        // Where it cannot be done the wire is read as before.
        if self.wire.set_low_water(HIGH).is_ok() {
            self.wind(now);
        } else {
            self.pace = Pace::default();
        }
    }

    fn wind(&mut self, now: Instant) {
        self.gathering = Gathering::Yes;
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(now + HOLD),
            None => self.timer = Some(Box::pin(sleep_until(now + HOLD))),
        }
    }

    /// Goes back to reading each piece as it comes.
    fn release(&mut self) -> io::Result<()> {
        self.pace = Pace::default();
        match std::mem::replace(&mut self.gathering, Gathering::No) {
            Gathering::No => Ok(()),
            Gathering::Yes | Gathering::Rest => self.wire.set_low_water(1),
        }
    }

    /// Reads what has gathered, if it is time.
    fn poll_gathered(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.gathering == Gathering::Yes
            && let Some(timer) = &mut self.timer
        {
            ready!(timer.as_mut().poll(context));
        }
        let most = buffer.remaining().min(HIGH);
        match self.wire.read_now(buffer.initialize_unfilled_to(most)) {
            Ok(count) => {
                buffer.advance(count);
                Poll::Ready(self.took(count, most))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The wire was asked just before, so that it wakes this task when something comes.
                self.release()?;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<W: Wire> AsyncRead for Moderated<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let most = buffer.remaining();
        match Pin::new(&mut this.wire).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(this.took(most.saturating_sub(buffer.remaining()), most)),
            Poll::Pending if this.gathering != Gathering::No => this.poll_gathered(context, buffer),
            ready_or_not @ (Poll::Ready(_) | Poll::Pending) => ready_or_not,
        }
    }
}

impl<W: Wire> AsyncWrite for Moderated<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // Whatever comes next is the beginning of an answer.
        self.release()?;
        Pin::new(&mut self.wire).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.release()?;
        Pin::new(&mut self.wire).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}

impl<W> fmt::Debug for Moderated<W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Moderated").field("gathering", &self.gathering).finish_non_exhaustive()
    }
}

/// How fast pieces come and how large they are, on average over the last few.
#[derive(Debug)]
struct Pace {
    /// Between two pieces.
    pause: Duration,
    /// Bytes of a piece.
    size: u32,
    last: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pause: LONG, size: 0, last: None }
    }
}

impl Pace {
    /// Takes note of a piece that was read by itself.
    fn is_fast_after(&mut self, now: Instant, count: usize) -> bool {
        let pause = self.last.map_or(LONG, |last| now.saturating_duration_since(last).min(LONG));
        self.last = Some(now);
        self.pause = (self.pause * (WEIGHT - 1) + pause) / WEIGHT;
        let count = u32::try_from(count).unwrap_or(u32::MAX).min(2 * SMALL);
        self.size = if self.size == 0 { count } else { (self.size * (WEIGHT - 1) + count) / WEIGHT };
        self.pause < FAST && self.size <= SMALL
    }

    /// Whether so many bytes are more than one piece would have been.
    fn is_worth_it(&self, count: usize) -> bool {
        u32::try_from(count).is_ok_and(|count| count > self.size.saturating_add(self.size / 2))
    }
}

#[cfg(test)]
#[path = "moderation_tests.rs"]
mod tests;
