//! What is kept is bounded, and who sends what never becomes whole loses it first.

use super::*;
use crate::conventional::Expired;

/// A piece that is not the only one of its packet.
fn begins(host: &mut Host, from: FragmentSource, id: u32) -> Result<Option<Packet>, Refusal> {
    host.piece(from, (id, 0, true), &bytes(64))
}

fn goes_on(host: &mut Host, from: FragmentSource, id: u32) -> bool {
    let sent = bytes(128);
    let packet =
        begins(host, from, id).and_then(|_| host.piece(from, (id, 64, false), &sent[64..]));
    match packet {
        Ok(Some(packet)) => host.take(&packet) == frame(from, Some((id, 0, false)), &sent),
        _ => false,
    }
}

#[test]
fn invariant_5_sources_that_never_finish_take_bounded_memory_and_service_goes_on() {
    let config = Config { packets: 2_000, bytes: 64 * u64::from(PAGE), ..Config::default() };
    let mut host = Host::new(config, 100, 2);
    let friend = FragmentSource { host: 0x00ff_0001, ..V4 };
    for source in 0..100_000 {
        begins(&mut host, FragmentSource { host: source, ..V4 }, 1).unwrap();
        if source % 1_000 == 0 {
            assert!(goes_on(&mut host, friend, source), "after {source}");
        }
        let (packets, sources, held) = host.reassembly.store.sizes();
        assert!(packets <= 64 && sources <= 65 && held <= config.bytes, "after {source}");
    }
    assert_eq!(host.reassembly.counters().evicted, 100_000 - 64);
    assert_eq!(host.buffers.free_pages(), 36);
    host.at(NOW + Duration::from_secs(60));
    assert_eq!(host.reassembly.store.sizes(), (0, 1, 0), "the source that was asked for last");
    assert!(host.is_clean());
}

#[test]
fn one_source_loses_its_own_first() {
    let config = Config { bytes_per_source: 4 * u64::from(PAGE), ..Config::default() };
    let mut host = Host::new(config, 50, 2);
    let friends: Vec<_> = (0..20).map(|host| FragmentSource { host, ..V4 }).collect();
    for friend in &friends {
        begins(&mut host, *friend, 1).unwrap();
    }
    let flood = FragmentSource { host: 99, ..V4 };
    for id in 0..1_000 {
        begins(&mut host, flood, id).unwrap();
        assert!(host.reassembly.store.sizes().2 <= 24 * u64::from(PAGE));
    }
    assert_eq!(host.reassembly.counters().evicted, 996);
    for id in 0..1_000 {
        let is_there = host.reassembly.contains(&read(flood, (id, 0, true), &[0; 8]).0.key);
        assert_eq!(is_there, id >= 996, "the oldest went: {id}");
    }
    for friend in friends {
        assert!(host.piece(friend, (1, 64, false), &bytes(64)).unwrap().is_some());
    }
}

/// Refused packets hold no buffer, but they are remembered: within bounds too.
#[test]
fn refused_packets_are_bounded_for_each_source() {
    let config = Config { bytes_per_source: 16 << 10, ..Config::default() };
    let mut host = Host::new(config, 50, 2);
    let flood = FragmentSource { host: 99, ..V4 };
    for id in 0..1_000 {
        begins(&mut host, flood, id).unwrap();
        assert_eq!(host.piece(flood, (id, 8, true), &bytes(64)), Err(Refusal::Forbidden));
        let (packets, _, held) = host.reassembly.store.sizes();
        assert!(packets <= 32 && held <= 16 << 10);
    }
    assert_eq!(host.reassembly.counters().refused, 1_000);
    assert!(host.is_clean());
}

#[test]
fn the_number_of_packets_is_bounded() {
    let mut host = Host::new(Config { packets: 3, ..Config::default() }, 8, 2);
    for id in 0..10 {
        begins(&mut host, V4, id).unwrap();
    }
    assert_eq!(host.reassembly.store.sizes().0, 3);
    assert_eq!(host.reassembly.counters().evicted, 7);
    for id in 7..10 {
        assert!(host.piece(V4, (id, 64, false), &bytes(64)).unwrap().is_some(), "{id}");
    }
    let mut none = Host::new(Config { packets: 0, ..Config::default() }, 8, 2);
    assert_eq!(begins(&mut none, V4, 1), Err(Refusal::NoRoom));
    assert!(none.is_clean());
}

/// Without a free buffer the packet goes that holds one of that kind for longest.
#[test]
fn a_pool_that_is_empty_takes_from_its_oldest() {
    let mut host = Host::new(Config::default(), 2, 1);
    let far = |host: &mut Host, id| host.piece(V4, (id, 8000, true), &bytes(64));
    far(&mut host, 1).unwrap();
    begins(&mut host, V4, 2).unwrap();
    begins(&mut host, V4, 3).unwrap();
    begins(&mut host, V4, 4).unwrap();
    let has = |host: &Host, id| host.reassembly.contains(&read(V4, (id, 0, true), &[0; 8]).0.key);
    assert_eq!([1, 2, 3, 4].map(|id| has(&host, id)), [true, false, true, true]);
    far(&mut host, 5).unwrap();
    assert_eq!([1, 3, 4, 5].map(|id| has(&host, id)), [false, true, true, true]);
    // An atomic packet needs a buffer too.
    let packet = host.piece(V6, (1, 0, false), &bytes(64)).unwrap().unwrap();
    assert_eq!([3, 4, 5].map(|id| has(&host, id)), [false, true, true]);
    // A page that grows is not its own victim, nor does it keep its page.
    host.piece(V4, (4, 8000, true), &bytes(64)).unwrap();
    assert_eq!([4, 5].map(|id| has(&host, id)), [true, false]);
    host.take(&packet);
    assert_eq!(host.buffers.free_pages(), 2);
    host.at(NOW + Duration::from_secs(60));
    assert!(host.is_clean());
}

/// Packets that are out and not released: nobody can be asked for their buffers.
#[test]
fn without_any_buffer_a_piece_is_refused_and_what_is_there_stays() {
    let mut host = Host::new(Config::default(), 1, 0);
    let taken = host.buffers.take(1).unwrap();
    assert_eq!(begins(&mut host, V4, 1), Err(Refusal::NoRoom));
    assert_eq!(host.piece(V6, (1, 0, false), &bytes(64)), Err(Refusal::NoRoom));
    assert!(host.reassembly.is_empty());
    host.buffers.give_back(taken);
    begins(&mut host, V4, 1).unwrap();
    let far = host.piece(V4, (1, 8000, true), &bytes(64));
    assert_eq!(far, Err(Refusal::NoRoom), "there is no large one");
    assert!(host.piece(V4, (1, 64, false), &bytes(64)).unwrap().is_some());
}

/// More than its source may have at all: nobody goes for that.
#[test]
fn what_can_never_fit_pushes_nobody_out() {
    let config = Config { bytes_per_source: u64::from(LARGE) - 1, ..Config::default() };
    let mut host = Host::new(config, 8, 2);
    for id in 0..5 {
        begins(&mut host, V4, id).unwrap();
    }
    assert_eq!(host.piece(V4, (1, 8000, true), &bytes(64)), Err(Refusal::NoRoom));
    assert_eq!(host.piece(V4, (9, 8000, true), &bytes(64)), Err(Refusal::NoRoom));
    assert_eq!(host.reassembly.counters().evicted, 0);
    assert_eq!(host.reassembly.store.sizes().0, 5);
}

/// What lands by a guess needs pages too: not all may wait here.
#[test]
fn the_pages_that_wait_are_bounded_and_large_buffers_do_not_count() {
    let mut host = Host::new(Config { pages: 3, ..Config::default() }, 8, 2);
    for id in 0..2 {
        host.piece(V4, (id, 8000, true), &bytes(64)).unwrap();
    }
    for id in 2..10 {
        begins(&mut host, V4, id).unwrap();
        assert!(host.buffers.free_pages() >= 5 && host.buffers.free_large() == 0);
    }
    let has = |host: &Host, id| host.reassembly.contains(&read(V4, (id, 0, true), &[0; 8]).0.key);
    let there: Vec<u32> = (0..10).filter(|id| has(&host, *id)).collect();
    assert_eq!(there, [0, 1, 7, 8, 9]);
    let mut none = Host::new(Config { pages: 0, ..Config::default() }, 8, 2);
    assert_eq!(begins(&mut none, V4, 1), Err(Refusal::NoRoom));
    assert_eq!(none.piece(V4, (1, 8000, true), &bytes(64)), Ok(None));
}

// Packets that are not whole in time, and who is told.

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn what_is_not_whole_in_time_is_forgotten() {
    let mut host = Host::small();
    assert_eq!(host.reassembly.poll_timeout(), None);
    host.piece(V4, (1, 0, true), &bytes(8)).unwrap();
    let end = NOW + SECOND * 60;
    assert_eq!(host.reassembly.poll_timeout(), Some(end));
    host.at(end - Duration::from_nanos(1));
    assert_eq!(host.reassembly.counters().expired, 0);
    host.at(end);
    assert_eq!((host.reassembly.counters().expired, host.reassembly.poll_timeout()), (1, None));
    assert!(host.is_clean());
    assert_eq!(host.piece(V4, (1, 8, false), &bytes(8)), Ok(None), "the first is gone");
}

/// Nobody called `handle_timeout`: a piece that comes too late joins nothing.
#[test]
fn a_late_piece_joins_nothing_old() {
    let mut host = Host::small();
    host.piece(V4, (1, 0, true), &bytes(8)).unwrap();
    let last = frame(V4, Some((1, 8, false)), &bytes(8));
    assert_eq!(host.receive(NOW + SECOND * 60, &last, 0), Ok(None));
    assert_eq!(host.reassembly.counters().expired, 1);
    assert_eq!(host.reassembly.poll_timeout(), Some(NOW + SECOND * 120));
}

#[test]
fn each_packet_has_its_own_time() {
    let mut host = Host::small();
    for id in 0..3 {
        let piece = frame(V6, Some((id, 0, true)), &bytes(8));
        host.receive(NOW + SECOND * id, &piece, 0).unwrap();
    }
    for id in 0..3 {
        let end = NOW + SECOND * id + SECOND * 60;
        assert_eq!(host.reassembly.poll_timeout(), Some(end));
        host.at(end);
        assert_eq!(host.reassembly.counters().expired, u64::from(id) + 1);
    }
    assert_eq!(host.reassembly.poll_timeout(), None);
}

#[test]
fn the_sender_is_told_with_the_first_piece() {
    let sent = bytes(3000);
    for from in [V4, V6] {
        for (split, len) in [(8, 64), (0, 64), (20, 16), (8, 2000), (100, 104)] {
            let mut host = Host::small();
            let first = frame(from, Some((7, 0, true)), &sent[..len]);
            host.receive(NOW, &first, split).unwrap();
            let second = frame(from, Some((7, 2400, true)), &sent[2400..2800]);
            host.receive(NOW, &second, split).unwrap();
            host.at(NOW + SECOND * 60);
            let Expired { parsed, head, payload } = host.reassembly.poll_expired().unwrap();
            assert_eq!(host.reassembly.poll_expired(), None);
            assert_eq!(parsed, parse(&first, first.len() as u32).unwrap());
            let headers = first.len() - len;
            assert_eq!(*head, first[..headers]);
            assert_eq!(payload, sent[..len.min(1232)], "as much as an answer takes");
            assert!(host.is_clean());
        }
    }
}

#[test]
fn nobody_is_told_without_the_first_piece_or_of_what_was_refused() {
    let sent = bytes(64);
    let mut host = Host::small();
    host.piece(V4, (1, 8, true), &sent[8..]).unwrap();
    host.piece(V4, (2, 0, true), &sent).unwrap();
    host.piece(V4, (2, 8, true), &sent).unwrap_err();
    host.at(NOW + SECOND * 60);
    assert_eq!(host.reassembly.poll_expired(), None);
    assert_eq!(host.reassembly.counters().expired, 1);
    // A first piece of an earlier packet in the same place is not that of this one.
    host.piece(V4, (3, 0, true), &sent).unwrap();
    let whole = host.piece(V4, (3, 64, false), &sent).unwrap().unwrap();
    host.take(&whole);
    host.piece(V4, (4, 8, true), &sent[8..]).unwrap();
    host.at(NOW + SECOND * 120);
    assert_eq!(host.reassembly.poll_expired(), None);
}

/// A flood is not answered with a flood.
#[test]
fn answers_are_few_however_many_expire() {
    let config = Config { told_per_second: 10, ..Config::default() };
    let mut host = Host::new(config, 200, 0);
    let mut told = Vec::new();
    for second in 1..=4 {
        let now = NOW + SECOND * 100 * second;
        for id in 0..100 {
            host.receive(now, &frame(V4, Some((id, 0, true)), &bytes(8)), 0).unwrap();
        }
        host.at(now + SECOND * 60);
        // In the third round nobody takes them.
        let answers = core::iter::from_fn(|| host.reassembly.poll_expired());
        told.push(if second == 3 { 0 } else { answers.count() });
    }
    assert_eq!(told, [10, 10, 0, 16]);
    assert_eq!(host.reassembly.counters().expired, 400);
    let mut silent = Host::new(Config { told_per_second: 0, ..config }, 8, 0);
    silent.piece(V4, (1, 0, true), &bytes(8)).unwrap();
    silent.at(NOW + SECOND * 60);
    assert_eq!(silent.reassembly.poll_expired(), None);
}
