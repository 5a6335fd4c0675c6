//! [`BigMtuBuilder`]: everything that can be chosen about an interface.

use std::net::IpAddr;
use std::sync::Arc;
use std::{fmt, io};

use landfall_placement::{Duration, Seed};
use landfall_transport::packet::Filter;
use landfall_transport::tap::{TapConfig, open_frames};
use spec_defrag::cut::Df;
use spec_defrag::{Prediction, conventional};

use super::super::receiver::Receiver;
use super::super::sender::{CutBy, Fate, Hook, Sender};
use super::super::technique::{Delivery, Technique, Wanted};
use super::down::Down;
use super::lower::{InterfaceGuard, in_use};
use super::up::{Done, Up};
use super::{BigMtu, BigMtuError, InterfaceState, MTU_MAX, MTU_MIN, ReportTimer};
use crate::runtime::{Signal, Worker};

/// Chooses what an interface is like, then starts it.
#[must_use = "nothing happens until it is started"]
pub struct BigMtuBuilder {
    lower: String,
    name: String,
    mtu: u32,
    address: Option<(IpAddr, u8)>,
    technique: Technique,
    prediction: Prediction,
    lifetime: Duration,
    hook: Option<Box<Hook>>,
    seed: Option<Seed>,
}

/// What an Ethernet link carries at least (RFC 8200, section 5: IPv6 needs it).
const LOWER_MTU_MIN: u16 = 1280;

impl BigMtuBuilder {
    pub(super) fn new(lower: String) -> Self {
        Self {
            lower,
            name: String::new(),
            mtu: MTU_MAX,
            address: None,
            technique: Technique::Packet,
            prediction: Prediction::default(),
            lifetime: Duration::from_millis(100),
            hook: None,
            seed: None,
        }
    }

    /// The name of the interface. Without this the kernel chooses one.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Its MTU: [`MTU_MIN`] to [`MTU_MAX`], which is what it has without this.
    pub const fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Gives it this address, in a subnet with a prefix of this length.
    pub const fn address(mut self, address: IpAddr, prefix: u8) -> Self {
        self.address = Some((address, prefix));
        self
    }

    /// How frames come in: by [`Technique::Packet`] unless you choose otherwise. A
    /// ring costs less CPU, but hands a lone frame over only after a millisecond.
    pub const fn technique(mut self, technique: Technique) -> Self {
        self.technique = technique;
        self
    }

    /// How it is guessed what comes next: learned unless you choose otherwise.
    pub const fn prediction(mut self, prediction: Prediction) -> Self {
        self.prediction = prediction;
        self
    }

    /// How long the pieces of a packet wait for the rest: 100 ms unless you choose
    /// otherwise. See the [module](super) for why so short.
    pub const fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Decides what becomes of each frame to the link below, by its head and by how
    /// much follows: for tests, and to show what loss does.
    pub fn fate(mut self, hook: impl FnMut(&[u8], u32) -> Fate + Send + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// What determines all that strangers must not guess: for tests. Without this
    /// the operating system chooses.
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Makes the interface, up, in the network namespace of this thread, and starts
    /// the two threads that move its packets.
    ///
    /// # Errors
    /// [`BigMtuError`] says what is missing, and what would help. Nothing is left
    /// behind then.
    pub fn start(mut self) -> Result<BigMtu, BigMtuError> {
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(BigMtuError::Mtu(self.mtu));
        }
        if let Some(what) = in_use(&self.lower) {
            return Err(BigMtuError::LowerInUse { lower: self.lower, what });
        }
        let sender = self.open_sender()?;
        let (station, lower_mtu) = (sender.station(), sender.mtu());
        if !(u32::from(LOWER_MTU_MIN)..self.mtu).contains(&lower_mtu.into()) {
            let (mtu, above) = (lower_mtu.into(), self.mtu);
            return Err(BigMtuError::NothingToDo { lower: self.lower, mtu, above });
        }
        let receiver = self.open_receiver(station)?;
        let chosen = receiver.chosen().clone();
        let shield = InterfaceGuard::raise(&self.lower)?;
        let config = TapConfig {
            mtu: Some(self.mtu),
            kernel_station: Some(station),
            kernel_address: self.address,
            ..TapConfig::new(self.name)
        };
        let (from_kernel, tap) = open_frames(&config, &sender.parts.regions)?;
        let (name, mtu) = (from_kernel.name().to_owned(), from_kernel.mtu());
        let shared = Arc::new(InterfaceState::default());
        let pace = receiver.pace();
        let down = Down::new(from_kernel, sender, &shared)?;
        let (done, told) = (Done::default(), ReportTimer::default());
        let (lower, theirs) = (self.lower, Arc::clone(&shared));
        let up = Up { receiver, lower, tap, _shield: shield, done, told, shared: theirs };
        let workers = Vec::new();
        let mut big = BigMtu { name, mtu, lower_mtu, station, chosen, shared, workers };
        big.start(|signal| Worker::start("bigmtu-up", signal, pace, up, Up::finish))?;
        big.start(|signal| Worker::start("bigmtu-down", signal, pace, down, Down::finish))?;
        Ok(big)
    }

    fn open_sender(&mut self) -> Result<Sender, BigMtuError> {
        let mut builder =
            Sender::builder(self.lower.as_str()).dont_fragment(Df::Override).cut_by(CutBy::Sender);
        if let Some(hook) = self.hook.take() {
            builder = builder.fate(hook);
        }
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        Ok(builder.open()?)
    }

    fn open_receiver(&self, station: [u8; 6]) -> Result<Receiver, BigMtuError> {
        /// A page is a multiple of this.
        const PAGE: u32 = 4096;
        // The headers are not in it; a packet of a page fits all the more.
        let page_len = self.mtu.next_multiple_of(PAGE);
        let config = conventional::Config {
            lifetime: self.lifetime,
            bytes_per_source: 16 << 20,
            ..conventional::Config::default()
        };
        let mut builder = Receiver::builder(self.lower.as_str())
            .technique(self.technique)
            .delivery(Delivery::FastBuffers)
            .wanted(Wanted::Ip)
            .filter(Filter::any().station_and_groups(station))
            .pages(512, page_len)
            .prediction(self.prediction)
            .reassembly(config)
            // The protocols above tell, where they want to; a link does not.
            .answers(false)
            .wait(landfall_transport::Wait::Block);
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        Ok(builder.open()?)
    }
}

impl BigMtu {
    fn start(
        &mut self,
        start: impl FnOnce(&Arc<Signal>) -> io::Result<Worker>,
    ) -> Result<(), BigMtuError> {
        let worker = Signal::new().and_then(|signal| start(&signal));
        self.workers.push(worker.map_err(BigMtuError::Thread)?);
        Ok(())
    }
}

impl fmt::Debug for BigMtuBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BigMtuBuilder")
            .field("lower", &self.lower)
            .field("name", &self.name)
            .field("mtu", &self.mtu)
            .finish_non_exhaustive()
    }
}
