//! [`Path`]: a driver of any kind that is open, and how it fares. [`Paths`]: all of an engine.

use std::fmt;

use landfall_placement::{Engine, Instant, PathId, PathState, Peer};
use landfall_transport::Clock;
use landfall_transport::driver::Interest;
#[cfg(any(feature = "clan", feature = "stp"))]
use landfall_transport::interfaces::is_of_this_host;

use super::AnyDriver;

/// What peers on a path are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    Socket,
    Station,
    Host,
    Node,
    Other,
}

impl PeerKind {
    /// The kind of path that leads to such a peer.
    pub(crate) const fn of(peer: Peer) -> Self {
        match peer {
            Peer::Socket(_) => Self::Socket,
            Peer::Ethernet(_) => Self::Station,
            Peer::Ip(_) => Self::Host,
            Peer::Node(_) => Self::Node,
            Peer::Unaddressed => Self::Other,
        }
    }
}

/// A driver that is open, and how it fares.
pub(crate) struct Path<E> {
    pub(crate) driver: Box<dyn AnyDriver<E>>,
    pub(crate) kind: PeerKind,
    /// Where peers reach it, if it has an address of its own.
    pub(crate) local: Option<Peer>,
    pub(crate) is_up: bool,
    /// What broke it for good.
    pub(crate) broken: Option<String>,
}

impl<E: Engine> Path<E> {
    pub(crate) fn new(driver: Box<dyn AnyDriver<E>>, kind: PeerKind, local: Option<Peer>) -> Self {
        Self { driver, kind, local, is_up: false, broken: None }
    }

    /// Is it itself what is reached there?
    #[cfg(any(feature = "clan", feature = "stp"))]
    pub(crate) fn is_at(&self, peer: Peer) -> bool {
        match (self.local, peer) {
            (Some(Peer::Socket(local)), Peer::Socket(peer)) if local.ip().is_unspecified() => {
                local.port() == peer.port() && is_of_this_host(peer.ip())
            }
            (local, peer) => local == Some(peer),
        }
    }

    /// One turn, if it is up. A path that breaks goes down; the engine moves
    /// what it had to others, or gives it up.
    fn turn(&mut self, engine: &mut E, now: Instant) -> bool {
        if !self.is_up {
            return false;
        }
        match self.driver.turn(engine, now) {
            Ok(progress) => progress.any(),
            Err(error) => {
                self.broken = Some(error.to_string());
                self.set_up(engine, now, false);
                true
            }
        }
    }

    fn set_up(&mut self, engine: &mut E, now: Instant, is_up: bool) {
        self.is_up = is_up && self.broken.is_none();
        let state = if self.is_up { PathState::Up(self.driver.limits()) } else { PathState::Down };
        engine.handle_path(now, self.driver.path(), state);
        if !self.is_up {
            self.driver.cut(engine, now);
        }
    }
}

impl<E: Engine> fmt::Debug for Path<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Path")
            .field("path", &self.driver.path())
            .field("driver", &self.driver.capabilities().driver())
            .field("is_up", &self.is_up)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// The paths of an engine, in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Paths<E: Engine> {
    paths: Vec<Path<E>>,
    clock: Clock,
}

impl<E: Engine> Paths<E> {
    /// Tells the engine of each path.
    pub(crate) fn new(mut paths: Vec<Path<E>>, clock: Clock, engine: &mut E) -> Self {
        let now = clock.now();
        for path in &mut paths {
            path.set_up(engine, now, true);
        }
        Self { paths, clock }
    }

    /// One turn of each path, and the engine's timers. Returns whether anything moved.
    pub(crate) fn turn(&mut self, engine: &mut E, mut now: Instant) -> bool {
        let mut moved = false;
        for path in &mut self.paths {
            if path.turn(engine, now) {
                moved = true;
                // What moved took time; looking in vain takes about as much as a clock.
                now = self.clock.now();
            }
        }
        // A path that is up lets timers fire.
        if !self.paths.iter().any(|path| path.is_up)
            && engine.poll_timeout().is_some_and(|timeout| timeout.at <= now)
        {
            engine.handle_timeout(now);
        }
        moved
    }

    /// When a turn makes sense, even if nothing comes.
    pub(crate) fn next_wake(&self, engine: &E) -> Option<Instant> {
        let drivers = self.up().filter_map(|path| path.driver.poll_timeout());
        drivers.chain(engine.poll_timeout().map(|timeout| timeout.at)).min()
    }

    /// What a thread waits for that sleeps. This also arms anew what a turn has disarmed.
    pub(super) fn interests(&self, into: &mut Vec<Interest>) {
        for path in self.up() {
            into.extend(path.driver.interests());
        }
    }

    /// A sleeping thread was woken. Which path it was nobody asked: the first one counts.
    pub(super) fn count_wakeup(&mut self) {
        if let Some(path) = self.paths.first_mut() {
            path.driver.counters_mut().wakeups += 1;
        }
    }

    /// The best path to such a peer: one that is up before one that is not, of
    /// equals the first.
    pub(crate) fn to(&self, peer: Peer) -> Option<PathId> {
        let wanted = PeerKind::of(peer);
        let fits = |path: &&Path<E>| path.kind == wanted || path.kind == PeerKind::Other;
        let up = self.up().find(fits);
        up.or_else(|| self.iter().find(fits)).map(|path| path.driver.path())
    }

    pub(crate) fn get(&self, id: PathId) -> Option<&Path<E>> {
        self.iter().find(|path| path.driver.path() == id)
    }

    /// Switches a path off or on. Nothing: there is no such path.
    pub(crate) fn set_up(
        &mut self,
        engine: &mut E,
        now: Instant,
        id: PathId,
        is_up: bool,
    ) -> Option<()> {
        let path = self.paths.iter_mut().find(|path| path.driver.path() == id)?;
        path.set_up(engine, now, is_up);
        Some(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path<E>> {
        self.paths.iter()
    }

    pub(crate) fn up(&self) -> impl Iterator<Item = &Path<E>> {
        self.iter().filter(|path| path.is_up)
    }

    /// Returns the paths away, to be closed.
    pub(super) fn take(&mut self) -> Vec<Path<E>> {
        std::mem::take(&mut self.paths)
    }
}
