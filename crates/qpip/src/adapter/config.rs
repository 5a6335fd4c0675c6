//! [`Config`]: the bounds of an adapter, as the memory of a card would set them.

use landfall_inet::flow::Share;
use landfall_placement::{ConfigError, Duration, Spans};

use crate::tcp::TcpConfig;

/// The bounds of an [`Adapter`](super::Adapter).
///
/// Everything that grows has its bound here; at the bound there is a typed
/// error, or what came is dropped and counted. An adapter is not made of values that are out of
/// range ([`validate`](Self::validate)). Memory is taken as tables fill, not before.
///
/// ```
/// use qpip::{Adapter, Config};
///
/// let config = Config { interfaces: 300, ..Config::default() };
/// let error = Adapter::new(config, [7; 32]).unwrap_err();
/// assert_eq!(error.to_string(), "`interfaces` is 300, and may be 1 to 256");
/// ```
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
    /// The most groups that an interface, and a queue pair, listens to.
    pub groups: usize,
    /// The most destinations whose path carries less than the interface.
    pub path_mtus: usize,
    /// The most packets without a queue pair (ARP, neighbour discovery, ICMP,
    /// resets) that wait to be sent on an interface.
    pub control_queue: usize,
    /// The most transmissions that drivers hold at a time.
    pub transmissions: usize,
    /// The most payloads that drivers are putting into their place at a time.
    pub placements: usize,
    /// The most events that wait for the user. While this many wait no queue pair
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
    /// Which flows of its stations are this adapter's, where several adapters share them, each
    /// with an interface of the same station and addresses: what comes of others' flows is
    /// passed over without a word, and ports are chosen from the share. The
    /// first member alone answers for what is nobody's. All of it, if not said.
    pub share: Share,
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
            groups: 64,
            path_mtus: 1_024,
            control_queue: 256,
            transmissions: 4_096,
            placements: 4_096,
            events: 16_384,
            answers_per_second: 1_000,
            predicts: true,
            delegates: false,
            share: Share::WHOLE,
            tcp: TcpConfig::default(),
        }
    }
}

impl Config {
    /// Is every value within its range?
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        const TABLE: usize = 1 << 24;
        let check = ConfigError::check::<usize>;
        check("interfaces", self.interfaces, 1..=256)?;
        check("domains", self.domains, 1..=TABLE)?;
        check("memory_keys", self.memory_keys, 1..=TABLE)?;
        check("completion_queues", self.completion_queues, 1..=TABLE)?;
        let capacity = self.completion_queue_capacity;
        ConfigError::check("completion_queue_capacity", capacity, 1..=1 << 24)?;
        check("queue_pairs", self.queue_pairs, 1..=TABLE)?;
        ConfigError::check("queue_depth", self.queue_depth, 1..=1 << 20)?;
        check("buffers", self.buffers, 1..=Spans::CAPACITY)?;
        check("listeners", self.listeners, 1..=1 << 16)?;
        check("offers", self.offers, 1..=TABLE)?;
        check("half_open", self.half_open, 1..=TABLE)?;
        check("time_wait", self.time_wait, 1..=TABLE)?;
        check("reassemblies", self.reassemblies, 1..=1 << 16)?;
        // One packet of the greatest length always finds room.
        check("reassembly_bytes", self.reassembly_bytes, 1 << 16..=1 << 30)?;
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(60));
        ConfigError::check("reassembly_for", self.reassembly_for, least..=most)?;
        check("neighbours", self.neighbours, 8..=TABLE)?;
        check("groups", self.groups, 4..=4_096)?;
        check("path_mtus", self.path_mtus, 8..=TABLE)?;
        check("control_queue", self.control_queue, 8..=1 << 16)?;
        check("transmissions", self.transmissions, 16..=1 << 20)?;
        check("placements", self.placements, 16..=1 << 20)?;
        check("events", self.events, 16..=TABLE)?;
        ConfigError::check("answers_per_second", self.answers_per_second, 1..=1 << 20)?;
        self.tcp.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a field, and how it is set to a value out of its range.
    type Wrong = (&'static str, fn(&mut Config));

    /// Every field that has a range.
    const WRONG: [Wrong; 47] = [
        ("interfaces", |config| config.interfaces = 0),
        ("interfaces", |config| config.interfaces = 257),
        ("domains", |config| config.domains = 0),
        ("domains", |config| config.domains = usize::MAX),
        ("memory_keys", |config| config.memory_keys = 0),
        ("memory_keys", |config| config.memory_keys = usize::MAX),
        ("completion_queues", |config| config.completion_queues = 0),
        ("completion_queues", |config| config.completion_queues = usize::MAX),
        ("completion_queue_capacity", |config| config.completion_queue_capacity = 0),
        ("completion_queue_capacity", |config| config.completion_queue_capacity = u32::MAX),
        ("queue_pairs", |config| config.queue_pairs = 0),
        ("queue_pairs", |config| config.queue_pairs = usize::MAX),
        ("queue_depth", |config| config.queue_depth = 0),
        ("queue_depth", |config| config.queue_depth = u32::MAX),
        ("buffers", |config| config.buffers = 0),
        ("buffers", |config| config.buffers = Spans::CAPACITY + 1),
        ("listeners", |config| config.listeners = 0),
        ("listeners", |config| config.listeners = usize::MAX),
        ("offers", |config| config.offers = 0),
        ("offers", |config| config.offers = usize::MAX),
        ("half_open", |config| config.half_open = 0),
        ("half_open", |config| config.half_open = usize::MAX),
        ("time_wait", |config| config.time_wait = 0),
        ("time_wait", |config| config.time_wait = usize::MAX),
        ("reassemblies", |config| config.reassemblies = 0),
        ("reassemblies", |config| config.reassemblies = usize::MAX),
        ("reassembly_bytes", |config| config.reassembly_bytes = 65_535),
        ("reassembly_bytes", |config| config.reassembly_bytes = usize::MAX),
        ("reassembly_for", |config| config.reassembly_for = Duration::ZERO),
        ("reassembly_for", |config| config.reassembly_for = Duration::MAX),
        ("neighbours", |config| config.neighbours = 7),
        ("neighbours", |config| config.neighbours = usize::MAX),
        ("groups", |config| config.groups = 3),
        ("groups", |config| config.groups = usize::MAX),
        ("path_mtus", |config| config.path_mtus = 7),
        ("path_mtus", |config| config.path_mtus = usize::MAX),
        ("control_queue", |config| config.control_queue = 7),
        ("control_queue", |config| config.control_queue = usize::MAX),
        ("transmissions", |config| config.transmissions = 15),
        ("transmissions", |config| config.transmissions = usize::MAX),
        ("placements", |config| config.placements = 15),
        ("placements", |config| config.placements = usize::MAX),
        ("events", |config| config.events = 15),
        ("events", |config| config.events = usize::MAX),
        ("answers_per_second", |config| config.answers_per_second = 0),
        ("answers_per_second", |config| config.answers_per_second = u32::MAX),
        ("dscp", |config| config.tcp.dscp = 64),
    ];

    #[test]
    fn the_defaults_are_in_range() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn each_value_out_of_range_is_refused_by_name() {
        for (field, set) in WRONG {
            let mut config = Config::default();
            set(&mut config);
            let error = config.validate().unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert_eq!(crate::Adapter::new(config, [1; 32]).err(), Some(error));
        }
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
        assert!(zero.validate().is_err());
        let vast = Config { buffers: usize::MAX, events: usize::MAX, ..Config::default() };
        let error = vast.validate().unwrap_err();
        assert_eq!(error.most, Spans::CAPACITY.into());
    }
}
