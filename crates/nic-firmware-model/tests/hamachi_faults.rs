//! What goes wrong with a Hamachi while frames are under way: never a byte in the wrong
//! place, and service goes on.
//!
//! A Hamachi against the host's software path: the same frames and calls at the same
//! moments, costs off. The same memory, the same packets in the same order, the same
//! counters; and each of the faults that a firmware may have is seen.

use std::fmt::Write as _;

use landfall_placement::{Duration, Ecn, Instant, PathId, Peer, Random, RegionId, Spans};
use landfall_simnet::{Encapsulation, LinkConfig, Loss, Node, Outbox, PortId, Probability, Sim};
use nic_firmware_model::firmware::{Arrival, Firmware, Landed, Meter, Stage, Verdict};
use nic_firmware_model::hamachi::model::{
    CHOICES, Choices, Fault, Pair, disagreements, disagreements_with,
};
use nic_firmware_model::hamachi::{
    Command, DriverConfig, Entry, Hamachi, HamachiNode, Ram, Report, Room, Station, Tables, WhenOut,
};
use nic_firmware_model::machine::{BusCosts, Coalescing, Costs, DmaCosts};
use proptest::prelude::*;
use spec_defrag::model::{Flow, Shape, Step, cut};
use spec_defrag::offload::Guess;
use spec_defrag::{Body, Config, HeadLens, PayloadLens, Prediction, ReassemblyPath, Shape as Cut};

use crate::kept;
use crate::models::Comparison;

/// The page of the paper, over UDP and IPv4.
const PAPER: Flow = Flow(2);
/// A frame of 1500 bytes takes so long on the cable.
const FRAME_TIME: Duration = Duration::from_micros(12);

/// DMA that takes its time: frames are under way while others come.
const SLOW: Costs = Costs {
    dma: DmaCosts { setup: Duration::from_micros(1), rate: 0, gap: Duration::ZERO },
    bus: BusCosts::PCI_64_33,
    interrupts: Coalescing::After { time: Duration::from_micros(200), reports: u32::MAX },
    ..Costs::OFF
};

struct Bench {
    station: Station,
    now: Instant,
    /// Packets that came out, and whether by a guess that came true.
    came: Vec<(Vec<u8>, ReassemblyPath)>,
    held: Vec<Body>,
    /// The user keeps what came out.
    keeps: bool,
}

impl Bench {
    fn new(tables: Tables, when_out: WhenOut, frames: u16) -> Self {
        let shape = Cut::new(
            3,
            HeadLens { first: 42, rest: 34 },
            PayloadLens { first: 1472, middle: 1480, last: 1144 },
        )
        .expect("it is a good one");
        let config = Config {
            burst: 12,
            frame_max: 1518,
            prediction: Prediction::Single(shape),
            ..Config::default()
        };
        let ram = Ram::new(&config, &Room { pages: 64, large: 4, frames }).expect("it has room");
        let driver = DriverConfig { steers: tables.opens > 0, ..DriverConfig::default() };
        let chip = tables.chip(when_out);
        let station = Station::new(chip, ram, &config, driver, SLOW, [7; 32]);
        let station = station.expect("it is a good configuration");
        let mut bench =
            Self { station, now: Instant::ZERO, came: Vec::new(), held: Vec::new(), keeps: false };
        bench.pass(Duration::from_micros(100));
        bench
    }

    fn chip() -> Self {
        Self::new(Tables { entries: 12, opens: 0 }, WhenOut::Lose, 0)
    }

    /// Time passes, and anyone who waits for it is called.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..10_000 {
            let Some(at) = self.station.poll_timeout().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.station.handle_timeout(self.now);
            self.hear();
        }
        self.now = end;
        self.station.handle_timeout(end);
        self.hear();
    }

    fn hear(&mut self) {
        while let Some(packet) = self.station.poll_packet() {
            let Body::Buffer(buffer, span) = packet.body else { panic!("nothing is lent") };
            let frame = [&packet.head[..], self.station.ram().bytes(span)].concat();
            self.came.push((frame, packet.path));
            if self.keeps {
                self.station.ram_mut().freeze(span);
                self.held.push(packet.body);
            } else {
                assert!(self.station.release(self.now, buffer));
            }
        }
    }

    fn release_all(&mut self) {
        for body in std::mem::take(&mut self.held) {
            let Body::Buffer(buffer, span) = body else { panic!("nothing is lent") };
            self.station.ram_mut().thaw(span);
            assert!(self.station.release(self.now, buffer));
        }
    }

    fn receive(&mut self, frame: &[u8]) {
        self.station.arrive(self.now, frame);
        self.hear();
        self.pass(FRAME_TIME);
    }

    /// Pages come, and by guesses that come true, as on the first day.
    fn expect_service(&mut self) {
        self.came.clear();
        self.pass(Duration::from_millis(1));
        for id in 1_000..1_006 {
            let (packet, pieces) = page(id);
            pieces.iter().for_each(|piece| self.receive(piece));
            self.pass(Duration::from_millis(1));
            let came = self.came.pop();
            let Some((frame, path)) = came else { panic!("page {id} does not come") };
            assert!(frame == packet, "page {id} is another one");
            assert!(
                path == ReassemblyPath::Speculated || id < 1_002,
                "page {id} does not come by guess"
            );
        }
    }

    /// Nobody wrote where he must not.
    fn expect_good(&self, sent: &[Vec<u8>]) {
        assert_eq!(self.station.ram().violation(), None);
        assert_eq!(self.station.ram().wrong(), None);
        for (frame, path) in &self.came {
            assert!(sent.contains(frame), "{path:?}: {} bytes that nobody sent", frame.len());
        }
    }
}

/// A packet and its pieces.
fn page(id: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    flow_page(PAPER, id)
}

fn flow_page(flow: Flow, id: u32) -> (Vec<u8>, Vec<Vec<u8>>) {
    let shape = Shape { len: 4096, id, ecn: 2, content: id.into(), ..Shape::default() };
    let packet = flow.packet(&shape);
    let pieces = cut(&packet, 1500, id);
    (packet, pieces)
}

#[test]
fn a_burst_lands_in_place_with_costs_too() {
    let mut bench = Bench::chip();
    let pages: Vec<_> = (0..40).map(page).collect();
    for piece in pages.iter().flat_map(|(_, pieces)| pieces) {
        bench.receive(piece);
    }
    bench.pass(Duration::from_millis(1));
    let sent: Vec<_> = pages.into_iter().map(|(packet, _)| packet).collect();
    bench.expect_good(&sent);
    let came: Vec<_> = bench.came.iter().map(|(frame, _)| frame.clone()).collect();
    assert!(came == sent, "{} of {} packets", came.len(), sent.len());
    assert!(bench.came.iter().all(|(_, path)| *path == ReassemblyPath::Speculated));
    assert!(bench.station.adapter().interrupts() <= 20, "one interrupt for a burst");
}

/// In the middle of a burst, with frames under way, again and again.
#[test]
fn a_firmware_that_is_restarted_loses_what_was_under_way_and_nothing_else() {
    let mut random = Random::from_number(5);
    let mut bench = Bench::chip();
    bench.keeps = true;
    let mut sent = Vec::new();
    for id in 0..120 {
        let (packet, pieces) = page(id);
        sent.push(packet);
        for piece in &pieces {
            bench.receive(piece);
            if random.chance(60_000) {
                // One more frame is on its way to memory.
                bench.station.arrive(bench.now, piece);
                bench.station.restart(bench.now);
            }
        }
        if id % 10 == 9 {
            bench.release_all();
        }
    }
    bench.pass(Duration::from_secs(60));
    bench.release_all();
    bench.expect_good(&sent);
    assert!(bench.station.driver().counters().restarts > 5);
    bench.expect_service();
}

/// The user keeps all pages: nothing can be posted, frames are lost as with the chip. When
/// it has released them, service goes on.
#[test]
fn without_a_list_frames_are_lost_and_counted() {
    let mut bench = Bench::chip();
    bench.keeps = true;
    let pages: Vec<_> = (0..80).map(page).collect();
    for piece in pages.iter().flat_map(|(_, pieces)| pieces) {
        bench.receive(piece);
    }
    bench.pass(Duration::from_secs(60));
    let lost = bench.station.adapter().firmware().counters().lost;
    assert!(lost > 0 && bench.came.len() < 80, "{lost} lost");
    bench.release_all();
    let sent: Vec<_> = pages.into_iter().map(|(packet, _)| packet).collect();
    bench.expect_good(&sent);
    bench.expect_service();
}

/// No room for a list, or for a short one: everything comes the conventional way, or in
/// short bursts.
#[test]
fn an_adapter_without_memory_for_lists_serves_in_the_host_path() {
    for entries in [0, 1, 2, 5] {
        let mut bench = Bench::new(Tables { entries, opens: 0 }, WhenOut::Whole, 40);
        let pages: Vec<_> = (0..20).map(page).collect();
        for piece in pages.iter().flat_map(|(_, pieces)| pieces) {
            bench.receive(piece);
        }
        bench.pass(Duration::from_millis(1));
        let sent: Vec<_> = pages.into_iter().map(|(packet, _)| packet).collect();
        bench.expect_good(&sent);
        assert_eq!(bench.came.len(), 20, "{entries} entries");
        if entries == 0 {
            assert_eq!(bench.station.receiver().stats().speculated, 0);
        }
    }
}

/// Two streams that take turns frame by frame: the chip of the paper guesses each wrong,
/// one that reads headers none.
#[test]
fn an_adapter_that_reads_headers_keeps_streams_apart() {
    let run = |opens: usize| {
        let mut bench = Bench::new(Tables { entries: 12, opens }, WhenOut::Whole, 32);
        let mut sent = Vec::new();
        for id in 0..30 {
            let (a, ours) = flow_page(Flow(2), id);
            let (b, theirs) = flow_page(Flow(18), id);
            sent.extend([a, b]);
            for (ours, theirs) in ours.iter().zip(&theirs) {
                bench.receive(ours);
                bench.receive(theirs);
            }
        }
        bench.pass(Duration::from_millis(1));
        bench.expect_good(&sent);
        assert_eq!(bench.came.len(), 60);
        bench.station.receiver().stats().speculated
    };
    assert_eq!(run(0), 0, "the chip of the paper");
    assert!(run(256) >= 50, "one that reads headers");
}

/// Nobody counts.
struct Free;

impl Meter for Free {
    fn spend(&mut self, _stage: Stage, _cycles: u32) {}
}

/// A list is replaced while a frame is on its way to the memory that the old one names.
#[test]
fn a_list_is_not_replaced_while_a_frame_is_under_way() {
    let mut table = [Entry::new(); 4];
    let mut chip = Hamachi::new(&mut table[..], WhenOut::Lose);
    let region = RegionId::new(3, 1);
    let begin = |list| Command::Begin { list, len: 2, interrupt_after: 9 };
    let load = |list, at| Command::Load {
        list,
        buffers: [region.span(at, 34), region.span(at + 34, 100), region.span(at + 134, 0)],
        guess: Guess::None,
    };
    for command in [begin(1), load(1, 0), load(1, 1000)] {
        assert_eq!(chip.handle_command(&command, &mut Free), None);
    }
    let arrival = |bytes: &'static [u8]| Arrival {
        bytes,
        path: PathId(0),
        from: Peer::Unaddressed,
        ecn: Ecn::NotCapable,
    };
    let mut into = Spans::new();
    let verdict = chip.receive(&arrival(&[1; 60]), &mut into, &mut Free);
    let Verdict::Place { at: 0, token } = verdict else { panic!("{verdict:?}") };
    assert!(into.iter().copied().eq([region.span(0, 34), region.span(34, 26)]));

    let busy = Some(Report::Busy { list: 2, current: 1 });
    assert_eq!(chip.handle_command(&begin(2), &mut Free), busy, "it is in use");
    assert_eq!(chip.handle_command(&load(2, 2000), &mut Free), None);
    let stopped = Some(Report::Stopped { list: 1 });
    assert_eq!(chip.handle_command(&Command::Stop { list: 1 }, &mut Free), stopped);
    assert_eq!(chip.handle_command(&begin(2), &mut Free), busy, "a frame is under way");
    into.clear();
    assert_eq!(chip.receive(&arrival(&[2; 60]), &mut into, &mut Free), Verdict::Drop);
    let filled = Report::Filled { list: 1, index: 0, len: 60 };
    assert_eq!(chip.landed(token, true, &mut Free), Landed::EventQueue(filled));
    assert_eq!(chip.handle_command(&begin(2), &mut Free), None, "now it is over");
    assert_eq!(chip.handle_command(&load(1, 0), &mut Free), None, "a list that is over");
    assert_eq!(chip.handle_command(&load(2, 2000), &mut Free), None);
    into.clear();
    let verdict = chip.receive(&arrival(&[3; 40]), &mut into, &mut Free);
    assert!(into.iter().copied().eq([region.span(2000, 34), region.span(2034, 6)]));
    chip.restart();
    let Verdict::Place { token, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(chip.landed(token, true, &mut Free), Landed::Silent, "it was forgotten");
}

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
            writeln!(lines, "{now}: {:?}, {} bytes, {sum:016x}", packet.path, packet.body_len)
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
