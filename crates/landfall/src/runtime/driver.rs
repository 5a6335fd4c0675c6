//! [`AnyDriver`]: drivers of several kinds in one list.

use std::io;

use landfall_placement::{Engine, Instant, PathId, PathLimits};
use landfall_transport::driver::Interests;
use landfall_transport::fault::FaultCounts;
use landfall_transport::{Capabilities, Counters, Driver, Progress};

/// [`Driver`] for one engine, so that drivers of several kinds fit one list.
pub(crate) trait AnyDriver<E>: Send {
    fn path(&self) -> PathId;
    fn limits(&self) -> PathLimits;
    fn capabilities(&self) -> &Capabilities;
    fn counters(&self) -> &Counters;
    fn counters_mut(&mut self) -> &mut Counters;
    fn turn(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress>;
    fn interests(&self) -> Interests;
    fn poll_timeout(&self) -> Option<Instant>;

    /// What went wrong on purpose.
    fn faults(&self) -> Option<FaultCounts> {
        None
    }

    /// The path went down: there are no turns until it is up again.
    fn cut(&mut self, engine: &mut E, now: Instant) {
        let _ = (engine, now);
    }
}

impl<E: Engine, D: Driver + Send> AnyDriver<E> for D {
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

    fn faults(&self) -> Option<FaultCounts> {
        Driver::faults(self)
    }

    fn turn(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        Driver::turn(self, engine, now)
    }

    fn interests(&self) -> Interests {
        Driver::interests(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Driver::poll_timeout(self)
    }
}
