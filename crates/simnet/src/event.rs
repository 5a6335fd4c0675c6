//! What happens next: a heap of events and one timer per node, in one order.
//!
//! The order is by time, then by when a thing was scheduled, so that ties are
//! decided the same way in every run.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use landfall_placement::Instant;

use crate::frame::FrameId;
use crate::link::DirectionId;
use crate::node::{NodeId, PortId};

/// What happens at a moment.
///
/// An `epoch` counts how often a link went up or down: what was scheduled in
/// an earlier one is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A frame reaches the far end of a way.
    Arrive { direction: DirectionId, epoch: u32, frame: FrameId },
    /// The last bit of a frame has left: the way is free for the next.
    Departed { direction: DirectionId, epoch: u32 },
    /// A pause of the transmitter is over.
    Resume { direction: DirectionId, epoch: u32 },
    /// A node sends a frame that it held back.
    Send { node: NodeId, port: PortId, frame: FrameId },
    /// The link that `direction` belongs to goes up or down.
    Change { direction: DirectionId, up: bool },
    /// The timer of a node is due.
    Timer { node: NodeId },
}

/// Time first, then the order of scheduling.
type Key = (Instant, u64);

/// Everything that is going to happen.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<(Key, Event)>>,
    /// Timers move often. Each node has one entry here at most, so that a
    /// timer that was moved a million times leaves nothing behind.
    timers: BTreeMap<Key, NodeId>,
    armed: Vec<Option<Key>>,
    scheduled: u64,
}

impl EventQueue {
    fn key(&mut self, at: Instant) -> Key {
        self.scheduled += 1;
        (at, self.scheduled)
    }

    /// Schedules an event; one in the far future never happens.
    pub(crate) fn push(&mut self, at: Instant, event: Event) {
        if at == Instant::FAR_FUTURE {
            return;
        }
        let key = self.key(at);
        self.heap.push(Reverse((key, event)));
    }

    /// How many events wait, timers aside.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Sets, moves or stops the timer of a node.
    pub(crate) fn arm(&mut self, node: NodeId, at: Option<Instant>) {
        let index = node.0 as usize;
        if self.armed.len() <= index {
            self.armed.resize(index + 1, None);
        }
        let at = at.filter(|at| *at < Instant::FAR_FUTURE);
        if self.armed[index].map(|(armed, _)| armed) == at {
            return;
        }
        if let Some(key) = self.armed[index].take() {
            self.timers.remove(&key);
        }
        if let Some(at) = at {
            let key = self.key(at);
            self.timers.insert(key, node);
            self.armed[index] = Some(key);
        }
    }

    /// When the next thing happens.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let event = self.heap.peek().map(|Reverse((key, _))| key.0);
        let timer = self.timers.first_key_value().map(|(key, _)| key.0);
        match (event, timer) {
            (Some(event), Some(timer)) => Some(event.min(timer)),
            (event, timer) => event.or(timer),
        }
    }

    /// The next thing that happens, if that is not after `deadline`.
    pub(crate) fn pop(&mut self, deadline: Instant) -> Option<(Instant, Event)> {
        let event = self.heap.peek().map(|Reverse((key, _))| *key);
        let timer = self.timers.first_key_value().map(|(key, _)| *key);
        let timer_first = match (event, timer) {
            (Some(event), Some(timer)) => timer < event,
            (None, None) => return None,
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        if timer_first {
            let entry = self.timers.first_entry().filter(|entry| entry.key().0 <= deadline)?;
            let ((at, _), node) = entry.remove_entry();
            self.armed[node.0 as usize] = None;
            Some((at, Event::Timer { node }))
        } else {
            event.filter(|(at, _)| *at <= deadline)?;
            let Reverse(((at, _), event)) = self.heap.pop()?;
            Some((at, event))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(3);

    fn change(n: u32) -> Event {
        Event::Change { direction: DirectionId(n), up: true }
    }

    #[test]
    fn ties_go_to_what_was_scheduled_first() {
        let mut queue = EventQueue::default();
        let at = Instant::from_micros(5);
        queue.push(at, change(9));
        queue.arm(NODE, Some(at));
        queue.push(at, change(1));
        queue.push(Instant::from_micros(1), change(7));
        let order: Vec<_> = core::iter::from_fn(|| queue.pop(Instant::FAR_FUTURE)).collect();
        let expected = [change(7), change(9), Event::Timer { node: NODE }, change(1)];
        assert!(order.iter().map(|(_, event)| *event).eq(expected), "{order:?}");
    }

    #[test]
    fn nothing_happens_before_its_time() {
        let mut queue = EventQueue::default();
        queue.push(Instant::from_micros(5), change(1));
        queue.arm(NODE, Some(Instant::from_micros(4)));
        assert_eq!(queue.pop(Instant::from_micros(3)), None);
        assert!(queue.pop(Instant::from_micros(4)).is_some());
        assert_eq!(queue.pop(Instant::from_micros(4)), None);
        assert_eq!(queue.next_at(), Some(Instant::from_micros(5)));
    }

    #[test]
    fn a_timer_moved_a_million_times_is_one_entry() {
        let mut queue = EventQueue::default();
        for n in 0..1_000_000 {
            queue.arm(NODE, Some(Instant::from_nanos(n % 1_000)));
        }
        assert_eq!((queue.timers.len(), queue.heap.len()), (1, 0));
        queue.arm(NODE, None);
        assert_eq!(queue.pop(Instant::FAR_FUTURE), None);
    }
}
