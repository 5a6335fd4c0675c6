//! Sending: many units a call, each gathered from where it lies.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use landfall_placement::{Engine, Instant, Peer};

use super::driver::RawIpDriver;
use crate::exchange::MAX_UNITS;
use crate::inet::SendFault;

/// So many units leave in one turn at most, so that receiving gets its turn too.
const UNITS_PER_TURN: u32 = 4 * MAX_UNITS as u32;
/// So many bytes are listed for one call.
pub(super) const BATCH_BYTES: usize = 512 << 10;

/// Sends what the engine has, until it has nothing, the kernel has no room, or
/// it was enough for one turn.
pub(super) fn send<E: Engine>(
    driver: &mut RawIpDriver,
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
        let count = send_some(driver, engine, now)?;
        if count == 0 {
            break;
        }
        sent += count as u32;
    }
    Ok(sent)
}

/// Sends the next units. Gives how many are out of our hands; zero if the
/// kernel has no room.
fn send_some<E: Engine>(
    driver: &mut RawIpDriver,
    engine: &mut E,
    now: Instant,
) -> io::Result<usize> {
    list(driver);
    if driver.sending.is_empty() {
        // Nowhere to send the first: to the engine it is lost on the way.
        return Ok(lose(driver, engine, now));
    }
    // SAFETY: the pieces are the outbox's, which is not touched until the call
    // is over, and has pinned the memory that they name.
    let left = unsafe { driver.sending.send(driver.socket.as_raw_fd()) };
    let error = match left {
        Ok(count) => {
            driver.state.counters.send_calls += 1;
            driver.state.counters.units_sent += count as u64;
            driver.outbox.done(engine, now, count);
            return Ok(count);
        }
        Err(error) => error,
    };
    match SendFault::of(&error, 1) {
        SendFault::NoRoom => {
            driver.state.counters.send_blocked += 1;
            driver.blocked = true;
            Ok(0)
        }
        SendFault::Lost => {
            let to = driver.outbox.front().and_then(|unit| address(unit.to));
            if let Some(to) = to.filter(|_| error.raw_os_error() == Some(libc::EMSGSIZE)) {
                driver.look_at_mtu(engine, now, to);
            }
            Ok(lose(driver, engine, now))
        }
        SendFault::CannotSegment | SendFault::Broken => Err(error),
    }
}

/// Lists those of the next units that have somewhere to go, in order, for one call.
fn list(driver: &mut RawIpDriver) {
    let most = if driver.batch { MAX_UNITS } else { 1 };
    driver.sending.start_sending();
    for (unit, pieces) in driver.outbox.each().take(most) {
        let to = match (address(unit.to), driver.connected) {
            (Some(to), None) if to.is_ipv6() == driver.ipv6 => Some(to),
            (Some(to), Some(peer)) if to == peer => None,
            _ => return,
        };
        if !driver.sending.add(pieces, (to, unit.ecn), driver.ipv6) {
            return;
        }
    }
}

fn address(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Ip(address) => Some(address),
        _ => None,
    }
}

/// To the engine the next unit is lost on the way.
fn lose<E: Engine>(driver: &mut RawIpDriver, engine: &mut E, now: Instant) -> usize {
    driver.state.counters.send_failed += 1;
    driver.outbox.done(engine, now, 1);
    1
}
