//! What can be chosen: [`Config`]. One serves any number of windows.

use landfall_placement::{ConfigError, Duration};

/// How a [`Window`](crate::Window) behaves.
///
/// An engine refuses what [`Config::validate`] does not pass. A [`Window`](crate::Window) asks
/// nobody and never panics: of bounds that contradict each other the narrower one wins.
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
    /// This many time-outs in a row only have something sent that shows what became of the
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
    /// The usual choices for units of this many bytes.
    #[must_use]
    pub const fn new(unit: u32) -> Self {
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

    /// Is every value within its range?
    ///
    /// ```
    /// use landfall_congestion::Config;
    ///
    /// let config = Config { max_window: 1_000, ..Config::new(1_460) };
    /// let error = config.validate().unwrap_err();
    /// assert_eq!(error.to_string(), "`max_window` is 1000, and may be 1460 or more");
    /// ```
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate(&self) -> Result<(), ConfigError> {
        ConfigError::check("unit", self.unit, 1..=u32::MAX)?;
        ConfigError::check("min_window", self.min_window, 1..=u64::MAX)?;
        ConfigError::check("max_window", self.max_window, self.min_window..=u64::MAX)?;
        let windows = self.min_window..=self.max_window;
        ConfigError::check("initial_window", self.initial_window, windows)?;
        ConfigError::check("max_timeout", self.max_timeout, self.min_timeout..=Duration::MAX)?;
        ConfigError::check("loss_tolerance", self.loss_tolerance, 0..=1_000_000)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a field, and how it is set to a value out of its range.
    type Wrong = (&'static str, fn(&mut Config));

    /// Every field that has a range.
    const WRONG: [Wrong; 7] = [
        ("unit", |config| config.unit = 0),
        ("min_window", |config| config.min_window = 0),
        ("max_window", |config| config.max_window = 1_459),
        ("initial_window", |config| config.initial_window = 1_459),
        ("initial_window", |config| config.initial_window = config.max_window + 1),
        ("max_timeout", |config| config.max_timeout = Duration::from_micros(9_999)),
        ("loss_tolerance", |config| config.loss_tolerance = 1_000_001),
    ];

    #[test]
    fn the_usual_values_are_in_range() {
        for unit in [1, 64, 1_460, 8_192, 65_535, 1 << 29] {
            assert_eq!(Config::new(unit).validate(), Ok(()));
        }
        assert_eq!(Config::new(0).validate().unwrap_err().field, "unit");
    }

    #[test]
    fn each_value_out_of_range_is_refused_by_name() {
        for (field, set) in WRONG {
            let mut config = Config::new(1_460);
            set(&mut config);
            let error = config.validate().unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }

    #[test]
    fn an_initial_window_is_that_of_rfc_6928_with_a_wider_middle() {
        let cases =
            [(1_000, 10_000), (3_276, 32_760), (3_277, 32_768), (8_192, 32_768), (20_000, 40_000)];
        for (unit, window) in cases {
            assert_eq!(Config::new(unit).initial_window, window, "units of {unit} bytes");
        }
    }

    #[test]
    fn the_first_silences_in_a_row_are_probes_as_many_as_are_configured() {
        for (probes, expected) in
            [(0, [false; 3]), (1, [true, false, false]), (2, [true, true, false])]
        {
            let config = Config { probes, ..Config::new(1_460) };
            assert_eq!([1, 2, 3].map(|nth| config.is_probe(nth)), expected, "{probes} probes");
        }
    }
}
