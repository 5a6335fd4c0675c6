//! Operations: each has a slot from the call that asks for it until both its
//! user and the engine are through with it.

use std::collections::HashMap;
use std::task::Waker;

use stp_core::{ConnectionId, Ended, RemoteRegion};

use super::request::{Begun, Request};
use crate::stp::memory::Held;

/// The name of a slot.
pub(crate) type Key = usize;

/// How an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it was done; so many bytes.
    Done {
        len: u64,
    },
    Received {
        len: u64,
        offered: u64,
        opaque: u32,
    },
    Fetched {
        old: u64,
    },
    Region(RemoteRegion),
    /// The engine did not begin it.
    Refused(stp_core::Error),
    /// It was begun and ended early.
    Ended {
        len: u64,
        why: Ended,
    },
    /// Its connection was gone before it began.
    Closed {
        why: Option<Ended>,
    },
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// For room, or for something to be offered.
    Waiting,
    Begun(Begun),
    Over(Outcome),
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) connection: ConnectionId,
    pub(crate) request: Request,
    pub(crate) held: Option<Held>,
    pub(crate) stage: Stage,
    pub(crate) waker: Option<Waker>,
    /// Its user does not wait any more.
    pub(crate) is_orphan: bool,
}

/// The slots, and what the engine calls them.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<Key>,
    begun: HashMap<Begun, Key>,
}

impl Slots {
    pub(crate) fn add(
        &mut self,
        connection: ConnectionId,
        request: Request,
        held: Option<Held>,
    ) -> Key {
        let stage = Stage::Waiting;
        let slot = Slot { connection, request, held, stage, waker: None, is_orphan: false };
        match self.free.pop() {
            Some(key) => {
                self.slots[key] = Some(slot);
                key
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        }
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots.get_mut(key)?.as_mut()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Slot> {
        let slot = self.slots.get_mut(key)?.take()?;
        if let Stage::Begun(begun) = slot.stage {
            self.begun.remove(&begun);
        }
        self.free.push(key);
        Some(slot)
    }

    pub(crate) fn note_begun(&mut self, key: Key, begun: Begun) {
        if let Some(slot) = self.get(key) {
            slot.stage = Stage::Begun(begun);
            self.begun.insert(begun, key);
        }
    }

    /// The operation is over: the engine has no name for it any more.
    pub(crate) fn note_over(&mut self, begun: Begun) -> Option<Key> {
        self.begun.remove(&begun)
    }

    /// Those that are not over.
    pub(crate) fn under_way(&self) -> Vec<Key> {
        let is_under_way = |slot: &Slot| !matches!(slot.stage, Stage::Over(_));
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.as_ref().is_some_and(is_under_way))
            .map(|(key, _)| key)
            .collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
