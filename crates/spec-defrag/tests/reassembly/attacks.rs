//! What has broken reassemblers, and what was used to pass filters by.

use spec_defrag::model::Flow;
use spec_defrag::reassembly::{DropReason, Outcome};

use super::*;
use crate::support::{Sent, UDP, moved, resized, twin};

/// CVE-1999-0015: the second lies within the first; both systems and filters crashed of it.
#[test]
fn teardrop_ends_its_packet_only() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        let Sent { pieces, .. } = sent(flow, 1, 4096);
        assert_eq!(packet(&mut reassembler, &pieces[0]), None);
        let within = moved(&resized(&pieces[1], 4), 3, false);
        expect_dropped(&mut reassembler, &within, DropReason::Overlap);
        let other = sent(flow, 2, 4096);
        assert_eq!(packets(&mut reassembler, &other.pieces), [other.packet]);
    }
}

/// RFC 1858, section 4: a filter judged the ports of the first, a host took those of the second.
#[test]
fn an_overlap_that_rewrites_ports_makes_no_packet() {
    for flow in BOTH {
        for before in [false, true] {
            let mut reassembler = reassembler();
            let Sent { pieces, .. } = sent(flow, 1, 4096);
            let other_ports = twin(&resized(&pieces[0], 16));
            let mut frames = pieces.clone();
            frames.insert(usize::from(!before), other_ports);
            assert_eq!(packets(&mut reassembler, &frames), [[0; 0]; 0]);
            assert_eq!(reassembler.counters().dropped(DropReason::Overlap), 1);
        }
    }
}

/// The "rose" attack: first and last fragments without what is between, each of another packet.
/// The flood has one source; the packets of others are complete in the end.
#[test]
fn rose_a_flood_of_first_and_last_fragments_from_one_source_costs_others_nothing() {
    for flow in BOTH {
        let mut reassembler = reassembler();
        let others: Vec<Sent> = (0..50)
            .map(|n| sent(Flow(flow.0 | (n % 8) << 4), 1_000 + u32::from(n), 8192))
            .collect();
        // The flood has the one flow that no other has.
        let flood = Flow(flow.0 | 2);
        for Sent { pieces, .. } in &others {
            packets(&mut reassembler, &pieces[..pieces.len() - 1]);
        }
        let Sent { pieces, .. } = sent(flood, 0, 4096);
        for id in 0..20_000_u32 {
            for piece in [&pieces[0], &pieces[2]] {
                let mut frame = piece.clone();
                if flow.is_v4() {
                    frame[18..20].copy_from_slice(&(id as u16).to_be_bytes());
                    spec_defrag::model::seal(&mut frame);
                } else {
                    // Of another network, each with an address of its own.
                    frame[23] = 9;
                    frame[30..34].copy_from_slice(&id.to_be_bytes());
                    frame[58..62].copy_from_slice(&id.to_be_bytes());
                }
                assert!(matches!(reassembler.offer(NOW, &frame), Outcome::Kept));
            }
        }
        assert!(reassembler.packets() as u32 <= 50 + config().packets_per_source);
        for Sent { packet, pieces } in others {
            assert_eq!(packets(&mut reassembler, &pieces[pieces.len() - 1..]), [packet]);
        }
    }
}

/// No source is another's: packets, fragments and memory are bounded, and who comes after the
/// flood is served.
#[test]
fn a_flood_from_addresses_that_are_made_up_takes_bounded_memory_and_service_goes_on() {
    let config = Config { bytes: 1 << 20, bytes_per_source: 1 << 16, packets: 1_000, ..config() };
    let mut reassembler = Reassembler::new(config);
    let mut frame = sent(UDP, 0, 4096).pieces.swap_remove(0);
    for host in 0..100_000_u32 {
        frame[26..30].copy_from_slice(&(0x0b00_0000 | host).to_be_bytes());
        spec_defrag::model::seal(&mut frame);
        assert!(matches!(reassembler.offer(NOW, &frame), Outcome::Kept));
        assert!(reassembler.packets() <= 1_000);
        assert!(reassembler.memory() <= (1 << 20) + (1 << 17) + (1 << 17));
        if host % 1_000 == 0 {
            let other = sent(UDP, host, 4096);
            assert_eq!(packets(&mut reassembler, &other.pieces), [other.packet]);
        }
    }
}

/// CVE-2018-5391 ("FragmentSmack"): thousands of fragments of eight bytes for one packet, none in
/// its order. Fragments are bounded: beyond that the packet is ended.
#[test]
fn many_fragments_of_eight_bytes_are_bounded() {
    for flow in BOTH {
        let pieces = tiny(flow, 1, 8_000);
        let every_second: Vec<_> = pieces.iter().step_by(2).rev().cloned().collect();
        assert!(every_second.len() > 400);
        let mut reassembler = reassembler();
        assert!(packets(&mut reassembler, &every_second).is_empty());
        let counters = reassembler.counters();
        assert_eq!(counters.kept, config().fragments.into());
        assert_eq!(counters.dropped(DropReason::TooManyFragments), 1);
        assert!(reassembler.memory() < 64 << 10);
        // More are allowed on request.
        let mut reassembler = Reassembler::new(Config { fragments: 2_000, ..config() });
        let mut backwards = pieces.clone();
        backwards.reverse();
        assert_eq!(packets(&mut reassembler, &backwards).len(), 1);
    }
}

/// A chain of fragments that claims to be the end of one packet after another keeps nothing.
#[test]
fn packets_made_to_be_ended_do_not_pile_up() {
    let mut reassembler = reassembler();
    for id in 0..5_000 {
        let Sent { pieces, .. } = sent(UDP, id, 4096);
        assert_eq!(packet(&mut reassembler, &pieces[0]), None);
        expect_dropped(&mut reassembler, &twin(&pieces[0]), DropReason::Overlap);
    }
    assert!(reassembler.packets() as u32 <= config().packets_per_source);
    reassembler.handle_timeout(NOW + config().lifetime);
    assert_eq!(reassembler.packets(), 0);
}
