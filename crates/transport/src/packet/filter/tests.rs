//! The kernel runs the programs: on datagrams between two Unix sockets, which
//! it filters like frames, and for which nobody needs a privilege.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use super::Filter;
use crate::packet::socket::attach_filter;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);

/// Does a frame pass?
fn passes(filter: &Filter, frame: &[u8]) -> bool {
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    attach_filter(receiver.as_raw_fd(), &filter.program()).unwrap();
    sender.send(frame).unwrap();
    let mut bytes = [0; 256];
    receiver.recv(&mut bytes).is_ok_and(|len| bytes[..len] == *frame)
}

fn frame(ethertype: u16) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&STATION);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    frame
}

/// An IPv4 packet to [`HOST`] with so many words of options, to port 7000.
fn ipv4(protocol: u8, option_words: u8) -> Vec<u8> {
    let mut frame = frame(0x0800);
    frame[14] = 0x45 + option_words;
    frame[23] = protocol;
    frame[30..34].copy_from_slice(&HOST.octets());
    let ports = 34 + 4 * usize::from(option_words);
    frame[ports + 2..ports + 4].copy_from_slice(&7000u16.to_be_bytes());
    frame
}

#[test]
fn without_conditions_everything_passes() {
    assert!(passes(&Filter::any(), &frame(0x1234)));
    assert!(passes(&Filter::any(), &[1]));
    assert_eq!(Filter::any().only_ethertype(), None);
}

#[test]
fn the_listed_ethertypes_pass() {
    let filter = Filter::ethertypes([0x0800, 0x0806, 0x88b5]);
    for ethertype in [0x0800, 0x0806, 0x88b5] {
        assert!(passes(&filter, &frame(ethertype)), "{ethertype:#x}");
    }
    for ethertype in [0x0000, 0x0801, 0x86dd, 0xffff] {
        assert!(!passes(&filter, &frame(ethertype)), "{ethertype:#x}");
    }
    assert!(!passes(&filter, &frame(0x0800)[..13]), "cut short");
    assert_eq!(filter.only_ethertype(), None);
    assert_eq!(Filter::ethertypes([0x88b5]).only_ethertype(), Some(0x88b5));
}

#[test]
fn the_longest_list_has_no_jump_too_far() {
    let list: [u16; 64] = std::array::from_fn(|nth| 0x1000 + nth as u16);
    let filter = Filter::ethertypes(list).station(STATION).ipv4_to(HOST).port(7000);
    for ethertype in list {
        assert!(passes(&filter, &frame(ethertype)), "{ethertype:#x}");
    }
    assert!(!passes(&filter, &frame(0x1040)));
    assert!(!passes(&filter, &frame(0x0fff)));
}

#[test]
fn frames_to_other_stations_do_not_pass() {
    let filter = Filter::any().station(STATION);
    assert!(passes(&filter, &frame(0x0800)));
    for wrong in 0..6 {
        let mut other = frame(0x0800);
        other[wrong] ^= 0x80;
        assert!(!passes(&filter, &other), "byte {wrong}");
    }
}

#[test]
fn frames_to_groups_pass_where_they_are_wanted() {
    let filter = Filter::ethertypes([0x0806]).station_and_groups(STATION);
    assert!(passes(&filter, &frame(0x0806)));
    for group in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]] {
        let to_group = |ethertype| [&group, &frame(ethertype)[6..]].concat();
        assert!(passes(&filter, &to_group(0x0806)));
        assert!(!passes(&filter, &to_group(0x0800)), "another ethertype");
        assert!(!passes(&filter.clone().station(STATION), &to_group(0x0806)));
    }
    let mut other = frame(0x0806);
    other[5] ^= 1;
    assert!(!passes(&filter, &other), "another station");
    let list: [u16; 64] = std::array::from_fn(|nth| 0x1000 + nth as u16);
    let longest = Filter::ethertypes(list).station_and_groups(STATION).ipv4_to(HOST).port(7000);
    assert!(passes(&longest, &frame(0x103f)) && !passes(&longest, &frame(0x1040)));
}

#[test]
fn a_host_restricts_ipv4_alone() {
    let filter = Filter::ethertypes([0x0800, 0x0806]).ipv4_to(HOST);
    assert!(passes(&filter, &ipv4(6, 0)));
    assert!(passes(&filter, &frame(0x0806)));
    let mut other = ipv4(6, 0);
    other[33] ^= 1;
    assert!(!passes(&filter, &other));
}

#[test]
fn a_port_is_found_behind_options_and_not_in_fragments() {
    let filter = Filter::ethertypes([0x0800]).ipv4_to(HOST).port(7000);
    for (protocol, option_words) in [(6, 0), (17, 0), (6, 3), (17, 4)] {
        let mut packet = ipv4(protocol, option_words);
        assert!(passes(&filter, &packet), "{protocol} {option_words}");
        let port = 34 + 4 * usize::from(option_words) + 3;
        packet[port] ^= 1;
        assert!(!passes(&filter, &packet), "another port");
    }
    assert!(!passes(&filter, &ipv4(132, 0)), "another protocol");
    let mut first = ipv4(17, 0);
    first[20] = 0x20;
    assert!(passes(&filter, &first), "the first fragment has the port");
    let mut later = ipv4(17, 0);
    later[21] = 1;
    assert!(!passes(&filter, &later), "a later one has not");
    assert!(!passes(&filter, &ipv4(17, 0)[..37]), "cut within the port");
}

#[test]
fn of_ip_packets_fragments_alone_pass() {
    let filter = Filter::any().fragments();
    let with = |flags_and_offset: u16| {
        let mut packet = ipv4(17, 0);
        packet[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
        packet
    };
    for fragment in [0x2000, 0x2001, 0x0001, 0x1fff, 0x3fff, 0xe000] {
        assert!(passes(&filter, &with(fragment)), "{fragment:#x}");
    }
    for whole in [0x0000, 0x4000, 0x8000, 0xc000] {
        assert!(!passes(&filter, &with(whole)), "{whole:#x}");
    }
    let ipv6 = |next: u8| {
        let mut packet = frame(0x86dd);
        packet[20] = next;
        packet
    };
    for next in [44, 0, 43, 60] {
        assert!(passes(&filter, &ipv6(next)), "{next}");
    }
    for next in [6, 17, 58, 59, 45] {
        assert!(!passes(&filter, &ipv6(next)), "{next}");
    }
    assert!(passes(&filter, &frame(0x88b5)), "another protocol");
}

#[test]
fn fragments_are_one_condition_among_others() {
    let filter = Filter::ethertypes([0x0800, 0x88b5]).fragments().ipv4_to(HOST);
    let mut fragment = ipv4(17, 0);
    fragment[21] = 1;
    assert!(passes(&filter, &fragment) && passes(&filter, &frame(0x88b5)));
    assert!(!passes(&filter, &ipv4(17, 0)), "not a fragment");
    fragment[33] ^= 1;
    assert!(!passes(&filter, &fragment), "to another host");
    let mut ipv6 = frame(0x86dd);
    ipv6[20] = 44;
    assert!(!passes(&filter, &ipv6), "not listed");
    assert!(passes(&Filter::any().fragments().ipv4_to(HOST), &ipv6), "hosts are of IPv4");
}

#[test]
fn what_the_kernel_keeps_beside_a_frame_decides_first() {
    // A datagram of a Unix socket counts as for the host, without a tag; that
    // others do not pass is seen on a cable.
    let list: [u16; 64] = std::array::from_fn(|nth| 0x1000 + nth as u16);
    for filter in [Filter::any(), Filter::ethertypes(list).fragments().ipv4_to(HOST).port(7000)] {
        let filter = filter.only_received(STATION);
        assert!(passes(&filter, &frame(0x103f)));
    }
}
