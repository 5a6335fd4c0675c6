//! `poll` and `select`.

use std::ffi::{c_int, c_long};
use std::time::{Duration, Instant};

use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::{epoll, fail, told_int};
use crate::bell::Doorbell;
use crate::kernel::Outcome;
use crate::next::next;
use crate::patience::{Patience, SleepLimit};
use crate::rings::Watch;
use crate::table::Guard;
use crate::wake_pipe::PoolPipe;
use crate::{kernel, readiness, table, watched};

/// How long is looked at memory before one sleeps.
static PATIENCE: Patience = Patience::new();
/// For so long one looks at memory before one sleeps for the first time.
const SHORT: Duration = Duration::from_millis(1);

/// A descriptor of the list that the kernel does not know all about.
struct Emulated {
    at: usize,
    what: WaitKind,
}

enum WaitKind {
    Memory(Guard),
    /// A set of epoll, which may watch such.
    Set,
}

fn what(fd: c_int) -> Option<WaitKind> {
    match table::find(fd) {
        Some(guard) => guard.shared().is_some().then_some(WaitKind::Memory(guard)),
        None => watched::is_known(fd).then_some(WaitKind::Set),
    }
}

/// Those of the list; where there are none, nothing here is worth its time.
fn ours(entries: &[pollfd]) -> Vec<Emulated> {
    let found = entries.iter().enumerate();
    found.filter_map(|(at, entry)| Some(Emulated { at, what: what(entry.fd)? })).collect()
}

/// Waits until something is ready, or the limit is over.
fn wait(
    entries: &mut [pollfd],
    ours: &[Emulated],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome {
    let begin = Instant::now();
    // The kernel answers for each entry, and "nothing" for one that is no descriptor.
    entries.iter_mut().for_each(|entry| entry.revents = 0);
    let mut asked = Vec::new();
    loop {
        if fill(entries, ours) > 0 || limit == Some(Duration::ZERO) {
            return with_the_others(entries, ours);
        }
        if begin.elapsed() < SHORT && look(entries, ours, limit) {
            continue;
        }
        asked.clear();
        asked.extend_from_slice(entries);
        let is_rung = is_rung_for_one(ours);
        let doorbell = if is_rung { Doorbell::new() } else { None };
        asked.extend(doorbell.as_ref().map(Doorbell::entry));
        // Else it would do harm: the kernel lets who is woken by a pipe run on the waker's core.
        let pipe = if PATIENCE.is_spent() { PoolPipe::take() } else { None };
        let mut watches = Vec::with_capacity(ours.len());
        let prepared = prepare(entries, ours, &mut asked, &mut watches, pipe.as_ref());
        asked.extend(pipe.as_ref().map(PoolPipe::entry));
        let slept = prepared.map(|sleep_limit| {
            let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
            // Without one it has to look by itself.
            let is_deaf = is_rung && doorbell.is_none();
            let sleep_limit =
                sleep_limit.and(if is_deaf { SleepLimit::SHORT } else { SleepLimit::NONE });
            kernel::poll(&mut asked, sleep_limit.within(left), mask)
        });
        stop_watching(&watches, ours);
        let Some(slept) = slept else { continue };
        slept?;
        if let Some(pipe) = pipe.filter(|_| asked.last().is_some_and(|last| last.revents != 0)) {
            pipe.is_heard();
        }
        for (entry, asked) in entries.iter_mut().zip(&asked) {
            entry.revents = asked.revents;
        }
        let ready = fill(entries, ours);
        let is_over = limit.is_some_and(|limit| begin.elapsed() >= limit);
        if ready > 0 || is_over {
            return Ok(ready);
        }
    }
}

/// Whether a carrier wakes this process for one of them.
fn is_rung_for_one(ours: &[Emulated]) -> bool {
    ours.iter().any(|Emulated { what, .. }| match what {
        WaitKind::Memory(guard) => {
            guard.shared().is_some_and(|shared| shared.is_woken_by_carrier())
        }
        WaitKind::Set => false,
    })
}

/// What ours are ready for, beside what the kernel said of the others; how many are.
fn fill(entries: &mut [pollfd], ours: &[Emulated]) -> usize {
    for Emulated { at, what } in ours {
        let entry = &mut entries[*at];
        entry.revents = match what {
            WaitKind::Memory(guard) => {
                let now = |shared| readiness::now(guard, &shared, entry.fd, entry.events);
                guard.shared().map_or(0, now)
            }
            WaitKind::Set if epoll::has_something(entry.fd) => readiness::READING & entry.events,
            WaitKind::Set => 0,
        };
    }
    entries.iter().filter(|entry| entry.revents != 0).count()
}

/// Asks the kernel for the others, too, without waiting.
fn with_the_others(entries: &mut [pollfd], ours: &[Emulated]) -> Outcome {
    if ours.len() < entries.len() {
        let mut asked = entries.to_vec();
        for Emulated { at, .. } in ours {
            asked[*at].fd = -1;
        }
        kernel::poll(&mut asked, Some(Duration::ZERO), std::ptr::null())?;
        for (entry, asked) in entries.iter_mut().zip(&asked) {
            if asked.fd >= 0 {
                entry.revents = asked.revents;
            }
        }
    }
    Ok(entries.iter().filter(|entry| entry.revents != 0).count())
}

/// Looks at memory for a while; whether something came.
fn look(entries: &[pollfd], ours: &[Emulated], limit: Option<Duration>) -> bool {
    let is_ready = |Emulated { at, what }: &Emulated| match what {
        WaitKind::Memory(guard) => guard
            .shared()
            .is_some_and(|shared| readiness::by_ring(&shared, entries[*at].events) != 0),
        WaitKind::Set => false,
    };
    PATIENCE.look_for(limit, || ours.iter().any(is_ready))
}

/// Says what is waited for; `None` if something is there already, else how long the kernel
/// can be left to it.
fn prepare(
    entries: &[pollfd],
    ours: &[Emulated],
    asked: &mut [pollfd],
    watches: &mut Vec<(usize, c_int, Watch)>,
    pipe: Option<&PoolPipe>,
) -> Option<SleepLimit> {
    let pipe = pipe.map(PoolPipe::pipe);
    let mut sleep_limit = SleepLimit::NONE;
    for (which, Emulated { at, what }) in ours.iter().enumerate() {
        let (entry, asked) = (&entries[*at], &mut asked[*at]);
        let WaitKind::Memory(guard) = what else {
            let of_set = epoll::arm_before_sleep(entry.fd)?;
            ignore_if_blind(asked, of_set);
            sleep_limit = sleep_limit.and(of_set);
            continue;
        };
        let Some(shared) = guard.shared() else { continue };
        let sleep = readiness::prepare(guard, &shared, entry.fd, entry.events, pipe)?;
        watches.push((which, entry.fd, sleep.watch));
        asked.events = sleep.events;
        ignore_if_blind(asked, sleep.sleep_limit);
        sleep_limit = sleep_limit.and(sleep.sleep_limit);
    }
    Some(sleep_limit)
}

/// The kernel is not asked for what would end each sleep at once.
const fn ignore_if_blind(asked: &mut pollfd, sleep_limit: SleepLimit) {
    if sleep_limit.is_blind {
        asked.fd = -1;
    }
}

/// Nobody sleeps any more who watched those of ours.
fn stop_watching(watches: &[(usize, c_int, Watch)], ours: &[Emulated]) {
    for &(which, fd, watch) in watches {
        if let WaitKind::Memory(guard) = &ours[which].what
            && let Some(shared) = guard.shared()
        {
            shared.stops_watching(fd, watch);
        }
    }
}

/// # Safety
///
/// This many entries of the program.
unsafe fn list<'a>(entries: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if count == 0 || entries.is_null() {
        return &mut [];
    }
    // SAFETY: as promised.
    unsafe { std::slice::from_raw_parts_mut(entries, count as usize) }
}

/// # Safety
///
/// What `poll` asks for.
unsafe fn poll_list(entries: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    // SAFETY: what the program gave.
    let entries_of_program = unsafe { list(entries, count) };
    let ours = ours(entries_of_program);
    if ours.is_empty() {
        // SAFETY: as above.
        return unsafe {
            next!(poll: fn(*mut pollfd, nfds_t, c_int) -> c_int)(entries, count, milliseconds)
        };
    }
    let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    told_int(wait(entries_of_program, &ours, limit, std::ptr::null()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn poll(entries: *mut pollfd, count: nfds_t, milliseconds: c_int) -> c_int {
    // SAFETY: what the program gave.
    unsafe { poll_list(entries, count, milliseconds) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __poll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    milliseconds: c_int,
    _room: usize,
) -> c_int {
    // SAFETY: what the program gave.
    unsafe { poll_list(entries, count, milliseconds) }
}

/// # Safety
///
/// What `ppoll` asks for.
unsafe fn ppoll_list(
    entries: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: what the program gave, here and below.
    let entries_of_program = unsafe { list(entries, count) };
    let ours = ours(entries_of_program);
    if ours.is_empty() {
        // SAFETY: what the program gave, as libc asks for it.
        return unsafe {
            next!(ppoll: fn(*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int)(
                entries, count, limit, mask,
            )
        };
    }
    // SAFETY: what the program gave, as libc asks for it.
    match unsafe { limit.as_ref() }.map(duration) {
        Some(None) => fail(libc::EINVAL) as c_int,
        Some(limit) => told_int(wait(entries_of_program, &ours, limit, mask)),
        None => told_int(wait(entries_of_program, &ours, None, mask)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ppoll(
    entries: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: what the program gave.
    unsafe { ppoll_list(entries, count, limit, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __ppoll_chk(
    entries: *mut pollfd,
    count: nfds_t,
    limit: *const timespec,
    mask: *const sigset_t,
    _room: usize,
) -> c_int {
    // SAFETY: what the program gave.
    unsafe { ppoll_list(entries, count, limit, mask) }
}

fn duration(time: &timespec) -> Option<Duration> {
    let nanoseconds = u32::try_from(time.tv_nsec).ok().filter(|&nanos| nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, nanoseconds))
}

/// The three sets of `select`.
struct Sets {
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
}

/// What a set of `select` asks for, in words of `poll`, and what answers it.
const OF_READ: (i16, i16) = (libc::POLLIN, libc::POLLIN | libc::POLLHUP | libc::POLLERR);
const OF_WRITE: (i16, i16) = (libc::POLLOUT, libc::POLLOUT | libc::POLLERR);
const OF_EXCEPT: (i16, i16) = (libc::POLLPRI, libc::POLLPRI);

impl Sets {
    fn each(&self) -> [(*mut fd_set, (i16, i16)); 3] {
        [(self.read, OF_READ), (self.write, OF_WRITE), (self.except, OF_EXCEPT)]
    }

    /// The same as a list.
    ///
    /// # Safety
    ///
    /// The sets are null or the program's, with room for this many.
    unsafe fn entries(&self, count: c_int) -> Vec<pollfd> {
        let mut entries = Vec::new();
        for fd in 0..count {
            let mut events = 0;
            for (set, (asks, _)) in self.each() {
                // SAFETY: as promised.
                if !set.is_null() && unsafe { has(set, fd) } {
                    events |= asks;
                }
            }
            if events != 0 {
                entries.push(pollfd { fd, events, revents: 0 });
            }
        }
        entries
    }

    /// Leaves in the sets what is ready; how many bits that are, or that one is not open.
    ///
    /// # Safety
    ///
    /// As for `entries`.
    unsafe fn answer(&self, entries: &[pollfd]) -> Outcome {
        if entries.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
            return Err(kernel::Errno(libc::EBADF));
        }
        let mut bits = 0;
        for entry in entries {
            for (set, (asks, answers)) in self.each() {
                if set.is_null() || entry.events & asks == 0 {
                    continue;
                }
                if entry.revents & answers == 0 {
                    // SAFETY: as promised.
                    unsafe { clear(set, entry.fd) };
                } else {
                    bits += 1;
                }
            }
        }
        Ok(bits)
    }
}

const BITS: usize = c_long::BITS as usize;

/// A set is words of bits, and may be longer than its type says.
unsafe fn has(set: *mut fd_set, fd: c_int) -> bool {
    let at = fd as usize;
    // SAFETY: the caller promises room.
    unsafe { *set.cast::<c_long>().add(at / BITS) & (1 << (at % BITS)) != 0 }
}

unsafe fn clear(set: *mut fd_set, fd: c_int) {
    let at = fd as usize;
    // SAFETY: the caller promises room.
    unsafe { *set.cast::<c_long>().add(at / BITS) &= !(1 << (at % BITS)) }
}

/// # Safety
///
/// The sets are the program's.
unsafe fn select_ours(
    count: c_int,
    sets: &Sets,
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Option<Outcome> {
    if !(0..=1 << 20).contains(&count) {
        return None;
    }
    // SAFETY: as promised.
    let mut entries = unsafe { sets.entries(count) };
    let ours = ours(&entries);
    if ours.is_empty() {
        return None;
    }
    // SAFETY: as promised.
    Some(wait(&mut entries, &ours, limit, mask).and_then(|_| unsafe { sets.answer(&entries) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    limit: *mut timeval,
) -> c_int {
    // SAFETY: what the program gave, here and below.
    let time = match unsafe { limit.as_ref() } {
        None => None,
        Some(time) => {
            let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
            let (Ok(seconds), Ok(micros)) = (seconds, micros) else {
                return fail(libc::EINVAL) as c_int;
            };
            Some(Duration::from_secs(seconds) + Duration::from_micros(micros))
        }
    };
    let begin = Instant::now();
    let sets = Sets { read, write, except };
    // SAFETY: what the program gave, as libc asks for it.
    match unsafe { select_ours(count, &sets, time, std::ptr::null()) } {
        Some(outcome) => {
            // SAFETY: what the program gave, as libc asks for it.
            if let (Some(time), Some(limit)) = (time, unsafe { limit.as_mut() }) {
                // Linux tells how much of the time is left.
                let left = time.saturating_sub(begin.elapsed());
                limit.tv_sec = left.as_secs().cast_signed();
                limit.tv_usec = i64::from(left.subsec_micros());
            }
            told_int(outcome)
        }
        // SAFETY: what the program gave, as libc asks for it.
        None => unsafe {
            next!(select: fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int)(
                count, read, write, except, limit,
            )
        },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: what the program gave, here and below.
    let time = match unsafe { limit.as_ref() }.map(duration) {
        Some(None) => return fail(libc::EINVAL) as c_int,
        Some(time) => time,
        None => None,
    };
    let sets = Sets { read, write, except };
    // SAFETY: what the program gave, as libc asks for it.
    match unsafe { select_ours(count, &sets, time, mask) } {
        Some(outcome) => told_int(outcome),
        // SAFETY: what the program gave, as libc asks for it.
        None => unsafe {
            next!(pselect: fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int)(
                count, read, write, except, limit, mask,
            )
        },
    }
}
