//! What two ends have with each other: a handshake under way, then keys.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Instant, PathId, Peer, Refusal};

use super::key_log::{KeyLog, TrafficKeys};
use super::retry::COOKIE_LEN;
#[cfg(feature = "rustls")]
use super::talk::{self, Certificates, Talk};
use super::unit::{
    Authenticated, FIRST, MASK_KEY, Mask, OVERHEAD, OuterHead, RETRY, SECOND, THIRD, mask_key,
    tag_of,
};
use crate::aead::Suite;
use crate::aead::Tag;
use crate::handshake::{
    Established, Fingerprint, Handshake as _, HandshakeError, Noise, NoiseConfig, PeerIdentity,
    PublicKey, StaticKey,
};
use crate::keys::Role;
use crate::provider::Provider;
use crate::record::{OpenError, Opener, RecordConfig, SealError, Sealer};
use crate::secret::{Secret, Seed};
use zeroize::Zeroizing;

/// The version of what is said here.
const VERSION: u8 = 1;
/// What is in front of a message of a handshake.
pub(super) const MESSAGE_HEAD: usize = 12;
/// The first message is filled up to this length, so that the answer is shorter: nobody gets
/// more bytes than it sent before it has proven its address.
pub(super) const FIRST_LEN: usize = 128;
/// Units that wait for a handshake; those that come then count as lost.
const MOST_WAITING: usize = 4;

/// How an end proves itself.
#[derive(Debug)]
pub enum Proof {
    /// By a key pair; so does the peer.
    KeyPair(StaticKey),
    /// By 32 random bytes that both have.
    PresharedKey(Secret),
    /// By certificates or raw public keys, in TLS.
    #[cfg(feature = "rustls")]
    Certificates(Certificates),
}

impl Proof {
    const fn kind(&self) -> u8 {
        match self {
            Self::KeyPair(_) => 1,
            Self::PresharedKey(_) => 2,
            #[cfg(feature = "rustls")]
            Self::Certificates(_) => talk::KIND,
        }
    }

    /// One end of a handshake by Noise. `None`: it is not by Noise.
    fn noise(
        &self,
        role: Role,
        pinned: Option<Fingerprint>,
        (suite, context): (Suite, &[u8]),
        seed: Seed,
    ) -> Option<Noise> {
        let config = match self {
            Self::KeyPair(own) => NoiseConfig::KeyPair { own, pinned },
            Self::PresharedKey(key) => NoiseConfig::PresharedKey(key),
            #[cfg(feature = "rustls")]
            Self::Certificates(_) => return None,
        };
        Some(Noise::new(&config, role, context, suite, seed))
    }
}

/// The head of a message, read or to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageHead {
    pub(super) form: u8,
    pub(super) suite: Suite,
    pub(super) kind: u8,
    pub(super) to: u32,
    pub(super) from: u32,
}

impl MessageHead {
    pub(super) fn read(unit: &[u8]) -> Option<Self> {
        let [form, version, suite, kind, a, b, c, d, e, f, g, h] = *unit.first_chunk()?;
        let suite = Suite::ALL.into_iter().find(|known| known.code() == suite)?;
        let (to, from) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        (version == VERSION).then_some(Self { form, suite, kind, to, from })
    }

    pub(super) fn with(&self, noise: &[u8]) -> Vec<u8> {
        let mut unit = Vec::with_capacity(FIRST_LEN);
        self.write(&mut unit);
        unit.extend_from_slice(noise);
        if self.form == FIRST {
            unit.resize(FIRST_LEN, 0);
        }
        unit
    }

    /// Appends it.
    pub(super) fn write(&self, unit: &mut Vec<u8>) {
        unit.extend_from_slice(&[self.form, VERSION, self.suite.code(), self.kind]);
        unit.extend_from_slice(&self.to.to_be_bytes());
        unit.extend_from_slice(&self.from.to_be_bytes());
    }

    /// How long the message of Noise behind it is.
    pub(super) const fn noise_len(&self) -> usize {
        match (self.form, self.kind) {
            (FIRST, 1) => 32,
            (SECOND, 1) => 96,
            (THIRD, 1) => 64,
            (RETRY, _) => COOKIE_LEN,
            _ => 48,
        }
    }

    /// What both ends must have read and written alike.
    pub(super) fn context(&self, initiator: u32, name: &[u8]) -> Vec<u8> {
        let mut context = Vec::from(*b"landfall seal");
        context.extend_from_slice(&[0, VERSION, self.suite.code(), self.kind]);
        context.extend_from_slice(&initiator.to_be_bytes());
        context.extend_from_slice(name);
        context
    }
}

/// Hides the heads of what leaves, and uncovers those of what comes.
#[derive(Debug)]
struct Masks {
    outgoing: Mask,
    incoming: Mask,
}

/// The keys of an association in use. While nothing is said they are as short as may be; expanded,
/// they are five times as long.
#[derive(Debug)]
pub(super) struct Session {
    sealer: Sealer<Provider>,
    opener: Opener<Provider>,
    /// What the masks of units that leave and that come are made of.
    mask_keys: Zeroizing<[[u8; MASK_KEY]; 2]>,
    /// The masks, while units come and go.
    masks: Option<Box<Masks>>,
    /// The highest packet number that was genuine, and where that came from.
    highest: Option<u64>,
    /// Where the unit came from that was placed last, and its number.
    seen: Option<(u64, PathId, Peer)>,
}

impl Session {
    fn new(established: Established) -> Self {
        let keys = established.keys;
        let senders = [keys.role(), keys.role().peer()];
        let mask_keys = Zeroizing::new(senders.map(|sender| mask_key(&keys, sender)));
        let (sealer, opener) = keys.records(&RecordConfig::default());
        Self { sealer, opener, mask_keys, masks: None, highest: None, seen: None }
    }

    /// Are its keys expanded?
    #[inline]
    pub(super) const fn is_awake(&self) -> bool {
        self.masks.is_some()
    }

    /// Lets go of expanded keys until they are used again.
    pub(super) fn rest(&mut self) {
        self.masks = None;
        self.sealer.rest();
        self.opener.rest();
    }

    #[inline]
    fn masks(&mut self) -> &Masks {
        let [outgoing, incoming] = &*self.mask_keys;
        self.masks.get_or_insert_with(|| {
            let (outgoing, incoming) = (Mask::of_key(outgoing), Mask::of_key(incoming));
            Box::new(Masks { outgoing, incoming })
        })
    }

    /// Reads the heads of a unit that may be genuine. What makes no sense or came before is
    /// refused here already.
    pub(super) fn uncover(&mut self, unit: &[u8]) -> Result<Authenticated, Covered> {
        let heads = self.masks().incoming.uncover(unit).map_err(Covered::Needs)?;
        let at = heads.outer().position(self.opener.generation());
        if self.opener.expects(at) { Ok(heads) } else { Err(Covered::Replayed) }
    }

    pub(super) fn note_seen(&mut self, heads: &Authenticated, path: PathId, from: Peer) {
        self.seen = Some((heads.outer().number, path, from));
    }

    /// Opens a payload. Gives where the peer is now, if that is news.
    pub(super) fn open(
        &mut self,
        unit: &[u8],
        heads: &Authenticated,
        payload: &mut [u8],
    ) -> Result<Option<(PathId, Peer)>, OpenError> {
        let tag = Tag(tag_of(unit).ok_or(OpenError::NoPosition)?);
        let at = heads.outer().position(self.opener.generation());
        self.opener.open(at, heads.bytes(), payload, &tag)?;
        if self.highest.is_some_and(|highest| highest > at.number) {
            return Ok(None);
        }
        self.highest = Some(at.number);
        let seen = self.seen.filter(|(number, ..)| *number == at.number);
        Ok(seen.map(|(_, path, from)| (path, from)))
    }

    /// Opens a unit where it lies: the engine's head and payload are behind the outer head then.
    /// Gives where the peer is now, if that is news.
    pub(super) fn open_in_place(
        &mut self,
        unit: &mut [u8],
        path: PathId,
        from: Peer,
    ) -> Result<Option<(PathId, Peer)>, Refusal> {
        let heads = self.uncover(unit).map_err(|covered| match covered {
            Covered::Needs(len) if len == usize::MAX => Refusal::Malformed,
            Covered::Needs(_) => Refusal::Truncated,
            Covered::Replayed => Refusal::Duplicate,
        })?;
        self.note_seen(&heads, path, from);
        let (head, payload) = unit.split_at_mut(OVERHEAD + heads.inner().len());
        let moved = self.open(head, &heads, payload).map_err(|_| Refusal::BadProof)?;
        head[OVERHEAD..].copy_from_slice(heads.inner());
        Ok(moved)
    }

    /// Seals a unit whose outer head is to be written.
    pub(super) fn seal(&mut self, to: u32, head: &mut [u8], payload: &mut [u8]) -> bool {
        // Far below the limit, so that what is under way does not reach it.
        if self.sealer.needs_update() && self.sealer.update().is_err() {
            return false;
        }
        self.try_seal(to, head, payload).is_ok()
    }

    fn try_seal(&mut self, to: u32, head: &mut [u8], payload: &mut [u8]) -> Result<(), SealError> {
        let slot = self.sealer.slot(0)?;
        let at = slot.position();
        let inner_len = (head.len().saturating_sub(OVERHEAD)) as u8;
        let (generation, number) = (at.generation as u8, at.number);
        let Some(outer) = head.first_chunk_mut() else { return Err(SealError::TooLong) };
        OuterHead { generation, inner_len, to, number }.write(outer);
        let heads = Authenticated::of_plain(head).ok_or(SealError::TooLong)?;
        let tag = slot.seal(heads.bytes(), payload)?;
        head[16..OVERHEAD].copy_from_slice(&tag.0);
        self.masks().outgoing.cover(head);
        Ok(())
    }
}

/// Why the heads of a unit cannot be read.
pub(super) enum Covered {
    /// So many bytes of it are needed.
    Needs(usize),
    /// It came before.
    Replayed,
}

/// How far an association is.
#[derive(Debug)]
pub(super) enum State {
    Shaking(Box<Noise>),
    /// A handshake by TLS is under way.
    #[cfg(feature = "rustls")]
    Talking,
    Open(Box<Session>),
    Failed(HandshakeError),
}

impl State {
    /// Is a handshake under way?
    pub(super) const fn is_shaking(&self) -> bool {
        match self {
            Self::Shaking(_) => true,
            #[cfg(feature = "rustls")]
            Self::Talking => true,
            Self::Open(_) | Self::Failed(_) => false,
        }
    }
}

/// What two ends have with each other.
#[derive(Debug)]
pub(super) struct Association {
    pub(super) path: PathId,
    pub(super) remote: Peer,
    pub(super) role: Role,
    pub(super) state: State,
    pub(super) identity: Option<PeerIdentity>,
    /// What the peer calls it.
    pub(super) to: u32,
    /// What is said again until the peer has answered.
    pub(super) to_repeat: Vec<u8>,
    pub(super) repeats: u32,
    /// How often it was said again at once, for a cookie.
    pub(super) retries: u8,
    pub(super) due: Option<Instant>,
    /// Heads of units that wait for the keys.
    pub(super) waiting: VecDeque<Vec<u8>>,
    /// The peer has shown the keys: something sealed came, or its last message.
    pub(super) is_confirmed: bool,
    pub(super) used: Instant,
    /// What it goes by among those that peers began.
    pub(super) begun: Option<(PathId, Peer, u32)>,
    /// Its user needs it no more.
    pub(super) is_over: bool,
    /// A handshake by TLS, until nothing of it is said any more.
    #[cfg(feature = "rustls")]
    pub(super) talk: Option<Box<Talk>>,
    /// The application protocol that both ends have chosen.
    pub(super) protocol: Option<Box<[u8]>>,
}

/// What becomes of a message.
pub(super) enum Answered {
    /// This is to be said.
    Say(Vec<u8>),
    /// Nothing is.
    Nothing,
}

/// What a message is handled with.
pub(super) struct Means<'a> {
    pub(super) proof: &'a Proof,
    pub(super) context: &'a [u8],
    pub(super) seed: Seed,
    /// What this end calls the association.
    pub(super) id: u32,
}

impl Association {
    pub(super) fn new(
        (now, path, remote): (Instant, PathId, Peer),
        role: Role,
        state: State,
    ) -> Self {
        Self {
            path,
            remote,
            role,
            state,
            identity: None,
            to: 0,
            to_repeat: Vec::new(),
            repeats: 0,
            retries: 0,
            due: None,
            waiting: VecDeque::new(),
            is_confirmed: false,
            used: now,
            begun: None,
            is_over: false,
            #[cfg(feature = "rustls")]
            talk: None,
            protocol: None,
        }
    }

    /// Begins a handshake; its first message is to be said.
    pub(super) fn begin(
        (now, path, remote): (Instant, PathId, Peer),
        means: Means<'_>,
        suite: Suite,
        pinned: Option<Fingerprint>,
    ) -> Option<Self> {
        let kind = means.proof.kind();
        let head = MessageHead { form: FIRST, suite, kind, to: 0, from: means.id };
        let context = head.context(means.id, means.context);
        let role = Role::Initiator;
        let mut noise = means.proof.noise(role, pinned, (suite, &context), means.seed)?;
        let first = noise.poll_message().unwrap_or_default();
        let mut association = Self::new((now, path, remote), role, State::Shaking(Box::new(noise)));
        association.to_repeat = head.with(&first);
        Some(association)
    }

    /// Answers a first message.
    pub(super) fn answer(
        (now, path, remote): (Instant, PathId, Peer),
        means: Means<'_>,
        head: &MessageHead,
        noise_message: &[u8],
    ) -> Result<Self, HandshakeError> {
        if head.kind != means.proof.kind() {
            return Err(HandshakeError::Malformed("it proves itself in another way"));
        }
        let context = head.context(head.from, means.context);
        let (role, suite) = (Role::Responder, head.suite);
        let noise = means.proof.noise(role, None, (suite, &context), means.seed);
        let mut noise = noise.ok_or(HandshakeError::OutOfTurn)?;
        noise.handle_message(noise_message)?;
        let second = noise.poll_message().ok_or(HandshakeError::Unfinished)?;
        let answer = MessageHead { form: SECOND, to: head.from, from: means.id, ..*head };
        let mut association = Self::new((now, path, remote), role, State::Shaking(Box::new(noise)));
        association.to = head.from;
        association.to_repeat = answer.with(&second);
        Ok(association)
    }

    /// The peer says something more.
    pub(super) fn handle(
        &mut self,
        head: &MessageHead,
        noise_message: &[u8],
        is_trusted: impl FnOnce(Role, Peer, PublicKey) -> Result<(), HandshakeError>,
        key_log: Option<&mut (dyn KeyLog + 'static)>,
    ) -> Result<Answered, HandshakeError> {
        let State::Shaking(noise) = &mut self.state else {
            // It did not hear the last message, or this is a late copy of its own.
            let is_asking = head.form == SECOND && matches!(self.state, State::Open(_));
            return Ok(if is_asking {
                Answered::Say(self.to_repeat.clone())
            } else {
                Answered::Nothing
            });
        };
        noise.handle_message(noise_message)?;
        let mut answered = Answered::Nothing;
        if head.form == SECOND {
            self.to = head.from;
            self.to_repeat.clear();
            if let Some(third) = noise.poll_message() {
                let form = THIRD;
                let last = MessageHead { form, to: head.from, from: head.to, ..*head };
                self.to_repeat = last.with(&third);
                answered = Answered::Say(self.to_repeat.clone());
            }
        }
        self.finish(head.to, is_trusted, key_log)?;
        Ok(answered)
    }

    /// Takes the keys over, once the handshake is finished. `id` is what this end calls the
    /// association.
    pub(super) fn finish(
        &mut self,
        id: u32,
        is_trusted: impl FnOnce(Role, Peer, PublicKey) -> Result<(), HandshakeError>,
        key_log: Option<&mut (dyn KeyLog + 'static)>,
    ) -> Result<(), HandshakeError> {
        let unfinished = State::Failed(HandshakeError::Unfinished);
        let noise = match core::mem::replace(&mut self.state, unfinished) {
            State::Shaking(noise) if noise.is_finished() => noise,
            other => {
                self.state = other;
                return Ok(());
            }
        };
        let established = noise.finish()?;
        if let PeerIdentity::PublicKey(key) = established.peer {
            is_trusted(self.role, self.remote, key)?;
        }
        self.open(id, established, key_log);
        Ok(())
    }

    /// Takes keys over. `id` is what this end calls the association.
    pub(super) fn open(
        &mut self,
        id: u32,
        established: Established,
        key_log: Option<&mut (dyn KeyLog + 'static)>,
    ) {
        self.identity = Some(established.peer);
        if let Some(log) = key_log {
            let (initiator, responder) = match self.role {
                Role::Initiator => (id, self.to),
                Role::Responder => (self.to, id),
            };
            for sender in [Role::Initiator, Role::Responder] {
                log.log(&TrafficKeys::of(&established.keys, sender, initiator, responder));
            }
        }
        self.state = State::Open(Box::new(Session::new(established)));
    }

    /// A head that waits for the keys. False where there is no room.
    pub(super) fn wait(&mut self, head: &[u8]) -> bool {
        let has_room = self.waiting.len() < MOST_WAITING;
        if has_room {
            self.waiting.push_back(head.to_vec());
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;

    use super::super::{CaptureOpener, NotOpened};
    use super::*;
    use crate::keys::Keys;

    const DOCUMENT: &str = include_str!("../../../../docs/spec/seal.md");

    fn session(role: Role) -> Session {
        let keys = Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
        Session::new(Established { keys, peer: PeerIdentity::PresharedKey })
    }

    /// The bytes in a block of the document, comments apart.
    fn vector(name: &str) -> Vec<u8> {
        let start = std::format!("vector {name}\n");
        let (_, behind) = DOCUMENT.split_once(&start).expect("the document has it");
        let (lines, _) = behind.split_once("```").expect("it ends");
        let bytes = lines.lines().map(|line| line.split(';').next().unwrap_or_default());
        let digits: String = bytes.flat_map(str::split_whitespace).collect();
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex");
        (0..digits.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn the_vectors_of_the_document_are_what_is_sealed() {
        let mut session = session(Role::Initiator);
        let mut seal = || {
            let mut head = std::vec![0; OVERHEAD];
            head.extend(0..40);
            let mut payload = *b"in its place";
            assert!(session.seal(0x0102_0304, &mut head, &mut payload));
            head.extend_from_slice(&payload);
            head
        };
        let (first, second) = (seal(), seal());
        assert_eq!(first, vector("first unit"), "it is {first:02x?}");
        let keys = Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm);
        let line = TrafficKeys::of(&keys, Role::Initiator, 0x0a0b_0c0d, 0x0102_0304).line();
        assert!(DOCUMENT.contains(&std::format!("{line}\n")), "the line is {line}");
        let alike = first.iter().zip(&second).filter(|(a, b)| a == b).count();
        assert!(alike < 12, "the same again looks like it in {alike} bytes");
    }

    #[test]
    fn keys_are_renewed_on_the_way_and_the_mask_stays() {
        let limits = crate::Limits { blocks: 64, ..Suite::Aes128Gcm.limits() };
        let records = RecordConfig { limits: Some(limits), ..RecordConfig::default() };
        let [mut here, mut there] = [Role::Initiator, Role::Responder].map(|role| {
            let keys = || Keys::new(Secret::new([7; 32]), role, Suite::Aes128Gcm);
            let mut session = session(role);
            (session.sealer, session.opener) = keys().records(&records);
            session
        });
        for nth in 0..5_000u32 {
            let mut head = std::vec![0; OVERHEAD + 4];
            head[OVERHEAD..].copy_from_slice(&nth.to_be_bytes());
            let mut payload = *b"in its place";
            assert!(here.seal(9, &mut head, &mut payload));
            let Ok(heads) = there.uncover(&head) else { panic!("unit {nth} is covered") };
            assert_eq!(heads.inner(), nth.to_be_bytes());
            assert_eq!(there.open(&head, &heads, &mut payload), Ok(None));
            assert_eq!(&payload, b"in its place");
            assert!(matches!(there.uncover(&head), Err(Covered::Replayed)));
        }
        assert!(there.opener.generation() > 256, "its low byte came round");
    }

    /// One line of a key log opens all generations, wherever the recording begins among the first
    /// 256, and whatever is missing from it, twice in it or in another order.
    #[test]
    fn a_line_of_a_key_log_opens_all_generations() {
        let mut here = session(Role::Initiator);
        let keys = Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm);
        let line = || TrafficKeys::of(&keys, Role::Initiator, 5, 9).line();
        let opener = || {
            let mut opener = CaptureOpener::new();
            opener.add(line().parse().expect("it was written so"));
            opener
        };
        let mut units = Vec::new();
        for nth in 0..700u32 {
            let mut unit = std::vec![0; OVERHEAD + 4];
            unit[OVERHEAD..].copy_from_slice(&nth.to_be_bytes());
            let mut payload = *b"in its place";
            assert!(here.seal(9, &mut unit, &mut payload));
            unit.extend_from_slice(&payload);
            units.push(unit);
            here.sealer.update().expect("there are more");
        }
        let check = |opener: &mut CaptureOpener, nth: usize| {
            let opened = opener.open(&units[nth]).unwrap_or_else(|why| panic!("{nth}: {why}"));
            assert_eq!((opened.generation, opened.number), (nth as u32, nth as u64));
            assert_eq!(opened.bytes, [&(nth as u32).to_be_bytes()[..], b"in its place"].concat());
        };
        let mut all = opener();
        (0..700).for_each(|nth| check(&mut all, nth));
        for start in [1, 127, 128, 200, 255] {
            let mut late = opener();
            for nth in [start, start, start + 100, start + 3, start + 100] {
                check(&mut late, nth);
            }
        }
        // It cannot be known how often the low byte came round: not opened, and no harm done.
        let mut too_late = opener();
        assert_eq!(too_late.open(&units[256]), Err(NotOpened::Forged));
        check(&mut too_late, 0);
        // What claims to be of any generation only seems to be one.
        let mut damaged = units[0].clone();
        for byte in 0..=255 {
            damaged[1] = byte;
            let is_true = byte == units[0][1];
            assert_eq!(opener().open(&damaged).is_ok(), is_true, "{byte}");
        }
    }
}
