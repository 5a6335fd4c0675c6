//! [`Punctual`]: a sender whose batches are published in time by themselves.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Sender;
use crate::clan::{Error, Fabric};
use crate::runtime::locked;

/// A [`Sender`] that several threads use, with a thread that publishes what nobody
/// publishes: no element waits much longer than the time of
/// [`Config::batch`](super::Config::batch). While nothing is put in, the thread sleeps.
#[derive(Debug)]
pub struct Punctual<F: Fabric> {
    shared: Arc<Shared<F>>,
    /// Wakes the thread; its end is the thread's.
    wake: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<F: Fabric> {
    sender: Mutex<Sender<F>>,
    /// The thread sleeps until it is woken.
    is_idle: AtomicBool,
}

/// How long the thread sleeps at least: less is not what a kernel can do.
const TICK: Duration = Duration::from_micros(10);
/// So often it finds nothing before it sleeps until it is woken.
const QUIET_TICKS: u32 = 50;

impl<F: Fabric> Punctual<F> {
    pub(super) fn new(sender: Sender<F>) -> Result<Self, Error> {
        let tick = sender.within().max(TICK);
        let shared = Shared { sender: Mutex::new(sender), is_idle: AtomicBool::new(false) };
        let shared = Arc::new(shared);
        let (wake, woken) = mpsc::channel();
        let publisher = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("clan-queue".to_owned())
            .spawn(move || publish_in_time(&publisher, &woken, tick))
            .map_err(|source| Error::System { call: "thread", source })?;
        Ok(Self { shared, wake: Some(wake), thread: Some(thread) })
    }

    /// Puts an element in if there is room; true if there was.
    ///
    /// # Errors
    /// Those of [`Sender::try_put`].
    pub fn try_put(&self, element: &[u8]) -> Result<bool, Error> {
        self.with(|sender| sender.try_put(element))
    }

    /// Puts an element in once there is room. Others wait meanwhile.
    ///
    /// # Errors
    /// Those of [`Sender::put`].
    pub fn put(&self, element: &[u8], deadline: Option<Instant>) -> Result<(), Error> {
        self.with(|sender| sender.put(element, deadline))
    }

    /// Does something with the sender that this does not offer.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut Sender<F>) -> T) -> T {
        let result = use_it(&mut locked(&self.shared.sender));
        // Either the thread sees what was put in before it sleeps, or this sees that
        // it sleeps: it says so first, and looks under the lock then.
        if self.shared.is_idle.load(SeqCst)
            && self.shared.is_idle.swap(false, SeqCst)
            && let Some(wake) = &self.wake
        {
            // The thread cannot have ended before this handle.
            let _ = wake.send(());
        }
        result
    }
}

fn publish_in_time<F: Fabric>(shared: &Shared<F>, woken: &mpsc::Receiver<()>, tick: Duration) {
    // What fails here fails for the next call too, and is told there.
    let publish = || locked(&shared.sender).publish_due(Instant::now()).unwrap_or(None);
    let mut quiet = 0;
    loop {
        quiet = if publish().is_some() { 0 } else { quiet + 1 };
        let told = if quiet < QUIET_TICKS {
            woken.recv_timeout(tick)
        } else {
            shared.is_idle.store(true, SeqCst);
            if publish().is_some() {
                shared.is_idle.store(false, Relaxed);
                quiet = 0;
                continue;
            }
            quiet = 0;
            woken.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        if told == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

impl<F: Fabric> Drop for Punctual<F> {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
