//! [`UdpDriver`]: a socket, an inbox and an outbox. It sends runs of equal units with one
//! call each, gathered from where they lie.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use landfall_placement::{Engine, Instant, PathId, Peer};
use socket2::Socket;

use super::receive::{Receiver, receive_message, something_waits};
use super::socket::{SendHeader, Sending};
use super::{UdpConfig, socket};
use crate::capability::Feature;
use crate::driver::{Descriptors, Driver, DriverState, Progress, take_turn};
use crate::exchange::{LONGEST_BATCH, MAX_UNITS, Outbox, RunLimits};
use crate::inet::SendFault;
use crate::memory::{Pins, Regions};

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
        let (socket, capabilities) = socket::open(&config, driver)?;
        let limits = config.limits(&socket)?;
        let batch_receive = capabilities.has(Feature::BatchedReceive);
        Ok(Self {
            ipv6: config.bind.is_ipv6(),
            local: socket::bound_to(&socket)?,
            connected: None,
            receiver: Receiver::new(path, regions, batch_receive, config.peek),
            outbox: Outbox::new(path, limits, Pins::new(regions), 0),
            batch_send: capabilities.has(Feature::BatchedSend),
            blocked: false,
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

    /// The device refused a batch: from now on one unit a call.
    pub(super) fn lose_batched_send(&mut self, error: &io::Error) {
        self.batch_send = false;
        socket::lack_batched_send(&mut self.state.capabilities, error);
    }

    /// Receives one batch and hands it to the engine. Gives the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let fd = self.socket.as_raw_fd();
        // Nothing came last time: looking is cheaper than to post for nothing,
        // and what a spinning thread does most.
        if self.receiver.is_idle() && !something_waits(fd)? {
            self.state.counters.empty_calls += 1;
            return Ok(0);
        }
        let peeked = self.receiver.look(engine, now, &mut self.state.counters, fd)?;
        let pieces = self.receiver.post(engine, peeked.as_ref());
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
        take_turn(self, engine, now, send, Self::receive)
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.socket.as_fd()].into_iter().collect()
    }
}

/// So many units leave in one turn at most, so that receiving gets its turn too.
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
        let count = send_run(driver, engine, now)?;
        if count == 0 {
            break;
        }
        sent += count as u32;
    }
    Ok(sent)
}

/// Sends the next run. Gives the number of units that are out of our hands;
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
    let sent = unsafe { send_message(fd, pieces, &sending) };
    let Err(error) = sent else {
        driver.state.counters.send_calls += 1;
        driver.state.counters.units_sent += count as u64;
        driver.outbox.done(engine, now, count);
        return Ok(count);
    };
    match SendFault::of(&error, count) {
        SendFault::NoRoom => {
            driver.state.counters.send_blocked += 1;
            driver.blocked = true;
            Ok(0)
        }
        SendFault::CannotSegment => {
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
        SendFault::Lost => {
            driver.state.counters.send_failed += count as u64;
            driver.outbox.done(engine, now, count);
            Ok(count)
        }
        SendFault::Broken => Err(error),
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
