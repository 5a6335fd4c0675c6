//! A million frames through a switch, from four hosts to one, with faults.
//!
//! ```text
//! time cargo run --release -p landfall-simnet --example million
//! ```

use std::time::Duration;

use landfall_placement::Instant;
use landfall_simnet::{
    Error, Frame, LinkConfig, LinkState, Loss, Node, Outbox, PortId, Probability, Sim, Switch,
};

const SENDERS: u64 = 4;
const FRAMES: u64 = 1_000_000;

/// Sends its share of the frames, as fast as its link takes them.
struct Source {
    left: u64,
    to: landfall_placement::Peer,
}

impl Source {
    fn go_on(&mut self, out: &mut Outbox<'_>) {
        let from = out.node().peer();
        while self.left > 0 && out.has_room(PortId(0)) {
            self.left -= 1;
            out.send(PortId(0), Frame::addressed(from, self.to, vec![self.left as u8; 1_514]));
        }
        if self.left > 0 {
            out.call_when_room(PortId(0));
        }
    }
}

impl Node for Source {
    fn handle_frame(&mut self, _: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>) {}

    fn handle_link(&mut self, _: Instant, _: PortId, _: LinkState, out: &mut Outbox<'_>) {
        self.go_on(out);
    }

    fn handle_room(&mut self, _: Instant, _: PortId, out: &mut Outbox<'_>) {
        self.go_on(out);
    }
}

fn main() -> Result<(), Error> {
    let mut sim = Sim::from_number(1);
    let ignore = |_: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>| {};
    let sink = sim.add("sink", ignore)?;
    let switch = sim.add("switch", Switch::learning())?;
    let slow = LinkConfig::ethernet(10_000_000_000).queue_bytes(256 << 10);
    let last = sim.connect(switch, sink, slow)?;
    // The switch learns where the sink is.
    sim.send(sink, PortId(0), Frame::addressed(sink.peer(), switch.peer(), []))?;
    sim.run_until(Instant::from_millis(1))?;

    let fast = LinkConfig::ethernet(10_000_000_000)
        .loss(Loss::bursts(Probability::percent(1), 4))
        .duplication(Probability::percent(1))
        .corruption(Probability::percent(1))
        .reordering(Probability::percent(1), Duration::from_micros(20));
    let mut links = Vec::new();
    for n in 0..SENDERS {
        let source = Source { left: FRAMES / SENDERS, to: sink.peer() };
        let source = sim.add(&format!("source {n}"), source)?;
        links.push(sim.connect(source, switch, fast)?);
    }
    sim.run_until(Instant::from_millis(60_000))?;

    for (n, link) in links.into_iter().enumerate() {
        println!("source {n} to switch: {}", sim.stats(link.there()));
    }
    println!("switch to sink:     {}", sim.stats(last.there()));
    println!("virtual time {}, digest {:016x}", sim.now(), sim.digest());
    Ok(())
}
