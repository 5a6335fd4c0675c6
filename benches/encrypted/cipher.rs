//! The cipher alone, in memory that is in the cache: what no record can do without.

use std::hint::black_box;

use anyhow::{Context, Result};
use aws_lc_rs::aead;

pub(crate) const AES: &aead::Algorithm = &aead::AES_128_GCM;
pub(crate) const CHACHA: &aead::Algorithm = &aead::CHACHA20_POLY1305;

/// As much as a record of STP authenticates beside its payload.
const HEAD: [u8; 56] = [0x5a; 56];
const TAG: usize = 16;

fn key(algorithm: &'static aead::Algorithm) -> Result<aead::LessSafeKey> {
    let bytes = vec![7; algorithm.key_len()];
    let key = aead::UnboundKey::new(algorithm, &bytes).ok().context("a key of its length")?;
    Ok(aead::LessSafeKey::new(key))
}

fn nonce(number: u64) -> aead::Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    aead::Nonce::assume_unique_for_key(nonce)
}

/// Seals records of this length until this many bytes are sealed.
pub(crate) fn seal(algorithm: &'static aead::Algorithm, len: usize, bytes: u64) -> Result<u64> {
    let (key, mut record) = (key(algorithm)?, vec![1; len]);
    let count = bytes.div_ceil(len as u64);
    for number in 0..count {
        let head = aead::Aad::from(HEAD);
        let tag = key.seal_in_place_separate_tag(nonce(number), head, &mut record);
        let _ = black_box(tag.ok().context("it is short enough")?);
    }
    Ok(count * len as u64)
}

/// Opens a record of this length, again and again.
pub(crate) fn open(algorithm: &'static aead::Algorithm, len: usize, bytes: u64) -> Result<u64> {
    let (key, mut record) = (key(algorithm)?, vec![1; len]);
    let head = || aead::Aad::from(HEAD);
    key.seal_in_place_append_tag(nonce(0), head(), &mut record).ok().context("short enough")?;
    let (sealed, tag) = record.split_at(record.len() - TAG);
    let (count, mut opened) = (bytes.div_ceil(len as u64), vec![0; len]);
    for _ in 0..count {
        let verdict = key.open_separate_gather(nonce(0), head(), sealed, tag, &mut opened);
        verdict.ok().context("it is what was sealed")?;
        black_box(&mut opened);
    }
    Ok(count * len as u64)
}

/// The same as [`seal`] with the crate `ring`.
pub(crate) fn ring_seal(len: usize, bytes: u64) -> Result<u64> {
    use ring::aead;
    let key = aead::UnboundKey::new(&aead::AES_128_GCM, &[7; 16]).ok().context("a key")?;
    let (key, mut record) = (aead::LessSafeKey::new(key), vec![1; len]);
    let count = bytes.div_ceil(len as u64);
    for number in 0..count {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::from(HEAD), &mut record);
        let _ = black_box(tag.ok().context("it is short enough")?);
    }
    Ok(count * len as u64)
}
