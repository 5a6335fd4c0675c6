//! Traffic that shares a network with what is tested: a [`Source`] that sends
//! as fast as its [`Control`] allows, and a [`Sink`] that acknowledges.
//!
//! [`NewReno`] is the control that most tests want beside them: additive
//! increase, multiplicative decrease, as the flow that others must be fair to.
//! Any other control can take its place, that of a protocol under test too.
//!
//! This is load, not a transport: segments are numbered by transmission, each
//! is acknowledged by itself, and nothing is sent twice. A lost segment is lost
//! bytes; the loop of control is that of TCP with selective acknowledgements.
//!
//! ```
//! use std::time::Duration;
//! use landfall_placement::Instant;
//! use landfall_simnet::traffic::{NewReno, Sink, Source, SourceConfig};
//! use landfall_simnet::{LinkConfig, Sim, Switch};
//!
//! # fn main() -> Result<(), landfall_simnet::Error> {
//! let mut sim = Sim::from_number(1);
//! let sink = sim.add("sink", Sink::new())?;
//! let config = SourceConfig::to(sink.peer());
//! let source = sim.add("source", Source::new(config, NewReno::new(config.segment)))?;
//! let bottleneck = LinkConfig::ethernet(10_000_000)
//!     .delay(Duration::from_millis(10))
//!     .queue_bytes(25_000);
//! sim.connect(source, sink, bottleneck)?;
//! sim.run_until(Instant::from_millis(10_000))?;
//!
//! let rate = sim.node(sink)?.bytes_from(source.peer()) * 8 / 10;
//! assert!((8_000_000..10_000_000).contains(&rate), "{rate} bit/s");
//! # Ok(()) }
//! ```

mod new_reno;
mod source;

pub use new_reno::NewReno;
pub use source::{Sink, Source, SourceConfig, SourceStats};

use landfall_placement::{Duration, Instant};

/// A segment that arrived, as a [`Control`] is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Its bytes.
    pub bytes: u64,
    /// When it was sent.
    pub sent: Instant,
    /// Whether the network marked it.
    pub marked: bool,
    /// What was under way until now, this segment too.
    pub under_way: u64,
}

/// Decides how much a [`Source`] has under way.
pub trait Control: core::fmt::Debug + 'static {
    /// How many bytes may be under way.
    fn window(&self) -> u64;

    /// How long to wait after a segment before the next one.
    fn pause(&self, _bytes: u64) -> Duration {
        Duration::ZERO
    }

    /// How long to wait for an acknowledgement.
    fn timeout(&self) -> Duration;

    /// A segment arrived.
    fn handle_acknowledged(&mut self, now: Instant, segment: &Acknowledged);

    /// A segment that was sent at `sent` was lost: three later ones arrived.
    fn handle_lost(&mut self, now: Instant, sent: Instant, bytes: u64);

    /// Nothing arrived for a [`timeout`](Control::timeout).
    fn handle_timeout(&mut self, now: Instant);
}
