//! Loss, duplication, reordering, corruption and delay around any driver, by seed.
//!
//! The faults happen on the sending side, unit by unit, before the driver
//! makes batches of them: the receive path under test is the real one. Loss
//! can also be injected where the receiver asks for a place.
//!
//! A wrapped path does not offer segmentation by the device, so that a fault
//! hits one unit and not forty.

mod layer;

use std::collections::VecDeque;
use std::io;

use landfall_placement::{Duration, Engine, Instant, PathLimits, Random, RegionId, Seed};

use crate::capability::{Capabilities, Feature};
use crate::driver::{Descriptors, Driver, DriverState, Interests, Progress};
use crate::exchange::Originals;
use crate::memory::{LendRefusal, Memory, Pins, Regions, Rights};
use layer::{Held, Layer};

/// What goes wrong, and how often. Probabilities are in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Units that never leave.
    pub loss: u32,
    /// Units that leave twice.
    pub duplication: u32,
    /// Units that leave after some of their successors.
    pub reordering: u32,
    /// Units in which one bit is flipped.
    pub corruption: u32,
    /// How long every unit waits before it leaves.
    pub delay: Duration,
    /// Units that arrive and are thrown away before they get a place.
    pub loss_at_place: u32,
}

impl Faults {
    /// This share of units, in parts per million, is lost.
    #[must_use]
    pub const fn loss(parts_per_million: u32) -> Self {
        Self {
            loss: parts_per_million,
            duplication: 0,
            reordering: 0,
            corruption: 0,
            delay: Duration::ZERO,
            loss_at_place: 0,
        }
    }
}

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Units that came from the engine.
    pub units: u64,
    /// Units that never left.
    pub lost: u64,
    /// Units that left twice.
    pub duplicated: u64,
    /// Units that left later than their successors.
    pub reordered: u64,
    /// Units with a flipped bit.
    pub corrupted: u64,
    /// Units that had to wait.
    pub delayed: u64,
    /// Units that arrived and were thrown away.
    pub lost_at_place: u64,
}

/// This many units are held back at most; at the bound they leave at once.
const MAX_HELD: usize = 4096;
/// This many corrupted payloads are under way at most; at the bound heads are corrupted instead.
const SCRATCH_SLOTS: usize = 16;

/// What the wrapper remembers from turn to turn.
#[derive(Debug)]
pub(crate) struct State {
    faults: Faults,
    random: Random,
    counts: FaultCounts,
    held: VecDeque<Held>,
    /// Units that left, to measure how late a held one is.
    passed: u64,
    /// With the scratch slot that holds a corrupted payload.
    originals: Originals<Option<u32>>,
    /// Where payloads are corrupted: the application's memory stays as it is.
    scratch: RegionId,
    scratch_free: Vec<u32>,
    unit: u32,
    pins: Pins,
}

/// A driver on whose path things go wrong.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    state: State,
    capabilities: Capabilities,
    /// Last, so that the driver inside holds it no longer when it is dropped.
    _scratch: Scratch,
}

/// A region that is taken back when it is dropped.
#[derive(Debug)]
struct Scratch {
    regions: Regions,
    region: RegionId,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If the kernel still sends from it, it stays until the table goes.
        let _ = self.regions.try_take_back(self.region);
    }
}

impl<D: Driver> Faulty<D> {
    /// Wraps a driver that uses these regions.
    ///
    /// # Errors
    /// The region table has no room for the wrapper's own scratch region.
    pub fn new(
        inner: D,
        faults: Faults,
        seed: Seed,
        regions: &Regions,
    ) -> Result<Self, LendRefusal> {
        let unit = inner.limits().unit;
        let memory = Memory::zeroed(SCRATCH_SLOTS * unit as usize);
        let scratch =
            regions.lend(memory, Rights::READ | Rights::WRITE).map_err(|error| error.why)?;
        let mut capabilities = inner.capabilities().clone();
        if capabilities.has(Feature::TcpSegmentation) {
            capabilities.lack(Feature::TcpSegmentation, "faults hit single units");
        }
        let state = State {
            faults,
            random: Random::new(seed),
            counts: FaultCounts::default(),
            held: VecDeque::new(),
            passed: 0,
            originals: Originals::default(),
            scratch,
            scratch_free: (0..SCRATCH_SLOTS as u32).collect(),
            unit,
            pins: Pins::new(regions),
        };
        let _scratch = Scratch { regions: regions.clone(), region: scratch };
        Ok(Self { inner, state, capabilities, _scratch })
    }

    /// What went wrong so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.state.counts
    }

    /// Other faults from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.state.faults = faults;
    }

    /// The driver inside.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: Driver> Driver for Faulty<D> {
    fn state(&self) -> &DriverState {
        self.inner.state()
    }

    fn state_mut(&mut self) -> &mut DriverState {
        self.inner.state_mut()
    }

    fn limits(&self) -> PathLimits {
        let mut limits = self.inner.limits();
        limits.super_unit = limits.unit;
        limits.segments = 1;
        limits.offloads.segment_tcp4 = false;
        limits.offloads.segment_tcp6 = false;
        limits
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn faults(&self) -> Option<FaultCounts> {
        Some(self.state.counts)
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        let progress = self.inner.turn(&mut Layer { engine, state: &mut self.state }, now);
        self.state.pins.release();
        progress
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }

    fn interests(&self) -> Interests {
        self.inner.interests()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.inner.descriptors()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let held = self.state.held.iter().map(|held| held.due).min();
        [self.inner.poll_timeout(), held].into_iter().flatten().min()
    }
}
