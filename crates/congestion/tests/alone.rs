//! One of our flows with a bottleneck to itself.
//!
//! Several flows through one bottleneck: what each gets.

use std::time::Duration;

use landfall_congestion::Config;
use landfall_simnet::{EcnThreshold, LinkConfig, Loss, Probability, Red, TailDrop};

use crate::common::{Dumbbell, Figures, Flow, OURS, Path, RENO, SEGMENT};

const SECOND: Duration = Duration::from_secs(1);

fn paths() -> [Path; 4] {
    let ms = Duration::from_millis;
    [Path::new(10, ms(40)), Path::new(100, ms(10)), Path::new(100, ms(4)), Path::new(1_000, ms(1))]
}

#[test]
fn it_fills_the_link_and_keeps_the_queue_short() {
    for path in paths() {
        let mut net = Dumbbell::new(path, path.bdp(), false, &[OURS]);
        net.run(path.round_trip * 100);
        let figures = net.run(path.round_trip * 500);
        assert!(figures.utilisation > 0.95 && figures.loss < 0.001, "{path:?}: {figures}");
        // The path itself holds one product of bandwidth and delay; the part
        // of it before the queue is not counted in here.
        let queue = figures.median_under_way.saturating_sub(path.bdp() / 2);
        assert!(queue < path.bdp() / 2 + 3 * u64::from(SEGMENT), "{path:?}: {figures}");
    }
}

/// In a machine room, where hosts have exact clocks.
#[test]
fn a_lower_floor_keeps_the_queues_of_short_paths_short() {
    let path = Path::new(1_000, Duration::from_micros(200));
    let config = Config { delay_floor: Duration::from_micros(50), ..Config::new(SEGMENT) };
    let mut net = Dumbbell::new(path, path.bdp(), false, &[Flow::Ours(config)]);
    net.run(path.round_trip * 200);
    let figures = net.run(path.round_trip * 2_000);
    assert!(figures.utilisation > 0.95 && figures.loss < 0.001, "{path:?}: {figures}");
}

/// The queue of a host, for instance: it drops nothing, and grows.
#[test]
fn delay_alone_bounds_the_window_where_nothing_is_ever_lost() {
    let path = Path::new(100, Duration::from_millis(10));
    let mut net = Dumbbell::new(path, u64::MAX, false, &[OURS]);
    net.run(SECOND);
    let figures = net.run(5 * SECOND);
    let window = net.window(0).bytes();
    assert!(window < 2 * path.bdp(), "a window of {window}, {figures}");
    assert!(figures.utilisation > 0.95, "{figures}");
}

#[test]
fn marks_are_enough_and_nothing_is_lost() {
    for path in paths() {
        let queue = EcnThreshold::bytes(path.bdp() / 4, TailDrop::bytes(path.bdp()));
        let mut net = Dumbbell::new(path, path.bdp(), true, &[OURS]).policy(queue);
        net.run(path.round_trip * 100);
        let figures = net.run(path.round_trip * 500);
        assert!(figures.utilisation > 0.9 && figures.loss == 0.0, "{path:?}: {figures}");
        assert!(figures.marked > 0.0, "{path:?}: {figures}");
    }
}

#[test]
fn it_follows_a_bottleneck_that_becomes_ten_times_slower_and_faster_again() {
    let path = Path::new(100, Duration::from_millis(10));
    let mut net = Dumbbell::new(path, path.bdp(), false, &[OURS]);
    net.run(5 * SECOND);

    let slow = Path::new(10, Duration::from_millis(10));
    let direction = net.bottleneck.there();
    net.config = net.config.rate(slow.rate);
    net.sim.configure(direction, net.config).unwrap();
    let change = net.run(SECOND);
    let figures = net.run(10 * SECOND);
    // What was under way at the change could not be taken back.
    assert!(change.loss_of(0) < 0.35, "in the first second: {change}");
    assert!(figures.utilisation > 0.9 && figures.loss < 0.01, "slower: {figures}");
    let window = net.window(0).bytes();
    assert!(window < 3 * slow.bdp(), "a window of {window} on {slow:?}: {figures}");

    net.config = net.config.rate(path.rate);
    net.sim.configure(direction, net.config).unwrap();
    net.run(5 * SECOND);
    let figures = net.run(5 * SECOND);
    assert!(figures.utilisation > 0.9 && figures.loss < 0.01, "faster again: {figures}");
}

#[test]
fn a_longer_route_is_not_taken_for_a_queue_for_good() {
    let path = Path::new(100, Duration::from_millis(10));
    let mut net = Dumbbell::new(path, 4 * path.bdp(), false, &[OURS]);
    net.run(2 * SECOND);
    let longer = LinkConfig { delay: Duration::from_millis(25), ..net.config };
    net.config = longer;
    net.sim.configure(net.bottleneck.there(), longer).unwrap();
    net.run(5 * SECOND);
    let figures = net.run(10 * SECOND);
    assert!(figures.utilisation > 0.9 && figures.loss < 0.01, "{figures}");
}

/// The queue of such a path overflows long before half of what is under way lies in it.
#[test]
fn a_loss_leaves_what_a_long_path_holds() {
    let path = Path::new(100, Duration::from_millis(100));
    let mut net = Dumbbell::new(path, path.bdp() / 8, false, &[OURS]);
    net.run(10 * SECOND);
    let figures = net.run(20 * SECOND);
    assert!(figures.utilisation > 0.85 && figures.loss < 0.001, "{figures}");
}

#[test]
fn a_long_path_that_became_faster_is_filled_in_seconds() {
    let path = Path::new(20, Duration::from_millis(100));
    let mut net = Dumbbell::new(path, path.bdp(), false, &[OURS]);
    net.run(10 * SECOND);
    net.config = net.config.rate(Path::new(200, path.round_trip).rate);
    net.sim.configure(net.bottleneck.there(), net.config).unwrap();
    net.run(10 * SECOND);
    let figures = net.run(5 * SECOND);
    // The queue is a tenth of what the path holds now.
    assert!(figures.utilisation > 0.85 && figures.loss < 0.01, "{figures}");
}

#[test]
fn silence_ends_in_one_unit_and_recovery() {
    let path = Path::new(100, Duration::from_millis(10));
    let mut net = Dumbbell::new(path, path.bdp(), false, &[OURS]);
    net.run(SECOND);
    net.sim.set_link(net.bottleneck, false).unwrap();
    net.run(2 * SECOND);
    assert_eq!(net.window(0).bytes(), u64::from(SEGMENT));
    assert!(net.window(0).rtt().backoff() > 2, "{:?}", net.window(0));
    net.sim.set_link(net.bottleneck, true).unwrap();
    net.run(6 * SECOND);
    let figures = net.run(2 * SECOND);
    assert!(figures.utilisation > 0.9 && figures.loss < 0.01, "{figures}");
}

/// A radio link, a fault injector: who knows that a path loses what it was not
/// asked to may say so.
#[test]
fn random_loss_rules_the_rate_unless_it_is_tolerated() {
    let path = Path::new(100, Duration::from_millis(10));
    let goodput = |loss_tolerance| {
        let config = Config { loss_tolerance, ..Config::new(SEGMENT) };
        let mut net = Dumbbell::new(path, path.bdp(), false, &[Flow::Ours(config)]);
        net.config = net.config.loss(Loss::Uniform(Probability::percent(1)));
        net.sim.configure(net.bottleneck.there(), net.config).unwrap();
        net.run(5 * SECOND);
        net.run(20 * SECOND).utilisation
    };
    let (strict, tolerant) = (goodput(0), goodput(20_000));
    assert!(tolerant > 0.8, "with tolerance {tolerant:.2}, without {strict:.2}");
    assert!(strict < 0.5, "a loss is congestion: {strict:.2}");
}

/// Delay tells a round trip late, so something may be lost at the end of slow
/// start; but less than where loss alone tells.
#[test]
fn slow_start_ends_earlier_than_that_of_newreno() {
    for path in [paths()[0], paths()[1]] {
        let start =
            |flow| Dumbbell::new(path, path.bdp(), false, &[flow]).run(path.round_trip * 50);
        let (ours, reno) = (start(OURS), start(RENO));
        assert!(ours.loss < 0.75 * reno.loss, "{path:?}: {ours}; NewReno {reno}");
        assert!(ours.utilisation > 0.8, "{path:?}: {ours}");
    }
}

fn shared_paths() -> [Path; 3] {
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
    for path in shared_paths() {
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
    for path in shared_paths() {
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
