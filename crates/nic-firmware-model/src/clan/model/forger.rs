//! Units that nobody sent so: what once came to the host, altered.

use clan_dsm::{Address, WORD};
use landfall_placement::Random;
use landfall_simnet::Frame;

/// Alters a unit. The lowest bits of `how` say in which way.
pub(super) fn forge(frame: &mut Frame, how: u8, by: u8) {
    let bytes = &mut frame.bytes;
    let word = WORD as usize;
    match how & 15 {
        // As it was.
        0..=2 => {}
        // Other words.
        3..=4 => bytes.iter_mut().skip(Address::LEN).for_each(|byte| *byte ^= by | 1),
        // A word less or more.
        5 => bytes.truncate(bytes.len().saturating_sub(word)),
        6 => bytes.extend(std::iter::repeat_n(by, word)),
        7 => bytes.truncate(bytes.len().saturating_sub(usize::from(by % 9) + 1)),
        // Another word, slot, host or kind.
        8..=9 => add(bytes, 7, by & 15),
        10 => add(bytes, 3, by & 3),
        11 => add(bytes, 1, by & 1),
        12 => add(bytes, 0, (by & 3) << 4),
        // Another mask, another key.
        13 => add(bytes, 8, by),
        _ => add(bytes, 15, by | 1),
    }
}

fn add(bytes: &mut [u8], at: usize, by: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = byte.wrapping_add(by);
    }
}

/// Bytes that are no unit at all, mostly.
pub(super) fn junk(seed: u8, len: u8) -> Vec<u8> {
    let mut random = Random::from_number(u64::from(seed));
    (0..len % 64).map(|_| random.next_u32() as u8).collect()
}
