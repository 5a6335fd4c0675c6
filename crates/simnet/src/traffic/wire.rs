//! What a source and a sink say to each other.

use alloc::vec;
use alloc::vec::Vec;

/// Bytes of an acknowledgement, and the least of a segment.
pub(super) const LEAST: usize = 16;

const SEGMENT: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;

/// A message: its kind, a flag, a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A segment of some length.
    Segment { number: u64 },
    /// That segment arrived.
    Acknowledgement { number: u64, marked: bool },
}

impl Message {
    pub(super) fn write(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(LEAST)];
        let number = match self {
            Self::Segment { number } => {
                bytes[0] = SEGMENT;
                number
            }
            Self::Acknowledgement { number, marked } => {
                bytes[0] = ACKNOWLEDGEMENT;
                bytes[1] = u8::from(marked);
                number
            }
        };
        bytes[8..16].copy_from_slice(&number.to_be_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let number = u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?);
        match (bytes[0], bytes[1]) {
            (SEGMENT, _) => Some(Self::Segment { number }),
            (ACKNOWLEDGEMENT, flag) => Some(Self::Acknowledgement { number, marked: flag != 0 }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written_and_others_are_not() {
        let messages = [
            Message::Segment { number: u64::MAX },
            Message::Acknowledgement { number: 7, marked: true },
            Message::Acknowledgement { number: 8, marked: false },
        ];
        for message in messages {
            assert_eq!(Message::read(&message.write(0)), Some(message));
            assert_eq!(Message::read(&message.write(LEAST)[..LEAST - 1]), None);
        }
        assert_eq!(Message::read(&[9; 100]), None);
        assert_eq!(Message::read(&[]), None);
    }
}
