#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what lives there |
//! | --- | --- |
//! | `adapter` | [`Adapter`]: the engine, what its user calls and what its driver calls |
//! | `queue`, `tcp` | work requests that wait; TCP written for placement |
//! | [`ip`] | neighbours, fragments, path MTU, answers |
//! | [`wire`] | every header: the crate `landfall-inet` |
//! | [`offload`] | the receive path that an adapter would run by itself |
//!
//! What does not live here: memory, I/O, clocks, randomness. There is no remote
//! memory access: QPIP is send and receive only, and adds no format of its own.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod adapter;
pub mod ip;
#[cfg(feature = "model")]
pub mod model;
pub mod offload;
mod queue;
mod tcp;
mod work;

pub use landfall_inet as wire;
pub use landfall_inet::flow::Share;

pub use adapter::{
    Access, Adapter, Arm, Config, ConnectionStats, Error, Event, Interface, Object, PostError,
    QueuePairSetup, Service, SharedReceiveQueueSetup, Stats,
};
pub use landfall_placement::ConfigError;
pub use offload::OwnAddress;
pub use tcp::config::{KeepAlive, Mapping, Pacing, TcpConfig};
pub use tcp::congestion::CongestionControl;
pub use tcp::ecn::EcnFeedback;
pub use tcp::state::ConnectionState;
pub use tcp::tcb::CloseReason;
pub use work::{
    Buffer, Completion, CompletionQueueId, DomainId, ListenerId, MemoryKey, Operation, QueuePairId,
    ReceiveWork, SendWork, SharedReceiveQueueId, Status,
};
