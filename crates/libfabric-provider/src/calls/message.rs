//! Messages without a tag, and what they have in common with those that have one.

use std::ffi::{c_int, c_void};

use libc::{iovec, size_t, ssize_t};

use super::endpoint::{Enabled, EndpointHandle};
use super::of;
use crate::abi::*;
use crate::buffer::Buffer;
use crate::core::Report;
use crate::domain::State;
use crate::info::MOST_INJECTED;
use crate::link::{Bytes, Level, Send};
use crate::matching::{Receive, Several, Wanted};

pub(super) static OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
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

/// A send, as the program asks for it.
pub(super) struct Outbound {
    pub(super) to: fi_addr_t,
    pub(super) tag: Option<u64>,
    pub(super) data: Option<u64>,
    pub(super) context: *mut c_void,
    /// Those of the call; nothing where those of the endpoint hold.
    pub(super) flags: Option<u64>,
    /// It has no completion.
    pub(super) is_silent: bool,
}

impl Outbound {
    pub(super) const fn new(to: fi_addr_t, context: *mut c_void) -> Self {
        Self { to, tag: None, data: None, context, flags: None, is_silent: false }
    }

    pub(super) const fn silent(to: fi_addr_t) -> Self {
        Self { is_silent: true, ..Self::new(to, std::ptr::null_mut()) }
    }
}

/// A number of libfabric for a result.
pub(super) fn answer(result: Result<(), c_int>) -> ssize_t {
    match result {
        Ok(()) => 0,
        Err(error) => -error as ssize_t,
    }
}

/// The peer with a number of the endpoint's address vector, if there is room for one more
/// operation to it.
pub(super) fn peer_with_room(
    state: &mut State,
    enabled: &Enabled,
    number: fi_addr_t,
) -> Result<usize, c_int> {
    let (endpoint, _) = state.endpoint(enabled.number).ok_or(FI_EOPBADSTATE)?;
    let only = endpoint.only_peer()?;
    let book = enabled.options.book.and_then(|book| state.world.books.get(book));
    let name = book.and_then(|book| book.get(number));
    for is_last in [false, true] {
        let is_full = enabled.options.transmit.and_then(|queue| state.world.queues.get(queue));
        let is_full = is_full.is_some_and(crate::completion::Queue::is_full);
        let (endpoint, _) = state.endpoint(enabled.number).ok_or(FI_EOPBADSTATE)?;
        let peer = match only {
            Some(peer) => peer,
            None => endpoint.core.peer_of_name(&name.ok_or(FI_EINVAL)?),
        };
        if !is_full && endpoint.has_room(peer) {
            return Ok(peer);
        }
        if !is_last {
            state.progress();
        }
    }
    Err(FI_EAGAIN)
}

/// When a send with these flags is complete.
pub(super) const fn level(flags: u64) -> Level {
    if flags & FI_DELIVERY_COMPLETE != 0 {
        Level::Delivered
    } else if flags & FI_TRANSMIT_COMPLETE != 0 {
        Level::Transmitted
    } else {
        Level::Queued
    }
}

/// Sends a message.
///
/// # Safety
/// `endpoint` is one of this provider; the buffer holds what its constructor asks for.
pub(super) unsafe fn send_any(
    endpoint: *mut fid_ep,
    buffer: Option<Buffer>,
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
        if buffer.len() > if injects { MOST_INJECTED } else { options.longest } {
            return Err(FI_EMSGSIZE);
        }
        let mut state = handle.domain.lock();
        let peer = peer_with_room(&mut state, enabled, outbound.to)?;
        let kind = if outbound.tag.is_some() { FI_TAGGED } else { FI_MSG };
        let tells =
            !outbound.is_silent && (!options.selective_transmit || flags & FI_COMPLETION != 0);
        let send = Send {
            tag: outbound.tag,
            data: outbound.data,
            bytes: Bytes::Buffer(buffer),
            level: level(flags),
            injects,
            report: Report { context: outbound.context as usize, flags: kind | FI_SEND, tells },
        };
        let (endpoint, world) = state.endpoint(enabled.number).ok_or(FI_EOPBADSTATE)?;
        endpoint.send(world, peer, send);
        Ok(())
    })())
}

/// A receive, as the program asks for it.
pub(super) struct Inbound {
    pub(super) from: fi_addr_t,
    /// A tag, and the bits of it that don't matter.
    pub(super) tag: Option<(u64, u64)>,
    pub(super) context: *mut c_void,
    pub(super) flags: Option<u64>,
}

/// Receives a message, or looks for one.
///
/// # Safety
/// As for [`send_any`].
pub(super) unsafe fn receive_any(
    endpoint: *mut fid_ep,
    buffer: Option<Buffer>,
    inbound: &Inbound,
) -> ssize_t {
    // SAFETY: the caller says so.
    let handle: &EndpointHandle = unsafe { of(endpoint) };
    answer((|| {
        let buffer = buffer.ok_or(FI_EINVAL)?;
        let enabled = handle.enabled()?;
        let options = &enabled.options;
        let flags = inbound.flags.unwrap_or(options.receive_flags);
        let takes_several = flags & FI_MULTI_RECV != 0 && inbound.tag.is_none();
        if inbound.tag.is_some() && inbound.flags.is_some_and(|flags| flags & FI_MULTI_RECV != 0) {
            return Err(FI_EBADFLAGS);
        }
        let mut state = handle.domain.lock();
        // Without that capability programs may say anything.
        let peer = if inbound.from == FI_ADDR_UNSPEC || !options.is_directed {
            None
        } else {
            let book = options.book.and_then(|book| state.world.books.get(book));
            let name = book.and_then(|book| book.get(inbound.from)).ok_or(FI_EINVAL)?;
            let (endpoint, _) = state.endpoint(enabled.number).ok_or(FI_EOPBADSTATE)?;
            Some(endpoint.core.peer_of_name(&name))
        };
        let is_full = options.receive.and_then(|queue| state.world.queues.get(queue));
        if is_full.is_some_and(crate::completion::Queue::is_full) {
            return Err(FI_EAGAIN);
        }
        let receive = Receive {
            wanted: Wanted { tag: inbound.tag, peer },
            buffer,
            context: inbound.context as usize,
            tells: !options.selective_receive || flags & FI_COMPLETION != 0,
            several: takes_several.then(|| Several::new(handle.least_left())),
        };
        let (endpoint, world) = state.endpoint(enabled.number).ok_or(FI_EOPBADSTATE)?;
        let (claims, drops) = (flags & FI_CLAIM != 0, flags & FI_DISCARD != 0);
        if flags & FI_PEEK != 0 {
            endpoint.peek(world, &receive, claims, drops);
        } else if claims {
            return endpoint.take_claimed(world, receive, drops).then_some(()).ok_or(FI_EINVAL);
        } else if endpoint.has_room_to_receive() {
            endpoint.receive(world, receive);
        } else {
            return Err(FI_EAGAIN);
        }
        Ok(())
    })())
}

unsafe extern "C" fn recv(
    endpoint: *mut fid_ep,
    base: *mut c_void,
    len: size_t,
    _: *mut c_void,
    from: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    let inbound = Inbound { from, tag: None, context, flags: None };
    // SAFETY: the program leaves these bytes to the operation until it completes.
    unsafe { receive_any(endpoint, Some(Buffer::new(base, len)), &inbound) }
}

unsafe extern "C" fn recvv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: size_t,
    from: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    let inbound = Inbound { from, tag: None, context, flags: None };
    // SAFETY: as for `recv`, piece by piece.
    unsafe { receive_any(endpoint, Buffer::of_pieces(pieces, count), &inbound) }
}

unsafe extern "C" fn recvmsg(endpoint: *mut fid_ep, message: *const fi_msg, flags: u64) -> ssize_t {
    // SAFETY: the program gives a message, and what it points to; else as for `recvv`.
    unsafe {
        let message = &*message;
        let (from, context) = (message.addr, message.context);
        let inbound = Inbound { from, tag: None, context, flags: Some(flags) };
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
    context: *mut c_void,
) -> ssize_t {
    let outbound = Outbound::new(to, context);
    // SAFETY: the program changes nothing of these bytes until the operation completes.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &outbound) }
}

unsafe extern "C" fn sendv(
    endpoint: *mut fid_ep,
    pieces: *const iovec,
    _: *mut *mut c_void,
    count: size_t,
    to: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    let outbound = Outbound::new(to, context);
    // SAFETY: as for `send`, piece by piece.
    unsafe { send_any(endpoint, Buffer::of_pieces(pieces, count), &outbound) }
}

unsafe extern "C" fn sendmsg(endpoint: *mut fid_ep, message: *const fi_msg, flags: u64) -> ssize_t {
    // SAFETY: the program gives a message, and what it points to; else as for `sendv`.
    unsafe {
        let message = &*message;
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(message.data);
        let outbound =
            Outbound { data, flags: Some(flags), ..Outbound::new(message.addr, message.context) };
        let buffer = Buffer::of_pieces(message.msg_iov, message.iov_count);
        send_any(endpoint, buffer, &outbound)
    }
}

unsafe extern "C" fn inject(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    to: fi_addr_t,
) -> ssize_t {
    // SAFETY: the bytes are there until this returns, and are not used later.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &Outbound::silent(to)) }
}

unsafe extern "C" fn senddata(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    _: *mut c_void,
    data: u64,
    to: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    let outbound = Outbound { data: Some(data), ..Outbound::new(to, context) };
    // SAFETY: as for `send`.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &outbound) }
}

unsafe extern "C" fn injectdata(
    endpoint: *mut fid_ep,
    base: *const c_void,
    len: size_t,
    data: u64,
    to: fi_addr_t,
) -> ssize_t {
    let outbound = Outbound { data: Some(data), ..Outbound::silent(to) };
    // SAFETY: as for `inject`.
    unsafe { send_any(endpoint, Some(Buffer::new(base, len)), &outbound) }
}
