//! What leaves: a head that the engine wrote, and a payload gathered from spans.

use crate::path::{Ecn, Peer};
use crate::unit::Ticket;

/// The protocol by which the device cuts a long unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// TCP over IPv4; the head is a whole frame with Ethernet, IP and TCP headers.
    Tcp4,
    /// TCP over IPv6; likewise.
    Tcp6,
}

/// The unit is longer than the path's unit: the device cuts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// How it is cut.
    pub kind: SegmentKind,
    /// Payload bytes in each piece but the last.
    pub size: u16,
}

/// Where an Internet checksum goes, as virtio and Linux have it.
///
/// The sum runs from byte `start` of the unit to its end (and over what is
/// [`sum_only`](Transmit::sum_only) behind it), and takes in what
/// the engine left in the slot: zero, or the sum over a pseudo-header (not
/// inverted). The inverted result replaces the two bytes at `start + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SumSlot {
    /// The first byte that is summed.
    pub start: u16,
    /// The slot, an even number of bytes behind `start`; it lies within the head.
    pub offset: u16,
}

/// One unit to send. Its head is in the buffer that the engine was given, its
/// payload in the spans that the engine filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub to: Peer,
    /// How much of the head buffer is used.
    pub head_len: u16,
    /// Whether the device cuts it.
    pub segment: Option<Segment>,
    /// A checksum to be filled in.
    pub checksum: Option<SumSlot>,
    /// So many bytes at the end of the spans take part in the checksum and are
    /// no part of the unit; never together with `segment`.
    ///
    /// A segment of TCP or a datagram of UDP that crosses in several fragments
    /// of IP has one checksum, in the first of them, over the bytes of all.
    /// No device can do that sum: the driver does, whatever its offloads.
    pub sum_only: u32,
    /// The ECN codepoint to send with, where the path's header is not the engine's.
    pub ecn: Ecn,
    /// To be handed back once the driver holds the spans no longer.
    pub ticket: Ticket,
}
