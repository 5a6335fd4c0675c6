//! [`PathStats`]: what a path did so far.

use landfall_placement::{Engine, PathId, PathLimits};
use landfall_transport::fault::FaultCounts;
use landfall_transport::{Capabilities, Counters};

use super::Path;

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
    /// What went wrong on purpose, where faults were asked for.
    pub faults: Option<FaultCounts>,
}

impl PathStats {
    pub(crate) fn of<E: Engine>(path: &Path<E>) -> Self {
        Self {
            path: path.driver.path(),
            is_up: path.is_up,
            broken: path.broken.clone(),
            limits: path.driver.limits(),
            capabilities: path.driver.capabilities().clone(),
            counters: *path.driver.counters(),
            faults: path.driver.faults(),
        }
    }
}
