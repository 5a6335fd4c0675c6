//! The driver of each endpoint, and the network: it loses, doubles, delays,
//! reorders and changes what is under way.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{
    Check, Duration, Ecn, Engine, Heads, InternetSum, Landing as Verdict, PathId, PathState, Peer,
    Placement, Refusal, RunRoom, Spans, Ticket, Transmit, Unit, UnitRun,
};
use landfall_testkit::model::{Memory, digest};

use super::world::{Landing, PATHS, Packet, World};
use crate::wire::{HEADER_LEN, Message};

/// Bounds of what is under way; beyond them it is lost, or must land first.
const INBOX: usize = 256;
const LANDINGS: usize = 48;
const HELD: usize = 48;
const OLD: usize = 16;
const PAST: usize = 48;
/// The most units of a run.
const RUN: usize = 16;

impl World {
    /// Sends up to so many units, in runs where the engine has any; says how many there were.
    pub(super) fn transmit(
        &mut self,
        side: usize,
        path: PathId,
        count: usize,
        holds: bool,
    ) -> usize {
        let mut n = 0;
        while n < count {
            if self.ends[side].held.len() >= HELD {
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

    /// Sends a run of at most so many units; says how many it has.
    fn transmit_run(&mut self, side: usize, path: PathId, most: usize) -> usize {
        let mut heads = [[0; HEADER_LEN]; RUN];
        let units = most.min(RUN);
        let room = heads[..units].as_flattened_mut();
        // What one call carries: so runs are cut elsewhere on each path.
        let most_bytes = 700 + 300 * u32::from(path.0);
        let mut room = RunRoom::new(room, HEADER_LEN, most_bytes);
        let end = &mut self.ends[side];
        let Some(run) = end.checked.poll_transmit_run(self.now, path, &mut room) else { return 0 };
        end.held.push_back(run.ticket);
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
        end.held.push_back(transmit.ticket);
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
        self.digest_bytes(&bytes);
        self.write_down(|| format!("  {side} → {to} on {}: {}", path.0, spell(&bytes)));
        self.enqueue(to, Packet { path, from: side, bytes, is_changed: false });
    }

    /// The driver holds nothing any more.
    pub(super) fn release(&mut self, side: usize, newest_first: bool) {
        loop {
            let held = &mut self.ends[side].held;
            let ticket = if newest_first { held.pop_back() } else { held.pop_front() };
            let Some(ticket) = ticket else { return };
            self.ends[side].checked.handle_sent(self.now, ticket);
            keep_old(&mut self.ends[side].old[1], ticket);
        }
    }

    pub(super) fn enqueue(&mut self, side: usize, packet: Packet) {
        let inbox = &mut self.ends[side].inbox;
        if inbox.len() < INBOX {
            inbox.push_back(packet);
        }
    }

    pub(super) fn pick(&mut self, side: usize, which: usize) -> Option<Packet> {
        let inbox = &mut self.ends[side].inbox;
        let at = which % inbox.len().max(1);
        inbox.remove(at)
    }

    pub(super) fn double(&mut self, side: usize, which: usize) {
        if let Some(packet) = self.pick(side, which) {
            self.enqueue(side, packet.clone());
            self.enqueue(side, packet);
        }
    }

    pub(super) fn replay(&mut self, side: usize, which: usize) {
        let past = &self.ends[side].past;
        if let Some(packet) = past.get(which % past.len().max(1)).cloned() {
            self.enqueue(side, packet);
        }
    }

    /// Flips one bit, in each packet at most once: two flips may hide each
    /// other from an Internet checksum.
    pub(super) fn flip(&mut self, side: usize, which: usize, bit: u16) {
        let Some(mut packet) = self.pick(side, which) else { return };
        if !packet.is_changed && self.setup.has_checksum() {
            let bit = usize::from(bit) % (packet.bytes.len() * 8).max(1);
            if let Some(byte) = packet.bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            packet.is_changed = true;
        }
        self.enqueue(side, packet);
    }

    pub(super) fn inject(&mut self, side: usize, bytes: &[u8]) {
        let from = (side + 1) % self.sides();
        let path = PathId(bytes.len() as u16 % PATHS);
        self.enqueue(side, Packet { path, from, bytes: bytes.to_vec(), is_changed: true });
    }

    /// Asks for the place of one of the packets under way; of those behind it, too, where
    /// they came with it and the engine answers for a run.
    pub(super) fn place(&mut self, side: usize, which: usize) {
        if self.ends[side].landings.len() >= LANDINGS {
            self.land(side, LANDINGS, false);
        }
        let at = which % self.ends[side].inbox.len().max(1);
        if self.place_run(side, at) {
            return self.hear();
        }
        let Some(packet) = self.pick(side, which) else { return };
        self.remember(side, &packet);
        let end = &mut self.ends[side];
        let mut into = Spans::new();
        let placement = ask_place(&mut end.checked, self.now, &packet, &mut into);
        if self.story.is_some() {
            self.write_down(|| format!("  {side} ← {}: {placement:?}", spell(&packet.bytes)));
        }
        if let Ok(placement) = placement
            && !matches!(placement, Placement::Consumed | Placement::NeedHead(_))
        {
            self.ends[side].landings.push_back(Landing { packet, placement, into });
        }
        self.hear();
    }

    /// Offers the packets from this one on that one receive would bring: of one sender and
    /// length, the last possibly shorter. Says whether the engine took any.
    fn place_run(&mut self, side: usize, at: usize) -> bool {
        let end = &mut self.ends[side];
        let Some(first) = end.inbox.get(at) else { return false };
        let (path, from, unit_len) = (first.path, first.from, first.bytes.len());
        let alike = |packet: &&Packet| {
            packet.path == path && packet.from == from && packet.bytes.len() <= unit_len
        };
        let mut heads = Vec::new();
        let (mut units, mut last_len) = (0, unit_len);
        for packet in end.inbox.iter().skip(at).take_while(alike).take(RUN) {
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
            from: Peer::Node(from as u32),
            heads,
            unit_len: unit_len as u32,
            last_len: last_len as u32,
            ecn: Ecn::NotCapable,
        };
        let Some(placed) = end.checked.place_run(self.now, &run) else { return false };
        let packets: Vec<_> = end.inbox.drain(at..at + usize::from(placed.units)).collect();
        let mut payload = Vec::new();
        for packet in &packets {
            payload.extend_from_slice(&packet.bytes[usize::from(placed.at)..]);
            self.remember(side, packet);
        }
        self.write_down(|| format!("  {side} ← a run: {placed:?}"));
        let mut into = Spans::new();
        let _ = into.push(placed.span);
        let placement = Placement::Into { at: 0, check: Check::None, ticket: placed.ticket };
        let packet = Packet { path, from, bytes: payload, is_changed: false };
        self.ends[side].landings.push_back(Landing { packet, placement, into });
        true
    }

    /// What came may come again later.
    fn remember(&mut self, side: usize, packet: &Packet) {
        let past = &mut self.ends[side].past;
        if !packet.is_changed {
            if past.len() >= PAST {
                past.pop_front();
            }
            past.push_back(packet.clone());
        }
    }

    /// Tells of landings, in order; the first of them may fail.
    pub(super) fn land(&mut self, side: usize, count: usize, fails: bool) {
        for n in 0..count {
            let end = &mut self.ends[side];
            let Some(landing) = end.landings.pop_front() else { return };
            let fails = fails && n == 0 && self.setup.may_fail();
            end.has_failed |= fails;
            if let Some((ticket, verdict)) = carry_out(&mut end.memory, &landing, fails) {
                end.checked.handle_placed(self.now, ticket, verdict);
                for span in landing.into.iter().filter(|span| end.shared.contains(&span.region)) {
                    end.checked.reuse(&(*span).into());
                }
                keep_old(&mut end.old[0], ticket);
            }
            self.hear();
        }
    }

    /// A receive that was guessed wrong: junk wherever the engine allows it.
    pub(super) fn scatter(&mut self, side: usize, path: PathId) {
        for nth in 0..4 {
            let end = &mut self.ends[side];
            let Some(guess) = end.checked.guess(path, nth) else { return };
            let is_shared = end.shared.contains(&guess.span.region);
            match end.memory.get_mut(&guess.span) {
                Some(bytes) if !is_shared => bytes.fill(0xee),
                _ => return self.fail(side, &format!("guesses {}", guess.span)),
            }
        }
    }

    /// Time passes: by so many units of 8 µs, or up to the next timeout.
    pub(super) fn wait(&mut self, some: Option<u8>) {
        let next =
            self.ends.iter().filter_map(|end| end.checked.poll_timeout()).map(|t| t.at).min();
        self.now = match some {
            Some(some) => self.now + Duration::from_micros(u64::from(some) * 8),
            None => self.now.max(next.unwrap_or(self.now)),
        };
        for end in &mut self.ends {
            end.checked.handle_timeout(self.now);
        }
        self.hear();
    }

    pub(super) fn set_path(&mut self, side: usize, path: u16, is_up: bool) {
        let state = if is_up { PathState::Up(self.setup.limits(path)) } else { PathState::Down };
        self.ends[side].checked.handle_path(self.now, PathId(path), state);
    }

    /// An old ticket comes back that means nothing now (invariant 7). It
    /// passes by the checker, which would blame the driver.
    pub(super) fn bring_back_old(&mut self, side: usize) {
        let end = &mut self.ends[side];
        // Where units of the same Block are under way, it may name one of them.
        if end.landings.is_empty()
            && let Some(ticket) = end.old[0].pop_front()
        {
            end.checked.engine.handle_placed(self.now, ticket, Verdict::Verified);
        }
        if let Some(ticket) = end.old[1].pop_front()
            && !end.held.contains(&ticket)
        {
            end.checked.engine.handle_sent(self.now, ticket);
        }
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
            moved |= !self.ends[side].inbox.is_empty() || !self.ends[side].landings.is_empty();
            let most = self.ends[side].inbox.len();
            for _ in 0..most {
                if !self.ends[side].inbox.is_empty() {
                    self.place(side, 0);
                }
            }
            self.land(side, usize::MAX, false);
            self.release(side, false);
            for path in 0..PATHS {
                moved |= self.transmit(side, PathId(path), INBOX / 4, false) > 0;
            }
            self.hear();
        }
        moved
    }

    pub(super) fn digest_bytes(&mut self, bytes: &[u8]) {
        self.digest = digest(self.digest, bytes);
    }
}

/// A packet in words.
fn spell(bytes: &[u8]) -> String {
    match Message::decode(bytes) {
        Ok((_, message)) => format!("{message:?}"),
        Err(refusal) => format!("{} bytes: {refusal}", bytes.len()),
    }
}

fn keep_old(old: &mut alloc::collections::VecDeque<Ticket>, ticket: Ticket) {
    old.push_back(ticket);
    if old.len() > OLD {
        old.pop_front();
    }
}

/// The whole packet: head and payload in one, with its checksum filled in.
fn gather(memory: &Memory, transmit: &Transmit, head: &[u8], from: &Spans) -> Option<Vec<u8>> {
    let mut bytes = head.get(..usize::from(transmit.head_len))?.to_vec();
    for span in from.iter() {
        bytes.extend_from_slice(memory.get(span)?);
    }
    if let Some(slot) = transmit.checksum {
        let mut sum = InternetSum::new();
        sum.add(bytes.get(usize::from(slot.start)..)?);
        let at = usize::from(slot.start) + usize::from(slot.offset);
        bytes.get_mut(at..at + 2)?.copy_from_slice(&sum.checksum().to_be_bytes());
    }
    Some(bytes)
}

/// Asks where a packet belongs, with more and more of its head.
fn ask_place<E: Engine>(
    engine: &mut E,
    now: landfall_placement::Instant,
    packet: &Packet,
    into: &mut Spans,
) -> Result<Placement, Refusal> {
    let mut have = 17;
    // A head grows each time, so this ends at the length of the packet.
    loop {
        into.clear();
        let unit = Unit {
            path: packet.path,
            from: Peer::Node(packet.from as u32),
            head: &packet.bytes[..packet.bytes.len().min(have)],
            len: packet.bytes.len() as u32,
            segment: None,
            ecn: Ecn::NotCapable,
        };
        match engine.place(now, &unit, into) {
            Ok(Placement::NeedHead(more)) => {
                let more = usize::from(more);
                if more <= have || more > packet.bytes.len() {
                    return Err(Refusal::Truncated);
                }
                have = more;
            }
            other => return other,
        }
    }
}

/// Puts a payload where it belongs, if its check is good.
fn carry_out(memory: &mut Memory, landing: &Landing, fails: bool) -> Option<(Ticket, Verdict)> {
    let bytes = &landing.packet.bytes;
    match landing.placement {
        Placement::Into { ticket, .. } | Placement::Word(_, ticket) if fails => {
            Some((ticket, Verdict::Failed))
        }
        Placement::Into { at, check, ticket } => {
            let verdict = verify(bytes, check);
            if verdict != Verdict::Corrupt {
                let mut rest = bytes.get(usize::from(at)..).unwrap_or(&[]);
                for span in landing.into.iter() {
                    let part;
                    (part, rest) = rest.split_at(rest.len().min(span.len as usize));
                    match memory.get_mut(span) {
                        Some(place) => place[..part.len()].copy_from_slice(part),
                        None => return Some((ticket, Verdict::Failed)),
                    }
                }
            }
            Some((ticket, verdict))
        }
        Placement::Word(op, ticket) => {
            Some((ticket, memory.word(&op).map_or(Verdict::Failed, Verdict::Old)))
        }
        Placement::NeedHead(_) | Placement::Consumed => None,
    }
}

fn verify(bytes: &[u8], check: Check) -> Verdict {
    match check {
        Check::None => Verdict::Unchecked,
        Check::InternetSum { from, len, seed } => {
            let from = usize::from(from);
            let covered = from.checked_add(len as usize).and_then(|end| bytes.get(from..end));
            let mut sum = InternetSum::new();
            sum.add_word(seed);
            sum.add(covered.unwrap_or(&[]));
            if covered.is_some() && sum.sum() == 0xffff {
                Verdict::Verified
            } else {
                Verdict::Corrupt
            }
        }
    }
}
