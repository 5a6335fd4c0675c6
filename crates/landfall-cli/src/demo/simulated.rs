//! Two engines over a lossy link in virtual time: the same seed gives the same
//! run, frame by frame.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, ensure};
use landfall_placement::{Instant, PathId};
use landfall_simnet::{EngineConfig, EngineNode, LinkConfig, LinkStats, Loss, Probability, Sim};
use landfall_test_engines::numbered::Config;
use landfall_test_engines::{Area, Numbered};
use serde::Serialize;

use super::{Scale, Shown};
use crate::lane::pattern::Pattern;
use crate::style::bytes;

const SEED: u64 = 2000;
const UNIT: u32 = 1424;
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
    retransmitted: u64,
    equal: bool,
}

struct Run {
    digest: u64,
    ended: Instant,
    there: LinkStats,
    retransmitted: u64,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let len = (scale.messages as usize) << 18;
    let [first, again, other] = [SEED, SEED, SEED + 1].map(|seed| simulate(seed, len));
    let (first, again, other) = (first?, again?, other?);
    ensure!(first.digest == again.digest, "the same seed gave another run");
    ensure!(first.digest != other.digest, "another seed gave the same run");
    let stats = first.there;
    let facts = Facts {
        seed: SEED,
        digest: hex(first.digest),
        digest_again: hex(again.digest),
        digest_of_another_seed: hex(other.digest),
        message_bytes: len,
        virtual_ms: first.ended.as_nanos() / 1_000_000,
        frames: stats.sent,
        lost: stats.dropped_total(),
        duplicated: stats.duplicated,
        reordered: stats.reordered,
        corrupted: stats.corrupted,
        retransmitted: first.retransmitted,
        equal: true,
    };
    Shown::new(lines(&facts), &facts)
}

fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

/// One message from one node to the other, over 1 Gbit/s with every fault.
fn simulate(seed: u64, len: usize) -> Result<Run> {
    let engine = |seed: u8| {
        let config = Config { give_up_after: 1000, ..Config::with_unit(UNIT).with_checksum() };
        EngineNode::with_config(Numbered::new(config, [seed; 32]), EngineConfig::guessing(16))
    };
    let mut sim = Sim::from_number(seed);
    let (from, to) = (sim.add("sender", engine(1))?, sim.add("receiver", engine(2))?);
    let mut lossy = LinkConfig::ethernet(1_000_000_000)
        .delay(Duration::from_micros(100))
        .loss(Loss::Uniform(Probability::percent(2)));
    lossy.duplication = Probability::percent(1);
    lossy.reordering.probability = Probability::percent(2);
    lossy.reordering.extra_delay = Duration::from_micros(300);
    lossy.corruption.probability = Probability::per_million(5000);
    // One flipped bit never escapes the Internet checksum; two may.
    lossy.corruption.most_bits = 1;
    let link = sim.connect(from, to, lossy)?;

    let mut message = vec![0; len];
    Pattern(seed).fill(&mut message);
    let source = sim.node_mut(from)?.memory_mut().lend(message)?;
    let target = sim.node_mut(to)?.memory_mut().lend(vec![0; len])?;
    let (now, len) = (sim.now(), len as u64);
    sim.node_mut(to)?.engine_mut().receive_into(Area::new(target, 0, len))?;
    let area = Area::new(source, 0, len);
    sim.node_mut(from)?.engine_mut().send(now, PathId(0), to.peer(), area)?;

    let mut trouble = None;
    sim.run_until_with(LONG_ENOUGH, |sim| match sim.node(from) {
        Ok(node) if node.engine().is_idle() => ControlFlow::Break(()),
        Ok(_) => ControlFlow::Continue(()),
        Err(error) => {
            trouble = Some(error);
            ControlFlow::Break(())
        }
    })?;
    if let Some(error) = trouble {
        return Err(error.into());
    }
    let bytes = sim.node(to)?.memory().bytes(target)?;
    ensure!(Pattern(seed).first_difference(bytes).is_none(), "the memory differs (seed {seed})");
    let retransmitted = sim.node(from)?.engine().retransmitted();
    Ok(Run {
        digest: sim.digest(),
        ended: sim.now(),
        there: sim.stats(link.there()),
        retransmitted,
    })
}

fn lines(facts: &Facts) -> [String; 3] {
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
            "seed {}: every frame delivered has the digest {}; played again: {}",
            facts.seed, facts.digest, facts.digest_again
        ),
        format!(
            "another seed: {}; the final memory is equal each time",
            facts.digest_of_another_seed
        ),
    ]
}
