//! Nobody waits for somebody else: Transfers of a connection whatever becomes of one of them,
//! and peers whatever others do with what they are granted.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::two::{Two, is_sent, noise, small};
use crate::world::{Host, PORT};
use landfall_placement::{Area, PathId, Peer};
use landfall_simnet::{EngineNode, Handle, LinkConfig, LinkId, Memory, Sim, Switch};
use stp_core::model::wrong_room;
use stp_core::wire::Reason;
use stp_core::{Admission, Config, Connect, ConnectionId, Endpoint, Event};

// ---- Transfers of one connection -------------------------------------------------

/// An offer that nobody answers, and after it more Transfers than there are slots, one after
/// another: none of them waits for it. Then it is answered, and is as any other.
#[test]
fn an_offer_that_nobody_answers_holds_up_nothing() {
    let mut two = Two::new(small());
    let (now, near) = (two.wire.now, two.ids[0]);
    let from = two.lend(0, 0, &noise(1, 300));
    two.endpoint(0).send(now, near, from, 7).unwrap();
    let mut waiting = None;
    two.run_until("the offer", |log| log[1].iter().any(|e| matches!(e, Event::Offered { .. })));
    for event in &two.log[1] {
        if let Event::Offered { receive, .. } = event {
            waiting = Some(*receive);
        }
    }
    let sent = |two: &Two| two.log[0].iter().filter(|event| is_sent(event)).count();
    for nth in 1..=300 {
        let into = two.lend(1, 0, &[0; 10]);
        let now = two.wire.now;
        let offers = two.log[1].len();
        let from = two.lend(0, 0, &noise(nth, 10));
        let send = two.endpoint(0).send(now, near, from, 0);
        send.unwrap_or_else(|error| panic!("Transfer {nth}: {error}"));
        two.run_until("an offer", |log| log[1].len() > offers);
        let receive = two.log[1].iter().rev().find_map(|event| match event {
            Event::Offered { receive, .. } => Some(*receive),
            _ => None,
        });
        if nth % 50 == 0 {
            // Some are refused.
            two.endpoint(1).refuse(receive.unwrap(), Reason::Refused).unwrap();
            let ended =
                |log: &[Vec<Event>; 2]| matches!(log[0].last(), Some(Event::SendEnded { .. }));
            two.run_until("the refusal", ended);
            continue;
        }
        let now = two.wire.now;
        two.endpoint(1).accept(now, receive.unwrap(), into, false).unwrap();
        let before = sent(&two);
        two.run_until("a Transfer", |log| {
            log[0].iter().filter(|event| is_sent(event)).count() > before
        });
    }
    let into = two.lend(1, 0, &[0; 300]);
    let now = two.wire.now;
    two.endpoint(1).accept(now, waiting.unwrap(), into, false).unwrap();
    let before = sent(&two);
    two.run_until("the first Transfer", |log| {
        log[0].iter().filter(|event| is_sent(event)).count() > before
    });
    assert_eq!(two.bytes(1, into), noise(1, 300));
    two.check_contract();
}

// ---- Peers of one receiver --------------------------------------------------------

const RATE: u64 = 1_000_000_000;
const LIVE: usize = 4;
const LONG: u64 = 1 << 20;

/// What a peer does with what it is granted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// It sends it.
    Live,
    /// It never sends any.
    Silent,
    /// It begins, and stops in the middle.
    Stopped,
}

/// A receiver, a switch, and peers of each kind.
struct Crowd {
    sim: Sim,
    receiver: Handle<Host>,
    peers: Vec<(Kind, Handle<Host>, LinkId, ConnectionId)>,
    received: Rc<Cell<u64>>,
}

fn link(rate: u64) -> LinkConfig {
    LinkConfig::ethernet(rate).delay(Duration::from_micros(10)).mtu(1_500).queue_bytes(16 << 20)
}

impl Crowd {
    fn new(config: &Config, kinds: &[Kind]) -> Self {
        let mut sim = Sim::from_number(5);
        let switch = sim.add("switch", Switch::learning()).unwrap();
        let received = Rc::new(Cell::new(0));
        let receiver = add_receiver(&mut sim, config.clone(), received.clone());
        sim.connect(switch.id(), receiver.id(), link(RATE)).unwrap();
        let mut hosts = Vec::new();
        for (n, kind) in kinds.iter().enumerate() {
            let mut seed = [1; 32];
            seed[..8].copy_from_slice(&(n as u64).to_le_bytes());
            let host = add_sender(&mut sim, n, *kind, Endpoint::new(config.clone(), seed));
            let cable = sim.connect(host.id(), switch.id(), link(RATE)).unwrap();
            hosts.push((*kind, host, cable));
        }
        let to = Peer::Node(receiver.id().0);
        run_for(&mut sim, Duration::from_millis(1));
        let mut peers = Vec::new();
        for (kind, host, cable) in hosts {
            let now = sim.now();
            let engine = sim.node_mut(host).unwrap().engine_mut();
            let connect = Connect { port: PORT, ..Connect::default() };
            let id = engine.connect(now, PathId(0), to, connect).unwrap();
            peers.push((kind, host, cable, id));
        }
        run_for(&mut sim, Duration::from_millis(50));
        Self { sim, receiver, peers, received }
    }

    /// All begin. Those that are silent are so from then on, those that stop a little later.
    fn begin(&mut self) {
        for (kind, host, cable, id) in self.peers.clone() {
            let now = self.sim.now();
            let count = if kind == Kind::Live { 4 } else { 2 };
            for _ in 0..count {
                let node = self.sim.node_mut(host).unwrap();
                let region = node.memory_mut().lend(vec![1; LONG as usize]).unwrap();
                let area = Area::new(region, 0, LONG);
                node.engine_mut().send(now, id, area, 0).unwrap();
            }
            if kind == Kind::Silent {
                // Its requests are on the wire, and nothing comes back.
                self.sim.schedule_link(now + Duration::from_micros(15), cable, false).unwrap();
            }
            if kind == Kind::Stopped {
                self.sim.schedule_link(now + Duration::from_millis(2), cable, false).unwrap();
            }
        }
    }

    /// How many bytes of Transfers of those that are live arrive in a time.
    fn rate(&mut self, time: Duration) -> u64 {
        let before = self.received.get();
        run_for(&mut self.sim, time);
        let engine = self.sim.node(self.receiver).unwrap().engine();
        assert_eq!(wrong_room(engine), None);
        self.received.get() - before
    }
}

fn run_for(sim: &mut Sim, time: Duration) {
    let end = sim.now() + time;
    sim.run_until(end).unwrap();
}

fn add_receiver(sim: &mut Sim, config: Config, received: Rc<Cell<u64>>) -> Handle<Host> {
    let mut endpoint = Endpoint::new(config, [99; 32]);
    endpoint.listen(PORT, Admission::Open).unwrap();
    let mut free: Vec<Area> = Vec::new();
    let node = EngineNode::new(endpoint).on_event(
        move |now, endpoint: &mut Endpoint, memory: &mut Memory, event| match event {
            Event::Offered { receive, len, .. } => {
                let area = free.pop().unwrap_or_else(|| {
                    Area::new(memory.lend(vec![0; len as usize]).unwrap(), 0, len)
                });
                endpoint.accept(now, receive, area, false).unwrap();
            }
            Event::Received { memory, len, .. } => {
                received.set(received.get() + len);
                free.push(memory);
            }
            _ => {}
        },
    );
    sim.add("receiver", node).unwrap()
}

/// One that is live sends again whatever was sent.
fn add_sender(sim: &mut Sim, n: usize, kind: Kind, endpoint: Endpoint) -> Handle<Host> {
    let mut areas: Vec<Area> = Vec::new();
    let node = EngineNode::new(endpoint).on_event(
        move |now, endpoint: &mut Endpoint, memory: &mut Memory, event| {
            if let (Kind::Live, Event::Sent { connection, len, .. }) = (kind, event) {
                // Memory of its own is not told apart: one more region is as good.
                let area = areas.pop().unwrap_or_else(|| {
                    Area::new(memory.lend(vec![1; len as usize]).unwrap(), 0, len)
                });
                areas.push(area);
                endpoint.send(now, connection, area, 0).unwrap();
            }
        },
    );
    sim.add(&format!("peer {n}"), node).unwrap()
}

/// What others do costs those that are live no more than a tenth of their rate.
fn keeps_its_rate(config: &Config, others: &[(Kind, usize)]) {
    let time = Duration::from_millis(600);
    let mut kinds = vec![Kind::Live; LIVE];
    // A congestion window that has met a hundred others takes a while to grow again.
    let is_shared = config.congestion.is_some();
    let settle = Duration::from_millis(if is_shared { 600 } else { 0 });
    let mut alone = Crowd::new(config, &kinds);
    alone.begin();
    alone.rate(settle);
    let undisturbed = alone.rate(time);
    for (kind, count) in others {
        kinds.extend(std::iter::repeat_n(*kind, *count));
    }
    let mut crowd = Crowd::new(config, &kinds);
    crowd.begin();
    crowd.rate(settle);
    let rate = crowd.rate(time);
    assert!(undisturbed > RATE / 8 * 6 / 10 * 4 / 10, "{undisturbed} bytes alone");
    assert!(rate * 10 >= undisturbed * 9, "{rate} bytes, {undisturbed} alone: {others:?}");
}

/// With a window for this network: what is granted crosses it within the shortest time-out.
fn own_network() -> Config {
    Config { window: 1 << 20, ..Config::default() }
}

#[test]
fn silent_peers_cost_others_nothing() {
    keeps_its_rate(&own_network(), &[(Kind::Silent, 100)]);
}

/// Those that stopped go on where they were, as soon as they are back.
#[test]
fn who_was_silent_gets_all_when_it_is_back() {
    let mut crowd = Crowd::new(&Config::default(), &[Kind::Live, Kind::Silent, Kind::Stopped]);
    crowd.begin();
    assert!(crowd.rate(Duration::from_millis(200)) > 0);
    for (kind, _, cable, _) in crowd.peers.clone() {
        if kind != Kind::Live {
            crowd.sim.set_link(cable, true).unwrap();
        }
    }
    assert!(crowd.rate(Duration::from_secs(2)) > 0);
    let all = crowd.peers.len() as u64 - 1;
    for (_, host, ..) in crowd.peers.iter().filter(|(kind, ..)| *kind != Kind::Live) {
        let sent = crowd.sim.node(*host).unwrap().engine().stats().bytes_sent;
        assert!(sent >= 2 * LONG, "{sent} bytes sent by one of {all}");
    }
}

/// How many Clear_To_Sends there are for each thousand packets of Data, with congestion
/// control: over a link of this rate and MTU, with a round trip of `delay` twice.
fn grants_for_a_thousand(rate: u64, mtu: u32, delay: Duration) -> u64 {
    let config = Config { keep_alive: None, ..Config::shared_network() };
    let mut sim = Sim::from_number(3);
    let received = Rc::new(Cell::new(0));
    let receiver = add_receiver(&mut sim, config.clone(), received.clone());
    let host = add_sender(&mut sim, 0, Kind::Live, Endpoint::new(config, [3; 32]));
    let cable = LinkConfig::ethernet(rate).delay(delay).mtu(mtu).queue_bytes(1 << 20);
    sim.connect(host.id(), receiver.id(), cable).unwrap();
    run_for(&mut sim, Duration::from_millis(1));
    let (now, to) = (sim.now(), Peer::Node(receiver.id().0));
    let node = sim.node_mut(host).unwrap();
    let region = node.memory_mut().lend(vec![1; 16 << 20]).unwrap();
    let connect = Connect { port: PORT, ..Connect::default() };
    let id = node.engine_mut().connect(now, PathId(0), to, connect).unwrap();
    run_for(&mut sim, Duration::from_millis(100));
    let now = sim.now();
    let engine = sim.node_mut(host).unwrap().engine_mut();
    engine.send(now, id, Area::new(region, 0, 16 << 20), 0).unwrap();
    run_for(&mut sim, Duration::from_millis(400));
    let stats = *sim.node(receiver).unwrap().engine().stats();
    assert!(received.get() > 0, "{stats:?}");
    stats.control_sent * 1_000 / stats.stus_received
}

/// However the network is, a grant is for many packets: 0.94 for each of them there were once.
#[test]
fn grants_are_few_under_congestion_control() {
    for (rate, mtu, micros) in [
        (1_000_000_000, 1_500, 10),
        (1_000_000_000, 1_500, 5_000),
        (10_000_000_000, 1_500, 10),
        (10_000_000_000, 9_000, 10),
        (10_000_000_000, 9_000, 1_000),
        (100_000_000_000, 9_000, 5),
    ] {
        let count = grants_for_a_thousand(rate, mtu, Duration::from_micros(micros));
        assert!(count <= 125, "{rate} bits/s, MTU {mtu}, {micros} us: {count}");
    }
}
