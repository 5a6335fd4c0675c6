//! Memory for tests: it watches what is written where.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::ops::Range;

use landfall_placement::{Area, RegionId, Span};

use crate::buffers::{Buffers, LARGE};
use crate::memory::{Descriptor, HEAD_SLOT, Memory};

/// The longest frame: a spill slot has room for all of it.
pub const LONGEST_FRAME: u32 = 65_535 + 18;

/// What no packet is made of: lies in memory that holds nothing.
const FRESH: u8 = 0xee;

/// The parts of the memory, by the index of their region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Heads,
    Spill,
    Pages,
    Large,
    /// Frames that lie somewhere already.
    Frames,
}

impl Part {
    const ALL: [Self; 5] = [Self::Heads, Self::Spill, Self::Pages, Self::Large, Self::Frames];

    const fn region(self) -> RegionId {
        RegionId::new(self as u32 + 1, 1)
    }
}

/// How much memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Descriptors that are posted at once.
    pub slots: u16,
    /// Pages, and how long each is.
    pub pages: u32,
    /// How long a page is.
    pub page_len: u32,
    /// Buffers for the longest packet.
    pub large: u32,
    /// Bytes for frames that lie somewhere already.
    pub frames: usize,
}

/// A head is one slice, so it lies in one chunk.
const _: () = assert!(CHUNK.is_multiple_of(HEAD_SLOT as usize));

/// Regions as vectors, and the list of what was delivered: bytes that nobody may
/// write until they are released (invariant 1).
#[derive(Clone, Debug)]
pub struct TestMemory {
    parts: Vec<Sparse>,
    /// How far each head slot and each spill slot was filled by the last burst.
    filled: Vec<(usize, usize)>,
    /// What was delivered, and the bytes that were there then.
    delivered: Vec<(Span, Vec<u8>)>,
    wrong: Vec<String>,
    /// Bytes that were copied.
    pub copied: u64,
}

impl TestMemory {
    /// Memory of these sizes.
    #[must_use]
    pub fn new(sizes: &Sizes) -> Self {
        let slots = usize::from(sizes.slots);
        let lens = Part::ALL.map(|part| match part {
            Part::Heads => slots * HEAD_SLOT as usize,
            Part::Spill => slots * LONGEST_FRAME as usize,
            Part::Pages => Buffers::bytes_needed(sizes.pages, sizes.page_len) as usize,
            Part::Large => Buffers::bytes_needed(sizes.large, LARGE) as usize,
            Part::Frames => sizes.frames,
        });
        Self {
            parts: lens.map(|len| Sparse::new(len, FRESH)).into(),
            filled: vec![(0, 0); slots],
            delivered: Vec::new(),
            wrong: Vec::new(),
            copied: 0,
        }
    }

    fn area(&self, part: Part) -> Area {
        Area::new(part.region(), 0, self.parts[part as usize].len() as u64)
    }

    /// Where the head slots are.
    #[must_use]
    pub fn heads(&self) -> Area {
        self.area(Part::Heads)
    }

    /// Where the spill slots are, [`LONGEST_FRAME`] each.
    #[must_use]
    pub fn spill(&self) -> Area {
        self.area(Part::Spill)
    }

    /// Where the pages are.
    #[must_use]
    pub fn pages(&self) -> Area {
        self.area(Part::Pages)
    }

    /// Where the large buffers are.
    #[must_use]
    pub fn large(&self) -> Area {
        self.area(Part::Large)
    }

    /// Where frames lie that nothing was posted for.
    #[must_use]
    pub fn frames(&self) -> Area {
        self.area(Part::Frames)
    }

    /// All that was done wrong since the last time.
    pub fn take_wrong(&mut self) -> Vec<String> {
        core::mem::take(&mut self.wrong)
    }

    fn fail(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// The part and the bytes of it that a span names.
    fn find(&self, span: Span) -> Option<(usize, Range<usize>)> {
        let part = Part::ALL.into_iter().find(|part| part.region() == span.region)? as usize;
        let range = usize::try_from(span.offset).ok()?..usize::try_from(span.end()?).ok()?;
        (range.end <= self.parts[part].len()).then_some((part, range))
    }

    /// The bytes of a span; none, and a failure, if there are no such.
    pub fn bytes(&mut self, span: Span) -> Vec<u8> {
        match self.find(span) {
            Some((part, range)) => self.parts[part].bytes(range),
            None => {
                self.fail(format!("{span} is read, and lies nowhere"));
                Vec::new()
            }
        }
    }

    /// Is this of something that was delivered?
    #[must_use]
    pub fn is_delivered(&self, span: Span) -> bool {
        span.len > 0 && self.delivered.iter().any(|(known, _)| known.overlaps(&span))
    }

    /// Bytes come to lie somewhere.
    fn write(&mut self, why: &str, to: Span, bytes: &[u8]) {
        if to.len == 0 {
            return;
        }
        if self.is_delivered(to) {
            self.fail(format!("{why} writes to {to}, which was delivered"));
        }
        match self.find(to) {
            Some((part, range)) => self.parts[part].write(range.start, bytes),
            None => self.fail(format!("{why} writes to {to}, which lies nowhere")),
        }
    }

    /// Before a burst: nothing is in the slots. The places are looked at: apart from
    /// each other, where buffers are, and nothing of what was delivered.
    pub fn post(&mut self, list: &[Descriptor]) {
        for (n, (head, spill)) in self.filled.iter_mut().map(core::mem::take).enumerate() {
            let at = n * HEAD_SLOT as usize;
            self.parts[Part::Heads as usize].renew(at..at + head);
            let at = n * LONGEST_FRAME as usize;
            self.parts[Part::Spill as usize].renew(at..at + spill);
        }
        if list.len() > self.filled.len() {
            self.fail(format!("{} descriptors for {} slots", list.len(), self.filled.len()));
        }
        for (n, Descriptor { head_len, place }) in list.iter().enumerate() {
            if u32::from(*head_len) > HEAD_SLOT {
                self.fail(format!("a head of {head_len} bytes"));
            }
            if place.len == 0 {
                continue;
            }
            let buffers = [Part::Pages.region(), Part::Large.region()];
            if self.find(*place).is_none() || !buffers.contains(&place.region) {
                self.fail(format!("{place} is guessed, and there is no buffer"));
            }
            if self.is_delivered(*place) {
                self.fail(format!("{place} is guessed, and was delivered"));
            }
            if list[..n].iter().any(|other| other.place.overlaps(place)) {
                self.fail(format!("{place} is guessed twice"));
            }
        }
    }

    /// The frames of a burst land as the descriptors say; gives their lengths.
    pub fn scatter(&mut self, list: &[Descriptor], frames: &[Vec<u8>]) -> Vec<u32> {
        for (n, (descriptor, frame)) in list.iter().zip(frames).enumerate() {
            let (head, rest) = frame.split_at(frame.len().min(descriptor.head_len.into()));
            let (body, rest) = rest.split_at(rest.len().min(descriptor.place.len as usize));
            let n = n as u64;
            let to = Part::Heads.region().span(n * u64::from(HEAD_SLOT), head.len() as u32);
            self.write("a head", to, head);
            self.write("a guess", descriptor.place.split_at(body.len() as u32).0, body);
            let to = Part::Spill.region().span(n * u64::from(LONGEST_FRAME), rest.len() as u32);
            self.write("a long frame", to, rest);
            if let Some(filled) = self.filled.get_mut(n as usize) {
                *filled = (head.len(), rest.len());
            }
        }
        frames.iter().take(list.len()).map(|frame| frame.len() as u32).collect()
    }

    /// Frames come to lie one behind the other, from `at` on, where nothing of what
    /// was delivered is, and nothing that is `held`. Returns where, and how many found room.
    pub fn lay(&mut self, mut at: u64, frames: &[Vec<u8>], held: &[Span]) -> Vec<Span> {
        let mut spans = Vec::new();
        for frame in frames {
            let mut to = Part::Frames.region().span(at, frame.len() as u32);
            let delivered = self.delivered.iter().map(|(span, _)| span);
            while let Some(there) = delivered.clone().chain(held).find(|span| span.overlaps(&to)) {
                at = there.offset + u64::from(there.len);
                to.offset = at;
            }
            if self.find(to).is_none() {
                break;
            }
            self.write("the ring", to, frame);
            at += u64::from(to.len);
            spans.push(to);
        }
        spans
    }

    /// These bytes were delivered: nobody writes them until they are released.
    pub fn deliver(&mut self, span: Span) -> Vec<u8> {
        if self.is_delivered(span) {
            self.fail(format!("{span} is delivered twice"));
        }
        let bytes = self.bytes(span);
        if span.len > 0 {
            self.delivered.push((span, bytes.clone()));
        }
        bytes
    }

    /// The memory of frames that lie there is the driver's again: other bytes come,
    /// but for what was delivered.
    pub fn spoil(&mut self, span: Span) {
        let Some((part, range)) = self.find(span) else { return };
        self.parts[part].renew(range);
        for (at, bytes) in self.delivered.iter().filter(|(at, _)| at.overlaps(&span)) {
            self.parts[part].write(at.offset as usize, bytes);
        }
    }

    /// They are needed no longer. Nobody wrote them, and nobody finds them later.
    pub fn release(&mut self, span: Span) {
        if span.len == 0 {
            return;
        }
        let Some(at) = self.delivered.iter().position(|(known, _)| *known == span) else {
            return self.fail(format!("{span} is released, and was not delivered"));
        };
        let (_, then) = self.delivered.swap_remove(at);
        if self.bytes(span) != then {
            self.fail(format!("{span} was delivered, and has other bytes now"));
        }
        if self.is_delivered(span) {
            self.fail(format!("{span} is released, and still lent to somebody"));
        }
        if let Some((part, range)) = self.find(span) {
            self.parts[part].renew(range);
        }
    }
}

impl Memory for TestMemory {
    fn head(&self, slot: u16) -> &[u8] {
        let slot = usize::from(slot);
        let start = slot * HEAD_SLOT as usize;
        let (filled, _) = self.filled.get(slot).copied().unwrap_or_default();
        self.parts[Part::Heads as usize].written(start..start + filled)
    }

    fn copy(&mut self, from: Span, to: Span) {
        if from.len != to.len {
            self.fail(format!("{from} is copied to {to}, of another length"));
        }
        if from.overlaps(&to) {
            self.fail(format!("{from} is copied to {to}, which overlap"));
        }
        let of_frames = [Part::Heads, Part::Spill, Part::Frames].map(Part::region);
        if of_frames.contains(&to.region) {
            self.fail(format!("{from} is copied to {to}, where frames lie"));
        }
        self.copied += u64::from(from.len);
        let bytes = self.bytes(from);
        if bytes.len() == to.len as usize {
            self.write("a copy", to, &bytes);
        }
    }

    fn read(&self, from: Span, into: &mut [u8]) {
        // Without `&mut self` nothing can be noted: what lies nowhere reads as fresh.
        let found = self.find(from);
        let known = found.as_ref().map_or(0, |(_, range)| range.len().min(into.len()));
        if let Some((part, range)) = found {
            self.parts[part].read(range.start, &mut into[..known]);
        }
        into[known..].fill(FRESH);
    }
}

// Memory of which only what was written takes room: a run touches little of it, and
// there are many runs.

/// This many bytes are made at once.
pub(super) const CHUNK: usize = 1 << 10;

/// Bytes that all are `fresh` until they are written.
#[derive(Clone, Debug)]
pub(super) struct Sparse {
    len: usize,
    fresh: u8,
    /// `None`: nothing of it was ever written.
    chunks: Vec<Option<Box<[u8; CHUNK]>>>,
}

impl Sparse {
    pub(super) fn new(len: usize, fresh: u8) -> Self {
        let mut chunks = Vec::new();
        chunks.resize_with(len.div_ceil(CHUNK), || None);
        Self { len, fresh, chunks }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The parts of a range that lie in one chunk each: which, and where in it.
    fn parts(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let mut at = range.start;
        core::iter::from_fn(move || {
            let (chunk, start) = (at / CHUNK, at % CHUNK);
            let len = (CHUNK - start).min(range.end.saturating_sub(at));
            at += len;
            (len > 0).then_some((chunk, start..start + len))
        })
    }

    /// The bytes from `at` on.
    ///
    /// # Panics
    /// There are not as many.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        let mut rest = into;
        for (chunk, range) in Self::parts(at..at + rest.len()) {
            let part;
            (part, rest) = rest.split_at_mut(range.len());
            match &self.chunks[chunk] {
                Some(bytes) => part.copy_from_slice(&bytes[range]),
                None => part.fill(self.fresh),
            }
        }
    }

    /// A copy of some bytes.
    ///
    /// # Panics
    /// They lie outside.
    pub(super) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(range.len());
        for (chunk, range) in Self::parts(range) {
            match &self.chunks[chunk] {
                Some(written) => bytes.extend_from_slice(&written[range]),
                None => bytes.resize(bytes.len() + range.len(), self.fresh),
            }
        }
        bytes
    }

    /// Bytes that were written and lie in one chunk; nothing if that is not so.
    pub(super) fn written(&self, range: Range<usize>) -> &[u8] {
        let chunk = self.chunks.get(range.start / CHUNK).and_then(Option::as_deref);
        let start = range.start % CHUNK;
        chunk.and_then(|bytes| bytes.get(start..start + range.len())).unwrap_or(&[])
    }

    /// These bytes are written from `at` on.
    ///
    /// # Panics
    /// They do not fit.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for (chunk, range) in Self::parts(at..at + bytes.len()) {
            let part;
            (part, rest) = rest.split_at(range.len());
            let fresh = self.fresh;
            let chunk = self.chunks[chunk].get_or_insert_with(|| Box::new([fresh; CHUNK]));
            chunk[range].copy_from_slice(part);
        }
    }

    /// These bytes are fresh again.
    ///
    /// # Panics
    /// They lie outside.
    pub(super) fn renew(&mut self, range: Range<usize>) {
        for (chunk, range) in Self::parts(range) {
            if let Some(bytes) = &mut self.chunks[chunk] {
                bytes[range].fill(self.fresh);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn it_reads_as_plain_bytes_do() {
        let len = 3 * CHUNK + 5;
        let (mut sparse, mut plain) = (Sparse::new(len, 7), vec![7; len]);
        assert_eq!(sparse.len(), len);
        let edges = [(0, 1), (CHUNK - 2, 4), (CHUNK, CHUNK), (10, 2 * CHUNK + 9), (len - 3, 3)];
        for (nth, (at, count)) in edges.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..count).map(|n| (n * 31 + nth) as u8).collect();
            sparse.write(at, &bytes);
            plain[at..at + count].copy_from_slice(&bytes);
            assert_eq!(sparse.bytes(0..len), plain);
            let (from, to) = (at + count / 3, at + count / 2);
            sparse.renew(from..to);
            plain[from..to].fill(7);
            assert_eq!(sparse.bytes(from..len), plain[from..]);
        }
        sparse.write(0, &[1; 20]);
        assert_eq!(sparse.written(2..9), [1; 7]);
        assert_eq!(sparse.written(CHUNK - 1..CHUNK + 1), [0; 0], "it lies in two chunks");
    }
}
