//! Sending: runs of equal units with one call each, gathered from where they lie.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use landfall_placement::{Ecn, Engine, Instant, Peer};

use super::address::RawAddress;
use super::control::Control;
use super::driver::UdpDriver;
use crate::exchange::{MAX_UNITS, RunLimits};

/// A longer batch falls apart into single datagrams.
const LONGEST_BATCH: usize = 65_472;
/// So many units leave in one turn at most, so that receiving gets its turn too.
const UNITS_PER_TURN: u32 = 4 * MAX_UNITS as u32;

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
        driver.outbox.fill(engine, now, &mut driver.counters, |_, _| {});
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
    let units = if driver.batch_send { MAX_UNITS } else { 1 };
    let count = driver.outbox.next_run(RunLimits { units, bytes: LONGEST_BATCH });
    let Some(first) = driver.outbox.front() else { return Ok(0) };
    let unit_len = u16::try_from(first.len).ok().filter(|_| count > 1);
    let (to, ecn) = (first.to, first.ecn);
    let Peer::Socket(address) = to else {
        // Nowhere to send it: to the engine it is lost on the way.
        driver.counters.send_failed += 1;
        driver.outbox.done(engine, now, 1);
        return Ok(1);
    };
    let (address, address_len) = RawAddress::new(address, driver.ipv6);
    let message = Outgoing { address, address_len, unit_len, ecn, ipv6: driver.ipv6 };
    match send_message(driver.socket.as_raw_fd(), driver.outbox.pieces(count), message) {
        Ok(()) => {
            driver.counters.send_calls += 1;
            driver.counters.units_sent += count as u64;
            driver.outbox.done(engine, now, count);
            Ok(count)
        }
        Err(error) if has_no_room(&error) => {
            driver.counters.send_blocked += 1;
            driver.blocked = true;
            Ok(0)
        }
        Err(error) if count > 1 && cannot_segment(&error) => {
            driver.lose_batched_send(&error);
            send_run(driver, engine, now)
        }
        Err(error) if is_passing(&error) || is_refusal(&error) => {
            driver.counters.send_failed += count as u64;
            driver.outbox.done(engine, now, count);
            Ok(count)
        }
        Err(error) => Err(error),
    }
}

struct Outgoing {
    address: RawAddress,
    address_len: libc::socklen_t,
    unit_len: Option<u16>,
    ecn: Ecn,
    ipv6: bool,
}

fn send_message(fd: RawFd, iovecs: &mut [libc::iovec], mut message: Outgoing) -> io::Result<()> {
    let mut control = Control::empty();
    // SAFETY: an all-zero msghdr is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut message.address).cast();
    header.msg_namelen = message.address_len;
    header.msg_iov = iovecs.as_mut_ptr();
    header.msg_iovlen = iovecs.len();
    header.msg_controllen = control.for_send(message.unit_len, message.ecn, message.ipv6);
    if header.msg_controllen > 0 {
        header.msg_control = control.as_mut_ptr();
    }
    // SAFETY: the header names an address, a control buffer and a list that
    // live through the call; the list names heads of the outbox and lent
    // memory that the outbox has pinned.
    let sent = unsafe { libc::sendmsg(fd, &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The socket buffer or the device's queue is full: later there will be room.
fn has_no_room(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENOMEM))
}

/// The device on the route cannot segment (EIO), or this kernel does not (EINVAL, ENOPROTOOPT).
fn cannot_segment(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::ENOPROTOOPT))
}

/// The network reports what became of something sent earlier, or of this: lost.
pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
        )
    )
}

/// This unit cannot be sent: too long, forbidden, or to an impossible address.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EMSGSIZE
                | libc::EACCES
                | libc::EPERM
                | libc::EINVAL
                | libc::EADDRNOTAVAIL
                | libc::EAFNOSUPPORT
                | libc::EDESTADDRREQ
                | libc::EIO
        )
    )
}
