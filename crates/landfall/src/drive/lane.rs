//! A path that is open: a driver of any kind, and how it fares.

use std::fmt;

use landfall_placement::{Engine, Instant, PathState, Peer};

use super::AnyDriver;

/// What peers on a path are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Socket,
    Station,
    Host,
    Node,
    Other,
}

impl Kind {
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

/// See the module.
pub(crate) struct Lane<E> {
    pub(crate) driver: Box<dyn AnyDriver<E>>,
    pub(crate) kind: Kind,
    /// Where peers reach it, if it has an address of its own.
    pub(crate) local: Option<Peer>,
    pub(crate) is_up: bool,
    /// What broke it for good.
    pub(crate) broken: Option<String>,
}

impl<E: Engine> Lane<E> {
    /// One turn, if it is up. A path that breaks goes down; the engine moves
    /// what it had to others, or gives it up.
    pub(crate) fn turn(&mut self, engine: &mut E, now: Instant) -> bool {
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

    pub(crate) fn set_up(&mut self, engine: &mut E, now: Instant, is_up: bool) {
        self.is_up = is_up && self.broken.is_none();
        let state = if self.is_up { PathState::Up(self.driver.limits()) } else { PathState::Down };
        engine.handle_path(now, self.driver.path(), state);
        if !self.is_up {
            self.driver.cut(engine, now);
        }
    }

    /// The best path to such a peer: one that is up before one that is not, of
    /// equals the first.
    pub(crate) fn to(lanes: &[Self], peer: Peer) -> Option<&Self> {
        let wanted = Kind::of(peer);
        let fits = |lane: &&Self| lane.kind == wanted || lane.kind == Kind::Other;
        let up = lanes.iter().find(|lane| fits(lane) && lane.is_up);
        up.or_else(|| lanes.iter().find(fits))
    }
}

impl<E: Engine> fmt::Debug for Lane<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("path", &self.driver.path())
            .field("driver", &self.driver.capabilities().driver())
            .field("is_up", &self.is_up)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
