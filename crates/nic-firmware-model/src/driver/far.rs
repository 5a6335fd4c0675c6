//! [`Far`]: a cable whose other end is a real driver: the card stands in front of it.

use std::fmt;
use std::io;

use landfall_placement::{Ecn, Instant, PathId, PathLimits, Peer};
use landfall_transport::driver::Interests;
use landfall_transport::memory::Regions;
use landfall_transport::{Capabilities, Driver, Feature, Progress};

use super::relay::Relay;
use super::wire::{Cable, Frame};

/// A driver, for the one engine that it has here.
pub trait FarEnd: Send {
    /// What its path carries.
    fn limits(&self) -> PathLimits;
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;
    /// As [`Driver::turn`].
    ///
    /// # Errors
    /// The path is broken for good.
    fn turn(&mut self, relay: &mut Relay, now: Instant) -> io::Result<Progress>;
    /// As [`Driver::interests`].
    fn interests(&self) -> Interests;
    /// As [`Driver::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
}

impl<D: Driver + Send> FarEnd for D {
    fn limits(&self) -> PathLimits {
        Driver::limits(self)
    }

    fn capabilities(&self) -> &Capabilities {
        Driver::capabilities(self)
    }

    fn turn(&mut self, relay: &mut Relay, now: Instant) -> io::Result<Progress> {
        Driver::turn(self, relay, now)
    }

    fn interests(&self) -> Interests {
        Driver::interests(self)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Driver::poll_timeout(self)
    }
}

/// This many frames may wait for the card while the driver is asked for more.
const MOST_WAITING: usize = 256;

/// A card's cable with a real driver at its other end.
pub struct Far {
    end: Box<dyn FarEnd>,
    relay: Relay,
    is_cut: bool,
}

impl Far {
    /// Opens a driver that reads and writes the regions of the table that it is given:
    /// they are the cable's, not the program's.
    ///
    /// # Errors
    /// The driver's, or there is no memory to lend.
    pub fn open(
        path: PathId,
        open: impl FnOnce(&Regions) -> io::Result<Box<dyn FarEnd>>,
    ) -> io::Result<Self> {
        let regions = Regions::new(1);
        let end = open(&regions)?;
        let relay = Relay::new(path, &regions, end.limits().unit)?;
        Ok(Self { end, relay, is_cut: false })
    }

    /// The longest frame that crosses it.
    #[must_use]
    pub fn unit(&self) -> u32 {
        self.end.limits().unit
    }

    fn turn(&mut self, now: Instant) -> io::Result<()> {
        if self.is_cut || self.relay.waiting() > MOST_WAITING {
            return Ok(());
        }
        self.end.turn(&mut self.relay, now).map(drop)
    }
}

impl Cable for Far {
    fn carries_frames(&self) -> bool {
        self.end.capabilities().has(Feature::RawFrames)
    }

    fn begin_turn(&mut self, now: Instant) -> io::Result<()> {
        self.turn(now)
    }

    fn take(&mut self) -> Option<Frame> {
        self.relay.take()
    }

    fn give_back(&mut self, frame: Frame) {
        self.relay.give_back(frame);
    }

    fn send(&mut self, to: Peer, ecn: Ecn, bytes: &[u8]) -> bool {
        self.is_cut || self.relay.send(to, ecn, bytes)
    }

    fn end_turn(&mut self, now: Instant) -> io::Result<u32> {
        if self.relay.has_outgoing() {
            self.turn(now)?;
        }
        Ok(self.relay.waiting() as u32)
    }

    fn interests(&self, _wants_room: bool) -> Interests {
        self.end.interests()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end.poll_timeout()
    }

    fn set_cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
        self.relay.clear();
    }
}

impl fmt::Debug for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Far")
            .field("driver", &self.end.capabilities().driver())
            .field("is_cut", &self.is_cut)
            .finish_non_exhaustive()
    }
}
