//! [`Packets`]: the same for tasks, on any executor.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};

use landfall_placement::Duration;

use super::error::{Error, OpenError};
use super::packet::Packet;
use super::receiver::Receiver;
use crate::runtime::locked;

/// Packets of a receiver that a thread of its own drives. Clones are the same
/// receiver; it ends with the last of them.
#[derive(Clone, Debug)]
pub struct Packets(Arc<Handle>);

#[derive(Debug)]
struct Handle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    line: Mutex<Line>,
    /// Somebody took a packet, or the last handle is gone.
    room: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    packets: VecDeque<Packet>,
    wakers: Vec<Waker>,
    /// Why nothing more comes.
    failed: Option<Error>,
    has_ended: bool,
    is_ending: bool,
}

/// So many packets wait for tasks; then the thread waits, and frames do in the kernel.
const MOST_WAITING: usize = 256;
/// How often the thread looks whether anybody is left.
const LOOK: Duration = Duration::from_millis(50);

impl Receiver {
    /// Lets a thread of its own drive it, and tasks await its packets.
    ///
    /// # Errors
    /// [`OpenError::Thread`].
    pub fn into_tasks(self) -> Result<Packets, OpenError> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("landfall-defrag".into());
        thread.spawn(move || theirs.run(self)).map_err(OpenError::Thread)?;
        Ok(Packets(Arc::new(Handle(shared))))
    }
}

impl Packets {
    /// The next packet. May be dropped at any moment: nothing is lost.
    ///
    /// # Errors
    /// Those of [`Receiver::receive`]; then [`Error::Ended`].
    pub async fn receive(&self) -> Result<Packet, Error> {
        poll_fn(|context| self.0.0.poll(context)).await
    }

    /// A packet, if one is there.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn try_receive(&self) -> Result<Option<Packet>, Error> {
        match self.0.0.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result.map(Some),
            Poll::Pending => Ok(None),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        locked(&self.0.line).is_ending = true;
        self.0.room.notify_all();
    }
}

impl Shared {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Packet, Error>> {
        let mut line = locked(&self.line);
        if let Some(packet) = line.packets.pop_front() {
            if line.packets.len() + 1 == MOST_WAITING {
                self.room.notify_all();
            }
            return Poll::Ready(Ok(packet));
        }
        if line.has_ended {
            return Poll::Ready(Err(line.failed.take().unwrap_or(Error::Ended)));
        }
        line.wakers.retain(|waker| !waker.will_wake(context.waker()));
        line.wakers.push(context.waker().clone());
        Poll::Pending
    }

    fn run(&self, mut receiver: Receiver) {
        loop {
            let came = receiver.receive(LOOK);
            let mut line = locked(&self.line);
            while line.packets.len() >= MOST_WAITING && !line.is_ending {
                line = self.room.wait(line).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if line.is_ending {
                return;
            }
            match came {
                Ok(None) => continue,
                Ok(Some(packet)) => line.packets.push_back(packet),
                Err(error) => {
                    line.failed = Some(error);
                    line.has_ended = true;
                }
            }
            let (wakers, has_ended) = (std::mem::take(&mut line.wakers), line.has_ended);
            drop(line);
            wakers.into_iter().for_each(Waker::wake);
            if has_ended {
                return;
            }
        }
    }
}
