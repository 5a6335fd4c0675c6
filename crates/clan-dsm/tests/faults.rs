//! Networks that lose, repeat, mix up and damage frames.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::world::{Pair, noise};
use clan_dsm::{Access, Action, Config, DmaRequest, Event};
use landfall_placement::{Random, WordFunction, WordWidth};
use landfall_simnet::{EngineConfig, LinkConfig, Loss, Probability, Sim, check};

fn bad_wire() -> LinkConfig {
    LinkConfig::ethernet(1_000_000_000)
        .delay(Duration::from_micros(50))
        .loss(Loss::Uniform(Probability::percent(5)))
        .duplication(Probability::percent(5))
        .reordering(Probability::percent(10), Duration::from_micros(200))
        .corruption(Probability::percent(3))
}

fn bad(sim: &mut Sim) -> Pair {
    let sim = std::mem::replace(sim, Sim::from_number(0));
    Pair::new(sim, Config::default().with_checksum(), bad_wire())
}

#[test]
fn writes_of_all_kinds_arrive_whatever_happens_to_frames() {
    check(1..=20, |sim| {
        let mut pair = bad(sim);
        let (area, aperture, window) = pair.window(1 << 18);
        let trip = pair
            .nic(1)
            .watch(aperture, 0..1 << 18, Access::Write, Action::Count(0), false)
            .unwrap();
        let endpoint = pair.nic(0).open_endpoint(None).unwrap();
        let mut wanted = vec![0; 1 << 18];
        let mut random = Random::from_number(5);
        for n in 0..60 {
            let len = 1 + random.below(if n % 3 == 0 { 3000 } else { 40 }) as usize;
            // The chains and the program's writes are in no order: each has its half.
            let half = if n % 3 == 0 { 1 << 17 } else { 0 };
            let at = half + random.below((1 << 17) - 3000) as usize;
            let bytes = noise(n, len);
            wanted[at..at + len].copy_from_slice(&bytes);
            let now = pair.now();
            if n % 3 == 0 {
                let from = pair.lend(0, &bytes);
                let chain = [DmaRequest::Write { from, window, offset: at as u64 }];
                pair.nic(0).dma(now, endpoint, &chain).unwrap();
            } else {
                pair.nic(0).write(now, window, at as u64, &bytes).unwrap();
            }
            if n % 5 == 0 {
                pair.run_for(Duration::from_micros(300));
            }
        }
        pair.flush();
        assert!(pair.bytes(1, area) == wanted, "not what was written");
        assert!(pair.nic(1).firings(trip).unwrap() > 60);
        *sim = pair.sim;
    });
}

#[test]
fn the_flag_is_never_before_its_data() {
    check(1..=20, |sim| {
        let mut pair = bad(sim);
        let (area, _, window) = pair.window(4096);
        let host = pair.hosts[1];
        for n in 1..=200_u64 {
            let now = pair.now();
            // Far apart, so that they are packets of their own.
            pair.nic(0).write_word(now, window, 0, n).unwrap();
            pair.nic(0).write_word(now, window, 2048, n).unwrap();
            let end = now + Duration::from_micros(20 * (n % 7));
            pair.sim
                .run_until_with(end, |sim| {
                    let memory = sim.node(host).unwrap().memory();
                    let word = |at| {
                        let bytes = memory.read(area.span(at, 8)).unwrap();
                        u64::from_le_bytes(bytes.try_into().unwrap())
                    };
                    assert!(word(0) >= word(2048), "{} {}", word(0), word(2048));
                    ControlFlow::Continue(())
                })
                .unwrap();
        }
        pair.flush();
        assert_eq!(pair.bytes(1, area)[2048..2056], 200_u64.to_le_bytes());
        *sim = pair.sim;
    });
}

#[test]
fn operations_take_effect_exactly_once() {
    check(1..=20, |sim| {
        let mut pair = bad(sim);
        let (area, _, window) = pair.window(64);
        for n in 0..100_u64 {
            let now = pair.now();
            let add = WordFunction::Add(1);
            pair.nic(0).change(now, window, 0, WordWidth::Eight, add).unwrap();
            pair.nic(0).write_word(now, window, 8, n).unwrap();
        }
        pair.run_until("all answers", |a, _| {
            a.iter().filter(|e| matches!(e, Event::Word { result: Ok(_), .. })).count() == 100
        });
        assert_eq!(pair.bytes(1, area)[..8], 100_u64.to_le_bytes());
        let answers: Vec<u64> = pair.logs[0]
            .borrow()
            .iter()
            .filter_map(|e| match e {
                Event::Word { result: Ok(old), .. } => Some(*old),
                _ => None,
            })
            .collect();
        assert_eq!(answers, (0..100).collect::<Vec<_>>());
        *sim = pair.sim;
    });
}

#[test]
fn reads_are_whole_whatever_happens_to_frames() {
    check(1..=10, |sim| {
        let mut pair = bad(sim);
        let (_, _, window) = pair.window(30_000);
        let data = noise(1, 30_000);
        let (from, into) = (pair.lend(0, &data), pair.lend(0, &[0; 29_990]));
        let now = pair.now();
        pair.nic(0).write_from(now, window, 0, from).unwrap();
        let read = pair.nic(0).read(now, window, 10, into).unwrap();
        pair.run_until("the read", |a, _| a.contains(&Event::Read { read, result: Ok(()) }));
        assert_eq!(pair.bytes(0, into), data[10..]);
        *sim = pair.sim;
    });
}

#[test]
fn invariant_6_two_runs_are_the_same() {
    let run = || {
        let sim = Sim::from_number(99);
        let configs = [Config::default(), Config::default()];
        let how = EngineConfig { shared: true, ..EngineConfig::default() };
        let mut pair =
            Pair::with(sim, configs, how, bad_wire().corruption(Probability::percent(0)));
        pair.sim.capture_all(landfall_simnet::Encapsulation::User(0));
        let (_, aperture, window) = pair.window(10_000);
        pair.nic(1).watch(aperture, 0..10_000, Access::Both, Action::Event, false).unwrap();
        for n in 0..50 {
            let now = pair.now();
            pair.nic(0).write(now, window, n * 190, &noise(n, 100)).unwrap();
            pair.run_for(Duration::from_micros(30));
        }
        pair.flush();
        let log = format!("{:?}", pair.logs);
        (pair.sim.captured().to_vec(), log)
    };
    let (first, second) = (run(), run());
    assert!(first.0 == second.0, "the same bytes");
    assert_eq!(first.1, second.1);
}
