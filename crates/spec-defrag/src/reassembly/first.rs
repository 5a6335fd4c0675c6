//! What is kept of the first piece of a packet.

use landfall_placement::Ecn;

use crate::packet::Head;
use crate::wire::{Key, Parsed};

/// The headers of a first piece, and the start of the payload up to the split.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) parsed: Parsed,
    /// The headers, and the start of the payload.
    bytes: [u8; Head::MOST],
    len: usize,
}

impl First {
    /// Before there is one.
    pub(super) const NONE: Self = Self {
        parsed: Parsed {
            key: Key { source: 0, destination: 0, id: 0, protocol: 0 },
            fragment: None,
            protocol: 0,
            network_at: 0,
            payload_at: 0,
            payload_len: 0,
            ecn: Ecn::NotCapable,
        },
        bytes: [0; Head::MOST],
        len: 0,
    };

    /// Keeps what there is to keep of a first piece, and says how much of its payload
    /// that is: up to the split if the head at hand has it and there is room, else
    /// nothing.
    #[inline]
    pub(super) fn keep(&mut self, parsed: &Parsed, head: &[u8], split: u32) -> Option<u32> {
        let payload_at = usize::from(parsed.payload_at);
        let reaches = payload_at + split as usize;
        let has_split =
            reaches <= head.len() && reaches <= Head::MOST && split <= parsed.payload_len;
        let (len, kept) = if has_split { (reaches, split) } else { (payload_at, 0) };
        self.bytes.get_mut(..len)?.copy_from_slice(head.get(..len)?);
        self.parsed = *parsed;
        self.len = len;
        Some(kept)
    }

    /// The bytes up to where the IP headers end.
    #[inline]
    pub(super) fn headers(&self) -> &[u8] {
        &self.bytes[..usize::from(self.parsed.payload_at).min(self.len)]
    }

    /// The start of the payload, as far as it is kept here.
    #[inline]
    pub(super) fn kept(&self) -> &[u8] {
        &self.bytes[self.headers().len()..self.len]
    }
}
