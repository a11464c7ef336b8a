//! Where a runtime runs: as a process of this machine, or behind any stream of bytes.
//!
//! Owns the seam alone. Starting local processes is `process`'s work; whoever brings a stream starts what is
//! at its other end, and says how it is signalled and how it ended.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::options::{LaunchFiles, LaunchPlan};

/// A future that can be sent to other threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where runtimes run.
#[derive(Clone, Default)]
pub enum Transport {
    /// As processes of this machine, each under a warden.
    #[default]
    LocalProcess,
    /// At the other end of streams that are opened for each start: a terminal, a container, another machine.
    Stream(Arc<dyn StreamTransport>),
}

impl fmt::Debug for Transport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LocalProcess => formatter.write_str("LocalProcess"),
            Self::Stream(_) => formatter.write_str("Stream"),
        }
    }
}

/// Starts runtimes somewhere else.
pub trait StreamTransport: Send + Sync + 'static {
    /// Starts a runtime and gives the stream to it. Called once for every start; an error is the reason why
    /// the start failed. Dropping the future must leave nothing behind.
    fn open<'a>(&'a self, launch: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>>;
}

/// What a runtime behind a stream is started with.
#[derive(Debug, Clone, Copy)]
pub struct StreamLaunch<'a> {
    /// What to execute.
    pub plan: &'a LaunchPlan,
    /// Where the private files are, on this machine. They go when the runtime does.
    pub files: LaunchFiles<'a>,
    /// The working directory.
    pub cwd: &'a Path,
}

/// A stream of bytes to a runtime. It must pass bytes as they are: a terminal has to be in raw mode.
pub struct ByteStream {
    /// What the runtime writes to its stdout.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The runtime's stdin.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The runtime itself, as far as it can be reached beside the stream.
    pub peer: Box<dyn Peer>,
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ByteStream").finish_non_exhaustive()
    }
}

/// A runtime at the other end of a stream.
pub trait Peer: Send + 'static {
    /// Signals the runtime and everything that it started. Must not block; failing is silent.
    fn signal(&mut self, signal: PeerSignal);

    /// Waits until the runtime is gone. Cancel-safe, and may be called again.
    fn exited(&mut self) -> BoxFuture<'_, PeerExit>;
}

/// What a runtime behind a stream is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerSignal {
    /// End the turn, as Ctrl-C does.
    Interrupt,
    /// End.
    Terminate,
    /// End at once.
    Kill,
}

/// How a runtime behind a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerExit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It could not be learned.
    Unknown,
}

/// A runtime that cannot be reached beside its stream: the stream's end is its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutOfReach;

impl Peer for OutOfReach {
    fn signal(&mut self, _: PeerSignal) {}

    fn exited(&mut self) -> BoxFuture<'_, PeerExit> {
        Box::pin(std::future::pending())
    }
}
