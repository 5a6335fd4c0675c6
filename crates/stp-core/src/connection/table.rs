//! Finding connections.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use landfall_placement::{Instant, Random, assumed};
use landfall_tables::{IndexedHeap, KeyIndex, Table};

use super::{Admission, Connection};
use crate::region::Remote;
use crate::ticket::Step;

/// Every connection, and the ways to find one.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) table: Table<Connection>,
    pub(crate) keys: KeyIndex,
    /// By link and the key of the other side: the same request again finds the
    /// connection that it made.
    pub(crate) by_remote: BTreeMap<(u32, u32), u32>,
    /// Those that we open from a port that was chosen: by link and both ports,
    /// so that a request from there meets ours.
    pub(crate) opening: BTreeMap<(u32, u16, u16), u32>,
    /// Those that we open and that nobody has answered, whatever their ports.
    pub(crate) unanswered: Vec<u32>,
    /// Those that came in and have not proved that they hear us, oldest first.
    pub(crate) half_open: VecDeque<(u32, u32)>,
    /// Those that are being closed and of which something has ended.
    pub(crate) ending: Vec<u32>,
    pub(crate) listeners: BTreeMap<u16, Admission>,
    pub(crate) timers: IndexedHeap<Instant>,
    pub(crate) next_port: u16,
}

impl Connections {
    pub(crate) fn new(limit: usize, random: &mut Random) -> Self {
        Self {
            table: Table::new(limit),
            keys: KeyIndex::default(),
            by_remote: BTreeMap::new(),
            opening: BTreeMap::new(),
            unanswered: Vec::new(),
            half_open: VecDeque::new(),
            ending: Vec::new(),
            listeners: BTreeMap::new(),
            timers: IndexedHeap::new(),
            // Who guesses ports shall not know where to begin (RFC 6056).
            next_port: random.next_u32() as u16,
        }
    }

    /// A key that no connection has.
    pub(crate) fn draw_key(&self, random: &mut Random) -> u32 {
        loop {
            let key = random.next_u32();
            if key != 0 && self.keys.get(key).is_none() {
                return key;
            }
        }
    }

    /// A port for a connection whose user chose none: from the upper half.
    pub(crate) const fn draw_port(&mut self) -> u16 {
        self.next_port = self.next_port.wrapping_add(1);
        self.next_port | 0x8000
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Connection> {
        self.table.get(index)
    }

    /// One that is known to be there: a connection stays while something of it is left.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed(&self, index: u32) -> Option<&Connection> {
        assumed(self.table.get(index), "a connection stays while something of it is left")
    }

    /// The same, to change it.
    #[inline]
    #[track_caller]
    pub(crate) fn assumed_mut(&mut self, index: u32) -> Option<&mut Connection> {
        assumed(self.table.get_mut(index), "a connection stays while something of it is left")
    }

    /// The connection that a driver is at a Put or FetchOp of, if it still is the same.
    #[inline]
    pub(crate) fn of_step(&mut self, step: Step) -> Option<&mut Connection> {
        let is_same = step.is_of(self.table.generation(step.connection));
        self.table.get_mut(step.connection).filter(|_| is_same)
    }

    /// What a connection has to do with memory of the other side.
    pub(crate) fn remote_of(&self, index: u32) -> Option<&Remote> {
        self.get(index)?.remote.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.table.get_mut(index)
    }
}
