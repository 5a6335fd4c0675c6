//! What came sealed and is opened where it came to lie, in the driver's own memory, before
//! anybody is asked for its place.
//!
//! So what has a place is genuine: there is no byte in memory of a user that its peer has not
//! sent there. Units of one receive are opened with one call.

use std::ops::Range;

use landfall_placement::{
    Check, Ecn, Engine, Heads, Landing, Peer, Placement, SealedRun, Spans, Unit, UnitRun,
};

use super::inbox::{Arrival, Inbox, ScatteredUnit, Step};
use super::loose::Loose;
use super::settle::Source;
use super::{HEAD_ROOM, MAX_UNITS, Turn};

/// Units that were opened together, behind one another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    /// How many are open.
    units: usize,
    /// How many behind those were refused.
    refused: usize,
    /// Where the engine's unit begins in each.
    skip: usize,
    from: Peer,
}

impl Opened {
    /// How many units it is about.
    pub(super) const fn len(&self) -> usize {
        self.units + self.refused
    }
}

/// Where units that were opened lie among the loose bytes.
#[derive(Clone, Copy, Debug)]
struct UnitSpans {
    /// The first byte of the first unit.
    at: usize,
    /// From one unit to the next.
    stride: usize,
    /// Where the last one ends.
    end: usize,
    ecn: Ecn,
}

impl UnitSpans {
    /// Where the nth unit lies, without its first `skip` bytes.
    fn unit(&self, nth: usize, skip: usize) -> (usize, usize) {
        let start = self.at + nth * self.stride;
        let end = self.end.min(start + self.stride);
        (start + skip, end.saturating_sub(start + skip))
    }
}

impl Inbox {
    /// Opens what came with one receive, from its first unit on, as far as it is sealed and can
    /// be opened. What is behind is as it came.
    pub(super) fn open_all<E: Engine>(
        &self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        bytes: &mut [u8],
        into: &mut Vec<Opened>,
    ) {
        into.clear();
        // What lies in posted places is not sealed: nothing sealed is guessed.
        if !self.slots.is_empty() || !turn.engine.seals() || arrival.coalesced.is_some() {
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() && into.len() < MAX_UNITS {
            let (path, from) = (self.path, arrival.from);
            let unit_len = arrival.unit_len as u32;
            let mut run = SealedRun { path, from, units: rest, unit_len };
            let Some(unsealed) = turn.engine.open_run(turn.now, &mut run) else { break };
            let (units, refused) = (unsealed.opened.into(), unsealed.refused.into());
            let opened = Opened { units, refused, skip: unsealed.at.into(), from: unsealed.from };
            let about = opened.len().max(1) * arrival.unit_len;
            rest = run.units.get_mut(about..).unwrap_or_default();
            turn.counters.refused += refused as u64;
            into.push(opened);
        }
    }

    /// The same for units that came each by a list of its own: for none of them, or for each.
    pub(super) fn open_each<E: Engine>(
        &self,
        turn: &mut Turn<'_, E>,
        came: &[ScatteredUnit],
        sources: &[Source],
        linear: &mut [u8],
    ) -> Vec<Option<Opened>> {
        let (mut each, mut opened) = (Vec::new(), Vec::new());
        if turn.engine.seals() {
            each.extend(came.iter().zip(sources).map(|(came, source)| match *source {
                Source::Loose { from, .. } => {
                    let bytes = &mut linear[from..from + came.arrival.len];
                    self.open_all(turn, &came.arrival, bytes, &mut opened);
                    opened.pop()
                }
                Source::Slot(_) => None,
            }));
        }
        each
    }

    /// Asks for the places of what was opened, and notes what has to be done.
    pub(super) fn ask_opened<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        arrival: &Arrival,
        (opened, lies, loose): (&Opened, Range<usize>, &Loose<'_>),
        spans: &mut Spans,
    ) {
        let (at, stride) = (lies.start, arrival.unit_len);
        let end = lies.end.min(at + opened.units * stride);
        let spans_of = UnitSpans { at, stride, end, ecn: arrival.ecn };
        let mut nth = 0;
        while nth < opened.units {
            nth += match self.ask_opened_run(turn, opened, (&spans_of, nth), loose) {
                Some(units) => units,
                None => {
                    self.ask_opened_unit(turn, opened, (&spans_of, nth), loose, spans);
                    1
                }
            };
        }
    }

    /// For those from the nth on, together. Returns for how many the engine has answered.
    fn ask_opened_run<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        opened: &Opened,
        (spans_of, nth): (&UnitSpans, usize),
        loose: &Loose<'_>,
    ) -> Option<usize> {
        let count = opened.units - nth;
        if count < 2 {
            return None;
        }
        let ((first, unit_len), (_, last_len)) =
            (spans_of.unit(nth, opened.skip), spans_of.unit(opened.units - 1, opened.skip));
        let heads = loose.head(first, spans_of.end.checked_sub(first)?);
        let heads = Heads::new(heads, spans_of.stride, HEAD_ROOM.min(last_len), count)?;
        let run = UnitRun {
            path: self.path,
            from: opened.from,
            heads,
            unit_len: unit_len as u32,
            last_len: last_len as u32,
            ecn: spans_of.ecn,
        };
        let placed = turn.engine.place_opened_run(turn.now, &run)?;
        let (units, at) = (usize::from(placed.units), usize::from(placed.at));
        let is_right = run.payload_len(at as u32, units) == Some(placed.span.len.into());
        let landing = if is_right {
            let mut rest = placed.span;
            for unit in nth..nth + units {
                let (start, len) = spans_of.unit(unit, opened.skip);
                let (span, behind) = rest.split_at((len - at) as u32);
                rest = behind;
                let source = Source::Loose { from: start, moved: 0 };
                self.displace(turn, source, at, &[span]);
            }
            Landing::Verified
        } else {
            turn.counters.malformed += 1;
            Landing::Failed
        };
        let (ticket, len) = (placed.ticket, placed.span.len.into());
        self.steps.push(Step::Announce { ticket, landing, len });
        Some(units.clamp(1, count))
    }

    /// For the nth alone.
    fn ask_opened_unit<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        opened: &Opened,
        (spans_of, nth): (&UnitSpans, usize),
        loose: &Loose<'_>,
        spans: &mut Spans,
    ) {
        spans.clear();
        let (start, len) = spans_of.unit(nth, opened.skip);
        let unit = Unit {
            path: self.path,
            from: opened.from,
            // All of it is at hand.
            head: loose.head(start, len),
            len: len as u32,
            segment: None,
            ecn: spans_of.ecn,
            verified: false,
        };
        match turn.engine.place_opened(turn.now, &unit, spans) {
            Ok(Placement::Into { at, check, ticket }) => {
                let wanted = spans.total_len();
                let fits = u64::from(at) + wanted <= len as u64;
                let landing = if fits && !matches!(check, Check::Sealed { .. }) {
                    let source = Source::Loose { from: start, moved: 0 };
                    self.displace(turn, source, at.into(), spans);
                    Landing::Verified
                } else {
                    turn.counters.malformed += 1;
                    Landing::Failed
                };
                self.steps.push(Step::Announce { ticket, landing, len: wanted });
            }
            Ok(Placement::Word(op, ticket)) => self.steps.push(Step::Word { ticket, op }),
            Ok(Placement::Consumed) => {}
            Ok(Placement::NeedHead(_)) => turn.counters.malformed += 1,
            Err(_) => turn.counters.refused += 1,
        }
    }
}
