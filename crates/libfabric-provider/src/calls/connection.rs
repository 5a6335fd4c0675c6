//! Calls that have to do with connections of `FI_EP_MSG`.

use std::ffi::{c_int, c_void};

use libc::size_t;

use super::endpoint::{self, EndpointHandle, Wanted};
use super::{NOT_OFFERED, of};
use crate::abi::*;
use crate::address::{self, Name};
use crate::endpoint::Endpoint;
use crate::link::MOST_CONNECTION_DATA;
use crate::notify::locked;

pub(super) static OPS: fi_ops_cm =
    fi_ops_cm { getname: endpoint::getname, getpeer, connect, accept, shutdown, ..NONE };

/// # Safety
/// There are `len` bytes at `value`.
pub(super) unsafe fn write_size(size: size_t, value: *mut c_void, len: *mut size_t) -> c_int {
    // SAFETY: the caller says so.
    unsafe {
        let room = std::mem::replace(&mut *len, size_of::<size_t>());
        if room < size_of::<size_t>() {
            return -FI_ETOOSMALL;
        }
        value.cast::<size_t>().write_unaligned(size);
    }
    0
}

/// How much programs may say along when they connect, if that is asked for.
///
/// # Safety
/// As for [`write_size`].
pub(super) unsafe fn connection_data_size(
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut size_t,
) -> c_int {
    if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) {
        return -libc::ENOPROTOOPT;
    }
    // SAFETY: the caller says so.
    unsafe { write_size(MOST_CONNECTION_DATA, value, len) }
}

/// Writes an address to where a program wants it, and how long it is.
///
/// # Safety
/// There are `len` bytes at `into`.
pub(super) unsafe fn write_name(name: &Name, into: *mut c_void, len: *mut size_t) -> c_int {
    // SAFETY: the caller says so.
    unsafe {
        let room = *len;
        address::write(name, into, room);
        *len = address::len_of(&name.address);
        if room < *len { -FI_ETOOSMALL } else { 0 }
    }
}

/// A copy of what a program says along.
///
/// # Safety
/// There are `len` bytes at `data`.
pub(super) unsafe fn copied(data: *const c_void, len: size_t) -> Vec<u8> {
    if data.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: the caller says so.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec()
}

unsafe extern "C" fn getpeer(ep: *mut fid_ep, into: *mut c_void, len: *mut size_t) -> c_int {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(ep) };
    match handle.with_connection(|endpoint, _| endpoint.peer_name().ok_or(FI_ENOTCONN)) {
        // SAFETY: the program says how much room there is, and where.
        Ok(name) => unsafe { write_name(&name.into(), into, len) },
        Err(error) => -error,
    }
}

fn result(result: Result<(), c_int>) -> c_int {
    result.map_or_else(|error| -error, |()| 0)
}

unsafe extern "C" fn connect(
    ep: *mut fid_ep,
    to: *const c_void,
    data: *const c_void,
    len: size_t,
) -> c_int {
    // SAFETY: an endpoint; an address, as long as its family says; and this many bytes.
    let (handle, to): (&EndpointHandle, _) = unsafe { (of(ep), address::read(to)) };
    let known = handle.connected.as_ref().and_then(|wanted| match &*locked(wanted) {
        Wanted::To(to) => *to,
        Wanted::Taken(_) => None,
    });
    let Some(to) = to.or(known) else { return -FI_EINVAL };
    if len > MOST_CONNECTION_DATA {
        return -FI_EINVAL;
    }
    // SAFETY: see above.
    let data = unsafe { copied(data, len) };
    result(
        handle.enable().and_then(|()| {
            handle.with_connection(|endpoint, world| endpoint.connect(world, to, data))
        }),
    )
}

unsafe extern "C" fn accept(ep: *mut fid_ep, data: *const c_void, len: size_t) -> c_int {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(ep) };
    if len > MOST_CONNECTION_DATA {
        return -FI_EINVAL;
    }
    // SAFETY: the program gives this many bytes.
    let data = unsafe { copied(data, len) };
    result(
        handle
            .enable()
            .and_then(|()| handle.with_connection(|endpoint, world| endpoint.take(world, data))),
    )
}

unsafe extern "C" fn shutdown(ep: *mut fid_ep, _: u64) -> c_int {
    // SAFETY: an endpoint.
    let handle: &EndpointHandle = unsafe { of(ep) };
    result(handle.with_connection(Endpoint::shut_down))
}

/// The calls of an endpoint that has to do with no connections.
pub(super) const NONE: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: no_setname,
    getname: no_getname,
    getpeer: no_getname_of_peer,
    connect: no_connect,
    listen: no_listen,
    accept: no_accept,
    reject: no_reject,
    shutdown: no_shutdown,
    join: NOT_OFFERED,
};

unsafe extern "C" fn no_setname(_: *mut fid, _: *mut c_void, _: size_t) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_getname(_: *mut fid, _: *mut c_void, _: *mut size_t) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_getname_of_peer(_: *mut fid_ep, _: *mut c_void, _: *mut size_t) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_connect(
    _: *mut fid_ep,
    _: *const c_void,
    _: *const c_void,
    _: size_t,
) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_listen(_: *mut fid_pep) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_accept(_: *mut fid_ep, _: *const c_void, _: size_t) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_reject(_: *mut fid_pep, _: *mut fid, _: *const c_void, _: size_t) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn no_shutdown(_: *mut fid_ep, _: u64) -> c_int {
    -FI_ENOSYS
}
