//! Who may send fast: Fast_Req, Fast_Ack and Fast_NAck, handled below IP.
//!
//! Several bursts into one receiver garble each other. So a receiver lets one stream
//! at a time (or a few) be *fast*; the others go on, slowly. Nobody waits for an answer
//! to begin, and nobody is ever stopped: what is refused is a rate, not a transfer.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`frame`] | the control frames: `docs/spec/spec-defrag.md` has their layout |
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

pub mod frame;
pub mod gate;
#[cfg(feature = "model")]
pub mod model;
pub mod requester;
mod setup;

pub use frame::{ControlFrame, Lease, Mac, Message, Priority, Ticket, is_control};
pub use gate::{Ended, Gate, GateConfig, GateEvent};
pub use requester::{
    Allowance, Answer, Lost, Mode, Requester, RequesterConfig, RequesterEvent, TransferId,
};
pub use setup::{ConfigError, TooMany};
