//! [`Seam`]: where it is said what comes next, so that it is placed without the engine.
//!
//! | file | where the tables are |
//! | --- | --- |
//! | `predictions` | in the memory of the host |
//! | `delegation` | in that of a card: commands to it, and its reports |
//!
//! What does not live here: the tables themselves, and the receive path that reads them
//! ([`offload`](crate::offload)).

mod delegation;
mod predictions;

use landfall_placement::{Random, Spans, Unit};

use super::config::Config;
use super::links::{Link, Links};
use super::queue_pair::QueuePair;
use super::queue_pairs::QueuePairs;
use crate::offload::{Command, Hit, Miss, Report};
use delegation::Delegation;
pub(super) use delegation::ReportStep;
use predictions::Predictions;

/// Where the tables of the offload seam are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tables {
    Nowhere,
    Host,
    Card,
}

/// What is said about what comes next.
#[derive(Debug)]
pub(super) struct Seam {
    tables: Tables,
    predictions: Predictions,
    delegation: Delegation,
}

impl Seam {
    pub(super) fn new(config: &Config, random: &mut Random) -> Self {
        let tables = match config {
            Config { delegates: true, .. } => Tables::Card,
            Config { predicts: true, .. } => Tables::Host,
            _ => Tables::Nowhere,
        };
        let predictions = Predictions::new(random);
        Self { tables, predictions, delegation: Delegation::default() }
    }

    pub(super) fn is_card(&self) -> bool {
        self.tables == Tables::Card
    }

    /// How often the seam left a unit to the engine for this reason.
    pub(super) const fn misses(&self, reason: Miss) -> u64 {
        self.predictions.misses(reason)
    }

    /// Is this what is expected on this link? Only where the host has the tables.
    #[inline]
    pub(super) fn receive(
        &mut self,
        link: &Link,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Option<Hit> {
        if self.tables != Tables::Host {
            return None;
        }
        self.predictions.receive(link, unit, into)
    }

    /// Something happened to a queue pair that the seam did not see: what comes next for
    /// it is said, unless it was already.
    #[inline]
    pub(super) fn predict(&mut self, pair: &QueuePair, links: &Links) {
        match self.tables {
            Tables::Host => self.predictions.predict(pair, links),
            Tables::Card => self.delegation.touch(pair.id.index),
            Tables::Nowhere => {}
        }
    }

    /// Nothing is expected of a queue pair, until more is said.
    pub(super) fn disarm(&mut self, slot: u32) {
        self.predictions.disarm(slot);
    }

    /// There may be something to say to the card about this slot.
    pub(super) fn touch(&mut self, slot: u32) {
        self.delegation.touch(slot);
    }

    /// Stations or addresses of a link have changed: what was found out about them does
    /// not hold any more.
    pub(super) fn forget_station(&mut self, link: usize) {
        match self.tables {
            Tables::Card => self.delegation.touch_station(link),
            Tables::Host | Tables::Nowhere => self.predictions.disarm_all(),
        }
    }

    /// Is this queue pair over, while a card may still write to its memory? Then
    /// nothing of it is told before the card has let go.
    #[inline]
    pub(super) fn holds_memory_of(&mut self, pair: &QueuePair) -> bool {
        self.is_card() && self.delegation.holds_memory_of(pair)
    }

    /// The next thing to say to the card, if there is one.
    pub(super) fn poll_command(&mut self, pairs: &QueuePairs, links: &Links) -> Option<Command> {
        if !self.is_card() {
            return None;
        }
        self.delegation.poll_command(pairs, links)
    }

    /// The card reported something.
    pub(super) fn handle_report(&mut self, report: &Report, pairs: &QueuePairs) -> ReportStep {
        self.delegation.handle_report(report, pairs)
    }

    /// The card was restarted. Returns how many slots it may have known.
    pub(super) fn forget_card(&mut self, links: usize) -> u32 {
        self.delegation.forget_card(links)
    }
}
