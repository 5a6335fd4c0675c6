//! The services over CLAN, as calls: a client writes a message into the memory of its
//! connection, and finds the answer in its own. Echo answers with the message, discard
//! with nothing, source with as many characters as a message has room for.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{Context, Result};
use landfall::clan::network::server::{Server, Shape};
use landfall::clan::network::{Config, HostId, Node, Port, Transport};

use super::ledger::{Ledger, parting};
use super::{Args, PERIOD, Service, TICK, characters};

/// The UDP port of CLAN.
const UDP_PORT: u16 = 8182;
/// What clients have to agree with: messages of up to 4 KiB, eight at a time.
pub(crate) const SHAPE: Shape = Shape { size: 4096, depth: 8 };
/// What a node needs beside its clients.
const OWN: usize = 16;

pub(super) fn serve(args: &Args, ledger: &Arc<Ledger>) -> Result<()> {
    let host = HostId::new(args.host).context("--host: 0 to 4095 are hosts")?;
    let transport = match &args.link.interface {
        Some(interface) => Transport::ethernet(interface.as_str()),
        None => Transport::udp(args.socket(UDP_PORT)?),
    };
    let most = usize::from(args.clients);
    let room = most + OWN;
    let usual =
        if args.link.interface.is_some() { Config::default() } else { Config::shared_network() };
    let config = Config {
        endpoints: room.max(usual.endpoints),
        apertures: room.max(usual.apertures),
        windows: room.max(usual.windows),
        tripwires: room.max(usual.tripwires),
        messages: room.max(usual.messages),
        ..usual
    };
    let node = Node::builder(host).path(transport).config(config).open()?;
    let letters = characters(SHAPE.size as usize + PERIOD);
    // Where in them the next answer begins.
    let next = RefCell::new(0);
    let answer = |request: &[u8], reply: &mut Vec<u8>| {
        match args.service {
            Service::Echo => reply.extend_from_slice(request),
            Service::Discard => {}
            Service::Source => {
                let mut next = next.borrow_mut();
                reply.extend_from_slice(&letters[*next..*next + SHAPE.size as usize]);
                *next = (*next + SHAPE.size as usize) % PERIOD;
            }
        }
        ledger.moved(request.len() as u64, reply.len() as u64);
    };
    let mut server = Server::open(&node, Port(args.port().into()), SHAPE, most, answer)?;
    let local = node.local().context("a path has an address")?;
    let (name, port) = (args.service.name(), args.port());
    let key = node.fingerprint().map_or_else(String::new, |key| format!("; key {key}"));
    ledger.ready(format_args!(
        "{name} on CLAN port {port} of host {}, at {local}; messages of up to {} bytes, {} at a \
         time{key}",
        args.host, SHAPE.size, SHAPE.depth
    ))?;
    let (mut came, mut gone) = (0, 0);
    while !ledger.is_over() {
        ledger.answer_scrape(|metrics| metrics.add(&[], &node.stats()));
        server.round(&[], Some(TICK))?;
        let stats = server.stats();
        while came < stats.accepted {
            came += 1;
            ledger.client_came(format_args!("client {came}"))?;
        }
        while gone < stats.ended {
            gone += 1;
            let counts = ledger.counts();
            let moved = parting(counts.received_bytes, counts.sent_bytes, "in all so far");
            ledger.client_gone("a client", format_args!("gone; {moved}"))?;
        }
    }
    Ok(())
}
