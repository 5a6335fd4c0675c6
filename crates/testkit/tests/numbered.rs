//! The numbered engine over the naive wire.

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
    let faults =
        Faults { loss: 100_000, duplication: 200_000, reordering: 200_000, ..Faults::default() };
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
