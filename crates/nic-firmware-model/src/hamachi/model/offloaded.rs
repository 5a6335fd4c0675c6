//! The host with an adapter, costs off.

use landfall_placement::Instant;
use spec_defrag::{BufferId, Packet, Receiver};

use super::faulty::{Fault, Faulty};
use super::pair::{Choices, SILENCE};
use super::side::Side;
use crate::hamachi::{Ram, Station};
use crate::machine::{Coalescing, Costs};

/// Driver and adapter.
#[derive(Debug)]
pub struct OffloadedSide {
    station: Station<Faulty>,
}

impl OffloadedSide {
    /// A host that is set up so, with a fault in its adapter or without.
    #[must_use]
    pub fn new(choices: Choices, fault: Option<Fault>) -> Self {
        let (config, ram) = choices.ram();
        let chip = choices.tables().chip(choices.when_out());
        let costs = Costs { interrupts: Self::WAITS, ..Costs::OFF };
        let chip = Faulty::new(chip, fault);
        let station = Station::new(chip, ram, &config, choices.driver(), costs, choices.seed());
        let station = station.unwrap_or_else(|error| panic!("the setups are good ones: {error}"));
        Self { station }
    }

    /// Nothing costs anything, and an interrupt waits for the end of a burst.
    const WAITS: Coalescing = Coalescing::After { time: SILENCE, reports: u32::MAX };

    /// The host.
    #[must_use]
    pub const fn station(&self) -> &Station<Faulty> {
        &self.station
    }
}

impl Side for OffloadedSide {
    fn frame(&mut self, now: Instant, bytes: &[u8]) {
        self.station.arrive(now, bytes);
    }

    fn silence(&mut self, now: Instant) {
        self.station.run(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.station.handle_timeout(now);
    }

    fn poll_packet(&mut self) -> Option<Packet> {
        self.station.poll_packet()
    }

    fn release(&mut self, now: Instant, buffer: BufferId) -> bool {
        self.station.release(now, buffer)
    }

    fn receiver(&self) -> &Receiver {
        self.station.receiver()
    }

    fn ram(&self) -> &Ram {
        self.station.ram()
    }

    fn ram_mut(&mut self) -> &mut Ram {
        self.station.ram_mut()
    }

    fn lost(&self) -> u64 {
        let adapter = self.station.adapter();
        adapter.firmware().inner().counters().lost + adapter.counters().no_buffer
    }
}
