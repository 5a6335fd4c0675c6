//! Receiving: guess, place, write, report.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use landfall_placement::{
    Check, Engine, Guess, Instant, InternetSum, Landing, PathId, Placement, Refusal, Span, Spans,
    Ticket, Unit, WordOp,
};

use super::{EngineNode, Receive};
use crate::frame::Frame;
use crate::memory::Writer;
use crate::node::Outbox;

/// A frame that came, and where it lies before anyone looked at it.
struct Landed {
    path: PathId,
    frame: Frame,
    /// How many bytes lie apart as the head.
    head: usize,
    /// Where the bytes behind the head lie, if that was guessed.
    slot: Option<Span>,
}

/// A unit between `place` and `handle_placed`.
struct UnderWay {
    ticket: Ticket,
    what: LandingKind,
}

enum LandingKind {
    Payload { landed: usize, at: usize, check: Check, spans: Vec<Span> },
    Word(WordOp),
}

/// Goes through the guesses of a path, slot by slot.
#[derive(Default)]
struct Cursor {
    nth: usize,
    run: Option<Guess>,
    used: u32,
}

impl Cursor {
    /// The length of the next head, and the span of the next payload.
    fn next<E: Engine>(&mut self, engine: &E, path: PathId) -> Option<(u16, Span)> {
        if self.run.is_none_or(|run| self.used >= run.span.len) {
            self.run = engine.guess(path, self.nth);
            self.nth += 1;
            self.used = 0;
        }
        let run = self.run.filter(|run| run.span.len > 0)?;
        let (_, rest) = run.span.split_at(self.used);
        let (slot, _) = rest.split_at(run.payload_len.max(1));
        self.used += slot.len;
        Some((run.head_len, slot))
    }
}

impl<E: Engine + 'static> EngineNode<E> {
    /// One turn with everything that came.
    pub(super) fn receive(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.flush_at = None;
        let landed = self.land(now);
        let under_way = self.place(now, &landed);
        let overlap = if self.host.config.shared { None } else { overlap(&under_way) };
        if let Some((one, other)) = overlap {
            out.fail(alloc::format!("two placements under way overlap: {one} and {other}"));
        }
        // Every check reads what came before anything is written over it.
        let plans: Vec<_> = under_way.iter().map(|unit| self.plan(&unit.what, &landed)).collect();
        let write = |(unit, plan): (&UnderWay, Plan)| match plan {
            Plan::Announce(landing) => landing,
            Plan::Write(landing) => self.write(now, &unit.what, &landed, landing),
            Plan::WriteOpened(payload) => match &unit.what {
                LandingKind::Payload { spans, .. } => {
                    self.write_spans(now, spans, &payload, Landing::Verified)
                }
                LandingKind::Word(_) => Landing::Failed,
            },
        };
        let landings: Vec<_> = under_way.iter().zip(plans).map(write).collect();
        for (unit, landing) in under_way.iter().zip(landings) {
            self.host.engine.handle_placed(now, unit.ticket, landing);
        }
    }

    /// Step 1 of a turn: frames land in guessed memory, whatever they are.
    fn land(&mut self, now: Instant) -> Vec<Landed> {
        let mut cursors = BTreeMap::<PathId, Cursor>::new();
        let mut all = Vec::with_capacity(self.received.len());
        for (path, frame) in self.received.drain(..) {
            self.host.counted.units += 1;
            let mut landed = Landed { path, head: frame.len(), frame, slot: None };
            if self.host.config.receive == Receive::Guessed {
                let guess = cursors.entry(path).or_default().next(&self.host.engine, path);
                // A driver posts no memory that it does not have.
                let guess = guess.filter(|(_, slot)| self.host.memory.check(*slot).is_ok());
                if let Some((head, slot)) = guess {
                    landed.head = usize::from(head).min(landed.frame.len());
                    landed.slot = Some(slot);
                    let payload = &landed.frame.bytes[landed.head..];
                    // The span was checked.
                    let _ = self.host.memory.write(now, Writer::Guess, slot, payload);
                }
            }
            all.push(landed);
        }
        all
    }

    /// Step 2: where does each belong?
    fn place(&mut self, now: Instant, landed: &[Landed]) -> Vec<UnderWay> {
        let mut under_way = Vec::with_capacity(landed.len());
        let mut into = Spans::new();
        for (index, one) in landed.iter().enumerate() {
            into.clear();
            match self.place_one(now, one, &mut into) {
                Ok(Placement::Into { at, check, ticket }) => {
                    let (at, spans) = (usize::from(at), into.to_vec());
                    let what = LandingKind::Payload { landed: index, at, check, spans };
                    under_way.push(UnderWay { ticket, what });
                }
                Ok(Placement::Word(op, ticket)) => {
                    under_way.push(UnderWay { ticket, what: LandingKind::Word(op) });
                }
                // The engine counted its own refusals.
                Ok(Placement::Consumed | Placement::NeedHead(_)) | Err(_) => {}
            }
        }
        under_way
    }

    /// Asks again with a longer head for as long as the engine wants one.
    fn place_one(
        &mut self,
        now: Instant,
        landed: &Landed,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let frame = &landed.frame;
        let mut head = landed.head;
        loop {
            let unit = Unit {
                path: landed.path,
                from: frame.from,
                head: &frame.bytes[..head],
                len: frame.len() as u32,
                segment: None,
                ecn: frame.ecn,
                verified: false,
            };
            let placement = self.host.engine.place(now, &unit, into)?;
            let Placement::NeedHead(more) = placement else { return Ok(placement) };
            let more = usize::from(more);
            if more <= head || more > frame.len() {
                return Err(self.host.refused.count(Refusal::Truncated));
            }
            into.clear();
            head = more;
        }
    }

    /// Step 3, without touching memory: what has to be done?
    fn plan(&mut self, what: &LandingKind, all: &[Landed]) -> Plan {
        let LandingKind::Payload { landed, at, check, spans } = what else {
            return Plan::Write(Landing::Unchecked);
        };
        let landed = &all[*landed];
        let len = spans.iter().map(|span| span.len as usize).sum::<usize>();
        let good = spans.iter().all(|span| self.host.memory.check(*span).is_ok());
        if !good || at.saturating_add(len) > landed.frame.len() {
            self.host.counted.failed += 1;
            return Plan::Announce(Landing::Failed);
        }
        let landing = match check {
            Check::None => Landing::Unchecked,
            Check::InternetSum { from, len, seed } => {
                if !sum_is_right(&landed.frame, usize::from(*from), *len as usize, *seed) {
                    self.host.counted.corrupt += 1;
                    return Plan::Announce(Landing::Corrupt);
                }
                Landing::Verified
            }
            Check::Sealed { key } => {
                let (head, payload) = landed.frame.bytes.split_at(*at);
                let mut payload = payload.to_vec();
                if !self.engine.open(*key, head, &mut payload) {
                    self.host.counted.corrupt += 1;
                    return Plan::Announce(Landing::Corrupt);
                }
                return Plan::WriteOpened(payload);
            }
        };
        match landed.slot {
            Some(slot) if lies_there(slot, landed, *at, spans) => {
                self.host.counted.guessed_right += 1;
                return Plan::Announce(landing);
            }
            Some(_) => self.host.counted.guessed_wrong += 1,
            None => {}
        }
        Plan::Write(landing)
    }

    /// Step 5: what the engine kept goes to its place.
    pub(super) fn take_deposits(&mut self, now: Instant, budget: &mut usize) {
        let mut into = Spans::new();
        while *budget > 0 {
            into.clear();
            let Some(deposit) = self.host.engine.poll_deposit(now, &mut into) else { return };
            *budget -= 1;
            let (ticket, mut rest) = (deposit.ticket, deposit.bytes);
            let is_good = into.total_len() == rest.len() as u64
                && into.iter().all(|span| self.host.memory.check(*span).is_ok());
            let is_there = is_good
                && into.iter().all(|span| {
                    let (part, behind) = rest.split_at(span.len as usize);
                    rest = behind;
                    self.host.memory.write(now, Writer::Placed, *span, part).is_ok()
                });
            if is_there {
                self.host.counted.deposits += 1;
                self.host.counted.copied_bytes += into.total_len();
            } else {
                self.host.counted.failed += 1;
            }
            let landing = if is_there { Landing::Verified } else { Landing::Failed };
            self.host.engine.handle_placed(now, ticket, landing);
        }
    }

    /// Step 3: puts a payload where it belongs.
    fn write(
        &mut self,
        now: Instant,
        what: &LandingKind,
        all: &[Landed],
        landing: Landing,
    ) -> Landing {
        match what {
            LandingKind::Word(op) => {
                self.host.counted.words += 1;
                self.host.memory.word(now, *op).map_or(Landing::Failed, Landing::Old)
            }
            LandingKind::Payload { landed, at, spans, .. } => {
                self.write_spans(now, spans, &all[*landed].frame.bytes[*at..], landing)
            }
        }
    }

    fn write_spans(
        &mut self,
        now: Instant,
        spans: &[Span],
        mut payload: &[u8],
        landing: Landing,
    ) -> Landing {
        for span in spans {
            let (part, rest) = payload.split_at(span.len as usize);
            if self.host.memory.write(now, Writer::Placed, *span, part).is_err() {
                return Landing::Failed;
            }
            self.host.counted.copied_bytes += part.len() as u64;
            payload = rest;
        }
        landing
    }
}

/// What has to be done with a payload.
enum Plan {
    /// Nothing but to say how it landed.
    Announce(Landing),
    /// Write it; then it landed so.
    Write(Landing),
    /// Write these bytes, which were sealed.
    WriteOpened(Vec<u8>),
}

/// The pass over a unit that the engine asked for.
fn sum_is_right(frame: &Frame, from: usize, len: usize, seed: u16) -> bool {
    let Some(bytes) = from.checked_add(len).and_then(|end| frame.bytes.get(from..end)) else {
        return false;
    };
    let mut sum = InternetSum::new();
    sum.add(bytes);
    sum.add_word(seed);
    sum.sum() == 0xffff
}

/// Does the payload lie where it belongs already?
fn lies_there(slot: Span, landed: &Landed, at: usize, spans: &[Span]) -> bool {
    let [place] = spans else { return false };
    at == landed.head
        && place.region == slot.region
        && place.offset == slot.offset
        && place.len <= slot.len
}

/// Two placements under way that name the same byte, which must not be.
fn overlap(under_way: &[UnderWay]) -> Option<(Span, Span)> {
    let mut spans: Vec<Span> = under_way
        .iter()
        .filter_map(|unit| match &unit.what {
            LandingKind::Payload { spans, .. } => Some(spans),
            LandingKind::Word(_) => None,
        })
        .flatten()
        .copied()
        .collect();
    spans.sort_unstable_by_key(|span| (span.region, span.offset));
    let mut pairs = spans.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.find(|(one, other)| one.overlaps(other))
}
