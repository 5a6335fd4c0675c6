//! What is written here is read by `smoltcp::wire`, and the other way round.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

use etherparse::{EtherType, PacketHeaders, SingleVlanHeader, VlanId, VlanPcp};
use landfall_placement::Ecn;
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire as theirs;
use zerocopy::{FromBytes, IntoBytes};

use super::foreign::{MACS, envelope, finish_sum, hosts, ip_of};
use crate::arp::{Arp, Operation};
use crate::icmp::{Echo, Trouble};
use crate::ndp::{Advertisement, Neighbour, Solicitation};
use crate::*;

/// The headers of a frame that carries `body`, and the body.
fn framed(outer: &Envelope, body: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![0; outer.header_len()];
    outer.write(&mut frame, body.len() as u32).unwrap();
    frame.extend(body);
    frame
}

fn datagram(hosts: (IpAddr, IpAddr), ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let outer = envelope(hosts, protocol::UDP);
    let len = (udp::LEN + payload.len()) as u32;
    let header = udp::Header {
        source: ports.0.into(),
        destination: ports.1.into(),
        len: (len as u16).into(),
        sum: outer.pseudo(len).into(),
    };
    let mut frame = framed(&outer, &[header.as_bytes(), payload].concat());
    finish_sum(&mut frame, outer.header_len(), udp::SUM_OFFSET.into());
    frame
}

fn station(mac: Mac) -> theirs::EthernetAddress {
    theirs::EthernetAddress(mac)
}

proptest! {
    #[test]
    fn our_datagrams_are_read_by_smoltcp(
        hosts in hosts(),
        ports in (any::<u16>(), 1..=u16::MAX),
        payload in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let frame = datagram(hosts, ports, &payload);
        let link = theirs::EthernetFrame::new_checked(&frame[..]).unwrap();
        prop_assert_eq!((link.src_addr(), link.dst_addr()), (station(MACS.0), station(MACS.1)));
        let inner = match hosts.0 {
            IpAddr::V4(_) => {
                prop_assert_eq!(link.ethertype(), theirs::EthernetProtocol::Ipv4);
                let ip = theirs::Ipv4Packet::new_checked(link.payload()).unwrap();
                prop_assert!(ip.verify_checksum() && ip.dont_frag() && !ip.more_frags());
                prop_assert_eq!(IpAddr::from(ip.src_addr()), hosts.0);
                prop_assert_eq!(IpAddr::from(ip.dst_addr()), hosts.1);
                prop_assert_eq!(ip.next_header(), theirs::IpProtocol::Udp);
                ip.payload().to_vec()
            }
            IpAddr::V6(_) => {
                prop_assert_eq!(link.ethertype(), theirs::EthernetProtocol::Ipv6);
                let ip = theirs::Ipv6Packet::new_checked(link.payload()).unwrap();
                prop_assert_eq!(IpAddr::from(ip.src_addr()), hosts.0);
                prop_assert_eq!(IpAddr::from(ip.dst_addr()), hosts.1);
                prop_assert_eq!(ip.next_header(), theirs::IpProtocol::Udp);
                ip.payload().to_vec()
            }
        };
        let udp = theirs::UdpPacket::new_checked(&inner[..]).unwrap();
        prop_assert_eq!((udp.src_port(), udp.dst_port(), udp.payload()), (ports.0, ports.1, &payload[..]));
        prop_assert!(udp.verify_checksum(&hosts.0.into(), &hosts.1.into()));
    }

    #[test]
    fn all_fields_of_ip_are_those_of_smoltcp(
        hosts in hosts(),
        (traffic_class, hop_limit, id, flow_label) in any::<(u8, u8, u16, u32)>(),
        fragment in prop::option::of((any::<u32>(), 0..8191u32, any::<bool>())),
        body in prop::collection::vec(any::<u8>(), 8..40),
    ) {
        let fragment =
            fragment.map(|(id, offset, more)| Fragment { id, offset: offset * 8, more });
        let outer = Envelope {
            traffic_class, hop_limit, id, flow_label, fragment, ..envelope(hosts, protocol::UDP)
        };
        let frame = framed(&outer, &body);
        let network = &frame[ethernet::LEN..];
        let piece = fragment.unwrap_or(Fragment { id: id.into(), ..Fragment::default() });
        if hosts.0.is_ipv4() {
            let ip = theirs::Ipv4Packet::new_checked(network).unwrap();
            prop_assert!(ip.verify_checksum());
            prop_assert_eq!(ip.dscp() << 2 | ip.ecn(), traffic_class);
            prop_assert_eq!((ip.hop_limit(), ip.ident()), (hop_limit, piece.id as u16));
            prop_assert_eq!((ip.frag_offset(), ip.more_frags()), (piece.offset as u16, piece.more));
            prop_assert_eq!(ip.dont_frag(), fragment.is_none());
            prop_assert_eq!(ip.payload(), &body[..]);
        } else {
            let ip = theirs::Ipv6Packet::new_checked(network).unwrap();
            prop_assert_eq!((ip.traffic_class(), ip.hop_limit()), (traffic_class, hop_limit));
            prop_assert_eq!(ip.flow_label(), flow_label & 0xf_ffff);
            if fragment.is_some() {
                prop_assert_eq!(ip.next_header(), theirs::IpProtocol::Ipv6Frag);
                // Theirs begins behind the first two bytes of it.
                let header = theirs::Ipv6FragmentHeader::new_checked(&ip.payload()[2..]).unwrap();
                prop_assert_eq!(u32::from(header.frag_offset()) * 8, piece.offset);
                prop_assert_eq!((header.more_frags(), header.ident()), (piece.more, piece.id));
                prop_assert_eq!(&ip.payload()[fragment::LEN..], &body[..]);
            } else {
                prop_assert_eq!(ip.payload(), &body[..]);
            }
        }
        let ip = ip_of(&frame);
        prop_assert_eq!(ip.ecn, Ecn::from_bits(traffic_class));
    }

    #[test]
    fn segments_are_intact_to_smoltcp(
        hosts in hosts(),
        (source, destination, seq, ack, window) in
            (1..=u16::MAX, 1..=u16::MAX, any::<u32>(), any::<u32>(), any::<u16>()),
        blocks in prop::collection::vec(any::<(u32, u32)>(), 0..=3),
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let options = Options { sack: blocks.into_iter().collect(), ..Options::default() };
        let flags = Flags::ACK | Flags::PSH;
        let tcp = Tcp { source, destination, seq, ack, flags, window, urgent: 0, has_ae: false, options };
        let outer = envelope(hosts, protocol::TCP);
        let mut body = std::vec![0; tcp.header_len()];
        let len = (body.len() + payload.len()) as u32;
        tcp.write(&mut body, outer.pseudo(len)).unwrap();
        let mut frame = framed(&outer, &[&body[..], &payload].concat());
        finish_sum(&mut frame, outer.header_len(), tcp::SUM_OFFSET.into());
        let packet = theirs::TcpPacket::new_checked(&frame[outer.header_len()..]).unwrap();
        prop_assert!(packet.verify_checksum(&hosts.0.into(), &hosts.1.into()));
        prop_assert_eq!((packet.src_port(), packet.dst_port()), (source, destination));
        prop_assert_eq!((packet.seq_number().0 as u32, packet.ack_number().0 as u32), (seq, ack));
        prop_assert!(packet.ack() && packet.psh() && !packet.syn() && !packet.rst());
        prop_assert_eq!((packet.window_len(), packet.payload()), (window, &payload[..]));
        let theirs: Vec<_> = packet.selective_ack_ranges().unwrap().into_iter().flatten().collect();
        prop_assert_eq!(&theirs[..], &options.sack[..]);
    }

    #[test]
    fn questions_about_stations_are_those_of_smoltcp(
        mac: Mac,
        target_mac: Mac,
        (sender, target) in (0..0xe000_0000u32, any::<u32>()),
        is_request: bool,
    ) {
        let mut sender_mac = mac;
        sender_mac[0] &= 0xfe;
        let (sender, target) = (Ipv4Addr::from(sender), Ipv4Addr::from(target));
        let operation = if is_request { Operation::Request } else { Operation::Reply };
        let arp = Arp { operation, sender_mac, sender, target_mac, target };
        let mut bytes = [0; arp::LEN];
        arp.write(&mut bytes).unwrap();
        let repr = theirs::ArpRepr::parse(&theirs::ArpPacket::new_checked(&bytes[..]).unwrap());
        let expected = theirs::ArpRepr::EthernetIpv4 {
            operation: match operation {
                Operation::Request => theirs::ArpOperation::Request,
                Operation::Reply => theirs::ArpOperation::Reply,
            },
            source_hardware_addr: station(sender_mac),
            source_protocol_addr: sender,
            target_hardware_addr: station(target_mac),
            target_protocol_addr: target,
        };
        prop_assert_eq!(repr, Ok(expected));
        let mut again = [0; arp::LEN];
        expected.emit(&mut theirs::ArpPacket::new_unchecked(&mut again[..]));
        prop_assert_eq!(Arp::read(&again), Ok(arp));
    }

    #[test]
    fn echoes_of_smoltcp_are_ours(
        hosts in hosts(),
        (ident, seq_no) in any::<(u16, u16)>(),
        data in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let echo = Echo { id: ident, sequence: seq_no, data: &data };
        let capabilities = ChecksumCapabilities::default();
        let mut bytes = std::vec![0; icmp::LEN + data.len()];
        match hosts {
            (IpAddr::V4(_), _) => {
                let repr = theirs::Icmpv4Repr::EchoRequest { ident, seq_no, data: &data };
                repr.emit(&mut theirs::Icmpv4Packet::new_unchecked(&mut bytes), &capabilities);
                prop_assert_eq!(icmp4::read(&bytes), Ok(icmp4::Message::EchoRequest(echo)));
                let mut ours = std::vec![0; bytes.len()];
                icmp4::write_echo_request(&echo, &mut ours).unwrap();
                prop_assert_eq!(ours, bytes);
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let repr = theirs::Icmpv6Repr::EchoReply { ident, seq_no, data: &data };
                let packet = &mut theirs::Icmpv6Packet::new_unchecked(&mut bytes);
                repr.emit(&a, &b, packet, &capabilities);
                let pseudo = envelope(hosts, protocol::ICMP6).pseudo(bytes.len() as u32);
                prop_assert_eq!(icmp6::read(&bytes, pseudo), Ok(icmp6::Message::EchoReply(echo)));
                let mut ours = std::vec![0; bytes.len()];
                icmp6::write_echo_reply(&echo, &mut ours, pseudo).unwrap();
                prop_assert_eq!(ours, bytes);
            }
            _ => panic!("two versions"),
        }
    }

    #[test]
    fn errors_are_understood_by_smoltcp(hosts in hosts(), payload: [u8; 24], mtu in 1280..9000u32) {
        let capabilities = ChecksumCapabilities::default();
        let sent = datagram(hosts, (7, 9), &payload);
        let quoted = &sent[ethernet::LEN..];
        let mut bytes = std::vec![0; icmp::LEN + quoted.len()];
        match hosts {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                icmp4::write_fragments_missing(quoted, &mut bytes).unwrap();
                let packet = theirs::Icmpv4Packet::new_checked(&bytes).unwrap();
                prop_assert!(packet.verify_checksum());
                let Ok(theirs::Icmpv4Repr::TimeExceeded { reason, header, data }) =
                    theirs::Icmpv4Repr::parse(&packet, &capabilities)
                else { panic!("no time exceeded") };
                prop_assert_eq!(reason, theirs::Icmpv4TimeExceeded::FragExpired);
                prop_assert_eq!((header.src_addr, header.dst_addr), (a, b));
                prop_assert_eq!(data, &quoted[ipv4::LEN..]);
                let Ok(icmp4::Message::Report(report)) = icmp4::read(&bytes) else {
                    panic!("no report")
                };
                prop_assert_eq!(report.trouble, Trouble::TimeExceeded { code: 1 });
                prop_assert_eq!(report.about.ports(), (7, 9));
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let outer = envelope((hosts.1, hosts.0), protocol::ICMP6);
                let pseudo = outer.pseudo(bytes.len() as u32);
                icmp6::write_too_big(mtu, quoted, &mut bytes, pseudo).unwrap();
                let packet = theirs::Icmpv6Packet::new_checked(&bytes[..]).unwrap();
                let Ok(theirs::Icmpv6Repr::PktTooBig { mtu: read, header, .. }) =
                    theirs::Icmpv6Repr::parse(&b, &a, &packet, &capabilities)
                else { panic!("not too big") };
                prop_assert_eq!((read, header.src_addr, header.dst_addr), (mtu, a, b));
                icmp6::write_fragments_missing(quoted, &mut bytes, pseudo).unwrap();
                let Ok(icmp6::Message::Report(report)) = icmp6::read(&bytes, pseudo) else {
                    panic!("no report")
                };
                prop_assert_eq!(report.trouble, Trouble::TimeExceeded { code: 1 });
            }
            _ => panic!("two versions"),
        }
    }

    #[test]
    fn neighbours_of_smoltcp_are_ours(
        target: [u16; 7],
        has_station: bool,
        (is_router, is_solicited, is_override) in any::<(bool, bool, bool)>(),
    ) {
        let [a, b, c, d, e, f, g] = target;
        let us = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        let target_addr = Ipv6Addr::new(0x2001, a, b, c, d, e, f, g);
        let group = ndp::solicited_node(target_addr);
        let station = has_station.then_some(MACS.0);
        let lladdr = station.map(|mac| theirs::EthernetAddress(mac).into());
        let asked = Solicitation { target: target_addr, station };
        let told = Advertisement {
            target: target_addr, station, is_router, is_solicited, is_override,
        };
        let mut flags = theirs::NdiscNeighborFlags::empty();
        flags.set(theirs::NdiscNeighborFlags::ROUTER, is_router);
        flags.set(theirs::NdiscNeighborFlags::SOLICITED, is_solicited);
        flags.set(theirs::NdiscNeighborFlags::OVERRIDE, is_override);
        for (to, repr, ours) in [
            (group, theirs::NdiscRepr::NeighborSolicit { target_addr, lladdr },
                Neighbour::Solicitation(asked)),
            (us, theirs::NdiscRepr::NeighborAdvert { flags, target_addr, lladdr },
                Neighbour::Advertisement(told)),
        ] {
            let repr = theirs::Icmpv6Repr::Ndisc(repr);
            let mut bytes = std::vec![0; repr.buffer_len()];
            let packet = &mut theirs::Icmpv6Packet::new_unchecked(&mut bytes);
            repr.emit(&us, &to, packet, &ChecksumCapabilities::default());
            let outer = Envelope {
                hop_limit: ndp::HOP_LIMIT,
                ..envelope((us.into(), to.into()), protocol::ICMP6)
            };
            let pseudo = outer.pseudo(bytes.len() as u32);
            prop_assert_eq!(icmp6::read(&bytes, pseudo), Ok(icmp6::Message::Discovery));
            let frame = framed(&outer, &bytes);
            let ip = ip_of(&frame);
            prop_assert_eq!(ndp::read(&ip, ip.payload(&frame).unwrap()), Ok(ours));
            let mut written = [0; ndp::LEN];
            let len = match ours {
                Neighbour::Solicitation(asked) => asked.write(&mut written, pseudo),
                Neighbour::Advertisement(told) => told.write(&mut written, pseudo),
            };
            prop_assert_eq!(&written[..len.unwrap()], &bytes[..]);
        }
    }

    #[test]
    fn vlan_tags_are_those_of_etherparse(priority in 0..8u8, id in 0..4096u16, ethertype in 0x600u16..) {
        let tag = vlan::Header::new(priority, id, ethertype);
        let theirs = SingleVlanHeader {
            pcp: VlanPcp::try_new(priority).unwrap(),
            drop_eligible_indicator: false,
            vlan_id: VlanId::try_new(id).unwrap(),
            ether_type: EtherType(ethertype),
        };
        prop_assert_eq!(tag.as_bytes(), theirs.to_bytes());
        let read = vlan::Header::read_from_bytes(&theirs.to_bytes()).unwrap();
        prop_assert_eq!((read.priority(), read.id()), (priority, id));
    }

    #[test]
    fn extension_headers_are_as_long_as_etherparse_says(
        more in prop::collection::vec((prop::sample::select(std::vec![0u8, 43, 60, 135]), 0..4u8), 1..6),
        behind: [u8; 8],
    ) {
        // Hop-by-hop options may stand in front alone.
        let kinds: Vec<_> = more.iter().enumerate()
            .filter(|(n, (kind, _))| *kind != protocol::HOP_BY_HOP || *n == 0)
            .map(|(_, header)| *header)
            .collect();
        prop_assume!(!kinds.is_empty());
        let mut bytes = Vec::new();
        let nexts = kinds.iter().skip(1).map(|(kind, _)| *kind).chain([protocol::UDP]);
        for ((_, length), next) in kinds.iter().zip(nexts) {
            let start = bytes.len();
            bytes.extend([next, *length]);
            bytes.resize(start + 8 + usize::from(*length) * 8, 0);
        }
        let end = bytes.len();
        bytes.extend(behind);
        let (mut kind, mut at) = (kinds[0].0, 0);
        while let Some(len) = extension::len(kind, bytes[at + 1]) {
            (kind, at) = (bytes[at], at + len);
        }
        prop_assert_eq!((kind, at), (protocol::UDP, end));
        // Theirs has one of each kind.
        let mut once = kinds.clone();
        once.sort_unstable();
        once.dedup_by_key(|(kind, _)| *kind);
        if once.len() == kinds.len() && !kinds.iter().any(|(kind, _)| *kind == protocol::MOBILITY) {
            let first = etherparse::IpNumber(kinds[0].0);
            let (_, next, rest) = etherparse::Ipv6Extensions::from_slice(first, &bytes).unwrap();
            prop_assert_eq!((next.0, rest.len()), (protocol::UDP, behind.len()));
        }
    }

    /// Both take the same frames of plain datagrams apart, or neither does.
    #[test]
    fn damaged_headers_are_read_alike(
        hosts in hosts(),
        at in 12..34usize,
        value: u8,
    ) {
        let mut frame = datagram(hosts, (7, 9), &[1; 12]);
        frame[at] = value;
        let ours = parse(&frame, frame.len() as u32);
        let Ok(Packet { content: Content::Ip(ip), .. }) = ours else { return Ok(()) };
        let Ok(headers) = PacketHeaders::from_ethernet_slice(&frame) else { return Ok(()) };
        match headers.net {
            Some(etherparse::NetHeaders::Ipv4(header, _)) => {
                prop_assert_eq!(IpAddr::from(header.source), ip.source);
                prop_assert_eq!((header.protocol.0, header.time_to_live), (ip.protocol, ip.hop_limit));
                prop_assert_eq!(usize::from(header.total_len), usize::from(ip.header_len) + ip.payload_len as usize);
            }
            Some(etherparse::NetHeaders::Ipv6(header, _)) => {
                prop_assert_eq!(IpAddr::from(header.source), ip.source);
                prop_assert_eq!(header.hop_limit, ip.hop_limit);
            }
            other => panic!("{other:?}"),
        }
    }
}
