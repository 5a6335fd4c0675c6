//! Remote writes and reads.

use std::ffi::{c_int, c_void};

use libc::{iovec, size_t, ssize_t};

use super::endpoint::EndpointHandle;
use super::message::{Outbound, answer, peer_with_room};
use super::of;
use crate::abi::*;
use crate::buffer::Buffer;
use crate::core::Report;
use crate::info::{MOST_INJECTED, MOST_MESSAGE};
use crate::link::{Access, Bytes, RmaKind};
use crate::world::MOST_KEY;

pub(super) static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// Where in the memory of the other side, and whether it is read.
struct Target {
    at: u64,
    key: u64,
    reads: bool,
}

/// A place in the memory of the other side.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) key: u64,
}

/// Begins something that is done to memory of the other side, with the flags that its
/// completion has.
pub(super) fn begin(
    handle: &EndpointHandle,
    what: impl FnOnce() -> RmaKind,
    place: Place,
    outbound: &Outbound,
    kind: u64,
) -> Result<(), c_int> {
    let enabled = handle.enabled()?;
    let options = &enabled.options;
    let flags = outbound.flags.unwrap_or(options.transmit_flags);
    let Place { at, key } = place;
    if key >= MOST_KEY {
        return Err(FI_EINVAL);
    }
    let mut state = handle.domain.lock();
    let peer = peer_with_room(&mut state, enabled, outbound.to)?;
    let tells = !outbound.is_silent && (!options.selective_transmit || flags & FI_COMPLETION != 0);
    let report = Report { context: outbound.context as usize, flags: kind, tells };
    // Not before there is room: a call that has to come again copies nothing.
    let access = Access { what: what(), key: key as u32, at, report };
    let (endpoint, world) = state.endpoint(enabled.number).ok_or(FI_EOPBADSTATE)?;
    endpoint.access(world, peer, access);
    Ok(())
}

/// # Safety
/// `endpoint` is one of this provider; the buffer holds what its constructor asks for.
unsafe fn access_any(
    endpoint: *mut fid_ep,
    buffer: Option<Buffer>,
    target: &Target,
    outbound: &Outbound,
) -> ssize_t {
    // SAFETY: the caller says so.
    let handle: &EndpointHandle = unsafe { of(endpoint) };
    answer((|| {
        let buffer = buffer.ok_or(FI_EINVAL)?;
        let enabled = handle.enabled()?;
        let options = &enabled.options;
        let flags = outbound.flags.unwrap_or(options.transmit_flags);
        let injects = outbound.is_silent || flags & FI_INJECT != 0;
        if buffer.len() > if injects { MOST_INJECTED } else { MOST_MESSAGE } {
            return Err(FI_EMSGSIZE);
        }
        let what = || match injects {
            _ if target.reads => RmaKind::Read(buffer),
            true => RmaKind::Write(Bytes::Copy(buffer.to_vec(buffer.len())), outbound.data),
            false => RmaKind::Write(Bytes::Buffer(buffer), outbound.data),
        };
        let kind = if target.reads { FI_READ } else { FI_WRITE };
        begin(handle, what, Place { at: target.at, key: target.key }, outbound, FI_RMA | kind)
    })())
}

/// # Safety
/// As for [`access_any`]; the program gives a message, and what it points to.
unsafe fn access_message(
    endpoint: *mut fid_ep,
    message: *const fi_msg_rma,
    flags: u64,
    reads: bool,
) -> ssize_t {
    // SAFETY: the caller says so.
    unsafe {
        let message = &*message;
        if message.rma_iov_count != 1 {
            return -FI_EINVAL as ssize_t;
        }
        let place = &*message.rma_iov;
        let buffer = Buffer::of_pieces(message.msg_iov, message.iov_count);
        if buffer.is_some_and(|buffer| buffer.len() != place.len) {
            return -FI_EINVAL as ssize_t;
        }
        let target = Target { at: place.addr, key: place.key, reads };
        let outbound = Outbound {
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            flags: Some(flags),
            ..Outbound::new(message.addr, message.context)
        };
        access_any(endpoint, buffer, &target, &outbound)
    }
}

unsafe extern "C" fn read(
    endpoint: *mut fid_ep,
    base: *mut c_void,
    len: size_t,
    _: *mut c_void,
    from: fi_addr_t,
    at: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let (target, outbound) = (Target { at, key, reads: true }, Outbound::new(from, context));
    // SAFETY: the program leaves these bytes to the operation until it completes.
    unsafe { access_any(endpoint, Some(Buffer::new(base, len)), &target, &outbound) }
}

unsafe extern "C" fn readv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: size_t,
    from: fi_addr_t,
    at: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let (target, outbound) = (Target { at, key, reads: true }, Outbound::new(from, context));
    // SAFETY: as for `read`, piece by piece.
    unsafe { access_any(endpoint, Buffer::of_pieces(pieces, count), &target, &outbound) }
}

unsafe extern "C" fn readmsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_rma,
    flags: u64,
) -> ssize_t {
    // SAFETY: as for `readv`.
    unsafe { access_message(endpoint, message, flags, true) }
}

unsafe extern "C" fn write(
    endpoint: *mut fid_ep,
    base: *mut c_void,
    len: size_t,
    _: *mut c_void,
    to: fi_addr_t,
    at: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let (target, outbound) = (Target { at, key, reads: false }, Outbound::new(to, context));
    // SAFETY: the program changes nothing of these bytes until the operation completes.
    unsafe { access_any(endpoint, Some(Buffer::new(base, len)), &target, &outbound) }
}

unsafe extern "C" fn writev(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: size_t,
    to: fi_addr_t,
    at: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let (target, outbound) = (Target { at, key, reads: false }, Outbound::new(to, context));
    // SAFETY: as for `write`, piece by piece.
    unsafe { access_any(endpoint, Buffer::of_pieces(pieces, count), &target, &outbound) }
}

unsafe extern "C" fn writemsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_rma,
    flags: u64,
) -> ssize_t {
    // SAFETY: as for `writev`.
    unsafe { access_message(endpoint, message, flags, false) }
}

unsafe extern "C" fn inject(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    to: fi_addr_t,
    at: u64,
    key: u64,
) -> ssize_t {
    let (target, outbound) = (Target { at, key, reads: false }, Outbound::silent(to));
    // SAFETY: the bytes are there until this returns, and are not used later.
    unsafe { access_any(endpoint, Some(Buffer::new(base, len)), &target, &outbound) }
}

unsafe extern "C" fn writedata(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    at: u64,
    key: u64,
    context: *mut c_void,
) -> ssize_t {
    let target = Target { at, key, reads: false };
    let outbound = Outbound { data: Some(data), ..Outbound::new(to, context) };
    // SAFETY: as for `write`.
    unsafe { access_any(endpoint, Some(Buffer::new(base, len)), &target, &outbound) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    data: u64,
    to: fi_addr_t,
    at: u64,
    key: u64,
) -> ssize_t {
    let target = Target { at, key, reads: false };
    let outbound = Outbound { data: Some(data), ..Outbound::silent(to) };
    // SAFETY: as for `inject`.
    unsafe { access_any(endpoint, Some(Buffer::new(base, len)), &target, &outbound) }
}
