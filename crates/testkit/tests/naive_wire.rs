//! Halves over the naive wire: one checksum over two units, and deposits.

use landfall_placement::{Engine, Instant, PathLimits, Peer, Placement, Refusal, Spans, Unit};
use landfall_testkit::engines::Halves;
use landfall_testkit::engines::halves::Event;
use landfall_testkit::model::{Checked, Faults, NaiveWire};

use crate::support::pattern;

type Wire = NaiveWire<Checked<Halves>>;

const LEN: usize = 1451;

fn wire(faults: Faults, seed: u64) -> Wire {
    let engines = [Peer::Node(1), Peer::Node(0)].map(|peer| Checked::new(Halves::new(peer)));
    NaiveWire::new(engines, PathLimits::plain(1500), faults, seed)
}

/// Sends one message, cut behind `first` bytes. Gives what arrived, if anything.
fn carry(wire: &mut Wire, salt: u64, first: u32) -> Option<Vec<u8>> {
    let [from, to] = &mut wire.sides;
    let source = from.memory.lend(pattern(LEN, salt));
    let place = to.memory.lend(vec![0; LEN + 9]);
    to.engine.engine.post(place.span(5, LEN as u32 + 4));
    let number = from.engine.engine.send(source.span(0, LEN as u32), first).unwrap();
    wire.settle(10);
    let [from, to] = &mut wire.sides;
    assert_eq!(from.engine.poll_event(), Some(Event::Sent(number)));
    match to.engine.poll_event()? {
        Event::Received(_, span) => Some(to.memory.get(&span).unwrap().to_vec()),
        Event::Lost(_) => None,
        Event::Sent(_) => panic!("nothing was sent from there"),
    }
}

#[test]
fn one_checksum_covers_both_halves_wherever_they_are_cut() {
    let mut wire = wire(Faults::default(), 1);
    for first in [1, 2, 3, 13, 700, 1024, 1450] {
        assert_eq!(carry(&mut wire, first.into(), first), Some(pattern(LEN, first.into())));
    }
    for side in &wire.sides {
        assert_eq!(side.engine.violations(), []);
        assert_eq!(side.engine.refusals().total(), 0);
    }
}

#[test]
fn invariant_3_a_flipped_bit_in_either_half_is_never_accepted() {
    let mut wire = wire(Faults::default(), 2);
    let source = wire.sides[0].memory.lend(pattern(64, 1));
    let place = wire.sides[1].memory.lend(vec![0xaa; 64]);
    wire.sides[1].engine.engine.post(place.span(0, 64));
    let halves = |wire: &mut Wire| {
        wire.sides[0].engine.engine.send(source.span(0, 64), 31).unwrap();
        wire.send(0);
        while wire.sides[0].engine.poll_event().is_some() {}
        wire.take(1)
    };
    for half in 0..2 {
        // What the second half says of itself is no part of the sum.
        let summed = if half == 0 { 0 } else { 8 * 12 };
        for bit in summed..8 * halves(&mut wire)[half].len() {
            let mut units = halves(&mut wire);
            units[half][bit / 8] ^= 1 << (bit % 8);
            units.into_iter().for_each(|unit| wire.inject(1, unit));
            wire.receive(1);
            assert!(!wire.deposit(1), "bit {bit} of half {half}");
        }
    }
    assert!(wire.sides[1].engine.refusals().of(Refusal::BadChecksum) > 500);
    assert_eq!(wire.sides[1].engine.violations(), []);
    assert_eq!(wire.sides[1].memory.region(place), Some(&[0xaa; 64][..]));
}

#[test]
fn invariant_2_a_deposit_that_failed_is_not_received() {
    let mut wire = wire(Faults { failing: 1_000_000, ..Faults::default() }, 3);
    assert_eq!(carry(&mut wire, 1, 700), None);
    assert_eq!(wire.sides[1].engine.violations(), []);
}

#[test]
fn invariant_8_no_panic_on_junk() {
    let mut engine = Checked::new(Halves::new(Peer::Node(0)));
    for (n, len) in (0..40).cycle().take(2000).enumerate() {
        let mut bytes = pattern(len, n as u64);
        if n % 3 > 0 && len > 3 {
            bytes[..4].copy_from_slice(&[b'H', b'v', (n % 2) as u8, 0]);
        }
        let unit = Unit {
            path: Wire::PATH,
            from: Peer::Node(1),
            head: &bytes,
            len: len as u32,
            segment: None,
            ecn: Default::default(),
            verified: false,
        };
        let answer = engine.place(Instant::ZERO, &unit, &mut Spans::new());
        assert!(matches!(answer, Ok(Placement::Consumed) | Err(_)));
        assert!(engine.poll_deposit(Instant::ZERO, &mut Spans::new()).is_none());
    }
    assert_eq!(engine.violations(), []);
}

/// The numbered engine over the naive wire.
mod numbered {
    use crate::support::BAD;
    use crate::support::numbered::{PATH, transfer, wire};
    use landfall_placement::{Engine, Peer, WordFunction, WordWidth};
    use landfall_testkit::engines::Area;
    use landfall_testkit::engines::numbered::{Config, Event};
    use landfall_testkit::model::Faults;

    #[test]
    fn messages_of_all_sizes_come_whole() {
        let lens = [1, 1023, 1024, 1025, 5000, 100_000, 100_000, 100_000, 7, 7, 1024, 300_000];
        let mut lens = lens.to_vec();
        lens.sort_unstable();
        transfer(Config::default(), Faults::default(), 1, &lens);
        transfer(Config::with_unit(1424).with_checksum(), Faults::default(), 1, &lens);
    }

    #[test]
    fn faults_cost_time_only() {
        let lens = [20_000, 20_000, 20_000, 20_000, 200_000, 200_000, 200_000];
        for seed in 0..10 {
            transfer(Config::default().with_checksum(), BAD, seed, &lens);
        }
    }

    #[test]
    fn words_take_effect_once() {
        let faults = Faults {
            loss: 100_000,
            duplication: 200_000,
            reordering: 200_000,
            ..Faults::default()
        };
        let mut wire = wire(Config { give_up_after: 100, ..Config::default() }, faults, 5);
        let region = wire.sides[1].memory.lend(vec![0; 64]);
        wire.sides[1].engine.engine.serve_words(Some(Area::new(region, 0, 64))).unwrap();
        let mut asked = 0;
        let mut olds = Vec::new();
        while olds.len() < 500 {
            let now = wire.now;
            while asked < 500 {
                let word = (8, WordWidth::Eight);
                let add = WordFunction::Add(1);
                if wire.sides[0].engine.engine.fetch(now, PATH, Peer::Node(1), word, add).is_err() {
                    break;
                }
                asked += 1;
            }
            assert!(wire.turn() || wire.pass_time());
            while let Some(event) = wire.sides[0].engine.poll_event() {
                let Event::Fetched { old, .. } = event else { panic!("{event:?}") };
                olds.push(old);
            }
        }
        olds.sort_unstable();
        assert!(olds.into_iter().eq(0..500));
    }
}

/// The byte stream over the naive wire.
mod stream {
    use crate::support::BAD;
    use crate::support::stream::{Transfer, framings};
    use landfall_placement::PathId;
    use landfall_testkit::engines::stream::Config;
    use landfall_testkit::model::Faults;

    #[test]
    fn streams_of_every_framing_come_whole() {
        for framing in framings() {
            for cuts in [false, true] {
                let config = Config::new(framing, PathId(0));
                let small = Transfer { piece: 777, slot: 1000, slots: 7, total: 50_000 };
                small.run(config, cuts, Faults::default(), 1);
                let large = Transfer { piece: 300_000, slot: 57_920, slots: 16, total: 3_000_000 };
                large.run(config.steady(), cuts, Faults::default(), 1);
            }
        }
    }

    #[test]
    fn faults_cost_time_only() {
        for (n, framing) in framings().into_iter().enumerate() {
            for seed in 0..5 {
                let mut config = Config::new(framing, PathId(0));
                config.checksum = true;
                config.give_up_after = 100;
                let cuts = (seed + n as u64).is_multiple_of(2);
                let many = Transfer { piece: 3_001, slot: 2_999, slots: 20, total: 200_000 };
                many.run(config, cuts, BAD, seed);
                let few = Transfer { piece: 100_000, slot: 70_000, slots: 3, total: 500_000 };
                few.run(config, cuts, BAD, seed);
            }
        }
    }
}
