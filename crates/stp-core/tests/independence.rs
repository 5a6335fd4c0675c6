//! Nobody waits for somebody else: Transfers of a connection whatever becomes of one of them,
//! and peers whatever others do with what they are granted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::two::{Two, is_sent, noise, small};
use crate::world::{Host, PORT};
use landfall_placement::{Area, PathId, Peer};
use landfall_simnet::{EngineNode, Handle, LinkConfig, LinkId, Memory, Sim, Switch};
use landfall_testkit::trials::cases;
use proptest::prelude::*;
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
pub(crate) enum Kind {
    /// It sends it.
    Live,
    /// It never sends any.
    Silent,
    /// It begins, and stops in the middle, this many microseconds later.
    Stopped(u64),
    /// It sends it over a link of this many bits a second.
    Slow(u64),
}

/// A receiver, a switch, and peers of each kind.
pub(crate) struct ManyPeers {
    pub(crate) sim: Sim,
    pub(crate) receiver: Handle<Host>,
    pub(crate) peers: Vec<(Kind, Handle<Host>, LinkId, ConnectionId)>,
    /// What those that are live have sent, in Transfers that are over.
    sent: Rc<Cell<u64>>,
    /// What the receiver calls their connections.
    accepted: Accepted,
}

/// By what each peer said as it connected: its number.
type Accepted = Rc<RefCell<BTreeMap<u64, ConnectionId>>>;

fn link(rate: u64) -> LinkConfig {
    LinkConfig::ethernet(rate).delay(Duration::from_micros(10)).mtu(1_500).queue_bytes(16 << 20)
}

impl ManyPeers {
    pub(crate) fn new(config: &Config, kinds: &[Kind]) -> Self {
        let mut sim = Sim::from_number(5);
        let switch = sim.add("switch", Switch::learning()).unwrap();
        let sent = Rc::new(Cell::new(0));
        let accepted = Accepted::default();
        let receiver = add_receiver(&mut sim, config.clone(), Rc::default(), accepted.clone());
        sim.connect(switch.id(), receiver.id(), link(RATE)).unwrap();
        let mut hosts = Vec::new();
        for (n, kind) in kinds.iter().enumerate() {
            let mut seed = [1; 32];
            seed[..8].copy_from_slice(&(n as u64).to_le_bytes());
            let again = (*kind == Kind::Live).then(|| sent.clone());
            let host = add_sender(&mut sim, n, again, Endpoint::new(config.clone(), seed).unwrap());
            let rate = if let Kind::Slow(rate) = *kind { rate } else { RATE };
            let cable = sim.connect(host.id(), switch.id(), link(rate)).unwrap();
            hosts.push((*kind, host, cable));
        }
        let to = Peer::Node(receiver.id().0);
        run_for(&mut sim, Duration::from_millis(1));
        let mut peers = Vec::new();
        for (nth, (kind, host, cable)) in hosts.into_iter().enumerate() {
            let now = sim.now();
            let engine = sim.node_mut(host).unwrap().engine_mut();
            let hello = nth as u64;
            let connect = Connect { port: PORT, hello, ..Connect::default() };
            let id = engine.connect(now, PathId(0), to, connect).unwrap();
            peers.push((kind, host, cable, id));
        }
        // Those that are slow take a while to be connected: what they say waits behind what others
        // say to each other, of which they get a copy while the switch does not know who is where.
        for _ in 0..120 {
            run_for(&mut sim, Duration::from_millis(500));
            if accepted.borrow().len() == peers.len() {
                break;
            }
        }
        assert_eq!(accepted.borrow().len(), peers.len(), "all are connected");
        Self { sim, receiver, peers, sent, accepted }
    }

    /// What the receiver calls the connections of peers, in their order.
    pub(crate) fn at_receiver(&self) -> Vec<ConnectionId> {
        self.accepted.borrow().values().copied().collect()
    }

    /// All begin. Those that are silent are so from then on, those that stop a little later.
    fn begin(&mut self) {
        // Short enough that it matters little how much of them is under way.
        self.begin_with(LONG / 4);
    }

    /// The same, with Transfers of this length from those that are live.
    pub(crate) fn begin_with(&mut self, live_len: u64) {
        for (kind, host, cable, id) in self.peers.clone() {
            let now = self.sim.now();
            let (count, len) = if kind == Kind::Live { (4, live_len) } else { (2, LONG) };
            for _ in 0..count {
                let node = self.sim.node_mut(host).unwrap();
                let region = node.memory_mut().lend(vec![1; len as usize]).unwrap();
                let area = Area::new(region, 0, len);
                node.engine_mut().send(now, id, area, 0).unwrap();
            }
            let silent_after = match kind {
                // Its requests are on the wire, and nothing comes back.
                Kind::Silent => Duration::from_micros(15),
                Kind::Stopped(micros) => Duration::from_micros(micros),
                Kind::Live | Kind::Slow(_) => continue,
            };
            self.sim.schedule_link(now + silent_after, cable, false).unwrap();
        }
    }

    /// How many bytes of Transfers those that are live send in a time.
    fn rate(&mut self, time: Duration) -> u64 {
        let before = self.sent.get();
        run_for(&mut self.sim, time);
        let engine = self.sim.node(self.receiver).unwrap().engine();
        assert_eq!(wrong_room(engine), None);
        self.sent.get() - before
    }
}

pub(crate) fn run_for(sim: &mut Sim, time: Duration) {
    let end = sim.now() + time;
    sim.run_until(end).unwrap();
}

fn add_receiver(
    sim: &mut Sim,
    config: Config,
    received: Rc<Cell<u64>>,
    accepted: Accepted,
) -> Handle<Host> {
    let mut endpoint = Endpoint::new(config, [99; 32]).unwrap();
    endpoint.listen(PORT, Admission::Open).unwrap();
    let mut free: Vec<Area> = Vec::new();
    let node = EngineNode::new(endpoint).on_event(
        move |now, endpoint: &mut Endpoint, memory: &mut Memory, event| match event {
            Event::Offered { receive, len, .. } => {
                let found = free.iter().position(|area| area.len == len);
                let area = match found {
                    Some(nth) => free.swap_remove(nth),
                    None => Area::new(memory.lend(vec![0; len as usize]).unwrap(), 0, len),
                };
                endpoint.accept(now, receive, area, false).unwrap();
            }
            Event::Accepted { connection, hello, .. } => {
                accepted.borrow_mut().insert(hello, connection);
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

/// With `again` it sends again whatever was sent, and counts it there.
fn add_sender(
    sim: &mut Sim,
    n: usize,
    again: Option<Rc<Cell<u64>>>,
    endpoint: Endpoint,
) -> Handle<Host> {
    let mut areas: Vec<Area> = Vec::new();
    let node = EngineNode::new(endpoint).on_event(
        move |now, endpoint: &mut Endpoint, memory: &mut Memory, event| {
            if let (Some(sent), Event::Sent { connection, len, .. }) = (&again, event) {
                sent.set(sent.get() + len);
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

/// What those that are live send in a time beside others.
fn rate_beside(config: &Config, others: &[(Kind, usize)], time: Duration) -> u64 {
    let mut kinds = vec![Kind::Live; LIVE];
    for (kind, count) in others {
        kinds.extend(std::iter::repeat_n(*kind, *count));
    }
    let mut crowd = ManyPeers::new(config, &kinds);
    crowd.begin();
    // A congestion window that has met a hundred others takes a while to grow again.
    let is_shared = config.congestion.is_some();
    crowd.rate(Duration::from_millis(if is_shared { 600 } else { 0 }));
    crowd.rate(time)
}

/// What others do costs those that are live no more than a tenth of their rate.
#[track_caller]
fn keeps_its_rate(config: &Config, others: &[(Kind, usize)]) {
    let time = Duration::from_millis(600);
    let undisturbed = rate_beside(config, &[], time);
    let rate = rate_beside(config, others, time);
    assert!(undisturbed > RATE / 8 * 6 / 10 * 4 / 10, "{undisturbed} bytes alone");
    assert!(rate * 10 >= undisturbed * 9, "{rate} bytes, {undisturbed} alone: {others:?}");
}

/// With a window for this network: what is granted crosses it within the shortest time-out.
pub(crate) fn own_network() -> Config {
    let (connections, receives, blocks) = (2_048, 4_096, 4_096);
    Config { window: 1 << 20, half_open: 1_024, connections, receives, blocks, ..Config::default() }
}

#[test]
fn silent_peers_cost_others_nothing() {
    keeps_its_rate(&own_network(), &[(Kind::Silent, 100)]);
}

/// They stop at the same moment, with what each has of the window.
#[test]
fn peers_that_stop_in_mid_transfer_cost_others_nothing() {
    keeps_its_rate(&own_network(), &[(Kind::Stopped(2_000), 100)]);
    // More than have a part of the window at a time.
    keeps_its_rate(&own_network(), &[(Kind::Stopped(2_000), 300)]);
}

#[test]
fn slow_peers_cost_others_what_they_send_and_no_more() {
    keeps_its_rate(&own_network(), &[(Kind::Slow(300_000), 100)]);
    keeps_its_rate(&own_network(), &[(Kind::Slow(10_000_000), 3)]);
}

#[test]
fn where_others_share_the_network_peers_that_do_nothing_cost_nothing() {
    let others = [(Kind::Silent, 30), (Kind::Stopped(2_000), 20), (Kind::Slow(500_000), 20)];
    keeps_its_rate(&Config::shared_network(), &others);
}

fn any_kind() -> impl Strategy<Value = (Kind, usize)> {
    prop_oneof![
        (1_usize..60).prop_map(|count| (Kind::Silent, count)),
        (100_u64..6_000, 1_usize..60).prop_map(|(after, count)| (Kind::Stopped(after), count)),
        // What slow ones send is theirs: together no more than a hundredth of the rate.
        (1_usize..40, 1_u64..100).prop_map(|(count, part)| {
            (Kind::Slow(RATE / 100 / count as u64 * part / 100 + 50_000), count)
        }),
    ]
}

#[test]
fn whatever_silent_slow_and_stopped_peers_do_others_keep_their_rate() {
    let (config, time) = (own_network(), Duration::from_millis(500));
    let undisturbed = rate_beside(&config, &[], time);
    let sets = proptest::collection::vec(any_kind(), 1..4);
    let few = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(3)) };
    proptest!(few, |(others in sets)| {
        let rate = rate_beside(&config, &others, time);
        prop_assert!(
            rate * 10 >= undisturbed * 9,
            "{rate} bytes, {undisturbed} alone: {others:?}"
        );
    });
}

/// Those that stopped go on where they were, as soon as they are back.
#[test]
fn who_was_silent_gets_all_when_it_is_back() {
    let kinds = [Kind::Live, Kind::Silent, Kind::Stopped(2_000)];
    let mut crowd = ManyPeers::new(&Config::default(), &kinds);
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
    let receiver = add_receiver(&mut sim, config.clone(), received.clone(), Rc::default());
    let host =
        add_sender(&mut sim, 0, Some(Rc::default()), Endpoint::new(config, [3; 32]).unwrap());
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
