//! [`UringPacketDriver`]: a packet socket behind a ring.

use std::os::fd::{AsRawFd, RawFd};
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId, Transmit};
use socket2::Socket;

use super::flight::{Ready, Sender, Wire};
use super::halves::Halves;
use super::ring::Ring;
use super::udp::{Policy, ZeroCopy};
use crate::capability::Feature;
use crate::driver::{Descriptors, Driver, DriverState, Interests, Progress};
use crate::exchange::{Gathered, Prefix, RunLimits};
use crate::inet::SendFault;
use crate::memory::Regions;
use crate::packet::{
    self, Failure, Link, Opened, PacketConfig, ReceiveHeader, Receiver, Room, SendHeader,
};

/// Runs any engine over the frames of an Ethernet interface, entering the
/// kernel once for several receives and all frames that wait to be sent.
///
/// Packet sockets copy what is sent; there is no zero-copy send for them.
/// Where the kernel had no room, the frames concerned leave after those that
/// were queued behind them.
pub struct UringPacketDriver {
    state: DriverState,
    room: Room,
    halves: Halves<Receiver, (), PacketWire>,
}

impl UringPacketDriver {
    /// Opens a socket on an interface of the network namespace that the
    /// calling thread is in, where it stays, and a ring. It reads and writes
    /// the regions of this table.
    ///
    /// # Errors
    /// There is no `io_uring` here ([`Unavailable`](super::Unavailable) inside
    /// says why), or [`OpenError`](crate::OpenError) inside says what is
    /// missing for the socket.
    pub fn open(path: PathId, config: &PacketConfig, regions: &Regions) -> io::Result<Self> {
        let ring = Ring::open()?;
        let Opened { socket, link, mut capabilities } = packet::open(config, "uring-packet")?;
        capabilities.lack(
            Feature::ZeroCopySend,
            "the kernel copies what is sent through a packet socket; use uring-udp",
        );
        let limits = link.limits();
        let wire = PacketWire { socket, link, queue_full: false };
        let never = Policy::new(ZeroCopy::Never, 0);
        let receiver = Receiver::new(path, link, regions);
        let sender = Sender::new(wire, path, limits, regions, never);
        Ok(Self {
            state: DriverState::new(path, limits, capabilities, regions),
            room: Room::Enough,
            halves: Halves::new(ring, receiver, (), sender),
        })
    }

    /// The address of this station, which peers send to.
    #[must_use]
    pub fn station(&self) -> [u8; 6] {
        self.halves.sender().wire.link.station()
    }

    /// The MTU of the interface when it was opened.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.halves.sender().wire.link.interface.mtu
    }

    /// Receives what came, several frames with an entry into the kernel, and sends what
    /// waits with the first. Returns the number of units received.
    fn exchange<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        mut send: bool,
    ) -> io::Result<u32> {
        let counters = &mut self.state.counters;
        let mut units = 0;
        self.halves.receiver().start_turn();
        while self.halves.receiver().wants_more() {
            let prepare = |receiver: &mut Receiver, (): &mut ()| {
                receiver.post(engine).iter_mut().map(ReceiveHeader::prepared_mut).collect()
            };
            // SAFETY: the headers are in a box of the receiver's; it posts scratch memory of
            // its own and lent memory that it has pinned until `settle`.
            let (outcomes, (), receiver) =
                unsafe { self.halves.exchange(counters, prepare, send)? };
            units += receiver.settle(engine, now, counters, outcomes)?;
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

impl Driver for UringPacketDriver {
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        self.halves.check()?;
        let may_send = !self.room.is_early(now);
        self.halves.sender_mut().start_turn();
        if may_send {
            self.halves.sender_mut().fill(engine, now, &mut self.state.counters);
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

impl fmt::Debug for UringPacketDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringPacketDriver")
            .field("path", &self.state.path)
            .field("link", &self.halves.sender().wire.link)
            .field("counters", &self.state.counters)
            .finish_non_exhaustive()
    }
}

/// A packet socket, as the sending half sees it.
struct PacketWire {
    socket: Socket,
    link: Link,
    /// The queue of the interface had no room; a full socket buffer is another
    /// matter.
    queue_full: bool,
}

// SAFETY: `prepare` gives the header that it filled in, which names memory of its own and
// the pieces that it was given.
unsafe impl Wire for PacketWire {
    type Header = SendHeader;

    fn header() -> SendHeader {
        SendHeader::new()
    }

    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn prefix_len(&self) -> usize {
        self.link.prefix_len()
    }

    fn write_prefix(&self, unit: &Transmit, prefix: &mut Prefix) {
        packet::write_vnet(unit, prefix);
    }

    fn limits(&self) -> RunLimits {
        RunLimits { units: 1, bytes: usize::MAX }
    }

    fn prepare(&mut self, header: &mut SendHeader, units: Gathered<'_>) -> Option<Ready> {
        let to = self.link.destination(units.first.to, units.head)?;
        Some(Ready { by: self.socket.as_raw_fd(), message: header.prepare(units.pieces, to) })
    }

    fn fault(&mut self, error: io::Error, _units: usize, _by: RawFd) -> io::Result<SendFault> {
        match Failure::of(&error) {
            Failure::SocketFull => Ok(SendFault::NoRoom),
            Failure::QueueFull => {
                self.queue_full = true;
                Ok(SendFault::NoRoom)
            }
            Failure::Lost => Ok(SendFault::Lost),
            Failure::Broken => Err(error),
        }
    }
}
