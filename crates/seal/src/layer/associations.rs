//! All associations of an end: by number, with their handshakes and timers.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::fmt;

use landfall_placement::{Duration, Instant, PathId, Peer, Refusal, Refusals, Ticket, Timeout};

#[cfg(feature = "rustls")]
use super::association::Proof;
use super::association::{
    Answered, Association, Begun, FIRST_LEN, MESSAGE_HEAD, Means, MessageHead, State,
};
use super::expanded_keys::ExpandedKeys;
use super::incoming::Opened;
use super::key_log::KeyLog;
use super::unit::{FIRST, RETRY, SECOND, THIRD};
use super::{Expected, SealConfig, SealStats, Trust};
use crate::handshake::{Established, HandshakeError, PeerIdentity};
use crate::keys::{Keys, Role};
use crate::secret::{Secret, Seed};

/// After this a message without an answer is sent again, then after twice and four times as long:
/// the engine waits, too, and has its own timers.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(100);
pub(super) const MOST_DOUBLED: u32 = 2;
/// After this many times the peer counts as silent.
pub(super) const MOST_REPEATS: u32 = 15;
/// Messages of handshakes that wait to leave; more count as lost.
const MOST_MESSAGES: usize = 256;
/// An association that was not used for so long makes room for another one.
const UNUSED: Duration = Duration::from_secs(60);
/// One that is over, and of which only late copies may still come.
const LATE: Duration = Duration::from_secs(1);

/// All associations, and the messages that they send.
pub(super) struct Associations {
    pub(super) config: SealConfig,
    pub(super) trust: Box<dyn Trust>,
    /// Hears the keys of each association, if somebody asked for that.
    pub(super) key_log: Option<Box<dyn KeyLog>>,
    /// What numbers and handshakes are derived from, and how many were.
    pub(super) secret: Secret,
    drawn: u64,
    /// Boxed: nodes of the tree have room for more than they hold.
    pub(super) table: BTreeMap<u32, Box<Association>>,
    /// Those that peers began.
    begun: BTreeMap<Begun, u32>,
    /// Of those, the ones that have shown nothing more, the oldest first.
    pub(super) half_open: VecDeque<u32>,
    timers: BTreeSet<(Instant, u32)>,
    pub(super) expanded: ExpandedKeys,
    pub(super) messages: VecDeque<(PathId, Peer, Vec<u8>)>,
    /// Those that have keys, and units that waited for them.
    pub(super) ready: VecDeque<u32>,
    /// Those that failed, for who asks.
    pub(super) failed: VecDeque<u32>,
    pub(super) opened: VecDeque<Opened>,
    pub(super) next_opened: u64,
    pub(super) scratch: Vec<u8>,
    pub(super) refusals: Refusals,
    pub(super) all_refusals: Refusals,
    pub(super) stats: SealStats,
}

impl fmt::Debug for Associations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Associations")
            .field("table", &self.table)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Associations {
    pub(super) fn new(config: SealConfig, trust: Box<dyn Trust>, seed: [u8; 32]) -> Self {
        Self {
            config,
            trust,
            key_log: None,
            secret: Secret::new(seed).derive("associations", &[]),
            drawn: 0,
            table: BTreeMap::new(),
            begun: BTreeMap::new(),
            half_open: VecDeque::new(),
            timers: BTreeSet::new(),
            expanded: ExpandedKeys::default(),
            messages: VecDeque::new(),
            ready: VecDeque::new(),
            failed: VecDeque::new(),
            opened: VecDeque::new(),
            next_opened: 0,
            scratch: Vec::new(),
            refusals: Refusals::new(),
            all_refusals: Refusals::new(),
            stats: SealStats::default(),
        }
    }

    /// Is anything sealed on this path?
    #[inline]
    pub(super) fn seals_on(&self, path: PathId) -> bool {
        !self.config.plain_paths.contains(&path)
    }

    /// Do units from and to this peer of the network stay as they are?
    #[inline]
    pub(super) fn is_plain(&self, path: PathId, peer: Peer) -> bool {
        let is_loopback = match peer {
            Peer::Socket(socket) => socket.ip().to_canonical().is_loopback(),
            Peer::Ip(ip) => ip.to_canonical().is_loopback(),
            _ => false,
        };
        is_loopback && self.config.plain_loopback || !self.seals_on(path)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn get(&self, id: u32) -> Option<&Association> {
        self.table.get(&id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Association> {
        self.table.get_mut(&id).map(Box::as_mut)
    }

    /// Those with somebody at an address.
    pub(super) fn at(&self, path: PathId, remote: Peer) -> Vec<u32> {
        let is_it = |known: &Association| (known.path, known.remote) == (path, remote);
        self.table.iter().filter(|(_, known)| is_it(known)).map(|(id, _)| *id).collect()
    }

    pub(super) fn failure(&self, id: u32) -> Option<HandshakeError> {
        match self.table.get(&id)?.state {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// A number that no association has, and a seed for a handshake.
    pub(super) fn draw(&mut self) -> (u32, Seed) {
        loop {
            self.drawn += 1;
            let drawn = self.secret.derive("association", &self.drawn.to_be_bytes());
            let seed = Seed::new(*drawn.derive("seed", &[]).as_bytes());
            let number = drawn.derive("number", &[]);
            let number = number.as_bytes().first_chunk().copied().unwrap_or_default();
            let id = u32::from_be_bytes(number);
            if id != 0 && !self.table.contains_key(&id) {
                return (id, seed);
            }
        }
    }

    /// Begins an association.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        path: PathId,
        remote: Peer,
        expected: Expected<'_>,
    ) -> Option<u32> {
        let pinned = expected.pinned;
        #[cfg(feature = "rustls")]
        if matches!(self.config.proof, Proof::Certificates(_)) {
            return self.begin_tls((now, path, remote), pinned, expected.name);
        }
        self.make_room(now)?;
        let (id, seed) = self.draw();
        let SealConfig { proof, context, suite, .. } = &self.config;
        let means = Means { proof, context, seed, id };
        let mut association = Association::begin((now, path, remote), means, *suite, pinned)?;
        association.is_own = expected.is_own;
        self.table.insert(id, Box::new(association));
        self.repeat(now, id);
        Some(id)
    }

    /// Keys that several have. Who seals with them is the initiator, and sends to `remote`.
    pub(super) fn add_group(
        &mut self,
        now: Instant,
        (path, remote): (PathId, Peer),
        role: Role,
        (id, secret): (u32, [u8; 32]),
    ) -> Option<()> {
        if id == 0 || self.table.contains_key(&id) {
            return None;
        }
        self.make_room(now)?;
        let keys = Keys::new(Secret::new(secret), role, self.config.suite);
        let unfinished = State::Failed(HandshakeError::Unfinished);
        let mut association = Association::new((now, path, remote), role, unfinished);
        (association.to, association.is_group, association.is_confirmed) = (id, true, true);
        let established = Established { keys, peer: PeerIdentity::PresharedKey };
        association.open(id, established, self.key_log.as_deref_mut());
        self.table.insert(id, Box::new(association));
        Some(())
    }

    /// A number and a secret for keys that several will have.
    pub(super) fn draw_group(&mut self) -> (u32, [u8; 32]) {
        let (id, _) = self.draw();
        let secret = self.secret.derive("group", &self.drawn.to_be_bytes());
        (id, *secret.as_bytes())
    }

    /// Room for one more.
    pub(super) fn make_room(&mut self, now: Instant) -> Option<()> {
        if self.table.len() >= self.config.most {
            let is_unused = |known: &Association| {
                if known.is_group {
                    return false;
                }
                let wait = if known.is_over { LATE } else { UNUSED };
                now.since(known.used) >= wait
            };
            let unused = self.table.iter().filter(|(_, known)| is_unused(known));
            let unused: Vec<u32> = unused.map(|(id, _)| *id).collect();
            unused.into_iter().for_each(|id| self.remove(id));
        }
        (self.table.len() < self.config.most).then_some(())
    }

    pub(super) fn remove(&mut self, id: u32) {
        let Some(known) = self.table.remove(&id) else { return };
        if let Some(due) = known.due {
            self.timers.remove(&(due, id));
        }
        if let Some(begun) = known.begun {
            self.begun.remove(&begun);
        }
        if !known.is_confirmed {
            self.half_open.retain(|known| *known != id);
        }
        self.ready.retain(|known| *known != id);
    }

    pub(super) fn set_timer(&mut self, id: u32, due: Option<Instant>) {
        let Some(known) = self.table.get_mut(&id) else { return };
        if let Some(before) = core::mem::replace(&mut known.due, due) {
            self.timers.remove(&(before, id));
        }
        self.timers.extend(due.map(|due| (due, id)));
    }

    pub(super) fn next_timer(&self) -> Option<Timeout> {
        let handshake = self.timers.first().map(|(at, _)| Timeout { at: *at, timer: "handshake" });
        let rest = self.expanded.drop_at.map(|at| Timeout { at, timer: "unused keys" });
        handshake.into_iter().chain(rest).min_by_key(|timeout| timeout.at)
    }

    pub(super) fn fire_timers(&mut self, now: Instant) {
        self.expanded.fire(now, &mut self.table);
        while let Some((at, id)) = self.timers.first().copied() {
            if at > now {
                return;
            }
            self.repeat(now, id);
        }
    }

    /// Sends what waits for an answer, and again later.
    fn repeat(&mut self, now: Instant, id: u32) {
        let Some(known) = self.table.get_mut(&id) else { return };
        #[cfg(feature = "rustls")]
        if known.exchange.is_some() {
            return self.repeat_tls(now, id);
        }
        if known.repeats > MOST_REPEATS {
            if known.state.is_handshaking() {
                self.fail(id, HandshakeError::Unfinished);
            } else {
                self.set_timer(id, None);
            }
            return;
        }
        let due = now + FIRST_WAIT * (1 << known.repeats.min(MOST_DOUBLED));
        known.repeats += 1;
        let (path, remote, message) = (known.path, known.remote, known.last_message.clone());
        self.send(path, remote, message);
        self.set_timer(id, Some(due));
    }

    pub(super) fn send(&mut self, path: PathId, to: Peer, message: Vec<u8>) {
        if self.messages.len() < MOST_MESSAGES && !message.is_empty() {
            self.messages.push_back((path, to, message));
        }
    }

    pub(super) fn fail(&mut self, id: u32, error: HandshakeError) {
        self.set_timer(id, None);
        self.stats.failed += 1;
        let Some(known) = self.table.get_mut(&id) else { return };
        known.state = State::Failed(error);
        self.stats.dropped += known.waiting.len() as u64;
        known.waiting.clear();
        if known.role == Role::Responder {
            // A peer that TLS refused is told why, until others need the room.
            #[cfg(feature = "rustls")]
            if known.exchange.is_some() {
                return;
            }
            self.remove(id);
        } else if self.failed.len() < self.config.most {
            self.failed.push_back(id);
        }
    }

    /// A message of a handshake came.
    pub(super) fn handle_message(
        &mut self,
        (now, path, from): (Instant, PathId, Peer),
        unit: &[u8],
    ) -> Result<(), Refusal> {
        let head = MessageHead::read(unit).ok_or(Refusal::Unsupported)?;
        #[cfg(feature = "rustls")]
        if head.kind == super::tls_exchange::KIND && head.form != RETRY {
            return self.handle_chunk((now, path, from), &head, unit);
        }
        let noise = unit.get(MESSAGE_HEAD..MESSAGE_HEAD + head.noise_len());
        let noise = noise.ok_or(Refusal::Truncated)?;
        match head.form {
            FIRST if unit.len() < FIRST_LEN => Err(Refusal::Truncated),
            FIRST => self.handle_first((now, path, from), &head, (noise, unit)),
            RETRY => self.handle_retry(&head, noise),
            _ => self.handle_more(now, &head, noise),
        }
    }

    fn handle_first(
        &mut self,
        (now, path, from): (Instant, PathId, Peer),
        head: &MessageHead,
        (noise, unit): (&[u8], &[u8]),
    ) -> Result<(), Refusal> {
        if let Some(known) = self.begun.get(&(path, from, head.from, 0)) {
            // It missed the answer: the same again.
            let known = self.table.get(known).filter(|known| !known.is_confirmed);
            if let Some(answer) = known.map(|known| known.last_message.clone()) {
                self.send(path, from, answer);
            }
            return Err(Refusal::Duplicate);
        }
        if self.is_sent_back(head.from, noise) {
            return Err(Refusal::Unexpected);
        }
        if self.is_crowded() && !self.is_proven(now, (path, from), head, unit) {
            self.ask_for_proof(now, (path, from), head);
            return Ok(());
        }
        self.make_room_for_caller(now)?;
        let (id, seed) = self.draw();
        let means = Means { proof: &self.config.proof, context: &self.config.context, seed, id };
        let answered = Association::answer((now, path, from), means, head, noise);
        let mut association = answered.map_err(|_| {
            self.stats.failed += 1;
            Refusal::BadProof
        })?;
        let answer = association.last_message.clone();
        // With a pre-shared key it has the keys already.
        let trust = &mut self.trust;
        let is_trusted = |role, peer, key| trust.check(role, peer, key);
        let finished = association.finish(id, is_trusted, self.key_log.as_deref_mut());
        finished.map_err(|_| Refusal::BadProof)?;
        if matches!(association.state, State::Open(_)) {
            self.stats.established += 1;
        }
        association.begun = Some((path, from, head.from, 0));
        self.add_caller(id, association);
        self.send(path, from, answer);
        Ok(())
    }

    /// Has somebody sent our own first message back to us? Who answers that, and gets the answer
    /// back as well, has keys with nobody but itself, and takes itself for a peer. The message is
    /// bound to its number, so that no other one leads there.
    fn is_sent_back(&self, number: u32, noise: &[u8]) -> bool {
        self.table.get(&number).is_some_and(|own| {
            let sent = own.last_message.get(MESSAGE_HEAD..).unwrap_or_default();
            let is_first = own.role == Role::Initiator && own.state.is_handshaking();
            is_first && !own.is_own && sent.starts_with(noise)
        })
    }

    /// Room for one more that somebody else begins: of those that have shown nothing yet the
    /// oldest goes.
    pub(super) fn make_room_for_caller(&mut self, now: Instant) -> Result<(), Refusal> {
        if self.config.half_open == 0 {
            return Err(Refusal::Unexpected);
        }
        while self.half_open.len() >= self.config.half_open {
            let Some(oldest) = self.half_open.front().copied() else { break };
            self.remove(oldest);
        }
        self.make_room(now).ok_or(Refusal::NoRoom)
    }

    /// Somebody else has begun this one, and has shown nothing yet.
    pub(super) fn add_caller(&mut self, id: u32, association: Association) {
        self.begun.extend(association.begun.map(|begun| (begun, id)));
        self.table.insert(id, Box::new(association));
        self.half_open.push_back(id);
    }

    /// What somebody has begun who calls it so.
    #[cfg(feature = "rustls")]
    pub(super) fn begun_by(&self, begun: &Begun) -> Option<u32> {
        self.begun.get(begun).copied()
    }

    fn handle_more(
        &mut self,
        now: Instant,
        head: &MessageHead,
        noise: &[u8],
    ) -> Result<(), Refusal> {
        let known = self.table.get_mut(&head.to).ok_or(Refusal::UnknownId)?;
        let form = if known.role == Role::Initiator { SECOND } else { THIRD };
        let is_theirs = known.to == 0 || known.to == head.from;
        if head.form != form || !is_theirs {
            return Err(Refusal::Unexpected);
        }
        let was_open = matches!(known.state, State::Open(_));
        let (id, path, remote) = (head.to, known.path, known.remote);
        known.used = now;
        let trust = &mut self.trust;
        let is_trusted = |role, peer, key| trust.check(role, peer, key);
        let handled = known.handle(head, noise, is_trusted, self.key_log.as_deref_mut());
        let (is_open, repeats) =
            (matches!(known.state, State::Open(_)), !known.last_message.is_empty());
        match handled {
            Err(error) => {
                self.fail(id, error);
                return Err(Refusal::BadProof);
            }
            Ok(Answered::Send(message)) => self.send(path, remote, message),
            Ok(Answered::Nothing) => {}
        }
        if is_open && !was_open {
            self.stats.established += 1;
            self.ready.push_back(id);
            if let Some(known) = self.table.get_mut(&id) {
                known.repeats = 0;
            }
            // The sender of the last message has the keys: it makes room for no stranger.
            if form == THIRD {
                self.confirm(id);
            }
            // The last message is repeated until something sealed comes.
            let due = (repeats && form == SECOND).then(|| now + FIRST_WAIT);
            self.set_timer(id, due);
        }
        Ok(())
    }

    /// May this peer call itself so, if it does? One that was called, and that is not who it says,
    /// is no peer any more; one that has called may be told why.
    #[inline]
    pub(super) fn may_be_called(&mut self, peer: Peer, name: Option<u32>) -> bool {
        name.is_none_or(|name| self.check_name(peer, name))
    }

    /// May a peer that has proven nothing call itself so, if it does?
    #[inline]
    pub(super) fn may_be_called_in_clear(&mut self, name: Option<u32>) -> bool {
        name.is_none_or(|name| self.trust.check_name(None, name).is_ok())
    }

    fn check_name(&mut self, peer: Peer, name: u32) -> bool {
        let Peer::Node(id) = peer else { return false };
        let Some(known) = self.table.get(&id) else { return false };
        if known.is_group {
            // It has proven to be one of several, and not which.
            return false;
        }
        match self.trust.check_name(known.identity, name) {
            Ok(()) => true,
            Err(error) => {
                if known.role == Role::Initiator {
                    self.fail(id, error);
                }
                false
            }
        }
    }

    /// Something genuine came: the peer has the keys. One that has begun the association may be
    /// elsewhere by now; one that was called is where it was called (as in QUIC), so that no
    /// two ends ever lose each other by packets that somebody passed on.
    pub(super) fn note_genuine(&mut self, id: u32, moved: Option<(PathId, Peer)>) {
        let Some(known) = self.table.get_mut(&id) else { return };
        if let Some((path, remote)) = moved.filter(|_| known.role == Role::Responder) {
            (known.path, known.remote) = (path, remote);
        }
        self.confirm(id);
    }

    /// The peer has shown the keys.
    pub(super) fn confirm(&mut self, id: u32) {
        let Some(known) = self.table.get_mut(&id).filter(|known| !known.is_confirmed) else {
            return;
        };
        known.is_confirmed = true;
        known.last_message = Vec::new();
        self.set_timer(id, None);
        self.half_open.retain(|known| *known != id);
    }

    /// The driver is through with a placement: what was opened for it is not needed any more.
    pub(super) fn drop_opened(&mut self, ticket: Ticket) {
        if !self.opened.is_empty() {
            self.opened.retain(|opened| opened.ticket != ticket);
        }
    }
}
