//! Paths, and what waits to be sent on each.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Instant, PathId, PathLimits, Peer, RegionId, Span};

use crate::wire::{Flags, HEADER_LEN, Header, LONGEST_HEAD};

/// A packet without payload, ready to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) to: Peer,
    pub(crate) len: u8,
    pub(crate) bytes: [u8; LONGEST_HEAD],
}

/// Whose memory the Data of an order comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Send { index: u32, generation: u32 },
    Exposed { index: u32, generation: u32 },
}

/// STUs of one Block that were granted and shall be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) source: Source,
    pub(crate) to: Peer,
    /// The header of its Data, but for what differs from STU to STU.
    pub(crate) header: Header,
    pub(crate) region: RegionId,
    /// Where in the region the byte for buffer offset `origin` is.
    pub(crate) at: u64,
    pub(crate) origin: u32,
    /// The size of an STU, as a power of two.
    pub(crate) stu: u8,
    /// The buffer offset of the next STU.
    pub(crate) next: u32,
    /// Where the granted STUs end.
    pub(crate) end: u32,
    /// Where the Block ends.
    pub(crate) block_end: u32,
    /// Which STUs from `next` on are wanted; the lowest bit is set while any is.
    pub(crate) wanted: Wanted,
    /// When the grant came.
    pub(crate) since: Instant,
}

/// Which STUs of an order are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All.
    All,
    /// Those whose bits are set, counted from the next.
    Bits(u64),
}

impl Order {
    /// The next STU: its buffer offset and memory, and moves on.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u32, Span)> {
        if let Wanted::Bits(bits) = self.wanted {
            if bits == 0 {
                return None;
            }
            let skipped = bits.trailing_zeros();
            if skipped > 0 {
                let first = (u64::from(self.next) >> self.stu) + u64::from(skipped);
                self.next = u32::try_from(first << self.stu).unwrap_or(u32::MAX);
            }
            self.wanted = Wanted::Bits(bits >> skipped >> 1);
        }
        let offset = self.next;
        let next_stu = ((u64::from(offset) >> self.stu) + 1) << self.stu;
        let end = next_stu.min(u64::from(self.end)) as u32;
        if end <= offset {
            return None;
        }
        self.next = end;
        let at = self.at.wrapping_add(u64::from(offset.wrapping_sub(self.origin)));
        Some((offset, self.region.span(at, end - offset)))
    }

    /// Is nothing left to send?
    #[inline]
    pub(crate) const fn is_done(&self) -> bool {
        self.next >= self.end || matches!(self.wanted, Wanted::Bits(0))
    }

    /// The flags of the STU that ends at `end`.
    #[inline]
    pub(crate) const fn flags(&self, end: u32, is_summed: bool) -> u8 {
        Flags::NONE.with_if(end == self.block_end, Flags::LAST).with_if(is_summed, Flags::SUM).0
    }
}

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) limits: Option<PathLimits>,
    pub(crate) control: VecDeque<Control>,
    pub(crate) orders: VecDeque<Order>,
    /// Connections with Puts or FetchOps to send here.
    pub(crate) streams: VecDeque<u32>,
    /// Transfers that wait until there is room for their grants.
    pub(crate) waiting: Vec<u32>,
    /// The link that Data came over last: the next will likely be of it, too.
    pub(crate) last_link: Option<u32>,
}

impl Path {
    pub(crate) const fn new(id: PathId) -> Self {
        Self {
            id,
            limits: None,
            control: VecDeque::new(),
            orders: VecDeque::new(),
            streams: VecDeque::new(),
            waiting: Vec::new(),
            last_link: None,
        }
    }

    /// The largest STU that a packet here holds, as a power of two.
    pub(crate) fn largest_stu(&self) -> Option<u8> {
        let limits = self.limits.as_ref()?;
        if usize::from(limits.head) < LONGEST_HEAD || (limits.unit as usize) < LONGEST_HEAD {
            return None;
        }
        let payload = limits.unit - HEADER_LEN as u32;
        Some(payload.ilog2().min(30) as u8)
    }

    /// Half of the queue is for what is not a grant.
    pub(crate) fn has_room_for_grants(&self, queue: usize) -> bool {
        self.control.len() < queue / 2
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.largest_stu().is_some()
    }
}
