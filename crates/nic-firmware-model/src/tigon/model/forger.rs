//! Frames that nobody sent so: what once came to the host, altered.

use landfall_placement::{InternetSum, Random};
use landfall_simnet::Frame;

/// Where the fields of the Schedule Header are that are worth altering.
const FIELDS: [(usize, usize); 14] = [
    (0, 1),  // Op
    (1, 1),  // Flags
    (2, 2),  // Param
    (4, 2),  // D_Port
    (6, 2),  // S_Port
    (8, 4),  // D_Key
    (12, 2), // Cksum
    (14, 2), // Sync
    (16, 4), // B_num
    (20, 4), // Bufx
    (24, 4), // Offset
    (28, 8), // T_len
    (36, 2), // D_id
    (38, 2), // S_id
];

/// Alters a frame. The lowest bits of `how` say in which way, the highest whether
/// the checksum is made right again.
pub(super) fn forge(frame: &mut Frame, how: u8, by: u8) {
    let bytes = &mut frame.bytes;
    let had = bytes.len();
    match how & 31 {
        // As it was.
        0..=3 => {}
        // Other payload.
        4..=6 => {
            for byte in bytes.iter_mut().skip(40) {
                *byte ^= by | 1;
            }
        }
        7 => bytes.truncate(had.saturating_sub(usize::from(by % 64) + 1)),
        8 => bytes.extend(std::iter::repeat_n(by, usize::from(by % 64) + 1)),
        // To one of the next STUs, perhaps with another key.
        9..=12 => {
            add(bytes, 24, 4, 64 * u64::from(by & 31));
            add(bytes, 8, 4, u64::from(how >> 6 & 1));
        }
        13 => add(bytes, 24, 4, u64::from(by)),
        14 => add(bytes, 16, 4, 1),
        15 => add(bytes, 20, 4, u64::from(by & 7)),
        // An earlier generation of the same place.
        16 => add(bytes, 20, 4, 0xffff_0000),
        code => {
            let (at, len) = FIELDS[usize::from(code) % FIELDS.len()];
            add(bytes, at, len, u64::from(by) + 1);
        }
    }
    if how & 128 == 0 {
        seal(bytes);
    }
}

/// Adds to a number in the header.
fn add(bytes: &mut [u8], at: usize, len: usize, by: u64) {
    let Some(field) = bytes.get_mut(at..at + len) else { return };
    let mut number = 0u64;
    for byte in field.iter() {
        number = number << 8 | u64::from(*byte);
    }
    number = number.wrapping_add(by);
    for byte in field.iter_mut().rev() {
        *byte = number as u8;
        number >>= 8;
    }
}

/// Makes the checksum right, where there is one.
fn seal(bytes: &mut [u8]) {
    if bytes.len() < 40 || bytes[1] & stp_core::wire::Flags::SUM.0 == 0 {
        return;
    }
    bytes[12..14].fill(0);
    let mut sum = InternetSum::new();
    sum.add(bytes);
    let sum = !sum.sum();
    bytes[12..14].copy_from_slice(&sum.to_be_bytes());
}

/// Bytes that are no packet at all.
pub(super) fn junk(seed: u8, len: u8) -> Vec<u8> {
    let mut random = Random::from_number(u64::from(seed));
    (0..len).map(|_| random.next_u32() as u8).collect()
}
