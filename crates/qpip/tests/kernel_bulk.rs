//! The Linux kernel's TCP as the peer: much, both ways, and as the devices
//! between the two would have it. As an ordinary user each test skips with one
//! line.
//!
//! 64 MB in each direction; with `LANDFALL_LONG=1` a gigabyte.

use landfall_testbed::{Offload, VethConfig, require_namespaces};
use landfall_transport::Driver;
use landfall_transport::packet::PacketConfig;
use landfall_transport::tap::TapConfig;
use qpip::{Config, EcnFeedback};

use crate::station::exchange::{Exchange, OPENINGS, Opener};
use crate::station::net::{Cable, Tap};

/// How much goes each way in the large cases.
fn much() -> u64 {
    let is_long = std::env::var_os("LANDFALL_LONG").is_some_and(|value| value == "1");
    if is_long { 1 << 30 } else { 64 << 20 }
}

/// For cases that are about something else than the amount.
const SOME: u64 = 4 << 20;

#[test]
fn bulk_both_ways_over_ipv4_arrives_as_it_was() {
    require_namespaces!();
    bulk(true);
}

#[test]
fn bulk_both_ways_over_ipv6_arrives_as_it_was() {
    require_namespaces!();
    bulk(false);
}

fn bulk(is_ipv4: bool) {
    for opener in [Opener::Station, Opener::Kernel] {
        let cable = Cable::new();
        let mut station = cable.station();
        Exchange::new((is_ipv4, opener), much()).run(&mut station, &cable.kernel);
        assert_eq!(station.driver.counters().corrupt, 0);
    }
}

#[test]
fn bulk_one_way_arrives_as_it_was() {
    require_namespaces!();
    let cable = Cable::new();
    let mut station = cable.station();
    for (to_kernel, to_station) in [(much(), 0), (0, much())] {
        let exchange = Exchange { to_kernel, to_station, ..Exchange::new(OPENINGS[0], 0) };
        exchange.run(&mut station, &cable.kernel);
    }
}

#[test]
fn a_tap_interface_carries_it_too() {
    require_namespaces!();
    for offload in [true, false] {
        let tap = Tap::new();
        let mut station = tap.station(|config| TapConfig { offload, ..config });
        for opening in OPENINGS {
            Exchange::new(opening, SOME).run(&mut station, &tap.kernel);
        }
    }
}

#[test]
fn jumbo_frames_carry_it_too() {
    require_namespaces!();
    let cable = Cable::with(VethConfig { mtu: 9000, ..VethConfig::default() });
    let mut station = cable.station();
    for opening in OPENINGS {
        Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
    }
}

/// Segmentation, joining and checksums: each by the device, and each by software.
#[test]
fn offloads_on_and_off_make_no_difference() {
    require_namespaces!();
    let groups = [
        Offload::TcpSegmentation,
        Offload::GenericSegmentation,
        Offload::GenericReceive,
        Offload::TransmitChecksum,
    ];
    for offload in groups {
        let cable = Cable::new();
        for end in cable.pair.ends() {
            let was = end.offload(offload).unwrap();
            end.set_offload(offload, !was).unwrap();
        }
        let mut station = cable.station();
        for opening in OPENINGS {
            Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
        }
    }
}

#[test]
fn frames_that_are_cut_and_joined_by_the_kernel_arrive() {
    require_namespaces!();
    let cable = Cable::new();
    for end in cable.pair.ends() {
        end.set_offload(Offload::TcpSegmentation, false).unwrap();
        end.set_offload(Offload::GenericReceive, true).unwrap();
    }
    let mut station = cable.station();
    for opening in OPENINGS {
        Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
    }
}

#[test]
fn a_driver_without_offloads_carries_it_too() {
    require_namespaces!();
    let cable = Cable::new();
    // Super-packets of the kernel's are no frames for such a driver.
    cable.pair.b.set_offload(Offload::TcpSegmentation, false).unwrap();
    cable.pair.b.set_offload(Offload::GenericSegmentation, false).unwrap();
    let mut station = cable.station_as(Config::default(), PacketConfig::without_offload);
    for opening in OPENINGS {
        Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
    }
}

/// What the kernel offers, and takes, of TCP's options.
#[test]
fn timestamps_sack_scaling_and_ecn_on_and_off_by_the_kernel() {
    require_namespaces!();
    let knobs = [
        ("ipv4/tcp_timestamps", "0"),
        ("ipv4/tcp_sack", "0"),
        ("ipv4/tcp_window_scaling", "0"),
        ("ipv4/tcp_ecn", "1"),
    ];
    for (knob, value) in knobs {
        let cable = Cable::new();
        cable.kernel.sysctl(knob, value);
        let mut config = Config::default();
        config.tcp.ecn = knob.ends_with("ecn");
        let mut station = cable.station_as(config, |config| config);
        for opening in OPENINGS {
            Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
        }
    }
}

/// The station asks for accurate ECN, and the kernel has none, the classic, or that only where it
/// is asked.
#[test]
fn each_kind_of_ecn_of_the_kernel_is_agreed_on() {
    require_namespaces!();
    let (none, classic) = (EcnFeedback::None, EcnFeedback::Classic);
    for (knob, expected) in
        [("0", [none].into()), ("1", [classic].into()), ("2", [none, classic].into())]
    {
        let cable = Cable::new();
        cable.kernel.sysctl("ipv4/tcp_ecn", knob);
        let mut config = Config::default();
        (config.tcp.ecn, config.tcp.accurate_ecn) = (true, true);
        let mut station = cable.station_as(config, |config| config);
        for opening in OPENINGS {
            Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
        }
        assert_eq!(station.kinds_of_ecn, expected, "{knob}");
    }
}

/// The same, as the station chooses.
#[test]
fn timestamps_sack_scaling_and_ecn_on_and_off_by_the_station() {
    require_namespaces!();
    let choices: [fn(&mut qpip::TcpConfig); 5] = [
        |tcp| tcp.timestamps = false,
        |tcp| tcp.sack = false,
        |tcp| tcp.most_window = 0,
        |tcp| tcp.ecn = true,
        |tcp| (tcp.timestamps, tcp.sack, tcp.most_window) = (false, false, 0),
    ];
    for choose in choices {
        let cable = Cable::new();
        let mut config = Config::default();
        choose(&mut config.tcp);
        let mut station = cable.station_as(config, |config| config);
        for opening in OPENINGS {
            Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
        }
    }
}
