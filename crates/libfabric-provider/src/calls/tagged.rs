//! Messages with a tag.

use std::ffi::c_void;

use libc::{iovec, size_t, ssize_t};

use super::message::{Inbound, Outbound, receive_any, send_any};
use crate::abi::*;
use crate::buffer::Buffer;

pub(super) static OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

unsafe extern "C" fn recv(
    endpoint: *mut fid_ep,
    base: *mut c_void,
    len: size_t,
    _: *mut c_void,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> ssize_t {
    let inbound = Inbound { from, tag: Some((tag, ignore)), context, flags: None };
    // SAFETY: the program leaves these bytes to the operation until it completes.
    unsafe { receive_any(endpoint, Some(Buffer::new(base, len)), &inbound) }
}

unsafe extern "C" fn recvv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: size_t,
    from: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> ssize_t {
    let inbound = Inbound { from, tag: Some((tag, ignore)), context, flags: None };
    // SAFETY: as for `recv`, piece by piece.
    unsafe { receive_any(endpoint, Buffer::of_pieces(pieces, count), &inbound) }
}

unsafe extern "C" fn recvmsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_tagged,
    flags: u64,
) -> ssize_t {
    // SAFETY: the program gives a message, and what it points to; else as for `recvv`.
    unsafe {
        let message = &*message;
        let inbound = Inbound {
            from: message.addr,
            tag: Some((message.tag, message.ignore)),
            context: message.context,
            flags: Some(flags),
        };
        let buffer = Buffer::of_pieces(message.msg_iov, message.iov_count);
        receive_any(endpoint, buffer, &inbound)
    }
}

unsafe extern "C" fn send(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    _: *mut c_void,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> ssize_t {
    let outbound = Outbound { tag: Some(tag), ..Outbound::new(to, context) };
    // SAFETY: the program changes nothing of these bytes until the operation completes.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &outbound) }
}

unsafe extern "C" fn sendv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: size_t,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> ssize_t {
    let outbound = Outbound { tag: Some(tag), ..Outbound::new(to, context) };
    // SAFETY: as for `send`, piece by piece.
    unsafe { send_any(endpoint, Buffer::of_pieces(pieces, count), &outbound) }
}

unsafe extern "C" fn sendmsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_tagged,
    flags: u64,
) -> ssize_t {
    // SAFETY: the program gives a message, and what it points to; else as for `sendv`.
    unsafe {
        let message = &*message;
        let outbound = Outbound {
            tag: Some(message.tag),
            data: (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data),
            flags: Some(flags),
            ..Outbound::new(message.addr, message.context)
        };
        let buffer = Buffer::of_pieces(message.msg_iov, message.iov_count);
        send_any(endpoint, buffer, &outbound)
    }
}

unsafe extern "C" fn inject(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    to: fi_addr_t,
    tag: u64,
) -> ssize_t {
    let outbound = Outbound { tag: Some(tag), ..Outbound::silent(to) };
    // SAFETY: the bytes are there until this returns, and are not used later.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &outbound) }
}

unsafe extern "C" fn senddata(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> ssize_t {
    let outbound = Outbound { tag: Some(tag), data: Some(data), ..Outbound::new(to, context) };
    // SAFETY: as for `send`.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &outbound) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    data: u64,
    to: fi_addr_t,
    tag: u64,
) -> ssize_t {
    let outbound = Outbound { tag: Some(tag), data: Some(data), ..Outbound::silent(to) };
    // SAFETY: as for `inject`.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &outbound) }
}
