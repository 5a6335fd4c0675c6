//! The adapter: joins what the other modules own into one engine.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `engine` | the contract with drivers; what goes into the next frame |
//! | `link_table` | what belongs to one link, and what a frame under way has in it |
//! | `arrive` | where the bytes of a frame belong |
//! | `land` | what happens once they are there |
//! | `updates` | links that come and go, what has arrived at the other side and what is to be done then |
//! | `windows` | memory of others that this host may touch |
//! | `calls` | what the user asks for |
//! | `multicast` | groups over networks that multicast |
//! | `native` | a native link below all that, in place of frames and networks |
//!
//! # What is in which order
//!
//! Over one link, what the program writes, reads and asks takes effect in the
//! order of its calls ([`write`](Nic::write), [`write_word`](Nic::write_word),
//! [`write_from`](Nic::write_from), [`read`](Nic::read), [`change`](Nic::change),
//! messages of endpoints). So do the chains of DMA requests of one endpoint.
//! Between the two there is no order: the DMA engine takes its turns while the
//! program goes on. Who needs one puts the word that says "it is there" into the
//! chain, waits for the chain, or for a [`barrier`](Nic::barrier), which is
//! behind both.
//!
//! A read sees all that was written before it over its link, and maybe some of
//! what was written after it while it was under way.

pub(crate) mod arrive;
mod calls;
mod engine;
mod land;
mod link_table;
mod multicast;
mod native;
pub(crate) mod updates;
mod windows;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{ConfigError, PathId, PathLimits, Random, Refusals, Seed};
use landfall_tables::HashSecret;

use crate::address::{ApertureId, HostId, Key, LinkId, TripwireId};
use crate::config::Config;
use crate::endpoint::Endpoints;
use crate::event::Event;
use crate::events::EventQueue;
use crate::link::Links;
use crate::memory::Memory;
use crate::transfer::dma::Dma;
use crate::transfer::load::Writes;
use crate::transfer::reads::{Operations, Reads};
use crate::tripwire::{Place, Touched, Tripwires};
use crate::wire::frame::{HEADER_LEN, MAX_PARAMETERS};

use arrive::{FrameOwner, PendingDeposit};
use link_table::{Chains, LinkTable};
use multicast::Multicast;
use native::Native;
use windows::Windows;

pub use calls::{DmaRequest, GroupWrite, Stats};
pub(crate) use link_table::PacketEffect;
pub(crate) use native::MOST_COPIED;

/// At most this many reads, and this many operations on words, are under way on one
/// link. The other side has room for the answers to all of them, whatever else
/// it sends, so that questions in both directions cannot wait for each other.
pub(crate) const MOST_ASKED: usize = 256;

/// At most this many exceptions wait to be sent over one link. Further ones are
/// counted: who writes where it may not need not be told more often than it
/// listens.
pub(crate) const MOST_EXCEPTIONS: usize = 16;

/// The smallest unit of a path that is of use: a header, an entry and the
/// longest parameters of a command.
pub(crate) const LEAST_UNIT: usize = HEADER_LEN + crate::wire::Entry::LEN + MAX_PARAMETERS;

/// The network interface of one host, as a state machine without I/O.
#[derive(Debug)]
pub struct Nic {
    config: Config,
    host: HostId,
    random: Random,
    paths: Vec<(PathId, PathLimits)>,
    links: Links,
    lines: LinkTable,
    memory: Memory,
    tripwires: Tripwires,
    windows: Windows,
    reads: Reads,
    operations: Operations,
    writes: Writes,
    barriers_asked: u64,
    dma: Dma,
    chains: Chains,
    endpoints: Endpoints,
    multicast: Multicast,
    events: EventQueue,
    /// Tripwires whose event found no room; empty between calls.
    untold: Vec<TripwireId>,
    /// Links and streams that may have kept frames whose turn has come.
    deposits: VecDeque<FrameOwner>,
    depositing: Option<PendingDeposit>,
    deposits_made: u32,
    /// Links whose barriers may be reached; empty between calls.
    marked: Vec<LinkId>,
    /// Where the host is at a native link, and at no network.
    native: Option<Box<Native>>,
    refusals: Refusals,
    stats: Stats,
}

impl Nic {
    /// The adapter of a host. The seed makes its keys: anyone who knows it can touch
    /// all memory.
    ///
    /// # Errors
    /// A value of the configuration is out of its range.
    pub fn new(config: Config, host: HostId, seed: Seed) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut random = Random::new(seed);
        // At a native link, what it does not need draws elsewhere.
        let mut aside = config.native.map(|_| Random::new(seed.map(|byte| !byte)));
        let links = Links::new(&config, host, aside.as_mut().unwrap_or(&mut random));
        let memory = Memory::new(host, &config, &mut random);
        let tripwires = Tripwires::new(&config, &mut random);
        let native = config.native.map(|it| Box::new(Native::new(it, host, random.next_u32())));
        let others = aside.as_mut().unwrap_or(&mut random);
        let secret = HashSecret::new(others.next_u64(), others.next_u64());
        let session = others.next_u64();
        let endpoints = Endpoints::new(config.endpoints, config.messages, secret, session);
        let chains = config.endpoints.saturating_mul(config.dma_requests);
        let others = [config.links, config.reads, config.operations, config.writes, chains];
        let results = others.into_iter().fold(MOST_ASKED, usize::saturating_add);
        Ok(Self {
            host,
            random,
            paths: Vec::new(),
            links,
            lines: LinkTable::default(),
            memory,
            tripwires,
            windows: Windows::new(config.windows),
            reads: Reads::new(config.reads),
            operations: Operations::new(config.operations),
            writes: Writes::new(config.writes),
            barriers_asked: 0,
            dma: Dma::new(config.endpoints, config.dma_requests, config.dma_turn),
            chains: Chains::default(),
            endpoints,
            multicast: Multicast::new(config.groups),
            events: EventQueue::new(config.events, results),
            untold: Vec::new(),
            deposits: VecDeque::new(),
            depositing: None,
            deposits_made: 0,
            marked: Vec::new(),
            native,
            refusals: Refusals::new(),
            stats: Stats::default(),
            config,
        })
    }

    /// Which host this is.
    #[must_use]
    pub const fn host(&self) -> HostId {
        self.host
    }

    /// A proof that only who was asked can repeat.
    fn nonce(&mut self) -> Key {
        Key::from_bits(self.random.next_u64())
    }

    /// Bytes of an aperture were touched by another host.
    fn touched(&mut self, aperture: ApertureId, at: u64, len: u32, how: crate::Access) {
        // It may have been revoked while the bytes were under way, and its slot
        // be another aperture's.
        let slot = aperture.index as u16;
        if self.memory.id_of(slot) == Some(aperture) {
            self.touch(Place::Local(slot), at, len, how);
        }
    }

    #[inline]
    fn touch(&mut self, place: Place, at: u64, len: u32, how: crate::Access) {
        let touched = Touched::new(place, at, at.saturating_add(u64::from(len)), how);
        self.touch_all(touched.as_slice());
    }

    /// Fires what watches any of these bytes, and tells of it.
    fn touch_all(&mut self, touched: &[Touched]) {
        let Self { tripwires, events, untold, native, .. } = self;
        let mut mirror = native.as_mut().and_then(|native| native.mirror.as_mut());
        tripwires.touch_all(touched, &mut |firing| {
            let tripwire = firing.tripwire;
            if let Some(mirror) = &mut mirror {
                mirror.fired(tripwire.index);
            }
            if firing.tells && !events.push(Event::Tripwire { tripwire }) {
                untold.push(tripwire);
            }
        });
        if let Some(mirror) = mirror {
            mirror.settle_fired(tripwires);
        }
        // Nobody will read that event: the next firing is told again.
        while let Some(tripwire) = self.untold.pop() {
            self.tripwires.event_taken(tripwire);
        }
    }
}
