//! One end of a rival whose other end is in another process, perhaps on another machine.
//!
//! Who runs both ends tells each the address of the other, sees that both begin together,
//! and puts their halves of the result together. Each half works on the calling thread,
//! which it pins; none runs longer than its plan allows.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::measure::{Goal, Patience, pattern, pattern_sum};
use super::ping_pong::{Kind, PingPong};
use super::stream::{Received, Sent, Sink, Source, StreamShape};
use super::tcp::{set_receive_buffer, set_send_buffer, tcp_socket};
use super::udp_bulk::{
    BUFFER_PER_WINDOW, LARGEST_PAYLOAD, QUIET, ROOM, UDP_GRO, UDP_SEGMENT, batch_of,
};
use super::{Plan, TcpOptions, WorkerPlace, many, retransmitted_segments};
use crate::cpu::{self, CpuMeter, TaskUse};
use crate::error::{Error, Tried};
use crate::sample::Rtt;
use crate::sys;

/// Of a UDP socket; less is granted without privilege.
const BUFFER: usize = 8 << 20;

/// What one end saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Half {
    /// Payload bytes that it sent, or that arrived.
    pub bytes: u64,
    /// Calls that brought something, or round trips.
    pub messages: u64,
    /// From its beginning until its last byte.
    pub seconds: f64,
    /// What its thread used.
    pub cpu: TaskUse,
    /// Busy seconds of its whole machine.
    pub machine_s: f64,
    /// Round trips, for who asked.
    pub rtt: Option<Rtt>,
    /// Segments that it sent again.
    pub retransmitted: u64,
    /// The byte sum, where it was asked to look at the bytes, or knows it.
    pub sum: u64,
}

/// Pins the thread, works, and says what that took.
fn work<T>(
    plan: &Plan,
    side: &WorkerPlace,
    what: impl FnOnce(&Patience) -> Result<T, Error>,
) -> Result<(T, Half), Error> {
    if let Some(core) = side.core {
        cpu::pin_this_thread(core)?;
    }
    let meter = CpuMeter::start()?;
    let done = what(&Patience::of(plan).starting_now())?;
    let used = meter.stop()?;
    Ok((done, Half { cpu: used.thread, machine_s: used.machine_s, ..Half::default() }))
}

/// A socket that waits for this many connections at most.
pub fn listen(
    address: IpAddr,
    options: &TcpOptions,
    connections: u32,
    limit: Duration,
) -> Result<Socket, Error> {
    let socket = tcp_socket(SocketAddr::new(address, 0), options)?;
    socket.listen(i32::try_from(connections).unwrap_or(i32::MAX)).tried("listen")?;
    // Bounds `accept`.
    socket.set_read_timeout(Some(limit)).tried("bound a wait")?;
    Ok(socket)
}

/// A connection from an address of ours to a socket that listens.
pub fn connect(
    from: IpAddr,
    to: SocketAddr,
    options: &TcpOptions,
    limit: Duration,
) -> Result<Socket, Error> {
    let socket = tcp_socket(SocketAddr::new(from, 0), options)?;
    socket.connect_timeout(&to.into(), limit).tried("connect by TCP")?;
    Ok(socket)
}

/// Sends a stream over each of these connections as the plan says.
pub fn send_stream(plan: &Plan, shape: StreamShape, sockets: &[&Socket]) -> Result<Half, Error> {
    shape.check()?;
    let mut source = Source::new(shape)?;
    let goal = Goal::new(plan.amount, shape.send_size);
    let side = &plan.endpoints.send;
    let (Sent { started, bytes, sum }, half) = work(plan, side, |patience| match sockets {
        [one] => source.send(one, goal, patience),
        all => many::send(&mut source, all, goal, patience),
    })?;
    let mut retransmitted = 0;
    for socket in sockets {
        // Nothing more comes; who is gone needs no telling.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        retransmitted += retransmitted_segments(socket.as_fd())?;
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(Half { bytes, sum, seconds, retransmitted, ..half })
}

/// Receives streams until all have ended.
pub fn receive_stream(plan: &Plan, shape: StreamShape, sockets: &[&Socket]) -> Result<Half, Error> {
    shape.check()?;
    let mut sink = Sink::new(shape);
    let started = Instant::now();
    let side = &plan.endpoints.receive;
    let (received, half) = work(plan, side, |patience| match sockets {
        [one] => sink.receive(one, patience),
        all => many::receive(&mut sink, all, patience),
    })?;
    let Received { ended, bytes, calls, sum } = received;
    let seconds = ended.duration_since(started).as_secs_f64();
    Ok(Half { bytes, messages: calls, seconds, sum, ..half })
}

/// How a conversation is held.
#[derive(Clone, Copy, Debug)]
pub struct Conversation {
    /// Bytes in each message.
    pub message: usize,
    /// Each message is a datagram; otherwise a stream carries them.
    pub datagrams: bool,
    /// Rounds at the start that are not recorded.
    pub warm_up: u64,
}

impl Conversation {
    fn over<'a>(&self, plan: &'a Plan) -> PingPong<'a> {
        let kind = if self.datagrams { Kind::Datagram } else { Kind::Stream };
        PingPong { plan, kind, message: self.message, warm_up: self.warm_up }
    }

    /// Asks as the plan says.
    pub fn ask(&self, plan: &Plan, socket: &Socket) -> Result<Half, Error> {
        let conversation = self.over(plan);
        let (asked, half) = work(plan, &plan.endpoints.send, |patience| {
            conversation.ask_until_done(socket, patience)
        })?;
        let bytes = asked.rounds * self.message as u64;
        let (messages, seconds) = (asked.rounds, asked.time.as_secs_f64());
        Ok(Half { bytes, messages, seconds, rtt: asked.round_trips.summary(), ..half })
    }

    /// Answers until there are no more questions.
    pub fn answer(&self, plan: &Plan, socket: &Socket) -> Result<Half, Error> {
        let conversation = self.over(plan);
        let side = &plan.endpoints.receive;
        Ok(work(plan, side, |patience| conversation.answer_all(socket, patience))?.1)
    }
}

/// A UDP socket at an address of ours.
pub fn udp_socket(address: IpAddr) -> Result<Socket, Error> {
    let address = SocketAddr::new(address, 0);
    let socket =
        Socket::new(Domain::for_address(address), Type::DGRAM, None).tried("make a UDP socket")?;
    socket.bind(&address.into()).tried("bind a UDP socket")?;
    Ok(socket)
}

/// Sends datagrams in batches as the plan says, with as many bytes under way as the
/// receiver allows, which says now and then how many arrived. There is no protocol beyond
/// that: what is lost stays lost.
pub fn send_datagrams(plan: &Plan, payload: usize, socket: &Socket) -> Result<Half, Error> {
    if !(1..=LARGEST_PAYLOAD).contains(&payload) {
        let why = format!("datagrams of {payload} bytes; 1 to {LARGEST_PAYLOAD} are possible");
        return Err(Error::BadRequest(why));
    }
    let batch = batch_of(payload, true);
    set_send_buffer(socket, BUFFER)?;
    let segment = payload as libc::c_int;
    sys::set_option(socket.as_fd(), libc::SOL_UDP, UDP_SEGMENT, segment)
        .tried("switch UDP segmentation on")?;
    let goal = Goal::new(plan.amount, payload);
    // Until the receiver says how much it has room for.
    let mut sender = Sender { socket, window: batch as u64, sent: 0, arrived: 0, lost: 0 };
    let source = pattern(batch);
    let started = Instant::now();
    let (sum, half) = work(plan, &plan.endpoints.send, |patience| {
        patience.prepare(socket)?;
        socket.set_read_timeout(Some(QUIET)).tried("bound a wait")?;
        let mut sum = 0;
        loop {
            let now = Instant::now();
            let len = goal.left(sender.sent, now - started).min(source.len() as u64) as usize;
            if len == 0 {
                return Ok(sum);
            }
            patience.check("sending", now)?;
            sender.wait_for_room(len as u64, patience)?;
            patience.wait_for("send datagrams", || socket.send(&source[..len]))?;
            sender.sent += len as u64;
            sum += pattern_sum(0, len);
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Half { bytes: sender.sent, sum, seconds, ..half })
}

/// What is under way.
struct Sender<'a> {
    socket: &'a Socket,
    window: u64,
    sent: u64,
    arrived: u64,
    /// This many bytes must be taken for lost.
    lost: u64,
}

impl Sender<'_> {
    fn flying(&self) -> u64 {
        self.sent.saturating_sub(self.arrived).saturating_sub(self.lost)
    }

    /// Hears what has arrived; waits until this many bytes more may be under way.
    fn wait_for_room(&mut self, next: u64, patience: &Patience) -> Result<(), Error> {
        while self.hear(libc::MSG_DONTWAIT)? {}
        while self.flying() + next > self.window {
            patience.check("sending", Instant::now())?;
            if !self.hear(0)? {
                // Nothing for so long: what is missing was lost.
                self.lost = self.sent.saturating_sub(self.arrived);
            }
        }
        Ok(())
    }

    /// Takes one report; false if there is none.
    fn hear(&mut self, flags: libc::c_int) -> Result<bool, Error> {
        let mut report = [0; 16];
        match sys::receive(self.socket.as_fd(), &mut report, flags) {
            Ok(16) => {
                let [arrived, window] = words(report);
                self.arrived = self.arrived.max(arrived.min(self.sent));
                self.window = self.window.max(window);
                Ok(true)
            }
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(Error::system("hear what arrived", error)),
        }
    }
}

/// A report: what arrived, and what may be under way.
fn report(arrived: u64, window: u64) -> [u8; 16] {
    (u128::from(window) << 64 | u128::from(arrived)).to_le_bytes()
}

fn words(report: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(report);
    [both as u64, (both >> 64) as u64]
}

/// Receives datagrams until `is_over` says that nothing more was sent, and nothing more
/// comes. Reports to the sender each time that an eighth of the window has arrived.
pub fn receive_datagrams(
    plan: &Plan,
    touches: bool,
    socket: &Socket,
    is_over: &dyn Fn() -> bool,
) -> Result<Half, Error> {
    set_receive_buffer(socket, BUFFER)?;
    sys::set_option(socket.as_fd(), libc::SOL_UDP, UDP_GRO, 1).tried("switch UDP GRO on")?;
    let granted = socket.recv_buffer_size().tried("read the receive buffer")?;
    let window = (granted / BUFFER_PER_WINDOW) as u64;
    let mut sink = vec![0xff; ROOM];
    let started = Instant::now();
    let (mut bytes, mut calls, mut sum, mut ended) = (0u64, 0, 0, started);
    // The first of them is to nobody's harm if it is lost.
    let _ = socket.send(&report(0, window));
    let mut reported = 0;
    let ((), half) = work(plan, &plan.endpoints.receive, |patience| {
        socket.set_read_timeout(Some(QUIET)).tried("bound a wait")?;
        loop {
            let got = match io::Read::read(&mut &*socket, &mut sink) {
                Ok(got) => got,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) =>
                {
                    0
                }
                Err(error) => return Err(Error::system("receive datagrams", error)),
            };
            let now = Instant::now();
            if got > 0 {
                (bytes, calls, ended) = (bytes + got as u64, calls + 1, now);
                if touches {
                    sum += super::measure::byte_sum(&sink[..got]);
                }
            }
            if bytes - reported >= window / 8 || (got == 0 && bytes > reported) {
                // A report that is lost is made up for by the next.
                let _ = socket.send(&report(bytes, window));
                reported = bytes;
            }
            patience.check("receiving", now)?;
            if is_over() && now - ended >= QUIET {
                return Ok(());
            }
        }
    })?;
    let seconds = ended.duration_since(started).as_secs_f64();
    Ok(Half { bytes, messages: calls, seconds, sum, ..half })
}
