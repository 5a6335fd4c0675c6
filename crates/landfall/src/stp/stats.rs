//! What was done so far.

use landfall_placement::{PathId, PathLimits, Refusals};
use landfall_transport::{Capabilities, Counters};

use super::core::Lane;

/// What an endpoint did so far, and how much of what there is at the moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the protocol.
    pub engine: stp_core::Stats,
    /// How often which check refused a packet.
    pub refusals: Refusals,
    /// Connections, in any state.
    pub connections: usize,
    /// Bytes that senders may send and that have not arrived.
    pub granted_bytes: u64,
    /// Operations under way.
    pub operations: usize,
    /// Registered regions, with the memory of operations under way.
    pub regions: u32,
    /// Bytes that were not in registered memory, and were copied there.
    pub bytes_copied_in: u64,
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
