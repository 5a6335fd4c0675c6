//! UDP by way of `io_uring`, over loopback and, where a notification has to be
//! held back, over a veth pair.
#![cfg(feature = "io-uring")]

mod support;

use landfall_placement::{Guess, Landing, PathId, RegionId};
use landfall_transport::memory::{Regions, Rights};
use landfall_transport::uring::{UringUdpConfig, UringUdpDriver, ZeroCopy};
use landfall_transport::{Driver, Feature};
use support::{LABEL, Scripted, assert_same, contents, lent, pattern, turn_until};

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
    let message = pattern(60 * 1024, 3);
    let (arrived, sender, receiver) = carry(&message, 1024, |config| {
        config.zero_copy = ZeroCopy::Always;
    });
    assert_same(&arrived, &message);
    assert_eq!(sender.counters().units_sent, 60);
    assert_eq!(sender.counters().send_failed, 0);
    assert_eq!(receiver.counters().bytes_copied, 0);
}
