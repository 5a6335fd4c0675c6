//! Bursts of frames beside the kernel: its hooks, its fragments, its joining.
//! As an ordinary user each test skips with one line.

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use crate::support::packet::{EXPERIMENTAL, IPV4, cable};
use crate::support::scatter::{Receiver, pages};
use crate::support::{PATIENCE, assert_same, pattern};
use landfall_placement::checksum::checksum;
use landfall_placement::{Instant, InternetSum, Span};
use landfall_testbed::{Offload, VethEnd, VethPair, require_namespaces};
use landfall_transport::OpenError;
use landfall_transport::memory::{AccessError, Regions};
use landfall_transport::packet::Filter;
use landfall_transport::scatter::{Config, CutError, Cutting, Descriptor, Long};

const IPV6: u16 = 0x86dd;
const UDP: u8 = 17;

/// A UDP socket of the kernel at one end, which does not wait for ever.
fn udp(end: &VethEnd, address: IpAddr, port: u16) -> UdpSocket {
    let socket = end.namespace.enter(|| UdpSocket::bind((address, port)).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Makes an end drop all IPv4 fragments before the kernel joins them.
fn drop_fragments(end: &VethEnd) {
    let rules = format!(
        "add table netdev landfall; add chain netdev landfall joins {{ type filter hook ingress \
         device {} priority -500; }}; add rule netdev landfall joins ip frag-off & 0x3fff != 0 drop",
        end.name
    );
    let done = end.namespace.enter(|| Command::new("nft").arg(rules).output().unwrap()).unwrap();
    assert!(done.status.success(), "nft: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn what_a_hook_drops_is_heard_before_it_and_not_behind_it() {
    require_namespaces!();
    let cable = cable();
    drop_fragments(&cable.b);
    let config = Config::new(cable.b.name.as_str(), Filter::ethertypes([IPV4]));
    let mut before = Receiver::open_as(&cable.b, &config).unwrap();
    let mut behind = Receiver::open_as(&cable.b, &config.behind_hooks(IPV4)).unwrap();
    let sender = udp(&cable.a, cable.a.ipv4.into(), 9000);
    let receiver = udp(&cable.b, cable.b.ipv4.into(), 9001);
    let to = (cable.b.ipv4, 9001);
    let long = pattern(4000, 1);
    sender.send_to(&long, to).unwrap();
    sender.send_to(&long[..50], to).unwrap();
    // The kernel got the short one alone, and so did the socket behind the hook.
    let mut bytes = [0; 5000];
    assert_eq!(receiver.recv(&mut bytes).unwrap(), 50);
    let anything = |_| Descriptor { head_len: 42, place: Span::default() };
    let lens = |frames: Vec<Vec<u8>>| frames.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lens(before.receive(4, anything)), [1514, 1514, 1082, 92]);
    assert_eq!(lens(behind.receive(1, anything)), [92]);
}

/// The headers of a UDP packet, up to the first byte of its payload.
fn headers(cable: &VethPair, ethertype: u16, payload: usize) -> Vec<u8> {
    let mut head = [cable.b.mac.0, cable.a.mac.0].concat();
    head.extend(ethertype.to_be_bytes());
    let udp_len = (payload + 8) as u16;
    if ethertype == IPV6 {
        head.extend([0x60, 0, 0, 0]);
        head.extend(udp_len.to_be_bytes());
        head.extend([UDP, 64]);
        head.extend(cable.a.ipv6.octets());
        head.extend(cable.b.ipv6.octets());
    } else {
        head.extend([0x45, 0]);
        head.extend((udp_len + 20).to_be_bytes());
        head.extend([0xab, 0xcd, 0, 0, 64, UDP, 0, 0]);
        head.extend(cable.a.ipv4.octets());
        head.extend(cable.b.ipv4.octets());
        let sum = checksum(&head[14..]);
        head[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let addresses = if ethertype == IPV6 { 22..54 } else { 26..34 };
    let mut pseudo_header = InternetSum::new();
    pseudo_header.add(&head[addresses]);
    pseudo_header.add_word(UDP.into());
    pseudo_header.add_word(udp_len);
    let words = [9000, 9001, udp_len, pseudo_header.sum()];
    head.extend(words.map(u16::to_be_bytes).as_flattened());
    head
}

fn cutting(cable: &VethPair, regions: &Regions) -> Cutting {
    let config = Config::new(cable.a.name.as_str(), Filter::any());
    cable.a.namespace.enter(|| Cutting::open(&config, regions).unwrap()).unwrap()
}

#[test]
fn the_kernel_cuts_long_packets_and_a_kernel_joins_them() {
    require_namespaces!();
    let cable = cable();
    join_what_was_cut(&cable);
    // Without the device's help, the kernel fills in every checksum, and the
    // other one checks it.
    cable.a.set_offload(Offload::TransmitChecksum, false).unwrap();
    join_what_was_cut(&cable);
}

fn join_what_was_cut(cable: &VethPair) {
    let (regions, region) = pages(1 << 17);
    let sent = pattern(1 << 16, 9);
    regions.write(&region.span(0, 1 << 16), &sent).unwrap();
    let mut cutting = cutting(cable, &regions);
    let families = [
        (IPV4, IpAddr::from(cable.b.ipv4), 34, 1480, 65_507),
        (IPV6, cable.b.ipv6.into(), 54, 1448, 65_527),
    ];
    for (ethertype, to, udp_at, piece, most) in families {
        let receiver = udp(&cable.b, to, 9001);
        let mut heard = Receiver::open(&cable.b, Filter::ethertypes([ethertype]).fragments());
        let lengths = [1, piece as usize - 8, piece as usize - 7, 4096, 9000, 60_000, most];
        let heads = lengths.map(|len| headers(cable, ethertype, len));
        let packets: Vec<_> = heads
            .iter()
            .zip(lengths)
            .map(|(head, len)| Long { head, payload: region.span(0, len as u32), udp_at, piece })
            .collect();
        let mut bytes = vec![0; 1 << 16];
        let mut fragments = 0;
        // Several with a call, but no more than the receiver's buffer takes.
        let (short, long) = packets.split_at(5);
        for some in [short].into_iter().chain(long.chunks(1)) {
            assert_eq!(cutting.send(Instant::ZERO, some).unwrap(), some.len());
            for packet in some {
                let arrived = receiver.recv(&mut bytes).unwrap();
                let len = packet.payload.len as usize;
                assert_same(&bytes[..arrived], &sent[..len]);
                let whole = len + 8;
                let pieces = whole.div_ceil(piece.into());
                fragments += if pieces > 1 { pieces } else { 0 };
            }
        }
        let list = |_| Descriptor { head_len: 62, place: Span::default() };
        let frames = heard.receive(fragments, list);
        assert_eq!(frames.len(), fragments);
        let longest = frames.iter().map(Vec::len).max().unwrap();
        assert!(longest <= 1514 && longest > 1500, "{longest}");
    }
    let counters = cutting.counters();
    assert_eq!((counters.units_sent, counters.send_failed), (14, 0));
    assert!(counters.send_calls <= 8, "many a call: {counters:?}");
}

#[test]
fn payload_may_begin_in_the_head() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = pages(8192);
    let sent = pattern(5000, 2);
    regions.write(&region.span(0, 5000), &sent).unwrap();
    let receiver = udp(&cable.b, cable.b.ipv4.into(), 9001);
    let mut head = headers(&cable, IPV4, 5000);
    head.extend(&sent[..13]);
    let packet = Long { head: &head, payload: region.span(13, 4987), udp_at: 34, piece: 1480 };
    assert_eq!(cutting(&cable, &regions).send(Instant::ZERO, &[packet]).unwrap(), 1);
    let mut bytes = vec![0; 6000];
    let arrived = receiver.recv(&mut bytes).unwrap();
    assert_same(&bytes[..arrived], &sent);
}

#[test]
fn what_cannot_be_cut_says_why() {
    require_namespaces!();
    let cable = cable();
    let (regions, region) = pages(8192);
    let mut cutting = cutting(&cable, &regions);
    let (head, head6) = (headers(&cable, IPV4, 4000), headers(&cable, IPV6, 4000));
    let good = Long { head: &head, payload: region.span(0, 4000), udp_at: 34, piece: 1480 };
    let mut why = |packet| cutting.send(Instant::ZERO, &[packet]).unwrap_err();
    assert!(matches!(why(Long { piece: 1479, ..good }), CutError::Piece(1479)));
    assert!(matches!(why(Long { piece: 0, ..good }), CutError::Piece(0)));
    let long = why(Long { piece: 1488, ..good });
    assert!(matches!(long, CutError::PieceTooLong { piece: 1488, most: 1480 }), "{long}");
    let long = why(Long { head: &head6, udp_at: 54, piece: 1456, ..good });
    assert!(matches!(long, CutError::PieceTooLong { piece: 1456, most: 1452 }), "{long}");
    for (head, udp_at) in [(&head[..41], 34), (&head, 35), (&head, 13), (&head[..0], 0)] {
        let short = why(Long { head, udp_at, ..good });
        assert!(matches!(short, CutError::Head { .. }), "{short}");
    }
    let beyond = why(Long { payload: region.span(8000, 4000), ..good });
    assert!(matches!(beyond, CutError::Payload(AccessError::OutOfBounds { .. })), "{beyond}");
    let mut foreign = head.clone();
    foreign[12..14].copy_from_slice(&EXPERIMENTAL.to_be_bytes());
    let refused = why(Long { head: &foreign, ..good });
    assert!(matches!(refused, CutError::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("fragments of your own"), "{refused}");
    // What is good before what is not leaves, and the rest is told next time.
    let bad = Long { piece: 1, ..good };
    let sent = cutting.send(Instant::ZERO, &[good, Long { head: &foreign, ..good }, good, bad]);
    assert_eq!(sent.unwrap(), 1);
    assert_eq!(cutting.send(Instant::ZERO, &[]).unwrap(), 0);
}

#[test]
fn cutting_and_passing_the_queue_by_exclude_each_other() {
    require_namespaces!();
    let cable = cable();
    let mut config = Config::new(cable.a.name.as_str(), Filter::any());
    config.bypass_queue = true;
    let regions = Regions::new(1);
    let open = || Cutting::open(&config, &regions).unwrap_err();
    let error = cable.a.namespace.enter(open).unwrap();
    assert!(matches!(error, OpenError::BypassWithOffload), "{error}");
}
