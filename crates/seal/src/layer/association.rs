//! What two ends have with each other: a handshake under way, then keys.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::{Instant, PathId, Peer};

use super::key_log::{KeyLog, TrafficKeys};
use super::retry::COOKIE_LEN;
use super::session::Session;
#[cfg(feature = "rustls")]
use super::tls_exchange::{self, Certificates, TlsExchange};
use super::unit::{FIRST, RETRY, SECOND, THIRD};
use crate::aead::Suite;
use crate::handshake::{
    Established, Fingerprint, Handshake as _, HandshakeError, Noise, NoiseConfig, PeerIdentity,
    PublicKey, StaticKey,
};
use crate::keys::Role;
use crate::secret::{Secret, Seed};

/// The version of these messages.
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
            Self::Certificates(_) => tls_exchange::KIND,
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

/// How far an association is.
#[derive(Debug)]
pub(super) enum State {
    Noise(Box<Noise>),
    /// A handshake by TLS is under way.
    #[cfg(feature = "rustls")]
    Tls,
    Open(Box<Session>),
    Failed(HandshakeError),
}

impl State {
    /// Is a handshake under way?
    pub(super) const fn is_handshaking(&self) -> bool {
        match self {
            Self::Noise(_) => true,
            #[cfg(feature = "rustls")]
            Self::Tls => true,
            Self::Open(_) | Self::Failed(_) => false,
        }
    }
}

/// What an association that a peer began goes by: where the peer is, what it calls the association,
/// and which of its attempts that is.
pub(super) type Begun = (PathId, Peer, u32, u8);

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
    /// The last message, sent again until the peer has answered.
    pub(super) last_message: Vec<u8>,
    pub(super) repeats: u32,
    /// How often it was sent again at once, for a cookie.
    pub(super) retries: u8,
    pub(super) due: Option<Instant>,
    /// Heads of units that wait for the keys.
    pub(super) waiting: VecDeque<Vec<u8>>,
    /// The peer has shown the keys: something sealed came, or its last message.
    pub(super) is_confirmed: bool,
    pub(super) used: Instant,
    /// What it goes by among those that peers began.
    pub(super) begun: Option<Begun>,
    /// The peer is this end itself.
    pub(super) is_own: bool,
    /// Its user needs it no more.
    pub(super) is_over: bool,
    /// Several have its keys: one seals with them, the others open.
    pub(super) is_group: bool,
    /// A handshake by TLS, until its last message is acknowledged.
    #[cfg(feature = "rustls")]
    pub(super) exchange: Option<Box<TlsExchange>>,
    /// The application protocol that both ends have chosen.
    pub(super) protocol: Option<Box<[u8]>>,
}

/// What becomes of a message.
pub(super) enum Answered {
    /// This is to be sent.
    Send(Vec<u8>),
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
            last_message: Vec::new(),
            repeats: 0,
            retries: 0,
            due: None,
            waiting: VecDeque::new(),
            is_confirmed: false,
            used: now,
            begun: None,
            is_own: false,
            is_over: false,
            is_group: false,
            #[cfg(feature = "rustls")]
            exchange: None,
            protocol: None,
        }
    }

    /// Begins a handshake; its first message is to be sent.
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
        let mut association = Self::new((now, path, remote), role, State::Noise(Box::new(noise)));
        association.last_message = head.with(&first);
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
        let mut association = Self::new((now, path, remote), role, State::Noise(Box::new(noise)));
        association.to = head.from;
        association.last_message = answer.with(&second);
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
        let State::Noise(noise) = &mut self.state else {
            // It missed the last message, or this is a late copy of its own.
            let is_asking = head.form == SECOND && matches!(self.state, State::Open(_));
            return Ok(if is_asking {
                Answered::Send(self.last_message.clone())
            } else {
                Answered::Nothing
            });
        };
        noise.handle_message(noise_message)?;
        let mut answered = Answered::Nothing;
        if head.form == SECOND {
            self.to = head.from;
            self.last_message.clear();
            if let Some(third) = noise.poll_message() {
                let form = THIRD;
                let last = MessageHead { form, to: head.from, from: head.to, ..*head };
                self.last_message = last.with(&third);
                answered = Answered::Send(self.last_message.clone());
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
            State::Noise(noise) if noise.is_finished() => noise,
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
