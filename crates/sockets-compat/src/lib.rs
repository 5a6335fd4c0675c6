//! Sockets that feel like `std::net` and `tokio::net`, over what this family speaks.
//!
//! | socket | like | over | feature |
//! | --- | --- | --- | --- |
//! | `StpSeqPacket`, `StpListener` | `SOCK_SEQPACKET` | the Scheduled Transfer Protocol: each write one Transfer | `stp` |
//! | `StpStream`, `StpStreamListener` | `TcpStream`, `TcpListener` | the same, for bytes | `stp` |
//! | `QpStream`, `QpListener` | `TcpStream`, `TcpListener` | queue pairs; any TCP at the other end | `qpip` |
//! | `QpDatagram` | `UdpSocket` | queue pairs; any UDP at the other end | `qpip` |
//! | `ClanStream`, `ClanListener` | `UnixStream`, `TcpStream` and their listeners | shared memory with tripwires, within a host and across hosts | `clan` |
//! | `ClanSeqPacket`, `ClanSeqPacketListener` | `SOCK_SEQPACKET` of Unix | the same, for messages | `clan` |
//!
//! Blocking, with timeouts and without waiting they are here; for tokio the same names
//! are in the module `tokio`, what hyper, tower and axum need is in `hyper`, and TLS above
//! byte streams in `tls`. Where they are is an [`Address`], which parses and prints.
//!
//! What does not live here: protocols (engines of their own), drivers, `unsafe` code,
//! and sockets for programs that know nothing of this crate (that is
//! `landfall-preload`, a library to be loaded before them).
#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(feature = "clan", feature = "qpip", feature = "stp")),
    allow(dead_code, reason = "what sockets are made of, without any socket")
)]

mod address;
#[cfg(feature = "clan")]
mod clan;
mod duplex;
#[cfg_attr(
    not(all(feature = "clan", feature = "qpip", feature = "stp")),
    allow(dead_code, reason = "each error is for some of the sockets")
)]
mod errors;
mod family;
#[cfg(any(feature = "clan", feature = "qpip", feature = "stp"))]
mod linger;
mod listener;
#[cfg(any(feature = "clan", feature = "stp"))]
mod packets;
#[cfg(feature = "qpip")]
mod qp;
#[cfg(any(feature = "clan", feature = "stp"))]
mod seqpacket;
#[cfg(feature = "stp")]
mod stp;
mod stream;
mod waiting;

#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use address::{Address, AddressError, CLAN_UDP_PORT, Carrier, Name, STP_UDP_PORT, ToAddress};
#[cfg(feature = "clan")]
pub use clan::{
    Admit, ClanHost, ClanListener, ClanNetwork, ClanOptions, ClanSeqPacket, ClanSeqPacketListener,
    ClanStream,
};
#[cfg(feature = "clan")]
pub use family::Clan;
#[cfg(feature = "qpip")]
pub use family::Qp;
#[cfg(feature = "stp")]
pub use family::Stp;
#[cfg(feature = "tokio")]
pub use family::Tokio;
pub use family::{Blocking, Family, Messages, Mode};
pub use listener::{Accepted, Incoming, Listener};
#[cfg(feature = "qpip")]
pub use qp::{Landed, QpDatagram, QpHost, QpListener, QpOptions, QpStream, SendMemory};
#[cfg(any(feature = "clan", feature = "stp"))]
pub use seqpacket::SeqPacket;
#[cfg(feature = "stp")]
pub use stp::{StpHost, StpListener, StpOptions, StpSeqPacket, StpStream, StpStreamListener};
pub use stream::{ByteStream, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
