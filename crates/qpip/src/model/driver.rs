//! The driver of each side, and the wire: it loses, doubles, delays, reorders,
//! cuts and changes what is under way.

use alloc::format;
use alloc::vec::Vec;

use landfall_placement::{Duration, Engine, Landing, PathState, Peer, Placement, Spans, Transmit};
use landfall_testkit::model::{Bounds, Packet, cut, gather, pass_time, put, scatter};

use super::frame;
use super::operations::station;
use super::world::{End, PATH, World};

/// Bounds of what is under way; beyond them it is lost, or must land first.
pub(super) const BOUNDS: Bounds =
    Bounds { inbox: 512, past: 64, landings: 0, held: 12, old: 16, reuses_tickets: true };

impl World {
    /// Sends up to so many units; says how many there were.
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

    /// Time passes: by so many units of 64 µs, or up to the next timeout.
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
