//! What lies where in the file of a process: a header, and behind it records, each of
//! [`WORDS`] words of 64 bits.
//!
//! Who writes a record first makes its first word odd, then writes the others, and at last makes
//! it even again and another than it was. A record whose second word is zero is nobody's.

use crate::{Explanation, Reason, Role, Transport};

/// Says that it is such a file; another version of the layout has another number.
pub const MAGIC: u64 = u64::from_be_bytes(*b"lfstatu1");
/// Words of the header, and of each record.
pub const WORDS: usize = 16;
/// Bytes of the header, and of each record: pages hold whole ones.
pub const RECORD_LEN: usize = WORDS * 8;
/// How many records a file has room for. Pages that were never written take no memory.
pub const RECORDS: usize = 32_767;
/// Bytes of the file.
pub const FILE_LEN: usize = (RECORDS + 1) * RECORD_LEN;

const NAME_WORDS: usize = 5;
const PROGRAM_WORDS: usize = 4;

/// Where in the memory of a connection its counters lie, in bytes from the beginning of the file:
/// those of what the connector sends. Those of what the acceptor sends lie `stride` further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterPlaces {
    /// What its first word behind `magic_at` is.
    pub magic: u64,
    /// Where that word is.
    pub magic_at: u32,
    /// Bytes that were sent by TCP.
    pub sent_by_tcp: u32,
    /// Bytes that were put into the ring.
    pub put: u32,
    /// Bytes that were taken out of TCP.
    pub taken_by_tcp: u32,
    /// Bytes that were taken out of the ring.
    pub taken: u32,
    /// From one direction to the other.
    pub stride: u32,
}

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Records from here on were never used.
    pub used: u32,
    /// Where the process has mapped the file: after `exec` it has not.
    pub mapped_at: u64,
    /// Connections for which there was no record.
    pub unseen: u64,
    /// The version of the library: major, minor and patch.
    pub version: [u16; 3],
    /// Where the counters of its connections lie.
    pub counters: CounterPlaces,
    /// What the program is called; cut to 32 bytes.
    pub program: Vec<u8>,
}

/// A half of a word.
const fn half(word: u64, which: u32) -> u32 {
    (word >> (32 * which)) as u32
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl Header {
    /// Where the number of records in use is written: bytes from the beginning of the file.
    pub const USED_AT: usize = 8;
    /// Where the number of connections without a record is written.
    pub const UNSEEN_AT: usize = 24;
    /// The longest name of a program.
    pub const PROGRAM: usize = PROGRAM_WORDS * 8;

    /// The words of the file's beginning.
    #[must_use]
    pub fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = MAGIC;
        words[1] = u64::from(self.used);
        words[2] = self.mapped_at;
        words[3] = self.unseen;
        let [major, minor, patch] = self.version.map(u64::from);
        words[4] = major << 32 | minor << 16 | patch;
        let places = &self.counters;
        words[5] = places.magic;
        words[6] = pair(places.magic_at, places.sent_by_tcp);
        words[7] = pair(places.put, places.taken_by_tcp);
        words[8] = pair(places.taken, places.stride);
        pack(&self.program, &mut words[9..9 + PROGRAM_WORDS]);
        words
    }

    /// Reads it; `None` where it is of another version, or none at all.
    #[must_use]
    pub fn parse(words: &[u64; WORDS]) -> Option<Self> {
        if words[0] != MAGIC {
            return None;
        }
        let mut program = [0; Self::PROGRAM];
        unpack(&words[9..9 + PROGRAM_WORDS], &mut program);
        let len = program.iter().position(|byte| *byte == 0).unwrap_or(program.len());
        Some(Self {
            used: half(words[1], 0).min(RECORDS as u32),
            mapped_at: words[2],
            unseen: words[3],
            version: [(words[4] >> 32) as u16, (words[4] >> 16) as u16, words[4] as u16],
            counters: CounterPlaces {
                magic: words[5],
                magic_at: half(words[6], 0),
                sent_by_tcp: half(words[6], 1),
                put: half(words[7], 0),
                taken_by_tcp: half(words[7], 1),
                taken: half(words[8], 0),
                stride: half(words[8], 1),
            },
            program: program[..len].to_vec(),
        })
    }
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which end.
    pub role: Role,
    /// How its bytes go.
    pub transport: Transport,
    /// Why.
    pub explanation: Explanation,
    /// Its memory has the name that is for the carrier.
    pub is_for_carrier: bool,
    /// As whom the process ran when it was decided that bytes go through memory; until then, when it
    /// made its file.
    pub user: u32,
    /// No other connection of this process has it.
    pub serial: u64,
    /// When it began, in milliseconds of the kernel's steady clock.
    pub began_ms: u64,
    /// Address (as one of IPv6) and port, most significant byte first: the connector's, then the
    /// acceptor's.
    pub name: [u8; Self::NAME],
}

impl Record {
    /// Bytes of two addresses with their ports.
    pub const NAME: usize = 36;
    /// The word that says how a connection goes, among those of a record.
    pub const STATE: usize = 1;

    /// All words but the first, which is the writer's.
    #[must_use]
    pub fn to_words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[Self::STATE] = u64::from(self.transport as u8)
            | u64::from(self.role as u8) << 8
            | u64::from(self.is_for_carrier) << 16
            | u64::from(self.explanation.reason as u16) << 32;
        words[2] = pair(self.explanation.detail, self.user);
        words[3] = self.serial;
        words[4] = self.began_ms;
        pack(&self.name, &mut words[5..5 + NAME_WORDS]);
        words
    }

    /// Reads it; `None` where it is nobody's, is being written, or makes no sense.
    #[must_use]
    pub fn parse(words: &[u64; WORDS]) -> Option<Self> {
        let state = words[Self::STATE];
        if words[0] & 1 == 1 || state == 0 {
            return None;
        }
        let mut name = [0; Self::NAME];
        unpack(&words[5..5 + NAME_WORDS], &mut name);
        Some(Self {
            transport: Transport::of(state as u32 & 0xFF)?,
            role: match state >> 8 & 0xFF {
                1 => Role::Connector,
                2 => Role::Acceptor,
                _ => return None,
            },
            is_for_carrier: state >> 16 & 1 == 1,
            explanation: Explanation {
                reason: Reason::of((state >> 32) as u16)?,
                detail: half(words[2], 0),
            },
            user: half(words[2], 1),
            serial: words[3],
            began_ms: words[4],
            name,
        })
    }
}

/// Writes bytes into words, as they lie in memory; what does not fit is cut off.
fn pack(bytes: &[u8], words: &mut [u64]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(padded);
    }
}

fn unpack(words: &[u64], bytes: &mut [u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks_mut(8)) {
        bytes.copy_from_slice(&word.to_ne_bytes()[..bytes.len()]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn a_record() -> impl Strategy<Value = Record> {
        let kinds = (0..Transport::ALL.len(), 0..Reason::ALL.len(), any::<(u32, bool, bool)>());
        (kinds, any::<(u32, u64, u64)>(), any::<[[u8; 18]; 2]>()).prop_map(
            |(
                (transport, reason, (detail, calls, is_for_carrier)),
                (user, serial, began_ms),
                name,
            )| {
                Record {
                    role: if calls { Role::Connector } else { Role::Acceptor },
                    transport: Transport::ALL[transport],
                    explanation: Explanation { reason: Reason::ALL[reason], detail },
                    is_for_carrier,
                    user,
                    serial,
                    began_ms,
                    name: name.concat().try_into().unwrap(),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_record_is_read_as_it_was_written(record in a_record()) {
            let words = record.to_words();
            prop_assert_eq!(Record::parse(&words), Some(record));
            let mut half_written = words;
            half_written[0] = 3;
            prop_assert_eq!(Record::parse(&half_written), None);
        }

        #[test]
        fn any_words_are_a_record_or_none(words: [u64; WORDS]) {
            if let Some(record) = Record::parse(&words) {
                prop_assert_eq!(Record::parse(&record.to_words()), Some(record));
                prop_assert!(!record.explanation.to_string().is_empty());
            }
        }

        #[test]
        fn a_header_is_read_as_it_was_written(
            numbers: [u32; 7],
            longer: [u64; 3],
            version: [u16; 3],
            program in "[a-z]{0,32}",
        ) {
            let [used, magic_at, sent_by_tcp, put, taken_by_tcp, taken, stride] = numbers;
            let [mapped_at, unseen, magic] = longer;
            let counters =
                CounterPlaces { magic, magic_at, sent_by_tcp, put, taken_by_tcp, taken, stride };
            let used = used % (RECORDS as u32 + 1);
            let program = program.into_bytes();
            let header = Header { used, mapped_at, unseen, version, counters, program };
            prop_assert_eq!(Header::parse(&header.to_words()), Some(header));
        }

        #[test]
        fn any_words_behind_the_magic_are_a_header_within_bounds(mut words: [u64; WORDS]) {
            words[0] = MAGIC;
            let header = Header::parse(&words).unwrap();
            prop_assert!(header.used as usize <= RECORDS && header.program.len() <= Header::PROGRAM);
        }
    }

    #[test]
    fn another_version_is_no_header() {
        assert_eq!(Header::parse(&[MAGIC ^ 1; WORDS]), None);
        assert_eq!(Header::parse(&[0; WORDS]), None);
    }
}
