//! On networks that others share: a bottleneck in mid-path, and NewReno beside.

use std::time::Duration;

use crate::cubic::{Cubic, additive, response};
use crate::world::{Host, PORT};
use landfall_congestion::{Arrived, Config as CongestionConfig, Window};
use landfall_placement::{Area, Instant, PathId, Peer};
use landfall_simnet::traffic::{Acknowledged, Control, NewReno, Sink, Source, SourceConfig};
use landfall_simnet::{
    EcnThreshold, EngineNode, Handle, LinkConfig, LinkId, Loss, Memory, Probability, QueuePolicy,
    Red, Sim, Switch, TailDrop,
};
use stp_core::{Admission, Config, Connect, Endpoint, Event, Stats};

const LEN: u64 = 1 << 20;

/// The bottleneck; everything else is ten times as fast.
#[derive(Clone, Copy)]
struct Bottleneck {
    rate: u64,
    round_trip: Duration,
    max_stu: u8,
}

// What is counted are STUs of 1 KiB.
const USUAL: Bottleneck =
    Bottleneck { rate: 100_000_000, round_trip: Duration::from_millis(20), max_stu: 10 };

impl Bottleneck {
    /// What is under way where it is just full.
    const fn bytes(self) -> u64 {
        self.rate / 8 * self.round_trip.as_micros() as u64 / 1_000_000
    }
}

fn config(max_stu: u8) -> Config {
    Config { max_stu, ..Config::shared_network() }
}

/// Sends one Transfer after another, some of them at a time.
fn endless_sender(sim: &mut Sim, ahead: u64, max_stu: u8) -> Handle<Host> {
    let mut memory = Area::default();
    let node = EngineNode::new(Endpoint::new(config(max_stu), [1; 32]).unwrap()).on_event(
        move |now, endpoint: &mut Endpoint, store: &mut Memory, event| match event {
            Event::Connected { connection, .. } => {
                memory = Area::new(store.lend(vec![5; LEN as usize]).unwrap(), 0, LEN);
                for _ in 0..ahead {
                    endpoint.send(now, connection, memory, 0).unwrap();
                }
            }
            Event::Sent { connection, .. } => {
                endpoint.send(now, connection, memory, 0).unwrap();
            }
            other => panic!("the sender was told {other:?}"),
        },
    );
    sim.add("stp sender", node).unwrap()
}

/// Has memory for each.
fn endless_receiver(sim: &mut Sim, ahead: u64, max_stu: u8) -> Handle<Host> {
    let mut endpoint = Endpoint::new(config(max_stu), [2; 32]).unwrap();
    endpoint.listen(PORT, Admission::Open).unwrap();
    let node = EngineNode::new(endpoint).on_event(
        move |now, endpoint: &mut Endpoint, store: &mut Memory, event| match event {
            Event::Accepted { connection, .. } => {
                for _ in 0..2 * ahead {
                    let area = Area::new(store.lend(vec![0; LEN as usize]).unwrap(), 0, LEN);
                    endpoint.post(now, connection, area, false).unwrap();
                }
            }
            Event::Received { connection, memory, .. } => {
                endpoint.post(now, connection, memory, false).unwrap();
            }
            Event::Offered { .. } => {}
            other => panic!("the receiver was told {other:?}"),
        },
    );
    sim.add("stp receiver", node).unwrap()
}

/// Puts another queue in front of a link.
type SetPolicy = Box<dyn Fn(&mut Sim, LinkId)>;

struct Network {
    bottleneck: Bottleneck,
    /// The slow link, and how what is granted goes back over it.
    narrow: LinkId,
    back: LinkConfig,
    sim: Sim,
    sender: Handle<Host>,
    receiver: Handle<Host>,
    sink: Handle<Sink>,
    reno: Option<Peer>,
}

impl Network {
    fn new(with_reno: bool, ecn: bool, policy: Option<SetPolicy>) -> Self {
        Self::with(USUAL, with_reno, ecn, policy)
    }

    fn with(bottleneck: Bottleneck, with_reno: bool, ecn: bool, policy: Option<SetPolicy>) -> Self {
        let Bottleneck { rate, round_trip, max_stu } = bottleneck;
        // An offer, its grant and its end take two round trips.
        let ahead = (bottleneck.bytes() * 4).div_ceil(LEN).clamp(4, 48);
        let mut sim = Sim::from_number(1);
        let left = sim.add("left", Switch::learning()).unwrap();
        let right = sim.add("right", Switch::learning()).unwrap();
        let half = round_trip / 2;
        let slow = LinkConfig::new()
            .rate(rate)
            .delay(half)
            .queue_bytes(bottleneck.bytes())
            .queue_frames(100_000);
        let back = LinkConfig::new().rate(rate * 10).delay(half);
        let narrow = sim.connect_each(left, right, slow, back).unwrap();
        if let Some(policy) = policy {
            policy(&mut sim, narrow);
        }
        let access = LinkConfig::new().rate(rate * 10).mtu(1_500).queue_frames(100_000);
        let sender = endless_sender(&mut sim, ahead, max_stu);
        let receiver = endless_receiver(&mut sim, ahead, max_stu);
        sim.connect(sender, left, access).unwrap();
        sim.connect(receiver, right, access).unwrap();
        let sink = sim.add("sink", Sink::new()).unwrap();
        let wide = access.mtu(2_000);
        sim.connect(sink, right, wide).unwrap();
        let reno = with_reno.then(|| {
            let config = SourceConfig { ecn, ..SourceConfig::to(sink.peer()) };
            let reno = sim.add("reno", Source::new(config, NewReno::new(1_514))).unwrap();
            sim.connect(reno, left, wide).unwrap();
            reno.peer()
        });
        sim.run_until(Instant::from_millis(1)).unwrap();
        let now = sim.now();
        let connect = Connect { port: PORT, ..Connect::default() };
        let to = receiver.peer();
        sim.node_mut(sender).unwrap().engine_mut().connect(now, PathId(0), to, connect).unwrap();
        Self { bottleneck, narrow, back, sim, sender, receiver, sink, reno }
    }

    /// Bytes of ours that arrived, STUs of ours that were sent, bytes of the other.
    fn count(&self) -> [u64; 3] {
        let received = self.sim.node(self.receiver).unwrap().engine().stats();
        let sent = self.sim.node(self.sender).unwrap().engine().stats();
        let reno = self.reno.map_or(0, |reno| self.sim.node(self.sink).unwrap().bytes_from(reno));
        [received.bytes_received, sent.stus_sent, reno]
    }

    fn dropped(&self) -> u64 {
        self.sim.stats(self.narrow.there()).dropped_total()
    }

    fn engine_stats(&self) -> Stats {
        *self.sim.node(self.receiver).unwrap().engine().stats()
    }

    /// Runs for a while: our share, how much of the link was used, our loss.
    fn run(&mut self, time: Duration) -> (f64, f64, f64) {
        let before = self.count();
        self.sim.run_until(self.sim.now() + time).unwrap();
        let now = self.count();
        let [bytes, stus, reno] = [0, 1, 2].map(|n| (now[n] - before[n]) as f64);
        let capacity = self.bottleneck.rate as f64 / 8.0 * time.as_secs_f64();
        let lost = (stus - bytes / 1024.0).max(0.0) / stus;
        (bytes / (bytes + reno), (bytes * 1064.0 / 1024.0 + reno) / capacity, lost)
    }
}

fn with(policy: impl QueuePolicy + Clone + 'static) -> Option<SetPolicy> {
    Some(Box::new(move |sim, link| sim.set_queue_policy(link.there(), policy.clone()).unwrap()))
}

#[test]
fn alone_it_fills_the_bottleneck_and_loses_next_to_nothing() {
    let mut net = Network::new(false, false, None);
    net.run(Duration::from_secs(5));
    let (_, used, lost) = net.run(Duration::from_secs(10));
    assert!(used > 0.9 && lost < 0.01, "used {used:.3}, lost {lost:.4}");
}

/// As where a host was busy elsewhere for a while: what is asked for again comes.
#[test]
fn one_time_out_is_not_taken_for_congestion() {
    let mut net = Network::new(false, false, None);
    net.run(Duration::from_secs(5));
    let deaf = net.back.loss(Loss::Uniform(Probability::percent(100)));
    net.sim.configure(net.narrow.back(), deaf).unwrap();
    net.run(Duration::from_millis(30));
    net.sim.configure(net.narrow.back(), net.back).unwrap();
    net.run(Duration::from_millis(100));
    let timeouts = net.sim.node(net.receiver).unwrap().engine().stats().link_timeouts;
    let (_, used, _) = net.run(Duration::from_millis(100));
    assert!(used > 0.3, "used {used:.3}");
    assert_eq!(timeouts, 1);
}

/// Nobody has told the receiver how much the path holds: 12.5 MB.
#[test]
fn a_long_and_fast_path_is_filled_by_itself() {
    let round_trip = Duration::from_millis(100);
    let path = Bottleneck { rate: 1_000_000_000, round_trip, ..USUAL };
    let mut net = Network::with(path, false, false, None);
    net.run(Duration::from_secs(3));
    let (_, used, lost) = net.run(Duration::from_secs(3));
    assert!(used > 0.9 && lost < 0.01, "used {used:.3}, lost {lost:.4}");
}

#[test]
fn beside_one_aimd_flow_it_takes_its_share_and_no_more() {
    let mut net = Network::new(true, false, None);
    net.run(Duration::from_secs(10));
    let (share, used, lost) = net.run(Duration::from_secs(20));
    let context = format!("share {share:.3}, used {used:.3}, lost {lost:.4}");
    assert!((0.3..=0.7).contains(&share) && lost < 0.01 && used > 0.9, "{context}");
}

#[test]
fn queues_that_mark_are_heeded() {
    let red = Red::new(2 * USUAL.bytes(), USUAL.rate);
    let threshold = EcnThreshold::bytes(USUAL.bytes() / 4, TailDrop::bytes(USUAL.bytes()));
    for (name, policy) in [("RED", with(red)), ("threshold", with(threshold))] {
        let mut net = Network::new(true, true, policy);
        net.run(Duration::from_secs(10));
        let (share, used, lost) = net.run(Duration::from_secs(20));
        let context = format!("{name}: share {share:.3}, used {used:.3}, lost {lost:.4}");
        assert!((0.3..=0.7).contains(&share) && lost < 0.01 && used > 0.8, "{context}");
        let marked = net.sim.node(net.receiver).unwrap().engine().stats().stus_marked;
        assert!(marked > 0, "{context}");
    }
}

// ---- Random loss ------------------------------------------------------------------

/// What both lose: one of a hundred frames.
const LOSS: f64 = 0.01;
/// What a frame of the path holds of a Transfer.
const STU: u64 = 1_432;

/// A path that loses frames at random, and is empty otherwise. Packets are as long as it carries.
fn lossy(round_trip: Duration) -> Bottleneck {
    Bottleneck { rate: 10_000_000_000, round_trip, max_stu: 16 }
}

/// The window that a rate means, in frames.
fn window_of(bytes: u64, frame: u64, time: Duration, round_trip: Duration) -> f64 {
    bytes as f64 / frame as f64 * round_trip.as_secs_f64() / time.as_secs_f64()
}

/// The window of a control on such a path, on average.
fn window_of_source(path: Bottleneck, time: Duration, control: impl Control) -> f64 {
    let mut sim = Sim::from_number(2);
    let sink = sim.add("sink", Sink::new()).unwrap();
    let config = SourceConfig::to(sink.peer());
    let source = sim.add("source", Source::new(config, control)).unwrap();
    let slow = LinkConfig::new()
        .rate(path.rate)
        .delay(path.round_trip / 2)
        .loss(Loss::Uniform(Probability::percent(1)));
    let back = LinkConfig::new().rate(path.rate * 10).delay(path.round_trip / 2);
    sim.connect_each(source, sink, slow, back).unwrap();
    sim.run_until(Instant::ZERO + time).unwrap();
    let bytes = sim.node(sink).unwrap().bytes_from(source.peer());
    window_of(bytes, config.segment.into(), time, path.round_trip)
}

/// Our window, without the protocol.
#[derive(Debug)]
struct Ours {
    config: CongestionConfig,
    window: Window,
}

impl Control for Ours {
    fn window(&self) -> u64 {
        self.window.bytes()
    }

    fn timeout(&self) -> Duration {
        self.window.timeout(&self.config)
    }

    fn handle_acknowledged(&mut self, now: Instant, segment: &Acknowledged) {
        let Acknowledged { bytes, sent, marked, under_way } = *segment;
        let arrived = Arrived { bytes, sent, timed: true, marked, under_way };
        self.window.handle_arrived(&self.config, now, &arrived);
    }

    fn handle_lost(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.window.handle_lost(&self.config, now, sent, bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.window.handle_timeout(&self.config, now);
    }
}

/// The window of ours, and how many bytes it counted as lost for each that was.
fn window_of_ours(path: Bottleneck, time: Duration) -> (f64, f64) {
    let mut net = Network::with(path, false, false, None);
    let narrow = *net.sim.link_config(net.narrow.there()).unwrap();
    let narrow = narrow.loss(Loss::Uniform(Probability::percent(1))).queue_bytes(1 << 20);
    net.sim.configure(net.narrow.there(), narrow).unwrap();
    net.run(time / 10);
    let (before, dropped) = (net.engine_stats(), net.dropped());
    net.run(time);
    let (after, dropped) = (net.engine_stats(), net.dropped() - dropped);
    let bytes = after.bytes_received - before.bytes_received;
    let counted = (after.bytes_lost - before.bytes_lost) as f64 / (dropped * STU) as f64;
    // With its headers an STU fills a frame.
    let frames = bytes / STU * 1_514;
    (window_of(frames, 1_514, time, path.round_trip), counted)
}

/// RFC 9438, 5.2: where losses are random the window is what they leave of it. Ours adds a unit
/// in a round trip as Reno's does, and keeps of it at a loss what CUBIC's does, so it is a
/// little larger than both.
#[test]
fn with_random_loss_the_window_is_that_of_its_formula_and_of_cubic_at_least() {
    let own = additive(1.0, 0.7, LOSS);
    for micros in [100, 2_000, 50_000] {
        let round_trip = Duration::from_micros(micros);
        let (path, time) = (lossy(round_trip), round_trip * 3_000);
        let config = CongestionConfig::new(1_514);
        let alone = window_of_source(path, time, Ours { config, window: Window::new(&config) });
        let cubic = window_of_source(path, time, Cubic::new(1_514));
        let (ours, counted) = window_of_ours(path, time);
        let formula = response(LOSS, round_trip);
        let context = format!(
            "{round_trip:?}: {ours:.1}, without the protocol {alone:.1}, by formula {own:.1}; \
             CUBIC {cubic:.1}, by formula {formula:.1}; counted {counted:.2}",
        );
        assert!((0.8..=1.2).contains(&(alone / own)), "{context}");
        assert!((0.8..=1.2).contains(&(cubic / formula)), "{context}");
        assert!(ours > 0.9 * cubic && (0.8..=1.2).contains(&(ours / own)), "{context}");
        // Each hole is one loss.
        assert!((0.9..=1.05).contains(&counted), "{context}");
    }
}
