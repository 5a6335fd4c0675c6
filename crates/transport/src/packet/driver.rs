//! [`PacketDriver`]: a packet socket, an inbox and an outbox.

use std::os::fd::AsRawFd;
use std::{fmt, io};

use landfall_placement::{Duration, Engine, Instant, Offloads, PathId, PathLimits};
use socket2::Socket;

use super::interface::Found;
use super::socket::{self, Opened};
use super::vnet::VNET_HEADER;
use super::{ETHERNET_HEADER, Framing, OpenError, PacketConfig, receive, send};
use crate::capability::Capabilities;
use crate::counters::Counters;
use crate::driver::{Driver, Interest, Interests, Progress, fire_timers};
use crate::exchange::{HEAD_ROOM, Inbox, LONGEST, Outbox};
use crate::memory::{Pins, Regions};

/// The longest IPv4 packet.
const LONGEST_PACKET: u32 = 65_535;
/// GRO coalesces so many segments at most.
const MOST_SEGMENTS: u16 = 64;

/// Runs any engine over the frames of an Ethernet interface.
pub struct PacketDriver {
    path: PathId,
    pub(super) socket: Socket,
    pub(super) interface: Found,
    /// Units have no link header; this is the ethertype of their frames.
    pub(super) payload_of: Option<u16>,
    /// A virtio-net header is in front of every frame.
    pub(super) offload: bool,
    limits: PathLimits,
    capabilities: Capabilities,
    pub(super) counters: Counters,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// The memory that is posted for receiving, pinned for one frame.
    pub(super) pins: Pins,
    /// The last receive found something: more may wait.
    pub(super) streaming: bool,
    pub(super) room: Room,
}

/// Whether the kernel takes more frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It does.
    Enough,
    /// The socket buffer is full: the socket becomes writable when it is not.
    SocketFull,
    /// The device's queue was full, which nobody is told the end of.
    QueueFull { until: Instant, waited: Duration },
}

impl PacketDriver {
    /// Opens a socket on an interface of the network namespace that the
    /// calling thread is in, where it stays. It reads and writes the regions
    /// of this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(path: PathId, config: &PacketConfig, regions: &Regions) -> Result<Self, OpenError> {
        let Opened { socket, interface, capabilities, offload } = socket::open(config)?;
        let payload_of = match config.framing {
            Framing::Ethernet { .. } => None,
            Framing::Payload { ethertype } => Some(ethertype),
        };
        let limits = limits(interface.mtu, payload_of.is_none(), offload);
        let prefix = if offload { VNET_HEADER } else { 0 };
        Ok(Self {
            path,
            socket,
            interface,
            payload_of,
            offload,
            limits,
            capabilities,
            counters: Counters::default(),
            inbox: Inbox::new(path, 1, prefix),
            outbox: Outbox::new(path, limits, Pins::new(regions), prefix),
            pins: Pins::new(regions),
            streaming: false,
            room: Room::Enough,
        })
    }

    /// The address of this station, which peers send to.
    #[must_use]
    pub fn station(&self) -> [u8; 6] {
        self.interface.station
    }

    /// The MTU of the interface when it was opened.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.interface.mtu
    }
}

fn limits(mtu: u32, raw: bool, offload: bool) -> PathLimits {
    let header = if raw { ETHERNET_HEADER as u32 } else { 0 };
    let unit = mtu.saturating_add(header).min(LONGEST as u32);
    let plain = PathLimits { head: HEAD_ROOM as u16, ..PathLimits::plain(unit) };
    if !offload {
        // The kernel says of each frame what is known of its checksum.
        let offloads = Offloads { sum_receive: raw, ..plain.offloads };
        return PathLimits { offloads, ..plain };
    }
    PathLimits {
        super_unit: unit.max(LONGEST_PACKET + header),
        segments: MOST_SEGMENTS,
        offloads: Offloads {
            segment_tcp4: true,
            segment_tcp6: true,
            sum_send: true,
            sum_receive: true,
        },
        ..plain
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
        let received = receive::receive(self, engine, now)?;
        fire_timers(engine, now);
        let answered = send::send(self, engine, now)?;
        Ok(Progress { received, sent: asked + answered })
    }

    fn interests(&self) -> Interests {
        let writable = self.room == Room::SocketFull;
        let fd = self.socket.as_raw_fd();
        [Interest { fd, readable: true, writable }].into_iter().collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.room {
            Room::QueueFull { until, .. } => Some(until),
            Room::Enough | Room::SocketFull => None,
        }
    }
}

impl fmt::Debug for PacketDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketDriver")
            .field("path", &self.path)
            .field("interface", &self.interface)
            .field("payload_of", &self.payload_of)
            .field("offload", &self.offload)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
