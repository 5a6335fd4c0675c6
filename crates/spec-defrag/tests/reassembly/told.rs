//! Packets that ended, for their senders to be told.

use etherparse::{Icmpv4Slice, Icmpv6Slice, NetSlice, SlicedPacket, TransportSlice};
use landfall_placement::Duration;
use spec_defrag::reassembly::{Config, EndReason, Link, Reassembler};

use super::*;
use crate::support::Sent;

fn is_time_exceeded(transport: &TransportSlice<'_>) -> bool {
    match transport {
        TransportSlice::Icmpv4(icmp) => is_exceeded_v4(icmp),
        TransportSlice::Icmpv6(icmp) => is_exceeded_v6(icmp),
        _ => false,
    }
}

fn is_exceeded_v4(icmp: &Icmpv4Slice<'_>) -> bool {
    (icmp.type_u8(), icmp.code_u8()) == (11, 1)
}

fn is_exceeded_v6(icmp: &Icmpv6Slice<'_>) -> bool {
    (icmp.type_u8(), icmp.code_u8()) == (3, 1)
}

#[test]
fn rfc792_and_rfc8200_4_5_the_sender_is_told_if_the_first_fragment_was_here() {
    const TAGS: [u8; 8] = [0x88, 0xa8, 0, 9, 0x81, 0, 0, 5];
    for flow in BOTH {
        for (link, tags) in [(Link::Ethernet, &[][..]), (Link::Ethernet, &TAGS), (Link::Ip, &[])] {
            let mut reassembler = Reassembler::new(Config { link, ..config() });
            let Sent { pieces, .. } = sent(flow, 1, 4096);
            let dressed = |piece: &Vec<u8>| match link {
                Link::Ip => piece[14..].to_vec(),
                Link::Ethernet => [&piece[..12], tags, &piece[12..]].concat(),
            };
            for piece in &pieces[..2] {
                assert_eq!(packet(&mut reassembler, &dressed(piece)), None);
            }
            reassembler.handle_timeout(NOW + config().lifetime);
            let ended = reassembler.poll_ended().unwrap();
            assert_eq!(reassembler.poll_ended(), None);
            assert_eq!((ended.reason, ended.fragments), (EndReason::Expired, 2));
            let answer = ended.time_exceeded().unwrap();
            let read = match link {
                Link::Ip => SlicedPacket::from_ip(&answer).unwrap(),
                Link::Ethernet => SlicedPacket::from_ethernet(&answer).unwrap(),
            };
            assert_eq!(read.vlan_ids().len(), tags.len() / 4);
            assert!(is_time_exceeded(&read.transport.unwrap()));
            // It goes back to where the packet came from, and quotes it.
            let source = &pieces[0][if flow.is_v4() { 26..30 } else { 22..38 }];
            match read.net.unwrap() {
                NetSlice::Ipv4(ip) => assert_eq!(ip.header().destination(), *source),
                NetSlice::Ipv6(ip) => assert_eq!(ip.header().destination(), *source),
                NetSlice::Arp(_) => panic!("ARP"),
            }
            let quoted = &pieces[0][14..][..48];
            assert!(answer.windows(48).any(|bytes| bytes == quoted));
        }
    }
}

#[test]
fn rfc1122_3_2_2_4_nobody_is_told_without_the_first_fragment_or_for_want_of_room() {
    for flow in BOTH {
        let mut reassembler = Reassembler::new(Config { packets: 1, ..config() });
        let Sent { pieces, .. } = sent(flow, 1, 4096);
        assert_eq!(packet(&mut reassembler, &pieces[1]), None);
        assert_eq!(packet(&mut reassembler, &sent(flow, 2, 4096).pieces[0]), None);
        let evicted = reassembler.poll_ended().unwrap();
        assert_eq!((evicted.reason, evicted.first.is_some()), (EndReason::Evicted, false));
        assert_eq!(packet(&mut reassembler, &pieces[1]), None);
        let evicted = reassembler.poll_ended().unwrap();
        assert!(evicted.first.is_some() && evicted.time_exceeded().is_none(), "it had its time");
        reassembler.handle_timeout(NOW + Duration::from_secs(3_600));
        let expired = reassembler.poll_ended().unwrap();
        assert_eq!((expired.reason, expired.time_exceeded()), (EndReason::Expired, None));
    }
}

#[test]
fn reports_that_nobody_fetches_are_bounded() {
    let mut reassembler = Reassembler::new(Config { reports: 3, ..config() });
    for id in 0..10 {
        assert_eq!(packet(&mut reassembler, &sent(BOTH[0], id, 4096).pieces[0]), None);
    }
    reassembler.handle_timeout(NOW + config().lifetime);
    let ids: Vec<u32> =
        std::iter::from_fn(|| reassembler.poll_ended()).map(|ended| ended.key.id).collect();
    assert_eq!((ids, reassembler.counters().unreported), (vec![7, 8, 9], 7));
}
