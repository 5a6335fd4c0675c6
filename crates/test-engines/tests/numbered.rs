//! The numbered engine over the naive wire.

use landfall_placement::{PathLimits, Peer, WordFunction, WordWidth};
use landfall_test_engines::Area;
use landfall_test_engines::model::{Faults, NaiveWire};
use landfall_test_engines::numbered::{Config, Event, Numbered};

const LIMITS: PathLimits = PathLimits::plain(1472);

fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|n| ((n * 31 + salt) ^ (n >> 8)) as u8).collect()
}

fn wire(config: Config, faults: Faults, seed: u64) -> NaiveWire<Numbered> {
    NaiveWire::new([1, 2].map(|n| Numbered::new(config, [n; 32])), LIMITS, faults, seed)
}

/// Sends messages of these lengths from side 0 to side 1, and checks what came.
fn transfer(config: Config, faults: Faults, seed: u64, lens: &[usize]) {
    let mut wire = wire(config, faults, seed);
    let to = Peer::Node(1);
    let mut delivered = 0;
    let mut sent = 0;
    let mut next = 0;
    let mut sources = Vec::new();
    for (n, len) in lens.iter().enumerate() {
        let bytes = pattern(*len, n as u64);
        sources.push((wire.sides[0].memory.lend(bytes.clone()), bytes));
        let region = wire.sides[1].memory.lend(vec![0; *len]);
        wire.sides[1].engine.receive_into(Area::new(region, 0, *len as u64)).unwrap();
    }
    for _ in 0..200_000 {
        while next < lens.len() {
            let now = wire.now;
            let area = Area::new(sources[next].0, 0, lens[next] as u64);
            if wire.sides[0].engine.send(now, NaiveWire::<Numbered>::PATH, to, area).is_err() {
                break;
            }
            next += 1;
        }
        let moved = wire.turn();
        use landfall_placement::Engine;
        while let Some(event) = wire.sides[0].engine.poll_event() {
            match event {
                Event::Sent { .. } => sent += 1,
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = wire.sides[1].engine.poll_event() {
            let Event::Delivered { message, posted, len, .. } = event else { panic!("{event:?}") };
            let expected = &sources[message as usize].1;
            let came = &wire.sides[1].memory.region(posted.region).unwrap()[..len as usize];
            assert!(came == expected.as_slice(), "message {message} of {len}");
            delivered += 1;
        }
        if sent == lens.len() && delivered == lens.len() {
            return;
        }
        if !moved && !wire.pass_time() {
            break;
        }
    }
    panic!("delivered {delivered}, sent {sent} of {}: {:#?}", lens.len(), wire.sides[0].engine);
}

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
    let faults = Faults {
        loss: 30_000,
        duplication: 30_000,
        reordering: 100_000,
        corruption: 10_000,
        failing: 10_000,
        ..Faults::default()
    };
    for seed in 0..10 {
        transfer(Config::default().with_checksum(), faults, seed, &lens);
    }
}

#[test]
fn words_take_effect_once() {
    use landfall_placement::Engine;
    let faults =
        Faults { loss: 100_000, duplication: 200_000, reordering: 200_000, ..Faults::default() };
    let mut wire = wire(Config { give_up_after: 100, ..Config::default() }, faults, 5);
    let region = wire.sides[1].memory.lend(vec![0; 64]);
    wire.sides[1].engine.serve_words(Some(Area::new(region, 0, 64))).unwrap();
    let mut asked = 0;
    let mut olds = Vec::new();
    while olds.len() < 500 {
        let now = wire.now;
        while asked < 500 {
            let word = (8, WordWidth::Eight);
            let path = NaiveWire::<Numbered>::PATH;
            let add = WordFunction::Add(1);
            if wire.sides[0].engine.fetch(now, path, Peer::Node(1), word, add).is_err() {
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
