//! What can be chosen: [`Config`]. One serves any number of windows.

use landfall_placement::Duration;

/// How a [`Window`](crate::Window) behaves.
///
/// Any values are safe: where they contradict each other, the narrower bound
/// wins and nothing panics.
///
/// ```
/// use landfall_congestion::Config;
///
/// // Units of 8 KiB on a path of at most 10 Gbit/s and 100 ms.
/// let config = Config { max_window: 125_000_000, ..Config::new(8_192) };
/// assert_eq!(config.initial_window, 32_768);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bytes of a full unit (a datagram, a frame), as it counts against
    /// the window. Growth goes by it.
    pub unit: u32,
    /// The window before anything is known of the path, and after it was idle.
    pub initial_window: u64,
    /// The window never becomes smaller. Where this is less than a unit,
    /// [`Window::pause`](crate::Window::pause) has to be obeyed, for then it
    /// alone keeps the rate down.
    pub min_window: u64,
    /// The window never becomes larger.
    pub max_window: u64,
    /// Delay in queues that is always tolerated, however short the path: what
    /// hosts add by themselves, and a few units of serialization. The default
    /// is for software that is woken up; who polls, or has timestamps of the
    /// device, can have shorter queues.
    pub delay_floor: Duration,
    /// The time-out before a round trip was measured.
    pub initial_timeout: Duration,
    /// The time-out is never shorter.
    pub min_timeout: Duration,
    /// The time-out is never longer, however often it was backed off.
    pub max_timeout: Duration,
    /// So many time-outs in a row only have something sent that shows what became of the
    /// rest (RFC 8985, 7): silence for one is as often a host that was busy as a network that
    /// lost everything. With one, the default, a time-out counts after three times as long,
    /// since each is twice as long as the one before (RFC 9002, 7.6.1).
    pub probes: u8,
    /// Loss, in parts per million of what was sent lately, that is *not* taken
    /// for congestion as long as round trips say that no queue stands.
    ///
    /// Zero, the default, takes every loss for congestion, as RFC 8085 wants.
    /// On a path that is known to lose what it was not asked to (a radio link,
    /// a fault injector), 20,000 keeps 1 % of random loss from ruling the rate.
    /// Do not raise it on paths that others share: in front of a bottleneck
    /// with next to no buffer it crowds them out.
    pub loss_tolerance: u32,
}

impl Config {
    /// The usual choices for units of so many bytes.
    #[must_use]
    pub const fn new(unit: u32) -> Self {
        let unit = if unit == 0 { 1 } else { unit };
        Self {
            unit,
            initial_window: initial_window(unit as u64),
            min_window: unit as u64,
            max_window: 1 << 30,
            delay_floor: Duration::from_micros(200),
            initial_timeout: Duration::from_secs(1),
            min_timeout: Duration::from_millis(10),
            max_timeout: Duration::from_secs(60),
            probes: 1,
            loss_tolerance: 0,
        }
    }

    /// Is this time-out, counted from one on since something came last, only a probe?
    #[must_use]
    pub const fn is_probe(&self, nth: u8) -> bool {
        nth <= self.probes
    }

    pub(crate) fn unit(&self) -> u64 {
        u64::from(self.unit).max(1)
    }

    /// Brings a window between its bounds; the lower one is never zero.
    pub(crate) fn bounded(&self, window: u64) -> u64 {
        let least = self.min_window.max(1);
        window.clamp(least, self.max_window.max(least))
    }
}

/// RFC 6928: ten segments, as long as they are not large; then fewer, but two
/// at least. The middle bound is wider than its 14,600 bytes, which are ten
/// segments on Ethernet: units of 8 KiB cross where frames are that long.
const fn initial_window(unit: u64) -> u64 {
    const MOST: u64 = 32_768;
    let (ten, two) = (10 * unit, 2 * unit);
    let most = if two > MOST { two } else { MOST };
    if ten < most { ten } else { most }
}
