//! A receiver of fragments over plain memory: frames lie in a large ring, as a
//! device left them, and are joined in a large pool of pages. Both are far beyond
//! the caches, so that a copy costs what it costs in a machine.

use landfall_placement::{Area, Instant, RegionId, Span};
use spec_defrag::cut::{Cutter, Df};
use spec_defrag::{
    Areas, Body, Buffers, Config, HEAD_SLOT, Lend, MappedFrame, Memory, Prediction, Receiver,
};

/// This many bytes of the ring are for one frame.
const SLOT: usize = 2048;
/// This many packets lie in the ring.
const PACKETS: usize = 8192;
const PAGES: u32 = 12_288;
const RING: RegionId = RegionId::new(0, 1);
const POOL: RegionId = RegionId::new(1, 1);
const SCRATCH: RegionId = RegionId::new(2, 1);
/// This many bytes of a frame are shown.
const HEAD: usize = 64;
/// As few a list may have as the ring of frames is a multiple of.
const BURST: usize = 96;

/// A frame of the ring.
#[derive(Clone, Copy, Debug)]
struct Slot {
    at: usize,
    len: u32,
}

/// The memory of a run.
#[derive(Debug)]
struct Arenas {
    ring: Vec<u8>,
    /// The first bytes of each frame once more: descriptors keep them apart.
    heads: Vec<u8>,
    pool: Vec<u8>,
    /// The frames of the burst under way.
    first: usize,
    slots: Vec<Slot>,
}

impl Arenas {
    fn range(span: Span) -> core::ops::Range<usize> {
        span.offset as usize..span.offset as usize + span.len as usize
    }
}

impl Memory for Arenas {
    #[inline]
    fn head(&self, slot: u16) -> &[u8] {
        let at = (self.first + usize::from(slot)) * HEAD;
        &self.heads[at..at + HEAD]
    }

    #[inline]
    fn copy(&mut self, from: Span, to: Span) {
        let to = Self::range(to);
        if from.region == POOL {
            self.pool.copy_within(Self::range(from), to.start);
        } else if from.region == RING {
            self.pool[to].copy_from_slice(&self.ring[Self::range(from)]);
        }
    }

    fn read(&self, from: Span, into: &mut [u8]) {
        if from.region == RING {
            into.copy_from_slice(&self.ring[Self::range(from)]);
        }
    }
}

/// How the frames of a run are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// They landed behind descriptors, where a device put them.
    Speculative,
    /// They are copied from where they lie.
    Conventional,
    /// They are lent as they lie.
    Lists,
}

/// A receiver, and frames for it that come again and again.
#[derive(Debug)]
pub struct DefragPair {
    arenas: Arenas,
    receiver: Receiver,
    join: Join,
    lens: Vec<u32>,
    now: Instant,
}

impl DefragPair {
    /// Packets with pages of `page` bytes, of this many flows that take turns.
    #[must_use]
    pub fn new(join: Join, page: u32, flows: usize) -> Self {
        let (ring, slots) = frames(page, flows);
        let heads = slots.iter().flat_map(|slot| &ring[slot.at..slot.at + HEAD]).copied().collect();
        let stride = Buffers::bytes_needed(1, page);
        let pages = u64::from(PAGES) * 8192 / stride;
        let pages_area = Area::new(POOL, 0, pages * stride);
        let large = Area::new(POOL, pages_area.len, Buffers::bytes_needed(8, spec_defrag::LARGE));
        let config = Config {
            page_len: page,
            burst: BURST as u16,
            prediction: match join {
                Join::Speculative => Prediction::default(),
                _ => Prediction::Off,
            },
            lend: if join == Join::Lists { Lend::List } else { Lend::Copy },
            ..Config::default()
        };
        let scratch = BURST as u64 * u64::from(HEAD_SLOT);
        let areas = Areas {
            pages: pages_area,
            large,
            heads: Area::new(SCRATCH, 0, scratch),
            spill: Area::new(SCRATCH, scratch, BURST as u64 * u64::from(config.frame_max)),
        };
        let receiver = Receiver::new(config, areas, [7; 32]).expect("areas that fit");
        let pool = vec![1; (large.offset + large.len) as usize];
        Self {
            arenas: Arenas { ring, heads, pool, first: 0, slots },
            receiver,
            join,
            lens: Vec::with_capacity(BURST),
            now: Instant::ZERO,
        }
    }

    /// Joins the frames of one burst. Gives how many there were, and how many bytes
    /// came out.
    pub fn burst(&mut self) -> (usize, u64) {
        let Self { arenas, receiver, lens, now, .. } = self;
        let rest = arenas.slots.len() - arenas.first;
        let count = if self.join == Join::Speculative {
            let count = receiver.post().len().min(rest).min(BURST);
            lens.clear();
            lens.extend(arenas.slots[arenas.first..arenas.first + count].iter().map(|s| s.len));
            receiver.settle(*now, lens, arenas);
            count
        } else {
            let count = rest.min(BURST);
            let slots = &arenas.slots[arenas.first..arenas.first + count];
            // The heads are read once from where they lie, as from a ring.
            let mut heads = [[0; HEAD]; BURST];
            for (head, slot) in heads.iter_mut().zip(slots) {
                head.copy_from_slice(&arenas.ring[slot.at..slot.at + HEAD]);
            }
            let frames: [MappedFrame<'_>; BURST] = core::array::from_fn(|n| {
                let Slot { at, len } = slots[n.min(count - 1)];
                MappedFrame { at: RING.span(at as u64, len), head: &heads[n] }
            });
            receiver.take(*now, &frames[..count], arenas);
            count
        };
        arenas.first = (arenas.first + count) % arenas.slots.len();
        let mut bytes = 0;
        while let Some(packet) = receiver.poll_packet() {
            bytes += u64::from(packet.body_len);
            match packet.body {
                Body::Buffer(buffer, _) => _ = receiver.release(buffer),
                Body::Lent(list) => _ = receiver.release_list(list),
            }
        }
        (count, bytes)
    }

    /// The bare loop: the payloads of one burst are copied to where they belong, by
    /// anyone who knows it already.
    pub fn copy_only(&mut self, page: u32) -> usize {
        let count = (self.arenas.slots.len() - self.arenas.first).min(BURST);
        let pages = self.arenas.pool.len() / 8192 - 64;
        for n in 0..count {
            let at = self.arenas.first + n;
            let per_packet = (page as usize + 8).div_ceil(1480);
            let to = (at / per_packet % pages) * 8192 + at % per_packet * 1480;
            let Slot { at, len } = self.arenas.slots[at];
            let len = len as usize - 34;
            let payload = &self.arenas.ring[at + 34..at + 34 + len];
            self.arenas.pool[to..to + len].copy_from_slice(payload);
        }
        self.arenas.first = (self.arenas.first + count) % self.arenas.slots.len();
        count
    }

    /// How many packets were joined without a copy.
    #[must_use]
    pub fn joined_in_place(&self) -> u64 {
        self.receiver.stats().speculated + self.receiver.stats().lent
    }
}

/// A ring with the fragments of UDP packets from this many senders, in turns.
fn frames(page: u32, flows: usize) -> (Vec<u8>, Vec<Slot>) {
    let per_packet = (page as usize + 8).div_ceil(1480);
    let packets = (PACKETS * 3 / per_packet).next_multiple_of(flows);
    let mut ring = vec![7; packets * per_packet * SLOT];
    let mut slots = Vec::new();
    let mut cutter = Cutter::new(Df::Refuse, [1; 32]);
    for packet in 0..packets {
        let head = udp_head(page, (packet % flows) as u32, (packet / flows) as u16);
        let cut = cutter.cut(&head, RING.span(0, page), 1500).expect("a packet that can be cut");
        for piece in cut {
            let at = slots.len() * SLOT;
            ring[at..at + piece.head.len()].copy_from_slice(&piece.head);
            slots.push(Slot { at, len: piece.head.len() as u32 + piece.payload.len });
        }
    }
    (ring, slots)
}

/// Ethernet, IPv4 and UDP.
fn udp_head(page: u32, flow: u32, id: u16) -> Vec<u8> {
    let mut head = vec![2; 12];
    head.extend([0x08, 0x00, 0x45, 0]);
    head.extend(((28 + page) as u16).to_be_bytes());
    head.extend(id.to_be_bytes());
    head.extend([0, 0, 64, 17, 0, 0]);
    head.extend((0x0a00_0000 + flow).to_be_bytes());
    head.extend([10, 99, 0, 1]);
    let sum = landfall_placement::checksum::checksum(&head[14..34]);
    head[24..26].copy_from_slice(&sum.to_be_bytes());
    head.extend([0x12, 0x34, 0x56, 0x78]);
    head.extend(((8 + page) as u16).to_be_bytes());
    head.extend([0, 0]);
    head
}
