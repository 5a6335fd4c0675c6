//! What a stream sends next, what was said of it, and what each of its packets is.

use landfall_placement::{Instant, Refusal, Serial32, Span};

use super::flight::Sent;
use super::{
    AnswerRequest, MOST_AHEAD, Operation, OutgoingOperations, STREAM_WINDOW, Unasked, Work,
};
use crate::context::Context;
use crate::error::Ended;
use crate::wire::message::{Ahead, Message};
use crate::wire::{HEADER_LEN, LONGEST_HEAD};

/// A packet that is to leave.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextPacket {
    pub(super) serial: u32,
    pub(super) link: u32,
    pub(super) len: u16,
    /// The window of its link, and what is free of it when the packet has left.
    pub(super) window: u64,
    pub(super) room: u64,
}

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

    /// A packet leaves. Is an answer wanted with it?
    pub(super) fn send(&mut self, cx: &Context, operation: &Operation, packet: NextPacket) -> bool {
        let NextPacket { serial, link, len, room, .. } = packet;
        let is_repeated = serial != self.flight.end();
        let under_way = self.flight.len() + u32::from(!is_repeated);
        let is_full = room < len.into() || under_way >= self.window(cx.config.puts_ahead);
        let wants_answer = is_repeated || is_full || self.wants_answer(cx, operation, packet);
        let is_void = operation.ended.is_some();
        let is_fetch = !is_void && matches!(operation.work, Work::Fetch { .. });
        let is_answered = wants_answer || is_fetch || is_void;
        if is_answered {
            self.note_asked(cx.now, serial.wrapping_add(1));
        }
        let is_timed = is_answered || !operation.work.may_be_answered_later();
        self.flight.send(cx.now, Sent { serial, link, len, is_fetch, is_timed });
        wants_answer
    }

    /// Is an answer wanted with a new packet, whether or not more may leave?
    fn wants_answer(&mut self, cx: &Context, operation: &Operation, packet: NextPacket) -> bool {
        let NextPacket { serial, len, window, .. } = packet;
        let Unasked { packets, bytes } = self.unasked;
        let unasked = Unasked { packets: packets + 1, bytes: bytes + u64::from(len) };
        let is_last = serial.wrapping_sub(operation.first) + 1 == operation.count;
        let wants = is_last && !operation.work.may_be_answered_later()
            || unasked.packets >= ANSWER_EVERY
            || unasked.bytes >= window / ANSWERS_PER_WINDOW
            // Those that are over make room for others.
            || is_last && self.operations.len() >= cx.config.operations / 2;
        self.unasked = if wants { Unasked::default() } else { unasked };
        wants
    }

    /// Was the other side asked for an answer that it has not given?
    pub(super) fn is_asked(&self) -> bool {
        Serial32(self.flight.base()).precedes(Serial32(self.asked.end))
    }

    /// Was it asked at that time, and has been silent since?
    pub(super) fn is_asked_since(&self, at: Instant) -> bool {
        self.is_asked() && self.asked.at <= at
    }

    /// The other side is asked what took effect before `end`.
    pub(super) fn note_asked(&mut self, now: Instant, end: u32) {
        if !self.is_asked() {
            self.asked = AnswerRequest { end, at: now };
        } else if Serial32(self.asked.end).precedes(Serial32(end)) {
            self.asked.end = end;
        }
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
            Work::Put { memory, options } if self.ended.is_none() => {
                let from = u64::from(nth) * u64::from(self.stu);
                let len = (memory.len - from).min(self.stu.into()) as u32;
                let is_last = nth + 1 == self.count;
                let wants_notice = options.notice && is_last;
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
