//! [`Builder`]: everything that can be chosen about an adapter.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use landfall_placement::{Duration, PathId, Random, Seed};
use landfall_transport::channel::{ChannelConfig, channel};
use landfall_transport::memory::Regions;
use landfall_transport::{Bell, Clock, Wait};
use qpip::{Config, Interface, OwnAddress, Share};

use super::adapter::Adapter;
use super::driver::AdapterDriver;
use super::error::OpenError;
use super::link::{Link, LinkInfo};
use super::state::{AdapterState, Handle, Paths};
use crate::runtime::{Driving, Path, Runtime, RuntimeConfig};

/// What is to be sent when the last handle goes may take so long.
const LINGER: Duration = Duration::from_secs(1);

/// Chooses what an adapter is like, then opens it.
///
/// Addresses, gateways and neighbours belong to the link that was added last.
///
/// ```
/// use landfall::qpip::{Adapter, Link, Wait};
///
/// let adapter = Adapter::builder()
///     .link(Link::tunnel("127.0.0.1:0".parse()?, []))
///     .address("10.0.0.1/24")
///     .address("fd00::1/64")
///     .wait(Wait::Block)
///     .open()?;
/// assert_eq!(adapter.links().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens until it is opened"]
pub struct Builder {
    links: Vec<(Link, Interface)>,
    config: Config,
    wait: Wait,
    regions: Option<Regions>,
    most_regions: u32,
    seed: Option<Seed>,
    /// The first mistake, to be told when the adapter is opened.
    mistake: Option<OpenError>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            config: Config::default(),
            wait: Wait::BALANCED,
            regions: None,
            most_regions: 1 << 16,
            seed: None,
            mistake: None,
        }
    }
}

impl Builder {
    /// Adds a link. What is said next about addresses belongs to it.
    pub fn link(mut self, link: Link) -> Self {
        self.links.push((link, Interface::default()));
        self
    }

    /// Adds an IP address, with the length of the prefix that all on this link
    /// share: `10.0.0.2/24`, `fd00::2/64`.
    pub fn address(self, address: impl AsRef<str>) -> Self {
        let text = address.as_ref();
        let parsed = text.split_once('/').and_then(|(address, prefix)| {
            Some(OwnAddress::new(address.parse().ok()?, prefix.parse().ok()?))
        });
        self.change(text, |interface| {
            interface.addresses.push(parsed?);
            Some(())
        })
    }

    /// Adds a gateway: who forwards to addresses that are not on this link.
    pub fn gateway(self, gateway: impl AsRef<str>) -> Self {
        let text = gateway.as_ref();
        self.change(text, |interface| {
            interface.gateways.push(text.parse().ok()?);
            Some(())
        })
    }

    /// Chooses the station address; without this it is a random one that is
    /// locally administered. Two stations of one network must not share one.
    pub fn mac(self, mac: [u8; 6]) -> Self {
        self.change("a station address", |interface| {
            interface.mac = mac;
            Some(())
        })
    }

    /// Puts the link into a VLAN (IEEE 802.1Q), 1 to 4094: every frame leaves with its tag, and
    /// frames without it are not accepted. It takes four bytes of each packet, and no device cuts
    /// segments. A link over an interface of the kernel shows no tags, and is refused: use the
    /// VLAN's own interface there.
    pub fn vlan(self, id: u16) -> Self {
        self.change("a VLAN", |interface| {
            interface.vlan = Some(id);
            Some(())
        })
    }

    /// A server gives the link an address of IPv4, a gateway and an MTU (DHCP). What becomes of
    /// it [`Adapter::next_notice`] tells, and [`Adapter::addresses`] what there is.
    pub fn dhcp(self) -> Self {
        self.change("DHCP", |interface| {
            interface.dhcp = true;
            Some(())
        })
    }

    /// How the link calls itself to servers of DHCP: the first 24 bytes are said.
    pub fn host_name(self, name: impl Into<String>) -> Self {
        self.change("a host's name", |interface| {
            interface.host_name = name.into();
            Some(())
        })
    }

    /// The link finds out a link-local address of IPv6, routers, and an address of each prefix
    /// that they tell of (RFC 4861, 4862, 7217).
    pub fn discover_routers(self) -> Self {
        self.change("discovery of routers", |interface| {
            interface.discovers_routers = true;
            Some(())
        })
    }

    /// The link asks whether somebody else has its addresses before it uses them, which takes
    /// some seconds, and gives one up where another station insists on it (RFC 5227, 4862).
    /// Those that are found out are always asked for.
    pub fn detect_conflicts(self) -> Self {
        self.change("detection of conflicts", |interface| {
            interface.detects_conflicts = true;
            Some(())
        })
    }

    /// Tells from the start who has an address on this link: it is never asked for.
    pub fn neighbour(self, address: IpAddr, mac: [u8; 6]) -> Self {
        self.change("a neighbour", |interface| {
            interface.neighbours.push((address, mac));
            Some(())
        })
    }

    fn change(mut self, what: &str, change: impl FnOnce(&mut Interface) -> Option<()>) -> Self {
        let mistake = match self.links.last_mut() {
            None => Some(OpenError::BeforeLink(what.to_owned())),
            Some((_, interface)) => match change(interface) {
                None => Some(OpenError::BadAddress(what.to_owned())),
                Some(()) => None,
            },
        };
        self.mistake = self.mistake.or(mistake);
        self
    }

    /// The bounds of the adapter, and what can be chosen about TCP.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// How threads wait, the adapter's own among them: they spin for 50 µs and
    /// then sleep, unless you choose otherwise.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How many pieces of memory may be registered at a time.
    pub const fn regions(mut self, most: u32) -> Self {
        self.most_regions = most;
        self
    }

    /// What determines every number that strangers must not guess: for tests.
    /// Without this the operating system chooses.
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Joins two adapters to be, within this process, by one more link each.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn pair(mut self, mut other: Self, config: ChannelConfig) -> io::Result<(Self, Self)> {
        #[cfg(feature = "nic")]
        if let Some(chosen) = crate::nic::chosen()? {
            let wire = crate::nic::Wire::new(crate::nic::WireConfig::default());
            let nic = || Link::nic(&wire, config.unit, chosen.pace);
            return Ok((self.link(nic()), other.link(nic())));
        }
        let path = |builder: &Self| PathId(builder.links.len() as u16);
        let paths = (path(&self), path(&other));
        let (here, there) = channel(config, (paths.0, self.table()), (paths.1, other.table()))?;
        let what = "a link within this process";
        let joined = |driver| Link::named(what, move |_, _| Ok(driver));
        Ok((self.link(joined(here)), other.link(joined(there))))
    }

    fn table(&mut self) -> &Regions {
        self.regions.get_or_insert_with(|| Regions::new(self.most_regions))
    }

    /// Opens the adapter, with a thread of its own that runs it: what is posted
    /// is carried out while the posting thread goes on.
    ///
    /// Links are opened in the network namespace of this thread.
    ///
    /// # Errors
    /// [`OpenError`] says what could not be opened, why, and what helps.
    pub fn open(self) -> Result<Adapter, OpenError> {
        self.open_driven(Driving::OwnThread)
    }

    /// Opens the adapter without a thread: it moves while
    /// [`Adapter::turn`] is called, or a thread waits for something of it. That
    /// is the way to the lowest latency, and to use no second core.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_inline(self) -> Result<Adapter, OpenError> {
        self.open_driven(Driving::Callers)
    }

    /// Opens this many adapters, at least one, of the same stations and addresses, each with a thread of its own,
    /// and with no lock between them: what comes is spread over them by its flow, so that each
    /// connection is one adapter's. One that is made by
    /// [`connect`](super::QueuePair::connect) or [`bind`](super::QueuePair::bind) gets a port
    /// whose answers come to its adapter; a server
    /// listens at each of them, at the same port, and gets its part of the connections. Registered
    /// memory, queues and domains are each adapter's own.
    ///
    /// | link | who spreads what comes |
    /// | --- | --- |
    /// | [`Link::packet`] | the kernel, by a program of ours (`PACKET_FANOUT`) |
    /// | [`Link::tap`] | the kernel, by the same program, over queues of the interface |
    /// | [`Link::xdp`] | the device, over its queues by a key of its own, from the configured one on: adapters hand frames to each other |
    ///
    /// ```no_run
    /// use landfall::qpip::{Adapter, Link};
    ///
    /// let adapters = Adapter::builder()
    ///     .link(Link::packet("eth0"))
    ///     .address("10.0.0.9/24")
    ///     .open_members(2)?;
    /// for adapter in adapters {
    ///     std::thread::spawn(move || serve(&adapter));
    /// }
    /// # fn serve(adapter: &Adapter) {}
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open); other links have one adapter
    /// ([`OpenError::NotShared`]), and members know their addresses
    /// ([`OpenError::NeedsAddresses`]).
    pub fn open_members(self, count: u16) -> Result<Vec<Adapter>, OpenError> {
        let members = self.build(Driving::OwnThread, count)?;
        members.into_iter().map(Parts::start).collect()
    }

    /// The same without threads, as with [`open_inline`](Self::open_inline): each adapter moves
    /// while a thread waits for something of it.
    ///
    /// # Errors
    /// Those of [`open_members`](Self::open_members).
    pub fn open_members_inline(self, count: u16) -> Result<Vec<Adapter>, OpenError> {
        let members = self.build(Driving::Callers, count)?;
        members.into_iter().map(Parts::start).collect()
    }

    /// Opens the adapter without a thread, for a reactor of your own: you make its turns
    /// whenever the descriptor of the [`AdapterDriver`] is readable.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_without_thread(self) -> Result<(Adapter, AdapterDriver), OpenError> {
        let Parts { core, clock, bell, config, regions } = self.build_one(Driving::Callers)?;
        let doorbells = Arc::clone(&core.doorbells);
        let started = Runtime::start_for_reactor(core, clock, bell, config);
        let (runtime, turns) = started.map_err(OpenError::Bell)?;
        let handle = Arc::new(Handle::new(runtime, doorbells, regions));
        Ok((Adapter::new(handle), AdapterDriver::new(turns)))
    }

    fn open_driven(self, driving: Driving) -> Result<Adapter, OpenError> {
        self.build_one(driving)?.start()
    }

    fn build_one(self, driving: Driving) -> Result<Parts, OpenError> {
        self.build(driving, 1)?.pop().ok_or(OpenError::NoLink)
    }

    /// Opens the links, and makes the engines.
    fn build(mut self, driving: Driving, count: u16) -> Result<Vec<Parts>, OpenError> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        if self.links.is_empty() {
            return Err(OpenError::NoLink);
        }
        let seed = self.seed.map_or_else(seed_of_the_system, Ok)?;
        let regions = self.table().clone();
        let links = std::mem::take(&mut self.links).into_iter();
        let links: io::Result<_> =
            links.map(|(link, interface)| Ok((link.configured()?, interface))).collect();
        self.links = links.map_err(OpenError::Configuration)?;
        // The first link's card is the one that the engine tells what to place.
        self.config.delegates |= self.links.first().is_some_and(|(link, _)| link.is_adapter());
        let mut members = Vec::with_capacity(count.into());
        let count = count.max(1);
        for index in 0..count {
            let share = Share::new(index, count).unwrap_or_default();
            let config = Config { share, ..self.config.clone() };
            let engine = qpip::Adapter::new(config, seed_of_member(&seed, index))?;
            members.push(Member { engine, paths: Vec::new(), infos: Vec::new() });
        }
        for (index, (link, interface)) in (0..).zip(self.links) {
            open_link(&mut members, PathId(index), (link, interface), &regions, &seed)?;
        }
        let config =
            RuntimeConfig { driving, wait: self.wait, linger: LINGER, thread: "landfall-qpip" };
        members.into_iter().map(|member| member.ready(config, &regions)).collect()
    }
}

/// An adapter whose links are being opened.
struct Member {
    engine: qpip::Adapter,
    paths: Vec<Path<qpip::Adapter>>,
    infos: Vec<LinkInfo>,
}

impl Member {
    fn ready(self, config: RuntimeConfig, regions: &Regions) -> Result<Parts, OpenError> {
        let Self { mut engine, paths, infos } = self;
        let (bell, clock) = (Bell::new().map_err(OpenError::Bell)?, Clock::start());
        let paths = Paths::new(paths, clock, &mut engine);
        let core = AdapterState::new(engine, (paths, infos), clock, regions.clone());
        Ok(Parts { core, clock, bell, config, regions: regions.clone() })
    }
}

/// Opens a link for all members.
fn open_link(
    members: &mut [Member],
    path: PathId,
    (link, mut interface): (Link, Interface),
    regions: &Regions,
    seed: &Seed,
) -> Result<(), OpenError> {
    if interface.mac == [0; 6] {
        interface.mac = station_of(seed, path.0);
    }
    let (name, station) = (link.to_string(), interface.mac);
    if interface.vlan.is_some() && !link.carries_tags() {
        return Err(OpenError::NoTags(name));
    }
    let finds_out = interface.dhcp || interface.discovers_routers || interface.detects_conflicts;
    if members.len() > 1 && finds_out {
        return Err(OpenError::NeedsAddresses(name));
    }
    if members.len() > 1 && !link.is_shareable() {
        return Err(OpenError::NotShared(name));
    }
    for (nth, member) in members.iter_mut().enumerate() {
        // One says it for all.
        let announces = nth == 0;
        member
            .engine
            .add_interface(path, Interface { announces, ..interface.clone() })
            .map_err(|source| OpenError::Interface { link: name.clone(), source })?;
    }
    let opened = link
        .open(path, regions, station, seed, members.len())
        .map_err(|source| OpenError::Link { link: name, source })?;
    for (member, (path, info)) in members.iter_mut().zip(opened) {
        member.paths.push(path);
        member.infos.push(info);
    }
    Ok(())
}

/// What a runtime is made of.
struct Parts {
    core: AdapterState,
    clock: Clock,
    bell: Bell,
    config: RuntimeConfig,
    regions: Regions,
}

impl Parts {
    fn start(self) -> Result<Adapter, OpenError> {
        let Self { core, clock, bell, config, regions } = self;
        let doorbells = Arc::clone(&core.doorbells);
        let runtime = Runtime::start(core, clock, bell, config).map_err(OpenError::Thread)?;
        Ok(Adapter::new(Arc::new(Handle::new(runtime, doorbells, regions))))
    }
}

/// Members draw different numbers. The first draws as the only one would.
fn seed_of_member(seed: &Seed, index: u16) -> Seed {
    let mut own = *seed;
    if index > 0 {
        let mut random = random_for(seed, index, b"member");
        own.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next_u64().to_le_bytes()));
    }
    own
}

/// A station address that is locally administered (RFC 9542, 2.1). Of one seed
/// it is always the same, and tells nothing about it.
fn station_of(seed: &Seed, link: u16) -> [u8; 6] {
    let bits = random_for(seed, link, b"station").next_u64().to_le_bytes();
    let [a, b, c, d, e, ..] = bits;
    [0x02, a, b, c, d, e]
}

/// Numbers for one purpose of one link, which tell nothing about the seed.
pub(super) fn random_for(seed: &Seed, link: u16, what: &[u8]) -> Random {
    let mut mixed = *seed;
    for (byte, other) in mixed.iter_mut().zip(link.to_le_bytes().iter().chain(what)) {
        *byte ^= other;
    }
    Random::new(mixed)
}

fn seed_of_the_system() -> Result<Seed, OpenError> {
    let mut seed = Seed::default();
    getrandom::fill(&mut seed).map_err(|error| OpenError::Seed(error.to_string()))?;
    Ok(seed)
}
