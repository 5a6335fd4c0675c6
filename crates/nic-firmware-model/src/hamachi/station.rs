//! [`Station`]: a host and its Hamachi, joined: the adapter, its [`Driver`] (a [`Loader`] with
//! the engine's receiver) and memory. [`HamachiNode`] is one in a simulated network.

use landfall_placement::{Ecn, Instant, PathId, Peer, Seed, Span};
use landfall_simnet::{Frame, Node, Outbox, PortId};
use spec_defrag::cut::{CutError, Cutter, Df};
use spec_defrag::{BufferId, Config, ConfigError, Lend, Packet, Receiver};

use super::loader::{DriverConfig, DriverCounters, Loader};
use super::ram::Ram;
use crate::firmware::{Arrival, Firmware};
use crate::hamachi::{Command, Entry, Hamachi, Opens, Report, Token, WhenOut};
use crate::machine::{Adapter, Costs, Departure, Full, Parts, Send, Sizes, Store};

/// How much the adapter has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Descriptors of a list.
    pub entries: usize,
    /// Pages that the guesses of a list mean. Without them the adapter does not read
    /// headers.
    pub opens: usize,
}

impl Tables {
    /// A chip with tables of this size.
    #[must_use]
    pub fn chip(self, when_out: WhenOut) -> Hamachi<'static> {
        let entries = Store::filled_with(self.entries, Entry::new);
        if self.opens == 0 {
            return Hamachi::new(entries, when_out);
        }
        let opens = Opens::new(Store::filled_with(self.opens, Opens::blank));
        Hamachi::steering(entries, opens, when_out)
    }
}

/// A firmware that such a driver can use.
pub trait Chip: Firmware<Command = Command, Report = Report, Token = Token> {}

impl<F: Firmware<Command = Command, Report = Report, Token = Token>> Chip for F {}

/// A host with such an adapter, or with one whose firmware is like it.
#[derive(Debug)]
pub struct Station<F: Chip = Hamachi<'static>> {
    adapter: Adapter<'static, F>,
    driver: Driver,
    ram: Ram,
    cutter: Cutter,
    /// Frames that were given to be sent.
    tickets: u64,
}

/// The one link of the adapter.
const LINK: PathId = PathId(0);

impl<F: Chip> Station<F> {
    /// A host that was switched on: its driver has loaded the first list.
    ///
    /// The costs say how long the adapter waits for more frames before it interrupts
    /// (`costs.interrupts`).
    ///
    /// # Errors
    /// What the engine says of its configuration.
    pub fn new(
        chip: F,
        ram: Ram,
        receiver: &Config,
        driver: DriverConfig,
        costs: Costs,
        seed: Seed,
    ) -> Result<Self, ConfigError> {
        let sizes = Sizes { frame: receiver.frame_max, buffers: ram.frame_buffers(), ..SIZES };
        let mut station = Self {
            adapter: Adapter::new(chip, Parts::owned(&sizes), costs),
            driver: Driver::new(receiver, driver, &ram, seed)?,
            ram,
            cutter: Cutter::new(Df::Override, seed),
            tickets: 0,
        };
        station.run(Instant::ZERO);
        Ok(station)
    }

    /// A frame comes off the wire. It is lost where the adapter has no room.
    pub fn arrive(&mut self, now: Instant, bytes: &[u8]) {
        let frame = Arrival { bytes, path: LINK, from: Peer::Unaddressed, ecn: Ecn::NotCapable };
        let _: Result<(), Full> = self.adapter.arrive(now, &frame);
        self.run(now);
    }

    /// The moment of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.driver.poll_timeout().is_some_and(|at| at <= now) {
            self.driver.handle_timeout();
        }
        self.run(now);
    }

    /// Does all that adapter and driver have to do now.
    pub fn run(&mut self, now: Instant) {
        self.ram.set_now(now);
        self.driver.run(now, &mut self.adapter, &mut self.ram);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.adapter.poll_timeout(), self.driver.poll_timeout()].into_iter().flatten().min()
    }

    /// Cuts a packet into frames for this MTU, and has them sent: each from its header and
    /// a part of the body. Returns how many; fewer than all where the adapter had no room.
    ///
    /// # Errors
    /// What is wrong with the packet; nothing was sent.
    pub fn send(
        &mut self,
        now: Instant,
        head: &[u8],
        body: Span,
        mtu: u16,
    ) -> Result<usize, CutError> {
        let mut count = 0;
        for piece in self.cutter.cut(head, body, mtu)? {
            let send = Send {
                path: LINK,
                to: Peer::Unaddressed,
                ecn: Ecn::NotCapable,
                head: &piece.head,
                from: &[piece.payload],
                checksum: None,
                sum_only: 0,
                ticket: self.tickets,
            };
            if self.adapter.send(&send).is_err() {
                break;
            }
            self.tickets += 1;
            count += 1;
        }
        self.run(now);
        Ok(count)
    }

    /// The frame that leaves next.
    #[must_use]
    pub fn departure(&self) -> Option<Departure<'_>> {
        self.adapter.departure()
    }

    /// The wire has it.
    pub fn departed(&mut self) {
        self.adapter.departed();
        // Nobody waits for the memory of what was sent but the user, who knows how many.
        while self.adapter.poll_sent().is_some() {}
    }

    /// A packet that is whole. Its body is the user's until it is released.
    pub fn poll_packet(&mut self) -> Option<Packet> {
        self.driver.poll_packet()
    }

    /// A body is needed no longer. False if it was released before.
    pub fn release(&mut self, now: Instant, buffer: BufferId) -> bool {
        let is_released = self.driver.release(buffer);
        self.run(now);
        is_released
    }

    /// The adapter is loaded anew: all that was under way in it is lost.
    pub fn restart(&mut self, now: Instant) {
        self.adapter.restart();
        self.driver.handle_restart();
        self.run(now);
    }

    /// The adapter.
    #[must_use]
    pub const fn adapter(&self) -> &Adapter<'static, F> {
        &self.adapter
    }

    /// The driver.
    #[must_use]
    pub const fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The engine.
    #[must_use]
    pub const fn receiver(&self) -> &Receiver {
        self.driver.receiver()
    }

    /// The memory.
    #[must_use]
    pub const fn ram(&self) -> &Ram {
        &self.ram
    }

    /// The memory, for the user.
    pub const fn ram_mut(&mut self) -> &mut Ram {
        &mut self.ram
    }
}

/// The FIFOs of the chip hold a few frames, and its rings what a list needs.
const SIZES: Sizes =
    Sizes { arrivals: 8, departures: 24, frame: 0, orders: 256, reports: 1024, buffers: 0 };

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
    pub fn poll_expired(&mut self) -> Option<spec_defrag::conventional::Expired> {
        self.receiver.poll_expired()
    }

    /// A body is needed no longer. False if it was released before.
    pub fn release(&mut self, buffer: BufferId) -> bool {
        self.receiver.release(buffer)
    }
}

/// A host with a Hamachi, on one link.
#[derive(Debug)]
pub struct HamachiNode<F: Chip = Hamachi<'static>> {
    /// The host.
    pub station: Station<F>,
    /// Its link.
    port: PortId,
}

impl<F: Chip> HamachiNode<F> {
    /// This host, on the first link that it gets.
    #[must_use]
    pub const fn new(station: Station<F>) -> Self {
        Self { station, port: PortId(0) }
    }

    /// Frames that are ready leave as the link takes them.
    pub fn transmit(&mut self, now: Instant, out: &mut Outbox<'_>) {
        loop {
            while let Some(departure) = self.station.departure() {
                if !out.has_room(self.port) {
                    return out.call_when_room(self.port);
                }
                out.send(self.port, Frame::raw(departure.bytes));
                self.station.departed();
            }
            // There may be room in the adapter for what waits in the host.
            self.station.run(now);
            if self.station.departure().is_none() {
                return;
            }
        }
    }
}

impl<F: Chip + 'static> Node for HamachiNode<F> {
    fn handle_frame(&mut self, now: Instant, _port: PortId, frame: Frame, out: &mut Outbox<'_>) {
        self.station.arrive(now, &frame.bytes);
        self.transmit(now, out);
    }

    fn handle_room(&mut self, now: Instant, _port: PortId, out: &mut Outbox<'_>) {
        self.transmit(now, out);
    }

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox<'_>) {
        self.station.handle_timeout(now);
        self.transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.station.poll_timeout()
    }
}
