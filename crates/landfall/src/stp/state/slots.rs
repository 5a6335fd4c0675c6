//! Operations: each has a slot from the call that asks for it until the engine is through
//! with it.
//!
//! A [`Request`] is what was asked of the engine: as data, so that it can wait for room, and
//! be cancelled in whatever state it is. A [`Ticket`] is what an operation's user and the
//! endpoint share, so that neither waits for the other.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use hashbrown::HashMap;
use landfall_placement::{Area, Instant, WordFunction, WordWidth};
use stp_core::{
    ConnectionId, Ended, Endpoint, Error, OperationId, Priority, PutOptions, ReadId, ReceiveId,
    RemoteRegion, RequestId, Rights, SendId,
};

use crate::runtime::locked;
use crate::stp::memory::Held;

/// The name of a slot.
pub(crate) type Key = usize;

/// How an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All of it was done; this many bytes.
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
    /// Somebody wants to know how far it is.
    pub(crate) is_watched: bool,
    /// What its user prefers, where that is not what the connection has.
    pub(crate) priority: Option<Priority>,
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
        let (is_orphan, is_watched, priority) = (false, false, None);
        let slot =
            Slot { connection, request, held, stage, ticket, is_orphan, is_watched, priority };
        match self.slots.get_mut(key) {
            Some(free) => *free = Some(slot),
            None => self.slots.push(Some(slot)),
        }
        key
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Slot> {
        self.slots.get_mut(key)?.as_mut()
    }

    /// What its user prefers, beside others of the connection.
    pub(crate) fn priority(&self, key: Key) -> Priority {
        let slot = self.slots.get(key).and_then(Option::as_ref);
        slot.and_then(|slot| slot.priority).unwrap_or_default()
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

    /// The operation with this name, if it is not over.
    pub(crate) fn begun(&mut self, begun: Begun) -> Option<&mut Slot> {
        let key = *self.begun.get(&begun)?;
        self.get(key)
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

/// An operation, from the call that asks for it until its user knows how it went. Its mutex
/// is held for a few instructions at a time, by either side.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Once the endpoint knows of it.
    key: Option<Key>,
    outcome: Option<(Outcome, Option<Held>)>,
    waker: Option<Waker>,
    /// How far it is, for those who look.
    progress: Watched,
}

/// What those who look at the progress of an operation share.
#[derive(Debug, Default)]
struct Watched {
    len: u64,
    is_over: bool,
    lookers: u32,
    wakers: Vec<Waker>,
}

impl Ticket {
    /// One of nothing that is under way.
    pub(crate) fn over() -> Self {
        let progress = Watched { is_over: true, ..Watched::default() };
        Self(Mutex::new(State { progress, ..State::default() }))
    }

    /// How it went, and what it held; or the waker is woken when that is known.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<(Outcome, Option<Held>)> {
        let mut state = locked(&self.0);
        if let Some(over) = state.outcome.take() {
            return Poll::Ready(over);
        }
        let before = match &state.waker {
            Some(known) if known.will_wake(waker) => None,
            _ => state.waker.replace(waker.clone()),
        };
        drop(state);
        // With it a whole task may go.
        drop(before);
        Poll::Pending
    }

    pub(crate) fn is_over(&self) -> bool {
        locked(&self.0).outcome.is_some()
    }

    pub(super) fn key(&self) -> Option<Key> {
        locked(&self.0).key
    }

    pub(super) fn set_key(&self, key: Key) {
        locked(&self.0).key = Some(key);
    }

    /// It is over. Wakes are left to be done.
    pub(super) fn end(&self, outcome: Outcome, held: Option<Held>, wake: &mut Vec<Waker>) {
        let mut state = locked(&self.0);
        if let Outcome::Done { len } | Outcome::Received { len, .. } = outcome {
            state.progress.len = len;
        }
        state.outcome = Some((outcome, held));
        state.progress.is_over = true;
        wake.append(&mut state.progress.wakers);
        wake.extend(state.waker.take());
    }

    /// This many bytes are in place. Wakes are left to be done.
    pub(super) fn record_progress(&self, len: u64, wake: &mut Vec<Waker>) {
        let progress = &mut locked(&self.0).progress;
        if len > progress.len {
            progress.len = len;
            wake.append(&mut progress.wakers);
        }
    }

    /// This many bytes are in place, as far as is known.
    pub(crate) fn progress(&self) -> u64 {
        locked(&self.0).progress.len
    }

    /// The same, once it is more than `seen`; nothing more where it is over.
    pub(crate) fn poll_progress(&self, seen: u64, waker: &Waker) -> Poll<Option<u64>> {
        let progress = &mut locked(&self.0).progress;
        if progress.len > seen {
            return Poll::Ready(Some(progress.len));
        }
        if progress.is_over {
            return Poll::Ready(None);
        }
        if !progress.wakers.iter().any(|known| known.will_wake(waker)) {
            progress.wakers.push(waker.clone());
        }
        Poll::Pending
    }

    /// Somebody begins to look. Is it the first one, of what is not over?
    pub(crate) fn begin_looking(&self) -> bool {
        let progress = &mut locked(&self.0).progress;
        progress.lookers += 1;
        progress.lookers == 1 && !progress.is_over
    }

    /// Somebody looks no more. Was it the last one, of what is not over? With the wakers
    /// whole tasks may go: they are given away.
    pub(crate) fn end_looking(&self) -> (bool, Vec<Waker>) {
        let progress = &mut locked(&self.0).progress;
        progress.lookers -= 1;
        match progress.lookers {
            0 => (!progress.is_over, std::mem::take(&mut progress.wakers)),
            _ => (false, Vec::new()),
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Send a Transfer.
    Send {
        memory: Area,
        opaque: u32,
    },
    /// Send what the other side wants to read.
    AnswerRead {
        read: ReadId,
        memory: Area,
        opaque: u32,
    },
    /// Take the next Transfer that is offered: it waits here, not in the engine.
    Receive {
        memory: Area,
        takes_part: bool,
    },
    /// Take this one.
    Accept {
        receive: ReceiveId,
        memory: Area,
        takes_part: bool,
    },
    /// Ask the other side to send.
    Read {
        memory: Area,
        opaque: u32,
    },
    Get {
        region: RemoteRegion,
        at: u64,
        memory: Area,
    },
    Put {
        region: RemoteRegion,
        at: u64,
        memory: Area,
        options: PutOptions,
    },
    Fetch {
        region: RemoteRegion,
        at: u64,
        width: WordWidth,
        function: WordFunction,
    },
    Region {
        name: u32,
        len: u64,
        rights: Rights,
    },
}

/// What the engine calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Begun {
    Send(SendId),
    Receive(ReceiveId),
    Operation(OperationId),
    Region(RequestId),
}

impl Request {
    pub(super) fn begin(
        &self,
        engine: &mut Endpoint,
        now: Instant,
        id: ConnectionId,
    ) -> Result<Begun, Error> {
        match *self {
            Self::Send { memory, opaque } => engine.send(now, id, memory, opaque).map(Begun::Send),
            Self::AnswerRead { read, memory, opaque } => {
                engine.answer_read(now, read, memory, opaque).map(Begun::Send)
            }
            Self::Accept { receive, memory, takes_part } => {
                engine.accept(now, receive, memory, takes_part).map(|()| Begun::Receive(receive))
            }
            Self::Read { memory, opaque } => {
                engine.read(now, id, memory, opaque).map(Begun::Receive)
            }
            Self::Get { region, at, memory } => {
                engine.get(now, id, &region, at, memory).map(Begun::Receive)
            }
            Self::Put { region, at, memory, options } => {
                engine.put(now, id, &region, at, memory, options).map(Begun::Operation)
            }
            Self::Fetch { region, at, width, function } => {
                engine.fetch_op(now, id, &region, at, width, function).map(Begun::Operation)
            }
            Self::Region { name, len, rights } => {
                engine.request_region(now, id, name, len, rights).map(Begun::Region)
            }
            // It becomes an `Accept` when something is offered.
            Self::Receive { .. } => Err(Error::Busy),
        }
    }
}

impl Begun {
    /// Begins or ends to tell of its progress. Returns how far it is.
    pub(super) fn watch(self, engine: &mut Endpoint, is_watched: bool) -> u64 {
        let progress = match self {
            Self::Send(id) => engine.watch_send(id, is_watched),
            Self::Receive(id) => engine.watch_receive(id, is_watched),
            Self::Operation(_) | Self::Region(_) => Ok(0),
        };
        // What is over is about to be told so.
        progress.unwrap_or(0)
    }

    /// Its user prefers it, or does not.
    pub(super) fn prioritize(self, engine: &mut Endpoint, priority: Priority) {
        // What is over already waits for nothing.
        let _ = match self {
            Self::Send(id) => engine.set_send_priority(id, priority),
            Self::Receive(id) => engine.set_receive_priority(id, priority),
            Self::Operation(_) | Self::Region(_) => Ok(()),
        };
    }

    /// Nobody waits for it any more. Its memory is free when the engine's last
    /// event about it has come. A Put or FetchOp cannot be taken back.
    pub(super) fn cancel(self, engine: &mut Endpoint, now: Instant) {
        // What is over already needs no end.
        let _ = match self {
            Self::Send(id) => engine.cancel_send(now, id),
            Self::Receive(id) => engine.cancel_receive(now, id),
            Self::Operation(_) | Self::Region(_) => Ok(()),
        };
    }
}
