//! Handshakes by TLS: messages in turns, and what becomes of them.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::vec::Vec;
use std::sync::Arc;

use landfall_placement::{Duration, Instant, PathId, Peer, Refusal};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::association::{Association, MESSAGE_HEAD, MessageHead, Proof, State};
use super::associations::{Associations, FIRST_WAIT, MOST_DOUBLED, MOST_REPEATS};
use super::turns::{CHUNK, CHUNK_HEAD, Chunk, MOST_ATTEMPTS, Taken, Turns, begun_attempt};
use super::unit::{FIRST, SECOND, THIRD};
use crate::aead::Suite;
use crate::handshake::{Fingerprint, Handshake as _, HandshakeError, PeerIdentity, Tls, TlsError};
use crate::keys::Role;

/// What messages of TLS go by in their heads.
pub(super) const KIND: u8 = 3;
/// The longest unit of such a message, and the length of each that begins one.
pub(super) const UNIT: usize = MESSAGE_HEAD + CHUNK_HEAD + CHUNK;
/// A caller that has not shown that it is at its address gets so many times what came from
/// there, as in QUIC (RFC 9000, section 8.1).
const AMPLIFICATION: usize = 3;
/// A first message is so many units, if need be some of them twice: so much more may be answered.
const FIRST_UNITS: usize = 4;
/// After so many units of the responder that bring nothing more the handshake is begun anew.
const MOST_IDLE: u32 = 6;
/// So often a responder has a message said again of which a chunk was made up.
const MOST_DISCARDS: u8 = 8;
/// So long a responder has its last message ready.
const LINGER: Duration = Duration::from_secs(2);

/// How an end proves itself by certificates, and whom it trusts: as rustls is configured. TLS 1.3
/// is all that is spoken.
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
pub(super) struct Talk {
    turns: Turns,
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
    /// What a first message shows: that it comes from where it says.
    cookie: u128,
    /// The peer is where it says it is.
    is_proven: bool,
    /// What it may be told until then, in bytes.
    budget: usize,
}

impl Talk {
    /// The next unit that may be said.
    fn poll(&mut self, (id, to, role): (u32, u32, Role)) -> Option<Vec<u8>> {
        if role == Role::Responder && !self.is_proven && self.budget < UNIT {
            return None;
        }
        let form = match role {
            Role::Responder => SECOND,
            // Whom it calls has not answered: nothing says yet which association it is.
            Role::Initiator if to == 0 => FIRST,
            Role::Initiator => THIRD,
        };
        let (suite, cookie) = (self.suite, self.cookie);
        let mut chunk = self.turns.poll()?;
        if form == FIRST {
            chunk.have = cookie;
        }
        let head = MessageHead { form, suite, kind: KIND, to, from: id };
        let mut unit = Vec::with_capacity(UNIT);
        head.write(&mut unit);
        chunk.write(&mut unit);
        if form == FIRST {
            unit.resize(UNIT, 0);
        }
        self.budget = self.budget.saturating_sub(unit.len());
        Some(unit)
    }
}

/// The end of TLS that calls.
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
    /// Begins an association by TLS. What cannot even begin has failed.
    pub(super) fn begin_talk(
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
        let mut known = Association::new((now, path, remote), Role::Initiator, State::Talking);
        match tls {
            Ok(mut tls) => {
                let turns = Turns::initiator(0, tls.poll_message().unwrap_or_default());
                let name = name.map(Box::from);
                known.talk = Some(Box::new(Talk {
                    turns,
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
                self.say_first(now, id);
            }
            Err(error) => {
                self.table.insert(id, Box::new(known));
                self.fail(id, error);
            }
        }
        Some(id)
    }

    /// Says a first message, in as many units as let the responder answer.
    fn say_first(&mut self, now: Instant, id: u32) {
        let mut said = self.say_turns(id);
        while said > 0 && said < FIRST_UNITS {
            if let Some(talk) = self.talk_of(id) {
                talk.turns.rewind();
            }
            said += self.say_turns(id);
        }
        self.wait_for_turn(now, id);
    }

    /// Begins the handshake anew, in another attempt: what came cannot be, or nothing more came.
    /// Somebody may have made up a part of it, and nobody can say which. False: it was begun often
    /// enough, or is not this end's to begin.
    fn begin_anew(&mut self, now: Instant, id: u32) -> bool {
        let Proof::Certificates(own) = &self.config.proof else { return false };
        let Some(known) = self.table.get_mut(&id) else { return false };
        let is_caller = known.role == Role::Initiator && matches!(known.state, State::Talking);
        let Some(talk) = known.talk.as_mut().filter(|_| is_caller) else { return false };
        let (attempt, suite) = (talk.turns.attempt() + 1, talk.suite);
        let head = MessageHead { form: FIRST, suite, kind: KIND, to: 0, from: id };
        let context = head.context(id, &self.config.context);
        let name = talk.name.as_deref();
        if attempt >= MOST_ATTEMPTS {
            return false;
        }
        // It could begin before, with the same.
        let Ok(mut tls) = caller(own, (known.remote, name), &context, suite) else { return false };
        talk.turns = Turns::initiator(attempt, tls.poll_message().unwrap_or_default());
        (talk.tls, talk.idle) = (Some(tls), 0);
        (known.to, known.repeats) = (0, 0);
        self.say_first(now, id);
        true
    }

    fn talk_of(&mut self, id: u32) -> Option<&mut Talk> {
        self.get_mut(id)?.talk.as_deref_mut()
    }

    /// Says what may be said now; gives how many units that were.
    fn say_turns(&mut self, id: u32) -> usize {
        let mut said = 0;
        while let Some(known) = self.table.get_mut(&id)
            && let (path, remote, whose) = (known.path, known.remote, (id, known.to, known.role))
            && let Some(unit) = known.talk.as_mut().and_then(|talk| talk.poll(whose))
        {
            self.say(path, remote, unit);
            said += 1;
        }
        said
    }

    /// The initiator waits for an answer.
    fn wait_for_turn(&mut self, now: Instant, id: u32) {
        let Some(known) = self.get_mut(id) else { return };
        let due = now + FIRST_WAIT * (1 << known.repeats.min(MOST_DOUBLED));
        known.repeats += 1;
        self.set_timer(id, Some(due));
    }

    /// Nothing was heard for a time.
    pub(super) fn repeat_talk(&mut self, now: Instant, id: u32) {
        let Some(known) = self.get_mut(id) else { return };
        let is_done = known.role == Role::Responder || known.is_confirmed;
        let is_silent = known.repeats > MOST_REPEATS;
        if is_done || is_silent && matches!(known.state, State::Open(_)) {
            known.talk = None;
            return self.set_timer(id, None);
        }
        if is_silent {
            return self.fail(id, HandshakeError::Unfinished);
        }
        let is_stuck = |talk: &Talk| talk.idle >= MOST_IDLE || talk.turns.is_disputed();
        if self.talk_of(id).is_some_and(|talk| is_stuck(talk)) && self.begin_anew(now, id) {
            return;
        }
        if let Some(talk) = self.talk_of(id) {
            talk.turns.repeat();
        }
        self.say_turns(id);
        self.wait_for_turn(now, id);
    }

    /// A part of a message came.
    pub(super) fn handle_turn(
        &mut self,
        (now, path, from): (Instant, PathId, Peer),
        head: &MessageHead,
        unit: &[u8],
    ) -> Result<(), Refusal> {
        let chunk = Chunk::read(unit.get(MESSAGE_HEAD..).unwrap_or_default());
        let mut chunk = chunk.ok_or(Refusal::Malformed)?;
        let id = if head.form == FIRST {
            if unit.len() < UNIT {
                return Err(Refusal::Truncated);
            }
            let Some(id) = self.caller_of((now, path, from), head, (&chunk, unit))? else {
                return Ok(());
            };
            chunk.have = 0;
            id
        } else {
            self.callee_of(head, &chunk)?
        };
        let Some(known) = self.get_mut(id) else { return Err(Refusal::UnknownId) };
        known.used = now;
        let Some(talk) = known.talk.as_mut() else { return Err(Refusal::Duplicate) };
        if head.form == FIRST {
            talk.budget = talk.budget.saturating_add(AMPLIFICATION * unit.len());
        } else {
            talk.is_proven = true;
        }
        let mut taken = talk.turns.take(&chunk);
        let is_callee = known.role == Role::Responder;
        if taken == Err(Refusal::Malformed)
            && is_callee
            && talk.turns.is_disputed()
            && talk.discards < MOST_DISCARDS
        {
            // One of both is made up: what comes last is the more likely to be said again.
            talk.discards += 1;
            talk.turns.discard();
            taken = talk.turns.take(&chunk);
        }
        match taken? {
            Taken::Nothing => talk.idle = talk.idle.saturating_add(1),
            Taken::Progress => self.note_progress(now, id),
            Taken::Message(message) => {
                self.note_progress(now, id);
                self.hear(now, id, &message);
            }
        }
        self.say_turns(id);
        self.drop_finished(id);
        Ok(())
    }

    /// What the initiator waits for comes: its time begins anew.
    fn note_progress(&mut self, now: Instant, id: u32) {
        if let Some(known) = self.get_mut(id).filter(|known| known.role == Role::Initiator) {
            known.repeats = 0;
            if let Some(talk) = known.talk.as_mut() {
                talk.idle = 0;
            }
            self.wait_for_turn(now, id);
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
        let mut known = Association::new((now, path, from), Role::Responder, State::Talking);
        (known.to, known.begun) = (head.from, Some(begun));
        known.talk = Some(Box::new(Talk {
            turns: Turns::responder(attempt),
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
    fn callee_of(&mut self, head: &MessageHead, chunk: &Chunk<'_>) -> Result<u32, Refusal> {
        let known = self.get_mut(head.to).ok_or(Refusal::UnknownId)?;
        let form = if known.role == Role::Initiator { SECOND } else { THIRD };
        let talk = known.talk.as_mut().filter(|_| head.form == form);
        let talk = talk.ok_or(Refusal::Unexpected)?;
        if !talk.turns.is_of_attempt(chunk) {
            return Err(Refusal::Duplicate);
        }
        if known.to != 0 && known.to != head.from {
            // Two have answered: one of them is made up.
            talk.turns.dispute();
            return Err(Refusal::Unexpected);
        }
        known.to = head.from;
        Ok(head.to)
    }

    /// A message is whole.
    fn hear(&mut self, now: Instant, id: u32, message: &[u8]) {
        let Some(known) = self.table.get(&id) else { return };
        let was_open = match known.state {
            State::Talking => false,
            State::Open(_) => true,
            _ => return,
        };
        if self.discard_forged(id, message) {
            return;
        }
        if let Err(error) = self.try_hear(id, message) {
            let is_disputed = |talk: &mut Talk| talk.turns.is_disputed();
            if self.talk_of(id).is_some_and(is_disputed) && self.begin_anew(now, id) {
                return;
            }
            // An open association has heard tickets that make no sense, or why it was refused:
            // the one changes nothing.
            if !was_open || matches!(error, HandshakeError::Tls(TlsError::Refused(_))) {
                self.say_turns(id);
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

    /// Throws a message away whose parts are not sealed by the peer of this handshake: it is said
    /// again. Only a responder can, for what it has heard before is still good.
    fn discard_forged(&mut self, id: u32, message: &[u8]) -> bool {
        let Some(known) = self.get_mut(id).filter(|known| known.role == Role::Responder) else {
            return false;
        };
        let Some(talk) = known.talk.as_mut() else { return false };
        let is_forged = talk.tls.as_ref().is_some_and(|tls| !tls.opens(message));
        if !is_forged || talk.discards >= MOST_DISCARDS {
            return false;
        }
        talk.discards += 1;
        talk.turns.discard();
        true
    }

    fn try_hear(&mut self, id: u32, message: &[u8]) -> Result<(), HandshakeError> {
        let Proof::Certificates(own) = &self.config.proof else {
            return Err(HandshakeError::OutOfTurn);
        };
        let known = self.table.get_mut(&id).ok_or(HandshakeError::OutOfTurn)?;
        let talk = known.talk.as_mut().ok_or(HandshakeError::OutOfTurn)?;
        if talk.tls.is_none() {
            let server = own.server.clone();
            let server = server.ok_or(HandshakeError::Tls(TlsError::NotConfigured))?;
            let suite = talk.suite;
            let head = MessageHead { form: FIRST, suite, kind: KIND, to: 0, from: known.to };
            let context = head.context(known.to, &self.config.context);
            talk.tls = Some(Tls::server(server, &context, suite)?);
        }
        let tls = talk.tls.as_mut().ok_or(HandshakeError::OutOfTurn)?;
        let heard = tls.handle_message(message);
        if let Err(error) = heard {
            // Nothing has come yet that only the peer of this handshake can have said.
            if !tls.has_opened() {
                talk.turns.dispute();
            }
            // It hears why, if it hears it.
            if let Some(alert) = tls.take_alert() {
                talk.turns.say(alert);
            }
            talk.tls = None;
            return Err(error);
        }
        let answer = tls.poll_message();
        if matches!(known.state, State::Talking) && tls.is_finished() {
            let established = tls.take_keys()?;
            let shown = match established.peer {
                PeerIdentity::Certificate(shown) => Some(shown),
                _ => None,
            };
            let mut checked = self.trust.check_certificate(known.role, known.remote, shown);
            if let (Some(pinned), Some(shown)) = (talk.pinned, shown)
                && shown != pinned
            {
                checked = Err(HandshakeError::WrongPeer(shown));
            }
            if let Err(error) = checked {
                // Behind what it has to say, for parts are numbered.
                if let Some(refusal) = tls.refuse() {
                    talk.turns.say([answer.unwrap_or_default(), refusal].concat());
                }
                talk.tls = None;
                return Err(error);
            }
            self.stats.resumed += u64::from(tls.is_resumed());
            known.protocol = tls.application_protocol().map(Box::from);
            if known.role == Role::Responder {
                talk.tls = None;
            }
            known.open(id, established, self.key_log.as_deref_mut());
        }
        if let (Some(answer), Some(talk)) = (answer, known.talk.as_mut()) {
            talk.turns.say(answer);
        }
        Ok(())
    }

    /// Lets go of what has nothing more to say or to hear.
    fn drop_finished(&mut self, id: u32) {
        let Some(known) = self.get_mut(id) else { return };
        let Some(talk) = &known.talk else { return };
        let is_open = matches!(known.state, State::Open(_));
        let is_over = match known.role {
            // Its peer had the last word.
            Role::Initiator => {
                is_open && talk.turns.is_heard() || matches!(known.state, State::Failed(_))
            }
            Role::Responder => is_open && talk.turns.turn() > 2 && talk.turns.is_acked(),
        };
        if is_over {
            known.talk = None;
            self.set_timer(id, None);
        }
    }

    /// Whom it calls wants to see a cookie.
    pub(super) fn show_cookie(&mut self, id: u32, cookie: &[u8]) -> Result<(), Refusal> {
        let cookie = cookie.first_chunk().ok_or(Refusal::Truncated)?;
        let cookie = u128::from_be_bytes(*cookie);
        let talk = self.talk_of(id).ok_or(Refusal::Unexpected)?;
        if talk.cookie == cookie {
            return Err(Refusal::Duplicate);
        }
        talk.cookie = cookie;
        talk.turns.rewind();
        Ok(())
    }

    /// Says a first message again with the cookie that it has now.
    pub(super) fn say_again(&mut self, id: u32) {
        self.say_turns(id);
    }
}
