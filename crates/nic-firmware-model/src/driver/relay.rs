//! [`Relay`]: the engine that a real driver runs at the far end of a card's cable. It knows
//! no protocol but the cable's: what came is a frame for the card, and frames of the card
//! leave as they are.
//!
//! A driver gets more from its kernel than a cable would carry: super-packets, and frames
//! whose checksum nobody computed since nothing had crossed a wire. Here they become what a
//! cable carries (see [`landfall_inet::device`]).

use std::collections::VecDeque;
use std::io;

use landfall_inet::device::Summed;
use landfall_placement::{
    Check, Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Refusal,
    Refusals, RegionId, Spans, Ticket, Timeout, Transmit, Unit,
};
use landfall_transport::memory::{Memory, Regions, Rights};

use super::wire::Frame;

/// This many frames wait for the card at most.
const MOST_INCOMING: usize = 1_024;
/// This many frames of the card are under way at most.
const MOST_OUTGOING: u16 = 128;

/// A frame that came.
#[derive(Debug)]
struct Incoming {
    frame: Frame,
    /// What the driver looks at before the frame is the card's.
    checked: Option<(u64, Summed)>,
}

/// A place for a frame of the card.
#[derive(Debug, Default)]
struct Slot {
    bytes: Vec<u8>,
    to: Peer,
    ecn: Ecn,
    /// How often it was used before.
    generation: u32,
    is_free: bool,
}

/// An engine that passes frames between a card and a real driver.
#[derive(Debug)]
pub struct Relay {
    path: PathId,
    incoming: VecDeque<Incoming>,
    spare: Vec<Vec<u8>>,
    checks: u64,
    slots: Vec<Slot>,
    /// What the driver has not yet seen of them, in the order of sending.
    outgoing: VecDeque<u16>,
    /// The memory of the slots, where the driver finds it.
    regions: Regions,
    region: RegionId,
    unit: u32,
    refusals: Refusals,
}

impl Relay {
    /// A relay for the driver of this path, which reads this table, and carries units of so
    /// many bytes.
    ///
    /// # Errors
    /// The table has no room.
    pub(super) fn new(path: PathId, regions: &Regions, unit: u32) -> io::Result<Self> {
        let memory = Memory::zeroed(usize::from(MOST_OUTGOING) * unit as usize);
        let rights = Rights::from_bits(Rights::READ.bits() | Rights::WRITE.bits());
        let region = regions.lend(memory, rights).map_err(|error| io::Error::other(error.why))?;
        let free = || Slot { is_free: true, ..Slot::default() };
        Ok(Self {
            path,
            incoming: VecDeque::new(),
            spare: Vec::new(),
            checks: 0,
            slots: std::iter::repeat_with(free).take(MOST_OUTGOING.into()).collect(),
            outgoing: VecDeque::new(),
            regions: regions.clone(),
            region,
            unit,
            refusals: Refusals::new(),
        })
    }

    /// How many frames came, and were not taken yet.
    pub(super) fn waiting(&self) -> usize {
        self.incoming.len()
    }

    /// Has the driver something to send?
    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The next frame that came.
    pub(super) fn take(&mut self) -> Option<Frame> {
        self.incoming.front().filter(|next| next.checked.is_none())?;
        self.incoming.pop_front().map(|next| next.frame)
    }

    pub(super) fn give_back(&mut self, frame: Frame) {
        if self.spare.len() < MOST_INCOMING {
            self.spare.push(frame.bytes);
        }
    }

    /// A frame of the card. False: there is no room for it now.
    pub(super) fn send(&mut self, to: Peer, ecn: Ecn, bytes: &[u8]) -> bool {
        let free = (0..).zip(&mut self.slots).find(|(_, slot)| slot.is_free);
        let Some((number, slot)) = free else { return false };
        let at = u64::from(number) * u64::from(self.unit);
        let fits = u32::try_from(bytes.len()).ok().filter(|len| *len <= self.unit);
        // What is too long for the path is lost on it.
        let Some(len) = fits else { return true };
        if self.regions.write(&self.region.span(at, len), bytes).is_err() {
            return true;
        }
        slot.bytes.clear();
        slot.bytes.extend_from_slice(bytes);
        (slot.to, slot.ecn, slot.is_free) = (to, ecn, false);
        self.outgoing.push_back(number);
        true
    }

    /// What waits here is lost. What the driver has seen it still has.
    pub(super) fn clear(&mut self) {
        self.incoming.clear();
        for number in self.outgoing.drain(..) {
            self.slots[usize::from(number)].is_free = true;
        }
    }

    fn copy(&mut self, unit: &Unit<'_>, bytes: &[u8]) -> Frame {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        Frame { bytes: copy, from: unit.from, ecn: unit.ecn }
    }

    fn push(&mut self, frame: Frame) {
        self.incoming.push_back(Incoming { frame, checked: None });
    }

    /// A whole unit is here.
    fn arrive(&mut self, unit: &Unit<'_>) -> Placement {
        let frame = self.copy(unit, unit.head);
        // Units with addresses of their own are no frames of an Ethernet.
        let is_frame = unit.from == Peer::Unaddressed;
        let Some(summed) = Summed::find(&frame.bytes).filter(|_| is_frame) else {
            self.push(frame);
            return Placement::Consumed;
        };
        if let Some(size) = unit.segment.filter(|_| summed.is_tcp()) {
            summed.cut(&frame.bytes, size.into(), |piece| {
                let piece = self.copy(unit, piece);
                self.push(piece);
            });
            self.give_back(frame);
            return Placement::Consumed;
        }
        let (from, len, seed) = summed.check();
        self.checks += 1;
        let check = Check::InternetSum { from, len, seed };
        self.incoming.push_back(Incoming { frame, checked: Some((self.checks, summed)) });
        Placement::Into { at: 0, check, ticket: Ticket::from_raw(self.checks) }
    }
}

impl Engine for Relay {
    type Event = ();

    fn handle_path(&mut self, _now: Instant, _path: PathId, _state: PathState) {}

    fn guess(&self, _path: PathId, _nth: usize) -> Option<Guess> {
        None
    }

    fn place(
        &mut self,
        _now: Instant,
        unit: &Unit<'_>,
        _into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if (unit.head.len() as u64) < u64::from(unit.len) {
            let all = u16::try_from(unit.len).map(Placement::NeedHead);
            return all.map_err(|_| self.refusals.count(Refusal::Unsupported));
        }
        if self.incoming.len() >= MOST_INCOMING {
            return Err(self.refusals.count(Refusal::NoRoom));
        }
        Ok(self.arrive(unit))
    }

    fn handle_placed(&mut self, _now: Instant, ticket: Ticket, landing: Landing) {
        let is_meant = |checked: &(u64, Summed)| checked.0 == ticket.raw();
        let mut waiting = self.incoming.iter_mut();
        let Some(checked) = waiting.find(|one| one.checked.as_ref().is_some_and(is_meant)) else {
            return;
        };
        let Some((_, summed)) = checked.checked.take() else { return };
        // The kernel vouches for it, or the sum is right. Of what is wrong nobody hides it.
        if landing == Landing::Verified {
            summed.complete(&mut checked.frame.bytes);
        }
    }

    fn poll_transmit(
        &mut self,
        _now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if path != self.path {
            return None;
        }
        let number = self.outgoing.pop_front()?;
        let slot = &self.slots[usize::from(number)];
        let (bytes, at) = (&slot.bytes, u64::from(number) * u64::from(self.unit));
        let head_len = bytes.len().min(head.len());
        head[..head_len].copy_from_slice(&bytes[..head_len]);
        let rest = (bytes.len() - head_len) as u32;
        if rest > 0 {
            // The list is empty, and has room for one.
            let _ = from.push(self.region.span(at + head_len as u64, rest));
        }
        Some(Transmit {
            to: slot.to,
            head_len: head_len as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: slot.ecn,
            ticket: Ticket::new(number.into(), slot.generation),
        })
    }

    fn handle_sent(&mut self, _now: Instant, ticket: Ticket) {
        let slot = self.slots.get_mut(ticket.index() as usize);
        let is_meant = |slot: &&mut Slot| slot.generation == ticket.generation() && !slot.is_free;
        if let Some(slot) = slot.filter(is_meant) {
            (slot.is_free, slot.generation) = (true, slot.generation.wrapping_add(1));
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_timeout(&self) -> Option<Timeout> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: PathId = PathId(3);
    const NOW: Instant = Instant::ZERO;

    fn relay() -> Relay {
        Relay::new(PATH, &Regions::new(1), 1_000).unwrap()
    }

    fn unit(head: &[u8], len: usize) -> Unit<'_> {
        let (from, ecn) = (Peer::Unaddressed, Ecn::NotCapable);
        Unit { path: PATH, from, head, len: len as u32, segment: None, ecn, verified: false }
    }

    /// A datagram of IPv4 whose checksum is wrong.
    fn datagram() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 7, 0, 7, 0, 12, 1, 1, 1, 2, 3, 4]);
        frame
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        for landing in [Landing::Verified, Landing::Corrupt, Landing::Unchecked] {
            let (mut relay, mut into) = (relay(), Spans::new());
            let frame = datagram();
            let more = relay.place(NOW, &unit(&frame[..20], frame.len()), &mut into);
            assert_eq!(more, Ok(Placement::NeedHead(frame.len() as u16)));
            let placed = relay.place(NOW, &unit(&frame, frame.len()), &mut into);
            let Ok(Placement::Into { ticket, check: Check::InternetSum { .. }, .. }) = placed
            else {
                panic!("{placed:?}")
            };
            // What came behind it waits with it.
            assert_eq!(relay.place(NOW, &unit(&[0; 60], 60), &mut into), Ok(Placement::Consumed));
            assert_eq!((relay.take(), relay.waiting()), (None, 2));
            relay.handle_placed(NOW, ticket, landing);
            let came = relay.take().unwrap();
            assert_eq!(came.bytes == frame, landing != Landing::Verified, "{landing:?}");
            assert_eq!(relay.take().map(|next| next.bytes), Some(vec![0; 60]));
        }
    }

    #[test]
    fn the_cable_is_bounded_and_loses_what_is_on_it_when_it_is_cut() {
        let mut relay = relay();
        let mut sent = 0;
        while relay.send(Peer::Unaddressed, Ecn::NotCapable, &[sent as u8; 900]) {
            sent += 1;
            assert!(sent <= MOST_OUTGOING, "it is bounded");
        }
        assert!(sent == MOST_OUTGOING);
        let (mut head, mut from) = ([0; 100], Spans::new());
        let first = relay.poll_transmit(NOW, PATH, &mut head, &mut from).unwrap();
        assert_eq!((first.head_len, from.total_len(), head), (100, 800, [0; 100]));
        assert!(!relay.send(Peer::Unaddressed, Ecn::NotCapable, b"no room"));
        relay.clear();
        from.clear();
        assert_eq!(relay.poll_transmit(NOW, PATH, &mut head, &mut from), None);
        // The driver has the first one still: its memory is not used again before.
        let mut again = 0;
        while relay.send(Peer::Unaddressed, Ecn::NotCapable, b"x") {
            again += 1;
        }
        assert_eq!(again, MOST_OUTGOING - 1);
        relay.handle_sent(NOW, first.ticket);
        assert!(relay.send(Peer::Unaddressed, Ecn::NotCapable, b"x"));
        // Told of twice, it frees nothing.
        relay.handle_sent(NOW, first.ticket);
        assert!(!relay.send(Peer::Unaddressed, Ecn::NotCapable, b"no room"));

        let mut into = Spans::new();
        for _ in 0..MOST_INCOMING {
            assert_eq!(relay.place(NOW, &unit(&[0; 60], 60), &mut into), Ok(Placement::Consumed));
        }
        let more = relay.place(NOW, &unit(&[0; 60], 60), &mut into);
        assert_eq!(more, Err(Refusal::NoRoom));
        relay.clear();
        assert_eq!(relay.take(), None);
    }

    #[test]
    fn what_is_too_long_for_the_path_is_lost_on_it() {
        let mut relay = relay();
        assert!(relay.send(Peer::Unaddressed, Ecn::NotCapable, &[0; 1_001]));
        assert!(!relay.has_outgoing());
    }
}
