//! Names for what lives in an adapter.

use core::fmt;

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
            pub(crate) const fn new((index, generation): (u32, u32)) -> Self {
                Self { index, generation }
            }

            /// The slot: small numbers, used again once a thing is gone.
            #[must_use]
            pub const fn index(self) -> u32 {
                self.index
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
    /// The way to one other host over one path.
    LinkId, "link";
    /// Memory of this host that others may touch.
    ApertureId, "aperture";
    /// Memory of another host that this one may touch.
    WindowId, "window";
    /// A remote read of this host.
    ReadId, "read";
    /// A read-modify-write of a remote word.
    OperationId, "word operation";
    /// A chain of requests to the DMA engine.
    DmaId, "DMA request";
    /// A write from memory, in its order among those of the program.
    WriteId, "write";
    /// A question whether all before it has arrived.
    BarrierId, "barrier";
    /// Synchronisation with accesses to some memory.
    TripwireId, "tripwire";
    /// Several tripwires that are waited for together.
    TripsetId, "tripset";
    /// One end of connections and of out-of-band messages.
    EndpointId, "endpoint";
}
