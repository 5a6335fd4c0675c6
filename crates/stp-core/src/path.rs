//! Paths, and what waits to be sent on each.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Instant, PathId, PathLimits, Peer, RegionId, RunRoom, Span};
use zerocopy::IntoBytes;

use crate::preference::Priority;
use crate::ticket::Purpose;
use crate::wire::{Flags, HEADER_LEN, Header, LONGEST_HEAD, hold};

/// The largest STU: what a number of 16 bits says, and a multiple of 64.
pub(crate) const LARGEST_STU: u16 = u16::MAX / 64 * 64;

/// The longest STU of this many bytes: a multiple of 8, so that words of memory are whole in
/// one packet, and of a power of two that parts it into pieces of 1024 bytes at most, so that
/// narrower links carry equal parts of it.
pub(crate) fn whole_stu(payload: u32) -> u16 {
    let payload = payload.min(LARGEST_STU.into());
    let grain = payload.div_ceil(1_024).next_power_of_two().max(8);
    (payload / grain * grain) as u16
}

/// What is behind the head of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlTail {
    Nothing,
    /// Padding of this many bytes.
    Padding(u32),
    /// All of the Transfer that it asks for.
    Transfer {
        index: u32,
        generation: u32,
    },
}

/// A control message, ready to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) to: Peer,
    pub(crate) len: u8,
    pub(crate) bytes: [u8; LONGEST_HEAD],
    pub(crate) behind: ControlTail,
}

/// Whose memory the Data of an order comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Send { index: u32, generation: u32 },
    Exposed { index: u32, generation: u32 },
}

impl Source {
    /// What the ticket of its Data says.
    #[inline]
    pub(crate) const fn purpose(self) -> Purpose {
        match self {
            Self::Send { index, generation } => Purpose::Send { index, generation },
            Self::Exposed { index, generation } => Purpose::Exposed { index, generation },
        }
    }
}

/// STUs of one Block that were granted and shall be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) source: Source,
    pub(crate) to: Peer,
    pub(crate) priority: Priority,
    /// The header of its Data, but for what differs from STU to STU.
    pub(crate) header: Header,
    pub(crate) region: RegionId,
    /// Where in the region the first byte of the Block is, and where in the buffer.
    pub(crate) at: u64,
    pub(crate) origin: u32,
    /// The size of an STU: of all but the last of the Block.
    pub(crate) stu: u16,
    /// How far into the Block the next STU begins.
    pub(crate) next: u32,
    /// Where in it the granted STUs end.
    pub(crate) end: u32,
    /// How long it is.
    pub(crate) block_end: u32,
    /// Which STUs from `next` on are wanted; the lowest bit is set while any is.
    pub(crate) wanted: Wanted,
    /// When the grant came.
    pub(crate) since: Instant,
}

/// STUs of an order that leave together; their headers are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderRun {
    pub(crate) stus: u16,
    /// The length of each but the last.
    pub(crate) stu_len: u32,
    pub(crate) span: Span,
}

/// An STU that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    pub(crate) to: Peer,
    pub(crate) source: Source,
    pub(crate) span: Span,
}

/// STUs that leave together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataRun {
    pub(crate) to: Peer,
    pub(crate) source: Source,
    pub(crate) run: OrderRun,
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
    /// The next STU: its place in the Block and its memory; and moves on.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(u32, Span)> {
        if let Wanted::Bits(bits) = self.wanted {
            if bits == 0 {
                return None;
            }
            let skipped = bits.trailing_zeros();
            self.next = self.next.saturating_add(skipped * u32::from(self.stu));
            self.wanted = Wanted::Bits(bits >> skipped >> 1);
        }
        let from = self.next;
        let end = from.saturating_add(self.stu.into()).min(self.end);
        if end <= from {
            return None;
        }
        self.next = end;
        Some((from, self.span_at(from, end - from)))
    }

    /// The next STUs, if there are several whole ones of which all are wanted and for
    /// which there is room: writes their headers, and moves on.
    #[inline]
    pub(crate) fn take_run(&mut self, now: Instant, room: &mut RunRoom<'_>) -> Option<OrderRun> {
        if self.wanted != Wanted::All || room.head_len() < HEADER_LEN {
            return None;
        }
        let stu_len = u32::from(self.stu.max(1));
        let left = self.end.saturating_sub(self.next);
        let most = room.units_of(stu_len + HEADER_LEN as u32).min(usize::from(u16::MAX));
        let stus = left.div_ceil(stu_len).min(most as u32);
        if stus < 2 {
            return None;
        }
        let len = left.min(stus.saturating_mul(stu_len));
        let first = self.next;
        self.next = first + len;
        let mut header = self.header_at(now, first, stu_len, false);
        let flags = self.flags(self.next, false);
        let mut heads = room.heads().take(stus as usize).peekable();
        while let Some(head) = heads.next() {
            if heads.peek().is_none() {
                header.flags = flags;
            }
            head[..HEADER_LEN].copy_from_slice(header.as_bytes());
            header.offset = header.offset.get().wrapping_add(stu_len).into();
        }
        Some(OrderRun { stus: stus as u16, stu_len, span: self.span_at(first, len) })
    }

    /// The header of the STU of `len` bytes at this place in the Block.
    #[inline]
    pub(crate) fn header_at(&self, now: Instant, from: u32, len: u32, is_summed: bool) -> Header {
        let mut header = self.header;
        header.offset = self.origin.wrapping_add(from).into();
        header.flags = self.flags(from.wrapping_add(len), is_summed);
        header.param = hold::encode(now.since(self.since)).into();
        header
    }

    /// The memory of a part of the Block.
    #[inline]
    fn span_at(&self, from: u32, len: u32) -> Span {
        self.region.span(self.at.wrapping_add(from.into()), len)
    }

    /// Is nothing left to send?
    #[inline]
    pub(crate) const fn is_done(&self) -> bool {
        self.next >= self.end || matches!(self.wanted, Wanted::Bits(0))
    }

    /// The flags of the STU that ends at `end`.
    #[inline]
    const fn flags(&self, end: u32, is_summed: bool) -> u8 {
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

    /// The largest STU that a packet to every peer holds, with this many bytes left free.
    pub(crate) fn sure_stu(&self, tail: u8) -> Option<u16> {
        self.stu_of(self.limits.as_ref()?.sure, tail)
    }

    /// The largest STU that packets of this many bytes hold, where they may leave here, with so
    /// many bytes left free.
    pub(crate) fn stu_of(&self, unit: u32, tail: u8) -> Option<u16> {
        let limits = self.limits.as_ref()?;
        let unit = unit.min(limits.unit);
        if usize::from(limits.head) < LONGEST_HEAD || (unit as usize) < LONGEST_HEAD {
            return None;
        }
        let payload = unit.saturating_sub(HEADER_LEN as u32 + u32::from(tail));
        Some(whole_stu(payload)).filter(|stu| *stu > 0)
    }

    /// Does a packet with such an STU, and this many bytes left free, fit what leaves here?
    pub(crate) fn carries(&self, stu: u16, tail: u8) -> bool {
        let len = u32::from(stu) + HEADER_LEN as u32 + u32::from(tail);
        self.limits.as_ref().is_some_and(|limits| len <= limits.unit)
    }

    /// An order waits behind those before it, but for those of lower priority to others: what
    /// one peer is sent over a link leaves in the order of its grants, or it would take what
    /// is behind for lost.
    pub(crate) fn queue_order(&mut self, order: Order) {
        let yields = |other: &&Order| other.priority < order.priority && other.to != order.to;
        let overtaken = self.orders.iter().rev().take_while(yields).count();
        // What was begun goes on: a run that is broken costs its receiver the guess.
        let begun = usize::from(!self.orders.is_empty());
        self.orders.insert((self.orders.len() - overtaken).max(begun), order);
    }

    /// Whose memory the first order is for, once those before it are gone that nobody wants any
    /// more.
    #[inline]
    fn first_order(&mut self, is_wanted: impl Fn(Source) -> bool) -> Option<Source> {
        loop {
            let source = self.orders.front()?.source;
            if is_wanted(source) {
                return Some(source);
            }
            self.orders.pop_front();
        }
    }

    /// The next STU that is wanted; writes its header.
    #[inline]
    pub(crate) fn next_data(
        &mut self,
        now: Instant,
        is_summed: bool,
        is_wanted: impl Fn(Source) -> bool,
        head: &mut [u8],
    ) -> Option<Data> {
        loop {
            let source = self.first_order(&is_wanted)?;
            let order = self.orders.front_mut()?;
            let to = order.to;
            let Some((from, span)) = order.take() else {
                self.orders.pop_front();
                continue;
            };
            let header = order.header_at(now, from, span.len, is_summed);
            if order.is_done() {
                self.orders.pop_front();
            }
            head[..HEADER_LEN].copy_from_slice(header.as_bytes());
            return Some(Data { to, source, span });
        }
    }

    /// The next STUs that are wanted, if they are a run; writes their headers.
    #[inline]
    pub(crate) fn next_data_run(
        &mut self,
        now: Instant,
        is_wanted: impl Fn(Source) -> bool,
        room: &mut RunRoom<'_>,
    ) -> Option<DataRun> {
        let source = self.first_order(is_wanted)?;
        let order = self.orders.front_mut()?;
        let (to, run) = (order.to, order.take_run(now, room)?);
        if order.is_done() {
            self.orders.pop_front();
        }
        Some(DataRun { to, source, run })
    }

    /// Nothing leaves here any more. Returns the connections that had Puts or FetchOps to send.
    pub(crate) fn clear(&mut self) -> VecDeque<u32> {
        self.limits = None;
        self.control.clear();
        self.orders.clear();
        core::mem::take(&mut self.streams)
    }

    /// Half of the queue is for what is not a grant.
    pub(crate) fn has_room_for_grants(&self, queue: usize) -> bool {
        self.control.len() < queue / 2
    }

    pub(crate) fn is_usable(&self) -> bool {
        self.sure_stu(0).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(peer: u32, priority: Priority, next: u32) -> Order {
        Order {
            source: Source::Send { index: 0, generation: 0 },
            to: Peer::Node(peer),
            priority,
            header: Header::default(),
            region: RegionId::default(),
            at: 0,
            origin: 0,
            stu: 8,
            next,
            end: next + 8,
            block_end: next + 8,
            wanted: Wanted::All,
            since: Instant::ZERO,
        }
    }

    /// What is urgent overtakes what is not, but for what was begun and for what goes to the
    /// same peer: that keeps its order whatever its priority is.
    #[test]
    fn orders_of_higher_priority_overtake_those_to_other_peers() {
        let mut path = Path::new(PathId(0));
        for (nth, (peer, priority)) in [
            (1, Priority::Low),
            (1, Priority::Low),
            (2, Priority::Normal),
            (3, Priority::High),
            (1, Priority::High),
            (2, Priority::High),
            (3, Priority::Low),
        ]
        .into_iter()
        .enumerate()
        {
            path.queue_order(order(peer, priority, nth as u32));
        }
        let left: Vec<u32> = path.orders.iter().map(|order| order.next).collect();
        // 0 was begun. 3 overtook 2 and 1, 2 had overtaken 1; 4 waits for 1, and 5 for 4.
        assert_eq!(left, [0, 3, 2, 1, 4, 5, 6]);
        for peer in 1..=3 {
            let to_it = path.orders.iter().filter(|order| order.to == Peer::Node(peer));
            assert!(to_it.map(|order| order.next).is_sorted(), "to {peer}");
        }
    }
}
