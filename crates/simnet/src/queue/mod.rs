//! Which frames may wait for a link: [`QueuePolicy`], plain [`TailDrop`], and
//! what marks or drops earlier, [`EcnThreshold`] and [`Red`].
//!
//! This is the seam for other disciplines. Policies that go by the length of
//! the queue answer [`Verdict::Mark`] or [`Verdict::Drop`]; CoDel looks at the time waited in [`QueuePolicy::release`]. Pause
//! needs two nodes and no policy: one that looks at
//! [`Outbox::backlog`](crate::Outbox::backlog) and sends a pause frame, and one
//! that gets it and calls [`Outbox::pause`](crate::Outbox::pause).

mod ecn_threshold;
mod red;

use core::fmt;

use landfall_placement::{Duration, Instant, Random};

use crate::frame::Frame;
pub use ecn_threshold::EcnThreshold;
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
