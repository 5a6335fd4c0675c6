//! The memory of a host: pages, head slots, spill slots, buffers for whole frames. It
//! notices anyone who writes to what was delivered.

use landfall_placement::{Area, Instant, RegionId, Span};
use landfall_simnet::memory::{Memory, MemoryError, Violation, Writer};
use spec_defrag::{Areas, Buffers, Config, Descriptor, HEAD_SLOT, LARGE};

use super::loader::HostRam;
use crate::firmware::HostMemory;

/// How much memory there is, beside what the length of a list says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Pages.
    pub pages: u32,
    /// Buffers for the longest packet.
    pub large: u32,
    /// Buffers for whole frames.
    pub frames: u16,
}

/// Of the adapter and of the user together.
const MOST_REGIONS: usize = 1024;

/// The memory of a host with such an adapter.
#[derive(Debug)]
pub struct Ram {
    memory: Memory,
    areas: Areas,
    /// Buffers for whole frames, one behind the other.
    frames: RegionId,
    frame_max: u32,
    frame_count: u16,
    /// How far each head slot was filled.
    filled: Vec<u16>,
    now: Instant,
    /// The first thing that went wrong.
    wrong: Option<String>,
}

impl Ram {
    /// Memory for a receiver that is configured so.
    ///
    /// # Errors
    /// [`MemoryError`] of the memory beneath.
    pub fn new(config: &Config, room: &Room) -> Result<Self, MemoryError> {
        let mut memory = Memory::new(MOST_REGIONS);
        let mut area = |len: u64| {
            let region = memory.lend(vec![0; len as usize])?;
            Ok::<_, MemoryError>(Area::new(region, 0, len))
        };
        let slots = u64::from(config.burst);
        let areas = Areas {
            pages: area(Buffers::bytes_needed(room.pages, config.page_len))?,
            large: area(Buffers::bytes_needed(room.large, LARGE))?,
            heads: area(slots * u64::from(HEAD_SLOT))?,
            spill: area(slots * u64::from(config.frame_max))?,
        };
        let frames = area(u64::from(room.frames) * u64::from(config.frame_max))?.region;
        Ok(Self {
            memory,
            areas,
            frames,
            frame_max: config.frame_max,
            frame_count: room.frames,
            filled: vec![0; usize::from(config.burst)],
            now: Instant::ZERO,
            wrong: None,
        })
    }

    /// What the engine is told of it.
    #[must_use]
    pub const fn areas(&self) -> Areas {
        self.areas
    }

    /// What time it is, for the list of who wrote when.
    pub const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// How many such buffers there are.
    #[must_use]
    pub const fn frame_buffers(&self) -> u16 {
        self.frame_count
    }

    /// The bytes of a span; none where there is no such memory.
    #[must_use]
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.memory.read(span).unwrap_or(&[])
    }

    /// All pages and large buffers, as they are now.
    pub fn contents(&self) -> impl Iterator<Item = &[u8]> {
        let of_packets = [self.areas.pages, self.areas.large];
        of_packets.into_iter().filter_map(|area| self.memory.bytes(area.region).ok())
    }

    /// These bytes were delivered: nobody writes them until they are released.
    pub fn freeze(&mut self, span: Span) {
        let done = self.memory.freeze(span);
        self.note(done, "deliver", span);
    }

    /// They are needed no longer.
    pub fn thaw(&mut self, span: Span) {
        let done = self.memory.thaw(span);
        self.note(done, "release", span);
    }

    /// Anyone who wrote to delivered bytes first.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        self.memory.violation()
    }

    /// The first thing that was asked for and is no memory.
    #[must_use]
    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    /// Memory of the user: a packet to send lies there.
    ///
    /// # Errors
    /// [`MemoryError::Full`].
    pub fn lend(&mut self, bytes: Vec<u8>) -> Result<RegionId, MemoryError> {
        self.memory.lend(bytes)
    }

    fn note(&mut self, done: Result<(), MemoryError>, what: &str, span: Span) {
        if let Err(error) = done {
            self.wrong.get_or_insert_with(|| format!("{what} {span}: {error}"));
        }
    }
}

impl HostMemory for Ram {
    fn is_writable(&self, span: Span) -> bool {
        self.memory.check(span).is_ok()
    }

    fn write(&mut self, span: Span, bytes: &[u8]) -> bool {
        span.len as usize == bytes.len()
            && self.memory.write(self.now, Writer::Guess, span, bytes).is_ok()
    }

    fn read(&self, span: Span, into: &mut [u8]) -> bool {
        match self.memory.read(span) {
            Ok(bytes) if bytes.len() == into.len() => {
                into.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }
}

impl HostRam for Ram {
    fn buffers(&self, n: u16, descriptor: &Descriptor) -> [Span; 3] {
        let (n, head_len) = (u64::from(n), u32::from(descriptor.head_len));
        let head = self.areas.heads.region.span(n * u64::from(HEAD_SLOT), head_len);
        let spill = self.areas.spill.region.span(n * u64::from(self.frame_max), self.frame_max);
        [head, descriptor.place, spill]
    }

    fn set_head(&mut self, slot: u16, len: u16) {
        if let Some(filled) = self.filled.get_mut(usize::from(slot)) {
            *filled = len;
        }
    }

    fn frame_buffer(&self, nth: u16) -> Span {
        self.frames.span(u64::from(nth) * u64::from(self.frame_max), self.frame_max)
    }
}

impl spec_defrag::Memory for Ram {
    fn head(&self, slot: u16) -> &[u8] {
        let filled = self.filled.get(usize::from(slot)).copied().unwrap_or(0);
        let at = u64::from(slot) * u64::from(HEAD_SLOT);
        self.bytes(self.areas.heads.region.span(at, filled.into()))
    }

    fn copy(&mut self, from: Span, to: Span) {
        let bytes = self.bytes(from).to_vec();
        let done = if bytes.len() == to.len as usize {
            self.memory.write(self.now, Writer::Placed, to, &bytes)
        } else {
            Err(MemoryError::OutOfBounds)
        };
        self.note(done, "copy to", to);
    }

    fn read(&self, from: Span, into: &mut [u8]) {
        let bytes = self.bytes(from);
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
    }
}
