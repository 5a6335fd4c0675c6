//! The bounds and habits of an adapter.

use landfall_congestion as congestion;
use landfall_placement::{Duration, PathId};

use crate::address::WORD;
use crate::native::Settings;

/// What counts as one packet for a window: what an Ethernet carries. Others on
/// the same network count so too, and the shares are to be alike.
const UNIT: u32 = 1_460;

/// So many time-outs in a row are probes. The first comes after milliseconds, and a core that
/// others use pauses for longer than the second.
const PROBES: u8 = 2;

/// How a window yields where nothing else is chosen.
pub(crate) const fn usual_congestion(unit: u32) -> congestion::Config {
    congestion::Config { probes: PROBES, ..congestion::Config::new(unit) }
}

/// The bounds and habits of a `Nic`.
///
/// Everything that grows has its bound here. Values out of range are moved to
/// the nearest one that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The most paths, up to 64.
    pub paths: usize,
    /// The most links (pairs of path and peer).
    pub links: usize,
    /// The most apertures, up to 65,535.
    pub apertures: usize,
    /// The most windows onto apertures of others.
    pub windows: usize,
    /// The most groups that multicasts are received for.
    pub groups: usize,
    /// The most tripwires.
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
    /// How many bytes of small writes and commands wait to be sent on a link.
    pub write_buffer: usize,
    /// The most frames of a link that are sent and not acknowledged.
    pub frames: usize,
    /// How many bytes of frames that came too early are kept on a link.
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
    /// How many words, headers included, may come before the first of them is used.
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
}
