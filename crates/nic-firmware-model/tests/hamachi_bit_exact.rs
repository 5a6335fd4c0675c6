//! A Hamachi against the host's software path: the same frames and calls at the same
//! moments, costs off. The same memory, the same packets in the same order, the same
//! counters; and each of the faults that a firmware may have is seen.

use landfall_placement::Random;
use nic_firmware_model::hamachi::model::{
    CHOICES, Choices, Fault, Pair, disagreements, disagreements_with,
};
use proptest::prelude::*;
use spec_defrag::model::{Flow, Shape, Step, cut};

/// How many cases a property test runs: more if the environment asks for it.
fn cases(few: u32) -> ProptestConfig {
    let cases = if std::env::var_os("LANDFALL_LONG").is_some() { few * 200 } else { few };
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn with_and_without_an_adapter_it_is_the_same(
        bytes in proptest::collection::vec(any::<u8>(), CHOICES..600),
    ) {
        let differ = disagreements(&bytes);
        prop_assert!(differ.is_empty(), "{differ:#?}");
    }

    /// Whatever comes: it stays within its memory and changes nothing that was delivered.
    #[test]
    fn an_adapter_that_reads_headers_withstands_everything(
        mut bytes in proptest::collection::vec(any::<u8>(), CHOICES..600),
    ) {
        bytes[CHOICES - 1] |= 3;
        let differ = disagreements(&bytes);
        prop_assert!(differ.is_empty(), "{differ:#?}");
    }

    #[test]
    fn an_adapter_that_reads_headers_gives_the_same_packets(seed in any::<u64>(), flows in 1u8..5) {
        let differ = steered(seed, flows);
        prop_assert!(differ.is_empty(), "{differ:#?}");
    }
}

/// First pieces that came twice, and began their packet in two pages: the rest of it was
/// steered to one, and the end of it went astray to the other. Found by chance.
#[test]
fn a_first_piece_that_comes_twice_begins_one_page() {
    for (seed, flows) in [(957, 2), (853, 2), (986, 3), (391, 4), (1211, 4)] {
        let differ = steered(seed, flows);
        assert!(differ.is_empty(), "seed {seed}, {flows} flows: {differ:#?}");
    }
}

/// Flows that take turns as they like, with losses, repetitions and changes of order:
/// the same packets as from the reassembler.
fn steered(seed: u64, flows: u8) -> Vec<String> {
    let mut random = Random::from_number(seed);
    let choices = Choices::new(&[0, 0x35, 0x20, random.below(4) as u8, 7, 3]);
    let mut pair = Pair::new(choices, None).with_honest_traffic();
    for round in 0..6 {
        let frames = honest_traffic(&mut random, flows, round * 100);
        pair.apply(&Step::Receive { frames, lies: false });
    }
    pair.finish()
}

/// Pages of some flows, their pieces mixed.
fn honest_traffic(random: &mut Random, flows: u8, first_id: u32) -> Vec<Vec<u8>> {
    let mut wires: Vec<Vec<Vec<u8>>> = (0..flows)
        .map(|flow| {
            let page = |id| {
                let shape = Shape { len: 4096, id, ecn: 2, content: id.into(), ..Shape::default() };
                cut(&Flow(flow * 2 + 2).packet(&shape), 1500, id)
            };
            (first_id..first_id + 5).flat_map(page).rev().collect()
        })
        .collect();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while let Some(at) = (0..wires.len()).find(|at| !wires[*at].is_empty()) {
        let wire = random.below(wires.len() as u64) as usize;
        let wire = if wires[wire].is_empty() { at } else { wire };
        let frame = wires[wire].pop().expect("it has one");
        if random.chance(30_000) {
            frames.push(frame.clone());
        }
        let behind = if random.chance(50_000) { frames.len().min(2) } else { 0 };
        frames.insert(frames.len() - behind, frame);
        if random.chance(20_000) {
            frames.pop();
        }
    }
    frames
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// As many random bytes as the number says.
fn run_of(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = random.below(600);
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// The last piece of a packet came as its time ran out. The reassembler counted from when
/// the first one came, the drivers from when they looked at it, a burst later.
#[test]
fn the_time_of_a_packet_begins_when_its_first_piece_is_looked_at() {
    for seed in [577, 596, 804] {
        let differ = disagreements(&run_of(seed));
        assert!(differ.is_empty(), "run {seed}: {differ:#?}");
    }
}

/// Headers as long as those of the packets before, but other ones: the packet was begun in
/// their shape, its rest lay elsewhere, and it never came out.
#[test]
fn headers_as_long_as_others_are_not_taken_for_them() {
    for seed in [468, 6204] {
        let mut bytes = run_of(seed);
        let differ = disagreements(&bytes);
        assert!(differ.is_empty(), "run {seed}: {differ:#?}");
        bytes[CHOICES - 1] |= 3;
        let differ = disagreements(&bytes);
        assert!(differ.is_empty(), "run {seed}, reading headers: {differ:#?}");
    }
}

/// A run of the generator catches each fault; which run does, and how, is printed.
#[test]
fn each_fault_is_caught() {
    for fault in Fault::ALL {
        let caught = (0..32).find_map(|seed| {
            let bytes = random_bytes(seed, 500);
            let differ = disagreements_with(Some(fault), &bytes);
            differ.into_iter().next().map(|what| (seed, what))
        });
        match caught {
            Some((seed, what)) => println!("{fault:?}: run {seed}, {what}"),
            None => panic!("{fault:?} was not noticed"),
        }
    }
    for seed in 0..32 {
        let differ = disagreements(&random_bytes(seed, 500));
        assert!(differ.is_empty(), "run {seed}, without a fault: {differ:#?}");
    }
}

/// What the fuzz target `firmware_hamachi` runs, over its corpus: what was found stays found.
#[test]
fn the_corpus_finds_no_difference() {
    landfall_testkit::corpus::replay("firmware_hamachi", 1, disagreements);
}
