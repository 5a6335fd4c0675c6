//! The receive ring of a packet socket (TPACKET_V3): the kernel writes frames
//! into memory that is mapped here, block after block.
//!
//! The frames lie there already when the process hears of them, many with one
//! look and none with a system call. [`Ring`] lends the memory of the ring as a
//! region, so that anyone who reads a frame by its [`Span`](landfall_placement::Span)
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
//! - of two rings that share what comes ([`Ring::open_two`]) it fills one until the block a
//!   quarter of the ring ahead is not its own, and then the other, if that has room. That there
//!   is room again it learns when somebody asks for readiness;
//! - the descriptor is readable as long as the newest block is not given back:
//!   see [`Ring::is_readiness_telling`].
//!
//! What does not live here: what a frame means, sending, other receive rings.
//!
//! Opening a ring: a socket, its filter, its memory, and only then its interface.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use frames::RingMemory;
pub use frames::{Block, Frame, Frames, HeardFrames, ReceivedFrame};
use landfall_placement::RegionId;
use socket2::{Domain, Socket, Type};

use crate::OpenError;
use crate::driver::Interest;
use crate::memory::{Mapping, Regions, page_size};
use crate::packet::{
    ALL_PROTOCOLS, Filter, Interface, LEAST_ETHERTYPE, LinkAddress, attach_filter, bind, fanout,
    find_interface, join_interface, set_option, why_no_socket,
};
use crate::scatter::CapturePoint;
use crate::wait::until_ready;

mod frames;
mod tags;

/// How a ring is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// The interface.
    pub interface: Interface,
    /// Which of its frames come. None of a VLAN do unless it names one, and none
    /// to others but those of a station that it names.
    pub filter: Filter,
    /// Where they are heard.
    pub hearing: CapturePoint,
    /// How long a block is: a power of two, at least a page, at most 4 MiB.
    pub block_size: u32,
    /// How many blocks there are: at least 2; all together 1 GiB at most.
    pub blocks: u32,
    /// A block that has frames is handed over after this time at the latest,
    /// counted in milliseconds, at least one.
    pub retire: Duration,
    /// For recording: what leaves the interface, is for others or of a VLAN comes too,
    /// and of each frame at most this many bytes: see [`Block::heard`]. None: frames that
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
            hearing: CapturePoint::Everything,
            block_size: 128 << 10,
            blocks: 256,
            retire: Duration::from_millis(1),
            overhear: None,
        }
    }

    /// The same for those who records what crosses the interface: at most this many bytes of
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
    shared: Arc<RingMemory>,
    /// The block that the kernel hands over next.
    next: usize,
    /// Blocks are claimed.
    is_closed: bool,
    /// All sockets that share what comes.
    group: Option<Arc<[Socket]>>,
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

    /// How long a block is.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.shared.block_size()
    }

    /// How many bytes all blocks have.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.shared.blocks() as u64 * self.block_size() as u64
    }

    /// How many blocks are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held()
    }

    /// Whether the descriptor says when there is something new.
    ///
    /// To the kernel it is readable until the newest block is given back. While
    /// that one is held anyone who waits for the descriptor would spin: then look
    /// again after [`RingConfig::retire`], or when a block was dropped.
    #[must_use]
    pub fn is_readiness_telling(&self) -> bool {
        let blocks = self.shared.blocks();
        !self.shared.is_held((self.next + blocks - 1) % blocks)
    }

    /// Whether a block is held that the kernel comes to soon: it drops frames there, unless
    /// another ring [takes them](Self::open_two). To be asked after each block.
    #[must_use]
    pub fn comes_to_held(&self) -> bool {
        let blocks = self.shared.blocks();
        self.shared.is_held((self.next + self.ahead()) % blocks)
    }

    /// How many blocks ahead the kernel looks.
    fn ahead(&self) -> usize {
        self.shared.blocks() / 4
    }

    /// Claims the blocks that neither the kernel nor anyone else needs now, so that the kernel
    /// fills [the other ring](Self::open_two) instead.
    pub fn close_to_kernel(&mut self) {
        let blocks = self.shared.blocks();
        // Into those that are next frames may come at this moment.
        for nth in self.ahead()..blocks {
            self.shared.claim((self.next + nth) % blocks);
        }
        self.is_closed = true;
    }

    /// They are the kernel's again.
    ///
    /// # Errors
    /// What the kernel said instead.
    pub fn open_to_kernel(&mut self) -> io::Result<()> {
        if self.is_closed {
            (0..self.shared.blocks()).for_each(|block| self.shared.unclaim(block));
            self.is_closed = false;
        }
        // It learns that there is room when it is asked for readiness.
        until_ready(&[self.interest()], landfall_placement::Duration::ZERO).map(drop)
    }

    /// Whether its blocks were claimed.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
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

/// The longest block that the kernel can be asked for in one piece
/// (`MAX_PAGE_ORDER`).
const LONGEST_BLOCK: u32 = 4 << 20;
const MOST_BYTES: u64 = 1 << 30;
/// Only a formality here: blocks are not divided into frames of one length.
const FRAME_SIZE: u32 = 2048;

impl Ring {
    /// Opens a ring on an interface of the network namespace that the calling
    /// thread is in, where it stays, and lends its memory in this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(config: &RingConfig, regions: &Regions) -> Result<Self, OpenError> {
        Self::open_with(config, regions, |_| Ok(()))
    }

    /// Opens two that are filled in turn: frames come to one of them, and to the other when the block a
    /// quarter of the ring ahead is not the kernel's. [`close_to_kernel`](Self::close_to_kernel) makes
    /// it so. Who keeps blocks of one makes the kernel drop nothing, as long as those of the other
    /// go back.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_two(config: &RingConfig, regions: &Regions) -> Result<[Self; 2], OpenError> {
        let first = Self::open(config, regions)?;
        let group = fanout::begin_in_turn(first.shared.socket())?;
        // Until it has joined it would hear all that the first one hears.
        let second = Self::open_with(config, regions, be_deaf)?;
        fanout::join_in_turn(second.shared.socket(), group)?;
        second.hear(config)?;
        Ok([first, second])
    }

    /// Opens one for each of these tables, where it lends its memory: the addresses of a packet say
    /// which of them gets its frames (`PACKET_FANOUT`), so all fragments of a packet come to one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_members(config: &RingConfig, regions: &[Regions]) -> Result<Vec<Self>, OpenError> {
        let deaf = |regions| Self::open_with(config, regions, be_deaf);
        let mut rings: Vec<_> = regions.iter().map(deaf).collect::<Result<_, _>>()?;
        let sockets: Vec<_> = rings.iter().map(|ring| ring.shared.socket()).collect();
        let group = fanout::spread_deaf(&sockets, fanout::SpreadBy::Addresses)?;
        for ring in &mut rings {
            ring.group = Some(Arc::clone(&group));
            ring.hear(config)?;
        }
        Ok(rings)
    }

    /// From here on it hears what it shall.
    fn hear(&self, config: &RingConfig) -> Result<(), OpenError> {
        let program = program_of(config, self.station());
        attach_filter(self.as_raw_fd(), &program)
            .map_err(OpenError::system("attach the packet filter"))
    }

    /// The same, and what has to be done before it is bound.
    fn open_with(
        config: &RingConfig,
        regions: &Regions,
        before: impl FnOnce(RawFd) -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        let request = geometry(config)?;
        let protocol = match config.hearing {
            CapturePoint::Everything => ALL_PROTOCOLS,
            CapturePoint::Protocol(number) if number < LEAST_ETHERTYPE => {
                return Err(OpenError::NotAnEthertype(number));
            }
            CapturePoint::Protocol(number) => number,
        };
        // With no protocol it hears nothing until it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).map_err(why_no_socket)?;
        let interface = find_interface(&socket, &config.interface)?;
        let fd = socket.as_raw_fd();
        // Without it (before Linux 4.20) the filter tells own frames.
        let ignored = libc::c_int::from(config.overhear.is_none());
        let _ = set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, ignored);
        let program = program_of(config, interface.station);
        attach_filter(fd, &program).map_err(OpenError::system("attach the packet filter"))?;
        make_ring(fd, &request)?;
        let len = request.tp_block_size as usize * request.tp_block_nr as usize;
        let mapping = Mapping::shared_at(socket.as_fd(), 0, len)
            .map_err(OpenError::system("map the ring"))?;
        hear_more(fd, config, interface.index, interface.station)?;
        let size = request.tp_block_size as usize;
        let mut shared =
            RingMemory::new(socket, Arc::new(mapping), size, interface.station, regions)?;
        shared.takes_tags_away(config.filter.has_inner_tag());
        before(fd)?;
        bind(fd, &LinkAddress::interface(interface.index, protocol))
            .map_err(OpenError::system("bind to the interface"))?;
        Ok(Self {
            shared: Arc::new(shared),
            next: 0,
            is_closed: false,
            group: None,
            counted: Statistics::default(),
        })
    }
}

/// Which frames come.
fn program_of(config: &RingConfig, station: [u8; 6]) -> Vec<libc::sock_filter> {
    match config.overhear {
        None => config.filter.clone().only_received(station).program(),
        Some(most) => config.filter.program_for(most),
    }
}

/// Until it has joined a group, a socket would hear what is for others of it.
fn be_deaf(fd: RawFd) -> Result<(), OpenError> {
    attach_filter(fd, &NOTHING).map_err(OpenError::system("hear nothing for a moment"))
}

/// The program of a filter that lets nothing through.
const NOTHING: [libc::sock_filter; 1] =
    [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];

/// What the kernel is asked for, if it makes sense.
fn geometry(config: &RingConfig) -> Result<libc::tpacket_req3, OpenError> {
    let RingConfig { block_size, blocks, .. } = *config;
    let page = page_size() as u32;
    let fits = block_size.is_power_of_two()
        && (page..=LONGEST_BLOCK).contains(&block_size)
        && blocks >= 2
        && u64::from(block_size) * u64::from(blocks) <= MOST_BYTES;
    if !fits {
        return Err(OpenError::BadGeometry { block_size, blocks });
    }
    let retire = u32::try_from(config.retire.as_millis()).unwrap_or(u32::MAX);
    Ok(libc::tpacket_req3 {
        tp_block_size: block_size,
        tp_block_nr: blocks,
        tp_frame_size: FRAME_SIZE,
        tp_frame_nr: block_size / FRAME_SIZE * blocks,
        // Zero would leave it to the kernel, and more than so much it stores
        // in a shorter number (`tov_in_jiffies`).
        tp_retire_blk_tov: retire.clamp(1, 60_000),
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    })
}

fn make_ring(fd: RawFd, request: &libc::tpacket_req3) -> Result<(), OpenError> {
    let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
    set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)
        .map_err(OpenError::system("use a ring of blocks (TPACKET_V3, Linux 3.2)"))?;
    let len = size_of_val(request) as libc::socklen_t;
    let value = std::ptr::from_ref(request).cast();
    // SAFETY: numbers, which live through the call, and their length.
    let done = unsafe { libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, value, len) };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            OpenError::NoMemory { block_size: request.tp_block_size, blocks: request.tp_block_nr }
        }
        _ => OpenError::system("make the ring")(error),
    })
}

/// Lets the interface take what the filter names and it would not by itself.
fn hear_more(
    fd: RawFd,
    config: &RingConfig,
    index: u32,
    interface: [u8; 6],
) -> Result<(), OpenError> {
    let other = |station: &[u8; 6]| *station != interface && station[0] & 1 == 0;
    if let Some(station) = config.filter.only_station().filter(other) {
        join_interface(fd, index, Some(station))
            .map_err(OpenError::system("let the interface take frames to another station"))?;
    }
    if config.filter.takes_groups() {
        join_interface(fd, index, None)
            .map_err(OpenError::system("let the interface take frames to all groups"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Filter;
    use std::time::Duration;

    #[test]
    fn rings_that_cannot_be_are_refused() {
        let config = RingConfig::new("lo", Filter::any());
        assert!(geometry(&config).is_ok());
        for (block_size, blocks) in
            [(0, 4), (2048, 4), (100_000, 4), (8 << 20, 4), (4096, 1), (4096, 0), (4 << 20, 257)]
        {
            let refused = geometry(&RingConfig { block_size, blocks, ..config.clone() });
            assert!(matches!(refused, Err(OpenError::BadGeometry { .. })), "{block_size} {blocks}");
        }
        for (retire, told) in [(Duration::ZERO, 1), (Duration::MAX, 60_000)] {
            let request = geometry(&RingConfig { retire, ..config.clone() }).unwrap();
            assert_eq!(request.tp_retire_blk_tov, told);
        }
    }
}
