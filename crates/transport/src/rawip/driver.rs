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
use super::{OpenError, RawIpConfig, header_and_largest, send, socket};
use crate::capability::Capabilities;
use crate::counters::Counters;
use crate::driver::{Descriptors, Driver, Interest, Interests, Progress};
use crate::exchange::{Between, HEAD_ROOM, Outbox};
use crate::memory::{Pins, Regions};

/// Runs any engine directly on IP, as a protocol with a number of its own.
/// Peers are [`Peer::Ip`](landfall_placement::Peer::Ip).
pub struct RawIpDriver {
    path: PathId,
    pub(super) socket: Socket,
    pub(super) ipv6: bool,
    local: IpAddr,
    /// The only peer, if the socket is connected.
    pub(super) connected: Option<IpAddr>,
    limits: PathLimits,
    ways: Ways,
    capabilities: Capabilities,
    pub(super) counters: Counters,
    between: Between,
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
        let limits = PathLimits { head: HEAD_ROOM as u16, ..PathLimits::plain(unit) };
        let outbox = Outbox::new(path, limits, Pins::new(regions), 0);
        Ok(Self {
            path,
            ipv6,
            local,
            connected: None,
            limits,
            ways,
            counters: Counters::default(),
            between: Between::new(regions),
            receiver: Receiver::new(path, regions, config.batch, ipv6),
            outbox: outbox.with_batches_of(BATCH_BYTES),
            sending: Messages::new(),
            batch: config.batch,
            blocked: false,
            socket,
            capabilities,
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
        if unit < self.limits.unit {
            self.limits = PathLimits { unit, super_unit: unit, ..self.limits };
            engine.handle_path(now, self.path, PathState::Up(self.limits));
        }
    }

    /// Receives what came, call by call, and hands it to the engine. Gives the
    /// number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let fd = self.socket.as_raw_fd();
        let (calls, most) = self.receiver.plan();
        let mut units = 0;
        for _ in 0..calls {
            let received = self.receiver.receive(engine, now, &mut self.counters, (fd, most))?;
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
    fn path(&self) -> PathId {
        self.path
    }

    /// They shrink when a smaller MTU is learned of on the way to a peer.
    fn limits(&self) -> PathLimits {
        self.limits
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        // What was asked since the last turn leaves before anything else is looked for.
        let asked = send::send(self, engine, now)?;
        let received = self.receive(engine, now)?;
        let deposits = self.between.run(engine, now, &mut self.counters);
        let answered = send::send(self, engine, now)?;
        Ok(Progress { received: received + deposits, sent: asked + answered })
    }

    fn interests(&self) -> Interests {
        let fd = self.socket.as_raw_fd();
        [Interest { fd, readable: true, writable: self.blocked }].into_iter().collect()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.socket.as_fd()].into_iter().collect()
    }
}

impl fmt::Debug for RawIpDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawIpDriver")
            .field("path", &self.path)
            .field("local", &self.local)
            .field("connected", &self.connected)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
