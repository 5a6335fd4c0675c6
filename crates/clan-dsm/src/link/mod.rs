//! The reliable FIFO between two hosts over a path that loses, repeats, mixes
//! up and damages frames.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `links` | [`Links`]: every link of an adapter, found by peer and by host; timers; who has something to send |
//! | `handshake` | how links come to be, and end: who may open one, and who is told apart; what is said when links begin and end |
//! | `link_state` | one link: its life, and how its halves share frames |
//! | `sender` | what is under way, what is lost, what may be sent |
//! | `receiver` | which frame is next, which came too early, what is acknowledged |
//! | `frame_payload` | what one frame carries, while it is put together; what frames carry, kept until it has arrived |
//!
//! Rules that both sides rely on:
//!
//! - An acknowledgement covers a frame once its bytes are in place, or kept
//!   whole; never before (the second invariant).
//! - Frames take effect in their order, each once. What cannot be put in its
//!   place for good is answered with an exception, and counts as arrived.
//! - Xoff and credit hold back requests and writes. Acknowledgements, questions
//!   and answers are never held back by either, and who is held back asks from
//!   time to time whether that is still so. So no lost frame and no circle of
//!   hosts that wait for each other stops a link for good.
//!
//! What does not live here: apertures, memory, and what packets mean.

mod frame_payload;
mod handshake;
mod link_state;
mod links;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use frame_payload::{FramePayload, FrameRoom, MAX_INLINE, MAX_SPANS, MOST_PARTS};
pub(crate) use handshake::host_in;
pub(crate) use link_state::bare_transmit;
pub(crate) use links::{FrameAction, LinkUpdate, Links};
pub(crate) use receiver::{FrameDecision, HeldFrame, Receiver};
pub(crate) use sender::SenderConfig;

/// What is said beside data, for who shows it.
#[cfg(test)]
pub(crate) mod spoken {
    pub(crate) use super::handshake::{Hello, Stage, Stranger, bye};
}
