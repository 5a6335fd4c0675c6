//! What a unit that came does to the engine's state.

use landfall_placement::{
    Check, Guess, Instant, Landing, PathId, Peer, Placement, Refusal, Spans, Ticket, Unit, WordOp,
};
use zerocopy::FromBytes;

use super::header::{
    self, FETCH_LEN, FLAG_DONE, FLAG_HELLO, FLAG_SUM, FetchBody, HEADER_LEN, Header, Kind, Parts,
    Purpose, SLOT_EAGER,
};
use super::incoming::{self, Incoming, Landed, Report};
use super::{Event, Numbered};
use crate::engines::bits::IdWindow;

/// After how many messages that came without asking the sender is told at once.
const UNTOLD_BOUND: u32 = 4;

impl Numbered {
    /// Sorts a unit in, or says which check refused it.
    #[inline]
    pub(super) fn sort_in(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if (unit.len as usize) < HEADER_LEN {
            return Err(Refusal::Truncated);
        }
        if unit.head.len() < HEADER_LEN {
            return Ok(Placement::NeedHead(HEADER_LEN as u16));
        }
        let (header, kind) = Header::read(unit.head)?;
        if kind == Kind::Data {
            return self.place_data(now, unit, header, into);
        }
        let whole = if kind == Kind::Fetch { FETCH_LEN } else { HEADER_LEN };
        if unit.len as usize != whole {
            return Err(Refusal::Malformed);
        }
        let Some(bytes) = unit.head.get(..whole) else {
            return Ok(Placement::NeedHead(whole as u16));
        };
        if header.flags & FLAG_SUM == 0 || !header::is_sum_right(bytes) {
            return Err(Refusal::BadChecksum);
        }
        if kind == Kind::Request {
            return self.take_request(now, unit.path, unit.from, header);
        }
        let connection = self.connection_of(unit.path, unit.from, header.key.get())?;
        match kind {
            Kind::Grant => self.take_grant(now, connection, header)?,
            Kind::Ack => self.take_ack(now, connection, header)?,
            Kind::Done => {
                let window = IdWindow { base: header.message.get(), bits: header.word.get() };
                self.take_done(connection, window)?;
            }
            Kind::Fetch => return self.place_word(connection, header, &bytes[HEADER_LEN..]),
            Kind::FetchReply => self.take_reply(connection, header)?,
            Kind::Request | Kind::Data => {}
        }
        Ok(Placement::Consumed)
    }

    /// The connection that the key belongs to, if the unit came from its peer.
    #[inline]
    fn connection_of(&mut self, path: PathId, from: Peer, key: u32) -> Result<usize, Refusal> {
        let index = (key & 0xff) as usize;
        let connection = self.connections.get(index).ok_or(Refusal::WrongKey)?;
        if !connection.is_open || connection.local_key != key {
            return Err(Refusal::WrongKey);
        }
        if connection.peer != from || self.paths[connection.path].id != path {
            return Err(Refusal::WrongAddress);
        }
        Ok(index)
    }

    #[inline]
    fn place_data(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        header: &Header,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let connection = self.connection_of(unit.path, unit.from, header.key.get())?;
        let len = header.extent.get();
        if unit.len - HEADER_LEN as u32 != len {
            return Err(Refusal::Malformed);
        }
        if self.config.checksum {
            if header.flags & FLAG_SUM == 0 {
                return Err(Refusal::BadChecksum);
            }
        } else if header.flags & FLAG_DONE != 0 {
            // Only where the path vouches for what it carries: a sum over the
            // payload is known after the landing.
            let word = header.word.get();
            self.take_done(connection, IdWindow { base: word as u32, bits: word >> 32 })?;
        }
        let slot = self.place_of(connection, header)?;
        let path = self.connections[connection].path;
        let place = &mut self.incoming[slot];
        if place.total != header.total.get() {
            return Err(Refusal::Malformed);
        }
        let number = header.unit.get();
        let (span, stamp) = match place.place(number, len) {
            Ok(placed) => placed,
            Err(refusal) => {
                self.paths[path].is_control_due |= place.ack_due;
                return Err(refusal);
            }
        };
        place.deadline = now + self.silence;
        // One span always fits: the list comes empty.
        into.push(span).map_err(|_| Refusal::NoRoom)?;
        self.paths[path].last = Some((slot, place.order));
        let generation = place.generation;
        let check = if self.config.checksum {
            Check::InternetSum { from: 0, len: unit.len, seed: 0 }
        } else {
            Check::None
        };
        let (slot, detail) = (slot as u8, number as u16);
        let parts = Parts { purpose: Purpose::Placement, slot, generation, detail, stamp };
        Ok(Placement::Into { at: HEADER_LEN as u16, check, ticket: parts.pack() })
    }

    /// The place of the message that a unit belongs to.
    #[inline]
    fn place_of(&mut self, connection: usize, header: &Header) -> Result<usize, Refusal> {
        let message = header.message.get();
        let slot = usize::from(header.slot);
        if let Some(place) = self.incoming.get(slot)
            && place.is_for(connection, message)
        {
            return Ok(slot);
        }
        if header.slot == SLOT_EAGER
            && let Some(slot) = self.find_place(connection, message)
        {
            return Ok(slot);
        }
        let known = &mut self.connections[connection];
        if known.done.contains(message) {
            // The sender does not know yet that it is done.
            known.done_at = Instant::ZERO;
            self.paths[known.path].is_control_due = true;
            return Err(Refusal::Duplicate);
        }
        if header.slot != SLOT_EAGER {
            return Err(Refusal::UnknownId);
        }
        if !known.done.has_room_for(message) {
            return Err(Refusal::OutOfBounds);
        }
        self.bind_eager(connection, header)
    }

    fn find_place(&self, connection: usize, message: u32) -> Option<usize> {
        self.incoming.iter().position(|place| place.is_for(connection, message))
    }

    /// Gives a message that came without asking the first memory that fits.
    fn bind_eager(&mut self, connection: usize, header: &Header) -> Result<usize, Refusal> {
        let (total, len) = (header.total.get(), header.extent.get());
        if header.unit.get() != 0 || total != u64::from(len) || len == 0 {
            return Err(Refusal::Malformed);
        }
        let slot = self.free_place().ok_or(Refusal::NoRoom)?;
        let order = self.tick();
        let area = self.take_posted(total).ok_or(Refusal::NoRoom)?;
        let place = &mut self.incoming[slot];
        place.begin((connection, header.message.get()), total, (len, 1), order);
        place.bind(area, order);
        place.is_eager = true;
        Ok(slot)
    }

    fn free_place(&self) -> Option<usize> {
        self.incoming.iter().position(|place| place.state == incoming::State::Free)
    }

    /// Takes the first posted memory in which `total` bytes fit.
    fn take_posted(&mut self, total: u64) -> Option<landfall_placement::Area> {
        let fits = self.posted.iter().position(|area| area.len >= total)?;
        self.posted.remove(fits)
    }

    /// Gives memory to messages that wait for it, in the order in which they asked.
    pub(super) fn bind_waiting(&mut self) {
        for _ in 0..self.incoming.len() {
            let fits = |place: &Incoming| self.posted.iter().any(|area| area.len >= place.total);
            let waiting = self
                .incoming
                .iter()
                .enumerate()
                .filter(|(_, place)| place.state == incoming::State::Waiting && fits(place));
            let Some((slot, _)) = waiting.min_by_key(|(_, place)| place.order) else { return };
            let Some(area) = self.take_posted(self.incoming[slot].total) else { return };
            let order = self.tick();
            let place = &mut self.incoming[slot];
            place.bind(area, order);
            place.grant_due = true;
            self.paths[self.connections[place.connection].path].is_control_due = true;
        }
    }

    fn take_request(
        &mut self,
        now: Instant,
        path: PathId,
        from: Peer,
        header: &Header,
    ) -> Result<Placement, Refusal> {
        let path = self.path_index(path).ok_or(Refusal::WrongAddress)?;
        let is_hello = header.flags & FLAG_HELLO != 0;
        let (total, unit) = (header.total.get(), header.unit.get());
        let units = Incoming::units_of(total, unit);
        if !is_hello && units.is_none() || header.word.get() > u64::from(u32::MAX) {
            return Err(Refusal::Malformed);
        }
        let connection = self.admit(path, from, header)?;
        let known = &mut self.connections[connection];
        let message = header.message.get();
        self.paths[path].is_control_due = true;
        if is_hello {
            known.welcome_due = true;
            return Ok(Placement::Consumed);
        }
        if known.done.contains(message) {
            known.done_at = Instant::ZERO;
            return Err(Refusal::Duplicate);
        }
        if !known.done.has_room_for(message) {
            return Err(Refusal::OutOfBounds);
        }
        let deadline = now + self.silence;
        if let Some(slot) = self.find_place(connection, message) {
            let place = &mut self.incoming[slot];
            if !place.matches(total, unit) {
                return Err(Refusal::Malformed);
            }
            place.grant_due = true;
            place.deadline = deadline;
            return Ok(Placement::Consumed);
        }
        let slot = self.free_place().ok_or(Refusal::NoRoom)?;
        let order = self.tick();
        let place = &mut self.incoming[slot];
        place.begin((connection, message), total, (unit, units.unwrap_or(1)), order);
        place.grant_due = true;
        place.deadline = deadline;
        self.bind_waiting();
        Ok(Placement::Consumed)
    }

    /// The connection that a request belongs to, opened if it is the first.
    fn admit(&mut self, path: usize, from: Peer, header: &Header) -> Result<usize, Refusal> {
        let (key, theirs) = (header.key.get(), header.word.get() as u32);
        let found = self.find_connection(path, from);
        let index = match found {
            Some(index) if key == 0 => {
                let known = self.connections[index].remote_key;
                if known.is_some_and(|known| known != theirs) {
                    // The other side started anew. It waits until nothing of
                    // the old connection is under way.
                    if !self.is_unused(index) {
                        return Err(Refusal::WrongKey);
                    }
                    self.connections[index].open(index, path, from, &mut self.random);
                }
                index
            }
            Some(index) if self.connections[index].local_key == key => index,
            None if key == 0 => self.open(path, from).ok_or(Refusal::NoRoom)?,
            _ => return Err(Refusal::WrongKey),
        };
        self.connections[index].learn_key(theirs)?;
        self.connections[index].used = self.tick();
        self.ask_now(index);
        Ok(index)
    }

    /// The key of the other side is known: word operations can be asked for.
    fn ask_now(&mut self, connection: usize) {
        if !core::mem::take(&mut self.connections[connection].hello_due) {
            return;
        }
        for asked in self.asked.iter_mut().flatten().filter(|a| a.connection == connection) {
            asked.is_due = true;
        }
        self.paths[self.connections[connection].path].is_control_due = true;
    }

    fn take_grant(
        &mut self,
        now: Instant,
        connection: usize,
        header: &Header,
    ) -> Result<(), Refusal> {
        let theirs = u32::try_from(header.word.get()).map_err(|_| Refusal::Malformed)?;
        self.connections[connection].learn_key(theirs)?;
        self.ask_now(connection);
        if header.flags & FLAG_HELLO != 0 {
            return Ok(());
        }
        let message = header.message.get();
        let out = self.outgoing.iter_mut().find(|out| out.is_for(connection, message));
        let out = out.ok_or(Refusal::UnknownId)?;
        out.grant(header.slot, header.unit.get());
        out.retries = 0;
        out.arm(now, self.config.retransmit_after);
        Ok(())
    }

    fn take_ack(
        &mut self,
        now: Instant,
        connection: usize,
        header: &Header,
    ) -> Result<(), Refusal> {
        let message = header.message.get();
        let slot = self.outgoing.iter().position(|out| out.is_for(connection, message));
        let slot = slot.ok_or(Refusal::UnknownId)?;
        let out = &mut self.outgoing[slot];
        let total = header.total.get();
        let report = Report {
            low: header.unit.get(),
            granted: (total >> 32) as u32,
            highest: total as u32,
            base: header.extent.get(),
            bitmap: header.word.get(),
        };
        if out.acknowledge(&report).ok_or(Refusal::OutOfBounds)? {
            out.retries = 0;
            out.arm(now, self.config.retransmit_after);
        }
        if out.is_complete() {
            self.finish(slot);
        }
        Ok(())
    }

    /// The other side has these messages complete.
    fn take_done(&mut self, connection: usize, window: IdWindow) -> Result<(), Refusal> {
        let next = self.connections[connection].next_message;
        let last = window.base.wrapping_add(64 - window.bits.leading_zeros());
        if (next.wrapping_sub(last) as i32) < 0 {
            return Err(Refusal::OutOfBounds);
        }
        for slot in 0..self.outgoing.len() {
            let out = &self.outgoing[slot];
            let is_known = out.is_live() && out.connection == connection;
            if is_known && out.was_sent_whole() && window.contains(out.message) {
                self.finish(slot);
            }
        }
        Ok(())
    }

    fn place_word(
        &mut self,
        connection: usize,
        header: &Header,
        body: &[u8],
    ) -> Result<Placement, Refusal> {
        let (body, _) = FetchBody::ref_from_prefix(body).map_err(|_| Refusal::Truncated)?;
        let (width, function) =
            header::decode_function(header.slot, body).ok_or(Refusal::Malformed)?;
        let served = self.words.ok_or(Refusal::Forbidden)?;
        let bytes = u64::from(width.bytes());
        let from = body.offset.get();
        let end = from.checked_add(bytes).ok_or(Refusal::OutOfBounds)?;
        let offset = served.offset.wrapping_add(from);
        if end > served.len {
            return Err(Refusal::OutOfBounds);
        }
        if !offset.is_multiple_of(bytes) {
            return Err(Refusal::Malformed);
        }
        let number = header.message.get();
        let known = &mut self.connections[connection];
        let begun = known.begin_word(number);
        self.paths[known.path].is_control_due = true;
        let stamp = begun?;
        let parts = Parts {
            purpose: Purpose::Word,
            slot: connection as u8,
            generation: known.generation,
            detail: number as u16,
            stamp,
        };
        let op = WordOp { region: served.region, offset, width, function };
        Ok(Placement::Word(op, parts.pack()))
    }

    fn take_reply(&mut self, connection: usize, header: &Header) -> Result<(), Refusal> {
        let number = header.message.get();
        let asked = self.asked.iter_mut().find(|asked| {
            asked.as_ref().is_some_and(|a| a.connection == connection && a.number == number)
        });
        let asked = asked.and_then(Option::take).ok_or(Refusal::UnknownId)?;
        self.tell(Event::Fetched { fetch: asked.id, old: header.word.get() });
        Ok(())
    }

    /// The runs that are likely next: of the place that was used last, then of
    /// the places that got their memory after it, then of memory that is posted.
    #[inline]
    pub(super) fn guess_run(&self, path: usize, nth: usize) -> Option<Guess> {
        let mut left = nth;
        // A place that was given to another message meanwhile is not the last any more.
        let last = self.paths[path].last.filter(|(slot, order)| {
            let place = &self.incoming[*slot];
            place.order == *order && self.is_on(place, path)
        });
        if let Some((slot, _)) = last
            && let Some(run) = self.incoming[slot].run()
        {
            if left == 0 {
                return Some(run);
            }
            left -= 1;
        }
        let mut after = 0;
        let start = last.map(|(slot, _)| slot);
        for _ in 0..self.incoming.len() {
            let later = self.incoming.iter().enumerate().filter(|(slot, place)| {
                Some(*slot) != start && place.order > after && self.is_on(place, path)
            });
            let Some((_, next)) = later.min_by_key(|(_, place)| place.order) else { break };
            after = next.order;
            if let Some(run) = next.run() {
                if left == 0 {
                    return Some(run);
                }
                left -= 1;
            }
        }
        let area = self.posted.get(left).filter(|_| self.config.eager)?;
        let len = area.len.min(u64::from(self.config.unit)) as u32;
        Some(Guess { span: area.span(0, len), head_len: HEADER_LEN as u16, payload_len: len })
    }

    fn is_on(&self, place: &Incoming, path: usize) -> bool {
        place.state == incoming::State::Open && self.connections[place.connection].path == path
    }

    #[inline]
    pub(super) fn take_landing(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let Some(parts) = Parts::unpack(ticket) else { return };
        match parts.purpose {
            Purpose::Placement => self.take_payload(now, parts, landing),
            Purpose::Word => self.take_word(parts, landing),
            Purpose::Payload | Purpose::Control => {}
        }
    }

    #[inline]
    fn take_payload(&mut self, now: Instant, parts: Parts, landing: Landing) {
        let slot = usize::from(parts.slot);
        let Some(place) = self.incoming.get_mut(slot) else { return };
        if !parts.is_of(place.generation) || !place.holds_memory() {
            return;
        }
        let landed = place.landed((parts.detail, parts.stamp), landing, self.config.ack_every);
        if place.state == incoming::State::Closing {
            return self.end_closing(slot);
        }
        match landed {
            Landed::Stale => return,
            Landed::BadSum => {
                self.refusals.count(Refusal::BadChecksum);
                self.undo_eager(slot);
            }
            Landed::Lost => self.undo_eager(slot),
            Landed::InPlace => {}
            Landed::Complete => return self.deliver(now, slot),
        }
        let place = &self.incoming[slot];
        self.paths[self.connections[place.connection].path].is_control_due |= place.ack_due;
    }

    /// What came without asking did not come to lie there: as if it had not
    /// come, so that a head which nobody could check leaves no trace.
    fn undo_eager(&mut self, slot: usize) {
        let place = &mut self.incoming[slot];
        if place.is_eager && !place.is_under_way() {
            let area = place.posted;
            place.free();
            self.posted.push_front(area);
            self.bind_waiting();
        }
    }

    fn deliver(&mut self, now: Instant, slot: usize) {
        let place = &mut self.incoming[slot];
        let known = &mut self.connections[place.connection];
        known.done.insert(place.message);
        known.untold += 1;
        let wait = place.is_eager && known.untold < UNTOLD_BOUND;
        let at = if wait { now + self.config.ack_delay } else { Instant::ZERO };
        known.done_at = known.done_at.min(at);
        self.paths[known.path].is_control_due |= !wait;
        let event = Event::Delivered {
            path: self.paths[known.path].id,
            from: known.peer,
            message: place.message,
            posted: place.posted,
            len: place.total,
        };
        place.free();
        self.tell(event);
    }

    fn take_word(&mut self, parts: Parts, landing: Landing) {
        let Some(known) = self.connections.get_mut(usize::from(parts.slot)) else { return };
        if !parts.is_of(known.generation) || !known.is_open {
            return;
        }
        let old = match landing {
            Landing::Old(old) => Some(old),
            _ => None,
        };
        if known.end_word(parts.detail, parts.stamp, old) {
            self.paths[known.path].is_control_due = true;
        }
    }
}
