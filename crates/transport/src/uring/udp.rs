//! [`UringUdpDriver`]: a UDP socket behind a ring.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use landfall_placement::{Engine, Instant, PathId, Peer};
use socket2::Socket;

use super::flight::{Sender, Wire};
use super::halves::Halves;
use super::ring::Ring;
use super::zero_copy::{Policy, ZeroCopy, ZeroCopyUse};
use crate::capability::{Capabilities, Feature};
use crate::driver::{Descriptors, Driver, DriverState, Interests, Progress};
use crate::exchange::{Gathered, RunLimits};
use crate::inet::{SendFault, nothing_came};
use crate::memory::Regions;
use crate::udp::{self, ReceiveHeader, Receiver, SendHeader, Sending, UdpConfig};

/// How a UDP path on a ring is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringUdpConfig {
    /// The socket, as for the plain driver.
    pub udp: UdpConfig,
    /// When payload is sent without a copy in the kernel.
    pub zero_copy: ZeroCopy,
    /// With [`ZeroCopy::Auto`], what is shorter is copied: below some 10 KiB
    /// the bookkeeping costs more than the copy.
    pub zero_copy_from: usize,
}

impl UringUdpConfig {
    /// A path for an interface with this MTU.
    #[must_use]
    pub const fn new(bind: SocketAddr, mtu: u32) -> Self {
        Self {
            udp: UdpConfig::new(bind, mtu),
            zero_copy: ZeroCopy::Auto,
            zero_copy_from: 16 * 1024,
        }
    }
}

/// Runs any engine over a UDP socket, entering the kernel once for a receive
/// and all that waits to be sent, and sending without a copy where that helps.
///
/// Where the kernel had no room, and where a send cannot go without a copy, the
/// units concerned leave after those that were queued behind them.
///
/// A dropped driver waits, up to a second, until the kernel reads none of the
/// memory that was sent without a copy. If it still does then (a packet may
/// wait for its neighbour's address for longer), the pins are never released:
/// the regions concerned cannot be taken back any more.
#[derive(Debug)]
pub struct UringUdpDriver {
    state: DriverState,
    local: SocketAddr,
    halves: Halves<Receiver, ReceiveHeader, UdpWire>,
}

impl UringUdpDriver {
    /// Opens a socket and a ring, and reads and writes the regions of this table.
    ///
    /// # Errors
    /// The address cannot be bound; or there is no `io_uring` here
    /// ([`Unavailable`](super::Unavailable) inside says why); or
    /// [`ZeroCopy::Always`] is asked of a kernel that cannot do it.
    pub fn open(path: PathId, config: UringUdpConfig, regions: &Regions) -> io::Result<Self> {
        let ring = Ring::open()?;
        let (socket, mut capabilities) = udp::open(&config.udp, "uring-udp")?;
        let zero_copy = zero_copy_policy(&config, &ring, &mut capabilities)?;
        let limits = config.udp.limits(&socket)?;
        let batch_receive = capabilities.has(Feature::BatchedReceive);
        let local = udp::bound_to(&socket)?;
        let wire = UdpWire {
            socket,
            ipv6: config.udp.bind.is_ipv6(),
            batch_send: capabilities.has(Feature::BatchedSend),
            refusal: None,
        };
        let receiver = Receiver::new(path, regions, batch_receive, config.udp.peek);
        let sender = Sender::new(wire, path, limits, regions, zero_copy);
        Ok(Self {
            state: DriverState::new(path, limits, capabilities, regions),
            local,
            halves: Halves::new(ring, receiver, ReceiveHeader::new(), sender),
        })
    }

    /// Where peers reach this path.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// What became of sends that were to go without a copy.
    #[must_use]
    pub fn zero_copy_use(&self) -> ZeroCopyUse {
        self.halves.sender().zero_copy.seen()
    }

    /// Receives one batch; sends what waited with the same entry into the kernel.
    fn exchange<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let counters = &mut self.state.counters;
        self.halves.sender_mut().fill(engine, now, counters);
        let fd = self.halves.sender().wire.socket.as_raw_fd();
        let peeked = self.halves.receiver().look(engine, now, counters, fd)?;
        let prepare = |receiver: &mut Receiver, header: &mut ReceiveHeader| {
            header.prepare(receiver.post(engine, peeked.as_ref()))
        };
        // SAFETY: the receiver posts scratch memory of its own and lent memory
        // that it has pinned until `settle`.
        let (outcome, header, receiver) = unsafe { self.halves.exchange(counters, prepare, true)? };
        let message = match outcome {
            Ok(len) => Some(header.message(len)),
            Err(error) if nothing_came(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(receiver.settle(engine, now, counters, (message, peeked)))
    }

    /// Keeps the list of capabilities true.
    fn note_losses(&mut self) {
        if let Some(error) = self.halves.sender_mut().wire.refusal.take() {
            udp::lack_batched_send(&mut self.state.capabilities, &error);
        }
    }
}

/// Finds out whether sending without a copy is wanted and possible.
fn zero_copy_policy(
    config: &UringUdpConfig,
    ring: &Ring,
    found: &mut Capabilities,
) -> io::Result<Policy> {
    let mut mode = config.zero_copy;
    if mode == ZeroCopy::Never {
        found.lack(Feature::ZeroCopySend, "switched off by the configuration");
    } else if ring.can_send_without_copy() {
        found.add(Feature::ZeroCopySend);
    } else {
        found
            .lack(Feature::ZeroCopySend, "the kernel has no SENDMSG_ZC; Linux 6.1 or later has it");
        if mode == ZeroCopy::Always {
            found.require(Feature::ZeroCopySend).map_err(io::Error::other)?;
        }
        mode = ZeroCopy::Never;
    }
    Ok(Policy::new(mode, config.zero_copy_from))
}

impl Driver for UringUdpDriver {
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.halves.check()?;
        self.halves.sender_mut().start_turn();
        let received = self.exchange(engine, now)?;
        let deposits = self.state.settle(engine, now);
        self.halves.send(engine, now, &mut self.state.counters)?;
        self.note_losses();
        Ok(Progress { received: received + deposits, sent: self.halves.sender().sent() })
    }

    fn is_blocked(&self) -> bool {
        self.halves.sender().is_blocked()
    }

    fn interests(&self) -> Interests {
        self.halves.interests(self.is_blocked())
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.halves.descriptors()
    }
}

/// A UDP socket, as the sending half sees it.
#[derive(Debug)]
struct UdpWire {
    socket: Socket,
    /// IPv4 peers have IPv6 addresses on this socket.
    ipv6: bool,
    batch_send: bool,
    /// Why batches are no longer sent, if that was not told yet.
    refusal: Option<io::Error>,
}

// SAFETY: `prepare` gives the header that it filled in, which names memory of its own and
// the pieces that it was given.
unsafe impl Wire for UdpWire {
    type Header = SendHeader;

    fn header() -> SendHeader {
        SendHeader::new()
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn limits(&self) -> RunLimits {
        udp::run_limits(self.batch_send)
    }

    fn prepare(&self, header: &mut SendHeader, units: Gathered<'_>) -> Option<*const libc::msghdr> {
        let Peer::Socket(to) = units.first.to else { return None };
        let unit_len = u16::try_from(units.first.len).ok().filter(|_| units.count > 1);
        let sending = Sending { to: Some(to), unit_len, ecn: units.first.ecn, ipv6: self.ipv6 };
        Some(header.prepare(units.pieces, &sending))
    }

    fn fault(&mut self, error: &io::Error, units: usize) -> SendFault {
        let fault = SendFault::of(error, units);
        if fault == SendFault::CannotSegment {
            self.batch_send = false;
            self.refusal = error.raw_os_error().map(io::Error::from_raw_os_error);
        }
        fault
    }
}
