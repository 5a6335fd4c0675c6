//! A packet comes: what everything is checked for, and who it is for. A payload is in place, a
//! transmission is over. And what follows from one part for another.

use landfall_placement::{
    Landing, PathId, PathState, Placement, Refusal, RunPlacement, Spans, Ticket, Unit, UnitRun,
};

use super::Endpoint;
use crate::config::MOST_EAGER;
use crate::connection::{Effect, ReadRequest, RecordFate, Refused};
use crate::error::Ended;
use crate::network::{Arrival, NewAddress, PathChange};
use crate::region::{Applied, OrderBroken, TimedOut};
use crate::send::Progress;
use crate::ticket::Purpose;
use crate::wire::header::SHORTEST_FRAME;
use crate::wire::message::{Message, Offer, Question, State};
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
        self.handle_message(unit, header, into)
    }

    /// A run of Puts: `None`, and nothing changed, where it is not what is expected next.
    pub(super) fn place_put_run(&mut self, run: &UnitRun<'_>) -> Option<RunPlacement> {
        let expected = self.regions.expected_run(&self.net, &self.cx, run)?;
        self.note_received(expected.connection, expected.link, &expected.message);
        Some(self.regions.place_run(&mut self.net, &expected))
    }

    /// Anything else: whole, sealed, known, and from where it should be.
    fn handle_message(
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
            self.handle_connection_request(unit, envelope, offer)?;
            return Ok(Placement::Consumed);
        }
        let connection = self.net.connection_of(envelope, &message)?;
        let path = self.net.path_index(unit.path).ok_or(Refusal::WrongAddress)? as u8;
        let Some(link) = self.net.link_from(connection, path, unit.from) else {
            return self.handle_from_elsewhere(unit, connection, head, &message);
        };
        let has_proof = self.net.check_proof(connection, head, &message)?;
        let payload = match message {
            Message::RequestToSend { is_eager: true, len: all, .. }
                if all <= self.cx.config.takes_eagerly().into() =>
            {
                unit.head.get(len..len + all as usize).unwrap_or_default()
            }
            _ => &[],
        };
        self.note_received(connection, link, &message);
        let Self { net, cx, regions, .. } = self;
        match message {
            Message::Put { .. } => regions.place_put(net, cx, connection, unit, &message, into),
            Message::FetchOp { .. } => regions.place_fetch(net, cx, connection, &message),
            _ => {
                let message = &message;
                self.handle_control(&Arrival { unit, connection, message, payload, has_proof })?;
                Ok(Placement::Consumed)
            }
        }
    }

    /// A packet from where the connection has no link. Only that there is one may
    /// be said from there.
    fn handle_from_elsewhere(
        &mut self,
        unit: &Unit<'_>,
        connection: u32,
        head: &[u8],
        message: &Message,
    ) -> Result<Placement, Refusal> {
        let address = match *message {
            Message::RequestState(Question::Connection { ids, is_link: true, token }) => {
                NewAddress { ids, token, has_moved: false }
            }
            Message::RequestState(Question::Moved { ids, token }) => {
                NewAddress { ids, token, has_moved: true }
            }
            _ => return Err(Refusal::WrongAddress),
        };
        self.net.check_proof(connection, head, message)?;
        if self.learn_link(unit, connection, &address)? {
            self.net.prove(&mut self.cx, connection, true)?;
            self.net.answer_probe(&mut self.cx, unit, connection, address.ids, address.token);
        }
        Ok(Placement::Consumed)
    }

    /// Somebody wants a connection.
    fn handle_connection_request(
        &mut self,
        unit: &Unit<'_>,
        envelope: Envelope,
        offer: Offer,
    ) -> Result<(), Refusal> {
        let admission =
            match self.net.handle_connection_request(&mut self.cx, unit, envelope, offer) {
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
        self.net.accept_request(&mut self.cx, unit, envelope, offer, admission)
    }

    /// The other side can be reached at a further address, it says. Returns whether that is known
    /// now.
    fn learn_link(
        &mut self,
        unit: &Unit<'_>,
        connection: u32,
        address: &NewAddress,
    ) -> Result<bool, Refusal> {
        let learnt = self.net.learn_link(&mut self.cx, unit, connection, address)?;
        // What came first proved nothing yet: it is asked for that.
        let Some(link) = learnt else { return Ok(false) };
        if address.has_moved {
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
    fn note_received(&mut self, connection: u32, link: u32, message: &Message) {
        if self.net.note_received_over(&self.cx, link) {
            self.revive_link(link);
        }
        if self.net.note_received(&self.cx, connection, link, message) {
            self.receives.wake_receives(&mut self.net, connection);
            self.net.find_size(&mut self.cx, connection, link);
        }
    }

    /// A control message: what opens and closes a connection ends what is under way on it; all
    /// else must come from its other side.
    fn handle_control(&mut self, arrival: &Arrival<'_>) -> Result<(), Refusal> {
        let Arrival { unit, connection, message, has_proof, .. } = *arrival;
        let (net, cx) = (&mut self.net, &mut self.cx);
        let result = match *message {
            Message::ConnectionAnswer { d_id, result } => {
                net.handle_connection_answer(cx, unit, connection, d_id, result)
            }
            Message::RequestDisconnect { abort, .. } => {
                net.handle_disconnect_request(cx, connection, abort).map_err(Refused::from)
            }
            Message::DisconnectAnswer { .. } => {
                net.handle_disconnect_answer(cx, connection).map_err(Refused::from)
            }
            Message::DisconnectComplete { .. } => {
                net.handle_disconnect_complete(connection).map_err(Refused::from)
            }
            _ => {
                net.prove(cx, connection, has_proof)?;
                return self.handle_request(arrival);
            }
        };
        self.settle(result)
    }

    /// A message about a Transfer or a region, a question or an answer.
    fn handle_request(&mut self, arrival: &Arrival<'_>) -> Result<(), Refusal> {
        let Arrival { unit, connection, message, .. } = *arrival;
        let Self { net, cx, sends, receives, regions, .. } = self;
        match *message {
            Message::RequestToSend { .. } => receives.handle_request_to_send(net, cx, arrival),
            Message::RequestToReceive { s_id, serial, len, opaque } => {
                let read = ReadRequest { serial, len, opaque };
                sends.handle_request_to_receive(net, cx, connection, s_id, read)
            }
            Message::RequestAnswer { ids, serial, is_read: true, verdict } => {
                receives.handle_read_answer(net, cx, connection, ids, serial, verdict)
            }
            Message::RequestAnswer { ids, serial, is_read: false, verdict } => {
                sends.handle_send_answer(net, cx, connection, ids, serial, verdict)
            }
            Message::ClearToSend(ref grant) => sends.handle_grant(net, cx, unit, connection, grant),
            Message::End { ending, reason } if ending.by_receiver => {
                sends.handle_end_of_send(net, cx, connection, ending, reason)
            }
            Message::End { ending, reason } => {
                receives.handle_end(net, cx, connection, ending, reason)
            }
            Message::EndAck(ending) if ending.by_receiver => {
                receives.handle_end_ack(net, cx, connection, ending)
            }
            Message::EndAck(ending) => sends.handle_end_ack_of_send(net, cx, connection, ending),
            Message::RequestMemoryRegion { .. } => {
                regions.handle_region_request(net, cx, connection, message)
            }
            Message::MemoryRegionAvailable { d_id, serial, result } => {
                regions.handle_region_answer(net, cx, connection, d_id, serial, result)
            }
            Message::Get(ref get) => regions.handle_get(net, cx, unit, connection, get),
            Message::FetchOpComplete { below } => {
                regions.handle_fetch_complete(net, connection, below)
            }
            Message::RequestState(question) => self.handle_question(unit, connection, question),
            Message::RequestStateResponse(ref state) => self.handle_state(unit, connection, state),
            _ => Err(Refusal::Unexpected),
        }
    }

    fn handle_question(
        &mut self,
        unit: &Unit<'_>,
        connection: u32,
        question: Question,
    ) -> Result<(), Refusal> {
        let (net, cx) = (&mut self.net, &mut self.cx);
        match question {
            Question::Connection { ids, token, .. } | Question::Moved { ids, token } => {
                net.answer_probe(cx, unit, connection, ids, token);
                Ok(())
            }
            Question::Transfer { ids, serial } => {
                self.receives.answer_progress(net, cx, connection, ids, serial)
            }
            Question::Memory => {
                self.regions.answer_applied(net, cx, connection, None, None);
                Ok(())
            }
            Question::Size { ids, size, token } => {
                net.answer_size(cx, unit, connection, ids, size, token)
            }
        }
    }

    fn handle_state(
        &mut self,
        unit: &Unit<'_>,
        connection: u32,
        state: &State,
    ) -> Result<(), Refusal> {
        let Self { net, cx, sends, receives, streams, .. } = self;
        match *state {
            State::Connection { is_link: true, token, .. } => {
                net.answer_challenge(cx, unit, connection, token)
            }
            State::Connection { token, .. } => {
                net.handle_probe_answer(cx, unit, connection, token);
                Ok(())
            }
            State::Size { size, token, .. } => net.handle_size(cx, unit, size, token),
            State::Transfer { ids, serial, acked, len, is_complete } => {
                let progress = Progress { ids, serial, acked, len, is_complete };
                sends.handle_progress(net, cx, connection, progress)
            }
            State::Memory { applied, refused, ref ahead } => {
                let heard = streams.handle_applied(net, cx, connection, applied, refused, ahead)?;
                self.end_stream_turn(connection, heard);
                Ok(())
            }
            State::Fetched { serial, old } => {
                let heard = streams.handle_fetched(net, cx, connection, serial, old)?;
                self.end_stream_turn(connection, heard);
                self.streams.complete_fetches(&mut self.net, &mut self.cx, connection);
                Ok(())
            }
            State::GetRefused { d_id, serial, reason } => {
                receives.handle_get_refused(net, cx, connection, d_id, serial, reason)
            }
        }
    }
}

impl Endpoint {
    #[inline]
    pub(super) fn land(&mut self, ticket: Ticket, landing: Landing) {
        let is_in_place = matches!(landing, Landing::Verified | Landing::Unchecked);
        match Purpose::unpack(ticket) {
            Purpose::Stus(stus) => {
                if landing == Landing::Corrupt {
                    self.cx.refusals.count(landfall_placement::Refusal::BadChecksum);
                }
                self.receives.land_stus(
                    &mut self.net,
                    &mut self.cx,
                    stus,
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
                    index,
                    generation,
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
        if let Err(OrderBroken { connection, exposed }) = landed {
            let id = self.net.id_of(connection);
            if let Ok(effect) = self.net.abort(&mut self.cx, id, Reason::MemoryFailed) {
                self.apply(effect);
            }
            self.regions.end_step(&mut self.net, &mut self.cx, connection, exposed);
        }
    }

    #[inline]
    pub(super) fn handle_released(&mut self, ticket: Ticket) {
        match Purpose::unpack(ticket) {
            Purpose::Send { index, generation } => {
                self.sends.release_transmission(&mut self.net, &mut self.cx, index, generation);
            }
            Purpose::Exposed { index, generation } => {
                self.regions.release_exposed(&mut self.cx, index, generation);
            }
            Purpose::Operation(step) => {
                self.streams.release_operation(&mut self.net, &mut self.cx, step);
            }
            Purpose::Control
            | Purpose::Stus(_)
            | Purpose::Put(_)
            | Purpose::Fetch(_)
            | Purpose::Early { .. } => {}
        }
    }
}

/// What follows from one part for another.
impl Endpoint {
    /// What happened to a connection has an effect on what is under way on it.
    pub(super) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Closing { connection } => {
                // Nobody goes on, whose answers would tell of what is under way.
                self.streams.ask_now(&mut self.net, &mut self.cx, connection);
                self.receives.end_offers(&mut self.net, &mut self.cx, connection);
                self.net.disconnect_if_idle(&mut self.cx, connection);
            }
            Effect::ConnectionOver(over) => {
                self.end_all(over.connection, over.ended);
                self.net.finish(&mut self.cx, over);
                if over.then == RecordFate::Forgotten {
                    self.streams.timers.remove(over.connection);
                }
            }
            Effect::Forgotten { connection } => {
                self.streams.timers.remove(connection);
                self.net.remove_connection(connection);
            }
        }
    }

    /// A message about a connection was taken, or refused.
    fn settle(&mut self, result: Result<Effect, Refused>) -> Result<(), Refusal> {
        let (effect, result) = match result {
            Ok(effect) => (effect, Ok(())),
            Err(Refused { refusal, effect }) => (effect, Err(refusal)),
        };
        self.apply(effect);
        result
    }

    /// Everything on a connection ends. What a driver still holds is given back
    /// when it lets go.
    fn end_all(&mut self, index: u32, why: Ended) {
        for send in self.sends.sends_of(&self.net, index) {
            self.sends.end_send(&mut self.net, &mut self.cx, send, why);
        }
        for receive in self.receives.receives_of(&self.net, index) {
            self.receives.end_receive(&mut self.net, &mut self.cx, receive, why);
        }
        self.receives.end_posted(&mut self.net, &mut self.cx, index, why);
        self.sends.end_reads(&mut self.net, index);
        self.regions.end_regions(&mut self.net, &mut self.cx, index, why);
        self.streams.end_operations(&mut self.net, &mut self.cx, index);
    }

    /// A link is up again, or down: what was under way over it goes over others, if there are.
    fn move_streams(&mut self, link: u32, is_up: bool) {
        for connection in self.net.users_of(link) {
            if !is_up {
                if !self.streams.give_up_link(&mut self.net, connection, link) {
                    continue;
                }
                self.update_put_windows(connection, 0);
            }
            self.streams.queue_stream(&mut self.net, &mut self.cx, connection);
        }
    }

    /// Something was heard of a stream.
    fn end_stream_turn(&mut self, connection: u32, turn: Applied) {
        self.update_put_windows(connection, turn.marked);
        self.streams.finish_turn(&mut self.net, &mut self.cx, connection, turn.is_progress);
    }

    /// Windows learn what became of Puts; a link that was silent for long counts as dead.
    fn update_put_windows(&mut self, connection: u32, marked: u16) {
        if let Some(link) =
            self.streams.update_put_window(&mut self.net, &mut self.cx, connection, marked)
        {
            self.lose_link(link);
        }
    }

    /// Nothing was heard of a stream for a while.
    pub(super) fn time_out_puts(&mut self, connection: u32) {
        match self.streams.time_out_stream(&mut self.net, &mut self.cx, connection) {
            TimedOut::Idle | TimedOut::Asks => {}
            TimedOut::GivesUp => self.apply(Effect::failed(connection, Ended::Silent)),
            TimedOut::AsksAgain => {
                self.update_put_windows(connection, 0);
                self.streams.ask_what_applied(&mut self.net, &mut self.cx, connection);
            }
        }
    }

    pub(super) fn change_path(&mut self, path: PathId, state: PathState) {
        match self.net.change_path(&self.cx, path, state) {
            PathChange::None => {}
            PathChange::Up { index, is_new } => {
                for link in self.net.links.on_path(index) {
                    self.revive_link(link);
                    if is_new {
                        self.net.forget_size(&mut self.cx, link);
                    }
                }
            }
            PathChange::Down { index } => {
                for link in self.net.links.on_path(index) {
                    self.lose_link(link);
                }
            }
        }
    }

    /// The link's path is up, and something was heard over it, or may be.
    fn revive_link(&mut self, index: u32) {
        if self.net.revive_link(&mut self.cx, index) {
            self.receives.resume_link(&mut self.net, &mut self.cx, index);
            self.move_streams(index, true);
        }
    }

    /// Nothing goes over this link: what it had goes over others. Of connections without
    /// another it stays, and what waited for its room has that now.
    pub(super) fn lose_link(&mut self, index: u32) {
        if self.net.lose_link(&mut self.cx, index) {
            self.receives.move_blocks(&mut self.net, &mut self.cx, index);
            self.receives.wake_waiting(&mut self.net, index);
            self.move_streams(index, false);
        }
    }
}
