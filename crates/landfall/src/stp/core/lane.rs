//! A driver of any kind, and how it fares.

use landfall_placement::{Engine as _, Instant, PathState};
use stp_core::Endpoint;

use crate::drive::AnyDriver;

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
    pub(crate) driver: Box<dyn AnyDriver<Endpoint>>,
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
