//! What a connection is ready for, and how one sleeps until it is ready for something.
//!
//! Readiness is the kernel's where bytes still go by TCP, and the ring's where they do not;
//! ends and errors are always the kernel's. To sleep is to say what one waits for, to look
//! once more, and to leave the rest to the kernel: what we wait for comes as a ring by TCP.

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDHUP};
use std::sync::atomic::Ordering;

use crate::connection::{CLOSED, Connection, SegmentView};
use crate::kernel;
use crate::lock::hold_at_once;
use crate::patience::SleepLimit;
use crate::rings::Watch;
use crate::transfer::{TcpStatus, silence};
use crate::wake_pipe::WakePipe;

const ENDS: i16 = POLLERR | POLLHUP | POLLRDHUP;
const POLLRDNORM: i16 = 0x040;
const POLLWRNORM: i16 = 0x100;
/// What one asks for when one wants to read, or to write.
pub(crate) const READING: i16 = POLLIN | POLLRDNORM;
pub(crate) const WRITING: i16 = POLLOUT | POLLWRNORM;

/// What of the wanted the ring alone says this is ready for: a look at memory, without a
/// call.
pub(crate) fn by_ring(shared: &SegmentView<'_>, wanted: i16) -> i16 {
    let mut ready = 0;
    if shared.incoming_by_tcp().is_some() && shared.incoming.available() != Ok(0) {
        ready |= READING;
    }
    if shared.knows_of_a_carried_end() {
        ready |= READING;
    }
    if shared.is_sending_switched() && shared.outgoing.has_room_worth_telling() == Ok(true) {
        ready |= WRITING;
    }
    ready & wanted
}

/// After this many answers of memory in a row the kernel is asked, which knows of a peer that
/// was killed.
const ANSWERS_BY_MEMORY: u32 = 64;

/// All that it is ready for now, of what is wanted and of what is always told. Memory alone
/// answers where there is something to tell and it knows of no end: of one that it does not
/// know is told once there is nothing else, or a little later.
pub(crate) fn now(connection: &Connection, shared: &SegmentView<'_>, fd: i32, wanted: i16) -> i16 {
    let ready = by_ring(shared, wanted);
    let answers = connection.answers_by_memory.load(Ordering::Relaxed);
    let is_known = (wanted & READING == 0 || shared.is_done_with_tcp())
        && (wanted & WRITING == 0 || shared.is_sending_switched());
    let is_asked = ready == 0
        || !is_known
        || wanted & POLLPRI != 0
        || shared.knows_of_an_end()
        || answers >= ANSWERS_BY_MEMORY;
    if is_asked {
        connection.answers_by_memory.store(0, Ordering::Relaxed);
        return by_kernel(shared, fd, wanted);
    }
    connection.answers_by_memory.store(answers + 1, Ordering::Relaxed);
    ready
}

/// The same, and the kernel is asked.
pub(crate) fn by_kernel(shared: &SegmentView<'_>, fd: i32, wanted: i16) -> i16 {
    let asked = wanted | READING | WRITING | POLLRDHUP;
    let is_broken = shared.is_broken(fd);
    let Ok(mut kernel) = kernel::poll_one(fd, asked, 0) else { return POLLNVAL };
    if is_broken {
        // As of any reset; of one's own TCP says less.
        kernel |= POLLRDHUP;
    }
    if kernel & POLLRDHUP != 0 {
        shared.has_ended_by_tcp();
    }
    if kernel & ENDS != 0 && shared.lacks_carried_end() {
        // Of an end that has overtaken bytes nothing is told yet.
        shared.await_carried_end(fd);
        kernel &= !ENDS;
        if kernel::queued(fd, libc::FIONREAD) == Ok(0) {
            kernel &= !READING;
        }
    }
    let mut ready = kernel & (POLLERR | POLLHUP | POLLNVAL | POLLRDHUP | POLLPRI);
    ready |= reading(shared, fd, kernel);
    ready |= writing(shared, fd, kernel);
    if shared.has_bytes_before_the_end() {
        // An error of TCP, which ended after the bytes that the ring still has.
        ready &= !(POLLERR | POLLHUP);
    }
    ready & (wanted | POLLERR | POLLHUP | POLLNVAL)
}

fn reading(shared: &SegmentView<'_>, fd: i32, kernel: i16) -> i16 {
    let by_kernel = kernel & READING;
    let own = &shared.receives.receiving;
    let Some(by_tcp) = shared.incoming_by_tcp() else { return by_kernel };
    if own.by_tcp.load(Ordering::Relaxed) < by_tcp {
        return by_kernel;
    }
    let has_bytes = || shared.incoming.available() != Ok(0);
    let is_over = || own.has_ended.load(Ordering::Acquire) != 0 || shared.knows_of_a_carried_end();
    if has_bytes() || is_over() {
        return READING;
    }
    if by_kernel == 0 {
        return 0;
    }
    if kernel & (POLLERR | POLLHUP) != 0 {
        return READING;
    }
    let held = hold_at_once(&shared.own.receiving.lock);
    match silence(shared, fd, held.as_ref()) {
        Ok(TcpStatus::Open) if !has_bytes() => 0,
        _ => READING,
    }
}

fn writing(shared: &SegmentView<'_>, fd: i32, kernel: i16) -> i16 {
    let direction = shared.sends;
    if !shared.is_sending_switched()
        || kernel & (POLLERR | POLLHUP) != 0
        || direction.sending.has_ended.load(Ordering::Acquire) != 0
        || direction.receiving.has_ended.load(Ordering::Acquire) == CLOSED
    {
        return kernel & WRITING;
    }
    match shared.outgoing.has_room_worth_telling() {
        Ok(false) => {
            // From one who is gone no room comes, but the kernel's word that he is.
            if shared.is_doubtful() {
                let _ = kernel::ring(fd);
            }
            0
        }
        _ => WRITING,
    }
}

/// How to sleep until it is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// What the kernel is asked for.
    pub(crate) events: i16,
    /// How long the kernel can be left to it.
    pub(crate) sleep_limit: SleepLimit,
    pub(crate) watch: Watch,
}

/// Says to the other end what is waited for, and by which pipe one is woken; `None` if it is there
/// already. Who slept stops watching.
pub(crate) fn prepare(
    connection: &Connection,
    shared: &SegmentView<'_>,
    fd: i32,
    wanted: i16,
    pipe: Option<&WakePipe>,
) -> Option<Sleep> {
    if shared.between.is_some() {
        connection.looks_for_the_other(shared, fd);
    }
    let (reads, writes) = (wanted & READING != 0, wanted & WRITING != 0);
    let waits_for_room = writes && shared.is_sending_switched();
    // What lies in TCP's queue would wake who waits for room only, again and again.
    let is_short =
        waits_for_room && (needs_looks_for_room(shared) || !reads && !takes_rings_away(shared, fd));
    let watch = shared.watches(fd, reads, waits_for_room, pipe);
    let mut sleep_limit = if is_short { SleepLimit::SHORT } else { watch.sleep_limit };
    if (reads || !is_short) && shared.keeps_a_ring_for_another(fd) {
        sleep_limit = SleepLimit::BLIND;
    }
    let mut sleep =
        Sleep { events: wanted, sleep_limit: sleep_limit.and(shared.sleep_limit(fd)), watch };
    if waits_for_room {
        // Of a ring the kernel tells as of something to read.
        sleep.events &= !WRITING;
        if !is_short {
            sleep.events |= READING;
        }
    }
    let note_change = || shared.incoming.available() != Ok(0) || shared.knows_of_a_carried_end();
    let is_there = reads && note_change() || waits_for_room && by_kernel(shared, fd, wanted) != 0;
    if is_there {
        shared.stops_watching(fd, watch);
        return None;
    }
    Some(sleep)
}

/// Whether who waits for room has to look for it now and then: an end that has never sent
/// cannot ring, and neither can a carrier that has not been told how. The former makes itself
/// able to when it sees that somebody waits. And where bytes of the program's lie in TCP's queue
/// yet, a ring may find no place behind them.
pub(crate) fn needs_looks_for_room(shared: &SegmentView<'_>) -> bool {
    shared.between.map_or(!shared.is_done_with_tcp(), |_| !shared.is_woken_by_carrier())
}

/// Whether nothing is left in TCP's queue that would wake who waits for room only.
fn takes_rings_away(shared: &SegmentView<'_>, fd: i32) -> bool {
    let Some(held) = hold_at_once(&shared.own.receiving.lock) else { return false };
    shared.is_done_with_tcp()
        && !shared.somebody_may_need_a_ring(fd)
        && matches!(silence(shared, fd, Some(&held)), Ok(TcpStatus::Open))
}
