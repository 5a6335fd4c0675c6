//! Who pays when the room is used up.

use spec_defrag::model::{Flow, seal};
use spec_defrag::reassembly::{Config, DropReason, EndReason, Reassembler};

use super::*;
use crate::support::{Sent, UDP};

/// A first fragment of a host's packet.
fn first(host: u32, id: u32) -> Vec<u8> {
    let mut frame = sent(UDP, id, 4096).pieces.swap_remove(0);
    frame[26..30].copy_from_slice(&host.to_be_bytes());
    seal(&mut frame);
    frame
}

fn victims(reassembler: &mut Reassembler) -> Vec<(u32, u32)> {
    let ended = std::iter::from_fn(|| reassembler.poll_ended());
    ended
        .inspect(|ended| assert_eq!(ended.reason, EndReason::Evicted))
        .map(|ended| (ended.key.source as u32, ended.key.id))
        .collect()
}

#[test]
fn at_its_bound_a_source_loses_its_own_oldest() {
    let mut reassembler = Reassembler::new(Config { packets_per_source: 3, ..config() });
    assert_eq!(packet(&mut reassembler, &first(9, 1)), None);
    for id in 1..=5 {
        assert_eq!(packet(&mut reassembler, &first(7, id)), None);
    }
    assert_eq!(victims(&mut reassembler), [(7, 1), (7, 2)]);
}

#[test]
fn at_the_bound_of_all_a_source_that_holds_much_of_its_share_pays_first() {
    let config = Config { packets: 10, packets_per_source: 8, ..config() };
    let mut reassembler = Reassembler::new(config);
    // The oldest of all is another's.
    assert_eq!(packet(&mut reassembler, &first(1, 1)), None);
    for id in 1..=6 {
        assert_eq!(packet(&mut reassembler, &first(7, id)), None);
    }
    for host in 20..25 {
        assert_eq!(packet(&mut reassembler, &first(host, 1)), None);
    }
    // Ten fit; the two beyond come from the heavy source while it holds more than four.
    assert_eq!(victims(&mut reassembler), [(7, 1), (7, 2)]);
    // Now nobody is heavy: the oldest of all goes.
    assert_eq!(packet(&mut reassembler, &first(30, 1)), None);
    assert_eq!(victims(&mut reassembler), [(1, 1)]);
}

#[test]
fn bytes_are_bounded_as_packets_are() {
    let config = Config { bytes: 40_000, bytes_per_source: 10_000, ..config() };
    let mut reassembler = Reassembler::new(config);
    for host in 0..100 {
        for id in 0..20 {
            assert_eq!(packet(&mut reassembler, &first(host, id)), None);
            assert!(reassembler.memory() <= 45_000, "{}", reassembler.memory());
        }
    }
    assert!(reassembler.packets() > 15, "most of the memory is used");
    // A packet that fits in no share is dropped, and takes nobody's place.
    let Sent { pieces, .. } = sent(Flow(0x10), 1, 30_000);
    let before = reassembler.counters().evicted;
    assert!(packets(&mut reassembler, &pieces).is_empty());
    assert!(reassembler.counters().dropped(DropReason::NoRoom) > 0);
    assert!(reassembler.counters().evicted <= before + 10);
    let small = sent(UDP, 77, 4096);
    assert_eq!(packets(&mut reassembler, &small.pieces), [small.packet]);
}

#[test]
fn each_frame_is_counted_once() {
    let mut reassembler = reassembler();
    let Sent { pieces, .. } = sent(UDP, 1, 4096);
    let whole = UDP.small(1);
    for frame in [&pieces[0], &pieces[0], &whole, &pieces[1], &pieces[2], &pieces[2]] {
        let _ = reassembler.offer(NOW, frame);
    }
    let counters = *reassembler.counters();
    assert_eq!((counters.offered(), counters.not_fragments, counters.kept), (6, 1, 3));
    assert_eq!((counters.packets, counters.dropped(DropReason::Duplicate)), (1, 1));
    assert_eq!(counters.all_dropped(), 1);
}

#[test]
fn a_bound_of_nothing_keeps_nothing_and_atomic_fragments_pass() {
    for config in [
        Config { packets: 0, ..config() },
        Config { bytes: 0, ..config() },
        Config { packets_per_source: 0, ..config() },
    ] {
        let mut reassembler = Reassembler::new(config);
        let Sent { pieces, .. } = sent(Flow(1), 1, 4096);
        expect_dropped(&mut reassembler, &pieces[0], DropReason::NoRoom);
        let atomic = crate::support::moved(&pieces[0], 0, false);
        assert!(packet(&mut reassembler, &atomic).is_some());
    }
}

/// A packet as long as the last one has a buffer that all of it fits in: what came is not moved when
/// more comes.
#[test]
fn a_buffer_is_as_long_as_the_packet_that_was_complete_last() {
    let mut reassembler = reassembler();
    for id in 0..4 {
        let frames = sent(BOTH[0], id, 4096).pieces;
        let [first, second, last] = &frames[..] else { panic!("{} fragments", frames.len()) };
        let held = [first, second].map(|frame| {
            assert!(packet(&mut reassembler, frame).is_none());
            reassembler.memory()
        });
        // Two buffers go round: that of the packet that came out last waits until the next did.
        assert!(id < 2 || held[0] == held[1], "packet {id}: {held:?}");
        assert!(packet(&mut reassembler, last).is_some());
    }
}

/// However long packets usually are: first fragments that nothing follows hold no more than they
/// are, and what is counted for a packet.
#[test]
fn a_first_fragment_holds_no_more_than_itself() {
    const FLOOD: u64 = 100;
    let mut reassembler = reassembler();
    for id in 0..4 {
        let Sent { packet, pieces } = sent(UDP, id, 4096);
        assert_eq!(packets(&mut reassembler, &pieces), [packet]);
    }
    let before = reassembler.memory();
    for host in 0..FLOOD as u32 {
        assert_eq!(packet(&mut reassembler, &first(host, 1)), None);
    }
    let each = (reassembler.memory() - before) / FLOOD;
    let len = first(0, 1).len() as u64;
    assert!((512..=640).contains(&(each - len)), "{each} bytes for a fragment of {len}");
}
