//! [`PacketDriver`]: a packet socket, an inbox and an outbox.

use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId, PathLimits};
use socket2::Socket;

use super::link::Link;
use super::receive::{Receiver, receive_frame};
use super::room::Room;
use super::several::Several;
use super::socket::{self, Opened};
use super::{OpenError, PacketConfig, send};
use crate::capability::{Capabilities, Feature};
use crate::counters::Counters;
use crate::driver::{Descriptors, Driver, Interest, Interests, Progress};
use crate::exchange::{Between, Outbox};
use crate::memory::{Pins, Regions};

/// Runs any engine over the frames of an Ethernet interface.
pub struct PacketDriver {
    path: PathId,
    pub(super) socket: Socket,
    pub(super) link: Link,
    limits: PathLimits,
    capabilities: Capabilities,
    pub(super) counters: Counters,
    between: Between,
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
            path,
            socket,
            link,
            limits,
            capabilities,
            counters: Counters::default(),
            between: Between::new(regions),
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
            return several.receive(engine, now, &mut self.counters, fd);
        }
        let mut units = 0;
        self.receiver.start_turn();
        while self.receiver.wants_more() {
            let pieces = self.receiver.post(engine);
            // SAFETY: the receiver posts scratch memory of its own and lent memory that it
            // has pinned until `settle`.
            let received = unsafe { receive_frame(fd, pieces)? };
            units += self.receiver.settle(engine, now, &mut self.counters, &received);
        }
        Ok(units)
    }
}

impl Driver for PacketDriver {
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
        // What the user asked for since the last turn leaves before anybody
        // looks what came: in a conversation that would only find nothing.
        let asked = send::send(self, engine, now)?;
        let received = self.receive(engine, now)?;
        let deposits = self.between.run(engine, now, &mut self.counters);
        let answered = send::send(self, engine, now)?;
        Ok(Progress { received: received + deposits, sent: asked + answered })
    }

    fn interests(&self) -> Interests {
        let writable = self.room == Room::SocketFull;
        let fd = self.socket.as_raw_fd();
        [Interest { fd, readable: true, writable }].into_iter().collect()
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
            .field("path", &self.path)
            .field("link", &self.link)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
