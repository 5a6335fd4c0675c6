//! What an adapter is made of: its memory, cut into slots and rings; and what things cost on
//! it: the one table that a model of an adapter fills in.

use landfall_placement::{Duration, Instant};

use super::adapter::{HostOrder, Upcall};
use super::bridge::BridgeCosts;
use super::dma::BusCosts;
use super::inbound::{Coalescing, FrameInfo, Inbound};
use super::outbound::Outbound;
use super::requests::Requests;
use super::ring::Ring;
use super::slots::{Exhausted, Slots, Sram};
use crate::firmware::{Firmware, Meter, Stage};

/// How many there are of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Slots for frames that came.
    pub arrivals: u16,
    /// Slots for frames to be sent.
    pub departures: u16,
    /// How long a frame may be.
    pub frame: u32,
    /// Commands and frames of the host that wait.
    pub orders: u16,
    /// Reports that wait for the host.
    pub reports: u16,
    /// Buffers of the host for whole frames.
    pub buffers: u16,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { arrivals: 64, departures: 32, frame: 9_216, orders: 256, reports: 512, buffers: 256 }
    }
}

impl Sizes {
    /// Reserves the SRAM for it. Reports and buffers lie in the host's memory.
    ///
    /// # Errors
    /// [`Exhausted`]: what did not fit; what came before it is reserved.
    pub fn reserve(&self, sram: &mut Sram) -> Result<(), Exhausted> {
        sram.reserve("receive slots", usize::from(self.arrivals), self.frame as usize)?;
        sram.reserve("send slots", usize::from(self.departures), self.frame as usize)?;
        sram.reserve("receive descriptors", usize::from(self.arrivals), DESCRIPTOR)?;
        sram.reserve("host orders", usize::from(self.orders), DESCRIPTOR)
    }
}

/// The bytes of a descriptor in SRAM: an address of 64 bits, a length, flags,
/// and what is known of the frame.
const DESCRIPTOR: usize = 32;

/// The storage of an adapter.
#[derive(Debug)]
pub struct Parts<'s, F: Firmware> {
    /// From the wire to the host.
    pub inbound: Inbound<'s, F::Token, F::Report>,
    /// From the host to the wire.
    pub outbound: Outbound<'s>,
    /// What the host wants, in order.
    pub orders: Ring<'s, HostOrder<F::Command>>,
    /// What belongs to these commands, and is fetched before they are obeyed.
    pub requests: Requests<'s>,
    /// What the host was told and has not read.
    pub reports: Ring<'s, Upcall<F::Report>>,
    /// The host's buffers for whole frames.
    pub buffers: Slots<'s, FrameInfo>,
}

#[cfg(feature = "std")]
impl<F: Firmware> Parts<'static, F> {
    /// In memory of its own.
    #[must_use]
    pub fn owned(sizes: &Sizes) -> Self {
        use super::ring::Store;
        use landfall_placement::Spans;

        let (arrivals, departures) = (usize::from(sizes.arrivals), usize::from(sizes.departures));
        let frame = sizes.frame as usize;
        // A place for each slot, and for each answer to a command.
        let queue = Ring::owned(arrivals + usize::from(sizes.orders));
        let inbound = Inbound::new(
            Slots::owned(arrivals, frame),
            Store::filled_with(arrivals, Spans::new),
            Ring::owned(arrivals),
            queue,
        );
        let outbound = Outbound::new(
            Slots::owned(departures, frame),
            Store::filled_with(departures, Spans::new),
            Ring::owned(departures),
            Ring::owned(departures),
        );
        Self {
            inbound,
            outbound,
            orders: Ring::owned(usize::from(sizes.orders)),
            requests: Requests::owned(256, 256),
            reports: Ring::owned(usize::from(sizes.reports)),
            buffers: Slots::owned(usize::from(sizes.buffers), frame),
        }
    }
}

/// What a DMA engine needs beside the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaCosts {
    /// Before the first byte of each piece moves.
    pub setup: Duration,
    /// Bytes in a second; 0: as fast as the bus.
    pub rate: u64,
    /// The least time from the start of one transfer to that of the next, of however
    /// many pieces: 20 µs where an engine does 50,000 packets in a second.
    pub gap: Duration,
}

/// How many DMA engines an adapter has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engines {
    /// One for each direction.
    #[default]
    Two,
    /// One for both.
    One,
}

/// What things cost. All zero: everything happens at the same instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Cycles of the processor in a second; 0: they take no time.
    pub clock: u64,
    /// What a DMA engine needs.
    pub dma: DmaCosts,
    /// How many there are.
    pub engines: Engines,
    /// The bus between adapter and host; every DMA engine waits for it.
    pub bus: BusCosts,
    /// Bytes in a second of the link, where nothing is stored on its way: a frame leaves while
    /// it is still being fetched, and is written to the host while it comes. 0: each is
    /// stored.
    pub cut_through: u64,
    /// What the bridge of the host needs for payloads.
    pub bridge: BridgeCosts,
    /// How many bytes a report has that is written to the host; 0: it comes along
    /// with the last payload, and costs nothing.
    pub report: u32,
    /// When the host is interrupted.
    pub interrupts: Coalescing,
}

impl Costs {
    /// Everything is free, and the host sees every report at once. Only here is
    /// it defined that an adapter is bit-exact.
    pub const OFF: Self = Self {
        clock: 0,
        dma: DmaCosts { setup: Duration::ZERO, rate: 0, gap: Duration::ZERO },
        engines: Engines::Two,
        bus: BusCosts { rate: 0, transaction: Duration::ZERO },
        cut_through: 0,
        bridge: BridgeCosts::NONE,
        report: 0,
        interrupts: Coalescing::Watched,
    };
}

/// How long so much of something takes, where so much is done in a second.
/// What has no rate takes no time.
#[must_use]
#[inline]
pub fn time_of(amount: u64, per_second: u64) -> Duration {
    let nanos = amount.saturating_mul(1_000_000_000).checked_div(per_second);
    Duration::from_nanos(nanos.unwrap_or(0))
}

// The processor of an adapter: one handler at a time, each to its end.

/// Counts cycles, stage by stage, and says when the processor is free.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processor {
    clock: u64,
    free_at: Instant,
    /// Of the handler that runs.
    cycles: u64,
    account: [u64; Stage::ALL.len()],
    handlers: u64,
}

impl Processor {
    /// A processor of this many cycles in a second; 0: they take no time.
    #[must_use]
    pub const fn new(clock: u64) -> Self {
        Self {
            clock,
            free_at: Instant::ZERO,
            cycles: 0,
            account: [0; Stage::ALL.len()],
            handlers: 0,
        }
    }

    /// When it is free for the next handler.
    #[must_use]
    pub const fn free_at(&self) -> Instant {
        self.free_at
    }

    /// A handler begins.
    #[inline]
    pub fn begin(&mut self) -> &mut impl Meter {
        self.cycles = 0;
        self
    }

    /// It ended; says when: now, and the cycles that it spent.
    #[inline]
    pub fn end(&mut self, now: Instant) -> Instant {
        self.handlers += 1;
        self.free_at = now + time_of(self.cycles, self.clock);
        self.free_at
    }

    /// How many cycles were spent in a stage.
    #[must_use]
    pub fn spent(&self, stage: Stage) -> u64 {
        self.account.get(stage as usize).copied().unwrap_or(0)
    }

    /// How many handlers ran.
    #[must_use]
    pub const fn handlers(&self) -> u64 {
        self.handlers
    }

    /// It starts anew; what was counted stays.
    pub fn reset(&mut self) {
        self.free_at = Instant::ZERO;
    }
}

impl Meter for Processor {
    #[inline]
    fn spend(&mut self, stage: Stage, cycles: u32) {
        self.cycles += u64::from(cycles);
        if let Some(spent) = self.account.get_mut(stage as usize) {
            *spent += u64::from(cycles);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_take_time_and_are_kept_apart() {
        let mut processor = Processor::new(100_000_000);
        let now = Instant::from_micros(7);
        let meter = processor.begin();
        meter.spend(Stage::Header, 100);
        meter.spend(Stage::Dma, 50);
        meter.spend(Stage::Header, 50);
        assert_eq!(processor.end(now), Instant::from_micros(9));
        assert_eq!((processor.spent(Stage::Header), processor.spent(Stage::Dma)), (150, 50));
        processor.begin();
        assert_eq!(processor.end(now), now, "nothing was spent");
        assert_eq!(processor.handlers(), 2);
    }
}
