//! [`Context`]: what every part of the adapter is handed.
//!
//! It has no state of the protocol: what a part has to know of another one is an
//! argument, or what that one returned.

use landfall_placement::{Random, Refusals};

use super::config::Config;
use super::event::{Events, Stats};
use crate::tcp::Secret;

/// What was chosen, what is counted, and what the user is to be told.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: Config,
    pub(super) random: Random,
    /// What the numbers are drawn from that strangers must not guess.
    pub(super) secret: Secret,
    pub(super) stats: Stats,
    pub(super) refusals: Refusals,
    pub(super) events: Events,
}

impl Context {
    pub(super) fn new(config: Config, random: Random, secret: Secret) -> Self {
        let events = Events::new(config.events);
        let (stats, refusals) = (Stats::default(), Refusals::new());
        Self { config, random, secret, stats, refusals, events }
    }

    /// Does this adapter answer for what is nobody's, where several share their stations?
    pub(super) const fn answers_for_all(&self) -> bool {
        self.config.share.index() == 0
    }
}
