//! What a requester tells and answers.

use landfall_placement::{Duration, Instant};

/// How one may send to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As ever: nothing was asked for, or the receiver has no gate.
    Plain,
    /// At low priority, and throttled: an answer is still to come, or it was no.
    Slow,
    /// With a lease: in bursts cut for the receiver's speculation.
    Fast {
        /// Up to when, unless it is renewed.
        until: Instant,
    },
}

/// How much may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// How.
    pub mode: Mode,
    /// So many bytes. While it is not zero a whole packet may be sent, longer or not;
    /// in slow mode the next one then waits for longer.
    pub bytes: u64,
    /// If no bytes: when to ask again.
    pub again: Option<Instant>,
}

/// The answer to asking for fast mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is none yet.
    Pending,
    /// Yes.
    Granted {
        /// Up to when, unless it is renewed.
        until: Instant,
    },
    /// Not yet.
    Refused {
        /// How many get their turn first; `None` without a place in the queue.
        position: Option<u16>,
        /// When the receiver is asked again.
        ask_again: Instant,
    },
    /// The receiver does not answer: it has no gate.
    NoGate,
    /// This transfer did not ask, or is over.
    NotAsked,
}

/// Something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequesterEvent {
    /// From now on it is fast.
    Granted {
        /// Up to when, unless it is renewed.
        until: Instant,
    },
    /// Not yet: it goes on slowly.
    Refused {
        /// How many get their turn first; `None` without a place in the queue.
        position: Option<u16>,
        /// After how long the receiver is asked again.
        wait: Duration,
    },
    /// It was fast and is slow now. The receiver is asked again.
    Lost(Lost),
    /// The receiver has no gate: it goes on as ever.
    NoGate,
}

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It ran out: nobody answered.
    RanOut,
    /// The receiver did not renew it: it is somebody else's turn.
    TurnOver,
}
