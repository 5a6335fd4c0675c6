//! Two nodes over a network, each on a thread where its side of the plan says.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use landfall::clan::network::{HostId, Node, Peer, Transport};
use landfall_testbed::rivals::{Endpoints, WorkerPlace};
use landfall_testbed::{Sample, VethPair};
use landfall_transport::udp::UdpConfig;

use super::job::Job;
use super::threads;

/// What the nodes of encrypted rows have in common.
const KEY: [u8; 32] = *b"what is measured is no secret...";

/// What the nodes are joined by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Carrier<'a> {
    /// UDP, for links of this MTU.
    Udp { mtu: u32 },
    /// Frames of ethertype 0x88b5 on a cable.
    Ethernet(&'a VethPair),
}

impl Carrier<'_> {
    fn transport(self, role: usize, side: &WorkerPlace) -> Transport {
        match self {
            Self::Udp { mtu } => Transport::udp_with(UdpConfig::new((side.address, 0).into(), mtu)),
            Self::Ethernet(pair) => Transport::ethernet(pair.ends()[role].name.as_str()),
        }
    }

    /// Where others reach a node.
    fn address(self, role: usize, node: &Node) -> Result<Peer> {
        match self {
            Self::Udp { .. } => node.local().context("a node without an address"),
            Self::Ethernet(pair) => Ok(Peer::Ethernet(pair.ends()[role].mac.0)),
        }
    }
}

/// Is what crosses encrypted?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crossing {
    /// As with most rivals.
    Plain,
    Encrypted,
}

/// Does the job.
pub(crate) fn run(
    endpoints: &Endpoints,
    job: &Job,
    (over, crossing): (Carrier<'_>, Crossing),
) -> Result<Sample> {
    let (tell, hear) = channel();
    let (tell, hear): (Mutex<Sender<Peer>>, Mutex<Receiver<Peer>>) = (tell.into(), hear.into());
    let nodes = Mutex::new(Vec::new());
    let locked = |_| anyhow!("a thread panicked");
    let open = |role: usize, side: &WorkerPlace| -> Result<Node> {
        let host = HostId::new(role as u16).context("a host of a small number")?;
        let transport = over.transport(role, side);
        let builder = Node::builder(host).path(transport).wait(job.wait());
        let builder = match crossing {
            Crossing::Plain => builder.plaintext(),
            Crossing::Encrypted => builder.preshared_key(KEY).encrypt_loopback(),
        };
        let node = builder.open()?;
        nodes.lock().map_err(|_| locked(()))?.push(node.clone());
        Ok(node)
    };
    let asking = |side: &WorkerPlace| {
        let node = open(0, side)?;
        let peer = hear.lock().map_err(|_| locked(()))?.recv_timeout(job.limit)?;
        node.link(peer)?.wait_up(Some(Instant::now() + job.limit))?;
        Ok(node)
    };
    let answering = |side: &WorkerPlace| {
        let node = open(1, side)?;
        tell.lock().map_err(|_| locked(()))?.send(over.address(1, &node)?)?;
        let first = HostId::new(0).context("a host of a small number")?;
        node.wait_reached(first, Some(Instant::now() + job.limit))?;
        Ok(node)
    };
    let sample = threads::run(endpoints, job, [&asking, &answering]);
    // The next run has hosts of the same names at the same cable: these leave it first.
    for node in nodes.into_inner().map_err(|_| locked(()))? {
        let closed = node.clone().close();
        // It ends by itself, if not in time.
        let _ = node.wait_for(closed, Some(Instant::now() + job.limit));
    }
    sample
}
