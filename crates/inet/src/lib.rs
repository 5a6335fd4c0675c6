//! The headers of the Internet, written once: checked views of what arrives, writers
//! for what leaves, and the rules by which fragments become a packet.
//!
//! | module | what it knows |
//! | --- | --- |
//! | [`packet`] | a frame read up to what IP carries: [`parse`], [`Packet`], [`Ip`] |
//! | [`envelope`] | a frame written up to what IP carries: [`Envelope`] |
//! | [`ethernet`], [`vlan`], [`arp`] | stations |
//! | [`ipv4`], [`ipv6`], [`extension`], [`fragment`], [`protocol`] | packets and their fragments |
//! | [`reassembly`] | which fragments make a packet, and which contradict each other |
//! | [`checksum`] | the Internet checksum of headers and pseudo-headers |
//! | [`tcp`], [`tcp_options`], [`udp`] | segments and datagrams |
//! | [`icmp`], [`icmp4`], [`icmp6`], [`ndp`], [`router`] | echoes, errors, neighbours, routers |
//! | [`group`], [`dhcp`] | who listens to which group; addresses that are given out |
//! | [`flow`] | which of several engines behind one station gets a frame |
//! | [`device`] | what a device does for its driver: it completes sums, and cuts long segments |
//!
//! Reading is total: any bytes are read or refused, none cause a panic, and the work
//! is bounded. A reader that needs bytes which the frame has but which are not at hand
//! asks for them ([`Stop::NeedHead`]). The bytes of a header are one `#[repr(C)]`
//! struct without alignment (`zerocopy`), so that a view costs a length check.
//!
//! ```
//! use landfall_inet::{Content, Envelope, parse, protocol, udp};
//!
//! let (us, them) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
//! let envelope = Envelope::new(
//!     (us, "192.0.2.1".parse()?),
//!     (them, "192.0.2.2".parse()?),
//!     protocol::UDP,
//! );
//! let mut frame = [0; 64];
//! // The headers of a frame with a UDP header and 14 bytes of payload.
//! let at = envelope.write(&mut frame, 22).expect("it fits");
//! udp::Header { source: 7.into(), destination: 9.into(), len: 22.into(), sum: 0.into() }
//!     .write(&mut frame[at..]);
//!
//! // What is read of it from its first bytes.
//! let packet = parse(&frame[..42], 56).expect("it is a good frame");
//! let Content::Ip(ip) = packet.content else { panic!("this is no ARP") };
//! let udp = ip.udp(&frame[..42]).expect("and carries a datagram");
//! assert_eq!((udp.header.destination.get(), udp.payload_len), (9, 14));
//! # Ok::<(), core::net::AddrParseError>(())
//! ```
//!
//! Why these headers are written by hand, header by header beside `smoltcp::wire` and
//! `etherparse`, is in the crate's README.
//!
//! A header written here needs no allocation and is written where it leaves; one read here
//! is read where it lies.
//!
//! What does not live here: any state of a connection or host, and any decision that
//! needs it: whether an address is ours, whether a sequence number fits, whether to
//! answer.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod arp;
pub mod checksum;
pub mod device;
pub mod dhcp;
pub mod envelope;
pub mod ethernet;
pub mod extension;
pub mod flow;
pub mod fragment;
pub mod group;
pub mod icmp;
pub mod icmp4;
pub mod icmp6;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod packet;
pub mod protocol;
pub mod reassembly;
pub mod router;
pub mod tcp;
pub mod tcp_options;
pub mod udp;
pub mod vlan;

#[cfg(test)]
mod tests;

pub use envelope::Envelope;
pub use ethernet::Mac;
pub use fragment::Fragment;
pub use packet::{Content, Ip, Layer, Packet, Problem, ProblemCode, Stop, is_host, parse};
pub use tcp::{Flags, Tcp};
pub use tcp_options::{Blocks, FastOpenCookie, Options};
