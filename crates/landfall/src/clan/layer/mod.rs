//! Communication made of shared memory and tripwires, over any
//! [`Fabric`](super::Fabric).
//!
//! | module | what it offers |
//! | --- | --- |
//! | [`message`] | one message at a time: two flags |
//! | [`queue`] | elements of one size, many under way: lazy counters |
//! | [`rpc`] | a request and its reply: two buffers, two flags, two tripwires |
//! | [`stream`] | bytes, for those who knows `Read` and `Write` |
//! | [`multipart`] | messages of several parts with meta-data; the header comes first |
//! | [`place`] | loans: bytes that are written and read where they lie |
//! | [`typed`] | queues of values, whose layout both sides compare |
//! | [`publish`] | one publisher, any number of subscribers, nobody waits; who is late loses the oldest, and is told how many |
//! | [`merge`] | many producers, many consumers; work queues |
//! | [`board`] | a blackboard: the last value of each key |
//! | [`any`] | waiting for several of these at once |
//!
//! # What they have in common
//!
//! **Nobody reads remotely.** Each side keeps in its own memory what it has to look
//! at; the other side writes it there. The counters of a queue are copies, and late
//! ones are safe: a sender believes that there is less room than there is, a
//! receiver that there is less to get.
//!
//! **Two halves.** Each side opens its half, which exposes memory and has a cookie;
//! the cookies go to the other side by any means; with it a half connects:
//!
//! ```
//! use landfall::clan::layer::queue::{self, Config};
//! use landfall::clan::Threads;
//!
//! let (here, there) = Threads::pair()?;
//! let config = Config::new(32, 1024); // 1024 elements of 32 bytes
//! let sender = queue::Sender::open(&here, config)?;
//! let receiver = queue::Receiver::open(&there, config)?;
//! let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
//! let mut sender = sender.connect(&to_receiver)?;
//! let mut receiver = receiver.connect(&to_sender)?;
//!
//! sender.put(&[7; 32], None)?;
//! sender.publish()?;
//! let mut element = [0; 32];
//! receiver.get(&mut element, None)?;
//! assert_eq!(element, [7; 32]);
//! # Ok::<(), landfall::clan::Error>(())
//! ```
//!
//! **Waiting** is looking at memory for a while ([`Wait`]), then sleeping at a
//! tripwire; every `try_` call does neither. With a deadline of `None` it takes as
//! long as the peer lives: that it is gone is
//! [`Error::PeerLost`](super::Error::PeerLost), after all that it sent was received.
//! Tasks of any executor await the `async` calls; dropping such a future loses
//! nothing, unless it says otherwise.
//!
//! **Nothing is believed.** Counters, flags, lengths and stamps are checked against
//! what this side knows, each time: what cannot be is
//! [`Error::PeerMisbehaved`](super::Error::PeerMisbehaved) and changes nothing here.
//!
//! What does not live here: how memory is shared, and what messages mean.

pub mod any;
pub mod board;
pub mod merge;
pub mod message;
pub mod multipart;
pub mod place;
pub mod publish;
pub mod queue;
mod ring;
pub mod rpc;
pub mod stream;
pub mod typed;
mod waiting;

pub use landfall_transport::Wait;
pub use waiting::{Connect, Half};
