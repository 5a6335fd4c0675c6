//! Messages that cross in two units with one checksum, as a datagram crosses in
//! fragments of IP.
//!
//! The first unit carries the sum over both; only when both are there it is
//! known where the message belongs. So the receiver keeps them, a bounded
//! number, and deposits the message when it is whole and right. What gets lost
//! stays lost.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{
    Deposit, Ecn, Engine, Guess, Instant, InternetSum, Landing, PathId, PathState, Peer, Placement,
    Refusal, Refusals, Span, Spans, SumSlot, Ticket, Timeout, Transmit, Unit,
};

/// Marks a unit of this protocol.
const MARK: [u8; 2] = *b"Hv";
/// Mark, half, a spare byte, sum, number, length of the message.
const HEAD: usize = 12;
/// Where the sum of both halves lies in the first.
const SUM: SumSlot = SumSlot { start: 0, offset: 4 };

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message that was sent is out of the driver's hands.
    Sent(u16),
    /// A message is in place here.
    Received(u16, Span),
    /// A message was whole, and did not come to lie in its place.
    Lost(u16),
}

#[derive(Clone, Copy, Debug)]
struct Outgoing {
    number: u16,
    halves: (Span, Span),
}

#[derive(Debug, Default)]
struct Half {
    /// The whole unit, head and all.
    unit: Vec<u8>,
    is_first: bool,
    number: u16,
    total: u32,
}

#[derive(Debug)]
struct WholeMessage {
    number: u16,
    into: Span,
    bytes: Vec<u8>,
}

/// Sends and receives messages in halves.
#[derive(Debug)]
pub struct Halves {
    peer: Peer,
    outgoing: VecDeque<Outgoing>,
    /// The first half of the front has been sent.
    is_second_next: bool,
    next_number: u16,
    posted: VecDeque<Span>,
    kept: VecDeque<Half>,
    whole: VecDeque<WholeMessage>,
    /// What the driver is writing.
    deposited: Option<WholeMessage>,
    events: VecDeque<Event>,
    refusals: Refusals,
}

impl Halves {
    /// This many halves, messages and spans are kept at most, of each.
    pub const BOUND: usize = 8;

    /// Talks to this peer.
    #[must_use]
    pub const fn new(peer: Peer) -> Self {
        Self {
            peer,
            outgoing: VecDeque::new(),
            is_second_next: false,
            next_number: 0,
            posted: VecDeque::new(),
            kept: VecDeque::new(),
            whole: VecDeque::new(),
            deposited: None,
            events: VecDeque::new(),
            refusals: Refusals::new(),
        }
    }

    /// Sends a message, of which this many bytes are in the first half. Gives its
    /// number, unless too many messages or events wait.
    pub fn send(&mut self, message: Span, first: u32) -> Option<u16> {
        if self.outgoing.len() == Self::BOUND || self.has_much_to_say() {
            return None;
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.outgoing.push_back(Outgoing { number, halves: message.split_at(first) });
        Some(number)
    }

    /// The next message that is whole goes here, if there is room for it.
    /// Gives whether that was noted.
    pub fn post(&mut self, place: Span) -> bool {
        let has_room = self.posted.len() < Self::BOUND && !self.has_much_to_say();
        if has_room {
            self.posted.push_back(place);
        }
        has_room
    }

    /// Events come from what was sent and posted: at the bound there is no more of it.
    fn has_much_to_say(&self) -> bool {
        self.events.len() >= Self::BOUND
    }

    fn keep(&mut self, half: Half) -> Result<(), Refusal> {
        let is_other = |kept: &Half| kept.number == half.number && kept.is_first != half.is_first;
        let Some(at) = self.kept.iter().position(is_other) else {
            if self.kept.len() == Self::BOUND {
                self.kept.pop_front();
            }
            self.kept.push_back(half);
            return Ok(());
        };
        let other = self.kept.remove(at).unwrap_or_default();
        let (first, second) = if half.is_first { (half, other) } else { (other, half) };
        let mut bytes = first.unit;
        bytes.extend_from_slice(second.unit.get(HEAD..).unwrap_or_default());
        let mut sum = InternetSum::new();
        sum.add(&bytes);
        if sum.sum() != 0xffff {
            return Err(Refusal::BadChecksum);
        }
        bytes.drain(..HEAD);
        if first.total != second.total || bytes.len() as u64 != u64::from(first.total) {
            return Err(Refusal::Malformed);
        }
        if self.whole.len() == Self::BOUND {
            return Err(Refusal::NoRoom);
        }
        let place = self.posted.front().filter(|place| place.len >= first.total);
        let into = place.ok_or(Refusal::NoRoom)?.split_at(first.total).0;
        self.posted.pop_front();
        self.whole.push_back(WholeMessage { number: first.number, into, bytes });
        Ok(())
    }
}

/// Reads a unit of which all bytes are there.
fn read(unit: &[u8]) -> Result<Half, Refusal> {
    let head: &[u8; HEAD] = unit.first_chunk().ok_or(Refusal::Truncated)?;
    let [m0, m1, half, _, _, _, n0, n1, total @ ..] = *head;
    if [m0, m1] != MARK || half > 1 {
        return Err(Refusal::Malformed);
    }
    Ok(Half {
        unit: unit.to_vec(),
        is_first: half == 0,
        number: u16::from_be_bytes([n0, n1]),
        total: u32::from_be_bytes(total),
    })
}

impl Engine for Halves {
    type Event = Event;

    fn handle_path(&mut self, _: Instant, _: PathId, _: PathState) {}

    fn guess(&self, _: PathId, _: usize) -> Option<Guess> {
        None
    }

    fn place(&mut self, _: Instant, unit: &Unit<'_>, _: &mut Spans) -> Result<Placement, Refusal> {
        if unit.head.len() < unit.len as usize
            && let Ok(all) = u16::try_from(unit.len)
        {
            return Ok(Placement::NeedHead(all));
        }
        let kept = read(unit.head).and_then(|half| self.keep(half));
        kept.map(|()| Placement::Consumed).map_err(|reason| self.refusals.count(reason))
    }

    fn handle_placed(&mut self, _: Instant, _: Ticket, landing: Landing) {
        let Some(WholeMessage { number, into, .. }) = self.deposited.take() else { return };
        self.events.push_back(match landing {
            Landing::Verified => Event::Received(number, into),
            _ => Event::Lost(number),
        });
    }

    fn poll_deposit(&mut self, _: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        if self.deposited.is_some() {
            return None;
        }
        let whole = self.deposited.insert(self.whole.pop_front()?);
        // In several pieces, as the buffers of a message may be.
        let (start, rest) = whole.into.split_at(3);
        for piece in [start, rest] {
            into.push(piece).ok()?;
        }
        Some(Deposit { bytes: &whole.bytes, ticket: Ticket::new(u32::from(whole.number), 1) })
    }

    fn poll_transmit(
        &mut self,
        _: Instant,
        _: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let Outgoing { number, halves: (first, second) } = *self.outgoing.front()?;
        let is_second = self.is_second_next;
        let head: &mut [u8; HEAD] = head.first_chunk_mut()?;
        *head = [0; HEAD];
        head[..2].copy_from_slice(&MARK);
        head[2] = u8::from(is_second);
        head[6..8].copy_from_slice(&number.to_be_bytes());
        head[8..].copy_from_slice(&(first.len + second.len).to_be_bytes());
        if !is_second {
            from.push(first).ok()?;
        }
        from.push(second).ok()?;
        self.is_second_next = !is_second;
        if is_second {
            self.outgoing.pop_front();
        }
        Some(Transmit {
            to: self.peer,
            head_len: HEAD as u16,
            segment: None,
            checksum: (!is_second).then_some(SUM),
            sum_only: if is_second { 0 } else { second.len },
            ecn: Ecn::NotCapable,
            ticket: Ticket::new(u32::from(number), u32::from(is_second)),
        })
    }

    fn handle_sent(&mut self, _: Instant, ticket: Ticket) {
        if ticket.generation() == 1 {
            self.events.push_back(Event::Sent(ticket.index() as u16));
        }
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}
