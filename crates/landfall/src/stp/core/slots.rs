//! Operations: each has a slot from the call that asks for it until the engine is through
//! with it.

use std::collections::HashMap;
use std::sync::Arc;

use stp_core::{ConnectionId, Ended, RemoteRegion};

use super::request::{Begun, Request};
use super::ticket::Ticket;
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
}

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) connection: ConnectionId,
    pub(crate) request: Request,
    pub(crate) held: Option<Held>,
    pub(crate) stage: Stage,
    pub(crate) ticket: Arc<Ticket>,
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
        ticket: Arc<Ticket>,
    ) -> Key {
        let key = self.free.pop().unwrap_or(self.slots.len());
        ticket.set_key(key);
        let stage = Stage::Waiting;
        let slot = Slot { connection, request, held, stage, ticket, is_orphan: false };
        match self.slots.get_mut(key) {
            Some(free) => *free = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        key
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

    /// Where the operation of this ticket is, if it is not over.
    pub(crate) fn of(&mut self, ticket: &Arc<Ticket>) -> Option<(Key, &mut Slot)> {
        let key = ticket.key()?;
        let slot = self.get(key)?;
        Arc::ptr_eq(&slot.ticket, ticket).then_some((key, slot))
    }

    /// All of them.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, slot)| slot.is_some()).map(|(key, _)| key).collect()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
