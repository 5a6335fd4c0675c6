//! [`UringUdpDriver`]: a UDP socket behind a ring.

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{opcode, types};
use landfall_placement::{Engine, Instant, PathId, PathLimits, Peer};
use socket2::Socket;

use super::flight::{Sender, Wire};
use super::ring::{Completion, Ring};
use super::zero_copy::{Policy, ZeroCopy, ZeroCopyUse};
use crate::capability::{Capabilities, Feature};
use crate::counters::Counters;
use crate::driver::{Driver, Interest, Interests, Progress, fire_timers};
use crate::exchange::{HEAD_ROOM, Outgoing, RunLimits};
use crate::memory::Regions;
use crate::udp::{
    self, Message, ReceiveHeader, Receiver, SendFault, SendHeader, Sending, UdpConfig,
};

/// The token of the receive; sends have larger ones.
const RECEIVE: u64 = 0;
/// How long a dropped driver waits until the kernel is done with its memory.
const FAREWELL: Duration = Duration::from_secs(1);

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
    path: PathId,
    local: SocketAddr,
    limits: PathLimits,
    capabilities: Capabilities,
    counters: Counters,
    ring: Ring,
    /// All that operations name, in one place that never moves.
    halves: ManuallyDrop<Box<Halves>>,
}

#[derive(Debug)]
struct Halves {
    receiver: Receiver,
    header: ReceiveHeader,
    sender: Sender<UdpWire>,
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
        let limits = PathLimits { head: HEAD_ROOM as u16, ..PathLimits::plain(config.udp.unit) };
        let batch_receive = capabilities.has(Feature::BatchedReceive);
        let local = udp::bound_to(&socket)?;
        let wire = UdpWire {
            socket,
            ipv6: config.udp.bind.is_ipv6(),
            batch_send: capabilities.has(Feature::BatchedSend),
            refusal: None,
        };
        let halves = Halves {
            receiver: Receiver::new(path, regions, batch_receive, config.udp.peek),
            header: ReceiveHeader::new(),
            sender: Sender::new(wire, path, limits, regions, zero_copy),
        };
        Ok(Self {
            path,
            local,
            limits,
            counters: Counters::default(),
            ring,
            halves: ManuallyDrop::new(Box::new(halves)),
            capabilities,
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
        self.halves.sender.zero_copy.seen()
    }

    /// Receives one batch; sends what waited with the same entry into the kernel.
    fn exchange<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let Halves { receiver, header, sender } = &mut **self.halves;
        let counters = &mut self.counters;
        sender.fill(engine, now, counters);
        let peeked = receiver.look(engine, now, counters, sender.wire.socket.as_raw_fd())?;
        let pieces = receiver.post(engine, peeked.as_ref());
        let prepared = header.prepare(pieces);
        let receive = opcode::RecvMsg::new(sender.wire.fd(), prepared)
            .flags(libc::MSG_DONTWAIT as u32)
            .build();
        // SAFETY: header, list and scratch memory are in `halves`, which stays
        // until the ring is quiet; lent memory is pinned until `settle`.
        unsafe { self.ring.push(receive, RECEIVE) };
        sender.queue(&mut self.ring, counters);
        let mut came = None;
        self.ring.run(|completion| match completion.token {
            RECEIVE => came = Some(completion),
            _ => sender.complete(&completion, counters),
        })?;
        let message = came.map_or(Ok(None), |completion| message(header, &completion))?;
        Ok(receiver.settle(engine, now, counters, (message, peeked)))
    }

    /// Sends what the engine has, until it has nothing, the kernel has no room,
    /// or it was enough for one turn.
    fn send<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<()> {
        let sender = &mut self.halves.sender;
        let counters = &mut self.counters;
        loop {
            sender.report(engine, now, counters)?;
            if sender.is_blocked() {
                return Ok(());
            }
            sender.fill(engine, now, counters);
            if !sender.queue(&mut self.ring, counters) {
                return Ok(());
            }
            self.ring.run(|completion| sender.complete(&completion, counters))?;
        }
    }

    /// Keeps the list of capabilities true.
    fn note_losses(&mut self) {
        if let Some(error) = self.halves.sender.wire.refusal.take() {
            udp::lack_batched_send(&mut self.capabilities, &error);
        }
    }
}

/// What the kernel answered to the receive.
fn message(header: &ReceiveHeader, completion: &Completion) -> io::Result<Option<Message>> {
    match completion.outcome() {
        Ok(len) => Ok(Some(header.message(len))),
        Err(error) if udp::nothing_came(&error) => Ok(None),
        Err(error) => Err(error),
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
    fn path(&self) -> PathId {
        self.path
    }

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
        self.halves.sender.start_turn();
        let received = self.exchange(engine, now)?;
        fire_timers(engine, now);
        self.send(engine, now)?;
        self.note_losses();
        Ok(Progress { received, sent: self.halves.sender.sent() })
    }

    fn interests(&self) -> Interests {
        let sender = &self.halves.sender;
        let socket = Interest {
            fd: sender.wire.socket.as_raw_fd(),
            readable: true,
            writable: sender.is_blocked(),
        };
        // Notifications make the ring readable.
        let ring = Interest {
            fd: self.ring.as_raw_fd(),
            readable: sender.awaits_notifications(),
            writable: false,
        };
        [socket, ring].into_iter().collect()
    }
}

impl Drop for UringUdpDriver {
    fn drop(&mut self) {
        let (sender, counters) = (&mut self.halves.sender, &mut self.counters);
        let quiet = self.ring.settle(FAREWELL, |completion| {
            if let Some(completion) = completion
                && completion.token != RECEIVE
            {
                sender.complete(&completion, counters);
            }
            !sender.awaits_notifications()
        });
        if quiet {
            // SAFETY: it is dropped here only, and not used afterwards; no
            // operation names any of its memory any more.
            unsafe { ManuallyDrop::drop(&mut self.halves) };
        }
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

impl Wire for UdpWire {
    type Header = SendHeader;

    fn header() -> SendHeader {
        SendHeader::new()
    }

    fn fd(&self) -> types::Fd {
        types::Fd(self.socket.as_raw_fd())
    }

    fn limits(&self) -> RunLimits {
        udp::run_limits(self.batch_send)
    }

    fn prepare(
        &self,
        header: &mut SendHeader,
        unit: &Outgoing,
        count: usize,
        pieces: &mut [libc::iovec],
    ) -> Option<*const libc::msghdr> {
        let Peer::Socket(to) = unit.to else { return None };
        let unit_len = u16::try_from(unit.len).ok().filter(|_| count > 1);
        Some(header.prepare(pieces, &Sending { to, unit_len, ecn: unit.ecn, ipv6: self.ipv6 }))
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
