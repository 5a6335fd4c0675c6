//! Sources and sinks that share a network with what is tested.

use std::time::Duration;

use landfall_placement::Instant;
use landfall_simnet::traffic::{NewReno, Sink, Source, SourceConfig, SourceStats};
use landfall_simnet::{
    DropReason, Handle, LinkConfig, LinkId, LinkStats, QueuePolicy, Red, Sim, Switch,
};

/// 20 Mbit/s, 20 ms: 50,000 bytes.
const RATE: u64 = 20_000_000;
const PRODUCT: u64 = 50_000;

struct Network {
    sim: Sim,
    sources: Vec<Handle<Source<NewReno>>>,
    sink: Handle<Sink>,
    bottleneck: LinkId,
}

impl Network {
    /// Sources behind a switch, one link to the sink.
    fn new(changes: &[fn(SourceConfig) -> SourceConfig]) -> Self {
        let mut sim = Sim::from_number(1);
        let sink = sim.add("sink", Sink::new()).unwrap();
        let switch = sim.add("switch", Switch::learning()).unwrap();
        let link = LinkConfig::new().rate(RATE).delay(Duration::from_millis(10));
        let bottleneck = sim.connect(switch, sink, link.queue_bytes(PRODUCT)).unwrap();
        let add = |change: &fn(SourceConfig) -> SourceConfig| {
            let config = change(SourceConfig::to(sink.peer()));
            let source = Source::new(config, NewReno::new(config.segment));
            let source = sim.add("source", source).unwrap();
            sim.connect(source, switch, LinkConfig::ethernet(1_000_000_000)).unwrap();
            source
        };
        let sources = changes.iter().map(add).collect();
        Self { sim, sources, sink, bottleneck }
    }

    fn policy(mut self, policy: impl QueuePolicy + 'static) -> Self {
        self.sim.set_queue_policy(self.bottleneck.there(), policy).unwrap();
        self
    }

    /// The bytes that came from each source within some seconds.
    fn run(&mut self, seconds: u64) -> Vec<u64> {
        let before = self.arrived();
        self.sim.run_until(self.sim.now() + Duration::from_secs(seconds)).unwrap();
        self.arrived().iter().zip(before).map(|(after, before)| after - before).collect()
    }

    fn arrived(&self) -> Vec<u64> {
        let sink = self.sim.node(self.sink).unwrap();
        self.sources.iter().map(|source| sink.bytes_from(source.peer())).collect()
    }

    fn source(&self, n: usize) -> &Source<NewReno> {
        self.sim.node(self.sources[n]).unwrap()
    }

    fn stats(&self) -> LinkStats {
        self.sim.stats(self.bottleneck.there())
    }
}

const fn plain(config: SourceConfig) -> SourceConfig {
    config
}

#[test]
fn a_flow_alone_fills_the_link_and_loses_a_segment_now_and_then() {
    let mut net = Network::new(&[plain]);
    net.run(10);
    let before = net.stats();
    let bytes = net.run(60)[0];
    assert!(bytes * 8 > RATE * 60 / 100 * 98, "{bytes} bytes, {}", net.stats());
    let lost = net.stats().dropped(DropReason::Queue) - before.dropped(DropReason::Queue);
    let sent = net.stats().sent - before.sent;
    assert!(lost > 0 && lost * 200 < sent, "{}", net.stats());
    assert_eq!(net.source(0).stats().timeouts, 0);
}

#[test]
fn two_flows_share_the_link() {
    let mut net = Network::new(&[plain, |config| config.start(Instant::from_millis(3_000))]);
    net.run(20);
    let bytes = net.run(200);
    let share = bytes[0] as f64 / (bytes[0] + bytes[1]) as f64;
    assert!((0.4..0.6).contains(&share), "{share:.2}: {bytes:?}, {}", net.stats());
}

#[test]
fn what_the_books_say_is_so() {
    let mut net = Network::new(&[plain]);
    net.run(20);
    let SourceStats { sent, acknowledged, lost, marked, .. } = net.source(0).stats();
    assert_eq!(sent, acknowledged + lost + net.source(0).under_way());
    assert_eq!(lost / 1_514, net.stats().dropped_total());
    assert_eq!((marked, net.source(0).control().halvings() > 2), (0, true));
}

#[test]
fn red_marks_instead_of_dropping() {
    let red = Red::new(4 * PRODUCT, RATE);
    let mut net = Network::new(&[SourceConfig::ecn]).policy(red);
    net.run(10);
    let before = net.stats();
    let bytes = net.run(60)[0];
    let stats = net.stats();
    assert!(bytes * 8 > RATE * 60 / 100 * 90, "{bytes} bytes, {stats}");
    assert_eq!(stats.dropped_total(), before.dropped_total(), "{stats}");
    assert!(stats.marked > before.marked, "{stats}");
    let told = net.source(0).stats().marked;
    let seen = net.sim.node(net.sink).unwrap().marked();
    assert!(seen >= told && seen - told <= 2, "{told} of {seen} came back");
}

#[test]
fn red_drops_what_cannot_be_marked_before_the_queue_is_full() {
    let red = Red::new(4 * PRODUCT, RATE);
    let mut net = Network::new(&[plain]).policy(red);
    net.run(10);
    let bytes = net.run(60)[0];
    let stats = net.stats();
    assert!(bytes * 8 > RATE * 60 / 100 * 80, "{bytes} bytes, {stats}");
    assert!(stats.dropped(DropReason::Queue) > 0 && stats.marked == 0, "{stats}");
    assert!(stats.queue_high_bytes < 4 * PRODUCT, "{stats}");
}

#[test]
fn it_starts_stops_and_ends_when_told() {
    let mut net = Network::new(&[
        |config| config.start(Instant::from_millis(2_000)).stop(Instant::from_millis(3_000)),
        |config| SourceConfig { limit: 100 * 1_514, ..config },
    ]);
    assert_eq!(net.run(1)[0], 0);
    net.run(3);
    assert!(net.arrived()[0] > 0);
    assert_eq!(net.arrived()[1], 100 * 1_514);
    assert_eq!(net.run(10), [0, 0]);
    assert_eq!(net.sim.run_until(Instant::FAR_FUTURE), Ok(landfall_simnet::Outcome::Idle));
}

#[test]
fn silence_is_survived() {
    let mut net = Network::new(&[plain]);
    net.run(2);
    let link = net.bottleneck;
    net.sim.set_link(link, false).unwrap();
    assert_eq!(net.run(5), [0]);
    assert!(net.source(0).stats().timeouts > 2);
    net.sim.set_link(link, true).unwrap();
    net.run(10);
    let bytes = net.run(10)[0];
    assert!(bytes * 8 > RATE * 9, "{bytes} bytes, {}", net.stats());
}
