//! The eight invariants of the architecture, each held by tests that name it;
//! and the corpus of the fuzz target, so that what was found stays found.

use landfall_placement::{
    Ecn, Engine, Instant, Landing, PathId, Peer, Placement, Random, Refusal, Spans, Ticket, Unit,
};
use landfall_testkit::corpus::replay;
use landfall_testkit::engines::Area;
use landfall_testkit::engines::numbered::header::{Header, Kind};
use landfall_testkit::engines::numbered::{self, Config, Numbered};
use landfall_testkit::engines::stream::{self, Stream};
use landfall_testkit::model::{Checked, Faults, NaiveWire, placement_bookkeeping};
use landfall_testkit::trials::{cases, rounds, try_inputs};
use proptest::prelude::*;

use crate::support::numbered::{PATH, transfer, wire};
use crate::support::stream::{Transfer, framings, limits};
use crate::support::{BAD, pattern};

const LENS: [usize; 6] = [1, 1024, 3_000, 40_000, 40_000, 9];

fn bad_faults() -> impl Strategy<Value = Faults> {
    (0..60_000u32, 0..60_000u32, 0..300_000u32, 0..20_000u32, 0..20_000u32).prop_map(
        |(loss, duplication, reordering, corruption, failing)| Faults {
            loss,
            duplication,
            reordering,
            corruption,
            failing,
            cutting: reordering * 3,
        },
    )
}

fn patient() -> Config {
    Config { give_up_after: 1_000, ..Config::default() }.with_checksum()
}

fn patient_stream(framing: usize) -> stream::Config {
    let config = stream::Config::new(framings()[framing], PathId(0));
    stream::Config { give_up_after: 1_000, checksum: true, ..config }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(12)))]

    #[test]
    fn invariant_1_delivered_bytes_are_final_numbered(faults in bad_faults(), seed: u64) {
        transfer(patient(), faults, seed, &LENS);
    }

    #[test]
    fn invariant_1_delivered_bytes_are_final_stream(
        faults in bad_faults(),
        seed: u64,
        framing in 0..3usize,
        cuts: bool,
    ) {
        let transfer = Transfer { piece: 3_001, slot: 2_999, slots: 20, total: 60_000 };
        transfer.run(patient_stream(framing), cuts, faults, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    /// Memory that was given back keeps what it held, whatever happens: late
    /// units, wrong guesses, failed landings, paths that go down.
    #[test]
    fn invariant_1_nothing_writes_after_the_end(
        operations in prop::collection::vec(any::<u8>(), 1..900),
    ) {
        prop_assert_eq!(placement_bookkeeping(&operations), Vec::<String>::new());
    }
}

/// Two numbered engines with one message of `len` bytes whose place was granted,
/// and its units.
fn granted(config: Config, len: usize) -> (NaiveWire<Checked<Numbered>>, Vec<Vec<u8>>) {
    let mut wire = wire(config, Faults::default(), 1);
    let source = wire.sides[0].memory.lend(pattern(len, 1));
    let place = wire.sides[1].memory.lend(vec![0; len]);
    wire.sides[1].engine.engine.receive_into(Area::new(place, 0, len as u64)).unwrap();
    let area = Area::new(source, 0, len as u64);
    wire.sides[0].engine.engine.send(wire.now, PATH, Peer::Node(1), area).unwrap();
    wire.send(0);
    wire.receive(1);
    wire.send(1);
    wire.receive(0);
    wire.send(0);
    let units = wire.take(1);
    assert_eq!(units.len(), len.div_ceil(1024));
    (wire, units)
}

/// Asks for the place of a unit that is at hand whole.
fn place<E: Engine>(engine: &mut E, bytes: &[u8]) -> Result<Placement, Refusal> {
    let unit = Unit {
        path: PathId(0),
        from: Peer::Node(0),
        head: bytes,
        len: bytes.len() as u32,
        segment: None,
        ecn: Ecn::NotCapable,
        verified: false,
    };
    engine.place(Instant::ZERO, &unit, &mut Spans::new())
}

fn ticket(placed: Result<Placement, Refusal>) -> Ticket {
    match placed {
        Ok(Placement::Into { ticket, .. }) => ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn invariant_2_numbered_says_nothing_before_it_is_in_place() {
    let (mut wire, units) = granted(Config { ack_every: 1, ..Config::default() }, 5_000);
    let engine = &mut wire.sides[1].engine;
    let tickets: Vec<_> = units.iter().map(|unit| ticket(place(engine, unit))).collect();
    // A repetition is what makes a receiver speak at once.
    assert_eq!(place(engine, &units[0]), Err(Refusal::Duplicate));
    assert_eq!(engine.poll_event(), None);
    wire.send(1);
    for said in wire.take(0) {
        let (header, kind) = Header::read(&said).unwrap();
        assert_eq!((kind, header.unit.get(), header.word.get()), (Kind::Ack, 0, 0));
    }
    let last = tickets.len() - 1;
    for (n, ticket) in tickets.into_iter().enumerate() {
        wire.sides[1].engine.handle_placed(Instant::ZERO, ticket, Landing::Unchecked);
        wire.send(1);
        let said = wire.take(0);
        let (header, kind) = Header::read(said.last().unwrap()).unwrap();
        if n == last {
            assert_eq!(kind, Kind::Done);
        } else {
            assert_eq!((kind, header.unit.get() as usize), (Kind::Ack, n + 1));
        }
    }
    let event = wire.sides[1].engine.poll_event();
    assert!(matches!(event, Some(numbered::Event::Delivered { len: 5_000, .. })), "{event:?}");
}

/// Two streams that are open, with memory posted at side 1.
fn opened(config: stream::Config) -> NaiveWire<Checked<Stream>> {
    let framing = config.framing.reversed(Peer::Node(0));
    let engines = [
        Stream::connect(config, [1; 32]),
        Stream::listen(stream::Config { framing, ..config }, [2; 32]),
    ];
    let mut wire = NaiveWire::new(engines.map(Checked::new), limits(false), Faults::default(), 1);
    let place = wire.sides[1].memory.lend(vec![0; 10_000]);
    wire.sides[1].engine.engine.receive_into(Area::new(place, 0, 10_000)).unwrap();
    wire.settle(10);
    assert!(wire.sides.iter().all(|side| side.engine.engine.is_open()));
    wire
}

fn send_stream(wire: &mut NaiveWire<Checked<Stream>>, len: usize) -> Vec<Vec<u8>> {
    let source = wire.sides[0].memory.lend(pattern(len, 1));
    wire.sides[0].engine.engine.send(Area::new(source, 0, len as u64)).unwrap();
    wire.send(0);
    wire.take(1)
}

#[test]
fn invariant_2_stream_says_nothing_before_it_is_in_place() {
    let mut wire = opened(stream::Config::new(framings()[2], PathId(0)));
    let units = send_stream(&mut wire, 5_000);
    let expected = |unit: &[u8]| u32::from_be_bytes(unit[8..12].try_into().unwrap());
    let first = u32::from_be_bytes(units[0][4..8].try_into().unwrap());
    let engine = &mut wire.sides[1].engine;
    let tickets: Vec<_> = units.iter().map(|unit| ticket(place(engine, unit))).collect();
    assert_eq!(place(engine, &units[0]), Err(Refusal::Duplicate));
    wire.send(1);
    let said = wire.take(0);
    assert!(!said.is_empty() && said.iter().all(|unit| expected(unit) == first));
    assert_eq!(wire.sides[1].engine.engine.received(), 0);
    for ticket in tickets {
        wire.sides[1].engine.handle_placed(Instant::ZERO, ticket, Landing::Unchecked);
    }
    wire.send(1);
    let said = wire.take(0);
    assert_eq!(expected(said.last().unwrap()), first.wrapping_add(5_000));
}

#[test]
fn invariant_3_a_flipped_bit_is_never_accepted_numbered() {
    for len in [300, 1_500] {
        let (mut wire, units) = granted(Config::default().with_checksum(), len);
        let unit = &units[0];
        for bit in 0..unit.len() * 8 {
            let mut bad = unit.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            wire.inject(1, bad);
            wire.receive(1);
            assert_eq!(wire.sides[1].engine.poll_event(), None, "bit {bit}");
            wire.take(1);
        }
        let refused = wire.sides[1].engine.refusals().total();
        assert_eq!(refused, unit.len() as u64 * 8, "each is counted once");
        for unit in units {
            wire.inject(1, unit);
        }
        wire.receive(1);
        let event = wire.sides[1].engine.poll_event();
        let Some(numbered::Event::Delivered { posted, .. }) = event else { panic!("{event:?}") };
        assert_eq!(wire.sides[1].memory.region(posted.region).unwrap(), pattern(len, 1));
        assert_eq!(wire.sides[1].engine.violations(), []);
    }
}

#[test]
fn invariant_3_a_flipped_bit_is_never_accepted_stream() {
    for framing in framings() {
        let config = stream::Config { checksum: true, ..stream::Config::new(framing, PathId(0)) };
        let mut wire = opened(config);
        let units = send_stream(&mut wire, 300);
        let before = wire.sides[1].engine.refusals().total();
        for bit in 0..units[0].len() * 8 {
            let mut bad = units[0].clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            wire.inject(1, bad);
            wire.receive(1);
            // What the headers before IP's payload do not cover may change:
            // traffic class, flow label, hops of IPv6.
            if wire.sides[1].engine.engine.received() != 0 {
                assert_eq!(framing, framings()[1], "bit {bit}");
                assert!((14 * 8..22 * 8).contains(&bit), "bit {bit}");
                return;
            }
        }
        assert!(wire.sides[1].engine.refusals().total() >= before + units[0].len() as u64 * 7);
        wire.inject(1, units[0].clone());
        wire.receive(1);
        assert_eq!(wire.sides[1].engine.engine.received(), 300);
        let refused = wire.sides[1].engine.refusals();
        assert!(refused.of(Refusal::BadChecksum) > 0, "{refused}");
    }
}

#[test]
fn invariant_3_each_check_has_its_counter() {
    let (mut wire, units) = granted(Config::default(), 5_000);
    let engine = &mut wire.sides[1].engine;
    let mut expect = |at: usize, value: u8, refusal| {
        let mut bad = units[1].clone();
        bad[at] ^= value;
        let refused = *engine.refusals();
        assert_eq!(place(engine, &bad), Err(refusal), "byte {at}");
        let refusals = engine.refusals();
        assert_eq!(refusals.of(refusal), refused.of(refusal) + 1, "byte {at}");
        assert_eq!(refusals.total(), refused.total() + 1, "byte {at}: and no other");
    };
    expect(0, 1, Refusal::Unsupported);
    expect(8, 1, Refusal::WrongKey);
    expect(12, 1, Refusal::UnknownId);
    expect(16, 1, Refusal::OutOfBounds);
    expect(23, 1, Refusal::Malformed);
    assert_eq!(place(engine, &units[1][..39]), Err(Refusal::Truncated));
    assert_eq!(engine.violations(), []);
}

#[test]
fn invariant_4_misses_lose_nothing() {
    // Every unit changes places with another: nearly no guess is right.
    let faults = Faults { reordering: 1_000_000, ..Faults::default() };
    for seed in 0..4 {
        transfer(Config::default(), faults, seed, &LENS);
        let ring = Transfer { piece: 5_000, slot: 2_999, slots: 20, total: 100_000 };
        ring.run(patient_stream(seed as usize % 3), seed % 2 == 0, faults, seed);
    }
}

#[test]
fn invariant_5_numbered_is_bounded() {
    let config = Config { posted: 3, outgoing: 2, fetches: 1, ..Config::default() };
    let mut wire = wire(config, Faults::default(), 1);
    let region = wire.sides[0].memory.lend(vec![1; 1 << 16]);
    let area = |n: u64| Area::new(region, n * 100, 100);
    let engine = &mut wire.sides[0].engine.engine;
    for n in 0..3 {
        engine.receive_into(area(n)).unwrap();
    }
    assert_eq!(engine.receive_into(area(3)), Err(numbered::Error::Busy));
    assert_eq!(engine.receive_into(area(0)), Err(numbered::Error::Busy));
    engine.take_back_posted().unwrap();
    assert_eq!(engine.receive_into(area(0)), Err(numbered::Error::Overlap));
    assert_eq!(engine.receive_into(Area::new(region, 0, 0)), Err(numbered::Error::BadMemory));
    for n in 0..2 {
        engine.send(Instant::ZERO, PATH, Peer::Node(1), area(n)).unwrap();
    }
    let third = engine.send(Instant::ZERO, PATH, Peer::Node(1), area(3));
    assert_eq!(third, Err(numbered::Error::Busy));
    // Requests from ever new strangers find a full table, and then no room.
    for stranger in 0..10_000u32 {
        let mut request = Header::new(Kind::Request, 0, 0);
        (request.unit, request.total) = (64.into(), 100.into());
        let mut head = [0; 40];
        request.write_alone(&mut head).unwrap();
        let from = Peer::Node(10 + stranger);
        let unit = Unit {
            path: PATH,
            from,
            head: &head,
            len: 40,
            segment: None,
            ecn: Ecn::NotCapable,
            verified: false,
        };
        let _ = engine.place(Instant::ZERO, &unit, &mut Spans::new());
    }
    assert!(engine.refusals().of(Refusal::NoRoom) > 9_000);
}

#[test]
fn invariant_5_events_that_nobody_takes_stop_what_is_asked() {
    let mut wire = wire(Config { posted: 3, ..Config::default() }, Faults::default(), 1);
    let source = wire.sides[0].memory.lend(vec![1; 64]);
    let place = wire.sides[1].memory.lend(vec![0; 64]);
    let mut stopped = [false; 2];
    for _ in 0..1_000 {
        let now = wire.now;
        let posted = wire.sides[1].engine.engine.receive_into(Area::new(place, 0, 64));
        wire.sides[1].engine.reuse(&Area::new(place, 0, 64));
        let sent =
            wire.sides[0].engine.engine.send(now, PATH, Peer::Node(1), Area::new(source, 0, 64));
        stopped = [posted == Err(numbered::Error::Busy), sent == Err(numbered::Error::Busy)];
        if stopped == [true; 2] {
            break;
        }
        wire.settle(20);
        wire.pass_time();
    }
    assert_eq!(stopped, [true; 2]);
    // Anyone who takes them can go on.
    for side in &mut wire.sides {
        while side.engine.poll_event().is_some() {}
    }
    assert!(wire.sides[1].engine.engine.receive_into(Area::new(place, 0, 64)).is_ok());
}

#[test]
fn invariant_5_stream_is_bounded() {
    let config = stream::Config { areas: 2, ..stream::Config::new(framings()[2], PathId(0)) };
    let mut engine = Stream::connect(config, [1; 32]);
    let area = |n: u64| Area::new(landfall_placement::RegionId::new(0, 0), n * 100, 100);
    for n in 0..2 {
        engine.receive_into(area(n)).unwrap();
        engine.send(area(n)).unwrap();
    }
    assert_eq!(engine.receive_into(area(2)), Err(stream::Error::Busy));
    assert_eq!(engine.send(area(2)), Err(stream::Error::Busy));
    assert_eq!(engine.receive_into(area(1)), Err(stream::Error::Overlap));
    engine.close();
    assert_eq!(engine.send(area(2)), Err(stream::Error::Closed));
}

#[test]
fn invariant_6_two_runs_give_the_same_bytes() {
    for seed in 0..3 {
        let numbered = || transfer(patient(), BAD, seed, &LENS);
        assert_eq!(numbered(), numbered());
        let stream = || {
            let transfer = Transfer { piece: 3_001, slot: 2_999, slots: 20, total: 60_000 };
            transfer.run(patient_stream(seed as usize), true, BAD, seed)
        };
        assert_eq!(stream(), stream());
    }
    let other = |seed| transfer(patient(), BAD, seed, &LENS);
    assert_ne!(other(1), other(2), "the digest says something");
}

/// Everything about an engine, as text.
fn state(engine: &impl core::fmt::Debug) -> String {
    format!("{engine:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(20)))]

    #[test]
    fn invariant_7_tickets_of_nothing_change_nothing(raws in prop::collection::vec(any::<u64>(), 6)) {
        // Small tables: their text is compared.
        let small = Config { window: 8 << 10, incoming: 2, outgoing: 2, connections: 2, ..Config::default() };
        let (wire, _) = granted(small, 5_000);
        let [sender, receiver] = wire.sides;
        let small = stream::Config { under_way: 8, ..stream::Config::new(framings()[0], PathId(0)) };
        let opened = opened(small);
        let [_, stream] = opened.sides;
        let mut engines = [sender.engine.engine, receiver.engine.engine];
        let mut stream = stream.engine.engine;
        for raw in raws {
            // Small numbers are the likely ones.
            for raw in [raw, raw & 0xff, raw & 0xff_0000_00ff, raw | 7 << 61] {
                let ticket = Ticket::from_raw(raw);
                for engine in &mut engines {
                    let before = state(engine);
                    engine.handle_placed(Instant::ZERO, ticket, Landing::Verified);
                    engine.handle_placed(Instant::ZERO, ticket, Landing::Old(raw));
                    engine.handle_sent(Instant::ZERO, ticket);
                    prop_assert_eq!(before, state(engine));
                }
                let before = state(&stream);
                stream.handle_placed(Instant::ZERO, ticket, Landing::Verified);
                stream.handle_sent(Instant::ZERO, ticket);
                prop_assert_eq!(before, state(&stream));
            }
        }
    }
}

#[test]
fn invariant_7_a_landing_counts_once() {
    let (mut wire, units) = granted(Config::default(), 5_000);
    let engine = &mut wire.sides[1].engine.engine;
    let first = ticket(place(engine, &units[2]));
    engine.handle_placed(Instant::ZERO, first, Landing::Failed);
    let second = ticket(place(engine, &units[2]));
    assert_ne!(first, second);
    let before = state(engine);
    engine.handle_placed(Instant::ZERO, first, Landing::Verified);
    assert_eq!(before, state(engine), "the ticket of the first time is stale");
    engine.handle_placed(Instant::ZERO, second, Landing::Verified);
    let before = state(engine);
    engine.handle_placed(Instant::ZERO, second, Landing::Verified);
    assert_eq!(before, state(engine));
}

/// Any landing for whatever was placed.
fn land_somehow<E: Engine>(engine: &mut E, bytes: &[u8], random: &mut Random) {
    match place(engine, bytes) {
        Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) => {
            let landings = [
                Landing::Verified,
                Landing::Unchecked,
                Landing::Old(7),
                Landing::Corrupt,
                Landing::Failed,
            ];
            let landing = landings[random.below(landings.len() as u64) as usize];
            engine.handle_placed(Instant::from_nanos(random.next_u64()), ticket, landing);
        }
        Ok(Placement::NeedHead(_) | Placement::Consumed) | Err(_) => {}
    }
    while engine.poll_event().is_some() {}
    let (mut head, mut from) = ([0; 256], Spans::new());
    for _ in 0..4 {
        from.clear();
        let now = Instant::from_nanos(random.next_u64());
        engine.handle_timeout(now);
        engine.guess(PathId(0), random.below(5) as usize);
        if let Some(sent) = engine.poll_transmit(now, PathId(0), &mut head, &mut from) {
            engine.handle_sent(now, sent.ticket);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(60)))]

    /// Real units with any bytes written over any part, cut anywhere.
    #[test]
    fn invariant_8_no_panic_on_input(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..9)),
            40,
        ),
        junk in prop::collection::vec(any::<u8>(), 0..200),
        seed: u64,
    ) {
        let mut random = Random::from_number(seed);
        let (mut wire, units) = granted(Config::default(), 20_000);
        let mut opened = framings().map(|framing| {
            let mut wire = opened(stream::Config::new(framing, PathId(0)));
            let units = send_stream(&mut wire, 4_000);
            (wire, units)
        });
        let change = |units: &[Vec<u8>], (which, at, bytes): &(prop::sample::Index, prop::sample::Index, Vec<u8>)| {
            let mut unit = which.get(units).clone();
            let at = at.index(unit.len());
            let len = bytes.len().min(unit.len() - at);
            unit[at..at + len].copy_from_slice(&bytes[..len]);
            if bytes[0] % 4 == 0 {
                unit.truncate(at);
            }
            unit
        };
        for one in &changes {
            land_somehow(&mut wire.sides[1].engine.engine, &change(&units, one), &mut random);
            for (wire, units) in &mut opened {
                land_somehow(&mut wire.sides[1].engine.engine, &change(units, one), &mut random);
            }
        }
        land_somehow(&mut wire.sides[0].engine.engine, &junk, &mut random);
        for (wire, _) in &mut opened {
            land_somehow(&mut wire.sides[0].engine.engine, &junk, &mut random);
        }
    }
}

#[test]
fn random_operations_break_no_rule() {
    try_inputs(0..rounds(1_000, 50_000), 1..901, placement_bookkeeping);
}

#[test]
fn the_corpus_breaks_no_rule() {
    replay("placement_bookkeeping", 20, placement_bookkeeping);
}
