//! What a requester is told once.

use landfall_placement::{Duration, Instant};

use super::super::frame::{Mac, Priority};
use super::super::{ConfigError, SHORTEST, address, number, time};

/// How a sender asks one receiver to send fast. The defaults fit those of
/// [`GateConfig`](super::super::GateConfig) and a link of 1 Gbit/s: what is throttled
/// takes less than two hundredths of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// The address of the sender.
    pub address: Mac,
    /// The address of the receiver.
    pub receiver: Mac,
    /// A transfer of so many bytes asks by itself, and so does sending as many within
    /// [`window`](Self::window). `None`: only [`Requester::ask`](super::Requester::ask) asks.
    pub implicit: Option<u64>,
    /// See [`implicit`](Self::implicit).
    pub window: Duration,
    /// Who asked because of what it sent lets go after so long without sending.
    pub linger: Duration,
    /// What may be sent in slow mode, in bytes per second. Never zero: transfers that
    /// wait for one another would stand still.
    pub slow_rate: u64,
    /// How much of that may be sent at once.
    pub slow_burst: u32,
    /// A refused transfer is delayed, for so long at most, before it goes on slowly.
    /// Zero: it goes on at once.
    pub delay: Duration,
    /// How soon a request is repeated that nobody answers; doubled each time.
    pub retry: Duration,
    /// After so many requests without any answer the receiver is taken for one that
    /// has no gate: then nothing is throttled.
    pub attempts: u16,
    /// How often such a receiver is asked again.
    pub silent_retry: Duration,
    /// How many transfers there may be at once.
    pub transfers: u16,
    /// The priority tag of what the requester sends.
    pub priority: Option<Priority>,
}

impl RequesterConfig {
    /// The defaults for a sender and a receiver with these addresses.
    #[must_use]
    pub const fn new(address: Mac, receiver: Mac) -> Self {
        Self {
            address,
            receiver,
            implicit: Some(256 * 1024),
            window: Duration::from_millis(10),
            linger: Duration::from_millis(20),
            slow_rate: 2_000_000,
            slow_burst: 16 * 1024,
            delay: Duration::ZERO,
            retry: Duration::from_millis(1),
            attempts: 5,
            silent_retry: Duration::from_secs(1),
            transfers: 256,
            priority: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        address(self.address)?;
        address(self.receiver)?;
        if self.address == self.receiver {
            return Err(ConfigError::SameAddress);
        }
        number("implicit", self.implicit.unwrap_or(1), 1, u64::MAX)?;
        number("slow_rate", self.slow_rate, 1, u64::from(u32::MAX) * 1_000)?;
        number("slow_burst", self.slow_burst.into(), 1, u32::MAX.into())?;
        number("attempts", self.attempts.into(), 1, 64)?;
        number("transfers", self.transfers.into(), 1, u16::MAX.into())?;
        time("window", self.window, SHORTEST)?;
        time("linger", self.linger, SHORTEST)?;
        time("delay", self.delay, Duration::ZERO)?;
        time("retry", self.retry, SHORTEST)?;
        time("silent_retry", self.silent_retry, self.retry)
    }
}

// What a requester tells and answers.

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
