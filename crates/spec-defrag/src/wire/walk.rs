//! The extension headers that every piece of an IPv6 packet repeats.

use landfall_inet::{extension, ipv6, protocol};

use super::Stop;
use super::parse::cut_short;
use crate::packet::Head;

/// Where the headers end that are part of every piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// What stands at `at`.
    pub(crate) next: u8,
    /// Where the byte is that says so.
    pub(crate) next_at: usize,
    /// Where the headers that were walked over end.
    pub(crate) at: usize,
}

impl Walk {
    /// At the end of the IPv6 header that starts at `network_at`.
    #[inline]
    pub(crate) const fn new(header: &ipv6::Header, network_at: usize) -> Self {
        Self { next: header.next_header, next_at: network_at + 6, at: network_at + ipv6::LEN }
    }

    /// Walks over what may stand before a fragment header: hop-by-hop options,
    /// options for the stations on the way, a routing header.
    ///
    /// Only where the packet has reached the end of its route it may be joined
    /// (RFC 8200, section 4.5): `Foreign` before. The same for headers that are
    /// longer than what fits in a [`Head`]: whoever is above joins them.
    pub(super) fn run(&mut self, head: &[u8], frame_len: u32) -> Result<(), Stop> {
        while matches!(
            self.next,
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS
        ) {
            let Some(bytes) = head.get(self.at..self.at + 8) else {
                return Err(cut_short(self.at + 8, frame_len, Stop::Foreign));
            };
            if self.next == protocol::ROUTING && bytes[3] != 0 {
                return Err(Stop::Foreign);
            }
            match self.step(bytes) {
                Some(walk @ Self { at: ..=Head::MOST, .. }) => *self = walk,
                _ => return Err(Stop::Foreign),
            }
        }
        Ok(())
    }

    /// Up to where the headers reach that every piece of a packet repeats, if it has
    /// to be cut: up to a fragment header that is there, else up to the end of the
    /// routing header or, without one, of the hop-by-hop options (RFC 8200, section
    /// 4.5). `None` if not all of them are in `head`.
    pub(crate) fn per_fragment(
        header: &ipv6::Header,
        head: &[u8],
        network_at: usize,
    ) -> Option<Self> {
        let mut walk = Self::new(header, network_at);
        let mut reached = walk;
        loop {
            match walk.next {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {}
                protocol::FRAGMENT => return Some(walk),
                _ => return Some(reached),
            }
            let is_per_fragment = walk.next != protocol::DESTINATION_OPTIONS;
            walk = walk.step(head.get(walk.at..)?)?;
            if is_per_fragment {
                reached = walk;
            }
        }
    }

    /// Walks over one header, which these bytes start with.
    #[inline]
    fn step(self, bytes: &[u8]) -> Option<Self> {
        let [next, length] = *bytes.first_chunk()?;
        let len = extension::len(self.next, length)?;
        Some(Self { next, next_at: self.at, at: self.at + len })
    }

    /// Walks up to `end`, over headers that were walked over before: where the byte
    /// is that says what follows there.
    pub(crate) fn to(mut self, bytes: &[u8], end: usize) -> Option<usize> {
        while self.at < end {
            self = self.step(bytes.get(self.at..)?)?;
        }
        (self.at == end).then_some(self.next_at)
    }
}
