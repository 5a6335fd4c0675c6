//! [`ReceiverBuilder`]: everything that can be chosen about a receiver.

use std::path::PathBuf;
use std::sync::Arc;

use landfall_inet::ethernet;
use landfall_placement::{Duration, Seed};
use landfall_seal::Fingerprint;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Interface};
use landfall_transport::remap::Pages;
use landfall_transport::ring::{Ring, RingConfig};
use landfall_transport::scatter::{self, CapturePoint, FRAME_MAX, MOST_DESCRIPTORS, Socket};
use landfall_transport::xdp::{self, XdpConfig};
use landfall_transport::{Bell, Clock, Wait};
use spec_defrag::admission::{Gate, GateConfig};
use spec_defrag::{
    Areas, Config, Foreign, LARGE, LEAD, Lend, Prediction, Receiver as Engine, conventional,
};

use super::asking::Control;
use super::channel::Channel;
use super::delivery::{Deliverer, Returns};
use super::error::OpenError;
#[cfg(feature = "nic")]
use super::receive_path::HamachiPath;
use super::receive_path::{Blocks, MappedPath, PostedPath, ReceivePath, XdpRings};
use super::receiver::{Parts, Receiver};
use super::technique::{Chosen, Delivery, Technique, Wanted};
use crate::security::{Identity, Security};

/// Chooses what a receiver is like, then opens it.
///
/// ```no_run
/// use landfall::defrag::{Delivery, Receiver, Technique};
///
/// let mut receiver = Receiver::builder("eth0")
///     .technique(Technique::PacketRing)
///     .delivery(Delivery::FastBuffers)
///     .open()?;
/// println!("{}", receiver.chosen());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens until it is opened"]
pub struct ReceiverBuilder {
    interface: Interface,
    technique: Technique,
    delivery: Delivery,
    wanted: Wanted,
    filter: Option<Filter>,
    hearing: CapturePoint,
    config: Config,
    pages: u32,
    large: u32,
    socket_buffer: usize,
    ring: (u32, u32, Duration),
    most_lent: Option<u64>,
    gate: Option<Option<GateConfig>>,
    security: Security,
    answers: bool,
    wait: Wait,
    seed: Option<Seed>,
    #[cfg(feature = "nic")]
    pace: crate::nic::Pace,
}

/// Rows of descriptors that one call fills, unless chosen otherwise.
const BURST: u16 = 96;

/// Each of two rings that share what comes has at least this many blocks.
const LEAST_BLOCKS: u32 = 8;

impl ReceiverBuilder {
    pub(super) fn new(interface: Interface) -> Self {
        let ring = RingConfig::new(interface.clone(), Filter::any());
        Self {
            technique: Technique::default(),
            delivery: Delivery::default(),
            wanted: Wanted::default(),
            filter: None,
            hearing: CapturePoint::Everything,
            config: Config { burst: BURST, foreign: Foreign::Ignore, ..Config::default() },
            pages: 1024,
            large: 64,
            socket_buffer: scatter::Config::new(interface.clone(), Filter::any()).socket_buffer,
            ring: (ring.block_size, ring.blocks, ring.retire),
            most_lent: None,
            interface,
            gate: None,
            security: Security::default(),
            answers: true,
            wait: Wait::BALANCED,
            seed: None,
            #[cfg(feature = "nic")]
            pace: crate::nic::Pace::Free,
        }
    }

    /// How frames come in. Without this, as [`Technique::Auto`] finds best.
    pub const fn technique(mut self, technique: Technique) -> Self {
        self.technique = technique;
        self
    }

    /// Frames come by way of a simulated Hamachi of this pace: [`Technique::Nic`].
    #[cfg(feature = "nic")]
    pub const fn behind_nic(mut self, pace: crate::nic::Pace) -> Self {
        (self.technique, self.pace) = (Technique::Nic, pace);
        self
    }

    /// How packets are handed out. Without this as [`Delivery::Auto`] says.
    pub const fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Which frames are looked at: fragments, unless you want all IP packets.
    pub const fn wanted(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self.config.foreign = match wanted {
            Wanted::Fragments => Foreign::Ignore,
            Wanted::Ip => Foreign::Deliver,
        };
        self
    }

    /// A filter of your own in place of that for [`wanted`](Self::wanted).
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Where on its way through the kernel a frame is heard. Without this, before
    /// the hooks of netfilter at ingress: there the kernel can be made to drop the
    /// fragments that it would otherwise join as well.
    pub const fn hearing(mut self, hearing: CapturePoint) -> Self {
        self.hearing = hearing;
        self
    }

    /// How many pages there are, and how long one is: a multiple of 4096 bytes, up to
    /// 65,536. A packet whose body is as long, and fits, is what can be guessed.
    pub const fn pages(mut self, count: u32, len: u32) -> Self {
        self.pages = count;
        self.config.page_len = len;
        self
    }

    /// How many buffers there are for packets that are longer than a page.
    pub const fn large(mut self, count: u32) -> Self {
        self.large = count;
        self
    }

    /// The most frames that one call takes: up to 128.
    pub const fn burst(mut self, frames: u16) -> Self {
        self.config.burst = frames;
        self
    }

    /// How it is guessed what comes next.
    pub const fn prediction(mut self, prediction: Prediction) -> Self {
        self.config.prediction = prediction;
        self
    }

    /// How long a packet that was begun in a page, or that is to be lent where it lies, waits
    /// there for the rest.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.config.patience = patience;
        self
    }

    /// The bounds of the conventional path.
    pub const fn reassembly(mut self, config: conventional::Config) -> Self {
        self.config.reassembly = config;
        self
    }

    /// The length and number of a ring's blocks, and after how long one that is not
    /// full is handed over: for [`Technique::PacketRing`]. Where packets are lent there
    /// are two rings of half as many blocks, of 8 at least: see [`Delivery::List`].
    pub const fn ring(mut self, block_size: u32, blocks: u32, retire: Duration) -> Self {
        self.ring = (block_size, blocks, retire);
        self
    }

    /// How much of the memory that frames lie in packets may keep from the kernel, in bytes: as
    /// long as they keep more, packets are copied. Half of it, unless you choose otherwise. A
    /// packet keeps the block of the ring that it lies in, or its frames with
    /// [`Technique::Xdp`].
    pub const fn lend_at_most(mut self, bytes: u64) -> Self {
        self.most_lent = Some(bytes);
        self
    }

    /// How many bytes of frames the kernel keeps for a socket.
    pub const fn socket_buffer(mut self, bytes: usize) -> Self {
        self.socket_buffer = bytes;
        self
    }

    /// Lets one sender at a time be fast, as `GateConfig::new` has it. Without this
    /// nobody is asked. Requests and answers are encrypted, unless
    /// [`plaintext`](Self::plaintext) says otherwise.
    pub const fn gate(mut self) -> Self {
        self.gate = Some(None);
        self
    }

    /// The same with all that can be chosen; the address is the interface's.
    pub const fn gate_with(mut self, config: GateConfig) -> Self {
        self.gate = Some(Some(config));
        self
    }

    /// Senders ask in clear: anyone who is on the way reads what is asked and answered, and asks and
    /// gives back in the place of others. Senders must be built so, too.
    pub const fn plaintext(mut self) -> Self {
        self.security.is_plain = true;
        self
    }

    /// Proves itself to senders that ask with this identity. Without this it is [that of the
    /// user](Identity::of_user).
    pub fn identity(mut self, identity: Identity) -> Self {
        self.security.set_identity(identity);
        self
    }

    /// Both ends prove that they have these 32 random bytes, and nothing else.
    pub fn preshared_key(mut self, key: [u8; 32]) -> Self {
        self.security.set_preshared_key(key);
        self
    }

    /// Proves itself by certificates or raw public keys, in TLS 1.3. Senders that have none may ask
    /// all the same, unless [`Certificates::ask_callers`](super::Certificates::ask_callers) says
    /// otherwise. Senders must be built so, too.
    #[cfg(feature = "certificates")]
    pub fn certificates(mut self, certificates: super::Certificates) -> Self {
        self.security.set_certificates(certificates);
        self
    }

    /// Only senders with these keys may ask.
    pub fn only_peers(mut self, peers: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.security.set_only(peers.into_iter().collect());
        self
    }

    /// Writes the keys of admission control to a file: see
    /// [`SenderBuilder::key_log`](super::SenderBuilder::key_log).
    pub fn key_log(mut self, file: impl Into<PathBuf>) -> Self {
        self.security.set_key_log(file.into());
        self
    }

    /// Whether senders are told (ICMP time exceeded) of packets that did not become
    /// whole in time. They are, unless you choose otherwise; where this machine's
    /// kernel joins the same fragments, it tells them too.
    pub const fn answers(mut self, answers: bool) -> Self {
        self.answers = answers;
        self
    }

    /// How a thread waits: it spins for 50 µs and then sleeps, unless you choose
    /// otherwise.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// What determines all that strangers must not guess: for tests. Without this
    /// the operating system chooses.
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the receiver, in the network namespace of this thread.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing, and what would help.
    pub fn open(mut self) -> Result<Receiver, OpenError> {
        #[cfg(feature = "nic")]
        if let Some(chosen) = crate::nic::chosen().map_err(OpenError::Configuration)? {
            self = self.behind_nic(chosen.pace);
        }
        let mut seed = self.seed.map_or_else(seed_of_the_system, Ok)?;
        let regions = Regions::new(64);
        self.config.frame_max = FRAME_MAX;
        self.config.burst = self.config.burst.min(MOST_DESCRIPTORS as u16);
        let (receive_path, chosen) = self.open_lane(&regions)?;
        self.delivery = match self.delivery {
            Delivery::Auto if chosen.technique.shares_memory() => Delivery::List,
            Delivery::Auto => Delivery::FastBuffers,
            chosen => chosen,
        };
        if self.delivery == Delivery::List {
            self.config.lend = Lend::List;
        }
        if self.delivery == Delivery::List && !chosen.technique.shares_memory() {
            let (delivery, technique) = (self.delivery, chosen.technique);
            return Err(OpenError::NothingToLend { delivery, technique });
        }
        let returns = Arc::new(Returns::new(Bell::new().map_err(OpenError::Bell)?));
        let (areas, deliverer) = self.pool(&regions, receive_path.as_ref(), &returns)?;
        let engine = Engine::new(self.config.clone(), areas, seed)?;
        let control = match self.gate.is_some() || self.answers {
            true => Some(Control::open(&self.interface, &regions)?),
            false => None,
        };
        seed[0] ^= 1;
        let gate = match (&control, self.gate) {
            (Some(control), Some(config)) => {
                let address = control.station();
                let config = config.unwrap_or(GateConfig::new(address));
                let config = GateConfig { address, ..config };
                let gate = Gate::new(config, seed)?;
                let (security, priority) = (self.security, config.priority);
                let senders = usize::from(config.streams) + usize::from(config.waiting);
                Some((gate, Channel::of_gate(security, address, senders, priority)?))
            }
            _ => None,
        };
        Ok(Receiver::new(Parts {
            engine,
            receive_path,
            deliverer,
            returns,
            control,
            gate,
            answers: self.answers,
            clock: Clock::start(),
            wait: self.wait,
            chosen,
        }))
    }

    fn frames(&self) -> Filter {
        let ip = Filter::ethertypes([ethernet::IPV4, ethernet::IPV6]);
        match (&self.filter, self.wanted) {
            (Some(filter), _) => filter.clone(),
            (None, Wanted::Ip) => ip,
            (None, Wanted::Fragments) => ip.fragments(),
        }
    }

    fn open_lane(
        &mut self,
        regions: &Regions,
    ) -> Result<(Box<dyn ReceivePath>, Chosen), OpenError> {
        let asked = || "it was asked for".to_owned();
        match self.technique {
            Technique::Auto => match self.open_ring(regions) {
                Ok(receive_path) => {
                    let why = "the mapped ring costs less than half of the CPU of a call per \
                               burst, and packets can be lent where they lie"
                        .to_owned();
                    Ok((receive_path, Chosen { technique: Technique::PacketRing, why }))
                }
                Err(OpenError::Path(error)) => {
                    let receive_path = self.open_packet(regions)?;
                    let why = format!("the ring, which costs less, is not to be had: {error}");
                    Ok((receive_path, Chosen { technique: Technique::Packet, why }))
                }
                Err(error) => Err(error),
            },
            technique @ Technique::Packet => {
                Ok((self.open_packet(regions)?, Chosen { technique, why: asked() }))
            }
            technique @ Technique::PacketRing => {
                Ok((self.open_ring(regions)?, Chosen { technique, why: asked() }))
            }
            technique @ Technique::PacketUring => {
                Ok((self.open_uring(regions)?, Chosen { technique, why: asked() }))
            }
            technique @ Technique::Xdp => {
                Ok((self.open_xdp(regions)?, Chosen { technique, why: asked() }))
            }
            #[cfg(feature = "nic")]
            technique @ Technique::Nic => {
                let socket = self.open_socket(regions)?;
                let receive_path = HamachiPath::new(socket, regions, self.config.burst, self.pace)?;
                Ok((Box::new(receive_path), Chosen { technique, why: asked() }))
            }
        }
    }

    fn open_socket(&self, regions: &Regions) -> Result<Socket, OpenError> {
        let config = scatter::Config {
            hearing: self.hearing,
            socket_buffer: self.socket_buffer,
            ..scatter::Config::new(self.interface.clone(), self.frames())
        };
        Ok(Socket::open(&config, regions)?)
    }

    fn open_packet(&self, regions: &Regions) -> Result<Box<dyn ReceivePath>, OpenError> {
        let socket = self.open_socket(regions)?;
        Ok(Box::new(PostedPath::new(socket, regions, self.config.burst)?))
    }

    #[cfg(feature = "io-uring")]
    fn open_uring(&self, regions: &Regions) -> Result<Box<dyn ReceivePath>, OpenError> {
        let socket = self.open_socket(regions)?;
        let socket = super::receive_path::ThroughRing::new(socket).map_err(OpenError::Uring)?;
        Ok(Box::new(PostedPath::new(socket, regions, self.config.burst)?))
    }

    #[cfg(not(feature = "io-uring"))]
    fn open_uring(&self, _regions: &Regions) -> Result<Box<dyn ReceivePath>, OpenError> {
        let help = "build with the feature `io-uring`";
        Err(OpenError::NotBuilt { technique: self.technique, help })
    }

    fn open_xdp(&mut self, regions: &Regions) -> Result<Box<dyn ReceivePath>, OpenError> {
        if self.wanted != Wanted::Fragments || self.filter.is_some() {
            return Err(OpenError::OnlyFragments);
        }
        let receive_path =
            xdp::XdpQueue::open(&XdpConfig::fragments(self.interface.clone()), regions)?;
        // Nothing is posted here.
        self.config.burst = 1;
        Ok(Box::new(MappedPath::new(XdpRings::new(receive_path), regions, self.most_lent)?))
    }

    fn open_ring(&mut self, regions: &Regions) -> Result<Box<dyn ReceivePath>, OpenError> {
        let (block_size, blocks, retire) = self.ring;
        let config = RingConfig {
            hearing: self.hearing,
            block_size,
            blocks,
            retire,
            ..RingConfig::new(self.interface.clone(), self.frames())
        };
        let rings: Box<[_]> = match self.delivery {
            Delivery::Auto | Delivery::List => {
                let blocks = (blocks / 2).max(LEAST_BLOCKS);
                Ring::open_two(&RingConfig { blocks, ..config }, regions)?.into()
            }
            _ => Box::new([Ring::open(&config, regions)?]),
        };
        // Nothing is posted here.
        self.config.burst = 1;
        Ok(Box::new(MappedPath::new(Blocks::new(rings, retire), regions, self.most_lent)?))
    }

    /// The pages, and anyone who hands them out.
    fn pool(
        &self,
        regions: &Regions,
        receive_path: &dyn ReceivePath,
        returns: &Arc<Returns>,
    ) -> Result<(Areas, Deliverer), OpenError> {
        let pages = Pages::new(regions, self.pages, LEAD + self.config.page_len)?;
        let large = Pages::new(regions, self.large, LEAD + LARGE)?;
        let (heads, spill) = receive_path.slots();
        let areas = Areas { pages: pages.area(), large: large.area(), heads, spill };
        let returns = Arc::clone(returns);
        Ok((areas, Deliverer::new(self.delivery, pages, large, returns)?))
    }
}

pub(super) fn seed_of_the_system() -> Result<Seed, OpenError> {
    let mut seed = Seed::default();
    getrandom::fill(&mut seed).map_err(|error| OpenError::Seed(error.to_string()))?;
    Ok(seed)
}
