//! What goes wrong with a Hamachi while frames are under way: never a byte in the wrong
//! place, and service goes on.

use landfall_placement::{Duration, Ecn, Instant, PathId, Peer, Random, RegionId, Spans};
use nic_firmware_model::firmware::{Arrival, Firmware, Landed, Meter, Stage, Verdict};
use nic_firmware_model::hamachi::{
    Command, DriverConfig, Entry, Hamachi, Ram, Report, Room, Station, Tables, WhenOut,
};
use nic_firmware_model::machine::{BusCosts, Coalescing, Costs, DmaCosts};
use spec_defrag::model::{Flow, Shape, cut};
use spec_defrag::offload::Guess;
use spec_defrag::{Body, Config, Prediction, Shape as Cut, Way};

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
    came: Vec<(Vec<u8>, Way)>,
    held: Vec<Body>,
    /// The user keeps what came out.
    keeps: bool,
}

impl Bench {
    fn new(tables: Tables, when_out: WhenOut, frames: u16) -> Self {
        let shape = Cut::new(3, (42, 34), (1472, 1480, 1144)).expect("it is a good one");
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

    /// Time passes, and whoever waits for it is called.
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
            self.came.push((frame, packet.way));
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
            let Some((frame, way)) = came else { panic!("page {id} does not come") };
            assert!(frame == packet, "page {id} is another one");
            assert!(way == Way::Speculated || id < 1_002, "page {id} does not come by guess");
        }
    }

    /// Nobody wrote where he must not.
    fn expect_good(&self, sent: &[Vec<u8>]) {
        assert_eq!(self.station.ram().violation(), None);
        assert_eq!(self.station.ram().wrong(), None);
        for (frame, way) in &self.came {
            assert!(sent.contains(frame), "{way:?}: {} bytes that nobody sent", frame.len());
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
    assert!(bench.came.iter().all(|(_, way)| *way == Way::Speculated));
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
    assert_eq!(chip.landed(token, true, &mut Free), Landed::Told(filled));
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
