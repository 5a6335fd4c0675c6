//! The eight invariants of the architecture, each held by tests that name it.
//! Wherever a `Rig` takes part, the naive reassembler runs beside the receiver, and
//! the memory watches what is written where. The corpora of the fuzz targets are run, too, so
//! that what was found stays found.

use landfall_placement::{Area, Duration, Instant, Random, Refusal, RegionId};
use landfall_testkit::corpus::replay;
use landfall_testkit::trials;
use landfall_testkit::trials::{rounds, try_inputs};
use proptest::prelude::*;
use spec_defrag::model::{Flow, Rig, Setup, Shape, TestMemory, disagreements, play, withstand};
use spec_defrag::{
    Areas, Body, Bunch, Config, ConfigError, Lend, MappedFrame, Receiver, admission, conventional,
};

use crate::support::{
    Sent, TCP6, UDP, expect_good, frames, hits, moved, page, resized, sent, trained, twin,
};

fn cases(few: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(trials::cases(few)) }
}

const SETUPS: [Setup; 5] =
    [Setup::PLAIN, Setup::PAPER, Setup::OFF, Setup::LENT, Setup::LENT_AT_ONCE];

/// The user keeps its packets while each piece comes again with other bytes, before
/// and behind the packets that follow.
#[test]
fn invariant_1_a_joined_packet_is_final() {
    for setup in SETUPS {
        for flow in [UDP, TCP6] {
            for lies in [false, true] {
                let mut rig = Rig::new(setup.lazy(), false);
                for n in 0..30 {
                    let Sent { packet, pieces } = page(flow, n);
                    assert_eq!(frames(&rig.receive(&pieces, lies)), [packet]);
                    let twins: Vec<_> = pieces[..2].iter().map(|piece| twin(piece)).collect();
                    assert_eq!(rig.receive(&twins, lies), []);
                }
                assert!(rig.held() >= 30);
                // Bytes that changed are told of when they are released.
                rig.release(usize::MAX, false);
                expect_good(rig);
            }
        }
    }
}

/// No piece missing, and none that only was expected to come.
#[test]
fn invariant_2_no_packet_comes_out_before_its_last_piece_is_in_place() {
    for flow in [UDP, TCP6] {
        for missing in 0..3 {
            let mut rig = trained(Setup::PLAIN, flow);
            for n in 100..110 {
                let Sent { packet, mut pieces } = page(flow, n);
                let late = pieces.remove(missing);
                assert_eq!(rig.receive(&pieces, false), [], "piece {missing} is missing");
                assert_eq!(frames(&rig.receive(&[late], false)), [packet]);
            }
            expect_good(rig);
        }
    }
}

/// Frames that were posted for and are not there yet are no part of anything: the
/// list may be settled with fewer.
#[test]
fn invariant_2_what_did_not_arrive_is_not_joined() {
    let mut rig = trained(Setup::PAPER, UDP);
    let Sent { packet, pieces } = page(UDP, 100);
    for piece in &pieces[..2] {
        assert_eq!(rig.receive(std::slice::from_ref(piece), false), []);
    }
    // A burst of nothing.
    let now = rig.now();
    let posted = rig.receiver.post().to_vec();
    rig.memory.post(&posted);
    rig.receiver.settle(now, &[], &mut rig.memory);
    assert!(rig.receiver.poll_packet().is_none());
    assert_eq!(frames(&rig.receive(&pieces[2..], false)), [packet]);
    expect_good(rig);
}

/// A receiver that is to copy lends nothing from a bunch that might be lent from: its frames are the
/// driver's again at once.
#[test]
fn invariant_4_a_receiver_that_copies_lends_nothing_from_a_bunch() {
    let mut rig = Rig::new(Setup::OFF, false);
    let pieces = page(UDP, 1).pieces;
    let spans = rig.memory.lay(0, &pieces, &[]);
    let frames: Vec<_> =
        spans.iter().zip(&pieces).map(|(at, head)| MappedFrame { at: *at, head }).collect();
    let bunch = Bunch { number: 1, frames: &frames, lend: Lend::List };
    let now = rig.now();
    rig.receiver.take_bunch(now, &bunch, &mut rig.memory);
    let packet = rig.receiver.poll_packet().expect("all pieces are there");
    assert!(matches!(packet.body, Body::Buffer(..)), "{:?}", packet.body);
    assert!(!rig.receiver.holds_bunch(1));
    assert_eq!((rig.receiver.stats().lent, rig.receiver.stats().at_bound), (0, 0));
}

/// Descriptors that the driver passed over, at each place of a burst, are no frames:
/// nothing comes out of what lies there since long ago, and the frames behind are
/// where their own descriptors say.
#[test]
fn invariant_2_a_descriptor_that_was_passed_over_is_no_frame() {
    for flow in [UDP, TCP6] {
        for at in 0..4 {
            for count in 1..4 {
                let mut rig = trained(Setup::PLAIN, flow);
                for n in 100..110 {
                    let Sent { packet, mut pieces } = page(flow, n);
                    pieces.splice(at..at, vec![Vec::new(); count]);
                    assert_eq!(frames(&rig.receive(&pieces, false)), [packet]);
                    assert_eq!(rig.receive(&vec![Vec::new(); count], false), []);
                }
                expect_good(rig);
            }
        }
    }
}

/// An adapter that passes descriptors over may put a first piece that comes twice into
/// two pages: all pieces come together nevertheless, and nothing is left.
#[test]
fn invariant_4_a_first_piece_in_two_pages_is_one_packet() {
    for flow in [UDP, TCP6] {
        for later in 0..3 {
            let mut rig = trained(Setup::PLAIN, flow);
            for n in 100..110 {
                let Sent { packet, pieces } = page(flow, n);
                let [first, second, third] = &pieces[..] else { panic!("three pieces") };
                let over = Vec::new;
                let twice = [first.clone(), over(), over(), first.clone()];
                assert_eq!(rig.receive(&twice, false), []);
                // Behind its own descriptor, and behind one that is another's.
                let mut rest = vec![second.clone()];
                rest.extend(vec![over(); later]);
                rest.push(third.clone());
                assert_eq!(frames(&rig.receive(&rest, false)), [packet], "{later} passed over");
            }
            expect_good(rig);
        }
    }
}

/// Bad pieces of packets that are under way: one counter moves, and the packet
/// comes out as if nothing had been.
#[test]
fn invariant_3_a_bad_piece_changes_one_counter_and_nothing_else() {
    type Bad = fn(&[u8]) -> Vec<u8>;
    let cut_off: Bad = |piece| piece[..piece.len() - 1].to_vec();
    let corrupt: Bad = |piece| {
        let mut corrupt = piece.to_vec();
        corrupt[22] ^= 1;
        corrupt
    };
    let both: [(Bad, Refusal); 4] = [
        (cut_off, Refusal::Truncated),
        (|piece| resized(piece, 0), Refusal::Malformed),
        (|piece| moved(&resized(piece, 9), 20, true), Refusal::Malformed),
        (|piece| moved(piece, 0x1fff, false), Refusal::OutOfBounds),
    ];
    for flow in [UDP, TCP6] {
        let of_v4 = Some((corrupt, Refusal::BadChecksum)).filter(|_| flow.is_v4());
        for (bad, refusal) in both.into_iter().chain(of_v4) {
            for at in 0..3 {
                let mut rig = trained(Setup::PLAIN, flow);
                let Sent { packet, mut pieces } = page(flow, 100);
                pieces.insert(at, bad(&pieces[1]));
                let (before, all) = (rig.receiver.refusals().of(refusal), total(&rig));
                assert_eq!(frames(&rig.receive(&pieces, false)), [packet]);
                assert_eq!(rig.receiver.refusals().of(refusal), before + 1);
                assert_eq!(total(&rig), all + 1);
                expect_good(rig);
            }
        }
    }
}

fn total(rig: &Rig) -> u64 {
    rig.receiver.refusals().total()
}

/// One thing after another that makes guesses wrong: each packet comes, and soon
/// packets are joined without a copy again.
#[test]
fn invariant_4_after_each_kind_of_miss_all_packets_come() {
    type Fault = fn(&mut Vec<Vec<u8>>);
    let faults: [(&str, Fault); 8] = [
        ("a foreign frame in between", |f| f.insert(1, UDP.small(3))),
        ("a foreign frame before", |f| f.insert(0, vec![0xff; 60])),
        ("reordered", |f| f.swap(0, 1)),
        ("backwards", |f| f.reverse()),
        ("doubled", |f| f.insert(1, f[0].clone())),
        ("doubled late", |f| f.push(f[1].clone())),
        ("options", |f| *f = special(1, false).pieces),
        ("a long transport header", |f| *f = special(0, true).pieces),
    ];
    for flow in [UDP, Flow(6)] {
        for (what, fault) in faults {
            let mut rig = trained(Setup::PLAIN, flow);
            let mut speculated = 0;
            for n in 100..140 {
                let Sent { mut pieces, .. } = page(flow, n);
                if n == 101 {
                    fault(&mut pieces);
                }
                let came = rig.receive(&pieces, false);
                assert!(!came.is_empty(), "{what}: packet {n}");
                speculated += hits(&came[came.len() - 1..]);
            }
            assert!(speculated >= 30, "{what}: {speculated} of 40 without a copy");
            expect_good(rig);
        }
    }
}

/// A packet of another flow with other headers.
fn special(options: u8, long_transport: bool) -> Sent {
    let shape = Shape { len: 4096, id: 5, options, long_transport, ..Shape::default() };
    sent(Flow(6), &shape)
}

/// Pieces are lost: all other packets come, and what the lost ones held is free when
/// their time is over.
#[test]
fn invariant_4_lost_pieces_cost_their_packets_and_no_other() {
    for missing in 0..3 {
        let mut rig = trained(Setup::PLAIN, UDP);
        for n in 100..160 {
            let Sent { packet, mut pieces } = page(UDP, n);
            let is_lost = n % 3 == 0;
            if is_lost {
                pieces.remove(missing);
            }
            let came = frames(&rig.receive(&pieces, false));
            assert_eq!(came, if is_lost { vec![] } else { vec![packet] });
        }
        expect_good(rig);
    }
}

/// Every packet a miss: nobody knows what comes next, and all of it comes.
#[test]
fn invariant_4_every_packet_a_miss_and_none_is_lost() {
    let mut random = Random::from_number(4);
    for setup in SETUPS {
        let mut rig = Rig::new(setup, false);
        for n in 0..300 {
            let flow = Flow(random.below(8) as u8);
            let len = 1500 + random.below(3_000) as usize;
            let shape = Shape { len, id: n, content: u64::from(n), ..Shape::default() };
            let Sent { packet, mut pieces } = sent(flow, &shape);
            pieces.rotate_left(1);
            assert_eq!(frames(&rig.receive(&pieces, false)), [packet]);
        }
        expect_good(rig);
    }
}

/// As little memory as can be configured, and more packets under way than it holds:
/// the oldest go, and what is whole in time comes.
#[test]
fn invariant_5_a_receiver_stays_within_its_memory() {
    for lies in [false, true] {
        let mut rig = Rig::new(Setup::TIGHT, false);
        for n in 0..500 {
            let Sent { pieces, .. } = page(Flow((n % 8) as u8), n);
            assert_eq!(rig.receive(&pieces[..2], lies), []);
        }
        assert!(rig.receiver.gathering().evicted > 400, "{:?}", rig.receiver.gathering());
        for n in 500..520 {
            let Sent { packet, pieces } = page(UDP, n);
            assert_eq!(frames(&rig.receive(&pieces, lies)), [packet]);
        }
        expect_good(rig);
    }
}

/// The user keeps all packets: at the bound nothing is posted, and it goes on when
/// one is released.
#[test]
fn invariant_5_without_pages_nothing_is_posted() {
    let setup = Setup::TIGHT.lazy();
    let memory = TestMemory::new(&setup.sizes());
    let mut receiver = Receiver::new(setup.config(), areas(&memory), setup.seed()).unwrap();
    let mut memory = memory;
    let mut held = Vec::new();
    let mut now = Instant::ZERO;
    let mut n = 0;
    loop {
        let list = receiver.post().to_vec();
        if list.is_empty() {
            break;
        }
        memory.post(&list);
        // Packets that fit on the wire need a page each.
        let frame = UDP.packet(&Shape { len: 900, id: n, ..Shape::default() });
        let lens = memory.scatter(&list, &[frame]);
        now += Duration::from_micros(1);
        receiver.settle(now, &lens, &mut memory);
        held.extend(std::iter::from_fn(|| receiver.poll_packet()));
        n += 1;
        assert!(n < 1_000, "pages never end");
    }
    assert!(held.len() >= setup.sizes().slots as usize, "{}", held.len());
    for packet in held {
        let Body::Buffer(buffer, _) = packet.body else { panic!("{packet:?}") };
        assert!(receiver.release(buffer));
    }
    assert!(!receiver.post().is_empty());
    assert_eq!(memory.take_wrong(), [""; 0]);
}

fn areas(memory: &TestMemory) -> Areas {
    Areas {
        pages: memory.pages(),
        large: memory.large(),
        heads: memory.heads(),
        spill: memory.spill(),
    }
}

#[test]
fn invariant_5_a_configuration_that_cannot_work_says_why() {
    let memory = TestMemory::new(&Setup::PLAIN.sizes());
    let good = Setup::PLAIN.config();
    let error = |config: &Config, areas: Areas| {
        Receiver::new(config.clone(), areas, [1; 32]).expect_err("this cannot work")
    };
    let all = areas(&memory);
    let nothing = Area::new(RegionId::new(3, 1), 0, 0);
    let odd = Config { page_len: 5000, ..good.clone() };
    assert_eq!(error(&odd, all), ConfigError::PageLen(5000));
    let none = Config { burst: 0, ..good.clone() };
    assert_eq!(error(&none, all), ConfigError::Burst(0));
    let pages = error(&good, Areas { pages: nothing, ..all });
    assert!(matches!(pages, ConfigError::Pages { pages: 0, .. }), "{pages}");
    for (what, areas) in
        [("heads", Areas { heads: nothing, ..all }), ("spill", Areas { spill: nothing, ..all })]
    {
        let error = error(&good, areas);
        assert!(error.to_string().contains(what), "{error}");
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn invariant_6_two_runs_join_the_same_packets(
        bytes in prop::collection::vec(any::<u8>(), 100..600)
    ) {
        let (once, twice) = (play(&bytes), play(&bytes));
        prop_assert_eq!(once.digest(), twice.digest());
        prop_assert_eq!(once.receiver.stats(), twice.receiver.stats());
        prop_assert_eq!(once.receiver.refusals(), twice.receiver.refusals());
    }
}

/// The name of a buffer that was released, and taken again by another packet.
#[test]
fn invariant_7_a_packet_that_was_released_gives_nothing_back() {
    let setup = Setup::TIGHT;
    let mut memory = TestMemory::new(&setup.sizes());
    let mut receiver = Receiver::new(setup.config(), areas(&memory), setup.seed()).unwrap();
    let mut stale = Vec::new();
    for n in 0..100 {
        let frame = UDP.packet(&Shape { len: 900, id: n, ..Shape::default() });
        let list = receiver.post().to_vec();
        memory.post(&list);
        let lens = memory.scatter(&list, &[frame]);
        receiver.settle(Instant::from_micros(u64::from(n)), &lens, &mut memory);
        let packet = receiver.poll_packet().expect("a packet in one piece");
        let Body::Buffer(buffer, _) = packet.body else { panic!("{packet:?}") };
        assert!(receiver.holds(buffer));
        let free = receiver.free_pages();
        assert!(stale.iter().all(|stale| !receiver.holds(*stale) && !receiver.release(*stale)));
        assert_eq!(receiver.free_pages(), free);
        assert!(receiver.release(buffer));
        stale.push(buffer);
    }
}

/// Time that stands still, runs backwards, or comes again: timers of what is over
/// do nothing.
#[test]
fn invariant_7_a_timer_of_what_is_over_does_nothing() {
    let mut rig = trained(Setup::PLAIN, UDP);
    let Sent { packet, pieces } = page(UDP, 100);
    assert_eq!(rig.receive(&pieces[..2], false), []);
    let due = rig.receiver.poll_timeout().expect("a packet is not whole").at;
    assert_eq!(frames(&rig.receive(&pieces[2..], false)), [packet]);
    let stats = *rig.receiver.stats();
    for at in [due, due, Instant::ZERO] {
        rig.receiver.handle_timeout(at, &mut rig.memory);
    }
    assert_eq!(*rig.receiver.stats(), stats);
    assert_eq!(rig.receiver.gathering().expired, 0);
    expect_good(rig);
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn invariant_8_no_frames_make_a_receiver_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..1_500)
    ) {
        prop_assert_eq!(withstand(&bytes), Vec::<String>::new());
    }
}

/// Calls in any order, with numbers that make no sense.
#[test]
fn invariant_8_no_calls_make_a_receiver_panic() {
    let setup = Setup::TIGHT;
    let mut memory = TestMemory::new(&setup.sizes());
    let config = Config { reassembly: conventional::Config::default(), ..setup.config() };
    let mut receiver = Receiver::new(config, areas(&memory), [7; 32]).unwrap();
    let mut random = Random::from_number(8);
    for _ in 0..3_000 {
        let now = Instant::from_nanos(random.next_u64() >> random.below(64));
        match random.below(6) {
            0 => _ = receiver.post(),
            1 => {
                let many = random.below(70) as usize;
                let lens: Vec<u32> =
                    (0..many).map(|_| random.next_u32() >> random.below(32)).collect();
                receiver.settle(now, &lens, &mut memory);
            }
            2 => receiver.take(now, &[], &mut memory),
            3 => receiver.handle_timeout(now, &mut memory),
            4 => _ = receiver.poll_timeout(),
            _ => {
                while let Some(packet) = receiver.poll_packet() {
                    if let Body::Buffer(buffer, _) = packet.body {
                        receiver.release(buffer);
                    }
                }
            }
        }
    }
}

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("defrag_pair", 10, disagreements);
}

#[test]
fn the_corpus_of_frames_breaks_no_rule() {
    replay("defrag_frames", 10, withstand);
}

#[test]
fn random_frames_break_no_rule() {
    try_inputs(0..rounds(200, 20_000), 0..1_500, withstand);
}

fn failures_of_admission(bytes: &[u8]) -> Vec<String> {
    [admission::model::disagreements(bytes), admission::model::misreadings(bytes)].concat()
}

#[test]
fn the_corpus_of_admission_breaks_no_rule() {
    replay("defrag_admission", 20, failures_of_admission);
}

#[test]
fn random_schedules_of_admission_break_no_rule() {
    try_inputs(0xad01..0xad01 + rounds(100, 20_000), 0..3_000, failures_of_admission);
}
