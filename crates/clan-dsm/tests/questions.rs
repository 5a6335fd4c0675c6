//! Reads, operations on words, exceptions: what needs an answer.

use crate::world::{Pair, fired, noise};
use clan_dsm::{Access, Action, Config, DmaRequest, Ended, Error, Event, Reason, Rights};
use landfall_placement::{WordFunction, WordWidth};
use landfall_simnet::{LinkConfig, Sim};

fn pair() -> Pair {
    Pair::new(Sim::from_number(2), Config::default(), LinkConfig::ethernet(1_000_000_000))
}

#[test]
fn a_read_brings_what_is_there_from_anywhere_to_anywhere() {
    let mut pair = pair();
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
    let mut pair = pair();
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
    let mut pair = pair();
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
    let mut pair = pair();
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
    let mut pair = pair();
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
    let mut pair = pair();
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
fn exceptions_are_not_told_more_often_than_anybody_listens() {
    let mut pair = pair();
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
    assert!(told > 0);
    let stats = *pair.nic(1).stats();
    assert!(stats.refused > 1500, "{stats:?}");
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
