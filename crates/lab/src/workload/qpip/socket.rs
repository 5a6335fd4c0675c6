//! A queue pair in byte-stream mode at one end of a cable, an ordinary socket of
//! the kernel at the other: what an application meets that speaks QPIP alone.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall::qpip::{Mapping, Status};
use landfall_placement::Peer;
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::rivals::{Amount, Plan, retransmitted_segments};
use landfall_testbed::{Sample, VethPair};
use socket2::{Domain, Socket, Type};

use super::super::halves::{self, Received, Streamed};
use super::super::side::{Rendezvous, RunState, place_thread};
use super::super::{Pattern, Role, Shape, TwoSided};
use super::side::{QueuePairEnd, stream_from};
use super::{LowerLayer, Run, Setup};

/// What one `send` or `recv` of the socket is given, and each request to send:
/// the loop that kernel TCP runs beside it.
pub(crate) const PIECE: usize = 128 << 10;
/// Requests to receive. Super-packets of a socket end anywhere, and one that
/// crosses the end of a request cannot be guessed: few of these do.
const REQUEST: usize = 1 << 20;
/// The socket's memory stays in the cache, as that of the loop does. Several
/// pieces tell whether they were swapped; three do not fill a request evenly.
const SOCKET_PIECES: usize = 3;
/// How often it is looked whether the other side has ended.
const GLANCE: Duration = Duration::from_millis(1);

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToSocket,
    FromSocket,
}

/// Streams for as long as the plan says, and compares what lies in the
/// receiver's memory at the end.
pub(crate) fn run(plan: &Plan, pair: &VethPair, direction: Direction) -> Result<Sample> {
    let Amount::Time(time) = plan.amount else { bail!("a stream to a socket takes its time") };
    let setup = Setup::over(LowerLayer::Packet(pair));
    let run = TwoEnds {
        plan,
        time,
        setup: &setup,
        direction,
        is_draining: AtomicBool::new(false),
        shared: RunState::default(),
    };
    run.run(Rendezvous::between_two(plan.limit))
}

/// What both ends know.
struct TwoEnds<'a> {
    plan: &'a Plan,
    time: Duration,
    setup: &'a Setup<'a>,
    direction: Direction,
    /// The socket's time is over: what comes from now on is compared, and does not count.
    is_draining: AtomicBool,
    shared: RunState,
}

impl TwoSided for TwoEnds<'_> {
    type Meeting = Rendezvous;
    type Begun = Streamed;
    type Served = Received;
    type Outcome = Sample;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<Streamed> {
        let _end = self.shared.end_when_dropped();
        match self.direction {
            Direction::ToSocket => self.queue_pair_sends(meeting),
            Direction::FromSocket => self.socket_sends(meeting),
        }
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Received> {
        let _end = self.shared.end_when_dropped();
        match self.direction {
            Direction::ToSocket => self.socket_receives(meeting),
            Direction::FromSocket => self.queue_pair_receives(meeting),
        }
    }

    fn outcome(&self, sent: Streamed, received: Received) -> Result<Sample> {
        Ok(halves::of_stream(&sent, &received))
    }
}

impl TwoEnds<'_> {
    const SHAPE: Shape = super::shape(PIECE);

    fn limit(&self) -> Duration {
        super::limit_of(self.plan)
    }

    /// The queue pair's end, with memory for requests of this length. Whose turn it is, the
    /// other end has to find its station.
    fn side(
        &self,
        role: Role,
        request: usize,
        meeting: &Rendezvous,
    ) -> Result<(QueuePairEnd, Peer)> {
        let run = Run::new(self.plan, self.setup)?;
        place_thread(role.side(self.plan))?;
        let adapter = run.plugged(role)?;
        let own = self.setup.below.station(role).address();
        let other = meeting.exchange(own.into())?;
        let slots = super::shape(request).send_slots;
        Ok((QueuePairEnd::new(adapter, Mapping::Stream, (request, slots), self.limit())?, other))
    }

    fn queue_pair_sends(&self, meeting: &Rendezvous) -> Result<Streamed> {
        let (mut side, to) = self.side(Role::Send, PIECE, meeting)?;
        let Peer::Socket(to) = to else { bail!("the socket has no address") };
        side.fill()?;
        meeting.ready()?;
        side.connect(to)?;
        let sent = stream_from(&mut side, self.plan)?;
        // Nothing comes but the socket's end; its kernel keeps that back while no byte would fit.
        side.post_receive(0)?;
        side.finish()?;
        Ok(sent)
    }

    fn queue_pair_receives(&self, meeting: &Rendezvous) -> Result<Received> {
        let (mut side, _) = self.side(Role::Receive, REQUEST, meeting)?;
        let slots = super::shape(REQUEST).send_slots as u64;
        (0..slots).try_for_each(|slot| side.post_receive(slot))?;
        let listener = side.listen(self.setup.below.station(Role::Receive).address())?;
        meeting.ready()?;
        side.accept(&listener)?;
        let (before, started) = (TaskUse::of_this_thread()?, Instant::now());
        let (mut bytes, mut messages, mut ended, mut cpu) = (0, 0, started, None);
        let (mut piece, mut compared) = (vec![0; REQUEST], 0);
        loop {
            let done = side.next()?;
            if done.status == Status::Flushed {
                break;
            }
            ensure!(done.status.is_success(), "{done:?}");
            // What is still in buffers when the socket has its last byte does not count, and
            // is compared.
            if cpu.is_none() && self.is_draining.load(Ordering::Acquire) {
                cpu = Some(TaskUse::of_this_thread()? - before);
            }
            if cpu.is_none() {
                (bytes, ended) = (bytes + u64::from(done.len), Instant::now());
            }
            if !done.ends_request {
                continue;
            }
            // The last request of a stream may end before it is full.
            let end = u64::from(done.offset) + u64::from(done.len);
            if cpu.is_some() && end == REQUEST as u64 {
                side.memory.copy_out(done.id % slots * REQUEST as u64, &mut piece)?;
                compared += check_request(done.id, &piece)?;
            }
            messages += 1;
            if end == REQUEST as u64 {
                side.post_receive(done.id + slots)?;
            }
        }
        let cpu = cpu.context("the socket ended before its time")?;
        ensure!(compared > 0, "nothing came after the time was over");
        let copied = side.copied();
        side.finish()?;
        Ok(Received { started, ended, bytes, messages, compared, cpu, copied })
    }

    fn socket(&self, at: SocketAddr) -> Result<Socket> {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
        // What a machine prefers may pace (BBR does): the rivals' best does not.
        socket.set_tcp_congestion(b"reno")?;
        socket.set_read_timeout(Some(self.limit()))?;
        socket.set_write_timeout(Some(self.limit()))?;
        socket.bind(&at.into())?;
        Ok(socket)
    }

    fn socket_sends(&self, meeting: &Rendezvous) -> Result<Streamed> {
        place_thread(&self.plan.endpoints.send)?;
        let mut memory = vec![0; PIECE * SOCKET_PIECES];
        fill(&mut memory);
        let own = SocketAddr::new(self.plan.endpoints.send.address, 0);
        let Peer::Socket(to) = meeting.exchange(own.into())? else {
            bail!("the queue pair has no address");
        };
        let mut socket = self.socket(own)?;
        meeting.ready()?;
        socket
            .connect_timeout(&to.into(), self.plan.limit)
            .context("cannot connect to a station")?;
        let meter = CpuMeter::start()?;
        let started = Instant::now();
        while started.elapsed() < self.time {
            for piece in memory.chunks(PIECE) {
                socket.write_all(piece).context("cannot send to a queue pair")?;
            }
        }
        let used = meter.stop()?;
        self.is_draining.store(true, Ordering::Release);
        // So that there is a request to compare, however little was buffered.
        for piece in memory.chunks(PIECE).cycle().take(SOCKET_PIECES * 2 * REQUEST / PIECE) {
            socket.write_all(piece).context("cannot send to a queue pair")?;
        }
        socket.shutdown(Shutdown::Write)?;
        while !self.shared.is_over() {
            ensure!(started.elapsed() < self.limit(), "the queue pair did not hear of the end");
            thread::sleep(GLANCE);
        }
        let retransmitted = retransmitted_segments(socket.as_fd())?;
        Ok(Streamed {
            started,
            cpu: used.thread,
            machine_s: used.machine_s,
            busy: None,
            retransmitted,
            copied: 0, // in user space
        })
    }

    fn socket_receives(&self, meeting: &Rendezvous) -> Result<Received> {
        place_thread(&self.plan.endpoints.receive)?;
        let listener = self.socket(SocketAddr::new(self.plan.endpoints.receive.address, 0))?;
        listener.listen(1)?;
        let own = listener.local_addr()?.as_socket().context("a TCP socket has an address")?;
        meeting.exchange(own.into())?;
        meeting.ready()?;
        // The listener's read time-out bounds this.
        let (mut socket, _) = listener.accept().context("no queue pair has connected")?;
        socket.set_read_timeout(Some(self.limit()))?;
        let (before, started) = (TaskUse::of_this_thread()?, Instant::now());
        let mut memory = vec![0; PIECE * SOCKET_PIECES];
        let (mut bytes, mut calls, mut at) = (0u64, 0, 0);
        let mut ended = started;
        loop {
            let end = (at + PIECE).min(memory.len());
            let got = socket.read(&mut memory[at..end]).context("cannot receive")?;
            if got == 0 {
                break;
            }
            ended = Instant::now();
            bytes += got as u64;
            calls += 1;
            at = (at + got) % (PIECE * SOCKET_PIECES);
        }
        let cpu = TaskUse::of_this_thread()? - before;
        let compared = check(&memory, bytes)?;
        Ok(Received { started, ended, bytes, messages: calls, compared, cpu, copied: 0 })
    }
}

/// Another pattern in each piece.
fn fill(memory: &mut [u8]) {
    for (nth, piece) in memory.chunks_mut(PIECE).enumerate() {
        Pattern(nth as u64).fill(piece);
    }
}

/// The last pieces of a stream of this many bytes, round and round, are those that
/// a queue pair sent.
fn check(memory: &[u8], bytes: u64) -> Result<u64> {
    let pieces = bytes / PIECE as u64;
    ensure!(bytes > 0 && bytes.is_multiple_of(PIECE as u64), "{bytes} bytes are no whole pieces");
    for piece in pieces.saturating_sub(SOCKET_PIECES as u64)..pieces {
        let at = (piece % SOCKET_PIECES as u64) as usize * PIECE;
        let sent = Pattern(piece % TwoEnds::SHAPE.send_slots as u64);
        if let Some(wrong) = sent.first_difference(&memory[at..at + PIECE]) {
            bail!("piece {piece} is wrong from its byte {wrong} on");
        }
    }
    Ok(pieces.min(SOCKET_PIECES as u64) * PIECE as u64)
}

/// What the `nth` request has of the socket's stream. Gives how much was compared.
fn check_request(nth: u64, bytes: &[u8]) -> Result<u64> {
    let first = nth * (REQUEST / PIECE) as u64;
    for (piece, bytes) in (first..).zip(bytes.chunks(PIECE)) {
        if let Some(wrong) = Pattern(piece % SOCKET_PIECES as u64).first_difference(bytes) {
            bail!("piece {piece} of the socket is wrong from its byte {wrong} on");
        }
    }
    Ok(bytes.len() as u64)
}
