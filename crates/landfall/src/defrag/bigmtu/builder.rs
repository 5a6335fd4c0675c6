//! [`BigMtuBuilder`]: everything that can be chosen about an interface.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use landfall_inet::ethernet;
use landfall_placement::{Duration, Random, Seed};
use landfall_transport::packet::Filter;
use landfall_transport::redirect::Redirect;
use landfall_transport::tap::{Sums, TapConfig, open_headed_frames};
use spec_defrag::admission::{GateConfig, RequesterConfig};
use spec_defrag::cut::Df;
use spec_defrag::{Prediction, conventional};

use super::super::asking::Control;
use super::super::builder::seed_of_the_system;
use super::super::receiver::Receiver;
use super::super::sender::{Fate, Hook, Sender};
use super::super::technique::{Delivery, Technique, Wanted};
use super::admission::Admission;
use super::control::ControlSocket;
use super::down::{AdmissionParts, Down};
use super::lower::{InterfaceGuard, in_use};
use super::up::{Done, Up};
use super::{BigMtu, BigMtuError, InterfaceState, Link, MTU_MAX, MTU_MIN, ReportTimer, TcpMode};
use crate::runtime::{Signal, Worker};
use crate::security::{Identity, KnownPeers, Security};

/// Chooses what an interface is like, then starts it.
#[must_use = "nothing happens until it is started"]
pub struct BigMtuBuilder {
    lower: String,
    name: String,
    mtu: u32,
    address: Option<(IpAddr, u8)>,
    tcp: TcpMode,
    technique: Technique,
    prediction: Prediction,
    lifetime: Duration,
    admission: Option<(GateConfig, RequesterConfig)>,
    security: Security,
    control: Option<PathBuf>,
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
            tcp: TcpMode::default(),
            technique: Technique::Packet,
            prediction: Prediction::default(),
            lifetime: Duration::from_millis(100),
            admission: None,
            security: Security::default(),
            control: None,
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

    /// How TCP crosses the link: as segments that fit its frames, unless you choose otherwise.
    pub const fn tcp(mut self, mode: TcpMode) -> Self {
        self.tcp = mode;
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

    /// Asks each station before much is sent to it in packets that are cut, and lets one station at
    /// a time send them fast to this one (section 4.2 of the paper: the sockets above know nothing
    /// of it). With [`TcpMode::Segments`] TCP is not cut, and not asked for. Requests and answers are
    /// encrypted, unless [`plaintext`](Self::plaintext) says otherwise; the other ends must be built
    /// so, too, or have no admission control.
    pub const fn admission(self) -> Self {
        /// The addresses are filled in.
        const NOBODY: [u8; 6] = [0; 6];
        self.admission_with(GateConfig::new(NOBODY), RequesterConfig::new(NOBODY, NOBODY))
    }

    /// The same with all that can be chosen, but for addresses.
    pub const fn admission_with(mut self, gate: GateConfig, requests: RequesterConfig) -> Self {
        self.admission = Some((gate, requests));
        self
    }

    /// Asks and answers in clear: anyone who is on the link may ask and answer in the place of
    /// others.
    pub const fn plaintext(mut self) -> Self {
        self.security.is_plain = true;
        self
    }

    /// All ends prove that they have these 32 random bytes, and nothing else. Without this each
    /// has [the identity of its user](Identity::of_user).
    pub fn preshared_key(mut self, key: [u8; 32]) -> Self {
        self.security.set_preshared_key(key);
        self
    }

    /// Proves itself with this identity.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.security.set_identity(identity);
        self
    }

    /// Where the other ends are remembered, with the keys that they showed first.
    pub fn known_peers(mut self, known: KnownPeers) -> Self {
        self.security.set_known_peers(known);
        self
    }

    /// A socket of Unix at this path, by which programs ask for a fast stream themselves: a line
    /// `ask 10.9.0.2` or `ask 02:00:00:00:00:01`, and each line that comes back says how it stands
    /// (`asked`, `fast`, `slow`, `slow 2`, `no gate`), for as long as the connection is open.
    pub fn control_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.control = Some(path.into());
        self
    }

    /// Decides what becomes of each frame to the link below that the kernel does not pass by
    /// itself, by its head and by how much follows: for tests, and to show what loss does.
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
        let shield = InterfaceGuard::raise(&self.lower)?;
        let config = TapConfig {
            mtu: Some(self.mtu),
            kernel_station: Some(station),
            kernel_address: self.address,
            ..TapConfig::new(self.name.as_str())
        };
        let sums = match self.tcp {
            // The kernel finishes those of datagrams while it cuts them.
            TcpMode::Segments => Sums::Unfinished,
            TcpMode::Fragments => Sums::Finished,
        };
        let (from_kernel, tap) = open_headed_frames(&config, sums, &sender.parts.regions)?;
        let (name, mtu) = (from_kernel.name().to_owned(), from_kernel.mtu());
        let redirect = match self.tcp {
            // Where the kernel cannot, frames that fit pass here.
            TcpMode::Segments => Redirect::start(from_kernel.index(), &self.lower).ok(),
            TcpMode::Fragments => None,
        };
        let is_passed_by_kernel = redirect.is_some();
        let receiver = self.open_receiver(station, is_passed_by_kernel)?;
        let chosen = receiver.chosen().clone();
        let asked = self.open_asked(&name, &sender)?;
        let shared = Arc::new(InterfaceState::default());
        let pace = receiver.pace();
        let announced = (self.tcp == TcpMode::Segments).then_some(lower_mtu);
        let down = Down::new(from_kernel, sender, announced, asked, &shared)?;
        let (done, told) = (Done::default(), ReportTimer::default());
        let (lower, theirs) = (self.lower, Arc::clone(&shared));
        let up = Up { receiver, lower, redirect, tap, _shield: shield, done, told, shared: theirs };
        let workers = Vec::new();
        let link = Link { name, mtu, lower_mtu, station, chosen, is_passed_by_kernel };
        let mut big = BigMtu { link, shared, workers };
        big.start(|signal| Worker::start("bigmtu-up", signal, pace, up, Up::finish))?;
        big.start(|signal| Worker::start("bigmtu-down", signal, pace, down, Down::finish))?;
        Ok(big)
    }

    fn open_sender(&mut self) -> Result<Sender, BigMtuError> {
        let mut builder = Sender::builder(self.lower.as_str()).dont_fragment(Df::Override);
        if let Some(hook) = self.hook.take() {
            builder = builder.fate(hook);
        }
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        Ok(builder.open()?)
    }

    fn open_asked(&mut self, name: &str, sender: &Sender) -> Result<AdmissionParts, BigMtuError> {
        let admission = match self.admission {
            Some((_, requests)) => {
                let control = Control::open(&self.lower.as_str().into(), &sender.parts.regions)?;
                let seed = self.seed.map_or_else(seed_of_the_system, Ok)?;
                let (security, random) = (self.security.clone(), Random::new(seed));
                Some(Admission::new(control, requests, security, random)?)
            }
            None => None,
        };
        let control = match self.control.take() {
            Some(_) if admission.is_none() => return Err(BigMtuError::ControlWithoutAdmission),
            Some(path) => {
                let bound = ControlSocket::bind(&path, name);
                Some(bound.map_err(|source| BigMtuError::Control { path, source })?)
            }
            None => None,
        };
        Ok(AdmissionParts { admission, control })
    }

    /// Of frames that fit, none is for it where the kernel passes them by itself.
    fn open_receiver(
        &self,
        station: [u8; 6],
        only_fragments: bool,
    ) -> Result<Receiver, BigMtuError> {
        /// A page is a multiple of this.
        const PAGE: u32 = 4096;
        // The headers are not in it; a packet of a page fits all the more.
        let page_len = self.mtu.next_multiple_of(PAGE);
        let config = conventional::Config {
            lifetime: self.lifetime,
            bytes_per_source: 16 << 20,
            ..conventional::Config::default()
        };
        let filter = match only_fragments {
            true => Filter::ethertypes([ethernet::IPV4, ethernet::IPV6]).fragments(),
            false => Filter::any(),
        };
        let mut builder = Receiver::builder(self.lower.as_str())
            .technique(self.technique)
            .delivery(Delivery::FastBuffers)
            .wanted(Wanted::Ip)
            .filter(filter.station_and_groups(station))
            .pages(512, page_len)
            .prediction(self.prediction)
            .reassembly(config)
            // The protocols above tell, where they want to; a link does not.
            .answers(false)
            .wait(landfall_transport::Wait::Block);
        if let Some((gate, _)) = self.admission {
            builder = builder.gate_with(gate).security(self.security.clone());
        }
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
