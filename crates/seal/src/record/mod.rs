//! Records: payloads sealed and opened where they lie.
//!
//! | file | what it is |
//! | --- | --- |
//! | `sealer` | the sending side: owns its counters, so that no nonce repeats |
//! | `opener` | the receiving side: generations of keys, replay, what was forged |
//! | `scheduled` | records whose number says which keys they have |
//! | `inspector` | opens what was recorded: any number, as often as it comes |
//! | `window` | which packet numbers of a path came |
//!
//! A nonce is the direction, the path and a 64-bit packet number, masked with secret bytes
//! of the generation as in TLS 1.3. A generation of keys becomes the next by HKDF, one way:
//! who learns the keys of one cannot open the records of those before it.

mod inspector;
mod opener;
mod scheduled;
mod sealer;
mod window;

use crate::aead::{
    Aead, CipherKey, Limits, MOST_HEAD, MOST_PAYLOAD, NONCE_LEN, Nonce, Suite, TAG_LEN,
};
use crate::secret::Secret;

pub(crate) use inspector::Inspector;
pub use opener::{OpenError, Opener};
pub use scheduled::{ScheduledOpener, ScheduledSealer};
pub use sealer::{SealError, Sealer, Slot};

/// What both sides of records are configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordConfig {
    /// Paths that records take: each counts its packet numbers for itself.
    pub paths: u16,
    /// Limits below those of the suite; larger ones have no effect.
    pub limits: Option<Limits>,
}

impl Default for RecordConfig {
    fn default() -> Self {
        Self { paths: 1, limits: None }
    }
}

impl RecordConfig {
    fn limits(&self, suite: Suite) -> Limits {
        let most = suite.limits();
        self.limits.map_or(most, |wanted| Limits {
            blocks: wanted.blocks.min(most.blocks),
            forgeries: wanted.forgeries.min(most.forgeries),
        })
    }
}

/// Whom a record goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToResponder = 0,
    ToInitiator = 1,
}

/// A record's place among all of its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The path that it took.
    pub path: u16,
    /// The generation of keys that sealed it.
    pub generation: u32,
    /// Its packet number on that path.
    pub number: u64,
}

/// Units that lie one after another: heads with a stride, payloads end to end.
///
/// Each stride begins with the head, which is authenticated, and the tag follows it at once.
/// The last unit may have a shorter payload.
#[derive(Debug)]
pub struct Units<'a> {
    /// The heads, a stride each.
    pub heads: &'a mut [u8],
    /// From one head to the next.
    pub stride: usize,
    /// The bytes of a head that are authenticated.
    pub head_len: usize,
    /// The payloads.
    pub payload: &'a mut [u8],
    /// The length of each payload but the last.
    pub unit: usize,
}

/// Heads and payloads do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{payload} bytes in units of {unit} do not fit {heads} bytes of heads with a stride of {stride} and tags behind {head_len} bytes"
)]
pub struct BadUnits {
    payload: usize,
    unit: usize,
    heads: usize,
    stride: usize,
    head_len: usize,
}

impl Units<'_> {
    /// How many units there are, if all fit together.
    fn count(&self) -> Result<usize, BadUnits> {
        let Self { stride, head_len, unit, .. } = *self;
        let (payload, heads) = (self.payload.len(), self.heads.len());
        let bad = BadUnits { payload, unit, heads, stride, head_len };
        // Where the tag of a head ends: within its stride, so that the sums below are small.
        let end = head_len.checked_add(TAG_LEN).filter(|end| *end <= stride);
        let (Some(end), false) = (end, unit == 0 || payload == 0) else { return Err(bad) };
        let count = payload.div_ceil(unit);
        let needed = (count - 1).checked_mul(stride).and_then(|last| last.checked_add(end));
        if needed.is_some_and(|needed| needed <= heads) { Ok(count) } else { Err(bad) }
    }

    /// Head, room for the tag, and payload of each.
    fn each(&mut self) -> impl Iterator<Item = (&mut [u8], &mut [u8; TAG_LEN], &mut [u8])> {
        let head_len = self.head_len;
        let payloads = self.payload.chunks_mut(self.unit);
        self.heads.chunks_mut(self.stride).zip(payloads).filter_map(move |(head, payload)| {
            let (head, rest) = head.split_at_mut_checked(head_len)?;
            Some((head, rest.first_chunk_mut()?, payload))
        })
    }
}

/// The blocks that a record takes of a key's budget: head, payload, and one for the tag.
fn blocks(head: usize, payload: usize) -> u64 {
    let blocks = |len: usize| len.div_ceil(16) as u64;
    blocks(head) + blocks(payload) + 1
}

fn is_too_long(head: &[u8], payload: &[u8]) -> bool {
    head.len() > MOST_HEAD || payload.len() > MOST_PAYLOAD
}

/// One generation of keys of one direction.
#[derive(Debug)]
struct Generation<A> {
    number: u32,
    /// Made of the secret when it is used: expanded keys are several times as long as what they
    /// are made of, and who says nothing needs none.
    cipher: Option<A>,
    mask: Nonce,
    secret: Secret,
}

impl<A: Aead> Generation<A> {
    fn new(number: u32, secret: Secret, suite: Suite) -> Self {
        let mut mask = [0; NONCE_LEN];
        secret.expand("nonce", &[suite.code()], &mut mask);
        Self { number, cipher: None, mask, secret }
    }

    /// The cipher with its expanded keys.
    #[inline]
    fn cipher(&mut self, suite: Suite) -> &A {
        let secret = &self.secret;
        self.cipher.get_or_insert_with(|| Self::expand(secret, suite))
    }

    #[cold]
    fn expand(secret: &Secret, suite: Suite) -> A {
        let mut key = [0; 32];
        secret.expand("key", &[suite.code()], &mut key);
        A::new(suite, &CipherKey::new(key))
    }

    /// Lets go of expanded keys until they are used again.
    fn drop_expanded(&mut self) {
        self.cipher = None;
    }

    /// The generation after this one, if there may be one.
    fn next(&self, suite: Suite) -> Option<Self> {
        let number = self.number.checked_add(1)?;
        Some(Self::new(number, self.secret.next_generation(), suite))
    }

    fn nonce(&self, direction: Direction, path: u16, number: u64) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[0] = direction as u8;
        nonce[2..4].copy_from_slice(&path.to_be_bytes());
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        for (byte, mask) in nonce.iter_mut().zip(self.mask) {
            *byte ^= mask;
        }
        nonce
    }
}
