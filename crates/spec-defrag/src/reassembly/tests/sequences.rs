//! Any sequence of pieces, pages and moments: the same as the model, step by step.

use proptest::prelude::*;

use super::adopting::Landed;
use super::model::{Model, Name, Piece, from};
use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A piece from here on, of so many times 8 bytes; the last one is shorter.
    Piece {
        name: Name,
        start: u32,
        len: u32,
        more: bool,
        ecn: Ecn,
        split: u16,
        changed: bool,
    },
    /// Pieces of so many times 8 bytes landed in a page, so many milliseconds ago.
    Page {
        name: Name,
        unit: u32,
        count: u32,
        ecn: Ecn,
        split: u16,
        ago: u32,
    },
    /// A packet in order, in pieces of so many times 8 bytes.
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
