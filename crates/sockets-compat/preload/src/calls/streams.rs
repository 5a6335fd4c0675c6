//! Streams of C on a socket: libc's own calls inside of them would pass us by.
//!
//! So a stream on one of our descriptors reads and writes by functions of ours, and its
//! number is what the program gave.

use std::ffi::{c_char, c_int, c_long, c_void};

use libc::FILE;

use crate::kernel::Part;
use crate::lock::Locked;
use crate::next::next;
use crate::{table, transfer};

/// The streams that were made here, and their descriptors.
static STREAMS: Locked<Vec<(usize, c_int)>> = Locked::new(Vec::new());

#[repr(C)]
struct Functions {
    read: extern "C" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: Option<extern "C" fn(*mut c_void, *mut c_long, c_int) -> c_int>,
    close: extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

fn number(cookie: *mut c_void) -> c_int {
    cookie as usize as c_int
}

extern "C" fn read(cookie: *mut c_void, into: *mut c_char, len: usize) -> isize {
    let fd = number(cookie);
    let part = Part { base: into.cast(), len };
    let outcome = match table::find(fd) {
        // SAFETY: the buffer of the stream, here and below.
        Some(guard) => unsafe { transfer::receive(&guard, fd, &[part], 0) },
        // SAFETY: the buffer of the stream.
        None => unsafe { crate::kernel::receive(fd, part, 0) },
    };
    super::told(outcome)
}

extern "C" fn write(cookie: *mut c_void, from: *const c_char, len: usize) -> isize {
    let fd = number(cookie);
    let part = Part { base: from.cast_mut().cast(), len };
    let outcome = match table::find(fd) {
        // SAFETY: the buffer of the stream, here and below.
        Some(guard) => unsafe { transfer::send(&guard, fd, &[part], 0) },
        // SAFETY: the buffer of the stream.
        None => unsafe { crate::kernel::send(fd, &[part], 0) },
    };
    // A stream knows no negative numbers here: nothing written is an error.
    super::told(outcome).max(0)
}

extern "C" fn close(cookie: *mut c_void) -> c_int {
    let fd = number(cookie);
    STREAMS.with(|streams| streams.retain(|&(_, other)| other != fd));
    // SAFETY: a number.
    unsafe { libc::close(fd) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if table::find(fd).is_none() {
        // SAFETY: what the program gave, here and below.
        return unsafe { next!(fdopen: fn(c_int, *const c_char) -> *mut FILE)(fd, mode) };
    }
    let functions = Functions { read, write, seek: None, close };
    // SAFETY: functions of this library, and a number in place of a pointer.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, functions) };
    if !stream.is_null() {
        STREAMS.with(|streams| streams.push((stream as usize, fd)));
    }
    stream
}

/// Before a fork, and after it.
pub(crate) fn stands_still() {
    STREAMS.stands_still();
}

pub(crate) fn goes_on() {
    STREAMS.goes_on();
}

fn number_of(stream: *mut FILE) -> Option<c_int> {
    STREAMS.with(|streams| {
        streams.iter().find(|(other, _)| *other == stream as usize).map(|&(_, fd)| fd)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    // SAFETY: a stream of the program.
    number_of(stream).unwrap_or_else(|| unsafe { next!(fileno: fn(*mut FILE) -> c_int)(stream) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fileno_unlocked(stream: *mut FILE) -> c_int {
    // SAFETY: a stream of the program.
    number_of(stream)
        .unwrap_or_else(|| unsafe { next!(fileno_unlocked: fn(*mut FILE) -> c_int)(stream) })
}
