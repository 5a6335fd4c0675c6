//! [`EndpointState`]: what all connections of an endpoint share: peers, receives, and where
//! completions go.

use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;

use crate::abi::{
    FI_ETRUNC, FI_MSG, FI_MULTI_RECV, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA,
    FI_TAGGED,
};
use crate::address::Name;
use crate::carrier::Network;
use crate::completion::{Completion, Failure, Queue};
use crate::events::Events;
use crate::matching::{Matching, Receive};
use crate::notify::Ready;
use crate::world::World;

/// Whom an endpoint talks to.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Where it is tried if it isn't reached there: on its second rail.
    pub(crate) second: Option<SocketAddrV4>,
    /// The connection by which it is sent to.
    pub(crate) link: Option<usize>,
}

/// What is bound to an endpoint, and what was chosen for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// The queue of sends, reads and writes.
    pub(crate) transmit: Option<usize>,
    /// The queue of receives.
    pub(crate) receive: Option<usize>,
    /// Only what asks for it has a completion.
    pub(crate) selective_transmit: bool,
    pub(crate) selective_receive: bool,
    pub(crate) transmit_flags: u64,
    pub(crate) receive_flags: u64,
    /// The longest message that is sent.
    pub(crate) longest: usize,
    /// Receives say whom they are for: `FI_DIRECTED_RECV`.
    pub(crate) is_directed: bool,
    /// Counters, and for which operations they count.
    pub(crate) counters: Vec<(u64, usize)>,
    pub(crate) book: Option<usize>,
    /// Where connections of `FI_EP_MSG` are told of.
    pub(crate) events: Option<Arc<Events>>,
}

/// Whom to tell of an operation that was begun here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) context: usize,
    /// What it was: `FI_SEND`, `FI_READ` or `FI_WRITE`, with its kind.
    pub(crate) flags: u64,
    /// A completion is wanted for success, too.
    pub(crate) tells: bool,
}

/// What a message is, apart from its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope {
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) peer: usize,
    pub(crate) len: u64,
}

#[derive(Debug)]
pub(crate) struct EndpointState {
    /// Its number in the domain.
    pub(crate) number: usize,
    pub(crate) network: Network,
    /// Where peers reach it.
    pub(crate) name: SocketAddr,
    pub(crate) ready: Arc<Ready>,
    pub(crate) peers: Vec<Peer>,
    by_address: HashMap<SocketAddr, usize>,
    pub(crate) matching: Matching,
    pub(crate) options: Options,
    /// Connections whose rings are not read, for too much came that nobody takes.
    pub(crate) paused: Vec<usize>,
}

/// This many bytes of messages that nobody receives are kept; then rings are not read.
const MOST_KEPT: usize = 256 << 20;

impl EndpointState {
    pub(crate) fn new(
        number: usize,
        (network, name): (Network, SocketAddr),
        ready: Arc<Ready>,
        options: Options,
    ) -> Self {
        Self {
            number,
            network,
            name,
            ready,
            peers: Vec::new(),
            by_address: HashMap::new(),
            matching: Matching::default(),
            options,
            paused: Vec::new(),
        }
    }

    /// The number of a peer with this address.
    pub(crate) fn peer(&mut self, address: SocketAddr) -> usize {
        let peers = &mut self.peers;
        *self.by_address.entry(address).or_insert_with(|| {
            peers.push(Peer { address, second: None, link: None });
            peers.len() - 1
        })
    }

    /// The same of one with this name.
    pub(crate) fn peer_of_name(&mut self, name: &Name) -> usize {
        let peer = self.peer(name.address);
        self.peers[peer].second = name.second;
        peer
    }

    /// The same where numbers are those of connections, and are given out anew.
    pub(crate) fn peer_of_link(&mut self, number: usize, address: SocketAddr) -> usize {
        let peer = |_| Peer { address, second: None, link: None };
        let known = self.peers.len();
        self.peers.extend((known..=number).map(peer));
        self.peers[number] = peer(number);
        number
    }

    /// Too much came that nobody receives, or whose completions nobody reads.
    pub(crate) fn must_pause(&self, world: &World) -> bool {
        let queue = self.options.receive.and_then(|queue| world.queues.get(queue));
        self.matching.bytes() > MOST_KEPT || queue.is_some_and(Queue::is_overfull)
    }

    /// The ring of this connection is read later.
    pub(crate) fn pause(&mut self, link: usize) {
        if !self.paused.contains(&link) {
            self.paused.push(link);
        }
    }

    /// An operation that was begun here is over.
    pub(crate) fn report(&self, world: &mut World, report: &Report, failure: Option<Failure>) {
        self.count(world, report.flags, failure.is_some());
        if report.tells || failure.is_some() {
            let completion = Completion::new(report.context, report.flags);
            world.tell(self.options.transmit, completion, failure);
        }
    }

    fn count(&self, world: &mut World, flags: u64, is_failure: bool) {
        for (wanted, counter) in &self.options.counters {
            if wanted & flags != 0 {
                world.count(*counter, is_failure);
            }
        }
    }

    fn source(&self, world: &World, peer: usize) -> u64 {
        let book = self.options.book.and_then(|book| world.books.get(book));
        let address = self.peers.get(peer).map(|peer| peer.address);
        match (book, address) {
            (Some(book), Some(address)) => book.number_of(&address),
            _ => crate::abi::FI_ADDR_NOTAVAIL,
        }
    }

    /// What a completion says of a message.
    pub(crate) fn completion(&self, world: &World, context: usize, of: &Envelope) -> Completion {
        let kind = if of.tag.is_some() { FI_TAGGED } else { FI_MSG };
        let data = if of.data.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        Completion {
            len: of.len as usize,
            data: of.data.unwrap_or(0),
            tag: of.tag.unwrap_or(0),
            source: self.source(world, of.peer),
            ..Completion::new(context, kind | FI_RECV | data)
        }
    }

    /// A message is in its place, as much of it as there was room for; or something went wrong.
    pub(crate) fn received(
        &self,
        world: &mut World,
        receive: &Receive,
        envelope: &Envelope,
        failure: Option<Failure>,
    ) {
        let (len, room) = (envelope.len as usize, receive.buffer.len());
        let truncated = || {
            let mut failure = Failure::new(FI_ETRUNC, "the message is longer than the receive");
            failure.left_out = len - room;
            failure
        };
        let failure = failure.or_else(|| (len > room).then(truncated));
        let mut completion = self.completion(world, receive.context, envelope);
        (completion.len, completion.buffer) = (len.min(room), receive.buffer.address());
        completion.flags |= if receive.is_last() { FI_MULTI_RECV } else { 0 };
        self.count(world, FI_RECV, failure.is_some());
        // A buffer for several messages has to be given back.
        if receive.tells || failure.is_some() || receive.is_last() {
            world.tell(self.options.receive, completion, failure);
        }
    }

    /// A peer has written to memory, and says so.
    pub(crate) fn written(&self, world: &mut World, peer: usize, len: u64, data: u64) {
        let flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
        let source = self.source(world, peer);
        let completion =
            Completion { len: len as usize, data, source, ..Completion::new(0, flags) };
        self.count(world, FI_REMOTE_WRITE, false);
        world.tell(self.options.receive, completion, None);
    }
}
