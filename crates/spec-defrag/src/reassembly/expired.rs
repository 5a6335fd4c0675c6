//! Packets that were not whole in time, to be told of to who sent them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::Instant;

use super::gathering::First;
use super::gathering::Gathering;
use crate::buffers::Buffers;
use crate::memory::Memory;
use crate::packet::Head;
use crate::wire::Parsed;

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
