//! The adapters of the papers as firmware on a modelled machine.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`clan`] | the CLAN adapter: distributed shared memory with tripwires |
//! | `driver` | adapters as a transport for programs, in real time (feature `std`) |
//! | [`firmware`] | what a firmware is, to the machine that runs it |
//! | [`hamachi`] | the Hamachi: speculative defragmentation |
//! | [`lanai`] | the LANai 9 of the QPIP paper |
//! | [`machine`] | an adapter that runs a firmware: slots, rings, DMA, bus, processor, interrupts |
//! | `node` | a node of the simulator: an engine on a host behind adapters (feature `std`) |
//! | `runs` | runs of the simulator, each made once, several at a time (feature `std`) |
//! | [`tigon`] | the Tigon-II: the Scheduled Transfer Protocol |
//! | `reproduce` | the tables and figures of the papers, ours beside theirs (feature `std`) |
//! | `world` | two hosts in the simulator, in which adapters are compared and measured (feature `std`) |
//!
//! What does not live here: protocols (they are the engines'), real adapters
//! (they are `landfall-transport`'s).
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod clan;
#[cfg(feature = "std")]
pub mod driver;
pub mod firmware;
pub mod hamachi;
pub mod lanai;
pub mod machine;
#[cfg(feature = "std")]
pub mod node;
#[cfg(feature = "std")]
pub mod reproduce;
#[cfg(feature = "std")]
mod runs;
pub mod tigon;
#[cfg(feature = "std")]
pub mod world;
