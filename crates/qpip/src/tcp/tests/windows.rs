//! The window is the posted memory: what it promises, and what becomes of it
//! when messages end early.

use landfall_placement::{Duration, Instant};

use super::pair::{Pair, Wire};
use crate::tcp::config::{Mapping, TcpConfig};

fn open(mapping: Mapping) -> Pair {
    let mut pair = Pair::new(3, TcpConfig::default(), mapping, Wire::CLEAN);
    pair.run_until("open", |pair| pair.sides[1].tcb.is_some());
    pair
}

fn rest(pair: &mut Pair, time: Duration) {
    let until = pair.now + time;
    while pair.now < until && pair.step() {}
}

/// A sender may fill the window on a promise that messages which end early take
/// back. RFC 9293, 3.8.6 lets a receiver drop what it has no room for, as long
/// as it acknowledges nothing of it and the right edge stays where it was.
#[test]
fn a_sender_that_filled_the_window_loses_nothing() {
    for request in [1_000, 16 << 10] {
        let mut pair = open(Mapping::Message);
        for id in 0..4 {
            pair.sides[1].post_receive(id, request);
        }
        rest(&mut pair, Duration::from_millis(50));
        // Ten short messages for four requests: six have no place.
        for id in 0..10 {
            pair.sides[0].post_send(id, &[id as u8; 100]);
        }
        rest(&mut pair, Duration::from_millis(500));
        assert_eq!(pair.sides[1].ends, [100, 200, 300, 400], "four messages have their places");
        let acknowledged = pair.sides[0].done.len();
        assert_eq!(acknowledged, 4, "what has no place is not acknowledged");
        for id in 4..10 {
            pair.sides[1].post_receive(id, request);
        }
        pair.run_until("the rest", |pair| pair.sides[0].done.len() == 10);
        assert_eq!(pair.sides[1].ends.len(), 10);
        let counts = pair.sides[1].tcb.as_ref().unwrap().receive_counts();
        assert!(counts.no_memory > 0, "what was dropped is counted");
    }
}

/// But for what rounding to the unit of the window takes (RFC 7323, 2.4).
#[test]
fn the_right_edge_never_moves_left() {
    for mapping in [Mapping::Message, Mapping::Stream] {
        let mut pair = open(mapping);
        let mut edges = std::vec::Vec::new();
        let (mut id, mut sent) = (0, 0);
        pair.run_until("many messages", |pair| {
            while pair.sides[1].queues.receive.len() < 3 {
                pair.sides[1].post_receive(id, 900 + 37 * id as u32);
                id += 1;
            }
            if sent < 120
                && pair.sides[0].post_send(sent, &std::vec![7; 1 + sent as usize * 7 % 800])
            {
                sent += 1;
            }
            edges.extend(pair.told_edge(1));
            pair.sides[0].done.len() == 120
        });
        let unit = 1 << TcpConfig::default().scale().unwrap();
        assert!(edges.windows(2).all(|pair| pair[0] < pair[1] + unit), "{mapping:?} {edges:?}");
    }
}

/// Acknowledgement after acknowledgement, rounding must not add up.
#[test]
fn no_more_is_offered_than_is_posted() {
    let mut pair = open(Mapping::Stream);
    let unit = 1 << TcpConfig::default().scale().unwrap();
    let mut posted = 0;
    pair.sides[0].post_send(0, &std::vec![7; 200_000]);
    pair.run_until("all", |pair| {
        if pair.sides[1].queues.receive.len() == 0 {
            let id = posted / 50_003;
            pair.sides[1].post_receive(id, 50_003);
            posted += 50_003;
        }
        let edge = pair.told_edge(1).unwrap_or(0);
        assert!(edge < 1 + posted + unit, "{edge} is offered of {posted}");
        pair.sides[0].done.len() == 1
    });
    let counts = pair.sides[1].tcb.as_ref().unwrap().receive_counts();
    assert!(counts.no_memory < 4 * unit, "{} bytes came that nobody posted", counts.no_memory);
}

#[test]
fn a_closed_window_is_asked_and_opens_again() {
    for mapping in [Mapping::Message, Mapping::Stream] {
        let mut pair = open(mapping);
        pair.sides[0].post_send(0, &[1; 5_000]);
        rest(&mut pair, Duration::from_secs(30));
        assert!(pair.sides[0].done.is_empty());
        let asked = pair.sides[0].segments_sent;
        assert!(asked >= 3, "the window was asked for: {asked}");
        // The update that opens the window may be lost: the question remains.
        pair.drop_next(1, 1);
        pair.sides[1].post_receive(0, 5_000);
        pair.run_until("it comes", |pair| pair.sides[0].done.len() == 1);
        assert_eq!(pair.sides[1].received, [1; 5_000]);
    }
}

#[test]
fn small_room_is_not_offered_bit_by_bit() {
    // RFC 9293, 3.8.6.2.2: the silly window syndrome.
    let mut pair = open(Mapping::Stream);
    for id in 0..4 {
        pair.sides[1].post_receive(id, 16_000);
    }
    pair.sides[0].post_send(0, &std::vec![5; 400_000]);
    let mut id = 4;
    pair.run_until("all", |pair| {
        // Ten bytes at a time.
        while pair.sides[1].queues.receive.len() < 60 && pair.is_quiet() {
            pair.sides[1].post_receive(id, 10_000 / 10);
            id += 1;
        }
        pair.sides[0].done.len() == 1
    });
    let segments = pair.sides[0].segments_sent;
    assert!(segments < 420, "{segments} segments for 400,000 bytes");
}

#[test]
fn a_message_longer_than_its_request_goes_on_in_the_next() {
    let mut pair = open(Mapping::Message);
    for id in 0..3 {
        pair.sides[1].post_receive(id, 1_000);
    }
    pair.sides[0].post_send(0, &std::vec![9; 2_500]);
    pair.sides[0].post_send(1, &[8; 10]);
    pair.sides[1].post_receive(3, 1_000);
    pair.run_until("both", |pair| pair.sides[0].done.len() == 2);
    let done: std::vec::Vec<_> =
        pair.sides[1].done.iter().map(|done| (done.id, done.len, done.ends_message)).collect();
    assert_eq!(done, [(0, 1_000, false), (1, 1_000, false), (2, 500, true), (3, 10, true)]);
}

#[test]
fn bytes_of_a_stream_are_told_as_they_come() {
    let mut pair = open(Mapping::Stream);
    pair.sides[1].post_receive(0, 10_000);
    for (id, len) in [(0, 10), (1, 20), (2, 30)] {
        pair.sides[0].post_send(id, &std::vec![id as u8; len]);
        pair.run_until("told", |pair| pair.sides[1].done.len() == id as usize + 1);
    }
    let parts: std::vec::Vec<_> = pair.sides[1]
        .done
        .iter()
        .map(|done| (done.id, done.offset, done.len, done.gather.is_some()))
        .collect();
    assert_eq!(parts, [(0, 0, 10, false), (0, 10, 20, false), (0, 30, 30, false)]);
    let now = pair.now;
    assert!(now < Instant::from_millis(200), "nobody waited for a timer");
}

/// What was posted to the byte is used to the byte: neither a step that is too short
/// to be told nor the unit of the window keeps the last of it away, until the sender
/// asks at a closed window. (Nothing is lost here: nobody may wait for a timer.)
#[test]
fn what_fits_into_what_is_posted_comes_without_asking() {
    let small = TcpConfig { most_window: 256 << 10, ..TcpConfig::default() };
    for (config, mapping) in [
        (TcpConfig::default(), Mapping::Message),
        (TcpConfig::default(), Mapping::Stream),
        (small, Mapping::Message),
        (small, Mapping::Stream),
    ] {
        for len in [1, 100, 700, 1_000, 1_459, 2_460, 5_000, 16 << 10, 70_001] {
            for count in [1, 2, 3, 10, 40] {
                let unit = config.scale().map_or(0, |scale| 1 << scale);
                let took = time_of_messages(config, mapping, len, count);
                let name = std::format!("{count} of {len} bytes, {mapping:?}, in units of {unit}");
                assert!(took < Duration::from_millis(15), "{name}: {took:?}");
            }
        }
    }
}

/// How long it takes until so many messages have come into memory that just holds them.
fn time_of_messages(config: TcpConfig, mapping: Mapping, len: u32, count: u64) -> Duration {
    let mut pair = Pair::new(3, config, mapping, Wire::CLEAN);
    pair.run_until("open", |pair| pair.sides[1].tcb.is_some());
    for id in 0..count {
        pair.sides[1].post_receive(id, len);
    }
    rest(&mut pair, Duration::from_millis(50));
    let started = pair.now;
    for id in 0..count {
        pair.sides[0].post_send(id, &std::vec![id as u8; len as usize]);
    }
    let all = count as usize * len as usize;
    pair.run_until("all of it", |pair| pair.sides[1].received.len() == all);
    pair.now.since(started)
}
