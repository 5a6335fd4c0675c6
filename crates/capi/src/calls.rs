//! Calls for C.

use std::ffi::{c_char, c_void};

use landfall::clan::layer::rpc::{self, Config};
use landfall::clan::shared::SharedNode;

use crate::error::{code, number, pointer};
use crate::{NamedOffer, Node, bytes, close, deadline, find, give, handle, text, visitor};

/// Calls: see `landfall.h`.
#[derive(Debug)]
pub struct Client(rpc::Client<SharedNode>);

/// Answers calls: see `landfall.h`.
#[derive(Debug)]
pub struct Server(rpc::Server<SharedNode>);

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_accept_client(
    node: *mut Node,
    offer: *mut NamedOffer,
    request: u32,
    reply: u32,
    timeout: i64,
) -> *mut Server {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, offer) = unsafe { (handle(node)?, handle(offer)?) };
        let half = rpc::Server::open(&node.0, Config::new(request, reply))?;
        Ok(Server(visitor(offer, deadline(timeout))?.join(half)?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_find_server(
    node: *mut Node,
    name: *const c_char,
    request: u32,
    reply: u32,
    timeout: i64,
) -> *mut Client {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, name) = unsafe { (handle(node)?, text(name)?) };
        let until = deadline(timeout);
        let half = rpc::Client::open(&node.0, Config::new(request, reply))?;
        Ok(Client(find(node, name, until)?.join(half, until)?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_call(
    client: *mut Client,
    request: *const c_void,
    length: usize,
    reply: *mut c_void,
    room: usize,
    timeout: i64,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let (client, request) = unsafe { (handle(client)?, bytes(request.cast(), length)?) };
        let found = client.0.call(request, deadline(timeout))?;
        // SAFETY: the caller's promise.
        unsafe { give(&found, reply.cast(), room) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_client_close(client: *mut Client) {
    // SAFETY: the caller's promise.
    unsafe { close(client) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_request(
    server: *mut Server,
    into: *mut c_void,
    room: usize,
    timeout: i64,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let server = unsafe { handle(server) }?;
        let found = server.0.next_to_keep(deadline(timeout))?;
        // SAFETY: the caller's promise.
        unsafe { give(&found, into.cast(), room) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_reply(server: *mut Server, reply: *const c_void, length: usize) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (server, reply) = unsafe { (handle(server)?, bytes(reply.cast(), length)?) };
        Ok(server.0.reply_to_kept(reply)?)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_server_close(server: *mut Server) {
    // SAFETY: the caller's promise.
    unsafe { close(server) }
}
