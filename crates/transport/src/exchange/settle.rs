//! Settling what came: ask for each unit's place, move what is displaced
//! aside, write it, and only then announce.

use std::mem;

use arrayvec::ArrayVec;
use landfall_placement::{
    Check, Engine, Heads, InternetSum, Landing, PathId, Placement, Refusal, RunPlacement, Span,
    Spans, Unit, UnitRun,
};

use super::inbox::{Arrival, Displaced, Inbox, Peeked, ScatteredUnit, Slot, Step};
use super::loose::Loose;
use super::{HEAD_ROOM, LONGEST, MAX_UNITS, Turn};
use crate::memory::Pins;

/// Where the bytes of a unit lie before they are settled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// Head in its scratch place, payload in the guessed span of this slot.
    Slot(usize),
    /// Among the loose bytes, from this one on. Those before `moved` were moved
    /// there by this process.
    Loose { from: usize, moved: usize },
}

/// One unit of an arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) source: Source,
    pub(super) len: usize,
}

impl Inbox {
    /// Hands an arrival to the engine. Returns the number of units in it.
    pub(crate) fn settle<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        mut peeked: Option<Box<Peeked>>,
    ) -> u32 {
        if !self.fits(arrival) {
            turn.counters.guessed_wrong += self.slots.len().min(arrival.units()) as u64;
            self.linearize(arrival.len, turn.pins);
        }
        let mut linear = mem::take(&mut self.linear);
        let came = if peeked.is_none() { &mut linear[..arrival.len] } else { &mut [] };
        let mut opened = mem::take(&mut self.opened);
        self.open_all(turn, arrival, came, &mut opened);
        let loose = Loose::from(&linear[..]);
        self.start_settling();
        let mut spans = self.asked.take().unwrap_or_default();
        let mut at = 0;
        let mut units = 0;
        for opened in &opened {
            self.ask_opened(turn, arrival, (opened, at..arrival.len, &loose), &mut spans);
            units += opened.len();
            at = arrival.len.min(at + opened.len() * arrival.unit_len);
        }
        while at < arrival.len || units == 0 {
            if peeked.is_none()
                && let Some(count) = self.ask_run(turn, arrival, (units, at), &loose)
            {
                units += count;
                at = arrival.len.min(at + count * arrival.unit_len);
                continue;
            }
            let len = arrival.unit_len.min(arrival.len - at);
            let source = if units < self.slots.len() {
                Source::Slot(units)
            } else {
                Source::Loose { from: at, moved: self.linearized }
            };
            let piece = Piece { source, len };
            self.ask(turn, arrival, (piece, &loose), peeked.take(), &mut spans);
            at += len.max(1);
            units += 1;
        }
        self.carry_out(turn, &loose);
        drop(loose);
        (self.linear, self.opened, self.asked) = (linear, opened, Some(spans));
        self.count_units(turn, units)
    }

    /// Hands units to the engine that came each by a list of its own, after
    /// [`post_each`](Self::post_each). Returns their number.
    pub(crate) fn settle_each<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        came: &[ScatteredUnit],
    ) -> u32 {
        let mut linear = mem::take(&mut self.linear);
        self.start_settling();
        let (right, wrong) = (turn.counters.guessed_right, turn.counters.guessed_wrong);
        let sources: ArrayVec<Source, MAX_UNITS> =
            came.iter().map(|came| self.source_of(turn, came, &mut linear)).collect();
        let opened = self.open_each(turn, came, &sources, &mut linear);
        let loose = Loose::from(&linear[..]);
        let mut spans = self.asked.take().unwrap_or_default();
        // Whether a unit of the first run missed, and one of those behind it.
        let (mut first, mut later) = (false, None);
        for (nth, (came, source)) in came.iter().zip(sources).enumerate() {
            if let (Some(Some(opened)), Source::Loose { from, .. }) = (opened.get(nth), source) {
                let lies = from..from + came.arrival.len;
                self.ask_opened(turn, &came.arrival, (opened, lies, &loose), &mut spans);
                continue;
            }
            let piece = Piece { source, len: came.arrival.len };
            let before = turn.counters.guessed_wrong;
            self.ask(turn, &came.arrival, (piece, &loose), None, &mut spans);
            let missed = turn.counters.guessed_wrong > before;
            if came.nth < self.first_run {
                first |= missed;
            } else {
                later = Some(missed || later == Some(true));
            }
        }
        let (right, wrong) =
            (turn.counters.guessed_right - right, turn.counters.guessed_wrong - wrong);
        if right + wrong > 0 {
            self.guesses.learn(wrong > right);
        }
        if let Some(missed) = later.filter(|_| !first) {
            self.later_runs.learn(missed);
        }
        self.carry_out(turn, &loose);
        drop(loose);
        (self.linear, self.asked) = (linear, Some(spans));
        self.count_units(turn, came.len())
    }

    /// Hands one unit to the engine whose bytes are the driver's.
    pub(crate) fn settle_loose<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        loose: &Loose<'_>,
    ) -> u32 {
        self.slots.clear();
        self.start_settling();
        let source = Source::Loose { from: 0, moved: 0 };
        let piece = Piece { source, len: arrival.len };
        self.ask(turn, arrival, (piece, loose), None, &mut Spans::new());
        self.carry_out(turn, loose);
        self.count_units(turn, 1)
    }

    fn start_settling(&mut self) {
        self.aside.clear();
        self.steps.clear();
        self.spans.clear();
    }

    fn count_units<E>(&mut self, turn: &mut Turn<'_, E>, units: usize) -> u32 {
        self.learn(units);
        turn.counters.units_received += units as u64;
        units as u32
    }

    /// Where the unit lies that came by the list of this number. What does not
    /// lie as its slot has it is made one piece again in its overflow buffer.
    fn source_of<E>(
        &mut self,
        turn: &mut Turn<'_, E>,
        came: &ScatteredUnit,
        linear: &mut [u8],
    ) -> Source {
        let start = came.nth * LONGEST;
        let from = start + came.skip;
        let Some(slot) = self.slots.get(came.nth) else {
            return Source::Loose { from, moved: start };
        };
        let all = came.skip + came.arrival.len;
        if came.skip == 0 && all <= slot.len() {
            return Source::Slot(came.nth);
        }
        turn.counters.guessed_wrong += 1;
        let moved = start + all.min(slot.len());
        slot.copy_out(&self.heads[came.nth], 0, turn.pins, &mut linear[start..moved]);
        Source::Loose { from, moved }
    }

    /// Asks for the place of one unit and notes what has to be done for it.
    fn ask<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        (piece, loose): (Piece, &Loose<'_>),
        peeked: Option<Box<Peeked>>,
        spans: &mut Spans,
    ) {
        spans.clear();
        let result = match peeked {
            Some(peeked) => {
                *spans = peeked.spans;
                peeked.result
            }
            None => self.place(turn, arrival, (piece, loose), spans),
        };
        match result {
            Ok(Placement::Into { at, check, ticket }) => {
                let at = usize::from(at);
                let landing = self.plan(turn, arrival, (piece, loose), (at, check), spans);
                let len = spans.total_len();
                self.steps.push(Step::Announce { ticket, landing, len });
            }
            Ok(Placement::Word(op, ticket)) => self.steps.push(Step::Word { ticket, op }),
            Ok(Placement::Consumed) => {}
            Ok(Placement::NeedHead(_)) => turn.counters.malformed += 1,
            Err(_) => turn.counters.refused += 1,
        }
    }

    /// Calls [`Engine::place`], with a longer head if the engine needs one.
    fn place<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        (piece, loose): (Piece, &Loose<'_>),
        spans: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let head = match piece.source {
            Source::Slot(n) => &self.heads[n][..self.slots[n].head_len.min(piece.len)],
            Source::Loose { from, .. } => loose.head(from, piece.len.min(HEAD_ROOM)),
        };
        let mut have = head.len();
        let unit = arrival.unit(self.path, head, piece.len);
        let mut result = turn.engine.place(turn.now, &unit, spans);
        while let Ok(Placement::NeedHead(want)) = result {
            let want = usize::from(want);
            if want <= have || want > piece.len {
                break;
            }
            have = want;
            let head = &mut self.longer_head;
            head.resize(want, 0);
            match piece.source {
                Source::Slot(n) => self.slots[n].copy_out(&self.heads[n], 0, turn.pins, head),
                Source::Loose { from, .. } => loose.copy(from, head),
            }
            spans.clear();
            let unit = arrival.unit(self.path, head, piece.len);
            result = turn.engine.place(turn.now, &unit, spans);
        }
        result
    }

    /// Asks for the places of the units from number `nth` on, whose first byte is `at`, as
    /// a run. Returns how many the engine has answered for.
    fn ask_run<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        (nth, at): (usize, usize),
        loose: &Loose<'_>,
    ) -> Option<usize> {
        let left = arrival.len.checked_sub(at)?;
        let count = left.div_ceil(arrival.unit_len);
        if count < 2 || arrival.coalesced.is_some() {
            return None;
        }
        // As far as they lie alike: in posted places, or in none.
        let slots = self.slots.get(nth..).unwrap_or_default();
        let (heads, in_slots) = if let Some(first) = slots.first() {
            let alike = |slot: &&Slot| slot.head_len == first.head_len;
            let alike = slots.iter().take(count).take_while(alike).count();
            let heads = self.heads[nth..].as_flattened();
            (Heads::new(heads, HEAD_ROOM, first.head_len, alike)?, true)
        } else {
            let heads = loose.head(at, left);
            let last = left - (count - 1) * arrival.unit_len;
            let head_len = HEAD_ROOM.min(last);
            (Heads::new(heads, arrival.unit_len, head_len, count)?, false)
        };
        let is_all = heads.count() == count;
        let last = if is_all { left - (count - 1) * arrival.unit_len } else { arrival.unit_len };
        if last < heads.head_len() {
            return None;
        }
        let run = UnitRun {
            path: self.path,
            from: arrival.from,
            heads,
            unit_len: arrival.unit_len as u32,
            last_len: last as u32,
            ecn: arrival.ecn,
        };
        let placed = turn.engine.place_run(turn.now, &run)?;
        let units = usize::from(placed.units);
        let is_right = run.payload_len(placed.at.into(), units) == Some(placed.span.len.into());
        let landing = if is_right {
            self.plan_run(turn, (nth, at), arrival.unit_len, &placed, in_slots);
            landing(arrival.verified)
        } else {
            turn.counters.malformed += 1;
            Landing::Failed
        };
        let (ticket, len) = (placed.ticket, placed.span.len.into());
        self.steps.push(Step::Announce { ticket, landing, len });
        Some(units.clamp(1, count))
    }

    /// What has to be done so that the payloads of a run lie where they belong: nothing for
    /// those that do.
    fn plan_run<E>(
        &mut self,
        turn: &mut Turn<'_, E>,
        (nth, at): (usize, usize),
        unit_len: usize,
        placed: &RunPlacement,
        in_slots: bool,
    ) {
        let head_len = usize::from(placed.at);
        let mut rest = placed.span;
        for unit in 0..usize::from(placed.units) {
            let (span, behind) = rest.split_at((unit_len - head_len) as u32);
            rest = behind;
            let source = if in_slots {
                Source::Slot(nth + unit)
            } else {
                Source::Loose { from: at + unit * unit_len, moved: self.linearized }
            };
            if self.is_in_place(source, head_len, &[span]) {
                turn.counters.guessed_right += 1;
            } else {
                self.displace(turn, source, head_len, &[span]);
            }
        }
    }

    /// What has to be done so that the payload from byte `at` lies in `spans`, and what is
    /// to be announced then.
    fn plan<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        (piece, loose): (Piece, &Loose<'_>),
        (at, check): (usize, Check),
        spans: &Spans,
    ) -> Landing {
        let wanted = spans.total_len() as usize;
        if at + wanted > piece.len {
            turn.counters.malformed += 1;
            return Landing::Failed;
        }
        let verified = match check {
            Check::Sealed { key } => {
                return self.open(turn, (piece, loose), (at, key), spans);
            }
            Check::InternetSum { from, len, seed } if !arrival.verified => {
                turn.counters.bytes_summed += u64::from(len);
                let part = (usize::from(from), len as usize);
                if !self.sum_is_right((piece, loose), part, seed, turn.pins) {
                    turn.counters.corrupt += 1;
                    return Landing::Corrupt;
                }
                true
            }
            Check::InternetSum { .. } => true,
            Check::None => arrival.verified,
        };
        if self.is_in_place(piece.source, at, spans) {
            turn.counters.guessed_right += 1;
        } else {
            self.displace(turn, piece.source, at, spans);
        }
        landing(verified)
    }

    /// The payload from byte `at` of a unit is to be written to `spans`: out of a posted
    /// place it is moved aside first, for another unit may belong there.
    pub(super) fn displace<E>(
        &mut self,
        turn: &mut Turn<'_, E>,
        source: Source,
        at: usize,
        spans: &[Span],
    ) {
        let Turn { pins, counters, .. } = turn;
        let wanted: usize = spans.iter().map(|span| span.len as usize).sum();
        let (source, from) = match source {
            Source::Loose { from, moved } => {
                // What was moved here from its slot is copied for the second time.
                let moved = moved.saturating_sub(from + at).min(wanted);
                counters.bytes_copied += moved as u64;
                (Displaced::Loose, from + at)
            }
            Source::Slot(n) => {
                counters.guessed_wrong += 1;
                counters.bytes_copied += wanted as u64;
                let from = self.aside.len();
                self.aside.resize(from + wanted, 0);
                self.slots[n].copy_out(&self.heads[n], at, pins, &mut self.aside[from..]);
                (Displaced::Aside, from)
            }
        };
        let first = self.spans.len();
        self.spans.extend_from_slice(spans);
        self.steps.push(Step::Write { source, from, spans: first, count: spans.len() });
    }

    /// Does the payload already lie where it belongs?
    fn is_in_place(&self, source: Source, at: usize, spans: &[Span]) -> bool {
        let Source::Slot(n) = source else { return false };
        let slot = &self.slots[n];
        match spans {
            [] => true,
            [span] => {
                at == slot.head_len
                    && span.region == slot.span.region
                    && span.offset == slot.span.offset
                    && span.len <= slot.span.len
            }
            _ => false,
        }
    }

    /// Sums a part of a unit where it lies.
    fn sum_is_right(
        &self,
        (piece, loose): (Piece, &Loose<'_>),
        (from, len): (usize, usize),
        seed: u16,
        pins: &mut Pins,
    ) -> bool {
        let Some(end) = from.checked_add(len).filter(|end| *end <= piece.len) else {
            return false;
        };
        let mut sum = InternetSum::new();
        sum.add_word(seed);
        match piece.source {
            Source::Loose { from: start, .. } => {
                loose.pieces(start + from, len).for_each(|piece| sum.add(piece));
            }
            Source::Slot(n) => {
                let slot = &self.slots[n];
                let in_head = &self.heads[n][from.min(slot.head_len)..end.min(slot.head_len)];
                let skipped = from.saturating_sub(slot.head_len);
                let in_payload = slot.payload(skipped, len - in_head.len());
                sum.add(in_head);
                let Ok(payload) = pins.sum(&[in_payload]) else { return false };
                sum.append(payload);
            }
        }
        sum.sum() == 0xffff
    }

    /// Writes what was displaced, changes words, and announces everything, in order.
    fn carry_out<E: Engine>(&mut self, turn: &mut Turn<'_, E>, loose: &Loose<'_>) {
        let Turn { engine, now, pins, counters } = turn;
        let now = *now;
        let aside = Loose::from(&self.aside[..]);
        // Whether all of what is announced next was written.
        let mut is_complete = true;
        for step in self.steps.drain(..) {
            match step {
                Step::Write { source, from, spans: first, count } => {
                    let bytes = match source {
                        Displaced::Aside => &aside,
                        Displaced::Loose => loose,
                    };
                    let mut at = from;
                    for span in &self.spans[first..first + count] {
                        let is_written = is_complete && write(pins, span, bytes, at);
                        at += if is_written { span.len as usize } else { 0 };
                        is_complete &= is_written;
                    }
                    counters.bytes_copied += (at - from) as u64;
                }
                Step::Announce { ticket, landing, len } => {
                    let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
                    let landing = if is_there && !is_complete { Landing::Failed } else { landing };
                    if is_there && is_complete {
                        counters.payload_bytes += len;
                    }
                    counters.misplaced += u64::from(!is_complete);
                    is_complete = true;
                    engine.handle_placed(now, ticket, landing);
                }
                Step::Word { ticket, op } => {
                    let landing = pins.word(&op).map_or(Landing::Failed, Landing::Old);
                    counters.misplaced += u64::from(landing == Landing::Failed);
                    engine.handle_placed(now, ticket, landing);
                }
            }
        }
    }
}

/// Writes bytes from byte `from` on into a span. Returns whether all were.
fn write(pins: &mut Pins, span: &Span, bytes: &Loose<'_>, from: usize) -> bool {
    let mut rest = *span;
    bytes.pieces(from, span.len as usize).all(|piece| {
        let (part, behind) = rest.split_at(piece.len() as u32);
        rest = behind;
        pins.copy_in(&part, piece).is_ok()
    }) && rest.len == 0
}

impl Arrival {
    fn unit<'a>(&self, path: PathId, head: &'a [u8], len: usize) -> Unit<'a> {
        Unit {
            path,
            from: self.from,
            head,
            len: len as u32,
            segment: self.coalesced,
            ecn: self.ecn,
            verified: self.verified,
        }
    }

    fn units(&self) -> usize {
        self.len.div_ceil(self.unit_len.max(1))
    }
}

fn landing(verified: bool) -> Landing {
    if verified { Landing::Verified } else { Landing::Unchecked }
}
