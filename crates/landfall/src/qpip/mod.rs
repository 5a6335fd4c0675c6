//! Queue pairs on real TCP, UDP and IP, for tasks and threads.
//!
//! | what | how |
//! | --- | --- |
//! | an adapter on the network | [`Adapter::builder`], [`Link`] |
//! | run by a thread of its own, or by you | [`Builder::open`], [`Builder::open_inline`] |
//! | memory that messages land in and are sent from | [`Adapter::domain`], [`ProtectionDomain::register`], [`MemoryRegion`], [`Part`] |
//! | queue pairs | [`ProtectionDomain::queue_pair`], [`QueuePair`], [`Mapping`] |
//! | room that many of them share | [`ProtectionDomain::shared_receive_queue`], [`SharedReceiveQueue`] |
//! | messages that are read where they landed | [`ProtectionDomain::register_parts`], [`MemoryParts`] |
//! | what is done | [`CompletionQueue`], [`Completion`] |
//! | connections from outside | [`Adapter::listen`], [`Listener`] |
//! | messages in a byte stream | [`Reassembler`] |
//! | addresses that come and go, datagrams that did not arrive | [`Adapter::next_notice`], [`Notice`] |
//!
//! # Which mapping
//!
//! The other end of [`Mapping::Stream`] may be anything that speaks TCP; a
//! [`Reassembler`] finds messages in what comes. [`Mapping::Message`] keeps
//! messages apart by themselves, between two queue pairs with nothing in between
//! that ends connections or joins segments. [`Mapping::Segment`] is the paper's:
//! each message one segment.
//!
//! # Who runs it
//!
//! *Offloaded*, the adapter is a thread, as the card of the paper: posting is a
//! few stores and polling a load, without a lock or a system call; only where
//! the adapter sleeps its bell is rung. *Inline*, anyone who holds the handles makes
//! its turns, and threads that wait do so by themselves. *Without a thread*
//! ([`Builder::open_without_thread`]) a reactor of your own makes them, when a descriptor
//! is readable. All handles are the same in all of these.
//!
//! What does not live here: the protocols (`qpip`), drivers
//! (`landfall-transport`), names of hosts, encryption. There is no remote memory
//! access: QPIP sends and receives.

mod adapter;
mod builder;
mod completion_queue;
mod doorbell;
mod driver;
mod error;
mod link;
mod listener;
mod memory;
mod notice;
mod pair_state;
mod queue_pair;
mod reassembler;
mod shared_receives;
mod state;
mod work_queues;

pub use adapter::{Adapter, LinkStatus, ProtectionDomain};
pub use builder::Builder;
pub use completion_queue::{CompletionQueue, PhaseChange};
pub use driver::AdapterDriver;
pub use error::{Error, OpenError, Refused};
pub use link::Link;
pub use listener::{Listener, Pending};
pub use memory::{MemoryParts, MemoryRegion, Part};
pub use notice::Notice;
pub use pair_state::Phase;
pub use queue_pair::{QueuePair, QueuePairOptions};
pub use reassembler::{Delimiter, Framing, FramingError, LengthPrefix, Reassembler, Scan};

pub use shared_receives::{SharedReceiveOptions, SharedReceiveQueue};
pub use work_queues::{PartlyPosted, ReceiveQueue, ReceiveRequest, SendQueue, SendRequest};

pub use crate::runtime::TurnReport;
pub use landfall_transport::Wait;
pub use landfall_transport::channel::ChannelConfig;
#[cfg(feature = "faults")]
pub use landfall_transport::fault::{FaultCounts, Faults};
pub use landfall_transport::memory::{Arena, ArenaConfig, Memory, PartGuard, Pinned};
pub use landfall_transport::packet::PacketConfig;
pub use landfall_transport::tap::TapConfig;
pub use landfall_transport::tunnel::TunnelConfig;
pub use landfall_transport::xdp::XdpConfig;
pub use qpip::{
    Access, Arm, CloseReason, Completion, Config, ConfigError, CongestionControl, ConnectionState,
    ConnectionStats, EcnFeedback, Error as CommandError, KeepAlive, Mapping, Operation, Pacing,
    PostError, QueuePairId, Service, Stats, Status, TcpConfig,
};
