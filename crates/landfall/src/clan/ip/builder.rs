//! [`ClanIpBuilder`]: everything that can be chosen; [`ClanIp`], which runs; and
//! [`ClanIpStats`], what it did.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clan_dsm::{Config, HostId, Port};
use landfall_placement::Peer;
use landfall_transport::Wait;
use landfall_transport::tap::{TapConfig, open_super_frames};

use super::exchange::Shared;
use super::outgoing::station_of;
use super::terms::{PORT, Terms};
use super::{ClanIpError, MTU_MAX, MTU_MIN};
use crate::clan::network::{Node, Transport};

/// Another host of the network, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its number.
    pub host: HostId,
    /// Where it is reached over the path below.
    pub peer: Peer,
}

/// Chooses what an interface is like, then starts it. See [`ClanIp`].
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct ClanIpBuilder {
    host: HostId,
    transport: Transport,
    name: String,
    mtu: u32,
    buffers: u32,
    address: Option<(IpAddr, u8)>,
    neighbours: Vec<Neighbour>,
    config: Option<Config>,
    wait: Wait,
}

impl ClanIpBuilder {
    fn new(host: HostId, transport: Transport) -> Self {
        Self {
            host,
            transport,
            name: "clan0".into(),
            mtu: 16_384,
            buffers: 128,
            address: None,
            neighbours: Vec::new(),
            config: None,
            wait: Wait::BALANCED,
        }
    }

    /// The name of the interface; `clan0` if not given.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Its MTU, the same at all hosts; 16 KiB if not given.
    pub fn mtu(self, mtu: u32) -> Self {
        Self { mtu, ..self }
    }

    /// Buffers of 64 KiB for each host that sends to this one, the same at all hosts; 128
    /// if not given.
    pub fn buffers(self, buffers: u32) -> Self {
        Self { buffers, ..self }
    }

    /// An address for it, and the length of its subnet's prefix.
    pub fn address(self, address: IpAddr, prefix: u8) -> Self {
        Self { address: Some((address, prefix)), ..self }
    }

    /// Another host.
    pub fn neighbour(mut self, host: HostId, peer: impl Into<Peer>) -> Self {
        self.neighbours.push(Neighbour { host, peer: peer.into() });
        self
    }

    /// The bounds and habits of the engine below.
    pub fn config(self, config: Config) -> Self {
        Self { config: Some(config), ..self }
    }

    /// How the node below waits.
    pub fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// Makes the interface, in the network namespace of the calling thread, and starts.
    ///
    /// # Errors
    /// What makes no sense, and what the kernel refuses: [`ClanIpError`] says which.
    pub fn start(self) -> Result<ClanIp, ClanIpError> {
        self.check()?;
        let Self { host, transport, name, mtu, buffers, address, neighbours, config, wait } = self;
        let mut node = Node::builder(host).path(transport).wait(wait);
        if let Some(config) = config {
            node = node.config(config);
        }
        let node = node.open()?;
        let tap = TapConfig {
            mtu: Some(mtu),
            kernel_station: Some(station_of(host)),
            kernel_address: address,
            ..TapConfig::new(name)
        };
        let (reader, writer) = open_super_frames(&tap, node.regions())?;
        let listener = node.endpoint(Some(Port(PORT)))?;
        listener.listen()?;
        let neighbours: BTreeMap<_, _> =
            neighbours.into_iter().map(|Neighbour { host, peer }| (host, peer)).collect();
        let (name, terms) = (reader.name().to_owned(), Terms { mtu, buffers });
        let shared = Arc::new(Shared::new(node, terms, writer)?);
        // From here on the thread ends when this is dropped.
        let clan = ClanIp { shared, name };
        clan.shared.start(reader, listener, neighbours)?;
        Ok(clan)
    }

    fn check(&self) -> Result<(), ClanIpError> {
        let bad = |why: String| Err(ClanIpError::BadConfig(why));
        if !(MTU_MIN..=MTU_MAX).contains(&self.mtu) {
            return bad(format!("an MTU of {}; {MTU_MIN} to {MTU_MAX} are possible", self.mtu));
        }
        if !(2..=65_536).contains(&self.buffers) {
            return bad(format!("{} buffers; 2 to 65536 are possible", self.buffers));
        }
        if self.neighbours.iter().any(|neighbour| neighbour.host == self.host) {
            return bad(format!("{} is this host, and cannot be its own neighbour", self.host));
        }
        Ok(())
    }
}

/// An interface of the kernel whose packets travel as DMA, for as long as this lives.
///
/// ```no_run
/// use landfall::clan::ip::ClanIp;
/// use landfall::clan::network::{HostId, Transport};
///
/// let host = |number| HostId::new(number).expect("twelve bits");
/// let there = "192.0.2.2:7100".parse::<std::net::SocketAddr>()?;
/// let clan = ClanIp::builder(host(1), Transport::udp("192.0.2.1:7100".parse()?))
///     .address("10.7.0.1".parse()?, 24)
///     .neighbour(host(2), there)
///     .start()?;
/// println!("{} is up", clan.name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ClanIp {
    shared: Arc<Shared>,
    name: String,
}

impl ClanIp {
    /// An interface of this host, over this path to the others.
    pub fn builder(host: HostId, transport: Transport) -> ClanIpBuilder {
        ClanIpBuilder::new(host, transport)
    }

    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its MTU.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.shared.terms().mtu
    }

    /// Where others reach this host on the path below.
    #[must_use]
    pub fn local(&self) -> Option<Peer> {
        self.shared.node().local()
    }

    /// What it did so far.
    #[must_use]
    pub fn stats(&self) -> ClanIpStats {
        self.shared.stats()
    }

    /// False once something is broken that nothing here can mend: then
    /// [`stop`](Self::stop) says what.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.is_over()
    }

    /// Ends it; the interface goes.
    ///
    /// # Errors
    /// Why it had ended before.
    pub fn stop(self) -> Result<ClanIpStats, ClanIpError> {
        self.shared.end();
        match self.shared.take_error() {
            Some(error) => Err(error),
            None => Ok(self.shared.stats()),
        }
    }
}

impl Drop for ClanIp {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// What an interface did since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClanIpStats {
    /// Packets that went out by DMA.
    pub sent: u64,
    /// Their bytes, from the IP header on.
    pub sent_bytes: u64,
    /// Packets that came in, and that the kernel took.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets for which no cookie was there at once: the receiver was slower.
    pub waited: u64,
    /// Packets that were dropped: no cookie came in time, nobody was there, or too
    /// many waited for a connection.
    pub dropped: u64,
    /// Packets that the kernel did not take, as when the interface is down.
    pub not_taken: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that ended because the other side wrote what no correct one does.
    pub misbehaved: u64,
}

/// The same while it works: one thread counts, others look.
#[derive(Debug, Default)]
pub(super) struct Counts {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    waited: AtomicU64,
    dropped: AtomicU64,
    not_taken: AtomicU64,
    connections: AtomicU64,
    misbehaved: AtomicU64,
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn sent(&self, bytes: usize) {
        add(&self.sent, 1);
        add(&self.sent_bytes, bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        add(&self.received, 1);
        add(&self.received_bytes, bytes as u64);
    }

    pub(super) fn waited(&self) {
        add(&self.waited, 1);
    }

    pub(super) fn dropped(&self) {
        add(&self.dropped, 1);
    }

    pub(super) fn not_taken(&self) {
        add(&self.not_taken, 1);
    }

    pub(super) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(super) fn misbehaved(&self) {
        add(&self.misbehaved, 1);
    }

    pub(super) fn read(&self) -> ClanIpStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ClanIpStats {
            sent: get(&self.sent),
            sent_bytes: get(&self.sent_bytes),
            received: get(&self.received),
            received_bytes: get(&self.received_bytes),
            waited: get(&self.waited),
            dropped: get(&self.dropped),
            not_taken: get(&self.not_taken),
            connections: get(&self.connections),
            misbehaved: get(&self.misbehaved),
        }
    }
}
