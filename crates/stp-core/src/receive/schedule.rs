//! Who gets the next grant, and how much: the receiver paces all senders.
//!
//! Granted and not arrived is at most the configured window, over all senders,
//! and on each link at most its congestion window. What is ready is granted in
//! the order of the policy; what finds no room on its links waits for that.

use landfall_placement::assumed;

use alloc::collections::VecDeque;

use landfall_tables::IndexedHeap;

use super::{ScheduleState, State};
use crate::config::Policy;
use crate::context::Context;
use crate::error::Error;
use crate::ids::ReceiveId;
use crate::network::Network;
use crate::preference::Priority;
use crate::receive::Receives;

/// Transfers that may get the next grant, in the order of the policy.
#[derive(Debug)]
pub(crate) struct Ready {
    /// By priority.
    queues: [Queue; 3],
}

impl Ready {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { queues: Priority::ALL.map(|_| Queue::new(policy)) }
    }

    pub(crate) fn enter(&mut self, index: u32, rest: u64, priority: Priority) {
        self.queues[priority.index()].enter(index, rest);
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        Priority::ALL.iter().find_map(|priority| self.queues[priority.index()].take())
    }

    pub(crate) fn put_back(&mut self, index: u32, rest: u64, priority: Priority) {
        self.queues[priority.index()].put_back(index, rest);
    }

    /// Does a Transfer wait for its turn here?
    #[cfg(feature = "model")]
    pub(crate) fn contains(&self, index: u32, priority: Priority) -> bool {
        self.queues[priority.index()].contains(index)
    }

    /// Returns whether it was there.
    pub(crate) fn forget(&mut self, index: u32) -> bool {
        let mut was_there = false;
        for queue in &mut self.queues {
            was_there |= queue.forget(index);
        }
        was_there
    }
}

/// Those of one priority.
#[derive(Debug)]
enum Queue {
    Fair(VecDeque<u32>),
    Shortest(IndexedHeap<u64>),
}

impl Queue {
    const fn new(policy: Policy) -> Self {
        match policy {
            Policy::Fair => Self::Fair(VecDeque::new()),
            Policy::ShortestFirst => Self::Shortest(IndexedHeap::new()),
        }
    }

    fn enter(&mut self, index: u32, rest: u64) {
        match self {
            Self::Fair(queue) => queue.push_back(index),
            Self::Shortest(heap) => heap.set(index, rest),
        }
    }

    fn take(&mut self) -> Option<u32> {
        match self {
            Self::Fair(queue) => queue.pop_front(),
            Self::Shortest(heap) => {
                let (_, index) = heap.first()?;
                heap.remove(index);
                Some(index)
            }
        }
    }

    fn put_back(&mut self, index: u32, rest: u64) {
        match self {
            Self::Fair(queue) => queue.push_front(index),
            Self::Shortest(heap) => heap.set(index, rest),
        }
    }

    #[cfg(feature = "model")]
    fn contains(&self, index: u32) -> bool {
        match self {
            Self::Fair(queue) => queue.contains(&index),
            Self::Shortest(heap) => heap.key_of(index).is_some(),
        }
    }

    fn forget(&mut self, index: u32) -> bool {
        match self {
            Self::Fair(queue) => {
                let before = queue.len();
                queue.retain(|other| *other != index);
                queue.len() < before
            }
            Self::Shortest(heap) => heap.remove(index),
        }
    }
}

/// What came of an attempt to grant.
pub(super) enum Outcome {
    /// How much was granted.
    Granted,
    /// The Transfer has as much granted as it may.
    Enough,
    /// None of its links has room.
    NoRoomOnLinks,
    /// There is no place for another Block; those that have one may go on. Or nothing has
    /// come from its sender yet, and others of those have what is meant for them.
    NoBlock,
    /// There is no room for anybody.
    NoRoom,
}

impl Receives {
    /// The Transfer has something to be granted.
    pub(crate) fn make_ready(&mut self, net: &mut Network, index: u32) {
        let Some(receive) = self.assumed_mut(index) else {
            return;
        };
        if receive.state != State::Open || receive.turn != ScheduleState::None || receive.rest == 0
        {
            return;
        }
        receive.turn = ScheduleState::Ready;
        self.end_turn(net, index);
        self.grants_due = true;
    }

    /// It is others' turn; in its next one it gets as many Blocks as its connection weighs.
    pub(crate) fn end_turn(&mut self, net: &mut Network, index: u32) {
        let Some(receive) =
            assumed(self.table.get_mut(index), "a Transfer that goes on is in the table")
        else {
            return;
        };
        let weight = net.connections.get(receive.connection).map_or(1, |known| known.weight);
        receive.more_in_turn = weight.saturating_sub(1);
        self.ready.enter(index, receive.rest, receive.priority);
    }

    /// It waits until one of its links has room.
    pub(crate) fn wait_for_links(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed_mut(index) else {
            return;
        };
        receive.turn = ScheduleState::Waiting;
        let Some(known) = net.connections.assumed(receive.connection) else {
            return;
        };
        for link in known.links() {
            let Some(link) = net.links.get_mut(link) else { continue };
            let path = &mut net.paths[usize::from(link.path)];
            if !path.has_room_for_grants(cx.config.queue) && !path.waiting.contains(&index) {
                path.waiting.push(index);
            }
            let waiting = &mut link.traffic().waiting;
            if !waiting.contains(&index) {
                waiting.push(index);
            }
        }
    }

    /// Grants found no room to wait on a path, and there is some again.
    pub(crate) fn wake_path(&mut self, net: &mut Network, path: usize) {
        for index in core::mem::take(&mut net.paths[path].waiting) {
            self.wake(net, index);
        }
    }

    /// It may have found room.
    fn wake(&mut self, net: &mut Network, index: u32) {
        if let Some(receive) = self.table.get_mut(index)
            && receive.turn == ScheduleState::Waiting
        {
            receive.turn = ScheduleState::None;
            self.make_ready(net, index);
        }
    }

    /// A link has room again, or is up: what waited for it is ready.
    pub(crate) fn wake_waiting(&mut self, net: &mut Network, link: u32) {
        let Some(known) = net.links.assumed_mut(link) else { return };
        for index in known.take_waiting() {
            self.wake(net, index);
        }
    }

    /// What a connection receives may have found room on another link.
    pub(crate) fn wake_receives(&mut self, net: &mut Network, connection: u32) {
        for index in self.receives_of(net, connection) {
            self.wake(net, index);
        }
    }

    /// Sets the priority of one Transfer that is being received, offered or read: of what is
    /// granted of it from now on.
    pub(crate) fn set_receive_priority(
        &mut self,
        id: ReceiveId,
        priority: Priority,
    ) -> Result<(), Error> {
        self.table.named(id.index, id.generation).ok_or(Error::Unknown)?;
        let is_ready = self.ready.forget(id.index);
        if let Some(receive) = self.table.get_mut(id.index) {
            receive.priority = priority;
            let rest = receive.rest;
            if is_ready {
                self.ready.enter(id.index, rest, priority);
            }
        }
        Ok(())
    }
}
