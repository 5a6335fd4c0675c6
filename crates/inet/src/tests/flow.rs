//! Whose a frame is, and whose a flow is: both say the same.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use landfall_placement::Random;

use crate::flow::{LONGEST_HEAD, Recipient, Share, recipient};
use crate::{Envelope, ethernet, protocol, vlan};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn host(random: &mut Random, is_v6: bool) -> IpAddr {
    let bits = random.next_u64();
    match is_v6 {
        true => Ipv6Addr::from_bits(0xfd << 120 | u128::from(bits)).into(),
        false => Ipv4Addr::from_bits(10 << 24 | (bits as u32 & 0xff_ffff)).into(),
    }
}

/// A frame of this protocol from the first to the second.
fn frame(kind: u8, [from, to]: [SocketAddr; 2]) -> std::vec::Vec<u8> {
    let envelope = Envelope::new((MACS[0], from.ip()), (MACS[1], to.ip()), kind);
    let mut frame = std::vec![0; 128];
    let at = envelope.write(&mut frame, 20).expect("it fits");
    frame[at..at + 2].copy_from_slice(&from.port().to_be_bytes());
    frame[at + 2..at + 4].copy_from_slice(&to.port().to_be_bytes());
    frame.truncate(at + 20);
    frame
}

fn tagged(frame: &[u8], tags: usize) -> std::vec::Vec<u8> {
    let mut all = frame[..ethernet::LEN - 2].to_vec();
    for _ in 0..tags {
        all.extend_from_slice(&ethernet::VLAN.to_be_bytes());
        all.extend_from_slice(&[0; vlan::LEN - 2]);
    }
    all.extend_from_slice(&frame[ethernet::LEN - 2..]);
    all
}

#[test]
fn a_frame_comes_to_the_member_that_has_its_flow() {
    let mut random = Random::from_number(3);
    for round in 0..2_000 {
        let is_v6 = round % 2 == 0;
        let ends: [SocketAddr; 2] = core::array::from_fn(|_| {
            SocketAddr::new(host(&mut random, is_v6), random.next_u64() as u16)
        });
        for members in [1, 2, 3, 8, 65_535] {
            for kind in [protocol::TCP, protocol::UDP] {
                let bytes = tagged(&frame(kind, ends), round % 3);
                let Some(Recipient::Member(member)) = recipient(&bytes, members) else {
                    panic!("{bytes:02x?}");
                };
                let share = Share::new(member, members).expect("there is such a member");
                let [from, to] = ends;
                let has_it = match kind {
                    protocol::TCP => share.has_connection(to, from),
                    _ => share.has_port(to.port()),
                };
                assert!(has_it, "{member} of {members}");
            }
        }
    }
    assert_eq!(Share::new(3, 3), None);
}

/// Too little of a frame says nothing, and never anything else than all of it.
#[test]
fn what_is_at_hand_of_a_frame_says_the_same_or_nothing() {
    let ends = [([10, 0, 0, 1], 5_000).into(), ([10, 0, 0, 2], 80).into()];
    for tags in 0..=2 {
        let bytes = tagged(&frame(protocol::TCP, ends), tags);
        let whole = recipient(&bytes, 5);
        assert!(matches!(whole, Some(Recipient::Member(_))));
        for len in 0..bytes.len() {
            let said = recipient(&bytes[..len], 5);
            assert!(said.is_none() || said == whole, "{len} bytes");
            assert!(said.is_some() || len < LONGEST_HEAD);
        }
    }
}
