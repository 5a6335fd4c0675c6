//! Packets that are not whole in time, and who is told.

use super::*;
use crate::reassembly::Expired;

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
