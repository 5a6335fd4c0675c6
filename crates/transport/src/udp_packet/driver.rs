//! [`UdpPacketDriver`]: the receiving half of the UDP driver behind headers that are read
//! here, and an outbox whose runs leave behind a header that is written here.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::{fmt, io};

use landfall_placement::{Ecn, Engine, Instant, PathId, Peer};
use socket2::Socket;

use super::UdpPacketConfig;
use super::frame::{Datagrams, Framing};
use super::neighbours::Neighbours;
use super::socket::{self, Opened, is_reachable};
use crate::OpenError;
use crate::driver::{Descriptors, Driver, DriverState, Progress, take_turn};
use crate::exchange::{HEAD_ROOM, IoVecs, Outbox, PREFIX_ROOM, Pace};
use crate::inet::SendFault;
use crate::memory::{Pins, Regions};
use crate::packet::{
    Failure, LinkAddress, Received, Room, interface_exists, receive_frame, send_frame,
};
use crate::udp::{Message, Receiver, Sending, UNITS_PER_TURN, run_limits, send_message};

/// Runs any engine over UDP, by a packet socket on one interface.
pub struct UdpPacketDriver {
    state: DriverState,
    packets: Socket,
    /// Holds the port, and carries what this driver knows no station for.
    kernel: Socket,
    framing: Framing,
    neighbours: Neighbours,
    receiver: Receiver,
    pace: Pace,
    outbox: Outbox,
    /// The pieces of one call.
    pieces: IoVecs,
    room: Room,
    by_kernel: u64,
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
        let Opened { packets, kernel, framing, neighbours, limits, capabilities } =
            socket::open(config, "udp-packet")?;
        let prefix_len = framing.prefix_len();
        Ok(Self {
            state: DriverState::new(path, limits, capabilities, regions),
            packets,
            kernel,
            framing,
            neighbours,
            receiver: Receiver::behind(prefix_len, path, regions, true, config.udp.peek),
            pace: Pace::default(),
            outbox: Outbox::new(path, limits, Pins::new(regions), 0),
            pieces: IoVecs::default(),
            room: Room::Enough,
            by_kernel: 0,
        })
    }

    /// Where peers reach this path.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.framing.local
    }

    /// How many of the sending calls were the kernel's, which resolved or confirmed the
    /// peer's station with them.
    #[must_use]
    pub const fn sent_by_kernel(&self) -> u64 {
        self.by_kernel
    }

    /// Receives what came, frame by frame. Gives the number of units.
    fn receive<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let mut units = 0;
        self.pace.start_turn();
        while self.pace.wants_more() {
            units += self.receive_datagrams(engine, now)?;
        }
        Ok(units)
    }

    /// Receives the datagrams of one frame. Gives their number.
    fn receive_datagrams<E: Engine>(&mut self, engine: &mut E, now: Instant) -> io::Result<u32> {
        let Self { receiver, packets, framing, pace, state, .. } = self;
        let (fd, counters) = (packets.as_raw_fd(), &mut state.counters);
        let peeked = receiver.look(engine, now, counters, |head| peek(packets, framing, head))?;
        let pieces = receiver.post(engine, peeked.as_ref());
        // SAFETY: the receiver posts scratch memory of its own and lent memory that it has
        // pinned until `settle`.
        let received = unsafe { receive_frame(fd, pieces, 0)? };
        let (message, refused) = match &received {
            Received::Nothing => (None, None),
            Received::Unreadable => (None, Some(&mut counters.malformed)),
            Received::Frame(frame) => match framing.read(frame, receiver.prefix()) {
                None => (None, Some(&mut counters.malformed)),
                Some(datagrams) => {
                    let (is_right, summed) = check(receiver, &datagrams);
                    counters.bytes_summed += summed;
                    match is_right {
                        true => (Some(datagrams.message), None),
                        false => (None, Some(&mut counters.corrupt)),
                    }
                }
            },
        };
        let is_refused = refused.is_some();
        if let Some(counter) = refused {
            *counter += 1;
        }
        pace.note(match (&message, is_refused) {
            (Some(message), _) => Some(message.len),
            (None, true) => Some(0),
            (None, false) => None,
        });
        Ok(receiver.settle(engine, now, counters, (message, peeked)))
    }
}

/// Is the checksum right, where nobody has looked? And how many bytes were summed for it.
fn check(receiver: &mut Receiver, datagrams: &Datagrams) -> (bool, u64) {
    let (Some(mut sum), len) = (datagrams.unchecked, datagrams.message.len) else {
        return (true, 0);
    };
    let is_right = receiver.sum(len).is_some_and(|payload| {
        sum.append(payload);
        sum.sum() == 0xffff
    });
    (is_right, len as u64)
}

/// Looks at the first frame in the socket, which stays there.
fn peek(
    packets: &Socket,
    framing: &Framing,
    head: &mut [u8; HEAD_ROOM],
) -> io::Result<Option<Message>> {
    let mut prefix = [0; PREFIX_ROOM];
    let mut pieces = IoVecs::with_capacity(2);
    pieces.push_slice(&mut prefix[..framing.prefix_len()]);
    pieces.push_slice(head);
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: the pieces are `prefix` and `head`.
    match unsafe { receive_frame(packets.as_raw_fd(), pieces.as_mut_slice(), flags)? } {
        Received::Frame(frame) => {
            // It is truncated on purpose.
            let whole = crate::packet::Frame { truncated: false, ..frame };
            Ok(framing.read(&whole, &prefix).map(|datagrams| datagrams.message))
        }
        Received::Nothing | Received::Unreadable => Ok(None),
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
        [self.packets.as_fd()].into_iter().collect()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.room.until()
    }
}

impl fmt::Debug for UdpPacketDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpPacketDriver")
            .field("path", &self.state.path)
            .field("framing", &self.framing)
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

/// What became of a call.
enum Sent {
    Yes,
    /// To the engine the units are lost on the way.
    Lost,
    /// There was no room: what comes next.
    NoRoom(Room),
}

/// Sends the next run. Gives the number of units that are out of our hands; zero if the
/// kernel has no room.
fn send_run<E: Engine>(
    driver: &mut UdpPacketDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<usize> {
    let count = driver.outbox.next_run(run_limits(true));
    let Some(first) = driver.outbox.front() else { return Ok(0) };
    let unit_len = u16::try_from(first.len).ok().filter(|_| count > 1);
    let ecn = first.ecn;
    let sent = match first.to {
        Peer::Socket(to) if is_reachable(driver.framing.local, to) => {
            match driver.neighbours.station_of(to.ip(), now) {
                Some(station) => send_frames(driver, now, count, (station, to), (unit_len, ecn))?,
                None => send_by_kernel(driver, now, count, to, (unit_len, ecn))?,
            }
        }
        _ => Sent::Lost,
    };
    let counters = &mut driver.state.counters;
    match sent {
        Sent::Yes => {
            driver.room = Room::Enough;
            counters.send_calls += 1;
            counters.units_sent += count as u64;
        }
        Sent::Lost => counters.send_failed += count as u64,
        Sent::NoRoom(room) => {
            driver.room = room;
            counters.send_blocked += 1;
            return Ok(0);
        }
    }
    driver.outbox.done(engine, now, count);
    Ok(count)
}

/// The next units, behind one header.
fn send_frames(
    driver: &mut UdpPacketDriver,
    now: Instant,
    count: usize,
    to: ([u8; 6], SocketAddr),
    (unit_len, ecn): (Option<u16>, Ecn),
) -> io::Result<Sent> {
    let UdpPacketDriver { framing, outbox, pieces, packets, room, .. } = driver;
    let units = outbox.pieces(count);
    let len = units.iter().map(|piece| piece.iov_len).sum();
    let mut header = [0; PREFIX_ROOM];
    let Some(header_len) = framing.write(&mut header, to, (len, unit_len), ecn) else {
        return Ok(Sent::Lost);
    };
    pieces.clear();
    pieces.push_slice(&mut header[..header_len]);
    pieces.extend(units);
    let interface = LinkAddress::interface(framing.link.interface.index, framing.ethertype());
    // SAFETY: the list names the header, which lives through the call, heads of the outbox
    // and lent memory that it has pinned.
    let sent = unsafe { send_frame(packets.as_raw_fd(), interface, pieces.as_slice()) };
    let Err(error) = sent else { return Ok(Sent::Yes) };
    match Failure::of(&error) {
        Failure::SocketFull => Ok(Sent::NoRoom(Room::SocketFull)),
        Failure::QueueFull => Ok(Sent::NoRoom(room.after_full_queue(now))),
        Failure::Lost => Ok(Sent::Lost),
        Failure::Broken => Err(error),
    }
}

/// The next units, by the kernel's socket.
fn send_by_kernel(
    driver: &mut UdpPacketDriver,
    now: Instant,
    count: usize,
    to: SocketAddr,
    (unit_len, ecn): (Option<u16>, Ecn),
) -> io::Result<Sent> {
    let sending = Sending { to: Some(to), unit_len, ecn, ipv6: to.is_ipv6() };
    let (fd, pieces) = (driver.kernel.as_raw_fd(), driver.outbox.pieces(count));
    // SAFETY: the list names heads of the outbox and lent memory that it has pinned.
    let sent = unsafe { send_message(fd, pieces, &sending) };
    driver.by_kernel += 1;
    let Err(error) = sent else { return Ok(Sent::Yes) };
    match SendFault::of(&error, count) {
        SendFault::NoRoom => Ok(Sent::NoRoom(driver.room.after_full_queue(now))),
        SendFault::CannotSegment | SendFault::Lost => {
            // There may be no route because there is no interface any more.
            interface_exists(fd, driver.framing.link.interface.index)?;
            Ok(Sent::Lost)
        }
        SendFault::Broken => Err(error),
    }
}
