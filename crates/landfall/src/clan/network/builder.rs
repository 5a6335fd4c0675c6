//! [`Builder`]: everything that can be chosen about a node.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clan_dsm::{Config, HostId, Nic};
use landfall_placement::{Duration, PathId, Peer, Random, Seed};
use landfall_seal::Fingerprint;
use landfall_transport::channel::{ChannelConfig, channel};
use landfall_transport::{Bell, Clock, Wait};

use super::driver::NodeDriver;
use super::engines::{Hosts, MOST_ENGINES, NodeHandle};
use super::memory::Pool;
use super::names::{Discoverer, Discovery, Introduction, OpenDiscovery};
use super::node::Node;
use super::open_error::OpenError;
use super::path::Transport;
use super::state::NodeState;
pub(crate) use crate::clan::error::{ended, refused};
use crate::runtime::{Driving, Paths, Reach, Runtime, RuntimeConfig, SpreadBy};
use crate::security::{Carried, Identity, KnownPeers, Security};

/// Configures a node, then opens it.
///
/// ```
/// use landfall::clan::network::{Config, HostId, Node, Transport, Wait};
///
/// let node = Node::builder(HostId::new(1).unwrap())
///     .path(Transport::udp("127.0.0.1:0".parse()?))
///     .config(Config { tripwires: 100_000, ..Config::shared_network() })
///     .wait(Wait::Block)
///     .open()?;
/// assert_eq!(node.paths().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens until it is opened"]
pub struct Builder {
    host: HostId,
    paths: Vec<Transport>,
    config: Option<Config>,
    wait: Wait,
    regions: u32,
    linger: Duration,
    seed: Option<Seed>,
    security: Security,
    discovery: Option<Discovery>,
    multicast: Option<Peer>,
    threads: usize,
}

impl Builder {
    pub(crate) fn new(host: HostId) -> Self {
        Self {
            host,
            paths: Vec::new(),
            config: None,
            wait: Wait::BALANCED,
            regions: 1 << 20,
            linger: Duration::from_secs(2),
            seed: None,
            security: Security::default(),
            discovery: None,
            multicast: None,
            threads: 1,
        }
    }

    /// Adds a path. They are numbered from 0 on, in the order of the calls.
    pub fn path(mut self, transport: Transport) -> Self {
        self.paths.push(transport);
        self
    }

    /// The bounds and habits of the engine. Without this they are
    /// [`Config::shared_network`], with a window that yields to congestion, where a
    /// path is UDP, and [`Config::default`] elsewhere.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// How a driving thread waits: it spins for 50 µs and then sleeps, unless you
    /// choose otherwise.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How many pieces of memory may be in use at a time: apertures, and what holds
    /// the bytes of long writes and of reads.
    pub const fn regions(mut self, most: u32) -> Self {
        self.regions = most;
        self
    }

    /// How nodes that this one has no link with find the names that it offers, and it theirs.
    /// Without this names are found among nodes that have links.
    pub fn discovery(mut self, discovery: Discovery) -> Self {
        self.discovery = Some(discovery);
        self
    }

    /// What is written to a [group](Node::found_group) of this node, also by
    /// [publications](crate::clan::layer::publish), leaves once, to this address of the network:
    /// a multicast group of IPv4 or IPv6 with its port, or of Ethernet. Members of groups are
    /// built so, too. Without this, and for members that the network does not deliver multicasts
    /// to, there is a copy for each member.
    ///
    /// Members acknowledge, and get again what they lost; one that is slow holds up nobody.
    /// The node hears the address over its first path of that kind; for UDP it is one more path,
    /// behind all others. The kernel joins a group of IP, with IGMP or MLD; datagrams to it do not
    /// leave the local network. A group of IPv6 has the scope of its interface, as in `ff12::1%2`.
    ///
    /// ```
    /// use landfall::clan::network::{HostId, Node, Transport};
    ///
    /// let group = "239.255.76.81:8185".parse::<std::net::SocketAddr>()?;
    /// let node = Node::builder(HostId::new(1).unwrap())
    ///     .path(Transport::udp("127.0.0.1:0".parse()?))
    ///     .multicast(group)
    ///     .open()?;
    /// let group = node.found_group(4096)?;
    /// assert_eq!(group.reached(), 0, "it has no members yet");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn multicast(mut self, group: impl Into<Peer>) -> Self {
        self.multicast = Some(group.into());
        self
    }

    /// How many engines share the work, each with a lock and a thread of its own: 1, unless you
    /// choose otherwise. Its paths are [UDP](Transport::udp) or [Ethernet](Transport::ethernet),
    /// which all engines share, and it has no [multicast address](Self::multicast). Handles look
    /// the same as with one.
    ///
    /// A link belongs to one engine for all of its life, and with it what goes over it: writes,
    /// reads, words, DMA. The peer's address says to which (over UDP its port, too), whichever
    /// side opens the link. So all that a peer writes takes effect in its order, and peers at
    /// different engines never wait for the lock of one another; what they change a word by is
    /// still one indivisible step. Memory, its cookies and tripwires, endpoints, event queues and
    /// names are those of the node, for peers at any engine.
    ///
    /// The bounds of the [`Config`] are those of each engine; of apertures, tripwires on memory
    /// of this node, and endpoints, which are at all engines, they are those of the node.
    ///
    /// A peer whose address changes (behind a NAT that forgot it) may come to another engine, and
    /// to its link it has fallen silent: it has to open another. Leave this out where that
    /// matters more than a second core.
    ///
    /// ```
    /// use landfall::clan::network::{HostId, Node, Transport};
    ///
    /// let path = Transport::udp("127.0.0.1:0".parse()?);
    /// let node = Node::builder(HostId::new(1).unwrap()).path(path).threads(2).open()?;
    /// assert_eq!(node.threads(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// How long what was written may take to arrive when the node is closed or
    /// dropped.
    pub const fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// What determines every key that the node gives out: for tests. Anyone who knows
    /// it can touch all memory. Without this the operating system chooses.
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Encrypts nothing: anyone who is on the way can read and change all of it, and who reads a
    /// cookie writes the memory. The other side must be built so, too. What stays on the host is
    /// plain anyway.
    pub const fn plaintext(mut self) -> Self {
        self.security.is_plain = true;
        self
    }

    /// Encrypts also what goes from and to loopback addresses: for tests, and to measure. The
    /// other side must be built so, too.
    pub const fn encrypt_loopback(mut self) -> Self {
        self.security.seals_loopback = true;
        self
    }

    /// Proves itself with this identity. Without this it is [that of the
    /// user](Identity::of_user).
    pub fn identity(mut self, identity: Identity) -> Self {
        self.security.set_identity(identity);
        self
    }

    /// All nodes prove that they have these 32 random bytes, and nothing else: each of them may
    /// be any host. A password is no such key: what people remember can be guessed from a
    /// recording.
    ///
    /// ```
    /// use landfall::clan::network::{HostId, Node, Transport};
    ///
    /// let open = |host, key| {
    ///     let path = Transport::udp("127.0.0.1:0".parse().unwrap());
    ///     let builder = Node::builder(HostId::new(host).unwrap()).path(path);
    ///     builder.preshared_key(key).encrypt_loopback().open()
    /// };
    /// let (here, there) = (open(1, [7; 32])?, open(2, [7; 32])?);
    /// let link = here.link(there.local().unwrap())?;
    /// assert_eq!(link.wait_up(None)?, there.host());
    /// assert!(link.is_encrypted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preshared_key(mut self, key: [u8; 32]) -> Self {
        self.security.set_preshared_key(key);
        self
    }

    /// Proves itself by certificates or raw public keys, in TLS 1.3, and trusts whom these say.
    /// Who opens a link asks for a certificate for the address that it opens it to. The other
    /// side must be built so, too.
    #[cfg(feature = "certificates")]
    pub fn certificates(mut self, certificates: crate::security::Certificates) -> Self {
        self.security.set_certificates(certificates);
        self
    }

    /// Where peers that it opens links to are remembered, with the keys that they showed first.
    /// Without this it is [the file of the user](KnownPeers::of_user).
    pub fn known_peers(mut self, known: KnownPeers) -> Self {
        self.security.set_known_peers(known);
        self
    }

    /// Only peers with these keys may open links or have links opened to. Nobody else is asked
    /// for, and no peer is remembered unless [`known_peers`](Self::known_peers) says where.
    pub fn only_peers(mut self, peers: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.security.set_only(peers.into_iter().collect());
        self
    }

    /// Only who has this key may be that host. Without this it is who says so first, for as long
    /// as this node lives.
    ///
    /// ```
    /// use landfall::clan::network::{HostId, Identity, Node, Transport};
    ///
    /// let (one, two) = (HostId::new(1).unwrap(), HostId::new(2).unwrap());
    /// let identity = Identity::generate()?;
    /// let path = || Transport::udp("127.0.0.1:0".parse().unwrap());
    /// let builder = Node::builder(two).path(path()).identity(identity.clone());
    /// let there = builder.encrypt_loopback().open()?;
    /// let builder = Node::builder(one).path(path()).host_key(two, identity.fingerprint());
    /// let here = builder.encrypt_loopback().open()?;
    /// assert_eq!(here.link(there.local().unwrap())?.wait_up(None)?, two);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn host_key(mut self, host: HostId, key: Fingerprint) -> Self {
        self.security.set_name(host.number().into(), key);
        self
    }

    /// Writes the keys of its links to a file, for captures to be opened with: see [the builder
    /// of STP](https://docs.rs/landfall/latest/landfall/stp/struct.Builder.html#method.key_log).
    /// **Anyone who reads the file can read all that was recorded of these links, and forge what is
    /// still to come.** Without this it is the file that `LANDFALL_KEYLOG` names, or none.
    pub fn key_log(mut self, file: impl Into<PathBuf>) -> Self {
        self.security.set_key_log(file.into());
        self
    }

    /// Opens the paths, in the network namespace of this thread, and starts the
    /// thread that drives them when nobody else does.
    ///
    /// # Errors
    /// [`OpenError`] says which path could not be opened, why, and what helps.
    pub fn open(self) -> Result<Node, OpenError> {
        let pool = Arc::new(Pool::new(self.regions));
        match self.threads {
            0 | 1 => self.open_with(pool),
            _ => self.open_engines(pool),
        }
    }

    /// Opens the paths, and no thread: you make the node's turns whenever the descriptor of
    /// the [`NodeDriver`] is readable. Threads that wait for something of the node make turns
    /// as well.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_without_thread(self) -> Result<(Node, NodeDriver), OpenError> {
        self.check_one_thread(REACTOR)?;
        let (host, pool, hosts) = (self.host, Arc::new(Pool::new(self.regions)), Arc::default());
        let Parts { core, clock, bell, config, discovery } = self.build(&pool, (0, &hosts))?;
        let discoverer = discover(host, &core, discovery)?;
        let started = Runtime::start_for_reactor(core, clock, bell, config);
        let (runtime, turns) = started.map_err(OpenError::Bell)?;
        let handle = NodeHandle::new([runtime], hosts, pool, discoverer);
        Ok((Node::new(handle, host), NodeDriver::new(turns)))
    }

    /// Opens two nodes with one more path each, which joins them within this
    /// process: to the second the first is `Peer::Node(0)`, to the first the second
    /// `Peer::Node(1)`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_pair(
        mut self,
        mut other: Self,
        config: ChannelConfig,
    ) -> Result<(Node, Node), OpenError> {
        for builder in [&self, &other] {
            builder.check_one_thread(PAIR)?;
        }
        let pools = [Arc::new(Pool::new(self.regions)), Arc::new(Pool::new(other.regions))];
        #[cfg(feature = "nic")]
        if let Some(chosen) = crate::nic::chosen().map_err(OpenError::Configuration)? {
            let wire = crate::nic::Wire::new(crate::nic::WireConfig::default());
            for (builder, node) in [(&mut self, 0), (&mut other, 1)] {
                builder.paths.push(Transport::nic(&wire, Peer::Node(node), chosen.pace));
            }
            let [pool, other_pool] = pools;
            return Ok((self.open_with(pool)?, other.open_with(other_pool)?));
        }
        let path = |builder: &Self| PathId(builder.paths.len() as u16);
        let (here, there) =
            channel(config, (path(&self), &pools[0].regions), (path(&other), &pools[1].regions))
                .map_err(OpenError::Bell)?;
        self.paths.push(Transport::joined(here));
        other.paths.push(Transport::joined(there));
        let [pool, other_pool] = pools;
        Ok((self.open_with(pool)?, other.open_with(other_pool)?))
    }

    fn open_with(self, pool: Arc<Pool>) -> Result<Node, OpenError> {
        let (host, hosts) = (self.host, Arc::default());
        let Parts { core, clock, bell, config, discovery } = self.build(&pool, (0, &hosts))?;
        let discoverer = discover(host, &core, discovery)?;
        let runtime = Runtime::start(core, clock, bell, config).map_err(OpenError::Thread)?;
        Ok(Node::new(NodeHandle::new([runtime], hosts, pool, discoverer), host))
    }

    /// Several engines cannot do what is asked for.
    const fn check_one_thread(&self, why: &'static str) -> Result<(), OpenError> {
        if self.threads > 1 { Err(OpenError::NotShared(why)) } else { Ok(()) }
    }

    /// What several engines need.
    fn check_shared(&self) -> Result<(), OpenError> {
        let native = self.config.as_ref().and_then(|config| config.native);
        match () {
            () if self.paths.is_empty() => Err(OpenError::NoPath),
            () if self.threads > MOST_ENGINES => Err(OpenError::NotShared(TOO_MANY)),
            () if self.multicast.is_some() => Err(OpenError::NotShared(MULTICAST)),
            () if native.is_some() => Err(OpenError::NotShared(NATIVE)),
            () => Ok(()),
        }
    }

    /// Opens each path once for each engine.
    fn open_paths(&mut self, pool: &Pool) -> Result<Vec<Vec<Transport>>, OpenError> {
        let count = self.threads;
        let mut engines: Vec<_> = (0..count).map(|_| Vec::new()).collect();
        for (path, transport) in (0..).zip(std::mem::take(&mut self.paths)) {
            let what = transport.to_string();
            let Some(shared) = transport.as_shared() else {
                return Err(OpenError::PathNotShared { path, what });
            };
            let group = shared.open(PathId(path), &pool.regions, (count, SpreadBy::Peer));
            let group = group.map_err(|source| OpenError::Path { path, what, source })?;
            for (paths, member) in engines.iter_mut().zip(group) {
                paths.push(Transport::member(member));
            }
        }
        Ok(engines)
    }

    /// An engine for each thread.
    fn open_engines(mut self, pool: Arc<Pool>) -> Result<Node, OpenError> {
        self.check_shared()?;
        #[cfg(feature = "nic")]
        if crate::nic::chosen().map_err(OpenError::Configuration)?.is_some() {
            // A simulated adapter has one engine behind it.
            return self.open_with(pool);
        }
        let (host, hosts) = (self.host, Arc::new(Hosts::new(self.threads)));
        if self.security.seals(self.paths.iter().map(Transport::reach)) {
            self.security = std::mem::take(&mut self.security).ready()?;
        }
        let engines = self.open_paths(&pool)?;
        let mut seeds = Random::new(self.seed.map_or_else(seed_of_the_system, Ok)?);
        let (mut discovery, mut discoverer) = (self.discovery.take(), None);
        let mut cores = Vec::with_capacity(engines.len());
        for (nth, paths) in engines.into_iter().enumerate() {
            let mut seed = Seed::default();
            for word in seed.as_chunks_mut::<8>().0 {
                *word = seeds.next_u64().to_le_bytes();
            }
            let (config, security) = (self.config.clone(), self.security.clone());
            let discovery = discovery.take();
            let engine = Self { paths, seed: Some(seed), config, security, discovery, ..self };
            let Parts { core, clock, bell, config, discovery } =
                engine.build(&pool, (nth, &hosts))?;
            if discovery.is_some() {
                discoverer = discover(host, &core, discovery)?;
            }
            cores.push((core, clock, bell, config));
        }
        let start = |(core, clock, bell, config)| Runtime::start(core, clock, bell, config);
        let runtimes: io::Result<Vec<_>> = cores.into_iter().map(start).collect();
        let runtimes = runtimes.map_err(OpenError::Thread)?;
        Ok(Node::new(NodeHandle::new(runtimes, hosts, pool, discoverer), host))
    }

    /// Opens the paths, and makes the engine.
    fn build(
        mut self,
        pool: &Arc<Pool>,
        (nth, hosts): (usize, &Arc<Hosts>),
    ) -> Result<Parts, OpenError> {
        if self.paths.is_empty() {
            return Err(OpenError::NoPath);
        }
        let paths: io::Result<_> = self.paths.into_iter().map(Transport::configured).collect();
        self.paths = paths.map_err(OpenError::Configuration)?;
        let multicast = self.multicast.map(|group| join(&mut self.paths, group)).transpose()?;
        let is_shared = self.paths.iter().any(Transport::is_shared);
        let usual = if is_shared { Config::shared_network() } else { Config::default() };
        let config = self.config.unwrap_or(usual);
        let (paths, most) = (self.paths.len(), config.paths);
        if paths > most {
            return Err(OpenError::TooManyPaths { paths, most });
        }
        let seed = self.seed.map_or_else(seed_of_the_system, Ok)?;
        let write_buffer = config.write_buffer;
        let carried = Carried::new(b"clan", config.links);
        let reaches: Vec<Reach> = self.paths.iter().map(Transport::reach).collect();
        if let Some(path) = config.native.map(|native| native.path)
            && self.security.seals(reaches.get(usize::from(path.0)).copied().into_iter())
        {
            return Err(OpenError::NativeInClear { path: path.0 });
        }
        let engine = Nic::new(config, self.host, seed)?;
        let (mut engine, security) = self.security.around(engine, carried, &reaches)?;
        let mut opened = Vec::with_capacity(paths);
        for (path, transport) in (0..).zip(self.paths) {
            let what = transport.to_string();
            let path = transport
                .open(PathId(path), &pool.regions, self.host)
                .map_err(|source| OpenError::Path { path, what, source })?;
            opened.push(path);
        }
        let asks = self.discovery.as_ref().and_then(Discovery::asks);
        let discovery = self.discovery.map(Discovery::open).transpose();
        let discovery = discovery.map_err(|source| OpenError::Discovery { group: asks, source })?;
        let bell = Bell::new().map_err(OpenError::Bell)?;
        let clock = Clock::start();
        let paths = Paths::new(opened, clock, &mut engine);
        let place = (nth, Arc::clone(hosts));
        let mut core =
            NodeState::new((engine, security), paths, Arc::clone(pool), place, write_buffer);
        core.multicast = multicast;
        // Where there is no room for one endpoint more it is asked when it offers a name.
        let _ = core.listen_for_names();
        let config = RuntimeConfig {
            driving: Driving::Shared,
            wait: self.wait,
            linger: self.linger,
            thread: "landfall-clan",
        };
        Ok(Parts { core, clock, bell, config, discovery })
    }
}

// Why a node has one thread, and what to do.
const REACTOR: &str = "has those threads, and no reactor makes its turns: leave \
    `Builder::threads` out";
const TOO_MANY: &str = "has at most 64 of them: lower `Builder::threads`";
const MULTICAST: &str = "has no multicast address, which each engine would hear: leave \
    `Builder::multicast` out, and each member of a group gets a copy of its own";
const NATIVE: &str = "is at no native link, which has two ends: leave `Builder::threads` or \
    `Config::native` out";
const PAIR: &str = "is joined with no other in its process: leave `Builder::threads` out, or open \
    both by `Builder::open` over `Transport::udp`";

/// Lets the first path that can hear a group, and says which it is.
fn join(paths: &mut Vec<Transport>, group: Peer) -> Result<(PathId, Peer), OpenError> {
    let is_group = match group {
        Peer::Socket(group) => group.ip().is_multicast() && group.port() != 0,
        Peer::Ethernet([first, ..]) => first & 1 == 1,
        _ => false,
    };
    let mut joined = (0..).zip(paths.iter_mut()).filter(|_| is_group);
    let joined = joined.find_map(|(path, transport)| Some((path, transport.join(group)?)));
    let (path, more) = joined.ok_or(OpenError::NoMulticast(group))?;
    paths.extend(more);
    Ok((PathId(path), group))
}

/// What a runtime is made of.
struct Parts {
    core: NodeState,
    clock: Clock,
    bell: Bell,
    config: RuntimeConfig,
    discovery: Option<OpenDiscovery>,
}

/// Starts what finds other nodes, now that it is known where this one is reached.
fn discover(
    host: HostId,
    core: &NodeState,
    discovery: Option<OpenDiscovery>,
) -> Result<Option<Discoverer>, OpenError> {
    let Some(discovery) = discovery else { return Ok(None) };
    let fingerprint = core.engine.is_sealed().then(|| core.security.fingerprint()).flatten();
    let peers = core.paths.iter().filter_map(|path| path.local).collect();
    let me = Introduction { host, fingerprint, peers };
    Discoverer::start(discovery, me).map(Some).map_err(OpenError::Thread)
}

fn seed_of_the_system() -> Result<Seed, OpenError> {
    let mut seed = Seed::default();
    getrandom::fill(&mut seed).map_err(|error| OpenError::Seed(error.to_string()))?;
    Ok(seed)
}
