//! Names for what lives in an endpoint.

use core::fmt;

use landfall_tables::EntryKey;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $words:literal;)+) => {$(
        $(#[$doc])*
        ///
        /// A name of an earlier time is recognised and means nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub(crate) index: u32,
            pub(crate) generation: u32,
        }

        impl $name {
            pub(crate) const fn of(key: EntryKey) -> Self {
                Self { index: key.index, generation: key.generation }
            }

            /// The name as one number.
            #[must_use]
            pub const fn raw(self) -> u64 {
                (self.generation as u64) << 32 | self.index as u64
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($words, " {}.{}"), self.index, self.generation)
            }
        }
    )+};
}

ids! {
    /// A connection.
    ConnectionId, "connection";
    /// A Transfer that this side sends.
    SendId, "send";
    /// A Transfer that this side receives, or a Get.
    ReceiveId, "receive";
    /// What the other side wants to read.
    ReadId, "read";
    /// A region that the other side asked for.
    PeerRequestId, "request of the peer";
    /// A region of this side that the other side may use.
    ExposedId, "exposed region";
    /// A Put or FetchOp of this side.
    OperationId, "operation";
    /// A region of the other side that was asked for.
    RequestId, "request";
}

/// A memory region of the other side, as it was made available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteRegion {
    /// What the other side calls it.
    pub handle: u32,
    /// How many bytes it has.
    pub len: u64,
    /// What may be done with it.
    pub rights: Rights,
}

/// What the other side may do with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(pub(crate) u8);

impl Rights {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Get.
    pub const GET: Self = Self(1);
    /// Put.
    pub const PUT: Self = Self(2);
    /// FetchOp.
    pub const FETCH: Self = Self(4);
    /// Everything.
    pub const ALL: Self = Self(7);

    /// The rights of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Are all rights of `other` among these?
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The rights that both have.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
