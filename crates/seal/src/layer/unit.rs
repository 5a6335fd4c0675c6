//! Sealed units as they lie in a packet: the outer head, and the mask over it.

use aes_gcm::aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes_gcm::aes::{Aes128Enc, Block};
use core::fmt;

use crate::keys::{Keys, Role};
use crate::record::Position;

/// How much longer a unit becomes when it is sealed.
pub const OVERHEAD: usize = 32;
/// The longest head of an engine's unit: what drivers have room for, and the outer head is in it.
pub const MOST_INNER_HEAD: usize = 256 - OVERHEAD;

/// The first byte: a sealed unit, or one of the messages of a handshake.
pub(super) const SEALED: u8 = 0xe0;
pub(super) const FIRST: u8 = 0xe1;
pub(super) const SECOND: u8 = 0xe2;
pub(super) const THIRD: u8 = 0xe3;
pub(super) const RETRY: u8 = 0xe4;

/// Where the tag lies.
const TAG: core::ops::Range<usize> = 16..OVERHEAD;
/// What is authenticated of the outer head: all before the tag.
const OUTER: usize = 16;
/// Blocks of the mask that are made together: one for the outer head and four for the inner one,
/// which is seldom longer.
const BLOCKS: usize = 5;

/// The outer head of a sealed unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OuterHead {
    /// Low byte of the generation of keys.
    pub(super) generation: u8,
    /// The length of the engine's head behind it.
    pub(super) inner_len: u8,
    /// What who receives it calls the association.
    pub(super) to: u32,
    /// The packet number.
    pub(super) number: u64,
}

impl OuterHead {
    /// Writes all but the tag.
    pub(super) fn write(&self, head: &mut [u8; OVERHEAD]) {
        head[..4].copy_from_slice(&[SEALED, self.generation, self.inner_len, 0]);
        head[4..8].copy_from_slice(&self.to.to_be_bytes());
        head[8..16].copy_from_slice(&self.number.to_be_bytes());
        head[TAG].fill(0);
    }

    fn read(outer: &[u8; OUTER]) -> Self {
        let [_, generation, inner_len, _, a, b, c, d, number @ ..] = *outer;
        let (to, number) = (u32::from_be_bytes([a, b, c, d]), u64::from_be_bytes(number));
        Self { generation, inner_len, to, number }
    }

    /// The position that it says, where this generation is the newest one known.
    pub(super) const fn position(&self, newest: u32) -> Position {
        let ahead = self.generation.wrapping_sub(newest as u8) as i8;
        let generation = newest.wrapping_add_signed(ahead as i32);
        Position { path: 0, generation, number: self.number }
    }
}

/// The association that a unit is for, if it is long enough to say so.
pub(super) fn addressee(unit: &[u8]) -> Option<u32> {
    let bytes = unit.get(4..8)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

/// The tag of a sealed unit.
pub(super) fn tag_of(unit: &[u8]) -> Option<[u8; 16]> {
    unit.get(TAG)?.first_chunk().copied()
}

/// What is authenticated beside the payload: the outer head without its tag, and the inner head.
#[derive(Clone, Copy)]
pub(super) struct Authenticated {
    bytes: [u8; OUTER + MOST_INNER_HEAD],
    len: usize,
}

impl Authenticated {
    /// All of it.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The engine's head.
    pub(super) fn inner(&self) -> &[u8] {
        &self.bytes[OUTER..self.len]
    }

    /// The outer head.
    pub(super) fn outer(&self) -> OuterHead {
        OuterHead::read(&self.bytes.first_chunk().copied().unwrap_or_default())
    }

    /// What is authenticated of a head that is not masked yet. `None` if it is too short or
    /// too long.
    pub(super) fn of_plain(head: &[u8]) -> Option<Self> {
        let inner = head.get(OVERHEAD..)?;
        let mut bytes = [0; OUTER + MOST_INNER_HEAD];
        bytes[..OUTER].copy_from_slice(&head[..OUTER]);
        bytes.get_mut(OUTER..OUTER + inner.len())?.copy_from_slice(inner);
        Some(Self { bytes, len: OUTER + inner.len() })
    }
}

/// The length of the key that covers heads.
pub(super) const MASK_KEY: usize = 16;

/// The key that covers the heads of what this role sends.
pub(super) fn mask_key(keys: &Keys, sender: Role) -> [u8; MASK_KEY] {
    let direction = u8::from(sender == Role::Responder);
    let secret = keys.export("head mask", &[direction]);
    let mut key = [0; MASK_KEY];
    key.copy_from_slice(&secret.as_bytes()[..MASK_KEY]);
    key
}

/// Hides heads from who does not have its key, as QUIC does (RFC 9001, section 5.4): with AES
/// of a sample of the sealed unit, which here is its tag.
pub(super) struct Mask(Aes128Enc);

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask(…)")
    }
}

impl Mask {
    /// That of what this role sends.
    #[cfg(test)]
    pub(super) fn new(keys: &Keys, sender: Role) -> Self {
        Self::of_key(&mask_key(keys, sender))
    }

    /// The one with this key.
    pub(super) fn of_key(key: &[u8; MASK_KEY]) -> Self {
        Self(Aes128Enc::new(&(*key).into()))
    }

    /// Blocks of the mask over a unit with this tag, from the one with this number on.
    #[inline]
    fn of(&self, tag: [u8; 16], first: u8) -> [Block; BLOCKS] {
        let mut blocks = [Block::from(tag); BLOCKS];
        for (nth, block) in (first..).zip(&mut blocks) {
            block[15] ^= nth;
        }
        self.0.encrypt_blocks(&mut blocks);
        blocks
    }

    /// Covers the engine's head, or uncovers it, with all blocks but the first. `mask` has the
    /// first of them.
    #[inline]
    fn change_inner(&self, inner: &mut [u8], tag: [u8; 16], mask: &[Block; BLOCKS]) {
        let (few, many) = inner.split_at_mut(inner.len().min((BLOCKS - 1) * 16));
        change_all(few, &mask[1..]);
        for (part, first) in many.chunks_mut(BLOCKS * 16).zip((BLOCKS as u8..).step_by(BLOCKS)) {
            change_all(part, &self.of(tag, first));
        }
    }

    /// Masks a head whose tag is in place.
    pub(super) fn cover(&self, head: &mut [u8]) {
        let Some(tag) = tag_of(head) else { return };
        let mask = self.of(tag, 0);
        let (outer, inner) = head.split_at_mut(OVERHEAD);
        change_outer(outer, &mask[0]);
        self.change_inner(inner, tag, &mask);
    }

    /// The heads of a unit as they were before they were masked.
    ///
    /// # Errors
    ///
    /// How many bytes of the unit are needed, at least; more than any has where it makes no sense.
    pub(super) fn uncover(&self, unit: &[u8]) -> Result<Authenticated, usize> {
        let tag = tag_of(unit).ok_or(OVERHEAD)?;
        let mask = self.of(tag, 0);
        let mut bytes = [0; OUTER + MOST_INNER_HEAD];
        bytes[..OUTER].copy_from_slice(&unit[..OUTER]);
        change_outer(&mut bytes[..OUTER], &mask[0]);
        // Longer than any head: no unit has as many bytes.
        let inner_len = usize::from(bytes[2]);
        if inner_len > MOST_INNER_HEAD {
            return Err(usize::MAX);
        }
        let end = OVERHEAD + inner_len;
        let inner = unit.get(OVERHEAD..end).ok_or(end)?;
        let behind = &mut bytes[OUTER..OUTER + inner_len];
        behind.copy_from_slice(inner);
        self.change_inner(behind, tag, &mask);
        Ok(Authenticated { bytes, len: OUTER + inner_len })
    }
}

/// The first byte and the association say where a unit belongs, and stay as they are.
fn change_outer(outer: &mut [u8], mask: &Block) {
    change(&mut outer[1..4], &mask[1..4]);
    change(&mut outer[8..16], &mask[8..16]);
}

fn change_all(bytes: &mut [u8], mask: &[Block]) {
    for (part, block) in bytes.chunks_mut(16).zip(mask) {
        change(part, block);
    }
}

fn change(bytes: &mut [u8], mask: &[u8]) {
    for (byte, mask) in bytes.iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, Suite};
    use std::vec::Vec;

    fn mask() -> Mask {
        let keys = Keys::new(Secret::new([7; 32]), Role::Initiator, Suite::Aes128Gcm);
        Mask::new(&keys, Role::Initiator)
    }

    fn unit(inner: u8) -> std::vec::Vec<u8> {
        let mut head = [0; OVERHEAD];
        let outer = OuterHead { generation: 1, inner_len: inner, to: 0x0102_0304, number: 99 };
        outer.write(&mut head);
        head[TAG].fill(0x5a);
        let mut unit = head.to_vec();
        unit.extend(0..inner);
        unit
    }

    #[test]
    fn what_is_covered_is_uncovered() {
        for inner in [0, 1, 40, 56, 64, 65, 143, 144, 145, MOST_INNER_HEAD as u8] {
            let plain = unit(inner);
            let mut covered = plain.clone();
            mask().cover(&mut covered);
            assert_eq!(covered[4..8], plain[4..8], "the association is not covered");
            assert_ne!(covered[8..16], plain[8..16]);
            let heads = mask().uncover(&covered).map_err(|_| ()).unwrap();
            assert_eq!(heads.inner(), &plain[OVERHEAD..]);
            // The mask has no block twice.
            let masks: Vec<Vec<u8>> = covered[OVERHEAD..]
                .chunks_exact(16)
                .zip(plain[OVERHEAD..].chunks_exact(16))
                .map(|(one, other)| one.iter().zip(other).map(|(a, b)| a ^ b).collect())
                .collect();
            assert!(masks.iter().enumerate().all(|(nth, mask)| !masks[..nth].contains(mask)));
            assert_eq!((heads.outer().number, heads.outer().to), (99, 0x0102_0304));
            assert_eq!(heads.bytes()[..OUTER], plain[..OUTER]);
            for cut in 0..covered.len() {
                let more = mask().uncover(&covered[..cut]).err().unwrap();
                assert!(more > cut && more <= covered.len());
            }
        }
    }

    #[test]
    fn generations_are_told_by_their_low_byte() {
        let outer = |generation| OuterHead { generation, inner_len: 0, to: 1, number: 0 };
        assert_eq!(outer(255).position(256).generation, 255);
        assert_eq!(outer(0).position(255).generation, 256);
        assert_eq!(outer(5).position(5).generation, 5);
        assert_eq!(outer(255).position(0).generation, u32::MAX, "that is no generation yet");
    }
}
