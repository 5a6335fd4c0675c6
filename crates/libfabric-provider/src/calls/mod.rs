//! The calls of libfabric, as C makes them: pointers become values here, and nowhere else.
//!
//! A handle is a structure whose first field is what libfabric knows of it, with the table of
//! calls; all else is behind it. Programs close what they opened, and use nothing that they
//! have closed: that is libfabric's contract, and what every `SAFETY` here relies on.

mod atomic;
mod book;
mod connection;
mod counter;
mod domain;
mod endpoint;
mod event;
mod fabric;
mod memory;
mod message;
mod passive;
mod queue;
mod remote;
mod tagged;

use std::ffi::{CStr, c_char, c_int, c_void};

use libc::{size_t, ssize_t};

use crate::abi::{FI_ENOSYS, fi_ops, fi_ops_ep, fid, unsupported};

pub(crate) use fabric::{fabric, getinfo};

/// A call that this provider does not offer.
pub(crate) unsafe extern "C" fn not_offered() -> ssize_t {
    -FI_ENOSYS as ssize_t
}

/// The entry of a call that is not offered.
pub(crate) const NOT_OFFERED: unsupported = not_offered;

unsafe extern "C" fn bind_nothing(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn control_nothing(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    -FI_ENOSYS
}

/// The calls of a handle that can be closed and nothing else.
pub(crate) const fn closes(close: unsafe extern "C" fn(*mut fid) -> c_int) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close,
        bind: bind_nothing,
        control: control_nothing,
        ops_open: NOT_OFFERED,
        tostr: NOT_OFFERED,
        ops_set: NOT_OFFERED,
    }
}

/// The calls of an endpoint, whatever it does: receives are taken back, and options looked up and
/// chosen.
pub(crate) const fn endpoint_calls(
    cancel: unsafe extern "C" fn(*mut fid, *mut c_void) -> ssize_t,
    getopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut size_t) -> c_int,
    setopt: unsafe extern "C" fn(*mut fid, c_int, c_int, *const c_void, size_t) -> c_int,
) -> fi_ops_ep {
    fi_ops_ep {
        size: size_of::<fi_ops_ep>(),
        cancel,
        getopt,
        setopt,
        tx_ctx: NOT_OFFERED,
        rx_ctx: NOT_OFFERED,
        rx_size_left: NOT_OFFERED,
        tx_size_left: NOT_OFFERED,
    }
}

/// What libfabric knows of a handle of this class.
pub(crate) const fn known(fclass: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass, context, ops }
}

/// Hands a handle to the program.
///
/// # Safety
/// A pointer may be written at `into`; `H` begins with what libfabric knows of it, an `F`.
pub(crate) unsafe fn give<H, F>(handle: H, into: *mut *mut F) -> c_int {
    let handle = Box::into_raw(Box::new(handle));
    // SAFETY: the caller says so.
    unsafe { *into = handle.cast() };
    0
}

/// The handle that libfabric means.
///
/// # Safety
/// `fid` came from [`give`] with an `H`, which was not closed.
pub(crate) unsafe fn of<'a, H, F>(fid: *mut F) -> &'a H {
    // SAFETY: the caller says so.
    unsafe { &*fid.cast::<H>() }
}

/// Takes a handle back, to be dropped.
///
/// # Safety
/// As for [`of`], and nobody uses it any more.
pub(crate) unsafe fn take<H, F>(fid: *mut F) -> Box<H> {
    // SAFETY: the caller says so.
    unsafe { Box::from_raw(fid.cast::<H>()) }
}

/// A text of C; nothing for null, or what is no text.
///
/// # Safety
/// It is null, or ends in zero.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// Writes a text to where a program wants it: as much of it as there is room for, and a zero.
///
/// # Safety
/// `room` bytes may be written at `into`.
pub(crate) unsafe fn write_text(text: &str, into: *mut c_char, room: usize) {
    if into.is_null() || room == 0 {
        return;
    }
    let len = text.len().min(room - 1);
    // SAFETY: the caller says so.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), into.cast(), len);
        *into.add(len) = 0;
    }
}
