//! The Linux kernel's TCP as the peer, over networks that lose, delay, damage,
//! translate, and change. As an ordinary user each test skips with one line.

use landfall_testbed::require_namespaces;
use landfall_transport::fault::Faults;
use qpip::CloseReason;

use crate::station::Shape;
use crate::station::bridge::Bridge;
use crate::station::conversation::{Echo, Saying, Script, hash_of};
use crate::station::exchange::{Exchange, OPENINGS, Opener, PORT, open};
use crate::station::kernel::{self, Received};
use crate::station::net::{Cable, Routed, ours, run};

const MEGABYTE: u64 = 1 << 20;
const PERCENT: u32 = 10_000;

/// Exchanges over a bridge with these faults, and they all have to occur.
fn over_a_bridge(faults: Faults, seed: u8, bytes: u64) {
    let bridge = Bridge::new(faults, seed);
    let mut station = bridge.station();
    for opening in OPENINGS {
        Exchange::new(opening, bytes).run(&mut station, &bridge.kernel);
    }
    for counts in bridge.finish() {
        assert!(counts.units > 4 * bytes / 1500, "{counts:?}");
        assert_eq!(faults.loss > 0, counts.lost > 0, "{counts:?}");
        assert_eq!(faults.duplication > 0, counts.duplicated > 0, "{counts:?}");
        assert_eq!(faults.reordering > 0, counts.reordered > 0, "{counts:?}");
        assert_eq!(faults.corruption > 0, counts.corrupted > 0, "{counts:?}");
    }
}

#[test]
fn a_bridge_without_faults_carries_everything() {
    require_namespaces!();
    over_a_bridge(Faults::default(), 1, 4 * MEGABYTE);
}

#[test]
fn one_percent_lost_both_ways() {
    require_namespaces!();
    over_a_bridge(Faults::loss(PERCENT), 2, 4 * MEGABYTE);
}

#[test]
fn five_percent_lost_both_ways() {
    require_namespaces!();
    over_a_bridge(Faults::loss(5 * PERCENT), 3, MEGABYTE);
}

#[test]
fn duplicates_both_ways() {
    require_namespaces!();
    let faults = Faults { duplication: 3 * PERCENT, ..Faults::default() };
    over_a_bridge(faults, 4, 2 * MEGABYTE);
}

#[test]
fn reordering_both_ways() {
    require_namespaces!();
    let faults = Faults { reordering: 3 * PERCENT, ..Faults::default() };
    over_a_bridge(faults, 5, 2 * MEGABYTE);
}

#[test]
fn flipped_bits_both_ways_are_never_accepted() {
    require_namespaces!();
    let faults = Faults { corruption: PERCENT, ..Faults::default() };
    over_a_bridge(faults, 6, 2 * MEGABYTE);
}

#[test]
fn all_faults_at_once_both_ways() {
    require_namespaces!();
    let faults = Faults {
        loss: PERCENT,
        duplication: PERCENT,
        reordering: PERCENT,
        corruption: PERCENT,
        ..Faults::default()
    };
    over_a_bridge(faults, 7, MEGABYTE);
}

/// Openings, last acknowledgements and ends are lost, doubled and late, too.
#[test]
fn connections_open_and_close_amid_faults() {
    require_namespaces!();
    const MANY: usize = 60;
    const TASKS: usize = 6;
    let faults = Faults {
        loss: 5 * PERCENT,
        duplication: 2 * PERCENT,
        reordering: 5 * PERCENT,
        ..Faults::default()
    };
    let bridge = Bridge::new(faults, 9);
    let mut station = bridge.station();
    station.shape = Shape::SMALL;
    for is_ipv4 in [true, false] {
        // From the kernel.
        let at = station.at(is_ipv4, PORT);
        let listener = station.listen(at);
        let asking = (0..TASKS).map(|_| {
            bridge.kernel.task(move || {
                (0..MANY / TASKS).try_for_each(|number| kernel::ask(kernel::connect(at)?, number))
            })
        });
        let asking: Vec<_> = asking.collect();
        let answering: Vec<_> =
            (0..MANY).map(|_| station.offer(listener, Echo::default())).collect();
        asking.into_iter().for_each(|task| task.join(&mut station));
        // To the kernel.
        let (kernel_listens, at) = bridge.kernel.listen(is_ipv4);
        let kernel_answers = bridge.kernel.task(move || {
            (0..MANY).try_for_each(|number| {
                kernel::answer(kernel::accept(&kernel_listens)?, number % 2 == 0)
            })
        });
        let connecting: Vec<_> =
            (0..MANY).map(|seed| station.connect(at, Saying::new(seed as u64, 8))).collect();
        kernel_answers.join(&mut station);
        for pair in answering.into_iter().chain(connecting) {
            let report = station.finish(pair);
            assert_eq!(report.closed, Some(CloseReason::Finished));
            assert_eq!((report.sent, report.received), (8, 8));
        }
        station.adapter.stop_listening(listener).unwrap();
    }
}

/// Many at once share a bad bridge.
#[test]
fn many_transfers_at_once_amid_faults() {
    require_namespaces!();
    const MANY: u64 = 20;
    const BYTES: u64 = 200_000;
    let faults =
        Faults { loss: PERCENT, duplication: PERCENT, reordering: PERCENT, ..Faults::default() };
    let bridge = Bridge::new(faults, 10);
    let mut station = bridge.station();
    station.shape = Shape { receives: 4, sends: 4, bytes: 20_000 };
    let transfers: Vec<_> = (0..MANY)
        .map(|seed| {
            let opening = OPENINGS[seed as usize % OPENINGS.len()];
            let program = Saying::new(seed, BYTES);
            let (pair, stream) = open(&mut station, &bridge.kernel, opening, program);
            let (mut saying, mut hearing) = (stream.try_clone().unwrap(), stream);
            let said = bridge.kernel.task(move || kernel::say(&mut saying, seed + MANY, BYTES));
            let heard = bridge.kernel.task(move || kernel::hear(&mut hearing));
            (pair, said, heard)
        })
        .collect();
    for (seed, (pair, said, heard)) in (0..).zip(transfers) {
        said.join(&mut station);
        assert_eq!(heard.join(&mut station), Received::of(seed, BYTES));
        let report = station.finish(pair);
        assert_eq!((report.hash, report.sent), (hash_of(seed + MANY, BYTES), BYTES));
        assert_eq!(report.closed, Some(CloseReason::Finished));
    }
}

/// Super-packets of the kernel's are lost whole where they arrive, and what the
/// station sends is lost frame by frame.
#[test]
fn faults_at_the_station_itself() {
    require_namespaces!();
    let faults = Faults {
        loss: 2 * PERCENT,
        loss_at_place: 2 * PERCENT,
        duplication: PERCENT,
        reordering: PERCENT,
        corruption: PERCENT,
        ..Faults::default()
    };
    let cable = Cable::new();
    let mut station = cable.faulty_station(faults, 8);
    for opening in OPENINGS {
        Exchange::new(opening, 2 * MEGABYTE).run(&mut station, &cable.kernel);
    }
    let counts = station.driver.counts();
    assert!(counts.lost > 0 && counts.lost_at_place > 0 && counts.corrupted > 0, "{counts:?}");
}

#[test]
fn a_router_passes_everything_on() {
    require_namespaces!();
    let routed = Routed::new();
    let mut station = routed.station();
    for opening in OPENINGS {
        Exchange::new(opening, 4 * MEGABYTE).run(&mut station, &routed.kernel);
    }
}

/// Connection tracking looks at every number and window, and calls invalid what
/// does not fit; addresses and ports are not what the other side sees.
#[test]
fn a_router_that_tracks_and_translates_finds_nothing_invalid() {
    require_namespaces!();
    let routed = Routed::new();
    routed.translate(PORT);
    let mut station = routed.station();
    for opening @ (is_ipv4, opener) in OPENINGS {
        let at = routed.translated(is_ipv4, PORT);
        let exchange = Exchange::new(opening, 4 * MEGABYTE);
        let report = exchange.run_at(&mut station, &routed.kernel, at);
        let (local, _) = report.ends.unwrap();
        assert_eq!(local.ip(), ours(&routed.near.a, is_ipv4), "{opener:?}");
    }
    assert_eq!(routed.invalid_packets(), 0);
}

/// The router's second link carries less from one moment on, and the station is
/// what hears of it.
#[test]
fn a_path_that_carries_less_is_found_out_by_the_station() {
    require_namespaces!();
    for is_ipv4 in [true, false] {
        for mtu in [1400, 1280] {
            let routed = Routed::new();
            let mut station = routed.station();
            let opening = (is_ipv4, Opener::Station);
            let script = Script::default();
            let (pair, mut stream) = open(&mut station, &routed.kernel, opening, script.clone());
            let hearing = routed.kernel.task(move || kernel::hear(&mut stream));
            let part = vec![1; MEGABYTE as usize];
            script.tell(&part);
            station
                .until("the first part is there", |station| station.report(pair).sent == MEGABYTE);
            let before = station.adapter.stats().icmp_believed;
            routed.far.set_mtu(mtu).unwrap();
            script.say_and_end(&part);
            let heard = hearing.join(&mut station);
            assert_eq!(
                (heard.len, heard.hash),
                (2 * MEGABYTE, blake3::hash(&[part.clone(), part].concat()))
            );
            station.finish(pair);
            assert!(station.adapter.stats().icmp_believed > before);
            // Who asks anew knows it already.
            let known = station.adapter.stats().icmp_believed;
            Exchange::new(opening, MEGABYTE).run(&mut station, &routed.kernel);
            assert_eq!(station.adapter.stats().icmp_believed, known);
        }
    }
}

/// The way to the station carries less, and the kernel is what hears of it.
#[test]
fn a_route_that_carries_less_is_found_out_by_the_kernel() {
    require_namespaces!();
    for is_ipv4 in [true, false] {
        let routed = Routed::new();
        let mut station = routed.station();
        let ours = ours(&routed.near.a, is_ipv4).to_string();
        let version = if is_ipv4 { "-4" } else { "-6" };
        let near = &routed.near.b.name;
        let route = ["ip", version, "route", "add", &ours, "dev", near, "mtu", "lock", "1300"];
        run(&routed.router, &route);
        for opener in [Opener::Station, Opener::Kernel] {
            Exchange::new((is_ipv4, opener), MEGABYTE).run(&mut station, &routed.kernel);
        }
        let cached = run(&routed.kernel.namespace, &["ip", version, "route", "get", &ours]);
        assert!(cached.contains("mtu 1300"), "the kernel was never told: {cached}");
    }
}

/// The kernel at the other end is told by its own route to send less.
#[test]
fn a_kernel_with_a_smaller_route_is_served() {
    require_namespaces!();
    let cable = Cable::new();
    for is_ipv4 in [true, false] {
        let ours = ours(&cable.pair.a, is_ipv4).to_string();
        let (name, version) = (&cable.pair.b.name, if is_ipv4 { "-4" } else { "-6" });
        run(
            &cable.kernel.namespace,
            &["ip", version, "route", "add", &ours, "dev", name, "mtu", "1280", "advmss", "1000"],
        );
        let mut station = cable.station();
        for opener in [Opener::Station, Opener::Kernel] {
            Exchange::new((is_ipv4, opener), MEGABYTE).run(&mut station, &cable.kernel);
        }
    }
}

/// A cable that is pulled for a while, with data under way in both directions.
#[test]
fn a_link_that_goes_away_for_a_while_comes_back() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    let opening = (true, Opener::Station);
    let (pair, stream) = open(&mut station, &cable.kernel, opening, Saying::new(1, 8 * MEGABYTE));
    let (mut saying, mut hearing) = (stream.try_clone().unwrap(), stream);
    let said = cable.kernel.task(move || kernel::say(&mut saying, 2, 8 * MEGABYTE));
    let heard = cable.kernel.task(move || kernel::hear(&mut hearing));
    station.until("something has come", |station| station.report(pair).received > MEGABYTE);
    cable.pair.b.set_up(false).unwrap();
    station.turn_for(std::time::Duration::from_millis(500));
    cable.pair.b.set_up(true).unwrap();
    said.join(&mut station);
    assert_eq!(heard.join(&mut station), Received::of(1, 8 * MEGABYTE));
    assert_eq!(station.finish(pair).hash, hash_of(2, 8 * MEGABYTE));
}
