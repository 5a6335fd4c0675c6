//! Memory that an adapter writes frames into, as descriptors tell it, and that the
//! engine gives names to.

use landfall_placement::{Area, RegionId, Seed, Span};
use spec_defrag::{
    Areas, Buffers, Config, ConfigError, Descriptor, HEAD_SLOT, LARGE, Memory, Prediction, Receiver,
};

/// Regions by number: what a descriptor or the engine names.
#[derive(Debug)]
pub(crate) struct Ram {
    regions: [Vec<u8>; 4],
    /// How far each head slot was filled.
    filled: Vec<usize>,
}

const PAGES: u32 = 256;
const LARGE_BUFFERS: u32 = 4;
const HEADS: usize = 0;
const SPILL: usize = 1;
const PAGE_POOL: usize = 2;
const LARGE_POOL: usize = 3;

impl Ram {
    /// The longest frame of an Ethernet, and a tag.
    pub(crate) const FRAME_MAX: u32 = 1518;

    /// For lists of so many descriptors, and pages of that length.
    fn new(list: u16, page: u32) -> Self {
        let slots = usize::from(list);
        let heads = vec![0; slots * HEAD_SLOT as usize];
        let spill = vec![0; slots * Self::FRAME_MAX as usize];
        let pages = vec![0; Buffers::bytes_needed(PAGES, page) as usize];
        let large = vec![0; Buffers::bytes_needed(LARGE_BUFFERS, LARGE) as usize];
        Self { regions: [heads, spill, pages, large], filled: vec![0; slots] }
    }

    /// A receiver, and its memory: for lists of so many descriptors, and pages of that
    /// length.
    pub(crate) fn with_receiver(
        list: u16,
        page: u32,
        prediction: Prediction,
        seed: Seed,
    ) -> Result<(Self, Receiver), ConfigError> {
        let config = Config {
            page_len: page,
            burst: list,
            frame_max: Self::FRAME_MAX,
            prediction,
            ..Config::default()
        };
        let ram = Self::new(list, page);
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
        let spill_at = slot * Self::FRAME_MAX as usize;
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
