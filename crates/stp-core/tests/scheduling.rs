//! The receiver paces its grants over all senders: many to one through a
//! switch with a small queue, and short Transfers beside long ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::world::{Host, PORT};
use landfall_placement::{Area, Instant, PathId, Peer, Random};
use landfall_simnet::{DropReason, EngineNode, Handle, LinkConfig, LinkId, Memory, Sim, Switch};
use stp_core::{Admission, Config, Connect, ConnectionId, Endpoint, Event, Policy, SendId};

const RATE: u64 = 10_000_000_000;
const QUEUE: u64 = 128 << 10;
const SENDERS: usize = 32;
const SHORT: u64 = 16 << 10;
const LONG: u64 = 1 << 20;

/// What a sender's user sees: when each Transfer was over.
type Ends = Rc<RefCell<BTreeMap<(usize, SendId), Instant>>>;

/// Many senders, one receiver, a switch between them.
struct Incast {
    sim: Sim,
    senders: Vec<(Handle<Host>, ConnectionId, Area)>,
    receiver: Handle<Host>,
    bottleneck: LinkId,
    ends: Ends,
}

fn fast() -> LinkConfig {
    LinkConfig::ethernet(RATE).delay(Duration::from_micros(2)).mtu(1_500)
}

/// STUs of 1 KiB in Blocks of 8, so that grants are small and flow.
fn config(policy: Policy, window: u64) -> Config {
    Config { policy, window, max_stu: 10, block_stus: 3, blocks_ahead: 64, ..Config::default() }
}

impl Incast {
    fn new(receiver_config: Config) -> Self {
        let mut sim = Sim::from_number(1);
        let switch = sim.add("switch", Switch::learning()).unwrap();
        let receiver = add_receiver(&mut sim, receiver_config);
        let bottleneck =
            sim.connect(switch.id(), receiver.id(), fast().queue_bytes(QUEUE)).unwrap();
        let ends = Ends::default();
        let mut hosts = Vec::new();
        for n in 0..SENDERS {
            let ends = ends.clone();
            let node =
                EngineNode::new(Endpoint::new(Config::default(), [n as u8 + 1; 32]).unwrap())
                    .on_event(move |now, _: &mut Endpoint, _: &mut Memory, event| match event {
                        Event::Sent { send, .. } => {
                            ends.borrow_mut().insert((n, send), now);
                        }
                        Event::Connected { .. } => {}
                        other => panic!("a sender was told {other:?}"),
                    });
            let host = sim.add(&format!("sender {n}"), node).unwrap();
            // A host with several Transfers waits for its own link, and loses nothing.
            sim.connect(host.id(), switch.id(), fast()).unwrap();
            hosts.push(host);
        }
        sim.run_until(Instant::from_millis(1)).unwrap();
        let to = Peer::Node(receiver.id().0);
        let mut senders = Vec::new();
        for host in hosts {
            let now = sim.now();
            let region =
                sim.node_mut(host).unwrap().memory_mut().lend(vec![5; LONG as usize]).unwrap();
            let connect = Connect { port: PORT, ..Connect::default() };
            let engine = sim.node_mut(host).unwrap().engine_mut();
            let connection = engine.connect(now, PathId(0), to, connect).unwrap();
            senders.push((host, connection, Area::new(region, 0, LONG)));
            sim.run_until(now + Duration::from_micros(100)).unwrap();
        }
        Self { sim, senders, receiver, bottleneck, ends }
    }

    fn send(&mut self, sender: usize, len: u64) -> (usize, SendId) {
        let now = self.sim.now();
        let (host, connection, area) = self.senders[sender];
        let area = Area { len, ..area };
        let engine = self.sim.node_mut(host).unwrap().engine_mut();
        (sender, engine.send(now, connection, area, 0).unwrap())
    }

    /// Sends, one by one, and gives how long each took when it was alone.
    fn alone(&mut self, len: u64) -> Duration {
        let began = self.sim.now();
        let id = self.send(0, len);
        self.sim.run_until(began + Duration::from_millis(100)).unwrap();
        self.ends.borrow()[&id].since(began)
    }

    fn dropped(&self) -> u64 {
        self.sim.stats(self.bottleneck.there()).dropped(DropReason::Queue)
    }

    /// How busy the bottleneck was, in percent.
    fn busy(&self, bytes_before: u64, time: Duration) -> u64 {
        let bytes = self.sim.stats(self.bottleneck.there()).delivered_bytes - bytes_before;
        (u128::from(bytes) * 8 * 100 * 1_000_000_000 / (u128::from(RATE) * time.as_nanos())) as u64
    }
}

/// Takes every Transfer that is offered, each into memory of its own.
fn add_receiver(sim: &mut Sim, config: Config) -> Handle<Host> {
    let mut endpoint = Endpoint::new(config, [99; 32]).unwrap();
    endpoint.listen(PORT, Admission::Open).unwrap();
    let mut free: BTreeMap<u64, Vec<Area>> = BTreeMap::new();
    let node = EngineNode::new(endpoint).on_event(
        move |now, endpoint: &mut Endpoint, memory: &mut Memory, event| match event {
            Event::Offered { receive, len, .. } => {
                let area = free.entry(len).or_default().pop().unwrap_or_else(|| {
                    Area::new(memory.lend(vec![0; len as usize]).unwrap(), 0, len)
                });
                endpoint.accept(now, receive, area, false).unwrap();
            }
            Event::Received { memory, len, .. } => free.entry(len).or_default().push(memory),
            Event::Accepted { .. } => {}
            other => panic!("the receiver was told {other:?}"),
        },
    );
    sim.add("receiver", node).unwrap()
}

/// All senders send long Transfers at once: how busy the link is, what is
/// dropped, and the Transfers that were done.
fn storm(config: Config) -> (u64, u64, usize) {
    let mut incast = Incast::new(config);
    for sender in 0..SENDERS {
        for _ in 0..4 {
            incast.send(sender, LONG);
        }
    }
    // From when all are at it, to when the first are nearly done.
    let start = incast.sim.now() + Duration::from_millis(2);
    incast.sim.run_until(start).unwrap();
    let before = incast.sim.stats(incast.bottleneck.there()).delivered_bytes;
    let time = Duration::from_millis(80);
    incast.sim.run_until(start + time).unwrap();
    let busy = incast.busy(before, time);
    incast.sim.run_until(start + Duration::from_secs(20)).unwrap();
    let ends = incast.ends.borrow().len();
    let engine = incast.sim.node(incast.receiver).unwrap().engine();
    assert_eq!(engine.granted_bytes(), 0);
    (busy, incast.dropped(), ends)
}

#[test]
fn thirty_two_senders_fill_the_link_and_lose_nothing() {
    for policy in [Policy::Fair, Policy::ShortestFirst] {
        let (busy, dropped, done) = storm(config(policy, 96 << 10));
        assert_eq!((dropped, done), (0, SENDERS * 4), "{policy:?}");
        assert!(busy >= 95, "{policy:?}: the link was busy {busy} % of the time");
    }
    // What scheduling buys: with a window for each sender, and none over all,
    // the queue overflows.
    let (busy, dropped, done) = storm(config(Policy::Fair, SENDERS as u64 * (96 << 10)));
    assert_eq!(done, SENDERS * 4);
    assert!(dropped > 1_000, "{dropped} packets dropped at {busy} %");
}

/// How long short Transfers take at 80 % load, at the 99th percentile, as a
/// multiple in percent of what they take alone; and how many were measured.
fn slowdown(config: Config) -> (u64, usize, u64) {
    let mut incast = Incast::new(config);
    let lengths = [512, 2 << 10, 8 << 10, SHORT];
    let alone: BTreeMap<u64, Duration> =
        lengths.into_iter().map(|len| (len, incast.alone(len))).collect();
    let mut random = Random::from_number(7);
    let mut began = BTreeMap::new();
    let start = incast.sim.now();
    let end = start + Duration::from_millis(150);
    // Of the load 70 % are long Transfers and 10 % short ones, each coming at
    // random moments (exponentially distributed) from random senders.
    let mut next = [start, start];
    let mut count = 0;
    loop {
        let kind = usize::from(next[1] < next[0]);
        let at = next[kind];
        if at >= end {
            break;
        }
        incast.sim.run_until(at).unwrap();
        let (len, percent) =
            if kind == 0 { (LONG, 70) } else { (lengths[random.below(4) as usize], 10) };
        let mean = if kind == 0 { LONG } else { lengths.iter().sum::<u64>() / 4 };
        // The payload's share of what crosses the link.
        let wire = mean * (1024 + 40 + 24) / 1024;
        let gap = wire as f64 * 8.0 * 1e9 / (RATE as f64 * f64::from(percent) / 100.0);
        let uniform = (random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        next[kind] = at + Duration::from_nanos((-uniform.ln() * gap) as u64 + 1);
        let id = incast.send(random.below(SENDERS as u64) as usize, len);
        count += 1;
        if len <= SHORT {
            began.insert(id, (at, len));
        }
    }
    incast.sim.run_until(end + Duration::from_secs(2)).unwrap();
    let ends = incast.ends.borrow();
    assert_eq!(ends.len(), count + lengths.len(), "all came through");
    let mut slowdowns: Vec<u64> = began
        .iter()
        .map(|(id, (at, len))| {
            let took = ends[id].since(*at);
            (took.as_nanos() * 100 / alone[len].as_nanos()) as u64
        })
        .collect();
    slowdowns.sort_unstable();
    (slowdowns[slowdowns.len() * 99 / 100], slowdowns.len(), incast.dropped())
}

#[test]
fn short_transfers_do_not_wait_for_long_ones() {
    let window = 16 << 10;
    let (p99, count, dropped) = slowdown(config(Policy::ShortestFirst, window));
    assert!(count > 1_000, "{count}");
    assert_eq!(dropped, 0);
    assert!(p99 <= 200, "p99 of {count} short transfers is {p99} % of their time alone");
    // What scheduling buys: a window for each sender fills the queue before them.
    let (unscheduled, _, dropped) = slowdown(config(Policy::Fair, SENDERS as u64 * (96 << 10)));
    assert!(unscheduled > 3 * p99, "{unscheduled} % without, {p99} % with; {dropped} dropped");
}
