//! Why the other side refused or ended something.

use core::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $words:literal;)+) => {
        /// Why the other side refused or ended something, as it crosses the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $name = $number,)+ }

        impl Reason {
            /// Every reason there is.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$name),+];

            /// The reason with this number; what later versions may add counts
            /// as [`Reason::Refused`].
            #[must_use]
            pub const fn from_number(number: u8) -> Self {
                match number { $($number => Self::$name,)+ _ => Self::Refused }
            }

            /// The reason in a few words.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

reasons! {
    /// The user there does not want it.
    Refused = 1, "refused by the user at the other side";
    /// Nobody listens at that port.
    NoListener = 2, "nobody listens at that port";
    /// As many are open there as its configuration allows.
    Busy = 3, "the other side has no room for more";
    /// The two cannot agree on sizes or versions.
    Incompatible = 4, "the two sides cannot agree on sizes or versions";
    /// Message too long: it does not fit the memory that is meant for it.
    TooLong = 5, "message too long: it does not fit the memory that is meant for it";
    /// It was ended by the user there.
    Cancelled = 6, "ended by the user at the other side";
    /// The connection is being closed.
    Closing = 7, "the connection is being closed";
    /// It is over, and the other side does not remember how it went.
    Gone = 8, "it is over at the other side";
    /// The region does not exist (any more).
    NoRegion = 9, "the memory region does not exist, or not any more";
    /// The region does not extend that far.
    OutOfBounds = 10, "outside of the memory region";
    /// The region was not given for that.
    Forbidden = 11, "the memory region was not given for that";
    /// The word is not at a multiple of its width.
    Unaligned = 12, "the word is not at a multiple of its width";
    /// The other side could not write or read its memory.
    MemoryFailed = 13, "the other side could not use its memory";
    /// The other side does not know that operation or function.
    Unsupported = 14, "the other side does not know that operation";
    /// Nothing was heard for too long.
    Silent = 15, "the other side has stopped answering";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
