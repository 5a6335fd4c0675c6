//! What is sent is what comes: each byte once, in order, cut where it was cut.

use std::vec::Vec;

use landfall_placement::{Duration, Random};

use super::pair::{Pair, Wire};
use crate::tcp::config::{Mapping, TcpConfig};
use crate::tcp::tcb::News;

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
        Self { messages, request, requests: 16 }
    }
}

fn transfer(seed: u64, config: TcpConfig, mapping: Mapping, wire: Wire, traffic: &Traffic) -> Pair {
    let mut pair = Pair::new(seed, config, mapping, wire);
    let mut next = 0;
    let total: usize = traffic.messages.iter().map(Vec::len).sum();
    let mut receives = 0;
    pair.run_until("transfer", |pair| {
        while next < traffic.messages.len()
            && pair.sides[0].post_send(next as u64, &traffic.messages[next])
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
            pair.sides[1].news.iter().any(|news| matches!(news, News::PeerFinished))
        });
        pair.sides[1].tcb.as_mut().unwrap().shutdown();
        pair.run_until("both are closed", |pair| {
            pair.sides.iter().all(|side| side.tcb.as_ref().unwrap().is_closed())
                || pair.now > landfall_placement::Instant::ZERO + Duration::from_secs(4_000)
        });
        let waits: Vec<bool> = pair
            .sides
            .iter()
            .map(|side| side.news.iter().any(|n| matches!(n, News::Closed(_, Some(_)))))
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
