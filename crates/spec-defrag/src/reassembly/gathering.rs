//! One packet whose pieces are being gathered, and what is kept of its first.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_inet::reassembly::{Assembly, Congestion, Holes, LONGEST, Piece};
use landfall_placement::{Ecn, Instant, Refusal, Span};

use crate::buffers::{BufferId, Buffers, LEAD};
use crate::memory::Memory;
use crate::packet::Head;
use crate::wire::{Key, Parsed};

/// The piece that a frame carries, checked alone.
#[inline]
pub(super) fn piece_of(parsed: &Parsed) -> Result<Piece, Refusal> {
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
    /// So many bytes at the start are kept with the first head, not in the buffer.
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
    /// So much of the payload goes into an answer at most: the smallest MTU of
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
pub(super) struct Telling {
    waiting: VecDeque<Expired>,
    per_second: u64,
    tokens: u64,
    filled_at: Instant,
}

const SECOND: u64 = 1_000_000_000;

impl Telling {
    /// So many are told of at once, and wait at most.
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
    pub(super) fn may_tell(&mut self, now: Instant) -> bool {
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
