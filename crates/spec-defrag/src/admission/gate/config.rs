//! What a gate is told once.

use landfall_placement::Duration;

use super::super::frame::{Mac, Priority};
use super::super::setup::{ConfigError, SHORTEST, address, number, time};

/// How a receiver admits fast streams. The defaults are for a local network: a round
/// trip of tens of microseconds, transfers of milliseconds to seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateConfig {
    /// The address of the receiver.
    pub address: Mac,
    /// How many streams may be fast at once, 1 to 64. One, as in the paper, unless
    /// the receiver predicts several flows.
    pub streams: u16,
    /// For how long a stream is fast without saying again that it is there.
    pub lease: Duration,
    /// The same for the first lease of a sender that has not shown yet that the
    /// address in its frames is its own: so long a forged request holds a stream.
    pub trial: Duration,
    /// How long a stream may be fast while others wait.
    pub turn: Duration,
    /// How many may have a place in the queue, 1 to 4,096.
    pub waiting: u16,
    /// After how long those who wait ask again. Who does not ask for three times as
    /// long loses its place.
    pub ask_again: Duration,
    /// For how long a stream is kept free for the one whose turn has come. One that
    /// does not come in time keeps its place, but the next one may go first.
    pub reserve: Duration,
    /// The priority tag of what the gate sends.
    pub priority: Option<Priority>,
}

impl GateConfig {
    /// The defaults for a receiver with this address.
    #[must_use]
    pub const fn new(address: Mac) -> Self {
        Self {
            address,
            streams: 1,
            lease: Duration::from_millis(100),
            trial: Duration::from_millis(20),
            turn: Duration::from_millis(500),
            waiting: 256,
            ask_again: Duration::from_millis(20),
            reserve: Duration::from_millis(5),
            priority: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        address(self.address)?;
        number("streams", self.streams.into(), 1, 64)?;
        number("waiting", self.waiting.into(), 1, 4_096)?;
        time("trial", self.trial, SHORTEST)?;
        time("lease", self.lease, self.trial)?;
        time("turn", self.turn, self.lease)?;
        time("ask_again", self.ask_again, SHORTEST)?;
        time("reserve", self.reserve, SHORTEST)
    }

    /// For how long a place in the queue is kept for one that is silent.
    pub(super) fn patience(&self) -> Duration {
        self.ask_again.saturating_mul(3)
    }
}
