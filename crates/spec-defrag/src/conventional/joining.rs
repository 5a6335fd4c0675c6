//! How a piece gets to its place, and a packet that is whole out; one packet whose pieces are being
//! gathered, and what is kept of its first; how a page in which pieces landed becomes the buffer of
//! their packet.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_inet::reassembly::{Assembly, Congestion, Holes, LONGEST, Piece};
use landfall_placement::{Ecn, Instant, Refusal, Span};

use super::store::{Found, HashedKey, Opened, State};
use super::{Adopted, Arrived, Reassembly, SPLIT_MOST};
use crate::buffers::{BufferId, Buffers, LEAD};
use crate::memory::{Body, Head, Memory, Packet, ReassemblyPath};
use crate::wire::{Key, Parsed, whole_head};

impl Reassembly {
    /// A packet that was opened has its buffer.
    #[inline]
    pub(super) fn begin(&mut self, at: u32, gathering: Gathering) {
        let buffer = gathering.buffer.index as usize;
        if self.holes.len() <= buffer {
            self.holes.resize_with(buffer + 1, Holes::default);
        }
        if let Some(end) = self.store.begin(at, gathering) {
            self.next_end = self.next_end.min(end);
        }
    }

    /// Whether a piece belongs to this packet. If so there is room for it.
    #[inline]
    pub(super) fn accepts<M: Memory>(
        &mut self,
        at: u32,
        piece: Piece,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let entry = self.store.get_mut(at).ok_or(Refusal::UnknownId)?;
        let State::Gathering(gathering) = &mut entry.state else { return Err(Refusal::Forbidden) };
        let buffer = gathering.buffer;
        let needed = gathering.needs(piece.end);
        if let Err(refusal) =
            gathering.assembly.check(piece, &mut self.holes[buffer.index as usize])
        {
            match refusal {
                Refusal::Duplicate => self.store.counters.repeated += 1,
                _ => self.store.refuse(at, buffers),
            }
            return Err(refusal);
        }
        if needed <= buffers.capacity(buffer) {
            return Ok(());
        }
        self.grow(at, needed, buffers, memory)
    }

    /// The packet outgrows its page: what is there of it moves to a large buffer.
    fn grow<M: Memory>(
        &mut self,
        at: u32,
        needed: u32,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<(), Refusal> {
        let large = self.store.grow(at, needed, buffers)?;
        let Some(State::Gathering(gathering)) =
            self.store.get_mut(at).map(|entry| &mut entry.state)
        else {
            buffers.give_back(large);
            return Err(Refusal::UnknownId);
        };
        let (start, end) = (gathering.kept(), gathering.assembly.reached());
        let from = gathering.place(buffers, start, end);
        let page = core::mem::replace(&mut gathering.buffer, large);
        memory.copy(from, gathering.place(buffers, start, end));
        let is_described = gathering.assembly.is_described();
        let (page_at, large_at) = (page.index as usize, large.index as usize);
        if self.holes.len() <= large_at {
            self.holes.resize_with(large_at + 1, Holes::default);
        }
        if is_described {
            let mut holes = core::mem::take(&mut self.holes[page_at]);
            holes.move_to(&mut self.holes[large_at]);
            self.holes[page_at] = holes;
        }
        buffers.give_back(page);
        Ok(())
    }

    /// Copies a piece that was accepted to its place.
    #[inline]
    pub(super) fn put<M: Memory>(
        &mut self,
        at: u32,
        arrived: &Arrived<'_>,
        piece: Piece,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Option<Packet>, Refusal> {
        let Some(State::Gathering(gathering)) =
            self.store.get_mut(at).map(|entry| &mut entry.state)
        else {
            return Err(Refusal::UnknownId);
        };
        let mut kept = 0;
        if piece.start == 0 {
            kept = keep(&mut self.firsts, at, arrived.parsed, arrived.head, gathering.split())?;
        }
        let from = u32::from(arrived.parsed.payload_at) + kept;
        let to = gathering.place(buffers, piece.start + kept, piece.end);
        arrived.frame.part(from, to.len).copy_to(to, memory);
        let mut congestion = Congestion::default();
        congestion.add(arrived.parsed.ecn);
        let holes = &mut self.holes[gathering.buffer.index as usize];
        gathering.note(piece, kept, congestion, holes);
        if gathering.assembly.is_whole() { self.finish(at, buffers).map(Some) } else { Ok(None) }
    }

    /// The packet is whole: it goes out.
    pub(super) fn finish(&mut self, at: u32, buffers: &mut Buffers) -> Result<Packet, Refusal> {
        let Some(State::Gathering(gathering)) = self.store.get(at).map(|entry| &entry.state) else {
            return Err(Refusal::UnknownId);
        };
        let first = self.firsts.get(at as usize);
        let packet = first.ok_or(Refusal::Malformed).and_then(|first| {
            let ecn = gathering.assembly.congestion().of_all(first.parsed.ecn)?;
            let mut head =
                whole_head(first.headers(), &first.parsed, gathering.assembly.total(), ecn)?;
            head.push(first.kept());
            Ok(packet(head, gathering, buffers, ReassemblyPath::Conventional))
        });
        match packet {
            Ok(_) => {
                self.store.counters.whole += 1;
                self.store.close(at);
            }
            Err(_) => self.store.refuse(at, buffers),
        }
        packet
    }

    /// A packet in one piece behind a fragment header passes at once (RFC 6946).
    pub(super) fn pass<M: Memory>(
        &mut self,
        arrived: &Arrived<'_>,
        piece: Piece,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Packet, Refusal> {
        let parsed = arrived.parsed;
        let split = u32::from(arrived.split.min(SPLIT_MOST));
        let mut first = First::NONE;
        let kept = first.keep(parsed, arrived.head, split).ok_or(Refusal::NoRoom)?;
        let mut head = whole_head(first.headers(), parsed, piece.end, parsed.ecn)?;
        head.push(first.kept());
        let buffer =
            self.store.take_buffer(None, Gathering::room_for(split, piece.end), buffers)?;
        let mut gathering = Gathering::new(buffer, split);
        let to = gathering.place(buffers, kept, piece.end);
        arrived.frame.part(u32::from(parsed.payload_at) + kept, to.len).copy_to(to, memory);
        gathering.note(piece, kept, Congestion::default(), &mut Holes::default());
        self.store.counters.atomic += 1;
        Ok(packet(head, &gathering, buffers, ReassemblyPath::Whole))
    }
}

/// Keeps what is needed of a first piece; says how much of its payload that is.
#[inline]
pub(super) fn keep(
    firsts: &mut alloc::vec::Vec<First>,
    at: u32,
    parsed: &Parsed,
    head: &[u8],
    split: u32,
) -> Result<u32, Refusal> {
    let at = at as usize;
    if firsts.len() <= at {
        firsts.resize_with(at + 1, || First::NONE);
    }
    firsts[at].keep(parsed, head, split).ok_or(Refusal::NoRoom)
}

#[inline]
fn packet(head: Head, gathering: &Gathering, buffers: &Buffers, path: ReassemblyPath) -> Packet {
    let span = gathering.place(buffers, gathering.kept(), gathering.assembly.total());
    let body = Body::Buffer(gathering.buffer, span);
    Packet { head, body, body_len: span.len, path }
}

/// The piece that a frame carries, checked alone.
#[inline]
pub(crate) fn piece_of(parsed: &Parsed) -> Result<Piece, Refusal> {
    let fragment = parsed.fragment.ok_or(Refusal::Unexpected)?;
    Piece::new(fragment, parsed.payload_len, LONGEST)
}

/// The buffer of a packet, and what of it is there.
///
/// Position x of the payload lies at `LEAD - split + x` in the buffer, so that what
/// follows a header of `split` bytes is aligned as a page is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gathering {
    pub(super) buffer: BufferId,
    split: u32,
    /// How many bytes at the start are kept with the first head, not in the buffer.
    kept: u32,
    pub(super) assembly: Assembly,
}

impl Gathering {
    #[inline]
    pub(super) const fn new(buffer: BufferId, split: u32) -> Self {
        Self { buffer, split, kept: 0, assembly: Assembly::new() }
    }

    /// The piece is in place; `kept` of its bytes are with the first head.
    #[inline]
    pub(super) fn note(
        &mut self,
        piece: Piece,
        kept: u32,
        congestion: Congestion,
        holes: &mut Holes,
    ) {
        if piece.start == 0 {
            self.kept = kept;
        }
        self.assembly.note(piece, congestion, holes);
    }

    /// How much room behind the lead of its buffer a piece that ends here needs.
    #[inline]
    pub(super) const fn room_for(split: u32, end: u32) -> u32 {
        end.saturating_sub(split)
    }

    /// The same with the split of this packet.
    #[inline]
    pub(super) const fn needs(&self, end: u32) -> u32 {
        Self::room_for(self.split, end)
    }

    #[inline]
    pub(super) const fn split(&self) -> u32 {
        self.split
    }

    pub(super) const fn kept(&self) -> u32 {
        self.kept
    }

    /// Where these bytes of the payload lie, or belong.
    #[inline]
    pub(super) fn place(&self, buffers: &Buffers, start: u32, end: u32) -> Span {
        buffers.span(self.buffer, LEAD - self.split + start, end - start)
    }
}

/// The headers of a first piece, and the start of the payload up to the split.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) parsed: Parsed,
    /// The headers, and the start of the payload.
    bytes: [u8; Head::MOST],
    len: usize,
}

impl First {
    /// Before there is one.
    pub(super) const NONE: Self = Self {
        parsed: Parsed {
            key: Key { source: 0, destination: 0, id: 0, protocol: 0 },
            fragment: None,
            protocol: 0,
            network_at: 0,
            payload_at: 0,
            payload_len: 0,
            ecn: Ecn::NotCapable,
        },
        bytes: [0; Head::MOST],
        len: 0,
    };

    /// Keeps what there is to keep of a first piece, and says how much of its payload
    /// that is: up to the split if the head at hand has it and there is room, else
    /// nothing.
    #[inline]
    pub(super) fn keep(&mut self, parsed: &Parsed, head: &[u8], split: u32) -> Option<u32> {
        let payload_at = usize::from(parsed.payload_at);
        let reaches = payload_at + split as usize;
        let has_split =
            reaches <= head.len() && reaches <= Head::MOST && split <= parsed.payload_len;
        let (len, kept) = if has_split { (reaches, split) } else { (payload_at, 0) };
        self.bytes.get_mut(..len)?.copy_from_slice(head.get(..len)?);
        self.parsed = *parsed;
        self.len = len;
        Some(kept)
    }

    /// The bytes up to where the IP headers end.
    #[inline]
    pub(super) fn headers(&self) -> &[u8] {
        &self.bytes[..usize::from(self.parsed.payload_at).min(self.len)]
    }

    /// The start of the payload, as far as it is kept here.
    #[inline]
    pub(super) fn kept(&self) -> &[u8] {
        &self.bytes[self.headers().len()..self.len]
    }
}

// Packets that were not whole in time, to be told of to who sent them.

/// A packet that was not whole in time and whose first piece was there: what an
/// ICMP time exceeded needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// What the headers of its first piece say.
    pub parsed: Parsed,
    /// The frame of its first piece, up to where the IP headers end.
    pub head: Head,
    /// The bytes behind: as much of the piece as fits into the longest answer.
    pub payload: Vec<u8>,
}

impl Expired {
    /// The most payload that goes into an answer: the smallest MTU of
    /// IPv6 without the headers of the answer (RFC 4443, section 3.3).
    const PAYLOAD_MOST: u32 = 1280 - 40 - 8;

    /// What is told of a packet while it still has its buffer.
    pub(super) fn new<M: Memory>(
        first: &First,
        gathering: &Gathering,
        buffers: &Buffers,
        memory: &M,
    ) -> Self {
        let kept = first.kept();
        let len = first.parsed.payload_len.min(Self::PAYLOAD_MOST);
        let mut payload = alloc::vec![0; (len as usize).max(kept.len())];
        let (start, rest) = payload.split_at_mut(kept.len());
        start.copy_from_slice(kept);
        if !rest.is_empty() {
            memory.read(gathering.place(buffers, kept.len() as u32, len), rest);
        }
        let head = Head::from_slice(first.headers()).unwrap_or_default();
        Self { parsed: first.parsed, head, payload }
    }
}

/// What waits to be told, and how much may be: a bucket of tokens.
#[derive(Debug)]
pub(super) struct ExpiryReports {
    waiting: VecDeque<Expired>,
    per_second: u64,
    tokens: u64,
    filled_at: Instant,
}

const SECOND: u64 = 1_000_000_000;

impl ExpiryReports {
    /// The most that are reported at once, and that wait.
    const BURST: u64 = 16;

    pub(super) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        Self {
            waiting: VecDeque::new(),
            per_second,
            tokens: Self::BURST.min(per_second),
            filled_at: Instant::ZERO,
        }
    }

    /// May one more be told of? If so it counts as told.
    pub(super) fn may_report(&mut self, now: Instant) -> bool {
        let passed = now.as_nanos().saturating_sub(self.filled_at.as_nanos());
        let earned = u128::from(passed) * u128::from(self.per_second) / u128::from(SECOND);
        if earned > 0 {
            let earned = u64::try_from(earned).unwrap_or(u64::MAX);
            self.tokens = self.tokens.saturating_add(earned).min(Self::BURST.min(self.per_second));
            self.filled_at = now;
        }
        if self.tokens == 0 || self.waiting.len() as u64 >= Self::BURST {
            return false;
        }
        self.tokens -= 1;
        true
    }

    pub(super) fn push(&mut self, expired: Expired) {
        self.waiting.push_back(expired);
    }

    pub(super) fn pop(&mut self) -> Option<Expired> {
        self.waiting.pop_front()
    }
}

impl Reassembly {
    /// Takes over a page in which the first pieces of a packet lie already: no byte
    /// is copied, unless pieces of the packet are here already. The page is not the
    /// caller's any more, whatever comes of it.
    ///
    /// # Errors
    /// As [`Reassembly::insert`]; [`Refusal::Malformed`] where what is said of the
    /// page cannot be, [`Refusal::UnknownId`] where it was given back before.
    pub fn adopt<M: Memory>(
        &mut self,
        now: Instant,
        adopted: &Adopted<'_>,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Option<Packet>, Refusal> {
        if now >= self.next_end {
            self.handle_timeout(now, buffers, memory);
        }
        if !buffers.is_taken(adopted.buffer) {
            return Err(Refusal::UnknownId);
        }
        let found = adopted.check(buffers).map(|()| self.store.find(&adopted.first.key));
        let result = match found {
            Ok(Found::Nothing { hash }) => {
                return self.take_over(adopted, hash, buffers).map(|()| None);
            }
            Ok(Found::Packet(at)) => self.merge(at, adopted, buffers, memory),
            Err(refusal) => Err(refusal),
        };
        buffers.give_back(adopted.buffer);
        result
    }

    /// The page becomes the buffer of a packet that nothing was known of.
    fn take_over(
        &mut self,
        adopted: &Adopted<'_>,
        hash: u32,
        buffers: &mut Buffers,
    ) -> Result<(), Refusal> {
        let split = u32::from(adopted.split);
        let name = HashedKey { key: adopted.first.key, hash };
        let room = Gathering::room_for(split, adopted.filled);
        let opened = self.store.open(adopted.started, name, room, Some(adopted.buffer), buffers);
        let Opened { at, buffer } = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                buffers.give_back(adopted.buffer);
                return Err(refusal);
            }
        };
        let kept = keep(&mut self.firsts, at, adopted.first, adopted.head, split)?;
        self.begin(at, Gathering::new(buffer, split));
        for piece in adopted.pieces() {
            self.note(at, piece, kept, adopted.congestion);
        }
        Ok(())
    }

    /// Pieces of the packet are here: those in the page are copied to them.
    fn merge<M: Memory>(
        &mut self,
        at: u32,
        adopted: &Adopted<'_>,
        buffers: &mut Buffers,
        memory: &mut M,
    ) -> Result<Option<Packet>, Refusal> {
        self.store.touch(at);
        for piece in adopted.pieces() {
            match self.accepts(at, piece, buffers, memory) {
                Ok(()) => {}
                Err(Refusal::Duplicate) => continue,
                Err(refusal) => return Err(refusal),
            }
            let mut kept = 0;
            if piece.start == 0 {
                let split = u32::from(adopted.split);
                kept = keep(&mut self.firsts, at, adopted.first, adopted.head, split)?;
            }
            let Some(gathering) = self.gathering(at) else { return Err(Refusal::UnknownId) };
            let from = adopted.place(buffers, piece.start + kept, piece.end);
            memory.copy(from, gathering.place(buffers, piece.start + kept, piece.end));
            self.note(at, piece, kept, adopted.congestion);
        }
        match self.gathering(at) {
            Some(gathering) if gathering.assembly.is_whole() => self.finish(at, buffers).map(Some),
            _ => Ok(None),
        }
    }

    fn note(&mut self, at: u32, piece: Piece, kept: u32, congestion: Congestion) {
        if let Some(State::Gathering(gathering)) =
            self.store.get_mut(at).map(|entry| &mut entry.state)
        {
            let holes = &mut self.holes[gathering.buffer.index as usize];
            gathering.note(piece, kept, congestion, holes);
        }
    }

    fn gathering(&self, at: u32) -> Option<&Gathering> {
        match &self.store.get(at)?.state {
            State::Gathering(gathering) => Some(gathering),
            State::Refused => None,
        }
    }
}

impl Adopted<'_> {
    fn check(&self, buffers: &Buffers) -> Result<(), Refusal> {
        let first = piece_of(self.first)?;
        let split = u32::from(self.split);
        let head_len = usize::from(self.first.payload_at) + usize::from(self.split);
        let is_first = first.start == 0 && !first.is_last && split <= first.end;
        let fits = self.filled >= first.end
            && self.filled.is_multiple_of(8)
            && self.filled <= 65_535
            && Gathering::room_for(split, self.filled) <= buffers.capacity(self.buffer);
        if !is_first || !fits || self.split > SPLIT_MOST || self.head.len() < head_len {
            return Err(Refusal::Malformed);
        }
        // What is in the head alone has no other place.
        if head_len > Head::MOST { Err(Refusal::NoRoom) } else { Ok(()) }
    }

    /// The pieces that lie in the page: all as long as the first.
    fn pieces(&self) -> impl Iterator<Item = Piece> + use<> {
        let (len, filled) = (self.first.payload_len, self.filled);
        (0..filled).step_by(len.max(1) as usize).map(move |start| Piece {
            start,
            end: (start + len).min(filled),
            is_last: false,
        })
    }

    fn place(&self, buffers: &Buffers, start: u32, end: u32) -> Span {
        buffers.span(self.buffer, LEAD - u32::from(self.split) + start, end - start)
    }
}
