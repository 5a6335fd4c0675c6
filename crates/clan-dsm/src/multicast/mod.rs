//! Groups over networks that multicast: what is written leaves once, and each member repairs
//! what it has lost.
//!
//! The writer numbers the frames of a group's stream and sends each to the group's network
//! address. Members acknowledge over their own links, and what one of them has lost is sent
//! to that one again, over its own path. Which members take part is decided for each of them:
//!
//! ```text
//!          probe heard              a publication                   too slow
//! Invited ------------> Reachable ----------------> Attached ---------------------------.
//!                           ^                                                            |
//!                           `------- all that it was sent has arrived <----- Draining <--'
//! ```
//!
//! An invited member gets copies over its link, as if there were no group address: so does,
//! for ever, one that the network does not deliver multicasts to. A publication attaches a
//! member that is reachable: [`GroupStart`](crate::wire::Command::GroupStart) goes behind all
//! that its link was given, and names the first frame that is meant for it. One that is too
//! slow gets nothing more until it has what it was sent; it holds up nobody else.
//!
//! What does not live here: which packets a frame has, and where they belong.

mod acknowledgements;
mod frame;
mod member;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub(crate) use frame::GroupFrame;
pub(crate) use member::{Membership, Mode, Patience, Publication, Room};
pub(crate) use receiver::{GroupReceiver, ReceiverName, StreamTags};
pub(crate) use sender::{GroupSender, GroupUpdate, Stream};
