//! [`UringUdpPacketDriver`]: UDP by a packet socket behind a ring.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId};
use socket2::Socket;

use super::flight::{Ready, Sender, Wire};
use super::halves::Halves;
use super::ring::Ring;
use super::udp::{Policy, ZeroCopy};
use crate::driver::{Descriptors, Driver, DriverState, Interests, Progress};
use crate::exchange::{Gathered, RunLimits};
use crate::inet::SendFault;
use crate::memory::Regions;
use crate::packet::{ReceiveHeader, Received, Room};
use crate::udp::run_limits;
use crate::udp_packet::{
    Exit, ExitHeader, FrameReceiver, NotSent, Opened, SendSocket, UdpPacketConfig, UnitGroup,
    open_sockets,
};

/// Runs any engine over UDP, by a packet socket on one interface, entering the kernel once
/// for a receive and all that waits to be sent.
///
/// Packet sockets copy what is sent. Where the kernel had no room, the datagrams concerned
/// leave after those that were queued behind them.
pub struct UringUdpPacketDriver {
    state: DriverState,
    room: Room,
    halves: Halves<FrameReceiver, ReceiveHeader, ExitWire>,
}

impl UringUdpPacketDriver {
    /// Opens the sockets in the network namespace that the calling thread is in, where they
    /// stay, and a ring. Reads and writes the regions of this table.
    ///
    /// # Errors
    /// There is no `io_uring` here ([`Unavailable`](super::Unavailable) inside says why), or
    /// [`OpenError`](crate::OpenError) inside says what is missing for the sockets.
    pub fn open(path: PathId, config: &UdpPacketConfig, regions: &Regions) -> io::Result<Self> {
        let ring = Ring::open()?;
        let opened = open_sockets(config, "uring-udp-packet")?;
        let Opened { limits, ref capabilities, .. } = opened;
        let state = DriverState::new(path, limits, capabilities.clone(), regions);
        let (receiver, exit) = opened.halves(path, config, regions);
        let wire = ExitWire { exit, now: Instant::ZERO, queue_full: false };
        let never = Policy::new(ZeroCopy::Never, 0);
        let sender = Sender::new(wire, path, limits, regions, never);
        let halves = Halves::new(ring, receiver, ReceiveHeader::new(), sender);
        Ok(Self { state, room: Room::Enough, halves })
    }

    /// Where peers reach this path.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.halves.sender().wire.exit.local()
    }

    /// How many of the sends were the kernel's, which resolved or confirmed the peer's
    /// station with them.
    #[must_use]
    pub fn sent_by_kernel(&self) -> u64 {
        self.halves.sender().wire.exit.by_kernel()
    }

    /// Receives what came, frame by frame, and sends what waits with the first. Returns the
    /// number of units received.
    fn exchange<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        mut send: bool,
    ) -> io::Result<u32> {
        let fd = self.halves.sender().wire.socket().as_raw_fd();
        let counters = &mut self.state.counters;
        let mut units = 0;
        self.halves.receiver().start_turn();
        while self.halves.receiver().wants_more() {
            let peeked = self.halves.receiver().look(fd, engine, now, counters)?;
            let prepare = |receiver: &mut FrameReceiver, header: &mut ReceiveHeader| {
                [header.prepare(receiver.post(engine, peeked.as_deref()))].into_iter().collect()
            };
            // SAFETY: the receiver posts scratch memory of its own and lent memory that it has
            // pinned until `settle`.
            let (outcomes, header, receiver) =
                unsafe { self.halves.exchange(counters, prepare, send)? };
            let received = match outcomes.into_iter().next() {
                Some(Ok(len)) => Received::Frame(header.frame(len)),
                Some(Err(error)) => Received::without_frame(error)?,
                None => Received::Nothing,
            };
            units += receiver.settle(engine, now, counters, (received, peeked));
            send = false;
        }
        Ok(units)
    }

    /// Notes whether the kernel had room for what was sent.
    fn note_room(&mut self, now: Instant) {
        let sender = self.halves.sender_mut();
        let queue_full = std::mem::take(&mut sender.wire.queue_full);
        self.room = self.room.after_sending(sender.is_blocked(), queue_full, now);
    }
}

impl Driver for UringUdpPacketDriver {
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.halves.check()?;
        let may_send = !self.room.is_early(now);
        let sender = self.halves.sender_mut();
        sender.start_turn();
        sender.wire.now = now;
        if may_send {
            sender.fill(engine, now, &mut self.state.counters);
        }
        let received = self.exchange(engine, now, may_send)?;
        let deposits = self.state.settle(engine, now);
        if may_send {
            self.halves.send(engine, now, &mut self.state.counters)?;
            self.note_room(now);
        }
        Ok(Progress { received: received + deposits, sent: self.halves.sender().sent() })
    }

    fn is_blocked(&self) -> bool {
        self.room == Room::SocketFull
    }

    fn interests(&self) -> Interests {
        self.halves.interests(self.is_blocked())
    }

    fn descriptors(&self) -> Descriptors<'_> {
        self.halves.descriptors()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.room.until()
    }
}

impl fmt::Debug for UringUdpPacketDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringUdpPacketDriver")
            .field("path", &self.state.path)
            .field("exit", &self.halves.sender().wire.exit)
            .field("counters", &self.state.counters)
            .finish_non_exhaustive()
    }
}

/// Both sockets of the path, as the sending half sees them.
struct ExitWire {
    exit: Exit,
    /// Of this turn: what is known of a neighbour grows old.
    now: Instant,
    /// The queue of the interface had no room; a full socket buffer is another matter.
    queue_full: bool,
}

// SAFETY: what `prepare` gives names memory of the header that it filled in and the pieces
// that it was given.
unsafe impl Wire for ExitWire {
    type Header = ExitHeader;

    fn header() -> ExitHeader {
        ExitHeader::new()
    }

    fn socket(&self) -> &Socket {
        self.exit.packets()
    }

    fn limits(&self) -> RunLimits {
        run_limits(true)
    }

    fn prepare(&mut self, header: &mut ExitHeader, units: Gathered<'_>) -> Option<Ready> {
        let Gathered { first, count, pieces, .. } = units;
        let unit_len = u16::try_from(first.len).ok().filter(|_| count > 1);
        let leaving = UnitGroup { to: first.to, ecn: first.ecn, unit_len, pieces };
        let (socket, message) = self.exit.prepare(header, leaving, self.now)?;
        Some(Ready { by: self.exit.socket(socket), message })
    }

    fn fault(&mut self, error: io::Error, units: usize, by: RawFd) -> io::Result<SendFault> {
        let is_kernel = by == self.exit.socket(SendSocket::Kernel);
        let socket = if is_kernel { SendSocket::Kernel } else { SendSocket::Packets };
        match self.exit.fault(error, socket, units) {
            NotSent::SocketFull => Ok(SendFault::NoRoom),
            NotSent::QueueFull => {
                self.queue_full = true;
                Ok(SendFault::NoRoom)
            }
            NotSent::Lost => Ok(SendFault::Lost),
            NotSent::Broken(error) => Err(error),
        }
    }
}
