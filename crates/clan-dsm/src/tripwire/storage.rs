//! The memory of the tables that the seam works on. It grows with what is
//! registered, up to the configured bound, and only here.

use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::Random;

use crate::address::TripwireId;
use crate::offload::{
    Actions, Cell, Ends, Filter, ListNode, Map, Needs, Queued, Secret, TableTotals, Tables, Wire,
};

/// Storage for tripwires.
#[derive(Debug)]
pub(super) struct Storage {
    /// The most tripwires.
    most: usize,
    wires: Vec<Wire>,
    knots: Vec<ListNode>,
    lists: Hashed<Ends>,
    marks: Hashed<u64>,
    trees: Hashed<u128>,
    totals: TableTotals,
    names: Vec<TripwireId>,
    queued: Queued,
    bits: Vec<u64>,
    counters: Vec<u64>,
    secret: Secret,
}

/// Every tripwire has a bit, a counter and a name in the queue, if it wants one.
pub(crate) const MOST: usize = 1 << 24;

impl Storage {
    pub(super) fn new(most: usize, random: &mut Random) -> Self {
        debug_assert!((1..=MOST).contains(&most), "the configuration is validated");
        Self {
            most,
            wires: Vec::new(),
            knots: Vec::new(),
            lists: Hashed::new(),
            marks: Hashed::new(),
            trees: Hashed::new(),
            totals: TableTotals::default(),
            names: Vec::new(),
            queued: Queued::default(),
            bits: Vec::new(),
            counters: Vec::new(),
            secret: Secret::new(random),
        }
    }

    /// The tables, to be worked on.
    #[inline]
    pub(super) fn lend(&mut self) -> Tables<'_> {
        Tables {
            wires: &mut self.wires,
            knots: &mut self.knots,
            lists: self.lists.lend(self.secret),
            marks: self.marks.lend(self.secret),
            trees: self.trees.lend(self.secret),
            totals: &mut self.totals,
            actions: Actions {
                names: &mut self.names,
                queued: &mut self.queued,
                bits: &mut self.bits,
                counters: &mut self.counters,
            },
        }
    }

    /// What of them says what is armed.
    #[inline]
    pub(super) fn filter(&self) -> Filter<'_> {
        Filter::new(&self.marks.cells, &self.trees.cells, &self.totals, self.secret)
    }

    /// The most tripwires.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Makes room to register one more. `false` at the bound.
    pub(super) fn make_room(&mut self, needs: &Needs) -> bool {
        if self.totals.wires_in_use() >= self.most {
            return false;
        }
        if self.totals.wires_in_use() == self.wires.len() {
            let len = (self.wires.len() * 2).clamp(16, self.most.max(16));
            self.wires.resize(len, Wire::default());
        }
        let knots = self.totals.knots_in_use() + needs.knots;
        if knots > self.knots.len() {
            self.knots.resize(knots.next_power_of_two(), ListNode::default());
        }
        true
    }

    /// Makes room to arm one more.
    pub(super) fn make_room_to_arm(&mut self, needs: &Needs) {
        self.lists.make_room(needs.lists, self.secret);
        self.marks.make_room(needs.pages, self.secret);
        self.trees.make_room(needs.pages, self.secret);
    }

    /// Makes room for the name of one more tripwire in the queue of names.
    pub(super) fn make_room_for_names(&mut self, len: usize) {
        if self.names.is_empty() {
            self.names.resize(len, TripwireId::new(0, 0));
        }
    }

    /// Makes room for this bit. `false` where there are not as many.
    pub(super) fn make_room_for_bit(&mut self, number: u32) -> bool {
        grow(&mut self.bits, number as usize / 64, self.most.div_ceil(64))
    }

    /// Makes room for this counter. `false` where there are not as many.
    pub(super) fn make_room_for_counter(&mut self, number: u32) -> bool {
        grow(&mut self.counters, number as usize, self.most)
    }

    pub(super) fn bits(&mut self) -> &mut [u64] {
        &mut self.bits
    }

    pub(super) fn counters(&self) -> &[u64] {
        &self.counters
    }
}

fn grow(numbers: &mut Vec<u64>, index: usize, most: usize) -> bool {
    if index >= most {
        return false;
    }
    if index >= numbers.len() {
        numbers.resize((index + 1).next_power_of_two().min(most), 0);
    }
    true
}

/// Storage of a [`Map`].
#[derive(Debug)]
struct Hashed<V> {
    cells: Vec<Cell<V>>,
    used: u32,
}

impl<V: Copy + Default> Hashed<V> {
    const fn new() -> Self {
        Self { cells: Vec::new(), used: 0 }
    }

    #[inline]
    fn lend(&mut self, secret: Secret) -> Map<'_, V> {
        Map::new(&mut self.cells, &mut self.used, secret)
    }

    /// Few enough cells stay taken that a search takes few steps.
    fn make_room(&mut self, more: usize, secret: Secret) {
        let wanted = (self.used as usize + more) * 8 / 5 + 1;
        if wanted <= self.cells.len() {
            return;
        }
        let larger = vec![Cell::default(); wanted.next_power_of_two().max(16)];
        let old = core::mem::replace(&mut self.cells, larger);
        self.used = 0;
        let mut map = self.lend(secret);
        for (key, value) in old.into_iter().filter_map(Cell::entry) {
            if let Some(entry) = map.entry(key) {
                *entry = value;
            }
        }
    }
}
