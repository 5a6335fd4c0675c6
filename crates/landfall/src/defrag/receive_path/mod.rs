//! How frames come to the engine: one lane per technique, all with one face.
//!
//! Lists of places that are posted, and one call that fills them.

use std::io;

use landfall_placement::{Area, Duration, Instant, Span};
use landfall_transport::driver::Interest;
use landfall_transport::memory::{LendRefusal, Regions};
use landfall_transport::scatter::{Descriptor, Posted, Socket};
pub(super) use mapped::{Blocks, MappedPath, XdpRings};
use spec_defrag::Receiver as Engine;

use super::delivery::MemoryView;
use super::packet::Held;

#[cfg(feature = "nic")]
mod hamachi;
mod mapped;

#[cfg(feature = "io-uring")]
#[cfg(feature = "nic")]
pub(super) use hamachi::HamachiPath;

/// What a lane could do in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Frames came.
    Frames,
    /// None were there.
    Nothing,
    /// No page is free: frames wait in the kernel until a packet is given back.
    NoPages,
}

/// What the kernel counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelCounts {
    pub(super) frames: u64,
    pub(super) dropped: u64,
    pub(super) calls: u64,
}

/// Frames, from an interface to an engine.
pub(super) trait ReceivePath: Send + std::fmt::Debug {
    /// The names of the slots for heads and spilled bytes.
    fn slots(&self) -> (Area, Area);

    /// Takes a burst of frames, if one is there. Never waits; afterwards nothing of
    /// the pages is held by the lane unless it says [`Moved::Nothing`].
    fn turn(&mut self, engine: &mut Engine, now: Instant) -> io::Result<Moved>;

    /// A timer of the engine is due.
    fn handle_timeout(&mut self, engine: &mut Engine, now: Instant);

    /// Reads what was delivered.
    fn read(&mut self, span: &Span, into: &mut [u8]);

    /// What keeps the frames of these bunches where they lie; `None` if one is not held.
    fn hold(&self, bunches: &[u64]) -> Option<Held>;

    /// All packets that are whole were handed out: frames that none of them lies in, and in which
    /// no other waits, go back to the kernel.
    fn release(&mut self, engine: &Engine);

    /// What to wait for when nothing came; nothing where that does not tell.
    fn interests(&self, into: &mut Vec<Interest>);

    /// After how long to look again, whatever the descriptor says.
    fn look_again(&self) -> Option<Duration>;

    /// Frames since it was opened.
    fn heard(&mut self) -> io::Result<KernelCounts>;
}

#[cfg(feature = "io-uring")]
use landfall_transport::uring::UringBurst;

/// Receives into what is posted.
pub(super) trait Receive: Send + std::fmt::Debug {
    fn receive(&mut self, posted: &mut Posted) -> io::Result<usize>;
    fn interest(&self) -> Interest;
    fn heard(&mut self) -> io::Result<KernelCounts>;
}

impl Receive for Socket {
    fn receive(&mut self, posted: &mut Posted) -> io::Result<usize> {
        self.receive(posted)
    }

    fn interest(&self) -> Interest {
        self.interest()
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        let told = self.statistics()?;
        let calls = self.counters().receive_calls;
        Ok(KernelCounts { frames: told.frames, dropped: told.dropped, calls })
    }
}

/// A socket that is received from by way of `io_uring`.
#[cfg(feature = "io-uring")]
#[derive(Debug)]
pub(super) struct ThroughRing {
    socket: Socket,
    ring: UringBurst,
}

#[cfg(feature = "io-uring")]
impl ThroughRing {
    pub(super) fn new(socket: Socket) -> io::Result<Self> {
        Ok(Self { socket, ring: UringBurst::open()? })
    }
}

#[cfg(feature = "io-uring")]
impl Receive for ThroughRing {
    fn receive(&mut self, posted: &mut Posted) -> io::Result<usize> {
        self.ring.receive(&mut self.socket, posted)
    }

    fn interest(&self) -> Interest {
        self.socket.interest()
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        Receive::heard(&mut self.socket)
    }
}

/// A lane of places that are posted: one call fills them.
#[derive(Debug)]
pub(super) struct PostedPath<S> {
    socket: S,
    posted: Posted,
    /// The engine's list is there, and its pages are pinned.
    is_posted: bool,
}

impl<S: Receive> PostedPath<S> {
    pub(super) fn new(socket: S, regions: &Regions, burst: u16) -> Result<Self, LendRefusal> {
        let posted = Posted::new(regions, burst.into())?;
        Ok(Self { socket, posted, is_posted: false })
    }

    /// Asks the engine for places. False: it has none.
    fn post(&mut self, engine: &mut Engine) -> io::Result<bool> {
        let list = engine.post();
        if list.is_empty() {
            return Ok(false);
        }
        let list = list.iter().map(|one| Descriptor { head_len: one.head_len, place: one.place });
        self.posted.post(list).map_err(io::Error::other)?;
        self.is_posted = true;
        Ok(true)
    }

    fn settle(&mut self, engine: &mut Engine, now: Instant) {
        let (lens, memory) = self.posted.burst();
        engine.settle(now, lens, &mut MemoryView(memory));
        self.posted.release();
        self.is_posted = false;
    }
}

impl<S: Receive> ReceivePath for PostedPath<S> {
    fn slots(&self) -> (Area, Area) {
        (self.posted.heads(), self.posted.spill())
    }

    fn turn(&mut self, engine: &mut Engine, now: Instant) -> io::Result<Moved> {
        if !self.is_posted && !self.post(engine)? {
            return Ok(Moved::NoPages);
        }
        if self.socket.receive(&mut self.posted)? == 0 {
            return Ok(Moved::Nothing);
        }
        self.settle(engine, now);
        Ok(Moved::Frames)
    }

    fn handle_timeout(&mut self, engine: &mut Engine, now: Instant) {
        if self.is_posted {
            // Only between bursts: one of no frames ends here.
            engine.settle(now, &[], &mut MemoryView(self.posted.memory()));
            self.is_posted = false;
        }
        engine.handle_timeout(now, &mut MemoryView(self.posted.memory()));
        self.posted.release();
    }

    fn read(&mut self, span: &Span, into: &mut [u8]) {
        let read = self.posted.memory().read(span, into);
        debug_assert_eq!(read, Ok(()), "{span}");
    }

    /// Frames were taken apart: none lies anywhere.
    fn hold(&self, _bunches: &[u64]) -> Option<Held> {
        None
    }

    fn release(&mut self, _engine: &Engine) {}

    fn interests(&self, into: &mut Vec<Interest>) {
        into.push(self.socket.interest());
    }

    fn look_again(&self) -> Option<Duration> {
        None
    }

    fn heard(&mut self) -> io::Result<KernelCounts> {
        self.socket.heard()
    }
}
