//! The TCP header and the options that are spoken here (RFC 9293, 7323, 2018).

use landfall_placement::Refusal;
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The length of a header without options.
pub const TCP_LEN: usize = size_of::<Tcp>();
/// The longest header: its length field counts up to 15 words.
pub const TCP_MAX: usize = 60;
/// Where the checksum lies.
pub const SUM_OFFSET: u16 = 16;

const _: () = assert!(TCP_LEN == 20);

/// No more will be sent.
pub const FIN: u8 = 0x01;
/// The connection opens.
pub const SYN: u8 = 0x02;
/// The connection is unknown.
pub const RST: u8 = 0x04;
/// What was sent is to be handed on.
pub const PSH: u8 = 0x08;
/// The acknowledgement field counts.
pub const ACK: u8 = 0x10;

/// The header as it lies in a frame.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Tcp {
    /// The sender's port.
    pub source: U16,
    /// The receiver's port.
    pub destination: U16,
    /// The number of the first payload byte.
    pub sequence: U32,
    /// The number of the byte that is expected next.
    pub acknowledgement: U32,
    /// The length of the header in words, in the high four bits.
    pub words: u8,
    /// See the flag constants.
    pub flags: u8,
    /// How many bytes more may come, shifted by the negotiated scale.
    pub window: U16,
    /// The Internet checksum over pseudo-header, header and payload.
    pub sum: U16,
    /// Not used.
    pub urgent: U16,
}

/// The most blocks in a selective acknowledgement beside a timestamp.
pub const MAX_BLOCKS: usize = 3;

/// What the options say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The largest segment that the sender of this wants to get.
    pub mss: Option<u16>,
    /// By how much its windows are shifted.
    pub window_scale: Option<u8>,
    /// It understands selective acknowledgements.
    pub sack_permitted: bool,
    /// Its clock, and the last that it heard of ours.
    pub timestamp: Option<(u32, u32)>,
    /// What it has behind holes.
    pub blocks: [(u32, u32); MAX_BLOCKS],
    /// How many of the blocks count.
    pub block_count: usize,
}

impl Options {
    /// The blocks that count.
    #[must_use]
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks[..self.block_count.min(MAX_BLOCKS)]
    }

    /// Reads options. Unknown ones are passed over; what is malformed is refused.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if a length makes no sense.
    pub fn read(mut bytes: &[u8]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while let [kind, rest @ ..] = bytes {
            match kind {
                0 => break,
                1 => {
                    bytes = rest;
                    continue;
                }
                _ => {}
            }
            let len = usize::from(*rest.first().ok_or(Refusal::Malformed)?);
            let body = bytes.get(2..len).ok_or(Refusal::Malformed)?;
            options.read_one(*kind, body)?;
            bytes = &bytes[len..];
        }
        Ok(options)
    }

    fn read_one(&mut self, kind: u8, body: &[u8]) -> Result<(), Refusal> {
        match (kind, body) {
            (2, [a, b]) => self.mss = Some(u16::from_be_bytes([*a, *b])),
            (3, [scale]) => self.window_scale = Some((*scale).min(14)),
            (4, []) => self.sack_permitted = true,
            (8, _) => {
                let (words, rest) = body.as_chunks::<4>();
                let ([value, echo], []) = (words, rest) else { return Err(Refusal::Malformed) };
                self.timestamp = Some((u32::from_be_bytes(*value), u32::from_be_bytes(*echo)));
            }
            (5, _) => {
                let (words, rest) = body.as_chunks::<4>();
                if !rest.is_empty() || words.len() % 2 != 0 {
                    return Err(Refusal::Malformed);
                }
                self.block_count = 0;
                for pair in words.chunks_exact(2).take(MAX_BLOCKS) {
                    let block = (u32::from_be_bytes(pair[0]), u32::from_be_bytes(pair[1]));
                    self.blocks[self.block_count] = block;
                    self.block_count += 1;
                }
            }
            (2..=4, _) => return Err(Refusal::Malformed),
            _ => {}
        }
        Ok(())
    }

    /// Writes the options, padded to whole words. Gives their length, or
    /// `None` if there is no room.
    pub fn write(&self, into: &mut [u8]) -> Option<usize> {
        let mut out = Writer { into, len: 0 };
        if let Some(mss) = self.mss {
            out.put(&[2, 4])?;
            out.put(&mss.to_be_bytes())?;
        }
        if self.sack_permitted {
            out.put(if self.timestamp.is_some() { &[4, 2] } else { &[1, 1, 4, 2] })?;
        } else if self.timestamp.is_some() {
            out.put(&[1, 1])?;
        }
        if let Some((value, echo)) = self.timestamp {
            out.put(&[8, 10])?;
            out.put(&value.to_be_bytes())?;
            out.put(&echo.to_be_bytes())?;
        }
        if let Some(scale) = self.window_scale {
            out.put(&[1, 3, 3, scale])?;
        }
        if !self.blocks().is_empty() {
            out.put(&[1, 1, 5, 2 + 8 * self.blocks().len() as u8])?;
            for (start, end) in self.blocks() {
                out.put(&start.to_be_bytes())?;
                out.put(&end.to_be_bytes())?;
            }
        }
        Some(out.len)
    }
}

struct Writer<'a> {
    into: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.into.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_syn_looks_like_that_of_a_kernel() {
        let options = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamp: Some((1, 0)),
            ..Options::default()
        };
        let mut bytes = [0; 40];
        let len = options.write(&mut bytes).unwrap();
        let linux = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        assert_eq!(bytes[..len], linux);
        assert_eq!(Options::read(&linux), Ok(options));
    }

    #[test]
    fn lengths_that_make_no_sense_are_refused() {
        for bad in [&[2][..], &[2, 0], &[2, 1], &[2, 3, 1], &[8, 4, 0, 0], &[5, 6, 1, 2, 3, 4]] {
            assert_eq!(Options::read(bad), Err(Refusal::Malformed), "{bad:?}");
        }
        assert_eq!(Options::read(&[1, 1, 0, 2, 0]), Ok(Options::default()), "ends at 0");
        assert_eq!(Options::read(&[99, 4, 1, 2]), Ok(Options::default()), "unknown");
    }

    proptest! {
        #[test]
        fn options_survive_the_wire(
            mss: Option<u16>,
            window_scale in prop::option::of(0..15u8),
            sack_permitted: bool,
            timestamp: Option<(u32, u32)>,
            blocks: [(u32, u32); MAX_BLOCKS],
            block_count in 0..=MAX_BLOCKS,
        ) {
            let mut options =
                Options { mss, window_scale, sack_permitted, timestamp, blocks, block_count };
            options.blocks[block_count..].fill((0, 0));
            let mut bytes = [0; 60];
            let len = options.write(&mut bytes).unwrap();
            prop_assert_eq!(len % 4, 0);
            prop_assert_eq!(Options::read(&bytes[..len]), Ok(options));
        }

        #[test]
        fn any_options_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Options::read(&bytes);
        }
    }
}
