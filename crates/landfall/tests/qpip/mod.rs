//! What the tests of queue pairs share: pairs of adapters, ends with memory, and
//! bounds on time.

mod completions;
mod endings;
mod immediate;
mod interfaces;
mod kernel;
mod members;
mod messages;
mod verbs;

use std::collections::VecDeque;
use std::net::SocketAddr;

use landfall::qpip::{
    Access, Adapter, Builder, ChannelConfig, Completion, CompletionQueue, Config, Link, Mapping,
    Memory, MemoryRegion, Operation, Part, ProtectionDomain, QueuePair, QueuePairOptions, Status,
    Wait,
};

#[allow(unused_imports, reason = "each test uses a part of it")]
pub(crate) use crate::support::{PATIENCE, noise, run, within};

pub(crate) fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Where the second adapter of a pair can be reached.
pub(crate) const SERVER: &str = "10.0.0.2:7000";

fn builders(wait: Wait) -> (Builder, Builder) {
    let config = Config::default();
    let builder = || Adapter::builder().wait(wait).config(config.clone());
    builder().pair(builder(), ChannelConfig { unit: 1514, queue: 256 }).expect("a channel")
}

fn addressed((one, two): (Builder, Builder)) -> (Builder, Builder) {
    let one = one.address("10.0.0.1/24").address("fd00::1/64");
    let two = two.address("10.0.0.2/24").address("fd00::2/64");
    (one, two)
}

/// Two adapters within this process, each with a thread of its own.
pub(crate) fn channel_pair() -> (Adapter, Adapter) {
    channel_pair_waiting(Wait::BALANCED)
}

pub(crate) fn channel_pair_waiting(wait: Wait) -> (Adapter, Adapter) {
    let (one, two) = addressed(builders(wait));
    (one.open().expect("an adapter"), two.open().expect("an adapter"))
}

/// The same, of which the first runs inline.
pub(crate) fn half_inline_pair(wait: Wait) -> (Adapter, Adapter) {
    let (one, two) = addressed(builders(wait));
    (one.open_inline().expect("an adapter"), two.open().expect("an adapter"))
}

/// Both inline: a test makes their turns.
pub(crate) fn inline_pair() -> (Adapter, Adapter) {
    let (one, two) = addressed(builders(Wait::Block));
    (one.open_inline().expect("an adapter"), two.open_inline().expect("an adapter"))
}

/// Two adapters over UDP on loopback.
pub(crate) fn tunnel_pair() -> (Adapter, Adapter) {
    let here = at("127.0.0.1:0");
    let two = Adapter::builder().link(Link::tunnel(here, []));
    let two = two.address("10.0.0.2/24").address("fd00::2/64").open().expect("loopback");
    let there = two.links()[0].tunnel_address.expect("a tunnel has an address");
    let one = Adapter::builder().link(Link::tunnel(here, [there]));
    let one = one.address("10.0.0.1/24").address("fd00::1/64").open().expect("loopback");
    (one, two)
}

/// Each way that needs no privileges.
pub(crate) fn pairs() -> [(&'static str, (Adapter, Adapter)); 2] {
    [("channel", channel_pair()), ("tunnel", tunnel_pair())]
}

/// A queue pair with a completion queue and memory of its own.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) domain: ProtectionDomain,
    pub(crate) done: CompletionQueue,
    pub(crate) pair: QueuePair,
    pub(crate) out: MemoryRegion,
    pub(crate) room: MemoryRegion,
    /// Completions of the other queue that came first: each queue has its order,
    /// but the two have none between them.
    pub(crate) aside: VecDeque<Completion>,
}

/// How much memory an end has each way.
pub(crate) const ROOM: usize = 1 << 20;

impl End {
    pub(crate) fn new(adapter: &Adapter, options: &QueuePairOptions) -> Self {
        let domain = adapter.domain().expect("a domain");
        let done = adapter.completion_queue(1024).expect("a queue");
        let pair = domain.queue_pair(options, &done, &done).expect("a queue pair");
        let memory = |access| domain.register(Memory::zeroed(ROOM), access).expect("memory");
        let (out, room) = (memory(Access::Read), memory(Access::Write));
        Self { domain, done, pair, out, room, aside: VecDeque::new() }
    }

    pub(crate) fn tcp(adapter: &Adapter, mapping: Mapping) -> Self {
        Self::new(adapter, &QueuePairOptions::tcp(mapping))
    }

    /// Posts room for one message.
    pub(crate) fn post_room(&mut self, id: u64, offset: u64, len: u64) {
        let part = self.room.part(offset..offset + len).expect("within the memory");
        self.pair.post_receive(id, &[part]).expect("room in the queue");
    }

    /// Copies bytes to the memory that is sent from, and names them.
    pub(crate) fn fill(&self, offset: u64, bytes: &[u8]) -> Part {
        self.out.copy_in(offset, bytes).expect("within the memory");
        self.out.part(offset..offset + bytes.len() as u64).expect("within the memory")
    }

    pub(crate) fn post(&mut self, id: u64, offset: u64, bytes: &[u8]) {
        let part = self.fill(offset, bytes);
        self.pair.post_send(id, &[part]).expect("room in the queue");
    }

    pub(crate) fn received(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.room.copy_out(offset, &mut bytes).expect("within the memory");
        bytes
    }

    /// The next completion of one of the queues, on this thread.
    pub(crate) fn next(&mut self, operation: Operation) -> Completion {
        let is_meant = |completion: &Completion| completion.operation == operation;
        if let Some(index) = self.aside.iter().position(is_meant) {
            return self.aside.remove(index).expect("it was just found");
        }
        loop {
            let next = self.done.wait_for(PATIENCE).expect("the adapter runs");
            let next = next.expect("it takes far too long");
            if is_meant(&next) {
                return next;
            }
            self.aside.push_back(next);
        }
    }

    /// The next one, which must be this, and well.
    pub(crate) fn expect(&mut self, operation: Operation, id: u64) -> Completion {
        let completion = self.next(operation);
        assert_eq!((completion.id, completion.status), (id, Status::Success), "{completion:?}");
        completion
    }
}

/// Two ends that are connected; the second has room for a message of 64 KiB.
pub(crate) fn connected((one, two): &(Adapter, Adapter), mapping: Mapping) -> (End, End) {
    let (here, mut there) = (End::tcp(one, mapping), End::tcp(two, mapping));
    there.post_room(0, 0, 1 << 16);
    let listener = two.listen(at(SERVER)).expect("a free port");
    listener.offer(there.pair).expect("it is idle");
    let asked = here.pair.connect(at(SERVER));
    asked.wait_for(PATIENCE).expect("it takes far too long").expect("connected");
    there.pair = listener.accept().wait_for(PATIENCE).expect("in time").expect("accepted");
    (here, there)
}
