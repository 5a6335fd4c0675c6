//! Publications for C.

use std::ffi::{c_char, c_void};

use landfall::clan::layer::publish::{self, Config};
use landfall::clan::shared::SharedNode;

use crate::error::{code, number, pointer};
use crate::{NamedOffer, Node, bytes, close, deadline, find, give, handle, text, visitor};

/// Publishes: see `landfall.h`.
#[derive(Debug)]
pub struct Publisher(publish::Publisher<SharedNode>);

/// Gets what is published: see `landfall.h`.
#[derive(Debug)]
pub struct Subscriber(publish::Subscriber<SharedNode>);

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_publisher_open(
    node: *mut Node,
    most: u32,
    slots: u32,
) -> *mut Publisher {
    pointer(|| {
        // SAFETY: the caller's promise.
        let node = unsafe { handle(node) }?;
        Ok(Publisher(publish::Publisher::open(&node.0, Config::new(most, slots))?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_accept_subscriber(
    publisher: *mut Publisher,
    offer: *mut NamedOffer,
    timeout: i64,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (publisher, offer) = unsafe { (handle(publisher)?, handle(offer)?) };
        Ok(visitor(offer, deadline(timeout))?.subscribe(&mut publisher.0)?)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_publish_bytes(
    publisher: *mut Publisher,
    what: *const c_void,
    length: usize,
) -> i32 {
    let published = number(|| {
        // SAFETY: the caller's promise.
        let (publisher, what) = unsafe { (handle(publisher)?, bytes(what.cast(), length)?) };
        Ok(publisher.0.publish(what)?.sent as i64)
    });
    i32::try_from(published).unwrap_or(i32::MAX)
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_publisher_close(publisher: *mut Publisher) {
    // SAFETY: the caller's promise.
    unsafe { close(publisher) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_find_publisher(
    node: *mut Node,
    name: *const c_char,
    most: u32,
    slots: u32,
    timeout: i64,
) -> *mut Subscriber {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, name) = unsafe { (handle(node)?, text(name)?) };
        let until = deadline(timeout);
        let half = publish::Subscriber::open(&node.0, Config::new(most, slots))?;
        Ok(Subscriber(find(node, name, until)?.join(half, until)?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_next(
    subscriber: *mut Subscriber,
    into: *mut c_void,
    room: usize,
    missed: *mut u64,
    timeout: i64,
) -> i64 {
    number(|| {
        // SAFETY: the caller's promise.
        let subscriber = unsafe { handle(subscriber) }?;
        let publication = subscriber.0.next(deadline(timeout))?;
        // SAFETY: it is null, or the caller's promise.
        if let Some(missed) = unsafe { missed.as_mut() } {
            *missed = publication.missed;
        }
        // SAFETY: the caller's promise.
        unsafe { give(&publication.bytes, into.cast(), room) }
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_subscriber_close(subscriber: *mut Subscriber) {
    // SAFETY: the caller's promise.
    unsafe { close(subscriber) }
}
