//! Which pieces make a packet, and which do not.
//!
//! Any sequence of pieces, pages and moments: the same as the model, step by step.

use proptest::prelude::*;

use super::adopting::Landed;
use super::model::{Model, Name, Piece, from};
use super::*;
use crate::memory::ReassemblyPath;

/// A packet in pieces of 1,000 bytes, in this order, comes out as if in one frame.
#[test]
fn pieces_in_any_order_become_the_packet() {
    let sent = bytes(3000);
    for from in [V4, V6, FragmentSource { options: 8, ..V4 }] {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
            let mut host = Host::small();
            for (n, at) in order.into_iter().enumerate() {
                let part = &sent[at * 1000..(at + 1) * 1000];
                let packet = host.piece(from, (7, at as u32 * 1000, at < 2), part).unwrap();
                assert_eq!(packet.is_some(), n == 2);
                let Some(packet) = packet else { continue };
                assert_eq!(packet.path, ReassemblyPath::Conventional);
                assert_eq!(packet.body_len, 2992, "what is behind the split starts the page");
                let id = if from.is_v6 { 0 } else { 7 };
                let whole = if from.is_v6 { None } else { Some((id, 0, false)) };
                assert_eq!(host.take(&packet), frame(from, whole, &sent));
            }
            assert!(host.reassembly.is_empty() && host.is_clean());
            assert_eq!(host.reassembly.counters().whole, 1);
        }
    }
}

#[test]
fn packets_that_come_together_are_kept_apart() {
    let (a, b) = (bytes(16), bytes(32));
    let mut host = Host::small();
    host.piece(V4, (1, 0, true), &a[..8]).unwrap();
    host.piece(V4, (2, 0, true), &b[..16]).unwrap();
    let second = host.piece(V4, (2, 16, false), &b[16..]).unwrap().unwrap();
    let first = host.piece(V4, (1, 8, false), &a[8..]).unwrap().unwrap();
    assert_eq!(host.take(&first), frame(V4, Some((1, 0, false)), &a));
    assert_eq!(host.take(&second), frame(V4, Some((2, 0, false)), &b));
}

/// RFC 5722: the packet is given up, with all that still comes of it.
#[test]
fn overlapping_pieces_refuse_their_packet() {
    let sent = bytes(64);
    for (from, to, more) in
        [(8, 24, true), (0, 24, true), (0, 8, true), (8, 16, true), (16, 32, true), (16, 40, true)]
    {
        for changed in [0, 1] {
            let mut host = Host::small();
            host.piece(V6, (1, 0, true), &sent[..16]).unwrap();
            host.piece(V6, (1, 24, true), &sent[24..40]).unwrap();
            let mut other = sent[from..to].to_vec();
            other[0] ^= changed;
            let again = host.piece(V6, (1, from as u32, more), &other);
            assert_eq!(again, Err(Refusal::Forbidden), "{from}..{to}");
            assert!(host.is_clean(), "it holds no buffer any more");
            for (from, to, more) in [(0, 16, true), (16, 24, true), (40, 64, false)] {
                let later = host.piece(V6, (1, from as u32, more), &sent[from..to]);
                assert_eq!(later, Err(Refusal::Forbidden), "what still comes: {from}..{to}");
            }
            assert_eq!(host.reassembly.counters().refused, 1);
            assert!(host.reassembly.contains(&read(V6, (1, 0, true), &sent[..8]).0.key));
            host.at(NOW + Duration::from_secs(60));
            assert_eq!(host.reassembly.counters().expired, 0, "it was counted before");
            assert!(host.reassembly.is_empty());
        }
    }
}

/// A second piece that lies wholly inside of the first, as the tool teardrop sends.
#[test]
fn teardrop_is_refused() {
    let sent = bytes(64);
    let mut host = Host::small();
    host.piece(V4, (242, 0, true), &sent[..32]).unwrap();
    assert_eq!(host.piece(V4, (242, 24, false), &sent[24..28]), Err(Refusal::Forbidden));
    assert!(host.is_clean());
}

#[test]
fn an_exact_repetition_is_passed_over_and_the_first_stays() {
    let sent = bytes(32);
    let mut host = Host::small();
    host.piece(V4, (1, 0, true), &sent[..16]).unwrap();
    assert_eq!(host.piece(V4, (1, 0, true), &[9; 16]), Err(Refusal::Duplicate));
    let marked = FragmentSource { ecn: Ecn::CongestionExperienced, ..V4 };
    assert_eq!(host.piece(marked, (1, 0, true), &sent[..16]), Err(Refusal::Duplicate));
    let whole = host.piece(V4, (1, 16, false), &sent[16..]).unwrap().unwrap();
    assert_eq!(host.take(&whole), frame(V4, Some((1, 0, false)), &sent));
    assert_eq!(host.reassembly.counters().repeated, 2);

    host.piece(V4, (2, 16, true), &sent[16..]).unwrap();
    let last = host.piece(V4, (2, 16, false), &sent[16..]);
    assert_eq!(last, Err(Refusal::Forbidden), "the same bytes, but the last ones");
    host.piece(V4, (3, 16, false), &sent[16..29]).unwrap();
    assert_eq!(host.piece(V4, (3, 16, false), &sent[16..29]), Err(Refusal::Duplicate));
    let longer = host.piece(V4, (3, 16, true), &sent[16..]);
    assert_eq!(longer, Err(Refusal::Forbidden), "in the same 8 bytes it ends");
    host.piece(V4, (4, 16, false), &sent[16..29]).unwrap();
    assert_eq!(host.piece(V4, (4, 16, false), &sent[16..30]), Err(Refusal::Forbidden));
}

#[test]
fn pieces_that_disagree_about_the_end_refuse_their_packet() {
    let sent = bytes(64);
    for (from, to, more) in [(40, 48, false), (40, 48, true), (16, 24, false)] {
        let mut host = Host::small();
        host.piece(V6, (1, 0, true), &sent[..16]).unwrap();
        host.piece(V6, (1, 32, false), &sent[32..40]).unwrap();
        let late = host.piece(V6, (1, from as u32, more), &sent[from..to]);
        assert_eq!(late, Err(Refusal::Forbidden), "{from}..{to}");
    }
    let mut host = Host::small();
    host.piece(V6, (1, 32, true), &sent[32..40]).unwrap();
    let end = host.piece(V6, (1, 16, false), &sent[16..24]);
    assert_eq!(end, Err(Refusal::Forbidden), "an end before what is there");
}

#[test]
fn what_no_piece_can_be_is_refused_and_leaves_no_trace() {
    let sent = bytes(1480);
    let (good, frame) = read(V4, (1, 8, true), &sent);
    let fragment = |offset, more| Some(Fragment { id: 1, offset, more });
    let lies = [
        (Parsed { fragment: None, ..good }, Refusal::Unexpected),
        (Parsed { payload_len: 0, ..good }, Refusal::Malformed),
        (Parsed { payload_len: 12, ..good }, Refusal::Malformed),
        (Parsed { fragment: fragment(3, true), ..good }, Refusal::Malformed),
        (Parsed { fragment: fragment(65_528, false), ..good }, Refusal::OutOfBounds),
        (Parsed { fragment: fragment(u32::MAX - 7, true), ..good }, Refusal::OutOfBounds),
        (Parsed { payload_len: 1488, ..good }, Refusal::Truncated),
        (Parsed { payload_len: u32::MAX - 7, ..good }, Refusal::OutOfBounds),
        (Parsed { payload_at: u16::MAX, ..good }, Refusal::Truncated),
        (
            Parsed { fragment: fragment(0, true), payload_at: 200, payload_len: 8, ..good },
            Refusal::NoRoom,
        ),
    ];
    let mut host = Host::small();
    for (parsed, expected) in lies {
        let pieces = Pieces::one(FRAME.span(0, frame.len() as u32));
        let arrived = Arrived { parsed: &parsed, head: &frame, frame: &pieces, split: 8 };
        let result = host.reassembly.insert(NOW, &arrived, &mut host.buffers, &mut host.bytes);
        assert_eq!(result, Err(expected), "{parsed:?}");
        assert!(host.is_clean() && host.reassembly.is_empty());
    }
}

/// The last piece shows that the packet is longer than one can be: IPv4 counts the
/// header of the first as well.
#[test]
fn a_packet_longer_than_its_length_field_is_refused() {
    let sent = bytes(65_535);
    for (options, total, fits) in [(0, 65_515, true), (4, 65_515, false), (4, 65_511, true)] {
        let mut host = Host::small();
        for start in (8..total).step_by(8000).rev() {
            let end = (start + 8000).min(total);
            let piece = (1, start as u32, end < total);
            assert_eq!(host.piece(V4, piece, &sent[start..end]), Ok(None));
        }
        let first = host.piece(FragmentSource { options, ..V4 }, (1, 0, true), &sent[..8]);
        if fits {
            let whole = host.take(&first.unwrap().unwrap());
            assert_eq!(whole.len(), 14 + 20 + options + total);
            assert_eq!(whole[34 + options..], sent[..total]);
        } else {
            assert_eq!(first, Err(Refusal::OutOfBounds));
            assert_eq!(host.reassembly.counters().refused, 1);
        }
        assert!(host.is_clean());
    }
}

/// The smallest pieces there are, with a transport header in three of them: the
/// packet is passed on whole, so that nobody is fooled.
#[test]
fn tiny_pieces_become_the_packet_in_any_order() {
    let sent = bytes(5000);
    for from in [V4, V6] {
        for split in [0, 8, 20, 128] {
            let mut host = Host::small();
            let starts = (0..5000).step_by(8);
            // Every second one first: as many holes as can be.
            let order = starts.clone().step_by(2).rev().chain(starts.skip(1).step_by(2));
            let mut out = None;
            for start in order {
                assert_eq!(out, None);
                let end = (start + 8).min(5000);
                let piece = frame(from, Some((1, start as u32, end < 5000)), &sent[start..end]);
                out = host.receive(NOW, &piece, split).unwrap();
            }
            let whole = host.take(&out.unwrap());
            let id = if from.is_v6 { None } else { Some((1, 0, false)) };
            assert_eq!(whole, frame(from, id, &sent));
            assert!(host.is_clean());
        }
    }
}

#[test]
fn the_protocol_of_an_ipv6_packet_is_that_of_its_first_piece() {
    let sent = bytes(24);
    for (from, is_whole) in [(V6, true), (V4, false)] {
        let mut host = Host::small();
        host.piece(FragmentSource { protocol: 99, ..from }, (1, 16, false), &sent[16..]).unwrap();
        let whole = host.piece(from, (1, 0, true), &sent[..16]).unwrap();
        assert_eq!(whole.is_some(), is_whole);
        if let Some(packet) = whole {
            assert_eq!(host.take(&packet), frame(V6, None, &sent));
        }
    }
}

/// RFC 3168, section 5.3: a signal on one piece is one on the packet.
#[test]
fn congestion_on_a_piece_is_congestion_of_the_packet() {
    use Ecn::{Capable0, Capable1, CongestionExperienced, NotCapable};
    let sent = bytes(24);
    for (first, last, expected) in [
        (NotCapable, NotCapable, Ok(NotCapable)),
        (Capable0, Capable0, Ok(Capable0)),
        (Capable0, Capable1, Ok(Capable0)),
        (Capable0, CongestionExperienced, Ok(CongestionExperienced)),
        (CongestionExperienced, Capable1, Ok(CongestionExperienced)),
        (CongestionExperienced, CongestionExperienced, Ok(CongestionExperienced)),
        (NotCapable, CongestionExperienced, Err(Refusal::Malformed)),
        (Capable0, NotCapable, Err(Refusal::Malformed)),
    ] {
        for from in [V4, V6] {
            let mut host = Host::small();
            host.piece(FragmentSource { ecn: first, ..from }, (1, 0, true), &sent[..16]).unwrap();
            let whole =
                host.piece(FragmentSource { ecn: last, ..from }, (1, 16, false), &sent[16..]);
            let id = if from.is_v6 { None } else { Some((1, 0, false)) };
            let expected = expected.map(|ecn| frame(FragmentSource { ecn, ..from }, id, &sent));
            let whole = whole.map(|packet| host.take(&packet.unwrap()));
            assert_eq!(whole, expected, "{first:?}, {last:?}");
            assert!(host.is_clean());
            assert_eq!(host.reassembly.is_empty(), whole.is_ok(), "what still comes is refused");
        }
    }
}

/// RFC 6946: it is no piece of the packet of the same name.
#[test]
fn an_atomic_piece_passes_alone() {
    let sent = bytes(48);
    let mut host = Host::small();
    host.piece(V6, (1, 0, true), &sent[..24]).unwrap();
    for split in [0, 8, 100] {
        let alone = frame(V6, Some((1, 0, false)), &[7; 50]);
        let packet = host.receive(NOW, &alone, split).unwrap().unwrap();
        assert_eq!(packet.path, ReassemblyPath::Whole);
        assert_eq!(host.take(&packet), frame(V6, None, &[7; 50]));
    }
    let whole = host.piece(V6, (1, 24, false), &sent[24..]).unwrap().unwrap();
    assert_eq!(host.take(&whole), frame(V6, None, &sent));
    assert_eq!((host.reassembly.counters().atomic, host.is_clean()), (3, true));
}

#[test]
fn an_atomic_piece_may_be_empty() {
    let mut host = Host::small();
    for split in [0, 8, 100] {
        let packet =
            host.receive(NOW, &frame(V6, Some((1, 0, false)), &[]), split).unwrap().unwrap();
        assert_eq!(host.take(&packet), frame(V6, None, &[]));
    }
    assert_eq!((host.reassembly.counters().atomic, host.is_clean()), (3, true));
}

#[test]
fn invariant_1_a_piece_that_comes_late_touches_nothing_delivered() {
    let sent = bytes(48);
    let mut host = Host::small();
    host.piece(V4, (1, 0, true), &sent[..24]).unwrap();
    let whole = host.piece(V4, (1, 24, false), &sent[24..]).unwrap().unwrap();
    assert_eq!(host.piece(V4, (1, 0, true), &[9; 24]), Ok(None), "the beginning of another");
    assert_eq!(host.piece(V4, (1, 24, true), &[9; 24]), Ok(None));
    assert_eq!(host.take(&whole), frame(V4, Some((1, 0, false)), &sent));
}

#[test]
fn a_head_at_hand_that_ends_early_is_enough() {
    let sent = bytes(48);
    let mut host = Host::small();
    for (id, shown) in [(1, 34), (2, 38), (3, 42), (4, 58)] {
        for start in [0, 24] {
            let (parsed, frame) =
                read(V4, (id, start as u32, start == 0), &sent[start..start + 24]);
            host.bytes.0[2][..frame.len()].copy_from_slice(&frame);
            // The frame lies in three places.
            let (head, rest) = FRAME.span(0, frame.len() as u32).split_at(40);
            let pieces = Pieces::new([head, rest.split_at(3).0, rest.split_at(3).1]);
            let head = &frame[..shown];
            let arrived = Arrived { parsed: &parsed, head, frame: &pieces, split: 8 };
            let packet =
                host.reassembly.insert(NOW, &arrived, &mut host.buffers, &mut host.bytes).unwrap();
            if let Some(packet) = packet {
                assert_eq!(host.take(&packet), super::frame(V4, Some((id, 0, false)), &sent));
            }
        }
    }
    assert!(host.is_clean() && host.reassembly.counters().whole == 4);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A piece from here on, of this many times 8 bytes; the last one is shorter.
    Piece {
        name: Name,
        start: u32,
        len: u32,
        more: bool,
        ecn: Ecn,
        split: u16,
        changed: bool,
    },
    /// Pieces of this many times 8 bytes landed in a page, this many milliseconds ago.
    Page {
        name: Name,
        unit: u32,
        count: u32,
        ecn: Ecn,
        split: u16,
        ago: u32,
    },
    /// A packet in order, in pieces of this many times 8 bytes.
    InOrder {
        name: Name,
        unit: u32,
        count: u32,
    },
    Wait(u32),
    /// The oldest packet that the user holds is given back.
    Release,
}

fn names() -> impl Strategy<Value = Name> {
    (0..3u32, any::<bool>(), 0..3u32)
}

fn marks() -> impl Strategy<Value = Ecn> {
    prop_oneof![
        8 => Just(Ecn::Capable0),
        1 => Just(Ecn::NotCapable),
        1 => Just(Ecn::CongestionExperienced),
    ]
}

fn splits() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0), Just(8), Just(20), Just(66), Just(128), Just(500)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Pieces that fit each other: few cuts, at multiples of 64 bytes, some far away.
    let starts = prop_oneof![6 => (0..6u32).prop_map(|n| n * 8), 1 => Just(520), 1 => 0..50u32];
    let lens = prop_oneof![6 => Just(8u32), 2 => Just(16u32), 1 => 1..30u32];
    let piece =
        (names(), starts, lens, prop::bool::weighted(0.8), marks(), splits(), any::<bool>())
            .prop_map(|(name, start, len, more, ecn, split, changed)| Step::Piece {
                name,
                start,
                len,
                more,
                ecn,
                split,
                changed,
            });
    let page = (names(), prop_oneof![Just(8u32), 1..40u32], 1..6u32, marks(), splits(), 0..3000u32)
        .prop_map(|(name, unit, count, ecn, split, ago)| Step::Page {
            name,
            unit,
            count,
            ecn,
            split,
            ago,
        });
    let in_order = (names(), 1..190u32, 2..5u32).prop_map(|(name, unit, count)| Step::InOrder {
        name,
        unit,
        count,
    });
    let step = prop_oneof![
        12 => piece,
        2 => page,
        2 => in_order,
        1 => (0..4000u32).prop_map(Step::Wait),
        2 => Just(Step::Release),
    ];
    prop::collection::vec(step, 0..80)
}

fn configs() -> impl Strategy<Value = (Config, u32, u32)> {
    let lots = Config { lifetime: Duration::from_secs(5), ..Config::default() };
    let tight = (1..8u32, 0..5u32, 1..40u64, 1..24u64).prop_map(
        move |(packets, pages, bytes, per_source)| Config {
            packets,
            pages: if pages == 0 { u32::MAX } else { pages },
            bytes: bytes * u64::from(PAGE),
            bytes_per_source: per_source * u64::from(PAGE) - 1000,
            ..lots
        },
    );
    (prop_oneof![Just(lots), tight], 0..8u32, 0..3u32)
}

/// The reassembly beside the model, with what the user holds.
struct Both {
    host: Host,
    model: Model,
    now: Instant,
    held: std::collections::VecDeque<(Packet, Vec<u8>)>,
}

impl Both {
    fn content(name: Name, range: std::ops::Range<u32>) -> Vec<u8> {
        let byte = |at: u32| (at * 7 + at / 256 + name.0 * 31 + name.2 * 17) as u8;
        range.map(byte).collect()
    }

    fn piece(&mut self, piece: &Piece, split: u16) -> Result<(), TestCaseError> {
        let Piece { name, start, more, ecn, bytes } = piece;
        let frame = frame(from(*name, *ecn), Some((name.2, *start, *more)), bytes);
        let result = self.host.receive(self.now, &frame, split);
        let expected = self.model.insert(self.now, piece, u32::from(split.min(128)));
        self.compare(result, expected)
    }

    fn page(
        &mut self,
        name: Name,
        unit: u32,
        count: u32,
        (ecn, split, ago): (Ecn, u16, u32),
    ) -> Result<(), TestCaseError> {
        let filled = unit * count * 8;
        if self.model.free_pages == 0 || u32::from(split.min(129)) > unit * 8 || split > 128 {
            return Ok(());
        }
        let started = self.now - Duration::from_millis(ago.into());
        let landed =
            Landed { from: from(name, ecn), id: name.2, unit: unit * 8, split, filled, started };
        let sent = Self::content(name, 0..filled);
        let result = self.host.adopt(self.now, landed, &sent).expect("a page is free");
        let pieces: Vec<_> = (0..count)
            .map(|n| n * unit * 8)
            .map(|start| Piece {
                name,
                start,
                more: true,
                ecn,
                bytes: Self::content(name, start..start + unit * 8),
            })
            .collect();
        self.model.free_pages -= 1;
        let expected = self.model.adopt(self.now, started, &pieces, split.into());
        self.compare(result, expected)
    }

    fn compare(
        &mut self,
        result: Result<Option<Packet>, Refusal>,
        expected: Result<Option<Vec<u8>>, Refusal>,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(
            result.map(|packet| packet.is_some()),
            expected.clone().map(|packet| packet.is_some())
        );
        if let (Ok(Some(packet)), Ok(Some(bytes))) = (result, expected) {
            self.held.push_back((packet, bytes));
        }
        prop_assert_eq!(self.host.buffers.free_pages(), self.model.free_pages as usize);
        prop_assert_eq!(self.host.buffers.free_large(), self.model.free_large as usize);
        prop_assert_eq!(self.host.reassembly.is_empty(), self.model.is_empty());
        prop_assert_eq!(self.host.reassembly.poll_timeout(), self.model.next_end());
        for name in (0..18).map(|n| (n % 3, n / 9 > 0, n / 3 % 3)) {
            let key = read(from(name, Ecn::Capable0), (name.2, 8, true), &[0; 8]).0.key;
            prop_assert_eq!(self.host.reassembly.contains(&key), self.model.contains(name));
        }
        Ok(())
    }

    fn release(&mut self) -> Result<(), TestCaseError> {
        let Some((packet, bytes)) = self.held.pop_front() else { return Ok(()) };
        let pages = self.host.buffers.free_pages();
        // Whatever came in between: delivered bytes are final.
        prop_assert_eq!(self.host.take(&packet), bytes);
        let was_page = self.host.buffers.free_pages() > pages;
        *(if was_page { &mut self.model.free_pages } else { &mut self.model.free_large }) += 1;
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Piece { name, start, len, more, ecn, split, changed } => {
                let (start, mut end) = (start * 8, (start + len) * 8);
                end -= u32::from(!more) * 3;
                // Atomic pieces of IPv4 are no pieces.
                if !name.1 && start == 0 && !more {
                    return Ok(());
                }
                let mut bytes = Self::content(name, start..end);
                bytes[0] ^= u8::from(changed);
                self.piece(&Piece { name, start, more, ecn, bytes }, split)
            }
            Step::Page { name, unit, count, ecn, split, ago } => {
                self.page(name, unit, count, (ecn, split, ago))
            }
            Step::InOrder { name, unit, count } => {
                for n in 0..count {
                    let (start, end) = (n * unit * 8, (n + 1) * unit * 8);
                    let (more, ecn) = (n + 1 < count, Ecn::Capable0);
                    let bytes = Self::content(name, start..end);
                    self.piece(&Piece { name, start, more, ecn, bytes }, 8)?;
                }
                Ok(())
            }
            Step::Wait(millis) => {
                self.now += Duration::from_millis(millis.into());
                self.host.at(self.now);
                self.model.expire(self.now);
                self.compare(Ok(None), Ok(None))
            }
            Step::Release => self.release(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn invariants_1_5_and_8_any_sequence_ends_as_the_model_says(
        (config, pages, large) in configs(),
        steps in steps(),
    ) {
        let host = Host::new(config, pages, large);
        let model = Model::new(config, pages, large);
        let mut both = Both { host, model, now: Instant::from_millis(10_000), held: Default::default() };
        for step in steps {
            both.step(step)?;
        }
        while !both.held.is_empty() {
            both.release()?;
        }
        both.step(Step::Wait(5_000))?;
        prop_assert!(both.host.is_clean() && both.host.reassembly.is_empty(), "nothing is lost");
    }
}
