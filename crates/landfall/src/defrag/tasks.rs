//! [`Packets`]: the same for tasks, on any executor.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use landfall_placement::Instant;
use landfall_transport::driver::Interest;

use super::error::{Error, OpenError};
use super::packet::Packet;
use super::receiver::Receiver;
use crate::runtime::{Signal, Source, Worker, locked};

/// Packets of a receiver that a thread of its own drives. Clones are the same
/// receiver; it ends with the last of them.
#[derive(Clone, Debug)]
pub struct Packets(Arc<Handle>);

/// The thread ends with it.
#[derive(Debug)]
struct Handle {
    shared: Arc<TaskState>,
    _worker: Worker,
}

#[derive(Debug)]
struct TaskState {
    queue: Mutex<PacketQueue>,
    /// Reaches the thread.
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct PacketQueue {
    packets: VecDeque<Packet>,
    wakers: Vec<Waker>,
    /// Why nothing more comes.
    failed: Option<Error>,
    has_ended: bool,
}

/// This many packets wait for tasks; then the thread waits, and frames do in the kernel.
const MOST_WAITING: usize = 256;

impl Receiver {
    /// Lets a thread of its own drive it, and tasks await its packets.
    ///
    /// # Errors
    /// [`OpenError::Thread`].
    pub fn into_tasks(self) -> Result<Packets, OpenError> {
        let signal = Signal::new().map_err(OpenError::Bell)?;
        let shared = Arc::new(TaskState { queue: Mutex::default(), signal });
        let (signal, pace) = (Arc::clone(&shared.signal), self.pace());
        let (feed, theirs) = (
            Feed { receiver: self, shared: Arc::clone(&shared), was_full: false },
            Arc::clone(&shared),
        );
        let finish = move |feed, failed: Option<Error>| {
            drop(feed);
            theirs.end(failed);
        };
        let worker = Worker::start("landfall-defrag", &signal, pace, feed, finish);
        Ok(Packets(Arc::new(Handle { shared, _worker: worker.map_err(OpenError::Thread)? })))
    }
}

impl Packets {
    /// The next packet. May be dropped at any moment: nothing is lost.
    ///
    /// # Errors
    /// Those of [`Receiver::receive`]; then [`Error::Ended`].
    pub async fn receive(&self) -> Result<Packet, Error> {
        poll_fn(|context| self.0.shared.poll(context)).await
    }

    /// A packet, if one is there.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn try_receive(&self) -> Result<Option<Packet>, Error> {
        match self.0.shared.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map(Some),
            Poll::Pending => Ok(None),
        }
    }
}

impl TaskState {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Packet, Error>> {
        let mut queue = locked(&self.queue);
        if let Some(packet) = queue.packets.pop_front() {
            if queue.packets.len() + 1 == MOST_WAITING {
                self.signal.ring();
            }
            return Poll::Ready(Ok(packet));
        }
        if queue.has_ended {
            return Poll::Ready(Err(queue.failed.take().unwrap_or(Error::Ended)));
        }
        queue.wakers.retain(|waker| !waker.will_wake(context.waker()));
        queue.wakers.push(context.waker().clone());
        Poll::Pending
    }

    fn has_room(&self) -> bool {
        locked(&self.queue).packets.len() < MOST_WAITING
    }

    /// A packet came. Returns whether there is room for more.
    fn push(&self, packet: Packet) -> bool {
        let mut queue = locked(&self.queue);
        queue.packets.push_back(packet);
        let (wakers, has_room) =
            (std::mem::take(&mut queue.wakers), queue.packets.len() < MOST_WAITING);
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
        has_room
    }

    /// Nothing more comes.
    fn end(&self, failed: Option<Error>) {
        let mut queue = locked(&self.queue);
        (queue.failed, queue.has_ended) = (failed, true);
        let wakers = std::mem::take(&mut queue.wakers);
        drop(queue);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// What the thread drives.
struct Feed {
    receiver: Receiver,
    shared: Arc<TaskState>,
    /// At the last turn there was no room for all that came.
    was_full: bool,
}

impl Source for Feed {
    type Output = Error;

    fn turn(&mut self, now: Instant) -> ControlFlow<Error, bool> {
        self.was_full = !self.shared.has_room();
        if self.was_full {
            return ControlFlow::Continue(false);
        }
        let mut moved = match self.receiver.turn(now) {
            Ok(moved) => moved,
            Err(error) => return ControlFlow::Break(error),
        };
        while let Some(packet) = self.receiver.next() {
            moved = true;
            self.was_full = !self.shared.push(packet);
            if self.was_full {
                break;
            }
        }
        ControlFlow::Continue(moved)
    }

    /// While tasks have enough, only they are waited for.
    fn interests(&self, into: &mut Vec<Interest>) {
        if self.shared.has_room() {
            self.receiver.interests(into);
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        self.receiver.next_wake().filter(|_| self.shared.has_room())
    }

    fn arm(&self) {
        self.receiver.returns().bell.arm();
    }

    fn has_work(&self) -> bool {
        self.shared.has_room() && (self.was_full || self.receiver.returns().is_there())
    }

    fn silence(&self) {
        self.receiver.returns().bell.silence();
    }
}
