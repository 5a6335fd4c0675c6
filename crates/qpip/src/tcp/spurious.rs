//! [`Reduction`]: the window before it was reduced, and what shows that it need not have
//! been: what had been taken for lost was only late.
//!
//! | evidence | shows a mistake when |
//! | --- | --- |
//! | timestamps (Eifel, RFC 3522) | the first acknowledgement of what was sent again echoes something older than that |
//! | F-RTO (RFC 5682), where there are no timestamps | after a time-out new data leaves in place of old, and the next acknowledgement brings something that was sent once |
//! | reports of duplicates (RFC 3708) | all that was sent again is reported to have come twice, maybe after the recovery |

use landfall_placement::Instant;

use core::ops::Range;

use super::congestion::SavedWindow;
use super::flight::Delivered;
use super::ranges::Ranges;

/// RFC 5682, step 2b: this many new segments leave before the next acknowledgement decides.
const NEW_SEGMENTS: u64 = 2;

/// The first repetition of a recovery: its acknowledgement shows whether it was a mistake.
#[derive(Clone, Debug)]
struct FirstAgain {
    at: Instant,
    range: Range<u64>,
    /// It was acknowledged, and that told whether it had to be.
    is_judged: bool,
}

/// How far F-RTO is (RFC 5682, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForwardStep {
    /// The time-out was genuine, or was none, or nobody can tell.
    Off,
    /// Step 2: for the acknowledgement of what was sent again.
    FirstAck,
    /// Step 3: for that of something which was not.
    SecondAck,
}

/// What an acknowledgement says of a reduction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence<'a> {
    /// All in front of it has come.
    pub(super) upto: u64,
    /// The latest moment at which what it echoes can have been sent.
    pub(super) echo: Option<Instant>,
    /// What it delivered.
    pub(super) delivered: &'a Delivered,
    /// What came twice.
    pub(super) duplicate: Option<&'a Range<u64>>,
    /// It repeats the last acknowledgement.
    pub(super) is_repeat: bool,
}

/// What is known of a reduction after an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing that would change it.
    Stands,
    /// F-RTO, step 3a: it is none; few segments are under way from now on.
    Genuine,
    /// It was a mistake.
    Spurious,
}

/// What leaves next while F-RTO decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardPlan {
    /// What is lost, as always.
    Lost,
    /// New data, if there is some.
    New,
    /// Nothing before the next acknowledgement.
    Wait,
}

/// One reduction of the window.
#[derive(Debug)]
pub(super) struct Reduction {
    saved: SavedWindow,
    first: Option<FirstAgain>,
    forward: ForwardStep,
    /// What had been sent when the time-out ran out (`RecoveryPoint`).
    recover: u64,
    /// What was sent again, and is not reported to have come twice.
    unreported: Ranges,
    /// Reports say nothing: something was sent again twice, or came twice without being
    /// sent again, so that the network may have doubled it (RFC 3708, 3).
    is_blurred: bool,
    /// The recovery is over, and reports come only before this is acknowledged.
    over: Option<u64>,
}

impl Reduction {
    /// A fast recovery begins.
    pub(super) fn new(saved: SavedWindow) -> Self {
        Self {
            saved,
            first: None,
            forward: ForwardStep::Off,
            recover: 0,
            unreported: Ranges::None,
            is_blurred: false,
            over: None,
        }
    }

    /// The time-out ran out when so much had been sent. (Repeated, it says nothing new:
    /// [`timed_out_again`](Self::timed_out_again).)
    pub(super) fn timed_out(saved: SavedWindow, sent: u64, has_timestamps: bool) -> Self {
        let forward = if has_timestamps { ForwardStep::Off } else { ForwardStep::FirstAck };
        Self { forward, recover: sent, ..Self::new(saved) }
    }

    /// Nothing came before it ran out again: the question stays open, as only what was sent
    /// once can answer it. (RFC 5682 asks no more then, Linux does.) Otherwise this one is
    /// genuine: the path had carried something since.
    pub(super) fn timed_out_again(&mut self) {
        if self.forward != ForwardStep::FirstAck {
            self.forward = ForwardStep::Off;
        }
    }

    /// The window before.
    pub(super) const fn saved(&self) -> &SavedWindow {
        &self.saved
    }

    /// Something leaves again in the recovery.
    pub(super) fn sent_again(&mut self, now: Instant, range: Range<u64>) {
        let is_twice = self.unreported.end_at(range.start).is_some()
            || self.unreported.next_start(range.start).is_some_and(|start| start < range.end);
        self.is_blurred |= is_twice;
        self.unreported.insert(range.start, range.end);
        self.first.get_or_insert(FirstAgain { at: now, range, is_judged: false });
    }

    /// The recovery is over; so much has been sent.
    pub(super) fn recovery_ended(&mut self, sent: u64) {
        self.forward = ForwardStep::Off;
        self.over = Some(sent);
    }

    /// Can it still turn out to have been a mistake, when so much is acknowledged?
    pub(super) fn is_open(&self, acknowledged: u64) -> bool {
        self.over.is_none_or(|sent| acknowledged <= sent && !self.is_blurred)
    }

    /// What leaves next where something is lost, when so much has been sent.
    pub(super) fn plan(&self, sent: u64, mss: u32) -> ForwardPlan {
        if self.forward != ForwardStep::SecondAck {
            return ForwardPlan::Lost;
        }
        let is_enough = sent - self.recover >= NEW_SEGMENTS * u64::from(mss);
        if is_enough { ForwardPlan::Wait } else { ForwardPlan::New }
    }

    /// There is no new data that may leave. Where some has left, its acknowledgement is
    /// awaited; else nobody can tell (RFC 5682, 3.1, step 2b).
    pub(super) fn has_no_new(&mut self, sent: u64) -> ForwardPlan {
        if sent > self.recover {
            return ForwardPlan::Wait;
        }
        self.forward = ForwardStep::Off;
        ForwardPlan::Lost
    }

    /// What an acknowledgement says.
    pub(super) fn judge(&mut self, ack: &Evidence<'_>) -> Verdict {
        let is_late = self.is_late_by_echo(ack);
        let forward = self.step_forward(ack);
        if is_late || self.is_all_reported(ack.duplicate) { Verdict::Spurious } else { forward }
    }

    /// Only what acknowledges the repeated data says something about it, and only the
    /// first such acknowledgement does: later ones echo segments that left before other
    /// repetitions.
    fn is_late_by_echo(&mut self, ack: &Evidence<'_>) -> bool {
        let is_new = ack.delivered.acknowledged > 0 && self.over.is_none();
        let Some(first) = self
            .first
            .as_mut()
            .filter(|first| is_new && !first.is_judged && ack.upto > first.range.start)
        else {
            return false; // It says nothing of what was sent again first.
        };
        first.is_judged = true;
        ack.echo.is_some_and(|echo| echo < first.at)
    }

    /// RFC 5682, 3.1, steps 2 and 3.
    fn step_forward(&mut self, ack: &Evidence<'_>) -> Verdict {
        let is_moving = ack.delivered.acknowledged > 0;
        if !is_moving && ack.delivered.bytes == 0 && !ack.is_repeat {
            return Verdict::Stands;
        }
        match self.forward {
            ForwardStep::Off => Verdict::Stands,
            ForwardStep::FirstAck => {
                let first = self.first.as_ref().map_or(u64::MAX, |first| first.range.end);
                let goes_on = is_moving && ack.upto >= first && ack.upto < self.recover;
                self.forward = if goes_on { ForwardStep::SecondAck } else { ForwardStep::Off };
                Verdict::Stands
            }
            ForwardStep::SecondAck => {
                self.forward = ForwardStep::Off;
                let original = ack.delivered.lowest_original;
                let is_late = original.is_some_and(|end| end <= self.recover);
                if is_late { Verdict::Spurious } else { Verdict::Genuine }
            }
        }
    }

    /// Has now all that was sent again come twice?
    fn is_all_reported(&mut self, duplicate: Option<&Range<u64>>) -> bool {
        // Nothing came twice.
        let Some(duplicate) = duplicate else { return false };
        let end = self.unreported.end_at(duplicate.start);
        self.is_blurred |= end.is_none_or(|end| end < duplicate.end);
        self.unreported.remove(duplicate.start, duplicate.end);
        self.unreported.is_empty() && !self.is_blurred
    }
}
