//! What holds for any messages of a handshake: for property tests, and for the fuzz target
//! `seal_handshake`.
//!
//! An attacker owns the network and takes part in no secret: it drops, repeats, changes,
//! cuts, swaps and makes up messages. Whatever it does, nothing panics; an end that finishes
//! has keys, and if both ends finish they have the same; and an end that was handed anything
//! but what the other has sent does not finish.

mod chunks;

use alloc::vec::Vec;

pub use chunks::{check_chunks, exchange_messages};

use crate::{
    Established, Handshake, HandshakeError, MOST_MESSAGE, Noise, NoiseConfig, Pake, Role, Secret,
    Seed, StaticKey, Suite,
};

/// What becomes of one message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Pass,
    /// One of its bits is flipped: of this byte, counted round its length.
    Flip(u16, u8),
    /// Only this many of its bytes arrive.
    Cut(u16),
    /// A byte is appended.
    Extend(u8),
    /// Something else arrives.
    Replace(Vec<u8>),
    /// It arrives twice.
    Repeat,
    /// It goes back to who sent it.
    Reflect,
}

impl Fate {
    /// Does something else arrive than what was sent? A cut that cuts nothing
    /// and a replacement by the same are no change, so the message decides.
    fn apply(&self, message: &[u8]) -> Vec<u8> {
        let mut changed = message.to_vec();
        match self {
            Self::Pass | Self::Repeat | Self::Reflect => {}
            Self::Flip(at, bit) => {
                if let Some(len) = core::num::NonZeroUsize::new(changed.len()) {
                    changed[usize::from(*at) % len] ^= 1 << (bit % 8);
                }
            }
            Self::Cut(len) => changed.truncate(usize::from(*len)),
            Self::Extend(byte) => changed.push(*byte),
            Self::Replace(bytes) => changed.clone_from(bytes),
        }
        changed
    }

    /// Reads fates from any bytes, so that a fuzzer finds them.
    pub fn from_bytes(bytes: &[u8]) -> Vec<Self> {
        let mut fates = Vec::new();
        let mut rest = bytes;
        while let Some((which, tail)) = rest.split_first() {
            rest = tail;
            let mut byte = || {
                let (byte, tail) = rest.split_first().unwrap_or((&0, &[]));
                rest = tail;
                *byte
            };
            fates.push(match which % 8 {
                0 | 1 => Self::Pass,
                2 => Self::Flip(u16::from_be_bytes([byte(), byte()]), byte()),
                3 => Self::Cut(byte().into()),
                4 => Self::Extend(byte()),
                5 => {
                    let len = usize::from(byte()).min(rest.len());
                    let (replacement, tail) = rest.split_at(len);
                    rest = tail;
                    Self::Replace(replacement.to_vec())
                }
                6 => Self::Repeat,
                _ => Self::Reflect,
            });
        }
        fates
    }
}

/// Which handshake two ends of a model make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By a code.
    Code,
    /// By key pairs; the initiator pins the responder's.
    KeyPair,
    /// By a pre-shared key.
    PresharedKey,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Code, Self::KeyPair, Self::PresharedKey];
}

/// What the two ends know; equal at both where they are honest with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedKnowledge {
    /// Stands for the code, the pre-shared key, or the responder's key pair.
    pub secret: u8,
    /// Stands for version, ports and names.
    pub context: u8,
    /// The suite for records.
    pub suite: Suite,
}

impl Default for SharedKnowledge {
    fn default() -> Self {
        Self { secret: 1, context: 1, suite: Suite::Aes128Gcm }
    }
}

/// How a handshake ended for its two ends, the initiator first.
pub type Ends = [Result<Established, HandshakeError>; 2];

/// Runs a handshake between two ends; each message meets the next fate, and those after the
/// last fate pass.
///
/// # Panics
///
/// If what the module promises does not hold.
pub fn run(kind: Kind, beliefs: [SharedKnowledge; 2], fates: &[Fate]) -> Ends {
    let [here, there] = beliefs;
    match kind {
        Kind::Code => {
            let end = |role, belief: SharedKnowledge| {
                let (code, context) = ([belief.secret; 9], [belief.context]);
                match role {
                    Role::Initiator => {
                        Pake::initiator(&code, &context, belief.suite, Seed::new([5; 32]))
                    }
                    Role::Responder => {
                        Pake::responder(&code, &context, belief.suite, Seed::new([6; 32]))
                    }
                }
            };
            carry(end(Role::Initiator, here), end(Role::Responder, there), fates)
        }
        Kind::KeyPair => {
            let own = StaticKey::new(Secret::new([9; 32]));
            let pinned = StaticKey::new(Secret::new([here.secret; 32])).public().fingerprint();
            let initiator = NoiseConfig::KeyPair { own: &own, pinned: Some(pinned) };
            let peer = StaticKey::new(Secret::new([there.secret; 32]));
            let pinned = Some(own.public().fingerprint());
            let responder = NoiseConfig::KeyPair { own: &peer, pinned };
            noise([&initiator, &responder], beliefs, fates)
        }
        Kind::PresharedKey => {
            let keys = beliefs.map(|belief| Secret::new([belief.secret; 32]));
            let configs = keys.each_ref().map(NoiseConfig::PresharedKey);
            noise(configs.each_ref(), beliefs, fates)
        }
    }
}

fn noise(configs: [&NoiseConfig<'_>; 2], beliefs: [SharedKnowledge; 2], fates: &[Fate]) -> Ends {
    let end = |nth: usize, role, seed| {
        let SharedKnowledge { context, suite, .. } = beliefs[nth];
        Noise::new(configs[nth], role, &[context], suite, Seed::new([seed; 32]))
    };
    carry(end(0, Role::Initiator, 5), end(1, Role::Responder, 6), fates)
}

/// Hands messages to and fro until nobody has one, and checks what is promised.
fn carry<H: Handshake>(initiator: H, responder: H, fates: &[Fate]) -> Ends {
    /// More than any handshake has.
    const MOST_MESSAGES: usize = 16;
    let mut ends = [initiator, responder];
    let mut errors = [None, None];
    let mut fates = fates.iter();
    // Which end received what the other has not sent.
    let mut was_lied_to = [false, false];
    for _ in 0..MOST_MESSAGES {
        let next = (0..2).find_map(|from| Some((from, ends[from].poll_message()?)));
        let Some((from, message)) = next else { break };
        assert!(message.len() <= MOST_MESSAGE, "{} bytes", message.len());
        let fate = fates.next().unwrap_or(&Fate::Pass);
        let arriving = fate.apply(&message);
        let to = if *fate == Fate::Reflect { from } else { 1 - from };
        was_lied_to[to] |= arriving != message || to == from || *fate == Fate::Repeat;
        for _ in 0..if *fate == Fate::Repeat { 2 } else { 1 } {
            if let Err(error) = ends[to].handle_message(&arriving) {
                errors[to].get_or_insert(error);
                assert!(ends[to].poll_message().is_none(), "an end that failed says nothing");
            }
        }
    }
    let was_honest = !was_lied_to.contains(&true);
    let [initiator, responder] = ends.map(Handshake::finish);
    let ends = [initiator, responder];
    for ((end, error), was_lied_to) in ends.iter().zip(&errors).zip(was_lied_to) {
        assert!(error.is_none() || end.is_err(), "an error is final: {error:?}");
        assert!(!was_lied_to || end.is_err(), "it believed what the peer has not sent");
    }
    if let [Ok(here), Ok(there)] = &ends {
        assert!(was_honest);
        let export = |end: &Established| *end.keys.export("model", b"").as_bytes();
        assert_eq!(export(here), export(there), "two ends that finish have the same keys");
    }
    let [here, there] = ends;
    // The first error says more than what `finish` says of it.
    [
        here.map_err(|late| errors[0].unwrap_or(late)),
        there.map_err(|late| errors[1].unwrap_or(late)),
    ]
}

/// What the fuzz target runs.
pub fn check(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let kind = Kind::ALL[usize::from(*which) % Kind::ALL.len()];
    let ends = run(kind, [SharedKnowledge::default(); 2], &Fate::from_bytes(bytes));
    drop(ends);
}
