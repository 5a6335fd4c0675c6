//! The sender's side of a queue, and [`FlushingSender`]: a sender whose batches are published in
//! time by themselves.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use landfall_transport::driver::Interest;
use landfall_transport::{Clock, Wait};

use super::{Config, Place};
use crate::clan::layer::any::{Waitable, readiness};
use crate::clan::layer::ring;
use crate::clan::layer::ring::Producer;
use crate::clan::layer::waiting::{Connect, ConnectionEnd, Half, Joint, Waiting};
use crate::clan::{Access, Error, Fabric, Remote, Stage, WORD};
use crate::runtime::{Signal, Source, Worker, locked};

/// How often a sender looks at the clock, in elements.
const ELEMENTS_PER_GLANCE_AT_THE_CLOCK: u64 = 8;

/// Puts elements in. Dropping it ends the queue, after the last of them.
#[derive(Debug)]
pub struct Sender<F: Fabric> {
    pub(super) side: Producer<F>,
    pub(super) waiting: Waiting<F>,
    pub(super) place: Place,
    pub(super) element: usize,
    batch: u64,
    within: Duration,
    /// When the first element that is not published was put in.
    since: Option<Instant>,
}

impl<F: Fabric> Connect<F> for Sender<F> {
    type Config = Config;

    fn ours(_: &Config) -> Result<u64, Error> {
        Ok(ring::PRODUCER_LEN)
    }

    fn theirs(config: &Config) -> Result<u64, Error> {
        config.receiver_len()
    }

    fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
        let Joint { fabric, local, remote } = joint;
        let words = ring::READ..ring::CLOSED + WORD;
        let wire = fabric.watch(&local, words, Access::Write, Some(&remote))?;
        let mut side = Producer::new(local, remote, u64::from(config.capacity));
        side.set_layout(config.layout);
        Ok(Self {
            side,
            waiting: Waiting::new(fabric, config.wait, wire),
            place: Place::first(&config),
            element: config.element as usize,
            batch: u64::from(config.batch.max(1)),
            within: config.within,
            since: None,
        })
    }
}

impl<F: Fabric> Sender<F> {
    /// This side's half.
    ///
    /// # Errors
    /// Those of [`Fabric::expose`], or the configuration is invalid.
    pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
        Half::open(fabric, config)
    }

    /// Puts an element in if there is room; true if there was.
    ///
    /// # Errors
    /// It has the wrong length, the receiver has closed the queue, the send buffer is full,
    /// or the peer is gone or misbehaves.
    #[inline]
    pub fn try_put(&mut self, element: &[u8]) -> Result<bool, Error> {
        self.check(element)?;
        match self.side.room(1)? {
            Some(_) => self.fill(element, 1).map(|()| true),
            None => Ok(false),
        }
    }

    /// Puts an element in once there is room.
    ///
    /// # Errors
    /// Those of [`try_put`](Self::try_put), or the deadline is over.
    #[inline]
    pub fn put(&mut self, element: &[u8], deadline: Option<Instant>) -> Result<(), Error> {
        self.check(element)?;
        loop {
            let Self { side, waiting, .. } = self;
            waiting.until(side, deadline, |side| side.room(1))?;
            match self.fill(element, 1) {
                Err(Error::Busy) => self.make_room(deadline)?,
                other => return other,
            }
        }
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`try_put`](Self::try_put).
    pub async fn put_async(&mut self, element: &[u8]) -> Result<(), Error> {
        self.check(element)?;
        loop {
            let Self { side, waiting, .. } = self;
            waiting.reached(side, |side| side.room(1)).await?;
            match self.fill(element, 1) {
                Err(Error::Busy) => self.make_room_async().await?,
                other => return other,
            }
        }
    }

    /// Puts in as many of these elements, which lie one after another, as there is
    /// room for; how many that were. They are one copy.
    ///
    /// # Errors
    /// Those of [`try_put`](Self::try_put). Nothing was put in then.
    pub fn try_put_many(&mut self, elements: &[u8]) -> Result<usize, Error> {
        let count = elements.len() / self.element;
        if count * self.element != elements.len() {
            return Err(self.wrong_length(elements));
        }
        let mut rest = elements;
        let mut put = 0;
        while !rest.is_empty() {
            let room = match self.side.room(1) {
                Ok(Some(room)) => room.min((count - put) as u64).min(self.place.in_a_row()),
                Ok(None) => break,
                Err(_) if put > 0 => break,
                Err(error) => return Err(error),
            };
            // Elements that do not fill their places are not neighbours there.
            let run = if self.element as u64 == self.place.stride { room } else { 1 };
            let (now, later) = rest.split_at(run as usize * self.element);
            match self.fill(now, run) {
                Ok(()) => {}
                Err(_) if put > 0 => break,
                Err(error) => return Err(error),
            }
            put += run as usize;
            rest = later;
        }
        Ok(put)
    }

    /// Tells the receiver of all elements that were put in.
    ///
    /// # Errors
    /// The send buffer is full (then it is repeated), or the peer is gone.
    pub fn publish(&mut self) -> Result<(), Error> {
        self.side.publish()?;
        self.since = None;
        Ok(())
    }

    /// When the elements that were put in have to be published, if any were.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.since.and_then(|since| since.checked_add(self.within))
    }

    /// Publishes what is due by now; when the rest will be.
    ///
    /// # Errors
    /// Those of [`publish`](Self::publish).
    pub fn publish_due(&mut self, now: Instant) -> Result<Option<Instant>, Error> {
        if self.due().is_some_and(|due| due <= now) {
            self.publish()?;
        }
        Ok(self.due())
    }

    pub(super) const fn within(&self) -> Duration {
        self.within
    }

    /// A sender that publishes in time by itself, no matter who calls or does not call. It
    /// has a thread for that, and can be used by several.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn into_punctual(self) -> Result<FlushingSender<F>, Error> {
        FlushingSender::new(self)
    }

    /// How many elements the receiver has not taken out, as far as it has said: it does in
    /// quarters of the queue, and when it looks for more and finds none.
    pub fn under_way(&mut self) -> u64 {
        self.side.under_way()
    }

    /// Waits until the receiver has got all, and has said so: it does when it looks for
    /// more, or is dropped.
    ///
    /// # Errors
    /// It has closed the queue before, the deadline is over, or the peer is gone or misbehaves.
    pub fn drain(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let Self { side, waiting, .. } = self;
        waiting.until(side, deadline, Producer::is_drained)
    }

    /// Ends the queue after what was put in. The receiver gets that, then
    /// [`Error::Closed`].
    ///
    /// # Errors
    /// The send buffer is full (then it is repeated), or the peer is gone.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.since = None;
        self.side.finish()
    }

    #[inline]
    fn check(&self, element: &[u8]) -> Result<(), Error> {
        if element.len() == self.element { Ok(()) } else { Err(self.wrong_length(element)) }
    }

    #[cold]
    fn wrong_length(&self, element: &[u8]) -> Error {
        Error::TooLong { len: element.len() as u64, most: self.element as u64 }
    }

    /// Fills places in a row, for which there is room.
    #[inline]
    fn fill(&mut self, elements: &[u8], count: u64) -> Result<(), Error> {
        self.side.write(self.place.at, elements)?;
        self.filled(count)
    }

    /// The element was written into its place, for which there was room.
    #[inline]
    pub(super) fn fill_in_place(&mut self) -> Result<(), Error> {
        self.filled(1)
    }

    #[inline]
    fn filled(&mut self, count: u64) -> Result<(), Error> {
        self.place.advance(count);
        self.side.advance(count);
        let unpublished = self.side.unpublished();
        if unpublished >= self.batch {
            return self.publish_if_possible();
        }
        if self.since.is_none() || unpublished.is_multiple_of(ELEMENTS_PER_GLANCE_AT_THE_CLOCK) {
            return self.glance_at_the_clock();
        }
        Ok(())
    }

    fn glance_at_the_clock(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if now - since >= self.within { self.publish_if_possible() } else { Ok(()) }
    }

    /// The element is in: a full send buffer delays the publication only.
    pub(super) fn publish_if_possible(&mut self) -> Result<(), Error> {
        match self.publish() {
            Err(Error::Busy) => Ok(()),
            other => other,
        }
    }

    fn make_room(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        self.side.remote().wait_for(Stage::Room, deadline)
    }

    async fn make_room_async(&mut self) -> Result<(), Error> {
        let remote = self.side.remote();
        std::future::poll_fn(|context| remote.poll_reached(Stage::Room, context)).await
    }
}

impl<F: Fabric> Waitable<F> for Sender<F> {
    fn tripwire(&self) -> &F::Tripwire {
        self.waiting.tripwire()
    }

    fn is_ready(&mut self) -> Result<bool, Error> {
        readiness(self.side.room(1))
    }
}

impl<F: Fabric> Drop for Sender<F> {
    fn drop(&mut self) {
        let Self { side, waiting, .. } = self;
        waiting.flush_on_drop(side, Producer::finish);
    }
}

/// A [`Sender`] that several threads use, with a thread that publishes what nobody
/// publishes: no element waits much longer than the time of
/// [`Config::batch`](super::Config::batch). While nothing is put in, the thread sleeps.
#[derive(Debug)]
pub struct FlushingSender<F: Fabric> {
    shared: Arc<SenderState<F>>,
    worker: Option<Worker>,
}

#[derive(Debug)]
struct SenderState<F: Fabric> {
    sender: Mutex<Sender<F>>,
    /// Reaches the thread.
    signal: Arc<Signal>,
    /// The thread sleeps until it is woken.
    is_idle: AtomicBool,
}

/// How long the thread sleeps at least: less is not what a kernel can do.
const TICK: Duration = Duration::from_micros(10);
/// Rounds without work before it sleeps until it is woken.
const QUIET_TICKS: u32 = 50;

impl<F: Fabric> FlushingSender<F> {
    pub(super) fn new(sender: Sender<F>) -> Result<Self, Error> {
        let system = |call| move |source| Error::System { call, source };
        let tick = sender.within().max(TICK);
        let signal = Signal::new().map_err(system("eventfd"))?;
        let (sender, is_idle) = (Mutex::new(sender), AtomicBool::new(false));
        let shared = Arc::new(SenderState { sender, signal, is_idle });
        let (clock, quiet) = (Clock::start(), 0);
        let publisher = Publisher { shared: Arc::clone(&shared), tick, quiet, looked: clock.now() };
        let pace = (clock, Wait::Block);
        let worker = Worker::start("clan-queue", &shared.signal, pace, publisher, |_, _| ())
            .map_err(system("thread"))?;
        Ok(Self { shared, worker: Some(worker) })
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
        if self.shared.is_idle.load(SeqCst) && self.shared.is_idle.swap(false, SeqCst) {
            self.shared.signal.ring();
        }
        result
    }
}

/// What the thread does.
struct Publisher<F: Fabric> {
    shared: Arc<SenderState<F>>,
    tick: Duration,
    /// How often it found nothing.
    quiet: u32,
    looked: landfall_placement::Instant,
}

impl<F: Fabric> Source for Publisher<F> {
    type Output = Infallible;

    fn turn(&mut self, now: landfall_placement::Instant) -> ControlFlow<Infallible, bool> {
        // What fails here fails for the next call too, and is told there.
        let due = locked(&self.shared.sender).publish_due(Instant::now()).unwrap_or(None);
        self.quiet = if due.is_some() { 0 } else { self.quiet + 1 };
        self.looked = now;
        ControlFlow::Continue(false)
    }

    fn interests(&self, _: &mut Vec<Interest>) {}

    fn next_wake(&self) -> Option<landfall_placement::Instant> {
        (self.quiet < QUIET_TICKS).then(|| self.looked + self.tick)
    }

    fn arm(&self) {
        self.shared.is_idle.store(self.quiet >= QUIET_TICKS, SeqCst);
    }

    fn has_work(&self) -> bool {
        self.quiet >= QUIET_TICKS && locked(&self.shared.sender).due().is_some()
    }

    fn silence(&self) {
        self.shared.is_idle.store(false, SeqCst);
    }
}

impl<F: Fabric> Drop for FlushingSender<F> {
    fn drop(&mut self) {
        self.worker.take().into_iter().for_each(Worker::join);
    }
}
