//! Invariant 6: one seed, one run.

use crate::common;
use std::time::Duration;

use crate::common::{numbered, silent};
use landfall_placement::{Instant, Random};
use landfall_simnet::{Encapsulation, LinkConfig, Loss, Outbox, PortId, Probability, Sim, check};

fn faulty() -> LinkConfig {
    LinkConfig::ethernet(1_000_000_000)
        .delay(Duration::from_micros(20))
        .queue_frames(20)
        .loss(Loss::bursts(Probability::percent(5), 4))
        .duplication(Probability::percent(5))
        .reordering(Probability::percent(10), Duration::from_micros(50))
        .corruption(Probability::percent(5))
}

/// A ring of nodes that pass frames on until these have made a few hops.
fn ring(sim: &mut Sim, nodes: u32, frames: u32) {
    let relay =
        |_: Instant, port: PortId, mut frame: landfall_simnet::Frame, out: &mut Outbox<'_>| {
            let hops = frame.bytes.len() - 1;
            if hops > 100 {
                frame.bytes.truncate(hops);
                out.send(PortId(1 - port.0), frame);
            }
        };
    let nodes: Vec<_> = (0..nodes).map(|n| sim.add(&n.to_string(), relay).unwrap()).collect();
    for n in 0..nodes.len() {
        sim.connect(nodes[n], nodes[(n + 1) % nodes.len()], faulty()).unwrap();
    }
    let mut random = Random::from_number(8);
    for n in 0..frames {
        let node = nodes[random.below(nodes.len() as u64) as usize];
        sim.send(node, PortId(0), numbered(n, 120 + random.below(20) as usize)).unwrap();
    }
}

fn run(seed: u64) -> (u64, Vec<u8>) {
    let mut sim = Sim::from_number(seed);
    ring(&mut sim, 5, 200);
    sim.capture_all(Encapsulation::User(0));
    common::run_dry(&mut sim);
    (sim.digest(), sim.captured().to_vec())
}

#[test]
fn invariant_6_one_seed_replays_a_run_byte_for_byte() {
    let (first, again, other) = (run(1), run(1), run(2));
    assert_eq!(first.0, again.0);
    assert!(first.1 == again.1, "the captures differ");
    assert_ne!(first.0, other.0);
    assert!(first.1 != other.1, "another seed, the same capture");
}

#[test]
fn another_link_does_not_change_what_happens_on_the_others() {
    let fates = |with_another: bool| {
        let mut sim = Sim::from_number(1);
        let (a, b) = (sim.add("a", silent).unwrap(), sim.add("b", silent).unwrap());
        let link = sim.connect(a, b, faulty()).unwrap();
        if with_another {
            sim.connect(a, b, faulty()).unwrap();
        }
        for n in 0..1_000 {
            for port in 0..=u16::from(with_another) {
                sim.send(a, PortId(port), numbered(n, 1_000)).unwrap();
            }
            sim.run_until(sim.now() + Duration::from_micros(9)).unwrap();
        }
        common::run_dry(&mut sim);
        sim.stats(link.there())
    };
    assert_eq!(fates(false), fates(true));
    assert!(fates(true).dropped_total() > 0);
}

#[test]
fn check_runs_each_seed_once() {
    let seen = common::shared();
    let runs = seen.clone();
    check(1..=4, move |sim| {
        ring(sim, 3, 50);
        common::run_dry(sim);
        runs.borrow_mut().push(sim.digest());
    });
    let mut digests = seen.take();
    let replayed = std::env::var(check::SEED_VARIABLE).is_ok();
    assert_eq!(digests.len(), if replayed { 1 } else { 4 });
    let runs = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), runs, "each seed has a run of its own");
}

#[test]
fn fifty_thousand_frames() {
    let mut sim = Sim::from_number(1);
    let (a, b) = (sim.add("a", silent).unwrap(), sim.add("b", silent).unwrap());
    let link = sim.connect(a, b, LinkConfig::ethernet(10_000_000_000)).unwrap();
    for n in 0..50_000 {
        sim.send(a, PortId(0), numbered(n, 1_514)).unwrap();
        sim.run_until(sim.now() + Duration::from_nanos(1_300)).unwrap();
    }
    common::run_dry(&mut sim);
    assert_eq!(sim.stats(link.there()).delivered, 50_000);
}

/// Fails with seed 3, but only where [`a_failing_run_tells_its_seed`] starts it
/// in a process of its own.
#[test]
fn fails_with_seed_three() {
    if std::env::var_os("FAIL_ON_PURPOSE").is_none() {
        return;
    }
    let third = {
        let mut sim = Sim::from_number(3);
        ring(&mut sim, 3, 50);
        common::run_dry(&mut sim);
        sim.digest()
    };
    check(1..=5, |sim| {
        ring(sim, 3, 50);
        common::run_dry(sim);
        assert_ne!(sim.digest(), third);
    });
}

#[test]
fn a_failing_run_tells_its_seed() {
    let run = |seed: Option<&str>| {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "--nocapture", "replay::fails_with_seed_three"]);
        command.env("FAIL_ON_PURPOSE", "1");
        match seed {
            Some(seed) => command.env(check::SEED_VARIABLE, seed),
            None => command.env_remove(check::SEED_VARIABLE),
        };
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (passed, said) = run(None);
    assert!(!passed && said.contains("LANDFALL_SEED=3"), "{said}");
    assert!(!run(Some("3")).0, "the same seed fails again");
    assert!(run(Some("4")).0, "another does not");
    let (passed, said) = run(Some("three"));
    assert!(!passed && said.contains("must be a number"), "{said}");
}
