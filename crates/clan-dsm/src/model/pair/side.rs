//! One of the two hosts: an adapter, its memory, and the naive model of both.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Display;

use landfall_placement::{
    Area, Engine, Instant, PathId, PathLimits, PathState, Random, RegionId, Ticket, WordFunction,
};
use landfall_testkit::model::Memory;

use super::ledger::{Ledger, Shadow};
use crate::address::HostId;
use crate::config::Config;
use crate::cookie::Cookie;
use crate::cookie::{Access, Rights};
use crate::ids::{
    ApertureId, BarrierId, DmaId, EndpointId, LinkId, OperationId, ReadId, TripwireId, WindowId,
    WriteId,
};
use crate::model::naive;
use crate::model::naive::{NaiveHost, NaiveWire};
use crate::nic::Nic;
use crate::offload::Action;

/// Regions of a side: what others write, what is sent from, what is read into.
pub(super) const SHARED: RegionId = RegionId::new(0, 0);
pub(super) const SOURCE: RegionId = RegionId::new(1, 0);
pub(super) const TARGET: RegionId = RegionId::new(2, 0);

/// Sizes of the other two regions.
pub(super) const SOURCE_LEN: usize = 16 << 10;
const TARGET_LEN: usize = 64 << 10;

/// How many tripwires are set in one run at most: the queue of names has room.
const MOST_WIRES: usize = 100;

/// How many orders there are: the program's, and one for each DMA queue.
pub(super) const LANES: usize = 3;

/// An aperture. Each is written in one order only.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) id: ApertureId,
    pub(super) area: Area,
    pub(super) cookie: Cookie,
    pub(super) is_gone: bool,
    pub(super) lane: usize,
}

/// A window onto an aperture of the other side, of the same number.
#[derive(Clone, Debug)]
pub(super) struct Onto {
    pub(super) window: WindowId,
    pub(super) shadow: Shadow,
}

/// What this side waits for, and what must be so when it comes.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) reads: Vec<(ReadId, u64, usize, u64, Area)>,
    /// The word's old value, if it is known.
    pub(super) words: Vec<(OperationId, Option<u64>)>,
    pub(super) barriers: Vec<(BarrierId, u64)>,
    pub(super) writes: Vec<(WriteId, u64)>,
    pub(super) chains: Vec<(DmaId, u64, u64)>,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty()
            && self.words.is_empty()
            && self.barriers.is_empty()
            && self.writes.is_empty()
            && self.chains.is_empty()
    }
}

pub(super) struct Side {
    pub(super) number: usize,
    pub(super) nic: Nic,
    pub(super) memory: Memory,
    pub(super) shown: Vec<Shown>,
    pub(super) onto: Vec<Onto>,
    pub(super) naive: NaiveHost,
    pub(super) wires: Vec<TripwireId>,
    /// Tripwires that hear of reads: only their counts are compared.
    pub(super) endpoints: Vec<EndpointId>,
    pub(super) link: Option<LinkId>,
    /// What this side wrote to the other, in each order.
    pub(super) lanes: [Ledger; LANES],
    pub(super) pending: Pending,
    pub(super) serial: u64,
    /// What the driver has not let go yet.
    pub(super) held: VecDeque<Ticket>,
    pub(super) exceptions: usize,
    target_used: usize,
    pub(super) failures: Vec<String>,
}

impl Side {
    pub(super) fn new(number: usize, config: Config, limits: PathLimits, lens: &[usize]) -> Self {
        let host = HostId::new(number as u16 + 1).unwrap_or_default();
        let mut random = Random::from_number(number as u64 + 77);
        let source = (0..SOURCE_LEN).map(|at| source_byte(number, at)).collect();
        let mut memory = Memory::new();
        let lent = [Vec::new(), source, vec![0; TARGET_LEN]].map(|bytes| memory.lend(bytes));
        debug_assert_eq!(lent, [SHARED, SOURCE, TARGET]);
        let mut side = Self {
            number,
            nic: Nic::new(config, host, random.fork()),
            memory,
            shown: Vec::new(),
            onto: Vec::new(),
            naive: NaiveHost::default(),
            wires: Vec::new(),
            endpoints: Vec::new(),
            link: None,
            lanes: Default::default(),
            pending: Pending::default(),
            serial: 0,
            held: VecDeque::new(),
            exceptions: 0,
            target_used: 0,
            failures: Vec::new(),
        };
        side.nic.handle_path(Instant::ZERO, PathId(0), PathState::Up(limits));
        for _ in 1..LANES {
            match side.nic.open_endpoint(None) {
                Ok(endpoint) => side.endpoints.push(endpoint),
                Err(error) => side.fail(format!("no endpoint: {error}")),
            }
        }
        for (n, len) in lens.iter().enumerate() {
            side.show(*len, n.saturating_sub(lens.len() - LANES));
        }
        side
    }

    pub(super) fn fail(&mut self, what: impl Display) {
        self.failures.push(format!("side {}: {what}", self.number));
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    // ---- Memory --------------------------------------------------------------

    fn shared_len(&self) -> usize {
        self.memory.region(SHARED).map_or(0, <[u8]>::len)
    }

    fn show(&mut self, len: usize, lane: usize) {
        // Nothing lies right behind it.
        let offset = self.shared_len().next_multiple_of(8) + 8;
        self.memory.grow(SHARED, offset + len);
        let area = Area::new(SHARED, offset as u64, len as u64);
        let id = match self.nic.expose(area) {
            Ok(id) => id,
            Err(error) => return self.fail(format!("no aperture: {error}")),
        };
        self.naive.expose(id.index() as u16, len);
        match self.nic.cookie(id, Rights::ReadWrite) {
            Ok(cookie) => self.shown.push(Shown { id, area, cookie, is_gone: false, lane }),
            Err(error) => self.fail(format!("no cookie: {error}")),
        }
    }

    /// Ends the rights to an aperture, and shows another one that is as long.
    pub(super) fn replace(&mut self, which: usize) {
        if self.shared_len() > 1 << 18 {
            return;
        }
        let old = self.shown[which].clone();
        if let Err(error) = self.nic.revoke(old.id) {
            return self.fail(format!("cannot revoke: {error}"));
        }
        self.compare(which);
        self.naive.revoke(old.id.index() as u16);
        self.shown[which].is_gone = true;
        self.show(old.area.len as usize, old.lane);
    }

    /// Opens windows onto all that the other side shows and that has none yet.
    pub(super) fn map(&mut self, shown: &[Shown]) {
        for one in &shown[self.onto.len()..] {
            match self.nic.map(&one.cookie) {
                Ok(window) => {
                    let shadow = Shadow::new(one.area.len as usize);
                    self.onto.push(Onto { window, shadow });
                }
                Err(error) => return self.fail(format!("no window: {error}")),
            }
        }
    }

    /// Memory to read into.
    pub(super) fn target(&mut self, len: usize) -> Area {
        if self.target_used + len > TARGET_LEN || self.pending.reads.is_empty() {
            self.target_used = 0;
        }
        let area = Area::new(TARGET, self.target_used as u64, len as u64);
        self.target_used += len;
        area
    }

    // ---- Tripwires -----------------------------------------------------------

    pub(super) fn watch(&mut self, which: usize, from: u64, to: u64, once: bool, action: Action) {
        let id = self.shown[which].id;
        if self.wires.len() >= MOST_WIRES || self.shown[which].is_gone {
            return;
        }
        match self.nic.watch(id, from..to, Access::Write, action, once) {
            Ok(tripwire) => {
                let (name, slot) = (tripwire.raw(), id.index() as u16);
                let mut wire = NaiveWire::new(name, slot, from, to, Access::Write);
                (wire.once, wire.queues) = (once, action == Action::Identifier);
                self.naive.watch(wire);
                self.wires.push(tripwire);
            }
            Err(error) => self.fail(format!("no tripwire: {error}")),
        }
    }

    pub(super) fn change_wire(&mut self, which: usize, how: u8) {
        if self.wires.is_empty() {
            return;
        }
        let id = self.wires[which % self.wires.len()];
        let changed = naive::change(&mut self.nic, &mut self.naive, id, how);
        changed.unwrap_or_else(|what| self.fail(what));
    }

    pub(super) fn pop(&mut self) -> bool {
        let popped = naive::pop(&mut self.nic, &mut self.naive);
        popped.unwrap_or_else(|what| {
            self.fail(what);
            false
        })
    }

    // ---- At the end ----------------------------------------------------------

    /// The memory of an aperture, and what watches it, are as in the naive model.
    pub(super) fn compare(&mut self, which: usize) {
        let Shown { id, area, is_gone, .. } = self.shown[which];
        if is_gone {
            return;
        }
        let bytes = self.memory.area(&area);
        if bytes.is_none() || self.naive.bytes(id.index() as u16) != bytes {
            self.fail(format!("the bytes of {id} differ"));
        }
    }

    pub(super) fn compare_all(&mut self) {
        (0..self.shown.len()).for_each(|which| self.compare(which));
        for id in self.wires.clone() {
            let compared = naive::compare(&mut self.nic, &self.naive, id);
            compared.unwrap_or_else(|what| self.fail(what));
        }
        while self.pop() {}
    }
}

/// What is sent from: neighbours differ, and both sides do.
const fn source_byte(side: usize, at: usize) -> u8 {
    let mixed = (at as u32 + 1).wrapping_add((side as u32) << 20).wrapping_mul(0x9e37_79b1);
    (mixed >> 24) as u8
}

/// How an operation touches its word.
pub(super) const fn touches(function: WordFunction) -> Access {
    match function {
        WordFunction::Load => Access::Read,
        WordFunction::Store(_) => Access::Write,
        _ => Access::Both,
    }
}
