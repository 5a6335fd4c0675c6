//! A packet that is complete: where its bytes lie.

use alloc::vec::Vec;

use landfall_placement::Refusal;

use super::datagram::Buffer;
use super::frame::Vlans;
use super::kept::{Copied, Frame};
use crate::memory::Head;
use crate::wire::Key;

/// A packet as it would have come in one frame.
///
/// Its header is mended: IPv4 has the length of the whole, no offset, no "more", and the right
/// checksum; in IPv6 the fragment header is gone and the header before it names what follows. The
/// link header, tags included, is that of the first fragment. The congestion mark is that of all
/// fragments together (RFC 3168, section 5.3).
///
/// Its bytes lie where they came: in the buffer of its packet, or in frames that were kept, and, for
/// the fragment that came last, in the frame that was offered. Nothing was copied to make it.
#[derive(Debug)]
pub struct Packet<'a, F = Copied> {
    pub(super) head: &'a Head,
    pub(super) network_at: u16,
    pub(super) key: Key,
    pub(super) vlans: Vlans,
    pub(super) fragments: u16,
    pub(super) buffer: &'a Buffer<F>,
    /// The payload of the fragment that came last.
    pub(super) last: &'a [u8],
}

impl<F> Clone for Packet<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Packet<'_, F> {}

impl<'a, F: Frame> Packet<'a, F> {
    /// The headers: link, if there is one, and IP up to where the fragmented part began.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        self.head.as_slice()
    }

    /// Where the IP header begins in [`Packet::head`].
    #[must_use]
    pub fn network_at(&self) -> usize {
        self.network_at.into()
    }

    /// The bytes behind the head, in their order and without a copy. Fragments that came one
    /// behind the other are one piece.
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a, F> {
        let Self { buffer, last, .. } = *self;
        let pieces = buffer.runs.iter().map(move |run| buffer.run(run, last));
        pieces.filter(|piece| !piece.is_empty())
    }

    /// How many bytes head and pieces have.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it has a header")]
    pub fn len(&self) -> usize {
        self.head.as_slice().len() + self.buffer.runs.last().map_or(0, |run| run.end as usize)
    }

    /// Copies head and pieces to the start of `room`; gives how many bytes they are.
    ///
    /// # Errors
    /// [`Refusal::NoRoom`] if they are more than `room` has; nothing is copied then.
    pub fn copy_to(&self, room: &mut [u8]) -> Result<usize, Refusal> {
        let mut rest = room.get_mut(..self.len()).ok_or(Refusal::NoRoom)?;
        for piece in core::iter::once(self.head.as_slice()).chain(self.pieces()) {
            let (place, behind) = rest.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = behind;
        }
        Ok(self.len())
    }

    /// Head and pieces, one behind the other.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        all.extend_from_slice(self.head.as_slice());
        self.pieces().for_each(|piece| all.extend_from_slice(piece));
        all
    }

    /// Addresses, identification and protocol.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// The VLANs that it came through.
    #[must_use]
    pub const fn vlans(&self) -> Vlans {
        self.vlans
    }

    /// How many fragments it came in.
    #[must_use]
    pub const fn fragments(&self) -> u16 {
        self.fragments
    }
}
