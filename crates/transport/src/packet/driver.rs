//! [`PacketDriver`]: a packet socket, an inbox and an outbox. It sends several frames or
//! super-packets a call, gathered from where they lie.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId};
use socket2::Socket;

use super::fanout::{self, SpreadBy};
use super::link::Link;
use super::receive::Receiver;
use super::several::Several;
use super::socket::{Failure, Opened, Room};
use super::{PacketConfig, socket, vnet};
use crate::OpenError;
use crate::driver::{Descriptors, Driver, DriverState, Progress, take_turn};
use crate::exchange::Outbox;
use crate::memory::{Pins, Regions};

/// Runs any engine over the frames of an Ethernet interface.
pub struct PacketDriver {
    pub(super) state: DriverState,
    pub(super) socket: Socket,
    pub(super) link: Link,
    receiver: Receiver,
    several: Several,
    pub(super) outbox: Outbox,
    pub(super) room: Room,
    /// All sockets of a group: they stay open as long as one of their drivers.
    _group: Option<Arc<[Socket]>>,
}

impl PacketDriver {
    /// Opens a socket on an interface of the network namespace that the
    /// calling thread is in, where it stays. It reads and writes the regions
    /// of this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(path: PathId, config: &PacketConfig, regions: &Regions) -> Result<Self, OpenError> {
        let Opened { socket, link, capabilities } = socket::open(config, "packet")?;
        let limits = link.limits();
        let outbox = Outbox::new(path, limits, Pins::new(regions), link.prefix_len());
        Ok(Self {
            state: DriverState::new(path, limits, capabilities, regions),
            socket,
            link,
            receiver: Receiver::new(path, link, regions),
            several: Several::new(),
            outbox: outbox.with_batches_of(MOST_BYTES),
            room: Room::Enough,
            _group: None,
        })
    }

    /// Opens several sockets that are configured alike, each for an engine of its own. The
    /// station that sends a frame decides which of them gets it ([`member_of`](Self::member_of)
    /// says which), for as long as any of these drivers exists.
    ///
    /// ```no_run
    /// use landfall_placement::PathId;
    /// use landfall_transport::memory::Regions;
    /// use landfall_transport::packet::{Framing, PacketConfig, PacketDriver};
    ///
    /// let config = PacketConfig::new("eth0", Framing::Payload { ethertype: 0x88b5 });
    /// let drivers = PacketDriver::open_group(PathId(0), &config, &Regions::new(16), 4)?;
    /// assert!(drivers.iter().all(|driver| driver.station() == drivers[0].station()));
    /// # Ok::<(), landfall_transport::OpenError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and more than 256 sockets are too many for the kernel.
    pub fn open_group(
        path: PathId,
        config: &PacketConfig,
        regions: &Regions,
        count: usize,
    ) -> Result<Vec<Self>, OpenError> {
        Self::open_spread(path, config, regions, (count, SpreadBy::Station))
    }

    /// The same for one station of ours: the flow that a frame belongs to decides
    /// ([`landfall_inet::flow`]), for [`members`](crate::member::members).
    ///
    /// # Errors
    /// Those of [`open_group`](Self::open_group).
    pub fn open_by_flow(
        path: PathId,
        config: &PacketConfig,
        regions: &Regions,
        count: usize,
    ) -> Result<Vec<Self>, OpenError> {
        Self::open_spread(path, config, regions, (count, SpreadBy::Flow))
    }

    fn open_spread(
        path: PathId,
        config: &PacketConfig,
        regions: &Regions,
        (count, by): (usize, SpreadBy),
    ) -> Result<Vec<Self>, OpenError> {
        let drivers: Result<Vec<Self>, _> =
            (0..count).map(|_| Self::open(path, config, regions)).collect();
        let mut drivers = drivers?;
        let sockets: Vec<&Socket> = drivers.iter().map(|driver| &driver.socket).collect();
        let group = fanout::spread(&sockets, by)?;
        for driver in &mut drivers {
            driver._group = Some(Arc::clone(&group));
        }
        Ok(drivers)
    }

    /// Which of a [group](Self::open_group) of this many gets what this station sends. None of
    /// none.
    #[must_use]
    pub fn member_of(station: [u8; 6], count: usize) -> Option<usize> {
        (count > 0).then(|| fanout::member_of(station, count))
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

    /// Receives what came, call by call. Returns the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let fd = self.socket.as_raw_fd();
        let (receiver, counters) = (&mut self.receiver, &mut self.state.counters);
        let mut units = 0;
        receiver.start_turn();
        while receiver.wants_more() {
            let headers = receiver.post(engine);
            // SAFETY: the receiver has prepared them, with scratch memory of its own and
            // lent memory that it has pinned until `settle`.
            let outcomes = unsafe { self.several.receive(headers, fd) };
            units += receiver.settle(engine, now, counters, outcomes)?;
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
        take_turn(self, engine, now, send, Self::receive)
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

/// This many units leave at once at most, so that receiving gets its turn too.
const MOST_UNITS: u32 = 64;
/// Likewise, for super-packets.
pub(super) const MOST_BYTES: usize = 512 << 10;

/// Sends what the engine has, until it has nothing, the kernel has no room, or
/// it was enough for once.
pub(super) fn send<E: Engine>(
    driver: &mut PacketDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<u32> {
    if driver.room.is_early(now) {
        return Ok(0);
    }
    let (mut sent, mut bytes) = (0, 0);
    while sent < MOST_UNITS && bytes < MOST_BYTES {
        driver.outbox.fill(engine, now, &mut driver.state.counters, vnet::write);
        let Some(unit) = driver.outbox.front() else {
            driver.room = Room::Enough;
            break;
        };
        let len = unit.len;
        let left = driver.several.send(&driver.link, &driver.outbox, driver.socket.as_raw_fd());
        let count = account(driver, engine, now, left)?;
        if count == 0 {
            break;
        }
        bytes += len * count;
        sent += count as u32;
    }
    Ok(sent)
}

/// Notes what became of the next units: this many left, or why the first did not;
/// none if nobody knows where to. Returns how many are out of our hands.
fn account<E: Engine>(
    driver: &mut PacketDriver,
    engine: &mut E,
    now: Instant,
    left: Option<io::Result<usize>>,
) -> io::Result<usize> {
    let mut count = 1;
    match left {
        Some(Ok(units)) => {
            count = units;
            driver.room = Room::Enough;
            driver.state.counters.send_calls += 1;
            driver.state.counters.units_sent += units as u64;
        }
        None => driver.state.counters.send_failed += 1,
        Some(Err(error)) => match Failure::of(&error) {
            Failure::Broken => return Err(error),
            Failure::Lost => driver.state.counters.send_failed += 1,
            Failure::SocketFull => {
                driver.state.counters.send_blocked += 1;
                driver.room = Room::SocketFull;
                return Ok(0);
            }
            Failure::QueueFull => {
                driver.state.counters.send_blocked += 1;
                driver.room = driver.room.after_full_queue(now);
                return Ok(0);
            }
        },
    }
    driver.outbox.done(engine, now, count);
    Ok(count)
}
