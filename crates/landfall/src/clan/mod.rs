//! CLAN: distributed shared memory with tripwires.
//!
//! A node exposes memory and gets a [`Cookie`], 32 bytes that can be passed on; who
//! has them maps the memory and writes into it. A [`Tripwire`] tells the owner when
//! a chosen place was touched. Everything else is made of that.
//!
//! | module | what it offers |
//! | --- | --- |
//! | [`fabric`] | the traits of such memory, whatever carries it |
//! | [`names`] | nodes find each other by names, on any of the last two below |
//! | [`events`] | all that tripwires tell in one queue, with a descriptor for `epoll`; tripsets |
//! | [`actions`] | tripwires that set bits, count, or queue identifiers instead of waking somebody |
//! | [`dma`] | queues of requests that move memory |
//! | [`Threads`] | such memory between threads of one process |
//! | [`shared`] | such memory between processes of one host |
//! | [`network`] | such memory over UDP, Ethernet and `io_uring` |
//! | [`messaging`] | endpoints, connections and messages of 40 bytes, over any of the last two |
//! | [`server`] | the event-driven server of the paper, over any of these |
//! | [`ip`] | an interface of the kernel whose packets travel as DMA |
//! | [`layer`] | messages, queues, calls, streams, publications: over any of them |
//!
//! Memory that a peer writes is never a slice, and nothing that a peer writes is
//! believed: each index and length is checked where it is used, so that a peer that
//! scribbles over shared memory spoils its own data only.
//!
//! What does not live here: the protocol on the wire (that is `clan-dsm`), memory
//! mappings and system calls (`landfall-transport`).

pub mod actions;
pub mod dma;
mod error;
pub mod events;
pub mod fabric;
pub mod ip;
pub mod layer;
mod local;
pub mod messaging;
pub mod names;
pub mod network;
pub mod server;
pub mod shared;

pub use actions::{Action, ActionRule, ActionTripwire, Actions};
pub use dma::{DmaEngine, DmaQueue};
pub use error::{Error, Misbehaviour};
pub use events::{Event, EventQueue, Eventful, Tripset};
pub use fabric::{
    Access, Cookie, Dma, Fabric, Group, Local, Piece, Remote, Rights, Stage, Tripwire, WORD,
    WordFunction,
};
pub use local::{
    Threads, ThreadsActionTripwire, ThreadsEvents, ThreadsLocal, ThreadsRemote, ThreadsTripwire,
};
