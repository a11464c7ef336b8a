//! Where a runtime runs: as a local process, or at the other end of a byte stream.
//!
//! Owns only the interface. `process` starts local processes; a stream transport starts the runtime
//! itself, forwards signals and reports the exit.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::options::{LaunchFiles, LaunchPlan};

/// A boxed future that is `Send`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where runtimes run.
#[derive(Clone, Default)]
pub enum Transport {
    /// Local processes, each under a warden.
    #[default]
    LocalProcess,
    /// At the other end of a stream opened for each start: a terminal, a container, another machine.
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

/// Starts runtimes that are reached through a stream.
pub trait StreamTransport: Send + Sync + 'static {
    /// Starts a runtime and returns a stream to it. Called once per start; an error fails the start.
    /// Dropping the future must not leave a runtime behind.
    fn open<'a>(&'a self, launch: StreamLaunch<'a>) -> BoxFuture<'a, io::Result<ByteStream>>;
}

/// Launch parameters of a remote runtime.
#[derive(Debug, Clone, Copy)]
pub struct StreamLaunch<'a> {
    /// The program and its environment.
    pub plan: &'a LaunchPlan,
    /// Paths of the private files on this machine. Deleted when the runtime exits.
    pub files: LaunchFiles<'a>,
    /// The working directory.
    pub cwd: &'a Path,
}

/// A byte stream to a runtime. It must be transparent: a terminal must be in raw mode.
pub struct ByteStream {
    /// The runtime's stdout.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// The runtime's stdin.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Signals and exit status of the runtime.
    pub peer: Box<dyn Peer>,
}

impl fmt::Debug for ByteStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ByteStream").finish_non_exhaustive()
    }
}

/// A runtime at the other end of a stream.
pub trait Peer: Send + 'static {
    /// Signals the runtime and its descendants. Must not block; errors are ignored.
    fn signal(&mut self, signal: PeerSignal);

    /// Waits until the runtime has exited. Cancel-safe, and may be called again.
    fn exited(&mut self) -> BoxFuture<'_, PeerExit>;
}

/// A signal to a remote runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerSignal {
    /// End the turn, like Ctrl-C.
    Interrupt,
    /// Exit.
    Terminate,
    /// Exit immediately.
    Kill,
}

/// How a remote runtime exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerExit {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Unknown status.
    Unknown,
}

/// A runtime that can only be reached through its stream: the end of the stream is its exit.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamOnlyPeer;

impl Peer for StreamOnlyPeer {
    fn signal(&mut self, _: PeerSignal) {}

    fn exited(&mut self) -> BoxFuture<'_, PeerExit> {
        Box::pin(std::future::pending())
    }
}
