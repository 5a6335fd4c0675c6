//! `epoll`.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::{epoll_event, sigset_t, timespec};

use super::{fail, told_int};
use crate::interest::Interest;
use crate::interest::sleeping::Sleeper;
use crate::kernel::{Errno, Outcome};
use crate::next::next;
use crate::patience::{Patience, SleepLimit};
use crate::watched::Set;
use crate::{bell, interest, kernel, process, rules, watched};

/// How long is looked at memory before one sleeps.
static PATIENCE: Patience = Patience::new();
/// This many events are fetched at once, however many the program has room for.
const MOST: usize = 256;
const NOTHING: epoll_event = epoll_event { events: 0, u64: 0 };

/// The kernel allows sets within sets to this depth.
const DEEPEST: usize = 5;

fn made(epoll: c_int) -> c_int {
    let why = Errno::last();
    if epoll >= 0 && rules::are_on() && process::owns_the_tables() {
        watched::made(epoll);
    }
    why.tell();
    epoll
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: a number, here and below.
    made(unsafe { next!(epoll_create: fn(c_int) -> c_int)(size) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: what the program gave, as libc asks for it.
    made(unsafe { next!(epoll_create1: fn(c_int) -> c_int)(flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let found = watched::find(epoll);
    // SAFETY: what the program gave.
    match (found, operation, unsafe { event.as_ref() }) {
        (Some(set), libc::EPOLL_CTL_DEL, _) => told_int(take_away(epoll, &set, fd)),
        (Some(set), libc::EPOLL_CTL_ADD, Some(event)) => {
            watched::is_added(epoll, fd);
            told_int(set.with(|interest| add(epoll, interest, fd, event)))
        }
        (Some(set), libc::EPOLL_CTL_MOD, Some(event)) => {
            told_int(set.with(|interest| change(epoll, interest, fd, event)))
        }
        // SAFETY: as above.
        _ => unsafe {
            next!(epoll_ctl: fn(c_int, c_int, c_int, *mut epoll_event) -> c_int)(
                epoll, operation, fd, event,
            )
        },
    }
}

fn add(epoll: c_int, interest: &mut Interest, fd: c_int, event: &epoll_event) -> Outcome {
    if event.events & libc::EPOLLEXCLUSIVE as u32 != 0 {
        // The kernel takes this with what is new to it only.
        if let Some(parked) = interest.remove_parked(fd) {
            let _ = interest::apply(epoll, &parked);
        }
    }
    if interest.unparks(fd) {
        return change(epoll, interest, fd, event);
    }
    if interest.has(fd) {
        // Closed past us, or watched twice: the kernel knows.
        kernel::epoll_change(epoll, libc::EPOLL_CTL_ADD, fd, event)?;
        return interest::apply(epoll, &interest.set(fd, *event));
    }
    let asked = interest.set(fd, *event);
    let done = kernel::epoll_change(epoll, libc::EPOLL_CTL_ADD, fd, &asked.event);
    if done.is_err() {
        interest.remove(fd);
    }
    done
}

fn change(epoll: c_int, interest: &mut Interest, fd: c_int, event: &epoll_event) -> Outcome {
    if interest.has_parked(fd) {
        return Err(Errno(libc::ENOENT));
    }
    if !interest.has(fd) {
        return kernel::epoll_change(epoll, libc::EPOLL_CTL_MOD, fd, event);
    }
    let asked_before = interest.asked_by_level(fd);
    let asked = interest.set(fd, *event);
    if asked_before == Some(asked.event.events) {
        return Ok(0);
    }
    interest::apply(epoll, &asked)
}

fn take_away(epoll: c_int, set: &Set, fd: c_int) -> Outcome {
    set.with(|interest| {
        if interest.has_parked(fd) {
            return Err(Errno(libc::ENOENT));
        }
        if interest.parks(fd) {
            return Ok(0);
        }
        interest.remove(fd);
        kernel::epoll_change(epoll, libc::EPOLL_CTL_DEL, fd, &NOTHING)
    })
}

/// Waits until there are events, or the limit is over.
fn wait(
    epoll: c_int,
    set: &Set,
    into: &mut [epoll_event],
    limit: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome {
    let begin = Instant::now();
    let most = into.len().min(MOST);
    let mut found = Vec::with_capacity(most);
    let mut asking =
        if limit == Some(Duration::ZERO) { KernelQuery::Always } else { KernelQuery::IfItMayKnow };
    loop {
        look(epoll, set, &mut found, most, asking)?;
        if found.is_empty() && limit.is_none_or(|limit| begin.elapsed() < limit) {
            if spin(set, limit) {
                asking = KernelQuery::InVainOnly;
                continue;
            }
            let left = limit.map(|limit| limit.saturating_sub(begin.elapsed()));
            asking = sleep(epoll, set, &mut found, most, left, mask)?;
        }
        let is_over = limit.is_some_and(|limit| begin.elapsed() >= limit);
        if !found.is_empty() || is_over {
            into[..found.len()].copy_from_slice(&found);
            set.with(Interest::arm_for_the_others);
            return Ok(found.len());
        }
    }
}

/// Whether the kernel is asked for what memory does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelQuery {
    Always,
    /// Not where all that is watched is memory.
    IfItMayKnow,
    /// It was asked just now: again only if memory has nothing.
    InVainOnly,
}

/// What there is, without waiting.
fn look(
    epoll: c_int,
    set: &Set,
    found: &mut Vec<epoll_event>,
    most: usize,
    asking: KernelQuery,
) -> Result<(), Errno> {
    let is_all = set.with(|interest| {
        interest.begin_turn();
        found.extend(interest.take_kept(most));
        interest.ready(found, most)
    });
    let asks = match asking {
        KernelQuery::Always => true,
        KernelQuery::IfItMayKnow => !is_all,
        KernelQuery::InVainOnly => found.is_empty(),
    };
    if asks && found.len() < most {
        if ask_kernel(epoll, set, found, most)? {
            set.with(|interest| interest.ready(found, most));
        }
        report_nested(set, found, most);
    }
    Ok(())
}

/// Sleeps until there may be something, unless something is there already; what the kernel is to be
/// asked after that.
fn sleep(
    epoll: c_int,
    set: &Set,
    found: &mut Vec<epoll_event>,
    most: usize,
    left: Option<Duration>,
    mask: *const sigset_t,
) -> Result<KernelQuery, Errno> {
    set.with(Interest::falls_asleep);
    let Some(sleep_limit) = arm(epoll, set, DEEPEST, Sleeper::OnThis) else {
        set.with(Interest::wakes_up);
        return Ok(KernelQuery::Always);
    };
    let mut events = [NOTHING; MOST];
    let room = most - found.len();
    let told = if sleep_limit.is_blind {
        kernel::poll(&mut [], sleep_limit.within(left), mask)
    } else {
        kernel::epoll_wait_for(epoll, &mut events[..room], sleep_limit.within(left), mask)
    };
    set.with(Interest::wakes_up);
    let is_rung = translate(epoll, set, &events[..told?], found);
    report_nested(set, found, most);
    Ok(if is_rung { KernelQuery::InVainOnly } else { KernelQuery::Always })
}

/// Of sets within the set: which have something to tell.
fn report_nested(set: &Set, found: &mut Vec<epoll_event>, most: usize) {
    for (inner, event) in set.with(|interest| interest.nested()) {
        if found.len() < most && has_something(inner) {
            found.push(event);
        }
    }
}

/// Whether a wait on this descriptor would end at once. Nothing is lost by asking.
pub(super) fn has_something(epoll: c_int) -> bool {
    let Some(set) = watched::find(epoll) else { return false };
    if set.with(|interest| interest.has_kept()) {
        return true;
    }
    let mut found = Vec::new();
    let _ = look(epoll, &set, &mut found, MOST, KernelQuery::Always);
    set.with(|interest| interest.keep(&found));
    !found.is_empty()
}

/// Says to all other ends what is waited for, in sets within the set, too; `None` if
/// something is there already, else how long one may sleep.
fn arm(epoll: c_int, set: &Set, depth: usize, sleeper: Sleeper) -> Option<SleepLimit> {
    let (mut sleep_limit, inner, bell) = set.with(|interest| {
        let sleep_limit = interest.arm(epoll, sleeper, PATIENCE.is_spent())?;
        Some((sleep_limit, interest.nested(), interest.lacks_the_bell()))
    })?;
    // Rings from before are told at once.
    if let Some(pair) = bell {
        let _ = bell::join(epoll, &pair);
    }
    for (inner, _) in inner {
        if depth > 0 {
            sleep_limit = sleep_limit.and(arm_for(inner, depth - 1)?);
        }
    }
    Some(sleep_limit)
}

/// The same for one who will sleep on the descriptor itself.
pub(super) fn arm_before_sleep(epoll: c_int) -> Option<SleepLimit> {
    arm_for(epoll, DEEPEST)
}

fn arm_for(epoll: c_int, depth: usize) -> Option<SleepLimit> {
    let found = watched::find(epoll);
    found.map_or(Some(SleepLimit::NONE), |set| arm(epoll, &set, depth, Sleeper::OnAnother))
}

/// What the kernel tells without waiting, in the program's words; whether memory is to be looked
/// at again.
fn ask_kernel(
    epoll: c_int,
    set: &Set,
    found: &mut Vec<epoll_event>,
    most: usize,
) -> Result<bool, Errno> {
    let mut events = [NOTHING; MOST];
    let room = most - found.len();
    let told = kernel::epoll_wait(epoll, &mut events[..room], 0, std::ptr::null())?;
    Ok(translate(epoll, set, &events[..told], found))
}

/// Whether the set was rung: then there is something in memory.
fn translate(
    epoll: c_int,
    set: &Set,
    events: &[epoll_event],
    found: &mut Vec<epoll_event>,
) -> bool {
    let mut changes = Vec::new();
    let is_rung = events.iter().any(|event| event.u64 == interest::NO_ENTRY);
    set.with(|interest| {
        if is_rung {
            interest.is_rung();
        }
        for event in events {
            found.extend(interest.translate(event, &mut changes));
        }
    });
    for change in &changes {
        let _ = interest::apply(epoll, change);
    }
    is_rung
}

/// Looks at memory for a while; whether something came.
fn spin(set: &Set, limit: Option<Duration>) -> bool {
    let looks_ready = || set.with(|interest| interest.looks_ready());
    looks_ready().is_some() && PATIENCE.look_for(limit, || looks_ready() == Some(true))
}

/// The program's room for events.
///
/// # Safety
///
/// There is room for this many.
unsafe fn room<'a>(events: *mut epoll_event, most: c_int) -> Option<&'a mut [epoll_event]> {
    let most = usize::try_from(most).ok().filter(|&most| most > 0)?;
    // SAFETY: as promised.
    (!events.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(events, most) })
}

/// # Safety
///
/// What `epoll_pwait` asks for.
unsafe fn wait_for_milliseconds(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    milliseconds: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: what the program gave, here and below.
    let (Some(set), Some(into)) = (watched::find(epoll), unsafe { room(events, most) }) else {
        // SAFETY: what the program gave, as libc asks for it.
        return unsafe {
            next!(epoll_pwait: fn(c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int)(
                epoll,
                events,
                most,
                milliseconds,
                mask,
            )
        };
    };
    let limit = u64::try_from(milliseconds).ok().map(Duration::from_millis);
    told_int(wait(epoll, &set, into, limit, mask))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    milliseconds: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: what the program gave.
    unsafe { wait_for_milliseconds(epoll, events, most, milliseconds, mask) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    milliseconds: c_int,
) -> c_int {
    // SAFETY: what the program gave.
    unsafe { wait_for_milliseconds(epoll, events, most, milliseconds, std::ptr::null()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    most: c_int,
    limit: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: what the program gave, here and below.
    let (Some(set), Some(into)) = (watched::find(epoll), unsafe { room(events, most) }) else {
        // SAFETY: what the program gave, as libc asks for it.
        return unsafe {
            next!(epoll_pwait2: fn(c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int)(
                epoll, events, most, limit, mask,
            )
        };
    };
    // SAFETY: what the program gave, as libc asks for it.
    let limit = match unsafe { limit.as_ref() } {
        None => None,
        Some(time) => {
            let seconds = u64::try_from(time.tv_sec);
            let nanos = u32::try_from(time.tv_nsec).ok().filter(|&nanos| nanos < 1_000_000_000);
            let (Ok(seconds), Some(nanos)) = (seconds, nanos) else {
                return fail(libc::EINVAL) as c_int;
            };
            Some(Duration::new(seconds, nanos))
        }
    };
    told_int(wait(epoll, &set, into, limit, mask))
}
