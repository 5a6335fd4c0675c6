//! What the other side wants to be done here: in order, and each exactly once.
//!
//! A packet is placed when all before it were, or when its sender says that it may
//! come to lie in place before those that are missing. It takes effect once all before
//! it did. One that was accepted is a duplicate and answered again; one that has to
//! wait is refused, and the sender told what is missing.

use landfall_placement::{Check, Ecn, Landing, Placement, Refusal, Serial32, Spans, Unit, WordOp};

use super::{Notice, Replay, STREAM_WINDOW, UnderWay};
use crate::context::Context;
use crate::event::Event;
use crate::ids::{ExposedId, Rights};
use crate::network::Network;
use crate::region::Regions;
use crate::ticket::{Purpose, Step};
use crate::wire::message::{Message, State};
use crate::wire::{Flags, HEADER_LEN, Header, Reason, header};

/// Units of this length are at hand with their payload: their checksum is
/// looked at before they are placed, and several can be placed at a time.
const SHORT_UNIT: u32 = 128;

/// How many Puts are remembered that the user is to be told of, while something before
/// them is missing.
const MOST_NOTICES: usize = 64;

/// A Put or FetchOp did not come to lie in place, and later ones did or will: the order of its
/// connection is broken for good, and that has to end. Then [`Regions::end_step`] gives back
/// what the operation had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderBroken {
    pub(crate) connection: u32,
    pub(crate) exposed: u32,
}

impl Regions {
    pub(crate) fn place_put(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        unit: &Unit<'_>,
        message: &Message,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let Message::Put {
            serial,
            handle,
            at,
            len,
            wants_answer,
            wants_notice,
            is_void,
            overtakes,
            behind,
        } = *message
        else {
            return Err(Refusal::Malformed);
        };
        let behind = u64::from(behind) * 8;
        if wants_notice && !is_void && behind > at {
            return Err(Refusal::Malformed);
        }
        let check = match self.check_of_put(cx, unit, len) {
            Ok(check) => check,
            Err(otherwise) => return otherwise,
        };
        if unit.ecn == Ecn::CongestionExperienced {
            self.note_marked_put(net, cx, connection);
        }
        // What is void changes nothing: it has no order to keep.
        let overtakes = if is_void { u16::MAX } else { overtakes };
        if let Err(refusal) = self.expect(net, cx, connection, serial, overtakes, wants_notice) {
            if refusal == Refusal::Duplicate && wants_answer {
                self.answer_applied(net, cx, connection, None, Some(serial));
            }
            return Err(refusal);
        }
        if is_void {
            return self.apply_void(net, cx, connection, serial);
        }
        let exposed = match self.usable(net, connection, handle, Rights::PUT, at, u64::from(len)) {
            Ok(exposed) => exposed,
            Err(reason) => {
                // The header may be what is corrupt: nothing is refused for good
                // before the checksum was looked at.
                if let Check::InternetSum { len: whole, .. } = check {
                    let Ok(whole) = u16::try_from(whole) else { return Err(Refusal::NoRoom) };
                    let Some(bytes) = unit.head.get(..usize::from(whole)) else {
                        return Ok(Placement::NeedHead(whole));
                    };
                    if !header::is_sealed(bytes) {
                        return Err(Refusal::BadChecksum);
                    }
                }
                return self.refuse_operation(net, cx, connection, serial, reason);
            }
        };
        let notice = wants_notice.then(|| Notice {
            serial,
            exposed: ExposedId::of(self.exposed.key(exposed)),
            at: at - behind,
            len: u64::from(len) + behind,
        });
        if len == 0 {
            self.note_notice(net, connection, notice);
            cx.stats.operations_applied += 1;
            return self.apply_void(net, cx, connection, serial);
        }
        let is_doubtful = check != Check::None;
        let is_fetch = false;
        let under_way =
            UnderWay { serial, count: 1, exposed, wants_answer, is_doubtful, is_fetch, notice };
        if let Some(span) = self.exposed.get(exposed).map(|known| known.memory.span(at, len)) {
            into.push(span).map_err(|_| Refusal::NoRoom)?;
        }
        let ticket = Purpose::Put(self.begin_applying(net, connection, under_way)).pack();
        Ok(Placement::Into { at: HEADER_LEN as u16, check, ticket })
    }

    /// What is left to be checked of a Put whose payload has this length, or what becomes of
    /// it if that cannot be said yet, or it is no good.
    fn check_of_put(
        &self,
        cx: &Context,
        unit: &Unit<'_>,
        len: u32,
    ) -> Result<Check, Result<Placement, Refusal>> {
        let whole = (HEADER_LEN as u32).checked_add(len).ok_or(Err(Refusal::Malformed))?;
        if unit.len < whole {
            return Err(Err(Refusal::Truncated));
        }
        if unit.len > whole.max(header::SHORTEST_FRAME) {
            return Err(Err(Refusal::Malformed));
        }
        let flags = Header::read(unit.head).ok_or(Err(Refusal::Truncated))?.flags();
        let is_summed = flags.has(Flags::SUM);
        if cx.config.checksum && !is_summed {
            return Err(Err(Refusal::BadChecksum));
        }
        if !is_summed {
            return Ok(Check::None);
        }
        if whole > SHORT_UNIT && len > 0 {
            return Ok(Check::InternetSum { from: 0, len: whole, seed: 0 });
        }
        let Some(bytes) = unit.head.get(..whole as usize) else {
            return Err(Ok(Placement::NeedHead(whole as u16)));
        };
        if header::is_sealed(bytes) { Ok(Check::None) } else { Err(Err(Refusal::BadChecksum)) }
    }

    pub(crate) fn place_fetch(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        message: &Message,
    ) -> Result<Placement, Refusal> {
        let Message::FetchOp { serial, handle, at, width, function } = *message else {
            return Err(Refusal::Malformed);
        };
        if self.repeat_fetched(net, cx, connection, serial) {
            return Err(Refusal::Duplicate);
        }
        if let Err(refusal) = self.expect(net, cx, connection, serial, 0, false) {
            if refusal == Refusal::Duplicate {
                self.answer_applied(net, cx, connection, None, Some(serial));
            }
            return Err(refusal);
        }
        let len = width.bytes();
        let exposed = match self.usable(net, connection, handle, Rights::FETCH, at, u64::from(len))
        {
            Ok(exposed) => exposed,
            Err(reason) => return self.refuse_operation(net, cx, connection, serial, reason),
        };
        let Some(memory) = self.exposed.get(exposed).map(|known| known.memory) else {
            return self.refuse_operation(net, cx, connection, serial, Reason::NoRegion);
        };
        let offset = memory.offset.wrapping_add(at);
        if !offset.is_multiple_of(u64::from(len)) || !at.is_multiple_of(u64::from(len)) {
            return self.refuse_operation(net, cx, connection, serial, Reason::Unaligned);
        }
        if !self.has_replay_room(net, connection) {
            return Err(Refusal::NoRoom);
        }
        let (wants_answer, is_doubtful, is_fetch, notice) = (false, false, true, None);
        let under_way =
            UnderWay { serial, count: 1, exposed, wants_answer, is_doubtful, is_fetch, notice };
        let word = WordOp { region: memory.region, offset, width, function };
        let ticket = Purpose::Fetch(self.begin_applying(net, connection, under_way)).pack();
        Ok(Placement::Word(word, ticket))
    }

    /// May this packet be placed now? It may come to lie in place before this many of those
    /// before it, and no others.
    fn expect(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        serial: u32,
        overtakes: u16,
        wants_notice: bool,
    ) -> Result<(), Refusal> {
        let window = cx.config.puts_ahead;
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        if !known.serves() {
            return Err(Refusal::Unexpected);
        }
        let incoming = &mut known.remote_mut().incoming;
        let ahead = Serial32(serial).offset_from(Serial32(incoming.expected));
        if ahead < 0 || incoming.ahead.has(serial) {
            return Err(Refusal::Duplicate);
        }
        let beyond = Serial32(serial).offset_from(Serial32(incoming.applied));
        let missing = Serial32(serial).offset_from(Serial32(incoming.first_missing()));
        let has_room = ahead == 0 || !wants_notice || incoming.notices.len() < MOST_NOTICES;
        if beyond < i32::from(window) && missing <= i32::from(overtakes) {
            return if has_room { Ok(()) } else { Err(Refusal::NoRoom) };
        }
        if ahead == 0 {
            // What the driver is at may fail its check.
            return Err(Refusal::NoRoom);
        }
        if incoming.under_way.is_empty() && incoming.tells_gap() {
            self.answer_applied(net, cx, connection, None, None);
        }
        Err(Refusal::OutOfBounds)
    }

    /// The driver is at it from now on, until its ticket comes back.
    pub(super) fn begin_applying(
        &mut self,
        net: &mut Network,
        connection: u32,
        mut under_way: UnderWay,
    ) -> Step {
        let UnderWay { serial, count, .. } = under_way;
        if let Some(exposed) = self.exposed.get_mut(under_way.exposed) {
            exposed.writing += 1;
        }
        if let Some(known) = net.connections.get_mut(connection) {
            let incoming = &mut known.remote_mut().incoming;
            let is_next = incoming.accept(serial, count);
            under_way.wants_answer |= !is_next && incoming.tells_gap();
            incoming.doubtful += u32::from(under_way.is_doubtful);
            incoming.under_way.push_back(under_way);
        }
        let generation = net.connections.table.generation(connection);
        Step::new(connection, generation, serial as u16)
    }

    /// An operation that has nothing to be placed keeps its place in the order: it was
    /// refused before, or it is a Put of no bytes.
    fn apply_void(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        serial: u32,
    ) -> Result<Placement, Refusal> {
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        known.remote_mut().incoming.accept(serial, 1);
        self.note_applied(net, cx, connection);
        self.answer_applied(net, cx, connection, None, Some(serial));
        Ok(Placement::Consumed)
    }

    fn note_marked_put(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        cx.stats.stus_marked += 1;
        if let Some(known) = net.connections.get_mut(connection) {
            let incoming = &mut known.remote_mut().incoming;
            incoming.marked = incoming.marked.wrapping_add(1);
        }
    }

    /// Says why the next operation is not done. It is not passed over: its
    /// sender sends it again as a void one.
    fn refuse_operation(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        serial: u32,
        reason: Reason,
    ) -> Result<Placement, Refusal> {
        let is_next = net
            .connections
            .get(connection)
            .and_then(|known| known.remote.as_ref())
            .is_some_and(|remote| remote.incoming.applied == serial);
        if is_next {
            self.answer_applied(net, cx, connection, Some(reason), None);
        }
        Err(match reason {
            Reason::Forbidden => Refusal::Forbidden,
            Reason::OutOfBounds => Refusal::OutOfBounds,
            Reason::Unaligned => Refusal::Malformed,
            _ => Refusal::UnknownId,
        })
    }

    /// Says what took effect; and what is in place beyond, about one packet.
    pub(crate) fn answer_applied(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        refused: Option<Reason>,
        about: Option<u32>,
    ) {
        let Some(known) = net.connections.assumed_mut(connection) else { return };
        let incoming = &known.remote_mut().incoming;
        let (applied, ahead) = (incoming.applied, incoming.ahead_about(about));
        let state = State::Memory { applied, refused, ahead };
        net.send_message(cx, connection, &Message::RequestStateResponse(state));
    }

    /// Takes the operation that is under way for longest, if it is this one.
    fn end_applying(&mut self, net: &mut Network, step: Step) -> Option<UnderWay> {
        let known = net.connections.of_step(step)?;
        let incoming = &mut known.remote.as_deref_mut()?.incoming;
        let first = incoming.under_way.front()?;
        if first.serial as u16 != step.number {
            return None;
        }
        incoming.doubtful -= u32::from(first.is_doubtful);
        incoming.under_way.pop_front()
    }

    /// The payload of a Put is in place, or is not.
    pub(crate) fn land_put(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        step: Step,
        landing: Landing,
    ) -> Result<(), OrderBroken> {
        // The ticket is of an operation before: a no-op.
        let Some(done) = self.end_applying(net, step) else { return Ok(()) };
        let connection = step.connection;
        if matches!(landing, Landing::Verified | Landing::Unchecked) {
            cx.stats.operations_applied += u64::from(done.count);
            self.note_notice(net, connection, done.notice);
            self.note_applied(net, cx, connection);
            if done.wants_answer {
                self.answer_applied(net, cx, connection, None, Some(done.end().wrapping_sub(1)));
            }
        } else {
            self.take_back(net, cx, connection, &done, landing)?;
        }
        self.end_step(net, cx, connection, done.exposed);
        Ok(())
    }

    /// A driver is at one Put or FetchOp less.
    pub(crate) fn end_step(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        exposed: u32,
    ) {
        // A region that was revoked comes back after what it was written for.
        self.end_writing(cx, exposed);
        net.remove_if_gone(connection);
    }

    /// A Put is in place: its user is told when all before it took effect.
    fn note_notice(&mut self, net: &mut Network, connection: u32, notice: Option<Notice>) {
        if let (Some(notice), Some(known)) = (notice, net.connections.get_mut(connection)) {
            let notices = &mut known.remote_mut().incoming.notices;
            let is_before =
                |other: &&Notice| Serial32(notice.serial).precedes(Serial32(other.serial));
            let behind = notices.iter().rev().take_while(is_before).count();
            notices.insert(notices.len() - behind, notice);
        }
    }

    /// Something was accepted, or has landed: what took effect?
    fn note_applied(&mut self, net: &mut Network, cx: &mut Context, connection: u32) {
        let Some(known) = net.connections.assumed_mut(connection) else { return };
        let incoming = &mut known.remote_mut().incoming;
        incoming.advance();
        while let Some(notice) = self.due_notice(net, connection) {
            // A region that was given back meanwhile is the user's.
            let Notice { exposed, at, len, .. } = notice;
            if self.exposed.named(exposed.index, exposed.generation).is_some() {
                let connection = net.id_of(connection);
                cx.emit(Event::Written { exposed, connection, at, len });
            }
        }
    }

    fn due_notice(&mut self, net: &mut Network, connection: u32) -> Option<Notice> {
        let incoming = &mut net.connections.get_mut(connection)?.remote_mut().incoming;
        let first = incoming.notices.front()?;
        let is_due = Serial32(first.serial).precedes(Serial32(incoming.applied));
        if is_due { incoming.notices.pop_front() } else { None }
    }

    /// It did not come to lie in place, and is expected again.
    fn take_back(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        done: &UnderWay,
        landing: Landing,
    ) -> Result<(), OrderBroken> {
        let Some(known) = net.connections.assumed_mut(connection) else { return Ok(()) };
        let incoming = &mut known.remote_mut().incoming;
        // What was accepted behind what may fail its check may lie in place before it.
        let is_foreseen = landing == Landing::Corrupt && done.is_doubtful;
        if !is_foreseen && incoming.has_accepted_behind(done) {
            // Later ones have landed, or will. Only memory that goes away under the engine's
            // hands does that.
            return Err(OrderBroken { connection, exposed: done.exposed });
        }
        incoming.expect_again(done);
        if landing == Landing::Failed {
            self.answer_applied(net, cx, connection, Some(Reason::MemoryFailed), None);
        }
        Ok(())
    }

    /// A FetchOp was done, or its memory failed.
    pub(crate) fn land_fetch(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        step: Step,
        old: Option<u64>,
    ) -> Result<(), OrderBroken> {
        // The ticket is of an operation before: a no-op.
        let Some(done) = self.end_applying(net, step) else { return Ok(()) };
        let connection = step.connection;
        match old {
            Some(old) => self.note_fetched(net, cx, connection, done.serial, old),
            None => self.take_back(net, cx, connection, &done, Landing::Failed)?,
        }
        self.end_step(net, cx, connection, done.exposed);
        Ok(())
    }

    /// A FetchOp took effect: its answer is remembered, and said.
    fn note_fetched(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        serial: u32,
        old: u64,
    ) {
        cx.stats.operations_applied += 1;
        self.note_applied(net, cx, connection);
        let Some(known) = net.connections.assumed_mut(connection) else { return };
        known.remote_mut().incoming.replays.push(Replay { serial, old });
        net.send_message(
            cx,
            connection,
            &Message::RequestStateResponse(State::Fetched { serial, old }),
        );
    }

    /// A FetchOp that took effect is answered again, and not done again.
    fn repeat_fetched(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        serial: u32,
    ) -> bool {
        let Some(known) = net.connections.assumed(connection) else { return false };
        // It never asked for anything.
        let Some(remote) = known.remote.as_deref() else { return false };
        let found = remote.incoming.replays.iter().find(|replay| replay.serial == serial);
        // It has not taken effect, or its answer was confirmed.
        let Some(Replay { serial, old }) = found.copied() else { return false };
        net.send_message(
            cx,
            connection,
            &Message::RequestStateResponse(State::Fetched { serial, old }),
        );
        true
    }

    /// An answer that was not confirmed is not forgotten for a new one.
    fn has_replay_room(&self, net: &Network, connection: u32) -> bool {
        let remote = net.connections.get(connection).and_then(|known| known.remote.as_deref());
        // A FetchOp that the driver is at will have an answer, too.
        remote.is_none_or(|remote| {
            let incoming = &remote.incoming;
            let under_way = incoming.under_way.iter().filter(|under_way| under_way.is_fetch);
            incoming.replays.len() + under_way.count() < STREAM_WINDOW as usize
        })
    }

    /// The answers below need not be remembered any longer.
    pub(crate) fn handle_fetch_complete(
        &mut self,
        net: &mut Network,
        connection: u32,
        below: u32,
    ) -> Result<(), Refusal> {
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let replays = &mut remote.incoming.replays;
        replays.retain(|replay| !Serial32(replay.serial).precedes(Serial32(below)));
        Ok(())
    }
}
