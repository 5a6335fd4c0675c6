//! [`Path`]: a driver of any kind that is open, and how it fares. [`Paths`]: all of an engine.

use std::fmt;

use landfall_placement::{Engine, Instant, PathId, PathState, Peer};
use landfall_transport::driver::Interest;
use landfall_transport::{Clock, Progress};

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

/// What moved of late, each way, in units. What moved before counts for less with each turn
/// in which something did.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    received: u32,
    sent: u32,
}

impl Flow {
    /// So many units in the last turns are much: some receives of 64 KiB.
    const MUCH: u32 = 32;
    /// Answers to a stream are fewer than this part of it.
    const ANSWERS: u32 = 4;

    fn note(&mut self, progress: Progress) {
        if progress.any() {
            let fade = |before: u32, now: u32| (before - before / 8).saturating_add(now);
            self.received = fade(self.received, progress.received);
            self.sent = fade(self.sent, progress.sent);
        }
    }

    /// Is it much, and one way only? A dialogue is not, however long its messages are: there
    /// each side waits for the other.
    const fn is_stream(&self) -> bool {
        let (more, less) = if self.received > self.sent {
            (self.received, self.sent)
        } else {
            (self.sent, self.received)
        };
        more >= Self::MUCH && less <= more / Self::ANSWERS
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

    /// One turn, if it is up. A path that breaks goes down; the engine moves
    /// what it had to others, or gives it up.
    fn turn(&mut self, engine: &mut E, now: Instant, flow: &mut Flow) -> bool {
        if !self.is_up {
            return false;
        }
        match self.driver.turn(engine, now) {
            Ok(progress) => {
                flow.note(progress);
                progress.any()
            }
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
    flow: Flow,
}

impl<E: Engine> Paths<E> {
    /// Tells the engine of each path.
    pub(crate) fn new(mut paths: Vec<Path<E>>, clock: Clock, engine: &mut E) -> Self {
        let now = clock.now();
        for path in &mut paths {
            path.set_up(engine, now, true);
        }
        Self { paths, clock, flow: Flow::default() }
    }

    /// One turn of each path, and the engine's timers. Gives whether anything moved.
    pub(crate) fn turn(&mut self, engine: &mut E, mut now: Instant) -> bool {
        let mut moved = false;
        for path in &mut self.paths {
            if path.turn(engine, now, &mut self.flow) {
                moved = true;
                // What moved took time; looking in vain takes about as much as a clock.
                now = self.clock.now();
            }
        }
        if engine.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            // No path is up that would have let it fire.
            engine.handle_timeout(now);
        }
        moved
    }

    /// Do they carry much, and one way only?
    pub(crate) const fn is_streaming(&self) -> bool {
        self.flow.is_stream()
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

    /// Gives the paths away, to be closed.
    pub(super) fn take(&mut self) -> Vec<Path<E>> {
        std::mem::take(&mut self.paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(turns: u32, received: u32, sent: u32) -> Flow {
        let mut flow = Flow::default();
        (0..turns).for_each(|_| flow.note(Progress { received, sent }));
        flow
    }

    #[test]
    fn much_that_goes_one_way_is_a_stream() {
        assert!(after(8, 45, 2).is_stream(), "received, with an answer now and then");
        assert!(after(8, 1, 45).is_stream(), "sent");
        assert!(after(20, 7, 1).is_stream(), "long units, seven in a receive of 64 KiB");
    }

    #[test]
    fn little_or_a_dialogue_is_none() {
        assert!(!Flow::default().is_stream());
        assert!(!after(1_000, 1, 0).is_stream(), "one at a time");
        assert!(!after(1_000, 1, 1).is_stream(), "questions and answers");
        let mut flow = Flow::default();
        for _ in 0..100 {
            flow.note(Progress { received: 46, sent: 0 });
            flow.note(Progress { received: 0, sent: 46 });
        }
        assert!(!flow.is_stream(), "long ones, too");
    }

    #[test]
    fn a_stream_that_is_over_is_forgotten() {
        let mut flow = after(100, 45, 0);
        (0..64).for_each(|_| flow.note(Progress { received: 1, sent: 1 }));
        assert!(!flow.is_stream());
    }
}
