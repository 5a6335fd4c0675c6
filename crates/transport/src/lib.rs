#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! | module | what it does |
//! | --- | --- |
//! | [`memory`] | registered memory: lent to engines, kernel and peers, and taken back |
//! | [`driver`] | the [`Driver`] trait: one turn after another moves units between an engine and a path |
//! | [`udp`] | UDP with segmentation offload, receiving straight into guessed spans |
//! | [`udp_packet`] | the same to the same peers, by AF_PACKET: one header before many datagrams |
//! | [`packet`] | AF_PACKET: frames of an interface, with the device's segmentation and checksums |
//! | [`rawip`] | a protocol number of its own, directly on IPv4 or IPv6 |
//! | [`shm`] | memory shared between processes: rings, watched memory, waking, meeting |
//! | [`remap`] | pages that were filled come to the application without a copy |
//! | [`ring`] | AF_PACKET: frames that lie in memory already, a ring of blocks at a time |
//! | [`scatter`] | AF_PACKET: bursts of frames, each into places that were posted for it |
//! | [`xdp`] | AF_XDP: frames of an ethertype or to a station, through mapped rings |
//! | [`tap`] | a virtual cable to the kernel of this machine, in whole frames |
//! | [`tunnel`] | whole frames inside of UDP, for users without privileges |
//! | [`channel`] | two engines in one process |
//! | [`member`] | several drivers of one station, each for an engine of its own |
//! | [`fault`] | loss, duplication, reordering, corruption and delay around any driver |
//! | [`redirect`] | two interfaces whose frames the kernel passes by itself |
//! | `uring` | UDP, AF_PACKET and files by way of `io_uring` (feature `io-uring`) |
//! | [`multicast`] | short datagrams to all hosts of a network that listen to a group |
//! | [`interfaces`] | the addresses of network interfaces |
//! | [`signals`] | the wish that a program ends, asked for instead of interrupting |
//! | [`wait`] | spin, block, or spin and then block |
//! | [`Bell`] | wakes a thread that sleeps there |
//! | [`ReadySet`] | one descriptor for all that a driver waits for, for a reactor of the user's own |
//! | [`Clock`] | where `now` comes from |
//! | [`capability`] | what a driver could switch on here, and in clear words what not |
//! | [`Counters`] | what a driver did |
//! | [`OpenError`] | why a path could not be opened, and what would help |
//!
//! This is the one library of the family with `unsafe` in it: memory that the
//! kernel and engines write while no reference to it exists.

#[cfg(feature = "tokio")]
mod asynchronous;
mod bpf;
pub mod capability;
pub mod channel;
pub mod driver;
mod exchange;
pub mod fault;
mod inet;
pub mod interfaces;
pub mod member;
pub mod memory;
pub mod multicast;
mod open_error;
pub mod packet;
pub mod rawip;
mod ready_set;
pub mod redirect;
pub mod remap;
pub mod ring;
mod same_host;
pub mod scatter;
pub mod shm;
pub mod signals;
pub mod tap;
pub mod tunnel;
pub mod udp;
pub mod udp_packet;
#[cfg(feature = "io-uring")]
pub mod uring;
pub mod wait;
pub mod xdp;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncWaiter;
pub use capability::{Capabilities, Feature, Missing};
pub use driver::{Clock, Counters, Driver, DriverState, Interest, Progress};
pub use open_error::{OpenError, Privilege};
pub use ready_set::ReadySet;
pub use wait::{Bell, Wait, Waiter};
