//! Which frames may wait for a link: [`QueuePolicy`], plain [`TailDrop`], and
//! what marks or drops earlier, [`EcnThreshold`] and [`Red`].
//!
//! This is the seam for other disciplines. Policies that go by the length of
//! the queue answer [`Verdict::Mark`] or [`Verdict::Drop`]; CoDel looks at the time waited in [`QueuePolicy::release`]. Pause
//! needs two nodes and no policy: one that looks at
//! [`Outbox::backlog`](crate::Outbox::backlog) and sends a pause frame, and one
//! that gets it and calls [`Outbox::pause`](crate::Outbox::pause).

mod red;

use core::fmt;

use landfall_placement::{Duration, Instant, Random};

use crate::frame::Frame;

pub use red::Red;

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
    /// A queue of so many frames, of any size.
    #[must_use]
    pub const fn frames(frames: u32) -> Self {
        Self { frames, bytes: u64::MAX }
    }

    /// A queue of so many bytes, in any number of frames.
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
    /// Marks where more than so many bytes would wait.
    #[must_use]
    pub const fn bytes(mark: u64, limit: TailDrop) -> Self {
        Self { mark: TailDrop::bytes(mark), limit }
    }

    /// Marks where so many frames wait already.
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
}
