//! [`PacketDriver`]: a packet socket, an inbox and an outbox.

use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId};
use socket2::Socket;

use super::link::Link;
use super::receive::{Receiver, receive_frame};
use super::room::Room;
use super::several::Several;
use super::socket::{self, Opened};
use super::{PacketConfig, send};
use crate::OpenError;
use crate::capability::Feature;
use crate::driver::{Descriptors, Driver, DriverState, Progress, take_turn};
use crate::exchange::Outbox;
use crate::memory::{Pins, Regions};

/// Runs any engine over the frames of an Ethernet interface.
pub struct PacketDriver {
    pub(super) state: DriverState,
    pub(super) socket: Socket,
    pub(super) link: Link,
    receiver: Receiver,
    /// Several frames move with a call; otherwise one does.
    pub(super) several: Option<Several>,
    pub(super) outbox: Outbox,
    pub(super) room: Room,
}

impl PacketDriver {
    /// Opens a socket on an interface of the network namespace that the
    /// calling thread is in, where it stays. It reads and writes the regions
    /// of this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(path: PathId, config: &PacketConfig, regions: &Regions) -> Result<Self, OpenError> {
        let Opened { socket, link, mut capabilities } = socket::open(config, "packet")?;
        let limits = link.limits();
        let outbox = Outbox::new(path, limits, Pins::new(regions), link.prefix_len());
        let (several, outbox) = if link.is_payload() {
            capabilities.add(Feature::BatchedSend);
            capabilities.add(Feature::BatchedReceive);
            (Some(Several::new(path, link, regions)), outbox.with_batches_of(send::MOST_BYTES))
        } else {
            (None, outbox)
        };
        Ok(Self {
            state: DriverState::new(path, limits, capabilities, regions),
            socket,
            link,
            receiver: Receiver::new(path, link, regions),
            several,
            outbox,
            room: Room::Enough,
        })
    }

    /// The address of this station, which peers send to.
    #[must_use]
    pub fn station(&self) -> [u8; 6] {
        self.link.station()
    }

    /// The MTU of the interface when it was opened.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.link.interface.mtu
    }

    /// Receives what came, call by call. Gives the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let fd = self.socket.as_raw_fd();
        if let Some(several) = &mut self.several {
            return several.receive(engine, now, &mut self.state.counters, fd);
        }
        let mut units = 0;
        self.receiver.start_turn();
        while self.receiver.wants_more() {
            let pieces = self.receiver.post(engine);
            // SAFETY: the receiver posts scratch memory of its own and lent memory that it
            // has pinned until `settle`.
            let received = unsafe { receive_frame(fd, pieces)? };
            units += self.receiver.settle(engine, now, &mut self.state.counters, &received);
        }
        Ok(units)
    }
}

impl Driver for PacketDriver {
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
        self.room == Room::SocketFull
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.socket.as_fd()].into_iter().collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.room.until()
    }
}

impl fmt::Debug for PacketDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketDriver")
            .field("path", &self.state.path)
            .field("link", &self.link)
            .field("counters", &self.state.counters)
            .finish_non_exhaustive()
    }
}
