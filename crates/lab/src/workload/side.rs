//! What both threads of a run have in common: core and namespace, how they
//! meet, how they wait, and how one ends when the other does.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant as StdInstant};

use anyhow::{Context, Result, bail};
use landfall_placement::{Engine, Instant, Peer};
use landfall_testbed::cpu;
use landfall_testbed::rivals::{Amount, Plan, Polling, Side};
use landfall_transport::memory::Regions;
use landfall_transport::{Clock, Driver, Wait, Waiter};

use super::Route;
use super::transport::{PATH, Role, Transport};

/// A sleeping side looks so often whether the other has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Said by a side that ended because the other did.
#[derive(Debug)]
pub(crate) struct OtherSideEnded;

impl std::fmt::Display for OtherSideEnded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the other side ended early")
    }
}

impl std::error::Error for OtherSideEnded {}

/// What one side tells the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// Its name; none once it is ready.
    Met(Option<Peer>),
    /// The last messages are coming.
    Draining,
    /// It knows: what comes from now on is not posted again.
    Drained,
    /// It has ended.
    Over,
}

/// Hears updates for a side that is in another process.
#[derive(Clone)]
pub(crate) struct RemoteSide(Arc<dyn Fn(Update) + Send + Sync>);

impl RemoteSide {
    pub(crate) fn new(tell: impl Fn(Update) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for RemoteSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteSide")
    }
}

/// What both sides see.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    over: AtomicBool,
    draining: AtomicBool,
    drained: AtomicBool,
    remote: Option<RemoteSide>,
}

impl Shared {
    /// With a side in another process, whose updates come by [`hear`](Self::hear).
    pub(crate) fn with_remote(remote: RemoteSide) -> Self {
        Self { remote: Some(remote), ..Self::default() }
    }

    /// Takes an update of a side in another process.
    pub(crate) fn hear(&self, news: Update) {
        match news {
            Update::Met(_) => {}
            Update::Draining => self.draining.store(true, Ordering::Release),
            Update::Drained => self.drained.store(true, Ordering::Release),
            Update::Over => self.over.store(true, Ordering::Relaxed),
        }
    }

    fn tell(&self, news: Update) {
        self.hear(news);
        if let Some(RemoteSide(tell)) = &self.remote {
            tell(news);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The last messages are coming: what they fill is not posted again.
    pub(super) fn drain(&self) {
        self.tell(Update::Draining);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whoever receives has heard that the last messages are coming.
    pub(super) fn know_of_draining(&self) {
        if !self.is_drained() {
            self.tell(Update::Drained);
        }
    }

    /// Has it?
    pub(super) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    /// Tells the other side, however the holder ends.
    pub(crate) fn end_when_dropped(&self) -> impl Drop + '_ {
        struct End<'a>(&'a Shared);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.tell(Update::Over);
            }
        }
        End(self)
    }
}

/// Where the two sides exchange their names before they begin. A side that
/// ends before hangs up, so nobody waits for it.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    tell: Tell,
    hear: Receiver<Option<Peer>>,
    limit: Duration,
}

#[derive(Debug)]
enum Tell {
    Here(Sender<Option<Peer>>),
    RemoteSide(RemoteSide),
}

impl Rendezvous {
    pub(super) fn between_two(limit: Duration) -> (Self, Self) {
        let ((tell_b, hear_a), (tell_a, hear_b)) = (channel(), channel());
        let side = |tell, hear| Self { tell: Tell::Here(tell), hear, limit };
        (side(tell_a, hear_a), side(tell_b, hear_b))
    }

    /// With a side that is remote: what it says is put into the channel.
    pub(crate) fn with_remote(remote: RemoteSide, limit: Duration) -> (Self, Sender<Option<Peer>>) {
        let (put, hear) = channel();
        (Self { tell: Tell::RemoteSide(remote), hear, limit }, put)
    }

    /// Tells the own name, and waits for the other's.
    pub(crate) fn exchange(&self, own: Peer) -> Result<Peer> {
        self.meet(Some(own))?.context("the two sides are out of step")
    }

    /// Waits until both sides are ready.
    pub(crate) fn ready(&self) -> Result<()> {
        self.meet(None).map(drop)
    }

    fn meet(&self, word: Option<Peer>) -> Result<Option<Peer>> {
        match &self.tell {
            Tell::Here(other) => other.send(word).map_err(|_| OtherSideEnded)?,
            Tell::RemoteSide(RemoteSide(tell)) => tell(Update::Met(word)),
        }
        Ok(self.hear.recv_timeout(self.limit).map_err(|_| OtherSideEnded)?)
    }
}

/// Moves the calling thread to the core and into the namespace of its side.
pub(crate) fn place_thread(side: &Side) -> Result<()> {
    if let Some(core) = side.core {
        cpu::pin_this_thread(core)?;
    }
    if let Some(namespace) = &side.namespace {
        namespace.join_this_thread()?;
    }
    Ok(())
}

/// A driver that knows who is at the other end, and the way there. On the thread that will
/// drive it, in its namespace.
pub(super) fn open_route<T: Transport>(
    transport: &T,
    role: Role,
    side: &Side,
    regions: &Regions,
    meeting: &Rendezvous,
) -> Result<(T::Driver, Route)> {
    let (mut driver, own) = transport.open(role, side, regions)?;
    let to = meeting.exchange(own)?;
    transport.meet(&mut driver, to)?;
    let way = Route { path: PATH, limits: driver.limits(), to };
    Ok((driver, way))
}

/// A run that takes longer than its time and the patience of the plan has failed.
pub(super) const fn limit_of(plan: &Plan) -> Duration {
    let own = match plan.amount {
        Amount::Time(time) => time,
        Amount::Bytes(_) | Amount::Messages(_) => Duration::ZERO,
    };
    own.saturating_add(plan.limit)
}

/// A driver, and how its thread waits.
#[derive(Debug)]
pub(super) struct DriverLoop<D> {
    pub(super) driver: D,
    waiter: Waiter,
    clock: Clock,
    started: StdInstant,
    limit: Duration,
}

impl<D: Driver> DriverLoop<D> {
    pub(super) fn new(driver: D, plan: &Plan, limit: Duration) -> Self {
        let wait = match plan.polling {
            Polling::Block => Wait::Block,
            Polling::Spin => Wait::Spin,
        };
        let (waiter, clock) = (Waiter::new(wait), Clock::start());
        Self { driver, waiter, clock, started: StdInstant::now(), limit }
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// One turn, and a wait if nothing moved. An error once the time is over.
    #[inline]
    pub(super) fn turn<E: Engine>(&mut self, engine: &mut E) -> Result<()> {
        let now = self.clock.now();
        if self.driver.turn(engine, now)?.any() {
            self.waiter.busy();
        } else {
            self.waiter.idle(&mut self.driver, engine, &self.clock, LOOK_EVERY)?;
        }
        if now.since(Instant::ZERO) > self.limit {
            let time = self.started.elapsed();
            let counters = self.driver.counters();
            bail!("no end after {time:?}; refused: {}; {counters:?}", engine.refusals());
        }
        Ok(())
    }
}

/// Both results, or the error that explains the other.
pub(crate) fn both<S, R>(send: Result<S>, receive: Result<R>) -> Result<(S, R)> {
    match (send, receive) {
        (Ok(send), Ok(receive)) => Ok((send, receive)),
        (Err(error), Err(other)) if error.is::<OtherSideEnded>() => {
            Err(other.context("the receiving side"))
        }
        (Err(error), _) => Err(error.context("the sending side")),
        (_, Err(error)) => Err(error.context("the receiving side")),
    }
}

/// What a thread gave, or that it panicked.
pub(crate) fn joined<T>(thread: std::thread::Result<Result<T>>) -> Result<T> {
    thread.unwrap_or_else(|_| bail!("a thread panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_side_that_fails_is_not_waited_for() {
        let (one, other) = Rendezvous::between_two(Duration::from_secs(60));
        let waiting = thread::spawn(move || one.exchange(Peer::Node(1)));
        drop(other);
        let error = waiting.join().unwrap().unwrap_err();
        assert!(error.is::<OtherSideEnded>());
    }

    #[test]
    fn the_error_that_explains_the_other_is_told() {
        let ended = || Err::<(), _>(OtherSideEnded.into());
        let reason = || Err::<(), _>(anyhow::anyhow!("no such path"));
        for outcome in [both(ended(), reason()), both(reason(), ended())] {
            assert!(format!("{:#}", outcome.unwrap_err()).contains("no such path"));
        }
    }
}
