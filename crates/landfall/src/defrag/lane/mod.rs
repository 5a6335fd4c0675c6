//! How frames come to the engine: one lane per technique, all with one face.

use std::io;
use std::sync::Arc;

use landfall_placement::{Area, Duration, Instant, Span};
use landfall_transport::driver::Interest;
use spec_defrag::Receiver as Engine;

use super::packet::Holder;

#[cfg(feature = "nic")]
mod hamachi;
mod lying;
mod posted;

#[cfg(feature = "nic")]
pub(super) use hamachi::HamachiLane;
pub(super) use lying::{Blocks, LyingLane, XdpRings};
pub(super) use posted::PostedLane;
#[cfg(feature = "io-uring")]
pub(super) use posted::ThroughRing;

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
pub(super) struct Heard {
    pub(super) frames: u64,
    pub(super) dropped: u64,
    pub(super) calls: u64,
}

/// Frames, from an interface to an engine.
pub(super) trait Lane: Send + std::fmt::Debug {
    /// The names of the slots for heads and spilled bytes.
    fn slots(&self) -> (Area, Area);

    /// Takes a burst of frames, if one is there. Never waits; afterwards nothing of
    /// the pages is held by the lane unless it says [`Moved::Nothing`].
    fn turn(&mut self, engine: &mut Engine, now: Instant) -> io::Result<Moved>;

    /// A timer of the engine is due.
    fn handle_timeout(&mut self, engine: &mut Engine, now: Instant);

    /// Reads what was delivered.
    fn read(&mut self, span: &Span, into: &mut [u8]);

    /// What keeps the frames of the last turn where they lie.
    fn holder(&self) -> Option<Arc<dyn Holder>>;

    /// What to wait for when nothing came; nothing where that does not tell.
    fn interest(&self) -> Option<Interest>;

    /// After how long to look again, whatever the descriptor says.
    fn look_again(&self) -> Option<Duration>;

    /// Frames since it was opened.
    fn heard(&mut self) -> io::Result<Heard>;
}
