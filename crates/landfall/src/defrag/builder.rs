//! [`ReceiverBuilder`]: everything that can be chosen about a receiver.

use std::path::PathBuf;
use std::sync::Arc;

use landfall_placement::{Duration, Seed};
use landfall_seal::Fingerprint;
use landfall_transport::memory::Regions;
use landfall_transport::packet::{Filter, Interface};
use landfall_transport::remap::Pages;
use landfall_transport::ring::RingConfig;
use landfall_transport::scatter::{self, CapturePoint};
use landfall_transport::{Bell, Clock, Wait};
use spec_defrag::admission::{Gate, GateConfig};
use spec_defrag::{
    Areas, Config, Foreign, LARGE, LEAD, Lend, Prediction, Receiver as Engine, conventional,
};

use super::asking::Control;
use super::channel::Channel;
use super::delivery::{Deliverer, Returns};
use super::error::OpenError;
use super::receive_path::ReceivePath;
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
    pub(super) interface: Interface,
    pub(super) technique: Technique,
    pub(super) delivery: Delivery,
    pub(super) wanted: Wanted,
    pub(super) filter: Option<Filter>,
    pub(super) vlan: Option<(u16, Option<u16>)>,
    pub(super) hearing: CapturePoint,
    pub(super) config: Config,
    pages: u32,
    large: u32,
    pub(super) socket_buffer: usize,
    pub(super) ring: (u32, u32, Duration),
    pub(super) most_lent: Option<u64>,
    pub(super) gate: Option<Option<GateConfig>>,
    security: Security,
    answers: bool,
    wait: Wait,
    seed: Option<Seed>,
    #[cfg(feature = "nic")]
    pub(super) pace: crate::nic::Pace,
}

/// Rows of descriptors that one call fills, unless chosen otherwise.
const BURST: u16 = 96;

impl ReceiverBuilder {
    pub(super) fn new(interface: Interface) -> Self {
        let ring = RingConfig::new(interface.clone(), Filter::any());
        Self {
            technique: Technique::default(),
            delivery: Delivery::default(),
            wanted: Wanted::default(),
            filter: None,
            vlan: None,
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

    /// Frames of this VLAN, 1 to 4094, at the interface below it: those of other ones and of none are
    /// not heard. Packets come without the tag, and nobody is told of those that did not become whole.
    /// For sockets and rings that hear [everything](CapturePoint::Everything). At the interface of
    /// the VLAN itself, where there is one, this is not needed.
    pub const fn vlan(mut self, id: u16) -> Self {
        self.vlan = Some((id, None));
        self
    }

    /// The same for a VLAN within a VLAN (IEEE 802.1ad): the frames of the customer's VLAN `inner` in
    /// the service's `outer`. For techniques that [share memory](Technique::shares_memory).
    pub const fn vlan_in_vlan(mut self, outer: u16, inner: u16) -> Self {
        self.vlan = Some((outer, Some(inner)));
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

    /// All that was said of keys, by another builder.
    pub(super) fn security(mut self, security: Security) -> Self {
        self.security = security;
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
        let regions = Regions::new(64);
        let (mut paths, chosen) = self.open_paths(std::slice::from_ref(&regions))?;
        let receive_path = paths.pop().ok_or(OpenError::Members { members: 1, found: 0 })?;
        self.finish(&regions, receive_path, chosen)
    }

    /// Opens this many receivers, each for a thread of its own. The addresses of a packet say which
    /// of them has it, so all its fragments come to one, and all packets between two addresses do, in
    /// their order.
    ///
    /// | technique | who spreads what comes |
    /// | --- | --- |
    /// | [`Technique::PacketRing`], [`Technique::Packet`] | the kernel, by a program of ours (`PACKET_FANOUT`) |
    /// | [`Technique::Xdp`] | the device, over its queues: each member has as many of them as the others, or one more |
    ///
    /// Each has memory of its own. Its ring is one, so a packet that is lent and kept stops it
    /// once the kernel comes there again: copy what is to be kept.
    ///
    /// ```no_run
    /// use landfall::defrag::Receiver;
    ///
    /// for mut receiver in Receiver::builder("eth0").open_members(4)? {
    ///     std::thread::spawn(move || while let Ok(_packet) = receiver.receive(PATIENCE) {});
    /// }
    /// # const PATIENCE: landfall_placement::Duration = landfall_placement::Duration::from_secs(1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open); [`OpenError::NotShared`] for other techniques, and with a gate,
    /// which admits for one receiver; [`OpenError::Members`] for more than there are queues.
    pub fn open_members(mut self, count: u16) -> Result<Vec<Receiver>, OpenError> {
        if self.gate.is_some() {
            return Err(OpenError::NotShared { what: "a receiver with a gate".to_owned() });
        }
        let regions: Vec<_> = (0..count).map(|_| Regions::new(64)).collect();
        let (paths, chosen) = self.open_paths(&regions)?;
        let members = regions.iter().zip(paths);
        members.map(|(regions, path)| self.clone().finish(regions, path, chosen.clone())).collect()
    }

    /// A receiver whose frames come that way.
    fn finish(
        mut self,
        regions: &Regions,
        receive_path: Box<dyn ReceivePath>,
        chosen: Chosen,
    ) -> Result<Receiver, OpenError> {
        let mut seed = self.seed.map_or_else(seed_of_the_system, Ok)?;
        // What it says itself has no tag.
        self.answers &= self.vlan.is_none();
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
        if chosen.technique.shares_memory() {
            self.config.burst = 1; // nothing is posted there
        }
        let returns = Arc::new(Returns::new(Bell::new().map_err(OpenError::Bell)?));
        let (areas, deliverer) = self.pool(regions, receive_path.as_ref(), &returns)?;
        let engine = Engine::new(self.config.clone(), areas, seed)?;
        let control = match self.gate.is_some() || self.answers {
            true => Some(Control::open(&self.interface, regions)?),
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
