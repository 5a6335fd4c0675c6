//! Reads, operations on words, exceptions: what needs an answer.
//!
//! Writes of every kind between two adapters, and tripwires on them.

use std::time::Duration;

use clan_dsm::{Access, Action, Config, DmaRequest, Ended, Error, Event, Reason, Rights};
use landfall_placement::{Area, WordFunction, WordWidth};
use landfall_simnet::{LinkConfig, Sim};

use crate::world::{Pair, fired, noise};

fn pair(seed: u64) -> Pair {
    Pair::new(Sim::from_number(seed), Config::default(), LinkConfig::ethernet(1_000_000_000))
}

#[test]
fn a_read_brings_what_is_there_from_anywhere_to_anywhere() {
    let mut pair = pair(2);
    let data = noise(7, 50_000);
    let area = pair.lend(1, &data);
    let aperture = pair.nic(1).expose(area).unwrap();
    let cookie = pair.nic(1).cookie(aperture, Rights::Read).unwrap();
    let read_there =
        pair.nic(1).watch(aperture, 0..50_000, Access::Read, Action::Event, true).unwrap();
    let window = pair.nic(0).map(&cookie).unwrap();
    let reads: Vec<_> = [(0, 50_000), (3, 1), (7, 2), (8, 8), (49_999, 1), (11, 20_001)]
        .into_iter()
        .map(|(at, len)| {
            let into = pair.lend(0, &vec![0; len]);
            let now = pair.now();
            (pair.nic(0).read(now, window, at as u64, into).unwrap(), at, len, into)
        })
        .collect();
    for (read, at, len, into) in reads {
        pair.run_until("the read", |a, _| a.contains(&Event::Read { read, result: Ok(()) }));
        assert_eq!(pair.bytes(0, into), data[at..at + len], "{len} bytes at {at}");
    }
    pair.run_until("the tripwire", |_, b| fired(b, read_there));
}

#[test]
fn a_read_sees_what_was_written_before_it() {
    let mut pair = pair(2);
    let (_, _, window) = pair.window(4096);
    let into = pair.lend(0, &[0; 100]);
    let now = pair.now();
    pair.nic(0).write(now, window, 1000, &[5; 100]).unwrap();
    let read = pair.nic(0).read(now, window, 1000, into).unwrap();
    pair.run_until("the read", |a, _| a.contains(&Event::Read { read, result: Ok(()) }));
    assert_eq!(pair.bytes(0, into), [5; 100]);
}

#[test]
fn reads_beyond_what_may_be_under_way_are_busy() {
    let mut pair = pair(2);
    let (_, _, window) = pair.window(4096);
    let into = pair.lend(0, &[0; 8]);
    let now = pair.now();
    let mut begun = 0;
    while pair.nic(0).read(now, window, 0, into).is_ok() {
        begun += 1;
    }
    assert_eq!(begun, 256);
    assert_eq!(pair.nic(0).read(now, window, 0, into), Err(Error::Busy));
    pair.run_until("all of them", |a, _| {
        a.iter().filter(|e| matches!(e, Event::Read { result: Ok(()), .. })).count() == begun
    });
    assert!(pair.nic(0).read(now, window, 0, into).is_ok());
}

#[test]
fn the_dma_engine_reads_and_writes() {
    let mut pair = pair(2);
    let (area, _, window) = pair.window(200_000);
    let data = noise(9, 100_000);
    let (from, into) = (pair.lend(0, &data), pair.lend(0, &[0; 100_000]));
    let endpoint = pair.nic(0).open_endpoint(None).unwrap();
    let now = pair.now();
    let write = DmaRequest::Write { from, window, offset: 33 };
    let dma = pair.nic(0).dma(now, endpoint, &[write]).unwrap();
    pair.run_until("the write", |a, _| a.contains(&Event::Dma { endpoint, dma, result: Ok(()) }));
    assert_eq!(pair.bytes(1, area)[33..100_033], data);
    let now = pair.now();
    let read = DmaRequest::Read { window, offset: 33, into };
    let dma = pair.nic(0).dma(now, endpoint, &[read]).unwrap();
    pair.run_until("the read", |a, _| a.contains(&Event::Dma { endpoint, dma, result: Ok(()) }));
    assert_eq!(pair.bytes(0, into), data);
}

#[test]
fn words_are_changed_once_and_in_order() {
    let mut pair = pair(2);
    let (area, aperture, window) = pair.window(64);
    let trip = pair.nic(1).watch(aperture, 8..16, Access::Write, Action::Count(0), false).unwrap();
    let now = pair.now();
    pair.nic(0).write_word(now, window, 8, 100).unwrap();
    let functions = [
        WordFunction::Add(5),
        WordFunction::CompareSwap { expected: 105, new: 7 },
        WordFunction::CompareSwap { expected: 105, new: 8 },
        WordFunction::Load,
    ];
    let ids = functions.map(|function| {
        let now = pair.now();
        pair.nic(0).change(now, window, 8, WordWidth::Eight, function).unwrap()
    });
    for (operation, old) in ids.into_iter().zip([100, 105, 7, 7]) {
        pair.run_until("the answer", |a, _| {
            a.contains(&Event::Word { operation, result: Ok(old) })
        });
    }
    assert_eq!(pair.bytes(1, area)[8..16], 7_u64.to_le_bytes());
    assert_eq!(pair.nic(1).firings(trip).unwrap(), 4, "a load is no write");
    let now = pair.now();
    let four = pair.nic(0).change(now, window, 12, WordWidth::Four, WordFunction::Swap(3)).unwrap();
    pair.run_until("the answer", |a, _| {
        a.contains(&Event::Word { operation: four, result: Ok(0) })
    });
    assert_eq!(pair.bytes(1, area)[12..16], 3_u32.to_le_bytes());
}

#[test]
fn what_the_other_side_refuses_it_says() {
    let mut pair = pair(2);
    let (area, aperture, window) = pair.window(64);
    let (other, _, elsewhere) = pair.window(64);
    let memory = pair.nic(1).revoke(aperture).unwrap();
    assert_eq!(memory, area);
    let now = pair.now();
    let into = pair.lend(0, &[0; 8]);
    // The same frame has writes that are refused and writes that are not.
    pair.nic(0).write(now, elsewhere, 0, &[1; 8]).unwrap();
    pair.nic(0).write(now, window, 0, &[9; 8]).unwrap();
    pair.nic(0).write(now, elsewhere, 32, &[2; 8]).unwrap();
    let read = pair.nic(0).read(now, window, 0, into).unwrap();
    let word = WordFunction::Add(1);
    let operation = pair.nic(0).change(now, window, 0, WordWidth::Eight, word).unwrap();
    pair.flush();
    let refused = Err(Ended::There(Reason::BadKey));
    pair.run_until("the refusals", |a, _| {
        a.contains(&Event::Read { read, result: refused })
            && a.contains(&Event::Word { operation, result: Err(Ended::There(Reason::BadKey)) })
            && a.iter().any(|e| matches!(e, Event::Exception { window: Some(w), reason: Reason::BadKey, .. } if *w == window))
    });
    assert_eq!(pair.bytes(1, area), [0; 64]);
    let bytes = pair.bytes(1, other);
    assert_eq!((&bytes[..8], &bytes[32..40]), (&[1; 8][..], &[2; 8][..]));
}

#[test]
fn each_write_that_is_refused_is_told_where_its_writer_listens() {
    let mut pair = pair(2);
    let (_, aperture, window) = pair.window(1 << 16);
    pair.nic(1).revoke(aperture).unwrap();
    for n in 0..2000 {
        let now = pair.now();
        // Not neighbours, so that each is a packet of its own.
        if pair.nic(0).write(now, window, 16 * (n % 4000), &[1; 8]).is_err() {
            pair.run_for(std::time::Duration::from_millis(10));
        }
    }
    pair.flush();
    let told =
        pair.logs[0].borrow().iter().filter(|e| matches!(e, Event::Exception { .. })).count();
    let stats = *pair.nic(1).stats();
    assert!(stats.refused > 1500, "{stats:?}");
    assert_eq!(told as u64, stats.refused, "{stats:?}");
}

#[test]
fn barriers_behind_an_operation_on_a_word_are_reached() {
    let config = Config { frames: 1, ..Config::default() };
    let mut pair = Pair::new(Sim::from_number(2), config, LinkConfig::ethernet(1_000_000_000));
    let (_, _, window) = pair.window(64);
    let (now, link) = (pair.now(), pair.links[0]);
    let nic = pair.nic(0);
    nic.change(now, window, 0, WordWidth::Eight, WordFunction::Add(1)).unwrap();
    let barriers = [(); 2].map(|()| nic.barrier(now, link).unwrap());
    pair.run_until("the barriers", |a, _| {
        barriers
            .iter()
            .all(|barrier| a.contains(&Event::Barrier { barrier: *barrier, result: Ok(()) }))
    });
}

#[test]
fn invariant_2_a_tripwire_fires_when_the_bytes_are_in_place() {
    let mut pair = pair(1);
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
    let mut pair = pair(1);
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
    let mut pair = pair(1);
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
    let mut pair = pair(1);
    let len = 300_001;
    let (area, aperture, window) = pair.window(len + 15);
    let flag = (len as u64).next_multiple_of(8);
    let flag_trip =
        pair.nic(1).watch(aperture, flag..flag + 8, Access::Write, Action::Event, true).unwrap();
    let out = pair.nic(0).watch_window(window, 8..16, Access::Write, Action::Event, true).unwrap();
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

/// Own reads, by calls and by chains, and own operations on words: at the words that were
/// touched, and not before the bytes are there.
#[test]
fn tripwires_on_the_way_out_hear_of_reads_and_of_operations_on_words() {
    let mut pair = pair(4);
    let (_, _, window) = pair.window(4096);
    let mut watch = |bytes, access| {
        pair.nic(0).watch_window(window, bytes, access, Action::Event, false).unwrap()
    };
    let (read, write) = (watch(16..24, Access::Read), watch(16..24, Access::Write));
    let beside = watch(24..4096, Access::Both);
    let into = pair.lend(0, &[0; 16]);
    let now = pair.now();
    // A byte of the word, by its end.
    let id = pair.nic(0).read(now, window, 15, Area { len: 9, ..into }).unwrap();
    pair.run_until("the read", |a, _| a.contains(&Event::Read { read: id, result: Ok(()) }));
    pair.run_until("its tripwire", |a, _| fired(a, read));
    assert_eq!(pair.nic(0).firings(write).unwrap(), 0);
    let now = pair.now();
    let add = WordFunction::Add(1);
    pair.nic(0).change(now, window, 20, WordWidth::Four, add).unwrap();
    pair.run_until("the operation", |a, _| fired(a, write));
    let endpoint = pair.nic(0).open_endpoint(None).unwrap();
    let chain = [DmaRequest::Read { window, offset: 8, into }];
    let now = pair.now();
    let dma = pair.nic(0).dma(now, endpoint, &chain).unwrap();
    pair.run_until("the chain", |a, _| a.contains(&Event::Dma { endpoint, dma, result: Ok(()) }));
    assert_eq!(pair.nic(0).firings(read).unwrap(), 2);
    assert_eq!(pair.nic(0).firings(write).unwrap(), 1);
    assert_eq!(pair.nic(0).firings(beside).unwrap(), 0);
}

#[test]
fn a_write_from_memory_keeps_its_place() {
    let mut pair = pair(1);
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
    let mut pair = pair(1);
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
    let mut pair = pair(1);
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
    let mut pair = pair(1);
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
