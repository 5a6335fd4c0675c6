//! How numbers lie in commands and messages: big-endian, without padding.

use alloc::vec::Vec;

/// The number of 16 bits at a place; 0 where the bytes end before it.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    number(bytes, at, 2) as u16
}

/// The number of 32 bits at a place; 0 where the bytes end before it.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    number(bytes, at, 4) as u32
}

/// The number of 64 bits at a place; 0 where the bytes end before it.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    number(bytes, at, 8)
}

/// A number of this many bytes, up to 8.
pub(crate) fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let found = bytes.get(at..at + len).unwrap_or_default();
    found.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Writes over bytes that are there.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(room) = bytes.get_mut(at..at + value.len()) {
        room.copy_from_slice(value);
    }
}

/// A text of a fixed length, with spaces behind it.
pub(crate) fn padded(text: &str, len: usize) -> Vec<u8> {
    let printable = text.bytes().filter(|byte| (0x20..0x7f).contains(byte));
    let mut bytes: Vec<u8> = printable.take(len).collect();
    bytes.resize(len, b' ');
    bytes
}
