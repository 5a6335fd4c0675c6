//! Two ends of a link, and a wire between them that keeps order.

use alloc::collections::VecDeque;
use std::vec::Vec;

use landfall_placement::{Duration, Instant, Refusal, Serial32};
use proptest::prelude::*;

use super::*;
use crate::address::{Key, Kind, WHOLE};
use crate::error::Reason;
use crate::native::HEADER_WORDS;

const UNIT: u32 = 1_500;

fn burst(word: u32, words: u32) -> Burst {
    let host = HostId::new(2).unwrap();
    let address =
        Address { kind: Kind::Burst, host, slot: 0, word, mask: WHOLE, key: Key::default() };
    Burst::new(address, words).unwrap()
}

fn unit_of(burst: &Burst) -> Vec<u8> {
    let mut unit = burst.address().to_bytes().to_vec();
    unit.resize(unit.len() + burst.words() as usize * WORD as usize, 0);
    unit
}

/// Both ends, and what is on the wire towards each.
struct Pair {
    now: Instant,
    ends: [NativeLink; 2],
    wires: [VecDeque<Vec<u8>>; 2],
}

impl Pair {
    fn new(room: u32) -> Self {
        let settings = Settings { room, host: HostId::new(1), ..Settings::default() };
        Self {
            now: Instant::ZERO,
            ends: [NativeLink::new(settings), NativeLink::new(settings)],
            wires: Default::default(),
        }
    }

    fn up(room: u32) -> Self {
        let mut pair = Self::new(room);
        pair.ends[0].handle_up(Instant::ZERO, 100);
        pair.ends[1].handle_up(Instant::ZERO, 200);
        pair.settle();
        assert_eq!(pair.states(), [State::Up; 2]);
        pair
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    /// Puts the symbols of one end on the wire.
    fn speak(&mut self, end: usize) {
        while let Some(symbol) = self.ends[end].poll_symbol(self.now) {
            self.wires[1 - end].push_back(symbol.to_bytes().to_vec());
        }
    }

    /// One unit arrives at this end.
    fn hear(&mut self, end: usize) -> Option<Result<Arrival, Refusal>> {
        let unit = self.wires[end].pop_front()?;
        Some(self.ends[end].handle_unit(self.now, &unit, unit.len() as u32))
    }

    /// Everything on the wire arrives, and is taken; gives the packets.
    fn settle(&mut self) -> [Vec<Burst>; 2] {
        let mut packets = [Vec::new(), Vec::new()];
        loop {
            self.speak(0);
            self.speak(1);
            if self.wires.iter().all(VecDeque::is_empty) {
                return packets;
            }
            for (end, packets) in packets.iter_mut().enumerate() {
                if let Some(Ok(Arrival::Packet(burst))) = self.hear(end) {
                    self.ends[end].handle_taken(&burst);
                    packets.push(burst);
                }
            }
        }
    }

    /// Sends if there is leave to.
    fn send(&mut self, end: usize, packet: Burst) -> bool {
        let may = self.ends[end].room(UNIT) >= packet.words();
        if may {
            self.speak(end);
            self.ends[end].handle_sent(&packet);
            self.wires[1 - end].push_back(unit_of(&packet));
        }
        may
    }
}

#[test]
fn nothing_passes_before_both_ends_know_of_each_other() {
    let mut pair = Pair::new(64);
    assert_eq!(pair.states(), [State::Down(Ended::LinkGone); 2]);
    pair.ends[0].handle_up(pair.now, 1);
    assert_eq!(pair.ends[0].room(UNIT), 0);
    pair.settle();
    assert_eq!(pair.ends[0].state(), State::Starting, "nobody was there");
    pair.ends[1].handle_up(pair.now, 2);
    pair.settle();
    assert_eq!(pair.states(), [State::Up, State::Up], "the beginner said it again");
    assert_eq!(pair.ends[0].peer(), Some(HostId::new(1)));
    assert_eq!(pair.ends[0].room(UNIT), 64 - HEADER_WORDS);
}

#[test]
fn a_beginning_that_nobody_heard_is_repeated() {
    let mut pair = Pair::new(64);
    for (end, session) in [(0, 1), (1, 2)] {
        pair.ends[end].handle_up(pair.now, session);
        while pair.ends[end].poll_symbol(pair.now).is_some() {}
    }
    let at = pair.ends[0].poll_timeout().expect("it does not wait for ever").at;
    pair.now = at;
    pair.settle();
    assert_eq!(pair.states(), [State::Up, State::Up]);
    assert_eq!(pair.ends[0].poll_timeout(), None, "an idle link has no timer");
}

#[test]
fn credit_is_what_the_other_end_has_room_for() {
    let mut pair = Pair::up(64);
    let packet = burst(0, 30);
    assert!(pair.send(0, packet) && pair.send(0, packet) && !pair.send(0, packet));
    assert_eq!(pair.ends[0].room(UNIT), 0);
    assert_eq!(pair.hear(1), Some(Ok(Arrival::Packet(packet))));
    pair.speak(1);
    assert!(pair.wires[0].is_empty(), "what came is still there");
    pair.ends[1].handle_taken(&packet);
    pair.settle();
    assert_eq!(pair.ends[0].room(UNIT), 64 - HEADER_WORDS);
}

#[test]
fn xoff_stops_whatever_the_credit_and_xon_goes_on() {
    let mut pair = Pair::up(64);
    pair.ends[1].hold(true);
    pair.settle();
    assert_eq!(pair.ends[0].room(UNIT), 0);
    pair.ends[1].hold(false);
    pair.settle();
    assert_eq!(pair.ends[0].room(UNIT), 64 - HEADER_WORDS);
    pair.ends[1].hold(true);
    pair.ends[1].hold(false);
    pair.speak(1);
    assert!(pair.wires[0].is_empty(), "nobody needs to know what is over");
}

#[test]
fn who_sends_without_leave_ends_the_link() {
    let mut pair = Pair::up(64);
    for _ in 0..3 {
        pair.wires[1].push_back(unit_of(&burst(0, 30)));
    }
    assert!(matches!(pair.hear(1), Some(Ok(_))) && matches!(pair.hear(1), Some(Ok(_))));
    assert_eq!(pair.hear(1), Some(Err(Refusal::NoRoom)));
    assert_eq!(pair.ends[1].state(), State::Down(Ended::Damaged));
    pair.settle();
    assert_eq!(pair.ends[0].state(), State::Down(Ended::There(Reason::Malformed)));
}

#[test]
fn damage_is_an_exception_on_both_sides_and_the_link_begins_anew() {
    let mut pair = Pair::up(64);
    assert!(pair.send(0, burst(7, 1)) && pair.send(1, burst(8, 1)));
    pair.wires[1].clear();
    pair.ends[1].handle_damage();
    assert_eq!(pair.ends[1].state(), State::Down(Ended::Damaged));
    // It begins anew at once, while packets from before are still on the way.
    pair.ends[1].handle_up(pair.now, 201);
    pair.speak(1);
    while pair.hear(0).is_some() {}
    assert_eq!(pair.ends[0].state(), State::Down(Ended::There(Reason::Malformed)));
    assert!(!pair.send(0, burst(9, 1)));
    pair.wires[1].push_back(unit_of(&burst(9, 1)));
    pair.ends[0].handle_up(pair.now, 101);
    pair.now += Duration::from_secs(2);
    assert_eq!(pair.settle(), [Vec::new(), Vec::new()], "what is old means nothing");
    assert_eq!(pair.states(), [State::Up, State::Up]);
    assert_eq!(pair.ends[0].room(UNIT), 64 - HEADER_WORDS);
}

#[test]
fn who_begins_anew_is_recognised() {
    let mut pair = Pair::up(64);
    assert!(pair.send(0, burst(0, 50)));
    pair.ends[1].handle_up(pair.now, 201);
    pair.settle();
    assert_eq!(pair.states(), [State::Up, State::Up]);
    assert!(pair.ends[0].take_restarted() && !pair.ends[0].take_restarted());
    assert_eq!(pair.ends[0].room(UNIT), 64 - HEADER_WORDS, "all counts are zero again");
}

#[test]
fn patience_ends_and_the_link_with_it() {
    let mut pair = Pair::up(64);
    assert!(pair.send(0, burst(0, 62)));
    pair.ends[0].handle_waiting(pair.now, true);
    let due = pair.ends[0].poll_timeout().unwrap().at;
    pair.ends[0].handle_timeout(pair.now);
    assert_eq!(pair.ends[0].state(), State::Up, "too early");
    pair.ends[0].handle_timeout(due);
    assert_eq!(pair.ends[0].state(), State::Down(Ended::Silent));
    // But anyone who goes on, however slowly, is waited for.
    let mut pair = Pair::up(64);
    assert!(pair.send(0, burst(0, 62)));
    pair.ends[0].handle_waiting(pair.now, true);
    pair.settle();
    assert_eq!(pair.ends[0].poll_timeout(), None);
}

#[test]
fn an_old_credit_takes_nothing_back() {
    let mut pair = Pair::up(64);
    pair.wires[0].push_back(Symbol::Credit(Serial32(3)).to_bytes().to_vec());
    pair.settle();
    assert_eq!(pair.ends[0].room(UNIT), 64 - HEADER_WORDS);
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize, u32),
    Hear(usize),
    Take(usize),
    Hold(usize, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..2usize, 1..40u32).prop_map(|(end, words)| Step::Send(end, words)),
        (0..2usize).prop_map(Step::Hear),
        (0..2usize).prop_map(Step::Take),
        (0..2usize, any::<bool>()).prop_map(|(end, hold)| Step::Hold(end, hold)),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// Invariants 4 and 5: nobody ever sends more than the other has room for,
    /// and once everything is taken, everything may be sent: no deadlock.
    #[test]
    fn credit_never_overruns_and_never_runs_dry(room in 14..100u32, steps in steps()) {
        let mut pair = Pair::up(room);
        let mut here: [VecDeque<Burst>; 2] = Default::default();
        for step in steps {
            match step {
                Step::Send(end, words) => {
                    let packet = burst(0, words.min(pair.ends[end].room(UNIT)).max(1));
                    pair.send(end, packet);
                }
                Step::Hear(end) => match pair.hear(end) {
                    Some(Ok(Arrival::Packet(burst))) => here[end].push_back(burst),
                    Some(Err(refusal)) => prop_assert!(false, "{refusal}"),
                    _ => {}
                },
                Step::Take(end) => {
                    if let Some(burst) = here[end].pop_front() {
                        pair.ends[end].handle_taken(&burst);
                        pair.speak(end);
                    }
                }
                Step::Hold(end, hold) => {
                    pair.ends[end].hold(hold);
                    pair.speak(end);
                }
            }
            for packets in &here {
                prop_assert!(packets.iter().map(Burst::cost).sum::<u32>() <= room);
            }
        }
        for (end, packets) in here.iter().enumerate() {
            pair.ends[end].hold(false);
            packets.iter().for_each(|burst| pair.ends[end].handle_taken(burst));
        }
        pair.settle();
        for end in &pair.ends {
            // Less than a quarter is not worth a symbol.
            prop_assert!(end.room(u32::MAX) + room / 4 >= room - HEADER_WORDS);
            prop_assert!(end.room(u32::MAX) >= 12, "a command must fit");
        }
    }

    /// Invariant 8: no unit panics, and a link that refused one says so.
    #[test]
    fn any_units_are_withstood(
        units in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..20),
    ) {
        let mut pair = Pair::up(64);
        for unit in units {
            if pair.ends[0].handle_unit(pair.now, &unit, unit.len() as u32).is_err() {
                prop_assert_eq!(pair.ends[0].state(), State::Down(Ended::Damaged));
            }
            pair.speak(0);
        }
    }
}
