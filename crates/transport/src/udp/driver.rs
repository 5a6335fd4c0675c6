//! [`UdpDriver`]: a socket, an inbox and an outbox.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use landfall_placement::{Engine, Instant, PathId};
use socket2::Socket;

use super::receive::{Receiver, receive_message, something_waits};
use super::{UdpConfig, send, socket};
use crate::capability::Feature;
use crate::driver::{Descriptors, Driver, DriverState, Progress, take_turn};
use crate::exchange::Outbox;
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
        take_turn(self, engine, now, send::send, Self::receive)
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.socket.as_fd()].into_iter().collect()
    }
}
