//! The event-driven server of `landfall::clan::server`, and its clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use landfall::clan::Error;
use landfall::clan::messaging::Messaging;
use landfall::clan::network::{
    Builder, ChannelConfig, Config, HostId, Node, Peer, Port, PortAddress, Transport,
};
use landfall::clan::server::{Client, Server, Shape};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall_testbed::rivals::Endpoints;
use landfall_transport::udp::UdpConfig;

use super::Seen;
use super::clients::{self, Clients, MESSAGE, ServerThread};
use crate::leaving::TemporaryFolder;
use crate::papers::clan::Scale;
use crate::workload::side::{both, joined, place_thread};

/// What joins the two nodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carrier {
    Channel,
    Shared,
    Udp,
}

const PORT: Port = Port(7);
const SHAPE: Shape = Shape { size: MESSAGE as u32, depth: 1 };
/// How long the server polls before it sleeps: as long as a wake takes on machines of
/// today, where the paper's, whose network is faster beside them, polls for 15 µs.
const POLL: Duration = Duration::from_micros(50);
/// What UDP on loopback takes whole.
const MTU: u32 = 65_536;

fn builder(host: u16, endpoints: usize, is_shared: bool) -> Result<Builder> {
    // What a node needs beside the connections.
    let room = endpoints + 16;
    let usual = if is_shared { Config::shared_network() } else { Config::default() };
    let config = Config {
        endpoints: room,
        apertures: room,
        windows: room,
        tripwires: room,
        messages: room,
        ..usual
    };
    let host = HostId::new(host).context("hosts have fourteen bits")?;
    // As its rivals are.
    Ok(Node::builder(host).config(config).plaintext())
}

/// The server's node, the client's, and how the client reaches the server.
fn nodes(is_udp: bool, at: &Endpoints, endpoints: usize) -> Result<(Node, Node, Peer)> {
    match is_udp {
        false => {
            let open = |host| builder(host, endpoints, false);
            let (here, there) = open(1)?.open_pair(open(2)?, ChannelConfig::default())?;
            Ok((here, there, Peer::Node(0)))
        }
        true => {
            let open = |host, address| -> Result<Node> {
                let udp = Transport::udp_with(UdpConfig::new((address, 0).into(), MTU));
                Ok(builder(host, endpoints, true)?.path(udp).open()?)
            };
            let here = open(1, at.receive.address)?;
            let peer = here.local().context("UDP has an address")?;
            Ok((here, open(2, at.send.address)?, peer))
        }
    }
}

/// Serves this many endpoints, and lets them ask.
pub(super) fn run(
    carrier: Carrier,
    at: &Endpoints,
    scale: Scale,
    endpoints: usize,
) -> Result<Seen> {
    if let Carrier::Shared = carrier {
        let folder = TemporaryFolder::new()?;
        let open = || SharedNode::open(SharedConfig::new(folder.path()));
        return serve_and_ask(&open()?, &open()?, at, scale, endpoints);
    }
    let (here, there, peer) = nodes(matches!(carrier, Carrier::Udp), at, endpoints)?;
    there.link(peer)?.wait_up(Some(Instant::now() + scale.limit))?;
    serve_and_ask(&here, &there, at, scale, endpoints)
}

fn serve_and_ask<N: Messaging>(
    here: &N,
    there: &N,
    at: &Endpoints,
    scale: Scale,
    endpoints: usize,
) -> Result<Seen> {
    let done = AtomicBool::new(false);
    let (tell, hear) = channel();
    let (seen, ()) = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            place_thread(&at.receive)?;
            serve(here, endpoints, &done, &tell)
        });
        let asking = scope.spawn(|| {
            let hear = hear;
            place_thread(&at.send)?;
            let server = hear.recv_timeout(scale.limit).map_err(|_| anyhow!("no server"))?;
            let clients = LandfallServer::connect(there, here.host_id(), endpoints, scale.limit)?;
            clients::ask(clients, endpoints, scale, &server)
        });
        let asked = joined(asking.join());
        done.store(true, Ordering::Relaxed);
        both(asked, joined(serving.join()))
    })?;
    Ok(seen)
}

fn serve<N: Messaging>(
    node: &N,
    endpoints: usize,
    done: &AtomicBool,
    tell: &Sender<ServerThread>,
) -> Result<()> {
    let echo = |request: &[u8], reply: &mut Vec<u8>| reply.extend_from_slice(request);
    let mut server = Server::open(node, PORT, SHAPE, endpoints, echo)?.poll_for(POLL);
    // Nobody waits for it any more: then it is over soon.
    let _ = tell.send(ServerThread::this()?);
    while !done.load(Ordering::Relaxed) {
        server.round(&[], Some(Duration::from_millis(10)))?;
    }
    Ok(())
}

struct LandfallServer<N: Messaging> {
    node: N,
    clients: Vec<Client<N>>,
    reply: Vec<u8>,
}

impl<N: Messaging> LandfallServer<N> {
    fn connect(node: &N, server: HostId, endpoints: usize, limit: Duration) -> Result<Self> {
        let deadline = Some(Instant::now() + limit);
        let at = PortAddress { host: server, port: PORT };
        let connect = |_| Client::connect(node, at, SHAPE, deadline);
        let clients = (0..endpoints).map(connect).collect::<Result<_, _>>()?;
        Ok(Self { node: node.clone(), clients, reply: Vec::with_capacity(MESSAGE) })
    }
}

impl<N: Messaging> Clients for LandfallServer<N> {
    fn send(&mut self, endpoint: usize, request: &[u8; MESSAGE]) -> Result<bool> {
        match self.clients[endpoint].post(request) {
            Ok(()) => Ok(true),
            Err(Error::Busy) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn reply(&mut self, endpoint: usize) -> Result<Option<[u8; MESSAGE]>> {
        if !self.clients[endpoint].try_reply(&mut self.reply)? {
            return Ok(None);
        }
        let reply = self.reply.as_slice().try_into();
        Ok(Some(reply.context("a reply of another length")?))
    }

    fn turn(&mut self) {
        self.node.relax();
    }
}
