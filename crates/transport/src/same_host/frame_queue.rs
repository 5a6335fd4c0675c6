//! [`FrameQueue`]: memory in which this side says what it has for a neighbour, and
//! [`FrameQueueView`]: the same of the neighbour, to be read only.
//!
//! Each side writes its own and nobody else does: the file is sealed before it is handed out.
//! So what a neighbour writes is never taken for more than what it says, and what it says is
//! copied before it is checked.
//!
//! ```text
//! byte 0       how far frames were written        (by the owner of this memory)
//!      64      how far it has read the other's
//!      128     asleep: a number that differs each time; and whether it waits for room
//!      192     it is over; and whether it can read memory of the other by address
//!      4096    the frames, one behind another, in a ring
//! ```

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use landfall_placement::Ecn;

use crate::exchange::{MAX_UNITS, SEND_HEAD_ROOM};
use crate::memory::{
    PieceView, SharedMemory, SharedMemoryError, SharedView, copy_into_words, copy_out_of_words,
};

const WORD: usize = size_of::<u64>();
/// Words of the status, each group in a cache line of its own.
const WRITTEN: usize = 0;
const READ: usize = 8;
const ASLEEP: usize = 16;
const WANTS_ROOM: usize = 17;
const CLOSED: usize = 24;
const READS_ADDRESSES: usize = 25;

/// Where the ring begins.
const RING: usize = 4096;
/// How long it is: it takes several of the longest frames.
pub(super) const RING_LEN: u64 = 1 << 19;
const WHOLE: u64 = RING as u64 + RING_LEN;

/// The head of a frame.
const FRAME_HEAD: usize = 4 * WORD;
/// The longest payload of one frame.
pub(super) const MOST_PAYLOAD: usize = 1 << 20;
/// What a frame is that only leads to the start of the ring.
const SKIP: u64 = 0xff;

/// Where the payloads of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind the heads, in the ring.
    Inline,
    /// In a file that was handed over under this number.
    File { id: u64, offset: u64 },
    /// In the memory of the process.
    Address(u64),
}

/// Units of one length whose payloads lie behind one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) place: Place,
    pub(super) ecn: Ecn,
    pub(super) units: usize,
    pub(super) head_len: usize,
    /// The length of each payload but the last, which may be shorter.
    pub(super) each: usize,
    /// The length of all payloads.
    pub(super) payload: usize,
}

impl Frame {
    fn heads_len(&self) -> usize {
        (self.units * self.head_len).next_multiple_of(WORD)
    }

    /// How many bytes of the ring it takes.
    pub(super) fn len(&self) -> u64 {
        let inline = if self.place == Place::Inline { self.payload } else { 0 };
        (FRAME_HEAD + self.heads_len() + inline.next_multiple_of(WORD)) as u64
    }

    /// Where its payloads are behind its heads, if they are inline.
    pub(super) fn payload_at(&self) -> usize {
        self.heads_len()
    }

    fn encode(&self) -> [u64; 4] {
        let (kind, file, at) = match self.place {
            Place::Inline => (1, 0, 0),
            Place::File { id, offset } => (2, id, offset),
            Place::Address(address) => (3, 0, address),
        };
        let counts = (self.units as u64) << 16 | (self.head_len as u64) << 32;
        let first = kind | u64::from(self.ecn as u8) << 8 | counts;
        [first, self.each as u64 | (self.payload as u64) << 32, file, at]
    }

    /// None: no neighbour that means well says that.
    fn decode([first, lengths, file, at]: [u64; 4]) -> Option<Self> {
        let place = match first & 0xff {
            1 => Place::Inline,
            2 => Place::File { id: file, offset: at },
            3 => Place::Address(at),
            _ => return None,
        };
        let frame = Self {
            place,
            ecn: Ecn::from_bits((first >> 8) as u8),
            units: (first >> 16) as usize & 0xffff,
            head_len: (first >> 32) as usize,
            each: lengths as usize & 0xffff_ffff,
            payload: (lengths >> 32) as usize,
        };
        let before_last = frame.each.checked_mul(frame.units.checked_sub(1)?)?;
        let last = frame.payload.checked_sub(before_last)?;
        let is_good = frame.units <= MAX_UNITS
            && (frame.units == 1 || last > 0)
            && frame.head_len <= SEND_HEAD_ROOM
            && last <= frame.each
            && frame.payload <= MOST_PAYLOAD
            && frame.each + frame.head_len <= usize::from(u16::MAX);
        is_good.then_some(frame)
    }
}

/// What this side says.
#[derive(Debug)]
pub(super) struct FrameQueue {
    memory: SharedMemory,
    written: u64,
}

impl FrameQueue {
    pub(super) fn new() -> Result<Self, SharedMemoryError> {
        let memory = SharedMemory::create("landfall-same-host", WHOLE)?;
        memory.seal_for_readers()?;
        Ok(Self { memory, written: 0 })
    }

    pub(super) const fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.memory.words()[at]
    }

    /// How far frames were written.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Is there room for a frame, if the neighbour has read so far?
    pub(super) fn has_room(&self, frame: &Frame, read: u64) -> bool {
        let end = self.start_of(frame) + frame.len();
        end - read <= RING_LEN
    }

    /// A frame lies in one piece.
    fn start_of(&self, frame: &Frame) -> u64 {
        let left = RING_LEN - self.written % RING_LEN;
        if frame.len() <= left { self.written } else { self.written + left }
    }

    /// Begins a frame for which there is room. Returns where its heads go, in bytes from the
    /// start of the [`words`](Self::words); the payloads follow at
    /// [`Frame::payload_at`] if they are inline.
    pub(super) fn begin(&self, frame: &Frame) -> usize {
        let words = self.memory.words();
        let index = |position: u64| FrameQueueView::at(position) / WORD;
        let start = self.start_of(frame);
        if start > self.written {
            words[index(self.written)].store(SKIP, Relaxed);
        }
        let first = index(start);
        for (word, value) in words[first..].iter().zip(frame.encode()) {
            word.store(value, Relaxed);
        }
        first * WORD + FRAME_HEAD
    }

    /// Writes heads one behind another, from this byte on.
    pub(super) fn write_heads<'a>(&self, mut at: usize, heads: impl Iterator<Item = &'a [u8]>) {
        for head in heads {
            copy_into_words(self.words(), at, head);
            at += head.len();
        }
    }

    pub(super) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// All of the frame is written: from now on the neighbour sees it.
    pub(super) fn commit(&mut self, frame: &Frame) {
        self.written = self.start_of(frame) + frame.len();
        self.word(WRITTEN).store(self.written, Release);
    }

    /// The neighbour's frames were read up to here.
    pub(super) fn set_read(&self, position: u64) {
        self.word(READ).store(position, Release);
    }

    /// From now on the neighbour rings when it has something.
    pub(super) fn fall_asleep(&self, epoch: u64) {
        self.word(ASLEEP).store(epoch, SeqCst);
    }

    pub(super) fn wake(&self) {
        self.word(ASLEEP).store(0, Relaxed);
    }

    /// It also rings when it has read something.
    pub(super) fn want_room(&self, wants: bool) {
        self.word(WANTS_ROOM).store(wants.into(), Relaxed);
    }

    /// Memory of the neighbour can be read by address.
    pub(super) fn set_reads_addresses(&self) {
        self.word(READS_ADDRESSES).store(1, Release);
    }

    /// Nothing that was written counts any more. What follows this in time the neighbour
    /// cannot take for what it was told of.
    pub(super) fn close(&self) {
        self.word(CLOSED).store(1, SeqCst);
        fence(SeqCst);
    }
}

/// What came that no neighbour says that means well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// What the neighbour says.
#[derive(Debug)]
pub(super) struct FrameQueueView {
    view: PieceView,
    /// How far frames were read.
    read: u64,
}

impl FrameQueueView {
    pub(super) fn new(memory: &SharedView) -> Result<Self, Broken> {
        let view = PieceView::whole(memory);
        if view.len() == WHOLE { Ok(Self { view, read: 0 }) } else { Err(Broken) }
    }

    fn load(&self, word: usize) -> u64 {
        // Its length was checked.
        self.view.load((word * WORD) as u64).unwrap_or_default()
    }

    pub(super) const fn view(&self) -> &PieceView {
        &self.view
    }

    pub(super) const fn position(&self) -> u64 {
        self.read
    }

    /// Where the ring has this position, in bytes.
    pub(super) const fn at(position: u64) -> usize {
        RING + (position % RING_LEN) as usize
    }

    /// The next frame, and its heads one behind another; where its payloads begin in this
    /// memory if they are inline.
    pub(super) fn next(&mut self, heads: &mut Vec<u8>) -> Result<Option<(Frame, usize)>, Broken> {
        loop {
            let written = self.load(WRITTEN);
            let there = written.wrapping_sub(self.read);
            if there == 0 {
                return Ok(None);
            }
            let start = self.read % RING_LEN;
            let left = RING_LEN - start;
            if there > RING_LEN || !written.is_multiple_of(WORD as u64) {
                return Err(Broken);
            }
            let at = Self::at(self.read) / WORD;
            if self.load(at) == SKIP {
                if left > there {
                    return Err(Broken);
                }
                self.read += left;
                continue;
            }
            if left.min(there) < FRAME_HEAD as u64 {
                return Err(Broken);
            }
            // Each word once: the neighbour may change it.
            let frame = [0, 1, 2, 3].map(|nth| self.load(at + nth));
            let frame = Frame::decode(frame).ok_or(Broken)?;
            if frame.len() > left.min(there) {
                return Err(Broken);
            }
            heads.resize(frame.units * frame.head_len, 0);
            // SAFETY: the words are loaded and nothing else.
            copy_out_of_words(unsafe { self.view.words() }, at * WORD + FRAME_HEAD, heads);
            let payload_at = at * WORD + FRAME_HEAD + frame.payload_at();
            return Ok(Some((frame, payload_at)));
        }
    }

    /// This frame, which is the next, is dealt with.
    pub(super) fn advance(&mut self, frame: &Frame) {
        self.read += frame.len();
    }

    /// How far it has read what was written for it, which is no further than `written`.
    pub(super) fn has_read(&self, written: u64) -> Result<u64, Broken> {
        let read = self.load(READ);
        if read <= written && written - read <= RING_LEN { Ok(read) } else { Err(Broken) }
    }

    pub(super) fn asleep(&self) -> u64 {
        self.load(ASLEEP)
    }

    pub(super) fn wants_room(&self) -> bool {
        self.load(WANTS_ROOM) != 0
    }

    pub(super) fn reads_addresses(&self) -> bool {
        self.load(READS_ADDRESSES) != 0
    }

    /// Was something written that was not read yet?
    pub(super) fn has_more(&self) -> bool {
        self.load(WRITTEN) != self.read
    }

    /// Does nothing count any more that was written? All that was read from the neighbour's
    /// memory before this call was as it had been told of, where the answer is no.
    pub(super) fn is_closed(&self) -> bool {
        fence(Acquire);
        self.load(CLOSED) != 0
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair() -> (FrameQueue, FrameQueueView) {
        let queue = FrameQueue::new().unwrap();
        let file = queue.memory().fd().try_clone_to_owned().unwrap();
        let view = FrameQueueView::new(&SharedView::from_sealed_fd(file).unwrap()).unwrap();
        (queue, view)
    }

    fn write(queue: &mut FrameQueue, frame: &Frame, head: &[u8], payload: &[u8]) {
        let at = queue.begin(frame);
        queue.write_heads(at, [head].into_iter());
        copy_into_words(queue.words(), at + frame.payload_at(), payload);
        queue.commit(frame);
    }

    fn inline(payload: usize) -> Frame {
        let place = Place::Inline;
        Frame { place, ecn: Ecn::Capable0, units: 1, head_len: 40, each: payload, payload }
    }

    #[test]
    fn frames_of_every_length_come_out_as_they_went_in() {
        let (mut queue, mut view) = pair();
        let (mut heads, mut lap) = (Vec::new(), 0);
        for nth in 0..2000usize {
            let frame = inline(nth * 97 % 65_000);
            assert!(queue.has_room(&frame, view.position()), "all before it were read");
            let head = [nth as u8; 40];
            let payload = vec![nth as u8 ^ 0x55; frame.payload];
            write(&mut queue, &frame, &head, &payload);
            let (came, at) = view.next(&mut heads).unwrap().expect("it was written");
            assert_eq!((came, &heads[..]), (frame, &head[..]));
            let mut bytes = vec![0; frame.payload];
            view.view().copy_out(at as u64, &mut bytes).unwrap();
            assert_eq!(bytes, payload, "frame {nth}");
            view.advance(&frame);
            lap = view.position() / RING_LEN;
            assert_eq!(view.next(&mut heads), Ok(None));
        }
        assert!(lap > 10, "{lap}");
    }

    #[test]
    fn a_full_ring_has_no_room_until_something_was_read() {
        let (mut queue, mut view) = pair();
        let frame = inline(60_000);
        let mut count = 0;
        while queue.has_room(&frame, 0) {
            write(&mut queue, &frame, &[0; 40], &[]);
            count += 1;
        }
        assert_eq!(count, RING_LEN / frame.len());
        let mut heads = Vec::new();
        view.next(&mut heads).unwrap().unwrap();
        view.advance(&frame);
        assert!(queue.has_room(&frame, view.position()));
    }

    proptest! {
        /// Whatever a neighbour writes, nothing is read beyond its memory, and what is said
        /// of a frame holds.
        #[test]
        fn what_a_neighbour_writes_is_checked(
            words in prop::collection::vec(any::<u64>(), 4),
            small in prop::collection::vec(0u64..0x200, 4),
            written in prop_oneof![any::<u64>(), 0..=RING_LEN],
        ) {
            let (queue, mut view) = pair();
            queue.word(WRITTEN).store(written, Relaxed);
            for (nth, (word, small)) in words.into_iter().zip(small).enumerate() {
                let value = if small & 1 == 0 { word } else { small >> 1 | small << 31 };
                queue.word(RING / WORD + nth).store(value, Relaxed);
            }
            let mut heads = Vec::new();
            if let Ok(Some((frame, at))) = view.next(&mut heads) {
                prop_assert_eq!(heads.len(), frame.units * frame.head_len);
                prop_assert!(frame.payload <= MOST_PAYLOAD);
                prop_assert!(at as u64 - RING as u64 <= RING_LEN);
                prop_assert!(frame.len() <= written);
                prop_assert_eq!(Frame::decode(frame.encode()), Some(frame));
            }
        }
    }
}
