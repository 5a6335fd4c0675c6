//! Connections of a kernel's sockets to queue pairs, all open at a time: how fast they open, what
//! one takes while it is idle, and how fast bytes come back over each of them in turn.
//!
//! ```sh
//! sudo cargo bench -p landfall-benches --bench live_connections -- 100000
//! ```
//!
//! Two adapters are one station on a TAP interface of a network namespace of its own; the kernel
//! there is the peer, by as many processes as the limit of descriptors wants. All bytes are
//! compared. It needs root.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use landfall::qpip::{
    Access, Adapter, Completion, CompletionQueue, Config, Link, Listener, Mapping, Memory,
    MemoryRegion, Operation, Part, ProtectionDomain, QueuePair, QueuePairId, QueuePairOptions,
    SharedReceiveOptions, SharedReceiveQueue, Status, TapConfig,
};
use landfall_testbed::{Namespace, privileges};

const MEMBERS: u16 = 2;
/// The kernel has some 64,000 ports for each of these.
const PORTS: std::ops::Range<u16> = 7_000..7_004;
/// The word by which a process is told to be a client, and with how many connections.
const CLIENT: &str = "--client";
/// The kernel lets a process have 20,000 files on some machines.
const MOST_SOCKETS: usize = 15_000;
/// What goes there and back.
const MESSAGE: usize = 64;
/// This many messages are under way at a time: what is posted to a member suffices.
const BURST: usize = 512;
/// Room for messages at each member.
const ROOM: u32 = 2_048;
/// This many queue pairs wait at each listener for connections.
const OFFERED: usize = 256;
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
const THEIRS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, count] = &words[..]
        && word == CLIENT
    {
        return be_client(count.parse()?);
    }
    let is_test = words.iter().any(|word| word == "--test");
    let asked = words.iter().find_map(|word| word.parse().ok());
    let count: usize = asked.unwrap_or(if is_test { 500 } else { 100_000 });
    if let Some(why) = privileges::why_no_namespaces() {
        println!("skipped: {why}");
        return Ok(());
    }
    let kernel = Namespace::new()?;
    let config = TapConfig { kernel_address: Some((THEIRS, 24)), ..TapConfig::new("tap0") };
    let bounds = Config {
        queue_pairs: count + 8_192,
        offers: 1 << 14,
        half_open: 1 << 14,
        ..Config::default()
    };
    let builder = Adapter::builder().link(Link::tap_with(config)).address("10.9.0.2/24");
    let adapters = kernel.enter(|| builder.config(bounds).open_members(MEMBERS))??;
    kernel.enter(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535"))??;

    let (is_over, open) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let servers: Vec<_> = adapters
            .iter()
            .map(|adapter| scope.spawn(|| Server::new(adapter)?.run(&is_over, &open)))
            .collect();
        let measured = kernel.enter(|| measure(count, &open));
        is_over.store(true, Ordering::SeqCst);
        for server in servers {
            server.join().expect("no panic")?;
        }
        measured?
    })
}

/// Has the kernel's side done, and says how long it took.
fn measure(count: usize, open: &AtomicUsize) -> anyhow::Result<()> {
    let before = (resident()?, Instant::now());
    let mut clients = Vec::new();
    for first in (0..count).step_by(MOST_SOCKETS) {
        clients.push(Client::start(MOST_SOCKETS.min(count - first))?);
    }
    clients.iter_mut().try_for_each(Client::wait)?;
    while open.load(Ordering::SeqCst) < count {
        let came = open.load(Ordering::SeqCst);
        ensure!(before.1.elapsed() < PATIENCE * 10, "{came} of {count} came");
        std::thread::sleep(Duration::from_millis(1));
    }
    let opening = before.1.elapsed();
    let each = (resident()?.saturating_sub(before.0)) / count as u64;
    let rate = per_second(count, opening);
    println!("{count} connections open in {opening:.1?}: {rate:.0} a second");
    println!("memory of this process for each that is idle: {each} bytes");
    for round in 1..=2 {
        let start = Instant::now();
        for client in &mut clients {
            client.order()?;
            client.wait()?;
        }
        let (took, rate) = (start.elapsed(), per_second(count, start.elapsed()));
        println!(
            "round {round}: {MESSAGE} bytes there and back over each in {took:.1?}: {rate:.0} a second"
        );
    }
    Ok(())
}

/// A process with sockets of the kernel's. It says when its connections are open, and after each
/// round that it is ordered.
struct Client(Child);

impl Client {
    fn start(count: usize) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CLIENT, &count.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(command.spawn()?))
    }

    fn order(&mut self) -> anyhow::Result<()> {
        Ok(self.0.stdin.as_mut().context("its input")?.write_all(&[1])?)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let said = self.0.stdout.as_mut().context("its output")?.read_exact(&mut [0]);
        said.context("a client ended, and has said above why")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // At the end of its input it ends.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn be_client(count: usize) -> anyhow::Result<()> {
    let mut random = landfall_placement::Random::from_number(1);
    let mut streams = Vec::with_capacity(count);
    for port in PORTS.cycle().take(count) {
        let to = SocketAddr::new(OURS, port);
        let stream = connect(to).with_context(|| format!("connection {}", streams.len()))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        streams.push(stream);
    }
    let (mut orders, mut answers) = (std::io::stdin().lock(), std::io::stdout().lock());
    loop {
        answers.write_all(&[1])?;
        answers.flush()?;
        if orders.read(&mut [0])? == 0 {
            return Ok(());
        }
        for burst in streams.chunks_mut(BURST) {
            let sent: Vec<[u8; MESSAGE]> = burst
                .iter_mut()
                .map(|stream| {
                    let bytes = std::array::from_fn(|_| random.next_u64() as u8);
                    stream.write_all(&bytes).map(|()| bytes)
                })
                .collect::<Result<_, _>>()?;
            for (stream, sent) in burst.iter_mut().zip(sent) {
                let mut came = [0; MESSAGE];
                stream.read_exact(&mut came)?;
                ensure!(came == sent, "other bytes came back");
            }
        }
    }
}

/// A queue of connections that is full for a moment is asked again.
fn connect(to: SocketAddr) -> anyhow::Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect_timeout(&to, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) if start.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Bytes of memory that this process has.
fn resident() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split_whitespace().nth(1).context("resident pages")?.parse()?;
    Ok(pages * 4_096)
}

/// One member: what comes goes back from where it lies.
struct Server {
    domain: ProtectionDomain,
    done: CompletionQueue,
    shared: SharedReceiveQueue,
    memory: MemoryRegion,
    listeners: Vec<Listener>,
    open: HashMap<QueuePairId, QueuePair>,
}

impl Server {
    fn new(adapter: &Adapter) -> anyhow::Result<Self> {
        let domain = adapter.domain()?;
        let done = adapter.completion_queue(1 << 16)?;
        let options = SharedReceiveOptions { depth: ROOM, ..SharedReceiveOptions::default() };
        let shared = domain.shared_receive_queue(&options, &done)?;
        let room = Memory::zeroed(ROOM as usize * MESSAGE);
        let memory = domain.register(room, Access::ReadWrite)?;
        let listen = |port| adapter.listen(SocketAddr::new(OURS, port));
        let listeners = PORTS.map(listen).collect::<Result<_, _>>()?;
        let mut server = Self { domain, done, shared, memory, listeners, open: HashMap::new() };
        for nth in 0..u64::from(ROOM) {
            let part = server.part(nth)?;
            server.shared.post(nth, &[part])?;
        }
        for nth in 0..server.listeners.len() {
            for _ in 0..OFFERED {
                server.offer(nth)?;
            }
        }
        Ok(server)
    }

    fn part(&self, nth: u64) -> anyhow::Result<Part> {
        let start = nth * MESSAGE as u64;
        Ok(self.memory.part(start..start + MESSAGE as u64)?)
    }

    fn offer(&self, listener: usize) -> anyhow::Result<()> {
        let options = QueuePairOptions {
            send_depth: 4,
            receive_depth: 1,
            ..QueuePairOptions::tcp(Mapping::Stream)
        };
        let queues = (&self.done, &self.done);
        let pair = self.domain.queue_pair_sharing(&options, queues, &self.shared)?;
        self.listeners[listener].offer(pair).map_err(|refused| refused.error)?;
        Ok(())
    }

    fn run(&mut self, is_over: &AtomicBool, open: &AtomicUsize) -> anyhow::Result<()> {
        while !is_over.load(Ordering::SeqCst) {
            let next = self.done.wait_for(Duration::from_millis(1))?;
            self.accept(open)?;
            let mut next = next;
            while let Some(completion) = next {
                self.handle(completion)?;
                next = self.done.poll();
            }
        }
        Ok(())
    }

    /// Takes the connections that came, and offers a queue pair for each that will.
    fn accept(&mut self, open: &AtomicUsize) -> anyhow::Result<()> {
        for nth in 0..self.listeners.len() {
            while let Some(pair) = self.listeners[nth].accept().wait_for(Duration::ZERO) {
                let pair = pair?;
                self.open.insert(pair.id(), pair);
                open.fetch_add(1, Ordering::SeqCst);
                self.offer(nth)?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, completion: Completion) -> anyhow::Result<()> {
        // Once the clients are gone, so are connections.
        if completion.status != Status::Success {
            return Ok(());
        }
        let part = self.part(completion.id)?;
        match completion.operation {
            Operation::Send => self.shared.post(completion.id, &[part])?,
            Operation::Receive if completion.ends_request => {
                let pair = self.open.get_mut(&completion.queue_pair).context("a connection")?;
                pair.post_send(completion.id, &[part])?;
            }
            _ => {}
        }
        Ok(())
    }
}
