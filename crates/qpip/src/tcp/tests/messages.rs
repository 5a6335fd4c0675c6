//! What is sent is what comes: each byte once, in order, cut where it was cut.
//!
//! The window is the posted memory: what it promises, and what becomes of it
//! when messages end early.

use std::vec::Vec;

use landfall_placement::{Duration, Instant, Random};

use super::pair::{Pair, Wire};
use crate::tcp::config::{Mapping, Pacing, TcpConfig};
use crate::tcp::tcb::ConnectionEvent;

const NOISY: Wire = Wire {
    loss: 30_000,
    duplication: 20_000,
    reordering: 50_000,
    corruption: 20_000,
    ..Wire::CLEAN
};

struct Traffic {
    messages: Vec<Vec<u8>>,
    request: u32,
    requests: usize,
    /// Of messages, in turn.
    words: &'static [Option<u32>],
}

impl Traffic {
    fn new(seed: u64, count: usize, longest: u64, request: u32) -> Self {
        let mut random = Random::from_number(seed ^ 0xabcd);
        let messages = (0..count)
            .map(|_| {
                let len = 1 + random.below(longest);
                (0..len).map(|_| random.next_u32() as u8).collect()
            })
            .collect();
        Self { messages, request, requests: 16, words: &[None] }
    }

    fn word(&self, nth: usize) -> Option<u32> {
        self.words[nth % self.words.len()].map(|word| word.wrapping_add(nth as u32))
    }
}

fn transfer(seed: u64, config: TcpConfig, mapping: Mapping, wire: Wire, traffic: &Traffic) -> Pair {
    let mut pair = Pair::new(seed, config, mapping, wire);
    let mut next = 0;
    let total: usize = traffic.messages.iter().map(Vec::len).sum();
    let mut receives = 0;
    pair.run_until("transfer", |pair| {
        while next < traffic.messages.len()
            && pair.sides[0].post_with_word(
                next as u64,
                &traffic.messages[next],
                traffic.word(next),
            )
        {
            next += 1;
        }
        while pair.sides[1].queues.receive.len() < traffic.requests
            && pair.sides[1].post_receive(receives, traffic.request)
        {
            receives += 1;
        }
        pair.sides[1].received.len() >= total && pair.sides[0].done.len() == next
    });
    let sent: Vec<u8> = traffic.messages.concat();
    assert_eq!(pair.sides[1].received.len(), sent.len(), "seed {seed}");
    assert!(pair.sides[1].received == sent, "seed {seed}: other bytes came");
    if mapping != Mapping::Stream {
        let mut end = 0;
        let ends: Vec<usize> = traffic
            .messages
            .iter()
            .map(|m| {
                end += m.len();
                end
            })
            .collect();
        assert_eq!(pair.sides[1].ends, ends, "seed {seed}: other messages came");
        // The third opening does not ask for words: who had to send it could not post one.
        let asker = pair.sides[0].tcb.as_ref().unwrap();
        let agreed = asker.takes_words();
        assert!(agreed || asker.opening.tries > 2 || !config.immediates, "seed {seed}");
        let words = (0..ends.len()).map(|nth| traffic.word(nth).filter(|_| agreed));
        let words: Vec<Option<u32>> = words.collect();
        assert_eq!(pair.sides[1].words, words, "seed {seed}: other words came");
    }
    assert!(pair.sides[0].done.iter().all(|done| done.status.is_success()));
    let ids: Vec<u64> = pair.sides[0].done.iter().map(|done| done.id).collect();
    assert_eq!(ids, (0..next as u64).collect::<Vec<_>>(), "completions are in order");
    pair
}

#[test]
fn a_clean_wire_needs_no_repetition() {
    for mapping in [Mapping::Message, Mapping::Stream] {
        for last_first in [false, true] {
            let wire = Wire { last_first, ..Wire::CLEAN };
            let traffic = Traffic::new(1, 200, 60_000, 64 << 10);
            let pair = transfer(1, TcpConfig::default(), mapping, wire, &traffic);
            let sender = pair.sides[0].tcb.as_ref().unwrap().sender();
            assert_eq!(sender.repetitions(), (0, 0), "{mapping:?} {last_first}");
        }
    }
}

#[test]
fn nothing_is_lost_or_changed_on_a_bad_wire() {
    for seed in 0..60 {
        for mapping in [Mapping::Message, Mapping::Stream] {
            let longest = [100, 3_000, 50_000][seed as usize % 3];
            let request = [4_096, 16_384, 700][seed as usize / 3 % 3];
            let traffic = Traffic::new(seed, 60, longest, request);
            let config = TcpConfig {
                sack: seed % 4 != 0,
                timestamps: seed % 5 != 0,
                ..TcpConfig::default()
            };
            let wire = Wire { last_first: seed % 2 == 0, cuts: seed % 7 != 0, ..NOISY };
            if mapping != Mapping::Stream && longest > u64::from(request) {
                continue; // Such messages go on in other requests: a test of its own.
            }
            transfer(seed, config, mapping, wire, &traffic);
        }
    }
}

/// Each word comes once, with the message that it was sent with, whatever the wire does and
/// whichever way what is lost is found.
#[test]
fn words_come_with_their_messages_on_a_bad_wire() {
    for seed in 0..60 {
        for mapping in [Mapping::Message, Mapping::Segment] {
            let longest = [100, 3_000, 14_000][seed as usize % 3];
            let mut traffic = Traffic::new(seed, 60, longest, 16_384);
            traffic.words = &[Some(7), None, Some(u32::MAX), Some(0), None];
            let config = TcpConfig {
                immediates: true,
                sack: seed % 4 != 0,
                timestamps: seed % 5 != 0,
                ..TcpConfig::default()
            };
            // With a device that takes options out now and then: what it spoils is as if it
            // were lost.
            let stripping = if seed % 2 == 0 { 50_000 } else { 0 };
            let (last_first, cuts) = (seed % 3 == 0, seed % 7 != 0);
            let wire = Wire { last_first, cuts, stripping, ..NOISY };
            transfer(seed, config, mapping, wire, &traffic);
        }
    }
}

/// RFC 5682, 3522: a path that stands still for longer than the time-out loses nothing, so
/// nothing but the first segment leaves again, and the window is what it was.
#[test]
fn a_path_that_stands_still_costs_a_segment_and_no_window() {
    for (seed, sack, timestamps) in [(1, true, false), (2, false, false), (3, true, true)] {
        // All of a window is under way when it comes to a stand.
        let pacing = Pacing::Never;
        let config = TcpConfig { sack, timestamps, pacing, ..TcpConfig::default() };
        let wire = Wire {
            delay: Duration::from_millis(20),
            stall: Duration::from_millis(700),
            ..Wire::CLEAN
        };
        let traffic = Traffic::new(seed, 450, 60_000, 64 << 10);
        let pair = transfer(seed, config, Mapping::Stream, wire, &traffic);
        let sender = pair.sides[0].tcb.as_ref().unwrap().sender();
        let (again, timeouts) = sender.repetitions();
        assert_eq!(sender.undone(), 2, "{timeouts} time-outs");
        assert!(again <= 2 * timeouts, "{again} segments again in {timeouts} time-outs");
    }
}

#[test]
fn each_message_is_one_segment_where_the_paper_wants_it() {
    for seed in 0..30 {
        let wire = if seed == 0 { Wire::CLEAN } else { NOISY };
        let longest = [100, 3_000, 50_000][seed as usize % 3];
        let traffic = Traffic::new(seed, 60, longest, 50_000);
        let pair = transfer(seed, TcpConfig::default(), Mapping::Segment, wire, &traffic);
        let lens = &pair.payloads_sent;
        let messages: std::collections::BTreeSet<u32> =
            traffic.messages.iter().map(|message| message.len() as u32).collect();
        let cut = pair.ranges_sent.iter().find(|(a, b, _)| !messages.contains(&((b - a) as u32)));
        assert_eq!(cut, None, "seed {seed}: never cut");
        if seed == 0 {
            assert_eq!(lens.len(), 60);
        }
    }
}

#[test]
fn a_segment_never_holds_bytes_of_two_messages() {
    for seed in 0..30 {
        let traffic = Traffic::new(seed, 80, 5_000, 8_192);
        let mut ends = std::vec![0];
        ends.extend(traffic.messages.iter().scan(0, |end, message| {
            *end += message.len() as u64;
            Some(*end)
        }));
        let pair = transfer(seed, TcpConfig::default(), Mapping::Message, NOISY, &traffic);
        for (start, end, is_pushed) in &pair.ranges_sent {
            let message = ends.partition_point(|e| e <= start);
            assert!(*end <= ends[message], "seed {seed}: {start}..{end}");
            assert_eq!(*is_pushed, *end == ends[message], "seed {seed}: the end is told");
        }
    }
}

#[test]
fn both_sides_close_and_one_waits() {
    for seed in 0..40 {
        let wire = if seed == 0 { Wire::CLEAN } else { NOISY };
        let traffic = Traffic::new(seed, 10, 5_000, 8_192);
        let mut pair = transfer(seed, TcpConfig::default(), Mapping::Message, wire, &traffic);
        pair.sides[0].tcb.as_mut().unwrap().shutdown();
        pair.run_until("the end is heard", |pair| {
            pair.sides[1].news.iter().any(|news| matches!(news, ConnectionEvent::PeerFinished))
        });
        pair.sides[1].tcb.as_mut().unwrap().shutdown();
        pair.run_until("both are closed", |pair| {
            pair.sides.iter().all(|side| side.tcb.as_ref().unwrap().is_closed())
                || pair.now > landfall_placement::Instant::ZERO + Duration::from_secs(4_000)
        });
        let waits: Vec<bool> = pair
            .sides
            .iter()
            .map(|side| side.news.iter().any(|n| matches!(n, ConnectionEvent::Closed(_, Some(_)))))
            .collect();
        assert!(
            waits[0],
            "seed {seed}: who closes first waits: {:?} {:?} {}",
            pair.sides[0].news, pair.sides[1].news, pair.now
        );
    }
}

/// Without selective acknowledgements a segment's worth of bytes is sent again:
/// where each message is one segment, that is the first of them and no more.
#[test]
fn a_message_that_is_one_segment_is_sent_again_as_one() {
    let config = TcpConfig { sack: false, ..TcpConfig::default() };
    let mut pair = Pair::new(3, config, Mapping::Segment, Wire::CLEAN);
    pair.run_until("open", |pair| pair.sides[1].tcb.is_some());
    for id in 0..9 {
        pair.sides[1].post_receive(id, 1_000);
    }
    pair.run_until("quiet", |pair| pair.is_quiet());
    pair.drop_next(0, 1);
    for id in 0..8 {
        pair.sides[0].post_send(id, &[id as u8; 300]);
    }
    pair.run_until("all", |pair| pair.sides[0].done.len() == 8);
    assert!(pair.sides[0].tcb.as_ref().unwrap().sender().repetitions().0 > 0);
    assert!(pair.payloads_sent.iter().all(|len| *len == 300), "{:?}", pair.payloads_sent);
}

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
        let no_memory = pair.sides[1].tcb.as_ref().unwrap().bytes_without_memory();
        assert!(no_memory > 0, "what was dropped is counted");
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
    let no_memory = pair.sides[1].tcb.as_ref().unwrap().bytes_without_memory();
    assert!(no_memory < 4 * unit, "{no_memory} bytes came that nobody posted");
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

/// How long it takes until this many messages have come into memory that just holds them.
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
