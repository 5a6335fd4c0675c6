//! Several receivers of one interface, several queues, and several senders at once, among them
//! strangers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bounds::granted;
use super::*;
use landfall::defrag::{
    Answer, CutBy, Df, GateConfig, Memory, Mode, Outgoing, RequesterConfig, TransferId, Wanted,
};
use landfall_placement::{InternetSum, Random, RegionId};
use landfall_testbed::{BridgedNetwork, leave_out_unless, require_namespaces};
use spec_defrag::cut::Cutter;

/// Which datagrams came, by sender and by the number that each begins with.
#[derive(Debug, Default)]
struct Received(BTreeMap<(IpAddr, u32), u32>);

impl Received {
    /// A datagram of [`payload`], if it is one to the port; its bytes have to be right.
    fn note(&mut self, packet: landfall::defrag::Packet) -> Option<IpAddr> {
        let page = Page::of(packet).filter(|page| page.to().port() == PORT)?;
        let bytes = page.bytes();
        let number = u32::from_be_bytes(*bytes.first_chunk()?);
        let from = page.from().ip();
        assert!(bytes[..] == payload(number, bytes.len()), "datagram {number} of {from}");
        *self.0.entry((from, number)).or_default() += 1;
        Some(from)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Begins with a number, and is made of it.
fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = noise(number.into(), len);
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// What came to each of these receivers, until this many came in all.
fn receive_all(receivers: &mut [Receiver], count: usize) -> Vec<Received> {
    let mut came: Vec<_> = receivers.iter().map(|_| Received::default()).collect();
    let started = Instant::now();
    while came.iter().map(Received::len).sum::<usize>() < count {
        let stats: Vec<_> = receivers.iter_mut().map(Receiver::stats).collect();
        assert!(started.elapsed() < PATIENCE, "{:?}: {stats:?}", came.iter().map(Received::len));
        for (receiver, came) in receivers.iter_mut().zip(&mut came) {
            while let Some(packet) = receiver.try_receive().unwrap() {
                came.note(packet);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    came
}

/// Each sender's packets come to one member, whole, and none comes twice.
fn check_members(came: &[Received], senders: usize) {
    let mut members: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for (member, came) in came.iter().enumerate() {
        for ((from, number), times) in &came.0 {
            assert_eq!(*times, 1, "datagram {number} of {from}");
            assert_eq!(*members.entry(*from).or_insert(member), member, "{from} came to two");
        }
    }
    assert_eq!(members.len(), senders);
    let used = came.iter().filter(|came| came.len() > 0).count();
    assert!(used > 1, "one member got everything");
}

#[test]
fn all_fragments_of_a_packet_come_to_one_member() {
    require_namespaces!();
    const SENDERS: u8 = 7;
    const EACH: u32 = 20;
    let network = BridgedNetwork::new(SENDERS + 1).unwrap();
    let [end, senders @ ..] = network.ends() else { panic!("no ends") };
    senders.iter().for_each(|sender| until_it_works(sender, end));
    for technique in [Technique::Auto, Technique::PacketRing, Technique::Packet] {
        let builder = Receiver::builder(end.name.as_str()).seed(SEED).technique(technique);
        let mut receivers =
            end.namespace.enter(|| builder.open_members(3)).unwrap().expect("members");
        std::thread::scope(|scope| {
            for sender in senders {
                scope.spawn(|| {
                    // Both versions: two pairs of addresses.
                    for is_ipv4 in [true, false] {
                        let socket = socket(sender, is_ipv4, FROM);
                        for number in 0..EACH {
                            let payload = payload(number, 1600 + 400 * number as usize);
                            socket.send_to(&payload, address(end, is_ipv4, PORT)).unwrap();
                        }
                    }
                });
            }
        });
        let count = 2 * usize::from(SENDERS) * EACH as usize;
        check_members(&receive_all(&mut receivers, count), 2 * usize::from(SENDERS));
        for receiver in &mut receivers {
            let stats = receiver.stats().unwrap();
            assert_eq!((stats.kernel_drops, stats.lost), (0, 0), "{technique}: {stats:?}");
        }
    }
}

/// A cable whose ends have several queues: the device puts what is between two addresses in one.
#[test]
fn xdp_hears_every_queue_and_members_share_them() {
    require_namespaces!();
    const QUEUES: u32 = 4;
    const SOURCES: u8 = 24;
    let cable = VethPair::new(VethConfig { queues: QUEUES, ..VethConfig::default() }).unwrap();
    until_it_works(&cable.a, &cable.b);
    for members in [1, 2, 4] {
        let builder = Receiver::builder(cable.b.name.as_str()).seed(SEED).technique(Technique::Xdp);
        let mut receivers =
            cable.b.namespace.enter(|| builder.open_members(members)).unwrap().expect("members");
        let mut sender = sender_as(&cable.a, |builder| builder.cut_by(CutBy::Sender));
        let mut sent = 0;
        for nth in 1..=SOURCES {
            let from = SocketAddr::new(Ipv4Addr::new(10, 99, nth, 7).into(), FROM);
            let from = Station { mac: cable.a.mac.0, address: from };
            let to = Station { mac: cable.b.mac.0, address: address(&cable.b, true, PORT) };
            let mut datagrams = Datagrams::new(from, to, SEED).unwrap();
            for number in 0..4 {
                let memory = sender.register(Memory::from_bytes(&payload(number, 8192))).unwrap();
                let part = memory.part(0, 8192).unwrap();
                sender.send_datagrams(&mut datagrams, &[part]).unwrap();
                sent += 1;
            }
        }
        let came = receive_all(&mut receivers, sent);
        if members > 1 {
            check_members(&came, SOURCES.into());
        }
    }
    let builder = Receiver::builder(cable.b.name.as_str()).technique(Technique::Xdp);
    let refused = cable.b.namespace.enter(|| builder.open_members(QUEUES as u16 + 1)).unwrap();
    assert!(matches!(refused, Err(OpenError::Members { members: 5, found: 4 })), "{refused:?}");
}

#[test]
fn what_cannot_be_shared_says_so() {
    require_namespaces!();
    let cable = cable();
    let open = |adjust: fn(ReceiverBuilder) -> ReceiverBuilder| {
        let builder = adjust(Receiver::builder(cable.b.name.as_str()));
        cable.b.namespace.enter(|| builder.open_members(2)).unwrap()
    };
    for refused in [open(ReceiverBuilder::gate), open(|one| one.technique(Technique::PacketUring))]
    {
        let text = refused.expect_err("it has one receiver").to_string();
        assert!(text.contains("one of several"), "{text}");
    }
}

/// Runs `ip` in a namespace; what it says where it fails.
fn ip_tool(end: &VethEnd, arguments: &str) -> Result<(), String> {
    let run = || Command::new("ip").args(arguments.split_whitespace()).output();
    let output = end.namespace.enter(run).unwrap().expect("`ip` of iproute2");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Why this kernel has no interfaces of VLANs.
fn why_no_vlans(cable: &VethPair) -> Option<String> {
    let name = &cable.a.name;
    let made = ip_tool(&cable.a, &format!("link add link {name} name probe type vlan id 9"));
    made.err().map(|said| format!("no VLAN can be made ({}): modprobe 8021q", said.trim()))
}

/// The interface of a VLAN has its frames without tags: packets are lent there as anywhere else,
/// and those of the link below, or of another VLAN, do not mix with them.
#[test]
fn fragments_of_a_vlan_are_joined_at_its_interface() {
    require_namespaces!();
    let cable = cable();
    leave_out_unless!(why_no_vlans(&cable));
    for (end, host) in [(&cable.a, 1), (&cable.b, 2)] {
        for vlan in [5, 6] {
            let name = &end.name;
            for arguments in [
                format!("link add link {name} name vlan{vlan} type vlan id {vlan}"),
                format!("addr add 10.5.{vlan}.{host}/24 dev vlan{vlan}"),
                format!("link set vlan{vlan} up"),
            ] {
                ip_tool(end, &arguments).unwrap_or_else(|said| panic!("ip {arguments}: {said}"));
            }
        }
    }
    let open = |interface: &str| {
        let builder = Receiver::builder(interface).seed(SEED).patience(PATIENCE);
        cable.b.namespace.enter(|| builder.open()).unwrap().unwrap()
    };
    let mut of_vlan = [5u8, 6].map(|vlan| (vlan, open(&format!("vlan{vlan}"))));
    let mut below = open(&cable.b.name);
    for number in 0..20 {
        for (vlan, _) in &of_vlan {
            let (from, to) = (Ipv4Addr::new(10, 5, *vlan, 1), Ipv4Addr::new(10, 5, *vlan, 2));
            let socket = cable.a.namespace.enter(|| UdpSocket::bind((from, FROM))).unwrap();
            // Only the address tells in which VLAN it was.
            socket.unwrap().send_to(&payload(number, 8000), (to, PORT)).unwrap();
        }
    }
    for (vlan, receiver) in &mut of_vlan {
        let came = receive_all(std::slice::from_mut(receiver), 20);
        let from: IpAddr = Ipv4Addr::new(10, 5, *vlan, 1).into();
        assert!(came[0].0.keys().all(|(address, _)| *address == from), "VLAN {vlan}: {came:?}");
        assert_eq!(receiver.stats().unwrap().lent(), 20);
    }
    assert!(below.receive(Duration::from_millis(50)).unwrap().is_none(), "it is of no VLAN");
}

/// The frames of a datagram, each behind a tag.
fn tagged_frames(cable: &VethPair, tags: &[(u16, u16)], number: u32) -> Vec<Vec<u8>> {
    let payload = payload(number, 8000);
    let mut sum = InternetSum::new();
    sum.add(&payload);
    let head = datagrams(cable, true).next(8000, sum).unwrap();
    let body = RegionId::new(1, 1).span(0, 8000);
    let mut cutter = Cutter::new(Df::Refuse, [number as u8; 32]);
    let pieces = cutter.cut(&head, body, 1400).unwrap();
    let frame = |piece: spec_defrag::cut::Piece| {
        let (start, len) = (piece.payload.offset as usize, piece.payload.len as usize);
        let (stations, rest) = piece.head.split_at(12);
        // With a priority.
        let tag = |(kind, vlan): &(u16, u16)| [kind.to_be_bytes(), (vlan | 0xa000).to_be_bytes()];
        let tags = tags.iter().map(tag).collect::<Vec<_>>().concat().concat();
        [stations, &tags, rest, &payload[start..start + len]].concat()
    };
    pieces.map(frame).collect()
}

/// The kinds of tags: of customers (IEEE 802.1Q), and of services (802.1ad).
const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

/// What one receiver is for: its VLANs, and the tags by which its frames have them.
type OfVlan<'a> = (&'a dyn Fn(ReceiverBuilder) -> ReceiverBuilder, &'a [(u16, u16)]);

/// Sends the same identifications to each of these VLANs in turns, and to none; each receiver has
/// all datagrams of its own, with numbers of their own, and no others.
fn check_vlans(technique: Technique, vlans: &[OfVlan<'_>]) {
    const EACH: u32 = 10;
    let cable = cable();
    let open = |of: &dyn Fn(ReceiverBuilder) -> ReceiverBuilder| {
        let builder = Receiver::builder(cable.b.name.as_str()).seed(SEED).patience(PATIENCE);
        let builder = of(builder.technique(technique));
        cable.b.namespace.enter(|| builder.open()).unwrap().unwrap()
    };
    let mut receivers: Vec<_> = vlans.iter().map(|(of, _)| open(*of)).collect();
    let mut sender = sender_as(&cable.a, |builder| builder);
    for number in 0..EACH {
        let all = (0..).zip(vlans).map(|(nth, (_, tags))| (*tags, number + 100 * nth));
        // Frames without tags, if nobody wants those.
        let is_heard = vlans.iter().any(|(_, tags)| tags.is_empty());
        let bare = (!is_heard).then_some((&[][..], number + 900));
        let frames = |(tags, number)| tagged_frames(&cable, tags, number).into_iter();
        let mut all: Vec<_> = all.chain(bare).map(frames).collect();
        loop {
            let frames: Vec<_> = all.iter_mut().filter_map(Iterator::next).collect();
            for frame in &frames {
                let memory = sender.register(Memory::from_bytes(&frame[60..])).unwrap();
                let body = memory.part(0, frame.len() as u32 - 60).unwrap();
                sender.send(&[Outgoing { head: &frame[..60], body }]).unwrap();
            }
            if frames.is_empty() {
                break;
            }
        }
    }
    for (nth, receiver) in (0..).zip(&mut receivers) {
        let came = receive_all(std::slice::from_mut(receiver), EACH as usize);
        let numbers: Vec<_> = came[0].0.keys().map(|(_, number)| *number).collect();
        let first = 100 * nth;
        assert_eq!(numbers, (first..first + EACH).collect::<Vec<_>>(), "{technique}");
        assert!(receiver.receive(Duration::from_millis(20)).unwrap().is_none(), "{technique}");
    }
}

/// At the interface below: frames have tags on the wire. Fragments of two VLANs, of the same name
/// and one after the other, do not mix.
#[test]
fn fragments_with_a_tag_are_joined_at_the_interface_below() {
    require_namespaces!();
    for technique in [Technique::Auto, Technique::Packet] {
        let [five, six] = [5, 6].map(|id| move |builder: ReceiverBuilder| builder.vlan(id));
        let untagged = |builder| builder;
        check_vlans(
            technique,
            &[(&five, &[(CUSTOMER, 5)]), (&six, &[(CUSTOMER, 6)]), (&untagged, &[])],
        );
    }
    let cable = cable();
    for refused in [
        receiver_as(&cable.b, |builder| builder.vlan(0)),
        receiver_as(&cable.b, |builder| builder.vlan(4095)),
        receiver_as(&cable.b, |builder| builder.vlan_in_vlan(5, 4095)),
        receiver_as(&cable.b, |builder| builder.vlan_in_vlan(5, 6).technique(Technique::Packet)),
        receiver_as(&cable.b, |builder| builder.vlan(5).gate()),
    ] {
        assert!(matches!(refused, Err(OpenError::NoVlan { .. })), "{refused:?}");
    }
}

/// A VLAN within a VLAN: both numbers count, and their order does.
#[test]
fn fragments_with_two_tags_are_joined_at_the_interface_below() {
    require_namespaces!();
    let [ours, inner, outer] = [(5, 7), (5, 8), (7, 5)]
        .map(|(outer, inner)| move |builder: ReceiverBuilder| builder.vlan_in_vlan(outer, inner));
    check_vlans(
        Technique::Auto,
        &[
            (&ours, &[(SERVICE, 5), (CUSTOMER, 7)]),
            (&inner, &[(SERVICE, 5), (CUSTOMER, 8)]),
            (&outer, &[(CUSTOMER, 7), (CUSTOMER, 5)]),
        ],
    );
}

/// With AF_XDP a program of the kernel looks at the tags; an interface has one.
#[test]
fn xdp_hears_fragments_with_tags() {
    require_namespaces!();
    let five = |builder: ReceiverBuilder| builder.vlan(5);
    check_vlans(Technique::Xdp, &[(&five, &[(CUSTOMER, 5)])]);
    let two = |builder: ReceiverBuilder| builder.vlan_in_vlan(5, 7);
    check_vlans(Technique::Xdp, &[(&two, &[(SERVICE, 5), (CUSTOMER, 7)])]);
}

/// Sends pages with these numbers, over IPv4.
fn send_pages(sender: &mut Sender, datagrams: &mut Datagrams, numbers: std::ops::Range<u32>) {
    let bytes: Vec<u8> = numbers.clone().flat_map(|number| payload(number, 4096)).collect();
    let memory = sender.register(Memory::from_bytes(&bytes)).unwrap();
    let part = |nth: usize| memory.part(nth as u64 * 4096, 4096).unwrap();
    let parts: Vec<_> = (0..numbers.len()).map(part).collect();
    sender.send_datagrams(datagrams, &parts).unwrap();
}

/// Receives until it is over, and nothing has come for a while.
fn receive_until(receiver: &mut Receiver, is_over: &AtomicBool) -> Received {
    const QUIET: Duration = Duration::from_millis(300);
    let mut came = Received::default();
    let mut last = Instant::now();
    while !is_over.load(Ordering::Relaxed) || last.elapsed() < QUIET {
        if let Some(packet) = receiver.receive(Duration::from_millis(5)).unwrap() {
            came.note(packet);
            last = Instant::now();
        }
    }
    came
}

/// Whole datagrams and fragments, at moments of chance, from a station that asks nobody. Gives
/// how many.
fn send_strange(from: &VethEnd, to: &VethEnd, is_over: &AtomicBool) -> u32 {
    let socket = socket(from, true, FROM);
    let mut random = Random::from_number(9);
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let len = if random.below(2) == 0 { 300 } else { 6000 };
        socket.send_to(&payload(number, len), address(to, true, PORT)).unwrap();
        number += 1;
        std::thread::sleep(Duration::from_micros(200 + random.below(800)));
    }
    number
}

/// Waits for an answer of this kind.
fn answered(sender: &mut Sender, transfer: TransferId, is_meant: impl Fn(&Answer) -> bool) {
    let started = Instant::now();
    loop {
        let answer = sender.answer(transfer, Duration::from_millis(20)).unwrap();
        if is_meant(&answer) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{answer:?}");
    }
}

/// Both send all the time: the first is fast, and then the other.
fn take_turns(one: &VethEnd, two: &VethEnd, to: &VethEnd) {
    let station = |end: &VethEnd, port| {
        let address = address(end, true, port);
        Station { mac: end.mac.0, address }
    };
    let mut senders = [one, two].map(|from| {
        let ask = RequesterConfig::new([0; 6], to.mac.0);
        let sender = sender_as(from, |builder| builder.cut_by(CutBy::Sender).ask(ask));
        (sender, Datagrams::new(station(from, FROM), station(to, PORT), SEED).unwrap())
    });
    let [(first, _), (second, _)] = &mut senders;
    let lease = granted(first, |sender| sender.ask().unwrap());
    let waits = second.ask().unwrap();
    answered(second, waits, |answer| matches!(answer, Answer::Refused { .. }));
    for round in 0..ROUNDS {
        for (sender, datagrams) in &mut senders {
            send_pages(sender, datagrams, round * 4..round * 4 + 4);
        }
        let modes = senders.each_ref().map(|(sender, _)| sender.mode().unwrap());
        assert!(matches!(modes[0], Mode::Fast { .. }), "{modes:?}");
        assert!(!matches!(modes[1], Mode::Fast { .. }), "{modes:?}");
    }
    let [(first, _), (second, _)] = &mut senders;
    assert!(second.stats().throttled > 0 && first.stats().throttled == 0);
    first.end(lease).unwrap();
    answered(second, waits, |answer| matches!(answer, Answer::Granted { .. }));
    assert!(matches!(second.mode(), Some(Mode::Fast { .. })));
    second.end(waits).unwrap();
}

/// Each of two senders sends four pages in each of them.
const ROUNDS: u32 = 12;

/// Two senders that ask, and a station that knows nothing of it: a receiver lets one be fast, and
/// all that everybody sends comes.
#[test]
fn of_two_live_senders_one_at_a_time_is_fast_while_a_stranger_sends() {
    require_namespaces!();
    let network = BridgedNetwork::new(4).unwrap();
    let [end, one, two, stranger] = network.ends() else { panic!("four ends") };
    [one, two, stranger].into_iter().for_each(|from| until_it_works(from, end));
    for technique in [Technique::Auto, Technique::Packet] {
        // Long leases, that a busy machine does not end; a gate grants nothing before one is over.
        let lease = Duration::from_secs(2);
        let turn = Duration::from_secs(20);
        let gate = GateConfig { lease, trial: lease, turn, ..GateConfig::new(end.mac.0) };
        let mut receiver = receiver_as(end, |builder| {
            builder.technique(technique).wanted(Wanted::Ip).gate_with(gate)
        })
        .unwrap();
        let is_over = AtomicBool::new(false);
        let (came, strange) = std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive_until(&mut receiver, &is_over));
            let strange = scope.spawn(|| send_strange(stranger, end, &is_over));
            let work = std::panic::AssertUnwindSafe(|| take_turns(one, two, end));
            let done = std::panic::catch_unwind(work);
            is_over.store(true, Ordering::Relaxed);
            let ended = (receiving.join().unwrap(), strange.join().unwrap());
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended
        });
        let of = |end: &VethEnd| came.0.keys().filter(|(from, _)| *from == ip(end, true)).count();
        let pages = ROUNDS as usize * 4;
        let counts = [of(one), of(two), of(stranger)];
        assert_eq!(counts, [pages, pages, strange as usize], "{technique}");
        assert!(came.0.values().all(|times| *times == 1));
        assert!(strange > 5, "{strange} of the stranger");
    }
}
