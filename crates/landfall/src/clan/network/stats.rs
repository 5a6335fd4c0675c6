//! What was done so far.

use landfall_placement::{PathId, PathLimits, Refusals};
use landfall_transport::{Capabilities, Counters};

use super::core::Lane;

/// What a node did so far, and how much of what there is at the moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the engine.
    pub engine: clan_dsm::Stats,
    /// How often which check refused a packet.
    pub refusals: Refusals,
    /// Links that are up.
    pub links: usize,
    /// Pieces of memory that are in use.
    pub regions: u32,
    /// Each path.
    pub paths: Vec<PathStats>,
}

/// What a path did so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PathStats {
    /// Its number.
    pub path: PathId,
    /// Does it work?
    pub is_up: bool,
    /// What broke it for good, if it is broken.
    pub broken: Option<String>,
    /// What it carries.
    pub limits: PathLimits,
    /// What its driver could switch on here, and what not.
    pub capabilities: Capabilities,
    /// What its driver did.
    pub counters: Counters,
}

impl PathStats {
    pub(crate) fn of(lane: &Lane) -> Self {
        Self {
            path: lane.driver.path(),
            is_up: lane.is_up,
            broken: lane.broken.clone(),
            limits: lane.driver.limits(),
            capabilities: lane.driver.capabilities().clone(),
            counters: *lane.driver.counters(),
        }
    }
}
