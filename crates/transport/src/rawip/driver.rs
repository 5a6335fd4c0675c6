//! [`RawIpDriver`]: a raw socket, an inbox and an outbox. It sends many units a call, each
//! gathered from where it lies.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState, Peer};
use socket2::Socket;

use super::messages::{Messages, Receiver};
use super::{Opened, RawIpConfig, Ways, header_and_largest};
use crate::OpenError;
use crate::driver::{Descriptors, Driver, DriverState, Progress, plain_limits, take_turn};
use crate::exchange::{MAX_UNITS, Outbox};
use crate::inet::SendFault;
use crate::memory::{Pins, Regions};

/// Runs any engine directly on IP, as a protocol with a number of its own.
/// Peers are [`Peer::Ip`].
pub struct RawIpDriver {
    /// Its limits shrink when a smaller MTU is learned of on the way to a peer.
    pub(super) state: DriverState,
    pub(super) socket: Socket,
    pub(super) ipv6: bool,
    local: IpAddr,
    /// The only peer, if the socket is connected.
    pub(super) connected: Option<IpAddr>,
    ways: Ways,
    receiver: Receiver,
    pub(super) outbox: Outbox,
    pub(super) sending: Messages,
    /// Several units leave with one call.
    pub(super) batch: bool,
    /// The kernel had no room for more.
    pub(super) blocked: bool,
}

impl RawIpDriver {
    /// Opens a socket in the network namespace that the calling thread is in,
    /// where it stays. It reads and writes the regions of this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(path: PathId, config: &RawIpConfig, regions: &Regions) -> Result<Self, OpenError> {
        let Opened { socket, ways, capabilities } = super::open(config)?;
        let local = super::local_address(&socket)
            .map_err(OpenError::system("ask for the local address"))?;
        let ipv6 = config.bind.is_ipv6();
        let unit = config.unit.min(header_and_largest(ipv6).1);
        let limits = plain_limits(unit);
        let outbox = Outbox::new(path, limits, Pins::new(regions), 0);
        Ok(Self {
            state: DriverState::new(path, limits, capabilities, regions),
            ipv6,
            local,
            connected: None,
            ways,
            receiver: Receiver::new(path, regions, config.batch, ipv6),
            outbox: outbox.with_batches_of(BATCH_BYTES),
            sending: Messages::new(),
            batch: config.batch,
            blocked: false,
            socket,
        })
    }

    /// Where peers reach this path.
    #[must_use]
    pub fn local_address(&self) -> IpAddr {
        self.local
    }

    /// From now on this path has one peer: the kernel remembers the way to it,
    /// and drops what others send. Units to somebody else are lost. Paths to
    /// several peers may share one address of this host, each connected to its
    /// own.
    ///
    /// # Errors
    /// There is no route to the peer, or it is of another address family.
    pub fn connect(&mut self, peer: IpAddr) -> io::Result<()> {
        self.socket.connect(&SocketAddr::new(peer, 0).into())?;
        self.connected = Some(peer);
        self.local = super::local_address(&self.socket)?;
        Ok(())
    }

    /// A packet was too long for the way to a peer. If the kernel knows of a
    /// smaller MTU than this path was opened for, the engine is told.
    pub(super) fn look_at_mtu<E: Engine>(&mut self, engine: &mut E, now: Instant, peer: IpAddr) {
        // If nobody knows, units that are too long go on being lost.
        let Ok(mtu) = self.ways.mtu(peer) else { return };
        let unit = mtu.saturating_sub(header_and_largest(self.ipv6).0);
        let limits = self.state.limits;
        if unit < limits.unit {
            let sure = limits.sure.min(unit);
            self.state.limits = PathLimits { unit, sure, super_unit: unit, ..limits };
            engine.handle_path(now, self.state.path, PathState::Up(self.state.limits));
        }
    }

    /// Receives what came, call by call, and hands it to the engine. Returns the
    /// number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let fd = self.socket.as_raw_fd();
        let (calls, most) = self.receiver.plan();
        let mut units = 0;
        for _ in 0..calls {
            let received =
                self.receiver.receive(engine, now, &mut self.state.counters, (fd, most))?;
            units += received.units;
            let news = received.news.and_then(|news| news.raw_os_error());
            if let Some(peer) = self.connected.filter(|_| news == Some(libc::EMSGSIZE)) {
                self.look_at_mtu(engine, now, peer);
            }
            if !received.was_full {
                break;
            }
        }
        Ok(units)
    }
}

impl Driver for RawIpDriver {
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

impl fmt::Debug for RawIpDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawIpDriver")
            .field("path", &self.state.path)
            .field("local", &self.local)
            .field("connected", &self.connected)
            .field("counters", &self.state.counters)
            .finish_non_exhaustive()
    }
}

/// This many units leave in one turn at most, so that receiving gets its turn too.
const UNITS_PER_TURN: u32 = 4 * MAX_UNITS as u32;
/// This many bytes are listed for one call.
pub(super) const BATCH_BYTES: usize = 512 << 10;

/// Sends what the engine has, until it has nothing, the kernel has no room, or
/// it was enough for one turn.
pub(super) fn send<E: Engine>(
    driver: &mut RawIpDriver,
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
        let count = send_some(driver, engine, now)?;
        if count == 0 {
            break;
        }
        sent += count as u32;
    }
    Ok(sent)
}

/// Sends the next units. Returns how many are out of our hands; zero if the
/// kernel has no room.
fn send_some<E: Engine>(
    driver: &mut RawIpDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<usize> {
    list(driver);
    if driver.sending.is_empty() {
        // Nowhere to send the first: to the engine it is lost on the way.
        return Ok(lose(driver, engine, now));
    }
    // SAFETY: the pieces are the outbox's, which is not touched until the call
    // is over, and has pinned the memory that they name.
    let left = unsafe { driver.sending.send(driver.socket.as_raw_fd()) };
    let error = match left {
        Ok(count) => {
            driver.state.counters.send_calls += 1;
            driver.state.counters.units_sent += count as u64;
            driver.outbox.done(engine, now, count);
            return Ok(count);
        }
        Err(error) => error,
    };
    match SendFault::of(&error, 1) {
        Some(SendFault::NoRoom) => {
            driver.state.counters.send_blocked += 1;
            driver.blocked = true;
            Ok(0)
        }
        Some(SendFault::Lost) => {
            let to = driver.outbox.front().and_then(|unit| address(unit.to));
            if let Some(to) = to.filter(|_| error.raw_os_error() == Some(libc::EMSGSIZE)) {
                driver.look_at_mtu(engine, now, to);
            }
            Ok(lose(driver, engine, now))
        }
        Some(SendFault::CannotSegment) | None => Err(error),
    }
}

/// Lists those of the next units that have somewhere to go, in order, for one call.
fn list(driver: &mut RawIpDriver) {
    let most = if driver.batch { MAX_UNITS } else { 1 };
    driver.sending.start_sending();
    for (unit, _, pieces) in driver.outbox.each().take(most) {
        let to = match (address(unit.to), driver.connected) {
            (Some(to), None) if to.is_ipv6() == driver.ipv6 => Some(to),
            (Some(to), Some(peer)) if to == peer => None,
            _ => return,
        };
        if !driver.sending.add(pieces, (to, unit.ecn), driver.ipv6) {
            return;
        }
    }
}

fn address(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Ip(address) => Some(address),
        _ => None,
    }
}

/// To the engine the next unit is lost on the way.
fn lose<E: Engine>(driver: &mut RawIpDriver, engine: &mut E, now: Instant) -> usize {
    driver.state.counters.send_failed += 1;
    driver.outbox.done(engine, now, 1);
    1
}
