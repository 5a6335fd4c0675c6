//! Handshakes by TLS: their messages in chunks, timers, and what follows from each message.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::vec::Vec;
use std::sync::Arc;

use landfall_placement::{Duration, Instant, PathId, Peer, Refusal};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::HandshakeUnits;
use super::association::{Association, MESSAGE_HEAD, MessageHead, Proof, State};
use super::associations::{Associations, FIRST_WAIT, MOST_DOUBLED, MOST_REPEATS};
use super::chunks::{CHUNK_HEAD, Chunk, ChunkedMessages, Handled, MOST_ATTEMPTS, begun_attempt};
use super::unit::{FIRST, SECOND, THIRD};
use crate::aead::Suite;
use crate::handshake::{Fingerprint, Handshake as _, HandshakeError, PeerIdentity, Tls, TlsError};
use crate::keys::Role;

/// The kind of messages of TLS in their heads.
pub(super) const KIND: u8 = 3;
/// The longest unit of such a message, and the length of each that begins one.
pub(super) const fn longest(units: HandshakeUnits) -> usize {
    MESSAGE_HEAD + CHUNK_HEAD + units.chunk()
}

/// The bytes for a caller that has not shown that it is at its address, as a multiple of those that
/// came from there; as in QUIC (RFC 9000, section 8.1).
const AMPLIFICATION: usize = 3;
/// The least units of a first message, some of them twice if need be: the answer may be so much
/// longer.
const FIRST_UNITS: usize = 4;
/// The units of a responder, one after another, that may bring nothing more. Then the handshake is
/// begun anew.
const MOST_IDLE: u32 = 3;
/// How often a responder throws a message away of which a chunk was made up.
const MOST_DISCARDS: u8 = 8;
/// How long a responder keeps its last message.
const LINGER: Duration = Duration::from_secs(2);

/// How an end proves itself by certificates, and whom it trusts: as rustls is configured. TLS 1.3
/// is the only version.
///
/// Clock, roots, revocation lists, client authentication, application protocols and the resumption
/// of sessions are rustls's. `max_early_data_size` has no effect.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// For associations that begin here. Without it none can.
    pub client: Option<Arc<ClientConfig>>,
    /// For those that peers begin. Without it none can.
    pub server: Option<Arc<ServerConfig>>,
}

/// A handshake by TLS under way, or what is left of it.
#[derive(Debug)]
pub(super) struct TlsExchange {
    messages: ChunkedMessages,
    /// Nothing before the first message is whole, and after the end.
    tls: Option<Tls>,
    suite: Suite,
    pinned: Option<Fingerprint>,
    /// The name that the peer's certificate has to have.
    name: Option<Box<str>>,
    /// How often a message was thrown away, for a chunk of it was made up.
    discards: u8,
    /// Units of the responder, one after another, that brought nothing more.
    idle: u32,
    /// The cookie of a first message: it proves the address.
    cookie: u128,
    /// The peer has proven its address.
    is_proven: bool,
    /// The bytes that may be sent to it until then.
    budget: usize,
}

impl TlsExchange {
    /// The next unit that may be sent.
    fn poll(&mut self, (id, to, role): (u32, u32, Role), longest: usize) -> Option<Vec<u8>> {
        if role == Role::Responder && !self.is_proven && self.budget < longest {
            return None;
        }
        let form = match role {
            Role::Responder => SECOND,
            // The responder has not answered: its number of the association is not known.
            Role::Initiator if to == 0 => FIRST,
            Role::Initiator => THIRD,
        };
        let (suite, cookie) = (self.suite, self.cookie);
        let mut chunk = self.messages.poll_chunk()?;
        if form == FIRST {
            chunk.have = cookie;
        }
        let head = MessageHead { form, suite, kind: KIND, to, from: id };
        let mut unit = Vec::with_capacity(longest);
        head.write(&mut unit);
        chunk.write(&mut unit);
        if form == FIRST {
            unit.resize(longest, 0);
        }
        self.budget = self.budget.saturating_sub(unit.len());
        Some(unit)
    }
}

/// The client end of TLS.
fn caller(
    own: &Certificates,
    (remote, name): (Peer, Option<&str>),
    context: &[u8],
    suite: Suite,
) -> Result<Tls, HandshakeError> {
    let config = own.client.clone().ok_or(HandshakeError::Tls(TlsError::NotConfigured))?;
    let name = match (name, remote) {
        (Some(name), _) => ServerName::try_from(name.to_owned()).ok(),
        (None, Peer::Socket(socket)) => Some(socket.ip().to_canonical().into()),
        (None, Peer::Ip(ip)) => Some(ip.to_canonical().into()),
        _ => None,
    };
    let name = name.ok_or(HandshakeError::Tls(TlsError::NoName))?;
    Tls::client(config, name, context, suite)
}

impl Associations {
    /// Begins an association by TLS. One that cannot begin has failed.
    pub(super) fn begin_tls(
        &mut self,
        (now, path, remote): (Instant, PathId, Peer),
        pinned: Option<Fingerprint>,
        name: Option<&str>,
    ) -> Option<u32> {
        self.make_room(now)?;
        let (id, _) = self.draw();
        let Proof::Certificates(own) = &self.config.proof else { return None };
        let suite = self.config.suite;
        let head = MessageHead { form: FIRST, suite, kind: KIND, to: 0, from: id };
        let context = head.context(id, &self.config.context);
        let tls = caller(own, (remote, name), &context, suite);
        let mut known = Association::new((now, path, remote), Role::Initiator, State::Tls);
        match tls {
            Ok(mut tls) => {
                let units = self.config.handshake_units;
                let messages =
                    ChunkedMessages::initiator(units, 0, tls.poll_message().unwrap_or_default());
                let name = name.map(Box::from);
                known.exchange = Some(Box::new(TlsExchange {
                    messages,
                    tls: Some(tls),
                    suite,
                    pinned,
                    name,
                    discards: 0,
                    idle: 0,
                    cookie: 0,
                    is_proven: true,
                    budget: 0,
                }));
                self.table.insert(id, Box::new(known));
                self.send_first(now, id);
            }
            Err(error) => {
                self.table.insert(id, Box::new(known));
                self.fail(id, error);
            }
        }
        Some(id)
    }

    /// Sends a first message, in as many units as let the responder answer.
    fn send_first(&mut self, now: Instant, id: u32) {
        let mut sent = self.send_chunks(id);
        while sent > 0 && sent < FIRST_UNITS {
            if let Some(exchange) = self.exchange_of(id) {
                exchange.messages.resend();
            }
            sent += self.send_chunks(id);
        }
        self.set_repeat_timer(now, id);
    }

    /// Begins the handshake anew, in another attempt: what came contradicts itself, or nothing more
    /// came. A part of it may be forged, and it is not known which. False at the bound of attempts,
    /// and at a responder.
    fn begin_anew(&mut self, now: Instant, id: u32) -> bool {
        let Proof::Certificates(own) = &self.config.proof else { return false };
        let Some(known) = self.table.get_mut(&id) else { return false };
        let is_caller = known.role == Role::Initiator && matches!(known.state, State::Tls);
        let Some(exchange) = known.exchange.as_mut().filter(|_| is_caller) else { return false };
        let (attempt, suite) = (exchange.messages.attempt() + 1, exchange.suite);
        let head = MessageHead { form: FIRST, suite, kind: KIND, to: 0, from: id };
        let context = head.context(id, &self.config.context);
        let name = exchange.name.as_deref();
        if attempt >= MOST_ATTEMPTS {
            return false;
        }
        // It fails only where the first attempt would have.
        let Ok(mut tls) = caller(own, (known.remote, name), &context, suite) else { return false };
        let units = self.config.handshake_units;
        exchange.messages =
            ChunkedMessages::initiator(units, attempt, tls.poll_message().unwrap_or_default());
        (exchange.tls, exchange.idle) = (Some(tls), 0);
        (known.to, known.repeats) = (0, 0);
        self.send_first(now, id);
        true
    }

    fn exchange_of(&mut self, id: u32) -> Option<&mut TlsExchange> {
        self.get_mut(id)?.exchange.as_deref_mut()
    }

    /// Sends what may be sent now. Gives the number of units.
    fn send_chunks(&mut self, id: u32) -> usize {
        let (mut sent, longest) = (0, longest(self.config.handshake_units));
        while let Some(known) = self.table.get_mut(&id)
            && let (path, remote, whose) = (known.path, known.remote, (id, known.to, known.role))
            && let Some(unit) =
                known.exchange.as_mut().and_then(|exchange| exchange.poll(whose, longest))
        {
            self.send(path, remote, unit);
            sent += 1;
        }
        sent
    }

    /// Sets the timer of an initiator that waits for an answer.
    fn set_repeat_timer(&mut self, now: Instant, id: u32) {
        let Some(known) = self.get_mut(id) else { return };
        let due = now + FIRST_WAIT * (1 << known.repeats.min(MOST_DOUBLED));
        known.repeats += 1;
        self.set_timer(id, Some(due));
    }

    /// The timer fired: nothing came for a time.
    pub(super) fn repeat_tls(&mut self, now: Instant, id: u32) {
        let Some(known) = self.get_mut(id) else { return };
        let is_done = known.role == Role::Responder || known.is_confirmed;
        let is_silent = known.repeats > MOST_REPEATS;
        if is_done || is_silent && matches!(known.state, State::Open(_)) {
            known.exchange = None;
            return self.set_timer(id, None);
        }
        if is_silent {
            return self.fail(id, HandshakeError::Unfinished);
        }
        let is_stuck =
            |exchange: &TlsExchange| exchange.idle >= MOST_IDLE || exchange.messages.is_disputed();
        if self.exchange_of(id).is_some_and(|exchange| is_stuck(exchange))
            && self.begin_anew(now, id)
        {
            return;
        }
        if let Some(exchange) = self.exchange_of(id) {
            exchange.messages.repeat();
        }
        self.send_chunks(id);
        self.set_repeat_timer(now, id);
    }

    /// A part of a message came.
    pub(super) fn handle_chunk(
        &mut self,
        (now, path, from): (Instant, PathId, Peer),
        head: &MessageHead,
        unit: &[u8],
    ) -> Result<(), Refusal> {
        let units = self.config.handshake_units;
        let chunk = Chunk::read(unit.get(MESSAGE_HEAD..).unwrap_or_default(), units);
        let mut chunk = chunk.ok_or(Refusal::Malformed)?;
        let id = if head.form == FIRST {
            if unit.len() < longest(units) {
                return Err(Refusal::Truncated);
            }
            let Some(id) = self.caller_of((now, path, from), head, (&chunk, unit))? else {
                return Ok(());
            };
            chunk.have = 0;
            id
        } else {
            self.addressee_of(head, &chunk)?
        };
        let Some(known) = self.get_mut(id) else { return Err(Refusal::UnknownId) };
        known.used = now;
        let Some(exchange) = known.exchange.as_mut() else { return Err(Refusal::Duplicate) };
        if head.form == FIRST {
            exchange.budget = exchange.budget.saturating_add(AMPLIFICATION * unit.len());
        } else {
            exchange.is_proven = true;
        }
        let mut handled = exchange.messages.handle_chunk(&chunk);
        let is_callee = known.role == Role::Responder;
        if handled == Err(Refusal::Malformed)
            && is_callee
            && exchange.messages.is_disputed()
            && exchange.discards < MOST_DISCARDS
        {
            // One of both is forged. The true one will be sent again.
            exchange.discards += 1;
            exchange.messages.discard();
            handled = exchange.messages.handle_chunk(&chunk);
        }
        match handled? {
            Handled::Nothing => exchange.idle = exchange.idle.saturating_add(1),
            Handled::Progress => self.note_progress(now, id),
            Handled::Message(message) => {
                self.note_progress(now, id);
                self.handle_whole(now, id, &message);
            }
        }
        self.send_chunks(id);
        self.drop_finished(id);
        Ok(())
    }

    /// The initiator received something new: its timer starts anew.
    fn note_progress(&mut self, now: Instant, id: u32) {
        if let Some(known) = self.get_mut(id).filter(|known| known.role == Role::Initiator) {
            known.repeats = 0;
            if let Some(exchange) = known.exchange.as_mut() {
                exchange.idle = 0;
            }
            self.set_repeat_timer(now, id);
        }
    }

    /// The association that a caller begins, or has begun. `None`: it has to prove its address.
    fn caller_of(
        &mut self,
        (now, path, from): (Instant, PathId, Peer),
        head: &MessageHead,
        (chunk, unit): (&Chunk<'_>, &[u8]),
    ) -> Result<Option<u32>, Refusal> {
        let attempt = begun_attempt(chunk.turn).ok_or(Refusal::Unexpected)?;
        let begun = (path, from, head.from, attempt);
        if let Some(id) = self.begun_by(&begun) {
            return Ok(Some(id));
        }
        let can_answer = |own: &Certificates| own.server.is_some();
        if !matches!(&self.config.proof, Proof::Certificates(own) if can_answer(own)) {
            self.stats.failed += 1;
            return Err(Refusal::BadProof);
        }
        let is_proven = self.is_proven(now, (path, from), head, unit);
        if self.is_crowded() && !is_proven {
            self.ask_for_proof(now, (path, from), head);
            return Ok(None);
        }
        self.make_room_for_caller(now)?;
        let (id, _) = self.draw();
        let mut known = Association::new((now, path, from), Role::Responder, State::Tls);
        (known.to, known.begun) = (head.from, Some(begun));
        known.exchange = Some(Box::new(TlsExchange {
            messages: ChunkedMessages::responder(self.config.handshake_units, attempt),
            tls: None,
            suite: head.suite,
            pinned: None,
            name: None,
            discards: 0,
            idle: 0,
            cookie: 0,
            is_proven,
            budget: 0,
        }));
        self.add_caller(id, known);
        Ok(Some(id))
    }

    /// The association that a later message is for.
    fn addressee_of(&mut self, head: &MessageHead, chunk: &Chunk<'_>) -> Result<u32, Refusal> {
        let known = self.get_mut(head.to).ok_or(Refusal::UnknownId)?;
        let form = if known.role == Role::Initiator { SECOND } else { THIRD };
        let exchange = known.exchange.as_mut().filter(|_| head.form == form);
        let exchange = exchange.ok_or(Refusal::Unexpected)?;
        if !exchange.messages.is_of_attempt(chunk) {
            return Err(Refusal::Duplicate);
        }
        if known.to != 0 && known.to != head.from {
            // Two have answered: one of them is forged.
            exchange.messages.dispute();
            return Err(Refusal::Unexpected);
        }
        known.to = head.from;
        Ok(head.to)
    }

    /// A message is whole.
    fn handle_whole(&mut self, now: Instant, id: u32, message: &[u8]) {
        let Some(known) = self.table.get(&id) else { return };
        let was_open = match known.state {
            State::Tls => false,
            State::Open(_) => true,
            _ => return,
        };
        if self.discard_forged(id, message) {
            return;
        }
        if let Err(error) = self.try_handle_whole(id, message) {
            let is_disputed = |exchange: &mut TlsExchange| exchange.messages.is_disputed();
            if self.exchange_of(id).is_some_and(is_disputed) && self.begin_anew(now, id) {
                return;
            }
            // An open association received invalid tickets, which change nothing, or the reason
            // why it was refused.
            if !was_open || matches!(error, HandshakeError::Tls(TlsError::Refused(_))) {
                self.send_chunks(id);
                self.fail(id, error);
            }
            return;
        }
        let is_over = |known: &Association| matches!(known.state, State::Open(_)) && !was_open;
        let Some(known) = self.table.get(&id).filter(|known| is_over(known)) else { return };
        self.stats.established += 1;
        self.ready.push_back(id);
        if known.role == Role::Responder {
            self.confirm(id);
            self.set_timer(id, Some(now + LINGER));
        }
    }

    /// Throws a message away whose parts are not sealed by the peer of this handshake: it is sent
    /// again. Only a responder can: what it received before stays valid.
    fn discard_forged(&mut self, id: u32, message: &[u8]) -> bool {
        let Some(known) = self.get_mut(id).filter(|known| known.role == Role::Responder) else {
            return false;
        };
        let Some(exchange) = known.exchange.as_mut() else { return false };
        let is_forged = exchange.tls.as_ref().is_some_and(|tls| !tls.opens(message));
        if !is_forged || exchange.discards >= MOST_DISCARDS {
            return false;
        }
        exchange.discards += 1;
        exchange.messages.discard();
        true
    }

    fn try_handle_whole(&mut self, id: u32, message: &[u8]) -> Result<(), HandshakeError> {
        let Proof::Certificates(own) = &self.config.proof else {
            return Err(HandshakeError::OutOfTurn);
        };
        let known = self.table.get_mut(&id).ok_or(HandshakeError::OutOfTurn)?;
        let exchange = known.exchange.as_mut().ok_or(HandshakeError::OutOfTurn)?;
        if exchange.tls.is_none() {
            let server = own.server.clone();
            let server = server.ok_or(HandshakeError::Tls(TlsError::NotConfigured))?;
            let suite = exchange.suite;
            let head = MessageHead { form: FIRST, suite, kind: KIND, to: 0, from: known.to };
            let context = head.context(known.to, &self.config.context);
            exchange.tls = Some(Tls::server(server, &context, suite)?);
        }
        let tls = exchange.tls.as_mut().ok_or(HandshakeError::OutOfTurn)?;
        let read = tls.handle_message(message);
        if let Err(error) = read {
            // Nothing came yet that only the peer of this handshake can have sealed.
            if !tls.has_opened() {
                exchange.messages.dispute();
            }
            // The alert is not repeated: the peer may miss it.
            if let Some(alert) = tls.take_alert() {
                exchange.messages.send(alert);
            }
            exchange.tls = None;
            return Err(error);
        }
        let answer = tls.poll_message();
        if matches!(known.state, State::Tls) && tls.is_finished() {
            let established = tls.take_keys()?;
            let shown = match established.peer {
                PeerIdentity::Certificate(shown) => Some(shown),
                _ => None,
            };
            let mut checked = self.trust.check_certificate(known.role, known.remote, shown);
            if let (Some(pinned), Some(shown)) = (exchange.pinned, shown)
                && shown != pinned
            {
                checked = Err(HandshakeError::WrongPeer(shown));
            }
            if let Err(error) = checked {
                // Behind the answer: parts are numbered.
                if let Some(refusal) = tls.refuse() {
                    exchange.messages.send([answer.unwrap_or_default(), refusal].concat());
                }
                exchange.tls = None;
                return Err(error);
            }
            self.stats.resumed += u64::from(tls.is_resumed());
            known.protocol = tls.application_protocol().map(Box::from);
            if known.role == Role::Responder {
                exchange.tls = None;
            }
            known.open(id, established, self.key_log.as_deref_mut());
        }
        if let (Some(answer), Some(exchange)) = (answer, known.exchange.as_mut()) {
            exchange.messages.send(answer);
        }
        Ok(())
    }

    /// Drops an exchange that has nothing more to send or to receive.
    fn drop_finished(&mut self, id: u32) {
        let Some(known) = self.get_mut(id) else { return };
        let Some(exchange) = &known.exchange else { return };
        let is_open = matches!(known.state, State::Open(_));
        let is_over = match known.role {
            // The last message is the responder's.
            Role::Initiator => {
                is_open && exchange.messages.is_received()
                    || matches!(known.state, State::Failed(_))
            }
            Role::Responder => {
                is_open && exchange.messages.number() > 2 && exchange.messages.is_acked()
            }
        };
        if is_over {
            known.exchange = None;
            self.set_timer(id, None);
        }
    }

    /// The responder wants to see a cookie.
    pub(super) fn show_cookie(&mut self, id: u32, cookie: &[u8]) -> Result<(), Refusal> {
        let cookie = cookie.first_chunk().ok_or(Refusal::Truncated)?;
        let cookie = u128::from_be_bytes(*cookie);
        let exchange = self.exchange_of(id).ok_or(Refusal::Unexpected)?;
        if exchange.cookie == cookie {
            return Err(Refusal::Duplicate);
        }
        exchange.cookie = cookie;
        exchange.messages.resend();
        Ok(())
    }

    /// Sends a first message again, with its cookie.
    pub(super) fn send_first_again(&mut self, id: u32) {
        self.send_chunks(id);
    }
}
