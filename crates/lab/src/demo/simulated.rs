//! A Transfer over two lossy links at once, in virtual time: the same seed
//! gives the same run, frame by frame.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use landfall_placement::{Area, Instant, PathId};
use landfall_simnet::{
    EngineConfig, EngineNode, Handle, LinkConfig, LinkId, Loss, Probability, Sim,
};
use serde::Serialize;
use stp_core::{Admission, Config, Connect, ConnectionId, Endpoint, Event, Stats};

use super::{Scale, Shown};
use crate::style::bytes;
use crate::workload::Pattern;

const SEED: u64 = 2000;
const PORT: u16 = 1;
/// The two links, in bits per second.
const RATES: [u64; 2] = [1_000_000_000, 500_000_000];
const LONG_ENOUGH: Instant = Instant::from_millis(600_000);

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Facts {
    seed: u64,
    digest: String,
    digest_again: String,
    digest_of_another_seed: String,
    message_bytes: usize,
    virtual_ms: u64,
    frames: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    units: u64,
    retransmitted: u64,
    notifications: u64,
    notifications_saved_per_mille: u64,
    link_bytes: [u64; 2],
    equal: bool,
}

struct Run {
    sim: Sim,
    ended: Instant,
    links: Vec<LinkId>,
    sent: Stats,
    received: Stats,
}

/// A host, and what its engine said so far.
struct Host {
    node: Handle<EngineNode<Endpoint>>,
    said: Rc<RefCell<Vec<Event>>>,
}

impl Host {
    fn new(sim: &mut Sim, name: &str, engine: Endpoint) -> Result<Self> {
        let said = Rc::new(RefCell::new(Vec::new()));
        let heard = said.clone();
        let node = EngineNode::with_config(engine, EngineConfig::guessing(16))
            .on_event(move |_, _, _, event| heard.borrow_mut().push(event));
        Ok(Self { node: sim.add(name, node)?, said })
    }

    /// Runs until the engine said what is wanted.
    fn until<T>(&self, sim: &mut Sim, wanted: fn(&Event) -> Option<T>) -> Result<T> {
        let found = || self.said.borrow().iter().find_map(wanted);
        sim.run_until_with(LONG_ENOUGH, |_| match found() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })?;
        found().with_context(|| format!("it did not happen by {}", sim.now()))
    }
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let len = (scale.messages as usize) << 18;
    let [first, again, other] = [SEED, SEED, SEED + 1].map(|seed| simulate(seed, len));
    let (first, again, other) = (first?, again?, other?);
    let digests = [&first, &again, &other].map(|run| run.sim.digest());
    ensure!(digests[0] == digests[1], "the same seed gave another run");
    ensure!(digests[0] != digests[2], "another seed gave the same run");
    let there: Vec<_> = first.links.iter().map(|link| first.sim.stats(link.there())).collect();
    let (sent, received) = (first.sent, first.received);
    let facts = Facts {
        seed: SEED,
        digest: hex(digests[0]),
        digest_again: hex(digests[1]),
        digest_of_another_seed: hex(digests[2]),
        message_bytes: len,
        virtual_ms: first.ended.as_nanos() / 1_000_000,
        frames: there.iter().map(|link| link.sent).sum(),
        lost: there.iter().map(|link| link.dropped_total()).sum(),
        duplicated: there.iter().map(|link| link.duplicated).sum(),
        reordered: there.iter().map(|link| link.reordered).sum(),
        corrupted: there.iter().map(|link| link.corrupted).sum(),
        units: received.stus_received,
        retransmitted: sent.stus_sent - received.stus_received,
        notifications: received.block_notifications,
        notifications_saved_per_mille: received.interrupts_saved_per_mille(),
        link_bytes: [there[0].sent_bytes, there[1].sent_bytes],
        equal: true,
    };
    Shown::new(lines(&facts), &facts)
}

fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

/// Two hosts, and between them a fast link and a slow one with every fault.
fn hosts(sim: &mut Sim) -> Result<(Host, Host, Vec<LinkId>)> {
    let config = Config {
        // Blocks of 64 units of 1 KiB, as in the paper, many at a time, so that both links
        // have some.
        max_stu: 10,
        block_stus: 6,
        blocks_ahead: 64,
        window: 512 << 10,
        // Bad luck is no reason to give up.
        give_up_after: 200,
        ..Config::default()
    };
    let config = config.with_checksum();
    let engine = |seed: u8| Endpoint::new(config.clone(), [seed; 32]);
    let mut server = engine(2)?;
    server.listen(PORT, Admission::Open)?;
    let from = Host::new(sim, "sender", engine(1)?)?;
    let to = Host::new(sim, "receiver", server)?;
    let links = RATES.map(|rate| {
        let mut lossy = LinkConfig::ethernet(rate)
            .delay(Duration::from_micros(100))
            .loss(Loss::Uniform(Probability::percent(2)))
            .duplication(Probability::percent(1))
            .reordering(Probability::percent(2), Duration::from_micros(300))
            .corruption(Probability::per_million(5000));
        // One flipped bit never escapes the Internet checksum; two may.
        lossy.corruption.most_bits = 1;
        sim.connect(from.node, to.node, lossy)
    });
    let links = links.into_iter().collect::<Result<_, _>>()?;
    sim.run_until(Instant::from_millis(1))?;
    Ok((from, to, links))
}

/// A connection from one to the other, over both links, as each names it.
fn connect(sim: &mut Sim, from: &Host, to: &Host) -> Result<(ConnectionId, ConnectionId)> {
    let (peer, connect) = (to.node.peer(), Connect { port: PORT, ..Connect::default() });
    let now = sim.now();
    let ours = sim.node_mut(from.node)?.engine_mut().connect(now, PathId(0), peer, connect)?;
    let theirs = to.until(sim, |event| match event {
        Event::Accepted { connection, .. } => Some(*connection),
        _ => None,
    })?;
    let now = sim.now();
    sim.node_mut(from.node)?.engine_mut().add_link(now, ours, PathId(1), peer)?;
    to.until(sim, |event| matches!(event, Event::LinkUp { .. }).then_some(()))?;
    Ok((ours, theirs))
}

/// One Transfer from one host to the other.
fn simulate(seed: u64, len: usize) -> Result<Run> {
    let mut sim = Sim::from_number(seed);
    let (from, to, links) = hosts(&mut sim)?;
    let (ours, theirs) = connect(&mut sim, &from, &to)?;
    let mut message = vec![0; len];
    Pattern(seed).fill(&mut message);
    let source = sim.node_mut(from.node)?.memory_mut().lend(message)?;
    let target = sim.node_mut(to.node)?.memory_mut().lend(vec![0; len])?;
    let (now, all) = (sim.now(), len as u64);
    let posted = Area::new(target, 0, all);
    sim.node_mut(to.node)?.engine_mut().post(now, theirs, posted, false)?;
    sim.node_mut(from.node)?.engine_mut().send(now, ours, Area::new(source, 0, all), 0)?;
    let ended = from.until(&mut sim, |event| match event {
        Event::Sent { .. } => Some(Ok(())),
        Event::SendEnded { why, .. } => Some(Err(*why)),
        _ => None,
    })?;
    if let Err(why) = ended {
        bail!("the Transfer ended early: {why} (seed {seed})");
    }
    let bytes = sim.node(to.node)?.memory().bytes(target)?;
    ensure!(Pattern(seed).first_difference(bytes).is_none(), "the memory differs (seed {seed})");
    let stats = |host: &Host| anyhow::Ok(*sim.node(host.node)?.engine().stats());
    let (sent, received) = (stats(&from)?, stats(&to)?);
    Ok(Run { ended: sim.now(), links, sent, received, sim })
}

fn lines(facts: &Facts) -> [String; 4] {
    [
        format!(
            "{} in {} ms of virtual time; of {} frames {} were lost, {} came twice, {} late, {} \
             corrupted; {} sent again",
            bytes(facts.message_bytes as u64),
            facts.virtual_ms,
            facts.frames,
            facts.lost,
            facts.duplicated,
            facts.reordered,
            facts.corrupted,
            facts.retransmitted
        ),
        format!(
            "{} units, {} notifications: {}.{} % saved; the link of 1 Gbit/s took {}, that of 0.5 {}",
            facts.units,
            facts.notifications,
            facts.notifications_saved_per_mille / 10,
            facts.notifications_saved_per_mille % 10,
            bytes(facts.link_bytes[0]),
            bytes(facts.link_bytes[1])
        ),
        format!(
            "seed {}: every frame delivered has the digest {}; played again: {}",
            facts.seed, facts.digest, facts.digest_again
        ),
        format!(
            "another seed: {}; the final memory is equal each time",
            facts.digest_of_another_seed
        ),
    ]
}
