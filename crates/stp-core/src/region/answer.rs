//! What the other side wants to be done here: in order, and each exactly once.
//!
//! Only the packet that is expected next is placed. One that was applied is a
//! duplicate and answered again; one from further ahead is refused, and the
//! sender told where to go on.

use alloc::boxed::Box;

use landfall_placement::{
    Check, Instant, Landing, Placement, Refusal, Serial32, Spans, Unit, WordOp,
};

use super::{Replay, STREAM_WINDOW, UnderWay};
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::ids::{ExposedId, Rights};
use crate::ticket::{Purpose, Step};
use crate::wire::message::{Message, State};
use crate::wire::{Flags, HEADER_LEN, Header, Reason, header};

/// Units of this length are at hand with their payload: their checksum is
/// looked at before they are placed, and several can be placed at a time.
const SHORT_UNIT: u32 = 128;

impl Endpoint {
    pub(crate) fn place_put(
        &mut self,
        connection: u32,
        unit: &Unit<'_>,
        message: &Message,
        head: &[u8],
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let Message::Put { serial, handle, at, len, wants_answer, wants_notice, is_void } =
            *message
        else {
            return Err(Refusal::Malformed);
        };
        let whole = (HEADER_LEN as u32).checked_add(len).ok_or(Refusal::Malformed)?;
        if unit.len < whole {
            return Err(Refusal::Truncated);
        }
        if unit.len > whole.max(header::SHORTEST_FRAME) {
            return Err(Refusal::Malformed);
        }
        let flags = Header::read(head).ok_or(Refusal::Truncated)?.flags();
        let is_summed = flags.has(Flags::SUM);
        if self.config.checksum && !is_summed {
            return Err(Refusal::BadChecksum);
        }
        let mut check = Check::None;
        if is_summed && (whole <= SHORT_UNIT || len == 0) {
            let Some(bytes) = unit.head.get(..whole as usize) else {
                return Ok(Placement::NeedHead(whole as u16));
            };
            if !header::is_sealed(bytes) {
                return Err(Refusal::BadChecksum);
            }
        } else if is_summed {
            check = Check::InternetSum { from: 0, len: whole, seed: 0 };
        }
        if let Err(refusal) = self.expect(connection, serial, check != Check::None) {
            if refusal == Refusal::Duplicate && wants_answer {
                self.answer_applied(connection, None);
            }
            return Err(refusal);
        }
        if is_void {
            return self.apply_void(connection, serial);
        }
        let exposed = match self.usable(connection, handle, Rights::PUT, at, u64::from(len)) {
            Ok(exposed) => exposed,
            Err(reason) => {
                // The header may be what is corrupt: nothing is refused for good
                // before the checksum was looked at.
                if check != Check::None {
                    let Ok(whole) = u16::try_from(whole) else { return Err(Refusal::NoRoom) };
                    let Some(bytes) = unit.head.get(..usize::from(whole)) else {
                        return Ok(Placement::NeedHead(whole));
                    };
                    if !header::is_sealed(bytes) {
                        return Err(Refusal::BadChecksum);
                    }
                }
                return self.refuse_operation(connection, reason);
            }
        };
        let under_way = UnderWay { serial, exposed, at, len, wants_answer, wants_notice };
        if len == 0 {
            return self.apply_empty(connection, under_way);
        }
        if let Some(span) = self.exposed.get(exposed).map(|known| known.memory.span(at, len)) {
            into.push(span).map_err(|_| Refusal::NoRoom)?;
        }
        let ticket = Purpose::Put(self.begin_applying(connection, under_way)).pack();
        Ok(Placement::Into { at: HEADER_LEN as u16, check, ticket })
    }

    pub(crate) fn place_fetch(
        &mut self,
        connection: u32,
        message: &Message,
    ) -> Result<Placement, Refusal> {
        let Message::FetchOp { serial, handle, at, width, function } = *message else {
            return Err(Refusal::Malformed);
        };
        if self.repeat_fetched(connection, serial) {
            return Err(Refusal::Duplicate);
        }
        if let Err(refusal) = self.expect(connection, serial, false) {
            if refusal == Refusal::Duplicate {
                self.answer_applied(connection, None);
            }
            return Err(refusal);
        }
        let len = width.bytes();
        let exposed = match self.usable(connection, handle, Rights::FETCH, at, u64::from(len)) {
            Ok(exposed) => exposed,
            Err(reason) => return self.refuse_operation(connection, reason),
        };
        let Some(memory) = self.exposed.get(exposed).map(|known| known.memory) else {
            return self.refuse_operation(connection, Reason::NoRegion);
        };
        let offset = memory.offset.wrapping_add(at);
        if !offset.is_multiple_of(u64::from(len)) || !at.is_multiple_of(u64::from(len)) {
            return self.refuse_operation(connection, Reason::Unaligned);
        }
        if !self.has_replay_room(connection, serial) {
            return Err(Refusal::NoRoom);
        }
        let (wants_answer, wants_notice) = (false, false);
        let under_way = UnderWay { serial, exposed, at, len, wants_answer, wants_notice };
        let word = WordOp { region: memory.region, offset, width, function };
        let ticket = Purpose::Fetch(self.begin_applying(connection, under_way)).pack();
        Ok(Placement::Word(word, ticket))
    }

    /// Is this the packet that is to be placed next? `alone` where it may fail
    /// a check, so that nothing behind it must be placed before it is.
    fn expect(&mut self, connection: u32, serial: u32, alone: bool) -> Result<(), Refusal> {
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        if !known.serves() {
            return Err(Refusal::Unexpected);
        }
        let answered = &mut known.remote_mut().incoming;
        let ahead = Serial32(serial).offset_from(Serial32(answered.expected));
        let under_way = answered.under_way.len();
        if ahead < 0 {
            return Err(Refusal::Duplicate);
        }
        if ahead > 0 {
            // Told once: who sent much behind a gap would hear it as often.
            let applied = answered.applied;
            let is_new = under_way == 0 && answered.gap_told != Some(applied);
            if is_new {
                answered.gap_told = Some(applied);
                self.answer_applied(connection, None);
            }
            return Err(Refusal::OutOfBounds);
        }
        let waits = under_way > 0 && (alone || answered.is_alone);
        if under_way >= STREAM_WINDOW as usize || waits {
            return Err(Refusal::NoRoom);
        }
        answered.is_alone = alone;
        Ok(())
    }

    /// The driver is at it from now on, until its ticket comes back.
    fn begin_applying(&mut self, connection: u32, under_way: UnderWay) -> Step {
        if let Some(exposed) = self.exposed.get_mut(under_way.exposed) {
            exposed.writing += 1;
        }
        if let Some(known) = self.connections.get_mut(connection) {
            let answered = &mut known.remote_mut().incoming;
            answered.expected = answered.expected.wrapping_add(1);
            answered.under_way.push_back(under_way);
        }
        let generation = self.connections.table.generation(connection);
        Step::new(connection, generation, under_way.serial as u16)
    }

    /// An operation that was refused keeps its place in the order.
    fn apply_void(&mut self, connection: u32, serial: u32) -> Result<Placement, Refusal> {
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let answered = &mut known.remote_mut().incoming;
        if !answered.under_way.is_empty() {
            return Err(Refusal::NoRoom);
        }
        answered.expected = serial.wrapping_add(1);
        answered.applied = answered.expected;
        self.answer_applied(connection, None);
        Ok(Placement::Consumed)
    }

    /// A Put of no bytes takes effect in its turn, without the driver: it has no
    /// payload that could be put anywhere.
    fn apply_empty(&mut self, connection: u32, put: UnderWay) -> Result<Placement, Refusal> {
        let placement = self.apply_void(connection, put.serial)?;
        self.stats.operations_applied += 1;
        self.tell_written(connection, &put);
        Ok(placement)
    }

    /// Says why the next operation is not done. It is not passed over: its
    /// sender sends it again as a void one.
    fn refuse_operation(&mut self, connection: u32, reason: Reason) -> Result<Placement, Refusal> {
        let is_next = self
            .connections
            .get(connection)
            .and_then(|known| known.remote.as_ref())
            .is_some_and(|remote| remote.incoming.under_way.is_empty());
        if is_next {
            self.answer_applied(connection, Some(reason));
        }
        Err(match reason {
            Reason::Forbidden => Refusal::Forbidden,
            Reason::OutOfBounds => Refusal::OutOfBounds,
            Reason::Unaligned => Refusal::Malformed,
            _ => Refusal::UnknownId,
        })
    }

    /// Says what took effect.
    pub(crate) fn answer_applied(&mut self, connection: u32, refused: Option<Reason>) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        let applied = known.remote_mut().incoming.applied;
        let state = State::Memory { applied, refused };
        self.say(connection, &Message::RequestStateResponse(state));
    }

    /// Takes the operation that is under way for longest, if it is this one.
    fn end_applying(&mut self, step: Step) -> Option<UnderWay> {
        let known = self.connections.of_step(step)?;
        let answered = &mut known.remote.as_deref_mut()?.incoming;
        let first = answered.under_way.front()?;
        if first.serial as u16 != step.number {
            return None;
        }
        answered.under_way.pop_front()
    }

    pub(crate) fn land_put(&mut self, now: Instant, step: Step, landing: Landing) {
        let Some(done) = self.end_applying(step) else { return };
        let connection = step.connection;
        if matches!(landing, Landing::Verified | Landing::Unchecked) {
            self.note_applied(connection, done.serial);
            self.tell_written(connection, &done);
            if done.wants_answer {
                self.answer_applied(connection, None);
            }
        } else {
            self.take_back(now, connection, done.serial, landing);
        }
        // A region that was revoked comes back after what it was written for.
        self.end_writing(done.exposed);
        self.remove_if_gone(connection);
    }

    /// Tells the user of a Put, where that is wanted.
    fn tell_written(&mut self, connection: u32, put: &UnderWay) {
        if put.wants_notice {
            let exposed = ExposedId::new((put.exposed, self.exposed.generation(put.exposed)));
            let (connection, len) = (self.id_of(connection), u64::from(put.len));
            self.tell(Event::Written { exposed, connection, at: put.at, len });
        }
    }

    fn note_applied(&mut self, connection: u32, serial: u32) {
        self.stats.operations_applied += 1;
        if let Some(known) = self.connections.get_mut(connection) {
            known.remote_mut().incoming.applied = serial.wrapping_add(1);
        }
    }

    /// It did not take effect, and is expected again.
    fn take_back(&mut self, now: Instant, connection: u32, serial: u32, landing: Landing) {
        let Some(known) = self.connections.get_mut(connection) else { return };
        let answered = &mut known.remote_mut().incoming;
        if !answered.under_way.is_empty() {
            // Later ones have landed, or will: the order is broken for good. Where
            // the connection is over, that ends nothing more.
            // Only memory that goes away under the engine's hands does that.
            let id = self.id_of(connection);
            let _ = self.abort(now, id, Reason::MemoryFailed);
            return;
        }
        answered.expected = serial;
        if landing == Landing::Failed {
            self.answer_applied(connection, Some(Reason::MemoryFailed));
        }
    }

    pub(crate) fn land_fetch(&mut self, now: Instant, step: Step, old: Option<u64>) {
        let Some(done) = self.end_applying(step) else { return };
        let connection = step.connection;
        match old {
            Some(old) => self.note_fetched(connection, done.serial, old),
            None => self.take_back(now, connection, done.serial, Landing::Failed),
        }
        self.end_writing(done.exposed);
        self.remove_if_gone(connection);
    }

    /// A FetchOp took effect: its answer is remembered, and said.
    fn note_fetched(&mut self, connection: u32, serial: u32, old: u64) {
        self.note_applied(connection, serial);
        let Some(known) = self.connections.get_mut(connection) else { return };
        let answered = &mut known.remote_mut().incoming;
        let replays = answered.replays.get_or_insert_with(Box::default);
        let replay = &mut replays[(serial % STREAM_WINDOW) as usize];
        *replay = Replay { serial, old: Some(old), is_used: true };
        self.say(connection, &Message::RequestStateResponse(State::Fetched { serial, old }));
    }

    /// A FetchOp that took effect is answered again, and not done again.
    fn repeat_fetched(&mut self, connection: u32, serial: u32) -> bool {
        let Some(known) = self.connections.get(connection) else { return false };
        let Some(remote) = known.remote.as_deref() else { return false };
        let Some(replays) = remote.incoming.replays.as_deref() else { return false };
        let replay = replays[(serial % STREAM_WINDOW) as usize];
        if !replay.is_used || replay.serial != serial {
            return false;
        }
        if let Some(old) = replay.old {
            let state = State::Fetched { serial, old };
            self.say(connection, &Message::RequestStateResponse(state));
        }
        true
    }

    /// An answer that was not confirmed is not forgotten for a new one.
    fn has_replay_room(&self, connection: u32, serial: u32) -> bool {
        let remote = self.connections.get(connection).and_then(|known| known.remote.as_deref());
        let Some(replays) = remote.and_then(|remote| remote.incoming.replays.as_deref()) else {
            return true;
        };
        !replays[(serial % STREAM_WINDOW) as usize].is_used
    }

    /// The answers below need not be remembered any longer.
    pub(crate) fn take_fetch_complete(
        &mut self,
        connection: u32,
        below: u32,
    ) -> Result<(), Refusal> {
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let Some(remote) = known.remote.as_deref_mut() else { return Err(Refusal::Unexpected) };
        let Some(replays) = remote.incoming.replays.as_deref_mut() else { return Ok(()) };
        for replay in replays.iter_mut() {
            if replay.is_used && Serial32(replay.serial).precedes(Serial32(below)) {
                replay.is_used = false;
            }
        }
        Ok(())
    }
}
