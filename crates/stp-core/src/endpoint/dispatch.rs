//! A packet comes: what everything is checked for, and who it is for. A payload is in place, a
//! transmission is over.

use landfall_placement::{
    Check, Instant, Landing, Peer, Placement, Refusal, RunPlacement, Spans, Ticket, Unit, UnitRun,
};

use super::Endpoint;
use crate::config::MOST_EAGER;
use crate::connection::State as ConnectionState;
use crate::mirror::Owner;
use crate::offload::{Hit, Incoming};
use crate::ticket::Purpose;
use crate::wire::header::SHORTEST_FRAME;
use crate::wire::message::{Message, Question, State};
use crate::wire::{Envelope, Flags, HEADER_LEN, Header, Op, Reason, header, hold, proof};

/// How many events wait at most, for each place in the queue of a path, before
/// nothing more is taken in.
const EVENTS_PER_PLACE: usize = 4;

impl Endpoint {
    #[inline]
    pub(super) fn dispatch(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if (unit.len as usize) < HEADER_LEN {
            return Err(Refusal::Truncated);
        }
        if self.is_full() {
            return Err(Refusal::NoRoom);
        }
        let Some(header) = Header::read(unit.head) else {
            return Ok(Placement::NeedHead(HEADER_LEN as u16));
        };
        if header.op == Op::Data as u8 {
            return self.place_data(now, unit, header, into);
        }
        self.take_message(now, unit, header, into)
    }

    /// Data: the offload seam says where it belongs.
    #[inline]
    fn place_data(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        header: &Header,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if self.config.checksum && !header.flags().has(Flags::SUM) {
            return Err(Refusal::BadChecksum);
        }
        let (path, from, ecn) = (unit.path, unit.from, unit.ecn);
        let data = Incoming { header, len: unit.len, path, from, ecn };
        let hit = self.place_here(&data)?;
        // One span always fits: the list comes empty.
        into.push(hit.span).map_err(|_| Refusal::NoRoom)?;
        self.note_data(now, hit.seat.into(), hold::decode(header.param.get()));
        let check = if header.flags().has(Flags::SUM) {
            let len = HEADER_LEN as u32 + hit.span.len;
            Check::InternetSum { from: 0, len, seed: 0 }
        } else {
            Check::None
        };
        let ticket = Purpose::Stus(hit.seat.into()).pack();
        Ok(Placement::Into { at: HEADER_LEN as u16, check, ticket })
    }

    /// A run of Data: the seam says where its leading part belongs. What adapters have, what
    /// is summed and whatever is not expected goes the way of single packets.
    #[inline]
    pub(super) fn place_data_run(
        &mut self,
        now: Instant,
        run: &UnitRun<'_>,
    ) -> Option<RunPlacement> {
        if self.granted.mirror.is_on() || self.config.checksum || self.is_full() {
            return None;
        }
        let hit = self.granted.table().place_run(run)?;
        self.note_data(now, hit.seats, hold::decode(hit.hold));
        Some(RunPlacement {
            units: hit.seats.count,
            at: HEADER_LEN as u16,
            span: hit.span,
            ticket: Purpose::Stus(hit.seats).pack(),
        })
    }

    /// Does nobody take the events? Whatever comes then will be sent again.
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.config.queue * EVENTS_PER_PLACE
    }

    /// Asks the table, for a Block that the engine itself has. What an adapter has
    /// is not taken here, though the table would: the adapter refused it, before
    /// something was granted that is by now.
    #[inline]
    fn place_here(&mut self, data: &Incoming<'_>) -> Result<Hit, Refusal> {
        if self.granted.mirror.is_on() {
            let (seat, _) = self.granted.table().check(data)?;
            if self.granted.mirror.owner(seat.block) != Owner::Engine {
                return Err(Refusal::Unexpected);
            }
        }
        self.granted.table().place(data)
    }

    /// Anything else: whole, sealed, known, and from where it should be.
    fn take_message(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        header: &Header,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let op = header.operation()?;
        let len = Message::head_len(op, header.flags());
        if (unit.len as usize) < len {
            return Err(Refusal::Truncated);
        }
        let Some(head) = unit.head.get(..len) else {
            return Ok(Placement::NeedHead(len as u16));
        };
        if op != Op::Put {
            let whole = header.filled_len().unwrap_or(len as u32);
            if op == Op::RequestToSend && whole > len as u32 + u32::from(MOST_EAGER) {
                return Err(Refusal::Malformed);
            }
            if unit.len > SHORTEST_FRAME.max(whole) {
                return Err(Refusal::Malformed);
            }
            if unit.len < whole {
                return Err(Refusal::Truncated);
            }
            // What goes with its request is summed with it.
            let is_eager = op == Op::RequestToSend && whole > len as u32;
            let summed = if is_eager { whole.min(u16::MAX.into()) as u16 } else { len as u16 };
            let Some(summed) = unit.head.get(..summed.into()) else {
                return Ok(Placement::NeedHead(summed));
            };
            let is_marked = Header::read(head).is_some_and(|header| header.flags().has(Flags::SUM));
            if !is_marked || !header::is_sealed(summed) {
                return Err(Refusal::BadChecksum);
            }
        }
        let (envelope, message) = Message::decode(head)?;
        if let Message::RequestConnection(offer) = message {
            self.take_connection_request(now, unit, envelope, offer)?;
            return Ok(Placement::Consumed);
        }
        let connection = self.connection_of(envelope, &message)?;
        let path = self.path_index(unit.path).ok_or(Refusal::WrongAddress)? as u8;
        let Some(link) = self.link_from(connection, path, unit.from) else {
            return self.take_from_elsewhere(now, unit, connection, (head, &message));
        };
        let has_proof = self.check_proof(connection, head, &message)?;
        let payload = match message {
            Message::RequestToSend { is_eager: true, len: all, .. }
                if all <= self.takes_eagerly().into() =>
            {
                unit.head.get(len..len + all as usize).unwrap_or_default()
            }
            _ => &[],
        };
        self.note_heard(now, connection, link, &message);
        match message {
            Message::Put { .. } => return self.place_put(connection, unit, &message, head, into),
            Message::FetchOp { .. } => return self.place_fetch(connection, &message),
            _ => self.take_control(now, unit, connection, (message, payload, has_proof))?,
        }
        Ok(Placement::Consumed)
    }

    /// The connection that the key belongs to, if the ports are right too.
    pub(crate) fn connection_of(
        &self,
        envelope: Envelope,
        message: &Message,
    ) -> Result<u32, Refusal> {
        let index = self.connections.keys.get(envelope.d_key).ok_or(Refusal::WrongKey)?;
        let known = self.connections.get(index).ok_or(Refusal::WrongKey)?;
        if envelope.d_port != known.local_port {
            return Err(Refusal::WrongAddress);
        }
        // Who answers a request may do so from another port.
        let is_answer = matches!(message, Message::ConnectionAnswer { .. });
        if envelope.s_port != known.remote_port && !is_answer {
            return Err(Refusal::WrongAddress);
        }
        Ok(index)
    }

    /// The link of a connection that a packet came over, if it is one of them.
    pub(crate) fn link_from(&self, connection: u32, path: u8, from: Peer) -> Option<u32> {
        let is_it = |link: &u32| {
            self.links.get(*link).is_some_and(|link| link.path == path && link.peer == from)
        };
        self.connections.get(connection)?.links().find(is_it)
    }

    /// Does a packet come from the other side of its connection? Says whether it
    /// proves that, or is of those that carry no proof.
    pub(crate) fn check_proof(
        &self,
        connection: u32,
        head: &[u8],
        message: &Message,
    ) -> Result<bool, Refusal> {
        let known = self.connections.get(connection).ok_or(Refusal::UnknownId)?;
        // Who speaks an older version says so, and knows of no proofs.
        let is_older = known.state == ConnectionState::Opening
            && matches!(
                message,
                Message::ConnectionAnswer { result: Err(Reason::Incompatible), .. }
            );
        match proof::check(head, known.secrets_in()) {
            proof::Verdict::Right => Ok(true),
            proof::Verdict::Without => Ok(false),
            proof::Verdict::Missing if is_older => Ok(false),
            proof::Verdict::Missing | proof::Verdict::Wrong => Err(Refusal::BadProof),
        }
    }

    /// A packet from where the connection has no link. Only that there is one may
    /// be said from there.
    fn take_from_elsewhere(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        connection: u32,
        (head, message): (&[u8], &Message),
    ) -> Result<Placement, Refusal> {
        let (ids, token, has_moved) = match *message {
            Message::RequestState(Question::Connection { ids, is_link: true, token }) => {
                (ids, token, false)
            }
            Message::RequestState(Question::Moved { ids, token }) => (ids, token, true),
            _ => return Err(Refusal::WrongAddress),
        };
        self.check_proof(connection, head, message)?;
        if self.learn_link(now, unit, connection, (ids, token), has_moved)? {
            self.prove(now, connection, true)?;
            self.answer_alive(unit, connection, ids, token);
        }
        Ok(Placement::Consumed)
    }

    fn take_control(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        connection: u32,
        (message, payload, has_proof): (Message, &[u8], bool),
    ) -> Result<(), Refusal> {
        match message {
            Message::ConnectionAnswer { d_id, result } => {
                return self.take_connection_answer(now, unit, connection, d_id, result);
            }
            Message::RequestDisconnect { abort, .. } => {
                return self.take_disconnect_request(now, connection, abort);
            }
            Message::DisconnectAnswer { .. } => {
                return self.take_disconnect_answer(now, connection);
            }
            Message::DisconnectComplete { .. } => {
                return self.take_disconnect_complete(connection);
            }
            _ => {}
        }
        self.prove(now, connection, has_proof)?;
        match message {
            Message::RequestToSend { .. } => {
                self.take_request_to_send(now, connection, (&message, payload))
            }
            Message::RequestToReceive { s_id, serial, len, opaque } => {
                self.take_request_to_receive(connection, s_id, serial, (len, opaque))
            }
            Message::RequestAnswer { ids, serial, is_read: true, verdict } => {
                self.take_read_answer(connection, ids, serial, verdict)
            }
            Message::RequestAnswer { ids, serial, is_read: false, verdict } => {
                self.take_send_answer(now, connection, ids, serial, verdict)
            }
            Message::ClearToSend(grant) => self.take_grant(now, unit, connection, &grant),
            Message::End { ending, reason } => self.take_end(now, connection, ending, reason),
            Message::EndAck(ending) => self.take_end_ack(now, connection, ending),
            Message::RequestMemoryRegion { .. } => self.take_region_request(connection, &message),
            Message::MemoryRegionAvailable { d_id, serial, result } => {
                self.take_region_answer(connection, d_id, serial, result)
            }
            Message::Get(get) => self.take_get(now, unit, connection, &get),
            Message::FetchOpComplete { below } => self.take_fetch_complete(connection, below),
            Message::RequestState(question) => self.take_question(unit, connection, question),
            Message::RequestStateResponse(State::Connection { is_link: true, token, .. }) => {
                self.answer_challenge(unit, connection, token)
            }
            Message::RequestStateResponse(State::Connection { token, .. }) => {
                self.take_alive(now, unit, connection, token);
                Ok(())
            }
            Message::RequestStateResponse(State::Size { size, token, .. }) => {
                self.take_size(unit, size, token)
            }
            Message::RequestStateResponse(state) => self.take_state(now, connection, state),
            _ => Err(Refusal::Unexpected),
        }
    }

    fn take_question(
        &mut self,
        unit: &Unit<'_>,
        connection: u32,
        question: Question,
    ) -> Result<(), Refusal> {
        match question {
            Question::Connection { ids, token, .. } | Question::Moved { ids, token } => {
                self.answer_alive(unit, connection, ids, token);
                Ok(())
            }
            Question::Transfer { ids, serial } => self.answer_progress(connection, ids, serial),
            Question::Memory => {
                self.answer_applied(connection, None, None);
                Ok(())
            }
            Question::Size { ids, size, token } => {
                self.answer_size(unit, connection, ids, size, token)
            }
        }
    }

    fn take_state(&mut self, now: Instant, connection: u32, state: State) -> Result<(), Refusal> {
        match state {
            State::Connection { .. } | State::Size { .. } => Err(Refusal::Unexpected),
            State::Transfer { ids, serial, acked, len, is_complete } => {
                self.take_progress(now, connection, (ids, serial), acked, len, is_complete)
            }
            State::Memory { applied, refused, ahead } => {
                self.take_applied(now, connection, applied, refused, &ahead)
            }
            State::Fetched { serial, old } => self.take_fetched(now, connection, serial, old),
            State::GetRefused { d_id, serial, reason } => {
                self.take_get_refused(now, connection, d_id, serial, reason)
            }
        }
    }

    /// The other side has our secret: it hears us. What is not open refuses the rest.
    fn prove(&mut self, now: Instant, connection: u32, has_proof: bool) -> Result<(), Refusal> {
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        known.is_proved |= has_proof;
        match known.state {
            // The key alone may have been guessed: what proves more comes again.
            ConnectionState::Answered | ConnectionState::Met if !has_proof => {
                Err(Refusal::Unexpected)
            }
            ConnectionState::Answered => {
                self.finish_accept(now, connection);
                Ok(())
            }
            ConnectionState::Met => {
                self.finish_connect(now, connection);
                Ok(())
            }
            ConnectionState::Opening | ConnectionState::Asked => Err(Refusal::Unexpected),
            _ => Ok(()),
        }
    }
}

impl Endpoint {
    #[inline]
    pub(super) fn land(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let is_in_place = matches!(landing, Landing::Verified | Landing::Unchecked);
        match Purpose::unpack(ticket) {
            Purpose::Stus(seats) => {
                if landing == Landing::Corrupt {
                    self.refusals.count(landfall_placement::Refusal::BadChecksum);
                }
                self.land_stus(now, seats, is_in_place, landing == Landing::Failed);
            }
            Purpose::Put(step) => {
                if landing == Landing::Corrupt {
                    self.refusals.count(landfall_placement::Refusal::BadChecksum);
                }
                self.land_put(now, step, landing);
            }
            Purpose::Fetch(step) => {
                let old = if let Landing::Old(old) = landing { Some(old) } else { None };
                self.land_fetch(now, step, old);
            }
            Purpose::Early { index, generation } => {
                self.land_early(now, (index, generation), is_in_place);
            }
            Purpose::Control
            | Purpose::Send { .. }
            | Purpose::Exposed { .. }
            | Purpose::Operation(_) => {}
        }
    }

    #[inline]
    pub(super) fn let_go(&mut self, _now: Instant, ticket: Ticket) {
        match Purpose::unpack(ticket) {
            Purpose::Send { index, generation } => self.let_go_of_send(index, generation),
            Purpose::Exposed { index, generation } => self.let_go_of_exposed(index, generation),
            Purpose::Operation(step) => self.let_go_of_operation(step),
            Purpose::Control
            | Purpose::Stus(_)
            | Purpose::Put(_)
            | Purpose::Fetch(_)
            | Purpose::Early { .. } => {}
        }
    }
}
