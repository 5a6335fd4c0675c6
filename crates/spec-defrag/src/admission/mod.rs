//! Who may send fast: Fast_Req, Fast_Ack and Fast_NAck, handled below IP.
//!
//! Several bursts into one receiver garble each other. So a receiver lets one stream
//! at a time (or a few) be *fast*; the others go on, slowly. Nobody waits for an answer
//! to begin, and nobody is ever stopped: what is refused is a rate, not a transfer.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`frame`] | the control frames: `docs/spec/spec-defrag.md` has their layout |
//! | [`envelope`] | the frame around a message that is sealed |
//! | [`gate`] | [`Gate`], the receiver: leases, and who is next |
//! | [`requester`] | [`Requester`], the sender towards one receiver: asks, refreshes, is throttled |
//!
//! Both are state machines: `handle_*` brings things in, `poll_*` takes things out,
//! time is an argument. After each input, drain every `poll_*`.
//!
//! # What holds
//!
//! - A gate never has more leases that have not run out than it has streams.
//! - A requester believes in a lease only while the gate has it, if their clocks run
//!   equally fast: it counts from when it *sent* the request that was answered, the
//!   gate from when it answered, which is later.
//! - A sender that falls silent frees its stream when its lease runs out; one that
//!   does not, when its turn is over and somebody waits.
//! - Everyone who waits gets a turn, in the order of asking.
//! - A forged or repeated frame changes a counter, or at worst delays a turn: who has
//!   not seen the answers knows neither nonce nor lease nor ticket.
//!
//! What does not live here: which bytes go into a fast stream, and how they are cut.

pub mod envelope;
pub mod frame;
pub mod gate;
#[cfg(feature = "model")]
pub mod model;
pub mod requester;

pub use envelope::Envelope;
pub use frame::{ControlFrame, Lease, Mac, Message, Priority, Ticket, is_control};
pub use gate::{Ended, Gate, GateConfig, GateEvent, Overflows};
pub use requester::{
    Allowance, Answer, Lost, Mode, Requester, RequesterConfig, RequesterEvent, TransferId,
};

use frame::is_station;
use landfall_placement::Duration;

// What can be wrong with a configuration, or with a call.

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The address of a station is the address of a group, or of nobody.
    #[error("an address is not the address of one station")]
    Address,
    /// Both addresses are the same.
    #[error("the sender and the receiver have the same address")]
    SameAddress,
    /// A value is out of its range.
    #[error(transparent)]
    Range(#[from] landfall_placement::ConfigError),
}

/// There are as many transfers as the configuration allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no more than {most} transfers at once")]
pub struct TooMany {
    /// The configured bound.
    pub most: u16,
}

/// Longer than any time that means something here; it fits the field of a frame.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Shorter ones would be over before a frame could cross a network.
const SHORTEST: Duration = Duration::from_micros(10);

fn address(address: Mac) -> Result<(), ConfigError> {
    if is_station(address) { Ok(()) } else { Err(ConfigError::Address) }
}

fn number(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), ConfigError> {
    Ok(landfall_placement::ConfigError::check(field, value, least..=most)?)
}

fn time(field: &'static str, value: Duration, least: Duration) -> Result<(), ConfigError> {
    Ok(landfall_placement::ConfigError::check(field, value, least..=LONGEST)?)
}
