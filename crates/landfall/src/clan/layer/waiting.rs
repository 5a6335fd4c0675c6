//! Looking, then sleeping: how every piece of the layer waits; and [`Half`]: one side of a
//! piece, which waits to know the other.

use std::fmt;
use std::fmt::Debug;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use landfall_transport::Wait;

use crate::clan::{Cookie, Error, Fabric, Local, Remote, Rights, Stage, Tripwire};

/// Looks of a spinning thread between two readings of the clock.
const LOOKS_PER_GLANCE_AT_THE_CLOCK: u32 = 64;

/// How long a dropped handle waits for room in the send buffer.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Looks of a task before it yields.
const MOST_LOOKS_PER_POLL: u32 = 16;

/// How a handle waits: on which fabric, with which policy, at which tripwire.
#[derive(Debug)]
pub(super) struct Waiting<F: Fabric> {
    fabric: F,
    wait: Wait,
    wire: F::Tripwire,
}

/// One side of a connection, as waiting needs it.
pub(super) trait ConnectionEnd<F: Fabric> {
    /// Its handle to the peer's memory.
    fn remote(&mut self) -> &mut F::Remote;
}

/// Looks for what is waited for. None: not yet. An error ends the wait, except
/// [`Error::Busy`], after which it is tried again when there is room.
pub(super) type Look<'a, S, T> = &'a mut dyn FnMut(&mut S) -> Result<Option<T>, Error>;

impl<F: Fabric> Waiting<F> {
    pub(super) const fn new(fabric: F, wait: Wait, wire: F::Tripwire) -> Self {
        Self { fabric, wait, wire }
    }

    /// What it sleeps at.
    pub(super) const fn tripwire(&self) -> &F::Tripwire {
        &self.wire
    }

    /// For threads.
    #[inline]
    pub(super) fn until<S: ConnectionEnd<F>, T>(
        &self,
        side: &mut S,
        deadline: Option<Instant>,
        mut look: impl FnMut(&mut S) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        // What is there already costs no more than the look.
        match look(side) {
            Ok(Some(found)) => Ok(found),
            Err(error) if !matches!(error, Error::Busy) => Err(error),
            _ => self.until_later(side, deadline, &mut look),
        }
    }

    #[cold]
    fn until_later<S: ConnectionEnd<F>, T>(
        &self,
        side: &mut S,
        deadline: Option<Instant>,
        look: Look<'_, S, T>,
    ) -> Result<T, Error> {
        loop {
            // Each time: it may have been woken early, while the rest is on its way.
            if let Some(found) = self.spin(side, deadline, look)? {
                return Ok(found);
            }
            self.wire.arm();
            match look(side) {
                // It may return early; the clock below knows whether it is late.
                Ok(None) => _ = self.fabric.wait(&[&self.wire], deadline)?,
                Err(Error::Busy) => {
                    self.wire.disarm();
                    side.remote().wait_for(Stage::Room, deadline)?;
                }
                Ok(Some(found)) => {
                    self.wire.disarm();
                    return Ok(found);
                }
                Err(error) => {
                    self.wire.disarm();
                    return Err(error);
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.wire.disarm();
                return settled(look(side));
            }
        }
    }

    /// Looks until the budget or the deadline is over.
    fn spin<S, T>(
        &self,
        side: &mut S,
        deadline: Option<Instant>,
        look: Look<'_, S, T>,
    ) -> Result<Option<T>, Error> {
        let budget = match self.wait {
            Wait::Block => return Ok(None),
            Wait::Spin => None,
            Wait::SpinThenBlock(budget) => Some(budget),
        };
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_GLANCE_AT_THE_CLOCK {
                match look(side) {
                    Ok(Some(found)) => return Ok(Some(found)),
                    Ok(None) | Err(Error::Busy) => self.fabric.relax(),
                    Err(error) => return Err(error),
                }
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return settled(look(side)).map(Some);
            }
            if budget.is_some_and(|budget| now - start >= budget) {
                return Ok(None);
            }
        }
    }

    /// Publishes what is left when a handle is dropped. It waits for room, but
    /// not for long; other errors have nobody to go to.
    pub(super) fn flush_on_drop<S: ConnectionEnd<F>>(
        &self,
        side: &mut S,
        mut say: impl FnMut(&mut S) -> Result<(), Error>,
    ) {
        if matches!(say(side), Err(Error::Busy)) {
            let deadline = Instant::now().checked_add(CLOSE_TIMEOUT);
            let _ = self.until(side, deadline, |side| say(side).map(Some));
        }
    }

    /// For tasks.
    pub(super) fn poll<S: ConnectionEnd<F>, T>(
        &self,
        context: &mut Context<'_>,
        side: &mut S,
        mut look: impl FnMut(&mut S) -> Result<Option<T>, Error>,
    ) -> Poll<Result<T, Error>> {
        for _ in 0..MOST_LOOKS_PER_POLL {
            match look(side) {
                Ok(Some(found)) => return Poll::Ready(Ok(found)),
                Ok(None) => {}
                Err(Error::Busy) => match side.remote().poll_reached(Stage::Room, context)? {
                    Poll::Ready(()) => continue,
                    Poll::Pending => return Poll::Pending,
                },
                Err(error) => return Poll::Ready(Err(error)),
            }
            self.wire.arm();
            // The waker is there before the second look.
            let fired = self.wire.poll_fired(context);
            match look(side) {
                Ok(None) if fired.is_pending() => return Poll::Pending,
                Ok(None) | Err(Error::Busy) => self.wire.disarm(),
                Ok(Some(found)) => {
                    self.wire.disarm();
                    return Poll::Ready(Ok(found));
                }
                Err(error) => {
                    self.wire.disarm();
                    return Poll::Ready(Err(error));
                }
            }
        }
        // Others shall have their turn.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// The same as a future.
    pub(super) async fn reached<S: ConnectionEnd<F>, T>(
        &self,
        side: &mut S,
        mut look: impl FnMut(&mut S) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        poll_fn(|context| self.poll(context, side, &mut look)).await
    }
}

/// The last look before a deadline is reported: it may have come in this very moment.
fn settled<T>(looked: Result<Option<T>, Error>) -> Result<T, Error> {
    match looked {
        Ok(Some(found)) => Ok(found),
        Ok(None) | Err(Error::Busy) => Err(Error::TimedOut),
        Err(error) => Err(error),
    }
}

/// Nothing came: will it ever? What came before the peer went away is found
/// by another look.
#[inline]
pub(super) fn unless_lost<T, R: Remote>(
    remote: &R,
    look_again: impl FnOnce() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    match remote.check() {
        Ok(()) => Ok(None),
        Err(lost) => match look_again()? {
            Some(found) => Ok(Some(found)),
            None => Err(lost),
        },
    }
}

/// Our side's memory of a connection to be: the [`cookie`](Self::cookie) goes to the
/// other side, and with the cookie of the other side it becomes `P`.
pub struct Half<F: Fabric, P: Connect<F>> {
    fabric: F,
    local: F::Local,
    cookie: Cookie,
    config: P::Config,
    becomes: PhantomData<fn() -> P>,
}

/// What a half becomes. Only the layer's own types do.
pub trait Connect<F: Fabric>: Sized {
    /// What both sides have to agree on.
    type Config: Copy + fmt::Debug;

    /// How much memory this side exposes; an error if that cannot be.
    #[doc(hidden)]
    fn ours(config: &Self::Config) -> Result<u64, Error>;

    /// How much the other side does.
    #[doc(hidden)]
    fn theirs(config: &Self::Config) -> Result<u64, Error>;

    /// Joins the two.
    #[doc(hidden)]
    fn join(joint: Joint<F>, config: Self::Config) -> Result<Self, Error>;
}

/// Both sides' memory.
#[derive(Debug)]
pub struct Joint<F: Fabric> {
    pub(super) fabric: F,
    pub(super) local: F::Local,
    pub(super) remote: F::Remote,
}

impl<F: Fabric, P: Connect<F>> Half<F, P> {
    pub(super) fn open(fabric: &F, config: P::Config) -> Result<Self, Error> {
        let (local, cookie) = fabric.expose(P::ours(&config)?, Rights::Write)?;
        Ok(Self { fabric: fabric.clone(), local, cookie, config, becomes: PhantomData })
    }

    /// What the other side needs to connect to this one.
    #[must_use]
    pub const fn cookie(&self) -> Cookie {
        self.cookie
    }

    /// Connects to the other side. Both do, in any order; what one sends before the
    /// other has connected waits for it.
    ///
    /// # Errors
    /// The cookie is invalid, or its memory is not what this side's
    /// configuration asks for.
    pub fn connect(self, other: &Cookie) -> Result<P, Error> {
        let Self { fabric, local, config, .. } = self;
        let remote = fabric.map(other)?;
        let (expected, found) = (P::theirs(&config)?, remote.len());
        if found != expected {
            return Err(Error::Mismatch { expected, found });
        }
        debug_assert_eq!(Ok(local.len()), P::ours(&config).map_err(drop));
        P::join(Joint { fabric, local, remote }, config)
    }
}

impl<F: Fabric, P: Connect<F>> fmt::Debug for Half<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Half").field("cookie", &self.cookie).field("config", &self.config).finish()
    }
}
