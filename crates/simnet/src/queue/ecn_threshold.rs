//! Marks by the length of the queue at this moment: [`EcnThreshold`].

use landfall_placement::{Instant, Random};

use super::{Backlog, QueuePolicy, TailDrop, Verdict};
use crate::frame::Frame;

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
