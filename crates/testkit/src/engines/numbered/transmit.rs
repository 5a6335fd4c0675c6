//! What is sent next.

use landfall_placement::{Ecn, Instant, Spans, SumSlot, Ticket, Transmit};

use super::header::{
    CONTROL, FETCH_LEN, FLAG_DONE, FLAG_HELLO, FLAG_SUM, HEADER_LEN, Header, Kind, Parts, Purpose,
    SUM_OFFSET, encode_function, write_fetch,
};
use super::{Event, Numbered, outgoing};

impl Numbered {
    #[inline]
    pub(super) fn next_transmit(
        &mut self,
        now: Instant,
        path: usize,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let limits = self.paths[path].limits?;
        if head.len() < FETCH_LEN || (limits.unit as usize) < FETCH_LEN {
            return None;
        }
        if self.paths[path].is_control_due {
            if let Some(control) = self.next_control(now, path, head) {
                return Some(control);
            }
            self.paths[path].is_control_due = false;
        }
        self.next_data(now, path, limits.unit, head, from)
    }

    /// What carries no payload goes first: the other side waits for it.
    fn next_control(&mut self, now: Instant, path: usize, head: &mut [u8]) -> Option<Transmit> {
        let (connection, head_len) = self
            .next_report(path, head)
            .or_else(|| self.next_done(now, path, head))
            .or_else(|| self.next_hello(path, head))
            .or_else(|| self.next_reply(path, head))
            .or_else(|| self.next_fetch(path, head))
            .or_else(|| self.next_request(path, head))?;
        Some(Transmit {
            to: self.connections[connection].peer,
            head_len,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: CONTROL,
        })
    }

    /// A grant or an acknowledgement.
    fn next_report(&mut self, path: usize, head: &mut [u8]) -> Option<(usize, u16)> {
        let connections = &self.connections;
        let (slot, place) =
            self.incoming.iter_mut().enumerate().find(|(_, place)| {
                place.has_news() && connections[place.connection].path == path
            })?;
        let connection = place.connection;
        let known = &connections[connection];
        let header = if place.grant_due {
            place.grant_due = false;
            Header {
                slot: slot as u8,
                unit: place.granted().into(),
                word: u64::from(known.local_key).into(),
                ..Header::new(Kind::Grant, known.key(), place.message)
            }
        } else {
            let report = place.report();
            Header {
                slot: slot as u8,
                unit: report.low.into(),
                extent: report.base.into(),
                total: (u64::from(report.granted) << 32 | u64::from(report.highest)).into(),
                word: report.bitmap.into(),
                ..Header::new(Kind::Ack, known.key(), place.message)
            }
        };
        Some((connection, header.write_alone(head)?))
    }

    fn next_done(&mut self, now: Instant, path: usize, head: &mut [u8]) -> Option<(usize, u16)> {
        let (connection, known) = self
            .connections
            .iter_mut()
            .enumerate()
            .find(|(_, known)| known.is_open && known.path == path && known.done_at <= now)?;
        known.done_at = Instant::FAR_FUTURE;
        known.untold = 0;
        let header = Header {
            word: known.done.bits.into(),
            ..Header::new(Kind::Done, known.key(), known.done.base)
        };
        Some((connection, header.write_alone(head)?))
    }

    /// Our key, because the other side asked or because we need theirs.
    fn next_hello(&mut self, path: usize, head: &mut [u8]) -> Option<(usize, u16)> {
        let (connection, known) = self.connections.iter_mut().enumerate().find(|(_, known)| {
            known.is_open && known.path == path && (known.welcome_due || known.is_greeting)
        })?;
        let kind = if known.welcome_due { Kind::Grant } else { Kind::Request };
        if known.welcome_due {
            known.welcome_due = false;
        } else {
            known.is_greeting = false;
        }
        let header = Header {
            flags: FLAG_HELLO,
            word: u64::from(known.local_key).into(),
            ..Header::new(kind, known.key(), 0)
        };
        Some((connection, header.write_alone(head)?))
    }

    fn next_reply(&mut self, path: usize, head: &mut [u8]) -> Option<(usize, u16)> {
        let on_path = |(_, known): &(usize, &mut super::Connection)| known.path == path;
        for (connection, known) in self.connections.iter_mut().enumerate().filter(on_path) {
            if let Some((number, old)) = known.take_reply() {
                let header = Header {
                    word: old.into(),
                    ..Header::new(Kind::FetchReply, known.key(), number)
                };
                return Some((connection, header.write_alone(head)?));
            }
        }
        None
    }

    fn next_fetch(&mut self, path: usize, head: &mut [u8]) -> Option<(usize, u16)> {
        let connections = &self.connections;
        let asked = self
            .asked
            .iter_mut()
            .flatten()
            .find(|asked| asked.is_due && connections[asked.connection].path == path)?;
        asked.is_due = false;
        let key = connections[asked.connection].key();
        let (code, body) = encode_function(asked.offset, asked.width, asked.function);
        let header = Header { slot: code, ..Header::new(Kind::Fetch, key, asked.number) };
        Some((asked.connection, write_fetch(header, &body, head)?))
    }

    fn next_request(&mut self, path: usize, head: &mut [u8]) -> Option<(usize, u16)> {
        let connections = &self.connections;
        let out = self
            .outgoing
            .iter_mut()
            .filter(|out| out.is_live() && out.request_due)
            .filter(|out| connections[out.connection].path == path)
            .min_by_key(|out| out.id)?;
        out.request_due = false;
        let known = &connections[out.connection];
        let header = Header {
            unit: out.unit.into(),
            total: out.source.len.into(),
            word: u64::from(known.local_key).into(),
            ..Header::new(Kind::Request, known.key(), out.message)
        };
        Some((out.connection, header.write_alone(head)?))
    }

    #[inline]
    fn next_data(
        &mut self,
        now: Instant,
        path: usize,
        most: u32,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let slot = self.next_turn(path, most)?;
        self.turn = slot;
        let out = &mut self.outgoing[slot];
        let (unit, span, is_again) = out.next_unit()?;
        from.push(span).ok()?;
        out.held += 1;
        if out.deadline == Instant::FAR_FUTURE {
            out.arm(now, self.config.retransmit_after);
        }
        self.retransmitted += u64::from(is_again);
        let known = &mut self.connections[out.connection];
        let mut header = Header {
            slot: out.slot,
            unit: unit.into(),
            extent: span.len.into(),
            total: out.source.len.into(),
            ..Header::new(Kind::Data, known.key(), out.message)
        };
        let mut checksum = None;
        if self.config.checksum {
            header.flags = FLAG_SUM;
            checksum = Some(SumSlot { start: 0, offset: SUM_OFFSET });
        } else if known.done_at != Instant::FAR_FUTURE && known.done.bits >> 32 == 0 {
            header.flags = FLAG_DONE;
            header.word = (u64::from(known.done.base) | known.done.bits << 32).into();
            known.done_at = Instant::FAR_FUTURE;
            known.untold = 0;
        }
        let head_len = header.write(head)?;
        debug_assert_eq!(usize::from(head_len), HEADER_LEN);
        let generation = out.generation;
        let (purpose, slot) = (Purpose::Payload, slot as u8);
        let parts = Parts { purpose, slot, generation, detail: 0, stamp: 0 };
        Some(Transmit {
            to: known.peer,
            head_len,
            segment: None,
            checksum,
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket: parts.pack(),
        })
    }

    /// The message whose turn it is: the same as before while it has units to
    /// send, so that units of equal length follow each other; then the oldest,
    /// which is the one that the other side guesses.
    #[inline]
    fn next_turn(&self, path: usize, most: u32) -> Option<usize> {
        let can_go = |slot: &usize| {
            let out = &self.outgoing[*slot];
            out.has_work()
                && self.connections[out.connection].path == path
                && out.unit + HEADER_LEN as u32 <= most
        };
        // A slot that was given to another message since has not begun.
        if can_go(&self.turn) && self.outgoing[self.turn].has_begun() {
            return Some(self.turn);
        }
        (0..self.outgoing.len()).filter(can_go).min_by_key(|slot| self.outgoing[*slot].id)
    }

    /// A driver holds this transmission's memory no longer.
    #[inline]
    pub(super) fn release(&mut self, ticket: Ticket) {
        let Some(parts) = Parts::unpack(ticket) else { return };
        let slot = usize::from(parts.slot);
        let Some(out) = self.outgoing.get_mut(slot) else { return };
        let is_known = parts.purpose == Purpose::Payload && parts.is_of(out.generation);
        if is_known && out.held > 0 {
            out.held -= 1;
            self.end_outgoing(slot);
        }
    }

    /// The other side has all of it.
    pub(super) fn finish(&mut self, slot: usize) {
        let out = &mut self.outgoing[slot];
        out.state = outgoing::State::Sent;
        out.deadline = Instant::FAR_FUTURE;
        self.end_outgoing(slot);
    }

    /// Tells the user once no driver holds the memory any more.
    pub(super) fn end_outgoing(&mut self, slot: usize) {
        let out = &mut self.outgoing[slot];
        let message = out.id;
        let event = match out.state {
            _ if out.held > 0 => return,
            outgoing::State::Sent => Event::Sent { message },
            outgoing::State::Failed => Event::SendFailed { message },
            _ => return,
        };
        out.free();
        self.tell(event);
    }
}
