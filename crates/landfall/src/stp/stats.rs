//! What was done so far.

use landfall_placement::Refusals;

pub use crate::runtime::PathStats;

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
