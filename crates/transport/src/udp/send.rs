//! Sending: runs of equal units with one call each, gathered from where they lie.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Engine, Instant, Peer};

use super::driver::UdpDriver;
use super::message::{SendHeader, Sending};
use crate::exchange::{LONGEST_BATCH, MAX_UNITS, RunLimits};
use crate::inet::SendFault;

/// So many units leave in one turn at most, so that receiving gets its turn too.
pub(crate) const UNITS_PER_TURN: u32 = 4 * MAX_UNITS as u32;

/// What one call may send at once.
pub(crate) const fn run_limits(batches: bool) -> RunLimits {
    RunLimits { units: if batches { MAX_UNITS } else { 1 }, bytes: LONGEST_BATCH }
}

/// Sends what the engine has, until it has nothing, the kernel has no room, or
/// it was enough for one turn.
pub(super) fn send<E: Engine>(
    driver: &mut UdpDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<u32> {
    let mut sent = 0;
    driver.blocked = false;
    while sent < UNITS_PER_TURN {
        driver.outbox.fill(engine, now, &mut driver.state.counters, |_, _| {});
        if driver.outbox.is_empty() {
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

/// Sends the next run. Gives the number of units that are out of our hands;
/// zero if the kernel has no room.
fn send_run<E: Engine>(driver: &mut UdpDriver, engine: &mut E, now: Instant) -> io::Result<usize> {
    let count = driver.outbox.next_run(run_limits(driver.batch_send));
    let Some(first) = driver.outbox.front() else { return Ok(0) };
    let unit_len = u16::try_from(first.len).ok().filter(|_| count > 1);
    let (to, ecn) = (first.to, first.ecn);
    let to = match (to, driver.connected) {
        (Peer::Socket(to), None) => Ok(Some(to)),
        (Peer::Socket(to), Some(peer)) if to == peer => Ok(None),
        _ => Err(()),
    };
    let Ok(to) = to else {
        // Nowhere to send it: to the engine it is lost on the way.
        driver.state.counters.send_failed += 1;
        driver.outbox.done(engine, now, 1);
        return Ok(1);
    };
    let sending = Sending { to, unit_len, ecn, ipv6: driver.ipv6 };
    let (fd, pieces) = (driver.socket.as_raw_fd(), driver.outbox.pieces(count));
    // SAFETY: the list names heads of the outbox and lent memory that it has pinned.
    let sent = unsafe { send_message(fd, pieces, &sending) };
    let Err(error) = sent else {
        driver.state.counters.send_calls += 1;
        driver.state.counters.units_sent += count as u64;
        driver.outbox.done(engine, now, count);
        return Ok(count);
    };
    match SendFault::of(&error, count) {
        SendFault::NoRoom => {
            driver.state.counters.send_blocked += 1;
            driver.blocked = true;
            Ok(0)
        }
        SendFault::CannotSegment => {
            // The kernel says the same where the units are too long for the interface: one
            // alone shows which it is.
            driver.batch_send = false;
            let failed = driver.state.counters.send_failed;
            let sent = send_run(driver, engine, now)?;
            let is_lost = driver.state.counters.send_failed > failed;
            match is_lost || sent == 0 {
                true => driver.batch_send = true,
                false => driver.lose_batched_send(&error),
            }
            Ok(sent)
        }
        SendFault::Lost => {
            driver.state.counters.send_failed += count as u64;
            driver.outbox.done(engine, now, count);
            Ok(count)
        }
        SendFault::Broken => Err(error),
    }
}

/// # Safety
/// The pieces may be read until the call is over.
unsafe fn send_message(fd: RawFd, pieces: &mut [libc::iovec], sending: &Sending) -> io::Result<()> {
    let mut header = SendHeader::new();
    let prepared = header.prepare(pieces, sending);
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the caller vouches for what the list names.
    let sent = unsafe { libc::sendmsg(fd, prepared, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
