//! Set-up: Request_Connection and Connection_Answer.
//!
//! Who asks gives its key and its secret, and gets those of the other side in the
//! answer; from then on every packet carries the key of who receives it, and what
//! ends or answers something a proof made with both secrets. Who was asked learns
//! from the first proof that the other side hears it, and until then keeps the
//! connection among a bounded number of half-open ones: a
//! flood of requests from addresses that do not exist ends there.

use alloc::vec::Vec;

use landfall_placement::{PathId, Peer, Refusal, Unit};

use super::{Admission, State};
use crate::connection::{Effect, Refused};
use crate::context::Context;
use crate::error::{Ended, Error};
use crate::event::Event;
use crate::ids::ConnectionId;
use crate::link::Link;
use crate::network::{Network, Sender};
use crate::path::LARGEST_STU;
use crate::wire::message::{Message, Offer};
use crate::wire::proof::{Secret, Secrets};
use crate::wire::{Envelope, Reason};

/// The version of the encoding that is spoken here.
pub(crate) const VERSION: u8 = 3;

/// The smallest STU of a peer that is of use, as a power of two.
const LEAST_STU: u8 = 4;

/// What a connection is opened with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    /// The port at the other side.
    pub port: u16,
    /// The port at this side, or any.
    pub local_port: Option<u16>,
    /// Eight bytes for the user at the other side.
    pub hello: u64,
}

impl Network {
    /// Lets connections come in at a port.
    pub(crate) fn listen(&mut self, port: u16, admission: Admission) -> Result<(), Error> {
        if self.connections.listeners.contains_key(&port) {
            return Err(Error::Taken);
        }
        self.connections.listeners.insert(port, admission);
        Ok(())
    }

    /// Lets none come in there any more; those that are open stay so.
    pub(crate) fn stop_listening(&mut self, port: u16) {
        self.connections.listeners.remove(&port);
    }

    /// Asks a peer for a connection.
    pub(crate) fn connect(
        &mut self,
        cx: &mut Context,
        path: PathId,
        peer: Peer,
        connect: Connect,
    ) -> Result<ConnectionId, Error> {
        let path = self.path_index(path).ok_or(Error::PathDown)?;
        if !self.paths[path].is_usable() {
            return Err(Error::PathDown);
        }
        if !self.connections.table.has_room() {
            return Err(Error::Busy);
        }
        let link = self.join_link(cx, path as u8, peer).ok_or(Error::Busy)?;
        if let Some(port) = connect.local_port
            && self.connections.opening.contains_key(&(link, port, connect.port))
        {
            self.leave_link(link);
            return Err(Error::Taken);
        }
        let id = self.add_connection(cx, State::RequestSent, link);
        self.connections.unanswered.push(id.index);
        let chosen = connect.local_port;
        let port = chosen.unwrap_or_else(|| self.connections.draw_port());
        if chosen.is_some() {
            self.connections.opening.insert((link, port, connect.port), id.index);
        }
        if let Some(known) = self.connections.get_mut(id.index) {
            known.local_port = port;
            known.remote_port = connect.port;
            known.own_hello = connect.hello;
            known.is_told = true;
        }
        self.send_connection_request(cx, id.index);
        Ok(id)
    }

    /// Admits a connection that came in ([`Event::Incoming`]), with eight bytes for its user.
    pub(crate) fn admit(
        &mut self,
        cx: &mut Context,
        id: ConnectionId,
        hello: u64,
    ) -> Result<(), Error> {
        let known = self.connection_mut(id)?;
        if known.state != State::RequestReceived {
            return Err(Error::NotOpen);
        }
        known.state = State::AnswerSent;
        known.own_hello = hello;
        self.answer_connection(cx, id.index);
        self.arm_connection(cx, id.index);
        Ok(())
    }

    /// Does not admit it, and says why.
    pub(crate) fn turn_away(
        &mut self,
        cx: &mut Context,
        id: ConnectionId,
        reason: Reason,
    ) -> Result<(), Error> {
        let known = self.connection_mut(id)?;
        if known.state != State::RequestReceived {
            return Err(Error::NotOpen);
        }
        let d_id = known.remote_id;
        self.send_message(cx, id.index, &Message::ConnectionAnswer { d_id, result: Err(reason) });
        self.remove_connection(id.index);
        Ok(())
    }

    fn offer(&self, cx: &Context, index: u32) -> Offer {
        let (key, secret, hello) = match self.connections.get(index) {
            Some(known) => (known.local_key, known.local_secret, known.own_hello),
            None => (0, Secret::default(), 0),
        };
        Offer {
            version: VERSION,
            max_stu: cx.config.max_stu,
            tail: cx.config.tail,
            buffer: cx.config.buffer,
            slots: cx.config.slots.try_into().unwrap_or(u8::MAX),
            s_key: key,
            s_id: index as u16,
            hello,
            secret,
        }
    }

    fn send_connection_request(&mut self, cx: &mut Context, index: u32) {
        let offer = self.offer(cx, index);
        self.send_message(cx, index, &Message::RequestConnection(offer));
        self.arm_connection(cx, index);
    }

    pub(super) fn repeat_request(&mut self, cx: &mut Context, index: u32) {
        self.send_connection_request(cx, index);
    }

    fn answer_connection(&mut self, cx: &mut Context, index: u32) {
        let Some(known) = self.connections.assumed(index) else { return };
        let d_id = known.remote_id;
        let offer = self.offer(cx, index);
        self.send_message(cx, index, &Message::ConnectionAnswer { d_id, result: Ok(offer) });
    }

    /// Somebody wants a connection. If there is none yet, says how it may [come in](Self::accept_request).
    pub(crate) fn handle_connection_request(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        envelope: Envelope,
        offer: Offer,
    ) -> Result<Option<Admission>, Refused> {
        let path = self.path_index(unit.path).ok_or(Refusal::WrongAddress)?;
        if offer.s_key == 0 || envelope.d_key != 0 {
            return Err(Refusal::Malformed.into());
        }
        if let Some(link) = self.links.find(path as u8, unit.from) {
            if let Some(index) = self.connections.by_remote.get(&(link, offer.s_key)).copied() {
                return Err(self.repeat_answer(cx, index).into());
            }
            let ports = (link, envelope.d_port, envelope.s_port);
            if let Some(index) = self.connections.opening.get(&ports).copied() {
                self.handle_crossed_request(cx, index, envelope, offer)?;
                return Ok(None);
            }
        }
        let Some(admission) = self.connections.listeners.get(&envelope.d_port).copied() else {
            self.reject(cx, path, unit.from, envelope, offer, Reason::NoListener);
            return Err(Refusal::WrongAddress.into());
        };
        if !is_compatible(&offer) {
            self.reject(cx, path, unit.from, envelope, offer, Reason::Incompatible);
            return Err(Refusal::Unsupported.into());
        }
        Ok(Some(admission))
    }

    /// Is there no room for one more connection?
    pub(crate) fn is_full(&self) -> bool {
        !self.connections.table.has_room() || !self.links.has_room()
    }

    /// The oldest connection that has not proved that it hears us, if it has to make room.
    pub(crate) fn half_open_to_drop(&mut self, cx: &mut Context, is_full: bool) -> Option<u32> {
        let half_open = &mut self.connections.half_open;
        while half_open.len() >= cx.config.half_open || is_full && !half_open.is_empty() {
            let (index, generation) = half_open.pop_front()?;
            let known = self.connections.table.named(index, generation);
            if known.is_some_and(|known| {
                matches!(known.state, State::AnswerSent | State::RequestReceived)
            }) {
                cx.stats.half_open_dropped += 1;
                return Some(index);
            }
        }
        None
    }

    /// Who asked for a connection has one, if there is room.
    pub(crate) fn accept_request(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        envelope: Envelope,
        offer: Offer,
        admission: Admission,
    ) -> Result<(), Refusal> {
        let path = self.path_index(unit.path).ok_or(Refusal::WrongAddress)?;
        let room = self.connections.table.has_room();
        let link = if room { self.join_link(cx, path as u8, unit.from) } else { None };
        let Some(link) = link else {
            self.reject(cx, path, unit.from, envelope, offer, Reason::Busy);
            return Err(Refusal::NoRoom);
        };
        let state = match admission {
            Admission::Open => State::AnswerSent,
            Admission::Ask => State::RequestReceived,
        };
        let id = self.add_connection(cx, state, link);
        self.connections.half_open.push_back((id.index, id.generation));
        self.agree(cx, id.index, envelope, offer);
        if let Some(known) = self.connections.get_mut(id.index) {
            known.came_in = true;
            known.is_told = admission == Admission::Ask;
            known.local_port = envelope.d_port;
            known.hello = offer.hello;
        }
        if admission == Admission::Open {
            self.answer_connection(cx, id.index);
        } else {
            let (port, path, peer) = (envelope.d_port, unit.path, unit.from);
            let hello = offer.hello;
            cx.emit(Event::Incoming { connection: id, port, path, peer, hello });
        }
        self.arm_connection(cx, id.index);
        Ok(())
    }

    /// The same request again: the same answer again, if there was one.
    fn repeat_answer(&mut self, cx: &mut Context, index: u32) -> Refusal {
        let Some(known) = self.connections.get(index) else { return Refusal::UnknownId };
        match (known.state, known.abort) {
            (State::RequestsCrossed | State::AnswerSent | State::Open, _) => {
                self.answer_connection(cx, index);
            }
            // Who did not hear the answer has no proof of the abort either.
            (State::Lingering, Some(reason)) => {
                let d_id = known.remote_id;
                self.send_message(
                    cx,
                    index,
                    &Message::ConnectionAnswer { d_id, result: Err(reason) },
                );
            }
            _ => {}
        }
        Refusal::Duplicate
    }

    fn reject(
        &mut self,
        cx: &mut Context,
        path: usize,
        to: Peer,
        from: Envelope,
        offer: Offer,
        reason: Reason,
    ) {
        let envelope = Envelope { d_port: from.s_port, s_port: from.d_port, d_key: offer.s_key };
        let message = Message::ConnectionAnswer { d_id: offer.s_id, result: Err(reason) };
        // Who asked told its secret, and has not heard one of ours.
        let secrets = Secrets { receiver: offer.secret, sender: Secret::default() };
        self.send_message_to(cx, path, to, Sender { envelope, secrets }, &message);
    }

    /// A request met ours: both sides asked at once. Each answers the other.
    fn handle_crossed_request(
        &mut self,
        cx: &mut Context,
        index: u32,
        envelope: Envelope,
        offer: Offer,
    ) -> Result<(), Refused> {
        check_compatible(index, &offer)?;
        self.forget_opening(index);
        self.agree(cx, index, envelope, offer);
        if let Some(known) = self.connections.get_mut(index) {
            known.state = State::RequestsCrossed;
            known.hello = offer.hello;
            known.retries = 1;
        }
        self.answer_connection(cx, index);
        self.probe_alive(cx, index);
        self.arm_connection(cx, index);
        Ok(())
    }

    /// The other side answers our request for a connection.
    pub(crate) fn handle_connection_answer(
        &mut self,
        cx: &mut Context,
        unit: &Unit<'_>,
        index: u32,
        d_id: u16,
        result: Result<Offer, Reason>,
    ) -> Result<Effect, Refused> {
        let Some(known) = self.connections.get(index) else {
            return Err(Refusal::UnknownId.into());
        };
        if d_id != index as u16 {
            return Err(Refusal::UnknownId.into());
        }
        let header = crate::wire::Header::read(unit.head).ok_or(Refusal::Truncated)?;
        let envelope = Envelope { s_port: header.s_port.get(), ..Envelope::default() };
        match (known.state, result) {
            (State::RequestSent | State::RequestsCrossed, Ok(offer)) if offer.s_key == 0 => {
                Err(Refusal::Malformed.into())
            }
            (State::RequestSent | State::RequestsCrossed, Ok(offer)) => {
                self.adopt(cx, index, envelope, offer)?;
                Ok(Effect::None)
            }
            (State::RequestSent, Err(reason)) => Ok(Effect::failed(index, Ended::There(reason))),
            (_, Ok(offer)) if known.is_open() && offer.s_key == known.remote_key => {
                // The other side does not know that we heard.
                self.probe_alive(cx, index);
                Err(Refusal::Duplicate.into())
            }
            (_, Ok(offer)) if known.is_open() && !known.is_proved && offer.s_key != 0 => {
                // Our request was answered before, by somebody who is no more. What was begun
                // there is not begun again with this one, nor what that began.
                if !known.is_untouched() {
                    let (refusal, effect) =
                        (Refusal::Duplicate, Effect::failed(index, Ended::Silent));
                    return Err(Refused { refusal, effect });
                }
                let envelope = Envelope { s_port: known.remote_port, ..envelope };
                self.replace_answer(cx, index, envelope, offer);
                self.probe_alive(cx, index);
                Ok(Effect::None)
            }
            _ => Err(Refusal::Duplicate.into()),
        }
    }

    /// What we asked for was answered, perhaps by another than whose request met ours.
    fn adopt(
        &mut self,
        cx: &mut Context,
        index: u32,
        envelope: Envelope,
        offer: Offer,
    ) -> Result<(), Refused> {
        check_compatible(index, &offer)?;
        self.forget_opening(index);
        self.replace_answer(cx, index, envelope, offer);
        if let Some(known) = self.connections.get_mut(index) {
            known.hello = offer.hello;
        }
        self.finish_connect(cx, index);
        Ok(())
    }

    /// Takes over what the other side said of itself.
    fn agree(&mut self, cx: &mut Context, index: u32, envelope: Envelope, offer: Offer) {
        let most = 1u32 << cx.config.max_stu.min(offer.max_stu).min(16);
        let tail = cx.config.tail.max(offer.tail);
        let Some(known) = self.connections.assumed_mut(index) else { return };
        known.remote_key = offer.s_key;
        known.remote_secret = offer.secret;
        known.remote_id = offer.s_id;
        known.remote_port = envelope.s_port;
        known.max_stu = most.min(LARGEST_STU.into()) as u16;
        known.tail = tail;
        known.slots = offer.slots;
        let link = known.link;
        self.connections.by_remote.insert((link, offer.s_key), index);
    }

    /// Takes an answer for what it is, in the place of what was taken for one before.
    fn replace_answer(&mut self, cx: &mut Context, index: u32, envelope: Envelope, offer: Offer) {
        let Some(known) = self.connections.assumed(index) else { return };
        let (old, secret) = ((known.link, known.remote_key), known.remote_secret);
        let is_another = old.1 != 0 && offer.secret != secret;
        self.connections.by_remote.remove(&old);
        self.agree(cx, index, envelope, offer);
        if is_another {
            // The other has our key, too, and may go on to send.
            self.change_key(cx, index);
        }
    }

    /// Somebody has the key of a connection who is not its other side: only that hears of
    /// another, and nothing that comes with the old one is taken any more.
    fn change_key(&mut self, cx: &mut Context, index: u32) {
        let key = self.connections.draw_key(&mut cx.random);
        let Some(known) = self.connections.assumed_mut(index) else { return };
        let old = core::mem::replace(&mut known.local_key, key);
        self.connections.keys.remove(old);
        self.connections.keys.insert(key, index);
        self.answer_connection(cx, index);
    }

    /// There is an other side, and it answered or proved itself.
    pub(crate) fn finish_connect(&mut self, cx: &mut Context, index: u32) {
        let Some(known) = self.connections.assumed_mut(index) else { return };
        known.state = State::Open;
        // Asked below, and again soon unless it is answered.
        known.retries = 1;
        known.heard = cx.now;
        let hello = known.hello;
        cx.emit(Event::Connected { connection: self.id_of(index), hello });
        // The first packet with its key tells the other side that we hear it.
        self.probe_alive(cx, index);
        self.find_size_of(cx, index);
        self.arm_connection(cx, index);
    }

    /// The other side of a connection that came in has proved that it hears us.
    pub(crate) fn finish_accept(&mut self, cx: &mut Context, index: u32) {
        let Some(known) = self.connections.assumed_mut(index) else { return };
        known.state = State::Open;
        known.is_told = true;
        known.retries = 0;
        let (port, hello, link) = (known.local_port, known.hello, known.link);
        let connection = self.id_of(index);
        self.connections.half_open.retain(|half_open| half_open.0 != index);
        if let Some(link) = self.links.get(link) {
            let (path, peer) = (self.paths[usize::from(link.path)].id, link.peer);
            cx.emit(Event::Accepted { connection, port, path, peer, hello });
        }
        // How long the network takes is good to know before anything is granted, and how
        // long packets may be.
        self.probe_alive(cx, index);
        self.find_size_of(cx, index);
        self.arm_connection(cx, index);
    }

    /// The other side has our secret: it hears us. What is not open refuses the rest.
    pub(crate) fn prove(
        &mut self,
        cx: &mut Context,
        connection: u32,
        has_proof: bool,
    ) -> Result<(), Refusal> {
        let Some(known) = self.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        known.is_proved |= has_proof;
        match known.state {
            // The key alone may have been guessed: what proves more comes again.
            State::AnswerSent | State::RequestsCrossed if !has_proof => Err(Refusal::Unexpected),
            State::AnswerSent => {
                self.finish_accept(cx, connection);
                Ok(())
            }
            State::RequestsCrossed => {
                self.finish_connect(cx, connection);
                Ok(())
            }
            State::RequestSent | State::RequestReceived => Err(Refusal::Unexpected),
            _ => Ok(()),
        }
    }

    /// Connections of ours that nobody at an address has answered.
    pub(crate) fn unanswered_at(&self, path: PathId, peer: Peer) -> Vec<u32> {
        let path = self.path_index(path);
        let is_there = |index: &u32| {
            self.link_of(*index)
                .is_some_and(|link| (Some(usize::from(link.path)), link.peer) == (path, peer))
        };
        self.connections.unanswered.iter().copied().filter(is_there).collect()
    }

    /// Is anybody on a path asked for a connection, and has not answered?
    pub(crate) fn is_unanswered_on(&self, path: PathId) -> bool {
        let path = self.path_index(path);
        let on = |index: &u32| Some(usize::from(self.link_of(*index)?.path));
        self.connections.unanswered.iter().any(|index| on(index) == path)
    }

    /// The link of a connection that control operations take.
    fn link_of(&self, index: u32) -> Option<&Link> {
        self.links.get(self.connections.get(index)?.link)
    }
}

/// With whom it cannot speak, this side has no connection.
fn check_compatible(index: u32, offer: &Offer) -> Result<(), Refused> {
    if is_compatible(offer) {
        return Ok(());
    }
    let effect = Effect::failed(index, Ended::There(Reason::Incompatible));
    Err(Refused { refusal: Refusal::Unsupported, effect })
}

/// Can the two sides speak with each other?
fn is_compatible(offer: &Offer) -> bool {
    offer.version == VERSION
        && (LEAST_STU..31).contains(&offer.max_stu)
        && offer.buffer >= offer.max_stu
        && offer.slots > 0
}
