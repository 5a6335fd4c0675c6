//! Sending and receiving: what `send` and `recv` do on a connection that may be shared.
//!
//! Everything that waits for bytes waits in the kernel, on the TCP connection: so
//! time-outs, signals, cancellation and a peer that is killed are the kernel's, as ever.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use landfall_socket_wakes::certain_by_tcp;

use crate::connection::{CLOSED, Call, Connection, SegmentView, Sending};
use crate::kernel::{self, Errno, Outcome, Part};
use crate::lock::{LockGuard, hold_for_call};
use crate::messages;
use crate::process;
use crate::ring::{Malformed, ROOM_BY_MEMORY, ReceiveMode};

/// The other end wrote nonsense: to the program it is as if it had died.
const SPOILT: Errno = Errno(libc::ECONNRESET);
/// A sender without room looks now and then whether there is still somebody.
const ROOM_PATIENCE_MS: u32 = 50;

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Self {
        SPOILT
    }
}

/// How many bytes the parts have together.
pub(crate) fn total(parts: &[Part]) -> usize {
    parts.iter().map(|part| part.len).fold(0, usize::saturating_add)
}

/// Sends the parts of one call.
///
/// # Safety
///
/// `parts` may be read.
pub(crate) unsafe fn send(connection: &Connection, fd: i32, parts: &[Part], flags: i32) -> Outcome {
    // SAFETY: as promised.
    let by_tcp = || unsafe { kernel::send(fd, parts, flags) };
    if let Some(socket) = connection.messages() {
        // SAFETY: as promised.
        return unsafe { messages::send(socket, fd, parts, flags) };
    }
    if flags & libc::MSG_OOB != 0 && connection.shared().is_some() {
        return by_tcp();
    }
    let shared = match connection.sends(fd, total(parts), by_tcp) {
        Sending::ByTcp(sent) => return sent,
        Sending::ByMemory(shared) => shared,
    };
    // SAFETY: as promised.
    unsafe { send_by_ring(connection, &shared, fd, parts, flags) }
}

/// # Safety
///
/// `parts` may be read.
unsafe fn send_by_ring(
    connection: &Connection,
    shared: &SegmentView<'_>,
    fd: i32,
    parts: &[Part],
    flags: i32,
) -> Outcome {
    let wanted = total(parts);
    let mut done = 0;
    loop {
        if let Some(result) = refused(shared, fd, parts, flags) {
            return if done > 0 { Ok(done) } else { result };
        }
        if shared.is_doubtful()
            && let Err(why) = send_a_byte(fd, flags | libc::MSG_DONTWAIT)
            && why != Errno(libc::EAGAIN)
        {
            return if done > 0 { Ok(done) } else { Err(why) };
        }
        // SAFETY: as promised.
        let put = match unsafe { put(shared, fd, &rest(parts, done), flags) } {
            Err(why) if done == 0 => return Err(why),
            put => put.unwrap_or(0),
        };
        if put > 0 {
            shared.ring_if_wanted(fd);
            done += put;
        }
        if done == wanted {
            return Ok(done);
        }
        connection.was_full.fetch_add(1, Ordering::AcqRel);
        if flags & libc::MSG_DONTWAIT != 0 || !shared.waits(fd) {
            if done > 0 {
                return Ok(done);
            }
            if is_gone(shared, fd)? {
                continue;
            }
            return Err(Errno(libc::EAGAIN));
        }
        if let Err(why) = wait_for_room(connection, shared, fd) {
            return if done > 0 { Ok(done) } else { Err(why) };
        }
    }
}

/// Puts in what there is room for.
///
/// # Safety
///
/// `parts` may be read.
unsafe fn put(shared: &SegmentView<'_>, fd: i32, parts: &[Part], flags: i32) -> Outcome {
    let may_wait = || flags & libc::MSG_DONTWAIT == 0 && shared.waits(fd);
    let _held = hold_for_call(&shared.own.sending.lock, may_wait)?;
    // SAFETY: as promised.
    Ok(unsafe { shared.outgoing.put(parts) }?)
}

/// What a call gives where nothing can be sent any more; `None` where it can.
fn refused(shared: &SegmentView<'_>, fd: i32, parts: &[Part], flags: i32) -> Option<Outcome> {
    let _ = shared.is_broken(fd);
    let (own, other) = (&shared.sends.sending.has_ended, &shared.sends.receiving.has_ended);
    if own.load(Ordering::Acquire) == 0 && other.load(Ordering::Acquire) != CLOSED {
        return None;
    }
    // The kernel knows what to say and which signal goes with it. A peer that has just
    // closed is told by a byte that it will refuse; what goes with that byte is lost, as
    // it would be on its way.
    Some(send_a_byte(fd, flags).map(|_| total(parts)))
}

/// What the kernel says to a byte by TCP, with the signal that goes with it.
fn send_a_byte(fd: i32, flags: i32) -> Outcome {
    let byte = [0_u8; 1];
    let part = Part { base: byte.as_ptr().cast_mut(), len: 1 };
    // SAFETY: one byte of ours.
    unsafe { kernel::send(fd, &[part], flags) }
}

/// Sleeps until the other end has taken something, or nothing can be sent any more.
fn wait_for_room(connection: &Connection, shared: &SegmentView<'_>, fd: i32) -> Result<(), Errno> {
    let begin = Instant::now();
    if connection.for_room.look_for(None, || shared.outgoing.room() != Ok(0)) {
        return shared.outgoing.room().map(|_| ()).map_err(Errno::from);
    }
    let limit = time_limit(fd, libc::SO_SNDTIMEO);
    loop {
        let word = shared.outgoing.word_of_room();
        let seen = shared.outgoing.room_seen();
        if shared.outgoing.wants_room(ROOM_BY_MEMORY)? {
            return Ok(());
        }
        match kernel::sleep_on(word, seen, ROOM_PATIENCE_MS) {
            Err(Errno(libc::EINTR)) if !crate::signals::all_restart() => {
                return Err(Errno(libc::EINTR));
            }
            _ => {}
        }
        let _ = shared.sleep_limit(fd);
        if is_gone(shared, fd)? || shared.is_broken(fd) || shared.outgoing.room()? > 0 {
            return Ok(());
        }
        if limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return Err(Errno(libc::EAGAIN));
        }
    }
}

/// Whether nobody is there who would take what the ring is full of. A killed end is marked,
/// so that sending ends.
fn is_gone(shared: &SegmentView<'_>, fd: i32) -> Result<bool, Errno> {
    let events = kernel::poll_one(fd, libc::POLLRDHUP, 0)?;
    if events & libc::POLLRDHUP != 0 {
        shared.has_ended_by_tcp();
    }
    if shared.is_doubtful() {
        let _ = kernel::ring(fd);
    }
    let is_gone = events & (libc::POLLERR | libc::POLLHUP) != 0;
    if is_gone {
        shared.sends.receiving.has_ended.store(CLOSED, Ordering::Release);
    }
    Ok(is_gone)
}

/// The time-out that the program set for its sends; `None` for ever.
pub(crate) fn time_limit(fd: i32, name: i32) -> Option<Duration> {
    let time = kernel::time_option(fd, name).ok()?;
    let limit = Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_usec).unwrap_or(0) * 1000,
    );
    (limit != Duration::ZERO).then_some(limit)
}

/// What is left of the parts after this many bytes. More than sixteen are taken in turns.
fn rest(parts: &[Part], mut done: usize) -> PartList {
    let mut few = PartList { parts: [Part { base: std::ptr::null_mut(), len: 0 }; 16], len: 0 };
    for part in parts {
        let skip = part.len.min(done);
        done -= skip;
        if skip == part.len {
            continue;
        }
        if few.len == few.parts.len() {
            break;
        }
        // SAFETY: inside of the part.
        few.parts[few.len] = Part { base: unsafe { part.base.add(skip) }, len: part.len - skip };
        few.len += 1;
    }
    few
}

/// Some parts, without the allocator.
struct PartList {
    parts: [Part; 16],
    len: usize,
}

impl PartList {
    /// Cuts them to this many bytes.
    fn first(mut self, most: usize) -> Self {
        let mut left = most;
        for part in &mut self.parts[..self.len] {
            part.len = part.len.min(left);
            left -= part.len;
        }
        self
    }
}

impl std::ops::Deref for PartList {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        &self.parts[..self.len]
    }
}

/// Receives into the parts of one call.
///
/// # Safety
///
/// `parts` may be written.
pub(crate) unsafe fn receive(
    connection: &Connection,
    fd: i32,
    parts: &[Part],
    flags: i32,
) -> Outcome {
    if flags & libc::MSG_OOB != 0 {
        // SAFETY: as promised.
        return unsafe { kernel::receive_parts(fd, parts, flags) };
    }
    if let Some(socket) = connection.messages() {
        // SAFETY: as promised.
        return unsafe { messages::receive(socket, fd, parts, flags) };
    }
    let all = flags & libc::MSG_WAITALL != 0 && flags & libc::MSG_PEEK == 0;
    let flags = flags & !libc::MSG_WAITALL;
    let mut done = 0;
    loop {
        let left = rest(parts, done);
        let got = match connection.shared() {
            // SAFETY: as promised.
            None => match unsafe { receive_early(connection, fd, &left, flags) } {
                Some(got) => got,
                None => continue,
            },
            // SAFETY: as promised.
            Some(shared) => unsafe { receive_shared(connection, &shared, fd, &left, flags) },
        };
        match got {
            Ok(bytes) => {
                done += bytes;
                if bytes == 0 || !all || done == total(parts) {
                    return Ok(done);
                }
            }
            Err(why) => return if done > 0 { Ok(done) } else { Err(why) },
        }
    }
}

/// Receives by TCP; `None` if there is memory now.
///
/// # Safety
///
/// `parts` may be written.
unsafe fn receive_early(
    connection: &Connection,
    fd: i32,
    parts: &[Part],
    flags: i32,
) -> Option<Outcome> {
    if !connection.is_early() {
        // SAFETY: as promised.
        return connection.plain_receive(|| unsafe { kernel::receive_parts(fd, parts, flags) });
    }
    let peeks = flags & libc::MSG_PEEK != 0;
    if !peeks && process::has_one_thread() {
        // Nobody else is here who could change the way while this waits.
        // SAFETY: as promised.
        return connection.early_receive(fd, || unsafe { kernel::receive_parts(fd, parts, flags) });
    }
    loop {
        // SAFETY: as promised.
        let at_once = || unsafe { kernel::receive_parts(fd, parts, flags | libc::MSG_DONTWAIT) };
        let got = if peeks { at_once() } else { connection.early_receive(fd, at_once)? };
        let may_wait = || flags & libc::MSG_DONTWAIT == 0 && connection.waits_early(fd);
        if got != Err(Errno(libc::EAGAIN)) || !may_wait() {
            return Some(got);
        }
        // Nothing is taken while this thread waits: what comes may be a ring.
        if let Err(why) = kernel::glance(fd, libc::MSG_PEEK) {
            return Some(Err(why));
        }
        if connection.shared().is_some() {
            return None;
        }
    }
}

/// # Safety
///
/// `parts` may be written.
unsafe fn receive_shared(
    connection: &Connection,
    shared: &SegmentView<'_>,
    fd: i32,
    parts: &[Part],
    flags: i32,
) -> Outcome {
    let begin = shared.between.map(|_| Instant::now());
    connection.waits_for_an_answer(shared, fd, Call::Receives);
    let may_wait = || flags & libc::MSG_DONTWAIT == 0 && shared.waits(fd);
    let mut by_memory = true;
    loop {
        if begin.is_some() {
            connection.looks_for_the_other(shared, fd);
        }
        if looks_empty(shared) && may_wait() {
            // Whether it has ended is asked after that: nothing else needs the kernel here.
            let has_come = || !looks_empty(shared);
            connection.for_bytes.look_for(None, has_come);
        }
        // SAFETY: as promised.
        match unsafe { receive_now(shared, fd, parts, flags) }? {
            ReceiveOutcome::Bytes(bytes) => return Ok(bytes),
            ReceiveOutcome::End => return Ok(0),
            ReceiveOutcome::Nothing => {}
        }
        if !may_wait() {
            return Err(Errno(libc::EAGAIN));
        }
        match begin {
            None => by_memory = wait_for_bytes(shared, fd, by_memory)?,
            Some(begin) => wait_for_carried_bytes(shared, fd, begin)?,
        }
    }
}

/// The same where the kernel does not wake for bytes: time-outs and signals are seen to here.
fn wait_for_carried_bytes(shared: &SegmentView<'_>, fd: i32, begin: Instant) -> Result<(), Errno> {
    let limit = time_limit(fd, libc::SO_RCVTIMEO);
    let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
    if left == Some(Duration::ZERO) {
        return Err(Errno(libc::EAGAIN));
    }
    match shared.sleeps_for_carried_bytes(fd, left) {
        // As the kernel does it: a call with a time-out does not go on.
        Err(Errno(libc::EINTR)) if limit.is_none() && crate::signals::all_restart() => Ok(()),
        slept => slept,
    }
}

/// Whether all comes by memory, and neither bytes nor an end are there.
fn looks_empty(shared: &SegmentView<'_>) -> bool {
    shared.incoming.available() == Ok(0) && shared.is_done_with_tcp() && !shared.knows_of_an_end()
}

enum ReceiveOutcome {
    Bytes(usize),
    End,
    Nothing,
}

/// Takes what there is, without waiting.
///
/// # Safety
///
/// `parts` may be written.
unsafe fn receive_now(
    shared: &SegmentView<'_>,
    fd: i32,
    parts: &[Part],
    flags: i32,
) -> Result<ReceiveOutcome, Errno> {
    let own = &shared.receives.receiving;
    let may_wait = || flags & libc::MSG_DONTWAIT == 0 && shared.waits(fd);
    let held = hold_for_call(&shared.own.receiving.lock, may_wait)?;
    // SAFETY: as promised.
    let by_tcp = match unsafe { receive_by_tcp(shared, fd, parts, flags) }? {
        None => 0,
        // Who gets less than there was room for takes it that nothing more is there.
        Some(ReceiveOutcome::Bytes(bytes))
            if flags & libc::MSG_PEEK == 0 && bytes < total(parts) && shared.is_done_with_tcp() =>
        {
            bytes
        }
        Some(now) => return Ok(now),
    };
    let how = if flags & libc::MSG_PEEK != 0 {
        ReceiveMode::Peek
    } else if flags & libc::MSG_TRUNC != 0 {
        ReceiveMode::Discard
    } else {
        ReceiveMode::Take
    };
    let left = rest(parts, by_tcp);
    let left = if by_tcp == 0 { parts } else { &*left };
    // SAFETY: as promised.
    let take = || unsafe { shared.incoming.take(left, how) };
    let mut taken = match take() {
        // What is wrong with the ring the next call tells.
        Err(_) if by_tcp > 0 => 0,
        taken => taken?,
    };
    if total(parts) == 0 && shared.incoming.available()? > 0 {
        return Ok(ReceiveOutcome::Bytes(0));
    }
    if taken == 0 && by_tcp > 0 {
        return Ok(ReceiveOutcome::Bytes(by_tcp));
    }
    if taken == 0 {
        // How the peer ended is the kernel's to say: in peace, or not.
        let is_over = own.has_ended.load(Ordering::Acquire) != 0
            || matches!(silence(shared, fd, Some(&held))?, TcpStatus::End);
        // What was put in before the end was told comes before the end.
        taken = take()?;
        if taken == 0 {
            return Ok(if is_over { ReceiveOutcome::End } else { ReceiveOutcome::Nothing });
        }
    }
    let may_be_rung = own.was_rung.load(Ordering::Relaxed) != 0 || shared.between.is_some();
    if may_be_rung && shared.rings_may_go(fd) {
        // The ring has done its work. Left unread it would look like a byte that this
        // program did not want, should it be killed.
        own.was_rung.store(0, Ordering::Relaxed);
        shared.drop_rings(fd);
    }
    drop(held);
    shared.wake_sender_if_wanted(fd);
    Ok(ReceiveOutcome::Bytes(by_tcp + taken))
}

/// The bytes that go by TCP; `None` if all of them have been taken and the ring is next.
///
/// # Safety
///
/// `parts` may be written, and the caller has the lock of this half.
unsafe fn receive_by_tcp(
    shared: &SegmentView<'_>,
    fd: i32,
    parts: &[Part],
    flags: i32,
) -> Result<Option<ReceiveOutcome>, Errno> {
    let taken = &shared.receives.receiving.by_tcp;
    let flags = flags | libc::MSG_DONTWAIT;
    // Bytes that were looked at: the kernel does not count those behind urgent data.
    let mut seen = 0;
    loop {
        let before = taken.load(Ordering::Relaxed);
        // What is no ring for certain: rings go only when all have heard them.
        let queued = || kernel::queued(fd, libc::FIONREAD).map_or(0, |bytes| bytes as usize);
        let measure = || queued().max(seen);
        let Some(certain) = certain_by_tcp(before, measure, || shared.incoming_by_tcp()) else {
            return Ok(None);
        };
        let _ = shared.is_broken(fd);
        // Where nothing is certain, TCP may have an end or an error to tell: that is looked at.
        let (most, flags) = match certain {
            0 => (usize::MAX, flags | libc::MSG_PEEK),
            certain => (certain as usize, flags),
        };
        // SAFETY: as promised.
        let got = match unsafe { kernel::receive_parts(fd, &rest(parts, 0).first(most), flags) } {
            // The sender may have changed its way, sent, and ended, all since we looked.
            Ok(0) if shared.incoming_by_tcp().is_some_and(|sum| sum <= before) => return Ok(None),
            Ok(0) if shared.lacks_carried_end() => {
                shared.await_carried_end(fd);
                return Ok(Some(ReceiveOutcome::Nothing));
            }
            Ok(0) => {
                shared.has_ended_by_tcp();
                return Ok(Some(ReceiveOutcome::End));
            }
            Ok(got) if certain == 0 => {
                seen = got;
                continue;
            }
            Ok(got) => got,
            Err(Errno(libc::EAGAIN)) => return Ok(Some(ReceiveOutcome::Nothing)),
            Err(Errno(libc::ENOTCONN)) if shared.is_broken(fd) => {
                return Ok(Some(ReceiveOutcome::End));
            }
            Err(why) => return Err(why),
        };
        if flags & libc::MSG_PEEK == 0 {
            taken.store(before + got as u64, Ordering::Relaxed);
        }
        return Ok(Some(ReceiveOutcome::Bytes(got)));
    }
}

/// What TCP has to say while the ring is empty.
pub(crate) enum TcpStatus {
    Open,
    End,
}

/// Takes rings away that nobody needs any more, if this thread has the lock of the half that
/// receives, and sees whether the connection has ended.
pub(crate) fn silence(
    shared: &SegmentView<'_>,
    fd: i32,
    held: Option<&LockGuard<'_>>,
) -> Result<TcpStatus, Errno> {
    if shared.between.is_some() {
        return shared.carried_silence(fd);
    }
    let mut has_tried = false;
    loop {
        // A ring that was meant for somebody who sleeps must be found by him.
        let keeps = held.is_none() || shared.somebody_may_need_a_ring(fd);
        let keep = if keeps { libc::MSG_PEEK } else { 0 };
        match kernel::glance(fd, libc::MSG_DONTWAIT | keep) {
            Ok(0) => {
                shared.has_ended_by_tcp();
                return Ok(TcpStatus::End);
            }
            Ok(_) if !keeps => {}
            Ok(_) if held.is_none() || has_tried || !shared.rings_may_go(fd) => {
                return behind_rings(shared, fd);
            }
            Ok(_) => {
                shared.drop_rings(fd);
                has_tried = true;
            }
            Err(Errno(libc::EAGAIN)) => {
                shared.receives.receiving.was_rung.store(0, Ordering::Release);
                return Ok(TcpStatus::Open);
            }
            Err(_) if shared.has_ended_in_peace() => return Ok(TcpStatus::End),
            Err(why) => return Err(why),
        }
    }
}

/// The same where rings have to stay in TCP's queue: an end would come after them.
fn behind_rings(shared: &SegmentView<'_>, fd: i32) -> Result<TcpStatus, Errno> {
    if kernel::poll_one(fd, libc::POLLRDHUP, 0)? & libc::POLLRDHUP == 0 {
        return Ok(TcpStatus::Open);
    }
    shared.has_ended_by_tcp();
    Ok(TcpStatus::End)
}

/// Returns when there may be bytes, or an end, or with what ended the waiting; by memory alone if
/// that is wanted, and may be. Whether it is to be so the next time.
fn wait_for_bytes(shared: &SegmentView<'_>, fd: i32, by_memory: bool) -> Result<bool, Errno> {
    let by_memory = by_memory && shared.may_sleep_by_memory(fd);
    let (slept, was_last) = shared.sleeps_for_bytes(fd, by_memory, |sleep_limit| {
        match sleep_limit.within(None) {
            // A `recv` goes on after signals by itself, and has a time-out of its own.
            None => kernel::glance(fd, libc::MSG_PEEK),
            limit if sleep_limit.is_blind => kernel::poll(&mut [], limit, std::ptr::null()),
            limit => kernel::poll_one_for(fd, libc::POLLIN, limit).map(|_| 0),
        }
    });
    let woken = match slept.unwrap_or(Ok(0)) {
        // Nothing came, or it came before one slept.
        Err(Errno(libc::ETIMEDOUT)) if by_memory => return Ok(false),
        Err(Errno(libc::EAGAIN)) if by_memory => return Ok(true),
        // The kernel lets a `recv` go on, and no `poll` and no sleep on a word.
        Err(Errno(libc::EINTR)) if crate::signals::all_restart() => Ok(()),
        woken => woken.map(|_| ()),
    };
    let may_be_rung = !by_memory || shared.receives.receiving.was_rung.load(Ordering::Acquire) != 0;
    if was_last && may_be_rung && woken.is_ok() {
        // A byte that is left unread would make the kernel reset the connection when this
        // process ends.
        shared.take_rings_away(fd);
    }
    woken.map(|()| by_memory)
}
