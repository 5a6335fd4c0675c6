//! What acknowledgements, and their absence, do to the [`Sender`].

use landfall_placement::{Duration, Instant};

use super::config::TcpConfig;
use super::congestion::{Cause, Delivery, Progress, Prr};
use super::flight::Delivered;
use super::rack::{Path, ProbeAck};
use super::sender::{Recovery, Sender, Waits};
use crate::wire::tcp_options::Blocks;

/// What a segment says of what we sent, in positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    /// All in front of it has come.
    pub(super) upto: u64,
    /// The position of the segment that says so.
    pub(super) at: u64,
    /// How much more may come.
    pub(super) window: u64,
    /// It has payload, or ends the stream: it repeats nothing.
    pub(super) is_bare: bool,
    /// The latest moment at which what it echoes can have been sent.
    pub(super) echo: Option<Instant>,
    /// The network marked what we sent.
    pub(super) is_marked: bool,
}

impl Sender {
    /// The other side says what it has.
    pub(super) fn handle_ack(&mut self, now: Instant, ack: &Ack, blocks: &Blocks) -> AckOutcome {
        let before = self.before();
        let is_repeat = ack.is_bare
            && ack.upto == self.acknowledged()
            && !self.flight.is_empty()
            && ack.upto + ack.window == self.window_end;
        let mut delivered = Delivered::default();
        self.flight.ack(ack.upto, &mut delivered);
        let duplicate = self.take_blocks(ack, blocks, &mut delivered);
        self.take_window(ack);
        if delivered.acknowledged > 0 {
            self.progress_at = now;
            self.rtt.end_back_off();
            self.persists = 0;
            self.repeats = 0;
        }
        self.measure(now, &delivered);
        if delivered.bytes > 0 {
            self.rack.on_delivered(now, &delivered, ack.echo, self.rtt.least());
        }
        let is_repair = self.take_probe_answer(ack, duplicate, is_repeat);
        self.undo_mistake(ack, &delivered);
        let (lost, late) = self.find_lost(now, is_repeat, &delivered);
        if (lost > 0 || is_repair) && matches!(self.recovery, Recovery::No) {
            self.enter_recovery(&before);
        }
        let reduced = self.take_mark(ack, &before);
        self.grow(now, ack, &delivered, &before, lost);
        // A repetition does not put the time-out off (RFC 6298, 5.3): who asks our closed
        // window again and again says nothing else.
        if delivered.bytes > 0 || lost > 0 || late.is_some() {
            self.arm(now, late);
        } else if self.flight.is_empty() {
            self.timer = self.timer.filter(|(_, waits)| *waits == Waits::Persist);
        }
        AckOutcome { acknowledged: delivered.acknowledged, reduced }
    }

    /// Enters what came behind holes. Gives what came twice (RFC 2883): the
    /// first block, where it is acknowledged already, or within the second.
    fn take_blocks(
        &mut self,
        ack: &Ack,
        blocks: &Blocks,
        delivered: &mut Delivered,
    ) -> Option<(u64, u64)> {
        if !self.sack {
            return None;
        }
        let mut duplicate = None;
        let mut previous: Option<(u64, u64)> = None;
        for (nth, &(start, end)) in blocks.iter().enumerate() {
            let (start, end) = (self.position_of(start), self.position_of(end));
            let (Ok(start), Ok(end)) = (u64::try_from(start), u64::try_from(end)) else { continue };
            if start >= end || end > self.flight.next() {
                continue;
            }
            if nth == 0 && end <= ack.upto {
                duplicate = Some((start, end));
                continue;
            }
            if nth == 1
                && let Some(first) = previous
                && start <= first.0
                && first.1 <= end
            {
                duplicate = Some(first);
            }
            previous = Some((start, end));
            self.flight.sack(start..end, delivered);
        }
        duplicate
    }

    /// RFC 9293, 3.10.7.4: the window of an older segment does not count.
    fn take_window(&mut self, ack: &Ack) {
        let (at, upto) = self.window_said;
        if ack.at > at || (ack.at == at && ack.upto >= upto) {
            let end = ack.upto + ack.window;
            if end > self.window_end && self.timer.is_some_and(|(_, waits)| waits == Waits::Persist)
            {
                self.timer = None;
                self.persists = 0;
            }
            self.window_said = (ack.at, ack.upto);
            self.window_end = end;
            self.widest = self.widest.max(ack.window);
        }
    }

    /// A round trip is that of data which was sent once (Karn).
    fn measure(&mut self, now: Instant, delivered: &Delivered) {
        let Some(oldest) = delivered.oldest_original.filter(|_| !delivered.has_retransmitted)
        else {
            return;
        };
        let samples = self.flight.outstanding() / (2 * u64::from(self.mss));
        self.rtt.sample(now, now.since(oldest), samples.max(1));
    }

    fn take_probe_answer(
        &mut self,
        ack: &Ack,
        duplicate: Option<(u64, u64)>,
        is_repeat: bool,
    ) -> bool {
        let was_pending = self.probe.is_pending();
        let answer = ProbeAck { acknowledged: ack.upto, duplicate, is_bare_duplicate: is_repeat };
        let is_repair = self.probe.on_ack(&answer);
        if duplicate.is_some() && !was_pending {
            self.rack.on_duplicate_report(&self.flight);
        }
        is_repair
    }

    /// The Eifel detection (RFC 3522): what was taken for lost was only late if
    /// the first acknowledgement after its repetition echoes something older.
    fn undo_mistake(&mut self, ack: &Ack, delivered: &Delivered) {
        if delivered.acknowledged == 0 || matches!(self.recovery, Recovery::No) {
            return;
        }
        let Some(again) = &mut self.first_again else { return };
        // Only what acknowledges the repeated data says something about it, and
        // only the first such acknowledgement does: later ones echo segments
        // that left before other repetitions.
        if again.is_judged || ack.upto <= again.start {
            return;
        }
        again.is_judged = true;
        if ack.echo.is_some_and(|echo| echo < again.at) {
            self.controller.undo();
            self.flight.forget_losses();
            self.recovery = Recovery::No;
        }
    }

    /// What is lost now, and when what is late will be.
    fn find_lost(
        &mut self,
        now: Instant,
        is_repeat: bool,
        delivered: &Delivered,
    ) -> (u64, Option<Instant>) {
        if self.sack {
            let is_recovering = !matches!(self.recovery, Recovery::No);
            let path = self.path();
            return self.rack.detect(now, &mut self.flight, &path, is_recovering);
        }
        // RFC 6582: three repetitions, and each acknowledgement in a recovery
        // that does not end it, say that the first segment is lost.
        self.repeats += u32::from(is_repeat);
        let is_partial = match self.recovery {
            Recovery::Fast { end, .. } => delivered.acknowledged > 0 && self.acknowledged() < end,
            Recovery::No => is_repeat && self.repeats == 3,
            Recovery::Loss { .. } => false,
        };
        let first = self.flight.first().filter(|first| is_partial && !first.is_sacked());
        let Some(start) = first.map(super::flight::Record::start) else { return (0, None) };
        let end = start + u64::from(self.mss);
        (self.flight.mark_lost(start..end), None)
    }

    fn path(&self) -> Path {
        Path {
            smoothed: self.rtt.smoothed().unwrap_or_default(),
            least: self.rtt.least().unwrap_or_default(),
            mss: self.mss,
        }
    }

    fn enter_recovery(&mut self, before: &Before) {
        self.controller.on_congestion(Cause::Loss, before.outstanding);
        let flight = before.outstanding.saturating_sub(before.sacked);
        let prr = Prr::new(flight, self.controller.slow_start_threshold(), self.mss);
        self.recovery = Recovery::Fast { end: self.flight.next(), prr };
        self.first_again = None;
    }

    /// RFC 3168, 6.1.2: a mark counts as a loss, once for what was under way.
    fn take_mark(&mut self, ack: &Ack, before: &Before) -> bool {
        let counts =
            ack.is_marked && ack.upto >= self.marks_from && matches!(self.recovery, Recovery::No);
        if counts {
            self.controller.on_congestion(Cause::Ecn, before.outstanding);
            self.marks_from = self.flight.next() + 1;
        }
        counts
    }

    /// Ends a recovery that is over, and moves the window.
    fn grow(&mut self, now: Instant, ack: &Ack, delivered: &Delivered, before: &Before, lost: u64) {
        let end = match self.recovery {
            Recovery::Fast { end, .. } | Recovery::Loss { end } => Some(end),
            Recovery::No => None,
        };
        if end.is_some_and(|end| self.acknowledged() >= end) {
            self.recovery = Recovery::No;
            self.rack.on_recovery_end();
            self.first_again = None;
        }
        let repeats = u64::from(self.repeats) * u64::from(self.mss);
        if let Recovery::Fast { prr, .. } = &mut self.recovery {
            let is_repeat = !self.sack && delivered.bytes == 0 && self.repeats > 0;
            prr.on_ack(&Delivery {
                bytes: if is_repeat { u64::from(self.mss) } else { delivered.bytes },
                pipe: self.flight.pipe().saturating_sub(if self.sack { 0 } else { repeats }),
                is_safe: delivered.acknowledged > 0 && lost == 0,
            });
        } else if delivered.bytes > 0 {
            let smoothed = self.rtt.smoothed().unwrap_or_default();
            self.controller.on_ack(&Progress {
                now,
                bytes: delivered.bytes,
                acknowledged: ack.upto,
                next: self.flight.next(),
                rtt: delivered.newest_original.map(|sent| now.since(sent.at)),
                smoothed,
                in_flight: before.pipe,
                is_window_limited: ack.upto <= self.limited_upto,
            });
        }
    }

    /// Sets the timer for what is under way now. `late`: when something that was
    /// overtaken counts as lost.
    pub(super) fn arm(&mut self, now: Instant, late: Option<Instant>) {
        if self.flight.is_empty() {
            self.timer = None;
            return;
        }
        if let Some(at) = late {
            self.timer = Some((at, Waits::Reorder));
            return;
        }
        self.arm_retransmission(now);
        let may_probe = self.sack
            && matches!(self.recovery, Recovery::No)
            && self.flight.sacked_bytes() == 0
            && !self.is_probe_due;
        let Some((timeout, _)) = self.timer.filter(|_| may_probe) else { return };
        let smoothed = self.rtt.smoothed();
        let probe = self.probe.deadline(now, &self.flight, smoothed, self.mss, timeout);
        if let Some(at) = probe.filter(|at| *at < timeout) {
            self.timer = Some((at, Waits::Probe));
        }
    }

    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        self.timer = Some((now + self.timeout(), Waits::Retransmit));
    }

    /// Time passed. True: nobody answers any more.
    pub(super) fn handle_timeout(&mut self, now: Instant, config: &TcpConfig) -> bool {
        let Some((_, waits)) = self.timer.filter(|(at, _)| *at <= now) else { return false };
        self.timer = None;
        match waits {
            Waits::Reorder => {
                let before = self.before();
                let is_recovering = !matches!(self.recovery, Recovery::No);
                let path = self.path();
                let (lost, late) = self.rack.detect(now, &mut self.flight, &path, is_recovering);
                if lost > 0 && !is_recovering {
                    self.enter_recovery(&before);
                    // What was delivered when it was found late has been counted.
                    if let Recovery::Fast { prr, .. } = &mut self.recovery {
                        let pipe = self.flight.pipe();
                        prr.on_ack(&Delivery { bytes: 0, pipe, is_safe: false });
                    }
                }
                self.arm(now, late);
            }
            Waits::Probe => {
                self.is_probe_due = true;
                self.arm_retransmission(now);
            }
            Waits::Persist => {
                if now.since(self.progress_at) > config.give_up_after {
                    return true;
                }
                self.persists = self.persists.saturating_add(1);
                self.is_window_probe_due = true;
                self.may_be_small = true;
            }
            Waits::Retransmit => return self.time_out(now, config),
        }
        false
    }

    fn before(&self) -> Before {
        Before {
            pipe: self.flight.pipe(),
            outstanding: self.flight.outstanding(),
            sacked: self.flight.sacked_bytes(),
        }
    }

    /// RFC 6298, 5.4 to 5.6, and RFC 8985, 6.3.
    fn time_out(&mut self, now: Instant, config: &TcpConfig) -> bool {
        if self.flight.is_empty() {
            return false;
        }
        if now.since(self.progress_at) >= config.give_up_after {
            return true;
        }
        self.timeouts = self.timeouts.wrapping_add(1);
        let outstanding = self.flight.outstanding();
        // RFC 2018, 8: they may have dropped what they had said to have.
        if self.flight.first().is_some_and(super::flight::Record::is_sacked) {
            self.flight.forget_sacks();
        }
        let path = self.path();
        if self.sack {
            self.rack.on_timeout(now, &mut self.flight, &path);
        } else {
            self.flight.mark_all_lost();
        }
        let is_repeated = matches!(self.recovery, Recovery::Loss { .. });
        self.controller.on_timeout(outstanding, is_repeated);
        self.recovery = Recovery::Loss { end: self.flight.next() };
        self.first_again = None;
        self.repeats = 0;
        self.probe.forget();
        self.is_probe_due = false;
        self.rtt.back_off();
        self.arm_retransmission(now);
        false
    }

    /// The other side is there: a closed window is no reason to give up.
    pub(super) fn heard(&mut self, now: Instant) {
        if self.flight.is_empty() {
            self.progress_at = now;
        }
    }
}

/// The sums before an acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Before {
    pipe: u64,
    outstanding: u64,
    sacked: u64,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckOutcome {
    /// So many bytes need no repetition any more.
    pub(super) acknowledged: u64,
    /// The window was reduced for a mark.
    pub(super) reduced: bool,
}

/// How much earlier than it says a clock of milliseconds may have been read.
pub(super) const CLOCK_STEP: Duration = Duration::from_millis(1);
