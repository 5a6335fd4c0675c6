//! An echo server on queue pairs, for `nc` and whatever else speaks TCP.
//!
//! As a virtual cable to this machine's kernel (root):
//!
//! ```sh
//! cargo run --release --example qpip_echo -- tap landfall0 &
//! nc 10.9.0.2 7
//! ```
//!
//! On an interface that this machine uses, with an address of its own, for
//! others on that network (root):
//!
//! ```sh
//! cargo run --release --example qpip_echo -- packet eth0 192.168.1.77/24
//! ```
//!
//! What has come is sent back from where it landed; nothing is copied.

use std::collections::HashMap;
use std::net::SocketAddr;

use anyhow::{Context, bail};
use landfall::qpip::{
    Access, Adapter, CompletionQueue, Link, Listener, Mapping, Memory, MemoryRegion, Operation,
    ProtectionDomain, QueuePair, QueuePairId, QueuePairOptions, TapConfig,
};

const PORT: u16 = 7;
/// Each connection has so much memory, in two halves: while one is sent back the
/// other is filled.
const HALF: u64 = 32 << 10;
/// So many connections wait to be accepted at most.
const IDLE: usize = 16;

fn open() -> anyhow::Result<(Adapter, String)> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (link, address) = match arguments[..] {
        ["tap", name] => {
            let kernel_address = Some(([10, 9, 0, 1].into(), 24));
            let config = TapConfig { kernel_address, ..TapConfig::new(name) };
            (Link::tap_with(config), "10.9.0.2/24".to_owned())
        }
        ["packet", interface, address] => (Link::packet(interface), address.to_owned()),
        _ => bail!("use: qpip_echo tap NAME | qpip_echo packet INTERFACE ADDRESS/PREFIX"),
    };
    let adapter = Adapter::builder().link(link).address(&address).open()?;
    Ok((adapter, address.split('/').next().unwrap_or_default().to_owned()))
}

/// A connection and its memory.
struct Echo {
    pair: QueuePair,
    memory: MemoryRegion,
    /// Sends of each half that are under way, and whether it is full.
    halves: [(u32, bool); 2],
    peer_finished: bool,
}

impl Echo {
    /// An idle one, with its memory posted.
    fn new(domain: &ProtectionDomain, done: &CompletionQueue) -> anyhow::Result<Self> {
        // Every part of a stream is sent back by itself.
        let options =
            QueuePairOptions { send_depth: 512, ..QueuePairOptions::tcp(Mapping::Stream) };
        let pair = domain.queue_pair(&options, done, done)?;
        let memory = domain.register(Memory::zeroed(2 * HALF as usize), Access::ReadWrite)?;
        let mut echo = Self { pair, memory, halves: [(0, false); 2], peer_finished: false };
        echo.post(0)?;
        echo.post(1)?;
        Ok(echo)
    }

    fn post(&mut self, half: u64) -> anyhow::Result<()> {
        self.halves[half as usize] = (0, false);
        let part = self.memory.part(half * HALF..(half + 1) * HALF)?;
        Ok(self.pair.post_receive(half, &[part])?)
    }

    /// Bytes came: they go back from where they are.
    fn send_back(&mut self, half: u64, offset: u32, len: u32, is_full: bool) -> anyhow::Result<()> {
        let start = half * HALF + u64::from(offset);
        let part = self.memory.part(start..start + u64::from(len))?;
        self.pair.post_send(half, &[part])?;
        self.halves[half as usize].0 += 1;
        self.halves[half as usize].1 |= is_full;
        Ok(())
    }

    /// Bytes were sent and acknowledged: a half that is empty takes new ones.
    fn sent(&mut self, half: u64) -> anyhow::Result<()> {
        self.halves[half as usize].0 -= 1;
        if self.halves[half as usize] == (0, true) { self.post(half) } else { Ok(()) }
    }
}

fn main() -> anyhow::Result<()> {
    let (adapter, address) = open()?;
    let local: SocketAddr = SocketAddr::new(address.parse()?, PORT);
    let domain = adapter.domain()?;
    let mut done = adapter.completion_queue(1 << 15)?;
    let listener = adapter.listen(local).context("nobody else may listen there")?;
    println!("echo on {local}; try: nc {} {}", local.ip(), local.port());
    let mut waiting: HashMap<QueuePairId, (MemoryRegion, [(u32, bool); 2])> = HashMap::new();
    let mut echoes: HashMap<QueuePairId, Echo> = HashMap::new();
    loop {
        while listener.offered() < IDLE {
            let Echo { pair, memory, halves, .. } = Echo::new(&domain, &done)?;
            waiting.insert(pair.id(), (memory, halves));
            listener.offer(pair)?;
        }
        accept(&listener, &mut waiting, &mut echoes);
        let Some(next) = done.wait_for(std::time::Duration::from_millis(20))? else {
            close_finished(&mut echoes);
            continue;
        };
        // It may be of a connection that was not accepted yet.
        accept(&listener, &mut waiting, &mut echoes);
        let Some(echo) = echoes.get_mut(&next.queue_pair) else { continue };
        let went = match (next.status.is_success(), next.operation) {
            (false, _) => Err(anyhow::anyhow!("{}", next.status)),
            (true, Operation::Receive) => {
                echo.send_back(next.id, next.offset, next.len, next.ends_request)
            }
            (true, Operation::Send) => echo.sent(next.id),
        };
        if let Err(error) = went {
            // The other side has reset the connection, or overruns us.
            println!("closed {:?}: {error}", echo.pair.remote_address());
            echoes.remove(&next.queue_pair);
        }
    }
}

fn accept(
    listener: &Listener,
    waiting: &mut HashMap<QueuePairId, (MemoryRegion, [(u32, bool); 2])>,
    echoes: &mut HashMap<QueuePairId, Echo>,
) {
    while let Some(Ok(pair)) = listener.accept().wait_for(std::time::Duration::ZERO) {
        println!("accepted {:?}", pair.remote_address());
        if let Some((memory, halves)) = waiting.remove(&pair.id()) {
            echoes.insert(pair.id(), Echo { pair, memory, halves, peer_finished: false });
        }
    }
}

/// Finishes where the other side has, and all was sent back.
fn close_finished(echoes: &mut HashMap<QueuePairId, Echo>) {
    use landfall::qpip::Phase;
    echoes.retain(|_, echo| match echo.pair.phase() {
        Phase::Closed(_) => false,
        Phase::PeerFinished if !echo.peer_finished => {
            echo.peer_finished = true;
            echo.pair.shutdown().is_ok()
        }
        _ => true,
    });
}
