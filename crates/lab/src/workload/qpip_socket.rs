//! A queue pair in byte-stream mode at one end of a cable, an ordinary socket of
//! the kernel at the other: what an application meets that speaks QPIP alone.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use anyhow::{Context, Result, bail, ensure};
use landfall_placement::{Engine, Peer};
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::rivals::{Amount, Plan, Side, retransmitted_segments};
use landfall_testbed::{CpuSplit, Sample, VethPair};
use landfall_transport::Driver;
use landfall_transport::memory::{Arena, Regions, Rights};
use qpip::Mapping;
use socket2::{Domain, Socket, Type};

use super::bulk::{Shape, Tables};
use super::qpip::{QpipSink, QpipSource, QpipWork};
use super::side::{DriverLoop, OtherSideEnded, Rendezvous, Shared, both, joined, place_thread};
use super::transport::{Found, PATH, Role, Transport};
use super::{HasEngine, Pattern, Route, Sink, SlotLayout, Source};

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

struct Sent {
    started: StdInstant,
    cpu: TaskUse,
    machine_s: f64,
    retransmitted: u64,
    copied: u64,
}

struct Received {
    ended: StdInstant,
    bytes: u64,
    messages: u64,
    cpu: TaskUse,
    copied: u64,
}

/// Streams for as long as the plan says, and compares what lies in the
/// receiver's memory at the end.
pub(crate) fn run(
    plan: &Plan,
    pair: &VethPair,
    direction: Direction,
    arena: &Arena,
) -> Result<Sample> {
    let Amount::Time(time) = plan.amount else { bail!("a stream to a socket takes its time") };
    let (shared, tables) = (Shared::default(), Tables::new());
    let (ours, theirs) = Rendezvous::between_two(plan.limit);
    let work = QpipWork { mapping: Mapping::Stream, ..QpipWork::over(pair) };
    let run = Run { plan, time, work, path: Found { pair }, arena, shared: &shared };
    let (sent, received) = thread::scope(|scope| {
        let send = thread::Builder::new().name("landfall-send".into());
        let send = send.spawn_scoped(scope, || {
            let (_end, meeting) = (shared.end_when_dropped(), ours);
            place_thread(&plan.endpoints.send)?;
            match direction {
                Direction::ToSocket => run.queue_pair_sends(&tables.send, &meeting),
                Direction::FromSocket => run.socket_sends(&meeting),
            }
        });
        let receive = thread::Builder::new().name("landfall-receive".into());
        let receive = receive.spawn_scoped(scope, || {
            let (_end, meeting) = (shared.end_when_dropped(), theirs);
            place_thread(&plan.endpoints.receive)?;
            match direction {
                Direction::ToSocket => run.socket_receives(&meeting),
                Direction::FromSocket => run.queue_pair_receives(&tables.receive, &meeting),
            }
        });
        let sent = send.context("cannot start a thread").and_then(|send| joined(send.join()));
        let received =
            receive.context("cannot start a thread").and_then(|receive| joined(receive.join()));
        both(sent, received)
    })?;
    Ok(sample(&sent, &received))
}

fn sample(sent: &Sent, received: &Received) -> Sample {
    let time = received.ended.saturating_duration_since(sent.started);
    Sample {
        bytes: received.bytes,
        messages: received.messages,
        seconds: time.max(Duration::from_nanos(1)).as_secs_f64(),
        cpu: CpuSplit {
            send_s: sent.cpu.busy_s(),
            receive_s: received.cpu.busy_s(),
            machine_s: sent.machine_s,
        },
        wakeups: sent.cpu.sleeps + received.cpu.sleeps,
        retransmitted: sent.retransmitted,
        user_copied_bytes: sent.copied + received.copied,
        ..Sample::default()
    }
}

struct Run<'a> {
    plan: &'a Plan,
    time: Duration,
    work: QpipWork,
    path: Found<'a>,
    arena: &'a Arena,
    shared: &'a Shared,
}

type Driven<'a> = <Found<'a> as Transport>::Driver;

impl<'a> Run<'a> {
    const SHAPE: Shape = QpipWork::shape(PIECE);

    fn side(&self, role: Role) -> &Side {
        let endpoints = &self.plan.endpoints;
        if role == Role::Send { &endpoints.send } else { &endpoints.receive }
    }

    /// A driver of the queue pair's side, and the way for its engine.
    fn open(&self, role: Role, regions: &Regions) -> Result<(Driven<'a>, Route)> {
        let (driver, _) = self.path.open(role, self.side(role), regions)?;
        let route = Route { path: PATH, limits: driver.limits(), to: Peer::Unaddressed };
        Ok((driver, route))
    }

    fn limit(&self) -> Duration {
        self.time.saturating_add(self.plan.limit)
    }

    fn driver_loop(&self, driver: Driven<'a>) -> DriverLoop<Driven<'a>> {
        DriverLoop::new(driver, self.plan, self.limit())
    }

    fn turn(
        &self,
        driver_loop: &mut DriverLoop<Driven<'a>>,
        engine: &mut impl Engine,
    ) -> Result<()> {
        if self.shared.is_over() {
            return Err(OtherSideEnded.into());
        }
        driver_loop.turn(engine)
    }

    fn queue_pair_sends(&self, regions: &Regions, meeting: &Rendezvous) -> Result<Sent> {
        let Shape { message, send_slots, .. } = Self::SHAPE;
        let mut memory = self.arena.take(message * send_slots)?;
        fill(&mut memory);
        let region = regions.lend(memory, Rights::READ)?;
        let (driver, route) = self.open(Role::Send, regions)?;
        let Peer::Socket(to) = meeting.exchange(Peer::Unaddressed)? else {
            bail!("the socket has no address");
        };
        let layout = SlotLayout { region, message: message as u64, slots: send_slots as u64 };
        let mut source = QpipSource::new(&self.work, route, layout, to)?;
        meeting.ready()?;
        let meter = CpuMeter::start()?;
        let started = StdInstant::now();
        let mut driver_loop = self.driver_loop(driver);
        loop {
            let is_time_over = started.elapsed() >= self.time;
            let until = if is_time_over { source.offered() } else { u64::MAX };
            source.step(driver_loop.now(), until)?;
            if is_time_over && source.done() == source.offered() {
                break;
            }
            self.turn(&mut driver_loop, source.engine())?;
        }
        let used = meter.stop()?;
        source.host.adapter.shutdown(driver_loop.now(), source.host.pair)?;
        // The socket hears of the end, and has nothing more to do.
        while !self.shared.is_over() {
            driver_loop.turn(source.engine())?;
        }
        let (retransmitted, copied) =
            (source.retransmitted(), driver_loop.driver.counters().bytes_copied);
        Ok(Sent { started, cpu: used.thread, machine_s: used.machine_s, retransmitted, copied })
    }

    fn queue_pair_receives(&self, regions: &Regions, meeting: &Rendezvous) -> Result<Received> {
        let Shape { message, send_slots: receive_slots, .. } = QpipWork::shape(REQUEST);
        let memory = self.arena.take(message * receive_slots)?;
        let region = regions.lend(memory, Rights::READ | Rights::WRITE)?;
        let (driver, route) = self.open(Role::Receive, regions)?;
        let layout = SlotLayout { region, message: message as u64, slots: receive_slots as u64 };
        let mut sink = QpipSink::new(&self.work, route, layout)?;
        let listens_at = sink.host.address();
        meeting.exchange(listens_at.into())?;
        meeting.ready()?;
        let before = TaskUse::of_this_thread()?;
        let mut driver_loop = self.driver_loop(driver);
        let (mut bytes, mut ended) = (0, StdInstant::now());
        let mut cpu = None;
        while !sink.host.has_ended {
            self.turn(&mut driver_loop, sink.engine())?;
            let fresh = sink.step(true)?;
            if cpu.is_some() {
                continue;
            }
            if fresh > 0 {
                bytes += fresh;
                ended = StdInstant::now();
            }
            // What is still in buffers when the socket has its last byte does
            // not count, and is compared.
            if self.shared.is_draining() {
                cpu = Some(TaskUse::of_this_thread()? - before);
                sink.compare(regions, (PIECE, SOCKET_PIECES as u64));
            }
        }
        let cpu = cpu.context("the socket ended before its time")?;
        ensure!(sink.has_compared(), "nothing came after the time was over");
        let copied = driver_loop.driver.counters().bytes_copied;
        regions.take_back(region)?;
        Ok(Received { ended, bytes, messages: sink.delivered(), cpu, copied })
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

    fn socket_sends(&self, meeting: &Rendezvous) -> Result<Sent> {
        let mut memory = vec![0; PIECE * SOCKET_PIECES];
        fill(&mut memory);
        let Peer::Socket(to) = meeting.exchange(Peer::Unaddressed)? else {
            bail!("the queue pair has no address");
        };
        let mut socket = self.socket(SocketAddr::new(self.side(Role::Send).address, 0))?;
        meeting.ready()?;
        socket
            .connect_timeout(&to.into(), self.plan.limit)
            .context("cannot connect to a station")?;
        let meter = CpuMeter::start()?;
        let started = StdInstant::now();
        while started.elapsed() < self.time {
            for piece in memory.chunks(PIECE) {
                socket.write_all(piece).context("cannot send to a queue pair")?;
            }
        }
        let used = meter.stop()?;
        self.shared.drain();
        // So that there is a request to compare, however little was buffered.
        for piece in memory.chunks(PIECE).cycle().take(2 * REQUEST / PIECE) {
            socket.write_all(piece).context("cannot send to a queue pair")?;
        }
        socket.shutdown(Shutdown::Write)?;
        while !self.shared.is_over() {
            ensure!(started.elapsed() < self.limit(), "the queue pair did not hear of the end");
            thread::sleep(GLANCE);
        }
        let retransmitted = retransmitted_segments(socket.as_fd())?;
        Ok(Sent {
            started,
            cpu: used.thread,
            machine_s: used.machine_s,
            retransmitted,
            copied: 0, // in user space
        })
    }

    fn socket_receives(&self, meeting: &Rendezvous) -> Result<Received> {
        let listener = self.socket(SocketAddr::new(self.side(Role::Receive).address, 0))?;
        listener.listen(1)?;
        let own = listener.local_addr()?.as_socket().context("a TCP socket has an address")?;
        meeting.exchange(own.into())?;
        meeting.ready()?;
        let before = TaskUse::of_this_thread()?;
        // The listener's read time-out bounds this.
        let (mut socket, _) = listener.accept().context("no queue pair has connected")?;
        socket.set_read_timeout(Some(self.limit()))?;
        let mut memory = vec![0; PIECE * SOCKET_PIECES];
        let (mut bytes, mut calls, mut at) = (0u64, 0, 0);
        let mut ended = StdInstant::now();
        loop {
            let end = (at + PIECE).min(memory.len());
            let got = socket.read(&mut memory[at..end]).context("cannot receive")?;
            if got == 0 {
                break;
            }
            ended = StdInstant::now();
            bytes += got as u64;
            calls += 1;
            at = (at + got) % (PIECE * SOCKET_PIECES);
        }
        let cpu = TaskUse::of_this_thread()? - before;
        check(&memory, bytes)?;
        Ok(Received { ended, bytes, messages: calls, cpu, copied: 0 })
    }
}

/// Another pattern in each piece.
fn fill(memory: &mut [u8]) {
    for (nth, piece) in memory.chunks_mut(PIECE).enumerate() {
        Pattern(nth as u64).fill(piece);
    }
}

/// The last pieces of a stream of so many bytes, round and round, are those that
/// a queue pair sent.
fn check(memory: &[u8], bytes: u64) -> Result<()> {
    let pieces = bytes / PIECE as u64;
    ensure!(bytes > 0 && bytes.is_multiple_of(PIECE as u64), "{bytes} bytes are no whole pieces");
    for piece in pieces.saturating_sub(SOCKET_PIECES as u64)..pieces {
        let at = (piece % SOCKET_PIECES as u64) as usize * PIECE;
        let sent = Pattern(piece % Run::SHAPE.send_slots as u64);
        if let Some(wrong) = sent.first_difference(&memory[at..at + PIECE]) {
            bail!("piece {piece} is wrong from its byte {wrong} on");
        }
    }
    Ok(())
}
