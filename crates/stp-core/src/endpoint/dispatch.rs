//! A packet comes: what everything is checked for, and who it is for. A payload is in place, a
//! transmission is over.

use landfall_placement::{Landing, Placement, Refusal, RunPlacement, Spans, Ticket, Unit, UnitRun};

use super::Endpoint;
use crate::config::MOST_EAGER;
use crate::connection::State as ConnectionState;
use crate::connection::{Effect, Refused};
use crate::error::Ended;
use crate::region::OrderBroken;
use crate::ticket::Purpose;
use crate::wire::header::SHORTEST_FRAME;
use crate::wire::message::{Ids, Message, Offer, Question, State};
use crate::wire::{Envelope, Flags, HEADER_LEN, Header, Op, Reason, header};

impl Endpoint {
    #[inline]
    pub(super) fn dispatch(
        &mut self,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        if (unit.len as usize) < HEADER_LEN {
            return Err(Refusal::Truncated);
        }
        if self.cx.is_full() {
            return Err(Refusal::NoRoom);
        }
        let Some(header) = Header::read(unit.head) else {
            return Ok(Placement::NeedHead(HEADER_LEN as u16));
        };
        if header.op == Op::Data as u8 {
            return self.receives.place_data(&mut self.net, &mut self.cx, unit, header, into);
        }
        self.take_message(unit, header, into)
    }

    /// A run of Puts: `None`, and nothing changed, where it is not what is expected next.
    pub(super) fn place_put_run(&mut self, run: &UnitRun<'_>) -> Option<RunPlacement> {
        let expected = self.regions.expected_run(&self.net, &self.cx, run)?;
        self.note_heard(expected.connection, expected.link, &expected.message);
        Some(self.regions.place_run(&mut self.net, &expected))
    }

    /// Anything else: whole, sealed, known, and from where it should be.
    fn take_message(
        &mut self,
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
            self.take_connection_request(unit, envelope, offer)?;
            return Ok(Placement::Consumed);
        }
        let connection = self.net.connection_of(envelope, &message)?;
        let path = self.net.path_index(unit.path).ok_or(Refusal::WrongAddress)? as u8;
        let Some(link) = self.net.link_from(connection, path, unit.from) else {
            return self.take_from_elsewhere(unit, connection, (head, &message));
        };
        let has_proof = self.net.check_proof(connection, head, &message)?;
        let payload = match message {
            Message::RequestToSend { is_eager: true, len: all, .. }
                if all <= self.receives.takes_eagerly(&self.cx).into() =>
            {
                unit.head.get(len..len + all as usize).unwrap_or_default()
            }
            _ => &[],
        };
        self.note_heard(connection, link, &message);
        match message {
            Message::Put { .. } => {
                return self.regions.place_put(
                    &mut self.net,
                    &mut self.cx,
                    connection,
                    unit,
                    &message,
                    head,
                    into,
                );
            }
            Message::FetchOp { .. } => {
                return self.regions.place_fetch(&mut self.net, &mut self.cx, connection, &message);
            }
            _ => self.take_control(unit, connection, (message, payload, has_proof))?,
        }
        Ok(Placement::Consumed)
    }

    /// A packet from where the connection has no link. Only that there is one may
    /// be said from there.
    fn take_from_elsewhere(
        &mut self,
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
        self.net.check_proof(connection, head, message)?;
        if self.learn_link(unit, connection, (ids, token), has_moved)? {
            self.prove(connection, true)?;
            self.net.answer_alive(&mut self.cx, unit, connection, ids, token);
        }
        Ok(Placement::Consumed)
    }

    /// Somebody wants a connection.
    fn take_connection_request(
        &mut self,
        unit: &Unit<'_>,
        envelope: Envelope,
        offer: Offer,
    ) -> Result<(), Refusal> {
        let admission = match self.net.take_connection_request(&mut self.cx, unit, envelope, offer)
        {
            Ok(Some(admission)) => admission,
            Ok(None) => return Ok(()),
            Err(refused) => return self.settle(Err(refused)),
        };
        let is_full = self.net.is_full();
        while let Some(index) = self.net.half_open_to_drop(&mut self.cx, is_full) {
            self.apply(Effect::failed(index, Ended::Silent));
            if is_full {
                break;
            }
        }
        self.net.let_in(&mut self.cx, unit, (envelope, offer), admission)
    }

    /// The other side can be reached at a further address, it says. Gives whether that is known
    /// now.
    fn learn_link(
        &mut self,
        unit: &Unit<'_>,
        connection: u32,
        (ids, token): (Ids, u64),
        has_moved: bool,
    ) -> Result<bool, Refusal> {
        let learnt =
            self.net.learn_link(&mut self.cx, unit, connection, (ids, token), has_moved)?;
        let Some(link) = learnt else { return Ok(false) };
        if has_moved {
            // What was granted over the others is granted again over this one. A packet over
            // one of them, if there ever is one, brings it back.
            for old in self.net.left_for(connection, link) {
                self.lose_link(old);
            }
        }
        self.net.begin_link(&mut self.cx, connection, link);
        self.receives.wake_receives(&mut self.net, connection);
        Ok(true)
    }

    /// The other side of a connection said something over one of its links.
    fn note_heard(&mut self, connection: u32, link: u32, message: &Message) {
        if self.net.note_heard_over(link) {
            self.revive_link(link);
        }
        if self.net.note_heard(&self.cx, connection, link, message) {
            self.receives.wake_receives(&mut self.net, connection);
            self.net.find_size(&mut self.cx, connection, link);
        }
    }

    fn take_control(
        &mut self,
        unit: &Unit<'_>,
        connection: u32,
        (message, payload, has_proof): (Message, &[u8], bool),
    ) -> Result<(), Refusal> {
        match message {
            Message::ConnectionAnswer { d_id, result } => {
                let answered =
                    self.net.take_connection_answer(&mut self.cx, unit, connection, d_id, result);
                return self.settle(answered);
            }
            Message::RequestDisconnect { abort, .. } => {
                let asked = self.net.take_disconnect_request(&mut self.cx, connection, abort);
                return self.settle(asked.map_err(Refused::from));
            }
            Message::DisconnectAnswer { .. } => {
                let answered = self.net.take_disconnect_answer(&mut self.cx, connection);
                return self.settle(answered.map_err(Refused::from));
            }
            Message::DisconnectComplete { .. } => {
                let completed = self.net.take_disconnect_complete(connection);
                return self.settle(completed.map_err(Refused::from));
            }
            _ => {}
        }
        self.prove(connection, has_proof)?;
        match message {
            Message::RequestToSend { .. } => self.receives.take_request_to_send(
                &mut self.net,
                &mut self.cx,
                connection,
                (&message, payload),
            ),
            Message::RequestToReceive { s_id, serial, len, opaque } => {
                self.sends.take_request_to_receive(
                    &mut self.net,
                    &mut self.cx,
                    connection,
                    s_id,
                    serial,
                    (len, opaque),
                )
            }
            Message::RequestAnswer { ids, serial, is_read: true, verdict } => self
                .receives
                .take_read_answer(&mut self.net, &mut self.cx, connection, ids, serial, verdict),
            Message::RequestAnswer { ids, serial, is_read: false, verdict } => self
                .sends
                .take_send_answer(&mut self.net, &mut self.cx, connection, ids, serial, verdict),
            Message::ClearToSend(grant) => {
                self.sends.take_grant(&mut self.net, &mut self.cx, unit, connection, &grant)
            }
            Message::End { ending, reason } if ending.by_receiver => {
                self.sends.take_end_of_send(&mut self.net, &mut self.cx, connection, ending, reason)
            }
            Message::End { ending, reason } => {
                self.receives.take_end(&mut self.net, &mut self.cx, connection, ending, reason)
            }
            Message::EndAck(ending) if ending.by_receiver => {
                self.receives.take_end_ack(&mut self.net, &mut self.cx, connection, ending)
            }
            Message::EndAck(ending) => {
                self.sends.take_end_ack_of_send(&mut self.net, &mut self.cx, connection, ending)
            }
            Message::RequestMemoryRegion { .. } => {
                self.regions.take_region_request(&mut self.net, &mut self.cx, connection, &message)
            }
            Message::MemoryRegionAvailable { d_id, serial, result } => self
                .regions
                .take_region_answer(&mut self.net, &mut self.cx, connection, d_id, serial, result),
            Message::Get(get) => {
                self.regions.take_get(&mut self.net, &mut self.cx, unit, connection, &get)
            }
            Message::FetchOpComplete { below } => {
                self.regions.take_fetch_complete(&mut self.net, connection, below)
            }
            Message::RequestState(question) => self.take_question(unit, connection, question),
            Message::RequestStateResponse(State::Connection { is_link: true, token, .. }) => {
                self.net.answer_challenge(&mut self.cx, unit, connection, token)
            }
            Message::RequestStateResponse(State::Connection { token, .. }) => {
                self.net.take_alive(&mut self.cx, unit, connection, token);
                Ok(())
            }
            Message::RequestStateResponse(State::Size { size, token, .. }) => {
                self.net.take_size(&mut self.cx, unit, size, token)
            }
            Message::RequestStateResponse(state) => self.take_state(connection, state),
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
                self.net.answer_alive(&mut self.cx, unit, connection, ids, token);
                Ok(())
            }
            Question::Transfer { ids, serial } => {
                self.receives.answer_progress(&mut self.net, &mut self.cx, connection, ids, serial)
            }
            Question::Memory => {
                self.regions.answer_applied(&mut self.net, &mut self.cx, connection, None, None);
                Ok(())
            }
            Question::Size { ids, size, token } => {
                self.net.answer_size(&mut self.cx, unit, connection, ids, size, token)
            }
        }
    }

    fn take_state(&mut self, connection: u32, state: State) -> Result<(), Refusal> {
        match state {
            State::Connection { .. } | State::Size { .. } => Err(Refusal::Unexpected),
            State::Transfer { ids, serial, acked, len, is_complete } => self.sends.take_progress(
                &mut self.net,
                &mut self.cx,
                connection,
                (ids, serial),
                acked,
                len,
                is_complete,
            ),
            State::Memory { applied, refused, ahead } => {
                let turn = self.streams.take_applied(
                    &mut self.net,
                    &mut self.cx,
                    connection,
                    applied,
                    refused,
                    &ahead,
                )?;
                self.end_stream_turn(connection, turn);
                Ok(())
            }
            State::Fetched { serial, old } => {
                let turn = self.streams.take_fetched(
                    &mut self.net,
                    &mut self.cx,
                    connection,
                    serial,
                    old,
                )?;
                self.end_stream_turn(connection, turn);
                self.streams.complete_fetches(&mut self.net, &mut self.cx, connection);
                Ok(())
            }
            State::GetRefused { d_id, serial, reason } => self.receives.take_get_refused(
                &mut self.net,
                &mut self.cx,
                connection,
                d_id,
                serial,
                reason,
            ),
        }
    }

    /// The other side has our secret: it hears us. What is not open refuses the rest.
    fn prove(&mut self, connection: u32, has_proof: bool) -> Result<(), Refusal> {
        let Some(known) = self.net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        known.is_proved |= has_proof;
        match known.state {
            // The key alone may have been guessed: what proves more comes again.
            ConnectionState::Answered | ConnectionState::Met if !has_proof => {
                Err(Refusal::Unexpected)
            }
            ConnectionState::Answered => {
                self.net.finish_accept(&mut self.cx, connection);
                Ok(())
            }
            ConnectionState::Met => {
                self.net.finish_connect(&mut self.cx, connection);
                Ok(())
            }
            ConnectionState::Opening | ConnectionState::Asked => Err(Refusal::Unexpected),
            _ => Ok(()),
        }
    }
}

impl Endpoint {
    #[inline]
    pub(super) fn land(&mut self, ticket: Ticket, landing: Landing) {
        let is_in_place = matches!(landing, Landing::Verified | Landing::Unchecked);
        match Purpose::unpack(ticket) {
            Purpose::Stus(seats) => {
                if landing == Landing::Corrupt {
                    self.cx.refusals.count(landfall_placement::Refusal::BadChecksum);
                }
                self.receives.land_stus(
                    &mut self.net,
                    &mut self.cx,
                    seats,
                    is_in_place,
                    landing == Landing::Failed,
                );
            }
            Purpose::Put(step) => {
                if landing == Landing::Corrupt {
                    self.cx.refusals.count(landfall_placement::Refusal::BadChecksum);
                }
                let landed = self.regions.land_put(&mut self.net, &mut self.cx, step, landing);
                self.end_if_broken(landed);
            }
            Purpose::Fetch(step) => {
                let old = if let Landing::Old(old) = landing { Some(old) } else { None };
                let landed = self.regions.land_fetch(&mut self.net, &mut self.cx, step, old);
                self.end_if_broken(landed);
            }
            Purpose::Early { index, generation } => {
                self.receives.land_early(
                    &mut self.net,
                    &mut self.cx,
                    (index, generation),
                    is_in_place,
                );
            }
            Purpose::Control
            | Purpose::Send { .. }
            | Purpose::Exposed { .. }
            | Purpose::Operation(_) => {}
        }
    }

    /// A connection ends whose order is broken. Where it is over, that ends nothing more.
    fn end_if_broken(&mut self, landed: Result<(), OrderBroken>) {
        let Err(OrderBroken { connection, exposed }) = landed else { return };
        let id = self.net.id_of(connection);
        let _ = self.abort(self.cx.now, id, Reason::MemoryFailed);
        self.regions.end_step(&mut self.net, &mut self.cx, connection, exposed);
    }

    #[inline]
    pub(super) fn let_go(&mut self, ticket: Ticket) {
        match Purpose::unpack(ticket) {
            Purpose::Send { index, generation } => {
                self.sends.let_go_of_send(&mut self.net, &mut self.cx, index, generation)
            }
            Purpose::Exposed { index, generation } => {
                self.regions.let_go_of_exposed(&mut self.cx, index, generation)
            }
            Purpose::Operation(step) => {
                self.streams.let_go_of_operation(&mut self.net, &mut self.cx, step)
            }
            Purpose::Control
            | Purpose::Stus(_)
            | Purpose::Put(_)
            | Purpose::Fetch(_)
            | Purpose::Early { .. } => {}
        }
    }
}
