//! Blocks of the pcapng format (draft-ietf-opsawg-pcapng), little-endian: for captures of
//! this simulator, and for whoever records real frames.

use alloc::vec::Vec;

use landfall_placement::Instant;

/// Which way a packet crossed its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It came in.
    Inbound = 1,
    /// It went out.
    Outbound = 2,
}

/// What is said of a packet beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Which interface, in the order in which they were described.
    pub interface: u32,
    /// When; of real frames since the beginning of 1970.
    pub at: Instant,
    /// Which way.
    pub direction: Direction,
    /// How long it was, where not all of it is here.
    pub len: usize,
    /// Empty: none.
    pub comment: &'a str,
}

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;

/// The longest packet that readers take: libpcap's `MAXIMUM_SNAPLEN`.
pub const SNAP_LEN: u32 = 262_144;

/// The block that a capture starts with, and who made it.
pub fn section_header(out: &mut Vec<u8>, application: &str) {
    const USER_APPLICATION: u16 = 4;
    block(out, 0x0a0d_0d0a, |out| {
        word(out, 0x1a2b_3c4d); // Tells readers our byte order.
        word(out, 1); // Version 1.0.
        out.extend_from_slice(&u64::MAX.to_le_bytes()); // The length is not known.
        option(out, USER_APPLICATION, application.as_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// Describes an interface, of whose packets at most so many bytes are kept; the first is
/// number 0. Frames of Ethernet are of link type 1.
pub fn interface(out: &mut Vec<u8>, link_type: u16, snap_len: u32, name: &str) {
    const NAME: u16 = 2;
    const TIME_RESOLUTION: u16 = 9;
    block(out, 1, |out| {
        word(out, u32::from(link_type));
        word(out, snap_len);
        option(out, NAME, name.as_bytes());
        option(out, TIME_RESOLUTION, &[9]); // Nanoseconds.
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// A packet: made-up headers, if any, and its bytes.
pub fn packet(out: &mut Vec<u8>, packet: &Packet<'_>, headers: &[u8], bytes: &[u8]) {
    const FLAGS: u16 = 2;
    let here = headers.len() + bytes.len();
    let captured = here.min(SNAP_LEN as usize);
    let nanos = packet.at.as_nanos();
    block(out, 6, |out| {
        word(out, packet.interface);
        word(out, (nanos >> 32) as u32);
        word(out, nanos as u32);
        word(out, captured as u32);
        word(out, u32::try_from(packet.len.max(here)).unwrap_or(u32::MAX));
        out.extend_from_slice(headers);
        out.extend_from_slice(&bytes[..captured - headers.len()]);
        pad(out);
        if !packet.comment.is_empty() {
            option(out, COMMENT, packet.comment.as_bytes());
        }
        option(out, FLAGS, &(packet.direction as u32).to_le_bytes());
        option(out, END_OF_OPTIONS, &[]);
    });
}

/// A block: its type, its length before and behind its body.
/// `out` is empty or ends with a block, so that padding counts from its start.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    word(out, kind);
    word(out, 0);
    body(out);
    let len = (out.len() + 4 - start) as u32;
    out[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    word(out, len);
}

/// An option, cut to the length that its 16-bit field can say.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out);
}

fn word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

/// Everything in a block starts at a multiple of four bytes.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_laid_out_as_the_format_says() {
        let mut out = Vec::new();
        interface(&mut out, 1, SNAP_LEN, "a:0");
        assert_eq!(
            out,
            [
                1, 0, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4,
                0, // head, link type, snap length
                2, 0, 3, 0, b'a', b':', b'0', 0, 9, 0, 1, 0, 9, 0, 0, 0, // name, resolution
                0, 0, 0, 0, 40, 0, 0, 0 // end of options, length
            ]
        );
    }

    #[test]
    fn a_packet_of_any_length_fits_its_block() {
        let most = SNAP_LEN as usize;
        for len in [0, 1, 2, 3, 4, 5, most, most + 9] {
            let bytes = alloc::vec![7; len];
            let about = Packet {
                interface: 0,
                at: Instant::from_nanos(1 << 40 | 5),
                direction: Direction::Inbound,
                len: len + 3,
                comment: "why",
            };
            let mut out = Vec::new();
            packet(&mut out, &about, &[], &bytes);
            let field =
                |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().unwrap()) as usize;
            assert_eq!((field(4), field(out.len() - 4)), (out.len(), out.len()));
            assert_eq!((field(12), field(16)), (1 << 8, 5), "time");
            assert_eq!((field(20), field(24)), (len.min(most), len + 3));
            assert!(out.len().is_multiple_of(4));
        }
    }
}
