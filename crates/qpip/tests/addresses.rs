//! Addresses that are asked for before they are used, given by a server, or made of what a
//! router tells; and what becomes of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState, Spans};
use qpip::wire::dhcp::{self, Kind, Reply};
use qpip::wire::router::{self, Prefix};
use qpip::wire::{Content, Envelope, arp, ethernet, icmp6, ndp, parse, protocol, udp};
use qpip::{Adapter, Config, Event, Interface, OwnAddress};

use crate::two::place;

const PATH: PathId = PathId(0);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An adapter alone on a wire where the test is everybody else.
struct Alone {
    adapter: Adapter,
    now: Instant,
    events: Vec<Event>,
    sent: Vec<Vec<u8>>,
}

impl Alone {
    fn new(interface: Interface) -> Self {
        let mut adapter = Adapter::new(Config::default(), [3; 32]).unwrap();
        adapter.add_interface(PATH, Interface { mac: MAC, ..interface }).unwrap();
        let now = Instant::from_millis(1_000);
        let limits = PathLimits { head: 384, ..PathLimits::plain(1_514) };
        adapter.handle_path(now, PATH, PathState::Up(limits));
        Self { adapter, now, events: Vec::new(), sent: Vec::new() }
    }

    /// Lets time pass, and answers each frame as `answer` likes.
    fn run(&mut self, millis: u64, mut answer: impl FnMut(&[u8]) -> Vec<Vec<u8>>) {
        let end = self.now + std::time::Duration::from_millis(millis);
        for _ in 0..100_000 {
            self.adapter.handle_timeout(self.now);
            let mut head = [0; 384];
            while let Some(unit) =
                self.adapter.poll_transmit(self.now, PATH, &mut head, &mut Spans::new())
            {
                let frame = head[..usize::from(unit.head_len)].to_vec();
                for reply in answer(&frame) {
                    let _ = place(&mut self.adapter, self.now, &reply);
                }
                self.sent.push(frame);
            }
            while let Some(event) = self.adapter.poll_event() {
                self.events.push(event);
            }
            match self.adapter.poll_timeout() {
                Some(next) if next.at <= end => self.now = next.at.max(self.now),
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("time stands still: {:?}", self.adapter.poll_timeout());
    }

    fn quiet(&mut self, millis: u64) {
        self.run(millis, |_| Vec::new());
    }

    fn hear(&mut self, frame: &[u8]) {
        let _ = place(&mut self.adapter, self.now, frame);
        self.quiet(0);
    }

    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.adapter.addresses().collect()
    }
}

/// Another station says that it has an address.
fn claim(sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let operation = arp::Operation::Request;
    let arp = arp::Arp { operation, sender_mac: OTHER, sender, target_mac: [0; 6], target };
    let mut frame = [&[0xff; 6][..], &OTHER, &ethernet::ARP.to_be_bytes(), &[0; 28]].concat();
    arp.write(&mut frame[14..]).unwrap();
    frame
}

fn ready(address: impl Into<IpAddr>) -> Event {
    Event::AddressReady { path: PATH, address: address.into() }
}

fn lost(address: impl Into<IpAddr>) -> Event {
    Event::AddressLost { path: PATH, address: address.into() }
}

fn conflict(address: impl Into<IpAddr>) -> Event {
    Event::AddressConflict { path: PATH, address: address.into(), station: OTHER }
}

fn fixed(detects_conflicts: bool) -> Alone {
    let addresses = vec![OwnAddress::new(OURS.into(), 24)];
    Alone::new(Interface { addresses, detects_conflicts, ..Interface::default() })
}

#[test]
fn an_address_that_nobody_has_is_used_after_three_questions() {
    let mut alone = fixed(true);
    alone.quiet(2_000);
    assert!(alone.addresses().is_empty(), "it is not sure yet");
    alone.hear(&claim(SERVER, OURS));
    assert!(alone.sent.iter().all(|frame| frame[28..32] == [0; 4]), "nobody is answered yet");
    alone.quiet(10_000);
    assert_eq!(alone.addresses(), [IpAddr::from(OURS)]);
    assert_eq!(alone.events(), [ready(OURS)]);
    let arps: Vec<_> =
        alone.sent.iter().map(|frame| (frame[28..32].to_vec(), frame[38..42].to_vec())).collect();
    let (nobody, ours) = (vec![0; 4], OURS.octets().to_vec());
    assert_eq!(arps[..3], vec![(nobody, ours.clone()); 3], "questions");
    assert_eq!(arps[3..], vec![(ours.clone(), ours); 2], "and that it is ours");
}

#[test]
fn an_address_that_another_has_is_not_used() {
    for asks_too in [true, false] {
        let mut alone = fixed(true);
        alone.quiet(2_000);
        let sender = if asks_too { Ipv4Addr::UNSPECIFIED } else { OURS };
        alone.hear(&claim(sender, OURS));
        alone.quiet(20_000);
        assert_eq!(alone.events(), [conflict(OURS)]);
        assert!(alone.addresses().is_empty());
    }
}

#[test]
fn an_address_is_defended_once_and_given_up_the_second_time() {
    let mut alone = fixed(true);
    alone.quiet(20_000);
    alone.events();
    alone.sent.clear();
    alone.hear(&claim(OURS, SERVER));
    assert_eq!((alone.events(), alone.sent.len()), (vec![conflict(OURS)], 1));
    alone.quiet(5_000);
    alone.hear(&claim(OURS, SERVER));
    assert_eq!(alone.events(), [conflict(OURS), lost(OURS)]);
    assert!(alone.addresses().is_empty());
    alone.sent.clear();
    alone.hear(&claim(SERVER, OURS));
    assert!(alone.sent.is_empty(), "it is not ours any more");
}

#[test]
fn who_takes_a_configured_address_is_told_of_and_nothing_else_happens() {
    let mut alone = fixed(false);
    for _ in 0..3 {
        alone.hear(&claim(OURS, SERVER));
    }
    assert_eq!(alone.events(), [conflict(OURS)]);
    assert_eq!(alone.addresses(), [IpAddr::from(OURS)]);
    assert!(alone.sent.is_empty());
}

#[test]
fn all_are_told_of_configured_addresses_whenever_the_link_comes_up() {
    let six: Ipv6Addr = "fd00::50".parse().unwrap();
    let addresses = vec![OwnAddress::new(OURS.into(), 24), OwnAddress::new(six.into(), 64)];
    let mut alone = Alone::new(Interface { addresses, announces: true, ..Interface::default() });
    for _ in 0..2 {
        alone.quiet(20_000);
        assert_eq!(alone.addresses(), [IpAddr::from(OURS), six.into()]);
        let [four, of_six] = &*std::mem::take(&mut alone.sent) else { panic!("one for each") };
        let Content::Arp(arp) = parse(four, four.len() as u32).unwrap().content else { panic!() };
        assert_eq!((arp.sender, arp.sender_mac, arp.target), (OURS, MAC, OURS));
        let packet = parse(of_six, of_six.len() as u32).unwrap();
        let Content::Ip(ip) = packet.content else { panic!() };
        let message = ip.payload(of_six).unwrap();
        let Ok(ndp::Neighbour::Advertisement(told)) = ndp::read(&ip, message) else { panic!() };
        assert_eq!((told.target, told.station, told.is_override), (six, Some(MAC), true));
        // The cable is pulled, and put in again.
        alone.adapter.handle_path(alone.now, PATH, PathState::Down);
        alone.quiet(5_000);
        assert!(alone.sent.is_empty(), "nobody would hear it");
        let limits = PathLimits { head: 384, ..PathLimits::plain(1_514) };
        alone.adapter.handle_path(alone.now, PATH, PathState::Up(limits));
    }
}

/// What a server answers to a frame of a client.
fn serve(frame: &[u8], change: impl Fn(&mut Reply)) -> Vec<Vec<u8>> {
    let Ok(packet) = parse(frame, frame.len() as u32) else { return Vec::new() };
    let Content::Ip(ip) = packet.content else { return Vec::new() };
    if ip.protocol != protocol::UDP {
        return Vec::new();
    }
    let layer = ip.udp(frame).unwrap();
    assert_eq!(layer.header.destination.get(), dhcp::SERVER_PORT);
    let message = &frame[layer.payload_at..];
    let kind = match message[242] {
        1 => Kind::Offer,
        3 => Kind::Ack,
        _ => return Vec::new(),
    };
    let mut reply = Reply {
        kind,
        xid: u32::from_be_bytes(message[4..8].try_into().unwrap()),
        station: MAC,
        yours: OURS,
        server: Some(SERVER),
        prefix_len: Some(24),
        router: Some(SERVER),
        mtu: Some(1_300),
        lease: Some(600),
        renewal: None,
        rebinding: None,
    };
    change(&mut reply);
    let to = (ethernet::BROADCAST, IpAddr::V4(Ipv4Addr::BROADCAST));
    let outer = Envelope::new((OTHER, SERVER.into()), to, protocol::UDP);
    let mut bytes = [0; 400];
    let len = 8 + reply.write(&mut bytes[8..]).unwrap();
    let (source, destination) = (dhcp::SERVER_PORT.into(), dhcp::CLIENT_PORT.into());
    // Of IPv4, a datagram may have no checksum.
    udp::Header { source, destination, len: (len as u16).into(), sum: 0.into() }.write(&mut bytes);
    let mut frame = vec![0; outer.header_len()];
    outer.write(&mut frame, len as u32).unwrap();
    frame.extend(&bytes[..len]);
    vec![frame]
}

fn client() -> Alone {
    Alone::new(Interface { dhcp: true, host_name: "tester".into(), ..Interface::default() })
}

#[test]
fn a_server_gives_an_address_and_a_gateway_and_time_takes_them() {
    let mut alone = client();
    alone.run(15_000, |frame| serve(frame, |_| {}));
    assert_eq!(alone.events(), [ready(OURS)]);
    assert_eq!(alone.addresses(), [IpAddr::from(OURS)]);
    let long = alone.sent.iter().find(|frame| frame.len() > 300).unwrap();
    assert!(long.windows(6).any(|bytes| bytes == b"tester"));
    // Nobody answers any more: it is renewed, asked for of all, and over.
    alone.quiet(700_000);
    assert_eq!(alone.events(), [lost(OURS)]);
    assert!(alone.addresses().is_empty());
    alone.run(90_000, |frame| serve(frame, |_| {}));
    assert_eq!(alone.events(), [ready(OURS)], "there is a server again");
}

#[test]
fn an_address_that_is_renewed_stays_without_a_word() {
    let mut alone = client();
    let answer = |frame: &[u8]| {
        // The server is asked for by ARP before it can be asked for more time.
        if frame[12..14] == [8, 6] && frame[38..42] == SERVER.octets() {
            let operation = arp::Operation::Reply;
            let reply = arp::Arp {
                operation,
                sender_mac: OTHER,
                sender: SERVER,
                target_mac: MAC,
                target: OURS,
            };
            let mut frame = [&MAC[..], &OTHER, &[8, 6], &[0; 28]].concat();
            reply.write(&mut frame[14..]).unwrap();
            return vec![frame];
        }
        serve(frame, |_| {})
    };
    alone.run(5_000_000, answer);
    assert_eq!(alone.events(), [ready(OURS)]);
    let unicast = alone.sent.iter().filter(|frame| frame.len() > 300 && frame[..6] == OTHER);
    assert!(unicast.count() > 10);
}

#[test]
fn an_offered_address_that_another_has_is_declined() {
    let mut alone = client();
    alone.run(9_000, |frame| {
        let is_probe = frame[12..14] == [8, 6] && frame[28..32] == [0; 4];
        if is_probe { vec![claim(OURS, OURS)] } else { serve(frame, |_| {}) }
    });
    assert_eq!(alone.events(), [conflict(OURS)]);
    assert!(alone.addresses().is_empty());
    let declines = alone.sent.iter().filter(|frame| frame.len() > 300 && frame[42 + 242] == 4);
    assert_eq!(declines.count(), 1);
}

/// What a router tells all.
fn advertisement(lifetime: u16, prefixes: &[Prefix], mtu: Option<u32>) -> Vec<u8> {
    let from: Ipv6Addr = "fe80::99".parse().unwrap();
    let mut said = router::Advertisement::new(lifetime, prefixes);
    (said.station, said.mtu) = (Some(OTHER), mtu);
    let to = (ndp::group_mac(ALL_NODES), IpAddr::from(ALL_NODES));
    let outer =
        Envelope { hop_limit: 255, ..Envelope::new((OTHER, from.into()), to, protocol::ICMP6) };
    let mut message = [0; 512];
    let len = said.write(&mut message, 0).unwrap();
    said.write(&mut message, outer.pseudo(len as u32)).unwrap();
    let mut frame = vec![0; outer.header_len()];
    outer.write(&mut frame, len as u32).unwrap();
    frame.extend(&message[..len]);
    frame
}

fn prefix(text: &str, seconds: u32) -> Prefix {
    let (prefix, valid) = (text.parse().unwrap(), seconds);
    Prefix { prefix, len: 64, is_on_link: true, is_autonomous: true, valid, preferred: valid }
}

#[test]
fn routers_are_asked_and_addresses_made_of_what_they_tell() {
    let mut alone = Alone::new(Interface { discovers_routers: true, ..Interface::default() });
    alone.quiet(30_000);
    let [IpAddr::V6(local)] = alone.addresses()[..] else { panic!("{:?}", alone.addresses()) };
    assert!(local.is_unicast_link_local());
    let kind = |frame: &[u8]| {
        let Content::Ip(ip) = parse(frame, frame.len() as u32).unwrap().content else { panic!() };
        ip.payload(frame).unwrap()[0]
    };
    let asked = alone.sent.iter().filter(|frame| kind(frame) == router::SOLICITATION);
    assert_eq!(asked.count(), 3);
    alone.events();
    alone.hear(&advertisement(600, &[prefix("2001:db8:1::", 900)], Some(1_400)));
    alone.quiet(5_000);
    let [_, IpAddr::V6(global)] = alone.addresses()[..] else { panic!("{:?}", alone.addresses()) };
    assert_eq!(global.segments()[..3], [0x2001, 0xdb8, 1]);
    assert_eq!(alone.events(), [ready(global)]);
    assert_ne!(global.segments()[4..], local.segments()[4..], "nobody follows it from net to net");
    alone.quiet(1_000_000);
    assert_eq!(alone.events(), [lost(global)]);
}

#[test]
fn an_address_of_version_6_that_another_has_makes_place_for_the_next() {
    let mut alone = Alone::new(Interface { discovers_routers: true, ..Interface::default() });
    let mut first = None;
    alone.run(20_000, |frame| {
        let Content::Ip(ip) = parse(frame, frame.len() as u32).unwrap().content else { panic!() };
        let message = ip.payload(frame).unwrap();
        if message[0] != ndp::SOLICITATION || first.is_some() {
            return Vec::new();
        }
        let target = Ipv6Addr::from_octets(message[8..24].try_into().unwrap());
        first = Some(target);
        let told = ndp::Advertisement {
            target,
            station: Some(OTHER),
            is_router: false,
            is_solicited: false,
            is_override: true,
        };
        let to = (ndp::group_mac(ALL_NODES), IpAddr::from(ALL_NODES));
        let outer = Envelope {
            hop_limit: 255,
            ..Envelope::new((OTHER, target.into()), to, protocol::ICMP6)
        };
        let mut frame = vec![0; outer.header_len() + told.message_len()];
        let at = outer.write(&mut frame, told.message_len() as u32).unwrap();
        told.write(&mut frame[at..], outer.pseudo(told.message_len() as u32)).unwrap();
        assert!(icmp6::read(&frame[at..], outer.pseudo(told.message_len() as u32)).is_ok());
        vec![frame]
    });
    let first = first.unwrap();
    let [IpAddr::V6(second)] = alone.addresses()[..] else { panic!("{:?}", alone.addresses()) };
    assert_ne!(second, first);
    assert_eq!(alone.events(), [conflict(first), ready(second)]);
}

#[test]
fn routers_are_not_listened_to_unless_that_is_chosen() {
    let addresses = vec![OwnAddress::new("fd00::1".parse().unwrap(), 64)];
    let mut alone = Alone::new(Interface { addresses, ..Interface::default() });
    alone.hear(&advertisement(600, &[prefix("2001:db8:1::", 900)], None));
    alone.quiet(30_000);
    assert_eq!((alone.addresses().len(), alone.events().len(), alone.sent.len()), (1, 0, 0));
}
