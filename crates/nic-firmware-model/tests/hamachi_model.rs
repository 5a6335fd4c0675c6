//! A Hamachi against the host's software path: the same frames and calls at the same
//! moments, costs off. The same memory, the same packets in the same order, the same
//! counters; and each of the faults that a firmware may have is seen.

use crate::kept;
use crate::models::Comparison;
use std::fmt::Write as _;

use landfall_placement::{Duration, Instant, Random};
use landfall_simnet::{Encapsulation, LinkConfig, Loss, Node, Outbox, PortId, Probability, Sim};
use nic_firmware_model::hamachi::model::{
    CHOICES, Choices, Fault, Pair, disagreements, disagreements_with,
};
use nic_firmware_model::hamachi::{DriverConfig, HamachiNode, Ram, Room, Station, Tables, WhenOut};
use nic_firmware_model::machine::{BusCosts, Coalescing, Costs, DmaCosts};
use proptest::prelude::*;
use spec_defrag::model::{Flow, Shape, Step, cut};
use spec_defrag::{Body, Config};

/// How many cases a property test runs: more if the environment asks for it.
fn cases(few: u32) -> ProptestConfig {
    let cases = if std::env::var_os("LANDFALL_LONG").is_some() { few * 200 } else { few };
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn with_and_without_an_adapter_it_is_the_same(
        bytes in proptest::collection::vec(any::<u8>(), CHOICES..600),
    ) {
        COMPARISON.agrees_about(&bytes)?;
    }

    /// Whatever comes: it stays within its memory and changes nothing that was delivered.
    #[test]
    fn an_adapter_that_reads_headers_withstands_everything(
        mut bytes in proptest::collection::vec(any::<u8>(), CHOICES..600),
    ) {
        bytes[CHOICES - 1] |= 3;
        COMPARISON.agrees_about(&bytes)?;
    }

    #[test]
    fn an_adapter_that_reads_headers_gives_the_same_packets(seed in any::<u64>(), flows in 1u8..5) {
        let differ = steered(seed, flows);
        prop_assert!(differ.is_empty(), "{differ:#?}");
    }
}

/// First pieces that came twice, and began their packet in two pages: the rest of it was
/// steered to one, and the end of it went astray to the other. Found by chance.
#[test]
fn a_first_piece_that_comes_twice_begins_one_page() {
    for (seed, flows) in [(957, 2), (853, 2), (986, 3), (391, 4), (1211, 4)] {
        let differ = steered(seed, flows);
        assert!(differ.is_empty(), "seed {seed}, {flows} flows: {differ:#?}");
    }
}

/// Flows that take turns as they like, with losses, repetitions and changes of order:
/// the same packets as from the reassembler.
fn steered(seed: u64, flows: u8) -> Vec<String> {
    let mut random = Random::from_number(seed);
    let choices = Choices::new(&[0, 0x35, 0x20, random.below(4) as u8, 7, 3]);
    let mut pair = Pair::new(choices, None).with_honest_traffic();
    for round in 0..6 {
        let frames = honest_traffic(&mut random, flows, round * 100);
        pair.apply(&Step::Receive { frames, lies: false });
    }
    pair.finish()
}

/// Pages of some flows, their pieces mixed.
fn honest_traffic(random: &mut Random, flows: u8, first_id: u32) -> Vec<Vec<u8>> {
    let mut wires: Vec<Vec<Vec<u8>>> = (0..flows)
        .map(|flow| {
            let page = |id| {
                let shape = Shape { len: 4096, id, ecn: 2, content: id.into(), ..Shape::default() };
                cut(&Flow(flow * 2 + 2).packet(&shape), 1500, id)
            };
            (first_id..first_id + 5).flat_map(page).rev().collect()
        })
        .collect();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    while let Some(at) = (0..wires.len()).find(|at| !wires[*at].is_empty()) {
        let wire = random.below(wires.len() as u64) as usize;
        let wire = if wires[wire].is_empty() { at } else { wire };
        let frame = wires[wire].pop().expect("it has one");
        if random.chance(30_000) {
            frames.push(frame.clone());
        }
        let behind = if random.chance(50_000) { frames.len().min(2) } else { 0 };
        frames.insert(frames.len() - behind, frame);
        if random.chance(20_000) {
            frames.pop();
        }
    }
    frames
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// As many random bytes as the number says.
fn run_of(seed: u64) -> Vec<u8> {
    let mut random = Random::from_number(seed);
    let len = random.below(600);
    (0..len).map(|_| random.next_u32() as u8).collect()
}

/// The last piece of a packet came as its time ran out. The reassembler counted from when
/// the first one came, the drivers from when they looked at it, a burst later.
#[test]
fn the_time_of_a_packet_begins_when_its_first_piece_is_looked_at() {
    for seed in [577, 596, 804] {
        let differ = disagreements(&run_of(seed));
        assert!(differ.is_empty(), "run {seed}: {differ:#?}");
    }
}

/// Headers as long as those of the packets before, but other ones: the packet was begun in
/// their shape, its rest lay elsewhere, and it never came out.
#[test]
fn headers_as_long_as_others_are_not_taken_for_them() {
    for seed in [468, 6204] {
        let mut bytes = run_of(seed);
        let differ = disagreements(&bytes);
        assert!(differ.is_empty(), "run {seed}: {differ:#?}");
        bytes[CHOICES - 1] |= 3;
        let differ = disagreements(&bytes);
        assert!(differ.is_empty(), "run {seed}, reading headers: {differ:#?}");
    }
}

const COMPARISON: Comparison<Fault> = Comparison {
    run: |seed| random_bytes(seed, 500),
    disagreements: disagreements_with,
    faults: &Fault::ALL,
    runs: 0..32,
};

/// A run of the generator catches each fault; which run does, and how, is printed.
#[test]
fn each_fault_is_caught() {
    COMPARISON.each_fault_is_caught();
    COMPARISON.agrees();
}

/// What the fuzz target `firmware_hamachi` runs, over its corpus: what was found stays found.
#[test]
fn the_corpus_finds_no_difference() {
    landfall_testkit::corpus::replay("firmware_hamachi", 1, disagreements);
}

const COSTS: Costs = Costs {
    dma: DmaCosts { setup: Duration::from_micros(1), rate: 0, gap: Duration::ZERO },
    bus: BusCosts::PCI_64_33,
    interrupts: Coalescing::After { time: Duration::from_micros(100), reports: u32::MAX },
    ..Costs::OFF
};
const HEAD: usize = 42;
const PACKETS: u32 = 12;

fn station() -> Station {
    let config = Config { burst: 12, frame_max: 1518, ..Config::default() };
    let ram = Ram::new(&config, &Room { pages: 64, large: 4, frames: 8 }).expect("it has room");
    let chip = Tables { entries: 12, opens: 0 }.chip(WhenOut::Whole);
    let station = Station::new(chip, ram, &config, DriverConfig::default(), COSTS, [3; 32]);
    station.expect("it is a good configuration")
}

/// Sends a page each quarter of a millisecond.
struct Sender {
    node: HamachiNode,
    next: Instant,
    sent: u32,
}

impl Node for Sender {
    fn handle_frame(
        &mut self,
        now: Instant,
        port: PortId,
        frame: landfall_simnet::Frame,
        out: &mut Outbox<'_>,
    ) {
        self.node.handle_frame(now, port, frame, out);
    }

    fn handle_room(&mut self, now: Instant, port: PortId, out: &mut Outbox<'_>) {
        self.node.handle_room(now, port, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        if self.next <= now && self.sent < PACKETS {
            let id = self.sent;
            let shape = Shape { len: 4096, id, content: id.into(), ..Shape::default() };
            let packet = Flow(2).packet(&shape);
            let station = &mut self.node.station;
            let region = station.ram_mut().lend(packet[HEAD..].to_vec()).expect("it has room");
            let sent = station.send(now, &packet[..HEAD], region.span(0, 4096), 1500);
            assert_eq!(sent, Ok(3), "three fragments");
            self.sent += 1;
            self.next = now + Duration::from_micros(250);
        }
        self.node.handle_timeout(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let next = (self.sent < PACKETS).then_some(self.next);
        [self.node.poll_timeout(), next].into_iter().flatten().min()
    }
}

/// The capture, and what came out, line by line.
fn run() -> (Vec<u8>, String) {
    let mut sim = Sim::from_number(17);
    let sender = Sender { node: HamachiNode::new(station()), next: Instant::ZERO, sent: 0 };
    let sender = sim.add("sender", sender).expect("two nodes have room");
    let receiver = sim.add("receiver", HamachiNode::new(station())).expect("it has room");
    let gigabit = LinkConfig::ethernet(1_000_000_000).loss(Loss::Uniform(Probability::percent(12)));
    sim.connect(sender, receiver, gigabit).expect("they are there");
    sim.capture_all(Encapsulation::Ethernet);
    let mut lines = String::new();
    for step in 1..=80 {
        sim.run_until(Instant::from_micros(step * 50)).expect("it runs");
        let now = sim.now();
        let station = &mut sim.node_mut(receiver).expect("it is there").station;
        while let Some(packet) = station.poll_packet() {
            let Body::Buffer(buffer, span) = packet.body else { panic!("nothing is lent") };
            let sum = kept::digest(station.ram().bytes(span));
            writeln!(lines, "{now}: {:?}, {} bytes, {sum:016x}", packet.way, packet.body_len)
                .expect("a string takes all");
            assert!(station.release(now, buffer));
        }
    }
    let station = &sim.node(receiver).expect("it is there").station;
    let all: Vec<u8> = station.ram().contents().flatten().copied().collect();
    writeln!(lines, "memory: {:016x}", kept::digest(&all)).expect("a string takes all");
    writeln!(lines, "{:?}", station.receiver().stats()).expect("a string takes all");
    writeln!(lines, "{:?}", station.adapter().firmware().counters()).expect("a string takes all");
    assert_eq!(station.ram().violation(), None);
    (sim.captured().to_vec(), lines)
}

#[test]
fn the_run_that_is_kept_is_the_same_again() {
    let (capture, lines) = run();
    assert!((capture.clone(), lines.clone()) == run(), "two runs are the same");
    kept::expect("hamachi.pcapng", &capture, "hamachi.txt", &lines);
}
