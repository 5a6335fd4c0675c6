//! Native links and worm-hole switches on a simulated network, in virtual time.

use std::collections::VecDeque;

use clan_dsm::native::switch::{Attachment, Config, Event, PortId, Switch};
use clan_dsm::native::wire::{Trailer, words_of, write_packet};
use clan_dsm::native::{Arrival, NativeLink, Settings, State};
use clan_dsm::native::{Burst, Word};
use clan_dsm::{Address, HostId, Key, Kind, WHOLE};
use landfall_placement::{Duration, Instant, Random};
use landfall_simnet::{Frame, Handle, LinkConfig, LinkState, Node, Outbox, Probability, Sim};

const TRAILER: Trailer = Trailer::Crc32c;
const UNIT: u32 = 1_024;

/// A switch as a node of the network.
struct SwitchNode {
    switch: Switch,
    events: Vec<Event>,
}

impl SwitchNode {
    fn new(seed: u64) -> Self {
        let switch = Switch::new(Config::default(), Random::from_number(seed)).unwrap();
        Self { switch, events: Vec::new() }
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let mut unit = Vec::new();
        for port in (0..out.ports()).map(landfall_simnet::PortId) {
            // What the wire does not take yet waits in the switch.
            while out.has_room(port) && self.switch.poll_unit(now, PortId(port.0 as u8), &mut unit)
            {
                out.send(port, Frame::raw(unit.clone()));
            }
            if !out.has_room(port) {
                out.call_when_room(port);
            }
        }
        self.events.extend(core::iter::from_fn(|| self.switch.poll_event()));
    }
}

impl Node for SwitchNode {
    fn handle_frame(
        &mut self,
        now: Instant,
        port: landfall_simnet::PortId,
        frame: Frame,
        out: &mut Outbox<'_>,
    ) {
        // It tells of what it refuses by an event.
        let _ = self.switch.handle_unit(now, PortId(port.0 as u8), &frame.bytes);
        self.drain(now, out);
    }

    fn handle_link(
        &mut self,
        now: Instant,
        port: landfall_simnet::PortId,
        state: LinkState,
        out: &mut Outbox<'_>,
    ) {
        let line = match state {
            LinkState::Up { mtu } => Attachment::Up { unit: mtu, trailer: TRAILER },
            LinkState::Down => Attachment::Down,
        };
        self.switch.handle_line(now, PortId(port.0 as u8), line).unwrap();
        self.drain(now, out);
    }

    fn handle_room(&mut self, now: Instant, _: landfall_simnet::PortId, out: &mut Outbox<'_>) {
        self.drain(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.switch.handle_timeout(now);
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.switch.poll_timeout().map(|timeout| timeout.at)
    }
}

/// A host that sends what it was told to, and keeps what comes.
struct Host {
    link: NativeLink,
    sessions: u32,
    waiting: VecDeque<(Burst, VecDeque<Word>)>,
    came: Vec<(Address, Word)>,
    packets: usize,
}

impl Host {
    fn new(number: u16) -> Self {
        let settings = Settings { host: HostId::new(number), ..Settings::default() };
        let (waiting, came) = (VecDeque::new(), Vec::new());
        let sessions = u32::from(number) << 16;
        Self { link: NativeLink::new(settings), sessions, waiting, came, packets: 0 }
    }

    fn write(&mut self, at: Address, words: impl Iterator<Item = Word>) {
        let words: VecDeque<Word> = words.collect();
        self.waiting.push_back((Burst::new(at, words.len() as u32).unwrap(), words));
    }

    fn start(&mut self, now: Instant) {
        self.sessions += 1;
        self.link.handle_up(now, self.sessions);
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let port = landfall_simnet::PortId(0);
        loop {
            if !out.has_room(port) {
                return out.call_when_room(port);
            }
            let mut unit = Vec::new();
            if let Some(symbol) = self.link.poll_symbol(now) {
                unit.extend(symbol.to_bytes());
            } else if let Some((burst, words)) = self.waiting.front_mut() {
                let room = self.link.room(UNIT - TRAILER.len() as u32);
                if room == 0 {
                    return self.link.handle_waiting(now, true);
                }
                let (first, rest) = match burst.split_at(room) {
                    Some((first, rest)) => (first, Some(rest)),
                    None => (*burst, None),
                };
                write_packet(&mut unit, &first, words.drain(..first.words() as usize));
                self.link.handle_sent(&first);
                match rest {
                    Some(rest) => *burst = rest,
                    None => drop(self.waiting.pop_front()),
                }
            } else {
                return;
            }
            TRAILER.seal(&mut unit);
            out.send(port, Frame::raw(unit));
        }
    }
}

impl Node for Host {
    fn handle_frame(
        &mut self,
        now: Instant,
        _: landfall_simnet::PortId,
        frame: Frame,
        out: &mut Outbox<'_>,
    ) {
        match TRAILER.open(&frame.bytes) {
            Ok(content) => {
                let arrival = self.link.handle_unit(now, content, content.len() as u32);
                if let Ok(Arrival::Packet(burst)) = arrival {
                    self.packets += 1;
                    let at = burst.address();
                    let words = words_of(content).iter().enumerate();
                    self.came.extend(words.map(|(n, w)| (at.advanced(n as u32).unwrap(), *w)));
                    self.link.handle_taken(&burst);
                }
            }
            Err(_) => self.link.handle_damage(),
        }
        if let State::Down(_) = self.link.state() {
            self.start(now);
        }
        self.drain(now, out);
    }

    fn handle_link(
        &mut self,
        now: Instant,
        _: landfall_simnet::PortId,
        state: LinkState,
        out: &mut Outbox<'_>,
    ) {
        match state {
            LinkState::Up { .. } => self.start(now),
            LinkState::Down => self.link.handle_down(),
        }
        self.drain(now, out);
    }

    fn handle_room(&mut self, now: Instant, _: landfall_simnet::PortId, out: &mut Outbox<'_>) {
        self.drain(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.link.handle_timeout(now);
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.link.poll_timeout().map(|timeout| timeout.at)
    }
}

fn id(number: u16) -> HostId {
    HostId::new(number).unwrap()
}

fn address(kind: Kind, to: u16, word: u32) -> Address {
    Address { kind, host: id(to), slot: 0, word, mask: WHOLE, key: Key::default() }
}

/// Words that say whose they are and which.
fn words(from: u16, count: u32) -> impl Iterator<Item = Word> {
    (0..count).map(move |n| (u64::from(from) << 32 | u64::from(n)).to_le_bytes())
}

/// Hosts 0 and 1 at one switch, 2 and 3 at another, and a wire between the two.
struct Tree {
    sim: Sim,
    hosts: [Handle<Host>; 4],
    switches: [Handle<SwitchNode>; 2],
    trunk: landfall_simnet::LinkId,
}

impl Tree {
    fn new(seed: u64, prepare: impl Fn(u16, &mut Host)) -> Self {
        let mut sim = Sim::from_number(seed);
        let wire = LinkConfig::new().mtu(UNIT).queue_frames(1).rate(1_500_000_000);
        let hosts = [0, 1, 2, 3].map(|number| {
            let mut host = Host::new(number);
            prepare(number, &mut host);
            sim.add(&format!("host {number}"), host).unwrap()
        });
        let switches = [0, 1].map(|number| {
            let mut node = SwitchNode::new(number);
            // Ports 0 and 1 are the hosts', port 2 leads to the other switch.
            for host in 0..4u16 {
                let is_near = u64::from(host) / 2 == number;
                let port = PortId(if is_near { (host % 2) as u8 } else { 2 });
                node.switch.route(id(host), port).unwrap();
                node.switch.join(id(100), port).unwrap();
            }
            sim.add(&format!("switch {number}"), node).unwrap()
        });
        for (n, host) in hosts.iter().enumerate() {
            sim.connect(host.id(), switches[n / 2].id(), wire).unwrap();
        }
        let trunk = sim.connect(switches[0].id(), switches[1].id(), wire).unwrap();
        Self { sim, hosts, switches, trunk }
    }

    fn run(&mut self, time: Duration) {
        let end = self.sim.now() + time;
        self.sim.run_until(end).unwrap();
    }

    fn host(&self, number: usize) -> &Host {
        self.sim.node(self.hosts[number]).unwrap()
    }

    /// The numbers of the words that came from a host, in order.
    fn came(&self, at: usize, from: u16) -> Vec<u32> {
        let all = self.host(at).came.iter().map(|(_, word)| u64::from_le_bytes(*word));
        all.filter(|word| word >> 32 == u64::from(from)).map(|word| word as u32).collect()
    }
}

#[test]
fn everybody_writes_to_everybody_over_two_switches() {
    let mut tree = Tree::new(1, |number, host| {
        for to in (0..4).filter(|to| *to != number) {
            host.write(address(Kind::Burst, to, 0), words(number, 5_000));
        }
        host.write(address(Kind::Multicast, 100, 0), words(number, 1_000));
    });
    tree.run(Duration::from_secs(1));
    for at in 0..4 {
        for from in (0..4u16).filter(|from| usize::from(*from) != at) {
            let expected: Vec<u32> = (0..5_000).chain(0..1_000).collect();
            assert_eq!(tree.came(at, from), expected, "host {at} from {from}");
        }
    }
    for switch in tree.switches {
        let events = &tree.sim.node(switch).unwrap().events;
        assert!(events.iter().all(|event| matches!(event, Event::Up { .. })), "{events:?}");
    }
}

/// At either switch a multicast waits for the wire between the two, while what came over
/// that wire is for members of the multicast.
#[test]
fn multicasts_at_two_switches_do_not_wait_for_each_other() {
    const ROUNDS: u32 = 40;
    const WORDS: u32 = 300;
    for seed in 0..8 {
        let mut tree = Tree::new(seed, |number, host| {
            for round in 0..ROUNDS {
                let at = round * WORDS;
                host.write(address(Kind::Multicast, 100, at), words(number, WORDS));
                let to = (number + 1 + round as u16 % 3) % 4;
                host.write(address(Kind::Burst, to, at), words(number, WORDS));
            }
        });
        tree.run(Duration::from_millis(500));
        let came: Vec<_> = (0..4).map(|at| tree.host(at).came.len()).collect();
        let all = (4 * 3 + 4) * (ROUNDS * WORDS) as usize;
        assert_eq!(came.iter().sum::<usize>(), all, "seed {seed}: {came:?}");
    }
}

#[test]
fn a_packet_that_was_cut_is_one_again_where_nobody_else_wants_to() {
    let mut tree = Tree::new(2, |number, host| {
        if number == 0 {
            // Single words, each in a packet of its own.
            (0..4_000).for_each(|n| host.write(address(Kind::Burst, 3, n), words(0, 1)));
        }
    });
    // What waits for the slow wire between the switches is joined.
    let trunk = tree.trunk.there();
    let slow = tree.sim.link_config(trunk).unwrap().rate(400_000_000);
    tree.sim.configure(trunk, slow).unwrap();
    tree.run(Duration::from_secs(1));
    assert_eq!(tree.host(3).came.len(), 4_000);
    assert!(tree.host(3).came.iter().map(|(at, _)| at.word).eq(0..4_000));
    let packets = tree.host(3).packets;
    assert!(packets < 2_000, "little was joined: {packets}");
}

#[test]
fn a_wire_that_damages_is_an_exception_and_never_a_deadlock() {
    let mut tree = Tree::new(3, |number, host| {
        let to = 3 - number;
        (0..200).for_each(|n| host.write(address(Kind::Burst, to, n * 100), words(number, 50)));
    });
    let mut noisy = *tree.sim.link_config(tree.trunk.there()).unwrap();
    noisy.corruption.probability = Probability::percent(1);
    for way in [tree.trunk.there(), tree.trunk.back()] {
        tree.sim.configure(way, noisy).unwrap();
    }
    tree.run(Duration::from_secs(120));
    let mut told = 0;
    for switch in tree.switches {
        let events = &tree.sim.node(switch).unwrap().events;
        told += events.iter().filter(|event| matches!(event, Event::Down { .. })).count();
    }
    assert!(told > 0, "nothing was damaged");
    for number in 0..4 {
        assert!(tree.host(number).waiting.is_empty(), "host {number} is stuck");
        let from = 3 - number as u16;
        let came = tree.came(number, from);
        assert!(!came.is_empty(), "nothing came to {number}");
        // What came is as it was sent, in its place, and once.
        let mut places = std::collections::BTreeSet::new();
        for (at, word) in &tree.host(number).came {
            let nth = at.word % 100;
            assert_eq!(*word, (u64::from(from) << 32 | u64::from(nth)).to_le_bytes(), "{at:?}");
            assert!(places.insert(at.word), "{at:?} came twice");
        }
    }
}

#[test]
fn two_runs_are_the_same() {
    let run = || {
        let mut tree = Tree::new(4, |number, host| {
            host.write(address(Kind::Multicast, 100, 0), words(number, 3_000));
            host.write(address(Kind::Burst, (number + 1) % 4, 9), words(number, 3_000));
        });
        tree.run(Duration::from_secs(1));
        tree.sim.digest()
    };
    assert_eq!(run(), run());
}
