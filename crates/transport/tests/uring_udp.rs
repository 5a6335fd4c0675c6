//! UDP by way of `io_uring`, over loopback and, where a notification has to be
//! held back, over a veth pair.
use std::net::{Ipv4Addr, SocketAddr};
use std::{fs, thread};

use crate::support::packet::uring::why_no_uring;
use crate::support::{LABEL, PATIENCE, Scripted, assert_same, contents, lent, pattern, turn_until};
use landfall_placement::{Guess, Instant, Landing, PathId, RegionId};
use landfall_testbed::{VethConfig, VethPair, require_namespaces, skip_unless};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::uring::{UringUdpConfig, UringUdpDriver, ZeroCopy};
use landfall_transport::{Clock, Driver, Feature, Wait, Waiter};

const PATH: PathId = PathId(0);
const ANY: &str = "127.0.0.1:0";

fn open_with(regions: &Regions, adjust: impl FnOnce(&mut UringUdpConfig)) -> UringUdpDriver {
    let mut config = UringUdpConfig::new(ANY.parse().unwrap(), 65_535);
    adjust(&mut config);
    UringUdpDriver::open(PATH, config, regions).unwrap()
}

fn run(region: RegionId, len: usize, payload_len: u32) -> Vec<Guess> {
    vec![Guess { span: region.span(0, len as u32), head_len: LABEL as u16, payload_len }]
}

/// Sends a message in labelled units and gives what arrived, with both drivers.
fn carry(
    message: &[u8],
    unit: u32,
    adjust: impl Fn(&mut UringUdpConfig),
) -> (Vec<u8>, UringUdpDriver, UringUdpDriver) {
    let (send_regions, source) = lent(message, Rights::READ);
    let (regions, target) = lent(&vec![0; message.len()], Rights::WRITE);
    let mut sender = open_with(&send_regions, &adjust);
    let mut receiver = open_with(&regions, &adjust);
    let mut from = Scripted::sender();
    let mut to = Scripted::labelled(target);
    to.guesses = run(target, message.len(), unit);
    let units = message.len().div_ceil(unit as usize);
    from.send_labelled(receiver.local_address().into(), source.span(0, message.len() as u32), unit);
    turn_until(&mut sender, &mut from, |from, _| from.sent.len() == units);
    turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == units);
    assert!(to.landings.iter().all(|(_, landing)| *landing == Landing::Unchecked));
    (contents(&regions, target), sender, receiver)
}

#[test]
fn several_batches_leave_with_one_entry_and_arrive_in_their_place() {
    skip_unless!(why_no_uring());
    let message = pattern(200 * 1024, 1);
    let (arrived, sender, receiver) =
        carry(&message, 1024, |config| config.zero_copy = ZeroCopy::Never);
    assert_same(&arrived, &message);
    let counters = receiver.counters();
    assert_eq!((counters.guessed_right, counters.guessed_wrong), (200, 0));
    assert_eq!((counters.bytes_copied, counters.payload_bytes), (0, 200 * 1024));
    assert_eq!(sender.counters().send_calls, 1, "four batches, one entry");
    assert!(!sender.capabilities().has(Feature::ZeroCopySend));
    assert_eq!(sender.zero_copy_use().copied, 0);
}

#[test]
fn loopback_copies_after_all_and_that_is_reported_not_hidden() {
    skip_unless!(why_no_uring());
    let message = pattern(60 * 16_384, 2);
    let (arrived, sender, _) = carry(&message, 16_384, |config| {
        config.zero_copy = ZeroCopy::Always;
    });
    assert_same(&arrived, &message);
    let used = sender.zero_copy_use();
    assert!(used.copied + used.refused > 0, "{used:?}");
    assert_eq!(used.uncopied, 0, "loopback never does without a copy");
}

#[test]
fn what_has_too_many_pieces_for_one_packet_is_copied() {
    skip_unless!(why_no_uring());
    let message = pattern(60 * 1024, 3);
    let (arrived, sender, receiver) = carry(&message, 1024, |config| {
        config.zero_copy = ZeroCopy::Always;
    });
    assert_same(&arrived, &message);
    assert_eq!(sender.counters().units_sent, 60);
    assert_eq!(sender.counters().send_failed, 0);
    assert_eq!(receiver.counters().bytes_copied, 0);
}

/// A driver at one end of a cable, and an address there that nobody has: what
/// is sent to it waits in the kernel until the cable is cut.
fn towards_nobody(pair: &VethPair, regions: &Regions) -> (UringUdpDriver, SocketAddr) {
    let config = UringUdpConfig {
        zero_copy: ZeroCopy::Always,
        ..UringUdpConfig::new((pair.a.ipv4, 0).into(), 1500)
    };
    let patience = format!("/proc/sys/net/ipv4/neigh/{}/retrans_time_ms", pair.a.name);
    let driver = pair.a.namespace.enter(|| {
        // The kernel asks for the address for an hour, not three seconds.
        fs::write(patience, "3600000").unwrap();
        UringUdpDriver::open(PATH, config, regions)
    });
    let [a, b, c, _] = pair.a.ipv4.octets();
    (driver.unwrap().unwrap(), (Ipv4Addr::new(a, b, c, 250), 9).into())
}

#[test]
fn a_send_without_a_copy_is_over_when_its_notification_comes() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let (regions, source) = lent(&pattern(1400, 4), Rights::READ);
    let (mut driver, nobody) = towards_nobody(&pair, &regions);
    let mut from = Scripted::sender();
    from.send_labelled(nobody.into(), source.span(0, 1400), 1400);
    let progress = driver.turn(&mut from, Instant::ZERO).unwrap();
    assert_eq!(progress.sent, 1);
    assert_eq!(from.sent, [], "the kernel still reads the payload");
    let ring = driver.interests()[1];
    assert!(ring.readable && !ring.writable);
    assert!(regions.try_take_back(source).is_err(), "it is pinned");
    // The unit is dropped with the interface's neighbours.
    pair.a.set_up(false).unwrap();
    turn_until(&mut driver, &mut from, |from, _| from.sent.len() == 1);
    assert_eq!(driver.zero_copy_use().uncopied, 1);
    assert!(!driver.interests()[1].readable);
    assert!(regions.try_take_back(source).is_ok());
}

#[test]
fn the_ring_wakes_those_who_wait_for_a_notification() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let (regions, source) = lent(&pattern(1400, 4), Rights::READ);
    let (mut driver, nobody) = towards_nobody(&pair, &regions);
    let mut from = Scripted::sender();
    from.send_labelled(nobody.into(), source.span(0, 1400), 1400);
    driver.turn(&mut from, Instant::ZERO).unwrap();
    assert_eq!(from.sent, []);
    let (clock, mut waiter) = (Clock::start(), Waiter::new(Wait::Block));
    thread::scope(|scope| {
        let cutter = scope.spawn(|| pair.a.set_up(false).unwrap());
        while from.sent.is_empty() {
            assert!(clock.now() < Instant::ZERO + PATIENCE, "nobody woke us");
            waiter.idle(&mut driver, &from, &clock, PATIENCE).unwrap();
            driver.turn(&mut from, clock.now()).unwrap();
        }
        cutter.join().unwrap();
    });
    assert!(driver.counters().wakeups > 0);
}

#[test]
fn a_driver_that_goes_leaves_no_memory_to_the_kernel() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let (regions, source) = lent(&pattern(1400, 4), Rights::READ);
    let (mut driver, nobody) = towards_nobody(&pair, &regions);
    let mut from = Scripted::sender();
    from.send_labelled(nobody.into(), source.span(0, 1400), 1400);
    driver.turn(&mut from, Instant::ZERO).unwrap();
    // The notification comes while the driver takes its leave.
    pair.a.set_up(false).unwrap();
    drop(driver);
    assert!(regions.try_take_back(source).is_ok());
}

#[test]
fn memory_that_the_kernel_keeps_stays_pinned_for_good() {
    require_namespaces!();
    skip_unless!(why_no_uring());
    let pair = VethPair::new(VethConfig::default()).unwrap();
    let (regions, source) = lent(&pattern(1400, 4), Rights::READ);
    let (mut driver, nobody) = towards_nobody(&pair, &regions);
    let mut from = Scripted::sender();
    from.send_labelled(nobody.into(), source.span(0, 1400), 1400);
    driver.turn(&mut from, Instant::ZERO).unwrap();
    // The kernel will ask for the address of nobody for longer than we wait.
    drop(driver);
    assert!(regions.try_take_back(source).is_err(), "the kernel may still read it");
}
