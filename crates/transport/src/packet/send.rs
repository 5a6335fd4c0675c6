//! Sending: one frame or super-packet a call, or several frames, gathered from
//! where they lie.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Engine, Instant};

use super::address::LinkAddress;
use super::driver::PacketDriver;
use super::message::SendHeader;
use super::room::{Failure, Room};
use super::vnet;

/// So many units leave at once at most, so that receiving gets its turn too.
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
        let count = match &mut driver.several {
            Some(several) => {
                let left = several.send(&driver.outbox, driver.socket.as_raw_fd());
                account(driver, engine, now, left)?
            }
            None => send_unit(driver, engine, now)?,
        };
        if count == 0 {
            break;
        }
        bytes += len * count;
        sent += count as u32;
    }
    Ok(sent)
}

/// Sends the next unit. Gives how many are out of our hands.
fn send_unit<E: Engine>(
    driver: &mut PacketDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<usize> {
    let Some(unit) = driver.outbox.run(0, 1) else { return Ok(0) };
    let to = driver.link.destination(unit.first.to, unit.head);
    let fd = driver.socket.as_raw_fd();
    // SAFETY: the list names heads of the outbox and lent memory that it has pinned.
    let left = to.map(|to| unsafe { send_frame(fd, to, unit.pieces) }.map(|()| 1));
    account(driver, engine, now, left)
}

/// Notes what became of the next units: so many left, or why the first did not;
/// none if nobody knows where to. Gives how many are out of our hands.
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

/// # Safety
/// The pieces may be read until the call is over.
unsafe fn send_frame(fd: RawFd, to: LinkAddress, pieces: &[libc::iovec]) -> io::Result<()> {
    let mut header = SendHeader::new();
    let prepared = header.prepare(pieces, to);
    // SAFETY: the header names an address and a list that live through the
    // call; the caller vouches for what the list names.
    let sent = unsafe { libc::sendmsg(fd, prepared, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
