//! One adapter that finds its addresses by itself, among strangers on its link: who has an
//! address, what a server gives, what a router tells, which groups are listened to, any of it
//! true, false, or malformed.
//!
//! What must hold, no matter who lies: time goes on, no more is said than was asked, addresses are
//! those of hosts and few, and a station that was given an address for good answers for it.

use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_placement::{
    Duration, Engine, Instant, PathId, PathLimits, PathState, Peer, Spans, checksum,
};
use landfall_testkit::model::{Checked, Choices, Findings, Packet};

use super::frame::seal;
use crate::adapter::{Adapter, Config, Event, Interface};
use crate::offload::OwnAddress;
use crate::wire::dhcp::{self, Kind, Reply};
use crate::wire::router::{self, Prefix};
use crate::wire::{Envelope, Mac, arp, ethernet, group, ndp, protocol, udp, vlan};

const PATH: PathId = PathId(0);
const OUR_STATION: Mac = [2, 0, 0, 0, 0, 1];
const STRANGERS: [Mac; 3] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3], OUR_STATION];
/// Configured, and not looked whether somebody else has it.
const STATIC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const VLAN: u16 = 7;
const ROOM: usize = 384;
/// More addresses than an interface may have found.
const MOST_ADDRESSES: usize = 24;
/// How often the time may come for something at one moment.
const MOST_ROUNDS: u32 = 16;
/// What may be sent at once without being asked, for each frame that came, and in a second.
const UNASKED: u64 = 64;
const FOR_EACH_FRAME: u64 = 8;
const IN_A_SECOND: u64 = 24;

/// The adapter, and what is known of it.
struct Link {
    checked: Checked<Adapter>,
    interface: Interface,
    now: Instant,
    began: Instant,
    heard: u64,
    said: u64,
    /// What was said last of each kind that strangers answer.
    question: Option<Vec<u8>>,
    /// The last address that somebody was asked for.
    wanted: Option<IpAddr>,
    /// As events told.
    addresses: Vec<IpAddr>,
    findings: Findings,
}

impl Link {
    fn new(choices: &mut Choices<'_>, with_story: bool) -> Self {
        let wants = choices.byte();
        let has = |bit: u8| wants >> bit & 1 == 1;
        let own = OwnAddress::new(STATIC.into(), 24);
        let interface = Interface {
            mac: OUR_STATION,
            addresses: if has(0) { [own].into() } else { [].into() },
            detects_conflicts: has(1),
            dhcp: has(2) || !has(0),
            discovers_routers: has(3),
            vlan: has(4).then_some(VLAN),
            ..Interface::default()
        };
        let mut adapter = Adapter::new(Config::default(), [3; 32]).expect("the usual is valid");
        let added = adapter.add_interface(PATH, interface.clone());
        debug_assert_eq!(added, Ok(()), "the interface is valid");
        let now = Instant::from_millis(1_000);
        let mut link = Self {
            checked: Checked::new(adapter),
            interface,
            now,
            began: now,
            heard: 0,
            said: 0,
            question: None,
            wanted: None,
            addresses: Vec::new(),
            findings: Findings::new(with_story),
        };
        link.set_path(true);
        link
    }

    fn fail(&mut self, what: &str) {
        self.findings.fail(format!("at {}: {what}", self.now));
    }

    fn set_path(&mut self, is_up: bool) {
        let limits = PathLimits { head: ROOM as u16, ..PathLimits::plain(1_514) };
        let state = if is_up { PathState::Up(limits) } else { PathState::Down };
        self.checked.handle_path(self.now, PATH, state);
        self.settle();
    }

    /// All that the adapter has to say now is said.
    fn settle(&mut self) {
        let mut head = [0; ROOM];
        for _ in 0..1_000 {
            let mut spans = Spans::new();
            let unit = self.checked.poll_transmit(self.now, PATH, &mut head, &mut spans);
            let Some(unit) = unit else { return self.hear_events() };
            let said = &head[..usize::from(unit.head_len)];
            self.said += 1;
            self.findings.add(said);
            self.findings.tell(|| format!("{}  says {said:02x?}", self.now));
            self.note(said);
        }
        self.fail("it does not come to an end");
    }

    /// What strangers may answer.
    fn note(&mut self, said: &[u8]) {
        if said.get(6..12) != Some(&OUR_STATION) {
            return self.fail("it speaks in another's name");
        }
        let tag = if self.interface.vlan.is_some() { vlan::LEN } else { 0 };
        let Some(kind) = said.get(12 + tag..14 + tag) else { return self.fail("it is cut short") };
        let body = &said[14 + tag..];
        match kind {
            [8, 6] => {
                let target = body.get(24..28).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                self.wanted = target.map(IpAddr::from).or(self.wanted);
            }
            [8, 0] if body.len() > 300 => self.question = Some(body[28..].to_vec()),
            [0x86, 0xdd] if body.get(40) == Some(&ndp::SOLICITATION) => {
                let target = body.get(48..64).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
                self.wanted = target.map(IpAddr::from).or(self.wanted);
            }
            _ => {}
        }
    }

    fn hear_events(&mut self) {
        while let Some(event) = self.checked.engine.poll_event() {
            match event {
                Event::AddressReady { address, .. } => self.addresses.push(address),
                Event::AddressLost { address, .. } => self.addresses.retain(|own| *own != address),
                _ => {}
            }
        }
        let owned: Vec<IpAddr> = self.checked.engine.addresses().collect();
        if owned.len() > MOST_ADDRESSES {
            self.fail("it has more and more addresses");
        }
        let is_wrong = |own: &IpAddr| {
            let is_v4_wrong = matches!(own, IpAddr::V4(own) if own.is_broadcast());
            own.is_multicast() || own.is_unspecified() || own.is_loopback() || is_v4_wrong
        };
        if let Some(own) = owned.iter().find(|own| is_wrong(own)) {
            self.fail(&format!("it calls {own} its own"));
        }
        let untold = owned.iter().find(|own| **own != STATIC && !self.addresses.contains(own));
        if let Some(own) = untold {
            self.fail(&format!("nobody was told that {own} is ready"));
        }
        let seconds = self.now.since(self.began).as_secs() + 1;
        let most = UNASKED + FOR_EACH_FRAME * self.heard + IN_A_SECOND * seconds;
        if self.said > most {
            self.fail("it says much more than it was asked");
        }
    }

    fn hear(&mut self, frame: Vec<u8>) {
        self.heard += 1;
        self.findings.tell(|| format!("{}  hears {frame:02x?}", self.now));
        let packet = Packet::new(PATH, Peer::Unaddressed, frame);
        // Whatever it says of it: nothing is posted, so nothing is placed.
        let _ = packet.place(&mut self.checked, self.now, &mut Spans::new());
        self.checked.handle_timeout(self.now);
        self.settle();
    }

    /// Time passes: to the next thing that is due, or by so much.
    fn wait(&mut self, time: Option<Duration>) {
        let until = match time {
            Some(time) => self.now + time,
            None => self.checked.poll_timeout().map_or(self.now, |next| next.at.max(self.now)),
        };
        let mut rounds = 0;
        loop {
            let next = self.checked.poll_timeout().map(|next| next.at.max(self.now));
            let Some(next) = next.filter(|next| *next <= until) else { break };
            rounds = if next > self.now { 0 } else { rounds + 1 };
            if rounds > MOST_ROUNDS {
                return self.fail("time stands still");
            }
            self.now = next;
            self.checked.handle_timeout(self.now);
            self.settle();
        }
        self.now = self.now.max(until);
    }
}

/// What strangers say.
struct Stranger<'a, 'b> {
    choices: &'a mut Choices<'b>,
    link: &'a Link,
    station: Mac,
}

impl Stranger<'_, '_> {
    /// A frame of one of them, whole and right, but for what it claims.
    fn speak(&mut self) -> Vec<u8> {
        match self.choices.below(8) {
            0 | 1 => self.serve(),
            2 => self.arp(),
            3 => self.solicit(),
            4 => self.advertise(),
            5 => self.route(),
            6 => self.ask_igmp(),
            _ => self.ask_mld(),
        }
    }

    fn v4(&mut self) -> Ipv4Addr {
        match self.choices.below(8) {
            0 => STATIC,
            1 => SERVER,
            2 => Ipv4Addr::UNSPECIFIED,
            3 => Ipv4Addr::BROADCAST,
            4 => Ipv4Addr::from(self.choices.array::<4>()),
            5 => Ipv4Addr::new(192, 0, 2, self.choices.byte()),
            _ => match self.link.wanted {
                Some(IpAddr::V4(wanted)) => wanted,
                _ => SERVER,
            },
        }
    }

    fn v6(&mut self) -> Ipv6Addr {
        let owned = self.link.checked.engine.addresses().find_map(|own| match own {
            IpAddr::V6(own) => Some(own),
            IpAddr::V4(_) => None,
        });
        match (self.choices.below(6), self.link.wanted, owned) {
            (0, ..) => ROUTER,
            (1, ..) => Ipv6Addr::from(self.choices.array::<16>()),
            (2, ..) => Ipv6Addr::UNSPECIFIED,
            (3, _, Some(own)) => own,
            (_, Some(IpAddr::V6(wanted)), _) => wanted,
            (_, _, own) => own.unwrap_or(ROUTER),
        }
    }

    fn seconds(&mut self) -> u32 {
        let of = [0, 1, 59, 600, 86_400, u32::MAX - 1, u32::MAX];
        if self.choices.flag() { self.choices.pick(&of) } else { self.choices.word().into() }
    }

    /// A server of DHCP answers the last question, or one that nobody asked.
    fn serve(&mut self) -> Vec<u8> {
        let question = self.link.question.as_deref().unwrap_or(&[0; 300]);
        let xid = question[4..8].try_into().map_or(0, u32::from_be_bytes);
        let kind = match (question.get(242), self.choices.below(4)) {
            (_, 0) => Kind::Nak,
            (Some(1), 1 | 2) | (_, 3) => Kind::Offer,
            _ => Kind::Ack,
        };
        let some = |this: &mut Self| this.choices.below(4) > 0;
        let reply = Reply {
            kind,
            xid,
            station: OUR_STATION,
            yours: if self.choices.flag() { Ipv4Addr::new(192, 0, 2, 77) } else { self.v4() },
            server: some(self).then(|| self.v4()),
            prefix_len: some(self).then(|| (self.choices.byte() % 33).max(1)),
            router: some(self).then(|| self.v4()),
            mtu: some(self).then(|| self.choices.word()),
            lease: some(self).then(|| self.seconds()),
            renewal: some(self).then(|| self.seconds()),
            rebinding: some(self).then(|| self.seconds()),
        };
        let mut message = [0; 400];
        let written = reply.write(&mut message[udp::LEN..]);
        let len = udp::LEN + written.expect("there is room");
        let (source, destination) = (dhcp::SERVER_PORT.into(), dhcp::CLIENT_PORT.into());
        let header = udp::Header { source, destination, len: (len as u16).into(), sum: 0.into() };
        header.write(&mut message);
        let to = (ethernet::BROADCAST, IpAddr::V4(Ipv4Addr::BROADCAST));
        let from = (self.station, IpAddr::V4(self.v4()));
        packet(&Envelope::new(from, to, protocol::UDP), &message[..len])
    }

    fn arp(&mut self) -> Vec<u8> {
        let asks = self.choices.flag();
        let said = arp::Arp {
            operation: if asks { arp::Operation::Request } else { arp::Operation::Reply },
            sender_mac: self.station,
            sender: self.v4(),
            target_mac: if self.choices.flag() { OUR_STATION } else { [0; 6] },
            target: self.v4(),
        };
        let mut body = [0; arp::LEN];
        said.write(&mut body);
        let to = if self.choices.flag() { ethernet::BROADCAST } else { OUR_STATION };
        [&to[..], &self.station, &ethernet::ARP.to_be_bytes(), &body].concat()
    }

    /// Of one to one of ours, or to all.
    fn icmp6(&mut self, write: impl Fn(&mut [u8], u16) -> Option<usize>) -> Vec<u8> {
        let to = if self.choices.flag() { ALL_NODES } else { self.v6() };
        let station = if to.is_multicast() { ndp::group_mac(to) } else { OUR_STATION };
        let from = (self.station, IpAddr::V6(self.v6()));
        let outer = Envelope::new(from, (station, to.into()), protocol::ICMP6);
        let outer = Envelope { hop_limit: 255, ..outer };
        let mut message = [0; 512];
        let len = write(&mut message, 0).expect("there is room");
        write(&mut message, outer.pseudo(len as u32));
        packet(&outer, &message[..len])
    }

    fn solicit(&mut self) -> Vec<u8> {
        let target = self.v6();
        let station = self.choices.flag().then_some(self.station);
        let said = ndp::Solicitation { target, station };
        self.icmp6(|into, pseudo| said.write(into, pseudo))
    }

    fn advertise(&mut self) -> Vec<u8> {
        let bits = self.choices.byte();
        let said = ndp::Advertisement {
            target: self.v6(),
            station: (bits & 1 == 0).then_some(self.station),
            is_router: bits & 2 == 0,
            is_solicited: bits & 4 == 0,
            is_override: bits & 8 == 0,
        };
        self.icmp6(|into, pseudo| said.write(into, pseudo))
    }

    fn route(&mut self) -> Vec<u8> {
        let mut prefixes = [None; 3];
        for prefix in &mut prefixes {
            let bits = self.choices.byte();
            let net = u16::from(bits & 7);
            *prefix = (bits & 0x80 == 0).then(|| Prefix {
                prefix: match bits >> 5 & 3 {
                    0 => self.v6(),
                    _ => Ipv6Addr::new(0x2001, 0xdb8, net, 0, 0, 0, 0, 0),
                },
                len: if bits & 8 == 0 { 64 } else { self.choices.byte() },
                is_on_link: bits & 16 == 0,
                is_autonomous: true,
                valid: self.seconds(),
                preferred: self.seconds(),
            });
        }
        let prefixes: Vec<Prefix> = prefixes.into_iter().flatten().collect();
        let mut said = router::Advertisement::new(self.choices.word(), &prefixes);
        said.station = self.choices.flag().then_some(self.station);
        said.mtu = self.choices.flag().then(|| self.seconds());
        let from = (self.station, IpAddr::V6(if self.choices.flag() { ROUTER } else { self.v6() }));
        let to = (ndp::group_mac(ALL_NODES), IpAddr::V6(ALL_NODES));
        let outer = Envelope { hop_limit: 255, ..Envelope::new(from, to, protocol::ICMP6) };
        let mut message = [0; 512];
        let len = said.write(&mut message, 0).expect("there is room");
        said.write(&mut message, outer.pseudo(len as u32));
        packet(&outer, &message[..len])
    }

    fn ask_igmp(&mut self) -> Vec<u8> {
        let of = if self.choices.flag() { Ipv4Addr::UNSPECIFIED } else { self.v4() };
        let [a, b, c, d] = of.octets();
        let kind = self.choices.pick(&[0x11, 0x11, 0x12, 0x16, 0x17, 0x22]);
        let mut message = [kind, self.choices.byte(), 0, 0, a, b, c, d, 0, 0, 0, 0].to_vec();
        message.truncate(if self.choices.flag() { 8 } else { 12 });
        let sum = checksum::checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let all = IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1));
        let from = (self.station, IpAddr::V4(self.v4()));
        let outer = Envelope::new(from, (group::stations(all), all), protocol::IGMP);
        packet(&Envelope { hop_limit: 1, ..outer }, &message)
    }

    fn ask_mld(&mut self) -> Vec<u8> {
        let kind = self.choices.pick(&[group::MLD_QUERY, group::MLD_QUERY, group::MLD_REPORT]);
        let [a, b] = self.choices.word().to_be_bytes();
        let of = if self.choices.flag() { Ipv6Addr::UNSPECIFIED } else { self.v6() };
        let mut message = [&[kind, 0, 0, 0, a, b, 0, 0][..], &of.octets(), &[0; 4]].concat();
        message.truncate(if self.choices.flag() { 24 } else { 28 });
        let all = IpAddr::V6(ALL_NODES);
        let from = (self.station, IpAddr::V6(ROUTER));
        let outer = Envelope::new(from, (group::stations(all), all), protocol::ICMP6);
        let outer = Envelope { hop_limit: 1, ..outer };
        let pseudo = outer.pseudo(message.len() as u32);
        message[2..4].copy_from_slice(&pseudo.to_be_bytes());
        let sum = checksum::checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        // The alert without which routers' questions do not count (RFC 2711).
        let alert = [protocol::ICMP6, 0, 5, 2, 0, 0, 1, 0];
        let body = [&alert[..], &message].concat();
        packet(&Envelope { protocol: protocol::HOP_BY_HOP, ..outer }, &body)
    }
}

fn packet(outer: &Envelope, body: &[u8]) -> Vec<u8> {
    let mut frame = [0; 128].to_vec();
    frame.truncate(outer.header_len());
    outer.write(&mut frame, body.len() as u32);
    frame.extend(body);
    frame
}

/// Changes some of a frame behind its addresses, and makes its checksums right again.
fn twist(choices: &mut Choices<'_>, frame: &mut Vec<u8>) {
    let changes = choices.byte();
    for _ in 0..changes & 3 {
        let at = 12 + choices.below(frame.len().max(13) - 12);
        if let Some(byte) = frame.get_mut(at) {
            *byte = choices.byte();
        }
    }
    if changes & 0x10 != 0 {
        frame.truncate(14 + choices.below(frame.len()));
    }
    if changes & 0x20 == 0 {
        seal(frame);
    }
}

/// Puts it into a VLAN: ours, or another.
fn tag(choices: &mut Choices<'_>, frame: &mut Vec<u8>) {
    let id = if choices.below(8) > 0 { VLAN } else { choices.word() };
    let [a, b] = id.to_be_bytes();
    frame.splice(12..12, [0x81, 0x00, a, b]);
}

/// Plays whatever these bytes stand for.
pub(super) fn withstand_strangers(bytes: &[u8], with_story: bool) -> Findings {
    let mut choices = Choices::new(bytes);
    let mut link = Link::new(&mut choices, with_story);
    while !choices.is_over() {
        match choices.below(16) {
            0..=2 => link.wait(None),
            3 | 4 => link.wait(Some(Duration::from_millis(choices.word().into()))),
            5 => link.wait(Some(Duration::from_secs(choices.word().into()))),
            6 => link.set_path(choices.below(4) > 0),
            what => {
                let station = choices.pick(&STRANGERS);
                let mut frame = Stranger { choices: &mut choices, link: &link, station }.speak();
                if what == 7 {
                    twist(&mut choices, &mut frame);
                }
                if link.interface.vlan.is_some() {
                    tag(&mut choices, &mut frame);
                }
                link.hear(frame);
            }
        }
    }
    aftermath(&mut link);
    for violation in link.checked.violations() {
        link.findings.fail(format!("{violation}"));
    }
    link.findings
}

/// Who was given an address for good answers for it, whatever was said.
fn aftermath(link: &mut Link) {
    link.set_path(true);
    link.wait(Some(Duration::from_secs(2)));
    let is_sure = !link.interface.addresses.is_empty() && !link.interface.detects_conflicts;
    if !is_sure {
        return;
    }
    let (said, wanted) = (link.said, link.wanted);
    let asks = arp::Arp {
        operation: arp::Operation::Request,
        sender_mac: STRANGERS[0],
        sender: Ipv4Addr::new(192, 0, 2, 99),
        target_mac: [0; 6],
        target: STATIC,
    };
    let mut body = [0; arp::LEN];
    asks.write(&mut body);
    let mut frame =
        [&ethernet::BROADCAST[..], &STRANGERS[0], &ethernet::ARP.to_be_bytes(), &body].concat();
    if link.interface.vlan.is_some() {
        frame.splice(12..12, [0x81, 0x00, 0, VLAN as u8]);
    }
    link.hear(frame);
    if link.said == said {
        link.fail(&format!("it does not answer for its address any more ({wanted:?})"));
    }
}
