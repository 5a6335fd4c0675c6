//! The reassembler that takes frames: beside a naive one, and rule by rule.

use landfall_placement::Instant;
use landfall_tables::HashSecret;
use landfall_testkit::trials::{self, rounds, try_inputs};
use proptest::prelude::*;
use spec_defrag::model::{Flow, Shape, cut, reassemble};
use spec_defrag::reassembly::{Config, DropReason, Outcome, Reassembler};

mod attacks;
mod bounds;
mod kept;
mod kernel;
mod rules;
mod told;

const NOW: Instant = Instant::from_millis(1);
const BOTH: [Flow; 2] = [crate::support::UDP, Flow(1)];

fn config() -> Config {
    Config::new(HashSecret::new(1, 2))
}

fn reassembler() -> Reassembler {
    Reassembler::new(config())
}

/// The packet that a frame completes, if it does.
fn packet(reassembler: &mut Reassembler, frame: &[u8]) -> Option<Vec<u8>> {
    packet_at(reassembler, NOW, frame)
}

fn packet_at(reassembler: &mut Reassembler, now: Instant, frame: &[u8]) -> Option<Vec<u8>> {
    reassembler.offer(now, frame).packet().map(|packet| packet.to_vec())
}

fn packets(reassembler: &mut Reassembler, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().filter_map(|frame| packet(reassembler, frame)).collect()
}

#[track_caller]
fn expect_dropped(reassembler: &mut Reassembler, frame: &[u8], reason: DropReason) {
    match reassembler.offer(NOW, frame) {
        Outcome::Dropped(known) => assert_eq!(known, reason),
        other => panic!("{other:?}, not {reason}"),
    }
}

/// A packet with a payload of `len` bytes and its fragments for an MTU of 1500.
fn sent(flow: Flow, id: u32, len: usize) -> crate::support::Sent {
    let shape = Shape { len, id, content: u64::from(id) + 1, ..Shape::default() };
    crate::support::sent(flow, &shape)
}

/// The same with 8 bytes behind each header.
fn tiny(flow: Flow, id: u32, len: usize) -> Vec<Vec<u8>> {
    let shape = Shape { len, id, content: 1, ..Shape::default() };
    cut(&flow.packet(&shape), if flow.is_v4() { 28 } else { 56 }, id)
}

fn failures(bytes: &[u8]) -> Vec<String> {
    reassemble(bytes).failures
}

/// Whatever senders and the network do: shuffled, repeated, lost, overlapping, several sources
/// between one another, with and without tags. Each reason to drop a frame is met.
#[test]
fn a_naive_reassembler_makes_the_same_packets() {
    try_inputs(0..rounds(400, 20_000), 4..1_200, failures);
    let mut met = [0; DropReason::ALL.len()];
    let (mut packets, mut atomic, mut ended) = (0, 0, 0);
    for seed in 0..400 {
        let counters = reassemble(&trials::input(seed, 4..1_200)).counters;
        DropReason::ALL
            .iter()
            .for_each(|reason| met[*reason as usize] += counters.dropped(*reason));
        packets += counters.packets;
        atomic += counters.atomic;
        ended += counters.expired.min(1) + counters.evicted.min(1);
    }
    for reason in DropReason::ALL {
        assert!(met[reason as usize] > 0, "{reason} was not met");
    }
    assert!(packets > 400 && atomic > 20 && ended > 100, "{packets}, {atomic}, {ended}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(trials::cases(60))
    })]

    /// The same, with sequences that shrink.
    #[test]
    fn a_naive_reassembler_makes_the_same_packets_of_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..700)
    ) {
        prop_assert_eq!(failures(&bytes), Vec::<String>::new());
    }
}

#[test]
fn the_corpus_of_the_reassembler_breaks_no_rule() {
    landfall_testkit::corpus::replay("defrag_reassembler", 10, failures);
}
