//! [`Driver`]: a [`Loader`] with the engine's receiver.

use landfall_placement::{Instant, Seed};
use spec_defrag::{BufferId, Config, ConfigError, Lend, Packet, Receiver};

use super::loader::{DriverConfig, DriverCounters, Loader};
use super::ram::Ram;
use super::station::Chip;
use crate::machine::Adapter;

/// The driver of a Hamachi, with the engine's receiver.
#[derive(Debug)]
pub struct Driver {
    receiver: Receiver,
    loader: Loader,
}

impl Driver {
    /// A driver, and its engine. Frames that come whole are copied, never lent: their
    /// buffers are the adapter's.
    ///
    /// # Errors
    /// What the engine says of its configuration.
    pub fn new(
        receiver: &Config,
        config: DriverConfig,
        ram: &Ram,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let receiver = Config { lend: Lend::Copy, ..receiver.clone() };
        let receiver = Receiver::new(receiver, ram.areas(), seed)?;
        Ok(Self { receiver, loader: Loader::new(config) })
    }

    /// The engine.
    #[must_use]
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &DriverCounters {
        self.loader.counters()
    }

    /// Does all that adapter and driver have to do now.
    pub fn run<F: Chip>(&mut self, now: Instant, adapter: &mut Adapter<'_, F>, ram: &mut Ram) {
        self.loader.run(now, (adapter, true), &mut self.receiver, ram);
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub const fn handle_timeout(&mut self) {
        self.loader.handle_timeout();
    }

    /// When the engine wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timeout = self.receiver.poll_timeout().filter(|_| !self.loader.is_due());
        timeout.map(|timeout| timeout.at)
    }

    /// The adapter was loaded anew: what it did not report did not come.
    pub fn handle_restart(&mut self) {
        self.loader.handle_restart();
    }

    /// A packet that is whole. Its body is the user's until it is released.
    pub fn poll_packet(&mut self) -> Option<Packet> {
        self.receiver.poll_packet()
    }

    /// A packet that did not become whole in time.
    pub fn poll_expired(&mut self) -> Option<spec_defrag::reassembly::Expired> {
        self.receiver.poll_expired()
    }

    /// A body is needed no longer. False if it was released before.
    pub fn release(&mut self, buffer: BufferId) -> bool {
        self.receiver.release(buffer)
    }
}
