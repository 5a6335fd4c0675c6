//! The bounds and habits of an endpoint.

use landfall_congestion as congestion;
use landfall_placement::{ConfigError, Duration};

use crate::region::{MOST_AHEAD, STREAM_WINDOW};
use crate::ticket::CONNECTION_BITS;

/// What counts as one packet for a window: what an Ethernet carries. Others on
/// the same network count so too, and the shares are to be alike.
const UNIT: u32 = 1_460;

/// No longer messages leave with their request: they would be no short ones.
pub(crate) const MOST_EAGER: u16 = 1_024;

/// Which of the Transfers that wait for a grant gets the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Each in turn.
    #[default]
    Fair,
    /// The one with the least left to grant: short ones do not wait for long ones.
    ShortestFirst,
}

/// The bounds and habits of an [`Endpoint`](crate::Endpoint).
///
/// Everything that grows has its bound here. An endpoint is not made of values that are out of
/// range ([`validate`](Self::validate)).
///
/// ```
/// use stp_core::{Config, Endpoint};
///
/// let config = Config { slots: 100, ..Config::default() };
/// let error = Endpoint::new(config, [7; 32]).unwrap_err();
/// assert_eq!(error.to_string(), "`slots` is 100, and may be 1 to 64");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// No STU is longer than this power of two (6 to 16). On a path with smaller
    /// packets an STU fills them, up to a multiple of 8 bytes.
    pub max_stu: u8,
    /// How many bytes of each packet with Data stay free for what seals it: a tag and a
    /// packet number. The side of a connection that asks for more has it.
    pub tail: u8,
    /// The most STUs in a Block, as a power of two (0 to 12). One notification
    /// and one acknowledgement are for a whole Block.
    pub block_stus: u8,
    /// The size of a receive buffer, as a power of two (from `max_stu` to 31): no STU
    /// crosses a multiple of it in a region.
    pub buffer: u8,
    /// Messages of up to this many bytes (at most 1024) leave with their request, to who has said
    /// that it takes them so, and are taken so: one packet instead of three, and no round trip
    /// for the grant. They wait in the engine until their memory is known. 0: none are.
    pub eager: u16,
    /// How many Blocks of one Transfer are granted at a time.
    pub blocks_ahead: u16,
    /// How many bytes may be granted and not have arrived, over all senders; one STU always.
    pub window: u64,
    /// Who gets the next grant.
    pub policy: Policy,
    /// A window per path and peer that yields to congestion. `None` where the
    /// network is ours alone.
    pub congestion: Option<congestion::Config>,
    /// Put a checksum over every payload, and refuse Data and Puts without one.
    pub checksum: bool,
    /// Tell the user how far each Transfer is, Block by Block.
    pub progress: bool,
    /// Before a round trip was measured, what was not answered is sent again
    /// after this time; doubled each time, up to 16 times as long.
    pub retry_after: Duration,
    /// Never again sooner than this, which is 10 µs or more and no longer than `retry_after`.
    pub retry_floor: Duration,
    /// After how many unanswered repetitions the other side counts as gone.
    pub give_up_after: u8,
    /// A connection that is asked for is given up when there is no answer for so long, however
    /// few repetitions that allows.
    pub connect_within: Duration,
    /// An idle connection asks after this time, `retry_after` or longer, whether the other side
    /// is alive.
    pub keep_alive: Option<Duration>,
    /// The most paths, up to 64.
    pub paths: usize,
    /// The most connections, up to 2^24.
    pub connections: usize,
    /// How many of them may be connections that came in and have not proved
    /// that they hear us; the oldest makes room.
    pub half_open: usize,
    /// The most links (pairs of path and peer) over all connections, up to 2^30.
    pub links: usize,
    /// The most Transfers that are sent at a time, up to 65,535.
    pub sends: usize,
    /// The most Transfers that are received at a time, up to 65,535.
    pub receives: usize,
    /// The most Blocks that are granted at a time, up to 65,536.
    pub blocks: usize,
    /// How many requests the other side of a connection may have unanswered,
    /// up to 64: the slots of the standard.
    pub slots: u16,
    /// The most posted receives over all connections.
    pub posted: usize,
    /// The most regions that are exposed at a time, up to 65,535.
    pub exposed: usize,
    /// The most Puts and FetchOps of one connection that are under way, up to 4,096.
    pub operations: usize,
    /// How many packets of the Puts and FetchOps of a connection may be under way, 32 to
    /// 32,768: towards this side, which says so, and from it.
    pub puts_ahead: u16,
    /// How many adapters take Data off this endpoint
    /// ([`Endpoint::poll_command`](crate::Endpoint::poll_command)): the path with
    /// number 0 is on the first of them, and so on; all further paths are on
    /// the last. 0: none does. Where they tell of whole Blocks only,
    /// [`retry_floor`](Self::retry_floor) is to be longer than a Block takes.
    pub adapters: u8,
    /// The most packets without payload that wait to be sent on a path, and
    /// the most Blocks: 16 to 2^20. While four times as many events wait for the user,
    /// nothing is taken in.
    pub queue: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_stu: 16,
            tail: 0,
            block_stus: 8,
            buffer: 21,
            eager: 0,
            blocks_ahead: 8,
            window: 4 << 20,
            policy: Policy::Fair,
            congestion: None,
            checksum: false,
            progress: false,
            retry_after: Duration::from_millis(20),
            retry_floor: Duration::from_millis(5),
            give_up_after: 10,
            connect_within: Duration::from_secs(5),
            keep_alive: Some(Duration::from_secs(5)),
            paths: 8,
            connections: 1024,
            half_open: 128,
            links: 2048,
            sends: 1024,
            receives: 1024,
            blocks: 1024,
            slots: 64,
            posted: 4096,
            exposed: 256,
            operations: 64,
            puts_ahead: 1 << 13,
            adapters: 0,
            queue: 4096,
        }
    }
}

impl Config {
    /// The usual bounds on a network that is shared with others: with a window
    /// per path that yields to congestion.
    #[must_use]
    pub fn shared_network() -> Self {
        // Who sleeps until packets come, or shares a core, answers up to some milliseconds
        // late: that is no queue of the network (RFC 9406, 4.3, begins at four).
        let delay_floor = Duration::from_millis(1);
        Self {
            congestion: Some(congestion::Config { delay_floor, ..congestion::Config::new(UNIT) }),
            // Windows of paths say how much is under way; these hold 5 Gbit/s at 100 ms.
            window: 64 << 20,
            // What the slots of a connection hold of it is half of a first window (RFC 6928).
            eager: 256,
            blocks_ahead: 64,
            puts_ahead: 1 << 15,
            retry_after: Duration::from_millis(200),
            ..Self::default()
        }
    }

    /// The same with a checksum over every payload.
    #[must_use]
    pub fn with_checksum(self) -> Self {
        Self { checksum: true, ..self }
    }

    /// The same for users who want to know sooner, or later, that a peer is gone: one that is
    /// silent for so long, and is asked meanwhile, is given up at about that time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use stp_core::{Config, Endpoint};
    ///
    /// let config = Config::shared_network().patient_for(Duration::from_secs(2));
    /// assert_eq!(config.keep_alive, Some(Duration::from_millis(500)));
    /// assert!(Endpoint::new(config, [7; 32]).is_ok());
    /// ```
    #[must_use]
    pub fn patient_for(self, patience: Duration) -> Self {
        // Repetitions take twice as long each time, up to 16 times: ten of them 127 times as
        // long as the first.
        let retry_after = (patience / 256).max(self.retry_floor);
        Self { retry_after, keep_alive: Some((patience / 4).max(retry_after)), ..self }
    }

    /// Is what was repeated so often given up? If the other side is heard, and only does not
    /// answer this, it gets much longer.
    pub(crate) fn gives_up(&self, retries: u8, is_heard: bool) -> bool {
        let most = self.give_up_after;
        retries > most && !is_heard || retries >= most.saturating_mul(8)
    }

    /// For how long a side may be silent before what waits for it is given up,
    /// however often it was asked: a busy machine may pause for seconds.
    pub(crate) fn silence(&self) -> Duration {
        self.retry_after.saturating_mul(512)
    }

    /// How windows move, and how round trips are measured where windows are not asked for.
    pub(crate) fn usual_congestion(&self) -> congestion::Config {
        self.congestion.unwrap_or_else(|| congestion::Config::new(1 << 10))
    }

    /// Are there adapters that take Data off the engine?
    #[inline]
    pub(crate) const fn has_adapters(&self) -> bool {
        self.adapters > 0
    }

    /// Messages of up to this many bytes are taken with their request: none where payloads go by
    /// an adapter.
    pub(crate) const fn takes_eagerly(&self) -> u16 {
        if self.has_adapters() { 0 } else { self.eager }
    }

    /// Is every value within its range?
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = ConfigError::check::<usize>;
        ConfigError::check("max_stu", self.max_stu, 6..=16)?;
        ConfigError::check("block_stus", self.block_stus, 0..=12)?;
        ConfigError::check("buffer", self.buffer, self.max_stu..=31)?;
        ConfigError::check("eager", self.eager, 0..=MOST_EAGER)?;
        ConfigError::check("blocks_ahead", self.blocks_ahead, 1..=u16::MAX)?;
        ConfigError::check("window", self.window, 1..=u64::MAX)?;
        ConfigError::check("retry_floor", self.retry_floor, LEAST_FLOOR..=Duration::MAX)?;
        ConfigError::check("retry_after", self.retry_after, self.retry_floor..=Duration::MAX)?;
        ConfigError::check("give_up_after", self.give_up_after, 1..=u8::MAX)?;
        let keep_alive = self.keep_alive.unwrap_or(Duration::MAX);
        ConfigError::check("keep_alive", keep_alive, self.retry_after..=Duration::MAX)?;
        check("paths", self.paths, 1..=64)?;
        check("connections", self.connections, 1..=1 << CONNECTION_BITS)?;
        check("half_open", self.half_open, 1..=usize::MAX)?;
        check("links", self.links, 1..=1 << 30)?;
        check("sends", self.sends, 1..=0xffff)?;
        check("receives", self.receives, 1..=0xffff)?;
        check("blocks", self.blocks, 1..=1 << 16)?;
        ConfigError::check("slots", self.slots, 1..=64)?;
        check("posted", self.posted, 1..=usize::MAX)?;
        check("exposed", self.exposed, 1..=0xffff)?;
        check("operations", self.operations, 1..=1 << 12)?;
        ConfigError::check("puts_ahead", self.puts_ahead, STREAM_WINDOW as u16..=MOST_AHEAD)?;
        check("queue", self.queue, 16..=1 << 20)?;
        self.congestion.map_or(Ok(()), |congestion| congestion.validate())
    }
}

/// No clock of a host says more of what the network takes.
const LEAST_FLOOR: Duration = Duration::from_micros(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a field: its name, and how it is set to something.
    type Field = (&'static str, fn(&mut Config, u64));

    /// Every field that has a range, with values that are out of it.
    const FIELDS: [(Field, &[u64]); 24] = [
        (("max_stu", |config, to| config.max_stu = to as u8), &[5, 17]),
        (("block_stus", |config, to| config.block_stus = to as u8), &[13]),
        (("buffer", |config, to| config.buffer = to as u8), &[15, 32]),
        (("eager", |config, to| config.eager = to as u16), &[1_025]),
        (("blocks_ahead", |config, to| config.blocks_ahead = to as u16), &[0]),
        (("window", |config, to| config.window = to), &[0]),
        (("retry_floor", |config, to| config.retry_floor = nanos(to)), &[9_999]),
        (("retry_after", |config, to| config.retry_after = nanos(to)), &[4_999_999]),
        (("give_up_after", |config, to| config.give_up_after = to as u8), &[0]),
        (("keep_alive", |config, to| config.keep_alive = Some(nanos(to))), &[19_999_999]),
        (("paths", |config, to| config.paths = to as usize), &[0, 65]),
        (("connections", |config, to| config.connections = to as usize), &[0, (1 << 24) + 1]),
        (("half_open", |config, to| config.half_open = to as usize), &[0]),
        (("links", |config, to| config.links = to as usize), &[0, (1 << 30) + 1]),
        (("sends", |config, to| config.sends = to as usize), &[0, 1 << 16]),
        (("receives", |config, to| config.receives = to as usize), &[0, 1 << 16]),
        (("blocks", |config, to| config.blocks = to as usize), &[0, (1 << 16) + 1]),
        (("slots", |config, to| config.slots = to as u16), &[0, 65]),
        (("posted", |config, to| config.posted = to as usize), &[0]),
        (("exposed", |config, to| config.exposed = to as usize), &[0, 1 << 16]),
        (("operations", |config, to| config.operations = to as usize), &[0, (1 << 12) + 1]),
        (("puts_ahead", |config, to| config.puts_ahead = to as u16), &[31, 32_769]),
        (("queue", |config, to| config.queue = to as usize), &[15, (1 << 20) + 1]),
        (("unit", |config, to| config.congestion = Some(congestion::Config::new(to as u32))), &[0]),
    ];

    fn nanos(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    #[test]
    fn the_usual_values_are_in_range() {
        assert_eq!(Config::default().validate(), Ok(()));
        assert_eq!(Config::shared_network().validate(), Ok(()));
        let without = Config { keep_alive: None, ..Config::default() };
        assert_eq!(without.validate(), Ok(()));
    }

    #[test]
    fn each_value_out_of_range_is_refused_by_name() {
        for ((field, set), wrong) in FIELDS {
            for value in wrong {
                let mut config = Config::default();
                set(&mut config, *value);
                let error = config.validate().unwrap_err();
                assert_eq!(error.field, field, "{error}");
                assert_eq!(crate::Endpoint::new(config, [1; 32]).err(), Some(error));
            }
        }
    }
}
