//! [`Config`]: the bounds of an adapter, as the memory of a card would set them.

use landfall_placement::{Duration, Spans};

use crate::tcp::TcpConfig;

/// The bounds of an [`Adapter`](super::Adapter).
///
/// Everything that grows has its bound here; at the bound there is a typed
/// error, or what came is dropped and counted. Values out of range are moved to
/// the nearest one that makes sense. Memory is taken as tables fill, not before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most interfaces, up to 256.
    pub interfaces: usize,
    /// The most protection domains.
    pub domains: usize,
    /// The most registrations of memory.
    pub memory_keys: usize,
    /// The most completion queues.
    pub completion_queues: usize,
    /// The most completions that one queue holds.
    pub completion_queue_capacity: u32,
    /// The most queue pairs.
    pub queue_pairs: usize,
    /// The most work requests in each queue of a queue pair.
    pub queue_depth: u32,
    /// The most buffers in one work request, up to [`Spans::CAPACITY`].
    pub buffers: usize,
    /// The most ports that are listened on.
    pub listeners: usize,
    /// The most idle queue pairs that wait at one listener.
    pub offers: usize,
    /// The most connections that are being opened from outside, over all
    /// listeners. A flood of openings fills this table and nothing else; the
    /// oldest makes room.
    pub half_open: usize,
    /// The most closed connections that late segments are kept from. At the
    /// bound the one that waited longest is forgotten.
    pub time_wait: usize,
    /// The most packets that are put together from fragments at a time.
    pub reassemblies: usize,
    /// The most bytes that are kept for that.
    pub reassembly_bytes: usize,
    /// After how long a packet whose fragments do not come is forgotten.
    pub reassembly_for: Duration,
    /// The most neighbours (addresses and their stations) over all interfaces.
    pub neighbours: usize,
    /// The most destinations whose path carries less than the interface.
    pub path_mtus: usize,
    /// The most packets without a queue pair (ARP, neighbour discovery, ICMP,
    /// resets) that wait to be sent on an interface.
    pub control_queue: usize,
    /// The most transmissions that drivers hold at a time.
    pub transmissions: usize,
    /// The most payloads that drivers are putting into their place at a time.
    pub placements: usize,
    /// The most events that wait for the user. While so many wait no queue pair
    /// is created and no connection is taken in.
    pub events: usize,
    /// The most resets and ICMP messages that strangers can draw in a second.
    pub answers_per_second: u32,
    /// What comes as expected is placed by the [`offload`](crate::offload) seam, and
    /// only the rest by the engine. It makes no difference but to the work.
    pub predicts: bool,
    /// The seam runs on a card, with tables of its own; `predicts` means nothing
    /// then. The driver carries what the two say to each other:
    /// [`poll_command`](super::Adapter::poll_command) and
    /// [`handle_report`](super::Adapter::handle_report).
    pub delegates: bool,
    /// What can be chosen about TCP.
    pub tcp: TcpConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interfaces: 16,
            domains: 256,
            memory_keys: 16_384,
            completion_queues: 4_096,
            completion_queue_capacity: 1 << 16,
            queue_pairs: 16_384,
            queue_depth: 4_096,
            buffers: 16,
            listeners: 256,
            offers: 4_096,
            half_open: 1_024,
            time_wait: 4_096,
            reassemblies: 64,
            reassembly_bytes: 4 << 20,
            reassembly_for: Duration::from_secs(30),
            neighbours: 1_024,
            path_mtus: 1_024,
            control_queue: 256,
            transmissions: 4_096,
            placements: 4_096,
            events: 16_384,
            answers_per_second: 1_000,
            predicts: true,
            delegates: false,
            tcp: TcpConfig::default(),
        }
    }
}

impl Config {
    /// Every value moved into its range.
    #[must_use]
    pub fn in_range(mut self) -> Self {
        const TABLE: usize = 1 << 24;
        self.interfaces = self.interfaces.clamp(1, 256);
        self.domains = self.domains.clamp(1, TABLE);
        self.memory_keys = self.memory_keys.clamp(1, TABLE);
        self.completion_queues = self.completion_queues.clamp(1, TABLE);
        self.completion_queue_capacity = self.completion_queue_capacity.clamp(1, 1 << 24);
        self.queue_pairs = self.queue_pairs.clamp(1, TABLE);
        self.queue_depth = self.queue_depth.clamp(1, 1 << 20);
        self.buffers = self.buffers.clamp(1, Spans::CAPACITY);
        self.listeners = self.listeners.clamp(1, 1 << 16);
        self.offers = self.offers.clamp(1, TABLE);
        self.half_open = self.half_open.clamp(1, TABLE);
        self.time_wait = self.time_wait.clamp(1, TABLE);
        self.reassemblies = self.reassemblies.clamp(1, 1 << 16);
        // One packet of the greatest length always finds room.
        self.reassembly_bytes = self.reassembly_bytes.clamp(1 << 16, 1 << 30);
        self.reassembly_for =
            self.reassembly_for.clamp(Duration::from_millis(1), Duration::from_secs(60));
        self.neighbours = self.neighbours.clamp(8, TABLE);
        self.path_mtus = self.path_mtus.clamp(8, TABLE);
        self.control_queue = self.control_queue.clamp(8, 1 << 16);
        self.transmissions = self.transmissions.clamp(16, 1 << 20);
        self.placements = self.placements.clamp(16, 1 << 20);
        self.events = self.events.clamp(16, TABLE);
        self.answers_per_second = self.answers_per_second.clamp(1, 1 << 20);
        self.tcp = self.tcp.in_range();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_in_range() {
        assert_eq!(Config::default().in_range(), Config::default());
    }

    #[test]
    fn nothing_is_zero_or_without_bound() {
        let zero = Config {
            interfaces: 0,
            buffers: 0,
            queue_pairs: 0,
            reassembly_bytes: 0,
            transmissions: 0,
            ..Config::default()
        };
        let config = zero.in_range();
        assert!(config.interfaces > 0 && config.buffers > 0 && config.queue_pairs > 0);
        assert!(config.reassembly_bytes >= 65_535 && config.transmissions > 0);
        let vast = Config { buffers: usize::MAX, events: usize::MAX, ..Config::default() };
        assert_eq!(vast.in_range().buffers, Spans::CAPACITY);
    }
}
