//! What the other process does: one thing after another, as it is asked, until nobody is
//! there any more.

use std::fs;
use std::io::{self, ErrorKind, Read, Stdin, Stdout, Write, stdin, stdout};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use landfall::stp::blocking::{Connection, Endpoint, Listener};
use landfall::stp::{Memory, Peer, RemoteRights};

use super::{Addresses, Ask, EXPOSED, LIMIT, PORT, READY, Report, endpoint, within_limit};
use crate::leaving::end_with_parent;
use crate::style::hex;
use crate::workload::clan::job::ByPipe;

/// So often it looks how far a Transfer is.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// What `read` is asked for at once.
const CHUNK: usize = 1 << 20;

/// Answers until its standard input ends.
pub fn answer() -> Result<()> {
    end_with_parent()?;
    let endpoint = endpoint()?;
    let stp = endpoint.listen(PORT)?;
    let tcp = TcpListener::bind(("127.0.0.1", 0)).context("TCP over loopback")?;
    let doors = Addresses { stp: doors_of(&endpoint)?, tcp: tcp.local_addr()? };
    let mut meet = ByPipe::new(stdin(), stdout());
    meet.say(&serde_json::to_string(&doors)?)?;
    let mut side = AnsweringProgram { meet, endpoint, stp, tcp, memory: None, buffer: Vec::new() };
    let mut connection = None;
    while let Ok(asked) = side.meet.hear() {
        side.do_as_asked(serde_json::from_str(&asked)?, &mut connection)?;
    }
    Ok(())
}

fn doors_of(endpoint: &Endpoint) -> Result<[SocketAddr; 2]> {
    let paths = endpoint.as_async().paths();
    let local = |path| match endpoint.as_async().local_of(path) {
        Some(Peer::Socket(at)) => Some(at),
        _ => None,
    };
    let doors: Option<Vec<_>> = paths.into_iter().map(local).collect();
    doors.and_then(|doors| doors.try_into().ok()).context("two paths with addresses")
}

struct AnsweringProgram {
    meet: ByPipe<Stdin, Stdout>,
    endpoint: Endpoint,
    stp: Listener,
    tcp: TcpListener,
    /// Where Transfers land, and what comes by TCP: used again and again, so that neither
    /// pays for fresh pages.
    memory: Option<Memory>,
    buffer: Vec<u8>,
}

impl AnsweringProgram {
    fn do_as_asked(&mut self, asked: Ask, connection: &mut Option<Connection>) -> Result<()> {
        match asked {
            Ask::Transfer { len } => {
                let connection = self.met(connection)?.clone();
                self.transfer(&connection, len, false)
            }
            Ask::TransferLosingAPath { len } => {
                let connection = self.met(connection)?.clone();
                self.transfer(&connection, len, true)
            }
            Ask::Stream { len } => self.stream(len),
            Ask::Words { spins } => self.words(spins),
            Ask::Expose => {
                let connection = self.met(connection)?.clone();
                self.expose(&connection)
            }
        }
    }

    /// The connection of the side that asks, which it has opened already.
    fn met<'a>(&self, connection: &'a mut Option<Connection>) -> Result<&'a Connection> {
        if connection.is_none() {
            let accepted = self.stp.accept_within(LIMIT)?;
            *connection = Some(accepted.context("nobody connects")?);
        }
        connection.as_ref().context("it is there")
    }

    fn transfer(&mut self, connection: &Connection, len: usize, loses: bool) -> Result<()> {
        let memory = self.memory.take().filter(|memory| memory.len() == len);
        let memory = match memory {
            Some(memory) => memory,
            None => touched(len)?,
        };
        let (copied, units, moved) = self.counted();
        let woken = wakeups()?;
        let before = self.endpoint.stats().engine.bytes_received;
        let mut taking = connection.receive(memory).start();
        self.meet.say(READY)?;
        let mut at_half = units;
        if loses {
            let (started, half) = (Instant::now(), before + len as u64 / 2);
            while self.endpoint.stats().engine.bytes_received < half {
                if started.elapsed() > LIMIT {
                    bail!("half of the bytes do not come");
                }
                taking = match taking.wait_for(LOOK_EVERY) {
                    Ok(outcome) => {
                        outcome?;
                        bail!("all of it came before the path was given up")
                    }
                    Err(taking) => taking,
                };
            }
            at_half = self.counted().1;
            let path = self.endpoint.as_async().paths()[1];
            self.endpoint.as_async().set_path_up(path, false)?;
        }
        let message = within_limit!(taking)?;
        let (woken, now) = (wakeups()? - woken, self.counted());
        let told = Report {
            hash: blake3::hash(&message).to_string(),
            wakeups: woken,
            copied: now.0 - copied,
            at_half: [0, 1].map(|path| at_half[path] - units[path]),
            at_end: [0, 1].map(|path| now.1[path] - units[path]),
            moved: now.2 - moved,
        };
        self.memory = Some(message.into_memory());
        self.meet.say(&serde_json::to_string(&told)?)
    }

    /// Bytes copied, packets received over each path, and Blocks that went another way.
    fn counted(&self) -> (u64, [u64; 2], u64) {
        let stats = self.endpoint.stats();
        let of = |path: usize| stats.paths.get(path).map(|path| path.counters).unwrap_or_default();
        let copied = of(0).bytes_copied + of(1).bytes_copied;
        (copied, [0, 1].map(|path| of(path).units_received), stats.engine.blocks_moved)
    }

    fn stream(&mut self, len: usize) -> Result<()> {
        self.meet.say(READY)?;
        let (mut stream, _) = self.tcp.accept()?;
        stream.set_read_timeout(Some(LIMIT))?;
        if self.buffer.len() != len {
            self.buffer = vec![1; len];
        }
        // Sender and receiver are both there.
        stream.write_all(&[0])?;
        let woken = wakeups()?;
        for chunk in self.buffer.chunks_mut(CHUNK) {
            stream.read_exact(chunk)?;
        }
        stream.write_all(&[0])?;
        let told = Report {
            wakeups: wakeups()? - woken,
            hash: blake3::hash(&self.buffer).to_string(),
            copied: 0,
            at_half: [0; 2],
            at_end: [0; 2],
            moved: 0,
        };
        self.meet.say(&serde_json::to_string(&told)?)
    }

    fn words(&mut self, spins: bool) -> Result<()> {
        self.meet.say(READY)?;
        let (mut stream, _) = self.tcp.accept()?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_nonblocking(spins)?;
        let mut word = [0; 8];
        while read_word(&mut stream, &mut word)? {
            stream.write_all(&word)?;
        }
        Ok(())
    }

    fn expose(&mut self, connection: &Connection) -> Result<()> {
        let region = self.endpoint.register(Memory::zeroed(EXPOSED))?;
        self.meet.say(READY)?;
        let request = connection.region_request()?;
        let exposed = request.expose(&region.whole(), RemoteRights::ALL)?;
        // Nothing is done here while the other side works with it.
        let _ = self.meet.hear();
        let mut found = vec![0; EXPOSED];
        region.copy_out(0, &mut found)?;
        connection.wait(exposed.revoke());
        self.meet.say(&serde_json::to_string(&hex(&found[..16]))?)
    }
}

/// Memory whose pages are there.
fn touched(len: usize) -> Result<Memory> {
    let mut memory = Memory::try_zeroed(len).context("no memory for a Transfer")?;
    memory.fill(1);
    Ok(memory)
}

/// Fills a word, asleep until it comes; false: the other side has finished. Both sleep, as
/// beside Puts, where the other process sleeps: spinning needs two processors for itself, and
/// without them a round trip takes as long as a turn of the scheduler.
pub(in crate::demo) fn read_word(stream: &mut TcpStream, word: &mut [u8]) -> io::Result<bool> {
    let mut at = 0;
    while at < word.len() {
        match stream.read(&mut word[at..]) {
            Ok(0) => return Ok(false),
            Ok(len) => at += len,
            // Where the stream does not block, anyone who reads spins.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// How often threads of this process slept and were woken.
fn wakeups() -> Result<u64> {
    let mut count = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        // One that has just ended counts no more.
        let Ok(status) = fs::read_to_string(thread?.path().join("status")) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(count)
}
