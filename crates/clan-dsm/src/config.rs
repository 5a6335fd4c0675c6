//! The bounds and habits of an adapter.

use landfall_congestion as congestion;
use landfall_placement::{ConfigError, Duration, PathId};

use crate::address::{MOST_LINKS, WORD};
use crate::native::{Fifo, Settings};
use crate::nic::MOST_COPIED;
use crate::tripwire::MOST_TRIPWIRES;

/// What counts as one packet for a window: what an Ethernet carries. Others on
/// the same network count so too, and the shares are to be alike.
const UNIT: u32 = 1_460;

/// How many time-outs in a row are probes. The first comes after milliseconds, and a core that
/// others use pauses for longer than the second.
const PROBES: u8 = 2;

/// How a window yields where nothing else is chosen.
pub(crate) const fn usual_congestion(unit: u32) -> congestion::Config {
    congestion::Config { probes: PROBES, ..congestion::Config::new(unit) }
}

/// The bounds and habits of a `Nic`.
///
/// Everything that grows has its bound here. A `Nic` is not made of values that are out of range
/// ([`validate`](Self::validate)).
///
/// ```
/// use clan_dsm::{Config, HostId, Nic};
///
/// let config = Config { paths: 0, ..Config::default() };
/// let error = Nic::new(config, HostId::new(1).unwrap(), [7; 32]).unwrap_err();
/// assert_eq!(error.to_string(), "`paths` is 0, and may be 1 to 64");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most paths, up to 64.
    pub paths: usize,
    /// The most links (pairs of path and peer), up to 65,536.
    pub links: usize,
    /// The most apertures, up to 65,535.
    pub apertures: usize,
    /// The most keys for one peer alone ([`Nic::cookie_for`](crate::Nic::cookie_for)).
    pub grants: usize,
    /// The most windows onto apertures of others.
    pub windows: usize,
    /// The most groups that multicasts are received for, up to 65,536.
    pub groups: usize,
    /// The most tripwires, up to 2^24.
    pub tripwires: usize,
    /// The most tripsets.
    pub tripsets: usize,
    /// The most endpoints.
    pub endpoints: usize,
    /// How many out-of-band messages wait at one endpoint.
    pub messages: usize,
    /// How many DMA requests wait at one endpoint.
    pub dma_requests: usize,
    /// How many bytes of one DMA request are sent before the next endpoint has its turn.
    pub dma_turn: u32,
    /// The most remote reads that are under way, up to 65,535 in all and 256 on
    /// one link; as many of others are served at a time on one link.
    pub reads: usize,
    /// The most word operations that are under way, up to 65,535 in all and 256
    /// on one link.
    pub operations: usize,
    /// The most writes from memory that are under way.
    pub writes: usize,
    /// How many bytes of small writes and commands wait to be sent on a link, at least 4,096.
    pub write_buffer: usize,
    /// The most frames of a link that are sent and not acknowledged, up to 32,768.
    pub frames: usize,
    /// How many bytes of frames that came too early are kept on a link, below 4 GiB.
    pub early_bytes: usize,
    /// The most events that wait for the user; one more is counted as lost, and
    /// the user is told so.
    pub events: usize,
    /// A window per link that yields to congestion. `None` where the network is
    /// ours alone.
    pub congestion: Option<congestion::Config>,
    /// Put a checksum over every payload, and refuse frames without one.
    pub checksum: bool,
    /// Before a round trip was measured, what was not answered is sent again
    /// after this time; doubled each time, up to 16 times as long.
    pub retry_after: Duration,
    /// Never again sooner than this.
    pub retry_floor: Duration,
    /// After how many unanswered repetitions the other side counts as gone; but
    /// only once it was silent for 256 times `retry_after`, as a busy machine may
    /// pause for seconds.
    pub give_up_after: u8,
    /// An idle link asks after this time whether the other side is alive.
    pub keep_alive: Option<Duration>,
    /// The host is at a native link, and at no network.
    pub native: Option<NativeConfig>,
}

/// The bounds and habits of the native link of a `Nic`.
///
/// A native link loses nothing and keeps its order: packets cross it without frames, and
/// nothing is acknowledged. What has left counts as arrived; where the link is damaged it
/// begins anew, and the users at both ends hear of it. What lies in memory is moved in
/// whole words. Behind a switch nobody can be asked or answered: only writes are possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeConfig {
    /// The path that is the link.
    pub path: PathId,
    /// How many words, headers included, may come before the first of them is used: no fewer
    /// than a packet that cannot be split has.
    pub room: u32,
    /// How long something may wait to be sent before the other end counts as gone.
    pub patience: Duration,
    /// The most words of a packet that is copied: 64 bytes in the paper.
    pub pio_burst: u32,
    /// The most words of a packet from memory: 1,024 bytes in the paper.
    pub dma_burst: u32,
    /// An adapter takes packets off the host.
    pub adapter: bool,
}

impl Default for NativeConfig {
    fn default() -> Self {
        let Settings { room, patience, .. } = Settings::default();
        Self {
            path: PathId(0),
            room,
            patience,
            pio_burst: 64 / WORD,
            dma_burst: 1024 / WORD,
            adapter: false,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            paths: 8,
            links: 1024,
            apertures: 4096,
            grants: 4096,
            windows: 16_384,
            groups: 256,
            tripwires: 4096,
            tripsets: 1024,
            endpoints: 4096,
            messages: 64,
            dma_requests: 64,
            dma_turn: 64 << 10,
            reads: 256,
            operations: 256,
            writes: 4096,
            write_buffer: 64 << 10,
            frames: 1024,
            early_bytes: 1 << 20,
            events: 16_384,
            congestion: None,
            checksum: false,
            retry_after: Duration::from_millis(20),
            retry_floor: Duration::from_millis(5),
            give_up_after: 10,
            keep_alive: Some(Duration::from_secs(5)),
            native: None,
        }
    }
}

impl Config {
    /// The usual bounds on a network that is shared with others: with a window
    /// per link that yields to congestion.
    #[must_use]
    pub fn shared_network() -> Self {
        Self {
            congestion: Some(usual_congestion(UNIT)),
            retry_after: Duration::from_millis(200),
            ..Self::default()
        }
    }

    /// The same with a checksum over every payload.
    #[must_use]
    pub fn with_checksum(self) -> Self {
        Self { checksum: true, ..self }
    }

    /// Is every value within its range?
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = ConfigError::check::<usize>;
        check("paths", self.paths, 1..=64)?;
        check("links", self.links, 1..=MOST_LINKS)?;
        check("apertures", self.apertures, 1..=0xffff)?;
        check("groups", self.groups, 0..=1 << 16)?;
        check("tripwires", self.tripwires, 1..=MOST_TRIPWIRES)?;
        check("reads", self.reads, 1..=0xffff)?;
        check("operations", self.operations, 1..=0xffff)?;
        check("write_buffer", self.write_buffer, LEAST_WRITE_BUFFER..=usize::MAX)?;
        check("frames", self.frames, 1..=1 << 15)?;
        check("early_bytes", self.early_bytes, 0..=u32::MAX as usize)?;
        ConfigError::check("give_up_after", self.give_up_after, 1..=u8::MAX)?;
        self.congestion.map_or(Ok(()), |congestion| congestion.validate())?;
        self.native.map_or(Ok(()), |native| native.validate())
    }
}

impl NativeConfig {
    /// Is every value within its range?
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::check("room", self.room, Fifo::LEAST..=u32::MAX)?;
        ConfigError::check("pio_burst", self.pio_burst, 1..=MOST_COPIED)?;
        ConfigError::check("dma_burst", self.dma_burst, 1..=u32::MAX)
    }
}

/// The longest message and its command find room in an empty buffer.
const LEAST_WRITE_BUFFER: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostId, Nic};

    /// The name of a field, and how it is set to a value out of its range.
    type Wrong = (&'static str, fn(&mut Config));

    /// Every field that has a range.
    const WRONG: [Wrong; 22] = [
        ("paths", |config| config.paths = 0),
        ("paths", |config| config.paths = 65),
        ("links", |config| config.links = 0),
        ("links", |config| config.links = (1 << 16) + 1),
        ("apertures", |config| config.apertures = 0),
        ("apertures", |config| config.apertures = 1 << 16),
        ("groups", |config| config.groups = (1 << 16) + 1),
        ("tripwires", |config| config.tripwires = 0),
        ("tripwires", |config| config.tripwires = (1 << 24) + 1),
        ("reads", |config| config.reads = 0),
        ("reads", |config| config.reads = 1 << 16),
        ("operations", |config| config.operations = 0),
        ("operations", |config| config.operations = 1 << 16),
        ("write_buffer", |config| config.write_buffer = 4095),
        ("frames", |config| config.frames = 0),
        ("frames", |config| config.frames = (1 << 15) + 1),
        ("give_up_after", |config| config.give_up_after = 0),
        ("unit", |config| config.congestion = Some(congestion::Config::new(0))),
        ("room", |config| {
            let room = Fifo::LEAST - 1;
            config.native = Some(NativeConfig { room, ..NativeConfig::default() });
        }),
        ("pio_burst", |config| config.native = Some(native(0, 1))),
        ("pio_burst", |config| config.native = Some(native(MOST_COPIED + 1, 1))),
        ("dma_burst", |config| config.native = Some(native(1, 0))),
    ];

    fn native(pio_burst: u32, dma_burst: u32) -> NativeConfig {
        NativeConfig { pio_burst, dma_burst, ..NativeConfig::default() }
    }

    #[test]
    fn the_usual_values_are_in_range() {
        assert_eq!(Config::default().validate(), Ok(()));
        assert_eq!(Config::shared_network().validate(), Ok(()));
        assert_eq!(NativeConfig::default().validate(), Ok(()));
    }

    #[test]
    fn each_value_out_of_range_is_refused_by_name() {
        for (field, set) in WRONG {
            let mut config = Config::default();
            set(&mut config);
            let error = config.validate().unwrap_err();
            assert_eq!(error.field, field, "{error}");
            let host = HostId::new(1).unwrap();
            assert_eq!(Nic::new(config, host, [1; 32]).err(), Some(error));
        }
    }
}
