//! What an adapter is made of: its memory, cut into slots and rings.

use super::adapter::{HostOrder, Upcall};
use super::inbound::{About, Inbound};
use super::outbound::Outbound;
use super::requests::Requests;
use super::ring::Ring;
use super::slots::Slots;
use super::sram::{Exhausted, Sram};
use crate::firmware::Firmware;

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
    pub buffers: Slots<'s, About>,
}

#[cfg(feature = "std")]
impl<F: Firmware> Parts<'static, F> {
    /// In memory of its own.
    #[must_use]
    pub fn owned(sizes: &Sizes) -> Self {
        use super::store::Store;
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
