//! [`Host`]: the adapter of QPIP that a process has where users choose that carrier, and the
//! queue pairs below connections.
//!
//! What goes through such a connection is what else is written to the ring of the other side, as
//! a stream of bytes over TCP: what has come is received in the own ring, where it belongs. The
//! room that is posted there is the window that the other side sees.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use landfall::qpip::{
    Access, Adapter, CloseReason, CompletionQueue, Config, Error, KeepAlive, Link, Listener,
    Mapping, Memory, MemoryRegion, Phase, ProtectionDomain, QueuePair, QueuePairId,
    QueuePairOptions, TcpConfig,
};

use crate::abi::{FI_EADDRNOTAVAIL, FI_ECONNREFUSED, FI_ECONNRESET, FI_ENOMEM, FI_ETIMEDOUT};
use crate::address::Local;
use crate::completion::Failure;
use crate::notify::locked;
use crate::ring::{MOST_UNDER_WAY, RING};
use crate::settings::CARRIER;

/// Over what the adapter is on the network: `packet:eth1`.
const LINK: &str = "FI_LANDFALL_QPIP_LINK";
/// The adapter's own address, which no kernel has: `192.0.2.100/24`.
const ADDRESS: &str = "FI_LANDFALL_QPIP_ADDRESS";
/// Who forwards to other networks.
const GATEWAY: &str = "FI_LANDFALL_QPIP_GATEWAY";

/// A ring is received in pieces of this length.
pub(crate) const PIECE: u64 = 16 << 10;
/// This many connections that nobody has looked at yet can come in.
const BACKLOG: usize = 16;
/// This many connections that are over may wait for the last word of the other side.
const MOST_CLOSING: usize = 64;
/// How long that may take when the adapter is closed.
const FINISH: Duration = Duration::from_secs(1);
/// Where nobody says which port it is to be: the first of those that are nobody's, and how many
/// are tried.
const FIRST_PORT: u16 = 49_152;
const PORTS_TRIED: u16 = 8_192;
/// After this many seconds of silence a peer is given up, unless users say otherwise.
const PATIENCE: u32 = 30;

/// How the adapter is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QpipSettings {
    link: String,
    address: String,
    gateway: Option<String>,
    /// The address, as others are told of it.
    pub(crate) local: Local,
}

impl QpipSettings {
    /// What the environment says.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let needed = |name: &str, what: &str| {
            get(name).ok_or_else(|| format!("{CARRIER}=qpip needs {name}, as {what}"))
        };
        let link = needed(LINK, "packet:eth1")?;
        link.parse::<Link>().map_err(|why| format!("{LINK}: {why}"))?;
        let address = needed(ADDRESS, "192.0.2.100/24")?;
        let parsed = address.split_once('/').and_then(|(ip, prefix)| {
            let (ip, prefix): (IpAddr, u32) = (ip.parse().ok()?, prefix.parse().ok()?);
            let most = if ip.is_ipv4() { 32 } else { 128 };
            (prefix <= most).then_some((ip, prefix))
        });
        let (ip, prefix) = parsed.ok_or_else(|| {
            format!(
                "{ADDRESS} is '{address}': an address with its network is meant, as 192.0.2.100/24"
            )
        })?;
        let local = Local { interface: link.clone(), ip, scope: 0, prefix };
        Ok(Self { link, address, gateway: get(GATEWAY), local })
    }

    /// Opens the adapter, for peers that may be silent for this many seconds.
    fn open(&self, patience: Option<u32>) -> Result<Adapter, String> {
        let seconds = patience.unwrap_or(PATIENCE);
        let patience = Duration::from_secs(seconds.into());
        let config = Config::default();
        let keep_alive = KeepAlive { idle: patience / 2, interval: patience / 8, probes: 4 };
        let tcp = TcpConfig {
            // A send is complete, and its room free, when it is acknowledged.
            acknowledge_after: Duration::from_millis(1),
            keep_alive: Some(keep_alive),
            give_up_after: patience,
            // Each waits twice as long as the one before, from one second on.
            opening_retries: (seconds + 1).ilog2().clamp(1, 7) as u8,
            ..config.tcp
        };
        let link: Link = self.link.parse().map_err(|why| format!("{LINK}: {why}"))?;
        let builder = Adapter::builder().config(Config { tcp, ..config });
        let mut builder = builder.link(link).address(&self.address);
        if let Some(gateway) = &self.gateway {
            builder = builder.gateway(gateway);
        }
        builder.open().map_err(|why| why.to_string())
    }
}

/// The adapter of this process.
pub(crate) struct Host {
    adapter: Adapter,
    domain: ProtectionDomain,
    settings: QpipSettings,
    /// The process that has it: a child of it has its memory, and not its thread.
    process: u32,
    /// Queue pairs that have said their last, until the other side has, too.
    closing: Mutex<Vec<QueuePair>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Two adapters with one address would answer for each other.
static HOST: Mutex<Weak<Host>> = Mutex::new(Weak::new());

impl Host {
    /// The adapter of this process, which is opened with the first who asks.
    pub(crate) fn of_process(
        settings: &QpipSettings,
        patience: Option<u32>,
    ) -> Result<Arc<Self>, Failure> {
        let unavailable = |why: String| Failure::new(FI_EADDRNOTAVAIL, why);
        let process = std::process::id();
        let mut known = locked(&HOST);
        match known.upgrade() {
            Some(host) if host.process != process => std::mem::forget(host),
            Some(host) if host.settings == *settings => return Ok(host),
            Some(host) => {
                let why = format!("this process has an adapter already: {:?}", host.settings);
                return Err(unavailable(why));
            }
            None => {}
        }
        let adapter = settings.open(patience).map_err(unavailable)?;
        let domain = adapter.domain().map_err(|error| failure(&error))?;
        let (settings, closing) = (settings.clone(), Mutex::default());
        let host = Arc::new(Self { adapter, domain, settings, process, closing });
        *known = Arc::downgrade(&host);
        Ok(host)
    }

    /// Listens at one of these addresses: the first that is free, where there is a choice.
    pub(crate) fn listen(
        &self,
        mut candidates: impl Iterator<Item = SocketAddr>,
    ) -> Result<Listener, Failure> {
        let first = FIRST_PORT + (self.process % u32::from(PORTS_TRIED)) as u16;
        let free =
            (0..PORTS_TRIED).map(|nth| FIRST_PORT + (first - FIRST_PORT + nth) % PORTS_TRIED);
        let mut why = None;
        let mut listen = |address| match self.adapter.listen(address) {
            Ok(listener) => Some(listener),
            Err(error) => {
                why = Some(format!("{address}: {error}"));
                None
            }
        };
        let found = candidates.find_map(|address| match address.port() {
            0 => free.clone().find_map(|port| listen(SocketAddr::new(address.ip(), port))),
            _ => listen(address),
        });
        let why = || why.unwrap_or_else(|| "there is no port to take".to_owned());
        found.ok_or_else(|| Failure::new(FI_EADDRNOTAVAIL, why()))
    }

    /// A queue pair that is not connected, with room for all of a ring.
    pub(crate) fn queue(self: &Arc<Self>) -> Result<Queue, Failure> {
        let (sends, receives) = (MOST_UNDER_WAY as u32, (RING / PIECE) as u32);
        let options = QueuePairOptions {
            send_depth: sends,
            receive_depth: receives,
            buffers: 1,
            tells: true,
            ..QueuePairOptions::tcp(Mapping::Stream)
        };
        // A byte stream needs a place more than it has receives.
        let completions = self.adapter.completion_queue(sends + receives + 1);
        let completions = completions.map_err(|error| failure(&error))?;
        let pair = self.domain.queue_pair(&options, &completions, &completions);
        let mut pair = pair.map_err(|error| failure(&error))?;
        let own = self.ring(Access::Write)?;
        for at in (0..RING).step_by(PIECE as usize) {
            let part = own.part(at..at + PIECE).map_err(|error| failure(&error))?;
            pair.post_receive(at, &[part]).map_err(|why| cannot_post(&why))?;
        }
        Ok(Queue { host: Arc::clone(self), pair: Some(pair), completions, own })
    }

    /// Memory for a ring.
    pub(crate) fn ring(&self, access: Access) -> Result<MemoryRegion, Failure> {
        let memory = Memory::try_zeroed(RING as usize)
            .map_err(|error| Failure::new(FI_ENOMEM, error.to_string()))?;
        self.domain.register(memory, access).map_err(|refused| failure(&refused.error))
    }

    /// Is it an address of the adapter itself, whose frames come back from nowhere?
    pub(crate) fn is_own(&self, ip: IpAddr) -> bool {
        self.settings.local.ip == ip
    }

    /// Keeps a queue pair until the other side has said its last: dropped, it would be reset.
    fn retire(&self, pair: QueuePair) {
        let mut closing = locked(&self.closing);
        closing.retain(|pair| !matches!(pair.phase(), Phase::Closed(_)));
        if closing.len() >= MOST_CLOSING {
            closing.remove(0);
        }
        closing.push(pair);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Its thread is the parent's.
            return;
        }
        let until = std::time::Instant::now() + FINISH;
        for pair in std::mem::take(&mut *locked(&self.closing)) {
            let left = until.saturating_duration_since(std::time::Instant::now());
            // One that does not end is reset.
            let _ = pair.closed().wait_for(left);
        }
        // The process may end after this: the last words are to leave before.
        let _ = self.adapter.clone().close().wait_for(FINISH);
    }
}

/// A queue pair, and the ring that it receives in.
pub(crate) struct Queue {
    host: Arc<Host>,
    /// Until this is dropped.
    pair: Option<QueuePair>,
    pub(crate) completions: CompletionQueue,
    pub(crate) own: MemoryRegion,
}

impl Queue {
    pub(crate) const fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// The queue pair, and what completes there.
    pub(crate) fn parts(&mut self) -> Option<(&mut QueuePair, &mut CompletionQueue)> {
        Some((self.pair.as_mut()?, &mut self.completions))
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.pair.as_ref()?.remote_address()
    }

    /// Ends the connection at once.
    pub(crate) fn abort(&mut self) {
        self.pair = None;
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let Some(mut pair) = self.pair.take() else { return };
        if matches!(pair.phase(), Phase::Connected | Phase::PeerFinished) && pair.shutdown().is_ok()
        {
            self.host.retire(pair);
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("pair", &self.pair).finish_non_exhaustive()
    }
}

/// Queue pairs that wait for connections.
#[derive(Debug)]
pub(crate) struct QueueListener {
    host: Arc<Host>,
    listener: Listener,
    /// All but the queue pairs, which the listener has.
    waiting: HashMap<QueuePairId, Queue>,
}

impl QueueListener {
    pub(crate) fn new(host: &Arc<Host>, listener: Listener) -> Result<Self, Failure> {
        let (host, waiting) = (Arc::clone(host), HashMap::new());
        let mut listener = Self { host, listener, waiting };
        for _ in 0..BACKLOG {
            listener.offer()?;
        }
        Ok(listener)
    }

    fn offer(&mut self) -> Result<(), Failure> {
        let mut queue = self.host.queue()?;
        if let Some(pair) = queue.pair.take() {
            self.waiting.insert(pair.id(), queue);
            self.listener.offer(pair).map_err(|refused| failure(&refused.error))?;
        }
        Ok(())
    }

    /// The next connection; another queue pair waits in its place.
    pub(crate) fn poll_accept(&mut self, waker: &Waker) -> Poll<Option<Queue>> {
        loop {
            let accepted = {
                let next = std::pin::pin!(self.listener.accept());
                next.poll(&mut Context::from_waker(waker))
            };
            let Poll::Ready(accepted) = accepted else { return Poll::Pending };
            let Ok(pair) = accepted else { return Poll::Ready(None) };
            if let Some(mut queue) = self.waiting.remove(&pair.id()) {
                queue.pair = Some(pair);
                // Without memory for it there is one place less.
                let _ = self.offer();
                return Poll::Ready(Some(queue));
            }
        }
    }
}

/// What an error of QPIP is to programs that use libfabric.
pub(crate) fn failure(error: &Error) -> Failure {
    let number = match error {
        Error::NotConnected(CloseReason::TimedOut | CloseReason::Unreachable) => FI_ETIMEDOUT,
        Error::NotConnected(_) => FI_ECONNREFUSED,
        Error::Ended(_) | Error::AdapterGone => FI_ECONNRESET,
        _ => FI_ENOMEM,
    };
    let text = match error {
        Error::NotConnected(_) => {
            format!("{error}. Has the other side chosen {CARRIER}=qpip, too, and is it there?")
        }
        other => other.to_string(),
    };
    Failure::new(number, text)
}

pub(crate) fn cannot_post(why: &landfall::qpip::PostError) -> Failure {
    Failure::new(FI_ECONNRESET, format!("the queue pair takes nothing more: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(link: &str, address: &str) -> Result<QpipSettings, String> {
        QpipSettings::read(|name| match name {
            LINK => Some(link.to_owned()),
            ADDRESS => Some(address.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn an_adapter_needs_a_link_and_an_address() {
        let settings = read("packet:eth1", "192.0.2.100/24").unwrap();
        assert_eq!(settings.local.network(), "192.0.2.0/24");
        assert_eq!(read("udp:127.0.0.1:0", "fd00::1/64").unwrap().local.prefix, 64);
        for (link, address) in [
            ("eth1", "192.0.2.100/24"),
            ("packet:", "192.0.2.100/24"),
            ("udp:eth1", "192.0.2.100/24"),
            ("packet:eth1", "192.0.2.100"),
            ("packet:eth1", "192.0.2.100/33"),
            ("packet:eth1", "eth1/24"),
        ] {
            assert!(read(link, address).is_err(), "{link} {address}");
        }
        let nothing = QpipSettings::read(|_| None).unwrap_err();
        assert!(nothing.contains(LINK), "{nothing}");
    }
}
