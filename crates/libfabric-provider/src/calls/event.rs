//! Event queues: programs open them, and nothing ever happens there, for this provider has
//! neither connections nor address vectors that answer by events.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use libc::{size_t, ssize_t};

use super::{NOT_OFFERED, closes, give, known, take};
use crate::abi::*;

#[repr(C)]
struct EventHandle {
    fid: fid_eq,
}

static FID_OPS: fi_ops = closes(close);
static OPS: fi_ops_eq =
    fi_ops_eq { size: size_of::<fi_ops_eq>(), read, readerr, write: NOT_OFFERED, sread, strerror };

pub(super) unsafe extern "C" fn open(
    _: *mut fid_fabric,
    _: *mut fi_eq_attr,
    queue: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    let fid = fid_eq { fid: known(FI_CLASS_EQ, context, &FID_OPS), ops: &raw const OPS };
    // SAFETY: a place for the handle, which begins with its `fid_eq`.
    unsafe { give(EventHandle { fid }, queue) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the program uses it no more.
    drop(unsafe { take::<EventHandle, _>(fid) });
    0
}

unsafe extern "C" fn read(
    _: *mut fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: size_t,
    _: u64,
) -> ssize_t {
    -FI_EAGAIN as ssize_t
}

unsafe extern "C" fn readerr(_: *mut fid_eq, _: *mut c_void, _: u64) -> ssize_t {
    -FI_EAGAIN as ssize_t
}

unsafe extern "C" fn sread(
    _: *mut fid_eq,
    _: *mut u32,
    _: *mut c_void,
    _: size_t,
    timeout: c_int,
    _: u64,
) -> ssize_t {
    std::thread::sleep(u64::try_from(timeout).map_or(Duration::MAX, Duration::from_millis));
    -FI_EAGAIN as ssize_t
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    _: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: size_t,
) -> *const c_char {
    c"no error".as_ptr()
}
