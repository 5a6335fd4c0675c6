//! A run that is kept: what crossed the link, packet for packet, and what memory held in
//! the end. `UPDATE_GOLDEN=1` writes it anew.

#[path = "support/kept.rs"]
mod kept;

use std::fmt::Write as _;

use landfall_placement::{Duration, Instant};
use landfall_simnet::{Encapsulation, LinkConfig, Loss, Node, Outbox, PortId, Probability, Sim};
use nic_firmware_model::hamachi::{DriverConfig, HamachiNode, Ram, Room, Station, Tables, WhenOut};
use nic_firmware_model::machine::{BusCosts, Coalescing, Costs, DmaCosts};
use spec_defrag::model::{Flow, Shape};
use spec_defrag::{Body, Config};

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
