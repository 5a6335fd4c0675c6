//! The receiver with a driver, a user and memory that watches, beside the naive
//! reassembler: packet by packet, byte by byte.

use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{Duration, Instant, Refusal, Span};
use landfall_testkit::model::Findings;

use super::memory::TestMemory;
use super::naive::{Expired, Naive, Name, Piece, Reading, head_for, read};
use super::operations::Setup;
use super::traffic::Step;
use crate::memory::{Body, Bunch, Descriptor, ListId, MappedFrame, Packet, ReassemblyPath};
use crate::receiver::{Areas, Lend, Receiver};

/// A packet that came out, as one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Head and body.
    pub frame: Vec<u8>,
    /// How it was joined.
    pub path: ReassemblyPath,
}

/// A packet that the user did not release yet.
#[derive(Debug)]
struct Held {
    body: Body,
    spans: Vec<Span>,
}

/// Frames of one bunch, and of which packets they are.
#[derive(Debug)]
struct Laid {
    number: u64,
    spans: Vec<Span>,
    names: Vec<Name>,
}

/// While the user holds this many bytes of lists, no more are lent.
const MOST_LENT: u64 = 12_000;

/// Between two bursts.
const A_MOMENT: Duration = Duration::from_micros(10);
/// The user keeps at most this many packets where there is room for all.
const KEPT: usize = 40;
/// So much of a frame that lies somewhere is shown.
const SHOWN: usize = 192;

/// All that takes part.
#[derive(Debug)]
pub struct Rig {
    setup: Setup,
    /// What is tested.
    pub receiver: Receiver,
    /// Its memory.
    pub memory: TestMemory,
    naive: Naive,
    /// All pieces that came, where packets are only asked to be possible.
    seen: Vec<Piece>,
    now: Instant,
    held: VecDeque<Held>,
    /// Nothing was given up for want of room: both give the same.
    is_exact: bool,
    /// Where the next frames lie that nothing was posted for.
    ring: u64,
    /// Frames that lie there since the last call, or since they are held.
    laid: Vec<Laid>,
    /// The number of the next bunch.
    bunch: u64,
    /// Nothing was to be lent from the last bunch.
    is_at_bound: bool,
    /// Packets that were copied for that.
    at_bound: u64,
    findings: Findings,
}

impl Rig {
    /// Nothing happened yet. The story is told if it is asked for.
    #[must_use]
    pub fn new(setup: Setup, with_story: bool) -> Self {
        let memory = TestMemory::new(&setup.sizes());
        let areas = Areas {
            pages: memory.pages(),
            large: memory.large(),
            heads: memory.heads(),
            spill: memory.spill(),
        };
        let receiver = match Receiver::new(setup.config(), areas, setup.seed()) {
            Ok(receiver) => receiver,
            Err(error) => panic!("the setups are good ones: {error}"),
        };
        Self {
            setup,
            receiver,
            memory,
            naive: Naive::new(setup.lifetime()),
            seen: Vec::new(),
            now: Instant::ZERO,
            held: VecDeque::new(),
            is_exact: true,
            ring: 0,
            laid: Vec::new(),
            bunch: 0,
            is_at_bound: false,
            at_bound: 0,
            findings: Findings::new(with_story),
        }
    }

    /// One thing happens.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Receive { frames, lies } => _ = self.receive(frames, *lies),
            Step::Wait(Some(duration)) => self.wait(*duration),
            Step::Wait(None) => {
                if let Some(timeout) = self.receiver.poll_timeout() {
                    self.wait(timeout.at.since(self.now));
                }
            }
            Step::Release { count, newest_first } => self.release(*count, *newest_first),
        }
    }

    /// What went wrong.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        self.findings.failures()
    }

    /// What happened, line by line, with what went wrong at the end.
    #[must_use]
    pub fn into_story(self) -> Vec<String> {
        self.findings.into_story()
    }

    /// Of all that came out: equal runs have equal ones.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.findings.digest()
    }

    /// What time it is.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// How many packets the user holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    fn fail(&mut self, what: &str) {
        let now = self.now;
        self.findings.tell(|| format!("FAILED: {what}"));
        self.findings.fail(format!("{now}: {what}"));
    }

    /// Frames come, in bursts as long as the receiver has descriptors; gives what
    /// came out. For an empty one the driver passes over a descriptor.
    pub fn receive(&mut self, frames: &[Vec<u8>], lies: bool) -> Vec<Joined> {
        let mut all = Vec::new();
        let is_there = |frame: &&Vec<u8>| !(lies && frame.is_empty());
        let mut there = Cow::Borrowed(frames);
        if !frames.iter().all(|frame| is_there(&frame)) {
            there = frames.iter().filter(is_there).cloned().collect();
        }
        let mut rest = &there[..];
        while !rest.is_empty() {
            self.now += A_MOMENT;
            if self.receiver.poll_timeout().is_some_and(|timeout| timeout.at <= self.now) {
                self.timeout();
            }
            let count = if lies { self.take(rest) } else { self.settle(rest) };
            let (came, later) = rest.split_at(count);
            all.append(&mut self.compare(came));
            if count == 0 && !self.make_room() {
                self.fail("nothing is posted, and the user holds nothing");
                break;
            }
            rest = later;
        }
        all
    }

    /// Frames land behind descriptors; gives how many.
    fn settle(&mut self, frames: &[Vec<u8>]) -> usize {
        let list: Vec<Descriptor> = self.receiver.post().to_vec();
        self.memory.post(&list);
        let lens = self.memory.scatter(&list, frames);
        let (pages, large) = (self.receiver.free_pages(), self.receiver.free_large());
        self.findings.tell(|| {
            let (posted, came) = (list.len(), lens.len());
            format!("{posted} descriptors, {came} frames; {pages} pages, {large} large free")
        });
        self.receiver.settle(self.now, &lens, &mut self.memory);
        lens.len()
    }

    /// Frames lie somewhere; gives how many.
    fn take(&mut self, frames: &[Vec<u8>]) -> usize {
        let most = frames.len().min(self.setup.burst().into());
        let held: Vec<Span> = self.laid.iter().flat_map(|laid| laid.spans.clone()).collect();
        let mut spans = self.memory.lay(self.ring, &frames[..most], &held);
        if spans.is_empty() {
            // At the end of the ring: from the front.
            spans = self.memory.lay(0, &frames[..most], &held);
        }
        let is_full = spans.is_empty();
        self.ring = spans.last().and_then(Span::end).unwrap_or(0);
        let lying: Vec<MappedFrame<'_>> = spans
            .iter()
            .zip(frames)
            .map(|(at, frame)| MappedFrame { at: *at, head: &frame[..frame.len().min(SHOWN)] })
            .collect();
        self.findings.tell(|| format!("{} frames lie there", lying.len()));
        let count = lying.len();
        let number = self.bunch;
        self.bunch += 1;
        if self.setup.keeps_bunches() {
            let lend = if is_full || self.lent() > MOST_LENT { Lend::Copy } else { Lend::List };
            let bunch = Bunch { number, frames: &lying, lend };
            self.is_at_bound = lend == Lend::Copy;
            self.receiver.take_bunch(self.now, &bunch, &mut self.memory);
            if lend == Lend::Copy && self.holds_some_bunch() {
                self.fail("a bunch is held when nothing is to be lent");
            }
        } else {
            self.receiver.take(self.now, &lying, &mut self.memory);
            if self.receiver.holds_bunch(0) {
                self.fail("frames are held that were to be read");
            }
        }
        let names = frames[..count].iter().filter_map(|frame| match read(frame) {
            Reading::Piece(piece) => Some(piece.name),
            _ => None,
        });
        self.laid.push(Laid { number, names: names.collect(), spans });
        count
    }

    /// How many bytes of lists the user holds.
    fn lent(&self) -> u64 {
        let lists = self.held.iter().filter(|held| matches!(held.body, Body::Lent(_)));
        lists.flat_map(|held| &held.spans).map(|span| u64::from(span.len)).sum()
    }

    fn holds_some_bunch(&self) -> bool {
        self.laid.iter().any(|laid| self.receiver.holds_bunch(laid.number))
    }

    /// Frames that nobody waits for are the driver's again. Those that are held have pieces of
    /// packets that the naive reassembler waits for, too.
    fn take_back_frames(&mut self) {
        let (held, over) = core::mem::take(&mut self.laid).into_iter().partition(|laid: &Laid| {
            self.setup.keeps_bunches() && self.receiver.holds_bunch(laid.number)
        });
        self.laid = held;
        let over: Vec<Laid> = over;
        over.iter().flat_map(|laid| &laid.spans).for_each(|span| self.memory.spoil(*span));
        let mut names = self.laid.iter().map(|laid| &laid.names);
        if self.is_exact && names.any(|names| !names.iter().any(|n| self.naive.waits_for(n))) {
            self.fail("a bunch is held for nothing");
        }
    }

    /// The user needs what it holds no longer; false if it holds nothing.
    fn make_room(&mut self) -> bool {
        let holds = !self.held.is_empty();
        self.release(self.held.len().div_ceil(2), false);
        holds
    }

    /// The user releases this many packets.
    pub fn release(&mut self, count: usize, newest_first: bool) {
        for _ in 0..count {
            let held = if newest_first { self.held.pop_back() } else { self.held.pop_front() };
            let Some(Held { body, spans }) = held else { break };
            spans.iter().for_each(|span| self.memory.release(*span));
            let mut give_back = || match body {
                Body::Buffer(buffer, _) => self.receiver.release(buffer),
                Body::Lent(list) => self.receiver.release_list(list),
            };
            // Stale is harmless: the second time says no.
            if (give_back(), give_back()) != (true, false) {
                self.fail(&format!("{body:?} was not released once"));
            }
        }
    }

    /// Time passes, and the driver calls as it should.
    pub fn wait(&mut self, duration: Duration) {
        self.now += duration;
        self.timeout();
    }

    fn timeout(&mut self) {
        let now = self.now;
        self.receiver.handle_timeout(now, &mut self.memory);
        if let Some(timeout) = self.receiver.poll_timeout().filter(|timeout| timeout.at <= now) {
            let timer = timeout.timer;
            self.fail(&format!("{timer} is due at {}, and was handled", timeout.at));
        }
        let _ = self.compare(&[]);
    }

    /// These frames came, or time passed: does the receiver give what it should?
    fn compare(&mut self, came: &[Vec<u8>]) -> Vec<Joined> {
        self.note_losses(came.len());
        let expired = self.naive.pass(self.now);
        self.compare_expired(expired);
        let mut expected = VecDeque::new();
        for frame in came.iter().filter(|frame| !frame.is_empty()) {
            let reading = read(frame);
            let is_ignored = reading == Reading::Whole && !self.setup.delivers_foreign();
            if let Reading::Piece(piece) = &reading
                && !self.setup.is_roomy()
            {
                self.seen.push(piece.clone());
            }
            let packet = self.naive.take(self.now, frame, reading);
            expected.extend(packet.filter(|_| !is_ignored));
        }
        let mut all = Vec::new();
        while let Some(packet) = self.receiver.poll_packet() {
            match packet.path {
                ReassemblyPath::Lent if self.is_at_bound => self.fail("lent beyond the bound"),
                ReassemblyPath::Conventional if self.is_at_bound => self.at_bound += 1,
                _ => {}
            }
            let joined = self.hear(&packet);
            self.judge(&joined, expected.pop_front(), came);
            all.push(joined);
        }
        self.take_back_frames();
        self.is_at_bound = false;
        if self.is_exact {
            for packet in expected {
                self.fail(&format!("a packet does not come: {}", outline(&packet)));
            }
        }
        for wrong in self.memory.take_wrong() {
            self.fail(&wrong);
        }
        if !self.setup.is_lazy() {
            self.release(self.held.len(), false);
        } else if self.setup.is_roomy() {
            self.release(self.held.len().saturating_sub(KEPT), false);
        }
        all
    }

    /// Something was given up for want of room: that is never so where there is room.
    fn note_losses(&mut self, came: usize) {
        let evicted = self.receiver.gathering().evicted;
        let refused = self.receiver.refusals().of(Refusal::NoRoom);
        if evicted + refused > 0 && self.is_exact {
            self.is_exact = false;
            let used = self.held.len() + self.naive.len() + came;
            self.findings.tell(|| format!("{evicted} evicted, {refused} refused for want of room"));
            if self.setup.is_roomy() && used < self.setup.sizes().large as usize {
                self.fail(&format!(
                    "{evicted} evicted, {refused} refused for want of room, with {used} under way"
                ));
            }
        }
    }

    /// A list names all bunches that its pieces lie in, and no others.
    fn check_bunches(&mut self, list: ListId, spans: &[Span]) {
        let named = self.receiver.lent_from(list).unwrap_or_default();
        let lies_in = |laid: &Laid, span: &Span| laid.spans.iter().any(|at| at.overlaps(span));
        let of_spans = |laid: &&Laid| spans.iter().any(|span| lies_in(laid, span));
        // Of a piece that is all header nothing is in the list, and its bunch is named.
        let known = |number: &u64| self.laid.iter().any(|laid| laid.number == *number);
        let mut missing = self.laid.iter().filter(of_spans);
        let all = missing.all(|laid| named.contains(&laid.number));
        if self.setup.keeps_bunches() && !(all && named.iter().all(known)) {
            self.fail(&format!("{list:?} names other bunches than it lies in"));
        }
    }

    /// The user gets a packet, reads it, and keeps it.
    fn hear(&mut self, packet: &Packet) -> Joined {
        let spans = match packet.body {
            Body::Buffer(_, span) => alloc::vec![span],
            Body::Lent(list) => match self.receiver.lent(list) {
                Some(spans) => spans.to_vec(),
                None => Vec::new(),
            },
        };
        if let Body::Lent(list) = packet.body {
            self.check_bunches(list, &spans);
        }
        let mut frame = packet.head.to_vec();
        for span in &spans {
            frame.extend(self.memory.deliver(*span));
        }
        let len = frame.len() - packet.head.len();
        if len != packet.body_len as usize {
            self.fail(&format!("a body of {len} bytes says {}", packet.body_len));
        }
        self.held.push_back(Held { body: packet.body, spans });
        self.findings.add(&frame);
        let path = packet.path;
        self.findings.tell(|| format!("{path:?}: {}", outline(&frame)));
        Joined { frame, path }
    }

    fn judge(&mut self, joined: &Joined, expected: Option<Vec<u8>>, came: &[Vec<u8>]) {
        let Joined { frame, path } = joined;
        if self.is_exact {
            match expected {
                None => self.fail(&format!("a packet too many: {}", outline(frame))),
                Some(expected) if expected != *frame => {
                    let at = expected.iter().zip(frame).position(|(a, b)| a != b);
                    let (is, should) = (outline(frame), outline(&expected));
                    self.fail(&format!("{path:?}: {is}, expected {should}; from {at:?} on"));
                }
                Some(_) => {}
            }
        } else if !came.contains(frame) && !is_made_of(frame, &self.seen) && !self.setup.is_roomy()
        {
            self.fail(&format!("{path:?}: nobody sent {}", outline(frame)));
        }
    }

    /// Who sent a first piece is told when its packet expires, within the bounds of
    /// telling.
    fn compare_expired(&mut self, mut expected: Vec<Expired>) {
        const AT_ONCE: usize = 16;
        let must = if expected.len() <= AT_ONCE { expected.len() } else { 0 };
        let mut told = 0;
        while let Some(expired) = self.receiver.poll_expired() {
            let said = [&expired.head[..], &expired.payload[..]].concat();
            let known = expected.iter().position(|other| other.frame.starts_with(&said));
            match known {
                Some(at) => _ = expected.swap_remove(at),
                None if self.is_exact => self.fail(&format!("{} expired", outline(&said))),
                None => {}
            }
            told += 1;
        }
        if self.is_exact && told < must && self.setup.is_roomy() {
            self.fail(&format!("{told} of {must} packets are told to have expired"));
        }
    }

    /// Everything comes to its end: nothing is left behind, and it works as on the
    /// first day.
    pub fn finish(&mut self) {
        self.release(self.held.len(), false);
        self.wait(self.setup.lifetime());
        if let Some(timeout) = self.receiver.poll_timeout() {
            self.fail(&format!("{} still runs", timeout.timer));
        }
        if !self.naive.is_empty() {
            self.fail("the model waits for packets");
        }
        // With a list posted, a page may wait for each descriptor, and none else.
        if self.holds_some_bunch() || !self.laid.is_empty() {
            self.fail("frames are held");
        }
        let counted = self.receiver.stats().at_bound;
        if counted != self.at_bound {
            self.fail(&format!("{} were copied at the bound, counted {counted}", self.at_bound));
        }
        let _ = self.receiver.post();
        let sizes = self.setup.sizes();
        let free = self.receiver.free_pages();
        if free + usize::from(sizes.slots) < sizes.pages as usize {
            self.fail(&format!("{free} of {} pages are free", sizes.pages));
        }
        let free = self.receiver.free_large();
        if free != sizes.large as usize {
            self.fail(&format!("{free} of {} large buffers are free", sizes.large));
        }
    }
}

/// A packet in few words.
fn outline(frame: &[u8]) -> String {
    let head = &frame[..frame.len().min(58)];
    format!("{} bytes, {head:02x?}", frame.len())
}

/// Whether one way to put pieces of one name together gives the packet.
pub(super) fn is_made_of(packet: &[u8], seen: &[Piece]) -> bool {
    let mut names: Vec<&Name> = Vec::new();
    for first in seen.iter().filter(|piece| piece.offset == 0) {
        if !names.contains(&&first.name) {
            names.push(&first.name);
        }
    }
    names.iter().any(|name| {
        let of_name: Vec<&Piece> = seen.iter().filter(|piece| piece.name == **name).collect();
        let firsts = of_name.iter().filter(|piece| piece.offset == 0);
        firsts.into_iter().any(|first| {
            let Some((head, payload)) = packet.split_at_checked(first.head.len()) else {
                return false;
            };
            (0..4).any(|ecn| {
                head_for(&first.head, ecn, payload.len()).is_some_and(|made| made == head)
                    && is_tiled(payload, &of_name)
            })
        })
    })
}

/// Whether pieces lie side by side and give these bytes.
fn is_tiled(payload: &[u8], pieces: &[&Piece]) -> bool {
    let mut reached = alloc::vec![0];
    let mut at = 0;
    while let Some(start) = reached.get(at).copied() {
        at += 1;
        for piece in pieces.iter().filter(|piece| piece.offset == start) {
            let end = piece.end();
            let fits = payload.get(start..end) == Some(&piece.bytes[..]);
            if !fits || piece.more == (end == payload.len()) {
                continue;
            }
            if !piece.more {
                return true;
            }
            if !reached.contains(&end) {
                reached.push(end);
            }
        }
    }
    false
}
