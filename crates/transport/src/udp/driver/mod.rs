//! [`UdpDriver`]: a socket, an inbox and an outbox. It sends runs of equal units with one
//! call each, gathered from where they lie.

mod group;
mod unreachable;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use landfall_placement::{
    Engine, Instant, InternetSum, Landing, PathId, Peer, Placement, Spans, Unit,
};
use socket2::Socket;

use super::socket::{Message, ReceiveHeader, SendHeader, Sending, Sharing};
use super::{UdpConfig, socket};
use crate::capability::Feature;
use crate::driver::{
    Counters, Descriptors, Driver, DriverState, Interest, Interests, Progress, take_turn,
};
use crate::exchange::{
    Arrival, GuessHistory, HEAD_ROOM, Inbox, LONGEST_BATCH, MAX_UNITS, Outbox, Peeked, Prefix,
    RunLimits, Turn,
};
use crate::inet::{SendFault, nothing_came};
use crate::memory::{Pins, Regions};
use crate::same_host::SameHost;

/// Runs any engine over a UDP socket.
#[derive(Debug)]
pub struct UdpDriver {
    pub(super) state: DriverState,
    pub(super) socket: Socket,
    /// IPv4 peers have IPv6 addresses on this socket.
    pub(super) ipv6: bool,
    local: SocketAddr,
    /// The only peer, if the socket is connected.
    pub(super) connected: Option<SocketAddr>,
    receiver: Receiver,
    pub(super) outbox: Outbox,
    pub(super) batch_send: bool,
    /// The kernel had no room for more.
    pub(super) blocked: bool,
    /// The socket reports peers at whose address nobody receives.
    wants_reports: bool,
    /// All sockets of this port: they stay open as long as one of their drivers.
    _group: Option<Arc<[Socket]>>,
    /// Processes of this host that are reached without the socket.
    same_host: Option<Box<SameHost>>,
}

impl UdpDriver {
    /// Opens a socket, and reads and writes the regions of this table.
    ///
    /// # Errors
    /// The address cannot be bound, or the process has no descriptor left.
    pub fn open(path: PathId, config: UdpConfig, regions: &Regions) -> io::Result<Self> {
        Self::open_as("udp", path, config, regions)
    }

    /// The same in the name of another driver, which is made of this one.
    pub(crate) fn open_as(
        driver: &'static str,
        path: PathId,
        config: UdpConfig,
        regions: &Regions,
    ) -> io::Result<Self> {
        Self::open_sharing(driver, path, config, regions, Sharing::Alone)
    }

    fn open_sharing(
        driver: &'static str,
        path: PathId,
        config: UdpConfig,
        regions: &Regions,
        sharing: Sharing,
    ) -> io::Result<Self> {
        let (socket, mut capabilities) = socket::open(&config, driver, sharing)?;
        let limits = config.limits(&socket)?;
        let batch_receive = capabilities.has(Feature::BatchedReceive);
        let local = socket::bound_to(&socket)?;
        let same_host = match (config.same_host, sharing) {
            (false, _) => Err("switched off by the configuration".to_owned()),
            (_, Sharing::First | Sharing::Joining) => Err("several engines share the port".into()),
            (true, Sharing::Alone) => {
                SameHost::open(path, local, regions).map_err(|error| error.to_string())
            }
        };
        let same_host = match same_host {
            Ok(same_host) => {
                capabilities.add(Feature::SameHost);
                Some(Box::new(same_host))
            }
            Err(why) => {
                capabilities.lack(Feature::SameHost, why);
                None
            }
        };
        Ok(Self {
            ipv6: config.bind.is_ipv6(),
            local,
            same_host,
            connected: None,
            receiver: Receiver::new(path, regions, batch_receive, config.peek),
            outbox: Outbox::new(path, limits, Pins::new(regions), 0),
            batch_send: capabilities.has(Feature::BatchedSend),
            blocked: false,
            wants_reports: false,
            _group: None,
            socket,
            state: DriverState::new(path, limits, capabilities, regions),
        })
    }

    /// Where peers reach this path.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// From now on this path has one peer: the kernel remembers the way to it,
    /// which saves a look-up for every call, and drops what others send. Units
    /// to somebody else are lost.
    ///
    /// # Errors
    /// There is no route to the peer, or it is of another address family.
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<()> {
        let address = match peer {
            SocketAddr::V4(v4) if self.ipv6 => {
                SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()))
            }
            other => other,
        };
        self.socket.connect(&address.into())?;
        self.connected = Some(peer);
        self.local = socket::bound_to(&self.socket)?;
        Ok(())
    }

    /// How many processes of this host it has met and reaches without the socket.
    #[must_use]
    pub fn neighbours(&self) -> usize {
        self.same_host.as_ref().map_or(0, |same_host| same_host.met())
    }

    /// Receives what neighbours have, and one batch of the socket.
    fn receive_all<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let mut units = 0;
        if let Some(same_host) = &mut self.same_host {
            units = same_host.receive(engine, now, &mut self.state.counters);
            if same_host.skips_socket() {
                return Ok(units);
            }
        }
        Ok(units + self.receive(engine, now)?)
    }

    /// The device refused a batch: from now on one unit a call.
    pub(super) fn lose_batched_send(&mut self, error: &io::Error) {
        self.batch_send = false;
        socket::lack_batched_send(&mut self.state.capabilities, error);
    }

    /// Receives one batch and hands it to the engine. Returns the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let fd = self.socket.as_raw_fd();
        // Nothing came last time: looking is cheaper than to post many places for nothing,
        // and what a spinning thread does most. In a conversation few are posted, and there
        // looking would be one more call before each answer.
        if self.receiver.is_idle() && self.receiver.posts_many() {
            self.state.counters.looks += 1;
            if !something_waits(fd)? {
                self.state.counters.empty_calls += 1;
                return Ok(0);
            }
        }
        let counters = &mut self.state.counters;
        let peeked = self.receiver.look(engine, now, counters, |head| peek(fd, head))?;
        let pieces = self.receiver.post(engine, peeked.as_deref());
        // SAFETY: the receiver posts scratch memory of its own and lent memory that it has
        // pinned until `settle`.
        let message = unsafe { receive_message(fd, pieces, 0)? };
        Ok(self.receiver.settle(engine, now, &mut self.state.counters, (message, peeked)))
    }
}

impl Driver for UdpDriver {
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.want_reports(engine);
        let progress = take_turn(self, engine, now, send, Self::receive_all)?;
        self.take_reports(engine, now);
        if let Some(same_host) = &mut self.same_host {
            same_host.finish(engine, now);
        }
        Ok(progress)
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn interests(&self) -> Interests {
        let (fd, writable) = (self.socket.as_raw_fd(), self.blocked);
        let mut interests = Interests::new();
        interests.push(Interest { fd, readable: true, writable });
        if let Some(same_host) = &self.same_host {
            same_host.fall_asleep();
            let fd = same_host.as_fd().as_raw_fd();
            interests.push(Interest { fd, readable: true, writable: false });
        }
        interests
    }

    fn descriptors(&self) -> Descriptors<'_> {
        let same_host = self.same_host.as_ref().map(|same_host| same_host.as_fd());
        [Some(self.socket.as_fd()), same_host].into_iter().flatten().collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.same_host.as_ref()?.poll_timeout()
    }
}

/// This many units leave in one turn at most, so that receiving gets its turn too.
pub(crate) const UNITS_PER_TURN: u32 = 4 * MAX_UNITS as u32;

/// What one call may send at once.
pub(crate) const fn run_limits(batches: bool) -> RunLimits {
    RunLimits { units: if batches { MAX_UNITS } else { 1 }, bytes: LONGEST_BATCH }
}

/// Sends what the engine has, until it has nothing, the kernel has no room, or
/// it was enough for one turn.
pub(super) fn send<E: Engine>(
    driver: &mut UdpDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<u32> {
    let mut sent = 0;
    driver.blocked = false;
    while sent < UNITS_PER_TURN {
        driver.outbox.fill(engine, now, &mut driver.state.counters, |_, _| {});
        if driver.outbox.is_empty() {
            break;
        }
        let UdpDriver { same_host, outbox, state, .. } = driver;
        let told = same_host
            .as_mut()
            .filter(|_| !engine.seals())
            .and_then(|same_host| same_host.send(outbox, engine, now, &mut state.counters));
        let count = match told {
            Some(count) => count,
            None => send_run(driver, engine, now)?,
        };
        if count == 0 {
            break;
        }
        sent += count as u32;
    }
    Ok(sent)
}

/// Sends the next run. Returns the number of units that are out of our hands;
/// zero if the kernel has no room.
fn send_run<E: Engine>(driver: &mut UdpDriver, engine: &mut E, now: Instant) -> io::Result<usize> {
    let count = driver.outbox.next_run(run_limits(driver.batch_send));
    let Some(first) = driver.outbox.front() else { return Ok(0) };
    let unit_len = u16::try_from(first.len).ok().filter(|_| count > 1);
    let (to, ecn) = (first.to, first.ecn);
    let to = match (to, driver.connected) {
        (Peer::Socket(to), None) => Ok(Some(to)),
        (Peer::Socket(to), Some(peer)) if to == peer => Ok(None),
        _ => Err(()),
    };
    let Ok(to) = to else {
        // Nowhere to send it: to the engine it is lost on the way.
        driver.state.counters.send_failed += 1;
        driver.outbox.done(engine, now, 1);
        return Ok(1);
    };
    let sending = Sending { to, unit_len, ecn, ipv6: driver.ipv6 };
    let (fd, pieces) = (driver.socket.as_raw_fd(), driver.outbox.pieces(count));
    // SAFETY: the list names heads of the outbox and lent memory that it has pinned.
    let mut send = || unsafe { send_message(fd, pieces, &sending) };
    let sent = match send() {
        // That is about what was sent to somebody before: this has not left.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => send(),
        sent => sent,
    };
    let Err(error) = sent else {
        driver.state.counters.send_calls += 1;
        driver.state.counters.units_sent += count as u64;
        driver.outbox.done(engine, now, count);
        return Ok(count);
    };
    match SendFault::of(&error, count) {
        Some(SendFault::NoRoom) => {
            driver.state.counters.send_blocked += 1;
            driver.blocked = true;
            Ok(0)
        }
        Some(SendFault::CannotSegment) => {
            // The kernel says the same where the units are too long for the interface: one
            // alone shows which it is.
            driver.batch_send = false;
            let failed = driver.state.counters.send_failed;
            let sent = send_run(driver, engine, now)?;
            let is_lost = driver.state.counters.send_failed > failed;
            match is_lost || sent == 0 {
                true => driver.batch_send = true,
                false => driver.lose_batched_send(&error),
            }
            Ok(sent)
        }
        Some(SendFault::Lost) => {
            driver.state.counters.send_failed += count as u64;
            driver.outbox.done(engine, now, count);
            Ok(count)
        }
        None => Err(error),
    }
}

/// # Safety
/// The pieces may be read until the call is over.
unsafe fn send_message(fd: RawFd, pieces: &mut [libc::iovec], sending: &Sending) -> io::Result<()> {
    let mut header = SendHeader::new();
    let prepared = header.prepare(pieces, sending);
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the caller vouches for what the list names.
    let sent = unsafe { libc::sendmsg(fd, prepared, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// Receiving: into guessed spans where the engine has a guess, and looking
// first where guesses keep missing. The call between is the driver's.

/// The receiving half of a UDP path, without its receiving call.
#[derive(Debug)]
pub(crate) struct Receiver {
    inbox: Inbox,
    /// The memory that is posted, pinned until it is settled.
    pins: Pins,
    /// Looking first is allowed; whether it is worth a call of its own.
    may_peek: bool,
    doubt: GuessHistory,
    /// The last receive found nothing.
    idle: bool,
}

impl Receiver {
    /// `batches`: several units may come with one call.
    pub(crate) fn new(path: PathId, regions: &Regions, batches: bool, peek: bool) -> Self {
        Self::behind(0, path, regions, batches, peek)
    }

    /// The same for a driver that wants this many bytes in front of what it receives.
    pub(crate) fn behind(
        prefix_len: usize,
        path: PathId,
        regions: &Regions,
        batches: bool,
        peek: bool,
    ) -> Self {
        Self {
            inbox: Inbox::new(path, if batches { MAX_UNITS } else { 1 }, prefix_len),
            pins: Pins::new(regions),
            may_peek: peek && batches,
            doubt: GuessHistory::default(),
            idle: false,
        }
    }

    /// Did the last receive find nothing?
    pub(super) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Are there many places in the next list, as after long batches?
    pub(super) fn posts_many(&self) -> bool {
        self.inbox.posts_many()
    }

    /// What came in front of the units.
    pub(crate) fn prefix(&self) -> &Prefix {
        self.inbox.prefix(0)
    }

    /// Sums the first `len` bytes behind that: see [`Inbox::sum`].
    pub(crate) fn sum(&mut self, len: usize) -> Option<InternetSum> {
        self.inbox.sum(len, &mut self.pins)
    }

    /// Looks at the first head in the socket, if that seems wise, and asks for
    /// its place.
    pub(crate) fn look<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        peek: impl FnOnce(&mut [u8; HEAD_ROOM]) -> io::Result<Option<Message>>,
    ) -> io::Result<Option<Box<Peeked>>> {
        // What is sealed lies in no posted place, and is opened before it is placed.
        if engine.seals() || !self.doubt.is_due() {
            return Ok(None);
        }
        let mut head = [0u8; HEAD_ROOM];
        let Some(message) = peek(&mut head)? else { return Ok(None) };
        counters.peeks += 1;
        let unit_len = message.control.unit_len.unwrap_or(message.len);
        let first_len = unit_len.min(message.len);
        let unit = Unit {
            path: self.inbox.path(),
            from: message.from,
            head: &head[..first_len.min(HEAD_ROOM)],
            len: first_len as u32,
            segment: None,
            ecn: message.control.ecn,
            verified: false,
        };
        let mut spans = Spans::new();
        match engine.place(now, &unit, &mut spans) {
            // A longer head than fits here: let the ordinary way deal with it.
            Ok(Placement::NeedHead(_)) => Ok(None),
            result => Ok(Some(Box::new(Peeked { result, spans, unit_len }))),
        }
    }

    /// The pieces for the next receive. [`settle`](Self::settle) follows, with
    /// whatever came.
    pub(crate) fn post<E: Engine>(
        &mut self,
        engine: &E,
        peeked: Option<&Peeked>,
    ) -> &mut [libc::iovec] {
        self.inbox.post(engine, &mut self.pins, peeked).as_mut_slice()
    }

    /// Hands what came to the engine. Returns the number of units.
    pub(crate) fn settle<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (message, peeked): (Option<Message>, Option<Box<Peeked>>),
    ) -> u32 {
        self.idle = message.is_none();
        let Some(message) = message else {
            if let Some(ticket) = peeked.as_deref().and_then(promised) {
                // The datagram that was looked at is gone: its checksum was wrong.
                engine.handle_placed(now, ticket, Landing::Failed);
            }
            counters.empty_calls += 1;
            self.pins.release();
            return 0;
        };
        counters.receive_calls += 1;
        counters.malformed += u64::from(message.truncated);
        let arrival = Arrival {
            len: message.len,
            unit_len: message.control.unit_len.unwrap_or(message.len).max(1),
            from: message.from,
            ecn: message.control.ecn,
            coalesced: None,
            // The kernel looked at the UDP checksum; what an engine wants checked
            // is its own, made before the bytes came to a kernel.
            verified: false,
        };
        let wrong_before = counters.guessed_wrong;
        let was_peeked = peeked.is_some();
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        let units = self.inbox.settle(&mut turn, &arrival, peeked);
        self.pins.release();
        if !was_peeked && self.may_peek {
            self.doubt.learn(counters.guessed_wrong > wrong_before);
        }
        units
    }
}

/// The ticket that must come back although nothing was received.
fn promised(peeked: &Peeked) -> Option<landfall_placement::Ticket> {
    match peeked.result {
        Ok(Placement::Into { ticket, .. } | Placement::Word(_, ticket)) => Some(ticket),
        _ => None,
    }
}

/// Looks at the first datagram in the socket, which stays there.
pub(crate) fn peek(fd: RawFd, head: &mut [u8; HEAD_ROOM]) -> io::Result<Option<Message>> {
    let mut iovec = [libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() }];
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: the piece is `head`.
    unsafe { receive_message(fd, &mut iovec, flags) }
}

/// Is there anything to receive? An error of the network that concerned
/// something sent earlier is none.
pub(super) fn something_waits(fd: RawFd) -> io::Result<bool> {
    // SAFETY: room for no byte: nothing is written.
    let len =
        unsafe { libc::recv(fd, std::ptr::null_mut(), 0, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    match io::Error::last_os_error() {
        _ if len >= 0 => Ok(true),
        error if nothing_came(&error) => Ok(false),
        error => Err(error),
    }
}

/// One `recvmsg`. None if there is nothing, or only an error of the network
/// that concerned something sent earlier.
///
/// # Safety
/// The pieces may be written until the call is over: scratch memory to which there is no
/// reference, or lent memory that is pinned.
pub(super) unsafe fn receive_message(
    fd: RawFd,
    pieces: &mut [libc::iovec],
    flags: i32,
) -> io::Result<Option<Message>> {
    let mut header = ReceiveHeader::new();
    let prepared = header.prepare(pieces);
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the caller vouches for what the list names.
    let len = unsafe { libc::recvmsg(fd, prepared, flags | libc::MSG_DONTWAIT) };
    match usize::try_from(len) {
        Ok(len) => Ok(Some(header.message(len))),
        Err(_) => match io::Error::last_os_error() {
            error if nothing_came(&error) => Ok(None),
            error => Err(error),
        },
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
