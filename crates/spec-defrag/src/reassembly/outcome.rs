//! What becomes of a frame that was offered: in words, and counted.

use core::fmt;

use landfall_placement::Refusal;

use super::kept::Copied;
use super::packet::Packet;

/// What became of a frame.
#[derive(Debug)]
#[must_use]
pub enum Outcome<'a, F = Copied> {
    /// It carries no fragment of IP: pass it on as it is.
    NotFragment,
    /// Others of its packet are missing: its bytes were copied, the frame is done with; or the frame
    /// is kept.
    Kept,
    /// Nothing is missing any more: here is the packet.
    Packet(Packet<'a, F>),
    /// It was thrown away.
    Dropped(DropReason),
}

impl<'a, F> Outcome<'a, F> {
    /// The packet, if there is one.
    #[must_use]
    pub fn packet(self) -> Option<Packet<'a, F>> {
        match self {
            Self::Packet(packet) => Some(packet),
            _ => None,
        }
    }
}

/// Why a frame was thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DropReason {
    /// The frame is shorter than its headers say.
    Truncated,
    /// The checksum of its IPv4 header is wrong.
    BadChecksum,
    /// Its length contradicts its place: it is empty, or not the last one and no multiple of
    /// eight bytes long (RFC 791, section 3.2; RFC 8200, section 4.5).
    BadLength,
    /// It reaches beyond the longest packet (RFC 8200, section 4.5), or its packet does with its
    /// header.
    TooLong,
    /// The headers before the fragment header, with that of the link, are longer than
    /// [`Head::MOST`](crate::Head::MOST).
    HeadersTooLong,
    /// A first fragment without all headers up to the one of the transport (RFC 7112, RFC 1858).
    HeadersMissing,
    /// A fragment that starts within a TCP header (RFC 1858, section 3.2; RFC 3128).
    WithinHeader,
    /// The same bytes in the same place were here already; its packet goes on.
    Duplicate,
    /// It overlaps others of its packet, repeats one with other bytes, or disagrees where the
    /// packet ends: the packet is ended (RFC 5722; RFC 8200, section 4.5).
    Overlap,
    /// Some fragments of the packet are capable of congestion marks and others are not (RFC 3168,
    /// section 5.3): the packet is ended.
    MixedCongestion,
    /// The packet has more fragments than [`Config::fragments`](super::Config::fragments): it is
    /// ended.
    TooManyFragments,
    /// Its packet was ended before; what still comes of that is dropped (RFC 5722).
    Ended,
    /// The bounds leave no room for it.
    NoRoom,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Truncated,
        Self::BadChecksum,
        Self::BadLength,
        Self::TooLong,
        Self::HeadersTooLong,
        Self::HeadersMissing,
        Self::WithinHeader,
        Self::Duplicate,
        Self::Overlap,
        Self::MixedCongestion,
        Self::TooManyFragments,
        Self::Ended,
        Self::NoRoom,
    ];

    /// The reason in a few words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Truncated => "shorter than its headers say",
            Self::BadChecksum => "header checksum wrong",
            Self::BadLength => "length and place contradict each other",
            Self::TooLong => "beyond the longest packet",
            Self::HeadersTooLong => "headers too long",
            Self::HeadersMissing => "first fragment without all headers",
            Self::WithinHeader => "starts within a TCP header",
            Self::Duplicate => "repeated",
            Self::Overlap => "overlaps or contradicts others",
            Self::MixedCongestion => "congestion marks contradict each other",
            Self::TooManyFragments => "too many fragments",
            Self::Ended => "of a packet that was ended",
            Self::NoRoom => "no room",
        }
    }

    /// The packet is ended by it, and all that still comes of it is dropped.
    #[must_use]
    pub const fn ends_packet(self) -> bool {
        matches!(self, Self::Overlap | Self::MixedCongestion | Self::TooManyFragments)
    }

    /// What the readers of headers say, in the words of this module.
    pub(super) const fn of(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Truncated => Self::Truncated,
            Refusal::BadChecksum => Self::BadChecksum,
            Refusal::OutOfBounds => Self::TooLong,
            Refusal::NoRoom => Self::HeadersTooLong,
            _ => Self::BadLength,
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What became of all frames so far. Each frame is counted once: passed on, kept, the one that
/// completed a packet, or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames without a fragment.
    pub not_fragments: u64,
    /// Fragments that were kept.
    pub kept: u64,
    /// Packets that came out, atomic ones included.
    pub packets: u64,
    /// Those that came in one piece behind a fragment header (RFC 6946).
    pub atomic: u64,
    /// Packets that were not complete in time.
    pub expired: u64,
    /// Packets that went because others needed the room.
    pub evicted: u64,
    /// Reports that were dropped because nobody fetched them.
    pub unreported: u64,
    pub(super) dropped: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Frames that were dropped for this reason.
    #[must_use]
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Frames that were dropped.
    #[must_use]
    pub fn all_dropped(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// All frames that were offered.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.not_fragments + self.kept + self.packets + self.all_dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_words() {
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            let same = DropReason::ALL.iter().filter(|other| other.as_str() == reason.as_str());
            assert_eq!(same.count(), 1, "{reason}");
        }
    }
}
