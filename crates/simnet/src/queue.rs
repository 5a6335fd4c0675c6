//! Which frames may wait for a link: [`QueuePolicy`], plain [`TailDrop`], and
//! what marks or drops earlier, [`EcnThreshold`] and [`Red`].
//!
//! This is the seam for other disciplines. Policies that go by the length of
//! the queue answer [`Verdict::Mark`] or [`Verdict::Drop`]; CoDel looks at the time waited in [`QueuePolicy::release`]. Pause
//! needs two nodes and no policy: one that looks at
//! [`Outbox::backlog`](crate::Outbox::backlog) and sends a pause frame, and one
//! that gets it and calls [`Outbox::pause`](crate::Outbox::pause).
//!
//! Random early detection: [`Red`].

use core::fmt;

use landfall_placement::{Duration, Instant, Random};

use crate::frame::Frame;
use crate::link::Probability;

/// The queue as a frame finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Frames that wait.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Whether a frame is being sent at the moment, or sending is paused. If
    /// not, nothing waits either, and a frame that is admitted is sent at once.
    pub busy: bool,
}

/// What becomes of a frame at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It goes on with the mark of congestion, or, where its sender does not
    /// understand ECN, not at all (RFC 3168, 5). For frames whose ECN bits are
    /// among their bytes, a policy changes the bytes and answers `Pass`.
    Mark,
    /// It is dropped.
    Drop,
}

/// Decides at the queue in front of a link.
pub trait QueuePolicy: fmt::Debug {
    /// A frame wants to join the queue, which is as `backlog` says.
    fn admit(
        &mut self,
        now: Instant,
        frame: &mut Frame,
        backlog: Backlog,
        random: &mut Random,
    ) -> Verdict;

    /// A frame leaves the queue after it `waited`; what is left is `backlog`.
    fn release(
        &mut self,
        _now: Instant,
        _frame: &mut Frame,
        _waited: Duration,
        _backlog: Backlog,
        _random: &mut Random,
    ) -> Verdict {
        Verdict::Pass
    }

    /// Whether a frame of any size would be admitted now. Hosts stop sending
    /// until it is so; switches do not ask.
    fn has_room(&self, backlog: Backlog) -> bool;
}

/// A queue of limited length; what does not fit is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailDrop {
    /// The most frames that wait.
    pub frames: u32,
    /// The most bytes that wait.
    pub bytes: u64,
}

impl TailDrop {
    /// A queue of this many frames, of any size.
    #[must_use]
    pub const fn frames(frames: u32) -> Self {
        Self { frames, bytes: u64::MAX }
    }

    /// A queue of this many bytes, in any number of frames.
    #[must_use]
    pub const fn bytes(bytes: u64) -> Self {
        Self { frames: u32::MAX, bytes }
    }
}

impl Default for TailDrop {
    /// 1,000 frames, as the interfaces of Linux have it.
    fn default() -> Self {
        Self::frames(1_000)
    }
}

impl QueuePolicy for TailDrop {
    fn admit(
        &mut self,
        _now: Instant,
        frame: &mut Frame,
        backlog: Backlog,
        _random: &mut Random,
    ) -> Verdict {
        let fits = backlog.frames < self.frames
            && backlog.bytes.saturating_add(frame.len() as u64) <= self.bytes;
        if fits || !backlog.busy { Verdict::Pass } else { Verdict::Drop }
    }

    fn has_room(&self, backlog: Backlog) -> bool {
        !backlog.busy || backlog.frames < self.frames && backlog.bytes < self.bytes
    }
}

/// Marks every frame that finds more than a threshold in the queue, as the
/// switches that DCTCP wants do (RFC 8257, 3.1), and drops at a limit.
///
/// Frames of senders that do not understand ECN are dropped where they would
/// be marked, as the simulation does with every mark (RFC 3168, 5).
///
/// ```
/// use landfall_simnet::{EcnThreshold, TailDrop};
///
/// // Mark from 30 KiB on, drop at 128 KiB.
/// let policy = EcnThreshold::bytes(30 << 10, TailDrop::bytes(128 << 10));
/// assert_eq!(policy.mark.bytes, 30 << 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EcnThreshold {
    /// Marks frames that such a queue would drop.
    pub mark: TailDrop,
    /// The queue itself.
    pub limit: TailDrop,
}

impl EcnThreshold {
    /// Marks where more than this many bytes would wait.
    #[must_use]
    pub const fn bytes(mark: u64, limit: TailDrop) -> Self {
        Self { mark: TailDrop::bytes(mark), limit }
    }

    /// Marks where this many frames wait already.
    #[must_use]
    pub const fn frames(mark: u32, limit: TailDrop) -> Self {
        Self { mark: TailDrop::frames(mark), limit }
    }
}

impl QueuePolicy for EcnThreshold {
    fn admit(
        &mut self,
        now: Instant,
        frame: &mut Frame,
        backlog: Backlog,
        random: &mut Random,
    ) -> Verdict {
        if self.limit.admit(now, frame, backlog, random) == Verdict::Drop {
            return Verdict::Drop;
        }
        match self.mark.admit(now, frame, backlog, random) {
            Verdict::Drop => Verdict::Mark,
            verdict => verdict,
        }
    }

    fn has_room(&self, backlog: Backlog) -> bool {
        self.limit.has_room(backlog)
    }
}

/// Random early detection (Floyd and Jacobson 1993; RFC 2309), by bytes.
///
/// It keeps a moving average of the queue. Below [`min`](Red::min) every frame
/// passes; from there to [`max`](Red::max) frames are marked with a probability
/// that rises to [`most`](Red::most), evenly spread; from `max` to twice that
/// it rises on to certainty, and frames are dropped, marked or not (gentle RED;
/// RFC 3168, 7). The draws are those of the simulation's seed.
///
/// ```
/// use landfall_simnet::{LinkConfig, Red, Sim};
///
/// # fn main() -> Result<(), landfall_simnet::Error> {
/// let mut sim = Sim::from_number(1);
/// # let node = |_: landfall_placement::Instant, _: landfall_simnet::PortId,
/// #     _: landfall_simnet::Frame, _: &mut landfall_simnet::Outbox<'_>| {};
/// # let (a, b) = (sim.add("a", node)?, sim.add("b", node)?);
/// let link = sim.connect(a, b, LinkConfig::ethernet(100_000_000))?;
/// // For a queue of 250,000 bytes in front of 100 Mbit/s.
/// sim.set_queue_policy(link.there(), Red::new(250_000, 100_000_000))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Red {
    /// The average, in bytes, below which nothing happens.
    pub min: u64,
    /// The average, in bytes, from which on frames are dropped.
    pub max: u64,
    /// The probability just below `max`.
    pub most: Probability,
    /// The weight of a new length in the average is 2 to the power of minus this.
    pub weight: u32,
    /// The queue itself.
    pub limit: TailDrop,
    /// What a typical frame takes to leave: the average of an idle queue sinks
    /// as if this many small ones had come.
    pub frame_time: Duration,
    average: Average,
}

/// The average length of the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Average {
    /// In bytes, times 2^16.
    scaled: u64,
    /// Frames since the last one that was marked or dropped.
    since: u64,
    /// Since when the queue is empty.
    empty: Option<Instant>,
}

const FRACTION: u32 = 16;

impl Red {
    /// For a queue of `limit` bytes in front of a link of `rate` bits per
    /// second: from an eighth to three eighths of it (RED's inventors advise a
    /// factor of three), one in ten at most, a weight of 1/512.
    #[must_use]
    pub fn new(limit: u64, rate: u64) -> Self {
        let frame_time = Duration::from_nanos(1_000 * 8 * 1_000_000_000 / rate.max(1));
        Self {
            min: limit / 8,
            max: limit / 8 * 3,
            most: Probability::percent(10),
            weight: 9,
            limit: TailDrop::bytes(limit),
            frame_time,
            average: Average::default(),
        }
    }

    /// The average length of the queue, in bytes, as the last frame left it.
    #[must_use]
    pub const fn average(&self) -> u64 {
        self.average.scaled >> FRACTION
    }

    fn weight(&self) -> u32 {
        self.weight.min(31)
    }

    fn update(&mut self, now: Instant, backlog: Backlog) {
        let weight = self.weight();
        if let Some(since) = self.average.empty.take() {
            let frames = now.since(since).as_nanos() / self.frame_time.as_nanos().max(1);
            self.average.scaled = decayed(self.average.scaled, weight, frames);
        }
        let length = backlog.bytes.min(u64::MAX >> (FRACTION + 1)) << FRACTION;
        let average = self.average.scaled;
        self.average.scaled = if length > average {
            average + ((length - average) >> weight)
        } else {
            average - ((average - length) >> weight)
        };
        if !backlog.busy {
            self.average.empty = Some(now);
        }
    }

    /// The probability of this length, before the frames since the last hit
    /// count; and whether it is beyond `max`, where marks are no longer enough.
    fn chance(&self) -> (u64, bool) {
        const CERTAIN: u64 = 1_000_000;
        let (average, most) = (self.average(), u64::from(self.most.parts_per_million()));
        if average < self.min {
            (0, false)
        } else if average < self.max {
            (rise(average - self.min, self.max - self.min, most), false)
        } else {
            let beyond = average - self.max;
            (most + rise(beyond.min(self.max), self.max, CERTAIN - most), true)
        }
    }

    /// Draws: the longer none was hit, the likelier, so that hits are spread
    /// evenly instead of coming in clusters.
    fn hits(&mut self, chance: u64, random: &mut Random) -> bool {
        const CERTAIN: u64 = 1_000_000;
        if chance == 0 {
            self.average.since = 0;
            return false;
        }
        self.average.since = self.average.since.saturating_add(1);
        let spent = chance.saturating_mul(self.average.since);
        let chance = if spent >= CERTAIN { CERTAIN } else { chance * CERTAIN / (CERTAIN - spent) };
        let hit = random.chance(u32::try_from(chance).unwrap_or(u32::MAX));
        if hit {
            self.average.since = 0;
        }
        hit
    }
}

/// `most` × `part` / `whole`.
fn rise(part: u64, whole: u64, most: u64) -> u64 {
    let wide = u128::from(part) * u128::from(most) / u128::from(whole.max(1));
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// `value` × (1 − 2^−weight)^times.
fn decayed(value: u64, weight: u32, times: u128) -> u64 {
    const ONE: u128 = 1 << 32;
    let (mut factor, mut base, mut left) = (ONE, ONE - (ONE >> weight), times);
    while left > 0 && factor > 0 {
        if left & 1 == 1 {
            factor = factor * base / ONE;
        }
        base = base * base / ONE;
        left >>= 1;
    }
    (u128::from(value) * factor / ONE) as u64
}

impl QueuePolicy for Red {
    fn admit(
        &mut self,
        now: Instant,
        frame: &mut Frame,
        backlog: Backlog,
        random: &mut Random,
    ) -> Verdict {
        self.update(now, backlog);
        if self.limit.admit(now, frame, backlog, random) == Verdict::Drop {
            self.average.since = 0;
            return Verdict::Drop;
        }
        let (chance, is_beyond) = self.chance();
        match (self.hits(chance, random), is_beyond) {
            (false, _) => Verdict::Pass,
            (true, false) => Verdict::Mark,
            (true, true) => Verdict::Drop,
        }
    }

    fn release(
        &mut self,
        now: Instant,
        _frame: &mut Frame,
        _waited: Duration,
        backlog: Backlog,
        _random: &mut Random,
    ) -> Verdict {
        if backlog.frames == 0 {
            self.average.empty = Some(now);
        }
        Verdict::Pass
    }

    fn has_room(&self, backlog: Backlog) -> bool {
        self.limit.has_room(backlog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(frames: u32, busy: bool) -> Verdict {
        let mut policy = EcnThreshold::frames(3, TailDrop::frames(5));
        let backlog = Backlog { frames, bytes: u64::from(frames) * 100, busy };
        let mut frame = Frame::raw([0; 100]);
        policy.admit(Instant::ZERO, &mut frame, backlog, &mut Random::from_number(1))
    }

    #[test]
    fn a_frame_passes_then_is_marked_then_dropped() {
        let verdicts = [0, 2, 3, 4, 5, 9].map(|frames| ask(frames, true));
        use Verdict::{Drop, Mark, Pass};
        assert_eq!(verdicts, [Pass, Pass, Mark, Mark, Drop, Drop]);
        assert_eq!(ask(0, false), Pass);
    }

    #[test]
    fn bytes_count_with_the_frame_that_comes() {
        let mut policy = EcnThreshold::bytes(1_000, TailDrop::bytes(1_500));
        let mut random = Random::from_number(1);
        let mut ask = |bytes| {
            let backlog = Backlog { frames: 1, bytes, busy: true };
            policy.admit(Instant::ZERO, &mut Frame::raw([0; 100]), backlog, &mut random)
        };
        assert_eq!([900, 901, 1_400, 1_401].map(&mut ask), {
            use Verdict::{Drop, Mark, Pass};
            [Pass, Mark, Mark, Drop]
        });
    }

    fn red() -> Red {
        Red { weight: 0, ..Red::new(80_000, 8_000_000) }
    }

    /// What becomes of this many frames that all find a queue of this length.
    fn fates(policy: &mut Red, bytes: u64, frames: u32) -> [u32; 3] {
        let mut random = Random::from_number(7);
        let mut fates = [0; 3];
        for _ in 0..frames {
            let backlog = Backlog { frames: 1, bytes, busy: true };
            let mut frame = Frame::raw([0; 100]);
            let verdict = policy.admit(Instant::ZERO, &mut frame, backlog, &mut random);
            fates[verdict as usize] += 1;
        }
        fates
    }

    #[test]
    fn a_short_queue_passes_everything() {
        assert_eq!(fates(&mut red(), 9_999, 1_000), [1_000, 0, 0]);
    }

    #[test]
    fn between_its_thresholds_it_marks_and_drops_nothing() {
        // Half way there, one in twenty; evenly spread, that is about one in
        // the next 40 half of the time, so more than one in twenty of all.
        let [passed, marked, dropped] = fates(&mut red(), 20_000, 10_000);
        assert!((800..1_200).contains(&marked) && dropped == 0, "{marked} of {passed}");
        let [_, fewer, _] = fates(&mut red(), 12_000, 10_000);
        assert!(fewer < marked / 2, "{fewer} near the lower threshold, {marked} half way");
    }

    #[test]
    fn beyond_it_drops_more_and_more() {
        let [_, marked, some] = fates(&mut red(), 35_000, 10_000);
        assert!(marked == 0 && (2_000..7_000).contains(&some), "{marked} marked, {some} dropped");
        assert_eq!(fates(&mut red(), 60_000, 1_000), [0, 0, 1_000], "twice the upper threshold");
        assert_eq!(fates(&mut red(), 80_000, 1_000), [0, 0, 1_000], "the queue is full");
    }

    #[test]
    fn hits_are_spread() {
        let mut policy = red();
        let mut random = Random::from_number(7);
        let (mut since, mut longest) = (0, 0);
        for _ in 0..10_000 {
            since = if policy.hits(50_000, &mut random) { 0 } else { since + 1 };
            longest = longest.max(since);
        }
        // With independent draws, gaps of more than 100 would be common.
        assert!(longest < 20, "one in twenty at least, but {longest} passed in a row");
    }

    #[test]
    fn the_average_follows_slowly_and_sinks_while_the_queue_is_empty() {
        let mut policy = Red { weight: 9, ..red() };
        let mut random = Random::from_number(7);
        let mut frame = Frame::raw([0; 100]);
        let full = Backlog { frames: 50, bytes: 50_000, busy: true };
        for _ in 0..512 {
            policy.admit(Instant::ZERO, &mut frame, full, &mut random);
        }
        // 1 − (1 − 1/512)^512 of it.
        let average = policy.average();
        assert!((31_000..32_200).contains(&average), "{average}");
        let empty = Backlog { frames: 0, bytes: 0, busy: false };
        policy.release(Instant::ZERO, &mut frame, Duration::ZERO, empty, &mut random);
        // 512 frames of 1,000 bytes at 8 Mbit/s.
        policy.admit(Instant::from_millis(512), &mut frame, empty, &mut random);
        let sunk = policy.average();
        assert!(sunk.abs_diff(average * 368 / 1_000) < average / 100, "{average}, then {sunk}");
        policy.admit(Instant::FAR_FUTURE, &mut frame, empty, &mut random);
        assert_eq!(policy.average(), 0);
    }

    #[test]
    fn strange_numbers_do_no_harm() {
        let extreme = [0, 1, u64::MAX / 2, u64::MAX];
        for (min, max) in extreme.into_iter().flat_map(|min| extreme.map(|max| (min, max))) {
            for weight in [0, 9, u32::MAX] {
                let mut policy = Red { min, max, weight, frame_time: Duration::ZERO, ..red() };
                fates(&mut policy, u64::MAX, 10);
                fates(&mut policy, 0, 10);
            }
        }
    }
}
