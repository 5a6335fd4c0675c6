//! What a client does, whatever the server: it asks one request at a time while the
//! server is busy, the same while it is idle, one on each endpoint at a time, and more
//! than can be done. It spins for the replies, as the paper's does.
//!
//! What the kernel offers for the same: connected sockets, and a server of one thread
//! that waits for all of them by `epoll` (tokio on the calling thread).

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, anyhow, ensure};
use landfall_testbed::RttHistogram;
use landfall_testbed::rivals::Endpoints;
use socket2::{SockRef, Socket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;

use super::{OFFERED, OVERLOADED, Seen};
use crate::papers::clan::Scale;
use crate::workload::side::{both, joined, place_thread};

/// Bytes of a request and of its reply: its number, and its endpoint's.
pub(super) const MESSAGE: usize = 16;
/// This many requests at the start are not measured, or as many as fit into the time.
const WARM_UP: u64 = 100;
/// Longer than the server polls, as in the paper.
const PAUSE: Duration = Duration::from_micros(200);
/// Of requests that are due at once this many are sent before replies are looked for.
const BURST: u64 = 32;
/// Looks for a reply, for each at the clock.
const LOOKS: u32 = 1024;

/// Connections to a server, by their numbers. One request is under way on each.
pub(super) trait Clients {
    /// Sends a request, at the latest with the next [`turn`](Self::turn). False: the
    /// way is full just now.
    fn send(&mut self, endpoint: usize, request: &[u8; MESSAGE]) -> Result<bool>;
    /// The reply, if it is there.
    fn reply(&mut self, endpoint: usize) -> Result<Option<[u8; MESSAGE]>>;
    /// Lets what was written leave, and what came come in.
    fn turn(&mut self);
}

/// Where the kernel says how long a thread was on a processor.
#[derive(Debug)]
pub(super) struct ServerThread(PathBuf);

impl ServerThread {
    /// The calling thread.
    pub(super) fn this() -> Result<Self> {
        let thread = fs::read_link("/proc/thread-self").context("which thread is this?")?;
        Ok(Self(Path::new("/proc").join(thread).join("schedstat")))
    }

    /// Nanoseconds on a processor; not a number where the kernel does not say.
    fn busy_ns(&self) -> f64 {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let first = text.split_ascii_whitespace().next();
        first.and_then(|ns| ns.parse().ok()).unwrap_or(f64::NAN)
    }
}

/// A client of this many endpoints, and what it still waits for.
struct Asking<C> {
    clients: C,
    /// What was asked last on each endpoint.
    numbers: Vec<u64>,
    asked: u64,
    random: u64,
    deadline: Instant,
}

/// Does all of it.
pub(super) fn ask(
    clients: impl Clients,
    endpoints: usize,
    scale: Scale,
    server: &ServerThread,
) -> Result<Seen> {
    let deadline = Instant::now() + scale.limit;
    let numbers = vec![0; endpoints];
    let mut asking = Asking { clients, numbers, asked: 0, random: 1, deadline };
    let warming = Instant::now();
    while asking.asked < WARM_UP && warming.elapsed() < scale.time {
        asking.round_trip()?;
    }
    let busy_ns = asking.busy(scale.time)?;
    let idle_ns = asking.idle(scale.idle)?;
    let (before, asked) = (server.busy_ns(), asking.asked);
    let requests_per_s = asking.on_all(scale.time)?;
    let server_ns = (server.busy_ns() - before) / (asking.asked - asked) as f64;
    let mut overload = Vec::new();
    if endpoints <= OVERLOADED {
        for times in OFFERED {
            overload.push(asking.overload(times * requests_per_s, scale.time)?);
        }
    }
    Ok(Seen { busy_ns, idle_ns, requests_per_s, server_ns, overload })
}

impl<C: Clients> Asking<C> {
    /// Sends a request on this endpoint, once the way has room.
    fn send(&mut self, endpoint: usize) -> Result<()> {
        for look in 1u32.. {
            if self.try_send(endpoint)? {
                break;
            }
            self.look_around(look)?;
        }
        Ok(())
    }

    fn try_send(&mut self, endpoint: usize) -> Result<bool> {
        let mut request = [0; MESSAGE];
        let (number, name) = request.split_at_mut(8);
        number.copy_from_slice(&(self.asked + 1).to_le_bytes());
        name.copy_from_slice(&(endpoint as u64).to_le_bytes());
        let is_sent = self.clients.send(endpoint, &request)?;
        if is_sent {
            self.asked += 1;
            self.numbers[endpoint] = self.asked;
        }
        Ok(is_sent)
    }

    /// Is the reply there? It has to be the one to what was asked.
    fn try_reply(&mut self, endpoint: usize) -> Result<bool> {
        let Some(reply) = self.clients.reply(endpoint)? else { return Ok(false) };
        let (number, name) = reply.split_at(8);
        let is_right = number == self.numbers[endpoint].to_le_bytes()
            && name == (endpoint as u64).to_le_bytes();
        ensure!(is_right, "endpoint {endpoint} got a reply to something else");
        Ok(true)
    }

    fn await_reply(&mut self, endpoint: usize) -> Result<()> {
        for look in 1u32.. {
            if self.try_reply(endpoint)? {
                break;
            }
            self.look_around(look)?;
        }
        Ok(())
    }

    fn look_around(&mut self, look: u32) -> Result<()> {
        self.clients.turn();
        if look.is_multiple_of(LOOKS) {
            ensure!(Instant::now() < self.deadline, "no reply came in time");
        }
        Ok(())
    }

    /// Numbers that are random enough to choose an endpoint.
    fn any_endpoint(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % self.numbers.len() as u64) as usize
    }

    /// On an endpoint at random, as the paper does.
    fn round_trip(&mut self) -> Result<Duration> {
        let endpoint = self.any_endpoint();
        let begun = Instant::now();
        self.send(endpoint)?;
        self.clients.turn();
        self.await_reply(endpoint)?;
        Ok(begun.elapsed())
    }

    /// One behind the other: the server does not sleep.
    fn busy(&mut self, time: Duration) -> Result<f64> {
        let mut trips = RttHistogram::new();
        let started = Instant::now();
        while started.elapsed() < time {
            trips.record(self.round_trip()?);
        }
        median_of(&trips)
    }

    /// With pauses: it does.
    fn idle(&mut self, rounds: u32) -> Result<f64> {
        let mut trips = RttHistogram::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            while begun.elapsed() < PAUSE {
                spin_loop();
            }
            trips.record(self.round_trip()?);
        }
        median_of(&trips)
    }

    /// One request on each endpoint, then all the replies: how many per second?
    fn on_all(&mut self, time: Duration) -> Result<f64> {
        let started = Instant::now();
        let mut requests = 0;
        while requests == 0 || started.elapsed() < time {
            for endpoint in 0..self.numbers.len() {
                self.send(endpoint)?;
                if (endpoint as u64 + 1).is_multiple_of(BURST) {
                    self.clients.turn();
                }
            }
            self.clients.turn();
            for endpoint in 0..self.numbers.len() {
                self.await_reply(endpoint)?;
            }
            requests += self.numbers.len();
        }
        Ok(requests as f64 / started.elapsed().as_secs_f64())
    }

    /// Requests that come at this rate, on each endpoint in turn, whether or not those
    /// before them were answered. Gives how many were offered, served and turned away,
    /// per second.
    fn overload(&mut self, rate: f64, time: Duration) -> Result<[f64; 3]> {
        let endpoints = self.numbers.len();
        let mut is_waiting = vec![false; endpoints];
        let mut waiting = VecDeque::with_capacity(endpoints);
        let (mut offered, mut served, mut turned_away) = (0u64, 0u64, 0u64);
        let started = Instant::now();
        let (mut look, mut is_over) = (0u32, false);
        while !is_over || !waiting.is_empty() {
            let elapsed = started.elapsed();
            is_over = elapsed >= time;
            let due = (elapsed.min(time).as_secs_f64() * rate) as u64;
            let before = offered;
            for number in before..due.min(before + BURST) {
                let endpoint = (number % endpoints as u64) as usize;
                offered += 1;
                if is_waiting[endpoint] || !self.try_send(endpoint)? {
                    turned_away += 1;
                    continue;
                }
                is_waiting[endpoint] = true;
                waiting.push_back(endpoint);
            }
            while let Some(&first) = waiting.front() {
                if !self.try_reply(first)? {
                    break;
                }
                waiting.pop_front();
                is_waiting[first] = false;
                served += 1;
            }
            look = look.wrapping_add(1);
            self.look_around(look)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        let per_second = |count: u64| count as f64 / seconds;
        Ok([per_second(offered), per_second(served), per_second(turned_away)])
    }
}

fn median_of(trips: &RttHistogram) -> Result<f64> {
    Ok(trips.summary().context("no request was answered")?.p50_ns as f64)
}

/// Which sockets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Unix,
    Tcp,
}

/// The server's end of a connection.
enum Served {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Connects this many: the clients' ends, and the server's.
fn connect(kind: Kind, at: &Endpoints, endpoints: usize) -> Result<(Vec<Socket>, Vec<Served>)> {
    let pairs = match kind {
        Kind::Unix => (0..endpoints).map(|_| unix()).collect::<Result<Vec<_>>>()?,
        Kind::Tcp => {
            let listener = TcpListener::bind((at.receive.address, 0))?;
            (0..endpoints).map(|_| tcp(&listener)).collect::<Result<_>>()?
        }
    };
    let (clients, served): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    Ok((clients.into_iter().map(Socket::from).collect(), served))
}

fn unix() -> Result<(OwnedFd, Served)> {
    let (client, served) = UnixStream::pair().context("a pair of Unix sockets")?;
    client.set_nonblocking(true)?;
    served.set_nonblocking(true)?;
    Ok((client.into(), Served::Unix(served)))
}

fn tcp(listener: &TcpListener) -> Result<(OwnedFd, Served)> {
    let client = TcpStream::connect(listener.local_addr()?).context("connect to the server")?;
    let (served, from) = listener.accept()?;
    ensure!(from == client.local_addr()?, "{from} is not the one that was expected");
    // So that thousands of them leave no names behind that nobody can use for a minute.
    SockRef::from(&client).set_linger(Some(Duration::ZERO))?;
    for stream in [&client, &served] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok((client.into(), Served::Tcp(served)))
}

/// Serves this many connections, and lets them ask.
pub(super) fn run(kind: Kind, at: &Endpoints, scale: Scale, endpoints: usize) -> Result<Seen> {
    let (sockets, served) = connect(kind, at, endpoints)?;
    let (tell, hear) = channel();
    let (seen, ()) = thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let tell = tell;
            place_thread(&at.receive)?;
            // Nobody waits for it any more: then all clients are gone.
            let _ = tell.send(ServerThread::this()?);
            serve(served)
        });
        let asking = scope.spawn(|| {
            let (sockets, hear) = (sockets, hear);
            place_thread(&at.send)?;
            let server = hear.recv_timeout(scale.limit).map_err(|_| anyhow!("no server"))?;
            let replies = vec![Partial::default(); endpoints];
            ask(Sockets { sockets, replies }, endpoints, scale, &server)
        });
        both(joined(asking.join()), joined(serving.join()))
    })?;
    Ok(seen)
}

/// Until all clients have hung up.
fn serve(connections: Vec<Served>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut serving = JoinSet::new();
        for connection in connections {
            match connection {
                Served::Unix(socket) => {
                    serving.spawn(echo(tokio::net::UnixStream::from_std(socket)?))
                }
                Served::Tcp(socket) => {
                    serving.spawn(echo(tokio::net::TcpStream::from_std(socket)?))
                }
            };
        }
        while serving.join_next().await.is_some() {}
        Ok(())
    })
}

/// Until the client is gone.
async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut message = [0; MESSAGE];
    while stream.read_exact(&mut message).await.is_ok() {
        if stream.write_all(&message).await.is_err() {
            break;
        }
    }
}

/// What came of a reply so far.
#[derive(Clone, Copy, Debug, Default)]
struct Partial {
    bytes: [u8; MESSAGE],
    len: usize,
}

struct Sockets {
    sockets: Vec<Socket>,
    replies: Vec<Partial>,
}

impl Clients for Sockets {
    fn send(&mut self, endpoint: usize, request: &[u8; MESSAGE]) -> Result<bool> {
        match self.sockets[endpoint].send(request) {
            Ok(len) => {
                // A buffer that holds nothing else has room for so little.
                ensure!(len == MESSAGE, "a socket took {len} of {MESSAGE} bytes");
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn reply(&mut self, endpoint: usize) -> Result<Option<[u8; MESSAGE]>> {
        let Partial { bytes, len } = &mut self.replies[endpoint];
        match (&self.sockets[endpoint]).read(&mut bytes[*len..]) {
            Ok(0) => Err(anyhow!("the server hung up")),
            Ok(more) => {
                *len = (*len + more) % MESSAGE;
                Ok((*len == 0).then_some(*bytes))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn turn(&mut self) {}
}
