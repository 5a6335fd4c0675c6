//! [`Sender`]: the sender's half of a connection: what was sent, what the other
//! side has, and what may leave now.
//!
//! What acknowledgements and time do to it is in `recovery`.

use alloc::boxed::Box;
use core::num::NonZeroU64;

use landfall_placement::{Duration, Instant, Serial32};

use super::accurate_ecn::AccurateEcn;
use super::config::TcpConfig;
use super::congestion::{Controller, Prr};
use super::flight::Flight;
use super::listen::Terms;
use super::mtu_probe::MtuProbe;
use super::pacing::Pacer;
use super::rack::{LossProbe, Rack};
use super::rtt::{RoundTrip, TimeoutLimits};
use super::spurious::{ForwardPlan, Reduction};

/// Whether something that was lost is being repaired.
#[derive(Clone, Debug)]
pub(super) enum Recovery {
    No,
    /// Later data has arrived: fast recovery. In a place of its own: few connections are in one
    /// at a time.
    Fast(Box<FastRecovery>),
    /// The time-out ran out: slow start from one segment, until then.
    Loss {
        end: u64,
    },
}

/// A fast recovery.
#[derive(Clone, Debug)]
pub(super) struct FastRecovery {
    /// It is over when this position is acknowledged.
    pub(super) end: u64,
    pub(super) prr: Prr,
}

/// What the one timer of the sender waits for (RFC 8985, 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// For what is late to count as lost.
    Reorder,
    /// To probe whether the last of what is under way arrived.
    Probe,
    /// To send again what nobody answers.
    Retransmit,
    /// To ask a closed window whether it is open.
    Persist,
}

/// A range of the stream that leaves now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) is_again: bool,
    /// It is longer than the path is known to carry.
    pub(super) probes_path: bool,
}

/// How much one segment may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The payload of one segment.
    pub(super) mss: u32,
    /// The payload of what a device cuts into several; at least `mss`.
    pub(super) most: u32,
    /// The payload of a segment that probes the path; no more than `mss` where none is to.
    pub(super) probe: u32,
    /// A message is one segment, however long.
    pub(super) whole_messages: bool,
    /// What is shorter than a segment waits for what is under way.
    pub(super) corks: bool,
    /// New data leaves at a rate.
    pub(super) paces: bool,
}

/// What there is to send, as the queue has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Posted {
    /// Where the posted data ends.
    pub(super) end: u64,
    /// The stream ends there too.
    pub(super) is_last: bool,
}

/// The segment that the offered window was taken from (SND.WL1 and SND.WL2 of RFC 9293).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowUpdate {
    /// Its position.
    pub(super) at: u64,
    /// What it acknowledged.
    pub(super) upto: u64,
}

/// The sender's half.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The number of our opening.
    first: Serial32,
    pub(super) flight: Flight,
    pub(super) rack: Rack,
    pub(super) probe: LossProbe,
    pub(super) rtt: RoundTrip,
    /// The time-out is never shorter, in milliseconds.
    least_timeout: u32,
    pub(super) controller: Controller,
    pub(super) recovery: Recovery,
    /// The last reduction of the window, as long as it may turn out to have been a mistake.
    pub(super) reduction: Option<Box<Reduction>>,
    /// Both sides send timestamps.
    pub(super) has_timestamps: bool,
    /// The right edge of the window that is offered to us.
    pub(super) window_end: u64,
    /// The segment that said so.
    pub(super) window_update: WindowUpdate,
    /// The largest window that was ever offered.
    pub(super) widest: u32,
    pub(super) scale: u8,
    pub(super) sack: bool,
    pub(super) mss: u32,
    pub(super) timer: Option<(Instant, Waits)>,
    /// A segment that is longer than the path is known to carry.
    pub(super) mtu_probe: Option<Box<MtuProbe>>,
    /// There is one where new data leaves at a rate, and something has left.
    pub(super) pacer: Option<Box<Pacer>>,
    /// When the retransmission time-out ends. New data does not put it off (RFC 6298,
    /// 5.1), while it does put off the probe.
    pub(super) retransmit_at: Instant,
    pub(super) persists: u8,
    /// When something was acknowledged last, or the first byte left.
    pub(super) progress_at: Instant,
    /// When data left last.
    pub(super) sent_at: Instant,
    /// The congestion window alone kept something back when so much had been
    /// sent: what of it is acknowledged shows that the window was used. (Several
    /// acknowledgements may come before something is sent again.)
    pub(super) limited_upto: u64,
    pub(super) is_probe_due: bool,
    pub(super) is_window_probe_due: bool,
    /// A small segment may leave, although the window has no room for more.
    pub(super) may_be_small: bool,
    /// Segments that have left the network since the last acknowledgement of something
    /// new, each of which made the other side repeat it: all that is known of what came
    /// behind a hole, where there are no blocks.
    pub(super) repeats: u32,
    /// Marks count again from this position on.
    pub(super) marks_from: u64,
    /// Where both sides count marks (RFC 9768): what is known of that, also as a receiver.
    pub(super) accurate: Option<Box<AccurateEcn>>,
    /// The position of the FIN, once it was sent: the opening is in front of it.
    pub(super) fin: Option<NonZeroU64>,
    pub(super) retransmitted: u32,
    pub(super) timeouts: u32,
    /// Reductions of the window that were undone.
    pub(super) undone: u32,
}

impl Sender {
    pub(crate) fn new(now: Instant, config: &TcpConfig, terms: &Terms) -> Self {
        let mss = u32::from(terms.remote_mss);
        // Records are super-segments or segments of at least 536 bytes.
        let records = (config.most_under_way / 536).clamp(64, 1 << 17);
        Self {
            first: Serial32(terms.local_first),
            flight: Flight::new(1, records),
            rack: Rack::new(Duration::from_millis(1)),
            probe: LossProbe::default(),
            rtt: RoundTrip::default(),
            least_timeout: config.least_timeout.as_millis() as u32,
            controller: Controller::new(config.congestion, mss),
            recovery: Recovery::No,
            reduction: None,
            has_timestamps: terms.stamps.is_some(),
            window_end: 1,
            window_update: WindowUpdate::default(),
            widest: 0,
            scale: terms.remote_scale,
            sack: terms.sack,
            mss,
            timer: None,
            mtu_probe: None,
            pacer: None,
            retransmit_at: Instant::FAR_FUTURE,
            persists: 0,
            progress_at: now,
            sent_at: now,
            limited_upto: 0,
            is_probe_due: false,
            is_window_probe_due: false,
            may_be_small: false,
            repeats: 0,
            marks_from: 1,
            accurate: None,
            fin: None,
            retransmitted: 0,
            timeouts: 0,
            undone: 0,
        }
    }

    /// Our opening was marked: the window is smaller from the first on.
    pub(super) fn opening_was_marked(&mut self) {
        self.controller.on_mark(self.controller.initial_window());
    }

    /// Both sides count marks.
    pub(super) fn count_marks_of(&mut self, accurate: AccurateEcn) {
        self.accurate = Some(Box::new(accurate));
    }

    /// The round trip of the opening.
    pub(super) fn sample(&mut self, now: Instant, rtt: Duration) {
        self.rtt.sample(now, rtt, 1);
    }

    /// The opening had to be repeated (RFC 6298, 5.7, and 5681, 3.1).
    pub(super) fn opening_was_lost(&mut self) {
        self.rtt.syn_was_lost();
        self.controller.opening_was_lost();
    }

    /// The first position that is not acknowledged.
    #[inline]
    pub(crate) fn acknowledged(&self) -> u64 {
        self.flight.unacknowledged()
    }

    /// The number of what will be sent next.
    #[inline]
    pub(crate) const fn next_number(&self) -> u32 {
        self.number_of(self.flight.next())
    }

    #[inline]
    pub(super) const fn number_of(&self, position: u64) -> u32 {
        self.first.plus(position as u32).0
    }

    /// The position of a number, near what is acknowledged; negative in front
    /// of the stream.
    #[inline]
    pub(super) fn position_of(&self, number: u32) -> i64 {
        let base = self.acknowledged();
        let ahead = Serial32(number).offset_from(self.first.plus(base as u32));
        base as i64 + i64::from(ahead)
    }

    /// Is nothing under way?
    pub(super) fn is_idle(&self) -> bool {
        self.flight.is_empty()
    }

    /// The retransmission time-out.
    pub(super) fn timeout(&self) -> Duration {
        let least = Duration::from_millis(u64::from(self.least_timeout));
        self.rtt.timeout(&TimeoutLimits { least, ..TimeoutLimits::default() })
    }

    /// The smoothed round trip.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// The congestion window.
    pub(crate) fn congestion_window(&self) -> u64 {
        self.controller.window()
    }

    /// Segments that were sent more than once, and time-outs.
    pub(crate) const fn repetitions(&self) -> (u64, u64) {
        (self.retransmitted as u64, self.timeouts as u64)
    }

    /// Reductions of the window that turned out to be mistakes.
    pub(crate) const fn undone(&self) -> u64 {
        self.undone as u64
    }

    /// Bytes believed to be in the network (RFC 6675: `pipe`). Without blocks each
    /// repeated acknowledgement stands for a segment that has left it: so a segment more
    /// may leave for each of the first two (RFC 3042), and a recovery counts as with
    /// blocks.
    #[inline]
    pub(super) fn pipe(&self) -> u64 {
        self.flight.pipe().saturating_sub(self.repeated_bytes())
    }

    /// What repeated acknowledgements stand for; nothing where there are blocks.
    #[inline]
    pub(super) fn repeated_bytes(&self) -> u64 {
        u64::from(self.repeats) * u64::from(self.mss)
    }

    /// How many bytes may be under way now.
    #[inline]
    pub(super) fn allowance(&self) -> u64 {
        match &self.recovery {
            Recovery::Fast(fast) => fast.prr.window(),
            Recovery::No | Recovery::Loss { .. } => self.controller.window(),
        }
    }

    /// The segment size changed: of the path, or because the other side said so.
    #[inline]
    pub(super) fn set_mss(&mut self, mss: u32) {
        if mss != self.mss {
            self.mss = mss.max(1);
            self.controller.set_mss(self.mss);
        }
    }

    /// What leaves next, if something may. `message_end` says where the message
    /// ends that a position belongs to; none for a stream of bytes.
    #[inline]
    pub(super) fn plan(
        &mut self,
        now: Instant,
        posted: Posted,
        sizes: Sizes,
        message_end: impl Fn(u64) -> Option<u64>,
    ) -> Option<Plan> {
        self.set_mss(sizes.mss);
        let sizes = if sizes.paces { self.paced(sizes) } else { sizes };
        if self.flight.lost_bytes() > 0 {
            let (forward, new) = self.plan_forward(now, posted, sizes, &message_end);
            match forward {
                ForwardPlan::New => return new,
                ForwardPlan::Wait => return None,
                ForwardPlan::Lost => {}
            }
            let again = self.plan_again(sizes, &message_end);
            if again.is_some() {
                return again;
            }
        }
        self.plan_new(now, posted, sizes, &message_end).or_else(|| self.plan_probe(sizes))
    }

    /// Whether new data leaves in place of what is lost (RFC 5682), and which.
    fn plan_forward(
        &mut self,
        now: Instant,
        posted: Posted,
        sizes: Sizes,
        message_end: &impl Fn(u64) -> Option<u64>,
    ) -> (ForwardPlan, Option<Plan>) {
        let sent = self.flight.next();
        let forward = self.reduction.as_ref().map(|reduction| reduction.plan(sent, sizes.mss));
        if forward != Some(ForwardPlan::New) {
            return (forward.unwrap_or(ForwardPlan::Lost), None);
        }
        let new = self.plan_new(now, posted, sizes, message_end);
        match &mut self.reduction {
            Some(reduction) if new.is_none() => (reduction.has_no_new(sent), None),
            _ => (ForwardPlan::New, new),
        }
    }

    /// What is lost, lowest first.
    fn plan_again(
        &mut self,
        sizes: Sizes,
        message_end: &impl Fn(u64) -> Option<u64>,
    ) -> Option<Plan> {
        let pipe = self.pipe();
        let room = self.allowance().saturating_sub(pipe);
        // After a time-out the first segment leaves whatever else may still be
        // under way: nothing goes on without it.
        let is_first = matches!(self.recovery, Recovery::Loss { .. })
            && self.flight.first().is_some_and(super::flight::Record::is_lost);
        if room < u64::from(sizes.mss) && pipe > 0 && !is_first {
            return None;
        }
        let most = room.min(u64::from(sizes.most)).max(u64::from(sizes.mss));
        let most = if sizes.whole_messages { u64::MAX } else { most };
        let range = self.flight.next_lost(most)?;
        let cut = message_end(range.start).unwrap_or(range.end);
        // The FIN is behind the last message and goes with it.
        let takes_fin = self.fin == NonZeroU64::new(cut) && range.end > cut;
        // A message that is one segment is lost, and sent again, as one: without
        // SACK only a segment's worth of it may have been marked.
        let end = if sizes.whole_messages { cut } else { range.end.min(cut) };
        let end = end + u64::from(takes_fin);
        Some(Plan { start: range.start, end, is_again: true, probes_path: false })
    }

    /// What was never sent.
    fn plan_new(
        &mut self,
        now: Instant,
        posted: Posted,
        sizes: Sizes,
        message_end: &impl Fn(u64) -> Option<u64>,
    ) -> Option<Plan> {
        let start = self.flight.next();
        if start >= posted.end {
            let is_end = start == posted.end && posted.is_last && self.fin.is_none();
            let end = start + 1;
            return is_end.then_some(Plan { start, end, is_again: false, probes_path: false });
        }
        let cut = message_end(start).unwrap_or(posted.end);
        let is_end = cut == posted.end && posted.is_last;
        let end = self.reach(now, start, cut, is_end, sizes)?;
        if let Some(end) = self.mtu_probe_end(start, cut, posted.end, sizes) {
            return Some(Plan { start, end, is_again: false, probes_path: true });
        }
        let takes_fin = end == posted.end && posted.is_last;
        let end = end + u64::from(takes_fin);
        Some(Plan { start, end, is_again: false, probes_path: false })
    }

    /// How far a segment of new data may reach that would like to reach `cut`, where the
    /// stream may end (`is_end`).
    fn reach(
        &mut self,
        now: Instant,
        start: u64,
        cut: u64,
        is_end: bool,
        sizes: Sizes,
    ) -> Option<u64> {
        if !self.flight.has_room() || (sizes.paces && self.is_held_back(now, start)) {
            return None;
        }
        let pipe = self.pipe();
        if self.flight.pipe() == 0 {
            self.restart_after_idle(now);
        }
        let mss = u64::from(sizes.mss);
        let wanted = if sizes.whole_messages {
            cut - start
        } else {
            (cut - start).min(u64::from(sizes.most))
        };
        let offered = self.window_end.saturating_sub(start);
        if offered < wanted {
            // RFC 9293, 3.8.6.2.1: no silly small segments into a small window.
            let is_small = offered < mss && 2 * offered < u64::from(self.widest);
            let may_cut = !sizes.whole_messages && offered > 0;
            // What is missing may be no more than the unit of their window: then there
            // is room that they cannot tell us of before some of it is used.
            let is_rounded = pipe == 0 && wanted - offered < 1 << self.scale;
            let is_stuck = is_small && !is_rounded && !core::mem::take(&mut self.may_be_small);
            if !may_cut || is_stuck {
                self.wait_for_window(now);
                return None;
            }
        }
        let mut len = wanted.min(offered);
        let mut room = self.allowance().saturating_sub(pipe);
        if self.is_probe_due {
            // RFC 8985, 7.3: a probe of new data leaves however full the window of
            // congestion is: it is one segment in two round trips.
            room = room.max(mss);
        }
        if len > room {
            self.limited_upto = self.flight.next();
            if pipe > 0 {
                // Few large super-segments instead of many small ones, as long
                // as others keep the path busy.
                let is_worth_it = room >= mss && 4 * room >= len.min(self.allowance());
                if sizes.whole_messages || !is_worth_it {
                    return None;
                }
            }
            if !sizes.whole_messages {
                len = len.min((room / mss * mss).max(mss));
            }
        }
        if len > mss && start + len < cut && !sizes.whole_messages {
            len = len / mss * mss;
        }
        if sizes.corks && len < mss && pipe > 0 && !self.is_probe_due && !is_end {
            return None;
        }
        Some(start + len)
    }

    /// RFC 5681, 4.1: after a pause the old window says nothing.
    fn restart_after_idle(&mut self, now: Instant) {
        let (idle, timeout) = (now.since(self.sent_at), self.timeout());
        self.controller.on_idle(now, idle, timeout);
        if idle > timeout && self.flight.is_empty() {
            self.reduction = None;
        }
    }

    /// Nothing is under way, and nothing may be: somebody has to ask.
    fn wait_for_window(&mut self, now: Instant) {
        if self.flight.is_empty() && self.timer.is_none() {
            let wait = self.timeout() * (1 << self.persists.min(8));
            let at = now + wait.min(TimeoutLimits::default().most);
            self.timer = Some((at, Waits::Persist));
        }
    }

    /// The tail of what is under way, where the probe is due and nothing new
    /// could take its place (RFC 8985, 7.3).
    fn plan_probe(&mut self, sizes: Sizes) -> Option<Plan> {
        if !self.is_probe_due {
            return None;
        }
        let mss = if sizes.whole_messages { u32::MAX } else { sizes.mss };
        let Some(tail) = LossProbe::tail(&self.flight, mss) else {
            self.is_probe_due = false;
            return None;
        };
        Some(Plan { start: tail.start, end: tail.end, is_again: true, probes_path: false })
    }

    /// The plan was carried out, as far as `end`.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, plan: Plan, end: u64) {
        if plan.is_again {
            landfall_placement::trace!(from = plan.start, to = end, "retransmitted");
            self.flight.retransmitted(plan.start..end, now);
            self.retransmitted = self.retransmitted.wrapping_add(1);
            if let Some(reduction) = &mut self.reduction
                && !matches!(self.recovery, Recovery::No)
            {
                reduction.sent_again(now, plan.start..end);
            }
        } else {
            if self.flight.is_empty() {
                self.progress_at = now;
            }
            self.flight.push((end - plan.start) as u32, now);
        }
        if let Recovery::Fast(fast) = &mut self.recovery {
            fast.prr.on_sent(end - plan.start);
        }
        self.sent_at = now;
        if self.is_probe_due {
            self.is_probe_due = false;
            self.probe.on_sent(&self.flight, plan.is_again);
            self.arm_retransmission(now);
            return;
        }
        match self.timer {
            None | Some((_, Waits::Persist)) => self.arm(now, None),
            // RFC 8985, 7.2: with each transmission of new data the probe is put off.
            Some((_, Waits::Probe | Waits::Retransmit)) if !plan.is_again => self.arm_probe(now),
            Some(_) => {}
        }
    }

    /// So much left with our opening.
    pub(super) fn sent_first(&mut self, at: Instant, bytes: u32) {
        self.flight.push(bytes, at);
    }

    /// The end of the stream was sent.
    pub(super) fn sent_fin(&mut self, position: u64) {
        self.fin = NonZeroU64::new(position);
    }

    /// Has the other side heard the end?
    pub(super) fn is_end_acknowledged(&self) -> bool {
        self.fin.is_some_and(|fin| self.acknowledged() > fin.get())
    }

    /// Nothing of it matters any more.
    pub(super) fn stop(&mut self) {
        self.timer = None;
        self.pacer = None;
        self.mtu_probe = None;
        self.is_probe_due = false;
        self.is_window_probe_due = false;
    }

    /// When it wants [`handle_timeout`](Self::handle_timeout).
    #[inline]
    pub(super) fn deadline(&self) -> Instant {
        let timer = self.timer.map_or(Instant::FAR_FUTURE, |(at, _)| at);
        self.pacer.as_ref().map_or(timer, |pacer| timer.min(pacer.deadline()))
    }
}
