//! What is sealed: payloads are copied, and sealed or opened where they were copied to.
//!
//! The memory of a user is never encrypted in place, for it may be sent again and belongs to
//! its user; and nothing is written to its place before it is known to be genuine.

use std::ops::Range;

use landfall_placement::{
    Ecn, Engine, InternetSum, Landing, Peer, Span, Spans, SumSlot, Ticket, Transmit, TransmitRun,
};

use super::inbox::{Displaced, Inbox, Step};
use super::loose::Loose;
use super::outbox::{Outbox, Outgoing};
use super::settle::{Piece, Source};
use super::{LONGEST, MAX_UNITS, Prefix, SEND_HEAD_ROOM, Turn};
use crate::driver::Counters;
use crate::memory::Rights;

/// Memory for the sealed payloads of a batch. It does not move while units wait.
#[derive(Debug, Default)]
pub(super) struct SealedBytes {
    bytes: Box<[u8]>,
    used: usize,
}

impl SealedBytes {
    /// A new batch begins.
    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    /// Copies what was sealed, from its byte `from` on.
    pub(super) fn copy_out(&self, sealed: &Range<usize>, from: usize, into: &mut [u8]) {
        let payload = self.bytes[sealed.clone()].get(from..).unwrap_or_default();
        into.copy_from_slice(&payload[..into.len()]);
    }

    /// Room for `len` bytes behind those in use, if there is any: a batch begins with all of it.
    fn take(&mut self, len: usize) -> Option<Range<usize>> {
        /// A batch is full when one more of the first unit's length does not fit, so that its
        /// last unit may go beyond.
        const ROOM: usize = 2 * LONGEST;
        if self.bytes.is_empty() {
            self.bytes = vec![0; ROOM].into_boxed_slice();
        }
        let range = self.used..self.used.checked_add(len)?;
        self.bytes.get(range.clone())?;
        self.used = range.end;
        Some(range)
    }
}

/// What is known of a sealed unit beside its bytes.
#[derive(Clone, Copy, Debug)]
struct SealedUnit {
    to: Peer,
    ecn: Ecn,
    ticket: Option<Ticket>,
    checksum: Option<SumSlot>,
}

impl Outbox {
    /// Copies the payload of a unit, has it sealed there, and lists its pieces. The memory that
    /// it came from stays as it is. None if that is not lent, or nothing can be sealed.
    pub(super) fn seal_unit<E: Engine>(
        &mut self,
        engine: &mut E,
        unit: &Transmit,
        counters: &mut Counters,
    ) -> Option<Outgoing> {
        let len = self.gathered.total_len().checked_sub(u64::from(unit.sum_only))?;
        self.gathered.truncate(len);
        let spans = self.gathered.clone();
        let checksum = unit.checksum;
        let sent = SealedUnit { to: unit.to, ecn: unit.ecn, ticket: Some(unit.ticket), checksum };
        self.seal_spans(engine, unit.head_len.into(), &spans, sent, counters)
    }

    /// The same for a run: its units are copied behind one another, heads and payloads, and
    /// sealed with one call.
    pub(super) fn seal_run<E: Engine>(
        &mut self,
        engine: &mut E,
        run: &TransmitRun,
        counters: &mut Counters,
        write_prefix: impl Fn(&Transmit, &mut Prefix),
    ) -> bool {
        let (units, head_len) = (usize::from(run.units), usize::from(run.head_len));
        let fits = units <= MAX_UNITS - self.filled && head_len <= SEND_HEAD_ROOM;
        if !fits || !run.is_consistent() || self.pins.resolve(&run.span, Rights::READ).is_err() {
            return false;
        }
        let unit_len = head_len + run.payload_len as usize;
        let Some(range) = self.sealed.take(units * head_len + run.span.len as usize) else {
            return false;
        };
        let bytes = &mut self.sealed.bytes[range.clone()];
        let mut rest = run.span;
        for (unit, head) in bytes.chunks_mut(unit_len).zip(&self.heads[self.filled..]) {
            let (span, behind) = rest.split_at(run.payload_len);
            rest = behind;
            let (own_head, payload) = unit.split_at_mut(head_len);
            own_head.copy_from_slice(&head[..head_len]);
            if self.pins.copy_out(&span, payload).is_err() {
                return false;
            }
        }
        counters.bytes_copied += u64::from(run.span.len);
        let sealed = engine.seal_run(bytes, unit_len, head_len).min(units);
        if sealed == 0 {
            return false;
        }
        counters.send_failed += (units - sealed) as u64;
        self.push_run(run, (range, sealed), write_prefix);
        true
    }

    /// The first units of a run wait to leave, as they were sealed.
    fn push_run(
        &mut self,
        run: &TransmitRun,
        (range, sealed): (Range<usize>, usize),
        write_prefix: impl Fn(&Transmit, &mut Prefix),
    ) {
        let head_len = usize::from(run.head_len);
        let unit_len = head_len + run.payload_len as usize;
        let unit = Transmit {
            to: run.to,
            head_len: run.head_len,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: run.ecn,
            ticket: run.ticket,
        };
        for nth in 1..=sealed {
            let from = range.start + (nth - 1) * unit_len;
            let end = range.end.min(from + unit_len);
            let (start, payloads) = (self.iovecs.len(), self.payloads.len());
            if self.prefix_len > 0 {
                let prefix = &mut self.prefixes[self.filled];
                write_prefix(&unit, prefix);
                self.iovecs.push_slice(&mut prefix[..self.prefix_len]);
            }
            let bytes = &mut self.sealed.bytes[from..end];
            self.iovecs.push_slice(bytes);
            // Some drivers ask for heads apart.
            self.heads[self.filled][..head_len].copy_from_slice(&bytes[..head_len]);
            self.push(Outgoing {
                to: run.to,
                len: end - from,
                head_len,
                ecn: run.ecn,
                // Those that are sealed leave; the engine hears of all when the last of them has.
                ticket: (nth == sealed).then_some(run.ticket),
                iovecs: start..self.iovecs.len(),
                payload: payloads..payloads,
                sealed: Some(from + head_len..end),
            });
        }
    }

    fn seal_spans<E: Engine>(
        &mut self,
        engine: &mut E,
        head_len: usize,
        spans: &[Span],
        sent: SealedUnit,
        counters: &mut Counters,
    ) -> Option<Outgoing> {
        let len: usize = spans.iter().map(|span| span.len as usize).sum();
        let range = self.sealed.take(len)?;
        let payload = &mut self.sealed.bytes[range.clone()];
        let mut rest = &mut payload[..];
        for span in spans {
            let (part, behind) = rest.split_at_mut(span.len as usize);
            self.pins.copy_out(span, part).ok()?;
            rest = behind;
        }
        counters.bytes_copied += len as u64;
        let head = &mut self.heads[self.filled][..head_len.min(SEND_HEAD_ROOM)];
        if let Some(slot) = sent.checksum {
            let mut sum = InternetSum::new();
            sum.add(payload);
            slot.fill(head, sum);
        }
        if !engine.seal(head, payload) {
            return None;
        }
        let (start, payloads) = (self.iovecs.len(), self.payloads.len());
        if self.prefix_len > 0 {
            self.iovecs.push_slice(&mut self.prefixes[self.filled][..self.prefix_len]);
        }
        self.iovecs.push_slice(head);
        if len > 0 {
            self.iovecs.push_slice(payload);
        }
        let SealedUnit { to, ecn, ticket, .. } = sent;
        Some(Outgoing {
            to,
            len: head.len() + len,
            head_len: head.len(),
            ecn,
            ticket,
            iovecs: start..self.iovecs.len(),
            payload: payloads..payloads,
            sealed: Some(range),
        })
    }
}

impl Inbox {
    /// Opens the payload from byte `at` of a unit in a copy, and has that written to `spans`.
    pub(super) fn open<E: Engine>(
        &mut self,
        turn: &mut Turn<'_, E>,
        (piece, loose): (Piece, &Loose<'_>),
        (at, key): (usize, u64),
        spans: &Spans,
    ) -> Landing {
        let from = self.aside.len();
        self.aside.resize(from + piece.len, 0);
        let copy = &mut self.aside[from..];
        match piece.source {
            Source::Slot(n) => {
                turn.counters.guessed_wrong += 1;
                self.slots[n].copy_out(&self.heads[n], 0, turn.pins, copy);
            }
            Source::Loose { from, .. } => loose.copy(from, copy),
        }
        let (head, payload) = copy.split_at_mut(at);
        if !turn.engine.open(key, head, payload) {
            self.aside.truncate(from);
            turn.counters.corrupt += 1;
            return Landing::Corrupt;
        }
        turn.counters.bytes_copied += payload.len() as u64;
        let first = self.spans.len();
        self.spans.extend_from_slice(spans);
        let (source, count) = (Displaced::Aside, spans.len());
        self.steps.push(Step::Write { source, from: from + at, spans: first, count });
        Landing::Verified
    }
}
