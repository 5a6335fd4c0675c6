//! The driver of each endpoint, and the network: it loses, doubles, delays,
//! reorders and changes what is under way.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{
    Check, Duration, Ecn, Engine, InternetSum, Landing as Verdict, PathId, PathState, Peer,
    Placement, Refusal, Spans, Ticket, Transmit, Unit,
};
use landfall_test_engines::model::{Memory, digest};

use super::world::{Landing, PATHS, Packet, World};
use crate::wire::Message;

/// Bounds of what is under way; beyond them it is lost, or must land first.
const INBOX: usize = 256;
const LANDINGS: usize = 48;
const HELD: usize = 48;
const OLD: usize = 16;
const PAST: usize = 48;

impl World {
    /// Sends up to so many units; says how many there were.
    pub(super) fn transmit(
        &mut self,
        side: usize,
        path: PathId,
        count: usize,
        holds: bool,
    ) -> usize {
        let mut head = [0; 256];
        let mut from = Spans::new();
        for n in 0..count {
            if self.ends[side].held.len() >= HELD {
                self.release(side, false);
            }
            from.clear();
            let end = &mut self.ends[side];
            let Some(transmit) = end.checked.poll_transmit(self.now, path, &mut head, &mut from)
            else {
                return n;
            };
            let bytes = gather(&end.memory, &transmit, &head, &from);
            end.held.push_back(transmit.ticket);
            if !holds {
                self.release(side, false);
            }
            let to = match transmit.to {
                Peer::Node(to) if (to as usize) < self.sides() => to as usize,
                other => {
                    self.fail(side, &format!("sends to {other}"));
                    continue;
                }
            };
            let Some(bytes) = bytes else {
                self.fail(side, "sends what it does not have");
                continue;
            };
            if bytes.len() > self.setup.limits(path.0).unit as usize {
                self.fail(side, &format!("{} bytes are too long for {path:?}", bytes.len()));
                continue;
            }
            self.digest_bytes(&bytes);
            self.write_down(|| format!("  {side} → {to} on {}: {}", path.0, spell(&bytes)));
            self.enqueue(to, Packet { path, from: side, bytes, is_changed: false });
        }
        count
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

    /// Asks for the place of one of the packets under way.
    pub(super) fn place(&mut self, side: usize, which: usize) {
        if self.ends[side].landings.len() >= LANDINGS {
            self.land(side, LANDINGS, false);
        }
        let Some(packet) = self.pick(side, which) else { return };
        let end = &mut self.ends[side];
        if !packet.is_changed {
            if end.past.len() >= PAST {
                end.past.pop_front();
            }
            end.past.push_back(packet.clone());
        }
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
            for _ in 0..self.ends[side].inbox.len() {
                self.place(side, 0);
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
