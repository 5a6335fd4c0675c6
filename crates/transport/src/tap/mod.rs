//! TAP: a virtual cable to the kernel of this machine, whose other end is the
//! engine.
//!
//! The kernel has an interface, with addresses, routes and a station address of
//! its own; each frame that it sends there comes to the engine, and each frame
//! of the engine arrives at the kernel. Units are whole frames, peers are
//! [`Peer::Unaddressed`](landfall_placement::Peer::Unaddressed): the engine is a
//! station of its own, and the kernel answers for none of its addresses. With a
//! bridge or with routes the frames go on to other machines.
//!
//! Super-packets pass whole, both ways, and checksums between the two are not
//! computed at all: nothing crosses a wire. Payloads are received straight into
//! guessed spans.
//!
//! How the kernel behaves here was found by reading `drivers/net/tun.c` and by
//! probing, and each finding has a test in `tests/tap_rules.rs`:
//!
//! - a frame that is written is received before the call returns. There is no
//!   queue in that direction, and nothing to wait for;
//! - in the other direction the kernel queues as many frames as the interface's
//!   `txqueuelen` says, and drops what comes then;
//! - while the interface is down frames are lost; it may come up again;
//! - the interface goes when the driver is dropped, unless it was made to stay
//!   (`ip tuntap add`), by which an ordinary user can have one;
//! - the interface belongs to the network namespace in which it was opened.
//!
//! ```no_run
//! use landfall_placement::PathId;
//! use landfall_transport::memory::Regions;
//! use landfall_transport::tap::{TapConfig, TapDriver};
//!
//! let config = TapConfig {
//!     kernel_address: Some(("10.9.0.1".parse()?, 24)),
//!     ..TapConfig::new("landfall0")
//! };
//! let driver = TapDriver::open(PathId(0), &config, &Regions::new(16))?;
//! println!("{} is up: the kernel is {:x?}", driver.name(), driver.kernel_station());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Who has no engine between reads and writes the frames with [`open_frames`], or
//! super-packets with [`open_super_frames`]; [`open_headed_queues`] leaves only checksums
//! unfinished, and has several queues for several threads.
//!
//! What does not live here: bridges, routes, name service.

mod device;
mod driver;
mod frames;
mod steering;

use std::net::IpAddr;

pub use driver::TapDriver;
pub use frames::{
    FrameReader, FrameWriter, OFFLOAD_HEADER, Sums, offload_header, open_frames,
    open_headed_queues, open_super_frames, unfinished_sum,
};

/// How a TAP interface is opened: made anew, or taken if it is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Its name; empty: the kernel chooses one.
    pub name: String,
    /// Exchange super-packets, and frames without checksums.
    pub offload: bool,
    /// The largest IP packet; otherwise what the interface has (1500).
    pub mtu: Option<u32>,
    /// The station address of the kernel's side; otherwise what it has, which is
    /// random where the interface is new.
    pub kernel_station: Option<[u8; 6]>,
    /// The address of the kernel's side, and the length of its subnet's prefix.
    pub kernel_address: Option<(IpAddr, u8)>,
    /// Bring it up, if it is not.
    pub up: bool,
}

impl TapConfig {
    /// An interface of this name, with all offloads, up.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            offload: true,
            mtu: None,
            kernel_station: None,
            kernel_address: None,
            up: true,
        }
    }

    /// The same without offloads: frames of the MTU, sums by kernel and driver.
    #[must_use]
    pub fn without_offload(self) -> Self {
        Self { offload: false, ..self }
    }
}
