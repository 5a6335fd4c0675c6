//! Sending: one frame or super-packet a call, gathered from where it lies.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Duration, Engine, Instant, Peer};

use super::address::LinkAddress;
use super::driver::{PacketDriver, Room};
use super::{ETHERNET_HEADER, vnet};

/// So many units leave at once at most, so that receiving gets its turn too.
const MOST_UNITS: u32 = 64;
/// Likewise, for super-packets.
const MOST_BYTES: usize = 512 << 10;
/// How long a full queue is left alone, at first and at most. A frame of 1500
/// bytes takes 12 µs at 1 Gbit/s.
const SHORTEST_WAIT: Duration = Duration::from_micros(20);
const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// Sends what the engine has, until it has nothing, the kernel has no room, or
/// it was enough for once.
pub(super) fn send<E: Engine>(
    driver: &mut PacketDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<u32> {
    if matches!(driver.room, Room::QueueFull { until, .. } if now < until) {
        return Ok(0);
    }
    let (mut sent, mut bytes) = (0, 0);
    while sent < MOST_UNITS && bytes < MOST_BYTES {
        driver.outbox.fill(engine, now, &mut driver.counters, vnet::write);
        let Some(unit) = driver.outbox.front() else {
            driver.room = Room::Enough;
            break;
        };
        let len = unit.len;
        if !send_unit(driver, engine, now)? {
            break;
        }
        bytes += len;
        sent += 1;
    }
    Ok(sent)
}

/// Sends the next unit. Gives whether it is out of our hands.
fn send_unit<E: Engine>(
    driver: &mut PacketDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<bool> {
    let Some(address) = destination(driver) else {
        driver.counters.send_failed += 1;
        driver.outbox.done(engine, now, 1);
        return Ok(true);
    };
    match send_frame(driver.socket.as_raw_fd(), &address, driver.outbox.pieces(1)) {
        Ok(()) => {
            driver.room = Room::Enough;
            driver.counters.send_calls += 1;
            driver.counters.units_sent += 1;
        }
        Err(error) => match Failure::of(error)? {
            Failure::Lost => driver.counters.send_failed += 1,
            Failure::SocketFull => {
                driver.counters.send_blocked += 1;
                driver.room = Room::SocketFull;
                return Ok(false);
            }
            Failure::QueueFull => {
                driver.counters.send_blocked += 1;
                driver.room = driver.room.after_full_queue(now);
                return Ok(false);
            }
        },
    }
    driver.outbox.done(engine, now, 1);
    Ok(true)
}

/// Where the next unit goes. None if that cannot be told.
///
/// Of a whole frame the true ethertype has to be said: the kernel segments by it.
fn destination(driver: &PacketDriver) -> Option<LinkAddress> {
    let index = driver.interface.index;
    let unit = driver.outbox.front()?;
    match (driver.payload_of, unit.to) {
        (None, _) => {
            let head: &[u8; ETHERNET_HEADER] = driver.outbox.front_head().first_chunk()?;
            let ethertype = u16::from_be_bytes([head[12], head[13]]);
            Some(LinkAddress::interface(index, ethertype))
        }
        (Some(ethertype), Peer::Ethernet(station)) => {
            Some(LinkAddress::interface(index, ethertype).to_station(station))
        }
        (Some(_), _) => None,
    }
}

fn send_frame(fd: RawFd, to: &LinkAddress, iovecs: &mut [libc::iovec]) -> io::Result<()> {
    // SAFETY: an all-zero msghdr is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw const to.0).cast_mut().cast();
    header.msg_namelen = LinkAddress::LEN;
    header.msg_iov = iovecs.as_mut_ptr();
    header.msg_iovlen = iovecs.len();
    // SAFETY: the header names an address and a list that live through the
    // call; the kernel reads the address, and the list names heads of the
    // outbox and lent memory that the outbox has pinned.
    let sent = unsafe { libc::sendmsg(fd, &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Room {
    /// Waits for twice as long each time that the queue is still full.
    fn after_full_queue(self, now: Instant) -> Self {
        let waited = match self {
            Self::QueueFull { waited, .. } => waited.saturating_mul(2).min(LONGEST_WAIT),
            Self::Enough | Self::SocketFull => SHORTEST_WAIT,
        };
        Self::QueueFull { until: now + waited, waited }
    }
}

/// What it means that a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The socket buffer has no room.
    SocketFull,
    /// The queue of the interface has none.
    QueueFull,
    /// To the engine the unit is lost on the way.
    Lost,
}

impl Failure {
    fn of(error: io::Error) -> io::Result<Self> {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR) => Ok(Self::SocketFull),
            Some(libc::ENOBUFS) => Ok(Self::QueueFull),
            // Longer than the MTU, or it cannot be segmented: ENOMEM says that too.
            Some(libc::EMSGSIZE | libc::EINVAL | libc::ENOMEM | libc::EIO) => Ok(Self::Lost),
            // An interface that is down may come up again.
            Some(libc::ENETDOWN) => Ok(Self::Lost),
            // It was removed (ENXIO), or whatever else.
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_left_alone_ever_longer_up_to_a_bound() {
        let mut room = Room::Enough;
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            room = room.after_full_queue(Instant::ZERO);
            let Room::QueueFull { until, waited } = room else { panic!("{room:?}") };
            assert_eq!(until.since(Instant::ZERO), waited);
            assert!(waited > last || waited == LONGEST_WAIT);
            last = waited;
        }
        assert_eq!(last, LONGEST_WAIT);
    }

    #[test]
    fn only_a_vanished_interface_breaks_the_path() {
        let of = |number| Failure::of(io::Error::from_raw_os_error(number)).ok();
        assert_eq!(of(libc::EAGAIN), Some(Failure::SocketFull));
        assert_eq!(of(libc::ENOBUFS), Some(Failure::QueueFull));
        assert_eq!(of(libc::EMSGSIZE), Some(Failure::Lost));
        assert_eq!(of(libc::ENETDOWN), Some(Failure::Lost));
        assert_eq!(of(libc::ENXIO), None);
    }
}
