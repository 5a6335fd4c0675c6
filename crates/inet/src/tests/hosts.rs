//! What hosts say and hear to have addresses and to listen to groups: by vectors, by
//! `smoltcp::wire`, and with any bytes.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::vec::Vec;

use landfall_placement::Refusal;
use proptest::prelude::*;
use smoltcp::wire as theirs;

use super::foreign::{MACS, envelope, ip_of};
use crate::dhcp::{Kind, Reply, Request};
use crate::group::{Generation, Message, Query, Record, RecordKind};
use crate::router::{Advertisement, Prefix};
use crate::*;

const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);

fn addresses() -> impl Strategy<Value = Option<Ipv4Addr>> {
    prop::option::of(any::<u32>().prop_map(Ipv4Addr::from))
}

prop_compose! {
    fn replies()(
        kind in prop::sample::select(std::vec![Kind::Offer, Kind::Ack, Kind::Nak]),
        (xid, station, yours) in any::<(u32, Mac, u32)>(),
        (server, router) in (addresses(), addresses()),
        prefix_len in prop::option::of(0..=32u8),
        mtu: Option<u16>,
        (lease, renewal, rebinding) in any::<(Option<u32>, Option<u32>, Option<u32>)>(),
    ) -> Reply {
        let yours = Ipv4Addr::from(yours);
        Reply { kind, xid, station, yours, server, prefix_len, router, mtu, lease, renewal, rebinding }
    }
}

prop_compose! {
    fn prefixes()(
        (bits, len, flags, valid, preferred) in (any::<u128>(), 0..=128u8, any::<(bool, bool)>(), any::<u32>(), any::<u32>())
    ) -> Prefix {
        let prefix = Ipv6Addr::from(bits);
        Prefix { prefix, len, is_on_link: flags.0, is_autonomous: flags.1, valid, preferred }
    }
}

proptest! {
    #[test]
    fn replies_of_dhcp_survive_the_wire_and_smoltcp_reads_them(reply in replies()) {
        let mut bytes = [0; 400];
        let len = reply.write(&mut bytes).unwrap();
        prop_assert_eq!(Reply::read(&bytes[..len]), Ok(reply));
        let packet = theirs::DhcpPacket::new_checked(&bytes[..len]).unwrap();
        let read = theirs::DhcpRepr::parse(&packet).unwrap();
        prop_assert_eq!((read.transaction_id, read.your_ip), (reply.xid, reply.yours));
        prop_assert_eq!(read.client_hardware_address.0, reply.station);
        prop_assert_eq!((read.server_identifier, read.lease_duration), (reply.server, reply.lease));
        prop_assert_eq!((read.renew_duration, read.rebind_duration), (reply.renewal, reply.rebinding));
        prop_assert_eq!(read.router, reply.router);
    }

    #[test]
    fn requests_of_dhcp_are_read_by_smoltcp(
        (xid, seconds, station) in any::<(u32, u16, Mac)>(),
        (has, wants, server) in (addresses(), addresses(), addresses()),
        host_name in "[a-z]{0,40}",
    ) {
        let has = has.filter(|has| !has.is_unspecified());
        let kind = Kind::Request;
        let request =
            Request { kind, xid, seconds, station, has, wants, server, host_name: &host_name };
        let mut bytes = [0; 400];
        let len = request.write(&mut bytes).unwrap();
        prop_assert!((dhcp::LEN_MIN..=338).contains(&len), "{} bytes, for one head", len);
        prop_assert_eq!(request.write(&mut bytes[..len - 1]), None, "no room");
        let packet = theirs::DhcpPacket::new_checked(&bytes[..len]).unwrap();
        let read = theirs::DhcpRepr::parse(&packet).unwrap();
        prop_assert_eq!(read.message_type, theirs::DhcpMessageType::Request);
        prop_assert_eq!((read.transaction_id, read.secs), (xid, seconds));
        prop_assert_eq!(read.client_ip, has.unwrap_or(Ipv4Addr::UNSPECIFIED));
        prop_assert_eq!((read.requested_ip, read.server_identifier), (wants, server));
        prop_assert_eq!(read.broadcast, has.is_none());
        prop_assert_eq!(read.client_identifier.map(|id| id.0), Some(station));
        prop_assert_eq!(Reply::read(&bytes[..len]), Err(Refusal::Unsupported), "that is no reply");
    }

    #[test]
    fn any_options_of_dhcp_are_read_or_refused(options in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = [0; 400];
        let reply = Reply {
            kind: Kind::Ack, xid: 1, station: MACS.0, yours: V4, server: None, prefix_len: None,
            router: None, mtu: None, lease: None, renewal: None, rebinding: None,
        };
        reply.write(&mut bytes).unwrap();
        let _ = Reply::read(&[&bytes[..240], &options[..]].concat());
        let _ = Reply::read(&options);
    }

    #[test]
    fn advertisements_of_routers_survive_the_wire(
        (hop_limit, lifetime, mtu) in any::<(u8, u16, Option<u32>)>(),
        station in prop::option::of(any::<Mac>().prop_map(|[a, b @ ..]| {
            let [b, c, d, e, f] = b;
            [a & 0xfe, b, c, d, e, f]
        })),
        all in prop::collection::vec(prefixes(), 0..=10),
    ) {
        let mut said = Advertisement::new(lifetime, &all);
        (said.hop_limit, said.station, said.mtu) = (hop_limit, station, mtu);
        let ends = (IpAddr::V6(LOCAL), IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)));
        let outer = Envelope { hop_limit: 255, ..envelope(ends, protocol::ICMP6) };
        let mut message = [0; 512];
        let len = said.write(&mut message, 0).unwrap();
        let len = said.write(&mut message, outer.pseudo(len as u32)).unwrap();
        let mut frame = std::vec![0; outer.header_len()];
        outer.write(&mut frame, len as u32).unwrap();
        frame.extend(&message[..len]);
        let ip = ip_of(&frame);
        let pseudo = ip.pseudo(len as u32);
        prop_assert_eq!(icmp6::read(&message[..len], pseudo), Ok(icmp6::Message::Router));
        let read = Advertisement::read(&ip, &message[..len]).unwrap();
        prop_assert_eq!(read, said);
        prop_assert_eq!(read.prefixes().count(), all.len().min(router::PREFIXES));
        // Cut anywhere, it is refused or read, but never past its end.
        for short in 0..len {
            let _ = Advertisement::read(&ip, &message[..short]);
        }
        let packet = theirs::Icmpv6Packet::new_checked(&message[..len]).unwrap();
        let repr = theirs::NdiscRepr::parse(&packet).unwrap();
        let theirs::NdiscRepr::RouterAdvert { router_lifetime, mtu: their_mtu, .. } = repr else {
            panic!("{repr:?}");
        };
        prop_assert_eq!((router_lifetime.secs(), their_mtu), (u64::from(lifetime), mtu));
        // What came through a router, or from beyond the link, is not believed.
        for ip in [Ip { hop_limit: 254, ..ip }, Ip { source: "2001:db8::1".parse().unwrap(), ..ip }] {
            prop_assert_eq!(Advertisement::read(&ip, &message[..len]), Err(Refusal::Forbidden));
        }
    }

    #[test]
    fn any_bytes_about_groups_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = group::read_igmp(&bytes);
        let _ = group::read_mld(&bytes);
    }

    #[test]
    fn reports_of_groups_are_read_by_others(
        groups in prop::collection::vec(any::<u32>(), 1..=8),
        is_v4: bool,
    ) {
        let groups: Vec<IpAddr> = groups.into_iter().map(|bits| match is_v4 {
            true => Ipv4Addr::from(bits | 0xe000_0000).into(),
            false => Ipv6Addr::from(0xff05 << 112 | u128::from(bits)).into(),
        }).filter(|group: &IpAddr| group.is_multicast()).collect();
        let kinds = [RecordKind::Joins, RecordKind::Leaves, RecordKind::Listens].into_iter().cycle();
        let records: Vec<Record> =
            groups.iter().zip(kinds).map(|(group, kind)| Record { group: *group, kind }).collect();
        let source = if is_v4 { IpAddr::V4(V4) } else { IpAddr::V6(LOCAL) };
        let mut frame = [0; 256];
        let len = group::write_report((MACS.0, source), &records, &mut frame).unwrap();
        prop_assert!(records.len() <= group::records_in(len, is_v4));
        let ip = ip_of(&frame[..len]);
        prop_assert_eq!((ip.source, ip.hop_limit), (source, 1));
        prop_assert_eq!(frame[..6].to_vec(), group::stations(ip.destination).to_vec());
        let message = ip.payload(&frame).unwrap();
        if is_v4 {
            prop_assert_eq!(ip.header_len, 24, "with the alert of routers");
            prop_assert_eq!(group::read_igmp(message), Ok(Message::Other));
        } else {
            prop_assert_eq!(ip.header_len, 48);
            let pseudo = ip.pseudo(ip.payload_len);
            prop_assert_eq!(icmp6::read(message, pseudo), Ok(icmp6::Message::Group));
            let packet = theirs::Icmpv6Packet::new_checked(message).unwrap();
            let repr = theirs::MldRepr::parse(&packet).unwrap();
            let theirs::MldRepr::Report { nr_mcast_addr_rcrds, data } = repr else { panic!() };
            prop_assert_eq!(usize::from(nr_mcast_addr_rcrds), records.len());
            for (record, bytes) in records.iter().zip(data.chunks(20)) {
                let read = theirs::MldAddressRecord::new_checked(bytes).unwrap();
                prop_assert_eq!(IpAddr::from(read.mcast_addr()), record.group);
                prop_assert_eq!(u8::from(read.record_type()), record.kind as u8);
            }
        }
    }
}

/// As routers say it, checksum filled in.
fn igmp(kind: u8, code: u8, group: [u8; 4], more: &[u8]) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0][..], &group, more].concat();
    let sum = !checksum::sum_of(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

#[test]
fn questions_of_each_generation_are_told_apart() {
    let query = |message: &[u8]| match group::read_igmp(message) {
        Ok(Message::Query(query)) => query,
        other => panic!("{other:?}"),
    };
    let all = |millis, generation| Query {
        group: None,
        within: Duration::from_millis(millis),
        generation,
    };
    assert_eq!(query(&igmp(0x11, 0, [0; 4], &[])), all(10_000, Generation::First));
    assert_eq!(query(&igmp(0x11, 100, [0; 4], &[])), all(10_000, Generation::Second));
    assert_eq!(query(&igmp(0x11, 100, [0; 4], &[2, 125, 0, 0])), all(10_000, Generation::Third));
    // A code of 128 and more has an exponent: (15 | 16) << (7 + 3).
    let long = query(&igmp(0x11, 0xff, [0; 4], &[2, 125, 0, 0]));
    assert_eq!(long, all(3_174_400, Generation::Third));
    let one = query(&igmp(0x11, 10, [239, 1, 2, 3], &[]));
    assert_eq!(one.group, Some(Ipv4Addr::new(239, 1, 2, 3).into()));
    for bad in [igmp(0x11, 1, [10, 0, 0, 1], &[]), igmp(0x16, 0, [10, 0, 0, 1], &[])] {
        assert_eq!(group::read_igmp(&bad), Err(Refusal::Malformed));
    }
    assert_eq!(group::read_igmp(&igmp(0x11, 1, [0; 4], &[0, 0])), Err(Refusal::Malformed));
    let mut damaged = igmp(0x11, 100, [0; 4], &[]);
    damaged[7] ^= 1;
    assert_eq!(group::read_igmp(&damaged), Err(Refusal::BadChecksum));
}

#[test]
fn old_reports_are_those_of_the_rfcs() {
    let group: IpAddr = Ipv4Addr::new(239, 1, 2, 3).into();
    for (generation, is_leaving, kind, to) in [
        (Generation::First, false, 0x12, group),
        (Generation::Second, false, 0x16, group),
        (Generation::Second, true, 0x17, Ipv4Addr::new(224, 0, 0, 2).into()),
    ] {
        let mut frame = [0; 64];
        let us = (MACS.0, IpAddr::V4(V4));
        let len = group::write_old_report(us, (group, is_leaving), generation, &mut frame).unwrap();
        let ip = ip_of(&frame[..len]);
        let message = ip.payload(&frame).unwrap();
        assert_eq!((ip.destination, message[0]), (to, kind));
        let packet = theirs::IgmpPacket::new_checked(message).unwrap();
        assert!(packet.verify_checksum());
        assert_eq!(IpAddr::V4(packet.group_addr()), group);
        let want = if is_leaving { Message::Other } else { Message::Report(group) };
        assert_eq!(group::read_igmp(message), Ok(want));
    }
    let group: IpAddr = "ff05::1234".parse().unwrap();
    for (is_leaving, kind) in [(false, group::MLD_REPORT), (true, group::MLD_DONE)] {
        let mut frame = [0; 128];
        let (us, second) = ((MACS.0, IpAddr::V6(LOCAL)), Generation::Second);
        let len = group::write_old_report(us, (group, is_leaving), second, &mut frame).unwrap();
        let ip = ip_of(&frame[..len]);
        let message = ip.payload(&frame).unwrap();
        assert_eq!(icmp6::read(message, ip.pseudo(ip.payload_len)), Ok(icmp6::Message::Group));
        assert_eq!(message[0], kind);
        let want = if is_leaving { Message::Other } else { Message::Report(group) };
        assert_eq!(group::read_mld(message), Ok(want));
    }
}

#[test]
fn options_of_dhcp_are_refused_at_every_length_that_they_cannot_have() {
    let reply = Reply {
        kind: Kind::Ack,
        xid: 1,
        station: MACS.0,
        yours: V4,
        server: None,
        prefix_len: None,
        router: None,
        mtu: None,
        lease: None,
        renewal: None,
        rebinding: None,
    };
    let mut bytes = [0; 300];
    reply.write(&mut bytes).unwrap();
    let with = |options: &[u8]| Reply::read(&[&bytes[..243], options].concat());
    for (kind, right) in [(53, 1), (54, 4), (1, 4), (26, 2), (51, 4), (58, 4), (59, 4), (52, 1)] {
        for len in 0..=12u8 {
            let value = [0u8; 12].map(|_| if kind == 1 { 255 } else { 1 });
            let option = [&[kind, len][..], &value[..usize::from(len)], &[255]].concat();
            assert_eq!(with(&option).is_ok(), len == right, "option {kind} of {len} bytes");
        }
    }
    // Several routers, of which the first counts; and none.
    let two = [3, 8, 10, 0, 0, 1, 10, 0, 0, 2, 255];
    assert_eq!(with(&two).unwrap().router, Some(Ipv4Addr::new(10, 0, 0, 1)));
    assert!(with(&[3, 0]).is_err() && with(&[3, 6, 1, 2, 3, 4, 5, 6]).is_err());
    // A mask with a hole, an option that is cut off, and no end at all, which does no harm.
    assert!(with(&[1, 4, 255, 0, 255, 0]).is_err());
    assert!(with(&[51, 4, 0, 0]).is_err() && with(&[51]).is_err());
    assert!(with(&[0, 0, 0]).is_ok() && with(&[]).is_ok());
    // What had no room lies in the field of the file.
    let mut overloaded = bytes;
    overloaded[108..115].copy_from_slice(&[51, 4, 0, 0, 0, 9, 255]);
    let overloaded = [&overloaded[..243], &[52, 1, 1, 255]].concat();
    assert_eq!(Reply::read(&overloaded).unwrap().lease, Some(9));
}
