//! Two adapters and all that is between them.
//!
//! The driver of each side, and the wire: it loses, doubles, delays, reorders,
//! cuts and changes what is under way.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{
    Area, Duration, Engine, Instant, Landing, PathId, PathState, Peer, Placement, RegionId, Spans,
    Transmit,
};
use landfall_testkit::model::{
    Bounds, Checked, Findings, Memory, Packet, UnderWay, cut, gather, pass_time, put, scatter,
};

use super::frame;
use super::ledger::Ledger;
use super::operations::{Operation, Setup, station};
use crate::adapter::{Adapter, Arm};
use crate::work::{CompletionQueueId, DomainId, ListenerId};

/// The only path.
pub(super) const PATH: PathId = PathId(0);
/// What memory holds that nothing was received to, and what lies around it.
pub(super) const FRESH: u8 = 0xc5;
pub(super) const GUARD: u8 = 0xa7;
/// What nothing was received to yet, as much as a request asks for at most.
pub(super) static ALL_FRESH: [u8; 9_000] = [FRESH; 9_000];
/// How many bytes of that lie around it.
const AROUND: usize = 9;
/// What an operation takes: the numbers of TCP go on with the clock.
const STEP: Duration = Duration::from_micros(5);

/// One side.
#[derive(Debug)]
pub(super) struct End {
    pub(super) checked: Checked<Adapter>,
    pub(super) memory: Memory,
    pub(super) domain: DomainId,
    /// Nobody of the side uses it.
    pub(super) other_domain: DomainId,
    pub(super) queue: CompletionQueueId,
    pub(super) listener: ListenerId,
    pub(super) armed: Option<Arm>,
    pub(super) under_way: UnderWay,
    /// What memory held when it was given back.
    pub(super) returned: Vec<(RegionId, Vec<u8>)>,
    pub(super) is_up: bool,
}

/// Two adapters, their users and drivers, and the wire between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) ends: [End; 2],
    pub(super) ledger: Ledger,
    pub(super) now: Instant,
    /// The number of the next request.
    pub(super) next: u64,
    pub(super) findings: Findings,
    /// What comes from the other side may be anybody's: only what must hold then
    /// is judged.
    pub(super) is_attacked: bool,
    /// Packets for each side that travel in pieces, one of which was changed.
    pub(super) flipped: BTreeSet<(usize, u32)>,
    /// A message that tells where a station is was changed, and has no checksum.
    pub(super) is_misled: bool,
}

impl World {
    /// Fresh adapters; the bytes choose their configuration.
    pub(super) fn new(choices: &[u8], with_story: bool) -> Self {
        let setup = Setup::new(choices);
        let mut world = Self {
            setup,
            ends: [0, 1].map(|side| End::new(setup, side)),
            ledger: Ledger::default(),
            now: Instant::from_millis(1),
            next: 1,
            findings: Findings::new(with_story),
            is_attacked: false,
            flipped: BTreeSet::new(),
            is_misled: false,
        };
        if setup.begins_connected() {
            world.apply(Operation::Offer { side: 1 });
            world.apply(Operation::Connect { side: 0 });
            world.apply(Operation::Bind { side: 0 });
            world.apply(Operation::Bind { side: 1 });
            world.apply(Operation::Settle);
        }
        world
    }

    /// Does one thing, and checks all that must be true then.
    pub(super) fn apply(&mut self, operation: Operation<'_>) {
        self.write_down(|| format!("{operation:?}"));
        self.now += STEP;
        match operation {
            Operation::Connect { side } => self.connect(side),
            Operation::Offer { side } => self.offer(side),
            Operation::Bind { side } => self.bind(side),
            Operation::Send { side, which, len, pieces } => self.send(side, which, len, pieces),
            Operation::Receive { side, which, len, pieces } => {
                self.receive(side, which, len, pieces);
            }
            Operation::Shutdown { side, which } => self.shutdown(side, which),
            Operation::Abort { side, which } => self.abort(side, which),
            Operation::Destroy { side, which } => self.destroy(side, which),
            Operation::Poll { side } => self.poll(side),
            Operation::Arm { side, solicited } => self.arm(side, solicited),
            Operation::Blunder { side, which, how } => self.blunder(side, which, how),
            Operation::Transmit { side, count, holds } => {
                self.transmit(side, usize::from(count) + 1, holds);
            }
            Operation::Release { side, newest_first } => self.release(side, newest_first),
            Operation::Turn { side, count, stride, fails } => {
                let fails = fails && self.setup.may_fail();
                self.turn(side, usize::from(count) + 1, usize::from(stride), fails);
            }
            Operation::Lose { side, which } => {
                self.pick(side, usize::from(which));
            }
            Operation::Double { side, which } => self.ends[side].under_way.double(which.into()),
            Operation::Replay { side, which } => self.ends[side].under_way.replay(which.into()),
            Operation::Flip { side, which, bit } => self.flip(side, usize::from(which), bit),
            Operation::Mark { side, which } => self.mark(side, usize::from(which)),
            Operation::Inject { side, bytes } => self.inject(side, bytes),
            Operation::Scatter { side } => self.scatter(side),
            Operation::Wait { some } => self.wait(some),
            Operation::Path { side, is_up } => self.set_path(side, is_up),
            Operation::Stale { side } => self.bring_back_old(side),
            Operation::Settle => self.settle(),
        }
        self.hear();
        self.check_bounds();
    }

    /// The model and the adapter disagree, where nobody lies.
    pub(super) fn fail(&mut self, side: usize, what: &str) {
        if !self.is_attacked {
            self.fail_badly(side, what);
        }
    }

    /// What must never be, no matter who lies.
    pub(super) fn fail_badly(&mut self, side: usize, what: &str) {
        self.write_down(|| format!("side {side} FAILS: {what}"));
        self.findings.fail(format!("side {side} at {}: {what}", self.now));
    }

    /// Adds a line to the story.
    pub(super) fn write_down(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        self.findings.tell(|| format!("{now}  {}", what()));
    }

    /// A name that nothing had before.
    pub(super) const fn name(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Nothing is beyond its bound (invariant 5).
    pub(super) fn check_bounds(&mut self) {
        for side in 0..2 {
            let end = &self.ends[side];
            let waiting = end.checked.engine.completions(end.queue);
            if waiting > self.setup.completions() as usize {
                self.fail(side, "more completions wait than the queue holds");
            }
        }
    }
}

impl End {
    fn new(setup: Setup, side: usize) -> Self {
        let mut adapter = Adapter::new(setup.config(side), [side as u8 + 1; 32]).unwrap();
        let added = adapter.add_interface(PATH, setup.interface(side));
        debug_assert_eq!(added, Ok(()), "the interface is valid");
        let fits = "a fresh adapter has room";
        let domain = adapter.create_domain().expect(fits);
        let other_domain = adapter.create_domain().expect(fits);
        let queue = adapter.create_completion_queue(setup.completions()).expect(fits);
        let listener = adapter.listen(setup.listens_at(side)).expect(fits);
        let mut checked = Checked::new(adapter);
        checked.handle_path(Instant::ZERO, PATH, PathState::Up(setup.limits()));
        Self {
            checked,
            memory: Memory::new(),
            domain,
            other_domain,
            queue,
            listener,
            armed: None,
            under_way: UnderWay::new(BOUNDS),
            returned: Vec::new(),
            is_up: true,
        }
    }

    /// Memory with these bytes, in the middle of its region, and guarded.
    pub(super) fn lend(&mut self, bytes: &[u8]) -> Area {
        let mut all = Vec::with_capacity(bytes.len() + 2 * AROUND);
        all.extend_from_slice(&[GUARD; AROUND]);
        all.extend_from_slice(bytes);
        all.extend_from_slice(&[GUARD; AROUND]);
        let region = self.memory.lend(all);
        Area::new(region, AROUND as u64, bytes.len() as u64)
    }

    /// The bytes of memory.
    pub(super) fn bytes(&self, area: &Area) -> &[u8] {
        self.memory.get(&area.span(0, area.len as u32)).unwrap_or(&[])
    }

    /// Is what lies around the memory untouched?
    pub(super) fn is_guarded(&self, area: &Area) -> bool {
        let Some(region) = self.memory.region(area.region) else { return false };
        let (before, rest) = region.split_at((area.offset as usize).min(region.len()));
        let behind = rest.get(area.len as usize..).unwrap_or(&[]);
        before.iter().chain(behind).all(|byte| *byte == GUARD)
    }
}

/// Bounds of what is under way; beyond them it is lost, or must land first.
pub(super) const BOUNDS: Bounds =
    Bounds { inbox: 512, past: 64, landings: 0, held: 12, old: 16, reuses_tickets: true };

impl World {
    /// Sends up to this many units; says how many there were.
    pub(super) fn transmit(&mut self, side: usize, count: usize, holds: bool) -> usize {
        let mut head = [0; 256];
        let mut from = Spans::new();
        for n in 0..count {
            if self.ends[side].under_way.holds_most() {
                self.release(side, false);
                self.hear();
            }
            from.clear();
            let end = &mut self.ends[side];
            let transmit = end.checked.poll_transmit(self.now, PATH, &mut head, &mut from);
            let Some(transmit) = transmit else { return n };
            let bytes = gather(&end.memory, &transmit, &head, &from);
            end.under_way.hold(transmit.ticket);
            // With the first segment of a connection it may have been mated.
            self.hear_events();
            self.launch(side, &transmit, bytes);
            if !holds {
                self.release(side, false);
                self.hear();
            }
        }
        count
    }

    fn launch(&mut self, side: usize, transmit: &Transmit, bytes: Option<Vec<u8>>) {
        let Some(bytes) = bytes else {
            return self.fail(side, "sends what it does not have");
        };
        let limits = self.setup.limits();
        let most = if transmit.segment.is_some() { limits.super_unit } else { limits.unit };
        if bytes.len() > most as usize || transmit.to != Peer::Unaddressed {
            let what = format!("{} bytes to {} are too long", bytes.len(), transmit.to);
            return self.fail(side, &what);
        }
        self.findings.add(&bytes);
        self.write_down(|| format!("  {side} sends {}", spell(&bytes)));
        self.watch(side, &bytes);
        let is_up = self.ends[0].is_up && self.ends[1].is_up;
        if !is_up {
            return;
        }
        let setup = self.setup;
        let mut launch = |bytes, segment| {
            let packet = Packet::new(PATH, Peer::Unaddressed, bytes).segmented(segment);
            self.enqueue(1 - side, packet);
        };
        let Some(segment) = transmit.segment else { return launch(bytes, None) };
        if setup.is_coalesced() {
            let is_long = bytes.len() > limits.unit as usize;
            return launch(bytes, is_long.then_some(segment.size));
        }
        let mut pieces = cut(&bytes, segment);
        if setup.is_last_first() {
            frame::last_first(&mut pieces);
        }
        pieces.into_iter().for_each(|bytes| launch(bytes, None));
    }

    /// The driver holds nothing any more.
    pub(super) fn release(&mut self, side: usize, newest_first: bool) {
        let End { checked, under_way, .. } = &mut self.ends[side];
        under_way.release(checked, self.now, newest_first);
    }

    pub(super) fn enqueue(&mut self, side: usize, packet: Packet) {
        self.ends[side].under_way.enqueue(packet);
    }

    pub(super) fn pick(&mut self, side: usize, which: usize) -> Option<Packet> {
        self.ends[side].under_way.pick(which)
    }

    /// Flips one bit behind the Ethernet header, in each packet at most once, and in one
    /// of its pieces: two flips may hide each other from an Internet checksum.
    pub(super) fn flip(&mut self, side: usize, which: usize, bit: u16) {
        let Some(mut packet) = self.pick(side, which) else { return };
        let may_change = frame::identification(&packet.bytes)
            .is_none_or(|packet| self.flipped.insert((side, packet)));
        if !packet.is_changed && may_change && packet.bytes.len() > 14 {
            let bit = usize::from(bit) % ((packet.bytes.len() - 14) * 8);
            packet.bytes[14 + bit / 8] ^= 1 << (bit % 8);
            packet.is_changed = true;
            self.is_misled |= frame::is_arp(&packet.bytes);
        }
        self.enqueue(side, packet);
    }

    pub(super) fn mark(&mut self, side: usize, which: usize) {
        let Some(mut packet) = self.pick(side, which) else { return };
        frame::mark(&mut packet.bytes);
        self.enqueue(side, packet);
    }

    pub(super) fn inject(&mut self, side: usize, bytes: &[u8]) {
        let mut frame = [station(side), station(1 - side)].concat();
        frame.extend_from_slice(if bytes.len() & 1 == 0 { &[8, 0] } else { &[0x86, 0xdd] });
        frame.extend_from_slice(bytes);
        self.enqueue(side, Packet::new(PATH, Peer::Unaddressed, frame).changed());
    }

    /// A turn of the driver: it receives some of the packets under way, asks for
    /// their places, puts the payloads there, tells of each, writes deposits.
    pub(super) fn turn(&mut self, side: usize, count: usize, stride: usize, fails: bool) -> bool {
        let mut landings = Vec::new();
        for nth in 0..count {
            let End { checked, under_way, .. } = &mut self.ends[side];
            let Some(received) = under_way.receive(checked, self.now, nth * stride) else { break };
            let (packet, placement, into) = &received;
            if self.findings.is_told() {
                let what = spell(&packet.bytes);
                self.write_down(|| format!("  {side} gets {what}: {placement:?} {into:?}"));
            }
            self.check_place(side, into);
            landings.push(received);
        }
        let moved = !landings.is_empty();
        for (nth, (packet, placement, into)) in landings.into_iter().enumerate() {
            let Ok(placement @ Placement::Into { .. }) = placement else { continue };
            let End { checked, memory, under_way, .. } = &mut self.ends[side];
            if let Some((ticket, landing)) =
                packet.land(memory, &placement, &into, fails && nth == 0)
            {
                under_way.tell(checked, self.now, ticket, landing);
            }
        }
        self.deposit(side, fails) || moved
    }

    /// Writes what the engine kept to its place.
    fn deposit(&mut self, side: usize, mut fails: bool) -> bool {
        let mut into = Spans::new();
        for nth in 0..BOUNDS.inbox {
            into.clear();
            let End { checked, memory, under_way, .. } = &mut self.ends[side];
            let Some(deposit) = checked.poll_deposit(self.now, &mut into) else { return nth > 0 };
            let ticket = deposit.ticket;
            let is_there = !core::mem::take(&mut fails) && put(memory, deposit.bytes, &into);
            let landing = if is_there { Landing::Verified } else { Landing::Failed };
            under_way.tell(checked, self.now, ticket, landing);
            self.check_place(side, &into);
        }
        self.fail(side, "deposits without end");
        true
    }

    /// A receive that was guessed wrong: junk wherever the engine allows it.
    pub(super) fn scatter(&mut self, side: usize) {
        let mut guessed = Vec::new();
        let End { checked, memory, .. } = &mut self.ends[side];
        let found = scatter(checked, memory, PATH, |span| {
            guessed.push(*span);
            true
        });
        self.check_place(side, &guessed);
        if let Err(span) = found {
            self.fail(side, &format!("guesses {span}"));
        }
    }

    /// Time passes: by this many units of 64 µs, or up to the next timeout.
    pub(super) fn wait(&mut self, some: Option<u8>) {
        let time = some.map(|some| Duration::from_micros(u64::from(some) * 64));
        pass_time(&mut self.now, time, self.ends.iter_mut().map(|end| &mut end.checked));
        self.hear();
    }

    pub(super) fn set_path(&mut self, side: usize, is_up: bool) {
        let state = if is_up { PathState::Up(self.setup.limits()) } else { PathState::Down };
        self.ends[side].is_up = is_up;
        self.ends[side].checked.handle_path(self.now, PATH, state);
    }

    /// Old tickets come back that mean nothing now (invariant 7).
    pub(super) fn bring_back_old(&mut self, side: usize) {
        let End { checked, under_way, .. } = &mut self.ends[side];
        under_way.bring_back_placed(checked, self.now);
        under_way.bring_back_sent(checked, self.now);
    }

    /// Everything that is under way arrives, and what is said in answer.
    pub(super) fn settle(&mut self) {
        for _ in 0..4 {
            if !self.round() {
                return;
            }
        }
    }

    /// Each side once receives what is under way and sends what it has. Says
    /// whether anything moved.
    pub(super) fn round(&mut self) -> bool {
        let mut moved = false;
        for side in 0..2 {
            while self.ends[side].under_way.packets() > 0 {
                moved |= self.turn(side, 8, 0, false);
                self.hear();
            }
            self.release(side, false);
            self.hear();
            moved |= self.transmit(side, BOUNDS.inbox / 8, false) > 0;
            self.hear();
        }
        moved
    }
}

/// A packet in words.
fn spell(bytes: &[u8]) -> alloc::string::String {
    match frame::read(bytes) {
        Some(said) => format!("{} bytes: {said:?}", bytes.len()),
        None => format!("{} bytes: {:02x?}", bytes.len(), &bytes[..bytes.len().min(48)]),
    }
}
