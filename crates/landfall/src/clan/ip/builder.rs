//! [`ClanIpBuilder`]: everything that can be chosen; [`ClanIp`], which runs; and
//! [`ClanIpStats`], what it did.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clan_dsm::{Config, HostId, Port};
use landfall_placement::Peer;
use landfall_seal::Fingerprint;
use landfall_transport::Wait;
use landfall_transport::tap::{TapConfig, open_super_frames};

use super::exchange::ExchangeState;
use super::outgoing::station_of;
use super::terms::{PORT, Terms};
use super::{ClanIpError, MTU_MAX, MTU_MIN};
use crate::clan::network::{self, Node, Transport};

/// Another host of the network, and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its number.
    pub host: HostId,
    /// Where it is reached over the path below.
    pub peer: Peer,
}

/// A text names no neighbour.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none: 2=192.0.2.2:7100 or 2=02:00:00:00:00:02 would be")]
pub struct BadNeighbour(String);

/// By its number, and its UDP or Ethernet address.
///
/// ```
/// use landfall::clan::ip::Neighbour;
/// use landfall::clan::network::Peer;
///
/// let neighbour: Neighbour = "2=192.0.2.2:7100".parse()?;
/// assert_eq!(neighbour.host.number(), 2);
/// assert_eq!(neighbour.peer, Peer::Socket("192.0.2.2:7100".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl FromStr for Neighbour {
    type Err = BadNeighbour;

    fn from_str(text: &str) -> Result<Self, BadNeighbour> {
        let parse = || {
            let (number, address) = text.split_once('=')?;
            let host = HostId::new(number.parse().ok()?)?;
            let socket = address.parse().ok().map(Peer::Socket);
            let peer = socket.or_else(|| station(address).map(Peer::Ethernet))?;
            Some(Self { host, peer })
        };
        parse().ok_or_else(|| BadNeighbour(text.to_owned()))
    }
}

fn station(text: &str) -> Option<[u8; 6]> {
    let byte = |byte: &str| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() <= 2);
    let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
    bytes?.try_into().ok()
}

/// Chooses what an interface is like, then starts it. See [`ClanIp`].
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct ClanIpBuilder {
    host: HostId,
    node: network::Builder,
    name: String,
    mtu: u32,
    buffers: u32,
    address: Option<(IpAddr, u8)>,
    neighbours: Vec<Neighbour>,
}

impl ClanIpBuilder {
    fn new(host: HostId, transport: Transport) -> Self {
        Self {
            host,
            node: Node::builder(host).path(transport),
            name: "clan0".into(),
            mtu: 16_384,
            buffers: 128,
            address: None,
            neighbours: Vec::new(),
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
        self.node(|node| node.config(config))
    }

    /// How the node below waits.
    pub fn wait(self, wait: Wait) -> Self {
        self.node(|node| node.wait(wait))
    }

    /// All else that can be chosen about the node below: above all who it is, whom it trusts,
    /// and what of it is encrypted. Without this all that leaves the host is, with the identity
    /// of the user.
    ///
    /// ```no_run
    /// use landfall::clan::ip::ClanIp;
    /// use landfall::clan::network::{HostId, Transport};
    ///
    /// # let key = [0; 32];
    /// let host = HostId::new(1).expect("fourteen bits");
    /// let clan = ClanIp::builder(host, Transport::udp("192.0.2.1:7100".parse()?))
    ///     .node(|node| node.preshared_key(key))
    ///     .start()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn node(self, choose: impl FnOnce(network::Builder) -> network::Builder) -> Self {
        Self { node: choose(self.node), ..self }
    }

    /// Makes the interface, in the network namespace of the calling thread, and starts.
    ///
    /// # Errors
    /// What is invalid, and what the kernel refuses: [`ClanIpError`] says which.
    pub fn start(self) -> Result<ClanIp, ClanIpError> {
        self.check()?;
        let Self { host, node, name, mtu, buffers, address, neighbours } = self;
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
        let shared = Arc::new(ExchangeState::new(node, terms, writer)?);
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
/// let host = |number| HostId::new(number).expect("fourteen bits");
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
    shared: Arc<ExchangeState>,
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

    /// What other hosts know this one by, if it encrypts.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.shared.node().fingerprint()
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
    /// Connections that were not made since there are no keys for the host: it showed another
    /// one than before, or does not encrypt.
    pub without_keys: u64,
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
    without_keys: AtomicU64,
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

    pub(super) fn without_keys(&self) {
        add(&self.without_keys, 1);
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
            without_keys: get(&self.without_keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_understood() {
        let ethernet: Neighbour = "3=02:0:00:00:00:ff".parse().unwrap();
        assert_eq!(ethernet.peer, Peer::Ethernet([2, 0, 0, 0, 0, 0xff]));
        for bad in [
            "192.0.2.2:7100",
            "2=192.0.2.2",
            "x=192.0.2.2:1",
            "16384=192.0.2.2:1",
            "2=02:00:00:00:00",
            "2=1ff:0:0:0:0:0",
        ] {
            let error = bad.parse::<Neighbour>().unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
        }
    }
}
