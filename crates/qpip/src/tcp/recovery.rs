//! What acknowledgements, and their absence, do to the [`Sender`].

use alloc::boxed::Box;
use core::ops::Range;

use landfall_placement::{Duration, Instant};

use super::accurate_ecn::{Covered, Marks};
use super::config::TcpConfig;
use super::congestion::{Delivery, Progress, Prr};
use super::flight::{Delivered, Losses};
use super::rack::{Path, ProbeAck};
use super::sender::{FastRecovery, Recovery, Sender, Waits, WindowUpdate};
use super::spurious::{Evidence, Reduction, Verdict};
use crate::wire::tcp_options::Blocks;

/// RFC 1122, 4.2.3.5: after this many time-outs in a row the path itself is looked at.
const R1: u8 = 3;

/// What a segment says of what we sent, in positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    /// All in front of it has come.
    pub(super) upto: u64,
    /// The position of the segment that says so.
    pub(super) at: u64,
    /// How much more may come.
    pub(super) window: u64,
    /// It begins with what is expected next, or before.
    pub(super) is_in_order: bool,
    /// It has payload, or ends the stream: it repeats nothing.
    pub(super) is_bare: bool,
    /// The latest moment at which what it echoes can have been sent.
    pub(super) echo: Option<Instant>,
    /// The network marked what we sent, or it has to be looked up whether it did.
    pub(super) is_marked: bool,
    /// What it had no memory for may come again.
    pub(super) asks_again: bool,
}

impl Sender {
    /// The other side says what it has.
    #[inline]
    pub(super) fn handle_ack(&mut self, now: Instant, ack: &Ack, blocks: &Blocks) -> AckOutcome {
        if self.says_window_alone(ack, blocks) {
            self.handle_window(ack);
            self.timer = self.timer.filter(|(_, waits)| *waits == Waits::Persist);
            return AckOutcome::default();
        }
        self.handle_any_ack(now, ack, blocks)
    }

    /// Nothing is under way, as with who only receives, and nobody says anything of what was.
    #[inline]
    fn says_window_alone(&self, ack: &Ack, blocks: &Blocks) -> bool {
        let is_quiet = self.flight.is_empty()
            && matches!(self.recovery, Recovery::No)
            && self.reduction.is_none()
            && self.mtu_probe.is_none()
            && !self.probe.is_pending();
        is_quiet && ack.upto == self.acknowledged() && blocks.is_empty() && !ack.is_marked
    }

    fn handle_any_ack(&mut self, now: Instant, ack: &Ack, blocks: &Blocks) -> AckOutcome {
        let before = self.before();
        let is_repeat = ack.is_bare
            && ack.upto == self.acknowledged()
            && !self.flight.is_empty()
            && ack.upto + ack.window == self.window_end;
        let mut delivered = Delivered::default();
        self.flight.ack(ack.upto, &mut delivered);
        let duplicate = self.handle_blocks(ack, blocks, &mut delivered);
        self.handle_window(ack);
        if delivered.acknowledged > 0 {
            self.progress_at = now;
            self.rtt.end_back_off();
            self.persists = 0;
            self.forget_repeats(delivered.acknowledged);
        }
        self.measure(now, &delivered);
        if delivered.bytes > 0 {
            self.rack.on_delivered(now, &delivered, ack.echo, self.rtt.least());
        }
        if self.reduction.is_some() {
            self.judge_reduction(&Evidence {
                upto: ack.upto,
                echo: ack.echo,
                delivered: &delivered,
                duplicate: duplicate.as_ref(),
                is_repeat,
            });
        }
        let is_repair = self.handle_probe_answer(ack, duplicate, is_repeat);
        let Losses { bytes: mut lost, recheck_at: late } =
            self.find_lost(now, is_repeat, &delivered);
        let is_excused = self.mtu_probe.is_some() && self.judge_mtu_probe();
        let is_reason = (lost > 0 && !is_excused) || is_repair;
        if is_reason && matches!(self.recovery, Recovery::No) {
            self.enter_recovery(&before);
        }
        let reduced = self.handle_mark(ack, &delivered, &before);
        self.grow(now, ack, &delivered, &before, lost);
        if ack.asks_again && ack.upto == self.acknowledged() && !self.flight.is_empty() {
            lost += self.send_again(now);
        }
        // A repetition does not put the time-out off (RFC 6298, 5.3): who asks our closed
        // window again and again says nothing else.
        if delivered.bytes > 0 || lost > 0 || late.is_some() {
            self.arm(now, late);
        } else if self.flight.is_empty() {
            self.timer = self.timer.filter(|(_, waits)| *waits == Waits::Persist);
        }
        AckOutcome { acknowledged: delivered.acknowledged, reduced }
    }

    /// Enters what came behind holes. Returns what came twice (RFC 2883): the
    /// first block, where it is acknowledged already, or within the second.
    fn handle_blocks(
        &mut self,
        ack: &Ack,
        blocks: &Blocks,
        delivered: &mut Delivered,
    ) -> Option<Range<u64>> {
        if !self.sack {
            return None;
        }
        let mut duplicate = None;
        let mut previous: Option<Range<u64>> = None;
        for (nth, &(start, end)) in blocks.iter().enumerate() {
            let (start, end) = (self.position_of(start), self.position_of(end));
            let (Ok(start), Ok(end)) = (u64::try_from(start), u64::try_from(end)) else { continue };
            if start >= end || end > self.flight.next() {
                continue;
            }
            if nth == 0 && end <= ack.upto {
                duplicate = Some(start..end);
                continue;
            }
            if nth == 1
                && let Some(first) = previous
                && start <= first.start
                && first.end <= end
            {
                duplicate = Some(first);
            }
            previous = Some(start..end);
            self.flight.sack(start..end, delivered);
        }
        duplicate
    }

    /// RFC 9293, 3.10.7.4: the window of an older segment does not count, nor does one of a
    /// segment that is ahead, for that is for later. (A blind one would else hide what all that
    /// follow say, until the stream has come to where it pretended to be.)
    fn handle_window(&mut self, ack: &Ack) {
        if !ack.is_in_order {
            return;
        }
        let WindowUpdate { at, upto } = self.window_update;
        if ack.at > at || (ack.at == at && ack.upto >= upto) {
            let end = ack.upto + ack.window;
            if end > self.window_end && self.timer.is_some_and(|(_, waits)| waits == Waits::Persist)
            {
                self.timer = None;
                self.persists = 0;
            }
            self.window_update = WindowUpdate { at: ack.at, upto: ack.upto };
            self.window_end = end;
            self.widest = self.widest.max(u32::try_from(ack.window).unwrap_or(u32::MAX));
        }
    }

    /// A round trip is that of data which was sent once (Karn).
    fn measure(&mut self, now: Instant, delivered: &Delivered) {
        // What was sent twice may have come either time.
        let Some(oldest) = delivered.oldest_original.filter(|_| !delivered.has_retransmitted)
        else {
            return;
        };
        let samples = self.flight.outstanding() / (2 * u64::from(self.mss));
        self.rtt.sample(now, now.since(oldest), samples.max(1));
    }

    fn handle_probe_answer(
        &mut self,
        ack: &Ack,
        duplicate: Option<Range<u64>>,
        is_repeat: bool,
    ) -> bool {
        let is_duplicate_reported = duplicate.is_some();
        let was_pending = self.probe.is_pending();
        let answer = ProbeAck { acknowledged: ack.upto, duplicate, is_bare_duplicate: is_repeat };
        let is_repair = self.probe.on_ack(&answer);
        if is_duplicate_reported && !was_pending {
            self.rack.on_duplicate_report(&self.flight);
        }
        is_repair
    }

    /// Was the last reduction a mistake? Then it is undone.
    fn judge_reduction(&mut self, ack: &Evidence<'_>) {
        // Nothing was reduced, or nobody can find fault with it any more.
        let Some(reduction) = &mut self.reduction else { return };
        match reduction.judge(ack) {
            Verdict::Stands if reduction.is_open(ack.upto) => {}
            Verdict::Stands => self.reduction = None,
            Verdict::Genuine => self.controller.limit(3 * self.mss),
            Verdict::Spurious => {
                self.undone = self.undone.wrapping_add(1);
                self.undo_reduction();
            }
        }
    }

    /// The window is what it was before it was reduced, and what was lost was late.
    fn undo_reduction(&mut self) {
        if let Some(reduction) = self.reduction.take() {
            self.controller.restore(reduction.saved());
        }
        if !matches!(self.recovery, Recovery::No) {
            self.flight.forget_losses();
            self.recovery = Recovery::No;
        }
    }

    /// What is lost now, and when what is late will be.
    fn find_lost(&mut self, now: Instant, is_repeat: bool, delivered: &Delivered) -> Losses {
        if self.sack {
            let is_recovering = !matches!(self.recovery, Recovery::No);
            let path = self.path();
            return self.rack.detect(now, &mut self.flight, &path, is_recovering);
        }
        // RFC 6582: three repetitions, and each acknowledgement in a recovery
        // that does not end it, say that the first segment is lost. After a time-out
        // repetitions say nothing: they may be of what was sent again.
        let may_count = is_repeat && !matches!(self.recovery, Recovery::Loss { .. });
        let most = self.flight.outstanding().div_ceil(u64::from(self.mss)).saturating_sub(1);
        if may_count && u64::from(self.repeats) < most {
            self.repeats += 1;
        }
        let is_partial = match self.recovery {
            Recovery::Fast(ref fast) => {
                delivered.acknowledged > 0 && self.acknowledged() < fast.end
            }
            Recovery::No => is_repeat && self.repeats == 3,
            Recovery::Loss { .. } => false,
        };
        let first = self.flight.first().filter(|first| is_partial && !first.is_sacked());
        let Some(start) = first.map(super::flight::Record::start) else { return Losses::default() };
        let end = self.lost_end(start, start + u64::from(self.mss));
        Losses { bytes: self.flight.mark_lost(start..end), recheck_at: None }
    }

    /// Something new was acknowledged. Of the segments that repetitions told of it
    /// covers some: all but the one that was missing.
    fn forget_repeats(&mut self, acknowledged: u64) {
        let is_partial = match self.recovery {
            Recovery::Fast(ref fast) => self.acknowledged() < fast.end,
            Recovery::No | Recovery::Loss { .. } => false,
        };
        let segments = acknowledged.div_ceil(u64::from(self.mss)).saturating_sub(1);
        let covered =
            if is_partial { u32::try_from(segments).unwrap_or(u32::MAX) } else { u32::MAX };
        self.repeats = self.repeats.saturating_sub(covered);
    }

    /// The other side had no memory for what came, and has some now. Nothing was
    /// congested and nothing got lost; what left long enough ago leaves again at once.
    fn send_again(&mut self, now: Instant) -> u64 {
        self.give_up_mtu_probe();
        self.progress_at = now;
        self.rtt.end_back_off();
        if matches!(self.recovery, Recovery::Loss { .. }) {
            self.undo_reduction();
        }
        self.probe.forget();
        self.is_probe_due = false;
        let path = self.path();
        self.rack.on_timeout(now, &mut self.flight, &path)
    }

    /// What is under way from here on did not arrive, and nothing was congested.
    pub(super) fn send_again_from(&mut self, now: Instant, position: u64) {
        self.give_up_mtu_probe();
        if self.flight.mark_lost(position..self.flight.next()) > 0 {
            self.probe.forget();
            self.is_probe_due = false;
            self.arm(now, None);
        }
    }

    fn path(&self) -> Path {
        Path {
            smoothed: self.rtt.smoothed().unwrap_or_default(),
            least: self.rtt.least().unwrap_or_default(),
            mss: self.mss,
        }
    }

    fn enter_recovery(&mut self, before: &Before) {
        self.reduction = Some(Box::new(Reduction::new(self.controller.save())));
        self.controller.on_congestion(before.outstanding);
        let flight = before.outstanding.saturating_sub(before.sacked);
        let prr = Prr::new(flight, self.controller.slow_start_threshold(), self.mss);
        let fast = FastRecovery { end: self.flight.next(), prr };
        self.recovery = Recovery::Fast(Box::new(fast));
    }

    /// RFC 3168, 6.1.2: a mark counts as a loss, once for what was under way.
    fn handle_mark(&mut self, ack: &Ack, delivered: &Delivered, before: &Before) -> bool {
        if ack.is_marked {
            return self.handle_marks(ack, delivered, before);
        }
        self.controller.count_marks(delivered.acknowledged, 0, ack.upto, self.flight.next());
        false
    }

    /// Something of what was sent may have been marked.
    #[cold]
    fn handle_marks(&mut self, ack: &Ack, delivered: &Delivered, before: &Before) -> bool {
        let (bytes, sent) = (delivered.acknowledged, self.flight.next());
        let covered = Covered { upto: ack.upto, at: ack.at, bytes: delivered.bytes, sent };
        let marks = match &mut self.accurate {
            Some(accurate) => accurate.count(&covered),
            None => Marks { any: true, bytes },
        };
        self.controller.count_marks(bytes, marks.bytes, ack.upto, sent);
        let counts =
            marks.any && ack.upto >= self.marks_from && matches!(self.recovery, Recovery::No);
        if counts {
            // A mark is never a mistake: there is nothing to undo.
            self.reduction = None;
            self.controller.on_mark(before.outstanding);
            self.marks_from = self.flight.next() + 1;
        }
        counts
    }

    /// Ends a recovery that is over, and moves the window.
    fn grow(&mut self, now: Instant, ack: &Ack, delivered: &Delivered, before: &Before, lost: u64) {
        let end = match self.recovery {
            Recovery::Fast(ref fast) => Some(fast.end),
            Recovery::Loss { end } => Some(end),
            Recovery::No => None,
        };
        let bytes = self.growth(delivered);
        if end.is_some_and(|end| self.acknowledged() >= end) {
            self.recovery = Recovery::No;
            self.rack.on_recovery_end();
            let sent = self.flight.next();
            if let Some(reduction) = &mut self.reduction {
                reduction.recovery_ended(sent);
            }
        }
        // What repetitions told of is not delivered once more when it is acknowledged.
        let told = before.repeated.saturating_sub(self.repeated_bytes());
        let repeated = self.repeated_bytes().saturating_sub(before.repeated);
        let pipe = self.pipe();
        if let Recovery::Fast(fast) = &mut self.recovery {
            fast.prr.on_ack(&Delivery {
                bytes: delivered.bytes.saturating_sub(told) + repeated,
                pipe,
                is_safe: delivered.acknowledged > 0 && lost == 0,
            });
        } else if bytes > 0 {
            let smoothed = self.rtt.smoothed().unwrap_or_default();
            self.controller.on_ack(&Progress {
                now,
                bytes,
                acknowledged: ack.upto,
                next: self.flight.next(),
                rtt: delivered.newest_original.map(|sent| now.since(sent.at)),
                smoothed,
                in_flight: before.pipe,
                is_window_limited: ack.upto <= self.limited_upto,
            });
        }
    }

    /// What the window may grow by: what was acknowledged by its number (RFC 5681, 3.1).
    /// Something that came behind a hole may mean that the path is congested.
    ///
    /// After a time-out most of what an acknowledgement covers was there before, and says
    /// nothing about what the path carries now: there it is what is known to be there for
    /// the first time, and a segment each time where nobody can tell (RFC 3465, 2.3).
    fn growth(&self, delivered: &Delivered) -> u64 {
        match self.recovery {
            Recovery::Loss { .. } if self.sack => delivered.acknowledged.min(delivered.bytes),
            Recovery::Loss { .. } => delivered.acknowledged.min(u64::from(self.mss)),
            // A recovery leads to the threshold, and ends there (RFC 6582, 3.2).
            Recovery::Fast(_) => 0,
            Recovery::No => delivered.acknowledged,
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
        self.arm_probe(now);
    }

    /// Has a probe leave before the retransmission time-out, where one may.
    #[inline]
    pub(super) fn arm_probe(&mut self, now: Instant) {
        let may_probe = self.sack
            && matches!(self.recovery, Recovery::No)
            && self.flight.sacked_bytes() == 0
            && !self.is_probe_due;
        if !may_probe {
            return;
        }
        let (smoothed, timeout) = (self.rtt.smoothed(), self.retransmit_at);
        let probe = self.probe.deadline(now, &self.flight, smoothed, self.mss, timeout);
        if let Some(at) = probe {
            let waits = if at < timeout { Waits::Probe } else { Waits::Retransmit };
            self.timer = Some((at, waits));
        }
    }

    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        self.retransmit_at = now + self.timeout();
        self.timer = Some((self.retransmit_at, Waits::Retransmit));
    }

    /// Time passed. True: nobody answers any more.
    pub(super) fn handle_timeout(&mut self, now: Instant, config: &TcpConfig) -> bool {
        if let Some(pacer) = &mut self.pacer {
            pacer.handle_timeout(now);
        }
        // It is early: nothing is due.
        let Some((_, waits)) = self.timer.filter(|(at, _)| *at <= now) else { return false };
        self.timer = None;
        match waits {
            Waits::Reorder => {
                let before = self.before();
                let is_recovering = !matches!(self.recovery, Recovery::No);
                let path = self.path();
                let Losses { bytes: lost, recheck_at: late } =
                    self.rack.detect(now, &mut self.flight, &path, is_recovering);
                let is_excused = self.mtu_probe.is_some() && self.judge_mtu_probe();
                if lost > 0 && !is_excused && !is_recovering {
                    self.enter_recovery(&before);
                    // What was delivered when it was found late has been counted.
                    if let Recovery::Fast(fast) = &mut self.recovery {
                        let pipe = self.flight.pipe().saturating_sub(before.repeated);
                        fast.prr.on_ack(&Delivery { bytes: 0, pipe, is_safe: false });
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
            sacked: self.flight.sacked_bytes() + self.repeated_bytes(),
            repeated: self.repeated_bytes(),
        }
    }

    /// How often the time-out ran out since something new was acknowledged.
    pub(super) const fn time_outs_in_a_row(&self) -> u8 {
        self.rtt.time_outs()
    }

    /// Was a segment as long as may be sent in vain so often that it may be its length? Asked
    /// whenever the time-out ran out.
    pub(super) fn suspects_black_hole(&self) -> bool {
        let in_vain = self.rtt.time_outs();
        let is_often = in_vain > 0 && in_vain.is_multiple_of(R1);
        let first = self.flight.first().map_or(0, |first| first.end() - first.start());
        is_often && first >= u64::from(self.mss)
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
        self.give_up_mtu_probe();
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
        let sent = self.flight.next();
        match &mut self.reduction {
            Some(reduction) if is_repeated => reduction.timed_out_again(),
            _ => {
                let saved = self.controller.save();
                let reduction = Reduction::timed_out(saved, sent, self.has_timestamps);
                self.reduction = Some(Box::new(reduction));
            }
        }
        self.controller.on_timeout(outstanding, is_repeated);
        self.recovery = Recovery::Loss { end: sent };
        self.repeats = 0;
        self.probe.forget();
        self.is_probe_due = false;
        self.rtt.back_off();
        self.arm_retransmission(now);
        false
    }

    /// The other side is there: a closed window is no reason to give up, nor is want of
    /// memory for messages (`waits_for_memory`), which closes no window.
    pub(super) fn heard(&mut self, now: Instant, waits_for_memory: bool) {
        if waits_for_memory || self.flight.is_empty() {
            self.progress_at = now;
        }
    }
}

/// The sums before an acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Before {
    pipe: u64,
    outstanding: u64,
    /// What came behind holes, as blocks or repetitions told.
    sacked: u64,
    repeated: u64,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckOutcome {
    /// Bytes that need no repetition any more.
    pub(super) acknowledged: u64,
    /// The window was reduced for a mark.
    pub(super) reduced: bool,
}

/// How much earlier than it says a clock of milliseconds may have been read.
pub(super) const CLOCK_STEP: Duration = Duration::from_millis(1);
