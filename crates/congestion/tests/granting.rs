//! The window held by a receiver: it grants blocks, and a sender that has no
//! window of its own sends what was granted.

use std::collections::VecDeque;
use std::time::Duration;

use crate::common::{Path, SEGMENT};
use landfall_congestion::{Arrived, Config, Window};
use landfall_placement::{Ecn, Instant, Peer};
use landfall_simnet::traffic::{NewReno, Sink, Source, SourceConfig};
use landfall_simnet::{
    EcnThreshold, Frame, Handle, LinkConfig, LinkId, Node, Outbox, PortId, QueuePolicy, Red, Sim,
    Switch, TailDrop,
};

const PORT: PortId = PortId(0);

fn message(from: Peer, to: Peer, number: u64, len: usize) -> Frame {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(len, 0);
    Frame { ecn: Ecn::Capable0, ..Frame::addressed(from, to, bytes) }
}

fn number(frame: &Frame) -> u64 {
    u64::from_be_bytes(*frame.bytes.first_chunk().unwrap())
}

/// Sends a block for each grant: at once, or spread over the time between grants.
struct Granted {
    block: u64,
    ecn: bool,
    spreads: bool,
    waiting: VecDeque<Frame>,
    last_grant: Instant,
    /// The mean time between grants.
    interval: Duration,
    next_send: Instant,
}

impl Granted {
    fn new(block: u64, ecn: bool, spreads: bool) -> Self {
        Self {
            block,
            ecn,
            spreads,
            waiting: VecDeque::new(),
            last_grant: Instant::ZERO,
            interval: Duration::ZERO,
            next_send: Instant::ZERO,
        }
    }

    fn send(&mut self, now: Instant, out: &mut Outbox<'_>) {
        while self.next_send <= now
            && let Some(frame) = self.waiting.pop_front()
        {
            out.send(PORT, frame);
            // A little faster than grants come, so that none piles up.
            let pause = self.interval * 4 / 5 / self.block as u32;
            self.next_send = now + if self.spreads { pause } else { Duration::ZERO };
        }
    }
}

impl Node for Granted {
    fn handle_frame(&mut self, now: Instant, _: PortId, grant: Frame, out: &mut Outbox<'_>) {
        if grant.to != out.node().peer() {
            return;
        }
        let since = now.since(std::mem::replace(&mut self.last_grant, now));
        self.interval = (self.interval * 15 + since) / 16;
        let first = number(&grant) * self.block;
        for unit in first..first + self.block {
            let mut frame = message(grant.to, grant.from, unit, SEGMENT as usize);
            if !self.ecn {
                frame.ecn = Ecn::NotCapable;
            }
            self.waiting.push_back(frame);
        }
        self.send(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.send(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.next_send)
    }
}

/// A unit that was granted.
struct Unit {
    granted: Instant,
    is_missing: bool,
}

/// Grants blocks as its window allows.
struct Granting {
    from: Option<Peer>,
    block: u64,
    config: Config,
    window: Window,
    units: VecDeque<Unit>,
    oldest: u64,
    under_way: u64,
    arrived: u64,
    lost: u64,
    heard: Instant,
}

impl Granting {
    fn new(block: u64) -> Self {
        let config = Config::new(SEGMENT);
        Self {
            from: None,
            block,
            config,
            window: Window::new(&config),
            units: VecDeque::new(),
            oldest: 0,
            under_way: 0,
            arrived: 0,
            lost: 0,
            heard: Instant::ZERO,
        }
    }

    fn grant(&mut self, now: Instant, out: &mut Outbox<'_>) {
        let (Some(from), len) = (self.from, self.block * u64::from(SEGMENT)) else { return };
        while self.under_way == 0 || self.under_way + len <= self.window.bytes() {
            if self.under_way == 0 {
                self.window.handle_start(&self.config, now);
                self.heard = now;
            }
            let next = (self.oldest + self.units.len() as u64) / self.block;
            self.units.extend((0..self.block).map(|_| Unit { granted: now, is_missing: true }));
            self.under_way += len;
            out.send(PORT, message(out.node().peer(), from, next, 64));
        }
    }

    fn handle_unit(&mut self, now: Instant, number: u64, marked: bool) {
        let bytes = u64::from(SEGMENT);
        let index = number.checked_sub(self.oldest).map(|index| index as usize);
        let Some(unit) = index.and_then(|index| self.units.get_mut(index)) else { return };
        if !std::mem::take(&mut unit.is_missing) {
            return;
        }
        let (sent, under_way) = (unit.granted, self.under_way);
        let arrived = Arrived { bytes, sent, timed: true, marked, under_way };
        self.under_way -= bytes;
        self.arrived += bytes;
        self.heard = now;
        self.window.handle_arrived(&self.config, now, &arrived);
        while self.oldest + 3 <= number || self.units.front().is_some_and(|unit| !unit.is_missing) {
            let Some(unit) = self.units.pop_front() else { return };
            self.oldest += 1;
            if unit.is_missing {
                self.under_way -= bytes;
                self.lost += bytes;
                self.window.handle_lost(&self.config, now, unit.granted, bytes);
            }
        }
    }

    fn silence_at(&self) -> Instant {
        self.heard + self.window.timeout(&self.config)
    }
}

impl Node for Granting {
    fn handle_frame(&mut self, now: Instant, _: PortId, frame: Frame, out: &mut Outbox<'_>) {
        if frame.to == out.node().peer() {
            self.handle_unit(now, number(&frame), frame.ecn == Ecn::CongestionExperienced);
            self.grant(now, out);
        }
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        if self.under_way > 0 && self.silence_at() <= now {
            self.lost += self.under_way;
            self.oldest += self.units.len() as u64;
            self.units.clear();
            self.under_way = 0;
            self.window.handle_timeout(&self.config, now);
        }
        self.grant(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.from
            .is_some()
            .then(|| if self.under_way == 0 { Instant::ZERO } else { self.silence_at() })
    }
}

/// Receivers that grant and NewReno flows, through one bottleneck.
struct Network {
    sim: Sim,
    path: Path,
    bottleneck: LinkId,
    granting: Vec<Handle<Granting>>,
    renos: Vec<Peer>,
    sink: Handle<Sink>,
}

impl Network {
    fn new(path: Path, ecn: bool, spreads: bool, blocks: &[u64], renos: usize) -> Self {
        let mut sim = Sim::from_number(1);
        let left = sim.add("left", Switch::learning()).unwrap();
        let right = sim.add("right", Switch::learning()).unwrap();
        let half = path.round_trip / 2;
        let slow = LinkConfig::new().rate(path.rate).delay(half).queue_bytes(path.bdp());
        let back = LinkConfig::new().rate(path.rate * 10).delay(half);
        let bottleneck = sim.connect_each(left, right, slow, back).unwrap();
        let access = LinkConfig::new().rate(path.rate * 10).queue_frames(100_000);
        let granting = blocks.iter().map(|block| {
            let sender = sim.add("sender", Granted::new(*block, ecn, spreads)).unwrap();
            let receiver = sim.add("receiver", Granting::new(*block)).unwrap();
            sim.connect(sender, left, access).unwrap();
            sim.connect(receiver, right, access).unwrap();
            sim.node_mut(receiver).unwrap().from = Some(sender.peer());
            receiver
        });
        let granting = granting.collect();
        let sink = sim.add("sink", Sink::new()).unwrap();
        sim.connect(sink, right, access).unwrap();
        let renos = (0..renos).map(|_| {
            let config = SourceConfig { ecn, ..SourceConfig::to(sink.peer()) };
            let reno = sim.add("reno", Source::new(config, NewReno::new(SEGMENT))).unwrap();
            sim.connect(reno, left, access).unwrap();
            reno.peer()
        });
        let renos = renos.collect();
        Self { sim, path, bottleneck, granting, renos, sink }
    }

    fn policy(mut self, policy: impl QueuePolicy + 'static) -> Self {
        self.sim.set_queue_policy(self.bottleneck.there(), policy).unwrap();
        self
    }

    /// Bytes that arrived and that were lost, of each flow; ours first.
    fn count(&self) -> Vec<(u64, u64)> {
        let ours = self.granting.iter().map(|receiver| {
            let receiver = self.sim.node(*receiver).unwrap();
            (receiver.arrived, receiver.lost)
        });
        let sink = self.sim.node(self.sink).unwrap();
        ours.chain(self.renos.iter().map(|reno| (sink.bytes_from(*reno), 0))).collect()
    }

    /// Runs for this many round trips: how much of the link was used, the share
    /// of each, and the loss of ours.
    fn run(&mut self, rounds: u32) -> (f64, Vec<f64>, f64) {
        let before = self.count();
        let time = self.path.round_trip * rounds;
        self.sim.run_until(self.sim.now() + time).unwrap();
        let each = self.count().into_iter().zip(before).map(|(a, b)| (a.0 - b.0, a.1 - b.1));
        let each: Vec<_> = each.collect();
        let all = each.iter().map(|(arrived, _)| arrived).sum::<u64>() as f64;
        let capacity = self.path.rate as f64 / 8.0 * time.as_secs_f64();
        let shares = each.iter().map(|(arrived, _)| *arrived as f64 / all).collect();
        let ours = &each[..self.granting.len()];
        let lost = ours.iter().map(|(_, lost)| lost).sum::<u64>() as f64;
        let arrived = ours.iter().map(|(arrived, _)| arrived).sum::<u64>() as f64;
        (all / capacity, shares, lost / (lost + arrived))
    }
}

fn paths() -> [Path; 2] {
    [Path::new(100, Duration::from_millis(20)), Path::new(500, Duration::from_millis(5))]
}

#[test]
fn one_receiver_fills_the_link() {
    for path in paths() {
        for (spreads, block) in [(false, 1), (false, 16), (true, 4), (true, 16)] {
            let mut net = Network::new(path, false, spreads, &[block], 0);
            net.run(200);
            let (used, _, loss) = net.run(300);
            let context = format!("blocks of {block}, {spreads}, {path:?}: {used:.3}, {loss:.4}");
            assert!(used > 0.95 && loss < 0.001, "{context}");
        }
    }
}

#[test]
fn receivers_share_evenly() {
    for path in paths() {
        for (spreads, block) in [(false, 1), (false, 4), (true, 4)] {
            let mut net = Network::new(path, false, spreads, &[block; 8], 0);
            net.run(300);
            let (used, shares, loss) = net.run(400);
            let context =
                format!("blocks of {block}, {path:?}: {used:.3}, {shares:.3?}, {loss:.4}");
            assert!(used > 0.95 && loss < 0.005, "{context}");
            assert!(shares.iter().all(|share| (0.09..0.17).contains(share)), "{context}");
        }
    }
}

#[test]
fn a_receiver_beside_newreno() {
    for path in paths() {
        for (spreads, block) in [(false, 1), (true, 1), (true, 4), (true, 16)] {
            let mut net = Network::new(path, false, spreads, &[block], 1);
            net.run(300);
            let (used, shares, loss) = net.run(600);
            let context =
                format!("blocks of {block}, {path:?}: {used:.3}, {shares:.3?}, {loss:.4}");
            assert!((0.3..=0.7).contains(&shares[0]), "{context}");
            assert!(used > 0.95 && loss < 0.01, "{context}");
        }
    }
}

#[test]
fn a_receiver_beside_newreno_where_queues_mark() {
    for path in paths() {
        let red = Red::new(2 * path.bdp(), path.rate);
        let threshold = EcnThreshold::bytes(path.bdp() / 4, TailDrop::bytes(path.bdp()));
        for (name, mut net) in [
            ("RED", Network::new(path, true, true, &[4], 1).policy(red)),
            ("threshold", Network::new(path, true, true, &[4], 1).policy(threshold)),
        ] {
            net.run(300);
            let (used, shares, loss) = net.run(600);
            let context = format!("{name}, {path:?}: {used:.3}, {shares:.3?}, {loss:.4}");
            assert!((0.3..=0.7).contains(&shares[0]), "{context}");
            assert!(used > 0.9 && loss < 0.01, "{context}");
        }
    }
}
