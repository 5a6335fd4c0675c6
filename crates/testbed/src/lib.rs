//! Measuring, and testing with privileges, on one Linux machine.
//!
//! What lives here: private network namespaces joined by veth pairs, their
//! offloads, CPU accounts, kernel rivals (TCP, UDP, Unix sockets) measured as
//! well as they can be, and the interleaving of candidates so that a noisy
//! machine treats all alike. What does not: any protocol of Landfall, any
//! engine, any driver.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`namespace`] | network namespaces without names, which leave nothing behind |
//! | [`veth`] | a cable between two namespaces |
//! | [`bridge`] | a local network of several namespaces |
//! | [`offload`] | segmentation, joining, checksums: read and set; real frames; datagrams that arrive together |
//! | [`tun`], [`socket`] | an interface whose packets a test makes; what the kernel knows of a socket |
//! | [`frames`] | frames that a test makes, on an interface that others use |
//! | [`ingress`] | fragments that are lost where they enter a machine |
//! | [`long_cable`] | a cable whose frames take their time, and get lost |
//! | [`loss`] | a cable that loses frames at random |
//! | [`cpu`] | who used how much processor; pinning |
//! | [`idle_meter`] | the same from outside: what is left for a thread of the lowest priority |
//! | [`rivals`] | kernel TCP, UDP and Unix sockets, measured |
//! | [`sample`] | what one run gave, in terms that all candidates share |
//! | [`interleave`](mod@interleave) | candidates in turn, medians, spreads, ratios |
//! | [`privileges`] | what this process may do, and how tests skip |

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod bridge;
pub mod cpu;
pub mod error;
pub mod frames;
pub mod idle_meter;
pub mod ingress;
pub mod interleave;
pub mod long_cable;
pub mod loss;
pub mod namespace;
mod netlink;
pub mod offload;
pub mod privileges;
pub mod rivals;
pub mod sample;
pub mod socket;
mod sys;
pub mod tun;
pub mod veth;

/// Leaves a test with one clear line unless there is no reason to.
pub use landfall_testkit::{leave_out_unless, skip_unless};

pub use bridge::BridgedNetwork;
pub use cpu::{CpuMeter, CpuUse};
pub use error::Error;
pub use frames::FrameSender;
pub use idle_meter::IdleMeter;
pub use ingress::{IngressLoss, Lose};
pub use interleave::{Candidate, Comparison, Measured, Spread, interleave};
pub use long_cable::LongCable;
pub use loss::FrameLoss;
pub use namespace::{Namespace, with_own_mounts};
pub use offload::Offload;
pub use sample::{CoresBusy, CpuSplit, Rtt, RttHistogram, Sample};
pub use tun::Tun;
pub use veth::{Mac, VethConfig, VethEnd, VethPair};
