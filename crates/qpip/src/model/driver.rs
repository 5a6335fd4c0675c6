//! The driver of each side, and the wire: it loses, doubles, delays, reorders,
//! cuts and changes what is under way.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::vec::Vec;

use landfall_placement::{
    Check, Duration, Ecn, Engine, InternetSum, Landing, PathState, Peer, Placement, Refusal, Spans,
    Ticket, Transmit, Unit,
};
use landfall_testkit::model::{Memory, cut};

use super::frame;
use super::setup::station;
use super::world::{End, PATH, Packet, World};

/// Bounds of what is under way; beyond them it is lost, or must land first.
const INBOX: usize = 512;
const HELD: usize = 12;
const OLD: usize = 16;
const PAST: usize = 64;

impl World {
    /// Sends up to so many units; says how many there were.
    pub(super) fn transmit(&mut self, side: usize, count: usize, holds: bool) -> usize {
        let mut head = [0; 256];
        let mut from = Spans::new();
        for n in 0..count {
            if self.ends[side].held.len() >= HELD {
                self.release(side, false);
                self.hear();
            }
            from.clear();
            let end = &mut self.ends[side];
            let transmit = end.checked.poll_transmit(self.now, PATH, &mut head, &mut from);
            let Some(transmit) = transmit else { return n };
            let bytes = gather(&end.memory, &transmit, &head, &from);
            end.held.push_back(transmit.ticket);
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
        self.digest_bytes(&bytes);
        self.write_down(|| format!("  {side} sends {}", spell(&bytes)));
        self.watch(side, &bytes);
        let is_up = self.ends[0].is_up && self.ends[1].is_up;
        if !is_up {
            return;
        }
        let Some(segment) = transmit.segment else {
            return self.enqueue(1 - side, Packet { bytes, segment: None, is_changed: false });
        };
        if self.setup.is_coalesced() {
            let segment = Some(segment.size).filter(|_| bytes.len() > limits.unit as usize);
            return self.enqueue(1 - side, Packet { bytes, segment, is_changed: false });
        }
        let mut pieces = cut(&bytes, segment);
        if self.setup.is_last_first() {
            frame::last_first(&mut pieces);
        }
        for bytes in pieces {
            self.enqueue(1 - side, Packet { bytes, segment: None, is_changed: false });
        }
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
        self.enqueue(side, Packet { bytes: frame, segment: None, is_changed: true });
    }

    /// A turn of the driver: it receives some of the packets under way, asks for
    /// their places, puts the payloads there, tells of each, writes deposits.
    pub(super) fn turn(&mut self, side: usize, count: usize, stride: usize, fails: bool) -> bool {
        let mut landings = VecDeque::new();
        for nth in 0..count {
            let Some(packet) = self.pick(side, nth * stride) else { break };
            let end = &mut self.ends[side];
            if !packet.is_changed {
                if end.past.len() >= PAST {
                    end.past.pop_front();
                }
                end.past.push_back(packet.clone());
            }
            let mut into = Spans::new();
            let placement = place(&mut end.checked, self.now, &packet, &mut into);
            if self.story.is_some() {
                let what = spell(&packet.bytes);
                self.write_down(|| format!("  {side} gets {what}: {placement:?} {into:?}"));
            }
            self.check_place(side, &into);
            landings.push_back((packet, placement, into));
        }
        let moved = !landings.is_empty();
        for (nth, (packet, placement, into)) in landings.into_iter().enumerate() {
            let Ok(Placement::Into { at, check, ticket }) = placement else { continue };
            let end = &mut self.ends[side];
            let landing = match fails && nth == 0 {
                true => Landing::Failed,
                false => put(&mut end.memory, &packet.bytes, usize::from(at), check, &into),
            };
            end.checked.handle_placed(self.now, ticket, landing);
            keep_old(&mut end.old[0], ticket);
        }
        self.deposit(side, fails) || moved
    }

    /// Writes what the engine kept to its place.
    fn deposit(&mut self, side: usize, mut fails: bool) -> bool {
        let mut into = Spans::new();
        for nth in 0..INBOX {
            into.clear();
            let End { checked, memory, old, .. } = &mut self.ends[side];
            let Some(deposit) = checked.poll_deposit(self.now, &mut into) else { return nth > 0 };
            let (ticket, bytes) = (deposit.ticket, deposit.bytes);
            let landing = match core::mem::take(&mut fails) {
                true => Landing::Failed,
                false => put(memory, bytes, 0, Check::None, &into),
            };
            let is_there = landing == Landing::Unchecked;
            let landing = if is_there { Landing::Verified } else { Landing::Failed };
            checked.handle_placed(self.now, ticket, landing);
            keep_old(&mut old[0], ticket);
            self.check_place(side, &into);
        }
        self.fail(side, "deposits without end");
        true
    }

    /// A receive that was guessed wrong: junk wherever the engine allows it.
    pub(super) fn scatter(&mut self, side: usize) {
        for nth in 0..4 {
            let end = &mut self.ends[side];
            let Some(guess) = end.checked.guess(PATH, nth) else { return };
            self.check_place(side, &[guess.span]);
            let end = &mut self.ends[side];
            match end.memory.get_mut(&guess.span) {
                Some(bytes) => bytes.fill(0xee),
                None => return self.fail(side, &format!("guesses {}", guess.span)),
            }
        }
    }

    /// Time passes: by so many units of 64 µs, or up to the next timeout.
    pub(super) fn wait(&mut self, some: Option<u8>) {
        let next =
            self.ends.iter().filter_map(|end| end.checked.poll_timeout()).map(|t| t.at).min();
        self.now = match some {
            Some(some) => self.now + Duration::from_micros(u64::from(some) * 64),
            None => self.now.max(next.unwrap_or(self.now)),
        };
        for end in &mut self.ends {
            end.checked.handle_timeout(self.now);
        }
        self.hear();
    }

    pub(super) fn set_path(&mut self, side: usize, is_up: bool) {
        let state = if is_up { PathState::Up(self.setup.limits()) } else { PathState::Down };
        self.ends[side].is_up = is_up;
        self.ends[side].checked.handle_path(self.now, PATH, state);
    }

    /// An old ticket comes back that means nothing now (invariant 7). It passes
    /// by the checker, which would blame the driver.
    pub(super) fn bring_back_old(&mut self, side: usize) {
        let end = &mut self.ends[side];
        if let Some(ticket) = end.old[0].pop_front() {
            end.checked.engine.handle_placed(self.now, ticket, Landing::Verified);
        }
        if let Some(ticket) = end.old[1].pop_front()
            && !end.held.contains(&ticket)
        {
            end.checked.engine.handle_sent(self.now, ticket);
        }
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
            while !self.ends[side].inbox.is_empty() {
                moved |= self.turn(side, 8, 0, false);
                self.hear();
            }
            self.release(side, false);
            self.hear();
            moved |= self.transmit(side, INBOX / 8, false) > 0;
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

fn keep_old(old: &mut VecDeque<Ticket>, ticket: Ticket) {
    // A ticket that was handed out again means something once more.
    old.retain(|known| *known != ticket);
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
    bytes.truncate(bytes.len().checked_sub(transmit.sum_only as usize)?);
    Some(bytes)
}

/// Asks where a packet belongs, with more and more of its head.
fn place<E: Engine>(
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
            path: PATH,
            from: Peer::Unaddressed,
            head: &packet.bytes[..packet.bytes.len().min(have)],
            len: packet.bytes.len() as u32,
            segment: packet.segment,
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
fn put(memory: &mut Memory, bytes: &[u8], at: usize, check: Check, into: &Spans) -> Landing {
    let verdict = verify(bytes, check);
    if verdict == Landing::Corrupt {
        return verdict;
    }
    let mut rest = bytes.get(at..).unwrap_or(&[]);
    for span in into.iter() {
        let part;
        (part, rest) = rest.split_at(rest.len().min(span.len as usize));
        match memory.get_mut(span) {
            Some(place) => place[..part.len()].copy_from_slice(part),
            None => return Landing::Failed,
        }
    }
    verdict
}

fn verify(bytes: &[u8], check: Check) -> Landing {
    match check {
        Check::None => Landing::Unchecked,
        Check::InternetSum { from, len, seed } => {
            let from = usize::from(from);
            let covered = from.checked_add(len as usize).and_then(|end| bytes.get(from..end));
            let mut sum = InternetSum::new();
            sum.add_word(seed);
            sum.add(covered.unwrap_or(&[]));
            if covered.is_some() && sum.sum() == 0xffff {
                Landing::Verified
            } else {
                Landing::Corrupt
            }
        }
    }
}
