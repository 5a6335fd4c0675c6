//! What leaves: runs of datagrams behind one header that is written here, and the way of a
//! peer: by the packet socket, or by the kernel's where its station is not known.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::{fmt, io};

use landfall_inet::Mac;
use landfall_placement::{Ecn, Instant, Peer};
use socket2::Socket;

use super::frame::Framing;
use super::neighbours::Neighbours;
use super::socket::is_reachable;
use crate::exchange::{IoVecs, PREFIX_ROOM, Prefix};
use crate::inet::SendFault;
use crate::packet::{self, Failure, LinkAddress, interface_exists};
use crate::udp::{self, Sending};

/// Units of one length that leave with one call.
pub(crate) struct UnitGroup<'a> {
    pub(crate) to: Peer,
    pub(crate) ecn: Ecn,
    /// The length of each, if they are several.
    pub(crate) unit_len: Option<u16>,
    pub(crate) pieces: &'a mut [libc::iovec],
}

/// By which socket units leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendSocket {
    Packets,
    /// The kernel's, which resolves or confirms the peer's station with them.
    Kernel,
}

/// What it means that units were not sent.
pub(crate) enum NotSent {
    /// The socket buffer has no room.
    SocketFull,
    /// The queue of the interface has none.
    QueueFull,
    /// To the engine they are lost on the way.
    Lost,
    /// The path is broken.
    Broken(io::Error),
}

/// Both sockets of a path and what is written before datagrams, as sending needs them.
pub(crate) struct Exit {
    packets: Socket,
    /// Holds the port, and carries what no station is known for.
    kernel: Socket,
    /// All packet sockets of the port: they stay open as long as one of their drivers.
    _group: Option<Arc<[Socket]>>,
    framing: Framing,
    neighbours: Neighbours,
    by_kernel: u64,
}

impl Exit {
    pub(super) fn new(
        (packets, kernel, group): (Socket, Socket, Option<Arc<[Socket]>>),
        framing: Framing,
        neighbours: Neighbours,
    ) -> Self {
        Self { packets, kernel, _group: group, framing, neighbours, by_kernel: 0 }
    }

    /// The socket that frames come from.
    pub(crate) const fn packets(&self) -> &Socket {
        &self.packets
    }

    /// Where peers reach this path.
    pub(crate) const fn local(&self) -> SocketAddr {
        self.framing.local
    }

    /// How many calls were the kernel's.
    pub(crate) const fn by_kernel(&self) -> u64 {
        self.by_kernel
    }

    pub(crate) fn socket(&self, socket: SendSocket) -> RawFd {
        match socket {
            SendSocket::Packets => self.packets.as_raw_fd(),
            SendSocket::Kernel => self.kernel.as_raw_fd(),
        }
    }

    /// Fills in the header for these units. None: there is nowhere to send them.
    ///
    /// What it gives names memory of the header and the pieces, and nothing else.
    pub(crate) fn prepare(
        &mut self,
        header: &mut ExitHeader,
        units: UnitGroup<'_>,
        now: Instant,
    ) -> Option<(SendSocket, *const libc::msghdr)> {
        let Peer::Socket(to) = units.to else { return None };
        if !is_reachable(self.framing.local, to) {
            return None;
        }
        let Some(station) = self.neighbours.station_of(to.ip(), now) else {
            self.by_kernel += 1;
            let UnitGroup { ecn, unit_len, pieces, .. } = units;
            let sending = Sending { to: Some(to), unit_len, ecn, ipv6: to.is_ipv6() };
            return Some((SendSocket::Kernel, header.kernel.prepare(pieces, &sending)));
        };
        header.frame(&self.framing, (station, to), &units).map(|frame| (SendSocket::Packets, frame))
    }

    /// What an error means of units that were to leave this way.
    pub(crate) fn fault(&self, error: io::Error, socket: SendSocket, units: usize) -> NotSent {
        match socket {
            SendSocket::Packets => match Failure::of(&error) {
                Failure::SocketFull => NotSent::SocketFull,
                Failure::QueueFull => NotSent::QueueFull,
                Failure::Lost => NotSent::Lost,
                Failure::Broken => NotSent::Broken(error),
            },
            SendSocket::Kernel => match SendFault::of(&error, units) {
                Some(SendFault::NoRoom) => NotSent::QueueFull,
                Some(SendFault::CannotSegment | SendFault::Lost) => {
                    // There may be no route because there is no interface any more.
                    let index = self.framing.link.interface.index;
                    match interface_exists(self.kernel.as_raw_fd(), index) {
                        Ok(()) => NotSent::Lost,
                        Err(error) => NotSent::Broken(error),
                    }
                }
                None => NotSent::Broken(error),
            },
        }
    }
}

impl fmt::Debug for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exit").field("framing", &self.framing).finish_non_exhaustive()
    }
}

/// What one call needs besides the pieces; stays where it is until the call is over.
pub(crate) struct ExitHeader {
    frame: packet::SendHeader,
    /// All that is in front of the first payload, and then the pieces.
    prefix: Prefix,
    pieces: IoVecs,
    kernel: udp::SendHeader,
}

impl ExitHeader {
    pub(crate) fn new() -> Self {
        Self {
            frame: packet::SendHeader::new(),
            prefix: [0; PREFIX_ROOM],
            pieces: IoVecs::default(),
            kernel: udp::SendHeader::new(),
        }
    }

    /// A frame of these units. None if they cannot go to this address.
    fn frame(
        &mut self,
        framing: &Framing,
        to: (Mac, SocketAddr),
        units: &UnitGroup<'_>,
    ) -> Option<*const libc::msghdr> {
        let len = units.pieces.iter().map(|piece| piece.iov_len).sum();
        let written = framing.write(&mut self.prefix, to, (len, units.unit_len), units.ecn)?;
        self.pieces.clear();
        self.pieces.push_slice(&mut self.prefix[..written]);
        self.pieces.extend(units.pieces);
        let interface = LinkAddress::interface(framing.link.interface.index, framing.ethertype());
        Some(self.frame.prepare(self.pieces.as_slice(), interface))
    }
}
