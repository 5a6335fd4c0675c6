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
use std::time::Duration;

use anyhow::{Context, bail};
use landfall::qpip::{
    Access, Adapter, Completion, CompletionQueue, Link, Listener, Mapping, Memory, MemoryRegion,
    Operation, Phase, ProtectionDomain, QueuePair, QueuePairId, QueuePairOptions, Status,
    TapConfig,
};

const PORT: u16 = 7;
/// Each connection has so much memory, in two halves: while one is sent back the
/// other is filled.
const HALF: u64 = 32 << 10;
/// This many connections wait to be accepted at most.
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

/// The memory of a connection.
struct Room {
    memory: MemoryRegion,
    /// Of each half how many sends are under way, and whether it is full.
    halves: [(u32, bool); 2],
}

/// A connection and its memory.
struct Echo {
    pair: QueuePair,
    room: Room,
    /// Nothing more is sent.
    is_finished: bool,
}

impl Echo {
    /// An idle one, with its memory posted.
    fn new(domain: &ProtectionDomain, done: &CompletionQueue) -> anyhow::Result<Self> {
        // Every part of a stream is sent back by itself.
        let options =
            QueuePairOptions { send_depth: 512, ..QueuePairOptions::tcp(Mapping::Stream) };
        let pair = domain.queue_pair(&options, done, done)?;
        let memory = domain.register(Memory::zeroed(2 * HALF as usize), Access::ReadWrite)?;
        let room = Room { memory, halves: [(0, false); 2] };
        let mut echo = Self { pair, room, is_finished: false };
        echo.post(0)?;
        echo.post(1)?;
        Ok(echo)
    }

    fn post(&mut self, half: u64) -> anyhow::Result<()> {
        self.room.halves[half as usize] = (0, false);
        let part = self.room.memory.part(half * HALF..(half + 1) * HALF)?;
        Ok(self.pair.post_receive(half, &[part])?)
    }

    /// What came goes back from where it is.
    fn received(&mut self, part: &Completion) -> anyhow::Result<()> {
        let half = &mut self.room.halves[part.id as usize];
        // The other side has finished: nothing comes here any more.
        half.1 |= part.ends_request || part.status == Status::Flushed;
        if part.len > 0 && part.status.is_success() {
            half.0 += 1;
            let start = part.id * HALF + u64::from(part.offset);
            let bytes = self.room.memory.part(start..start + u64::from(part.len))?;
            self.pair.post_send(part.id, &[bytes])?;
        }
        self.finish()
    }

    /// Bytes were sent and acknowledged: a half that is empty takes new ones.
    fn sent(&mut self, half: u64) -> anyhow::Result<()> {
        self.room.halves[half as usize].0 -= 1;
        let is_empty = self.room.halves[half as usize] == (0, true);
        if is_empty && self.pair.phase() == Phase::Connected {
            return self.post(half);
        }
        self.finish()
    }

    /// When the other side has finished, and all that it sent is on its way back, this one
    /// finishes, too.
    fn finish(&mut self) -> anyhow::Result<()> {
        let has_all = self.room.halves.iter().all(|(_, is_full)| *is_full);
        if has_all && !self.is_finished && self.pair.phase() == Phase::PeerFinished {
            self.is_finished = true;
            self.pair.shutdown()?;
        }
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let (adapter, address) = open()?;
    let local: SocketAddr = SocketAddr::new(address.parse()?, PORT);
    let domain = adapter.domain()?;
    let mut done = adapter.completion_queue(1 << 15)?;
    let listener = adapter.listen(local).context("nobody else may listen there")?;
    println!("echo on {local}; try: nc {} {}", local.ip(), local.port());
    let mut waiting: HashMap<QueuePairId, Room> = HashMap::new();
    let mut echoes: HashMap<QueuePairId, Echo> = HashMap::new();
    loop {
        while listener.offered() < IDLE {
            let Echo { pair, room, .. } = Echo::new(&domain, &done)?;
            waiting.insert(pair.id(), room);
            listener.offer(pair)?;
        }
        accept(&listener, &mut waiting, &mut echoes);
        let next = done.wait_for(Duration::from_millis(20))?;
        // What completed may be of a connection that was not accepted yet.
        accept(&listener, &mut waiting, &mut echoes);
        let Some(next) = next else {
            echoes.retain(|_, echo| !matches!(echo.pair.phase(), Phase::Closed(_)));
            continue;
        };
        let Some(echo) = echoes.get_mut(&next.queue_pair) else { continue };
        let went = match (next.status, next.operation) {
            (Status::Success | Status::Flushed, Operation::Receive) => echo.received(&next),
            (Status::Success, Operation::Send) => echo.sent(next.id),
            (status, _) => Err(anyhow::anyhow!("{status}")),
        };
        if let Err(error) = went {
            println!("closed {:?}: {error}", echo.pair.remote_address());
            echoes.remove(&next.queue_pair);
        }
    }
}

fn accept(
    listener: &Listener,
    waiting: &mut HashMap<QueuePairId, Room>,
    echoes: &mut HashMap<QueuePairId, Echo>,
) {
    while let Some(Ok(pair)) = listener.accept().wait_for(Duration::ZERO) {
        println!("accepted {:?}", pair.remote_address());
        if let Some(room) = waiting.remove(&pair.id()) {
            echoes.insert(pair.id(), Echo { pair, room, is_finished: false });
        }
    }
}
