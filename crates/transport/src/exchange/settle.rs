//! Settling what came: ask for each unit's place, move what is displaced
//! aside, write it, and only then announce.

use std::mem;

use arrayvec::ArrayVec;
use landfall_placement::{
    Check, Engine, InternetSum, Landing, PathId, Placement, Refusal, Span, Spans, Unit,
};

use super::inbox::{Action, Arrival, Came, Inbox, Peeked};
use super::{HEAD_ROOM, LONGEST, Loose, MAX_UNITS, Turn};
use crate::memory::Pins;

/// Where the bytes of a unit lie before they are settled.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Head in its scratch place, payload in the guessed span of this slot.
    Slot(usize),
    /// Among the loose bytes, from this one on. Those before `moved` were moved
    /// there by this process.
    Loose { from: usize, moved: usize },
}

/// One unit of an arrival.
#[derive(Clone, Copy, Debug)]
struct Piece {
    source: Source,
    len: usize,
}

impl Inbox {
    /// Hands an arrival to the engine. Gives the number of units in it.
    pub(crate) fn settle<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        mut peeked: Option<Peeked>,
    ) -> u32 {
        if !self.fits(arrival) {
            turn.counters.guessed_wrong += self.slots.len().min(arrival.units()) as u64;
            self.linearize(arrival.len, turn.pins);
        }
        let linear = mem::take(&mut self.linear);
        let loose = Loose::from(&linear[..]);
        self.start_settling();
        // Once for all units: an empty list is long to make.
        let mut spans = Spans::new();
        let mut at = 0;
        let mut units = 0;
        while at < arrival.len || units == 0 {
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
        self.linear = linear;
        self.count_units(turn, units)
    }

    /// Hands units to the engine that came each by a list of its own, after
    /// [`post_each`](Self::post_each). Gives their number.
    pub(crate) fn settle_each<E: Engine>(&mut self, turn: &mut Turn<'_, E>, came: &[Came]) -> u32 {
        let mut linear = mem::take(&mut self.linear);
        self.start_settling();
        let (right, wrong) = (turn.counters.guessed_right, turn.counters.guessed_wrong);
        let sources: ArrayVec<Source, MAX_UNITS> =
            came.iter().map(|came| self.source_of(turn, came, &mut linear)).collect();
        let loose = Loose::from(&linear[..]);
        let mut spans = Spans::new();
        // Whether a unit of the first run missed, and one of those behind it.
        let (mut first, mut later) = (false, None);
        for (came, source) in came.iter().zip(sources) {
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
        self.linear = linear;
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
        self.actions.clear();
        self.spans.clear();
    }

    fn count_units<E>(&mut self, turn: &mut Turn<'_, E>, units: usize) -> u32 {
        self.learn(units);
        turn.counters.units_received += units as u64;
        units as u32
    }

    /// Where the unit lies that came by the list of this number. What does not
    /// lie as its slot has it is made one piece again in its overflow buffer.
    fn source_of<E>(&mut self, turn: &mut Turn<'_, E>, came: &Came, linear: &mut [u8]) -> Source {
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
        peeked: Option<Peeked>,
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
                let action = self.plan(turn, arrival, (piece, loose), (at, check), spans);
                self.actions.push((ticket, action));
            }
            Ok(Placement::Word(op, ticket)) => self.actions.push((ticket, Action::Word(op))),
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

    /// What has to be done so that the payload from byte `at` lies in `spans`.
    fn plan<E>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        (piece, loose): (Piece, &Loose<'_>),
        (at, check): (usize, Check),
        spans: &Spans,
    ) -> Action {
        let Turn { pins, counters, .. } = turn;
        let wanted = spans.total_len() as usize;
        if at + wanted > piece.len {
            counters.malformed += 1;
            return Action::Announce(Landing::Failed);
        }
        let verified = match check {
            Check::InternetSum { from, len, seed } if !arrival.verified => {
                counters.bytes_summed += u64::from(len);
                let part = (usize::from(from), len as usize);
                if !self.sum_is_right((piece, loose), part, seed, pins) {
                    counters.corrupt += 1;
                    return Action::Announce(Landing::Corrupt);
                }
                true
            }
            Check::InternetSum { .. } => true,
            Check::None => arrival.verified,
        };
        if self.is_in_place(piece.source, at, spans) {
            counters.guessed_right += 1;
            counters.payload_bytes += wanted as u64;
            return Action::Announce(landing(verified));
        }
        let first_span = self.spans.len();
        self.spans.extend_from_slice(spans);
        match piece.source {
            Source::Loose { from, moved } => {
                // What was moved here from its slot is copied for the second time.
                let moved = moved.saturating_sub(from + at).min(wanted);
                counters.bytes_copied += moved as u64;
                let from = from + at;
                Action::WriteLoose { from, spans: first_span, count: spans.len(), verified }
            }
            Source::Slot(n) => {
                counters.guessed_wrong += 1;
                counters.bytes_copied += wanted as u64;
                let from = self.aside.len();
                self.aside.resize(from + wanted, 0);
                self.slots[n].copy_out(&self.heads[n], at, pins, &mut self.aside[from..]);
                Action::WriteAside { from, spans: first_span, count: spans.len(), verified }
            }
        }
    }

    /// Does the payload already lie where it belongs?
    fn is_in_place(&self, source: Source, at: usize, spans: &Spans) -> bool {
        let Source::Slot(n) = source else { return false };
        let slot = &self.slots[n];
        match spans.as_slice() {
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

    /// Writes what was displaced, changes words, and announces each unit, in order.
    fn carry_out<E: Engine>(&mut self, turn: &mut Turn<'_, E>, loose: &Loose<'_>) {
        let Turn { engine, now, pins, counters } = turn;
        let now = *now;
        let aside = Loose::from(&self.aside[..]);
        for (ticket, action) in self.actions.drain(..) {
            let (bytes, from, first, count, verified) = match action {
                Action::Announce(landing) => {
                    engine.handle_placed(now, ticket, landing);
                    continue;
                }
                Action::Word(op) => {
                    let landing = pins.word(&op).map_or(Landing::Failed, Landing::Old);
                    counters.misplaced += u64::from(landing == Landing::Failed);
                    engine.handle_placed(now, ticket, landing);
                    continue;
                }
                Action::WriteAside { from, spans, count, verified } => {
                    (&aside, from, spans, count, verified)
                }
                Action::WriteLoose { from, spans, count, verified } => {
                    (loose, from, spans, count, verified)
                }
            };
            let mut written = 0;
            let complete = self.spans[first..first + count].iter().all(|span| {
                let done = write(pins, span, bytes, from + written);
                written += if done { span.len as usize } else { 0 };
                done
            });
            counters.bytes_copied += written as u64;
            let landing = if complete {
                counters.payload_bytes += written as u64;
                landing(verified)
            } else {
                counters.misplaced += 1;
                Landing::Failed
            };
            engine.handle_placed(now, ticket, landing);
        }
    }
}

/// Writes bytes from byte `from` on into a span. Gives whether all were.
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
        }
    }

    fn units(&self) -> usize {
        self.len.div_ceil(self.unit_len.max(1))
    }
}

fn landing(verified: bool) -> Landing {
    if verified { Landing::Verified } else { Landing::Unchecked }
}
