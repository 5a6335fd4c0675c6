//! Writes of every kind between two adapters, and tripwires on them.

use std::time::Duration;

use crate::world::{Pair, fired, noise};
use clan_dsm::{Access, Action, Config, DmaRequest, Error, Event, Rights};
use landfall_placement::Area;
use landfall_simnet::{LinkConfig, Sim};

fn pair() -> Pair {
    Pair::new(Sim::from_number(1), Config::default(), LinkConfig::ethernet(1_000_000_000))
}

#[test]
fn invariant_2_a_tripwire_fires_when_the_bytes_are_in_place() {
    let mut pair = pair();
    let (area, aperture, window) = pair.window(4096);
    let watched = pair.nic(1).watch(aperture, 64..72, Access::Write, Action::Event, false).unwrap();
    let other = pair.nic(1).watch(aperture, 72..80, Access::Write, Action::Event, false).unwrap();
    let now = pair.now();
    pair.nic(0).write(now, window, 0, b"nobody listens here").unwrap();
    pair.nic(0).write_word(now, window, 64, 0x1122_3344_5566_7788).unwrap();
    pair.run_until("the tripwire", |_, b| fired(b, watched));
    let bytes = pair.bytes(1, area);
    assert_eq!(&bytes[..19], b"nobody listens here");
    assert_eq!(bytes[64..72], 0x1122_3344_5566_7788_u64.to_le_bytes());
    assert!(bytes[19..64].iter().chain(&bytes[72..]).all(|byte| *byte == 0));
    assert!(!pair.nic(1).has_fired(other).unwrap());
    assert!(pair.nic(1).take_fired(watched).unwrap());
}

#[test]
fn any_bytes_anywhere() {
    let mut pair = pair();
    let (area, _, window) = pair.window(1024);
    let mut wanted = vec![0; 1024];
    for (n, (at, len)) in [(0, 1), (7, 2), (9, 30), (63, 1), (64, 8), (100, 500), (1023, 1), (3, 3)]
        .into_iter()
        .enumerate()
    {
        let bytes = noise(n as u64, len);
        let now = pair.now();
        pair.nic(0).write(now, window, at as u64, &bytes).unwrap();
        wanted[at..at + len].copy_from_slice(&bytes);
    }
    pair.flush();
    assert_eq!(pair.bytes(1, area), wanted);
}

#[test]
fn writes_that_follow_each_other_share_a_frame() {
    let mut pair = pair();
    let (_, _, window) = pair.window(4096);
    let now = pair.now();
    let before = pair.nic(0).stats().frames;
    for n in 0..16 {
        pair.nic(0).write_word(now, window, 8 * n, n).unwrap();
    }
    pair.flush();
    assert_eq!(pair.nic(0).stats().frames - before, 1);
}

#[test]
fn data_then_the_flag_is_one_chain() {
    let mut pair = pair();
    let len = 300_001;
    let (area, aperture, window) = pair.window(len + 15);
    let flag = (len as u64).next_multiple_of(8);
    let flag_trip =
        pair.nic(1).watch(aperture, flag..flag + 8, Access::Write, Action::Event, true).unwrap();
    let out = pair.nic(0).watch_window(window, 8..16, Action::Event, true).unwrap();
    let data = noise(3, len);
    let from = pair.lend(0, &data);
    let endpoint = pair.nic(0).open_endpoint(None).unwrap();
    let chain = [
        DmaRequest::Write { from, window, offset: 0 },
        DmaRequest::Word { window, offset: flag, value: 1 },
    ];
    let now = pair.now();
    let dma = pair.nic(0).dma(now, endpoint, &chain).unwrap();
    pair.run_until("the flag", |_, b| fired(b, flag_trip));
    assert_eq!(pair.bytes(1, area)[..len], data, "all of the data is there before its flag");
    pair.run_until("the completion", |a, _| {
        a.contains(&Event::Dma { endpoint, dma, result: Ok(()) })
    });
    pair.run_until("the outgoing tripwire", |a, _| fired(a, out));
}

#[test]
fn a_write_from_memory_keeps_its_place() {
    let mut pair = pair();
    let (area, _, window) = pair.window(40_000);
    let data = noise(4, 30_000);
    let from = pair.lend(0, &data);
    let now = pair.now();
    pair.nic(0).write(now, window, 0, &[1; 100]).unwrap();
    let write = pair.nic(0).write_from(now, window, 50, from).unwrap();
    pair.nic(0).write(now, window, 60, &[2; 10]).unwrap();
    pair.flush();
    let mut wanted = vec![0; 40_000];
    wanted[..100].fill(1);
    wanted[50..30_050].copy_from_slice(&data);
    wanted[60..70].fill(2);
    assert_eq!(pair.bytes(1, area), wanted);
    assert!(pair.logs[0].borrow().contains(&Event::Written { write, result: Ok(()) }));
}

#[test]
fn a_barrier_is_behind_programmed_writes_and_chains() {
    let mut pair = pair();
    let (area, _, window) = pair.window(100_000);
    let data = noise(5, 90_000);
    let from = pair.lend(0, &data);
    let endpoint = pair.nic(0).open_endpoint(None).unwrap();
    let now = pair.now();
    pair.nic(0).dma(now, endpoint, &[DmaRequest::Write { from, window, offset: 8 }]).unwrap();
    pair.nic(0).write_word(now, window, 0, 7).unwrap();
    pair.flush();
    let bytes = pair.bytes(1, area);
    assert_eq!((&bytes[..8], &bytes[8..90_008]), (&7_u64.to_le_bytes()[..], &data[..]));
}

#[test]
fn invariant_5_a_full_write_buffer_takes_all_or_nothing() {
    let mut pair = pair();
    let (area, _, window) = pair.window(1 << 20);
    let now = pair.now();
    let mut taken = 0;
    let refused = loop {
        match pair.nic(0).write(now, window, 1000 * taken, &[taken as u8 + 1; 1000]) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, Error::Busy);
    assert!(taken > 10 && pair.nic(0).room(window) < 1000);
    assert_eq!(pair.nic(0).write(now, window, 0, &[9; 70_000]), Err(Error::TooLong));
    pair.run_for(Duration::from_secs(1));
    assert!(pair.nic(0).room(window) >= 1000, "it is empty again");
    let bytes = pair.bytes(1, area);
    for n in 0..taken as usize {
        assert_eq!(bytes[1000 * n..1000 * (n + 1)], [n as u8 + 1; 1000]);
    }
    assert!(bytes[1000 * taken as usize..].iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_not_allowed_is_refused_at_once() {
    let mut pair = pair();
    let (_, aperture, window) = pair.window(64);
    let now = pair.now();
    let nic = pair.nic(0);
    assert_eq!(nic.write(now, window, 60, &[0; 5]), Err(Error::OutOfBounds));
    assert_eq!(nic.write(now, window, u64::MAX, &[0; 5]), Err(Error::OutOfBounds));
    assert_eq!(nic.write_word(now, window, 4, 0), Err(Error::Unaligned));
    let nowhere = Area::default();
    assert_eq!(nic.write_from(now, window, 0, nowhere), Err(Error::BadMemory));
    nic.unmap(window).unwrap();
    assert_eq!(nic.write(now, window, 0, &[0]), Err(Error::Unknown));
    let cookie = pair.nic(1).cookie(aperture, Rights::Read).unwrap();
    let window = pair.nic(0).map(&cookie).unwrap();
    assert_eq!(pair.nic(0).write(now, window, 0, &[0]), Err(Error::Forbidden));
}
