//! Noise handshakes: `Noise_XX_25519_ChaChaPoly_SHA256` between key pairs,
//! `Noise_NNpsk0_25519_ChaChaPoly_SHA256` between ends with a pre-shared key.
//!
//! The state machine is `snow`'s, and has seen more eyes than one of our own would; the
//! primitives are ours (`primitives`), so that it needs no operating system, no second set of
//! ciphers and no randomness but the seed.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::primitives::{Primitives, public_key};
use super::{
    Established, Fingerprint, Handshake, HandshakeError, PeerIdentity, PublicKey, agreement, master,
};
use crate::aead::Suite;
use crate::keys::{Keys, Role};
use crate::secret::{Secret, Seed};

/// No message of either pattern is longer.
const MOST_NOISE: usize = 128;
const XX: &str = "Noise_XX_25519_ChaChaPoly_SHA256";
const NN_PSK0: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

/// A key pair that stands for somebody.
#[derive(Debug)]
pub struct StaticKey {
    secret: Secret,
    public: PublicKey,
}

impl StaticKey {
    /// The pair of these secret bytes, which were random once.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        let public = PublicKey(public_key(secret.as_bytes()));
        Self { secret, public }
    }

    /// What others know it by.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }
}

/// How two ends prove themselves to each other.
#[derive(Clone, Copy, Debug)]
pub enum NoiseConfig<'a> {
    /// Each shows a key pair; nobody else learns which. A pinned peer has to have this
    /// fingerprint, or nothing more is said. Without one the caller looks at
    /// [`PeerIdentity::PublicKey`] before it uses the keys: trust on first use.
    KeyPair {
        /// This end's own.
        own: &'a StaticKey,
        /// The peer's.
        pinned: Option<Fingerprint>,
    },
    /// Both have the same 32 random bytes. Not a password: use [`Pake`](super::Pake) for that.
    PresharedKey(&'a Secret),
}

impl NoiseConfig<'_> {
    const fn pattern(&self) -> &'static str {
        match self {
            Self::KeyPair { .. } => XX,
            Self::PresharedKey(_) => NN_PSK0,
        }
    }
}

/// One end of a Noise handshake.
///
/// ```
/// use landfall_seal::{Handshake, Noise, NoiseConfig, PeerIdentity, Role, Secret, Seed, StaticKey, Suite};
///
/// let (ann, bob) = (StaticKey::new(Secret::new([1; 32])), StaticKey::new(Secret::new([2; 32])));
/// let config = NoiseConfig::KeyPair { own: &ann, pinned: Some(bob.public().fingerprint()) };
/// let mut here = Noise::new(&config, Role::Initiator, b"", Suite::Aes128Gcm, Seed::new([3; 32]));
/// let config = NoiseConfig::KeyPair { own: &bob, pinned: None };
/// let mut there = Noise::new(&config, Role::Responder, b"", Suite::Aes128Gcm, Seed::new([4; 32]));
///
/// there.handle_message(&here.poll_message().unwrap())?;
/// here.handle_message(&there.poll_message().unwrap())?;
/// there.handle_message(&here.poll_message().unwrap())?;
/// assert_eq!(there.finish()?.peer, PeerIdentity::PublicKey(ann.public()));
/// # Ok::<(), landfall_seal::HandshakeError>(())
/// ```
pub struct Noise {
    /// Nothing once it has failed.
    state: Option<Box<HandshakeState>>,
    role: Role,
    suite: Suite,
    pinned: Option<Fingerprint>,
    has_psk: bool,
    to_send: Option<Vec<u8>>,
}

impl fmt::Debug for Noise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noise")
            .field("role", &self.role)
            .field("has_failed", &self.state.is_none())
            .finish_non_exhaustive()
    }
}

impl Noise {
    /// One end. Both ends give the same context: versions, ports, names.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a seed is used once")]
    pub fn new(
        config: &NoiseConfig<'_>,
        role: Role,
        context: &[u8],
        suite: Suite,
        seed: Seed,
    ) -> Self {
        let agreed = agreement(config.pattern(), suite, context);
        let mut random = Zeroizing::new([0; 32]);
        seed.fill("ephemeral key", &mut *random);
        let state = build(config, role, &agreed, random).expect("both patterns are complete");
        let pinned = match config {
            NoiseConfig::KeyPair { pinned, .. } => *pinned,
            NoiseConfig::PresharedKey(_) => None,
        };
        let has_psk = matches!(config, NoiseConfig::PresharedKey(_));
        let state = Some(Box::new(state));
        let mut noise = Self { state, role, suite, pinned, has_psk, to_send: None };
        if role == Role::Initiator {
            noise.write().expect("an initiator begins");
        }
        noise
    }

    fn write(&mut self) -> Result<(), HandshakeError> {
        let state = self.state.as_mut().ok_or(HandshakeError::OutOfTurn)?;
        let mut message = vec![0; MOST_NOISE];
        let written = state.write_message(&[], &mut message);
        // What may fail is a key exchange with a key of small order.
        message.truncate(written.map_err(|_| HandshakeError::NotProven)?);
        self.to_send = Some(message);
        Ok(())
    }

    fn read(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        let state = self.state.as_mut().ok_or(HandshakeError::OutOfTurn)?;
        if state.is_handshake_finished() || state.is_my_turn() {
            return Err(HandshakeError::OutOfTurn);
        }
        if message.len() > MOST_NOISE {
            return Err(HandshakeError::Malformed("it is too long"));
        }
        let mut payload = vec![0; MOST_NOISE];
        let read = state.read_message(message, &mut payload).map_err(|error| match error {
            snow::Error::Input => HandshakeError::Malformed("it is cut short"),
            _ => HandshakeError::NotProven,
        })?;
        if read != 0 {
            return Err(HandshakeError::Malformed("it carries what nobody asked for"));
        }
        let peer = state.get_remote_static().and_then(|key| key.first_chunk());
        if let (Some(peer), Some(pinned)) = (peer, self.pinned) {
            let shown = PublicKey(*peer).fingerprint();
            if shown != pinned {
                return Err(HandshakeError::WrongPeer(shown));
            }
        }
        if state.is_my_turn() && !state.is_handshake_finished() { self.write() } else { Ok(()) }
    }
}

fn build(
    config: &NoiseConfig<'_>,
    role: Role,
    agreed: &[u8],
    random: Zeroizing<[u8; 32]>,
) -> Result<HandshakeState, snow::Error> {
    let builder =
        Builder::with_resolver(config.pattern().parse()?, Box::new(Primitives { random }));
    let builder = builder.prologue(agreed)?;
    let builder = match config {
        NoiseConfig::KeyPair { own, .. } => builder.local_private_key(own.secret.as_bytes())?,
        NoiseConfig::PresharedKey(key) => builder.psk(0, key.as_bytes())?,
    };
    match role {
        Role::Initiator => builder.build_initiator(),
        Role::Responder => builder.build_responder(),
    }
}

impl Handshake for Noise {
    fn handle_message(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        self.to_send = None;
        let read = self.read(message);
        if read.is_err() {
            (self.state, self.to_send) = (None, None);
        }
        read
    }

    fn poll_message(&mut self) -> Option<Vec<u8>> {
        self.to_send.take()
    }

    fn is_finished(&self) -> bool {
        let is_finished = |state: &HandshakeState| state.is_handshake_finished();
        self.to_send.is_none() && self.state.as_deref().is_some_and(is_finished)
    }

    fn finish(self) -> Result<Established, HandshakeError> {
        let is_finished = self.is_finished();
        let mut state = self.state.ok_or(HandshakeError::OutOfTurn)?;
        if !is_finished {
            return Err(HandshakeError::Unfinished);
        }
        let peer = match state.get_remote_static().and_then(|key| key.first_chunk()) {
            Some(key) => PeerIdentity::PublicKey(PublicKey(*key)),
            None => PeerIdentity::PresharedKey,
        };
        debug_assert_eq!(self.has_psk, peer == PeerIdentity::PresharedKey);
        let (there, back) = state.dangerously_get_raw_split();
        let (there, back) = (Zeroizing::new(there), Zeroizing::new(back));
        let secret = master(&[state.get_handshake_hash(), &*there, &*back]);
        Ok(Established { keys: Keys::new(secret, self.role, self.suite), peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    fn key(text: &str) -> [u8; 32] {
        hex(text).try_into().unwrap()
    }

    const PROLOGUE: &str = "4a6f686e2047616c74";
    /// The random bytes of the two ends' ephemeral keys.
    const EPHEMERAL: [&str; 2] = [
        "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
        "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
    ];

    /// Vectors of cacophony: payload and message in turn, and the hash of all.
    fn follows(configs: [&NoiseConfig<'_>; 2], messages: &[(&str, &str)], hash: &str) {
        let end = |nth: usize, role| {
            let random = Zeroizing::new(key(EPHEMERAL[nth]));
            build(configs[nth], role, &hex(PROLOGUE), random).unwrap()
        };
        let mut ends = [end(0, Role::Initiator), end(1, Role::Responder)];
        for (nth, (payload, expected)) in messages.iter().enumerate() {
            let (from, to) = (nth % 2, (nth + 1) % 2);
            let (mut message, mut heard) = (vec![0; 1024], vec![0; 1024]);
            let written = ends[from].write_message(&hex(payload), &mut message).unwrap();
            assert_eq!(message[..written], hex(expected), "message {nth}");
            let read = ends[to].read_message(&message[..written], &mut heard).unwrap();
            assert_eq!(heard[..read], hex(payload));
        }
        for end in &ends {
            assert!(end.is_handshake_finished());
            assert_eq!(end.get_handshake_hash(), hex(hash));
        }
    }

    #[test]
    fn xx_follows_the_vectors_of_cacophony() {
        let own = [
            "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
            "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
        ]
        .map(|text| StaticKey::new(Secret::new(key(text))));
        let configs = own.each_ref().map(|own| NoiseConfig::KeyPair { own, pinned: None });
        let messages = [
            (
                "4c756477696720766f6e204d69736573",
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444c756477696720766f6e204d69736573",
            ),
            (
                "4d757272617920526f746862617264",
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f14480884381cbad1f276e038c48378ffce2b65285e08d6b68aaa3629a5a8639392490e5b9bd5269c2f1e4f488ed8831161f19b7815528f8982ffe09be9b5c412f8a0db50f8814c7194e83f23dbd8d162c9326ad",
            ),
            (
                "462e20412e20486179656b",
                "c7195ffacac1307ff99046f219750fc47693e23c3cb08b89c2af808b444850a80ae475b9df0f169ae80a89be0865b57f58c9fea0d4ec82a286427402f113e4b6ae769a1d95941d49b25030",
            ),
        ];
        let hash = "c8e5f64e846193be2a834104c2a009868d6c9f3bd3c186299888b488b2f1f58e";
        follows(configs.each_ref(), &messages, hash);
    }

    #[test]
    fn nn_psk0_follows_the_vectors_of_cacophony() {
        let psk = "54686973206973206d7920417573747269616e20706572737065637469766521";
        let keys = [psk, psk].map(|text| Secret::new(key(text)));
        let configs = keys.each_ref().map(NoiseConfig::PresharedKey);
        let messages = [
            (
                "4c756477696720766f6e204d69736573",
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c794479b962b8aff8485742ac32f905ba45369e2465fb59e138a93d67a0d1266b6a54",
            ),
            (
                "4d757272617920526f746862617264",
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d6062704d5a9c422a8e834423f8c1feada7e8d0d910a1a2cd030fb584221e3",
            ),
        ];
        let hash = "f4d03dc34495c95729ea6de9e1b59004b59733102488b3e24bc441e0be208eaf";
        follows(configs.each_ref(), &messages, hash);
    }

    /// A key of small order makes a secret that everybody knows.
    #[test]
    fn an_ephemeral_key_of_small_order_is_refused() {
        let own = StaticKey::new(Secret::new([1; 32]));
        let config = NoiseConfig::KeyPair { own: &own, pinned: None };
        let seed = Seed::new([2; 32]);
        let mut noise = Noise::new(&config, Role::Responder, b"", Suite::Aes128Gcm, seed);
        assert_eq!(noise.handle_message(&[0; 32]), Err(HandshakeError::NotProven));
        assert_eq!(noise.poll_message(), None);
    }
}
