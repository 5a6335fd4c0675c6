//! What may happen, decoded from any bytes: the same for property tests and fuzzing; and
//! frames that nobody sent so: what once came to the host, altered.

use landfall_placement::InternetSum;
use landfall_simnet::Frame;
use landfall_testkit::model::Choices;

/// One thing that happens. `side` is the end that it happens to: 0 is the host
/// under test, 1 its peer. `which` picks one of those that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The user asks for a connection.
    Connect { side: usize },
    /// The user sends so many bytes.
    Send { side: usize, which: u8, len: u32 },
    /// The user posts memory, that begins so far into its region.
    Post { side: usize, which: u8, len: u32, lead: u8 },
    /// The user asks for a Transfer.
    Read { side: usize, which: u8, len: u32 },
    /// The user asks for a region.
    Ask { side: usize, which: u8 },
    /// The user reads from a region of the other side, writes to it, or
    /// modifies a word of it.
    Remote { side: usize, which: u8, how: u8, len: u32 },
    /// The user ends what it sends or receives.
    Cancel { side: usize, which: u8, is_send: bool },
    /// The user closes a connection, gracefully or at once.
    Close { side: usize, which: u8, at_once: bool },
    /// The user adds the other path to a connection.
    AddLink { side: usize, which: u8 },
    /// A link goes down, or comes up again.
    Link { which: u8, is_up: bool },
    /// A frame that went to the host once comes again, altered.
    Forge { which: u8, how: u8, by: u8 },
    /// These bytes come to the host.
    Junk { seed: u8, len: u8 },
    /// Time passes: so many units of 50 µs.
    Wait { units: u8 },
    /// Much time passes.
    Settle,
}

impl Step {
    /// The next one that bytes stand for.
    pub(super) fn next(choices: &mut Choices<'_>) -> Self {
        let code = choices.byte();
        let side = usize::from(code >> 7);
        let which = choices.byte();
        match code & 63 {
            0 | 1 => Self::Connect { side },
            2..=9 => Self::Send { side: 1, which, len: len(choices) },
            10 => Self::Send { side: 0, which, len: len(choices) },
            11..=18 => Self::Post { side: 0, which, len: len(choices), lead: choices.byte() },
            19 => Self::Post { side: 1, which, len: len(choices), lead: choices.byte() },
            20..=22 => Self::Read { side, which, len: len(choices) },
            23..=24 => Self::Ask { side, which },
            25..=28 => Self::Remote { side, which, how: choices.byte(), len: len(choices) },
            29..=31 => Self::Cancel { side, which, is_send: code & 64 != 0 },
            32 => Self::Close { side, which, at_once: code & 64 != 0 },
            33..=34 => Self::AddLink { side, which },
            35..=36 => Self::Link { which, is_up: code & 64 != 0 },
            37..=47 => Self::Forge { which, how: choices.byte(), by: choices.byte() },
            48 => Self::Junk { seed: which, len: choices.byte() },
            49..=61 => Self::Wait { units: which },
            _ => Self::Settle,
        }
    }
}

/// Short ones sometimes, and up to 8 KiB.
fn len(choices: &mut Choices<'_>) -> u32 {
    let (shape, fine) = (u32::from(choices.byte()), u32::from(choices.byte()));
    match shape >> 6 {
        0 => fine % 80,
        1 => fine + 1,
        _ => ((shape & 31) << 8 | fine) + 1,
    }
}

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
