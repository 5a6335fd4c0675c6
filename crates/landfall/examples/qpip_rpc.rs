//! Remote procedure calls over queue pairs: each message is one request or one
//! answer, and is found in the memory that was posted for it.
//!
//! Two adapters in one process by default; over UDP, without privileges, between
//! two processes or machines:
//!
//! ```sh
//! cargo run --release --example qpip_rpc
//! cargo run --release --example qpip_rpc -- serve 127.0.0.1:4000 &
//! cargo run --release --example qpip_rpc -- call 127.0.0.1:0 127.0.0.1:4000
//! ```

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{bail, ensure};
use landfall::qpip::{
    Access, Adapter, ChannelConfig, CompletionQueue, Link, Mapping, Memory, MemoryRegion,
    Operation, ProtectionDomain, QueuePair, QueuePairOptions, Status,
};

const SERVER: &str = "10.0.0.2:7000";
const CALLS: u64 = 10_000;
/// This many calls are under way at a time.
const DEPTH: u64 = 32;
/// A request is two numbers, an answer one; each has a slot of its own.
const SLOT: u64 = 64;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => {
            let (one, two) =
                Adapter::builder().pair(Adapter::builder(), ChannelConfig::default())?;
            let server = two.address("10.0.0.2/24").open()?;
            let (listens, heard) = std::sync::mpsc::channel();
            let serving = std::thread::spawn(move || serve(&server, || _ = listens.send(())));
            // If it cannot listen, it says why when it is joined.
            if heard.recv().is_err() {
                return serving.join().expect("the server does not panic");
            }
            // The client's thread runs its adapter itself: one thread less to wake.
            call(&one.address("10.0.0.1/24").open_inline()?)?;
            serving.join().expect("the server does not panic")
        }
        ["serve", local] => {
            let link = Link::tunnel(local.parse()?, []);
            serve(&Adapter::builder().link(link).address("10.0.0.2/24").open()?, || {})
        }
        ["call", local, server] => {
            let link = Link::tunnel(local.parse()?, [server.parse::<SocketAddr>()?]);
            call(&Adapter::builder().link(link).address("10.0.0.1/24").open_inline()?)
        }
        _ => bail!("use: qpip_rpc | qpip_rpc serve LOCAL | qpip_rpc call LOCAL SERVER"),
    }
}

/// One side of a connection: requests and answers each in slots.
struct RpcEnd {
    _domain: ProtectionDomain,
    done: CompletionQueue,
    pair: QueuePair,
    /// Messages to send lie in the first half, those that come in the second.
    memory: MemoryRegion,
}

impl RpcEnd {
    fn new(adapter: &Adapter) -> anyhow::Result<Self> {
        let domain = adapter.domain()?;
        let done = adapter.completion_queue(4 * DEPTH as u32)?;
        let pair = domain.queue_pair(&QueuePairOptions::tcp(Mapping::Message), &done, &done)?;
        let memory =
            domain.register(Memory::zeroed((2 * DEPTH * SLOT) as usize), Access::ReadWrite)?;
        let mut side = Self { _domain: domain, done, pair, memory };
        for slot in 0..DEPTH {
            side.post_room(slot)?;
        }
        Ok(side)
    }

    fn post_room(&mut self, slot: u64) -> anyhow::Result<()> {
        let start = (DEPTH + slot) * SLOT;
        Ok(self.pair.post_receive(slot, &[self.memory.part(start..start + SLOT)?])?)
    }

    fn send(&mut self, slot: u64, words: &[u64]) -> anyhow::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.memory.copy_in(slot * SLOT, &bytes)?;
        let part = self.memory.part(slot * SLOT..slot * SLOT + bytes.len() as u64)?;
        Ok(self.pair.post_send(slot, &[part])?)
    }

    fn received<const N: usize>(&self, slot: u64) -> anyhow::Result<[u64; N]> {
        let mut words = [0; N];
        for (at, word) in (0..).zip(&mut words) {
            let mut bytes = [0; 8];
            self.memory.copy_out((DEPTH + slot) * SLOT + at * 8, &mut bytes)?;
            *word = u64::from_be_bytes(bytes);
        }
        Ok(words)
    }
}

/// Answers every request with the sum of its two numbers, once it has said that it listens.
fn serve(adapter: &Adapter, listens: impl FnOnce()) -> anyhow::Result<()> {
    let mut side = RpcEnd::new(adapter)?;
    let listener = adapter.listen(SERVER.parse()?)?;
    listener.offer(side.pair)?;
    println!("serving at {SERVER}");
    listens();
    side.pair = listener.accept().wait()?;
    // An answer's slot is free when it was acknowledged; a request waits for it.
    let mut free: Vec<u64> = (0..DEPTH).collect();
    let mut asked = std::collections::VecDeque::new();
    let mut answered = 0;
    while answered < CALLS {
        let next = side.done.wait()?;
        ensure!(next.status == Status::Success, "{}", next.status);
        match next.operation {
            Operation::Send => {
                free.push(next.id);
                answered += 1;
            }
            Operation::Receive => {
                let [name, left, right] = side.received(next.id)?;
                asked.push_back([name, left.wrapping_add(right)]);
                side.post_room(next.id)?;
            }
        }
        while let (Some(slot), Some(answer)) = (free.last().copied(), asked.front()) {
            side.send(slot, answer)?;
            free.pop();
            asked.pop_front();
        }
    }
    side.pair.close().wait()?;
    Ok(())
}

/// Calls so often, with as many calls under way as there are slots.
fn call(adapter: &Adapter) -> anyhow::Result<()> {
    let mut side = RpcEnd::new(adapter)?;
    side.pair.connect(SERVER.parse()?).wait()?;
    let (mut begun, mut ended) = (0, 0);
    let mut free: Vec<u64> = (0..DEPTH).collect();
    let start = Instant::now();
    while ended < CALLS {
        // No more under way than there is room for answers.
        while begun < CALLS
            && begun - ended < DEPTH
            && let Some(slot) = free.pop()
        {
            side.send(slot, &[begun, begun, 1_000])?;
            begun += 1;
        }
        let next = side.done.wait()?;
        ensure!(next.status == Status::Success, "{}", next.status);
        match next.operation {
            Operation::Send => free.push(next.id),
            Operation::Receive => {
                let [name, sum] = side.received(next.id)?;
                ensure!(sum == name + 1_000, "{name} + 1000 is not {sum}");
                side.post_room(next.id)?;
                ended += 1;
            }
        }
    }
    let each = start.elapsed() / CALLS as u32;
    println!("{CALLS} calls, {DEPTH} at a time: {each:?} each");
    side.pair.close().wait()?;
    Ok(())
}
