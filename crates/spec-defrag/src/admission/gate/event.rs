//! What a gate tells.

use landfall_placement::Instant;

use super::super::frame::Mac;

/// Something about a fast stream has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateEvent {
    /// This sender may send fast.
    Granted {
        /// Who.
        source: Mac,
        /// Up to when, unless it is renewed.
        until: Instant,
    },
    /// This sender's lease is over.
    Ended {
        /// Who.
        source: Mac,
        /// Why.
        why: Ended,
    },
}

/// Why a lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The sender said so.
    Released,
    /// It ran out: the sender was silent, or its turn was over.
    RanOut,
}
