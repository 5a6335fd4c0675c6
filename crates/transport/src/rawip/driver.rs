//! [`RawIpDriver`]: a raw socket, an inbox and an outbox.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId, PathLimits, PathState};
use socket2::Socket;

use super::messages::Messages;
use super::path_mtu::Ways;
use super::receive::Receiver;
use super::send::BATCH_BYTES;
use super::socket::Opened;
use super::{RawIpConfig, header_and_largest, send, socket};
use crate::OpenError;
use crate::driver::{Descriptors, Driver, DriverState, Progress, plain_limits, take_turn};
use crate::exchange::Outbox;
use crate::memory::{Pins, Regions};

/// Runs any engine directly on IP, as a protocol with a number of its own.
/// Peers are [`Peer::Ip`](landfall_placement::Peer::Ip).
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
        let Opened { socket, ways, capabilities } = socket::open(config)?;
        let local = socket::local_address(&socket)
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
        self.local = socket::local_address(&self.socket)?;
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

    /// Receives what came, call by call, and hands it to the engine. Gives the
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
        take_turn(self, engine, now, send::send, Self::receive)
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
