//! Settling what came: ask for each unit's place, move what is displaced
//! aside, write it, and only then announce.

use landfall_placement::{
    Check, Engine, InternetSum, Landing, PathId, Placement, Refusal, Spans, Unit,
};

use super::inbox::{Action, Arrival, Inbox, Peeked};
use super::{HEAD_ROOM, Turn};
use crate::memory::Pins;

/// Where the bytes of a unit lie before they are settled.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Head in its scratch place, payload in the guessed span of this slot.
    Slot(usize),
    /// In one piece in the overflow buffer, from this byte on.
    Linear(usize),
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
        self.aside.clear();
        self.actions.clear();
        self.spans.clear();
        // Once for all units: an empty list is long to make.
        let mut spans = Spans::new();
        let mut at = 0;
        let mut units = 0;
        while at < arrival.len || units == 0 {
            let len = arrival.unit_len.min(arrival.len - at);
            let source =
                if units < self.slots.len() { Source::Slot(units) } else { Source::Linear(at) };
            spans.clear();
            self.ask(turn, arrival, Piece { source, len }, peeked.take(), &mut spans);
            at += len.max(1);
            units += 1;
        }
        self.carry_out(turn);
        self.learn(units);
        turn.counters.units_received += units as u64;
        units as u32
    }

    /// Asks for the place of one unit and notes what has to be done for it.
    fn ask<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        piece: Piece,
        peeked: Option<Peeked>,
        spans: &mut Spans,
    ) {
        let result = match peeked {
            Some(peeked) => {
                *spans = peeked.spans;
                peeked.result
            }
            None => self.place(turn, arrival, piece, spans),
        };
        match result {
            Ok(Placement::Into { at, check, ticket }) => {
                let at = usize::from(at);
                let action = self.plan(turn, arrival, piece, (at, check), spans);
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
        piece: Piece,
        spans: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let head = match piece.source {
            Source::Slot(n) => &self.heads[n][..self.slots[n].head_len.min(piece.len)],
            Source::Linear(at) => &self.linear[at..at + piece.len.min(HEAD_ROOM)],
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
                Source::Linear(at) => head.copy_from_slice(&self.linear[at..at + want]),
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
        piece: Piece,
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
                if !self.sum_is_right(piece, usize::from(from), len as usize, seed, pins) {
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
            Source::Linear(start) => {
                // What was moved here from its slot is copied for the second time.
                let moved = self.linearized.saturating_sub(start + at).min(wanted);
                counters.bytes_copied += moved as u64;
                Action::WriteLinear {
                    from: start + at,
                    spans: first_span,
                    count: spans.len(),
                    verified,
                }
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
        piece: Piece,
        from: usize,
        len: usize,
        seed: u16,
        pins: &mut Pins,
    ) -> bool {
        let Some(end) = from.checked_add(len).filter(|end| *end <= piece.len) else {
            return false;
        };
        let mut sum = InternetSum::new();
        sum.add_word(seed);
        match piece.source {
            Source::Linear(start) => sum.add(&self.linear[start + from..start + end]),
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
    fn carry_out<E: Engine>(&mut self, turn: &mut Turn<'_, E>) {
        let Turn { engine, now, pins, counters } = turn;
        let now = *now;
        for (ticket, action) in self.actions.drain(..) {
            let (bytes, first, count, verified) = match action {
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
                    (&self.aside[from..], spans, count, verified)
                }
                Action::WriteLinear { from, spans, count, verified } => {
                    (&self.linear[from..], spans, count, verified)
                }
            };
            let spans = &self.spans[first..first + count];
            let mut written = 0;
            let complete = spans.iter().all(|span| {
                let end = written + span.len as usize;
                let done = pins.copy_in(span, &bytes[written..end]).is_ok();
                written = if done { end } else { written };
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
