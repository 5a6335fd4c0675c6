//! For any sequence of frames, the speculative engine and a naive reassembler
//! deliver the same packets with the same bytes. And whole packets that are cut, by
//! the engine's cutter and by a naive one.

use landfall_placement::{Random, RegionId};
use landfall_testkit::trials::{self, sequences, try_inputs};
use proptest::prelude::*;
use spec_defrag::cut::{Cutter, Df};
use spec_defrag::model::{Flow, Naive, Setup, Shape, cut, disagreements, play};
use spec_defrag::{Stats, conventional};

fn cases(few: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(trials::cases(few)) }
}

/// A few streams of pages, that take turns or mix, through a network with few faults:
/// the bytes are those of operations as the generator has them.
fn streams(seed: u64) -> Vec<u8> {
    const SETUPS: [[u8; 4]; 10] = [
        [0, 0x35, 0x20, 3],
        [0, 0x33, 0x20, 1],
        [0, 0x35, 0x60, 3],
        [4, 0x35, 0x60, 3],
        [0, 0x33, 0xe0, 3],
        [3, 0x31, 0x20, 3],
        [4, 0x35, 0x20, 3],
        [0, 0x30, 0x20, 3],
        [3, 0x34, 0x20, 3],
        [7, 0x32, 0x61, 3],
    ];
    const FLOWS: [u8; 6] = [0, 1, 6, 7, 0x50, 0x47];
    let mut random = Random::from_number(seed);
    let mut any = |below: u64| random.below(below) as u8;
    let mut bytes = SETUPS[usize::from(any(10))].to_vec();
    let flows = 1 + u64::from(any(3));
    for _ in 0..4 + any(30) {
        match any(20) {
            0..=6 => {
                let flow = FLOWS[usize::from(any(flows))];
                // Mostly one behind the other, for an MTU of 1500.
                let pattern = if any(2) == 0 { 0 } else { any(8) };
                bytes.extend([0, flow, 0, 0, any(4) << 6 | pattern << 3]);
            }
            7..=13 => bytes.extend([16, any(64) | if any(3) == 0 { 64 } else { 0 }]),
            14 => bytes.push(60),
            15 => bytes.extend([51 + any(8), any(255)]),
            _ => bytes.extend([32 + any(19), any(255), any(255), any(255)]),
        }
    }
    bytes
}

/// Whatever senders, the network and the user do.
#[test]
fn model_agrees() {
    // `model::story` tells how it came to what is found.
    try_inputs(0..sequences(120), 4..704, disagreements);
}

/// Streams, which the engine learns from, and what disturbs them. No part of the
/// engine is left out.
#[test]
fn model_agrees_on_streams() {
    let mut stats = Stats::default();
    let mut counters = conventional::Counters::default();
    for seed in 0..sequences(120) {
        let bytes = streams(seed);
        let rig = play(&bytes);
        let failures = rig.failures();
        assert!(failures.is_empty(), "stream {seed}: {failures:#?}\n{bytes:?}");
        let (more, gathered) = (rig.receiver.stats(), rig.receiver.gathering());
        for (sum, one) in [
            (&mut stats.in_place, more.in_place),
            (&mut stats.misplaced, more.misplaced),
            (&mut stats.speculated, more.speculated),
            (&mut stats.broken, more.broken),
            (&mut stats.conventional, more.conventional),
            (&mut stats.lent, more.lent),
            (&mut stats.at_bound, more.at_bound),
            (&mut stats.lists_given_up, more.lists_given_up),
            (&mut stats.whole, more.whole),
            (&mut counters.repeated, gathered.repeated),
            (&mut counters.refused, gathered.refused),
            (&mut counters.expired, gathered.expired),
            (&mut counters.evicted, gathered.evicted),
        ] {
            *sum += one;
        }
    }
    let lists = [stats.lent, stats.at_bound, stats.lists_given_up];
    assert!(lists.iter().all(|count| *count > 0), "{stats:?}");
    let parts = [stats.misplaced, stats.broken, stats.conventional, stats.whole];
    assert!(stats.speculated > 5 * sequences(120), "hardly anything is speculated: {stats:?}");
    assert!(parts.iter().all(|count| *count > 0), "{stats:?}");
    let faults = [counters.repeated, counters.refused, counters.expired, counters.evicted];
    assert!(faults.iter().all(|count| *count > 0), "{counters:?}");
}

proptest! {
    #![proptest_config(cases(15))]

    /// The same, with sequences that shrink.
    #[test]
    fn model_agrees_with_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
        prop_assert_eq!(disagreements(&bytes), Vec::<String>::new());
    }
}

/// Whatever is cut is what a naive cutter makes of it, byte for byte, and a naive
/// reassembler makes the packet of it again.
fn cut_alike(flow: Flow, shape: &Shape, mtu: u16, in_head: usize) {
    let packet = flow.packet(shape);
    // The head holds the IP headers, and something of what follows or nothing.
    let headers = 14 + if flow.is_v4() { 20 } else { 40 } + usize::from(shape.options.min(5)) * 8;
    let (head, body) = packet.split_at((headers + in_head).min(packet.len()));
    let span = RegionId::new(1, 1).span(0, body.len() as u32);
    let mut cutter = Cutter::new(Df::Refuse, [7; 32]);
    let pieces: Vec<Vec<u8>> = cutter
        .cut(head, span, mtu)
        .expect("it can be cut")
        .map(|piece| {
            let at = piece.payload.offset as usize;
            [&piece.head[..], &body[at..at + piece.payload.len as usize]].concat()
        })
        .collect();
    // In IPv6 the cutter chooses the name.
    let name_at = 54 + usize::from(shape.options) * 8 + 4;
    let name = match &pieces[..] {
        [first, _, ..] if !flow.is_v4() => {
            u32::from_be_bytes(first[name_at..name_at + 4].try_into().unwrap())
        }
        _ => shape.id,
    };
    assert_eq!(&pieces, &cut(&packet, mtu.into(), name));
    let mut naive = Naive::new(Setup::PLAIN.lifetime());
    let joined: Vec<_> =
        pieces.iter().filter_map(|piece| naive.receive(Default::default(), piece)).collect();
    assert_eq!(joined, [packet]);
}

#[test]
fn the_last_piece_fills_the_room_that_multiples_of_eight_leave() {
    for mtu in 1493..=1500 {
        for len in (2900..2980).chain(4380..4460) {
            for flow in [Flow(0), Flow(7)] {
                let shape = Shape { len, id: 7, ..Shape::default() };
                cut_alike(flow, &shape, mtu, 8);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Whatever is cut, for whatever MTU, is what a naive cutter makes of it, byte for
    /// byte, and a naive reassembler makes the packet of it again.
    #[test]
    fn a_naive_cutter_makes_the_same_pieces(
        flow in 0u8..128, len in 0usize..66_000, mtu in 1_280u16..9_000,
        options in 0u8..6, long_transport: bool, ecn in 0u8..4, id in 0u32..65_536, in_head in 0usize..60
    ) {
        let shape = Shape { len, id, options, long_transport, ecn, content: u64::from(id) };
        cut_alike(Flow(flow), &shape, mtu, in_head);
    }
}
