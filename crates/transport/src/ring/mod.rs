//! The receive ring of a packet socket (TPACKET_V3): the kernel writes frames
//! into memory that is mapped here, block after block.
//!
//! The frames lie there already when the process hears of them, many with one
//! look and none with a system call. [`Ring`] lends the memory of the ring as a
//! region, so that whoever reads a frame by its [`Span`](landfall_placement::Span)
//! does not need to know where it came from. A [`Block`] is this process's until
//! it is dropped: copy its frames to where they belong, or hold it as long as
//! somebody reads them in place.
//!
//! ```no_run
//! use landfall_transport::memory::Regions;
//! use landfall_transport::packet::Filter;
//! use landfall_transport::ring::{Ring, RingConfig};
//!
//! let regions = Regions::new(16);
//! let config = RingConfig::new("eth0", Filter::ethertypes([0x0800, 0x86dd]).fragments());
//! let mut ring = Ring::open(&config, &regions)?;
//! while let Some(block) = ring.next_block() {
//!     for frame in block.frames() {
//!         println!("{} bytes at {}", frame.bytes.len(), frame.span);
//!     }
//! } // each block goes back to the kernel where it is dropped
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! How the kernel behaves (`net/packet/af_packet.c`,
//! `Documentation/networking/packet_mmap.rst`), each with a test in
//! `tests/ring_rules.rs`:
//!
//! - it hands a block over when the next frame does not fit, or when the block
//!   is older than [`RingConfig::retire`]: a lone frame waits so long;
//! - it fills blocks in the order of the ring. Comes it to one that is held, it
//!   drops frames until that one is back: [`Statistics::freezes`] counts how
//!   often;
//! - a frame that is longer than a block is cut. It does not come out here, and
//!   is counted;
//! - the descriptor is readable as long as the newest block is not given back:
//!   see [`Ring::is_readiness_telling`].
//!
//! What does not live here: what a frame means, sending, other receive rings.

mod frames;
mod open;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use landfall_placement::RegionId;

pub use frames::{Block, Frame, Frames, Heard, HeardFrames};

use frames::Shared;

use crate::driver::Interest;
use crate::packet::{Filter, Interface};
use crate::scatter::Hearing;

/// How a ring is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// The interface.
    pub interface: Interface,
    /// Which of its frames come. Whatever it says, none of a VLAN do, and none
    /// to others but those of a station that it names.
    pub filter: Filter,
    /// Where they are heard.
    pub hearing: Hearing,
    /// How long a block is: a power of two, at least a page, at most 4 MiB.
    pub block_size: u32,
    /// How many blocks there are: at least 2; all together 1 GiB at most.
    pub blocks: u32,
    /// A block that has frames is handed over after this time at the latest,
    /// counted in milliseconds, at least one.
    pub retire: Duration,
    /// For recording: what leaves the interface, is for others or of a VLAN comes too,
    /// and of each frame at most so many bytes: see [`Block::heard`]. None: frames that
    /// the interface received, whole.
    pub overhear: Option<u32>,
}

impl RingConfig {
    /// 256 blocks of 128 KiB, handed over after a millisecond, with frames as
    /// they are before any hook.
    #[must_use]
    pub fn new(interface: impl Into<Interface>, filter: Filter) -> Self {
        Self {
            interface: interface.into(),
            filter,
            hearing: Hearing::Everything,
            block_size: 128 << 10,
            blocks: 256,
            retire: Duration::from_millis(1),
            overhear: None,
        }
    }

    /// The same for whoever records what crosses the interface: at most so many bytes of
    /// each frame, both ways.
    #[must_use]
    pub fn overhearing(self, bytes: u32) -> Self {
        Self { overhear: Some(bytes.max(1)), ..self }
    }
}

/// What the kernel counted since the ring was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that the filter let through, dropped ones too.
    pub frames: u64,
    /// Frames for which no block was free.
    pub drops: u64,
    /// How often the kernel came to a block that was not given back.
    pub freezes: u64,
    /// Frames that were longer than a block, counted here when they were come by.
    pub cut: u64,
}

/// A receive ring on an interface.
#[derive(Debug)]
pub struct Ring {
    shared: Arc<Shared>,
    /// The block that the kernel hands over next.
    next: usize,
    counted: Statistics,
}

impl Ring {
    /// The next block of frames, if the kernel has handed one over. Never waits.
    ///
    /// There is none as long as the block that is next in the ring is held.
    pub fn next_block(&mut self) -> Option<Block> {
        let block = Block::take(&self.shared, self.next)?;
        self.next = (self.next + 1) % self.shared.blocks();
        Some(block)
    }

    /// The region that frames lie in. It may be read only, and ends with the
    /// ring and the last of its blocks.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.shared.region()
    }

    /// The address of the interface's station.
    #[must_use]
    pub fn station(&self) -> [u8; 6] {
        self.shared.station()
    }

    /// What to wait for when there is no block, while
    /// [`is_readiness_telling`](Self::is_readiness_telling).
    #[must_use]
    pub fn interest(&self) -> Interest {
        Interest { fd: self.as_raw_fd(), readable: true, writable: false }
    }

    /// How many blocks are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held()
    }

    /// Whether the descriptor says when there is something new.
    ///
    /// To the kernel it is readable until the newest block is given back. While
    /// that one is held whoever waits for the descriptor would spin: then look
    /// again after [`RingConfig::retire`], or when a block was dropped.
    #[must_use]
    pub fn is_readiness_telling(&self) -> bool {
        let blocks = self.shared.blocks();
        !self.shared.is_held((self.next + blocks - 1) % blocks)
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// What the kernel said instead.
    pub fn statistics(&mut self) -> io::Result<Statistics> {
        let mut told = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut len = mem::size_of_val(&told) as libc::socklen_t;
        let fd = self.shared.socket().as_raw_fd();
        let (option, into) = (libc::PACKET_STATISTICS, (&raw mut told).cast());
        // SAFETY: there is room for what the kernel says, and `len` says how much.
        let done = unsafe { libc::getsockopt(fd, libc::SOL_PACKET, option, into, &raw mut len) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // Being asked, the kernel starts again from zero. What it dropped is
        // among its packets, for a ring of this version.
        self.counted.frames += u64::from(told.tp_packets);
        self.counted.drops += u64::from(told.tp_drops);
        self.counted.freezes += u64::from(told.tp_freeze_q_cnt);
        Ok(Statistics { cut: self.shared.cut(), ..self.counted })
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.socket().as_fd()
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.socket().as_raw_fd()
    }
}
