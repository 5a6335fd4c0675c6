//! A deterministic network in virtual time.
//!
//! Nodes are connected by links; a [`Sim`] moves frames between them, with
//! every fault that a real network has, and one seed replays a run byte for
//! byte. There is no clock, no thread and no waiting: time jumps from event to
//! event.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`sim`] | [`Sim`]: building a network, running it, looking at it |
//! | [`node`] | the [`Node`] trait and what a node can do ([`Outbox`]) |
//! | [`frame`] | what crosses a link |
//! | [`link`](mod@link) | what a link does to frames: rate, delay, MTU, queue, faults |
//! | [`queue`] | which frames may wait for a link: tail drop, RED, ECN marking, or your own |
//! | [`traffic`] | flows that share the network with what is tested |
//! | [`switch`] | a node that forwards |
//! | [`engine_node`] | a node that runs any [`Engine`](landfall_placement::Engine) |
//! | [`memory`] | the memory of such a node, with every write watched |
//! | [`capture`] | pcapng, for Wireshark |
//! | [`stats`] | what became of the frames |
//! | [`error`] | what can go wrong with a simulation, and its bounds |
//! | [`check`](mod@check) | what tests share: many seeds, logs, memory, waiting (feature `std`) |
//!
//! What does not live here: any protocol, real I/O, real time.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod capture;
#[cfg(feature = "std")]
pub mod check;
pub mod engine_node;
pub mod error;
mod event;
mod fault;
pub mod frame;
pub mod link;
mod link_direction;
pub mod memory;
mod net;
pub mod node;
pub mod queue;
pub mod sim;
pub mod stats;
pub mod switch;
pub mod traffic;

pub use capture::Encapsulation;
#[cfg(feature = "std")]
pub use check::check;
pub use engine_node::{EngineConfig, EngineNode, Receive};
pub use error::{Error, Limits};
pub use frame::Frame;
pub use link::{DirectionId, LinkConfig, LinkId, Loss, Probability};
pub use memory::Memory;
pub use node::{Handle, LinkState, Node, NodeId, Outbox, PortId};
pub use queue::{EcnThreshold, QueuePolicy, Red, TailDrop};
pub use sim::{Outcome, Sim};
pub use stats::{DropReason, LinkStats};
pub use switch::Switch;
