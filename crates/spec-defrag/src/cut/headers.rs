//! The headers of one piece after another, with the options that each repeats.

use landfall_inet::{Fragment, ethernet, fragment, ipv4, ipv6, protocol};
use landfall_placement::Refusal;
use zerocopy::{FromBytes, IntoBytes};

use crate::memory::Head;

/// Where the options of an IPv4 header are.
const OPTIONS_AT: usize = ethernet::LEN + ipv4::LEN;

/// What the headers of all pieces are made of.
#[derive(Clone, Debug)]
pub(super) struct Headers<'a> {
    /// The headers of the packet that every piece repeats, the link's included.
    of_packet: &'a [u8],
    version: Version,
    /// No piece was made yet.
    pub(super) is_first: bool,
}

#[derive(Clone, Copy, Debug)]
enum Version {
    Ipv4 {
        /// The options that every piece repeats take this many bytes.
        repeated_len: usize,
    },
    Ipv6 {
        /// What the packet goes on with.
        next_header: u8,
        /// Where it is said that a fragment header follows.
        named_at: usize,
    },
}

impl<'a> Headers<'a> {
    /// `of_packet` ends with the options of an IPv4 header.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if the options are.
    pub(super) fn ipv4(of_packet: &'a [u8]) -> Result<Self, Refusal> {
        let options = of_packet.get(OPTIONS_AT..).ok_or(Refusal::Truncated)?;
        let version = Version::Ipv4 { repeated_len: Repeated::of(options).len()? };
        Ok(Self { of_packet, version, is_first: true })
    }

    /// `of_packet` ends where the fragment header belongs.
    pub(super) const fn ipv6(of_packet: &'a [u8], next_header: u8, named_at: usize) -> Self {
        Self { of_packet, version: Version::Ipv6 { next_header, named_at }, is_first: true }
    }

    /// The length of the next piece's, without the link header.
    pub(super) const fn len(&self) -> usize {
        match self.version {
            Version::Ipv4 { .. } if self.is_first => self.of_packet.len() - ethernet::LEN,
            _ => self.later_len(),
        }
    }

    /// The same for those that follow it.
    pub(super) const fn later_len(&self) -> usize {
        match self.version {
            Version::Ipv4 { repeated_len } => ipv4::LEN + repeated_len,
            Version::Ipv6 { .. } => self.of_packet.len() - ethernet::LEN + fragment::LEN,
        }
    }

    /// Writes the headers of this piece, which carries `len` bytes, into an empty
    /// head.
    pub(super) fn write(&self, head: &mut Head, piece: Fragment, len: usize) {
        match self.version {
            Version::Ipv4 { .. } => self.write_ipv4(head, piece, len),
            Version::Ipv6 { next_header, named_at } => {
                head.push(self.of_packet);
                head.push(fragment::Header::new(next_header, piece).as_bytes());
                let bytes = head.as_mut_slice();
                bytes[named_at] = protocol::FRAGMENT;
                if let Ok((header, _)) = ipv6::Header::mut_from_prefix(&mut bytes[ethernet::LEN..])
                {
                    header.payload_len = ((self.len() - ipv6::LEN + len) as u16).into();
                }
            }
        }
    }

    fn write_ipv4(&self, head: &mut Head, piece: Fragment, len: usize) {
        let header_len = self.len();
        if self.is_first || self.of_packet.len() == OPTIONS_AT {
            head.push(self.of_packet);
        } else {
            head.push(&self.of_packet[..OPTIONS_AT]);
            for option in Repeated::of(&self.of_packet[OPTIONS_AT..]).flatten() {
                head.push(option);
            }
            // The end of the list, and nothing behind it.
            head.push(&[0; 3][..ethernet::LEN + header_len - head.len()]);
        }
        let Ok((header, options)) =
            ipv4::Header::mut_from_prefix(&mut head.as_mut_slice()[ethernet::LEN..])
        else {
            debug_assert!(false, "a whole header was pushed");
            return;
        };
        let flags = header.fragment.get() & !(ipv4::MORE_FRAGMENTS | ipv4::OFFSET);
        let more = if piece.more { ipv4::MORE_FRAGMENTS } else { 0 };
        let offset = (piece.offset / 8) as u16 & ipv4::OFFSET;
        header.version_and_words = 0x40 | (header_len / 4) as u8;
        header.total_len = ((header_len + len) as u16).into();
        header.id = (piece.id as u16).into();
        header.fragment = (flags | more | offset).into();
        header.sum = header.checksum(options).into();
    }
}

/// Nothing follows.
const END: u8 = 0;
/// One byte of padding.
const NOTHING: u8 = 1;
/// In the kind of an option: every piece repeats it.
const COPIED: u8 = 0x80;

/// The options of a header that every piece repeats, one after another.
pub(super) struct Repeated<'a>(&'a [u8]);

impl<'a> Repeated<'a> {
    /// Of these options.
    pub(super) const fn of(options: &'a [u8]) -> Self {
        Self(options)
    }

    /// How many bytes they take in a header, which is a multiple of 4 long.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if an option is longer than what is left, or shorter
    /// than its own first bytes.
    pub(super) fn len(self) -> Result<usize, Refusal> {
        let mut len = 0;
        for option in self {
            len += option?.len();
        }
        Ok(len.next_multiple_of(4))
    }
}

impl<'a> Iterator for Repeated<'a> {
    type Item = Result<&'a [u8], Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let len = match *self.0 {
                [] | [END, ..] => return None,
                [NOTHING, ..] => 1,
                [_, len, ..] if len >= 2 => usize::from(len),
                _ => 0,
            };
            let (option, rest) = match self.0.split_at_checked(len) {
                Some(split) if len > 0 => split,
                _ => {
                    self.0 = &[];
                    return Some(Err(Refusal::Malformed));
                }
            };
            self.0 = rest;
            if option[0] & COPIED != 0 {
                return Some(Ok(option));
            }
        }
    }
}
