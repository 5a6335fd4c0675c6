//! Transfers over UDP on a path that loses, repeats, reorders and corrupts.

use anyhow::Result;
use landfall::stp::{Config, FaultCounts, Faults, PathStats, Stats};
use landfall_placement::Duration;
use landfall_testbed::rivals::{Amount, Endpoints, Plan};
use serde::Serialize;

use super::{Scale, Shown};
use crate::style::bytes;
use crate::workload::Shape;
use crate::workload::stp::{self, LowerLayer, Outcome, Setup};

const SEED: u8 = 42;
const MESSAGE: usize = 1 << 20;
/// Little enough for the socket's buffer, since nothing else holds the sender back.
const WINDOW: u64 = 1 << 20;
/// In parts per million.
const FAULTS: Faults = Faults {
    loss: 20_000,
    duplication: 10_000,
    reordering: 20_000,
    corruption: 5_000,
    ..Faults::loss(0)
};

#[derive(Debug, Serialize)]
struct Facts {
    seed: u8,
    sent_bytes: u64,
    units: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    corruption_caught: u64,
    retransmitted: u64,
    guessed_right: u64,
    guessed_wrong: u64,
    user_copied_bytes: u64,
    compared_bytes: u64,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let slots = scale.messages as usize;
    let plan = Plan::new(Endpoints::loopback()?, Amount::Messages(scale.messages));
    let shape = Shape { message: MESSAGE, send_slots: slots, receive_slots: slots };
    let config = Config {
        // The path is short: what is missing is missed soon.
        retry_after: Duration::from_millis(10),
        retry_floor: Duration::from_millis(10),
        // Bad luck is no reason to give up, and no sign of a busy network.
        give_up_after: 100,
        congestion: None,
        window: WINDOW,
        ..Config::shared_network().with_checksum()
    };
    let faults = Some((FAULTS, [SEED; 32]));
    let setup = Setup { faults, config: Some(config), ..Setup::over(LowerLayer::UdpOf(1500)) };
    let outcome = stp::stream(&plan, &setup, shape)?;
    let facts = facts(&outcome);
    Shown::new(lines(&facts), &facts)
}

fn facts(outcome: &Outcome) -> Facts {
    fn paths(stats: &Stats) -> impl Iterator<Item = &PathStats> {
        stats.paths.iter()
    }
    let both = || paths(&outcome.sender).chain(paths(&outcome.receiver));
    let faults = |count: fn(&FaultCounts) -> u64| -> u64 {
        both().filter_map(|path| path.faults.as_ref()).map(count).sum()
    };
    let caught = both().map(|path| path.counters.corrupt + path.counters.refused);
    let received = |count: fn(&PathStats) -> u64| paths(&outcome.receiver).map(count).sum();
    Facts {
        seed: SEED,
        sent_bytes: outcome.sample.bytes,
        units: faults(|counts| counts.units),
        lost: faults(|counts| counts.lost),
        duplicated: faults(|counts| counts.duplicated),
        reordered: faults(|counts| counts.reordered),
        corrupted: faults(|counts| counts.corrupted),
        corruption_caught: caught.sum(),
        retransmitted: outcome.sample.retransmitted,
        guessed_right: received(|path| path.counters.guessed_right),
        guessed_wrong: received(|path| path.counters.guessed_wrong),
        user_copied_bytes: outcome.sample.user_copied_bytes,
        compared_bytes: outcome.compared,
        equal: outcome.compared == outcome.sample.bytes,
    }
}

fn lines(facts: &Facts) -> [String; 3] {
    [
        format!(
            "of {} units {} were lost, {} came twice, {} late, {} corrupted (seed {})",
            facts.units, facts.lost, facts.duplicated, facts.reordered, facts.corrupted, facts.seed
        ),
        format!(
            "sent again: {}; refused or failed their check: {}; payloads in place at once: {}, \
             moved there: {}",
            facts.retransmitted, facts.corruption_caught, facts.guessed_right, facts.guessed_wrong
        ),
        format!(
            "final memory: {} of {} compared with what was sent: equal",
            bytes(facts.compared_bytes),
            bytes(facts.sent_bytes)
        ),
    ]
}
