//! Two or more hosts joined by a network that loses, repeats, mixes up and
//! damages frames, in virtual time.

use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use landfall_placement::{
    Duration, Ecn, Instant, PathId, PathLimits, Peer, Random, RegionId, Spans, Unit,
};

use crate::address::{Address, HostId, Key, Kind, WHOLE};
use crate::config::Config;
use crate::error::Ended;
use crate::ids::LinkId;
use crate::link::links::{Arrival, Links, News};
use crate::link::{Cargo, Room};
use crate::wire::frame::{Entry, Frame};

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
fn cargo_of(serial: u32, room: &Room, cargo: &mut Cargo<u32>) {
    let address = Address {
        kind: Kind::Burst,
        host: HostId::default(),
        slot: 0,
        word: serial,
        mask: WHOLE,
        key: Key::default(),
    };
    cargo.entries.push(Entry { address, words: 1 });
    cargo.inline.extend(u64::from(serial).to_be_bytes());
    let left = room.unit - 2 * Entry::LEN - 8;
    let words = match serial % 4 {
        0 => 0,
        1 => 3,
        _ => left / 8,
    };
    if words > 0 {
        cargo.entries.push(Entry { address, words: words as u16 });
        cargo.spans.push(RegionId::new(0, 0).span(u64::from(serial) << 16, words as u32 * 8));
    }
    cargo.notes.push(serial);
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
        while let Some(news) = self.links.poll_news() {
            match news {
                News::Up { link, host } => self.up.push((link, host)),
                News::Notes { link } => {
                    while let Some(note) = self.links.poll_note(link) {
                        self.noted.push(note);
                    }
                }
                News::Down { why, .. } => self.down.push(why),
                News::Gone { .. } => self.gone += 1,
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
            let unit = Unit { path: PATH, from, head, len, segment: None, ecn };
            let arrival = host.links.handle_frame(*now, &unit, &frame);
            if random.chance(faults.dropped) {
                continue;
            }
            match arrival {
                Ok(Arrival::Next(link)) if !random.chance(faults.kept) => {
                    host.links.accept(link, ecn);
                    placed.push((link, serial_of(&frame)));
                }
                Ok(Arrival::Next(link) | Arrival::Early(link)) => {
                    host.links.keep(link, &frame, &packet.bytes, ecn).unwrap();
                }
                Ok(Arrival::Consumed) | Err(_) => {}
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
            let mut load = |link: LinkId, room: &Room, cargo: &mut Cargo<u32>| {
                if Some(link) == current && *to_send > 0 && !room.answers_only {
                    cargo_of(*next, room, cargo);
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
