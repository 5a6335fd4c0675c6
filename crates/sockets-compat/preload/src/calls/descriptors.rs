//! Descriptors: closing and doubling them, and what is asked of a socket.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use crate::kernel::{self, Errno};
use crate::next::next;
use crate::{bell, known_tcp, process, status, table, wake_pipe, watched};

/// The descriptor is about to be closed, or to become another.
fn goes(fd: c_int) {
    if process::owns_the_tables() {
        bell::closed(fd);
        wake_pipe::closed_between(fd, fd);
        watched::closed(fd);
        table::remove(fd);
        status::plain::descriptor_closed(fd);
        known_tcp::forget(fd);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    goes(fd);
    // SAFETY: a number.
    unsafe { next!(close: fn(c_int) -> c_int)(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 1 << 2;
    if flags & CLOEXEC == 0 {
        leave_range(first, last);
    }
    // SAFETY: numbers.
    unsafe { next!(close_range: fn(c_uint, c_uint, c_int) -> c_int)(first, last, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    leave_range(first.max(0).cast_unsigned(), c_uint::MAX);
    // SAFETY: a number.
    unsafe { next!(closefrom: fn(c_int) -> ())(first) }
}

fn leave_range(first: c_uint, last: c_uint) {
    if !process::owns_the_tables() {
        return;
    }
    let (Ok(mut fd), last) = (c_int::try_from(first), c_int::try_from(last).unwrap_or(c_int::MAX))
    else {
        return;
    };
    bell::closed_between(fd, last);
    wake_pipe::closed_between(fd, last);
    status::plain::closed_between(fd, last);
    known_tcp::forget_between(fd, last);
    while let Some(found) = table::next_from(fd).filter(|&found| found <= last) {
        goes(found);
        fd = found + 1;
    }
}

/// What `new` was until now is about to be closed, unless the call will be refused.
fn makes_way(old: c_int, new: c_int) {
    let why = Errno::last();
    if old != new && kernel::is_open(old) {
        goes(new);
    }
    why.tell();
}

/// `new` is another descriptor of what `old` is.
fn doubled(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old && process::owns_the_tables() {
        let why = Errno::last();
        table::duplicate(old, new);
        known_tcp::forget(new);
        status::plain::descriptor_doubled(old, new);
        watched::doubled(old, new);
        why.tell();
    }
    new
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(old: c_int) -> c_int {
    // SAFETY: numbers, here and below.
    doubled(old, unsafe { next!(dup: fn(c_int) -> c_int)(old) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    makes_way(old, new);
    // SAFETY: what the program gave, as libc asks for it.
    doubled(old, unsafe { next!(dup2: fn(c_int, c_int) -> c_int)(old, new) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    makes_way(old, new);
    // SAFETY: what the program gave, as libc asks for it.
    doubled(old, unsafe { next!(dup3: fn(c_int, c_int, c_int) -> c_int)(old, new, flags) })
}

/// Whether its calls wait may be otherwise from now on.
fn forget_whether_it_waits(fd: c_int) {
    if let Some(guard) = table::find(fd) {
        guard.forget_whether_it_waits();
    }
}

fn after_control(fd: c_int, command: c_int, result: c_int) -> c_int {
    if command == libc::F_SETFL {
        forget_whether_it_waits(fd);
    }
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        doubled(fd, result)
    } else {
        result
    }
}

/// Its third argument is a number, a pointer or nothing: it goes on as it came.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    // SAFETY: what the program gave, as libc asks for it.
    let result = unsafe { next!(fcntl: fn(c_int, c_int, c_ulong) -> c_int)(fd, command, argument) };
    after_control(fd, command, result)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    let result =
        // SAFETY: what the program gave, as libc asks for it.
        unsafe { next!(fcntl64: fn(c_int, c_int, c_ulong) -> c_int)(fd, command, argument) };
    after_control(fd, command, result)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let waiting = matches!(request, libc::FIONREAD | libc::TIOCOUTQ).then(|| table::find(fd));
    if let Some(Some(guard)) = waiting
        && let Some(shared) = guard.shared()
        && let Some(bytes) = queued(&shared, request)
    {
        // SAFETY: these two want a place for a number.
        unsafe { argument.cast::<c_int>().write(bytes) };
        return 0;
    }
    // SAFETY: what the program gave, as libc asks for it.
    let result =
        unsafe { next!(ioctl: fn(c_int, c_ulong, *mut c_void) -> c_int)(fd, request, argument) };
    if request == libc::FIONBIO {
        forget_whether_it_waits(fd);
    }
    result
}

/// How many bytes wait here, or there; `None` where the kernel knows.
fn queued(shared: &crate::connection::SegmentView<'_>, request: c_ulong) -> Option<c_int> {
    let bytes = if request == libc::FIONREAD {
        let by_tcp = shared.incoming_by_tcp()?;
        let taken = &shared.receives.receiving.by_tcp;
        let still_by_tcp = by_tcp.saturating_sub(taken.load(std::sync::atomic::Ordering::Relaxed));
        still_by_tcp + shared.incoming.available().unwrap_or(0)
    } else {
        if !shared.is_sending_switched() {
            return None;
        }
        shared.outgoing.backlog().unwrap_or(0)
    };
    Some(c_int::try_from(bytes).unwrap_or(c_int::MAX))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(guard) = table::find(fd) {
        let sending = matches!(how, libc::SHUT_WR | libc::SHUT_RDWR);
        let receiving = matches!(how, libc::SHUT_RD | libc::SHUT_RDWR);
        guard.shut(sending, receiving);
    }
    // SAFETY: numbers.
    unsafe { next!(shutdown: fn(c_int, c_int) -> c_int)(fd, how) }
}
