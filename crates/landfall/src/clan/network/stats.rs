//! What was done so far.

use landfall_placement::Refusals;

pub use crate::runtime::PathStats;

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
