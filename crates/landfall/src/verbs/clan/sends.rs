//! The send queue of a queue pair: messages, and what is done to the other side's memory. The
//! processor that posts a request does it.

use std::collections::{BTreeMap, VecDeque};

use super::element::Element;
use super::receives::{MOST_PARTS, MOST_PARTS_OUT, MOST_WANTED, NAMES};
use super::region::{MemoryKey, Part, Windows};
use crate::clan::dma::sealed::DirectMemory;
use crate::clan::{Cookie, Error, Local, Misbehaviour, Remote, Rights, WordFunction};
use crate::verbs::Status;
use crate::verbs::software::Posted;

/// What a request is to do.
#[derive(Debug)]
pub enum Request<F: DirectMemory> {
    /// A message of memory of ours.
    Message {
        from: Vec<Part<F>>,
        word: Option<u32>,
    },
    /// A message that was copied.
    Inline {
        bytes: Box<[u8]>,
        word: Option<u32>,
    },
    Write {
        from: Vec<Part<F>>,
        key: MemoryKey,
        at: u64,
    },
    Read {
        into: Vec<Part<F>>,
        key: MemoryKey,
        at: u64,
    },
    Atomic {
        into: Part<F>,
        key: MemoryKey,
        at: u64,
        function: WordFunction,
    },
}

impl<F: DirectMemory> Request<F> {
    const fn is_message(&self) -> bool {
        matches!(self, Self::Message { .. } | Self::Inline { .. })
    }
}

/// Bytes of the other side's memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    cookie: Cookie,
    at: u64,
    len: u64,
}

/// Room that the other side has posted for a message.
#[derive(Debug, Default)]
struct TheirRoom {
    places: Vec<Place>,
    /// With those that have no bytes.
    parts: usize,
}

pub(super) struct SendQueue<F: DirectMemory> {
    waiting: VecDeque<(Posted, Request<F>)>,
    rooms: VecDeque<TheirRoom>,
    /// One whose last part has not come.
    begun: TheirRoom,
    /// Parts in both.
    parts: usize,
    names: BTreeMap<u32, Cookie>,
    windows: Windows<F>,
    /// A region that was named, and not used yet.
    named: Option<u32>,
    /// Messages that were posted, how many of them the other side knows of, and how many it has.
    messages: u64,
    told: u64,
    delivered: u64,
}

/// What became of the request whose turn it is.
pub(super) enum Done {
    /// It waits for room.
    Waits,
    Over(Posted, Status, Option<Element>),
    /// The other side is gone.
    Lost(Error),
}

impl<F: DirectMemory> SendQueue<F> {
    pub(super) const fn new(windows: Windows<F>) -> Self {
        Self {
            waiting: VecDeque::new(),
            rooms: VecDeque::new(),
            begun: TheirRoom { places: Vec::new(), parts: 0 },
            parts: 0,
            names: BTreeMap::new(),
            windows,
            named: None,
            messages: 0,
            told: 0,
            delivered: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn post(&mut self, posted: Posted, request: Request<F>) {
        self.messages += u64::from(request.is_message());
        self.waiting.push_back((posted, request));
    }

    /// The other side calls memory of its own so, because room in it follows: so what it says is
    /// bounded by the room that it has.
    pub(super) fn name(&mut self, number: u32, cookie: Cookie) -> Result<(), Error> {
        let is_first = number < NAMES && self.named.replace(number).is_none();
        let is_theirs = cookie.host() == self.windows.host();
        if !is_first || !is_theirs || !cookie.rights().allow(Rights::Write) {
            return Err(misbehaved(number.into()));
        }
        self.names.insert(number, cookie);
        Ok(())
    }

    /// The other side has posted a part of a room.
    pub(super) fn add_room(
        &mut self,
        region: u32,
        (at, len): (u64, u64),
        is_last: bool,
    ) -> Result<(), Error> {
        if self.named.take().is_some_and(|named| named != region) {
            return Err(misbehaved(region.into()));
        }
        if len > 0 {
            let cookie = *self.names.get(&region).ok_or(misbehaved(region.into()))?;
            if at.checked_add(len).is_none_or(|end| end > cookie.len()) {
                return Err(misbehaved(at));
            }
            self.begun.places.push(Place { cookie, at, len });
        }
        self.begun.parts += 1;
        self.parts += 1;
        if self.parts > MOST_PARTS_OUT || self.begun.parts > MOST_PARTS {
            return Err(misbehaved(self.parts as u64));
        }
        if is_last {
            self.rooms.push_back(std::mem::take(&mut self.begun));
        }
        Ok(())
    }

    /// There are messages for which no room is there: what the other side is told of that.
    pub(super) fn want(&mut self) -> Option<Element> {
        let messages = self.messages.min(self.delivered + MOST_WANTED);
        let is_news = std::mem::replace(&mut self.told, messages) < messages;
        is_news.then_some(Element::Wanted { messages })
    }

    /// Does the request whose turn it is.
    pub(super) fn do_next(&mut self, node: &F) -> Option<Done> {
        let (posted, request) = self.waiting.front()?;
        let room = if request.is_message() { self.rooms.front() } else { None };
        let windows = &mut self.windows;
        let done = match (request, room) {
            (Request::Message { .. } | Request::Inline { .. }, None) => return Some(Done::Waits),
            (Request::Message { word, .. } | Request::Inline { word, .. }, Some(room)) => {
                let len = match request {
                    // It may tell of a write, whose length its completion says.
                    Request::Inline { bytes, .. } => bytes.len() as u32,
                    _ => posted.len,
                };
                deliver(node, windows, request, &room.places, len).map(|fits| match fits {
                    true => (Status::Success, Some(Element::Arrived { len, word: *word })),
                    false => (Status::TooLong, Some(Element::TooLong { len })),
                })
            }
            (Request::Write { from, key, at }, _) => {
                let place = Place { cookie: key.0, at: *at, len: posted.len.into() };
                copy(node, windows, from, &[place]).map(|()| (Status::Success, None))
            }
            (Request::Read { into, key, at }, _) => {
                read(node, windows, into, key, *at).map(|()| (Status::Success, None))
            }
            (Request::Atomic { into, key, at, function }, _) => {
                change(node, windows, into, key, (*at, *function)).map(|()| (Status::Success, None))
            }
        };
        let posted = *posted;
        let is_message = request.is_message();
        let done = match done {
            Ok((status, element)) => Done::Over(posted, status, element),
            Err(error) => match failure(&error) {
                Some(status) => Done::Over(posted, status, None),
                None => return Some(Done::Lost(error)),
            },
        };
        self.waiting.pop_front();
        if is_message && let Some(room) = self.rooms.pop_front() {
            self.parts -= room.parts;
            self.delivered += 1;
        }
        Some(done)
    }

    /// All that are left: their turn does not come.
    pub(super) fn flush(&mut self) -> Vec<Posted> {
        self.waiting.drain(..).map(|(posted, _)| posted).collect()
    }
}

pub(super) const fn misbehaved(what: u64) -> Error {
    Error::PeerMisbehaved(Misbehaviour::Header(what))
}

/// What a request that failed so completes with; nothing: the other side is gone, and all are
/// flushed.
const fn failure(error: &Error) -> Option<Status> {
    match error {
        Error::TimedOut => Some(Status::TimedOut),
        // Its owner has withdrawn it, or never gave it.
        Error::StaleCookie
        | Error::Forbidden
        | Error::Refused(_)
        | Error::Mismatch { .. }
        | Error::OutOfBounds { .. }
        | Error::Unaligned(_) => Some(Status::RemoteAccess),
        _ => None,
    }
}

/// Writes a message into a room. False: it does not fit.
fn deliver<F: DirectMemory>(
    node: &F,
    windows: &mut Windows<F>,
    request: &Request<F>,
    room: &[Place],
    len: u32,
) -> Result<bool, Error> {
    if u64::from(len) > room.iter().map(|place| place.len).sum() {
        return Ok(false);
    }
    match request {
        Request::Message { from, .. } => copy(node, windows, from, room)?,
        Request::Inline { bytes, .. } => {
            let mut rest = &bytes[..];
            for place in room {
                let len = usize::try_from(place.len).unwrap_or(usize::MAX).min(rest.len());
                let (here, behind) = rest.split_at(len);
                if !here.is_empty() {
                    let window = windows.find(node, &place.cookie)?;
                    window.write(place.at, here)?;
                    window.commit()?;
                }
                rest = behind;
            }
        }
        _ => {}
    }
    Ok(true)
}

/// Copies parts to places that have room for them, one behind the other.
fn copy<F: DirectMemory>(
    node: &F,
    windows: &mut Windows<F>,
    from: &[Part<F>],
    places: &[Place],
) -> Result<(), Error> {
    let mut places = places.iter().copied();
    let mut place = places.next();
    for part in from {
        let (mut at, end) = (part.at(), part.at() + part.len());
        while at < end {
            let Some(room) = place.as_mut() else { return Ok(()) };
            let len = room.len.min(end - at);
            if len > 0 {
                let window = windows.find(node, &room.cookie)?;
                F::write_now(part.region().local(), at..at + len, window, room.at)?;
                (at, room.at, room.len) = (at + len, room.at + len, room.len - len);
            }
            if room.len == 0 {
                place = places.next();
            }
        }
    }
    Ok(())
}

fn read<F: DirectMemory>(
    node: &F,
    windows: &mut Windows<F>,
    into: &[Part<F>],
    key: &MemoryKey,
    mut at: u64,
) -> Result<(), Error> {
    let window = windows.find(node, &key.0)?;
    for part in into {
        F::read_now(window, at, part.region().local(), part.at()..part.at() + part.len())?;
        at += part.len();
    }
    Ok(())
}

fn change<F: DirectMemory>(
    node: &F,
    windows: &mut Windows<F>,
    into: &Part<F>,
    key: &MemoryKey,
    (at, function): (u64, WordFunction),
) -> Result<(), Error> {
    let held = windows.find(node, &key.0)?.change(at, function, None)?;
    into.region().local().copy_in(into.at(), &held.to_le_bytes())
}
