//! What is written here is read by etherparse, and what it writes is read here.
//!
//! Any bytes are read or refused, and none make a reader panic.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

use etherparse::{
    Icmpv4Slice, Icmpv4Type, Icmpv6Slice, Icmpv6Type, NetSlice, PacketBuilder, SlicedPacket,
    TcpOptionElement, TransportSlice,
};
use landfall_placement::{Ecn, InternetSum};
use proptest::prelude::*;

use crate::icmp::{Echo, Trouble};
use crate::*;

pub(super) const MACS: (Mac, Mac) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);

/// Two hosts of the same version.
pub(super) fn hosts() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    let v4 = || {
        (1..223u8, any::<[u8; 3]>()).prop_filter_map("no loopback", |(a, [b, c, d])| {
            (a != 127).then(|| IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        })
    };
    let v6 = || {
        any::<[u16; 7]>().prop_map(|[a, b, c, d, e, f, g]| {
            IpAddr::V6(Ipv6Addr::new(0x2001, a, b, c, d, e, f, g))
        })
    };
    prop_oneof![(v4(), v4()), (v6(), v6())]
}

pub(super) fn envelope((source, destination): (IpAddr, IpAddr), protocol: u8) -> Envelope {
    Envelope::new((MACS.0, source), (MACS.1, destination), protocol)
}

/// Fills in a checksum as a driver does: the slot holds the pseudo-header's sum.
pub(super) fn finish_sum(frame: &mut [u8], start: usize, slot: usize) {
    let mut sum = InternetSum::new();
    sum.add(&frame[start..]);
    frame[start + slot..start + slot + 2].copy_from_slice(&sum.checksum().to_be_bytes());
}

pub(super) fn ip_of(frame: &[u8]) -> Ip {
    let Content::Ip(ip) = parse(frame, frame.len() as u32).unwrap().content else {
        panic!("this is no ARP");
    };
    ip
}

prop_compose! {
    fn headers()(
        (source, destination, seq, ack) in any::<(u16, u16, u32, u32)>(),
        flags: u8,
        window: u16,
        mss: Option<u16>,
        window_scale in prop::option::of(0..=14u8),
        sack_permitted: bool,
        timestamp: Option<(u32, u32)>,
        blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=2),
    ) -> Tcp {
        let sack = blocks.into_iter().collect();
        let options = Options { mss, window_scale, sack_permitted, timestamp, sack, ..Options::default() };
        Tcp { source, destination, seq, ack, flags: Flags(flags), window, urgent: 0, has_ae: false, options }
    }
}

fn written(envelope: &Envelope, tcp: &Tcp, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![0; 256];
    let len = (tcp.header_len() + payload.len()) as u32;
    let start = envelope.write(&mut frame, len).unwrap();
    let header = tcp.write(&mut frame[start..], envelope.pseudo(len)).unwrap();
    assert_eq!(header, tcp.header_len());
    frame.truncate(start + header);
    frame.extend(payload);
    finish_sum(&mut frame, start, tcp::SUM_OFFSET.into());
    frame
}

fn same_options(ours: &Options, theirs: etherparse::TcpOptionsIterator<'_>) {
    let mut seen = Options::default();
    for option in theirs {
        match option.unwrap() {
            TcpOptionElement::Noop => {}
            TcpOptionElement::MaximumSegmentSize(mss) => seen.mss = Some(mss),
            TcpOptionElement::WindowScale(scale) => seen.window_scale = Some(scale),
            TcpOptionElement::SelectiveAcknowledgementPermitted => seen.sack_permitted = true,
            TcpOptionElement::Timestamp(value, echo) => seen.timestamp = Some((value, echo)),
            TcpOptionElement::SelectiveAcknowledgement(first, rest) => {
                seen.sack = core::iter::once(first).chain(rest.into_iter().flatten()).collect();
            }
        }
    }
    assert!(ours.sack.starts_with(&seen.sack));
    assert_eq!(seen, Options { sack: seen.sack, ..*ours });
}

proptest! {
    #[test]
    fn our_segments_are_theirs(
        hosts in hosts(),
        tcp in headers(),
        payload in prop::collection::vec(any::<u8>(), 0..80),
        (traffic_class, hop_limit, id, flow_label) in any::<(u8, u8, u16, u32)>(),
    ) {
        let outer =
            Envelope { traffic_class, hop_limit, id, flow_label, ..envelope(hosts, protocol::TCP) };
        let frame = written(&outer, &tcp, &payload);
        let theirs = SlicedPacket::from_ethernet(&frame).unwrap();
        let Some(TransportSlice::Tcp(segment)) = theirs.transport else { panic!("no TCP") };
        let header = segment.to_header();
        let sum = match theirs.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let ip = ip.header();
                prop_assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
                prop_assert_eq!((ip.dcp().value() << 2) | ip.ecn().value(), traffic_class);
                prop_assert_eq!((ip.ttl(), ip.identification()), (hop_limit, id));
                prop_assert!(ip.dont_fragment() && !ip.more_fragments());
                header.calc_checksum_ipv4(&ip.to_header(), &payload)
            }
            NetSlice::Ipv6(ip) => {
                let ip = ip.header().to_header();
                prop_assert_eq!((ip.traffic_class, ip.hop_limit), (traffic_class, hop_limit));
                prop_assert_eq!(ip.flow_label.value(), flow_label & 0xf_ffff);
                header.calc_checksum_ipv6(&ip, &payload)
            }
            NetSlice::Arp(_) => panic!("no IP"),
        };
        prop_assert_eq!(sum, Ok(header.checksum));
        prop_assert_eq!((header.source_port, header.destination_port), (tcp.source, tcp.destination));
        prop_assert_eq!((header.sequence_number, header.window_size), (tcp.seq, tcp.window));
        prop_assert_eq!(header.acknowledgment_number, tcp.ack);
        let theirs = [header.fin, header.syn, header.rst, header.psh,
            header.ack, header.urg, header.ece, header.cwr];
        for (bit, is_set) in theirs.into_iter().enumerate() {
            prop_assert_eq!(tcp.flags.contains(Flags(1 << bit)), is_set);
        }
        same_options(&tcp.options, segment.options_iterator());
        prop_assert_eq!(segment.payload(), &payload[..]);

        // And it comes back as it was, whatever padding follows it.
        let mut padded = frame.clone();
        padded.extend([0xee; 9]);
        let ip = ip_of(&padded);
        prop_assert_eq!((ip.source, ip.destination), hosts);
        prop_assert_eq!(ip.ecn, Ecn::from_bits(traffic_class));
        let layer = ip.tcp(&padded).unwrap();
        let to = layer.payload_at + layer.payload_len as usize;
        prop_assert_eq!(&padded[layer.payload_at..to], &payload[..]);
        prop_assert_eq!(layer.len as usize, frame.len() - layer.at);
        let sack = tcp.options.sack;
        prop_assert!(sack.starts_with(&layer.header.options.sack));
        prop_assert_eq!(
            Tcp { options: Options { sack, ..layer.header.options }, ..layer.header }, tcp
        );
        let mut sum = InternetSum::new();
        sum.add_word(ip.pseudo(layer.len));
        sum.add(&padded[layer.at..to]);
        prop_assert_eq!(sum.sum(), 0xffff);
    }

    #[test]
    fn their_datagrams_are_ours(
        hosts in hosts(),
        (source, destination, hop_limit) in any::<(u16, u16, u8)>(),
        payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let builder = PacketBuilder::ethernet2(MACS.0, MACS.1);
        let builder = match hosts {
            (IpAddr::V4(a), IpAddr::V4(b)) => builder.ipv4(a.octets(), b.octets(), hop_limit),
            (IpAddr::V6(a), IpAddr::V6(b)) => builder.ipv6(a.octets(), b.octets(), hop_limit),
            _ => panic!("two versions"),
        };
        let mut frame = Vec::new();
        builder.udp(source, destination).write(&mut frame, &payload).unwrap();
        let packet = parse(&frame, frame.len() as u32).unwrap();
        prop_assert_eq!((packet.ethernet.source, packet.ethernet.destination), MACS);
        let ip = ip_of(&frame);
        prop_assert_eq!((ip.source, ip.destination, ip.hop_limit), (hosts.0, hosts.1, hop_limit));
        let udp = ip.udp(&frame).unwrap();
        prop_assert_eq!(udp.header.source.get(), source);
        prop_assert_eq!(udp.header.destination.get(), destination);
        prop_assert_eq!(&frame[udp.payload_at..], &payload[..]);
        let mut sum = InternetSum::new();
        sum.add_word(ip.pseudo(udp.len));
        sum.add(&frame[udp.at..]);
        prop_assert_eq!(sum.sum(), 0xffff);
    }

    #[test]
    fn our_pieces_are_theirs(
        hosts in hosts(),
        (id, more) in any::<(u32, bool)>(),
        offset in 0..8191u32,
        len in 0..100u32,
    ) {
        let piece = Fragment { id, offset: offset * 8, more };
        let outer = Envelope { fragment: Some(piece), ..envelope(hosts, protocol::TCP) };
        let mut frame = std::vec![0; outer.header_len() + len as usize];
        outer.write(&mut frame, len).unwrap();
        let is_piece = !piece.is_atomic();
        match SlicedPacket::from_ethernet(&frame) {
            Ok(theirs) => match theirs.net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    let ip = ip.header();
                    prop_assert_eq!(u32::from(ip.identification()), id & 0xffff);
                    prop_assert_eq!(u32::from(ip.fragments_offset().value()), offset);
                    prop_assert_eq!(ip.more_fragments(), more);
                    prop_assert!(!ip.dont_fragment());
                }
                NetSlice::Ipv6(ip) => prop_assert_eq!(ip.is_payload_fragmented(), is_piece),
                NetSlice::Arp(_) => panic!("no IP"),
            },
            // A whole packet of zeros is no TCP segment, but an IP packet.
            Err(error) => prop_assert!(!is_piece, "{error}"),
        }
        let ip = ip_of(&frame);
        let id = if hosts.0.is_ipv4() { id & 0xffff } else { id };
        prop_assert_eq!(ip.fragment, is_piece.then_some(Fragment { id, ..piece }));
        prop_assert_eq!((ip.payload_len, ip.protocol), (len, protocol::TCP));
    }

    #[test]
    fn our_echoes_are_theirs(
        hosts in hosts(),
        (id, sequence) in any::<(u16, u16)>(),
        data in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let echo = Echo { id, sequence, data: &data };
        let mut bytes = [0; 80];
        match hosts {
            (IpAddr::V4(_), _) => {
                let len = icmp4::write_echo_reply(&echo, &mut bytes).unwrap();
                let theirs = Icmpv4Slice::from_slice(&bytes[..len]).unwrap();
                let Icmpv4Type::EchoReply(header) = theirs.icmp_type() else { panic!("no echo") };
                prop_assert_eq!((header.id, header.seq, theirs.payload()), (id, sequence, &data[..]));
                prop_assert_eq!(
                    theirs.icmp_type().calc_checksum(theirs.payload()),
                    theirs.checksum()
                );
                prop_assert_eq!(icmp4::read(&bytes[..len]), Ok(icmp4::Message::EchoReply(echo)));
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let pseudo = envelope(hosts, protocol::ICMP6).pseudo(8 + data.len() as u32);
                let len = icmp6::write_echo_request(&echo, &mut bytes, pseudo).unwrap();
                let theirs = Icmpv6Slice::from_slice(&bytes[..len]).unwrap();
                let Icmpv6Type::EchoRequest(header) = theirs.icmp_type() else { panic!("no echo") };
                prop_assert_eq!((header.id, header.seq, theirs.payload()), (id, sequence, &data[..]));
                prop_assert!(theirs.is_checksum_valid(a.octets(), b.octets()));
                let read = icmp6::read(&bytes[..len], pseudo);
                prop_assert_eq!(read, Ok(icmp6::Message::EchoRequest(echo)));
            }
            _ => panic!("two versions"),
        }
    }

    #[test]
    fn their_errors_about_our_segments_name_them(hosts in hosts(), tcp in headers(), mtu: u16) {
        let outer = envelope(hosts, protocol::TCP);
        let sent = written(&outer, &tcp, &[]);
        let quoted = &sent[ethernet::LEN..];
        let builder = PacketBuilder::ethernet2(MACS.1, MACS.0);
        let mut frame = Vec::new();
        let about = match hosts {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let header = etherparse::icmpv4::DestUnreachableHeader::FragmentationNeeded {
                    next_hop_mtu: mtu,
                };
                builder
                    .ipv4(b.octets(), a.octets(), 64)
                    .icmpv4(Icmpv4Type::DestinationUnreachable(header))
                    .write(&mut frame, &quoted[..28])
                    .unwrap();
                let ip = ip_of(&frame);
                match icmp4::read(ip.payload(&frame).unwrap()) {
                    Ok(icmp4::Message::Report(report)) => report,
                    other => panic!("{other:?}"),
                }
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                builder
                    .ipv6(b.octets(), a.octets(), 64)
                    .icmpv6(Icmpv6Type::PacketTooBig { mtu: mtu.into() })
                    .write(&mut frame, quoted)
                    .unwrap();
                let ip = ip_of(&frame);
                match icmp6::read(ip.payload(&frame).unwrap(), ip.pseudo(ip.payload_len)) {
                    Ok(icmp6::Message::Report(report)) => report,
                    other => panic!("{other:?}"),
                }
            }
            _ => panic!("two versions"),
        };
        prop_assert_eq!(about.trouble, Trouble::TooBig { mtu: mtu.into() });
        let about = about.about;
        prop_assert_eq!((about.source, about.destination), hosts);
        prop_assert_eq!((about.ports(), about.seq()), ((tcp.source, tcp.destination), tcp.seq));
        prop_assert_eq!((about.protocol, about.total_len as usize), (protocol::TCP, quoted.len()));
    }
}

/// All that the receive path does with a frame, on the first `at_hand` bytes.
fn read_all(bytes: &[u8], at_hand: usize) {
    let head = &bytes[..at_hand.min(bytes.len())];
    let unit_len = bytes.len() as u32;
    let check = |stop: Stop| {
        if let Stop::NeedHead(need) = stop {
            assert!(usize::from(need) > head.len(), "what is at hand is not asked for");
            assert!(u32::from(need) <= unit_len, "what does not exist is not asked for");
        }
    };
    let ip = match parse(head, unit_len) {
        Ok(Packet { content: Content::Ip(ip), .. }) => ip,
        Ok(_) => return,
        Err(stop) => return check(stop),
    };
    assert!(ip.payload_at + ip.payload_len as usize <= bytes.len());
    let _ = ip.tcp(head).map_err(check);
    let _ = ip.udp(head).map_err(check);
    if let Ok(payload) = ip.payload(head).map_err(check) {
        let _ = icmp4::read(payload);
        let _ = ndp::read(&ip, payload);
        // The checksum is made right, so that what lies behind it is reached.
        let _ = icmp6::read(payload, !sum(payload));
        if let Ok(whole) = ip.reassembled(payload) {
            assert!(whole.payload_at + whole.payload_len as usize <= payload.len());
        }
    }
}

fn sum(bytes: &[u8]) -> u16 {
    checksum::sum_of(bytes)
}

/// A frame with a right IP header around bytes that are anything.
fn framed(hosts: (IpAddr, IpAddr), next: u8, mut rest: Vec<u8>) -> Vec<u8> {
    if next == protocol::ICMP4 && rest.len() > 4 {
        rest[2..4].fill(0);
        let right = !sum(&rest);
        rest[2..4].copy_from_slice(&right.to_be_bytes());
    }
    let outer = envelope(hosts, next);
    let mut bytes = std::vec![0; outer.header_len()];
    outer.write(&mut bytes, rest.len() as u32).unwrap();
    bytes.extend(rest);
    bytes
}

proptest! {
    #[test]
    fn any_frame_is_read_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        ethertype in prop::sample::select(std::vec![0x0800u16, 0x86dd, 0x0806, 0x8100]),
        at_hand in 0..200usize,
    ) {
        if let Some(field) = bytes.get_mut(12..14) {
            field.copy_from_slice(&ethertype.to_be_bytes());
        }
        read_all(&bytes, at_hand);
    }

    #[test]
    fn any_payload_is_read_or_refused(
        hosts in hosts(),
        next in prop::sample::select(std::vec![0u8, 1, 6, 17, 43, 44, 58, 59, 60]),
        rest in prop::collection::vec(any::<u8>(), 0..160),
        // Kinds and lengths that lead further in are tried more often.
        start in prop::collection::vec(
            prop::sample::select(std::vec![0u8, 1, 2, 3, 4, 11, 12, 43, 44, 60, 128, 135, 136]),
            0..8,
        ),
        at_hand in 0..300usize,
    ) {
        let mut rest = rest;
        for (byte, value) in rest.iter_mut().zip(start) {
            *byte = value;
        }
        read_all(&framed(hosts, next, rest), at_hand);
    }

    #[test]
    fn any_quoted_packet_is_read_or_refused(
        hosts in hosts(),
        kind in prop::sample::select(std::vec![1u8, 2, 3, 4, 11, 12]),
        quoted in prop::collection::vec(any::<u8>(), 0..120),
        version in prop::sample::select(std::vec![0x45u8, 0x46, 0x60, 0x4f]),
    ) {
        let mut rest = std::vec![kind, 0, 0, 0, 0, 0, 0, 0];
        rest.extend(quoted);
        if let Some(first) = rest.get_mut(8) {
            *first = version;
        }
        let next = if hosts.0.is_ipv4() { protocol::ICMP4 } else { protocol::ICMP6 };
        read_all(&framed(hosts, next, rest), usize::MAX);
    }
}
