//! What tshark says of the frames between queue pairs and the kernel. As an
//! ordinary user, or where it is not installed, each test skips with one line.

use landfall_testbed::{Offload, skip_unless};
use qpip::{CloseReason, Config, Interface, OwnAddress};

use crate::station::conversation::Saying;
use crate::station::exchange::{Exchange, OPENINGS};
use crate::station::net::{Cable, Capture, interface, open, shared, why_no_tshark};
use crate::station::{Shape, Station};

const SOME: u64 = 2 << 20;

/// What stands for trouble that a link without faults has no reason for.
const TROUBLE: &str = "tcp.analysis.retransmission || tcp.analysis.fast_retransmission \
    || tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment || tcp.analysis.out_of_order \
    || tcp.analysis.duplicate_ack";

/// A machine that lets one side wait has it probe, and what is captured on two cores may
/// be written down in another order: so there is more than one go.
const GOES: usize = 5;

/// No frame of any go is malformed or in error, and in one of them trouble is next to none.
#[track_caller]
fn assert_clean(cable: &Cable, name: &str) {
    let end = &cable.pair.b;
    let mut found = Vec::new();
    for _ in 0..GOES {
        let capture = Capture::start(&end.namespace, &end.name, name);
        let mut station = cable.station();
        for opening in OPENINGS {
            Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
        }
        let captured = capture.finish();
        let all = captured.count("tcp");
        assert!(all > 100, "only {all} frames were captured");
        let fields = ["frame.number", "_ws.expert.message", "_ws.col.Info"];
        let bad = captured.fields("_ws.malformed || _ws.expert.severity == error", &fields);
        assert!(bad.is_empty(), "{} bad frames: {:#?}", bad.len(), &bad[..bad.len().min(5)]);
        let trouble = captured.fields(TROUBLE, &fields);
        if trouble.len() * 100 < all {
            return;
        }
        found.push((trouble.len(), all, trouble.into_iter().take(20).collect::<Vec<_>>()));
    }
    panic!("in each go frames were in trouble: {found:#?}");
}

#[test]
fn a_clean_link_shows_nothing_malformed_and_nothing_repeated() {
    skip_unless!(why_no_tshark());
    assert_clean(&Cable::new(), "clean");
}

#[test]
fn a_clean_link_of_real_frames_shows_nothing_malformed_and_nothing_repeated() {
    skip_unless!(why_no_tshark());
    let cable = Cable::new();
    for end in cable.pair.ends() {
        end.set_offload(Offload::TcpSegmentation, false).unwrap();
        end.set_offload(Offload::GenericReceive, true).unwrap();
    }
    assert_clean(&cable, "real");
}

/// The frames in which some kernel says that nobody is there.
const DENIALS: &str = "tcp.flags.reset == 1 || icmp.type == 3 || icmpv6.type == 1";

/// Exchanges with the kernel at the other end while that listens to the cable.
fn denials(cable: &Cable, mut station: Station<impl landfall_transport::Driver>) -> Vec<String> {
    let end = &cable.pair.b;
    let capture = Capture::start(&end.namespace, &end.name, "denials");
    for opening in OPENINGS {
        Exchange::new(opening, SOME).run(&mut station, &cable.kernel);
    }
    // The kernel at the other end may well deny what comes late.
    let from_ours = format!("({DENIALS}) && eth.dst == {}", end.mac);
    capture.finish().fields(&from_ours, &["_ws.col.Info"])
}

#[test]
fn the_kernel_of_a_shared_interface_denies_nothing_in_our_place() {
    skip_unless!(why_no_tshark());
    let cable = Cable::new();
    assert_eq!(denials(&cable, cable.station()), [""; 0]);
}

#[test]
fn a_station_with_an_address_of_its_own_is_denied_nothing_either() {
    skip_unless!(why_no_tshark());
    const OWN: [u8; 6] = [2, b'l', b'f', 0x51, 0, 1];
    let cable = Cable::new();
    let (driver, regions) = open(&cable.pair.a, shared().station_and_groups(OWN), |config| config);
    let station = Station::new(Config::default(), interface(&cable.pair.a, OWN), driver, regions);
    assert_eq!(denials(&cable, station), [""; 0]);
}

/// The proof that the captures above would show it: a station that has taken the
/// kernel's own address is denied by that kernel.
#[test]
fn a_kernel_denies_connections_that_came_to_its_own_address() {
    skip_unless!(why_no_tshark());
    let cable = Cable::new();
    let (driver, regions) = open(&cable.pair.a, shared(), |config| config);
    let stolen = Interface {
        mac: cable.pair.a.mac.0,
        addresses: vec![OwnAddress::new(cable.pair.a.ipv4.into(), 24)],
        ..Interface::default()
    };
    let mut station = Station::new(Config::default(), stolen, driver, regions);
    station.shape = Shape::SMALL;
    let end = &cable.pair.b;
    let capture = Capture::start(&end.namespace, &end.name, "stolen");
    let (listener, at) = cable.kernel.listen(true);
    let pair = station.connect(at, Saying::nothing());
    // To the kernel at the other end the denial is ours, and it tells us so.
    assert_eq!(station.finish(pair).closed, Some(CloseReason::Reset));
    drop(listener);
    assert!(capture.finish().count(DENIALS) > 0);
}

/// What one side has switched off is on no frame of a connection, and what both
/// have switched on is.
#[test]
fn what_both_agree_on_is_what_is_on_the_wire() {
    skip_unless!(why_no_tshark());
    const STAMPED: &str = "tcp.options.timestamp.tsval && tcp.flags.syn == 0";
    const BOTH_CAN_SACK: &str = "tcp.options.sack_perm && tcp.flags.syn == 1 && tcp.flags.ack == 1";
    const BOTH_CAN_ECN: &str = "tcp.flags.syn == 1 && tcp.flags.ack == 1 && tcp.flags.ece == 1";
    const CAPABLE: &str = "tcp.len > 0 && (ip.dsfield.ecn == 2 || ipv6.tclass.ecn == 2)";
    let knobs = ["ipv4/tcp_timestamps", "ipv4/tcp_sack", "ipv4/tcp_ecn"];
    for is_on in [true, false] {
        let cable = Cable::new();
        for knob in knobs {
            cable.kernel.sysctl(knob, if is_on { "1" } else { "0" });
        }
        let end = &cable.pair.b;
        let capture = Capture::start(&end.namespace, &end.name, "agreed");
        let mut config = Config::default();
        config.tcp.ecn = true;
        let mut station = cable.station_as(config, |config| config);
        for opening in OPENINGS {
            Exchange::new(opening, 64 << 10).run(&mut station, &cable.kernel);
        }
        let captured = capture.finish();
        for filter in [STAMPED, BOTH_CAN_SACK, BOTH_CAN_ECN, CAPABLE] {
            assert_eq!(captured.count(filter) > 0, is_on, "{filter}");
        }
        assert!(captured.count("tcp.flags.syn == 1 && tcp.flags.ack == 1") >= OPENINGS.len());
    }
}
