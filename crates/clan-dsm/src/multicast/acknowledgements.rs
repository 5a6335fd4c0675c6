//! What members say that they have, and what is sent to them again.

use alloc::vec::Vec;

use landfall_congestion::{Arrived, Window};
use landfall_placement::{Duration, Instant, Refusal, Serial32};

use super::member::{Repair, queue_again};
use super::sender::{LEAST_PATIENCE, MOST_REPAIRS, REORDERING};
use super::{GroupSender, GroupUpdate, Mode, Patience};
use crate::address::HostId;
use crate::link::SenderConfig;
use crate::wire::frame::{FrameFlags, FrameHeader};

impl GroupSender {
    /// A member says what it has. `is_started`: of the stream, not only of the address.
    ///
    /// # Errors
    /// It has what was never sent, or is no member.
    pub(crate) fn handle_ack(
        &mut self,
        config: &SenderConfig,
        now: Instant,
        host: HostId,
        header: &FrameHeader,
        more_sack: &[u8],
    ) -> Result<(), Refusal> {
        let is_late = header.flags.has(FrameFlags::LATE);
        let next = self.next();
        let member = self.members.get_mut(&host).ok_or(Refusal::UnknownId)?;
        member.heard = now;
        if member.mode == Mode::Invited {
            member.mode = Mode::Reachable;
        }
        if header.credit == 0 {
            // It hears the address, and has nothing of the stream.
            return Ok(());
        }
        let ack = Serial32(header.ack);
        if next.precedes(ack) {
            return Err(Refusal::OutOfBounds);
        }
        if ack.precedes(member.acked) {
            return Ok(());
        }
        let marked = (1..128).contains(&header.marks.wrapping_sub(member.marks));
        if marked {
            member.marks = header.marks;
        }
        let mut arrived = Vec::new();
        for n in 0..ack.since(member.acked).min(member.unacked.len() as u32) {
            arrived.push(n);
        }
        let mut newest = None;
        let later = more_sack.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word));
        let ahead = ack.since(member.acked);
        for (nth, mut word) in core::iter::once(header.sack).chain(later).enumerate() {
            while word != 0 {
                let n = ahead + nth as u32 * 64 + word.trailing_zeros() + 1;
                word &= word - 1;
                if (n as usize) < member.unacked.len() {
                    arrived.push(n);
                    newest = Some(n);
                }
            }
        }
        for n in arrived {
            self.note_arrived(config, now, host, n, marked, is_late);
        }
        self.release(host, ack);
        if let Some(newest) = newest.and_then(|newest| newest.checked_sub(ahead)) {
            self.find_lost(config, now, host, newest);
        }
        self.settle(host);
        self.drop_flights();
        Ok(())
    }

    /// A member has the frame that is this many behind the first that it was not known to have.
    fn note_arrived(
        &mut self,
        config: &SenderConfig,
        now: Instant,
        host: HostId,
        n: u32,
        marked: bool,
        is_late: bool,
    ) {
        // It left while it was heard.
        let Some(member) = self.members.get_mut(&host) else { return };
        let seq = member.acked.plus(n);
        // It is none of those that are waited for.
        let Some(unacked) = member.unacked.get_mut(n as usize) else { return };
        if core::mem::replace(&mut unacked.has_arrived, true) {
            return;
        }
        (member.since, member.backoff) = (now, 0);
        for bytes in &unacked.frame.notes {
            self.updates.push_back(GroupUpdate::Touched(*bytes));
        }
        if !core::mem::take(&mut unacked.is_counted) {
            return;
        }
        // All that are waited for with it have it.
        let Some(flight) = self.flights.get_mut(seq.since(self.first) as usize) else { return };
        flight.waiting -= 1;
        if flight.waiting > 0 {
            return;
        }
        // Now all have it: the window is that of the slowest.
        let (bytes, under_way) = (flight.frame.len(), self.under_way);
        if let Some(sent) = flight.sent {
            self.under_way -= bytes;
            let timed = !flight.was_repaired && !is_late;
            let arrived = Arrived { bytes, sent, timed, marked, under_way };
            self.window_bytes.handle_arrived(&config.congestion, now, &arrived);
        }
    }

    /// Frames before this one are no longer kept for a member.
    fn release(&mut self, host: HostId, ack: Serial32) {
        // It left while it was heard.
        let Some(member) = self.members.get_mut(&host) else { return };
        while member.acked.precedes(ack) {
            match member.unacked.pop_front() {
                Some(unacked) => member.bytes -= unacked.frame.len(),
                // It has heard what was meant for others.
                None => {
                    member.acked = ack;
                    break;
                }
            }
            member.acked = member.acked.plus(1);
        }
        if member.unacked.is_empty() && member.mode == Mode::Draining {
            member.mode = Mode::Reachable;
        }
    }

    /// What later frames have overtaken by a margin is sent again.
    fn find_lost(&mut self, config: &SenderConfig, now: Instant, host: HostId, newest: u32) {
        let patience = self.reorder_patience();
        // It left while it was heard.
        let Some(member) = self.members.get_mut(&host) else { return };
        let before = newest.saturating_sub(REORDERING - 1);
        let mut lost = 0;
        for (n, unacked) in (0..before).zip(&mut member.unacked) {
            let is_recent =
                unacked.repairs > 0 && unacked.sent.is_some_and(|sent| now.since(sent) <= patience);
            if unacked.has_arrived || unacked.is_queued || is_recent || lost >= MOST_REPAIRS {
                continue;
            }
            lost += 1;
            unacked.is_queued = true;
            let seq = member.acked.plus(n);
            self.repairs.push_back(Repair { member: host, seq });
            if let Some(sent) = unacked.sent.filter(|_| config.yields && unacked.repairs == 0) {
                let len = unacked.frame.len();
                self.window_bytes.handle_lost(&config.congestion, now, sent, len);
            }
        }
    }

    fn reorder_patience(&self) -> Duration {
        let smoothed = self.window_bytes.rtt().smoothed().unwrap_or_default();
        (smoothed * 9 / 8).max(LEAST_PATIENCE)
    }

    // Time.

    /// Sends again what should have been acknowledged, and finds out who holds the others up.
    pub(crate) fn handle_timeout(&mut self, config: &SenderConfig, limits: Patience, now: Instant) {
        self.held_until = self.held_until.filter(|at| *at > now);
        if let Some(probe) = self.probe.as_mut().filter(|probe| probe.at <= now) {
            probe.is_due = true;
        }
        if self.check_at.is_none_or(|at| at > now) {
            return;
        }
        let left = self.first.plus(self.left as u32);
        let attached = self.attached();
        let (mut late, mut silent, mut next) = (0, Vec::new(), None::<Instant>);
        let mut backoffs = Vec::new();
        for (host, member) in &mut self.members {
            if member.unacked.is_empty() {
                continue;
            }
            let has_left = member.acked.precedes(left);
            if !has_left {
                // The window holds it back.
                member.since = now;
            }
            let due = member.since + patience(&self.window_bytes, config, member.backoff);
            if due <= now {
                member.backoff = member.backoff.saturating_add(1);
                member.since = now;
                late += usize::from(member.mode == Mode::Attached);
                if member.is_silent() {
                    silent.push(*host);
                }
                let is_over = now.since(member.heard) >= limits.silence;
                if member.backoff > limits.give_up_after && is_over {
                    self.updates.push_back(GroupUpdate::Silent { member: *host });
                }
                backoffs.push(member.backoff);
                queue_again(&mut self.repairs, *host, member, left);
            }
            let due = member.since + patience(&self.window_bytes, config, member.backoff);
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        self.check_at = next;
        if late > 0 && late == attached && config.yields {
            let nth = backoffs.into_iter().min().unwrap_or(1);
            self.window_bytes.handle_silence(&config.congestion, now, nth);
            self.paced = now;
        }
        silent.into_iter().for_each(|host| self.wait_no_longer(host));
    }
}

/// How long an acknowledgement may take after this many time-outs (RFC 6298, 2.3).
pub(super) fn patience(window: &Window, config: &SenderConfig, backoff: u8) -> Duration {
    let rtt = window.rtt();
    let once = match (rtt.smoothed(), rtt.variation()) {
        (Some(smoothed), Some(variation)) => {
            smoothed.saturating_add(variation.saturating_mul(4)).max(config.retry_floor)
        }
        _ => config.retry_after,
    };
    once.saturating_mul(1 << backoff.min(4))
}
