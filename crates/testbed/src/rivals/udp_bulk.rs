//! A bulk transfer over kernel UDP with segmentation and GRO: what batching
//! alone gives, without a protocol.
//!
//! UDP has no flow control, and a sender that overruns the receiver measures
//! only loss. So the sender keeps a window: the receiver counts what it got
//! in a word of shared memory, which costs next to nothing and needs no
//! acknowledgements on the wire. That favours this rival, and is meant to.
//!
//! With [`Scatter`] it does what a protocol does that places bytes, and nothing else: each
//! datagram is gathered from a head and a piece of a large memory, and received into a head
//! and the next place of another. That is the limit of such a protocol on a path.

use std::io::{IoSlice, IoSliceMut, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};
use std::{io, thread};

use arrayvec::ArrayVec;
use socket2::{Domain, Socket, Type};

use super::measure::{Goal, Measured, Patience, byte_sum, measure, pattern, pattern_sum};
use super::ping_pong::{Kind, PingPong};
use super::tcp::{set_receive_buffer, set_send_buffer};
use super::{Endpoints, Plan, Polling, Workload};
use crate::error::{Error, Tried};
use crate::sample::Sample;
use crate::sys;

/// `linux/udp.h`.
pub(crate) const UDP_SEGMENT: libc::c_int = 103;
pub(super) const UDP_GRO: libc::c_int = 104;
/// A super-packet with more payload falls apart into single datagrams.
const LARGEST_BATCH: usize = 65_472;
/// GRO joins no more (`UDP_GRO_CNT_MAX` of `net/ipv4/udp_offload.c`).
const MOST_SEGMENTS: usize = 64;
/// Whatever arrives, fits.
pub(super) const ROOM: usize = 65_536;
/// Nothing arrives for so long: what is missing was lost.
pub(super) const QUIET: Duration = Duration::from_millis(100);
/// Kernel memory that a queued datagram of `n` bytes takes is several times
/// `n` when it is small; a window of this fraction of the buffer is safe.
pub(super) const BUFFER_PER_WINDOW: usize = 4;

/// Where the bytes of datagrams come from and go to, if not from one buffer into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// Bytes in front of each payload, from and into a place of their own.
    pub head: usize,
    /// How much memory the payloads walk through on each side.
    pub memory: usize,
}

/// A bulk transfer over UDP.
#[derive(Clone, Debug)]
pub struct UdpThroughput {
    /// Where, how much, how.
    pub plan: Plan,
    /// Payload bytes per datagram on the wire.
    pub payload: usize,
    /// Whether datagrams are sent in batches (`UDP_SEGMENT`) and received so
    /// (`UDP_GRO`).
    pub offload: bool,
    /// Buffer of each socket in bytes. Less is granted without privilege.
    pub buffer: usize,
    /// [`Workload::Plain`] or [`Workload::Touch`]; with scatter only the first.
    pub workload: Workload,
    /// Heads and payloads apart.
    pub scatter: Option<Scatter>,
}

impl UdpThroughput {
    /// Batched datagrams of `payload` bytes with buffers of 8 MiB.
    #[must_use]
    pub fn new(plan: Plan, payload: usize) -> Self {
        let (buffer, workload) = (8 << 20, Workload::Plain);
        Self { plan, payload, offload: true, buffer, workload, scatter: None }
    }

    /// One run over a new pair of sockets. What was lost is reported, not an
    /// error.
    pub fn run(&self) -> Result<Sample, Error> {
        let (from, to) = self.sockets()?;
        let batch = self.batch();
        let granted = to.recv_buffer_size().tried("read the receive buffer")?;
        let flow = Flow::new((granted / BUFFER_PER_WINDOW).max(batch));
        let goal = Goal::new(self.plan.amount, self.payload);
        let room = if self.scatter.is_some() { MOST_SEGMENTS * self.payload } else { ROOM };
        let (mut source, mut sink) =
            (self.side(batch, pattern), self.side(room, |len| vec![0xff; len]));
        let measured = measure(
            &self.plan,
            |patience| {
                let end = End { flow: &flow, socket: &from };
                let sent = send(&from, &mut source, goal, &flow, patience);
                drop(end);
                sent
            },
            |patience| receive(&to, &mut sink, self.workload, &flow, patience),
        )?;
        self.sample(&measured)
    }

    fn sample(&self, measured: &Measured<Sent, Received>) -> Result<Sample, Error> {
        let Measured { sent, received, cpu, busy, wakeups } = measured;
        let Some(lost_bytes) = sent.bytes.checked_sub(received.bytes) else {
            return Err(Error::WrongData("more bytes arrived than were sent".into()));
        };
        if self.workload == Workload::Touch && lost_bytes == 0 && sent.sum != received.sum {
            return Err(Error::WrongData("the bytes that arrived have another sum".into()));
        }
        Ok(Sample {
            bytes: received.bytes,
            messages: received.calls,
            seconds: received.ended.duration_since(sent.started).as_secs_f64(),
            cpu: *cpu,
            busy: *busy,
            wakeups: *wakeups,
            lost_bytes,
            ..Sample::default()
        })
    }

    /// Payload bytes per send: the largest batch that the kernel keeps whole.
    #[must_use]
    pub fn batch(&self) -> usize {
        batch_of(self.segment(), self.offload) / self.segment() * self.payload
    }

    /// Bytes of a datagram.
    fn segment(&self) -> usize {
        self.payload + self.scatter.map_or(0, |scatter| scatter.head)
    }

    /// What one side has, where this many payload bytes are sent or taken at once.
    fn side(&self, batch: usize, filled: impl Fn(usize) -> Vec<u8>) -> Buffers {
        let Scatter { head, memory } = self.scatter.unwrap_or(Scatter { head: 0, memory: batch });
        let (heads, memory) = (filled(head * MOST_SEGMENTS), filled(memory.max(batch)));
        Buffers { payload: self.payload, head, heads, memory, batch, at: 0 }
    }

    fn sockets(&self) -> Result<(Socket, Socket), Error> {
        if !(1..=LARGEST_PAYLOAD).contains(&self.segment()) || self.payload == 0 {
            let payload = self.segment();
            return Err(Error::BadRequest(format!(
                "datagrams of {payload} bytes; 1 to {LARGEST_PAYLOAD} are possible"
            )));
        }
        let has_touch = self.workload == Workload::Touch && self.scatter.is_none();
        if self.workload != Workload::Plain && !has_touch {
            return Err(Error::Unsupported(format!("workload {} over UDP", self.workload)));
        }
        let (from, to) = connected_pair(&self.plan.endpoints)?;
        set_send_buffer(&from, self.buffer)?;
        set_receive_buffer(&to, self.buffer)?;
        if self.offload {
            let segment = self.segment() as libc::c_int;
            sys::set_option(from.as_fd(), libc::SOL_UDP, UDP_SEGMENT, segment)
                .tried("switch UDP segmentation on")?;
            sys::set_option(to.as_fd(), libc::SOL_UDP, UDP_GRO, 1).tried("switch UDP GRO on")?;
        }
        Ok((from, to))
    }
}

/// Payload bytes per send.
pub(super) fn batch_of(payload: usize, offload: bool) -> usize {
    let segments = (LARGEST_BATCH / payload.max(1)).clamp(1, MOST_SEGMENTS);
    if offload { segments * payload } else { payload }
}

/// The memory of one side.
struct Buffers {
    payload: usize,
    head: usize,
    heads: Vec<u8>,
    memory: Vec<u8>,
    /// Payload bytes that are sent or taken at once.
    batch: usize,
    /// Where the next ones are.
    at: usize,
}

impl Buffers {
    /// The next place for a whole batch.
    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        if self.at + self.batch > self.memory.len() {
            self.at = 0;
        }
    }

    /// Sends this many payload bytes, at most a batch.
    fn send(&self, socket: &Socket, len: usize) -> io::Result<usize> {
        let payloads = &self.memory[self.at..self.at + len];
        if self.head == 0 {
            return socket.send(payloads);
        }
        let pieces = self.heads.chunks(self.head).zip(payloads.chunks(self.payload));
        let pieces: ArrayVec<IoSlice<'_>, { 2 * MOST_SEGMENTS }> = pieces
            .flat_map(|(head, payload)| [IoSlice::new(head), IoSlice::new(payload)])
            .collect();
        socket.send_vectored(&pieces)
    }

    /// Takes what is there; says how many payload bytes that are.
    fn receive(&mut self, mut socket: &Socket) -> io::Result<usize> {
        let payloads = &mut self.memory[self.at..self.at + self.batch];
        if self.head == 0 {
            return socket.read(payloads);
        }
        let pieces = self.heads.chunks_mut(self.head).zip(payloads.chunks_mut(self.payload));
        let mut pieces: ArrayVec<IoSliceMut<'_>, { 2 * MOST_SEGMENTS }> = pieces
            .flat_map(|(head, payload)| [IoSliceMut::new(head), IoSliceMut::new(payload)])
            .collect();
        let got = socket.read_vectored(&mut pieces)?;
        let segment = self.head + self.payload;
        Ok(got / segment * self.payload + (got % segment).saturating_sub(self.head))
    }
}

struct Sent {
    started: Instant,
    bytes: u64,
    sum: u64,
}

struct Received {
    ended: Instant,
    bytes: u64,
    calls: u64,
    sum: u64,
}

/// What both threads see of the transfer.
struct Flow {
    window: u64,
    arrived: AtomicU64,
    sent: AtomicU64,
    done: AtomicBool,
    waits: AtomicBool,
    sender: OnceLock<Thread>,
}

impl Flow {
    fn new(window: usize) -> Self {
        Self {
            window: window as u64,
            arrived: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            done: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            sender: OnceLock::new(),
        }
    }

    /// The receiver got `bytes` in all. Wakes a sender that waits once half
    /// of the window is free.
    fn note_arrived(&self, bytes: u64) {
        // SeqCst here and in `wait_for_room`: one of the two threads must see
        // the other's store, or the sender sleeps on an open window.
        self.arrived.store(bytes, Ordering::SeqCst);
        let flying = self.sent.load(Ordering::SeqCst).saturating_sub(bytes);
        if flying <= self.window / 2
            && self.waits.load(Ordering::SeqCst)
            && let Some(sender) = self.sender.get()
        {
            sender.unpark();
        }
    }

    /// Waits until `next` more bytes fit into the window; gives the bytes
    /// that must be taken for lost by now.
    fn wait_for_room(
        &self,
        sent: u64,
        next: u64,
        mut lost: u64,
        patience: &Patience,
    ) -> Result<u64, Error> {
        let flying = |lost: u64| {
            sent.saturating_sub(self.arrived.load(Ordering::SeqCst)).saturating_sub(lost)
        };
        let mut heard = (self.arrived.load(Ordering::SeqCst), Instant::now());
        while flying(lost) + next > self.window {
            match patience.polling() {
                Polling::Spin => patience.give_way(),
                Polling::Block => {
                    self.waits.store(true, Ordering::SeqCst);
                    if flying(lost) > self.window / 2 {
                        thread::park_timeout(QUIET);
                    }
                    self.waits.store(false, Ordering::SeqCst);
                }
            }
            let now = Instant::now();
            patience.check("sending", now)?;
            let arrived = self.arrived.load(Ordering::SeqCst);
            if arrived != heard.0 {
                heard = (arrived, now);
            } else if now - heard.1 >= QUIET {
                lost = sent.saturating_sub(arrived);
            }
        }
        Ok(lost)
    }
}

/// Tells the receiver on every way out that nothing more comes.
struct End<'a> {
    flow: &'a Flow,
    socket: &'a Socket,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.flow.done.store(true, Ordering::SeqCst);
        // Wakes a receiver that blocks; should this be lost, its time-out
        // does the same a little later.
        let _ = self.socket.send(&[]);
    }
}

fn send(
    socket: &Socket,
    source: &mut Buffers,
    goal: Goal,
    flow: &Flow,
    patience: &Patience,
) -> Result<Sent, Error> {
    // Only this thread sets it, once.
    let _ = flow.sender.set(thread::current());
    patience.prepare(socket)?;
    let started = Instant::now();
    let (mut bytes, mut sum, mut lost) = (0, 0, 0);
    loop {
        let now = Instant::now();
        let len = goal.left(bytes, now - started).min(source.batch as u64);
        if len == 0 {
            return Ok(Sent { started, bytes, sum });
        }
        patience.check("sending", now)?;
        lost = flow.wait_for_room(bytes, len, lost, patience)?;
        // Before the send: the receiver must never see more than this.
        flow.sent.store(bytes + len, Ordering::SeqCst);
        patience.wait_for("send datagrams", || source.send(socket, len as usize))?;
        source.advance(len as usize);
        bytes += len;
        sum += pattern_sum(0, len as usize);
    }
}

fn receive(
    socket: &Socket,
    sink: &mut Buffers,
    workload: Workload,
    flow: &Flow,
    patience: &Patience,
) -> Result<Received, Error> {
    patience.prepare(socket)?;
    if patience.polling() == Polling::Block {
        socket.set_read_timeout(Some(QUIET)).tried("bound a wait")?;
    }
    let (mut bytes, mut calls, mut sum) = (0, 0, 0);
    let mut ended = Instant::now();
    loop {
        let got = match sink.receive(socket) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if patience.polling() == Polling::Spin {
                    patience.give_way();
                }
                0
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(Error::system("receive datagrams", error)),
        };
        let now = Instant::now();
        if got > 0 {
            bytes += got as u64;
            calls += 1;
            ended = now;
            if workload == Workload::Touch {
                sum += byte_sum(&sink.memory[..got]);
            }
            sink.advance(got);
            flow.note_arrived(bytes);
        }
        patience.check("receiving", now)?;
        if flow.done.load(Ordering::SeqCst) {
            let all = bytes >= flow.sent.load(Ordering::SeqCst);
            if all || now - ended >= QUIET {
                return Ok(Received { ended, bytes, calls, sum });
            }
        }
    }
}

// Kernel UDP: pairs of connected sockets, and round trips over them.

/// What fits into one IPv4 datagram: 65,535 less the IP and UDP headers.
pub(super) const LARGEST_PAYLOAD: usize = 65_507;

/// Round trips over UDP, one datagram each way.
#[derive(Clone, Debug)]
pub struct UdpLatency {
    /// Where, how much, how.
    pub plan: Plan,
    /// Bytes per message.
    pub message: usize,
    /// Rounds at the start that are not recorded.
    pub warm_up: u64,
}

impl UdpLatency {
    /// Messages of `message` bytes, after a warm-up of 1000 rounds.
    #[must_use]
    pub fn new(plan: Plan, message: usize) -> Self {
        Self { plan, message, warm_up: 1000 }
    }

    /// One run over a new pair of sockets. A lost datagram ends the run with
    /// [`Error::TimedOut`]: nobody sends it again.
    pub fn run(&self) -> Result<Sample, Error> {
        if self.message > LARGEST_PAYLOAD {
            let message = self.message;
            return Err(Error::BadRequest(format!(
                "datagrams of {message} bytes; at most {LARGEST_PAYLOAD} are possible"
            )));
        }
        let (asker, answerer) = connected_pair(&self.plan.endpoints)?;
        let conversation = PingPong {
            plan: &self.plan,
            kind: Kind::Datagram,
            message: self.message,
            warm_up: self.warm_up,
        };
        conversation.run(&asker, &answerer)
    }
}

/// Two sockets that hear only each other.
pub(super) fn connected_pair(endpoints: &Endpoints) -> Result<(Socket, Socket), Error> {
    let Endpoints { send, receive } = endpoints;
    let [from, to] = [send, receive].map(|side| {
        let address = SocketAddr::new(side.address, 0);
        side.enter(|| {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)
                .tried("make a UDP socket")?;
            socket.bind(&address.into()).tried("bind a UDP socket")?;
            Ok(socket)
        })
    });
    let (from, to) = (from?, to?);
    let connect = |one: &Socket, other: &Socket| one.connect(&other.local_addr()?);
    connect(&from, &to).and_then(|()| connect(&to, &from)).tried("connect UDP sockets")?;
    Ok((from, to))
}

#[cfg(test)]
mod tests {
    use super::super::{Amount, Endpoints};
    use super::*;

    #[test]
    fn batches_stay_below_what_the_kernel_keeps_whole() {
        let plan = Plan::new(Endpoints::loopback().unwrap(), Amount::Bytes(1));
        for payload in [1, 100, 1024, 1424, 8192, 65_000, LARGEST_PAYLOAD] {
            let mut udp = UdpThroughput::new(plan.clone(), payload);
            let batch = udp.batch();
            assert!(batch <= LARGEST_BATCH.max(payload) && batch.is_multiple_of(payload));
            assert!(batch / payload <= MOST_SEGMENTS);
            udp.offload = false;
            assert_eq!(udp.batch(), payload);
        }
    }

    #[test]
    fn heads_and_payloads_land_apart() {
        let plan = Plan::new(Endpoints::loopback().unwrap(), Amount::Bytes(1));
        let mut udp = UdpThroughput::new(plan, 1000);
        udp.scatter = Some(Scatter { head: 40, memory: 100_000 });
        let (from, to) = udp.sockets().unwrap();
        let source = udp.side(udp.batch(), pattern);
        let mut sink = udp.side(MOST_SEGMENTS * 1000, |len| vec![0xff; len]);
        source.send(&from, 2500).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut got = 0;
        while got < 2500 {
            let bytes = sink.receive(&to).unwrap();
            sink.advance(bytes);
            got += bytes;
        }
        assert_eq!((got, sink.at), (2500, 2500));
        assert!(sink.memory[..2500] == source.memory[..2500], "payloads are behind one another");
        assert_eq!(sink.memory[2500], 0xff);
        assert_eq!(sink.heads[..40], source.heads[..40]);
    }
}
