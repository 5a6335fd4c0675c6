//! The invariants of the architecture about what arrives: 1, 2, 4 and 6, with whole
//! adapters on a network that loses, doubles, delays and damages frames.
//!
//! The naive models of shared memory with tripwires beside the engine: two adapters over a
//! network that loses, doubles, mixes up and damages frames; hosts around switches, where
//! bursts are split, joined and interleaved on the way. And what the fuzz targets `clan_pair`,
//! `clan_native`, `clan_discovery` and `clan_frames` run, over their corpora: so that what was found stays found.

use std::time::Duration;

use clan_dsm::discovery::Message;
use clan_dsm::model::{native, pair};
use clan_dsm::{Access, Action, DmaRequest, EndpointId, Event, Rights, WindowId};
use landfall_placement::{Area, WordFunction, WordWidth};
use landfall_simnet::EngineConfig;
use landfall_simnet::memory::Writer;
use landfall_testkit::corpus::replay;
use landfall_testkit::trials::{rounds, try_inputs};
use proptest::prelude::*;

use crate::net::{Exposed, Net, cases, config, faulty, noise, sim};

/// The words of an area that others wrote to, in the order in which it happened.
fn words_written(net: &Net, host: usize, area: Area) -> Vec<u64> {
    let mut words = Vec::new();
    for write in net.node(host).memory().journal() {
        let span = write.span;
        if span.region == area.region && write.by != Writer::User {
            let at = span.offset - area.offset;
            words.extend(at / 8..(at + u64::from(span.len)).div_ceil(8));
        }
    }
    words
}

proptest! {
    #![proptest_config(cases(24))]

    /// Whatever the network does: the words that were written are written at the
    /// other side, each as often as it was written here, and in that order.
    #[test]
    fn invariant_1_each_write_takes_effect_once_and_in_order(
        seed: u64,
        words in prop::collection::vec(0u64..32, 1..300),
    ) {
        let mut net = Net::linked(sim(seed), 2, &config(), faulty());
        let (there, window) = net.window(0, 1, 32 * 8);
        net.memory(1).keep_journal(1 << 16);
        let mut expected = [0u64; 32];
        for (n, word) in words.iter().enumerate() {
            let now = net.now();
            net.nic(0).write_word(now, window, 8 * word, n as u64 + 1).unwrap();
            expected[*word as usize] = n as u64 + 1;
            if n % 7 == 0 {
                net.run_for(Duration::from_micros(20));
            }
        }
        net.flush(0, 1);
        net.run_for(Duration::from_secs(5));
        prop_assert_eq!(words_written(&net, 1, there.area), words);
        let expected: Vec<u8> = expected.iter().flat_map(|word| word.to_le_bytes()).collect();
        prop_assert_eq!(net.bytes(1, there.area), expected);
        prop_assert!(net.is_intact_around(1, there.area));
    }

    /// Two hosts write without end while the third takes its memory back: from then
    /// on not a byte of it changes, whatever was under way and is repeated.
    #[test]
    fn invariant_1_memory_that_was_taken_back_is_final(seed: u64, after in 0u64..400) {
        let mut net = Net::linked(sim(seed), 3, &config(), faulty());
        let there = net.expose(2, 1 << 16, Rights::ReadWrite);
        let from = [0, 1].map(|host| net.lend(host, &noise(host as u64, 1 << 16)));
        for (host, from) in from.into_iter().enumerate() {
            let window = net.nic(host).map(&there.cookie).unwrap();
            let now = net.now();
            net.nic(host).write_from(now, window, 0, from).unwrap();
        }
        net.run_for(Duration::from_micros(after));
        let area = net.nic(2).revoke(there.aperture).unwrap();
        prop_assert_eq!(area, there.area);
        // A write to these bytes from now on ends the run.
        net.memory(2).freeze(area.span(0, area.len as u32)).unwrap();
        let before = net.bytes(2, area);
        for host in [0, 1] {
            net.wait_for(host, "the end of the write", |event| match event {
                Event::Written { result, .. } => Some(*result),
                _ => None,
            }).ok();
        }
        net.run_for(Duration::from_secs(5));
        prop_assert_eq!(net.bytes(2, area), before);
    }

    /// A message and a flag behind it: when the tripwire on the flag is told, the
    /// whole message is there.
    #[test]
    fn invariant_2_a_tripwire_is_told_when_all_before_it_is_in_place(
        seed: u64,
        lens in prop::collection::vec(1usize..5_000, 1..12),
        batch in 1usize..5,
        by_dma: bool,
    ) {
        let how = EngineConfig { batch, send_delay: Duration::from_micros(3), ..EngineConfig::default() };
        let mut net = Net::with(sim(seed), &[config(), config()], how, faulty());
        net.link_all();
        let (there, window) = net.window(0, 1, 8192);
        let tripwire = net.nic(1)
            .watch(there.aperture, 8184..8192, Access::Write, Action::Event, false)
            .unwrap();
        let endpoint = net.nic(0).open_endpoint(None).unwrap();
        for (n, len) in lens.into_iter().enumerate() {
            let bytes = noise(seed ^ n as u64, len);
            let now = net.now();
            let flag = n as u64 + 1;
            if by_dma {
                let from = net.lend(0, &bytes);
                let chain = [
                    DmaRequest::Write { from, window, offset: 3 },
                    DmaRequest::Word { window, offset: 8184, value: flag },
                ];
                net.nic(0).dma(now, endpoint, &chain).unwrap();
            } else {
                net.nic(0).write(now, window, 3, &bytes).unwrap();
                net.nic(0).write_word(now, window, 8184, flag).unwrap();
            }
            net.clear();
            net.wait_for(1, "the tripwire", |event| {
                (*event == Event::Tripwire { tripwire }).then_some(())
            });
            let all = net.bytes(1, there.area);
            prop_assert_eq!(&all[3..3 + len], &bytes[..]);
            prop_assert_eq!(&all[8184..], &flag.to_le_bytes());
            prop_assert!(net.nic(1).take_fired(tripwire).unwrap());
        }
    }

    /// The memory of a write is used again the moment its end is told: what arrives
    /// is what it held before, though frames are repeated and drivers read late.
    #[test]
    fn invariant_2_an_end_is_told_when_nobody_needs_the_memory_any_more(
        seed: u64,
        lens in prop::collection::vec(1usize..20_000, 1..6),
        by_dma: bool,
    ) {
        let how = EngineConfig { send_delay: Duration::from_micros(40), ..EngineConfig::default() };
        let mut net = Net::with(sim(seed), &[config(), config()], how, faulty());
        net.link_all();
        let (there, window) = net.window(0, 1, 1 << 17);
        let endpoint = net.nic(0).open_endpoint(None).unwrap();
        let mut expected = vec![0; 1 << 17];
        let mut at = 5;
        for (n, len) in lens.into_iter().enumerate() {
            let bytes = noise(seed ^ n as u64, len);
            let from = net.lend(0, &bytes);
            let now = net.now();
            net.clear();
            if by_dma {
                let chain = [DmaRequest::Write { from, window, offset: at as u64 }];
                net.nic(0).dma(now, endpoint, &chain).unwrap();
            } else {
                net.nic(0).write_from(now, window, at as u64, from).unwrap();
            }
            let result = net.wait_for(0, "the end", |event| match event {
                Event::Written { result, .. } | Event::Dma { result, .. } => Some(*result),
                _ => None,
            });
            prop_assert_eq!(result, Ok(()));
            expected[at..at + len].copy_from_slice(&bytes);
            prop_assert_eq!(&net.bytes(1, there.area), &expected);
            // Others use the memory now.
            let now = net.now();
            let span = from.span(0, from.len as u32);
            net.memory(0).write(now, Writer::User, span, &vec![0xee; len]).unwrap();
            at += len;
        }
        net.run_for(Duration::from_secs(5));
        prop_assert_eq!(net.bytes(1, there.area), expected);
    }

    /// A read is told when its bytes are there, and they are the bytes that were
    /// written before it.
    #[test]
    fn invariant_2_a_read_is_told_when_its_bytes_are_there(
        seed: u64,
        reads in prop::collection::vec((0usize..3_000, 1usize..5_000), 1..8),
    ) {
        let mut net = Net::linked(sim(seed), 2, &config(), faulty());
        let (there, window) = net.window(0, 1, 8_000);
        let fired = net.nic(1)
            .watch(there.aperture, 0..8_000, Access::Read, Action::Event, false)
            .unwrap();
        let mut expected = vec![0; 8_000];
        for (n, (at, len)) in reads.into_iter().enumerate() {
            let bytes = noise(seed ^ n as u64, 100);
            let now = net.now();
            net.clear();
            net.nic(0).write(now, window, at as u64, &bytes).unwrap();
            expected[at..at + 100].copy_from_slice(&bytes);
            let into = net.lend(0, &vec![0; len]);
            let read = net.nic(0).read(now, window, at as u64, into).unwrap();
            let result = net.wait_for(0, "the read", |event| match event {
                Event::Read { read: r, result } if *r == read => Some(*result),
                _ => None,
            });
            prop_assert_eq!(result, Ok(()));
            prop_assert_eq!(&net.bytes(0, into), &expected[at..at + len]);
            prop_assert!(net.is_intact_around(0, into));
            net.wait_for(1, "the tripwire on the read", |event| {
                (*event == Event::Tripwire { tripwire: fired }).then_some(())
            });
        }
    }

    /// Everything at once over a network with every fault: each operation ends, ends
    /// well, and the memory of all is what it would be without the network.
    #[test]
    fn invariant_4_faults_lose_nothing_and_stall_nothing(
        seed: u64,
        operations in prop::collection::vec((0usize..3, 1usize..3, 0u8..6, 0usize..7_000, 1usize..4_000), 1..60),
    ) {
        let mut net = Net::linked(sim(seed), 3, &config(), faulty());
        let mut work = Work::new(&mut net);
        for (from, distance, what, at, len) in operations {
            work.begin(&mut net, from, (from + distance) % 3, what, at, len);
        }
        work.finish(&mut net);
    }

    /// The same seed and the same calls give the same frames at the same times and
    /// the same events; another seed gives others.
    #[test]
    fn invariant_6_two_runs_are_the_same(
        seed: u64,
        operations in prop::collection::vec((0usize..3, 1usize..3, 0u8..6, 0usize..7_000, 1usize..4_000), 1..20),
    ) {
        let run = || {
            let mut net = Net::linked(sim(seed), 3, &config(), faulty());
            let mut work = Work::new(&mut net);
            for (from, distance, what, at, len) in &operations {
                work.begin(&mut net, *from, (from + distance) % 3, *what, *at, *len);
            }
            work.finish(&mut net);
            (net.sim.digest(), net.logs.iter().map(|log| log.borrow().clone()).collect::<Vec<_>>())
        };
        prop_assert_eq!(run(), run());
    }
}

/// Operations of all kinds between three hosts, and what they are to lead to. Each
/// host has at each other one piece of memory per kind of writing, since between
/// the kinds there is no order.
struct Work {
    /// By writer and owner.
    theirs: Vec<Vec<Vec<There>>>,
    begun: usize,
    checks: Vec<(usize, Area, Vec<u8>)>,
    changes: Vec<(usize, u64)>,
}

struct There {
    exposed: Exposed,
    window: WindowId,
    endpoint: EndpointId,
    expected: Vec<u8>,
    counter: u64,
}

const LEN: usize = 12_000;

impl Work {
    fn new(net: &mut Net) -> Self {
        let mut one = |from, to| {
            let endpoint = net.nic(from).open_endpoint(None).unwrap();
            let (exposed, window) = net.window(from, to, LEN);
            There { exposed, window, endpoint, expected: vec![0; LEN], counter: 0 }
        };
        let mut pair = |from: usize, to: usize| (0..2).map(|_| one(from, to)).collect();
        let theirs = (0..3).map(|from| (0..3).map(|to| pair(from, to)).collect()).collect();
        Self { theirs, begun: 0, checks: Vec::new(), changes: Vec::new() }
    }

    fn begin(&mut self, net: &mut Net, from: usize, to: usize, what: u8, at: usize, len: usize) {
        let seed = self.begun as u64 + 1;
        let by_dma = usize::from(what == 2);
        let there = &mut self.theirs[from][to][by_dma];
        let bytes = noise(seed, len);
        let now = net.now();
        // The last word of each piece counts.
        let offset = at.min(LEN - 8 - len);
        let (window, at) = (there.window, offset as u64);
        match what {
            0 => net.nic(from).write(now, window, at, &bytes).unwrap(),
            1 => {
                let area = net.lend(from, &bytes);
                net.nic(from).write_from(now, window, at, area).unwrap();
            }
            2 => {
                let area = net.lend(from, &bytes);
                let word = DmaRequest::Word { window, offset: LEN as u64 - 8, value: seed };
                let chain = [DmaRequest::Write { from: area, window, offset: at }, word];
                net.nic(from).dma(now, there.endpoint, &chain).unwrap();
                there.expected[LEN - 8..].copy_from_slice(&seed.to_le_bytes());
            }
            3 => {
                let area = net.lend(from, &vec![0; len]);
                let read = net.nic(from).read(now, window, at, area).unwrap();
                let expected = there.expected[offset..offset + len].to_vec();
                self.checks.push((from, area, expected));
                // It may see what is written while it is under way: nothing is.
                net.wait_for(from, "the read", |event| match event {
                    Event::Read { read: r, .. } if *r == read => Some(()),
                    _ => None,
                });
            }
            4 => {
                let function = WordFunction::Add(seed);
                let word = LEN as u64 - 8;
                net.nic(from).change(now, window, word, WordWidth::Eight, function).unwrap();
                self.changes.push((from, there.counter));
                there.counter = there.counter.wrapping_add(seed);
                there.expected[LEN - 8..].copy_from_slice(&there.counter.to_le_bytes());
            }
            _ => net.run_for(Duration::from_micros(at)),
        }
        if what < 3 {
            there.expected[offset..offset + len].copy_from_slice(&bytes);
        }
        self.begun += usize::from((1..5).contains(&what));
    }

    fn finish(&mut self, net: &mut Net) {
        let begun = self.begun;
        let is_end = |event: &Event| {
            matches!(
                event,
                Event::Written { .. } | Event::Dma { .. } | Event::Read { .. } | Event::Word { .. }
            )
        };
        net.run_until("the end of all operations", |net| {
            let ends = net.logs.iter().map(|log| log.borrow().iter().filter(|e| is_end(e)).count());
            ends.sum::<usize>() == begun
        });
        for from in 0..3 {
            for to in (0..3).filter(|to| *to != from) {
                net.flush(from, to);
            }
        }
        let mut held: Vec<Vec<u64>> = vec![Vec::new(); 3];
        for (host, log) in net.logs.iter().enumerate() {
            for event in log.borrow().iter() {
                match event {
                    Event::Written { result, .. }
                    | Event::Dma { result, .. }
                    | Event::Read { result, .. } => assert_eq!(*result, Ok(())),
                    Event::Word { result, .. } => held[host].push(result.unwrap()),
                    Event::LinkUp { .. } | Event::Barrier { .. } => {}
                    other => panic!("nobody asked for {other:?}"),
                }
            }
        }
        for (host, held) in held.iter_mut().enumerate() {
            let mut expected: Vec<u64> = self
                .changes
                .iter()
                .filter(|(from, _)| *from == host)
                .map(|(_, old)| *old)
                .collect();
            expected.sort_unstable();
            held.sort_unstable();
            assert_eq!(*held, expected);
        }
        for (to, there) in self
            .theirs
            .iter()
            .flat_map(|to| to.iter().enumerate())
            .flat_map(|(to, kinds)| kinds.iter().map(move |there| (to, there)))
        {
            assert_eq!(net.bytes(to, there.exposed.area), there.expected);
            assert!(net.is_intact_around(to, there.exposed.area));
        }
        for (host, area, expected) in &self.checks {
            assert_eq!(net.bytes(*host, *area), *expected);
        }
    }
}

proptest! {
    /// Invariants 1 to 4 and 7: every write takes effect once, in its order and in
    /// place before it is announced; what is forged, revoked, damaged or repeated
    /// changes nothing; memory and the sequence of firings are the naive model's.
    #[test]
    fn invariants_1_to_4_and_7_writes_are_those_of_the_naive_model(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
    ) {
        let failures = pair::disagreements(&bytes);
        prop_assert!(failures.is_empty(), "{:?}: {:#?}", bytes, failures);
    }

    /// Invariant 1: each write takes effect once and in its order, and memory and
    /// the sequence of firings are those of the naive model.
    #[test]
    fn invariant_1_splits_and_joins_are_not_seen(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let failures = native::disagreements(&bytes);
        prop_assert!(failures.is_empty(), "{:?}: {:#?}", bytes, failures);
    }
}

/// Two flips in one frame, each of which a sum of words sees, and together it does not:
/// what the network of the model must not do, for nothing could be told from it.
#[test]
fn a_frame_is_damaged_in_one_bit_only() {
    let bytes = [
        71, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 38, 0, 0, 36, 0, 0, 0, 0, 0, 185, 0, 0, 0,
        47, 160, 163, 0, 126, 4, 0, 19, 0, 0, 233, 0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 166, 0, 0, 4, 0,
        0, 0, 0, 0, 80, 0, 112, 0, 95, 1, 32, 13, 0, 30, 123, 0, 72, 44, 80, 0, 32, 0, 0, 0, 0, 0,
        0, 0, 249, 115, 14, 181, 25, 0, 0, 0, 249, 18, 13, 61,
    ];
    let failures = pair::disagreements(&bytes);
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn long_runs_agree_with_the_naive_model() {
    try_inputs(0..rounds(50, 5_000), 0..4_000, pair::disagreements);
}

/// Invariants 3 and 8: a peer that says whatever it likes changes nothing but
/// memory that it has cookies for.
#[test]
fn invariants_3_and_8_any_frames_are_withstood() {
    try_inputs(0..rounds(300, 20_000), 0..1_500, pair::withstand);
}

#[test]
fn long_runs_around_switches_agree_with_the_naive_model() {
    try_inputs(0..rounds(50, 5_000), 0..4_000, native::disagreements);
}

#[test]
fn the_corpus_of_pairs_breaks_no_rule() {
    replay("clan_pair", 10, pair::disagreements);
}

#[test]
fn the_corpus_of_native_links_breaks_no_rule() {
    replay("clan_native", 10, native::disagreements);
}

#[test]
fn the_corpus_of_discovery_breaks_no_rule() {
    replay("clan_discovery", 10, |bytes| match Message::decode(bytes) {
        Some(Message::Query(heard)) => assert_eq!(&heard.encode()[..], bytes),
        Some(Message::Announcement(heard)) => assert_eq!(&heard.encode()[..], bytes),
        None => {}
    });
}

#[test]
fn the_corpus_of_frames_breaks_no_rule() {
    replay("clan_frames", 10, pair::withstand);
}
