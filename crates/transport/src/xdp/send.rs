//! Sending: each unit is copied into frames, and the kernel is called once for
//! many of them, if it wants to be.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use landfall_placement::{Engine, Instant};
use socket2::Socket;

use super::ETHERNET_HEADER;
use super::driver::XdpDriver;
use super::frames::Frames;
use super::ring::{Reader, Writer};
use super::socket::Opened;
use crate::counters::Counters;
use crate::exchange::MAX_UNITS;
use crate::packet::Room;

/// So many units leave at once at most, so that receiving gets its turn too.
const UNITS_PER_TURN: u32 = 2 * MAX_UNITS as u32;
/// So many bytes are polled at once.
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

/// Copies the next unit of the outbox into frames and lists them. Gives whether
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
