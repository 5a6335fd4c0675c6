//! An engine that does what a test tells it, and what else tests of drivers share.
pub mod carriage;
pub mod packet;
pub mod scatter;
pub mod streams;
pub mod transfer;

use std::collections::VecDeque;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use landfall_placement::{
    Check, Ecn, Engine, Guess, Instant, Landing, PathId, PathState, Peer, Placement, Refusal,
    Refusals, RegionId, Segment, Span, Spans, SumSlot, Ticket, Timeout, Transmit, Unit,
};
use landfall_transport::Driver;
use landfall_transport::memory::{Memory, Regions, Rights};

/// What a test does with a unit that arrived.
type Place = Box<dyn FnMut(&Unit<'_>, &mut Spans) -> Result<Placement, Refusal> + Send>;

/// Nothing may take longer; nothing should come near it.
pub const PATIENCE: StdDuration = StdDuration::from_secs(20);

/// A unit for [`Scripted`] to send.
pub struct Sending {
    pub to: Peer,
    pub head: Vec<u8>,
    pub payload: Vec<Span>,
    pub segment: Option<Segment>,
    pub checksum: Option<SumSlot>,
    /// This many bytes at the end of the payload are only summed.
    pub sum_only: u32,
    pub ecn: Ecn,
}

/// Sends what it is given, guesses what it is told, and notes what happens.
pub struct Scripted {
    /// Given out as they are, but for what lies below the highest byte placed:
    /// a guess names only memory that holds nothing accepted.
    pub guesses: Vec<Guess>,
    highest: u64,
    pub place: Place,
    pub to_send: VecDeque<Sending>,
    /// Every unit that was offered: its sender, its head as first seen, its length.
    pub seen: Vec<(Peer, Vec<u8>, u32)>,
    pub marks: Vec<Ecn>,
    pub landings: Vec<(Ticket, Landing)>,
    pub sent: Vec<Ticket>,
    /// What was said of paths.
    pub paths: Vec<PathState>,
    /// It waits for somebody's first answer.
    pub awaits_answer: bool,
    /// Where nobody receives, as far as it was told.
    pub unreachable: Vec<Peer>,
    refusals: Refusals,
    tickets: u64,
}

impl Scripted {
    pub fn new(
        place: impl FnMut(&Unit<'_>, &mut Spans) -> Result<Placement, Refusal> + Send + 'static,
    ) -> Self {
        Self {
            guesses: Vec::new(),
            highest: 0,
            place: Box::new(place),
            to_send: VecDeque::new(),
            seen: Vec::new(),
            marks: Vec::new(),
            landings: Vec::new(),
            sent: Vec::new(),
            paths: Vec::new(),
            awaits_answer: false,
            unreachable: Vec::new(),
            refusals: Refusals::new(),
            tickets: 0,
        }
    }

    /// One that only sends.
    pub fn sender() -> Self {
        Self::new(|_, _| Ok(Placement::Consumed))
    }

    /// One that puts each payload where its head says: see [`labelled_head`].
    pub fn labelled(region: RegionId) -> Self {
        Self::new(move |unit, into| place_as_labelled(region, unit, into, Check::None))
    }

    pub fn send(&mut self, to: Peer, head: Vec<u8>, payload: &[Span]) {
        let payload = payload.to_vec();
        let ecn = Ecn::NotCapable;
        let unit = Sending { to, head, payload, segment: None, checksum: None, sum_only: 0, ecn };
        self.to_send.push_back(unit);
    }

    /// Sends a message in labelled units.
    pub fn send_labelled(&mut self, to: Peer, message: Span, unit: u32) {
        let mut rest = message;
        while rest.len > 0 {
            let (payload, behind) = rest.split_at(unit);
            let at = payload.offset - message.offset;
            self.send(to, labelled_head(at as u32), &[payload]);
            rest = behind;
        }
    }
}

pub const LABEL: usize = 8;

/// A head that says where the payload belongs.
pub fn labelled_head(offset: u32) -> Vec<u8> {
    let mut head = b"Here".to_vec();
    head.extend(offset.to_be_bytes());
    head
}

pub fn place_as_labelled(
    region: RegionId,
    unit: &Unit<'_>,
    into: &mut Spans,
    check: Check,
) -> Result<Placement, Refusal> {
    let Some((label, _)) = unit.head.split_at_checked(LABEL) else {
        return Err(Refusal::Truncated);
    };
    let Some(offset) = label.strip_prefix(b"Here") else { return Err(Refusal::Malformed) };
    let offset = u32::from_be_bytes(offset.try_into().unwrap());
    into.push(region.span(u64::from(offset), unit.len - LABEL as u32)).unwrap();
    let ticket = Ticket::from_raw(u64::from(offset));
    Ok(Placement::Into { at: LABEL as u16, check, ticket })
}

impl Engine for Scripted {
    type Event = ();

    fn handle_path(&mut self, _: Instant, _: PathId, state: PathState) {
        self.paths.push(state);
    }

    fn awaits_first_answer(&self, _: PathId) -> bool {
        self.awaits_answer
    }

    fn handle_unreachable(&mut self, _: Instant, _: PathId, peer: Peer) {
        self.unreachable.push(peer);
    }

    fn guess(&self, _: PathId, nth: usize) -> Option<Guess> {
        let left = self.guesses.iter().map(|guess| {
            let taken = self.highest.saturating_sub(guess.span.offset);
            let span = guess.span.split_at(u32::try_from(taken).unwrap_or(u32::MAX)).1;
            Guess { span, ..*guess }
        });
        left.filter(|guess| guess.span.len > 0).nth(nth)
    }

    fn place(
        &mut self,
        _: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        assert!(into.is_empty(), "the driver hands over an empty list");
        self.seen.push((unit.from, unit.head.to_vec(), unit.len));
        self.marks.push(unit.ecn);
        let result = (self.place)(unit, into).map_err(|reason| self.refusals.count(reason));
        let ends = into.iter().filter_map(Span::end);
        self.highest = ends.fold(self.highest, u64::max);
        result
    }

    fn handle_placed(&mut self, _: Instant, ticket: Ticket, landing: Landing) {
        self.landings.push((ticket, landing));
    }

    fn poll_transmit(
        &mut self,
        _: Instant,
        _: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        assert!(from.is_empty(), "the driver hands over an empty list");
        let unit = self.to_send.pop_front()?;
        head[..unit.head.len()].copy_from_slice(&unit.head);
        for span in unit.payload {
            from.push(span).unwrap();
        }
        self.tickets += 1;
        Some(Transmit {
            to: unit.to,
            head_len: unit.head.len() as u16,
            segment: unit.segment,
            checksum: unit.checksum,
            sum_only: unit.sum_only,
            ecn: unit.ecn,
            ticket: Ticket::from_raw(self.tickets),
        })
    }

    fn handle_sent(&mut self, _: Instant, ticket: Ticket) {
        self.sent.push(ticket);
    }

    fn handle_timeout(&mut self, _: Instant) {}

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

/// Turns until `done` says so.
pub fn turn_until<D: Driver, E: Engine>(
    driver: &mut D,
    engine: &mut E,
    mut done: impl FnMut(&E, &D) -> bool,
) {
    let deadline = StdInstant::now() + PATIENCE;
    while !done(engine, driver) {
        assert!(StdInstant::now() < deadline, "nothing more happens: {:?}", driver.counters());
        if !driver.turn(engine, Instant::ZERO).unwrap().any() {
            std::thread::yield_now();
        }
    }
}

/// Bytes that tell where they come from.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|n| ((n + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Equal, or where they differ: nobody reads a megabyte of numbers.
#[track_caller]
pub fn assert_same(arrived: &[u8], expected: &[u8]) {
    assert_eq!(arrived.len(), expected.len(), "lengths differ");
    if let Some(at) = arrived.iter().zip(expected).position(|(a, b)| a != b) {
        let wrong = arrived.iter().zip(expected).filter(|(a, b)| a != b).count();
        panic!(
            "first of {wrong} different bytes at {at}: {} instead of {}",
            arrived[at], expected[at]
        );
    }
}

/// A table with one region of these bytes.
pub fn lent(bytes: &[u8], rights: Rights) -> (Regions, RegionId) {
    let regions = Regions::new(64);
    let region = regions.lend(Memory::from_bytes(bytes), rights).unwrap();
    (regions, region)
}

/// What a region holds.
pub fn contents(regions: &Regions, region: RegionId) -> Vec<u8> {
    let memory = regions.take_back(region).unwrap();
    memory.to_vec()
}

/// Drops the privileges of the calling thread, for good: `setresuid` of libc
/// would do so for the whole process.
pub fn become_nobody() {
    const NOBODY: libc::uid_t = 65_534;
    // SAFETY: the call takes numbers only, and changes this thread alone.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    assert!(done == 0 || !landfall_testbed::privileges::is_root());
}
