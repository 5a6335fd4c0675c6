//! The engine as the driver inside sees it: its units meet their fate in `poll_transmit`.

use landfall_placement::{
    Engine, Instant, PathId, Placement, Refusal, Span, Spans, Ticket, Transmit, Unit,
    delegate_engine,
};

use super::{MAX_HELD, State};
use crate::exchange::SEND_HEAD_ROOM;

/// A unit that leaves later.
#[derive(Debug)]
pub(super) struct Held {
    /// At this moment at the latest,
    pub(super) due: Instant,
    /// or once this many units have passed.
    after: u64,
    path: PathId,
    head: [u8; SEND_HEAD_ROOM],
    spans: Vec<Span>,
    transmit: Transmit,
}

/// How long a reordered unit waits for successors that may never come.
const PATIENCE: landfall_placement::Duration = landfall_placement::Duration::from_millis(2);
/// A reordered unit lets this many successors pass, at most.
const STEPS_BACK: u64 = 16;
/// This many units are lost in one call at most, then the driver gets a breath.
const LOSSES_PER_CALL: usize = 1024;

/// An engine behind faults.
pub(super) struct Layer<'a, E> {
    pub(super) engine: &'a mut E,
    pub(super) state: &'a mut State,
}

impl<E: Engine> Layer<'_, E> {
    /// A held unit whose time has come.
    fn release(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let passed = self.state.passed;
        let is_ready = |held: &Held| held.path == path && (held.due <= now || held.after <= passed);
        let index = self.state.held.iter().position(is_ready)?;
        let held = self.state.held.remove(index)?;
        let head_len = usize::from(held.transmit.head_len);
        head[..head_len].copy_from_slice(&held.head[..head_len]);
        for span in &held.spans {
            from.push(*span).ok()?;
        }
        Some(held.transmit)
    }

    /// Flips one bit of a unit, after its checksum was filled in as it should
    /// be. Returns the scratch slot that holds the payload now, if it was hit.
    fn corrupt(&mut self, unit: &mut Transmit, head: &mut [u8], from: &mut Spans) -> Option<u32> {
        let state = &mut *self.state;
        let head = &mut head[..usize::from(unit.head_len)];
        let payload = state.pins.sum(from).ok()?;
        if let Some(slot) = unit.checksum.take() {
            slot.fill(head, payload);
        }
        // What was only summed is not sent, and cannot be hit.
        from.truncate(from.total_len().checked_sub(u64::from(unit.sum_only))?);
        unit.sum_only = 0;
        state.counts.corrupted += 1;
        let payload_len = from.total_len();
        let bit = state.random.below((head.len() as u64 + payload_len) * 8);
        let (byte, mask) = ((bit / 8) as usize, 1u8 << (bit % 8));
        if let Some(byte) = head.get_mut(byte) {
            *byte ^= mask;
            return None;
        }
        let slot = state.scratch_free.pop();
        let Some(slot) = slot.filter(|_| payload_len <= u64::from(state.unit)) else {
            state.scratch_free.extend(slot);
            head[0] ^= mask;
            return None;
        };
        let mut bytes = vec![0; payload_len as usize];
        let mut at = 0;
        for span in from.iter() {
            let end = at + span.len as usize;
            // Not readable means not sendable either: the driver will find out.
            if state.pins.copy_out(span, &mut bytes[at..end]).is_err() {
                state.scratch_free.push(slot);
                return None;
            }
            at = end;
        }
        bytes[byte - head.len()] ^= mask;
        let place = state.scratch.span(u64::from(slot) * u64::from(state.unit), payload_len as u32);
        if state.pins.copy_in(&place, &bytes).is_err() {
            state.scratch_free.push(slot);
            return None;
        }
        from.clear();
        from.push(place).ok()?;
        Some(slot)
    }

    fn hold(
        &mut self,
        due: Instant,
        after: u64,
        unit: Transmit,
        head: &[u8],
        from: &Spans,
        path: PathId,
    ) {
        let mut copy = [0; SEND_HEAD_ROOM];
        let head_len = usize::from(unit.head_len);
        copy[..head_len].copy_from_slice(&head[..head_len]);
        let spans = from.to_vec();
        self.state.held.push_back(Held { due, after, path, head: copy, spans, transmit: unit });
    }

    /// What becomes of a unit. None: it does not leave now.
    fn meet_fate(
        &mut self,
        now: Instant,
        path: PathId,
        mut unit: Transmit,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let faults = self.state.faults;
        self.state.counts.units += 1;
        if self.state.random.chance(faults.loss) {
            self.state.counts.lost += 1;
            self.engine.handle_sent(now, unit.ticket);
            return None;
        }
        // What is sealed is damaged behind the seal: see `seal`.
        let scratch = if !self.engine.seals() && self.state.random.chance(faults.corruption) {
            self.corrupt(&mut unit, head, from)
        } else {
            None
        };
        let room = self.state.held.len() + 2 <= MAX_HELD;
        let twice = room && self.state.random.chance(faults.duplication);
        let late = room && self.state.random.chance(faults.reordering);
        unit.ticket = self.state.originals.insert(unit.ticket, 1 + u32::from(twice), scratch);
        self.state.passed += 1;
        let due = now + faults.delay;
        if twice {
            self.state.counts.duplicated += 1;
            let after = self.state.passed + self.state.random.below(STEPS_BACK);
            self.hold(due + PATIENCE, after, unit, head, from, path);
        }
        if late {
            self.state.counts.reordered += 1;
            let after = self.state.passed + 1 + self.state.random.below(STEPS_BACK);
            self.hold(due + PATIENCE, after, unit, head, from, path);
            return None;
        }
        if room && !faults.delay.is_zero() {
            self.state.counts.delayed += 1;
            self.hold(due, u64::MAX, unit, head, from, path);
            return None;
        }
        Some(unit)
    }
}

impl<E: Engine> Engine for Layer<'_, E> {
    type Event = E::Event;

    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if self.state.random.chance(self.state.faults.loss_at_place) {
            self.state.counts.lost_at_place += 1;
            return Err(Refusal::Injected);
        }
        self.engine.place(now, unit, into)
    }

    fn place_opened(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if self.state.random.chance(self.state.faults.loss_at_place) {
            self.state.counts.lost_at_place += 1;
            return Err(Refusal::Injected);
        }
        self.engine.place_opened(now, unit, into)
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if let Some(unit) = self.release(now, path, head, from) {
            return Some(unit);
        }
        for _ in 0..LOSSES_PER_CALL {
            from.clear();
            let unit = self.engine.poll_transmit(now, path, head, from)?;
            if let Some(unit) = self.meet_fate(now, path, unit, head, from) {
                return Some(unit);
            }
        }
        None
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        if let Some((ticket, scratch)) = self.state.originals.one_left(ticket) {
            self.state.scratch_free.extend(scratch);
            self.engine.handle_sent(now, ticket);
        }
    }

    fn seal(&mut self, head: &mut [u8], payload: &mut [u8]) -> bool {
        let is_sealed = self.engine.seal(head, payload);
        let state = &mut *self.state;
        if is_sealed && state.random.chance(state.faults.corruption) {
            state.counts.corrupted += 1;
            let bit = state.random.below((head.len() + payload.len()) as u64 * 8);
            let mut bytes = head.iter_mut().chain(payload);
            if let Some(byte) = bytes.nth((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
        is_sealed
    }

    delegate_engine! { |this| this.engine =>
        handle_path, awaits_first_answer, handle_unreachable, guess, open_run, handle_placed,
        poll_deposit, handle_timeout, poll_timeout, poll_event, refusals, seals, open,
        places_unverified, name_in, handle_false_name,
    }
}
