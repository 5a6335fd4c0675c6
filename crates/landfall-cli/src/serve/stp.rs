//! The services over STP: what a client sends is a Transfer, and so is what it hears.
//!
//! Echo sends each Transfer back, with the four bytes that came with it. Source sends
//! Transfers of characters, as many as the client takes, and answers reads with as many
//! characters as it has room for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use landfall::stp::{
    ArenaConfig, Connection, Endpoint, Error, Memory, Offer, Peer, Reason, Region, Transport,
    UDP_PORT,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::ledger::{Ledger, parting};
use super::{Args, PERIOD, Service, TICK, characters};

/// Longer Transfers are refused: each lies in memory until it has gone back.
const LONGEST: u64 = 16 << 20;
/// A Transfer of characters: whole periods.
const LETTERS: usize = 16 * PERIOD;
/// Of them this many are on their way to each client.
const AHEAD: usize = 4;

pub(super) fn serve(args: &Args, ledger: &Arc<Ledger>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(run(args, ledger))
}

async fn run(args: &Args, ledger: &Arc<Ledger>) -> Result<()> {
    let transport = match &args.link.interface {
        Some(interface) => Transport::ethernet(interface.as_str()),
        None => Transport::udp(args.socket(UDP_PORT)?),
    };
    let max_bytes = usize::from(args.clients) * LONGEST as usize;
    let arena = ArenaConfig { max_bytes, ..ArenaConfig::default() };
    // For measuring by anyone who calls: `perf` is plain, too.
    let endpoint = Endpoint::builder().path(transport).arena(arena).plaintext().bind()?;
    let listener = endpoint.listen(args.port())?;
    let letters = Arc::new(endpoint.register(Memory::from_bytes(&characters(LETTERS)))?);
    let local = endpoint.local().context("a path has an address")?;
    let (name, port) = (args.service.name(), args.port());
    ledger.ready(format_args!("{name} on STP port {port}, at {local}"))?;
    let mut clients = JoinSet::new();
    while !ledger.is_over() {
        ledger.answer_scrape(|metrics| metrics.add(&[], &endpoint.stats()));
        // Nobody came: it is time to look around.
        if let Ok(accepted) = timeout(TICK, listener.accept()).await {
            let connection = accepted?;
            let who = connection.peer();
            if clients.len() >= usize::from(args.clients) {
                connection.abort();
                ledger.client_turned_away(who)?;
                continue;
            }
            ledger.client_came(who)?;
            let (endpoint, letters) = (endpoint.clone(), Arc::clone(&letters));
            let client = Client { endpoint, connection, letters, tally: Tally::new(ledger) };
            clients.spawn(client.serve(args.service));
        }
        while let Some(ended) = clients.try_join_next() {
            let (who, how) = ended.context("a client's task panicked")?;
            ledger.client_gone(who, how)?;
        }
    }
    // What was begun is cancelled, and the clients are told.
    clients.shutdown().await;
    drop((listener, letters));
    endpoint.close().await;
    Ok(())
}

/// What one client moved, and all together.
#[derive(Clone)]
struct Tally {
    ledger: Arc<Ledger>,
    moved: Arc<[AtomicU64; 2]>,
}

impl Tally {
    fn new(ledger: &Arc<Ledger>) -> Self {
        Self { ledger: Arc::clone(ledger), moved: Arc::default() }
    }

    fn moved(&self, received: u64, sent: u64) {
        self.moved[0].fetch_add(received, Ordering::Relaxed);
        self.moved[1].fetch_add(sent, Ordering::Relaxed);
        self.ledger.moved(received, sent);
    }
}

#[derive(Clone)]
struct Client {
    endpoint: Endpoint,
    connection: Connection,
    letters: Arc<Region>,
    tally: Tally,
}

impl Client {
    /// Until the client has gone; who it was, and how it ended.
    async fn serve(self, service: Service) -> (Peer, String) {
        let (who, moved) = (self.connection.peer(), Arc::clone(&self.tally.moved));
        let outcome = match service {
            Service::Echo => self.echo().await,
            Service::Discard => self.discard().await,
            Service::Source => self.send_characters().await,
        };
        let why = match outcome {
            Ok(()) => "finished".to_owned(),
            Err(error) if error.is_graceful_close() => "finished".to_owned(),
            Err(error) => error.to_string(),
        };
        let [received, sent] = [0, 1].map(|way| moved[way].load(Ordering::Relaxed));
        (who, parting(received, sent, why))
    }

    /// The next Transfer that is not too long.
    async fn next(&self) -> Result<Offer, Error> {
        loop {
            let offer = self.connection.offer().await?;
            if offer.len() <= LONGEST {
                return Ok(offer);
            }
            offer.refuse(Reason::Refused);
        }
    }

    async fn echo(self) -> Result<(), Error> {
        loop {
            let offer = self.next().await?;
            let memory = self.endpoint.memory(offer.len() as usize)?;
            let message = offer.accept(memory).await?;
            let (len, opaque) = (message.len() as u64, message.opaque());
            self.tally.moved(len, 0);
            self.connection.send(message.into_memory()).opaque(opaque).await?;
            self.tally.moved(0, len);
        }
    }

    async fn discard(self) -> Result<(), Error> {
        loop {
            let offer = self.next().await?;
            let memory = self.endpoint.memory(offer.len() as usize)?;
            let len = offer.accept(memory).await?.len();
            self.tally.moved(len as u64, 0);
        }
    }

    async fn send_characters(self) -> Result<(), Error> {
        let mut parts = JoinSet::new();
        for _ in 0..AHEAD {
            parts.spawn(self.clone().send());
        }
        parts.spawn(self.clone().answer_reads());
        parts.spawn(self.discard());
        // The first that ends does so because the connection has. The others are waited for:
        // what they have sent counts, although they hear of it only now.
        let mut first = None;
        while let Some(ended) = parts.join_next().await {
            first = first.or(ended.ok());
        }
        first.unwrap_or(Ok(()))
    }

    async fn send(self) -> Result<(), Error> {
        loop {
            self.connection.send(self.letters.whole()).await?;
            self.tally.moved(0, LETTERS as u64);
        }
    }

    async fn answer_reads(self) -> Result<(), Error> {
        loop {
            let request = self.connection.read_request().await?;
            let len = request.len().min(LETTERS as u64);
            request.answer(self.letters.part(0..len)?).await?;
            self.tally.moved(0, len);
        }
    }
}
