//! [`Builder`]: everything that can be chosen about an endpoint.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "nic")]
use landfall_placement::Peer;
use landfall_placement::{Duration, PathId, Random, Seed};
use landfall_seal::Fingerprint;
use landfall_transport::channel::{ChannelConfig, channel};
use landfall_transport::memory::ArenaConfig;
use landfall_transport::{Bell, Clock, Wait};
use stp_core::Config;

use super::driver::EndpointDriver;
use super::endpoint::Endpoint;
use super::error::BindError;
use super::memory::Pool;
use super::path::Transport;
use super::shards::{self, Shards, spread_of};
use super::state::{EndpointState, Engine, Handle, Paths};
use crate::runtime::{Driving, Reach, Runtime, RuntimeConfig};
use crate::security::{Carried, Identity, KnownPeers, Security};

/// Chooses what an endpoint is like, then binds it.
///
/// ```
/// use landfall::stp::{Config, Endpoint, Transport, Wait};
///
/// let endpoint = Endpoint::builder()
///     .path(Transport::udp("127.0.0.1:0".parse()?))
///     .path(Transport::udp("127.0.0.1:0".parse()?))
///     .config(Config { keep_alive: None, ..Config::shared_network() })
///     .wait(Wait::Block)
///     .bind()?;
/// assert_eq!(endpoint.paths().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens until it is bound"]
pub struct Builder {
    paths: Vec<Transport>,
    config: Option<Config>,
    wait: Wait,
    regions: u32,
    arena: ArenaConfig,
    backlog: usize,
    linger: Duration,
    seed: Option<Seed>,
    threads: usize,
    security: Security,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            config: None,
            wait: Wait::BALANCED,
            regions: 1 << 16,
            arena: ArenaConfig::default(),
            backlog: 1024,
            linger: Duration::from_secs(5),
            seed: None,
            threads: 1,
            security: Security::default(),
        }
    }
}

impl Builder {
    /// Adds a path. They are numbered from 0 on, in the order of the calls.
    pub fn path(mut self, transport: Transport) -> Self {
        self.paths.push(transport);
        self
    }

    /// The bounds and habits of the engine. Without this they are
    /// [`Config::shared_network`], with a window that yields to congestion,
    /// where a path is UDP or IP, and [`Config::default`] elsewhere.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// How a driving thread waits: it spins for 50 µs and then sleeps, unless
    /// you choose otherwise.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How many regions may be registered at a time, with the memory of
    /// operations under way.
    pub const fn regions(mut self, most: u32) -> Self {
        self.regions = most;
        self
    }

    /// Where memory for bytes that are not registered comes from, and how much.
    pub const fn arena(mut self, config: ArenaConfig) -> Self {
        self.arena = config;
        self
    }

    /// How many connections may wait at a port to be accepted; more are refused.
    pub const fn backlog(mut self, most: usize) -> Self {
        self.backlog = most;
        self
    }

    /// How long connections may take to close when the endpoint is closed or
    /// dropped; then they are ended.
    pub const fn linger(mut self, time: Duration) -> Self {
        self.linger = time;
        self
    }

    /// What determines every key that the endpoint gives out: for tests. Without
    /// this the operating system chooses.
    pub const fn seed(mut self, seed: Seed) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many engines share the work, each with a thread of its own: 1, unless you choose
    /// otherwise. The endpoint has one path then, which all of them share: [UDP](Transport::udp),
    /// [UDP by packets](Transport::udp_packet) or [Ethernet](Transport::ethernet). Handles look
    /// the same as with one.
    ///
    /// A connection belongs to one engine for all of its life. Those that come in are spread
    /// by the kernel, over UDP by the addresses and ports of both ends (`SO_REUSEPORT`, and
    /// `PACKET_FANOUT` for packets), so all that come from one port of a peer meet in one engine.
    /// Those that go out are spread in turn, and each engine connects from a port of its own.
    /// Over Ethernet all connections with one station are one engine's, whichever side opened
    /// them. Registered memory serves all.
    ///
    /// The bounds of the [`Config`] (connections, slots, windows) are those of each engine.
    ///
    /// A connection that came in survives a change of its peer's address (behind a NAT that
    /// forgot it) only where the kernel finds the same engine for the new one. Another engine
    /// refuses what the peer says, and to the connection the peer has fallen silent. For the
    /// same reason the other side cannot [add links](super::Connection::add_link) to a
    /// connection that came in here, nor over Ethernet either side one to another station. Leave this out where that matters more than a second core.
    ///
    /// ```
    /// use landfall::stp::{Endpoint, Transport};
    ///
    /// let path = Transport::udp("127.0.0.1:0".parse()?);
    /// let endpoint = Endpoint::builder().path(path).threads(2).bind()?;
    /// assert_eq!(endpoint.threads(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// Encrypts nothing: anyone who is on the way can read and change all of it. The other side
    /// must be built so, too. What stays on the host is plain anyway.
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

    /// Both ends prove that they have these 32 random bytes, and nothing else. A password is
    /// no such key: what people remember can be guessed from a recording.
    ///
    /// ```
    /// use landfall::stp::{Memory, Transport, blocking::Endpoint};
    ///
    /// let bind = |key| {
    ///     let path = Transport::udp("127.0.0.1:0".parse().unwrap());
    ///     let builder = Endpoint::builder().path(path).preshared_key(key).encrypt_loopback();
    ///     builder.bind().map(Endpoint::from)
    /// };
    /// let (server, client) = (bind([7; 32])?, bind([7; 32])?);
    /// let listener = server.listen(7)?;
    /// let sending = client.connect(server.local().unwrap(), 7)?;
    /// let pending = sending.send("nobody else reads this").start();
    /// let received = listener.accept()?.receive(Memory::zeroed(100)).wait()?;
    /// assert_eq!(&*received, b"nobody else reads this");
    /// # pending.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn preshared_key(mut self, key: [u8; 32]) -> Self {
        self.security.set_preshared_key(key);
        self
    }

    /// Proves itself by certificates or raw public keys, in TLS 1.3, and trusts whom these say.
    /// The other side must be built so, too.
    #[cfg(feature = "certificates")]
    pub fn certificates(mut self, certificates: super::Certificates) -> Self {
        self.security.set_certificates(certificates);
        self
    }

    /// Where peers that it connects to are remembered, with the keys that they showed first.
    /// Without this it is [the file of the user](KnownPeers::of_user).
    pub fn known_peers(mut self, known: KnownPeers) -> Self {
        self.security.set_known_peers(known);
        self
    }

    /// Only peers with these keys may connect or be connected to. Nobody else is asked for,
    /// and no peer is remembered unless [`known_peers`](Self::known_peers) says where.
    pub fn only_peers(mut self, peers: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.security.set_only(peers.into_iter().collect());
        self
    }

    /// Writes the keys of its connections to a file, for captures to be opened with
    /// (`landfall decrypt`): one line for each direction of each, added to what is there. The file
    /// is made for its owner alone; one that others can read is refused. Without this it is the
    /// file that `LANDFALL_KEYLOG` names, or none.
    ///
    /// **Anyone who reads the file can read all that was recorded of these connections, and forge
    /// what is still to come.** It is for looking into connections of your own: name no file that
    /// is backed up or shared, and remove it when you are done. [The
    /// format](https://github.com/landfall-rs/landfall/blob/main/docs/spec/seal.md#key-logs) is like
    /// that of `SSLKEYLOGFILE`.
    ///
    /// ```
    /// use landfall::stp::{Endpoint, Transport};
    /// # let folder = std::env::temp_dir().join(format!("key-log-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let file = folder.join("keys");
    /// let path = Transport::udp("127.0.0.1:0".parse()?);
    /// let builder = Endpoint::builder().path(path).preshared_key([7; 32]).encrypt_loopback();
    /// let endpoint = builder.key_log(&file).bind()?;
    /// assert!(file.exists());
    /// # drop(endpoint);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key_log(mut self, file: impl Into<PathBuf>) -> Self {
        self.security.set_key_log(file.into());
        self
    }

    /// Opens the paths, in the network namespace of this thread, and starts the
    /// thread that drives them.
    ///
    /// # Errors
    /// [`BindError`] says which path could not be opened, why, and what helps.
    pub fn bind(self) -> Result<Endpoint, BindError> {
        let pool = self.pool();
        match self.threads {
            0 | 1 => self.bind_with(pool),
            _ => self.bind_shards(&pool),
        }
    }

    /// The same without a thread: you make the turns, in a reactor of your own, whenever the
    /// descriptor of the [`EndpointDriver`] is readable.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_without_thread(self) -> Result<(Endpoint, EndpointDriver), BindError> {
        self.check_one_thread()?;
        let pool = self.pool();
        let Parts { core, clock, bell, config } = self.open(&pool)?;
        let started = Runtime::start_for_reactor(core, clock, bell, config);
        let (runtime, turns) = started.map_err(BindError::Bell)?;
        let endpoint = Endpoint::new(Arc::new(Handle::new(runtime, pool)));
        Ok((endpoint, EndpointDriver::new(turns)))
    }

    /// Binds two endpoints with one more path each, which joins them within
    /// this process: to the second the first is `Peer::Node(0)`, to the first
    /// the second `Peer::Node(1)`.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_pair(
        mut self,
        mut other: Self,
        config: ChannelConfig,
    ) -> Result<(Endpoint, Endpoint), BindError> {
        self.check_one_thread()?;
        other.check_one_thread()?;
        let pools = [self.pool(), other.pool()];
        #[cfg(feature = "nic")]
        if let Some(chosen) = crate::nic::chosen().map_err(BindError::Configuration)? {
            let wire = crate::nic::Wire::new(crate::nic::WireConfig::default());
            for (builder, node) in [(&mut self, 0), (&mut other, 1)] {
                builder.paths.push(Transport::nic(&wire, Peer::Node(node), chosen.pace));
            }
            let [pool, other_pool] = pools;
            return Ok((self.bind_with(pool)?, other.bind_with(other_pool)?));
        }
        let path = |builder: &Self| PathId(builder.paths.len() as u16);
        let (here, there) =
            channel(config, (path(&self), &pools[0].regions), (path(&other), &pools[1].regions))
                .map_err(BindError::Bell)?;
        self.paths.push(Transport::joined(here));
        other.paths.push(Transport::joined(there));
        let [pool, other_pool] = pools;
        Ok((self.bind_with(pool)?, other.bind_with(other_pool)?))
    }

    fn bind_with(self, pool: Arc<Pool>) -> Result<Endpoint, BindError> {
        let Parts { core, clock, bell, config } = self.open(&pool)?;
        let runtime = Runtime::start(core, clock, bell, config).map_err(BindError::Thread)?;
        Ok(Endpoint::new(Arc::new(Handle::new(runtime, pool))))
    }

    /// The memory of the endpoint. Where a path may find neighbours they can read what is of
    /// its arena.
    fn pool(&self) -> Arc<Pool> {
        let finds_neighbours = |path: &Transport| {
            path.as_udp().is_some_and(|config| config.same_host && self.threads <= 1)
        };
        let same_host = self.arena.same_host || self.paths.iter().any(finds_neighbours);
        Arc::new(Pool::new(self.regions, ArenaConfig { same_host, ..self.arena }))
    }

    /// Several engines cannot share what is asked for.
    const fn check_one_thread(&self) -> Result<(), BindError> {
        if self.threads > 1 { Err(BindError::NotShared) } else { Ok(()) }
    }

    /// An engine for each thread.
    fn bind_shards(mut self, pool: &Arc<Pool>) -> Result<Endpoint, BindError> {
        let [transport] = &self.paths[..] else {
            let is_none = self.paths.is_empty();
            return Err(if is_none { BindError::NoPath } else { BindError::NotShared });
        };
        let shared = transport.as_shared().ok_or(BindError::NotShared)?;
        #[cfg(feature = "nic")]
        if crate::nic::chosen().map_err(BindError::Configuration)?.is_some() {
            // A simulated adapter has one engine behind it.
            return self.bind_with(Arc::clone(pool));
        }
        let what = transport.to_string();
        let spread = spread_of(&shared);
        let group = shards::open(&shared, &pool.regions, self.threads);
        let group = group.map_err(|source| BindError::Path { path: 0, what, source })?;
        if self.security.seals(self.paths.iter().map(Transport::reach)) {
            self.security = std::mem::take(&mut self.security).ready()?;
        }
        let mut seeds = Random::new(self.seed.map_or_else(seed_of_the_system, Ok)?);
        self.paths.clear();
        let mut handles = Vec::with_capacity(self.threads);
        for paths in group {
            let mut seed = Seed::default();
            for word in seed.as_chunks_mut::<8>().0 {
                *word = seeds.next_u64().to_le_bytes();
            }
            let (config, security) = (self.config.clone(), self.security.clone());
            let shard = Self { paths, seed: Some(seed), config, security, ..self };
            let Parts { core, clock, bell, config } = shard.open(pool)?;
            let runtime = Runtime::start(core, clock, bell, config).map_err(BindError::Thread)?;
            handles.push(Arc::new(Handle::new(runtime, Arc::clone(pool))));
        }
        Ok(Endpoint::of_shards(Shards::new(handles, spread)))
    }

    /// Seals an engine where something of it leaves the host.
    fn make_engine(&mut self, engine: stp_core::Endpoint) -> Result<(Engine, Security), BindError> {
        let carried = Carried::new(b"stp", engine.config().connections);
        let reaches: Vec<Reach> = self.paths.iter().map(Transport::reach).collect();
        Ok(std::mem::take(&mut self.security).around(engine, carried, &reaches)?)
    }

    /// Opens the paths, and makes the engine.
    fn open(mut self, pool: &Arc<Pool>) -> Result<Parts, BindError> {
        if self.paths.is_empty() {
            return Err(BindError::NoPath);
        }
        let paths: io::Result<_> = self.paths.into_iter().map(Transport::configured).collect();
        self.paths = paths.map_err(BindError::Configuration)?;
        let is_shared = self.paths.iter().any(Transport::is_shared);
        let usual = if is_shared { Config::shared_network() } else { Config::default() };
        let mut config = self.config.take().unwrap_or(usual);
        if self.paths.iter().all(Transport::is_adapter) {
            config.adapters = u8::try_from(self.paths.len()).unwrap_or(u8::MAX);
        }
        let seed = self.seed.map_or_else(seed_of_the_system, Ok)?;
        let (engine, security) = self.make_engine(stp_core::Endpoint::new(config, seed)?)?;
        let mut engine = engine;
        if let Some(padding) = pool.padding {
            let set = engine.set_padding(padding);
            set.map_err(|error| BindError::Configuration(io::Error::other(error)))?;
        }
        let (paths, most) = (self.paths.len(), engine.config().paths);
        if paths > most {
            return Err(BindError::TooManyPaths { paths, most });
        }
        let mut opened = Vec::with_capacity(paths);
        for (path, transport) in (0..).zip(self.paths) {
            let what = transport.to_string();
            let path = transport
                .open(PathId(path), &pool.regions, engine.config())
                .map_err(|source| BindError::Path { path, what, source })?;
            opened.push(path);
        }
        let bell = Bell::new().map_err(BindError::Bell)?;
        let clock = Clock::start();
        let paths = Paths::new(opened, clock, &mut engine);
        let core = EndpointState::new((engine, security), paths, Arc::clone(pool), self.backlog);
        let config = RuntimeConfig {
            driving: Driving::Shared,
            wait: self.wait,
            linger: self.linger,
            thread: "landfall-stp",
        };
        Ok(Parts { core, clock, bell, config })
    }
}

/// What a runtime is made of.
struct Parts {
    core: EndpointState,
    clock: Clock,
    bell: Bell,
    config: RuntimeConfig,
}

fn seed_of_the_system() -> Result<Seed, BindError> {
    let mut seed = Seed::default();
    getrandom::fill(&mut seed).map_err(|error| BindError::Seed(error.to_string()))?;
    Ok(seed)
}
