//! [`Miss`]: why a unit goes to the engine; [`Whose`]: for whom it may matter there.

use core::fmt;

macro_rules! misses {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)+) => {
        /// Why this path does not take a unit. Nothing was changed, and nothing is
        /// said about the unit but that the engine has to look at it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Miss { $($(#[$doc])* $name,)+ }

        impl Miss {
            /// Every reason there is.
            pub const ALL: [Self; [$($words),+].len()] = [$(Self::$name),+];

            /// The reason in a few words.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

misses! {
    /// Its headers are not at hand, or longer than it is.
    Short = "headers are not at hand",
    /// It went to another station, to a group, or to all.
    Station = "not for this station alone",
    /// It is neither version of IP, or a header has options or extensions.
    Header = "not a plain header of IP",
    /// It is a piece of a packet.
    Fragment = "a fragment",
    /// The checksum of its IPv4 header is wrong, or its lengths contradict each
    /// other.
    Damaged = "damaged",
    /// It carries neither TCP nor UDP.
    Protocol = "neither TCP nor UDP",
    /// It is for nobody known, or from an address that nobody there can have.
    Unknown = "no such connection or port",
    /// Its connection or port has no prediction, or not for this path.
    Unarmed = "nothing is predicted",
    /// It has other flags than ACK, or ACK and PSH.
    Flags = "other flags",
    /// Its options are not just what is expected: a timestamp, or none.
    Options = "other options",
    /// Its timestamp is older than the latest.
    Old = "an old timestamp",
    /// It is not the next segment.
    Sequence = "not the next segment",
    /// It acknowledges what was acknowledged before, or never sent.
    Acknowledgement = "an acknowledgement out of range",
    /// It has no payload.
    Empty = "no payload",
    /// Its payload reaches beyond the window.
    Window = "beyond the window",
    /// Its payload reaches beyond the places that are predicted.
    Places = "beyond the predicted places",
    /// A datagram of version 6 has no checksum.
    Unchecked = "no checksum",
    /// Its checksum is wrong, as an adapter finds that has all of it at hand.
    Sum = "a wrong checksum",
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A unit that goes to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Why it does.
    pub why: Miss,
    /// Whose expectations the engine may have to change for it.
    pub whose: Whose,
}

/// For which queue pairs a unit may bring something that takes a place. Those
/// have to wait for the engine, if it and the tables are in different machines:
/// what the engine does with the unit, and what the tables would do with the
/// next one, must not meet in the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// For none: an acknowledgement, ARP, ICMP, or a packet for nobody known.
    Nobody,
    /// For this one.
    Slot(u32),
    /// That was not read: a fragment, or headers that are not plain.
    Anybody,
}
