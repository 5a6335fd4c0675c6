//! What a connection is ready for, and how one sleeps until it is ready for something.
//!
//! Readiness is the kernel's where bytes still go by TCP, and the ring's where they do not;
//! ends and errors are always the kernel's. To sleep is to say what one waits for, to look
//! once more, and to leave the rest to the kernel: what we wait for comes as a ring by TCP.

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP};
use std::sync::atomic::Ordering;

use crate::connection::{CLOSED, Shared};
use crate::kernel;
use crate::ring::ROOM_BY_TCP;
use crate::transfer::{Silence, silence};

const POLLRDNORM: i16 = 0x040;
const POLLWRNORM: i16 = 0x100;
/// What one asks for when one wants to read, or to write.
pub(crate) const READING: i16 = POLLIN | POLLRDNORM;
pub(crate) const WRITING: i16 = POLLOUT | POLLWRNORM;
/// A writer is told of room when so much is free, as TCP does it: not for each byte.
const ROOM_WORTH_TELLING: u64 = crate::segment::CAPACITY / 3;

/// What of the wanted the ring alone says this is ready for: a look at memory, without a
/// call.
pub(crate) fn by_ring(shared: &Shared<'_>, wanted: i16) -> i16 {
    let mut ready = 0;
    if shared.incoming_by_tcp().is_some() && shared.incoming.available() != Ok(0) {
        ready |= READING;
    }
    let has_room = |room| room >= ROOM_WORTH_TELLING;
    if shared.is_sending_switched() && shared.outgoing.room().is_ok_and(has_room) {
        ready |= WRITING;
    }
    ready & wanted
}

/// All that it is ready for now, of what is wanted and of what is always told.
pub(crate) fn now(shared: &Shared<'_>, fd: i32, wanted: i16) -> i16 {
    let asked = wanted | READING | WRITING | POLLRDHUP;
    let Ok(kernel) = kernel::poll_one(fd, asked, 0) else { return POLLNVAL };
    let mut ready = kernel & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP | POLLPRI);
    ready |= reading(shared, fd, kernel);
    ready |= writing(shared, kernel);
    if shared.has_bytes_before_the_end() {
        // An error of TCP, which ended after the bytes that the ring still has.
        ready &= !(POLLERR | POLLHUP);
    }
    ready & (wanted | POLLERR | POLLHUP | POLLNVAL)
}

fn reading(shared: &Shared<'_>, fd: i32, kernel: i16) -> i16 {
    let by_kernel = kernel & READING;
    let own = &shared.receives.receiving;
    let Some(by_tcp) = shared.incoming_by_tcp() else { return by_kernel };
    if own.by_tcp.load(Ordering::Relaxed) < by_tcp {
        return by_kernel;
    }
    let has_bytes = || shared.incoming.available() != Ok(0);
    if has_bytes() || own.has_ended.load(Ordering::Acquire) != 0 {
        return READING;
    }
    if by_kernel == 0 {
        return 0;
    }
    if kernel & (POLLERR | POLLHUP) != 0 {
        return READING;
    }
    match silence(shared, fd) {
        Ok(Silence::Open) if !has_bytes() => 0,
        _ => READING,
    }
}

fn writing(shared: &Shared<'_>, kernel: i16) -> i16 {
    let direction = shared.sends;
    if !shared.is_sending_switched()
        || kernel & (POLLERR | POLLHUP) != 0
        || direction.sending.has_ended.load(Ordering::Acquire) != 0
        || direction.receiving.has_ended.load(Ordering::Acquire) == CLOSED
    {
        return kernel & WRITING;
    }
    match shared.outgoing.room() {
        Ok(room) if room < ROOM_WORTH_TELLING => 0,
        _ => WRITING,
    }
}

/// How to sleep until it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    /// What the kernel is asked for.
    pub(crate) events: i16,
    /// The kernel cannot tell: look again soon.
    pub(crate) is_short: bool,
}

/// Says to the other end what is waited for; `None` if it is there already.
pub(crate) fn prepare(shared: &Shared<'_>, fd: i32, wanted: i16) -> Option<Sleep> {
    let mut sleep = Sleep { events: wanted, is_short: false };
    if wanted & READING != 0 && shared.incoming.wants_to_be_rung() != Ok(false) {
        return None;
    }
    if wanted & WRITING != 0 && shared.is_sending_switched() {
        let _ = shared.outgoing.wants_room(ROOM_BY_TCP);
        if now(shared, fd, wanted) != 0 {
            return None;
        }
        // Of a ring the kernel tells as of something to read.
        sleep.events = (wanted & !WRITING) | READING;
        if wanted & READING == 0 && !takes_rings_away(shared, fd) {
            sleep = Sleep { events: wanted & !WRITING, is_short: true };
        }
    }
    Some(sleep)
}

/// Whether nothing is left in TCP's queue that would wake who waits for room only.
fn takes_rings_away(shared: &Shared<'_>, fd: i32) -> bool {
    let by_tcp = shared.receives.receiving.by_tcp.load(Ordering::Relaxed);
    let sleepers = &shared.receives.receiving.sleepers;
    shared.incoming_by_tcp() == Some(by_tcp)
        && sleepers.load(Ordering::SeqCst) == 0
        && matches!(silence(shared, fd), Ok(Silence::Open))
}
