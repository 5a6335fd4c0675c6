//! The receive queue of a queue pair: room that was posted, of which the other side is told, and
//! what has come into it.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use super::element::Element;
use super::region::{Part, Region};
use super::sends::misbehaved;
use crate::clan::dma::sealed::DirectMemory;
use crate::clan::{Cookie, Error};
use crate::verbs::Status;
use crate::verbs::software::{Arrived, PostedRoom, Room};

/// The most parts of a room.
pub(super) const MOST_PARTS: usize = 64;
/// The most parts of rooms that the other side knows of and has not filled.
pub(super) const MOST_PARTS_OUT: usize = 4096;
/// The most shared rooms that one queue pair holds: a peer that wants them and fills none keeps
/// no more from the others.
const MOST_SHARED: usize = 16;
/// The most messages that a peer wants room for at a time.
pub(super) const MOST_WANTED: u64 = 1 << 20;
/// Regions that have a number at a time.
pub(super) const NAMES: u32 = 256;

pub(super) struct ReceiveQueue<F: DirectMemory> {
    /// Room that the other side knows of.
    given: VecDeque<PostedRoom<Part<F>>>,
    parts: usize,
    /// Messages that the other side has had for us, and rooms that it was given, since the
    /// beginning.
    wanted: u64,
    given_ever: u64,
    arrived_ever: u64,
    arrived: VecDeque<Arrived>,
    /// Regions that the other side knows, by their names here.
    numbers: BTreeMap<u64, u32>,
    next_number: u32,
}

impl<F: DirectMemory> ReceiveQueue<F> {
    pub(super) const fn new() -> Self {
        Self {
            given: VecDeque::new(),
            parts: 0,
            wanted: 0,
            given_ever: 0,
            arrived_ever: 0,
            arrived: VecDeque::new(),
            numbers: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// Rooms that the other side knows of.
    pub(super) fn len(&self) -> usize {
        self.given.len()
    }

    pub(super) fn next_arrived(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// The other side has messages, for which shared room may have to be found.
    pub(super) fn want(&mut self, messages: u64) -> Result<(), Error> {
        let most = self.arrived_ever + MOST_WANTED;
        if messages <= self.wanted || messages > most {
            return Err(misbehaved(messages));
        }
        self.wanted = messages;
        Ok(())
    }

    /// A message is in the room whose turn it is, or does not fit there.
    pub(super) fn arrive(
        &mut self,
        len: u32,
        immediate: Option<u32>,
        status: Status,
    ) -> Result<(), Error> {
        let room = self.given.pop_front().ok_or(misbehaved(len.into()))?;
        self.parts -= room.into.len().max(1);
        let size: u64 = room.into.iter().map(Part::len).sum();
        if status.is_success() && u64::from(len) > size {
            // It completes with the others that are left.
            self.parts += room.into.len().max(1);
            self.given.push_front(room);
            return Err(misbehaved(len.into()));
        }
        self.arrived_ever += 1;
        self.arrived.push_back(Arrived { id: room.id, len, status, immediate });
        Ok(())
    }

    /// Tells the other side of room. Its own it may have at once; shared room goes to those who
    /// have a message for it.
    pub(super) fn give(
        &mut self,
        room: &mut Room<Part<F>>,
        waker: &Waker,
        mut cookie_of: impl FnMut(&Region<F>) -> Result<Cookie, Error>,
        tell: &mut impl FnMut(Element) -> Result<(), Error>,
    ) -> Result<(), Error> {
        while self.parts + MOST_PARTS <= MOST_PARTS_OUT && self.is_wanted(room) {
            let Some(posted) = room.take(waker) else { break };
            self.given_ever += 1;
            self.parts += posted.into.len().max(1);
            self.given.push_back(posted);
            let Some(PostedRoom { into, .. }) = self.given.back() else { break };
            for (nth, part) in (1..).zip(into) {
                let region = part.region();
                let number = match self.numbers.get(&region.name()) {
                    Some(number) => *number,
                    None => {
                        let number = self.next_number;
                        self.next_number = (number + 1) % NAMES;
                        self.numbers.retain(|_, other| *other != number);
                        self.numbers.insert(region.name(), number);
                        tell(Element::Region { number, cookie: cookie_of(region)? })?;
                        number
                    }
                };
                let is_last = nth == into.len();
                tell(Element::Room { region: number, at: part.at(), len: part.len(), is_last })?;
            }
            if into.is_empty() {
                tell(Element::Room { region: 0, at: 0, len: 0, is_last: true })?;
            }
        }
        Ok(())
    }

    fn is_wanted(&self, room: &Room<Part<F>>) -> bool {
        match room {
            Room::Own(_) => true,
            Room::Shared(_) => self.given_ever < self.wanted && self.given.len() < MOST_SHARED,
        }
    }

    /// A region has a new cookie: the other side hears of it when it is used next.
    pub(super) fn forget(&mut self, region: &Region<F>) {
        self.numbers.remove(&region.name());
    }

    /// Room that is not filled.
    pub(super) fn flush(&mut self) -> Vec<u64> {
        self.given.drain(..).map(|room| room.id).collect()
    }
}
