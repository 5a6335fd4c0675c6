//! Registered memory.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::{iovec, size_t};

use super::domain::domain_of;
use super::{closes, give, known, of, take};
use crate::abi::*;
use crate::buffer;
use crate::domain::Domain;
use crate::world::{Registered, rights_of};

#[repr(C)]
struct MemoryHandle {
    fid: fid_mr,
    domain: Arc<Domain>,
    key: u32,
}

static FID_OPS: fi_ops = fi_ops { control, bind, ..closes(close) };

pub(super) unsafe extern "C" fn reg(
    fid: *mut fid,
    base: *const c_void,
    len: size_t,
    access: u64,
    _: u64,
    key: u64,
    _: u64,
    memory: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain.
    let domain = unsafe { domain_of(fid) };
    if !domain.is_here() {
        return -FI_EOPBADSTATE;
    }
    // SAFETY: the program registers bytes that are there until it closes the region.
    let Some((mapped, at)) = (unsafe { buffer::map(base.cast_mut().cast(), len) }) else {
        return -FI_EINVAL;
    };
    let registered = Registered::new(mapped, at, rights_of(access));
    let key = match domain.lock().world.register(Some(key), registered) {
        Ok(key) => key,
        Err(error) => return -error,
    };
    let fid = fid_mr {
        fid: known(FI_CLASS_MR, context, &FID_OPS),
        mem_desc: std::ptr::null_mut(),
        key: key.into(),
    };
    // SAFETY: a place for the handle, which begins with its `fid_mr`.
    unsafe { give(MemoryHandle { fid, domain: Arc::clone(domain), key }, memory) }
}

pub(super) unsafe extern "C" fn regv(
    fid: *mut fid,
    pieces: *const iovec,
    count: size_t,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    memory: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if count != 1 || pieces.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: there is one.
    let piece = unsafe { *pieces };
    // SAFETY: as for `reg`.
    unsafe { reg(fid, piece.iov_base, piece.iov_len, access, offset, key, flags, memory, context) }
}

pub(super) unsafe extern "C" fn regattr(
    fid: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    memory: *mut *mut fid_mr,
) -> c_int {
    // SAFETY: the program gives attributes.
    let attr = unsafe { &*attr };
    if attr.iface != 0 {
        return -FI_ENOSYS;
    }
    let (pieces, count) = (attr.mr_iov, attr.iov_count);
    let (access, offset, key) = (attr.access, attr.offset, attr.requested_key);
    // SAFETY: as for `reg`.
    unsafe { regv(fid, pieces, count, access, offset, key, flags, memory, attr.context) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: the program uses it no more.
    let handle: Box<MemoryHandle> = unsafe { take(fid) };
    let mut state = handle.domain.lock();
    let registered = state.world.memory.remove(&handle.key);
    // When this returns the memory is the program's alone.
    state.endpoints.iter_mut().for_each(|endpoint| endpoint.hide(handle.key));
    drop(registered);
    0
}

/// Regions are of the domain: all its endpoints have them, and they are enabled from the start.
unsafe extern "C" fn bind(_: *mut fid, _: *mut fid, flags: u64) -> c_int {
    if flags & FI_RMA_EVENT != 0 { -FI_ENOSYS } else { 0 }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, _: *mut c_void) -> c_int {
    // SAFETY: an open region.
    let _: &MemoryHandle = unsafe { of(fid) };
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}
