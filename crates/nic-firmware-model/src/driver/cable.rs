//! [`Cable`]: what a card is plugged into, whoever is at its other end.

use std::fmt;
use std::io;

use landfall_placement::{Ecn, Instant, Peer};
use landfall_transport::driver::Interests;

/// A frame on a cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// All of it.
    pub bytes: Vec<u8>,
    /// From whom, where the cable knows.
    pub from: Peer,
    /// Whether the network signalled congestion.
    pub ecn: Ecn,
}

/// What a card is plugged into: a [`Wire`](super::Wire) of this process, or
/// [whatever a driver reaches](super::Far).
pub trait Cable: fmt::Debug + Send {
    /// Are units whole frames, with the addresses among their bytes?
    fn carries_frames(&self) -> bool;

    /// A turn begins.
    ///
    /// # Errors
    /// The cable is broken for good.
    fn begin_turn(&mut self, now: Instant) -> io::Result<()>;

    /// The next frame that came.
    fn take(&mut self) -> Option<Frame>;

    /// The memory of a frame is used again.
    fn give_back(&mut self, frame: Frame);

    /// Sends a frame. False: there is no room, and what is waited for says when there is.
    fn send(&mut self, to: Peer, ecn: Ecn, bytes: &[u8]) -> bool;

    /// A turn ends: what was sent leaves. Gives how many frames are here already for the
    /// next one.
    ///
    /// # Errors
    /// The cable is broken for good.
    fn end_turn(&mut self, now: Instant) -> io::Result<u32>;

    /// What wakes whoever waits for frames; or for room, if a frame found none.
    fn interests(&self, wants_room: bool) -> Interests;

    /// When it wants a turn, whatever the descriptors say.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The cable is pulled out, or put in again. What is on it is lost.
    fn set_cut(&mut self, is_cut: bool);
}
