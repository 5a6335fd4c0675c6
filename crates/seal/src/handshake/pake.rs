//! A handshake by a code that people read out to each other.
//!
//! ```text
//! initiator   session 16, share 32
//! responder   share 32
//! initiator   proof 32
//! responder   proof 32
//! ```

use alloc::vec::Vec;
use core::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::cpace::{Exponent, Isk, Public, Share, Transcript, proof};
use super::{Established, Handshake, HandshakeError, PeerIdentity, agreement, master};
use crate::aead::Suite;
use crate::keys::{Keys, Role};
use crate::secret::Seed;

type Session = [u8; 16];
type Proof = [u8; 32];

const FIRST: &str = "the first message of a code's handshake has 48 bytes";
const OTHERS: &str = "messages of a code's handshake but the first have 32 bytes";
const NO_SHARE: &str = "the share is no element of the group that is good for a key";

/// Both ends know a code, and prove it to each other: CPace, confirmed.
///
/// Each handshake lets the other end try **one** code, and an end that fails learns nothing
/// but that. Who records the messages can try no code at all, however weak it is. So a code
/// needs to withstand only as many guesses as the responder lets others make.
///
/// The initiator proves first: a responder learns of each wrong guess.
///
/// ```
/// use landfall_seal::{Handshake, Pake, Seed, Suite};
///
/// let suite = Suite::Aes128Gcm;
/// let mut here = Pake::initiator(b"a code", b"context", suite, Seed::new([1; 32]));
/// let mut there = Pake::responder(b"a code", b"context", suite, Seed::new([2; 32]));
/// while let Some(message) = here.poll_message() {
///     there.handle_message(&message)?;
///     here.handle_message(&there.poll_message().unwrap())?;
/// }
/// let (here, there) = (here.finish()?.keys, there.finish()?.keys);
/// assert_eq!(here.export("a", b"b").as_bytes(), there.export("a", b"b").as_bytes());
/// # Ok::<(), landfall_seal::HandshakeError>(())
/// ```
pub struct Pake {
    role: Role,
    suite: Suite,
    channel: Vec<u8>,
    state: State,
    to_send: Option<Vec<u8>>,
}

enum State {
    /// The initiator has sent its share.
    Shared {
        session: Session,
        exponent: Exponent,
    },
    /// The responder waits for one.
    Waiting {
        code: Zeroizing<Vec<u8>>,
        seed: Seed,
    },
    /// The peer's proof has to be this one. The responder still has to show its own.
    Proving {
        session: Session,
        isk: Isk,
        expected: Proof,
        own: Option<Proof>,
    },
    Proven {
        session: Session,
        isk: Isk,
    },
    Failed,
}

impl fmt::Debug for Pake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Shared { .. } => "shared",
            State::Waiting { .. } => "waiting",
            State::Proving { .. } => "proving",
            State::Proven { .. } => "proven",
            State::Failed => "failed",
        };
        write!(f, "Pake({:?}, {state})", self.role)
    }
}

impl Pake {
    /// The end that begins. Both ends give the same context: versions, ports, names.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a seed is used once")]
    pub fn initiator(code: &[u8], context: &[u8], suite: Suite, seed: Seed) -> Self {
        let channel = agreement("code", suite, context);
        let mut session = Session::default();
        seed.fill("session", &mut session);
        let exponent = Self::exponent(code, &channel, &session, &seed);
        let first = [&session[..], &exponent.share].concat();
        let state = State::Shared { session, exponent };
        Self { role: Role::Initiator, suite, channel, state, to_send: Some(first) }
    }

    /// The end that answers.
    #[must_use]
    pub fn responder(code: &[u8], context: &[u8], suite: Suite, seed: Seed) -> Self {
        let channel = agreement("code", suite, context);
        let state = State::Waiting { code: Zeroizing::new(code.to_vec()), seed };
        Self { role: Role::Responder, suite, channel, state, to_send: None }
    }

    fn exponent(code: &[u8], channel: &[u8], session: &Session, seed: &Seed) -> Exponent {
        let mut random = Zeroizing::new([0; 64]);
        seed.fill("exponent", &mut *random);
        Exponent::new(code, Public { channel, session }, &random)
    }

    /// The proofs of both, the initiator's first.
    fn proofs(isk: &Isk, session: &Session, transcript: &Transcript<'_>) -> [Proof; 2] {
        [transcript.initiator, transcript.responder].map(|side| proof(isk, session, side))
    }

    fn on_first(
        &mut self,
        message: &[u8],
        code: &[u8],
        seed: &Seed,
    ) -> Result<State, HandshakeError> {
        let malformed = HandshakeError::Malformed(FIRST);
        let (session, share) = message.split_first_chunk().ok_or(malformed)?;
        let other: Share = share.try_into().map_err(|_| malformed)?;
        let exponent = Self::exponent(code, &self.channel, session, seed);
        let own = exponent.share;
        let transcript = Transcript { initiator: (&other, &[]), responder: (&own, &[]) };
        let public = Public { channel: &self.channel, session };
        let isk = exponent.agree(&other, public, &transcript);
        let isk = isk.ok_or(HandshakeError::Malformed(NO_SHARE))?;
        let [expected, proof] = Self::proofs(&isk, session, &transcript);
        self.to_send = Some(own.to_vec());
        Ok(State::Proving { session: *session, isk, expected, own: Some(proof) })
    }

    fn on_share(
        &mut self,
        message: &[u8],
        session: Session,
        exponent: Exponent,
    ) -> Result<State, HandshakeError> {
        let other: Share = message.try_into().map_err(|_| HandshakeError::Malformed(OTHERS))?;
        let own = exponent.share;
        let transcript = Transcript { initiator: (&own, &[]), responder: (&other, &[]) };
        let public = Public { channel: &self.channel, session: &session };
        let isk = exponent.agree(&other, public, &transcript);
        let isk = isk.ok_or(HandshakeError::Malformed(NO_SHARE))?;
        let [proof, expected] = Self::proofs(&isk, &session, &transcript);
        // Who sends our own share back would have our own proof accepted.
        if own == other {
            return Err(HandshakeError::NotProven);
        }
        self.to_send = Some(proof.to_vec());
        Ok(State::Proving { session, isk, expected, own: None })
    }
}

impl Handshake for Pake {
    fn handle_message(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        // Whatever was not sent is not sent any more if this fails.
        self.to_send = None;
        self.state = match core::mem::replace(&mut self.state, State::Failed) {
            State::Waiting { code, seed } => self.on_first(message, &code, &seed)?,
            State::Shared { session, exponent } => self.on_share(message, session, exponent)?,
            State::Proving { session, isk, expected, own } => {
                let proof: Proof =
                    message.try_into().map_err(|_| HandshakeError::Malformed(OTHERS))?;
                if !bool::from(proof.ct_eq(&expected)) {
                    return Err(HandshakeError::NotProven);
                }
                self.to_send = own.map(|own| own.to_vec());
                State::Proven { session, isk }
            }
            State::Proven { .. } | State::Failed => return Err(HandshakeError::OutOfTurn),
        };
        Ok(())
    }

    fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.to_send.take()
    }

    fn is_finished(&self) -> bool {
        matches!(self.state, State::Proven { .. }) && self.to_send.is_none()
    }

    fn finish(self) -> Result<Established, HandshakeError> {
        match self.state {
            State::Proven { session, isk } if self.to_send.is_none() => {
                let secret = master(&[&self.channel, &session, &*isk]);
                let keys = Keys::new(secret, self.role, self.suite);
                Ok(Established { keys, peer: PeerIdentity::Code })
            }
            State::Proven { .. }
            | State::Shared { .. }
            | State::Waiting { .. }
            | State::Proving { .. } => Err(HandshakeError::Unfinished),
            State::Failed => Err(HandshakeError::OutOfTurn),
        }
    }
}
