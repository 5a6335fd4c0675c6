//! What a receiver counted.

/// Frames and packets since the beginning. Refused frames are counted by reason, in
/// `Receiver::refusals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames that arrived.
    pub frames: u64,
    /// Frames whose payload had landed where it belongs.
    pub in_place: u64,
    /// Frames for which a place was guessed, and which were not what belongs there.
    pub astray: u64,
    /// Packets that were joined without a copy.
    pub speculated: u64,
    /// Packets that were begun in a page, and given to the conventional path.
    pub broken: u64,
    /// Packets that the conventional path joined.
    pub conventional: u64,
    /// Packets that were lent as a list.
    pub lent: u64,
    /// Frames that came out as they came.
    pub whole: u64,
    /// Frames that were no fragments and not delivered, as configured.
    pub ignored: u64,
    /// Bytes of payload that were copied.
    pub bytes_copied: u64,
}
