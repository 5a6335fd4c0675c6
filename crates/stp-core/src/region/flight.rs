//! What of a stream of Puts and FetchOps is under way: which packets came to lie in place,
//! which are lost, and what each link has.
//!
//! A packet is lost where one is known to have come that was sent later over the same link:
//! three packets later, or a round trip ago ([RFC 9002](https://www.rfc-editor.org/rfc/rfc9002),
//! 6.1). What is sent over different links says nothing about one another.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Duration, Instant, Serial32};

/// How much later a packet must have been sent that says so, as in RFC 9002, 6.1.1.
const MARGIN: i32 = 3;

/// The packets from the first that is not known to have come.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    base: u32,
    packets: VecDeque<Packet>,
    tracks: Vec<Track>,
    /// How many packets are to be sent again, and where the first of them is at the earliest.
    lost: u32,
    first_lost: u32,
    /// How many are under way.
    under_way: u32,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    at: Instant,
    /// Which of the packets over its link it is.
    nth: u32,
    len: u16,
    track: u8,
    state: State,
    /// Its answer says more than that it came.
    is_fetch: bool,
    is_repeated: bool,
    is_timed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    UnderWay,
    Lost,
    Came,
}

/// What goes over one link.
#[derive(Debug)]
struct Track {
    link: u32,
    /// The number of the next packet, and one past the newest that is known to have come.
    next: u32,
    came: u32,
    /// Serial numbers in the order in which they were sent, with their numbers here.
    order: VecDeque<(u32, u32)>,
    count: u32,
    round: Duration,
    shortest: Duration,
    /// When something was known to have come last, and how often in a row nothing was in time.
    heard: Instant,
    silent: u8,
    update: WindowUpdate,
}

/// What became of packets of a link, and its window does not know yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowUpdate {
    /// Bytes that are not under way any more, for whatever reason.
    pub(crate) freed: u64,
    /// Those of them that came.
    pub(crate) came: u64,
    /// When the newest of those was sent, and whether that times a round trip.
    pub(crate) sent: Instant,
    pub(crate) is_timed: bool,
    /// Those that are lost, and when the last of them was sent.
    pub(crate) lost: u64,
    pub(crate) lost_at: Instant,
}

/// A packet that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) serial: u32,
    pub(crate) link: u32,
    pub(crate) len: u16,
    pub(crate) is_fetch: bool,
    /// How long it is until it is known to have come says how long a round trip is.
    pub(crate) is_timed: bool,
}

/// Bytes that are not under way over a link any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreedBytes {
    pub(crate) link: u32,
    pub(crate) bytes: u64,
}

impl Track {
    const fn freed(&self) -> FreedBytes {
        FreedBytes { link: self.link, bytes: self.update.freed }
    }
}

impl Flight {
    /// One past the last packet that was sent.
    pub(crate) fn end(&self) -> u32 {
        self.base.wrapping_add(self.packets.len() as u32)
    }

    /// The first packet that is not known to have come.
    pub(crate) const fn base(&self) -> u32 {
        self.base
    }

    /// How many packets are remembered.
    pub(crate) fn len(&self) -> u32 {
        self.packets.len() as u32
    }

    pub(crate) const fn has_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// Is nothing under way over any other link?
    pub(crate) fn is_only_on(&self, link: u32) -> bool {
        let here = self.tracks.iter().find(|track| track.link == link);
        self.under_way == here.map_or(0, |track| track.count)
    }

    /// Has a link been silent for long?
    pub(crate) fn silence_of(&self, link: u32) -> u8 {
        self.tracks.iter().find(|track| track.link == link).map_or(0, |track| track.silent)
    }

    fn place_of(&self, serial: u32) -> usize {
        serial.wrapping_sub(self.base) as usize
    }

    /// The first packet that is to be sent again.
    pub(crate) fn first_lost(&mut self) -> Option<u32> {
        if self.lost == 0 {
            return None;
        }
        let from = self.place_of(self.first_lost);
        let found = self.packets.iter().skip(from).position(|p| p.state == State::Lost)?;
        self.first_lost = self.first_lost.wrapping_add(found as u32);
        Some(self.first_lost)
    }

    /// A packet goes out: the next new one, or one that was lost.
    pub(crate) fn send(&mut self, now: Instant, sent: Sent) {
        let track = match self.tracks.iter().position(|track| track.link == sent.link) {
            Some(track) => track,
            None => {
                self.tracks.push(Track::new(sent.link));
                self.tracks.len() - 1
            }
        };
        let known = &mut self.tracks[track];
        let nth = known.next;
        known.next = nth.wrapping_add(1);
        known.order.push_back((sent.serial, nth));
        known.count += 1;
        self.under_way += 1;
        let packet = Packet {
            at: now,
            nth,
            len: sent.len,
            track: track as u8,
            state: State::UnderWay,
            is_fetch: sent.is_fetch,
            is_repeated: false,
            is_timed: sent.is_timed,
        };
        let place = self.place_of(sent.serial);
        if place == self.packets.len() {
            self.packets.push_back(packet);
        } else if let Some(known) = self.packets.get_mut(place) {
            debug_assert_eq!(known.state, State::Lost, "only what is lost is sent again");
            *known = Packet { is_repeated: true, ..packet };
            self.lost -= 1;
        }
    }

    /// A packet is known to have come. Of a FetchOp only its answer says so.
    pub(crate) fn settle(&mut self, now: Instant, serial: u32, is_answer: bool) {
        let place = self.place_of(serial);
        // It came before, and was forgotten.
        let Some(packet) = self.packets.get_mut(place) else { return };
        if packet.state == State::Came || packet.is_fetch && !is_answer {
            return;
        }
        let track = &mut self.tracks[usize::from(packet.track)];
        // What was sent twice may have come the first time.
        let is_clear = !packet.is_repeated || packet.at + track.shortest <= now;
        if is_clear {
            let came = Serial32(packet.nth.wrapping_add(1));
            if Serial32(track.came).precedes(came) {
                track.came = came.0;
            }
        }
        if packet.state == State::UnderWay {
            self.under_way -= 1;
            track.take_away(packet);
            track.update.came += u64::from(packet.len);
            if packet.at >= track.update.sent {
                track.update.sent = packet.at;
                track.update.is_timed = packet.is_timed && !packet.is_repeated;
            }
        } else {
            self.lost -= 1;
        }
        (track.heard, track.silent) = (now, 0);
        packet.state = State::Came;
    }

    /// All below `applied` took effect: what came of them is forgotten. What came beyond is
    /// not, for that is only what the other side says.
    pub(crate) fn forget_below(&mut self, applied: u32) {
        while self.packets.front().is_some_and(|first| first.state == State::Came)
            && Serial32(self.base).precedes(Serial32(applied))
        {
            self.packets.pop_front();
            self.base = self.base.wrapping_add(1);
        }
        if Serial32(self.first_lost).precedes(Serial32(self.base)) {
            self.first_lost = self.base;
        }
    }

    /// Finds what later packets have overtaken. Returns whether there was any.
    pub(crate) fn find_lost(&mut self, now: Instant) -> bool {
        let mut any = false;
        for nth in 0..self.tracks.len() {
            while let Some(serial) = self.first_under_way(nth) {
                let track = &self.tracks[nth];
                let packet = self.packets[self.place_of(serial)];
                let behind = track.came.wrapping_sub(packet.nth.wrapping_add(1)) as i32;
                let is_late = packet.at + track.round + track.round / 8 <= now;
                if behind < MARGIN && !(behind > 0 && is_late) {
                    break;
                }
                self.give_up(serial, true);
                any = true;
            }
        }
        any
    }

    /// The packet that is under way over a link for longest.
    fn first_under_way(&mut self, nth: usize) -> Option<u32> {
        loop {
            let (serial, number) = *self.tracks[nth].order.front()?;
            let packet = self.packets.get(self.place_of(serial));
            let is_it = packet.is_some_and(|packet| {
                packet.state == State::UnderWay
                    && packet.nth == number
                    && usize::from(packet.track) == nth
            });
            if is_it {
                return Some(serial);
            }
            self.tracks[nth].order.pop_front();
        }
    }

    /// A packet is to be sent again, if it is under way. `is_lost` where the network lost it;
    /// the other side may also have refused it.
    pub(crate) fn give_up(&mut self, serial: u32, is_lost: bool) {
        let place = self.place_of(serial);
        // It came before, and was forgotten.
        let Some(packet) = self.packets.get_mut(place) else { return };
        if packet.state != State::UnderWay {
            return;
        }
        packet.state = State::Lost;
        let track = &mut self.tracks[usize::from(packet.track)];
        track.take_away(packet);
        if is_lost {
            track.update.lost += u64::from(packet.len);
            track.update.lost_at = track.update.lost_at.max(packet.at);
        }
        self.under_way -= 1;
        if self.lost == 0 || Serial32(serial).precedes(Serial32(self.first_lost)) {
            self.first_lost = serial;
        }
        self.lost += 1;
    }

    /// The same for all from `first` to before `end`; the network did not lose them.
    pub(crate) fn give_up_range(&mut self, first: u32, end: u32) {
        let mut serial =
            if Serial32(first).precedes(Serial32(self.base)) { self.base } else { first };
        let end = if Serial32(self.end()).precedes(Serial32(end)) { self.end() } else { end };
        while Serial32(serial).precedes(Serial32(end)) {
            self.give_up(serial, false);
            serial = serial.wrapping_add(1);
        }
    }

    /// All that is under way over a link is to be sent again.
    pub(crate) fn give_up_link(&mut self, link: u32) {
        if let Some(nth) = self.tracks.iter().position(|track| track.link == link) {
            while let Some(serial) = self.first_under_way(nth) {
                self.give_up(serial, false);
            }
        }
    }

    /// Returns up what is under way over a link, if some of it is since before `before`, and
    /// nothing came since then: the link is silent. Returns whether it is.
    pub(crate) fn find_silent(&mut self, nth: usize, before: Instant) -> bool {
        if self.tracks[nth].heard > before {
            return false;
        }
        let first = self.first_under_way(nth);
        let is_old = |serial| self.packets[self.place_of(serial)].at <= before;
        if !first.is_some_and(is_old) {
            return false;
        }
        while let Some(serial) = self.first_under_way(nth) {
            self.give_up(serial, false);
        }
        let track = &mut self.tracks[nth];
        track.silent = track.silent.saturating_add(1);
        true
    }

    /// Returns up this many of those that are under way for longest, of each link.
    pub(crate) fn probe(&mut self, most: usize) {
        for nth in 0..self.tracks.len() {
            for _ in 0..most {
                let Some(serial) = self.first_under_way(nth) else { break };
                self.give_up(serial, false);
            }
        }
    }

    /// Nothing is believed but what took effect, which is all below `applied`: the rest is to
    /// be sent again.
    pub(crate) fn give_up_all(&mut self, applied: u32) {
        self.give_up_range(self.base, self.end());
        let below = applied.wrapping_sub(self.base) as usize;
        for packet in self.packets.iter_mut().skip(below) {
            if packet.state == State::Came {
                packet.state = State::Lost;
                self.lost += 1;
            }
        }
        self.first_lost = self.base;
    }

    /// A FetchOp was refused: it has no answer.
    pub(crate) fn expect_no_answer(&mut self, serial: u32) {
        let place = self.place_of(serial);
        if let Some(packet) = self.packets.get_mut(place) {
            packet.is_fetch = false;
        }
    }

    /// The links that it used, one after another, and what is not under way over them any more.
    pub(crate) fn peek_update(&self, nth: usize) -> Option<FreedBytes> {
        self.tracks.get(nth).map(Track::freed)
    }

    /// What the window of a link does not know yet.
    pub(crate) fn take_update(&mut self, nth: usize) -> WindowUpdate {
        self.tracks.get_mut(nth).map(|track| core::mem::take(&mut track.update)).unwrap_or_default()
    }

    /// Nothing is sent any more, and the next serial number would be this. Returns what was
    /// under way over each link.
    pub(crate) fn leave(&mut self, next: u32) -> Vec<FreedBytes> {
        self.probe(usize::MAX);
        let left = self.tracks.iter().map(Track::freed).collect();
        *self = Self { base: next, first_lost: next, ..Self::default() };
        left
    }

    pub(crate) const fn has_lost(&self) -> bool {
        self.lost > 0
    }

    pub(crate) fn note_round(&mut self, nth: usize, round: Duration, shortest: Duration) {
        let track = &mut self.tracks[nth];
        (track.round, track.shortest) = (round, shortest);
    }

    /// Is nothing under way over a link, and does its window know that?
    pub(crate) fn is_idle_on(&self, link: u32) -> bool {
        let track = self.tracks.iter().find(|track| track.link == link);
        track.is_none_or(|track| track.update.freed == 0 && self.bytes_on(link) == 0)
    }

    /// A link over which nothing is under way is no more; another takes its place.
    pub(crate) fn replace_link(&mut self, old: u32, new: u32) {
        if let Some(track) = self.tracks.iter_mut().find(|track| track.link == old) {
            *track = Track::new(new);
        }
    }

    /// Bytes under way over a link.
    pub(crate) fn bytes_on(&self, link: u32) -> u64 {
        let is_there = |packet: &&Packet| {
            packet.state == State::UnderWay && self.tracks[usize::from(packet.track)].link == link
        };
        self.packets.iter().filter(is_there).map(|packet| u64::from(packet.len)).sum()
    }
}

impl Track {
    const fn new(link: u32) -> Self {
        Self {
            link,
            next: 0,
            came: 0,
            order: VecDeque::new(),
            count: 0,
            round: Duration::MAX,
            shortest: Duration::ZERO,
            heard: Instant::ZERO,
            silent: 0,
            update: WindowUpdate {
                freed: 0,
                came: 0,
                sent: Instant::ZERO,
                is_timed: false,
                lost: 0,
                lost_at: Instant::ZERO,
            },
        }
    }

    fn take_away(&mut self, packet: &Packet) {
        self.count -= 1;
        self.update.freed += u64::from(packet.len);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use landfall_placement::Random;

    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    fn sent(serial: u32, link: u32) -> Sent {
        Sent { serial, link, len: 100, is_fetch: false, is_timed: true }
    }

    fn lost(flight: &mut Flight) -> Vec<u32> {
        let mut lost = vec![];
        while let Some(serial) = flight.first_lost() {
            lost.push(serial);
            flight.send(at(1_000_000), sent(serial, 9));
        }
        lost
    }

    #[test]
    fn what_was_sent_three_packets_later_over_a_link_says_that_one_is_lost() {
        let mut flight = Flight::default();
        for serial in 0..10 {
            flight.send(at(0), sent(serial, serial % 2));
        }
        // All of link 0 but the first two; of link 1 nothing.
        flight.settle(at(1), 4, false);
        assert!(!flight.find_lost(at(1)));
        flight.settle(at(1), 6, false);
        assert!(flight.find_lost(at(1)));
        flight.settle(at(1), 8, false);
        assert!(flight.find_lost(at(1)));
        assert_eq!(lost(&mut flight), [0, 2]);
        let update = flight.take_update(0);
        assert_eq!((update.came, update.lost, update.freed), (300, 200, 500));
    }

    #[test]
    fn one_later_packet_is_enough_after_a_round_trip() {
        let mut flight = Flight::default();
        for serial in 0..2 {
            flight.send(at(0), sent(serial, 0));
        }
        flight.note_round(0, Duration::from_micros(80), Duration::from_micros(80));
        flight.settle(at(80), 1, false);
        assert!(!flight.find_lost(at(89)));
        assert!(flight.find_lost(at(90)));
    }

    /// Of a FetchOp an acknowledgement says nothing: its answer may be lost.
    #[test]
    fn a_fetch_op_is_over_with_its_answer() {
        let mut flight = Flight::default();
        flight.send(at(0), Sent { is_fetch: true, ..sent(0, 0) });
        for serial in 1..4 {
            flight.send(at(0), sent(serial, 0));
        }
        for serial in 0..4 {
            flight.settle(at(1), serial, false);
        }
        flight.forget_below(4);
        assert_eq!((flight.base(), flight.len()), (0, 4));
        assert!(flight.find_lost(at(1)), "its answer is outgoing for again");
        assert_eq!(lost(&mut flight), [0]);
        flight.settle(at(2), 0, true);
        flight.forget_below(4);
        assert_eq!((flight.base(), flight.len()), (4, 0));
    }

    /// Against what a list of packets says, with any that come, are given up and sent again.
    #[test]
    fn what_is_under_way_is_the_sum_of_the_packets() {
        for seed in 0..200 {
            let mut random = Random::from_number(seed);
            let start = u32::MAX - random.next_u32() % 50;
            let mut flight = Flight::default();
            flight.leave(start);
            let mut links = [0u64; 3];
            let mut took_effect = 0;
            for step in 0..300 {
                let now = at(step);
                match random.below(6) {
                    0 | 1 => {
                        let serial = flight.first_lost().unwrap_or_else(|| flight.end());
                        let link = random.below(3) as u32;
                        flight.send(now, sent(serial, link));
                        links[link as usize] += 100;
                    }
                    2 => {
                        let any = random.below(60) as u32;
                        if any < flight.end().wrapping_sub(start) {
                            flight.settle(now, start.wrapping_add(any), false);
                        }
                    }
                    3 => {
                        flight.find_lost(now);
                    }
                    4 => flight.give_up(start.wrapping_add(random.below(60) as u32), true),
                    _ => {
                        took_effect = flight.end().wrapping_sub(start).min(took_effect + 3);
                        for serial in 0..took_effect {
                            flight.settle(now, start.wrapping_add(serial), false);
                        }
                        flight.forget_below(start.wrapping_add(took_effect));
                    }
                }
                for nth in 0.. {
                    let Some(FreedBytes { link, .. }) = flight.peek_update(nth) else { break };
                    links[link as usize] -= flight.take_update(nth).freed;
                }
                for (link, bytes) in links.iter().enumerate() {
                    assert_eq!(flight.bytes_on(link as u32), *bytes, "{seed}, {step}");
                }
                let all = links.iter().sum::<u64>();
                assert_eq!(flight.has_under_way(), all > 0);
            }
        }
    }
}
