//! A runtime connected through a stream.
//!
//! Owns the stream and the peer; the handle is the same as for a local process. There is no warden, so
//! the invariant is weaker: when the handle is dropped, the peer is asked to terminate and the stream is
//! closed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::lease_holder::LeaseHolder;
use super::streams::{self, ReadEnd};
use super::{
    DRAIN_DEADLINE, Exit, ExitReason, PrivateFiles, Process, SessionLinks, StopLevel, join, sleep_until,
};
use crate::countdown::within;
use crate::process_registry::Lease;
use crate::transport::{ByteStream, Peer, PeerExit, PeerSignal};
use crate::warden::RuntimeStatus;

/// Time between the terminate signal and the kill signal for a peer whose handle was dropped.
const GRACE: Duration = Duration::from_millis(500);

/// Time for a killed peer to exit before its stream is closed anyway.
const KILL_DEADLINE: Duration = Duration::from_secs(2);

impl Process {
    /// Takes over the stream of a running runtime. Files and lease are released when the runtime exits.
    pub(crate) fn attach(
        stream: ByteStream,
        files: PrivateFiles,
        lease: Option<Lease>,
        links: SessionLinks,
    ) -> Self {
        let tasks = TaskTracker::new();
        let lease_holder = LeaseHolder::start(&tasks, lease, None, &links.intake);
        let done = CancellationToken::new();
        let (writer, outgoing) = (stream.writer, Arc::clone(&links.outgoing));
        let written = done.clone();
        tasks.spawn(async move {
            written.run_until_cancelled(streams::write_lines(&outgoing, writer)).await;
            outgoing.abandon();
        });
        let (reader, intake) = (stream.reader, Arc::clone(&links.intake));
        let reader = tasks.spawn(async move { streams::read_messages(reader, &intake).await });
        let (ending, ending_asked) = watch::channel(StopLevel::NotRequested);
        let (exit_sender, exit) = watch::channel(None);
        let stopping = CancellationToken::new();
        let owner = StreamOwner {
            peer: stream.peer,
            reader: Some(reader),
            ending: ending_asked,
            cancel: links.cancel,
            stopping: stopping.clone(),
            reason: None,
            next: None,
        };
        let intake = links.intake;
        tasks.spawn(async move {
            let exit = owner.run().await;
            done.cancel();
            drop(files);
            lease_holder.end().await;
            intake.exited(exit.clone());
            exit_sender.send_replace(Some(exit));
        });
        Self { ending, exit, outgoing: links.outgoing, stopping, tasks }
    }
}

/// The task that owns the peer.
struct StreamOwner {
    peer: Box<dyn Peer>,
    reader: Option<JoinHandle<ReadEnd>>,
    ending: watch::Receiver<StopLevel>,
    cancel: CancellationToken,
    stopping: CancellationToken,
    /// Why the host ended the runtime, if it did.
    reason: Option<ExitReason>,
    /// Next step and its time, for a peer that was asked to terminate.
    next: Option<(Instant, Next)>,
}

/// Next step for a peer that does not exit.
#[derive(Clone, Copy)]
enum Next {
    Kill,
    LetGo,
}

/// Events that the owner task handles.
enum AttachedEvent {
    Exited(PeerExit),
    Read(ReadEnd),
    StopLevel(Option<StopLevel>),
    Cancelled,
    Overdue,
}

impl StreamOwner {
    async fn run(mut self) -> Exit {
        let status = self.watch().await;
        if let Some(reader) = &mut self.reader {
            // Output written before the exit is delivered before the exit.
            if within(DRAIN_DEADLINE, &mut *reader).await.is_none() {
                reader.abort();
            }
        }
        let status = match status {
            PeerExit::Code(code) => RuntimeStatus::Code(code),
            PeerExit::Signal(signal) => RuntimeStatus::Signal(signal),
            PeerExit::Unknown => RuntimeStatus::Lost,
        };
        let asked = self.stopping.is_cancelled();
        let reason = self.reason.unwrap_or(if asked { ExitReason::Stopped } else { ExitReason::OnItsOwn });
        Exit::new(status, String::new(), reason)
    }

    async fn watch(&mut self) -> PeerExit {
        let cancel = self.cancel.clone();
        let mut handle_gone = false;
        loop {
            let overdue = self.next.map(|(at, _)| at);
            let input = tokio::select! {
                // The exit comes first: after it nothing else matters.
                biased;
                status = self.peer.exited() => AttachedEvent::Exited(status),
                () = cancel.cancelled(), if self.reason.is_none() => AttachedEvent::Cancelled,
                end = join(&mut self.reader) => AttachedEvent::Read(end),
                changed = self.ending.changed(), if !handle_gone => {
                    AttachedEvent::StopLevel(changed.ok().map(|()| *self.ending.borrow_and_update()))
                }
                () = sleep_until(overdue) => AttachedEvent::Overdue,
            };
            match input {
                AttachedEvent::Exited(status) => return status,
                AttachedEvent::Cancelled => self.end(ExitReason::Cancelled),
                AttachedEvent::Read(ReadEnd::Closed) => {
                    // The exit status follows, if it is available at all.
                    return within(DRAIN_DEADLINE, self.peer.exited()).await.unwrap_or(PeerExit::Unknown);
                }
                AttachedEvent::Read(ReadEnd::LineTooLong(error)) => {
                    self.end(ExitReason::LineTooLong { limit: error.limit });
                }
                AttachedEvent::Read(ReadEnd::InboxFull) => self.end(ExitReason::InboxFull),
                AttachedEvent::StopLevel(None) => {
                    handle_gone = true;
                    self.end(ExitReason::Dropped);
                }
                AttachedEvent::StopLevel(Some(ending)) => self.apply(ending),
                AttachedEvent::Overdue => match self.next.take() {
                    Some((_, Next::Kill)) => self.kill(),
                    Some((_, Next::LetGo)) | None => return PeerExit::Unknown,
                },
            }
        }
    }

    fn end(&mut self, reason: ExitReason) {
        self.reason.get_or_insert(reason);
        self.peer.signal(PeerSignal::Terminate);
        self.next = Some((Instant::now() + GRACE, Next::Kill));
    }

    fn kill(&mut self) {
        self.peer.signal(PeerSignal::Kill);
        self.next = Some((Instant::now() + KILL_DEADLINE, Next::LetGo));
    }

    fn apply(&mut self, ending: StopLevel) {
        match ending {
            StopLevel::NotRequested => {}
            StopLevel::Interrupt => self.peer.signal(PeerSignal::Interrupt),
            StopLevel::Terminate => self.peer.signal(PeerSignal::Terminate),
            StopLevel::Kill => self.kill(),
        }
    }
}
