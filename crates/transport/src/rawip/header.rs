//! The IPv4 header that comes in front of each packet.

use std::net::Ipv4Addr;

use landfall_inet::ipv4;
use landfall_placement::Ecn;

use crate::exchange::Prefix;

/// What a receiver wants to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// So many bytes of options follow on the first twenty bytes.
    pub(super) options: usize,
    pub(super) from: Ipv4Addr,
    pub(super) ecn: Ecn,
}

impl Header {
    /// Reads the header of a packet that is `len` bytes long. The kernel has
    /// checked it; what makes no sense all the same is no packet.
    pub(super) fn read(header: &Prefix, len: usize) -> Option<Self> {
        let header = ipv4::Header::view(header);
        if header.version() != 4 || header.header_len() > len {
            return None;
        }
        Some(Self {
            options: header.header_len().checked_sub(ipv4::LEN)?,
            from: header.source(),
            ecn: header.ecn(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version_and_len: u8) -> Prefix {
        let mut header = [0; 20];
        header[0] = version_and_len;
        header[1] = 0xfd;
        header[12..16].copy_from_slice(&[10, 1, 2, 3]);
        header
    }

    #[test]
    fn options_are_counted() {
        for words in 5..=15 {
            let read = Header::read(&header(0x40 | words), 60).unwrap();
            assert_eq!(read.options, 4 * (usize::from(words) - 5));
            assert_eq!((read.from, read.ecn), (Ipv4Addr::new(10, 1, 2, 3), Ecn::Capable1));
        }
    }

    #[test]
    fn what_cannot_be_is_no_header() {
        for wrong in [0x44, 0x40, 0x65, 0x05, 0] {
            assert_eq!(Header::read(&header(wrong), 60), None, "{wrong:#x}");
        }
        assert_eq!(Header::read(&header(0x46), 23), None, "cut within its options");
        assert_eq!(Header::read(&header(0x45), 19), None);
    }
}
