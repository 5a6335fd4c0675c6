//! What the two sides have in common: what may happen to a host, and what it shows.

use landfall_placement::Instant;
use spec_defrag::{BufferId, Packet, Receiver};

use crate::hamachi::Ram;

/// A host that receives, with an adapter or without.
pub trait Side {
    /// A frame came off the wire.
    fn frame(&mut self, now: Instant, bytes: &[u8]);

    /// No frame came for longer than a burst has gaps: whoever waits for more looks now.
    fn silence(&mut self, now: Instant);

    /// The engine's timer is due.
    fn timeout(&mut self, now: Instant);

    /// A packet that is whole.
    fn poll_packet(&mut self) -> Option<Packet>;

    /// The user needs a packet no longer. False if it said so before.
    fn release(&mut self, now: Instant, buffer: BufferId) -> bool;

    /// The engine.
    fn receiver(&self) -> &Receiver;

    /// The memory.
    fn ram(&self) -> &Ram;

    /// The memory, for the user.
    fn ram_mut(&mut self) -> &mut Ram;

    /// Frames that were lost since nothing was there to take them.
    fn lost(&self) -> u64;
}
