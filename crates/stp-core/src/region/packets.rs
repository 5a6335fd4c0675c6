//! What a stream sends next, what was said of it, and what each of its packets is.

use landfall_placement::{Instant, Refusal, Serial32, Span};

use super::{MOST_AHEAD, Operation, OutgoingOperations, STREAM_WINDOW, Unasked, Work};
use crate::error::Ended;
use crate::wire::message::{Ahead, Message};
use crate::wire::{HEADER_LEN, LONGEST_HEAD};

/// After how many packets an answer is wanted, and after which part of a window.
const ANSWER_EVERY: u32 = 16;
const ANSWERS_PER_WINDOW: u64 = 4;

impl OutgoingOperations {
    /// May something be sent?
    pub(super) fn has_packet(&self, puts_ahead: u16) -> bool {
        self.flight.has_lost() || self.has_new(puts_ahead)
    }

    /// Is there a packet that was not sent, and does the other side take it in?
    fn has_new(&self, puts_ahead: u16) -> bool {
        self.flight.end() != self.next && self.flight.len() < self.window(puts_ahead)
    }

    /// How many packets may be under way.
    pub(super) fn window(&self, puts_ahead: u16) -> u32 {
        match self.peer_window {
            0 => STREAM_WINDOW,
            more => u32::from(more.clamp(STREAM_WINDOW as u16, MOST_AHEAD).min(puts_ahead)),
        }
    }

    pub(super) fn next_packet(&mut self, puts_ahead: u16) -> Option<u32> {
        if let Some(lost) = self.flight.first_lost() {
            return Some(lost);
        }
        let serial = self.flight.end();
        if !self.has_new(puts_ahead) {
            return None;
        }
        // Only this many answers are remembered at the other side.
        let operation = self.operations.get(self.operation_at(serial)?)?;
        let is_fetch = matches!(operation.work, Work::Fetch { .. });
        (!is_fetch || self.fetches_before(serial) < STREAM_WINDOW as usize).then_some(serial)
    }

    /// FetchOps from the first that is not answered to before this one.
    fn fetches_before(&self, serial: u32) -> usize {
        let is_fetch = |operation: &&Operation| matches!(operation.work, Work::Fetch { .. });
        self.operations
            .iter()
            .take_while(|operation| operation.first != serial)
            .filter(is_fetch)
            .skip_while(|operation| operation.old.is_some() || operation.ended.is_some())
            .count()
    }

    /// Where among the operations the one is that has this packet.
    pub(super) fn operation_at(&self, serial: u32) -> Option<usize> {
        let base = self.operations.front()?.first;
        let distance = serial.wrapping_sub(base);
        let behind = self.operations.partition_point(|o| o.first.wrapping_sub(base) <= distance);
        let place = behind.checked_sub(1)?;
        let operation = self.operations.get(place)?;
        (serial.wrapping_sub(operation.first) < operation.count).then_some(place)
    }

    /// Has all come that must lie in place before the packets of an operation?
    pub(super) fn may_follow(&self, operation: &Operation) -> bool {
        self.peer_window > 0 && !Serial32(self.acked).precedes(Serial32(operation.overtakes))
    }

    /// Is an answer wanted with a new packet?
    pub(super) fn wants_answer(
        &mut self,
        operation: &Operation,
        serial: u32,
        len: u16,
        window: u64,
    ) -> bool {
        let Unasked { packets, bytes } = self.unasked;
        let unasked = Unasked { packets: packets + 1, bytes: bytes + u64::from(len) };
        let is_last = serial.wrapping_sub(operation.first) + 1 == operation.count;
        let wants = is_last
            || unasked.packets >= ANSWER_EVERY
            || unasked.bytes >= window / ANSWERS_PER_WINDOW;
        self.unasked = if wants { Unasked::default() } else { unasked };
        wants
    }

    /// The other side says that all below `applied` took effect, and what is in place beyond.
    pub(super) fn handle_ack(
        &mut self,
        now: Instant,
        applied: u32,
        is_refused: bool,
        ahead: &Ahead,
    ) -> Result<(), Refusal> {
        let sent = self.flight.end().wrapping_sub(self.acked);
        let new = applied.wrapping_sub(self.acked);
        if (new as i32) < 0 {
            return Err(Refusal::Duplicate);
        }
        // Nobody has what was not sent.
        let beyond = u32::from(ahead.first) + 64 - ahead.bits.leading_zeros();
        let most = new + if ahead.bits == 0 { u32::from(is_refused) } else { beyond };
        if new > sent || most > sent {
            return Err(Refusal::OutOfBounds);
        }
        // From the first that is left: before it may be FetchOps whose answers are missing.
        let first = self.flight.base();
        for nth in 0..applied.wrapping_sub(first) {
            self.flight.settle(now, first.wrapping_add(nth), false);
        }
        self.acked = applied;
        let mut bits = ahead.bits;
        while bits != 0 {
            let nth = u32::from(ahead.first) + bits.trailing_zeros();
            self.flight.settle(now, applied.wrapping_add(nth), false);
            bits &= bits - 1;
        }
        self.flight.forget_below(applied);
        Ok(())
    }

    /// Finds what is lost, and what the other side refuses for that.
    pub(super) fn find_lost(&mut self, now: Instant) {
        self.flight.find_lost(now);
        self.go_back();
    }

    /// Packets that the other side refuses, because something before them is missing, follow
    /// that again.
    pub(super) fn go_back(&mut self) {
        if let Some(hole) = self.flight.first_lost()
            && let Some(place) = self.operation_at(hole)
        {
            let takes_in_order = self.peer_window == 0;
            let end = self.flight.end();
            for nth in place..self.operations.len() {
                let Operation { first, count, overtakes, .. } = self.operations[nth];
                if !Serial32(first).precedes(Serial32(end)) {
                    break;
                }
                let needs = if takes_in_order { end } else { overtakes };
                if Serial32(hole).precedes(Serial32(needs)) {
                    let from = if nth == place { hole.wrapping_add(1) } else { first };
                    self.flight.give_up_range(from, first.wrapping_add(count));
                }
            }
        }
    }

    /// The operation that has this packet is refused.
    pub(super) fn refuse(&mut self, serial: u32, why: Ended) {
        if let Some(place) = self.operation_at(serial) {
            let operation = &mut self.operations[place];
            if operation.ended.is_some() {
                // Said before; that goes on as what is void.
                return;
            }
            operation.ended = Some(why);
            let end = operation.first.wrapping_add(operation.count);
            self.flight.give_up_range(serial, end);
            self.flight.expect_no_answer(serial);
        }
    }
}

impl Operation {
    /// What a packet counts against windows.
    pub(super) fn packet_len(&self, serial: u32) -> u16 {
        match self.work {
            Work::Put { memory, .. } if self.ended.is_none() => {
                let from = u64::from(serial.wrapping_sub(self.first)) * u64::from(self.stu);
                let len = memory.len.saturating_sub(from).min(self.stu.into());
                len as u16 + HEADER_LEN as u16
            }
            _ => LONGEST_HEAD as u16,
        }
    }

    /// The packet with this serial number, and its payload.
    pub(super) fn packet(&self, serial: u32) -> (Message, Option<Span>) {
        let (handle, at) = (self.handle, self.at);
        let nth = serial.wrapping_sub(self.first);
        let overtakes = u16::try_from(serial.wrapping_sub(self.overtakes)).unwrap_or(u16::MAX);
        let (wants_answer, mut put) = (false, (at, 0, false, 0, true));
        let mut span = None;
        match self.work {
            Work::Put { memory, wants_notice } if self.ended.is_none() => {
                let from = u64::from(nth) * u64::from(self.stu);
                let len = (memory.len - from).min(self.stu.into()) as u32;
                let is_last = nth + 1 == self.count;
                let wants_notice = wants_notice && is_last;
                // STUs are multiples of 8 bytes.
                let behind = if wants_notice { (from / 8) as u32 } else { 0 };
                put = (at + from, len, wants_notice, behind, false);
                span = Some(memory.span(from, len));
            }
            Work::Fetch { width, function } if self.ended.is_none() => {
                return (Message::FetchOp { serial, handle, at, width, function }, None);
            }
            Work::Put { .. } | Work::Fetch { .. } => {}
        }
        let (at, len, wants_notice, behind, is_void) = put;
        let put = Message::Put {
            serial,
            handle,
            at,
            len,
            wants_answer,
            wants_notice,
            is_void,
            overtakes,
            behind,
        };
        (put, span)
    }
}

impl Message {
    /// The same, and its sender wants to know what took effect.
    pub(super) const fn wanting_answer(mut self, wants: bool) -> Self {
        if let Self::Put { wants_answer, .. } = &mut self {
            *wants_answer = wants;
        }
        self
    }
}
