//! [`BigMtuBuilder`]: everything that can be chosen about an interface.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::{fmt, io};

use landfall_inet::ethernet;
use landfall_placement::{Duration, Random, Seed};
use landfall_transport::packet::Filter;
use landfall_transport::redirect::Redirect;
use landfall_transport::tap::{FrameReader, FrameWriter, Sums, TapConfig, open_headed_queues};
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
use crate::runtime::{Signal, Worker, locked};
use crate::security::{Identity, KnownPeers, Security};

/// Chooses what an interface is like, then starts it.
#[must_use = "nothing happens until it is started"]
pub struct BigMtuBuilder {
    lower: String,
    name: String,
    mtu: u32,
    address: Option<(IpAddr, u8)>,
    tcp: TcpMode,
    queues: Option<u16>,
    technique: Technique,
    prediction: Prediction,
    lifetime: Duration,
    admission: Option<(GateConfig, RequesterConfig)>,
    security: Security,
    control: Option<PathBuf>,
    hook: Option<Box<Hook>>,
    seed: Option<Seed>,
}

/// The most queues that an interface has by default, however many processors there are.
pub const QUEUES_BY_DEFAULT: u16 = 4;
/// The most that it may have.
pub const QUEUES_MAX: u16 = 64;

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
            queues: None,
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

    /// How many queues it has, each with a thread each way: by default one for each two processors,
    /// up to [`QUEUES_BY_DEFAULT`], and one with admission control. What is between two
    /// addresses stays in one queue, so several pay where there are several stations.
    pub const fn queues(mut self, count: u16) -> Self {
        self.queues = Some(count);
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
    /// the threads that move its packets, two for each queue.
    ///
    /// # Errors
    /// [`BigMtuError`] says what is missing, and what would help. Nothing is left
    /// behind then.
    pub fn start(mut self) -> Result<BigMtu, BigMtuError> {
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return Err(BigMtuError::Mtu(self.mtu));
        }
        let queues = self.count_queues()?;
        if let Some(what) = in_use(&self.lower) {
            return Err(BigMtuError::LowerInUse { lower: self.lower, what });
        }
        let senders = self.open_senders(queues)?;
        let Some(sender) = senders.first() else { return Err(BigMtuError::Queues(0)) };
        let (station, lower_mtu) = (sender.station(), sender.mtu());
        if !(u32::from(LOWER_MTU_MIN)..self.mtu).contains(&lower_mtu.into()) {
            let (mtu, above) = (lower_mtu.into(), self.mtu);
            return Err(BigMtuError::NothingToDo { lower: self.lower, mtu, above });
        }
        let mut shield = Some(InterfaceGuard::raise(&self.lower)?);
        let taps = self.open_taps(station, &senders)?;
        let Some((from_kernel, _)) = taps.first() else { return Err(BigMtuError::Queues(0)) };
        let (name, mtu) = (from_kernel.name().to_owned(), from_kernel.mtu());
        let mut redirect = match self.tcp {
            // Where the kernel cannot, frames that fit pass here.
            TcpMode::Segments => Redirect::start(from_kernel.index(), &self.lower).ok(),
            TcpMode::Fragments => None,
        };
        let is_passed_by_kernel = redirect.is_some();
        let receivers = self.open_receivers(station, is_passed_by_kernel, queues)?;
        let Some(receiver) = receivers.first() else { return Err(BigMtuError::Queues(0)) };
        let (chosen, pace) = (receiver.chosen().clone(), receiver.pace());
        let mut asked = self.open_asked(&name, sender)?;
        let shared = Arc::new(InterfaceState::default());
        let announced = (self.tcp == TcpMode::Segments).then_some(lower_mtu);
        let link = Link { name, mtu, lower_mtu, station, chosen, is_passed_by_kernel, queues };
        let mut big = BigMtu { link, shared: Arc::clone(&shared), workers: Vec::new() };
        let parts = senders.into_iter().zip(taps).zip(receivers);
        for (queue, ((sender, (from_kernel, tap)), receiver)) in (0..).zip(parts) {
            let asked = std::mem::take(&mut asked);
            let down = Down::new(queue, from_kernel, sender, announced, asked, &shared)?;
            let (lower, shared) = (self.lower.clone(), Arc::clone(&shared));
            let (redirect, _shield) = (redirect.take(), shield.take());
            let (done, told) = (Done::default(), ReportTimer::default());
            let up = Up { queue, receiver, lower, redirect, tap, _shield, done, told, shared };
            big.start(|signal| Worker::start("bigmtu-up", signal, pace, up, Up::finish))?;
            big.start(|signal| Worker::start("bigmtu-down", signal, pace, down, Down::finish))?;
        }
        Ok(big)
    }

    fn count_queues(&self) -> Result<u16, BigMtuError> {
        let is_shared = self.admission.is_none()
            && matches!(self.technique, Technique::Packet | Technique::PacketRing);
        let queues = match self.queues {
            Some(queues) => queues,
            None if is_shared => {
                let processors = std::thread::available_parallelism().map_or(1, usize::from);
                u16::try_from(processors / 2)
                    .unwrap_or(QUEUES_BY_DEFAULT)
                    .clamp(1, QUEUES_BY_DEFAULT)
            }
            None => 1,
        };
        match queues {
            2.. if self.admission.is_some() => Err(BigMtuError::AdmissionWithQueues(queues)),
            1..=QUEUES_MAX => Ok(queues),
            _ => Err(BigMtuError::Queues(queues)),
        }
    }

    fn open_taps(
        &self,
        station: [u8; 6],
        senders: &[Sender],
    ) -> Result<Vec<(FrameReader, FrameWriter)>, BigMtuError> {
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
        let regions: Vec<_> = senders.iter().map(|sender| &sender.parts.regions).collect();
        Ok(open_headed_queues(&config, sums, &regions)?)
    }

    fn open_senders(&mut self, count: u16) -> Result<Vec<Sender>, BigMtuError> {
        let hook = self.hook.take().map(|hook| Arc::new(Mutex::new(hook)));
        let open = |queue: u16| {
            let mut builder = Sender::builder(self.lower.as_str()).dont_fragment(Df::Override);
            if let Some(hook) = &hook {
                let hook = Arc::clone(hook);
                builder = builder.fate(move |head, len| locked(&hook)(head, len));
            }
            if let Some(mut seed) = self.seed {
                seed[1] ^= queue as u8;
                builder = builder.seed(seed);
            }
            Ok(builder.open()?)
        };
        (0..count).map(open).collect()
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

    /// Of frames that fit, none is for them where the kernel passes those by itself.
    fn open_receivers(
        &self,
        station: [u8; 6],
        only_fragments: bool,
        count: u16,
    ) -> Result<Vec<Receiver>, BigMtuError> {
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
        Ok(match count {
            1 => vec![builder.open()?],
            _ => builder.open_members(count)?,
        })
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
