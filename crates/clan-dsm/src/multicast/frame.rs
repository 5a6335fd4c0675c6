//! [`GroupFrame`]: what a frame of a group's stream carries.

use alloc::boxed::Box;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use landfall_placement::{Span, Spans};

use crate::link::{FramePayload, MAX_SPANS};
use crate::nic::updates::{Bytes, Note};
use crate::wire::frame::{HEADER_LEN, MAX_ENTRIES};

/// A frame of a group's stream, kept for as long as a member may miss it.
#[derive(Debug)]
pub(crate) struct GroupFrame {
    /// The table, and behind it what is copied.
    head: Box<[u8]>,
    spans: ArrayVec<Span, MAX_SPANS>,
    /// What it touches in the group's memory.
    pub(crate) notes: ArrayVec<Bytes, MAX_ENTRIES>,
    pub(crate) entries: u8,
    pub(crate) payload_len: u16,
}

impl GroupFrame {
    /// What was put together. `None` where its entries contradict its bytes.
    pub(crate) fn of(payload: &FramePayload) -> Option<Self> {
        let payload_len = u16::try_from(payload.bytes()).ok()?;
        if payload.entries.is_empty() || u32::from(payload_len) != payload.payload_len() {
            return None;
        }
        let mut head: Vec<u8> = payload.entries.iter().flat_map(|e| e.to_bytes()).collect();
        head.extend_from_slice(&payload.inline);
        let bytes_of = |note: &Note| match *note {
            Note::Written(_, bytes) | Note::From(_, _, bytes) | Note::Dma(_, _, bytes) => bytes,
            Note::Served(..) => unreachable!("a group is only written"),
        };
        Some(Self {
            head: head.into_boxed_slice(),
            spans: payload.spans.clone(),
            notes: payload.notes.iter().map(bytes_of).collect(),
            entries: payload.entries.len() as u8,
            payload_len,
        })
    }

    /// The length of the frame.
    pub(crate) fn len(&self) -> u64 {
        (HEADER_LEN + self.head.len()) as u64
            + self.spans.iter().map(|span| u64::from(span.len)).sum::<u64>()
    }

    /// How much of it is written into the head of a unit.
    pub(crate) fn head_len(&self) -> usize {
        HEADER_LEN + self.head.len()
    }

    pub(crate) fn holds_memory(&self) -> bool {
        !self.spans.is_empty()
    }

    /// Writes it behind the place of its header.
    pub(crate) fn write(&self, head: &mut [u8], from: &mut Spans) -> Option<()> {
        head.get_mut(HEADER_LEN..self.head_len())?.copy_from_slice(&self.head);
        self.spans.iter().try_for_each(|span| from.push(*span)).ok()
    }
}
