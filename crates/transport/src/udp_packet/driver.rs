//! [`UdpPacketDriver`]: both halves of a path, with one system call for each run and frame.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io};

use landfall_placement::{Engine, Instant, PathId};

use super::UdpPacketConfig;
use super::receive::FrameReceiver;
use super::send::{Exit, ExitHeader, NotSent, UnitGroup};
use super::socket::{self, Opened};
use crate::OpenError;
use crate::driver::{Descriptors, Driver, DriverState, Progress, take_turn};
use crate::exchange::Outbox;
use crate::memory::{Pins, Regions};
use crate::packet::{Room, receive_frame};
use crate::udp::{UNITS_PER_TURN, run_limits};

/// Who lacks a capability, in words.
const DRIVER: &str = "udp-packet";

/// Runs any engine over UDP, by a packet socket on one interface.
pub struct UdpPacketDriver {
    state: DriverState,
    receiver: FrameReceiver,
    exit: Exit,
    /// Of the next call.
    header: Box<ExitHeader>,
    outbox: Outbox,
    room: Room,
}

impl UdpPacketDriver {
    /// Opens the sockets in the network namespace that the calling thread is in, where they
    /// stay. Reads and writes the regions of this table.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing and what would help.
    pub fn open(
        path: PathId,
        config: &UdpPacketConfig,
        regions: &Regions,
    ) -> Result<Self, OpenError> {
        Ok(Self::of(socket::open(config, DRIVER)?, path, config, regions))
    }

    /// Opens several packet sockets at one address and port, each for an engine of its own.
    /// Peers are spread over them by a hash of their address and port: all that one sends
    /// from one port comes to the same socket, for as long as any of these drivers exists. A
    /// peer whose address changes may come to another one.
    ///
    /// ```no_run
    /// use landfall_placement::PathId;
    /// use landfall_transport::memory::Regions;
    /// use landfall_transport::udp_packet::{UdpPacketConfig, UdpPacketDriver};
    ///
    /// let config = UdpPacketConfig::discover("192.0.2.7:7000".parse()?);
    /// let drivers = UdpPacketDriver::open_group(PathId(0), &config, &Regions::new(16), 4)?;
    /// let port = drivers[0].local_address();
    /// assert!(drivers.iter().all(|driver| driver.local_address() == port));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and more than 256 sockets are too many for the kernel.
    pub fn open_group(
        path: PathId,
        config: &UdpPacketConfig,
        regions: &Regions,
        count: usize,
    ) -> Result<Vec<Self>, OpenError> {
        let all = socket::open_group(config, DRIVER, count)?;
        Ok(all.into_iter().map(|opened| Self::of(opened, path, config, regions)).collect())
    }

    fn of(opened: Opened, path: PathId, config: &UdpPacketConfig, regions: &Regions) -> Self {
        let Opened { limits, ref capabilities, .. } = opened;
        let state = DriverState::new(path, limits, capabilities.clone(), regions);
        let (receiver, exit) = opened.halves(path, config, regions);
        Self {
            state,
            receiver,
            exit,
            header: Box::new(ExitHeader::new()),
            outbox: Outbox::new(path, limits, Pins::new(regions), 0),
            room: Room::Enough,
        }
    }

    /// Where peers reach this path.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.exit.local()
    }

    /// How many of the sending calls were the kernel's, which resolved or confirmed the
    /// peer's station with them.
    #[must_use]
    pub const fn sent_by_kernel(&self) -> u64 {
        self.exit.by_kernel()
    }

    /// Receives what came, frame by frame. Returns the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let Self { receiver, exit, state, .. } = self;
        let (fd, counters) = (exit.packets().as_raw_fd(), &mut state.counters);
        let mut units = 0;
        receiver.start_turn();
        while receiver.wants_more() {
            let peeked = receiver.look(fd, engine, now, counters)?;
            let pieces = receiver.post(engine, peeked.as_deref());
            // SAFETY: the receiver posts scratch memory of its own and lent memory that it has
            // pinned until `settle`.
            let received = unsafe { receive_frame(fd, pieces, 0)? };
            units += receiver.settle(engine, now, counters, (received, peeked));
        }
        Ok(units)
    }
}

impl Driver for UdpPacketDriver {
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
        [self.exit.packets().as_fd()].into_iter().collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.room.until()
    }
}

impl fmt::Debug for UdpPacketDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpPacketDriver")
            .field("path", &self.state.path)
            .field("exit", &self.exit)
            .field("counters", &self.state.counters)
            .finish_non_exhaustive()
    }
}

/// Sends what the engine has, until it has nothing, the kernel has no room, or it was enough
/// for one turn.
fn send<E: Engine>(driver: &mut UdpPacketDriver, engine: &mut E, now: Instant) -> io::Result<u32> {
    if driver.room.is_early(now) {
        return Ok(0);
    }
    let mut sent = 0;
    while sent < UNITS_PER_TURN {
        driver.outbox.fill(engine, now, &mut driver.state.counters, |_, _| {});
        if driver.outbox.is_empty() {
            driver.room = Room::Enough;
            break;
        }
        let count = send_run(driver, engine, now)?;
        if count == 0 {
            break;
        }
        sent += count as u32;
    }
    Ok(sent)
}

/// Sends the next run. Returns the number of units that are out of our hands; zero if the
/// kernel has no room.
fn send_run<E: Engine>(
    driver: &mut UdpPacketDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<usize> {
    let UdpPacketDriver { outbox, exit, header, state, room, .. } = driver;
    let counters = &mut state.counters;
    let count = outbox.next_run(run_limits(true));
    let Some(first) = outbox.front() else { return Ok(0) };
    let (to, ecn) = (first.to, first.ecn);
    let unit_len = u16::try_from(first.len).ok().filter(|_| count > 1);
    let units = UnitGroup { to, ecn, unit_len, pieces: outbox.pieces(count) };
    let failure = match exit.prepare(header, units, now) {
        None => Some(NotSent::Lost),
        Some((socket, message)) => {
            // SAFETY: the message names the header, which stays where it is, heads of the
            // outbox and lent memory that it has pinned.
            let sent = unsafe { libc::sendmsg(exit.socket(socket), message, libc::MSG_DONTWAIT) };
            (sent < 0).then(|| exit.fault(io::Error::last_os_error(), socket, count))
        }
    };
    match failure {
        None => {
            *room = Room::Enough;
            counters.send_calls += 1;
            counters.units_sent += count as u64;
        }
        Some(NotSent::Lost) => counters.send_failed += count as u64,
        Some(NotSent::Broken(error)) => return Err(error),
        Some(no_room @ (NotSent::SocketFull | NotSent::QueueFull)) => {
            *room = match no_room {
                NotSent::SocketFull => Room::SocketFull,
                _ => room.after_full_queue(now),
            };
            counters.send_blocked += 1;
            return Ok(0);
        }
    }
    outbox.done(engine, now, count);
    Ok(count)
}
