//! Names that the adapter gives out: an index, and a generation that makes a
//! stale name harmless.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            /// The slot in its table.
            pub index: u32,
            /// How often that slot was used before.
            pub generation: u32,
        }

        impl $name {
            /// The name of slot `index` in its `generation`.
            #[must_use]
            pub const fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}.{}"), self.index, self.generation)
            }
        }
    )+};
}

ids! {
    /// A protection domain: queue pairs reach only memory of their own domain.
    DomainId = "domain",
    /// Registered memory, and the right to use it.
    MemoryKey = "memory key",
    /// A completion queue.
    CompletionQueueId = "completion queue",
    /// A queue pair.
    QueuePairId = "queue pair",
    /// A port that is listened on.
    ListenerId = "listener",
}
