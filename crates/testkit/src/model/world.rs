//! Two engines under a sequence of operations that any bytes stand for, with every rule
//! checked on the way.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use landfall_placement::{
    Area, Duration, Engine, Instant, PathId, PathLimits, PathState, Peer, Spans,
};

use super::Choices;
use super::checked::Checked;
use super::memory::Memory;
use super::packet::{Packet, cut, gather};
use super::under_way::{Bounds, UnderWay, pass_time, scatter};

/// An engine as the world drives it.
pub(super) trait Subject: Engine + Sized {
    /// Both ends; the number chooses the configuration.
    fn pair(config: u8) -> [Self; 2];
    /// The limits of the path.
    fn limits() -> PathLimits;
    /// Does every payload carry a checksum, so that a flipped bit is noticed?
    fn has_checksum(config: u8) -> bool;
    /// Posts memory.
    fn post(&mut self, area: Area) -> bool;
    /// Takes back memory that is too small for what waits.
    fn make_room(&mut self) {}
    /// Sends memory; gives the key by which an event will name it.
    fn submit(&mut self, now: Instant, to: Peer, area: Area) -> Option<u64>;
    /// Something of the engine's own.
    fn special(&mut self, now: Instant, to: Peer, value: u8);
    /// Memory on which the other side does word operations.
    fn serve(&mut self, area: Area);
    /// What an event says.
    fn told(event: Self::Event) -> ModelEvent;
    /// Do messages stay apart, or do they run together into one stream?
    const IS_STREAM: bool;
}

/// What an event says, whatever the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelEvent {
    /// The first `len` bytes of posted memory hold what was sent.
    Received { posted: Area, len: u64 },
    /// Posted memory comes back, and what it holds means nothing.
    Returned { posted: Area },
    /// What was sent under this key has arrived; a stream names no key.
    Sent { key: Option<u64> },
    /// What was sent under this key may not have arrived; a stream names no key.
    Failed { key: Option<u64> },
    /// The connection failed as a whole; what that means for memory comes apart.
    Broken,
    /// Nothing about memory.
    Other,
}

/// What the user of one end knows.
struct User {
    /// What was sent and not yet reported as sent: key, memory, bytes.
    sent: VecDeque<(u64, Area, Vec<u8>)>,
    /// What the other end was sent and did not get yet.
    expected: Vec<(u64, Vec<u8>)>,
    /// The whole stream that the other end was sent.
    stream: Vec<u8>,
    came: usize,
    /// Memory that came back, with what it held then.
    spare: VecDeque<(Area, Vec<u8>)>,
    messages: u64,
    has_failed: bool,
}

/// One end.
struct End<E> {
    checked: Checked<E>,
    memory: Memory,
    under_way: UnderWay,
    user: User,
}

/// Two engines and all that is between them.
pub(super) struct World<E> {
    ends: [End<E>; 2],
    now: Instant,
    can_flip: bool,
    failures: Vec<String>,
}

/// Bounds of what is under way; beyond them it is lost, or must land first.
const BOUNDS: Bounds =
    Bounds { inbox: 256, past: 0, landings: 64, held: 64, old: 16, reuses_tickets: false };
const PATH: PathId = PathId(0);

impl<E: Subject> World<E> {
    /// Two fresh engines; the number chooses their configuration.
    pub(super) fn new(config: u8) -> Self {
        let ends = E::pair(config).map(|engine| {
            let mut memory = Memory::new();
            let words = memory.lend(vec![0; 64]);
            let mut checked = Checked::new(engine);
            checked.handle_path(Instant::ZERO, PATH, PathState::Up(E::limits()));
            checked.engine.serve(Area::new(words, 0, 64));
            let user = User {
                sent: VecDeque::new(),
                expected: Vec::new(),
                stream: Vec::new(),
                came: 0,
                spare: VecDeque::new(),
                messages: 0,
                has_failed: false,
            };
            End { checked, memory, under_way: UnderWay::new(BOUNDS), user }
        });
        Self { ends, now: Instant::ZERO, can_flip: E::has_checksum(config), failures: Vec::new() }
    }

    /// Lets one thing happen.
    pub(super) fn apply(&mut self, operation: Operation<'_>) {
        let now = self.now;
        match operation {
            Operation::Send { side, len } => self.submit(side, len),
            Operation::Post { side, len } => self.post(side, len),
            Operation::Transmit { side, count, holds } => {
                self.transmit(side, usize::from(count), holds);
            }
            Operation::Release { side } => self.release(side),
            Operation::Place { side, which } => self.place(side, usize::from(which)),
            Operation::Land { side, count, fails } => self.land(side, usize::from(count), fails),
            Operation::Lose { side, which } => {
                self.ends[side].under_way.pick(which.into());
            }
            Operation::Double { side, which } => self.ends[side].under_way.double(which.into()),
            Operation::Flip { side, which, bit } => self.flip(side, which, bit),
            Operation::Inject { side, bytes } => {
                let packet = Packet::new(PATH, Peer::Node(1 - side as u32), bytes.to_vec());
                self.ends[side].under_way.enqueue(packet.changed());
            }
            Operation::Scatter { side } => self.scatter(side),
            Operation::Wait { micros } => self.wait(micros),
            Operation::Path { side, is_up } => {
                let state = if is_up { PathState::Up(E::limits()) } else { PathState::Down };
                self.ends[side].checked.handle_path(now, PATH, state);
            }
            Operation::Stale { side } => self.bring_back_old(side),
            Operation::Special { side, value } => {
                let to = Peer::Node(1 - side as u32);
                self.ends[side].checked.engine.special(now, to, value);
            }
        }
        self.hear();
    }

    /// Lets everything that is under way come to its end over a good path,
    /// and gives all that was found wrong.
    pub(super) fn finish(mut self) -> Vec<String> {
        for side in 0..2 {
            self.apply(Operation::Path { side, is_up: true });
        }
        let mut quiet = 0;
        for _ in 0..20_000 {
            let mut moved = false;
            for side in 0..2 {
                self.post_what_is_missing(side);
                self.release(side);
                moved |= self.transmit(side, 16, false) > 0;
                let under_way = &self.ends[side].under_way;
                moved |= under_way.packets() + under_way.waiting() > 0;
                for _ in 0..16 {
                    self.place(side, 0);
                }
                self.land(side, BOUNDS.landings, false);
                self.hear();
            }
            quiet = if moved { 0 } else { quiet + 1 };
            if quiet > 0 && (self.is_done() || quiet > 500) {
                break;
            }
            if !moved {
                self.wait(None);
            }
        }
        self.judge()
    }

    fn is_done(&self) -> bool {
        self.ends.iter().all(|end| end.user.sent.is_empty())
    }

    fn judge(mut self) -> Vec<String> {
        let any_failed = self.ends.iter().any(|end| end.user.has_failed);
        for side in 0..2 {
            self.check_spare(side, None);
            let end = &self.ends[side];
            for violation in end.checked.violations() {
                self.failures.push(format!("side {side}: {violation}"));
            }
            if !end.user.sent.is_empty() && !any_failed {
                self.failures.push(format!("side {side}: {} stalled", end.user.sent.len()));
            }
        }
        self.failures
    }

    fn submit(&mut self, side: usize, len: u32) {
        let (salt, now) = (self.ends[side].user.messages, self.now);
        let end = &mut self.ends[side];
        if end.user.sent.len() >= 32 {
            return;
        }
        let bytes: Vec<u8> = (0..u64::from(len)).map(|n| pattern(salt, side, n)).collect();
        let region = end.memory.lend(bytes.clone());
        let area = Area::new(region, 0, u64::from(len));
        let Some(key) = end.checked.engine.submit(now, Peer::Node(1 - side as u32), area) else {
            return;
        };
        end.user.messages += 1;
        end.user.sent.push_back((key, area, bytes.clone()));
        let other = &mut self.ends[1 - side].user;
        if E::IS_STREAM {
            other.stream.extend_from_slice(&bytes);
        } else {
            other.expected.push((key, bytes));
        }
    }

    /// Posts memory, where it can memory that was used before.
    fn post(&mut self, side: usize, len: u32) {
        let fits = |(area, _): &(Area, Vec<u8>)| area.len == u64::from(len);
        let area = match self.ends[side].user.spare.iter().position(fits) {
            Some(at) => {
                self.check_spare(side, Some(at));
                let Some((area, _)) = self.ends[side].user.spare.remove(at) else { return };
                self.ends[side].checked.reuse(&area);
                area
            }
            None => {
                let region = self.ends[side].memory.lend(vec![0; len as usize]);
                Area::new(region, 0, u64::from(len))
            }
        };
        self.ends[side].checked.engine.post(area);
    }

    /// Enough memory for all that is still to come.
    fn post_what_is_missing(&mut self, side: usize) {
        let is_awaited = !self.ends[1 - side].user.sent.is_empty();
        if is_awaited {
            self.ends[side].checked.engine.make_room();
            self.post(side, 1 << 13);
        }
    }

    /// Memory that was given back holds what it held then (invariant 1).
    fn check_spare(&mut self, side: usize, only: Option<usize>) {
        let end = &self.ends[side];
        for (n, (area, bytes)) in end.user.spare.iter().enumerate() {
            if only.is_none_or(|only| only == n)
                && end.memory.get(&area.span(0, area.len as u32)) != Some(bytes)
            {
                self.failures.push(format!("side {side}: {area} was written after it was final"));
            }
        }
    }

    fn transmit(&mut self, side: usize, count: usize, holds: bool) -> usize {
        let limits = E::limits();
        let mut head = vec![0; usize::from(limits.head)];
        let mut from = Spans::new();
        for n in 0..count {
            if self.ends[side].under_way.holds_most() {
                self.release(side);
            }
            from.clear();
            let end = &mut self.ends[side];
            let Some(transmit) = end.checked.poll_transmit(self.now, PATH, &mut head, &mut from)
            else {
                return n;
            };
            let bytes = gather(&end.memory, &transmit, &head, &from);
            end.under_way.hold(transmit.ticket);
            let Some(bytes) = bytes else {
                self.failures.push(format!("side {side}: sends what it does not have"));
                continue;
            };
            if !holds {
                self.release(side);
            }
            let pieces = match transmit.segment {
                Some(segment) if bytes.len() % 2 == 0 => cut(&bytes, segment),
                _ => vec![bytes],
            };
            for bytes in pieces {
                let segment = transmit.segment.map(|segment| segment.size);
                let packet = Packet::new(PATH, Peer::Node(side as u32), bytes);
                self.ends[1 - side].under_way.enqueue(packet.segmented(segment));
            }
        }
        count
    }

    fn release(&mut self, side: usize) {
        let end = &mut self.ends[side];
        end.under_way.release(&mut end.checked, self.now, false);
    }

    fn flip(&mut self, side: usize, which: u8, bit: u16) {
        let can_flip = self.can_flip;
        self.ends[side].under_way.change(which.into(), |packet| {
            if can_flip {
                packet.flip(0, bit);
            }
        });
    }

    fn place(&mut self, side: usize, which: usize) {
        if self.ends[side].under_way.is_full() {
            self.land(side, BOUNDS.landings, false);
        }
        let end = &mut self.ends[side];
        if let Some((packet, Ok(placement), into)) =
            end.under_way.receive(&mut end.checked, self.now, which)
        {
            end.under_way.keep(packet, placement, into);
        }
    }

    fn land(&mut self, side: usize, count: usize, fails: bool) {
        for n in 0..count {
            let End { checked, memory, under_way, .. } = &mut self.ends[side];
            if under_way.land(checked, memory, self.now, fails && n == 0).is_none() {
                return;
            }
            self.hear();
        }
    }

    /// A receive that was guessed wrong: junk wherever the engine allows it.
    fn scatter(&mut self, side: usize) {
        let End { checked, memory, .. } = &mut self.ends[side];
        if let Err(span) = scatter(checked, memory, PATH, |_| true) {
            self.failures.push(format!("side {side}: guesses {span}"));
        }
    }

    fn wait(&mut self, micros: Option<u8>) {
        let time = micros.map(|micros| Duration::from_micros(micros.into()));
        pass_time(&mut self.now, time, self.ends.iter_mut().map(|end| &mut end.checked));
        self.hear();
    }

    /// Old tickets come back that mean nothing now (invariant 7).
    fn bring_back_old(&mut self, side: usize) {
        let End { checked, under_way, .. } = &mut self.ends[side];
        under_way.bring_back_placed(checked, self.now);
        under_way.bring_back_sent(checked, self.now);
    }

    /// Takes in what the engines tell, and checks that it is true.
    fn hear(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.ends[side].checked.poll_event() {
                match E::told(event) {
                    ModelEvent::Received { posted, len } => self.take_received(side, posted, len),
                    ModelEvent::Returned { posted } => self.take_back(side, posted),
                    ModelEvent::Sent { key } => self.take_sent(side, key, true),
                    ModelEvent::Failed { key } => {
                        self.ends[side].user.has_failed = true;
                        self.take_sent(side, key, false);
                    }
                    ModelEvent::Broken => self.ends[side].user.has_failed = true,
                    ModelEvent::Other => {}
                }
            }
        }
    }

    fn take_received(&mut self, side: usize, posted: Area, len: u64) {
        let end = &mut self.ends[side];
        let have = end.memory.get(&posted.span(0, len as u32)).unwrap_or(&[]).to_vec();
        let is_right = if E::IS_STREAM {
            let from = end.user.came;
            end.user.came += have.len();
            have.len() as u64 == len && end.user.stream.get(from..from + have.len()) == Some(&have)
        } else {
            // Each message is delivered once.
            let found = end.user.expected.iter().position(|(_, bytes)| *bytes == have);
            found.map(|at| end.user.expected.remove(at)).is_some()
        };
        if !is_right {
            self.failures.push(format!("side {side}: {posted} holds what was not sent, {len}"));
        }
        self.take_back(side, posted);
    }

    fn take_back(&mut self, side: usize, posted: Area) {
        let end = &mut self.ends[side];
        if end.checked.is_written(&posted) {
            self.failures.push(format!("side {side}: {posted} given back while it is written"));
        }
        let bytes = end.memory.get(&posted.span(0, posted.len as u32)).unwrap_or(&[]).to_vec();
        end.user.spare.push_back((posted, bytes));
        if end.user.spare.len() > 64 {
            end.user.spare.pop_front();
        }
    }

    fn take_sent(&mut self, side: usize, key: Option<u64>, has_arrived: bool) {
        let sent = &mut self.ends[side].user.sent;
        let at = key.map_or(Some(0), |key| sent.iter().position(|(have, ..)| *have == key));
        let Some((key, area, bytes)) = at.and_then(|at| sent.remove(at)) else {
            self.failures.push(format!("side {side}: tells of what was not submitted"));
            return;
        };
        if self.ends[side].checked.is_read(&area) {
            self.failures.push(format!("side {side}: {area} given back while it is read"));
        }
        let other = &self.ends[1 - side].user;
        // A stream's bytes are delivered as areas fill; its own checks tell more.
        let is_missing = !E::IS_STREAM && other.expected.iter().any(|(have, _)| *have == key);
        if has_arrived && is_missing {
            let len = bytes.len();
            self.failures.push(format!("side {side}: {len} bytes reported before they were there"));
        }
    }
}

fn pattern(salt: u64, side: usize, n: u64) -> u8 {
    let mixed =
        (salt * 2 + side as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n * 131);
    (mixed ^ mixed >> 29 ^ n >> 8) as u8
}

impl<E> core::fmt::Debug for World<E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("World").field("failures", &self.failures).finish_non_exhaustive()
    }
}

/// One thing that happens. `side` is the end that it happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    /// The user sends this many bytes.
    Send { side: usize, len: u32 },
    /// The user posts memory for this many bytes.
    Post { side: usize, len: u32 },
    /// The driver sends up to this many units; it may hold them for a while.
    Transmit { side: usize, count: u8, holds: bool },
    /// The driver is done with what it held.
    Release { side: usize },
    /// The driver receives one of the units under way, and asks for its place.
    Place { side: usize, which: u8 },
    /// The driver tells of this many landings, the first of them failed or not.
    Land { side: usize, count: u8, fails: bool },
    /// A unit under way is lost.
    Lose { side: usize, which: u8 },
    /// A unit under way is doubled.
    Double { side: usize, which: u8 },
    /// A bit of a unit under way is flipped.
    Flip { side: usize, which: u8, bit: u16 },
    /// These bytes arrive.
    Inject { side: usize, bytes: &'a [u8] },
    /// Junk falls wherever the engine guesses.
    Scatter { side: usize },
    /// Time passes, up to the next timeout or by this many microseconds.
    Wait { micros: Option<u8> },
    /// The path goes down, or comes up again.
    Path { side: usize, is_up: bool },
    /// An old ticket comes back.
    Stale { side: usize },
    /// The user asks for something of its own: a word operation, the end of the stream.
    Special { side: usize, value: u8 },
}

/// Decodes operations until the bytes end.
#[derive(Clone, Debug)]
pub(super) struct Operations<'a> {
    choices: Choices<'a>,
}

impl<'a> Operations<'a> {
    /// The operations that these bytes stand for.
    #[must_use]
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { choices: Choices::new(bytes) }
    }

    fn byte(&mut self) -> u8 {
        self.choices.byte()
    }

    fn len(&mut self) -> u32 {
        // Small ones often, and up to 4 KiB.
        let (shape, fine) = (self.byte(), self.byte());
        let wide = u32::from(shape & 15) << 8 | u32::from(fine);
        if shape & 0x40 == 0 { u32::from(fine % 64) + 1 } else { wide + 1 }
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Operation<'a>;

    fn next(&mut self) -> Option<Operation<'a>> {
        if self.choices.is_over() {
            return None;
        }
        let code = self.byte();
        let side = usize::from(code >> 7);
        Some(match code & 0x7f {
            0..=9 => Operation::Send { side, len: self.len() },
            10..=19 => Operation::Post { side, len: self.len() },
            20..=44 => {
                let count = self.byte();
                Operation::Transmit { side, count: count & 31, holds: count & 0x80 != 0 }
            }
            45..=49 => Operation::Release { side },
            50..=74 => Operation::Place { side, which: self.byte() },
            75..=94 => {
                let count = self.byte();
                Operation::Land { side, count: (count & 31) + 1, fails: count & 0xe0 == 0xe0 }
            }
            95..=97 => Operation::Lose { side, which: self.byte() },
            98..=100 => Operation::Double { side, which: self.byte() },
            101..=103 => {
                let which = self.byte();
                let bit = self.choices.word();
                Operation::Flip { side, which, bit }
            }
            104..=106 => {
                let len = self.byte().into();
                Operation::Inject { side, bytes: self.choices.raw(len) }
            }
            107..=110 => Operation::Scatter { side },
            111..=117 => {
                let micros = self.byte();
                Operation::Wait { micros: (micros & 1 == 0).then_some(micros) }
            }
            118 => Operation::Path { side, is_up: self.byte() & 3 != 0 },
            119..=122 => Operation::Stale { side },
            _ => Operation::Special { side, value: self.byte() },
        })
    }
}
