//! An adapter that knows nothing but descriptors, as the paper's, in memory: a trace, simulated
//! or recorded, goes in, and the engine's receiver says how many packets were guessed right.

use std::time::Duration;

use anyhow::{Result, ensure};
use landfall_placement::{Area, Instant, RegionId, Seed, Span};
use serde::Serialize;
use spec_defrag::{
    Areas, Body, Buffers, Config, ConfigError, Descriptor, HEAD_SLOT, LARGE, LEAD, Memory,
    Prediction, Receiver, Stats,
};

use super::trace::Arrival;

/// What an adapter is set up for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Descriptors of a list.
    pub(crate) list: u16,
    /// The length of a page.
    pub(crate) page: u32,
    /// The longest frame.
    pub(crate) frame_max: u32,
}

impl Setup {
    /// That of the paper: four pages in three pieces.
    const PAPER: Self = Self { list: 12, page: 4096, frame_max: Ram::FRAME_MAX };
}

/// When no frame has come for so long, the driver looks at those that have: longer
/// than a frame takes on the cable, shorter than from one packet to the next.
pub(crate) const SILENCE: Duration = Duration::from_micros(20);

/// What became of the packets of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Score {
    /// Packets that were cut and came whole.
    pub(crate) packets: u64,
    /// Those that lay in their page when the driver looked.
    pub(crate) successful: u64,
    /// Bytes of payload that were moved.
    pub(crate) copied: u64,
}

impl Score {
    /// Packets that took the conventional way.
    pub(crate) const fn failed(&self) -> u64 {
        self.packets - self.successful
    }

    /// The share of packets that were guessed right.
    pub(crate) fn rate(&self) -> f64 {
        self.successful as f64 / self.packets.max(1) as f64
    }
}

/// The adapter, the driver and the engine.
#[derive(Debug)]
struct Adapter {
    receiver: Receiver,
    ram: Ram,
    /// The list, up to the first packet that it completes.
    list: Vec<Descriptor>,
    /// Lengths of the frames that have landed.
    lens: Vec<u32>,
    page: u32,
    last: Instant,
}

impl Adapter {
    fn new(setup: Setup, prediction: Prediction) -> Result<Self> {
        let (ram, receiver) = Ram::for_setup(setup, prediction, [7; 32])?;
        let (list, lens) = (Vec::new(), Vec::new());
        Ok(Self { receiver, ram, list, lens, page: setup.page, last: Instant::ZERO })
    }

    /// A frame arrives. When none came for a while before it, the driver has looked.
    fn arrive(&mut self, at: Instant, frame: &[u8]) {
        if at.since(self.last) > SILENCE {
            self.interrupt(self.last + SILENCE);
        }
        self.last = at;
        self.receive(at, frame);
    }

    /// What became of all.
    fn end(mut self) -> Stats {
        self.interrupt(self.last + SILENCE);
        *self.receiver.stats()
    }

    /// The adapter raises an interrupt when it has written the last piece of a packet,
    /// so this is how long a list is.
    fn load(&mut self) {
        let page = self.page;
        let ends_packet = |descriptor: &Descriptor| {
            let place = descriptor.place;
            place.len == 0
                || (place.offset + u64::from(place.len)).is_multiple_of((LEAD + page).into())
        };
        let posted = self.receiver.post();
        let len = posted.iter().position(ends_packet).map_or(posted.len(), |last| last + 1);
        self.list.clear();
        self.list.extend_from_slice(&posted[..len]);
    }

    fn receive(&mut self, now: Instant, frame: &[u8]) {
        if self.list.is_empty() {
            self.load();
        }
        let slot = self.lens.len();
        if let Some(descriptor) = self.list.get(slot) {
            self.ram.land(slot, descriptor, frame);
            self.lens.push(frame.len() as u32);
        }
        if self.lens.len() >= self.list.len() {
            self.interrupt(now);
        }
    }

    /// The driver looks at what has landed, and loads the list again.
    fn interrupt(&mut self, now: Instant) {
        if self.lens.is_empty() {
            return;
        }
        self.receiver.settle(now, &self.lens, &mut self.ram);
        self.lens.clear();
        self.list.clear();
        while let Some(packet) = self.receiver.poll_packet() {
            if let Body::Buffer(buffer, _) = packet.body {
                self.receiver.release(buffer);
            }
        }
        if self.receiver.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            self.receiver.handle_timeout(now, &mut self.ram);
        }
    }
}

/// Lets a trace arrive at a receiver that guesses in some way.
pub(crate) fn score<'a>(
    arrivals: impl IntoIterator<Item = &'a Arrival>,
    prediction: Prediction,
) -> Result<Score> {
    let mut adapter = Adapter::new(Setup::PAPER, prediction)?;
    let (mut packets, mut frames) = (0, 0);
    for arrival in arrivals {
        frames += 1;
        packets += u64::from(arrival.ends_packet());
        adapter.arrive(arrival.at, &arrival.bytes());
    }
    let stats = adapter.end();
    let joined = stats.speculated + stats.conventional;
    ensure!(stats.frames == frames, "{} of {frames} frames found a descriptor", stats.frames);
    ensure!(joined == packets, "{joined} of {packets} packets were joined: {stats:?}");
    Ok(Score { packets, successful: stats.speculated, copied: stats.bytes_copied })
}

/// The same for frames that were recorded, of whose packets some never became whole.
pub(crate) fn score_recorded(
    frames: impl IntoIterator<Item = (Instant, Vec<u8>)>,
    setup: Setup,
    prediction: Prediction,
) -> Result<Score> {
    let mut adapter = Adapter::new(setup, prediction)?;
    frames.into_iter().for_each(|(at, frame)| adapter.arrive(at, &frame));
    let stats = adapter.end();
    let packets = stats.speculated + stats.conventional;
    Ok(Score { packets, successful: stats.speculated, copied: stats.bytes_copied })
}

// Memory that an adapter writes frames into, as descriptors tell it, and that the
// engine gives names to.

/// Regions by number: what a descriptor or the engine names.
#[derive(Debug)]
pub(crate) struct Ram {
    regions: [Vec<u8>; 4],
    /// How far each head slot was filled.
    filled: Vec<usize>,
    frame_max: u32,
}

/// At least this many pages, and more for long lists.
const PAGES: u32 = 256;
const LARGE_BUFFERS: u32 = 4;
const HEADS: usize = 0;
const SPILL: usize = 1;
const PAGE_POOL: usize = 2;
const LARGE_POOL: usize = 3;

impl Ram {
    /// The longest frame of an Ethernet, and a tag.
    pub(crate) const FRAME_MAX: u32 = 1518;

    fn new(Setup { list, page, frame_max }: Setup) -> Self {
        let slots = usize::from(list);
        let heads = vec![0; slots * HEAD_SLOT as usize];
        let spill = vec![0; slots * frame_max as usize];
        let pages = PAGES.max(4 * u32::from(list));
        let pages = vec![0; Buffers::bytes_needed(pages, page) as usize];
        let large = vec![0; Buffers::bytes_needed(LARGE_BUFFERS, LARGE) as usize];
        Self { regions: [heads, spill, pages, large], filled: vec![0; slots], frame_max }
    }

    /// A receiver, and its memory: for lists of this many descriptors, and pages of that
    /// length.
    pub(crate) fn with_receiver(
        list: u16,
        page: u32,
        prediction: Prediction,
        seed: Seed,
    ) -> Result<(Self, Receiver), ConfigError> {
        Self::for_setup(Setup { list, page, frame_max: Self::FRAME_MAX }, prediction, seed)
    }

    fn for_setup(
        setup: Setup,
        prediction: Prediction,
        seed: Seed,
    ) -> Result<(Self, Receiver), ConfigError> {
        let config = Config {
            page_len: setup.page,
            burst: setup.list,
            frame_max: setup.frame_max,
            prediction,
            ..Config::default()
        };
        let ram = Self::new(setup);
        let receiver = Receiver::new(config, ram.areas(), seed)?;
        Ok((ram, receiver))
    }

    /// What a receiver is told of it.
    fn areas(&self) -> Areas {
        Areas {
            pages: self.area(PAGE_POOL),
            large: self.area(LARGE_POOL),
            heads: self.area(HEADS),
            spill: self.area(SPILL),
        }
    }

    /// What lies there.
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        let (region, range) = Self::at(span);
        &self.regions[region][range]
    }

    fn area(&self, region: usize) -> Area {
        let len = self.regions[region].len() as u64;
        Area::new(RegionId::new(region as u32, 1), 0, len)
    }

    fn at(span: Span) -> (usize, std::ops::Range<usize>) {
        let start = span.offset as usize;
        (span.region.index as usize, start..start + span.len as usize)
    }

    /// What the adapter does: the frame goes where the descriptor says.
    pub(crate) fn land(&mut self, slot: usize, descriptor: &Descriptor, frame: &[u8]) {
        let (head, rest) = frame.split_at(frame.len().min(descriptor.head_len.into()));
        let (placed, spilt) = rest.split_at(rest.len().min(descriptor.place.len as usize));
        let head_at = slot * HEAD_SLOT as usize;
        self.regions[HEADS][head_at..head_at + head.len()].copy_from_slice(head);
        self.filled[slot] = head.len();
        let (region, place) = Self::at(descriptor.place);
        self.regions[region][place][..placed.len()].copy_from_slice(placed);
        let spill_at = slot * self.frame_max as usize;
        self.regions[SPILL][spill_at..spill_at + spilt.len()].copy_from_slice(spilt);
    }
}

impl Memory for Ram {
    fn head(&self, slot: u16) -> &[u8] {
        let (slot, at) = (usize::from(slot), usize::from(slot) * HEAD_SLOT as usize);
        &self.regions[HEADS][at..at + self.filled[slot]]
    }

    fn copy(&mut self, from: Span, to: Span) {
        let ((from, source), (to, target)) = (Self::at(from), Self::at(to));
        if from == to {
            self.regions[from].copy_within(source, target.start);
        } else if let Ok([from, to]) = self.regions.get_disjoint_mut([from, to]) {
            to[target].copy_from_slice(&from[source]);
        }
    }

    fn read(&self, from: Span, into: &mut [u8]) {
        into.copy_from_slice(self.bytes(from));
    }
}
