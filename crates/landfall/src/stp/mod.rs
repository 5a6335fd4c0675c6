//! The Scheduled Transfer Protocol, for tasks and threads.
//!
//! | what | how |
//! | --- | --- |
//! | an endpoint, over one path or several | [`Endpoint::bind`], [`Builder`], [`Transport`] |
//! | connections | [`Endpoint::listen`], [`Endpoint::connect`] to a [`Peer`] or a host by name ([`ToPeers`]), [`Connection`] |
//! | Transfers | [`Connection::send`], [`Connection::receive`], [`Connection::receive_into`], [`Connection::offer`] |
//! | several at once, or in an order | [`OperationSet`], [`OrderedSender`], [`OrderedReceiver`] |
//! | how far a Transfer is | [`Operation::progress`], [`Progress`] |
//! | reads | [`Connection::read`], [`Connection::read_request`] |
//! | remote memory | [`Connection::request_region`], [`RemoteMemory`], [`Connection::region_request`], [`Exposed`] |
//! | registered memory | [`Endpoint::register`], [`Region`], [`Part`], [`Payload`] |
//! | what was done | [`Endpoint::stats`] |
//! | turns in a reactor of your own | [`Builder::bind_without_thread`], [`EndpointDriver`] |
//! | the same for threads | [`blocking`] |
//!
//! # Memory
//!
//! Bytes are sent from, and land in, registered memory. [`Memory`] that is
//! handed to an operation is lent for its time and comes back with its result;
//! a [`Region`] stays registered over many. Neither is copied in user space.
//! [`Bytes`](bytes::Bytes), and what becomes `Bytes`, are copied once, into the
//! endpoint's arena: they cannot be lent, for others may have references to
//! them. [`Stats::bytes_copied_in`] counts that. What was received becomes
//! `Bytes` without a copy ([`Message::into_bytes`]).
//!
//! # Cancellation
//!
//! Dropping an [`Operation`] cancels it. The engine is told at once; the memory
//! stays lent until it says that no driver uses it. No use after free is
//! possible by construction: operations own what they use.
//!
//! Whatever way an operation fails, the [`Memory`] that was lent for it comes back in
//! [`Failed`]. [`Operation::cancel`] ends one early and gives its memory back as well.
//!
//! # Who drives
//!
//! Each endpoint has a thread that drives it when nobody else does, so futures
//! work on any executor. A thread that waits in a [`blocking`] handle drives
//! the endpoint itself: that is the way to the lowest latency. See [`Wait`] for
//! how long they spin before they sleep. An endpoint without a thread
//! ([`Builder::bind_without_thread`]) is driven by a reactor of your own.
//!
//! # Encryption
//!
//! What leaves the host is encrypted and authenticated: each connection has keys of its own,
//! and everything that an observer sees of it is that there is one, and how much it moves.
//! Peers prove who they are with key pairs: an endpoint has the [`Identity`] of its user,
//! made at first use, or [one of its own](Builder::identity). Whom it connects to it knows
//! again ([`KnownPeers`]), unless a fingerprint is [pinned](Endpoint::connect_pinned); who
//! connects to it says who it is ([`Connection::peer_identity`]). A
//! [pre-shared key](Builder::preshared_key) takes the place of both, and so do certificates
//! with the feature `certificates`. What goes from and to a
//! loopback address, or stays within the process, is plain; all else only if an endpoint is
//! built so ([`Builder::plaintext`]). Both ends must be built alike.
//!
//! To look into captures of your own connections, have their keys written down
//! ([`Builder::key_log`], or the variable `LANDFALL_KEYLOG`) and open the capture with `landfall
//! decrypt`. Anyone who reads such a file reads all.
//!
//! What does not live here: the protocol (`stp-core`), records and handshakes
//! (`landfall-seal`), drivers (`landfall-transport`), discovery of peers.

pub mod blocking;
mod builder;
mod connection;
mod deadline;
mod driver;
mod endpoint;
mod error;
mod memory;
mod operation;
mod ordered;
mod path;
mod progress;
mod reach;
mod remote;
mod set;
mod shards;
mod state;

pub use builder::Builder;
pub use connection::{Connection, Link, Offer, ReadRequest};
pub use driver::EndpointDriver;
pub use endpoint::{Endpoint, Listener, PathStats, Stats};
pub use error::{BindError, Error, Failed};
pub use memory::{Message, Part, Payload, Region};
pub use operation::{Operation, Put, Received, Receives, Sent};
pub use ordered::{OrderedReceiver, OrderedSender};
pub use path::Transport;
pub use progress::{Progress, Stalled};
pub use reach::ToPeers;
pub use remote::{Exposed, RegionRequest, RemoteMemory};
pub use set::OperationSet;
pub use state::Notice;

pub use crate::runtime::TurnReport;
#[cfg(feature = "certificates")]
pub use crate::security::Certificates;
pub use crate::security::{Identity, KnownPeers, SecurityError, read_preshared_key};
pub use landfall_placement::{PathId, Peer, WordFunction, WordWidth};
#[cfg(feature = "certificates")]
pub use landfall_seal::TlsError;
pub use landfall_seal::{Fingerprint, HandshakeError, PeerIdentity, SealStats};
pub use landfall_transport::Wait;
pub use landfall_transport::channel::ChannelConfig;
#[cfg(feature = "faults")]
pub use landfall_transport::fault::{FaultCounts, Faults};
pub use landfall_transport::memory::{
    AccessError, Arena, ArenaConfig, ArenaError, LendRefusal, MappedMemory, Memory, OutOfMemory,
    Pinned, TakeBackError,
};
pub use landfall_transport::packet::PacketConfig;
pub use landfall_transport::rawip::RawIpConfig;
pub use landfall_transport::udp::UdpConfig;
pub use landfall_transport::udp_packet::UdpPacketConfig;
pub use landfall_transport::xdp::XdpConfig;
/// What certificates, keys and roots are made of.
#[cfg(feature = "certificates")]
pub use rustls;
/// Why the engine did not begin something: what [`Error::Refused`] has.
pub use stp_core::Error as EngineError;
pub use stp_core::wire::Reason;
pub use stp_core::wire::carrier::UDP_PORT;
pub use stp_core::{
    Config, ConfigError, CongestionConfig, Ended, Policy, Priority, Rights as RemoteRights,
};
