//! Flows through one bottleneck, and what each of them got.
use std::fmt;
use std::time::Duration;

use landfall_congestion::{Arrived, Config, Window};
use landfall_placement::{Instant, Peer};
use landfall_simnet::traffic::{Acknowledged, Control, NewReno, Sink, Source, SourceConfig};
use landfall_simnet::{DropReason, Handle, LinkConfig, LinkId, QueuePolicy, Sim, Switch};

/// Bytes of a segment in all these tests.
pub const SEGMENT: u32 = 1_514;

/// A source that is ruled by our window.
#[derive(Debug)]
pub struct Ours {
    pub config: Config,
    pub window: Window,
}

impl Ours {
    pub fn new(config: Config) -> Self {
        Self { config, window: Window::new(&config) }
    }
}

impl Control for Ours {
    fn window(&self) -> u64 {
        self.window.bytes()
    }

    fn pause(&self, bytes: u64) -> Duration {
        self.window.pause(&self.config, bytes)
    }

    fn timeout(&self) -> Duration {
        self.window.timeout(&self.config)
    }

    fn handle_acknowledged(&mut self, now: Instant, segment: &Acknowledged) {
        let Acknowledged { bytes, sent, marked, under_way } = *segment;
        let arrived = Arrived { bytes, sent, timed: true, marked, under_way };
        self.window.handle_arrived(&self.config, now, &arrived);
        assert!(self.window.bytes() <= self.config.max_window);
    }

    fn handle_lost(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.window.handle_lost(&self.config, now, sent, bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.window.handle_timeout(&self.config, now);
    }
}

/// Which rule a flow follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Ours(Config),
    Reno,
}

pub const OURS: Flow = Flow::Ours(Config::new(SEGMENT));
pub const RENO: Flow = Flow::Reno;

enum Handles {
    Ours(Handle<Source<Ours>>),
    Reno(Handle<Source<NewReno>>),
}

impl Handles {
    fn peer(&self) -> Peer {
        match self {
            Self::Ours(handle) => handle.peer(),
            Self::Reno(handle) => handle.peer(),
        }
    }
}

/// Sources on one switch, a sink on another, a slow link between them.
pub struct Dumbbell {
    pub sim: Sim,
    pub bottleneck: LinkId,
    pub config: LinkConfig,
    access: LinkConfig,
    left: Handle<Switch>,
    ecn: bool,
    path: Path,
    flows: Vec<Handles>,
    sink: Handle<Sink>,
}

/// The bottleneck: its rate, the round trip without queues, its queue.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate: u64,
    pub round_trip: Duration,
}

impl Path {
    pub fn new(megabits: u64, round_trip: Duration) -> Self {
        Self { rate: megabits * 1_000_000, round_trip }
    }

    /// The product of bandwidth and delay.
    pub fn bdp(&self) -> u64 {
        (u128::from(self.rate) * self.round_trip.as_nanos() / 8_000_000_000) as u64
    }
}

impl Dumbbell {
    /// With a plain queue of this many bytes.
    pub fn new(path: Path, queue: u64, ecn: bool, flows: &[Flow]) -> Self {
        let mut sim = Sim::from_number(1);
        let switch = |sim: &mut Sim, name| sim.add(name, Switch::learning()).unwrap();
        let (left, right) = (switch(&mut sim, "left"), switch(&mut sim, "right"));
        let config =
            LinkConfig::new().rate(path.rate).delay(path.round_trip / 2).queue_bytes(queue);
        let back = LinkConfig::new().rate(path.rate * 10).delay(path.round_trip / 2);
        let bottleneck = sim.connect_each(left, right, config, back).unwrap();
        let sink = sim.add("sink", Sink::new()).unwrap();
        let access = LinkConfig::new().rate(path.rate * 10).queue_frames(100_000);
        sim.connect(right, sink, access).unwrap();
        let flows_to_add = flows;
        let flows = Vec::new();
        let mut net = Self { sim, bottleneck, config, access, left, ecn, path, flows, sink };
        flows_to_add.iter().for_each(|flow| net.add(*flow));
        net
    }

    /// One more flow, a third of a round trip after the last.
    pub fn add(&mut self, flow: Flow) {
        self.add_until(flow, Instant::FAR_FUTURE);
    }

    /// The same, until a moment.
    pub fn add_until(&mut self, flow: Flow, stop: Instant) {
        let start = self.sim.now() + self.path.round_trip * self.flows.len() as u32 / 3;
        let to = SourceConfig::to(self.sink.peer()).start(start).stop(stop);
        let to = SourceConfig { segment: SEGMENT, ecn: self.ecn, ..to };
        let sim = &mut self.sim;
        let (handles, node) = match flow {
            Flow::Ours(config) => {
                let handle = sim.add("ours", Source::new(to, Ours::new(config))).unwrap();
                (Handles::Ours(handle), handle.id())
            }
            Flow::Reno => {
                let handle = sim.add("reno", Source::new(to, NewReno::new(SEGMENT))).unwrap();
                (Handles::Reno(handle), handle.id())
            }
        };
        sim.connect(node, self.left, self.access).unwrap();
        self.flows.push(handles);
    }

    /// With another policy for the queue of the bottleneck.
    pub fn policy(mut self, policy: impl QueuePolicy + 'static) -> Self {
        self.sim.set_queue_policy(self.bottleneck.there(), policy).unwrap();
        self
    }

    /// The window of our flow number `n`.
    pub fn window(&self, n: usize) -> Window {
        match &self.flows[n] {
            Handles::Ours(handle) => self.sim.node(*handle).unwrap().control().window,
            Handles::Reno(_) => panic!("flow {n} is not ours"),
        }
    }

    fn count(&self) -> Vec<u64> {
        let sink = self.sim.node(self.sink).unwrap();
        self.flows.iter().map(|flow| sink.bytes_from(flow.peer())).collect()
    }

    /// Runs for a while, and says what became of the traffic in it.
    pub fn run(&mut self, time: Duration) -> Figures {
        let (before, stats) = (self.count(), self.sim.stats(self.bottleneck.there()));
        let sent = self.sent();
        // The queue is looked at a thousand times.
        let begin = self.sim.now();
        let mut queues = Vec::new();
        for n in 1..=1_000 {
            self.sim.run_until(begin + time / 1_000 * n).unwrap();
            queues.push(self.sim.stats(self.bottleneck.there()).under_way);
        }
        let after = self.sim.stats(self.bottleneck.there());
        let bytes: Vec<_> = self.count().iter().zip(before).map(|(a, b)| a - b).collect();
        let drops = after.dropped_total() - stats.dropped_total();
        let lost = self.sent().iter().zip(sent).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect();
        assert_eq!(after.dropped(DropReason::NoRoom), 0);
        let capacity = self.config.rate.unwrap() as f64 / 8.0 * time.as_secs_f64();
        queues.sort_unstable();
        Figures {
            utilisation: bytes.iter().sum::<u64>() as f64 / capacity,
            shares: bytes.iter().map(|n| *n as f64 / bytes.iter().sum::<u64>() as f64).collect(),
            loss: drops as f64 / (after.sent - stats.sent) as f64,
            lost,
            marked: (after.marked - stats.marked) as f64 / (after.sent - stats.sent) as f64,
            median_under_way: queues[500] * u64::from(SEGMENT),
        }
    }

    /// Bytes sent and bytes lost, of each flow.
    fn sent(&self) -> Vec<(u64, u64)> {
        let each = self.flows.iter().map(|flow| match flow {
            Handles::Ours(handle) => self.sim.node(*handle).unwrap().stats(),
            Handles::Reno(handle) => self.sim.node(*handle).unwrap().stats(),
        });
        each.map(|stats| (stats.sent, stats.lost)).collect()
    }
}

/// What became of the traffic in some time.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Of the bottleneck.
    pub utilisation: f64,
    /// Of what arrived, for each flow.
    pub shares: Vec<f64>,
    /// Of the frames that reached the bottleneck.
    pub loss: f64,
    /// Bytes sent and lost of each flow.
    pub lost: Vec<(u64, u64)>,
    /// Of the frames that reached the bottleneck.
    pub marked: f64,
    /// What waited for the bottleneck or was on it.
    pub median_under_way: u64,
}

impl Figures {
    /// The part of what a flow sent that was lost.
    pub fn loss_of(&self, n: usize) -> f64 {
        self.lost[n].1 as f64 / self.lost[n].0 as f64
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} % of the link, shares", self.utilisation * 100.0)?;
        for share in &self.shares {
            write!(f, " {share:.2}")?;
        }
        write!(f, ", {:.3} % lost (", self.loss * 100.0)?;
        for n in 0..self.lost.len().min(4) {
            write!(f, " {:.3}", 100.0 * self.loss_of(n))?;
        }
        write!(
            f,
            " ), {:.2} % marked, {} bytes under way",
            self.marked * 100.0,
            self.median_under_way
        )
    }
}
