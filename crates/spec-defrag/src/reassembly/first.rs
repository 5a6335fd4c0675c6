//! What is kept of the first piece of a packet.

use crate::packet::Head;
use crate::wire::Parsed;

/// The headers of a first piece, and the start of the payload up to the split.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) parsed: Parsed,
    pub(super) head: Head,
}

impl First {
    /// What there is to keep of a first piece, and how much of its payload that is:
    /// up to the split if the head at hand has it and there is room, else nothing.
    #[inline]
    pub(super) fn new(parsed: &Parsed, head: &[u8], split: u32) -> Option<(Self, u32)> {
        let payload_at = usize::from(parsed.payload_at);
        let with_split = head
            .get(..payload_at + split as usize)
            .filter(|_| split <= parsed.payload_len)
            .and_then(Head::from_slice);
        let (head, kept) = match with_split {
            Some(head) => (head, split),
            None => (Head::from_slice(head.get(..payload_at)?)?, 0),
        };
        Some((Self { parsed: *parsed, head }, kept))
    }

    /// The bytes up to where the IP headers end.
    pub(super) fn headers(&self) -> &[u8] {
        let headers = usize::from(self.parsed.payload_at).min(self.head.len());
        &self.head[..headers]
    }

    /// The start of the payload, as far as it is kept here.
    pub(super) fn kept(&self) -> &[u8] {
        &self.head[self.headers().len()..]
    }
}
