//! [`Punctual`]: a sender whose batches are published in time by themselves.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Sender;
use crate::clan::{Error, Fabric};
use crate::drive::locked;

/// A [`Sender`] that several threads use, with a thread that publishes what nobody
/// publishes: no element waits much longer than the time of
/// [`Config::batch`](super::Config::batch).
#[derive(Debug)]
pub struct Punctual<F: Fabric> {
    sender: Arc<Mutex<Sender<F>>>,
    /// Its end is the thread's.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How long the thread sleeps at least.
const TICK: Duration = Duration::from_micros(10);

impl<F: Fabric> Punctual<F> {
    pub(super) fn new(sender: Sender<F>) -> Result<Self, Error> {
        let tick = sender.within().max(TICK);
        let sender = Arc::new(Mutex::new(sender));
        let (stop, stopped) = mpsc::channel();
        let publisher = Arc::clone(&sender);
        let thread = std::thread::Builder::new()
            .name("clan-queue".to_owned())
            .spawn(move || publish_in_time(&publisher, &stopped, tick))
            .map_err(|source| Error::System { call: "thread", source })?;
        Ok(Self { sender, stop: Some(stop), thread: Some(thread) })
    }

    /// Puts an element in if there is room; true if there was.
    ///
    /// # Errors
    /// Those of [`Sender::try_put`].
    pub fn try_put(&self, element: &[u8]) -> Result<bool, Error> {
        locked(&self.sender).try_put(element)
    }

    /// Puts an element in once there is room.
    ///
    /// # Errors
    /// Those of [`Sender::put`].
    pub fn put(&self, element: &[u8], deadline: Option<Instant>) -> Result<(), Error> {
        locked(&self.sender).put(element, deadline)
    }

    /// Does something with the sender that this does not offer.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut Sender<F>) -> T) -> T {
        use_it(&mut locked(&self.sender))
    }
}

fn publish_in_time<F: Fabric>(
    sender: &Mutex<Sender<F>>,
    stopped: &mpsc::Receiver<()>,
    tick: Duration,
) {
    while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
        // What fails here fails for the next call too, and is told there.
        let _ = locked(sender).publish_due(Instant::now());
    }
}

impl<F: Fabric> Drop for Punctual<F> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
