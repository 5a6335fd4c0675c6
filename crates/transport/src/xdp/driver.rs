//! [`XdpDriver`]: an XDP socket, an inbox and an outbox.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::{fmt, io, ptr};

use arrayvec::ArrayVec;
use landfall_placement::{Engine, Instant, PathId, PathLimits, Peer};

use super::receive::Receiver;
use super::send::BATCH_BYTES;
use super::socket::{self, Opened};
use super::{ETHERNET_HEADER, Framing, OpenError, XdpConfig, send};
use crate::capability::Capabilities;
use crate::counters::Counters;
use crate::driver::{Descriptors, Driver, Interest, Interests, Progress};
use crate::exchange::{Between, HEAD_ROOM, Outbox};
use crate::memory::{Pins, Regions};
use crate::packet::Room;

/// Runs any engine over the frames of an Ethernet interface, through rings that
/// are mapped into this process.
pub struct XdpDriver {
    path: PathId,
    pub(super) opened: Opened,
    station: [u8; 6],
    pub(super) framing: Framing,
    mtu: u32,
    pub(super) limits: PathLimits,
    capabilities: Capabilities,
    pub(super) counters: Counters,
    between: Between,
    receiver: Receiver,
    pub(super) outbox: Outbox,
    pub(super) room: Room,
}

impl XdpDriver {
    /// Opens a socket on an interface of the network namespace that the
    /// calling thread is in, where it stays, and lets a program redirect frames
    /// to it. It reads and writes the regions of this table.
    ///
    /// A path that was closed a moment ago may still hold its queue: this
    /// waits for it, two seconds at most.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(path: PathId, config: &XdpConfig, regions: &Regions) -> Result<Self, OpenError> {
        let (opened, link) = socket::open(config, true)?;
        let framing = config.framing;
        let station = framing.station(link.interface.station);
        let limits = PathLimits { head: HEAD_ROOM as u16, ..PathLimits::plain(link.unit) };
        let outbox = Outbox::new(path, limits, Pins::new(regions), 0);
        Ok(Self {
            path,
            opened,
            station,
            framing,
            mtu: link.interface.mtu,
            limits,
            capabilities: link.capabilities,
            counters: Counters::default(),
            between: Between::new(regions),
            receiver: Receiver::new(path, regions, (station, framing)),
            outbox: outbox.with_batches_of(BATCH_BYTES),
            room: Room::Enough,
        })
    }

    /// The address of this station, which peers send to.
    #[must_use]
    pub fn station(&self) -> [u8; 6] {
        self.station
    }

    /// The MTU of the interface when it was opened.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// The driver's header of a unit to this peer: an empty one where the unit
    /// has its own. None if nobody knows where to.
    pub(super) fn header_to(&self, to: Peer) -> Option<ArrayVec<u8, ETHERNET_HEADER>> {
        let mut header = ArrayVec::new();
        match (self.framing, to) {
            (Framing::Payload { ethertype }, Peer::Ethernet(to)) => {
                let parts = [&to[..], &self.station, &ethertype.to_be_bytes()];
                header.extend(parts.into_iter().flatten().copied());
                Some(header)
            }
            (Framing::Payload { .. }, _) => None,
            (Framing::Frames { .. } | Framing::Fragments, _) => Some(header),
        }
    }
}

impl Driver for XdpDriver {
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
        // What was asked since the last turn leaves before anything else is looked for.
        let asked = send::send(self, engine, now)?;
        let came = (&mut self.opened.rings, &self.opened.frames);
        let received = self.receiver.receive(engine, now, &mut self.counters, came)?;
        if self.opened.rings.fill.needs_wakeup() {
            // A device that receives into the rings' memory had run out of it.
            wake_receiver(self.opened.socket.as_raw_fd())?;
        }
        let deposits = self.between.run(engine, now, &mut self.counters);
        let answered = send::send(self, engine, now)?;
        Ok(Progress { received: received + deposits, sent: asked + answered })
    }

    fn interests(&self) -> Interests {
        let fd = self.opened.socket.as_raw_fd();
        [Interest { fd, readable: true, writable: false }].into_iter().collect()
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.opened.socket.as_fd()].into_iter().collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.room.until()
    }
}

/// Tells the device that there are frames to receive into.
pub(super) fn wake_receiver(fd: RawFd) -> io::Result<()> {
    // SAFETY: room for no byte, and no address: nothing is written.
    let woken = unsafe {
        libc::recvfrom(fd, ptr::null_mut(), 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut())
    };
    match io::Error::last_os_error() {
        _ if woken >= 0 => Ok(()),
        error => match error.raw_os_error() {
            // Nothing came yet, or an interface is down and may come up again.
            Some(libc::EAGAIN | libc::EINTR | libc::EBUSY | libc::ENETDOWN) => Ok(()),
            _ => Err(error),
        },
    }
}

impl fmt::Debug for XdpDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XdpDriver")
            .field("path", &self.path)
            .field("framing", &self.framing)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
