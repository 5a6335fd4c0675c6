//! Hosts around a switch, with wires that keep order.

use alloc::collections::VecDeque;
use std::vec::Vec;

use landfall_placement::{Instant, Random, Refusal};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::address::{Address, Key, Kind, WHOLE, WORD};
use crate::error::Reason;
use crate::native::{Burst, Word};

const UNIT: u32 = 16 + 8 * 128;
const SMALL: Config = Config {
    ports: 4,
    input: 128,
    output: 64,
    turn: 16,
    patience: Duration::from_secs(1),
    events: 64,
};

fn host(number: usize) -> HostId {
    HostId::new(number as u16).unwrap()
}

fn address(kind: Kind, to: usize, word: u32) -> Address {
    Address { kind, host: host(to), slot: 0, word, mask: WHOLE, key: Key::default() }
}

/// A host: a link of its own, what it has to send, and what it got.
struct Host {
    link: NativeLink,
    waiting: VecDeque<(Burst, Vec<Word>)>,
    /// The packets that came, as they came.
    packets: Vec<Burst>,
    words: Vec<(Address, Word)>,
    /// What came and was not taken yet.
    untaken: Vec<Burst>,
    is_lazy: bool,
}

/// As many hosts as the switch has ports, host `n` at port `n`.
struct Net {
    now: Instant,
    switch: Switch,
    hosts: Vec<Host>,
    trailer: Trailer,
}

impl Net {
    fn new(config: Config, trailer: Trailer) -> Self {
        let switch = Switch::new(config, Random::from_number(1)).unwrap();
        let settings = Settings { room: 256, ..Settings::default() };
        let host = |n: u8| Host {
            link: NativeLink::new(Settings { host: HostId::new(n.into()), ..settings }),
            waiting: VecDeque::new(),
            packets: Vec::new(),
            words: Vec::new(),
            untaken: Vec::new(),
            is_lazy: false,
        };
        let hosts = (0..config.ports).map(host).collect();
        let mut net = Self { now: Instant::ZERO, switch, hosts, trailer };
        for n in 0..config.ports {
            net.switch.route(self::host(n.into()), PortId(n)).unwrap();
            net.switch
                .handle_line(net.now, PortId(n), Attachment::Up { unit: UNIT, trailer })
                .unwrap();
            net.hosts[usize::from(n)].link.handle_up(net.now, 1000 + u32::from(n));
        }
        net.settle();
        for n in 0..config.ports {
            let expected = Event::Up { port: PortId(n), peer: HostId::new(n.into()) };
            assert_eq!(net.switch.poll_event(), Some(expected));
        }
        net
    }

    /// A burst that the host will send when it may: each word says from whom and
    /// which it is.
    fn write(&mut self, from: usize, to: Address, words: u32) {
        let burst = Burst::new(to, words).unwrap();
        let word = |n| (u64::from(to.word + n) | (from as u64) << 32).to_le_bytes();
        self.hosts[from].waiting.push_back((burst, (0..words).map(word).collect()));
    }

    /// The host sends one unit, if it has something and may.
    fn send(&mut self, from: usize) -> bool {
        let Host { link, waiting, .. } = &mut self.hosts[from];
        let mut unit = Vec::new();
        if let Some(symbol) = link.poll_symbol(self.now) {
            unit.extend(symbol.to_bytes());
        } else if let Some((burst, words)) = waiting.pop_front() {
            let room = link.room(UNIT - 4);
            let (first, rest) = match burst.split_at(room) {
                Some((first, rest)) => (first, Some(rest)),
                None if burst.words() <= room => (burst, None),
                None => {
                    waiting.push_front((burst, words));
                    return false;
                }
            };
            let (now, later) = words.split_at(first.words() as usize);
            write_packet(&mut unit, &first, now.iter().copied());
            link.handle_sent(&first);
            if let Some(rest) = rest {
                waiting.push_front((rest, later.to_vec()));
            }
        } else {
            return false;
        }
        self.trailer.seal(&mut unit);
        self.switch.handle_unit(self.now, PortId(from as u8), &unit).unwrap();
        true
    }

    /// One unit leaves the switch at this port and reaches its host.
    fn receive(&mut self, port: usize) -> bool {
        let mut unit = Vec::new();
        if !self.switch.poll_unit(self.now, PortId(port as u8), &mut unit) {
            return false;
        }
        assert!(unit.len() as u32 <= UNIT);
        let host = &mut self.hosts[port];
        let content = self.trailer.open(&unit).unwrap();
        let arrival = host.link.handle_unit(self.now, content, content.len() as u32).unwrap();
        if let Arrival::Packet(burst) = arrival {
            for (n, word) in words_of(content).iter().enumerate() {
                host.words.push((burst.address().advanced(n as u32).unwrap(), *word));
            }
            host.packets.push(burst);
            host.untaken.push(burst);
        }
        if !host.is_lazy {
            host.untaken.drain(..).for_each(|burst| host.link.handle_taken(&burst));
        }
        true
    }

    /// Until nothing moves any more.
    fn settle(&mut self) {
        let ports = self.hosts.len();
        loop {
            let sent = (0..ports).filter(|n| self.send(*n)).count();
            let received = (0..ports).filter(|n| self.receive(*n)).count();
            if sent + received == 0 {
                return;
            }
        }
    }

    /// How many words the host got from another.
    fn words_from(&self, at: usize, from: usize) -> usize {
        self.hosts[at].words.iter().filter(|(_, word)| usize::from(word[4]) == from).count()
    }

    fn stop(&mut self, at: usize, stopped: bool) {
        self.hosts[at].link.hold(stopped);
        while self.send(at) {}
    }
}

#[test]
fn a_long_burst_passes_whole_where_nobody_else_wants_to() {
    let mut net = Net::new(SMALL, Trailer::Crc32c);
    net.write(0, address(Kind::Burst, 2, 5), 100_000);
    net.settle();
    let got = &net.hosts[2];
    assert_eq!(got.words.len(), 100_000, "far more than the switch can hold");
    for (n, (at, word)) in got.words.iter().enumerate() {
        assert_eq!(u64::from(at.word), 5 + n as u64);
        assert_eq!(u64::from_le_bytes(*word), 5 + n as u64);
    }
}

#[test]
fn packets_that_are_one_burst_leave_as_one_packet() {
    let mut net = Net::new(SMALL, Trailer::None);
    net.stop(1, true);
    for n in 0..20 {
        net.write(0, address(Kind::Burst, 1, n * 2), 2);
    }
    net.settle();
    net.stop(1, false);
    net.settle();
    assert_eq!(net.hosts[1].packets, [Burst::new(address(Kind::Burst, 1, 0), 40).unwrap()]);
}

#[test]
fn joining_costs_no_credit() {
    let mut net = Net::new(SMALL, Trailer::None);
    for round in 0..100 {
        net.stop(1, true);
        // More than fits into the output: what waits at the input is joined there.
        (0..60).for_each(|n| net.write(0, address(Kind::Burst, 1, round * 1_000 + n * 2), 2));
        net.settle();
        net.stop(1, false);
        net.settle();
        assert_eq!(net.words_from(1, 0), (round as usize + 1) * 120);
    }
    // If credit had leaked, the longest packet that cannot be split would be stuck.
    net.write(0, address(Kind::Command, 1, 96), 12);
    net.settle();
    assert_eq!(net.words_from(1, 0), 12_012);
}

#[test]
fn commands_and_parts_of_words_stay_whole_and_apart() {
    let mut net = Net::new(SMALL, Trailer::Parity);
    net.stop(1, true);
    let part = Address { mask: 0b0011_0000, ..address(Kind::Burst, 1, 2) };
    let all = [
        (address(Kind::Burst, 1, 0), 1),
        (address(Kind::Command, 1, 30), 4),
        (address(Kind::Burst, 1, 1), 1),
        (part, 1),
        (address(Kind::Burst, 1, 3), 1),
    ];
    all.iter().for_each(|(to, words)| net.write(0, *to, *words));
    net.settle();
    net.stop(1, false);
    net.settle();
    let expected = all.map(|(to, words)| Burst::new(to, words).unwrap());
    assert_eq!(net.hosts[1].packets, expected);
}

#[test]
fn a_small_packet_waits_for_a_turn_and_not_for_a_large_packet() {
    let mut net = Net::new(SMALL, Trailer::None);
    net.write(0, address(Kind::Burst, 3, 0), 10_000);
    for _ in 0..50 {
        net.send(0);
    }
    net.write(1, address(Kind::Burst, 3, 0), 1);
    while net.words_from(3, 1) == 0 {
        let before = net.words_from(3, 0);
        assert!(before < (SMALL.input + SMALL.output + SMALL.turn) as usize + 256);
        net.send(0);
        net.send(1);
        net.receive(3);
    }
    net.settle();
    assert_eq!(net.words_from(3, 0), 10_000);
    // What was cut goes on as one packet: a header for each unit, not for each turn.
    assert!(net.hosts[3].packets.len() < 10_000 / 16, "{}", net.hosts[3].packets.len());
}

#[test]
fn all_inputs_have_the_same_share_of_an_output() {
    let mut net = Net::new(SMALL, Trailer::None);
    // One sends long bursts, another single words, the third something between.
    net.write(0, address(Kind::Burst, 3, 0), 20_000);
    (0..20_000).for_each(|n| net.write(1, address(Kind::Burst, 3, n * 2), 1));
    (0..2_000).for_each(|n| net.write(2, address(Kind::Burst, 3, n * 20), 10));
    for _ in 0..1_000 {
        (0..3).for_each(|n| while net.send(n) || net.receive(n) {});
        net.receive(3);
        net.send(3);
    }
    // Headers count: of three words of the link, a single word uses one.
    let shares = [net.words_from(3, 0), net.words_from(3, 1) * 3, net.words_from(3, 2) * 12 / 10];
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(*least > 1_000, "{shares:?}");
    assert!(most - least <= most / 3, "{shares:?}");
}

#[test]
fn a_multicast_reaches_every_member_but_its_sender() {
    let mut net = Net::new(SMALL, Trailer::Crc32c);
    (0..3).for_each(|n| net.switch.join(host(9), PortId(n)).unwrap());
    net.write(1, address(Kind::Multicast, 9, 0), 1_000);
    net.settle();
    for (n, words) in [(0, 1_000), (1, 0), (2, 1_000), (3, 0)] {
        assert_eq!(net.words_from(n, 1), words, "host {n}");
    }
}

#[test]
fn multicasts_and_bursts_share_outputs_and_none_starves() {
    let mut net = Net::new(SMALL, Trailer::None);
    for (group, port) in [(7, 2), (7, 3), (8, 3), (8, 2), (8, 0)] {
        net.switch.join(host(group), PortId(port)).unwrap();
    }
    net.write(0, address(Kind::Multicast, 7, 0), 50_000);
    net.write(1, address(Kind::Multicast, 8, 0), 50_000);
    net.write(2, address(Kind::Burst, 3, 0), 50_000);
    net.write(3, address(Kind::Burst, 2, 0), 50_000);
    for _ in 0..2_000 {
        (0..4).for_each(|n| while net.send(n) {});
        (0..4).for_each(|n| while net.receive(n) {});
        let got = [
            net.words_from(2, 0),
            net.words_from(3, 0),
            net.words_from(2, 1),
            net.words_from(0, 1),
            net.words_from(3, 2),
            net.words_from(2, 3),
        ];
        if got.contains(&50_000) {
            assert!(got.iter().all(|words| *words > 10_000), "{got:?}");
            break;
        }
    }
    net.settle();
    assert_eq!(net.hosts[2].words.len(), 150_000);
    assert_eq!(net.hosts[3].words.len(), 150_000);
    assert_eq!(net.hosts[0].words.len(), 50_000);
}

#[test]
fn a_host_that_takes_nothing_stops_those_who_send_to_it_and_nobody_else() {
    let mut net = Net::new(SMALL, Trailer::None);
    net.hosts[3].is_lazy = true;
    net.write(0, address(Kind::Burst, 3, 0), 5_000);
    net.write(1, address(Kind::Burst, 2, 0), 5_000);
    net.settle();
    assert_eq!(net.words_from(2, 1), 5_000);
    assert!(net.words_from(3, 0) < 256, "no more than it had said that it has room for");
    net.hosts[3].is_lazy = false;
    let Host { link, untaken, .. } = &mut net.hosts[3];
    untaken.drain(..).for_each(|burst| link.handle_taken(&burst));
    net.settle();
    assert_eq!(net.words_from(3, 0), 5_000);
}

#[test]
fn a_host_that_died_is_given_up_and_what_waited_for_it_is_told() {
    let mut net = Net::new(SMALL, Trailer::None);
    net.hosts[3].is_lazy = true;
    (2..4).for_each(|n| net.switch.join(host(9), PortId(n)).unwrap());
    net.write(0, address(Kind::Multicast, 9, 0), 5_000);
    net.write(1, address(Kind::Burst, 3, 0), 300);
    net.settle();
    assert!(net.words_from(2, 0) < 5_000, "the group waits for its slowest member");
    net.now = net.switch.poll_timeout().expect("it does not wait for ever").at;
    net.switch.handle_timeout(net.now);
    let down = Event::Down { port: PortId(3), why: Ended::Silent };
    assert_eq!(net.switch.poll_event(), Some(down));
    // The dead host is silent: its units are not delivered any more.
    let ports = [0, 1, 2];
    while ports.iter().filter(|n| net.send(**n)).count()
        + ports.iter().filter(|n| net.receive(**n)).count()
        > 0
    {}
    assert_eq!(net.words_from(2, 0), 5_000, "the others go on");
    let mut lost = 0;
    while let Some(event) = net.switch.poll_event() {
        match event {
            Event::Lost { words, .. } => lost += words,
            other => panic!("{other:?}"),
        }
    }
    let came = net.words_from(3, 0) + net.words_from(3, 1);
    assert_eq!(lost + came as u64, 5_000 + 300, "what did not come to the dead host");
    assert_eq!(net.hosts[1].waiting.len(), 0, "a sender to the dead is not stuck");
}

#[test]
fn what_goes_nowhere_is_counted_and_told() {
    let mut net = Net::new(SMALL, Trailer::None);
    net.write(0, address(Kind::Burst, 77, 0), 10);
    net.write(0, address(Kind::Multicast, 78, 0), 3);
    net.write(0, address(Kind::Burst, 1, 0), 1);
    net.settle();
    for (number, words) in [(77, 10), (78, 3)] {
        let loss = Loss::NoRoute { from: PortId(0), host: host(number) };
        assert_eq!(net.switch.poll_event(), Some(Event::Lost { words, loss }));
    }
    assert_eq!(net.words_from(1, 0), 1);
    net.switch.handle_line(net.now, PortId(1), Attachment::Down).unwrap();
    let down = Event::Down { port: PortId(1), why: Ended::LinkGone };
    assert_eq!(net.switch.poll_event(), Some(down));
    (0..200).for_each(|n| net.write(0, address(Kind::Burst, 1, n * 5), 2));
    net.settle();
    let loss = Loss::PortDown { from: PortId(0), at: PortId(1) };
    assert_eq!(net.switch.poll_event(), Some(Event::Lost { words: 400, loss }));
    assert_eq!(net.switch.poll_event(), None);
}

#[test]
fn events_that_nobody_asks_for_are_counted() {
    let mut net = Net::new(Config { events: 4, ..SMALL }, Trailer::None);
    (0..10).for_each(|n| net.write(0, address(Kind::Burst, 70 + n, 0), 1));
    net.settle();
    let events: Vec<Event> = core::iter::from_fn(|| net.switch.poll_event()).collect();
    assert_eq!(events.len(), 5);
    assert_eq!(events[4], Event::Overflow { lost: 6 });
}

#[test]
fn a_damaged_unit_is_an_exception_for_both_ends_and_the_link_begins_anew() {
    for trailer in [Trailer::Parity, Trailer::Crc32c] {
        let mut net = Net::new(SMALL, trailer);
        let mut unit = Vec::new();
        let burst = Burst::new(address(Kind::Burst, 1, 0), 1).unwrap();
        write_packet(&mut unit, &burst, [[0; WORD as usize]]);
        trailer.seal(&mut unit);
        unit[3] ^= 4;
        let refused = net.switch.handle_unit(net.now, PortId(0), &unit);
        assert_eq!(refused, Err(Refusal::BadChecksum));
        let down = Event::Down { port: PortId(0), why: Ended::Damaged };
        assert_eq!(net.switch.poll_event(), Some(down));
        while net.receive(0) {}
        let why = Ended::There(Reason::Malformed);
        assert_eq!(net.hosts[0].link.state(), State::Down(why));
        net.hosts[0].link.handle_up(net.now, 5);
        net.now += Duration::from_secs(3);
        net.settle();
        net.write(0, address(Kind::Burst, 1, 0), 1_000);
        net.settle();
        assert_eq!(net.words_from(1, 0), 1_000);
        assert_eq!(net.switch.refusals(PortId(0)).unwrap().total(), 1);
    }
}

#[test]
fn ports_and_lines_that_make_no_sense_are_errors() {
    let mut switch = Switch::new(SMALL, Random::from_number(1)).unwrap();
    let now = Instant::ZERO;
    let line = Attachment::Up { unit: UNIT, trailer: Trailer::None };
    assert_eq!(switch.handle_line(now, PortId(4), line), Err(Error::Unknown));
    let short = Attachment::Up { unit: 60, trailer: Trailer::None };
    assert_eq!(switch.handle_line(now, PortId(0), short), Err(Error::PathDown));
    assert_eq!(switch.route(host(1), PortId(4)), Err(Error::Unknown));
    assert_eq!(switch.join(host(1), PortId(64)), Err(Error::Unknown));
    switch.leave(host(1), PortId(200));
    switch.hold(PortId(200), true);
    assert_eq!(switch.handle_unit(now, PortId(200), &[]), Err(Refusal::Unexpected));
    assert_eq!(switch.handle_unit(now, PortId(0), &[1; 8]), Err(Refusal::Unexpected));
    assert!(!switch.poll_unit(now, PortId(200), &mut Vec::new()));
    assert_eq!(switch.state(PortId(4)), None);
}

/// What one host sends.
#[derive(Clone, Debug)]
struct Sent {
    from: usize,
    to: usize,
    words: u32,
    gap: u32,
}

fn traffic() -> impl Strategy<Value = Vec<Sent>> {
    let sent = (0..4usize, 0..6usize, 1..200u32, 0..3u32).prop_map(|(from, to, words, gap)| Sent {
        from,
        to,
        words,
        gap,
    });
    vec(sent, 1..60)
}

proptest! {
    /// Whatever is split, interleaved and joined: every host gets every word
    /// that was for it, once, and those of each sender in their order.
    #[test]
    fn each_pair_keeps_its_order(traffic in traffic(), pace in vec(any::<u8>(), 0..400)) {
        let mut net = Net::new(SMALL, Trailer::None);
        let members = [[0, 1, 2], [1, 2, 3]];
        for (group, members) in members.iter().enumerate() {
            for port in members {
                net.switch.join(host(50 + group), PortId(*port)).unwrap();
            }
        }
        let mut expected: Vec<Vec<Vec<Address>>> = std::vec![std::vec![Vec::new(); 4]; 4];
        let mut next = [0u32; 4];
        for Sent { from, to, words, gap } in traffic {
            let first = next[from] + gap;
            next[from] = first + words;
            let at = match to {
                0..4 => address(Kind::Burst, to, first),
                group => address(Kind::Multicast, 50 + group - 4, first),
            };
            net.write(from, at, words);
            for (host, expected) in expected.iter_mut().enumerate() {
                let is_member = to >= 4 && host != from && members[to - 4].contains(&(host as u8));
                if to == host || is_member {
                    expected[from].extend((0..words).map(|n| at.advanced(n).unwrap()));
                }
            }
        }
        for pace in pace {
            let port = usize::from(pace & 3);
            match pace >> 2 & 3 {
                0 => drop(net.send(port)),
                1 => drop(net.receive(port)),
                2 => net.stop(port, true),
                _ => net.stop(port, false),
            }
        }
        (0..4).for_each(|n| net.stop(n, false));
        net.settle();
        for (at, host) in net.hosts.iter().enumerate() {
            for (from, expected) in expected[at].iter().enumerate() {
                let got: Vec<Address> = host.words.iter()
                    .filter(|(_, word)| usize::from(word[4]) == from)
                    .map(|(at, _)| *at)
                    .collect();
                prop_assert_eq!(&got, expected, "host {} from {}", at, from);
            }
            for (at, word) in &host.words {
                let [a, b, c, d, ..] = *word;
                prop_assert_eq!(at.word, u32::from_le_bytes([a, b, c, d]));
            }
        }
        prop_assert_eq!(net.switch.poll_event(), None, "nothing was lost");
    }

    /// Invariant 8: any units at any ports.
    #[test]
    fn any_units_are_withstood(units in vec((0..5u8, vec(any::<u8>(), 0..80)), 1..40)) {
        let mut net = Net::new(SMALL, Trailer::None);
        let mut out = Vec::new();
        for (port, unit) in units {
            let _ = net.switch.handle_unit(net.now, PortId(port), &unit);
            (0..5).for_each(|port| while net.switch.poll_unit(net.now, PortId(port), &mut out) {});
        }
    }
}
