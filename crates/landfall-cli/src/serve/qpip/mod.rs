//! The services over queue pairs: any program with TCP or UDP sockets can be a client.
//!
//! | file | what it is |
//! | --- | --- |
//! | this | the adapter on its link, and one loop for all clients |
//! | `session` | a client's connection; clients without a connection |
//! | `room` | where what is echoed lies between coming and going |

mod client_buffers;
mod session;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::qpip::{
    Access, Adapter, Completion, CompletionQueue, Listener, Memory, MemoryRegion, ProtectionDomain,
    QueuePairId,
};

use super::ledger::Ledger;
use super::{Args, PERIOD, Service, TICK, characters};
use session::{Datagrams, Idle, Session};

/// This many queue pairs wait to be connected at most.
const IDLE: usize = 16;
/// Bytes of characters: whole periods, so that one ends where the next begins.
const LETTERS: usize = 16 * PERIOD;
/// Room for what is thrown away, the same for all clients.
const BIN: usize = 256 << 10;
/// Who has neither said nor heard anything for so long makes room for who waits.
const SILENCE: Duration = Duration::from_secs(10);
/// A client that found no place is waited for so long: about as long as the adapter keeps it.
const WAIT: Duration = Duration::from_secs(60);
/// How long what was said last may take to leave.
const PARTING: Duration = Duration::from_millis(20);

pub(super) fn serve(args: &Args, ledger: &Arc<Ledger>) -> Result<()> {
    let (adapter, address) = args.link.open(args.address.as_deref())?;
    let local = SocketAddr::new(address, args.port());
    let mut hall = ServerState::open(&adapter, local, args, ledger)?;
    let link = adapter.links().into_iter().next().context("an adapter has a link")?;
    let (name, ip, port) = (args.service.name(), local.ip(), local.port());
    // Sockets of a kernel do not reach into a tunnel.
    let client = link.tunnel_address.map_or_else(
        || format!("; try: nc {ip} {port}"),
        |at| format!(" at {at}; for queue pairs with a tunnel to there"),
    );
    ledger
        .ready(format_args!("{name} on {ip}, TCP and UDP port {port}, by {}{client}", link.what))?;
    while !ledger.is_over() {
        ledger.answer_scrape(|metrics| {
            metrics.add(&[], &adapter.stats());
            metrics.add(&[], &adapter.refusals());
        });
        hall.turn(&adapter)?;
        if let Some(why) = adapter.links().into_iter().find_map(|link| link.broken) {
            bail!("the link broke: {why}");
        }
    }
    ledger.turned_away_in_all(adapter.stats().unmated);
    hall.leave()?;
    // Those who are still there hear that it is over.
    thread::sleep(PARTING);
    Ok(())
}

/// What all clients share.
struct Common {
    service: Service,
    domain: ProtectionDomain,
    done: CompletionQueue,
    /// What is thrown away lands here, from whomever.
    bin: MemoryRegion,
    letters: MemoryRegion,
}

/// Everybody who is there.
struct ServerState<'a> {
    common: Common,
    ledger: &'a Ledger,
    listener: Listener,
    idle: HashMap<QueuePairId, Idle>,
    sessions: HashMap<QueuePairId, Session>,
    datagrams: Datagrams,
    most: usize,
    /// Clients that found no place so far.
    unmated: u64,
    /// When somebody found none last, since one was given away.
    waited: Option<Instant>,
    looked: Instant,
}

impl<'a> ServerState<'a> {
    fn open(adapter: &Adapter, local: SocketAddr, args: &Args, ledger: &'a Ledger) -> Result<Self> {
        let most = usize::from(args.clients);
        let domain = adapter.domain()?;
        let places = most as u32 * session::COMPLETIONS + session::DATAGRAM_COMPLETIONS;
        let done = adapter.completion_queue(places)?;
        let letters = Memory::from_bytes(&characters(LETTERS));
        let letters = domain.register(letters, Access::Read)?;
        let bin = domain.register(Memory::zeroed(BIN), Access::Write)?;
        let common = Common { service: args.service, domain, done, bin, letters };
        let taken = || format!("cannot serve at {local}");
        let listener = adapter.listen(local).with_context(taken)?;
        let datagrams = Datagrams::open(&common, local).with_context(taken)?;
        let (idle, sessions) = (HashMap::new(), HashMap::new());
        let looked = Instant::now();
        let unmated = adapter.stats().unmated;
        Ok(Self {
            common,
            ledger,
            listener,
            idle,
            sessions,
            datagrams,
            most,
            unmated,
            waited: None,
            looked,
        })
    }

    /// Lets clients in, and serves what has come; waits if nothing has.
    fn turn(&mut self, adapter: &Adapter) -> Result<()> {
        let room = self.most.saturating_sub(self.sessions.len());
        while self.listener.offered() < room.min(IDLE) {
            let (idle, pair) = Idle::new(&self.common)?;
            self.idle.insert(pair.id(), idle);
            self.listener.offer(pair)?;
        }
        self.accept()?;
        if let Some(next) = self.common.done.wait_for(TICK)? {
            // Whose it is has been told before.
            self.accept()?;
            self.serve(&next)?;
        }
        if self.looked.elapsed() >= TICK {
            self.looked = Instant::now();
            self.part()?;
            self.make_room(adapter)?;
        }
        Ok(())
    }

    /// Where somebody waits and all places are taken, one makes room: of the source that
    /// has most of them, anyone who is silent longest. A source that has more than its share
    /// gives one away, silent or not.
    fn make_room(&mut self, adapter: &Adapter) -> Result<()> {
        let unmated = adapter.stats().unmated;
        if std::mem::replace(&mut self.unmated, unmated) < unmated {
            self.waited = Some(Instant::now());
        }
        let somebody_waits = self.waited.is_some_and(|at| at.elapsed() < WAIT);
        if !somebody_waits || self.sessions.len() < self.most {
            return Ok(());
        }
        let all = self.sessions.iter().map(|(id, session)| Place {
            name: *id,
            source: session.source(),
            silent: session.silent(),
        });
        let Some(id) = who_goes(all, share(self.most)) else { return Ok(()) };
        let Some(session) = self.sessions.remove(&id) else { return Ok(()) };
        self.waited = None;
        self.ledger.client_gone(session.name(), session.parting(&"made room for others"))
    }

    fn accept(&mut self) -> Result<()> {
        while let Some(accepted) = self.listener.accept().wait_for(Duration::ZERO) {
            let pair = accepted?;
            let id = pair.id();
            let Some(idle) = self.idle.remove(&id) else { continue };
            let mut session = Session::new(idle, pair);
            self.ledger.client_came(session.name())?;
            session.advance(&self.common)?;
            self.sessions.insert(id, session);
        }
        Ok(())
    }

    fn serve(&mut self, next: &Completion) -> Result<()> {
        if next.queue_pair == self.datagrams.id() {
            return self.datagrams.completed(next, &self.common, self.ledger);
        }
        let Some(session) = self.sessions.get_mut(&next.queue_pair) else { return Ok(()) };
        if let Err(error) = session.completed(next, &self.common, self.ledger) {
            let session = self.sessions.remove(&next.queue_pair);
            let line = session.map(|session| (session.name(), session.parting(&error)));
            return line.map_or(Ok(()), |(name, how)| self.ledger.client_gone(name, how));
        }
        Ok(())
    }

    /// Those whose connection is over are gone.
    fn part(&mut self) -> Result<()> {
        for (_, session) in self.sessions.extract_if(|_, session| session.is_over()) {
            self.ledger.client_gone(session.name(), session.parting(&"finished"))?;
        }
        Ok(())
    }

    /// The server ends before its clients.
    fn leave(&mut self) -> Result<()> {
        for (_, session) in self.sessions.drain() {
            self.ledger.client_gone(session.name(), session.parting(&"the server ended"))?;
        }
        Ok(())
    }
}

/// A place that is taken.
#[derive(Clone, Copy, Debug)]
struct Place<N> {
    name: N,
    /// Which host has it.
    source: Option<IpAddr>,
    /// So long nothing came or went.
    silent: Duration,
}

/// This many of all places are one source's, where others wait.
const fn share(most: usize) -> usize {
    if most < 4 { most } else { most / 4 * 3 }
}

/// Whose place is given to somebody who waits: nobody's, where all are busy and none has
/// more than its share.
fn who_goes<N: Copy>(places: impl Iterator<Item = Place<N>>, share: usize) -> Option<N> {
    let places: Vec<Place<N>> = places.collect();
    let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
    for place in &places {
        *counts.entry(place.source).or_default() += 1;
    }
    let may_go = |place: &&Place<N>| place.silent >= SILENCE || counts[&place.source] > share;
    let goes = places.iter().filter(may_go);
    let goes = goes.max_by_key(|place| (counts[&place.source], place.silent));
    goes.map(|place| place.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: u32, host: u8, seconds: u64) -> Place<u32> {
        let source = Some(IpAddr::from([10, 0, 0, host]));
        Place { name, source, silent: Duration::from_secs(seconds) }
    }

    #[test]
    fn who_is_silent_longest_makes_room() {
        let places = [place(0, 1, 11), place(1, 2, 40), place(2, 3, 12), place(3, 4, 0)];
        assert_eq!(who_goes(places.into_iter(), share(4)), Some(1));
        let busy = [place(0, 1, 1), place(1, 2, 9), place(2, 3, 0)];
        assert_eq!(who_goes(busy.into_iter(), share(3)), None, "nobody who is busy");
    }

    #[test]
    fn a_source_with_more_than_its_share_gives_one_away() {
        let flood = (0..64).map(|name| place(name, 1, u64::from(name) / 10));
        assert_eq!(who_goes(flood, share(64)), Some(63), "the one that was silent longest of it");
        // Others who are silent stay, as long as one source has most of the places.
        let mixed = (0..60).map(|name| place(name, 1, 0)).chain([place(60, 2, 500)]);
        assert!(who_goes(mixed, share(64)).is_some_and(|name| name < 60));
        let shared = (0..64).map(|name| place(name, name as u8 % 32, 1));
        assert_eq!(who_goes(shared, share(64)), None);
    }
}
