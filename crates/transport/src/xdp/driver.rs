//! [`XdpDriver`]: an XDP socket, an inbox and an outbox.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::{fmt, io, ptr};

use arrayvec::ArrayVec;
use landfall_placement::{Engine, Instant, PathId, Peer};

use super::receive::Receiver;
use super::send::BATCH_BYTES;
use super::socket::{self, Opened};
use super::{ETHERNET_HEADER, Framing, XdpConfig, send};
use crate::OpenError;
use crate::driver::{Descriptors, Driver, DriverState, Progress, plain_limits, take_turn};
use crate::exchange::Outbox;
use crate::memory::{Pins, Regions};
use crate::packet::Room;

/// Runs any engine over the frames of an Ethernet interface, through rings that
/// are mapped into this process.
pub struct XdpDriver {
    pub(super) state: DriverState,
    pub(super) opened: Opened,
    station: [u8; 6],
    pub(super) framing: Framing,
    mtu: u32,
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
        let limits = plain_limits(link.unit);
        let outbox = Outbox::new(path, limits, Pins::new(regions), 0);
        Ok(Self {
            state: DriverState::new(path, limits, link.capabilities, regions),
            opened,
            station,
            framing,
            mtu: link.interface.mtu,
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

    /// Receives what came and hands it to the engine. Gives the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let came = (&mut self.opened.rings, &self.opened.frames);
        let units = self.receiver.receive(engine, now, &mut self.state.counters, came)?;
        if self.opened.rings.fill.needs_wakeup() {
            // A device that receives into the rings' memory had run out of it.
            wake_receiver(self.opened.socket.as_raw_fd())?;
        }
        Ok(units)
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
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        take_turn(self, engine, now, send::send, Self::receive)
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
            .field("path", &self.state.path)
            .field("framing", &self.framing)
            .field("counters", &self.state.counters)
            .finish_non_exhaustive()
    }
}
