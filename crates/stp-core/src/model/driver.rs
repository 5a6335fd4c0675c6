//! The driver of each endpoint, and the network: it loses, doubles, delays,
//! reorders and changes what is under way.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{
    Check, Duration, Ecn, Engine, Heads, Landing, PathId, PathState, Peer, Placement, RunRoom,
    Span, Spans, UnitRun,
};
use landfall_testkit::model::{Bounds, Packet, gather, pass_time, put, scatter};

use super::world::{End, PATHS, World};
use crate::wire::{HEADER_LEN, Message};

/// Bounds of what is under way; beyond them it is lost, or must land first.
pub(super) const BOUNDS: Bounds =
    Bounds { inbox: 256, past: 48, landings: 48, held: 48, old: 16, reuses_tickets: false };
/// The most units of a run.
const RUN: usize = 16;

impl World {
    /// Sends up to this many units, in runs where the engine has any; says how many there were.
    pub(super) fn transmit(
        &mut self,
        side: usize,
        path: PathId,
        count: usize,
        holds: bool,
    ) -> usize {
        let mut n = 0;
        while n < count {
            if self.ends[side].under_way.holds_most() {
                self.release(side, false);
            }
            let sent = match self.transmit_run(side, path, count - n) {
                0 => self.transmit_unit(side, path),
                sent => sent,
            };
            if sent == 0 {
                return n;
            }
            n += sent;
            if !holds {
                self.release(side, false);
            }
        }
        n
    }

    /// Sends a run of at most this many units; says how many it has.
    fn transmit_run(&mut self, side: usize, path: PathId, most: usize) -> usize {
        let mut heads = [[0; HEADER_LEN]; RUN];
        let units = most.min(RUN);
        let room = heads[..units].as_flattened_mut();
        // What one call carries: so runs are cut elsewhere on each path.
        let most_bytes = 700 + 300 * u32::from(path.0);
        let mut room = RunRoom::new(room, HEADER_LEN, most_bytes);
        let end = &mut self.ends[side];
        let Some(run) = end.checked.poll_transmit_run(self.now, path, &mut room) else { return 0 };
        end.under_way.hold(run.ticket);
        let mut rest = run.span;
        for head in heads.iter().take(usize::from(run.units)) {
            let (span, behind) = rest.split_at(run.payload_len);
            rest = behind;
            let payload = self.ends[side].memory.get(&span);
            let bytes = payload.map(|payload| [&head[..], payload].concat());
            self.send_packet(side, path, run.to, bytes);
        }
        usize::from(run.units)
    }

    /// Sends a unit, if there is one; says how many there were.
    fn transmit_unit(&mut self, side: usize, path: PathId) -> usize {
        let mut head = [0; 256];
        let mut from = Spans::new();
        let end = &mut self.ends[side];
        let Some(transmit) = end.checked.poll_transmit(self.now, path, &mut head, &mut from) else {
            return 0;
        };
        end.under_way.hold(transmit.ticket);
        let bytes = gather(&end.memory, &transmit, &head, &from);
        self.send_packet(side, path, transmit.to, bytes);
        1
    }

    /// A packet goes to the network.
    fn send_packet(&mut self, side: usize, path: PathId, to: Peer, bytes: Option<Vec<u8>>) {
        let to = match to {
            Peer::Node(to) if (to as usize) < self.sides() => to as usize,
            other => return self.fail(side, &format!("sends to {other}")),
        };
        let Some(bytes) = bytes else { return self.fail(side, "sends what it does not have") };
        if bytes.len() > self.setup.limits(path.0).unit as usize {
            return self.fail(side, &format!("{} bytes are too long for {path:?}", bytes.len()));
        }
        self.findings.add(&bytes);
        self.write_down(|| format!("  {side} → {to} on {}: {}", path.0, spell(&bytes)));
        let from = Peer::Node(side as u32);
        self.ends[to].under_way.enqueue(Packet::new(path, from, bytes));
    }

    /// The driver holds nothing any more.
    pub(super) fn release(&mut self, side: usize, newest_first: bool) {
        let End { checked, under_way, .. } = &mut self.ends[side];
        under_way.release(checked, self.now, newest_first);
    }

    pub(super) fn flip(&mut self, side: usize, which: usize, bit: u16) {
        let can_flip = self.setup.has_checksum();
        self.ends[side].under_way.change(which, |packet| {
            if can_flip {
                packet.flip(0, bit);
            }
        });
    }

    pub(super) fn inject(&mut self, side: usize, bytes: &[u8]) {
        let from = Peer::Node(((side + 1) % self.sides()) as u32);
        let path = PathId(bytes.len() as u16 % PATHS);
        self.ends[side].under_way.enqueue(Packet::new(path, from, bytes.to_vec()).changed());
    }

    /// Asks for the place of one of the packets under way; of those behind it, too, where
    /// they came with it and the engine answers for a run.
    pub(super) fn place(&mut self, side: usize, which: usize) {
        if self.ends[side].under_way.is_full() {
            self.land(side, BOUNDS.landings, false);
        }
        let at = which % self.ends[side].under_way.packets().max(1);
        if self.place_run(side, at) {
            return self.hear();
        }
        let End { checked, under_way, .. } = &mut self.ends[side];
        let Some((packet, placement, into)) = under_way.receive(checked, self.now, which) else {
            return;
        };
        if self.findings.is_told() {
            self.write_down(|| format!("  {side} ← {}: {placement:?}", spell(&packet.bytes)));
        }
        if let Ok(placement) = placement {
            self.ends[side].under_way.keep(packet, placement, into);
        }
        self.hear();
    }

    /// Offers the packets from this one on that one receive would bring: of one sender and
    /// length, the last possibly shorter. Returns whether the engine took any.
    fn place_run(&mut self, side: usize, at: usize) -> bool {
        let end = &mut self.ends[side];
        let Some(first) = end.under_way.packets_from(at).next() else { return false };
        let (path, from, unit_len) = (first.path, first.from, first.bytes.len());
        let alike = |packet: &&Packet| {
            packet.path == path && packet.from == from && packet.bytes.len() <= unit_len
        };
        let mut heads = Vec::new();
        let (mut units, mut last_len) = (0, unit_len);
        for packet in end.under_way.packets_from(at).take_while(alike).take(RUN) {
            let Some(head) = packet.bytes.first_chunk::<HEADER_LEN>() else { break };
            heads.extend_from_slice(head);
            (units, last_len) = (units + 1, packet.bytes.len());
            if last_len < unit_len {
                break;
            }
        }
        let Some(heads) = Heads::new(&heads, HEADER_LEN, HEADER_LEN, units) else { return false };
        let run = UnitRun {
            path,
            from,
            heads,
            unit_len: unit_len as u32,
            last_len: last_len as u32,
            ecn: Ecn::NotCapable,
        };
        let Some(placed) = end.checked.place_run(self.now, &run) else { return false };
        let mut payload = Vec::new();
        for packet in end.under_way.receive_run(at, placed.units.into()) {
            payload.extend_from_slice(&packet.bytes[usize::from(placed.at)..]);
        }
        self.write_down(|| format!("  {side} ← a run: {placed:?}"));
        let mut into = Spans::new();
        let _ = into.push(placed.span);
        let placement = Placement::Into { at: 0, check: Check::None, ticket: placed.ticket };
        self.ends[side].under_way.keep(Packet::new(path, from, payload), placement, into);
        true
    }

    /// Tells of landings, in order; the first of them may fail.
    pub(super) fn land(&mut self, side: usize, count: usize, fails: bool) {
        self.deposit(side);
        for n in 0..count {
            let End { checked, memory, under_way, shared, has_failed, .. } = &mut self.ends[side];
            let fails = fails && n == 0 && self.setup.may_fail();
            let Some(into) = under_way.land(checked, memory, self.now, fails) else { return };
            *has_failed |= fails;
            for span in into.iter().filter(|span| shared.contains(&span.region)) {
                checked.reuse(&(*span).into());
            }
            self.hear();
        }
    }

    /// What the engine kept goes to its place, once nothing else is on its way to its own. Says
    /// whether there was anything.
    pub(super) fn deposit(&mut self, side: usize) -> bool {
        let mut moved = false;
        loop {
            let End { checked, memory, under_way, shared, .. } = &mut self.ends[side];
            if under_way.waiting() > 0 {
                return moved;
            }
            let mut into = Spans::new();
            let Some(deposit) = checked.poll_deposit(self.now, &mut into) else { return moved };
            let ticket = deposit.ticket;
            let is_there = put(memory, deposit.bytes, &into);
            let landing = if is_there { Landing::Verified } else { Landing::Failed };
            under_way.tell(checked, self.now, ticket, landing);
            for span in into.iter().filter(|span| shared.contains(&span.region)) {
                checked.reuse(&(*span).into());
            }
            if !is_there {
                self.fail(side, "keeps what has no place");
            }
            moved = true;
            self.hear();
        }
    }

    /// A receive that was guessed wrong: junk wherever the engine allows it.
    pub(super) fn scatter(&mut self, side: usize, path: PathId) {
        let End { checked, memory, shared, .. } = &mut self.ends[side];
        let may_fall = |span: &Span| !shared.contains(&span.region);
        if let Err(span) = scatter(checked, memory, path, may_fall) {
            self.fail(side, &format!("guesses {span}"));
        }
    }

    /// Time passes: by this many units of 8 µs, or up to the next timeout.
    pub(super) fn wait(&mut self, some: Option<u8>) {
        let time = some.map(|some| Duration::from_micros(u64::from(some) * 8));
        pass_time(&mut self.now, time, self.ends.iter_mut().map(|end| &mut end.checked));
        self.hear();
    }

    pub(super) fn set_path(&mut self, side: usize, path: u16, is_up: bool) {
        let state = if is_up { PathState::Up(self.setup.limits(path)) } else { PathState::Down };
        self.ends[side].checked.handle_path(self.now, PathId(path), state);
    }

    /// Old tickets come back that mean nothing now (invariant 7).
    pub(super) fn bring_back_old(&mut self, side: usize) {
        let End { checked, under_way, .. } = &mut self.ends[side];
        // Where units of the same Block are under way, it may name one of them.
        if under_way.waiting() == 0 {
            under_way.bring_back_placed(checked, self.now);
        }
        under_way.bring_back_sent(checked, self.now);
    }

    /// Everything that is under way arrives, and what is said in answer. Says
    /// whether anything moved.
    pub(super) fn settle(&mut self) {
        for _ in 0..3 {
            self.round();
        }
    }

    /// Each end once receives what is under way and sends what it has.
    pub(super) fn round(&mut self) -> bool {
        let mut moved = false;
        for side in 0..self.sides() {
            let under_way = &self.ends[side].under_way;
            moved |= under_way.packets() + under_way.waiting() > 0;
            for _ in 0..under_way.packets() {
                if self.ends[side].under_way.packets() > 0 {
                    self.place(side, 0);
                }
            }
            self.land(side, usize::MAX, false);
            moved |= self.deposit(side);
            self.release(side, false);
            for path in 0..PATHS {
                moved |= self.transmit(side, PathId(path), BOUNDS.inbox / 4, false) > 0;
            }
            self.hear();
        }
        moved
    }
}

/// A packet in words.
fn spell(bytes: &[u8]) -> String {
    match Message::decode(bytes) {
        Ok((_, message)) => format!("{message:?}"),
        Err(refusal) => format!("{} bytes: {refusal}", bytes.len()),
    }
}
