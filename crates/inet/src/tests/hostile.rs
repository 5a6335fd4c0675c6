//! Any bytes are read or refused, and none make a reader panic.

use core::net::IpAddr;
use std::vec::Vec;

use proptest::prelude::*;

use super::foreign::{envelope, hosts};
use crate::*;

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
