//! A link that is open: its driver, and how it fares.

use std::fmt;
use std::net::SocketAddr;

use landfall_placement::{Engine as _, Instant, PathState};
use qpip::Adapter;

use crate::drive::AnyDriver;
use crate::qpip::link::Opened;

/// See the module.
pub(crate) struct Lane {
    pub(crate) driver: Box<dyn AnyDriver<Adapter>>,
    pub(crate) what: String,
    pub(crate) station: [u8; 6],
    /// Where the other ends of a tunnel send to.
    pub(crate) carrier: Option<SocketAddr>,
    pub(crate) is_up: bool,
    /// What broke it for good.
    pub(crate) broken: Option<String>,
}

impl Lane {
    pub(crate) fn new(opened: Opened, what: String, station: [u8; 6]) -> Self {
        let Opened { driver, carrier } = opened;
        Self { driver, what, station, carrier, is_up: false, broken: None }
    }

    /// One turn, if it is up. A link that breaks goes down; connections over it
    /// time out as if the cable were cut.
    pub(super) fn turn(&mut self, engine: &mut Adapter, now: Instant) -> bool {
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

    pub(super) fn set_up(&mut self, engine: &mut Adapter, now: Instant, is_up: bool) {
        self.is_up = is_up && self.broken.is_none();
        let state = if self.is_up { PathState::Up(self.driver.limits()) } else { PathState::Down };
        engine.handle_path(now, self.driver.path(), state);
        if !self.is_up {
            self.driver.cut(engine, now);
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("what", &self.what)
            .field("is_up", &self.is_up)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}
