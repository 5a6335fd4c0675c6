//! What strangers send, and what a peer sends that keeps to no rule.
//!
//! Two or more hosts joined by a network that loses, repeats, mixes up and
//! damages frames, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use landfall_placement::{
    Duration, Ecn, Instant, PathId, PathLimits, Peer, Random, Refusal, RegionId, Spans, Unit,
};
use proptest::prelude::*;

use super::{config, exchange, serials};
use crate::address::{Address, HostId, Key, Kind, LinkId, WHOLE};
use crate::config::Config;
use crate::error::{Ended, Reason};
use crate::link::handshake::{self, Hello, Stage, Stranger};
use crate::link::links::{FrameAction, LinkUpdate, Links};
use crate::link::{FramePayload, FrameRoom};
use crate::wire::frame::{Entry, Frame, FrameFlags, FrameHeader, FrameKind, HEADER_LEN};

fn frame(header: FrameHeader, body: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; HEADER_LEN];
    bytes.extend(body);
    header.write(&mut bytes);
    bytes
}

fn header(kind: FrameKind, tag: u64, len: usize) -> FrameHeader {
    FrameHeader {
        kind,
        flags: FrameFlags::default(),
        tag,
        seq: 0,
        ack: 0,
        sack: 0,
        credit: 64,
        marks: 0,
        entries: 0,
        payload_len: len as u16,
    }
}

fn ask(host: u16, tag: u64) -> Vec<u8> {
    let host = HostId::new(host).unwrap();
    let hello = Hello {
        stage: Stage::Ask,
        wants_sums: false,
        host,
        frames: 64,
        tag,
        incarnation: tag,
        early_bytes: 1 << 16,
    };
    frame(header(FrameKind::Hello, 0, Hello::LEN), &hello.to_bytes())
}

/// Hands bytes to host 0 as if they came from `from`.
fn hand(world: &mut World, from: Peer, bytes: &[u8]) -> Result<FrameAction, Refusal> {
    let len = bytes.len() as u32;
    let ecn = landfall_placement::Ecn::NotCapable;
    let unit = Unit { path: PATH, from, head: bytes, len, segment: None, ecn, verified: false };
    match Frame::parse(bytes, len) {
        Ok(frame) => world.hosts[0].links.handle_frame(world.now, &unit, &frame),
        Err(_) => Err(Refusal::Malformed),
    }
}

#[test]
fn callers_that_cannot_hear_the_answer_take_no_room() {
    let mut world = World::new(2, &config(), Faults::default(), 20);
    for n in 0..10_000 {
        let from = Peer::Node(1_000 + n);
        assert_eq!(hand(&mut world, from, &ask(77, 1 + u64::from(n))), Ok(FrameAction::Consumed));
        assert_eq!(world.hosts[0].links.find(PATH, from), None);
    }
    assert_eq!(world.hosts[0].links.id_at(0), None);
    exchange(&mut world, 20);
}

#[test]
fn a_blind_stranger_neither_ends_a_link_nor_speaks_on_it() {
    let mut world = World::new(2, &config(), Faults::default(), 21);
    exchange(&mut world, 20);
    let peer = world.hosts[1].peer;
    for tag in (0..64).map(|bit| 1u64 << bit).chain([0, u64::MAX]) {
        let bye = frame(header(FrameKind::Bye, tag, 8), &handshake::bye(Reason::Refused));
        assert!(hand(&mut world, peer, &bye).is_err());
        let ack = FrameHeader { ack: 20, ..header(FrameKind::Ack, tag, 0) };
        assert_eq!(hand(&mut world, peer, &frame(ack, &[])), Err(Refusal::WrongKey));
        let body = Stranger { tag, incarnation: 1 }.to_bytes();
        let stranger = frame(header(FrameKind::Stranger, 0, 16), &body);
        assert_eq!(hand(&mut world, peer, &stranger), Err(Refusal::WrongKey));
        // Who says to have been started anew has to be heard with it.
        assert_eq!(hand(&mut world, peer, &ask(2, tag.max(1))), Ok(FrameAction::Consumed));
        let mut confirm = ask(2, tag.max(1));
        confirm[HEADER_LEN] = Stage::Confirm as u8;
        let confirm = frame(header(FrameKind::Hello, tag, Hello::LEN), &confirm[HEADER_LEN..]);
        assert_eq!(hand(&mut world, peer, &confirm), Err(Refusal::WrongKey));
    }
    let link = world.hosts[0].up[0].0;
    assert!(world.hosts[0].links.is_up(link));
    world.hosts[0].to_send = 10;
    world.hosts[1].to_send = 10;
    let is_done = |hosts: &[super::Host]| hosts.iter().all(|host| host.received.len() == 30);
    assert!(world.run(Duration::from_secs(60), is_done));
    assert!(world.hosts.iter().all(|host| host.received == serials(30) && host.down.is_empty()));
}

/// Frames that host 1 could send: the tag is right, and nothing else need be.
fn tagged(tag: u64, random: &mut landfall_placement::Random) -> Vec<u8> {
    let kinds = [FrameKind::Data, FrameKind::Ack, FrameKind::Data];
    let kind = kinds[random.below(3) as usize];
    let near = |random: &mut landfall_placement::Random| match random.below(4) {
        0 => random.next_u32(),
        1 => 0u32.wrapping_sub(random.below(70) as u32),
        _ => random.below(140) as u32,
    };
    let mut body = Vec::new();
    let mut entries = 0;
    if kind == FrameKind::Data {
        let (address, parameters) =
            crate::wire::Command::Barrier { number: 1 }.encode(HostId::default());
        body.extend(Entry { address, words: 1 }.to_bytes());
        body.extend(parameters);
        entries = 1;
    } else {
        body.extend((0..random.below(17) * 8).map(|_| random.next_u32() as u8));
    }
    let header = FrameHeader {
        flags: FrameFlags(random.below(16) as u8),
        seq: near(random),
        ack: near(random),
        sack: random.next_u64() & random.next_u64(),
        credit: random.next_u32() as u16,
        marks: random.next_u32() as u8,
        entries,
        ..header(kind, tag, body.len() - usize::from(entries) * Entry::LEN)
    };
    frame(header, &body)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A peer that says anything, in debug builds too: nothing panics, and what
    /// is kept for it stays within its bound.
    #[test]
    fn invariants_5_and_8_a_lawless_peer_neither_panics_us_nor_fills_us(seed: u64, count in 1u32..40) {
        let mut world = World::new(2, &config(), Faults::default(), seed);
        exchange(&mut world, 3);
        world.hosts[0].to_send = count;
        world.hosts[1].is_dead = true;
        let peer = world.hosts[1].peer;
        let mut kept = 0;
        for step in 0..2_000 {
            let links = &world.hosts[0].links;
            let Some(link) = links.find(PATH, peer) else { break };
            let tag = links.tag_of(link);
            let bytes = tagged(tag, &mut world.random);
            let arrival = hand(&mut world, peer, &bytes);
            let parsed = Frame::parse(&bytes, bytes.len() as u32).unwrap();
            if let Ok(FrameAction::Next(link) | FrameAction::Early(link)) = arrival {
                let ecn = landfall_placement::Ecn::NotCapable;
                world.hosts[0].links.keep(link, &parsed, &bytes, ecn).unwrap();
                kept += 1;
            }
            if step % 16 == 0 {
                world.run(Duration::from_micros(100), |_| false);
            }
        }
        prop_assert!(kept <= 64);
    }

    /// Bytes that were damaged in any way, with a CRC that is right again.
    #[test]
    fn invariant_3_damage_changes_nothing(seed: u64, bits in prop::collection::vec((any::<u16>(), any::<u16>()), 1..50)) {
        let mut world = World::new(2, &config(), Faults::default(), seed);
        exchange(&mut world, 20);
        let packets: Vec<Packet> =
            world.seen.iter().filter(|packet| packet.to == world.hosts[0].peer).cloned().collect();
        for (which, bit) in bits {
            let mut bytes = packets[usize::from(which) % packets.len()].bytes.clone();
            let bit = usize::from(bit) % (HEADER_LEN * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let peer = world.hosts[1].peer;
            prop_assert!(hand(&mut world, peer, &bytes).is_err() || (38..40).contains(&(bit / 8)));
        }
        world.hosts[0].to_send = 10;
        world.hosts[1].to_send = 10;
        let is_done = |hosts: &[super::Host]| hosts.iter().all(|host| host.received.len() == 30);
        prop_assert!(world.run(Duration::from_secs(60), is_done));
    }
}

pub(crate) const PATH: PathId = PathId(0);
const LIMITS: PathLimits = PathLimits::plain(1_500);

/// What the network does, in parts per million; and how long it takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u32,
    pub(crate) twice: u32,
    pub(crate) late: u32,
    pub(crate) damaged: u32,
    pub(crate) marked: u32,
    /// Of frames that arrive: kept although they could have gone straight to
    /// their place, dropped by the adapter.
    pub(crate) kept: u32,
    pub(crate) dropped: u32,
}

/// The byte of a region at an offset.
fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A frame's first word says which it is.
fn cargo_of(serial: u32, room: &FrameRoom, payload: &mut FramePayload<u32>) {
    let address = Address {
        kind: Kind::Burst,
        host: HostId::default(),
        slot: 0,
        word: serial,
        mask: WHOLE,
        key: Key::default(),
    };
    payload.entries.push(Entry { address, words: 1 });
    payload.inline.extend(u64::from(serial).to_be_bytes());
    let left = room.unit - 2 * Entry::LEN - 8;
    let words = match serial % 4 {
        0 => 0,
        1 => 3,
        _ => left / 8,
    };
    if words > 0 {
        payload.entries.push(Entry { address, words: words as u16 });
        payload.spans.push(RegionId::new(0, 0).span(u64::from(serial) << 16, words as u32 * 8));
    }
    payload.notes.push(serial);
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) links: Links<u32>,
    pub(crate) peer: Peer,
    /// How many cargoes it has still to send, and the next of them.
    pub(crate) to_send: u32,
    next: u32,
    /// What came, in order.
    pub(crate) received: Vec<u32>,
    pub(crate) noted: Vec<u32>,
    pub(crate) up: Vec<(LinkId, HostId)>,
    pub(crate) down: Vec<Ended>,
    pub(crate) gone: usize,
    pub(crate) sent_frames: usize,
    /// Transmissions that the driver has not let go.
    held: VecDeque<(LinkId, u32)>,
    /// It does not listen and does not speak.
    pub(crate) is_dead: bool,
}

impl Host {
    fn new(n: u32, config: &Config, random: &mut Random) -> Self {
        let host = HostId::new(n as u16 + 1).unwrap();
        Self {
            links: Links::new(config, host, random),
            peer: Peer::Node(n),
            to_send: 0,
            next: 0,
            received: Vec::new(),
            noted: Vec::new(),
            up: Vec::new(),
            down: Vec::new(),
            gone: 0,
            sent_frames: 0,
            held: VecDeque::new(),
            is_dead: false,
        }
    }

    fn hear_news(&mut self) {
        while let Some(updates) = self.links.poll_update() {
            match updates {
                LinkUpdate::Up { link, host } => self.up.push((link, host)),
                LinkUpdate::Notes { link } => {
                    while let Some(note) = self.links.poll_note(link) {
                        self.noted.push(note);
                    }
                }
                LinkUpdate::Down { why, .. } => self.down.push(why),
                LinkUpdate::Contested { .. } => {}
                LinkUpdate::Gone { .. } => self.gone += 1,
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: Peer,
    pub(crate) to: Peer,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_marked: bool,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    pub(crate) faults: Faults,
    pub(crate) random: Random,
    pub(crate) config: Config,
    flying: BTreeMap<(Instant, u64), Packet>,
    serial: u64,
    /// Everything that was ever sent.
    pub(crate) seen: Vec<Packet>,
}

impl World {
    pub(crate) fn new(hosts: u32, config: &Config, faults: Faults, seed: u64) -> Self {
        let mut random = Random::from_number(seed);
        let hosts = (0..hosts).map(|n| Host::new(n, config, &mut random)).collect();
        Self {
            now: Instant::from_millis(1),
            hosts,
            faults,
            random,
            config: config.clone(),
            flying: BTreeMap::new(),
            serial: 0,
            seen: Vec::new(),
        }
    }

    /// The host stops where it is, and another process begins in its place.
    pub(crate) fn restart(&mut self, n: usize) {
        self.hosts[n] = Host::new(n as u32, &self.config, &mut self.random);
    }

    pub(crate) fn connect(&mut self, from: usize, to: usize) -> LinkId {
        let peer = self.hosts[to].peer;
        self.hosts[from].links.connect(self.now, PATH, peer).unwrap()
    }

    pub(crate) fn inject(&mut self, packet: Packet) {
        self.serial += 1;
        let took = Duration::from_micros(20);
        self.flying.insert((self.now + took, self.serial), packet);
    }

    fn send(&mut self, packet: &Packet) {
        self.seen.push(packet.clone());
        let copies = 1 + u32::from(self.random.chance(self.faults.twice));
        for _ in 0..copies {
            let mut packet = packet.clone();
            if self.random.chance(self.faults.lost) {
                continue;
            }
            if self.random.chance(self.faults.damaged) {
                let bit = self.random.below(packet.bytes.len() as u64 * 8) as usize;
                // What the CRC does not cover is protected from below.
                if bit / 8 < 38 {
                    packet.bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
            packet.is_marked |= self.random.chance(self.faults.marked);
            let is_late = self.random.chance(self.faults.late);
            let took = if is_late { self.random.below(3_000) } else { 20 };
            self.serial += 1;
            self.flying.insert((self.now + Duration::from_micros(took), self.serial), packet);
        }
    }

    /// What the adapter does with frames that came together.
    fn receive(&mut self, n: usize, packets: &[Packet]) {
        let Self { hosts, random, faults, now, .. } = self;
        let host = &mut hosts[n];
        let mut placed: Vec<(LinkId, u32)> = Vec::new();
        for packet in packets {
            let Ok(frame) = Frame::parse(&packet.bytes, packet.bytes.len() as u32) else {
                continue;
            };
            let ecn = if packet.is_marked { Ecn::CongestionExperienced } else { Ecn::Capable0 };
            let len = packet.bytes.len() as u32;
            let (head, from) = (&packet.bytes[..], packet.from);
            let unit = Unit { path: PATH, from, head, len, segment: None, ecn, verified: false };
            let arrival = host.links.handle_frame(*now, &unit, &frame);
            if random.chance(faults.dropped) {
                continue;
            }
            match arrival {
                Ok(FrameAction::Next(link)) if !random.chance(faults.kept) => {
                    host.links.accept(link, ecn);
                    placed.push((link, serial_of(&frame)));
                }
                Ok(FrameAction::Next(link) | FrameAction::Early(link)) => {
                    host.links.keep(link, &frame, &packet.bytes, ecn).unwrap();
                }
                Ok(FrameAction::Consumed) | Err(_) => {}
            }
        }
        for (link, serial) in placed {
            host.links.handle_applied(*now, link);
            host.received.push(serial);
        }
        let links: Vec<_> = host.up.iter().map(|(link, _)| *link).collect();
        for link in links {
            while let Some(kept) = host.links.next_kept(link) {
                host.received.push(serial_of(&kept.frame().unwrap()));
                host.links.give_back(link, kept);
                host.links.handle_applied(*now, link);
            }
        }
    }

    /// One turn of a host's driver.
    fn turn(&mut self, n: usize) {
        let now = self.now;
        let host = &mut self.hosts[n];
        host.links.handle_timeout(now);
        host.hear_news();
        // What was in the driver's hands since the last turn.
        for (link, seq) in std::mem::take(&mut host.held) {
            host.links.handle_sent(link, seq);
        }
        if let Some((link, _)) = host.up.last()
            && host.to_send > 0
        {
            host.links.wake(*link);
        }
        let mut sent = Vec::new();
        while sent.len() < 100 {
            let Host { links, to_send, next, up, .. } = &mut *host;
            let current = up.last().map(|(link, _)| *link);
            let (mut head, mut from) = ([0; 256], Spans::new());
            let mut load = |link: LinkId, room: &FrameRoom, payload: &mut FramePayload<u32>| {
                if Some(link) == current && *to_send > 0 && !room.answers_only {
                    cargo_of(*next, room, payload);
                    (*next, *to_send) = (*next + 1, *to_send - 1);
                }
            };
            let out = links.poll_transmit(now, PATH, &LIMITS, &mut head, &mut from, &mut load);
            let Some((link, transmit)) = out else { break };
            let mut bytes = head[..usize::from(transmit.head_len)].to_vec();
            for span in from.iter() {
                bytes.extend((span.offset..span.end().unwrap()).map(byte_at));
            }
            assert!(bytes.len() <= LIMITS.unit as usize);
            if transmit.ticket.generation() == 0 {
                host.held.push_back((link, transmit.ticket.index()));
            }
            host.sent_frames += 1;
            let is_marked = false;
            sent.push(Packet { from: host.peer, to: transmit.to, bytes, is_marked });
        }
        host.hear_news();
        for packet in sent {
            self.send(&packet);
        }
    }

    /// Runs until `is_done`, or until nothing happens any more, or until a bound.
    pub(crate) fn run(&mut self, limit: Duration, is_done: impl Fn(&[Host]) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            for n in 0..self.hosts.len() {
                if !self.hosts[n].is_dead {
                    self.turn(n);
                }
            }
            if is_done(&self.hosts) {
                return true;
            }
            let timer = |host: &Host| host.links.poll_timeout().map(|timeout| timeout.at);
            let alive = self.hosts.iter().filter(|host| !host.is_dead);
            let timers = alive.filter_map(timer).min();
            let holds = self.hosts.iter().any(|host| !host.is_dead && !host.held.is_empty());
            let soon = holds.then(|| self.now + Duration::from_micros(5));
            let packet = self.flying.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [timers, soon, packet].into_iter().flatten().min() else {
                return false;
            };
            if next > end {
                self.now = end;
                return false;
            }
            self.now = self.now.max(next);
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        let mut arrived: BTreeMap<Peer, Vec<Packet>> = BTreeMap::new();
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now
        {
            let packet = entry.remove();
            arrived.entry(packet.to).or_default().push(packet);
        }
        for (to, packets) in arrived {
            let n = self.hosts.iter().position(|host| host.peer == to);
            if let Some(n) = n.filter(|n| !self.hosts[*n].is_dead) {
                self.receive(n, &packets);
            }
        }
    }
}

/// Which cargo it is; its bytes must be what was sent.
fn serial_of(frame: &Frame<'_>) -> u32 {
    let (first, rest) = frame.payload().split_first_chunk::<8>().unwrap();
    let serial = u64::from_be_bytes(*first) as u32;
    assert_eq!(frame.payload().len(), frame.payload_len() as usize);
    let offset = u64::from(serial) << 16;
    for (n, byte) in rest.iter().enumerate() {
        assert_eq!(*byte, byte_at(offset + n as u64), "byte {n} of cargo {serial}");
    }
    assert_eq!(frame.entries().next().unwrap().address.word, serial);
    serial
}
