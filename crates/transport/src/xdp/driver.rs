//! [`XdpDriver`]: an XDP socket, an inbox and an outbox.
//!
//! Frames that the kernel put into the ring are copied once to their places. Each unit that
//! leaves is copied into frames, and the kernel is called once for many of them, if it wants
//! to be.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::{fmt, io, ptr};

use arrayvec::ArrayVec;
use landfall_placement::{Ecn, Engine, Instant, PathId, Peer};
use socket2::Socket;

use super::frames::Frames;
use super::ring::{Reader, Writer};
use super::socket::{Link, Opened, Rings};
use super::{ETHERNET_HEADER, Framing, XdpConfig, socket};
use crate::OpenError;
use crate::driver::{
    Counters, Descriptors, Driver, DriverState, Progress, plain_limits, take_turn,
};
use crate::exchange::{Arrival, Inbox, Loose, MAX_UNITS, Outbox, Turn};
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
        Ok(Self::with(path, config, regions, socket::open(config, true)?))
    }

    /// Opens this many queues of an interface, from the configured one on, each for an engine of
    /// its own: for [`members`](crate::member::members). What the device puts into which queue it
    /// decides itself.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_group(
        path: PathId,
        config: &XdpConfig,
        regions: &Regions,
        count: u32,
    ) -> Result<Vec<Self>, OpenError> {
        let queues = socket::open_queues(config, true, count)?;
        Ok(queues.into_iter().map(|found| Self::with(path, config, regions, found)).collect())
    }

    fn with(
        path: PathId,
        config: &XdpConfig,
        regions: &Regions,
        (opened, link): (Opened, Link),
    ) -> Self {
        let framing = config.framing;
        let station = framing.station(link.interface.station);
        let limits = plain_limits(link.unit);
        let outbox = Outbox::new(path, limits, Pins::new(regions), 0);
        Self {
            state: DriverState::new(path, limits, link.capabilities, regions),
            opened,
            station,
            framing,
            mtu: link.interface.mtu,
            receiver: Receiver::new(path, regions, (station, framing)),
            outbox: outbox.with_batches_of(BATCH_BYTES),
            room: Room::Enough,
        }
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

    /// Receives what came and hands it to the engine. Returns the number of units.
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
            (Framing::Frames { .. } | Framing::Fragments | Framing::TaggedFragments { .. }, _) => {
                Some(header)
            }
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
        take_turn(self, engine, now, send, Self::receive)
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

/// The receiving half of a path.
pub(super) struct Receiver {
    inbox: Inbox,
    pins: Pins,
    station: [u8; 6],
    framing: Framing,
}

impl Receiver {
    pub(super) fn new(
        path: PathId,
        regions: &Regions,
        (station, framing): ([u8; 6], Framing),
    ) -> Self {
        let (inbox, pins) = (Inbox::new(path, 1, 0), Pins::new(regions));
        Self { inbox, pins, station, framing }
    }

    /// Hands what came to the engine, up to a batch. Returns the number of units.
    pub(super) fn receive<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        (rings, frames): (&mut Rings, &Frames),
    ) -> io::Result<u32> {
        let (mut units, mut packets) = (0, 0);
        while packets < MAX_UNITS {
            let Some(parts) = parts_of_next(&mut rings.receive) else { break };
            let mut loose = Loose::default();
            for nth in 0..parts {
                let Some(part) = rings.receive.peek(nth) else { break };
                // SAFETY: the kernel has handed it over in this ring, and gets
                // it back below, when nothing refers to it any more.
                let bytes = unsafe { frames.received(part.addr, part.len) };
                let bytes = bytes.ok_or_else(|| io::Error::other("a ring names no frame"))?;
                if !loose.push(bytes) {
                    return Err(io::Error::other("a frame has more parts than there can be"));
                }
            }
            units += self.hand_over(engine, now, counters, loose);
            for nth in 0..parts {
                let Some(part) = rings.receive.peek(nth) else { break };
                if !rings.fill.has_room(1) {
                    return Err(io::Error::other("a ring has more frames than there are"));
                }
                rings.fill.write(frames.chunk_of(part.addr));
            }
            rings.receive.take(parts);
            packets += 1;
        }
        self.pins.release();
        if packets == 0 {
            counters.empty_calls += 1;
            return Ok(0);
        }
        counters.receive_calls += 1;
        // In this order: the kernel finds room for each frame that it fills.
        rings.receive.give_back();
        rings.fill.show();
        Ok(units)
    }

    /// Hands a frame to the engine, if it is for this path.
    fn hand_over<E: Engine>(
        &mut self,
        engine: &mut E,
        now: Instant,
        counters: &mut Counters,
        mut frame: Loose<'_>,
    ) -> u32 {
        let Some(from) = self.sender(&frame) else {
            counters.malformed += 1;
            return 0;
        };
        // What is not the engine's; the header lies in one part.
        let _ = frame.strip(self.framing.header_len());
        let len = frame.len();
        let arrival = Arrival {
            len,
            unit_len: len.max(1),
            from,
            ecn: Ecn::NotCapable,
            coalesced: None,
            verified: false,
        };
        let mut turn = Turn { engine, now, pins: &mut self.pins, counters };
        self.inbox.settle_loose(&mut turn, &arrival, &frame)
    }

    /// Who sent a frame, if it is one for this path: to its station or, if it
    /// hears those, to a group.
    fn sender(&self, frame: &Loose<'_>) -> Option<Peer> {
        let header: &[u8; ETHERNET_HEADER] = frame.head(0, ETHERNET_HEADER).first_chunk()?;
        if !self.framing.takes(header, self.station) {
            return None;
        }
        let [_, _, _, _, _, _, from @ .., _, _] = *header;
        Some(match self.framing {
            Framing::Payload { .. } => Peer::Ethernet(from),
            Framing::Frames { .. } | Framing::Fragments | Framing::TaggedFragments { .. } => {
                Peer::Unaddressed
            }
        })
    }
}

/// How many entries the next frame has, if all of it is there.
pub(super) fn parts_of_next(ring: &mut Reader<libc::xdp_desc>) -> Option<u32> {
    let mut parts = 0;
    loop {
        let part = ring.peek(parts)?;
        parts += 1;
        if part.options & libc::XDP_PKT_CONTD == 0 {
            return Some(parts);
        }
    }
}

/// This many units leave at once at most, so that receiving gets its turn too.
const UNITS_PER_TURN: u32 = 2 * MAX_UNITS as u32;
/// This many bytes are polled at once.
pub(super) const BATCH_BYTES: usize = 512 << 10;

/// Sends what the engine has, until it has nothing, there is no room, or it
/// was enough for once.
pub(super) fn send<E: Engine>(
    driver: &mut XdpDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<u32> {
    if driver.room.is_early(now) {
        return Ok(0);
    }
    driver.opened.reclaim();
    let mut sent = 0;
    let mut is_full = false;
    while sent < UNITS_PER_TURN && !is_full {
        driver.outbox.fill(engine, now, &mut driver.state.counters, |_, _| {});
        let mut listed = 0;
        while let Some(unit) = driver.outbox.front() {
            let (to, len) = (unit.to, unit.len);
            let header = driver.header_to(to).filter(|header| {
                let whole = header.len() + len;
                whole >= ETHERNET_HEADER && len <= driver.state.limits.unit as usize
            });
            let Some(header) = header else {
                lose(driver, engine, now);
                continue;
            };
            is_full = !list(driver, &header, len);
            if is_full {
                break;
            }
            driver.outbox.done(engine, now, 1);
            listed += 1;
        }
        if listed == 0 {
            break;
        }
        driver.state.counters.units_sent += u64::from(listed);
        sent += listed;
        driver.opened.rings.send.show();
        driver.opened.kick(&mut driver.state.counters)?;
        driver.opened.reclaim();
    }
    if sent == 0 && driver.opened.rings.send.waiting() > 0 {
        driver.opened.kick(&mut driver.state.counters)?;
        driver.opened.reclaim();
    }
    let is_stuck = is_full || driver.opened.rings.send.waiting() > 0;
    driver.state.counters.send_blocked += u64::from(is_stuck);
    // Nobody is told when the device has room again.
    driver.room = if is_stuck { driver.room.after_full_queue(now) } else { Room::Enough };
    Ok(sent)
}

/// Copies the next unit of the outbox into frames and lists them. Returns whether
/// there was room.
fn list(driver: &mut XdpDriver, header: &[u8], len: usize) -> bool {
    let whole = header.len() + len;
    let parts = whole.div_ceil(driver.opened.frames.chunk() as usize);
    let (frames, send) = (&mut driver.opened.frames, &mut driver.opened.rings.send);
    if !frames.has(parts) || !send.has_room(parts as u32) {
        return false;
    }
    let mut done = 0;
    while done < whole {
        let here = (whole - done).min(frames.chunk() as usize);
        let Some(chunk) = frames.take() else { return false };
        // SAFETY: it was just taken.
        let Some(mut into) = (unsafe { frames.writable(chunk, here as u32) }) else { return false };
        if done == 0 {
            let (first, rest) = into.split_at_mut(header.len());
            first.copy_from_slice(header);
            into = rest;
        }
        let from = done.saturating_sub(header.len());
        driver.state.counters.bytes_copied += driver.outbox.copy_part(from, into) as u64;
        done += here;
        let options = if done < whole { libc::XDP_PKT_CONTD } else { 0 };
        send.write(libc::xdp_desc { addr: chunk, len: here as u32, options });
    }
    true
}

/// To the engine the next unit is lost on the way.
fn lose<E: Engine>(driver: &mut XdpDriver, engine: &mut E, now: Instant) {
    driver.state.counters.send_failed += 1;
    driver.outbox.done(engine, now, 1);
}

impl Opened {
    fn reclaim(&mut self) {
        reclaim(&mut self.rings.completion, &mut self.frames);
    }

    fn kick(&mut self, counters: &mut Counters) -> io::Result<()> {
        kick(&self.socket, &mut self.rings.send, counters)
    }
}

/// Takes frames back that were sent.
pub(super) fn reclaim(completion: &mut Reader<u64>, frames: &mut Frames) {
    let mut any = false;
    while let Some(address) = completion.peek(0) {
        frames.give_back(address);
        completion.take(1);
        any = true;
    }
    if any {
        completion.give_back();
    }
}

/// Calls the kernel as long as it wants to be called and takes frames.
pub(super) fn kick(
    socket: &Socket,
    send: &mut Writer<libc::xdp_desc>,
    counters: &mut Counters,
) -> io::Result<()> {
    let mut before = send.waiting();
    while before > 0 && send.needs_wakeup() {
        counters.send_calls += 1;
        let told = wake(socket.as_raw_fd());
        let waiting = send.waiting();
        match told.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => {}
            // It has taken as many as it takes at once, or the device's queue
            // is full, or memory; or the interface is down, and may come up.
            Err((
                Some(
                    libc::EAGAIN
                    | libc::EINTR
                    | libc::EBUSY
                    | libc::ENOBUFS
                    | libc::ENOMEM
                    | libc::ENETDOWN,
                ),
                _,
            )) => {}
            Err((_, error)) => return Err(error),
        }
        if waiting == before {
            break;
        }
        before = waiting;
    }
    Ok(())
}

fn wake(fd: RawFd) -> io::Result<()> {
    // SAFETY: nothing is handed over: neither bytes nor an address.
    let sent = unsafe { libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
