//! A driver of any kind, and how it fares.

use std::io;

use landfall_placement::{Engine as _, Instant, PathId, PathLimits, PathState};
use landfall_transport::driver::Interests;
use landfall_transport::{Capabilities, Counters, Driver, Progress};
use stp_core::Endpoint;

/// [`Driver`] for one engine, so that drivers of several kinds fit one list.
pub(crate) trait AnyDriver: Send {
    fn path(&self) -> PathId;
    fn limits(&self) -> PathLimits;
    fn capabilities(&self) -> &Capabilities;
    fn counters(&self) -> &Counters;
    fn counters_mut(&mut self) -> &mut Counters;
    fn turn(&mut self, engine: &mut Endpoint, now: Instant) -> io::Result<Progress>;
    fn interests(&self) -> Interests;
    fn poll_timeout(&self) -> Option<Instant>;
}

impl<D: Driver + Send> AnyDriver for D {
    fn path(&self) -> PathId {
        Driver::path(self)
    }

    fn limits(&self) -> PathLimits {
        Driver::limits(self)
    }

    fn capabilities(&self) -> &Capabilities {
        Driver::capabilities(self)
    }

    fn counters(&self) -> &Counters {
        Driver::counters(self)
    }

    fn counters_mut(&mut self) -> &mut Counters {
        Driver::counters_mut(self)
    }

    fn turn(&mut self, engine: &mut Endpoint, now: Instant) -> io::Result<Progress> {
        Driver::turn(self, engine, now)
    }

    fn interests(&self) -> Interests {
        Driver::interests(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Driver::poll_timeout(self)
    }
}

/// Where peers reach a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Socket,
    Station,
    Host,
    Node,
    Other,
}

/// A path of an endpoint.
pub(crate) struct Lane {
    pub(crate) driver: Box<dyn AnyDriver>,
    pub(crate) kind: Kind,
    pub(crate) local: Option<landfall_placement::Peer>,
    pub(crate) is_up: bool,
    /// What broke it for good.
    pub(crate) broken: Option<String>,
}

impl Lane {
    /// One turn, if it is up. A path that breaks goes down; the engine moves
    /// what it had to others.
    pub(super) fn turn(&mut self, engine: &mut Endpoint, now: Instant) -> bool {
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

    pub(super) fn set_up(&mut self, engine: &mut Endpoint, now: Instant, is_up: bool) {
        self.is_up = is_up && self.broken.is_none();
        let state = if self.is_up { PathState::Up(self.driver.limits()) } else { PathState::Down };
        engine.handle_path(now, self.driver.path(), state);
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane")
            .field("path", &self.driver.path())
            .field("driver", &self.driver.capabilities().driver())
            .field("is_up", &self.is_up)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
