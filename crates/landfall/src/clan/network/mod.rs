//! CLAN over networks: [`Node`]s whose memory others write, over UDP, Ethernet,
//! `io_uring` or any driver.
//!
//! ```
//! use landfall::clan::network::{HostId, Node, Transport};
//! use landfall::clan::{Access, Fabric, Local, Remote, Rights, Tripwire};
//!
//! let open = |host| Node::open(HostId::new(host).unwrap(), Transport::udp(([127, 0, 0, 1], 0).into()));
//! let (here, there) = (open(1)?, open(2)?);
//! let soon = || Some(std::time::Instant::now() + std::time::Duration::from_secs(10));
//!
//! // Memory of one, its cookie, and a tripwire on the first word.
//! let (memory, cookie) = here.expose(4096, Rights::Write)?;
//! let tripwire = here.watch(&memory, 0..8, Access::Write, None)?;
//! tripwire.arm();
//!
//! // Who has the cookie writes. Nobody is asked.
//! there.link(here.local().unwrap())?.wait_up(soon())?;
//! let mut window = there.map(&cookie)?;
//! window.write(8, b"in its place")?;
//! window.store(0, 12)?;
//! window.commit()?;
//!
//! assert!(tripwire.wait(soon())?);
//! assert_eq!(memory.load(0)?, 12);
//! let mut bytes = [0; 12];
//! memory.copy_out(8, &mut bytes)?;
//! assert_eq!(&bytes, b"in its place");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | handle | what it is |
//! | --- | --- |
//! | [`Node`] | a host: memory, links, tripwires; the [`Fabric`](super::Fabric) of the layer above |
//! | [`Link`] | the way to another host: up, down, and why |
//! | [`Aperture`] | memory of this node that others touch |
//! | [`Window`] | memory of another node |
//! | [`Group`] | memory that many nodes have, written at once |
//! | [`Tripwire`], [`ActionTripwire`] | to be told when chosen memory was touched, or to find a mark of it |
//! | [`Endpoint`] | connections and messages of 40 bytes, out of band |
//! | [`DmaQueue`] | requests to the DMA engine, filled without a call while it is busy |
//! | [`Events`] | all of these in one queue, with a descriptor for `epoll` |
//! | [`NodeDriver`] | turns in a reactor of your own, for a node without a thread |
//! | [`Offer`], [`Found`], [`Discovery`] | names that nodes find each other by |
//! | [`server`] | the event-driven server of the paper, over all of this |
//!
//! Each handle has a way for threads (`wait_…`, and `try_…` for those who spin) and
//! one for tasks, on any executor. Anyone who waits on a thread drives the node
//! meanwhile: no wake-up lies between a packet and its user. Anyone who spins calls
//! [`Node::turn`].
//!
//! # Encryption
//!
//! What leaves the host is encrypted and authenticated: each link has keys of its own, and
//! everything that an observer sees of it is that there is one, and how much it moves. Cookies
//! travel inside, if nodes pass them on by messages. Nodes prove who they are with key pairs: a
//! node has the [`Identity`] of its user, made at first use, or [one of its
//! own](Builder::identity). Whom it opens a link to it knows again ([`KnownPeers`]), unless a
//! fingerprint is [pinned](Node::link_pinned); who links to it says who it is
//! ([`Link::peer_identity`]). The number of a host belongs to the key that had it first, for as
//! long as the node lives, or to the one that [was named](Builder::host_key). A [pre-shared
//! key](Builder::preshared_key) takes the place of all that, and so do certificates with the
//! feature `certificates`. What goes from and to a loopback address, or stays within the
//! process, is plain; all else only if a node is built so ([`Builder::plaintext`]). Both ends
//! must be built alike.
//!
//! A [`Group`] sends each member a copy of its own, over the link to it, so that no member can
//! write in the founder's name, and who is none reads nothing.
//!
//! To look into captures of your own links, have their keys written down ([`Builder::key_log`],
//! or the variable `LANDFALL_KEYLOG`). Anyone who reads such a file reads all.
//!
//! What does not live here: the protocol (`clan-dsm`), records and handshakes (`landfall-seal`),
//! sockets and memory mappings
//! (`landfall-transport`), and what the bytes mean (the layer above).

mod back_pressure;
mod builder;
mod dma;
mod driver;
mod endpoint;
mod engines;
mod events;
mod group;
mod mark;
mod memory;
mod names;
mod neighbour;
mod node;
mod open_error;
mod path;
mod state;
mod tripwire;
mod window;

pub use crate::clan::server;
pub use builder::Builder;
pub use clan_dsm::{
    Body, Config, ConfigError, ConnectRequest, Ended, EndpointState, HostId, NativeConfig, Notice,
    Port, PortAddress, Reason,
};
pub use dma::{DmaQueue, Done, Request};
pub use driver::NodeDriver;
pub use endpoint::Endpoint;
pub use events::{Event, Events, Source};
pub use group::{Group, MemberDelivery};
pub use landfall_placement::{Duration, PathId, Peer, Seed, WordFunction};
pub use landfall_seal::{Fingerprint, HandshakeError, PeerIdentity, SealStats};
pub use landfall_transport::channel::ChannelConfig;
#[cfg(feature = "faults")]
pub use landfall_transport::fault::{FaultCounts, Faults};
pub use landfall_transport::{Interest, Wait};
pub use mark::ActionTripwire;
pub use memory::Aperture;
pub use names::{Discovery, Found, NAME_PORT, NameRequest, Offer};
pub use neighbour::Link;
pub use node::{Node, PathStats, Stats};
pub use open_error::OpenError;
pub use path::{ETHERTYPE, Transport};
pub use tripwire::Tripwire;
pub use window::Window;

pub use crate::runtime::TurnReport;
#[cfg(feature = "certificates")]
pub use crate::security::Certificates;
pub use crate::security::{Identity, KnownPeers, SecurityError, read_preshared_key};
