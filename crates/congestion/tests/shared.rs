//! Several flows through one bottleneck: what each gets.

use std::time::Duration;

use crate::common::{Dumbbell, Figures, Flow, OURS, Path, RENO};
use landfall_simnet::{EcnThreshold, Red, TailDrop};

fn paths() -> [Path; 3] {
    let ms = Duration::from_millis;
    [Path::new(10, ms(40)), Path::new(100, ms(10)), Path::new(400, ms(5))]
}

/// What flows get after they have settled.
fn settled(path: Path, mut net: Dumbbell) -> Figures {
    net.run(path.round_trip * 300);
    net.run(path.round_trip * 1_000)
}

/// In either order of arrival.
fn beside_reno(name: &str, build: impl Fn(Path, &[Flow]) -> Dumbbell) {
    for path in paths() {
        for flows in [[OURS, RENO], [RENO, OURS]] {
            let figures = settled(path, build(path, &flows));
            let ours = flows.iter().position(|flow| *flow == OURS).unwrap();
            let share = figures.shares[ours];
            let context = format!("{name}, flow {ours} ours, {path:?}: {figures}");
            assert!((0.3..=0.7).contains(&share), "{context}");
            assert!(figures.loss < 0.01 && figures.loss_of(ours) < 0.01, "{context}");
            assert!(figures.utilisation > 0.85, "{context}");
        }
    }
}

#[test]
fn beside_newreno_at_a_plain_queue() {
    beside_reno("tail drop", |path, flows| Dumbbell::new(path, path.bdp(), false, flows));
}

#[test]
fn beside_newreno_at_a_plain_queue_half_as_long() {
    beside_reno("short tail drop", |path, flows| Dumbbell::new(path, path.bdp() / 2, false, flows));
}

#[test]
fn beside_newreno_where_red_drops() {
    beside_reno("RED", |path, flows| {
        let red = Red::new(2 * path.bdp(), path.rate);
        Dumbbell::new(path, 2 * path.bdp(), false, flows).policy(red)
    });
}

#[test]
fn beside_newreno_where_red_marks() {
    beside_reno("RED with ECN", |path, flows| {
        let red = Red::new(2 * path.bdp(), path.rate);
        Dumbbell::new(path, 2 * path.bdp(), true, flows).policy(red)
    });
}

#[test]
fn beside_newreno_where_a_threshold_marks() {
    beside_reno("marking threshold", |path, flows| {
        let queue = EcnThreshold::bytes(path.bdp() / 4, TailDrop::bytes(path.bdp()));
        Dumbbell::new(path, path.bdp(), true, flows).policy(queue)
    });
}

#[test]
fn two_of_ours_share_evenly_and_lose_nothing() {
    for path in paths() {
        let figures = settled(path, Dumbbell::new(path, path.bdp(), false, &[OURS; 2]));
        assert!((0.35..=0.65).contains(&figures.shares[0]), "{path:?}: {figures}");
        assert!(figures.loss == 0.0 && figures.utilisation > 0.95, "{path:?}: {figures}");
    }
}

/// Who comes later finds a queue, and must not take it for the path.
#[test]
fn a_latecomer_gets_its_share_and_no_more() {
    for millis in [10, 20] {
        let path = Path::new(100, Duration::from_millis(millis));
        let mut net = Dumbbell::new(path, path.bdp(), false, &[OURS]);
        net.run(path.round_trip * 300);
        net.add(OURS);
        let first = net.run(path.round_trip * 500);
        assert!(first.shares[1] > 0.3 && first.loss < 0.005, "{path:?}: at first {first}");
        net.run(path.round_trip * 1_500);
        let figures = net.run(path.round_trip * 500);
        assert!((0.45..=0.55).contains(&figures.shares[1]), "{path:?}: {figures}");
        assert!(figures.loss == 0.0 && figures.utilisation > 0.95, "{path:?}: {figures}");
        assert!(figures.median_under_way < path.bdp(), "{path:?}: {figures}");
    }
}

#[test]
fn thirty_two_of_ours_share_evenly() {
    let path = Path::new(1_000, Duration::from_millis(5));
    let figures = settled(path, Dumbbell::new(path, path.bdp(), false, &[OURS; 32]));
    assert!(figures.utilisation > 0.95 && figures.loss < 0.01, "{figures}");
    let fair = 1.0 / 32.0;
    let within = |share: &f64| (0.6 * fair..1.6 * fair).contains(share);
    assert!(figures.shares.iter().all(within), "{figures}");
}

#[test]
fn when_the_other_leaves_the_queue_becomes_short_again() {
    let path = Path::new(100, Duration::from_millis(10));
    let mut net = Dumbbell::new(path, path.bdp(), false, &[OURS]);
    let stop = landfall_placement::Instant::ZERO + path.round_trip * 500;
    net.add_until(RENO, stop);
    net.run(path.round_trip * 500);
    net.run(path.round_trip * 400);
    let figures = net.run(path.round_trip * 500);
    assert!(figures.utilisation > 0.95 && figures.loss < 0.001, "{figures}");
    assert!(figures.median_under_way < path.bdp(), "{figures}");
}
