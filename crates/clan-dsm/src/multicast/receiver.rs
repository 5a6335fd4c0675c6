//! A member's half: which frames of a group's stream came, and where they belong.

use alloc::collections::VecDeque;

use arrayvec::ArrayVec;
use landfall_placement::Serial32;
use landfall_tables::EntryKey;

use crate::address::{Address, LinkId};
use crate::link::Receiver;
use crate::nic::PacketEffect;
use crate::wire::frame::MAX_ENTRIES;

/// The name of a stream that is received.
pub(crate) type ReceiverName = EntryKey;

/// The proofs of one stream, at one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamTags {
    /// Frames carry it.
    pub(crate) tag: u64,
    /// Acknowledgements do.
    pub(crate) ack_tag: u64,
}

/// The stream of one group, as one member has it.
#[derive(Debug)]
pub(crate) struct GroupReceiver {
    /// Over which the writer was heard of, and acknowledgements go.
    pub(crate) link: LinkId,
    pub(crate) tag: u64,
    pub(crate) ack_tag: u64,
    /// The number of the key that its frames are sealed with.
    pub(crate) key: Option<u32>,
    /// The first word of the group's memory.
    group: Address,
    pub(crate) receiver: Receiver,
    /// The writer has said which frame is the first that is meant for this side.
    pub(crate) is_started: bool,
    /// Where it starts, when what came before is in place.
    start_at: Option<Serial32>,
    /// It waits for its turn to acknowledge.
    pub(crate) is_ready: bool,
    /// Frames on their way to their places, oldest first.
    placed: VecDeque<ArrayVec<PacketEffect, MAX_ENTRIES>>,
    /// The number of the oldest of them.
    oldest: u32,
}

impl GroupReceiver {
    pub(crate) fn new(
        link: LinkId,
        group: Address,
        StreamTags { tag, ack_tag }: StreamTags,
        receiver: Receiver,
    ) -> Self {
        Self {
            link,
            tag,
            ack_tag,
            key: None,
            group,
            receiver,
            is_started: false,
            start_at: None,
            is_ready: false,
            placed: VecDeque::new(),
            oldest: 0,
        }
    }

    /// From this frame on all are meant for this side.
    pub(crate) fn start(&mut self, seq: Serial32) {
        self.start_at = Some(seq);
        self.try_start();
    }

    /// Starts, once nothing of what came before is on its way to its place.
    pub(crate) fn try_start(&mut self) {
        if let Some(seq) = self.start_at
            && self.receiver.skip_to(seq)
        {
            (self.start_at, self.is_started) = (None, true);
            self.receiver.hurry();
        }
    }

    /// May frames be put into their places?
    pub(crate) const fn is_open(&self) -> bool {
        self.is_started && self.start_at.is_none()
    }

    /// Is this address one of the group's memory?
    pub(crate) fn is_of(&self, address: &Address) -> bool {
        let name = |address: &Address| (address.kind, address.host, address.slot, address.key);
        name(address) == name(&self.group)
    }

    /// A frame goes on its way; the number is for its ticket.
    pub(crate) fn push_placed(&mut self, effects: ArrayVec<PacketEffect, MAX_ENTRIES>) -> u32 {
        let number = self.oldest.wrapping_add(self.placed.len() as u32);
        self.placed.push_back(effects);
        number
    }

    /// The frame of this number, if it is the oldest.
    pub(crate) fn pop_placed(
        &mut self,
        number: u32,
    ) -> Option<ArrayVec<PacketEffect, MAX_ENTRIES>> {
        if number != self.oldest {
            return None;
        }
        let placed = self.placed.pop_front()?;
        self.oldest = self.oldest.wrapping_add(1);
        Some(placed)
    }
}
