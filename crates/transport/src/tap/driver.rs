//! [`TapDriver`]: an interface of the kernel, an inbox and an outbox.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::{fmt, io};

use landfall_placement::{Ecn, Engine, Instant, PathId, Peer};

use super::TapConfig;
use super::device::Device;
use crate::OpenError;
use crate::capability::{Capabilities, Feature};
use crate::driver::{Descriptors, Driver, DriverState, Progress, take_turn};
use crate::exchange::{Arrival, Inbox, Outbox, Pace, Turn};
use crate::memory::{Pins, Regions};
use crate::packet::{Failure, VNET_HEADER, read_vnet, whole_frames, write_vnet};

/// This many units leave at once at most, so that receiving gets its turn too.
const MOST_UNITS: u32 = 64;
/// Likewise, for super-packets.
const MOST_BYTES: usize = 512 << 10;

/// Runs any engine over whole frames that are exchanged with the kernel.
pub struct TapDriver {
    state: DriverState,
    device: Device,
    /// A virtio-net header is in front of every frame.
    offload: bool,
    inbox: Inbox,
    /// The memory that is posted, pinned for one frame.
    pins: Pins,
    pace: Pace,
    outbox: Outbox,
    /// The kernel had no memory for more.
    blocked: bool,
}

impl TapDriver {
    /// Makes the interface, or takes the one that is there, in the network
    /// namespace that the calling thread is in, where it stays. It reads and
    /// writes the regions of this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(path: PathId, config: &TapConfig, regions: &Regions) -> Result<Self, OpenError> {
        Ok(Self::with(path, config, regions, Device::open(config)?))
    }

    /// Opens several queues of one interface, each for an engine of its own: for
    /// [`members`](crate::member::members). The kernel puts each frame into the queue of its flow
    /// ([`landfall_inet::flow`]).
    ///
    /// # Errors
    /// Those of [`open`](Self::open); an interface that is there already has several queues
    /// only if it was made so (`ip tuntap add … multi_queue`).
    pub fn open_group(
        path: PathId,
        config: &TapConfig,
        regions: &Regions,
        count: usize,
    ) -> Result<Vec<Self>, OpenError> {
        let queues = Device::open_queues(config, count)?;
        Ok(queues.into_iter().map(|device| Self::with(path, config, regions, device)).collect())
    }

    fn with(path: PathId, config: &TapConfig, regions: &Regions, device: Device) -> Self {
        let limits = whole_frames(device.found.mtu, config.offload);
        let prefix_len = if config.offload { VNET_HEADER } else { 0 };
        Self {
            state: DriverState::new(path, limits, capabilities(config.offload), regions),
            device,
            offload: config.offload,
            inbox: Inbox::new(path, 1, prefix_len),
            pins: Pins::new(regions),
            pace: Pace::default(),
            outbox: Outbox::new(path, limits, Pins::new(regions), prefix_len),
            blocked: false,
        }
    }

    /// The name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.device.name
    }

    /// Its number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.device.found.index
    }

    /// The address of the kernel's station, which frames to it name. The
    /// engine's own is of its choosing.
    #[must_use]
    pub fn kernel_station(&self) -> [u8; 6] {
        self.device.found.station
    }

    /// The MTU of the interface when it was opened.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.device.found.mtu
    }

    /// Receives what came, frame by frame. Returns the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let fd = self.device.file.as_raw_fd();
        let mut units = 0;
        self.pace.start_turn();
        while self.pace.wants_more() {
            let pieces = self.inbox.post(engine, &mut self.pins, None).as_mut_slice();
            // SAFETY: the list names scratch memory of the inbox and lent memory that is
            // pinned until after the call.
            let received = match unsafe { read(fd, pieces) } {
                Ok(len) => Some(len),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => None,
                    // A form that a virtio-net header has no word for; it is gone.
                    Some(libc::EINVAL) => Some(0),
                    _ => {
                        self.pins.release();
                        return Err(error);
                    }
                },
            };
            self.pace.note(received);
            units += match received {
                Some(len) => self.hand_over(engine, now, len),
                None => {
                    self.state.counters.empty_calls += 1;
                    0
                }
            };
            self.pins.release();
        }
        Ok(units)
    }

    /// Hands a frame of this many bytes, with what is in front of it, to the engine.
    fn hand_over<E: Engine>(&mut self, engine: &mut E, now: Instant, len: usize) -> u32 {
        self.state.counters.receive_calls += 1;
        let prefix_len = if self.offload { VNET_HEADER } else { 0 };
        let Some(len) = len.checked_sub(prefix_len).filter(|len| *len > 0) else {
            self.state.counters.malformed += 1;
            return 0;
        };
        let told = if self.offload { read_vnet(self.inbox.prefix(0)) } else { Default::default() };
        let arrival = Arrival {
            len,
            unit_len: len,
            from: Peer::Unaddressed,
            ecn: Ecn::NotCapable,
            coalesced: told.coalesced,
            verified: told.verified,
        };
        let (pins, counters) = (&mut self.pins, &mut self.state.counters);
        self.inbox.settle(&mut Turn { engine, now, pins, counters }, &arrival, None)
    }

    /// Sends what the engine has, until it has nothing or it was enough for once.
    fn send<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let (mut sent, mut bytes) = (0, 0);
        self.blocked = false;
        while sent < MOST_UNITS && bytes < MOST_BYTES {
            self.outbox.fill(engine, now, &mut self.state.counters, write_vnet);
            let Some(unit) = self.outbox.front() else { break };
            bytes += unit.len;
            let fd = self.device.file.as_raw_fd();
            // SAFETY: the list names heads of the outbox and lent memory that it has pinned.
            match unsafe { write(fd, self.outbox.pieces(1)) } {
                Ok(()) => {
                    self.state.counters.send_calls += 1;
                    self.state.counters.units_sent += 1;
                }
                Err(error) => match Failure::of(&error) {
                    Failure::Broken => return Err(error),
                    Failure::Lost | Failure::QueueFull => self.state.counters.send_failed += 1,
                    Failure::SocketFull => {
                        self.state.counters.send_blocked += 1;
                        self.blocked = true;
                        break;
                    }
                },
            }
            self.outbox.done(engine, now, 1);
            sent += 1;
        }
        Ok(sent)
    }
}

fn capabilities(offload: bool) -> Capabilities {
    let mut found = Capabilities::of("tap");
    found.add(Feature::DirectPlacement);
    found.add(Feature::RawFrames);
    for feature in [Feature::TcpSegmentation, Feature::ChecksumOffload] {
        if offload {
            found.add(feature);
        } else {
            found.lack(feature, "switched off by the configuration");
        }
    }
    found
}

/// One frame. Never waits: the file was opened so.
///
/// # Safety
/// The pieces may be written until the call is over.
unsafe fn read(fd: RawFd, pieces: &mut [libc::iovec]) -> io::Result<usize> {
    let count = libc::c_int::try_from(pieces.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the list has this many pieces; the caller vouches for what it names.
    let len = unsafe { libc::readv(fd, pieces.as_ptr(), count) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// One frame, whole or not at all.
///
/// # Safety
/// The pieces may be read until the call is over.
unsafe fn write(fd: RawFd, pieces: &mut [libc::iovec]) -> io::Result<()> {
    let count = libc::c_int::try_from(pieces.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the list has this many pieces; the caller vouches for what it names.
    let written = unsafe { libc::writev(fd, pieces.as_ptr(), count) };
    if written < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Driver for TapDriver {
    fn state(&self) -> &DriverState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut DriverState {
        &mut self.state
    }

    fn turn<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<Progress> {
        take_turn(self, engine, now, Self::send, Self::receive)
    }

    fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn descriptors(&self) -> Descriptors<'_> {
        [self.device.file.as_fd()].into_iter().collect()
    }
}

impl fmt::Debug for TapDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapDriver")
            .field("path", &self.state.path)
            .field("name", &self.device.name)
            .field("counters", &self.state.counters)
            .finish_non_exhaustive()
    }
}
