//! Queues for C.

use std::ffi::{c_char, c_void};
use std::time::{Duration, Instant};

use landfall::clan::layer::{queue, typed};
use landfall::clan::shared::SharedNode;

use crate::error::{Failure, address, code, pointer};
use crate::{NamedOffer, Node, bytes, close, deadline, find, give, handle, text, visitor};

/// What both sides agree on: see `landfall.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Queue {
    element: u32,
    capacity: u32,
    batch: u32,
    reserved: u32,
    layout: u64,
}

/// What waits for its batch is published so late at most, where another call is made.
const WITHIN: Duration = Duration::from_micros(50);

impl Queue {
    const fn config(&self) -> queue::Config {
        let config = queue::Config::new(self.element, self.capacity);
        let batch = if self.batch == 0 { 1 } else { self.batch };
        config.batch(batch, WITHIN).layout(self.layout)
    }
}

/// Puts elements in: see `landfall.h`.
#[derive(Debug)]
pub struct Sender {
    queue: queue::Sender<SharedNode>,
    element: usize,
}

/// Takes elements out: see `landfall.h`.
#[derive(Debug)]
pub struct Receiver {
    queue: queue::Receiver<SharedNode>,
    element: Vec<u8>,
    stride: usize,
}

impl Receiver {
    fn new(queue: queue::Receiver<SharedNode>, config: &Queue) -> Self {
        let element = config.element as usize;
        Self { queue, element: vec![0; element], stride: element.next_multiple_of(8) }
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_layout(layout: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { text(layout) }.map_or(0, typed::fingerprint_of)
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_accept_sender(
    node: *mut Node,
    offer: *mut NamedOffer,
    config: *const Queue,
    timeout: i64,
) -> *mut Sender {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, offer) = unsafe { (handle(node)?, handle(offer)?) };
        // SAFETY: the caller's promise.
        let config = unsafe { handle(config.cast_mut()) }?;
        let half = queue::Sender::open(&node.0, config.config())?;
        let queue = visitor(offer, deadline(timeout))?.join(half)?;
        Ok(Sender { queue, element: config.element as usize })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_accept_receiver(
    node: *mut Node,
    offer: *mut NamedOffer,
    config: *const Queue,
    timeout: i64,
) -> *mut Receiver {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, offer) = unsafe { (handle(node)?, handle(offer)?) };
        // SAFETY: the caller's promise.
        let config = unsafe { handle(config.cast_mut()) }?;
        let half = queue::Receiver::open(&node.0, config.config())?;
        let queue = visitor(offer, deadline(timeout))?.join(half)?;
        Ok(Receiver::new(queue, config))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_find_sender(
    node: *mut Node,
    name: *const c_char,
    config: *const Queue,
    timeout: i64,
) -> *mut Sender {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, name) = unsafe { (handle(node)?, text(name)?) };
        // SAFETY: the caller's promise.
        let config = unsafe { handle(config.cast_mut()) }?;
        let until = deadline(timeout);
        let half = queue::Sender::open(&node.0, config.config())?;
        let queue = find(node, name, until)?.join(half, until)?;
        Ok(Sender { queue, element: config.element as usize })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_find_receiver(
    node: *mut Node,
    name: *const c_char,
    config: *const Queue,
    timeout: i64,
) -> *mut Receiver {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, name) = unsafe { (handle(node)?, text(name)?) };
        // SAFETY: the caller's promise.
        let config = unsafe { handle(config.cast_mut()) }?;
        let until = deadline(timeout);
        let half = queue::Receiver::open(&node.0, config.config())?;
        let queue = find(node, name, until)?.join(half, until)?;
        Ok(Receiver::new(queue, config))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_put(sender: *mut Sender, element: *const c_void, timeout: i64) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let Sender { queue, element: len } = unsafe { handle(sender) }?;
        // SAFETY: the caller's promise.
        let element = unsafe { bytes(element.cast(), *len) }?;
        Ok(queue.put(element, deadline(timeout))?)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_loan(sender: *mut Sender, timeout: i64) -> *mut c_void {
    address(|| {
        // SAFETY: the caller's promise.
        let Sender { queue, .. } = unsafe { handle(sender) }?;
        let mut loan = queue.loan(deadline(timeout))?;
        let piece = loan.place().piece()?;
        // Given back here, and taken anew by `lf_publish`: nothing is put in between.
        let piece = piece.ok_or(Failure::Invalid("the memory of the receiver is not in reach"))?;
        Ok(piece.address().as_ptr().cast())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_publish(sender: *mut Sender) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let Sender { queue, .. } = unsafe { handle(sender) }?;
        Ok(queue.loan(Some(Instant::now()))?.publish()?)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_flush(sender: *mut Sender) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let Sender { queue, .. } = unsafe { handle(sender) }?;
        Ok(queue.publish()?)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_drain(sender: *mut Sender, timeout: i64) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let Sender { queue, .. } = unsafe { handle(sender) }?;
        Ok(queue.drain(deadline(timeout))?)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_sender_close(sender: *mut Sender) {
    // SAFETY: the caller's promise.
    unsafe { close(sender) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_get(receiver: *mut Receiver, into: *mut c_void, timeout: i64) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let Receiver { queue, element, .. } = unsafe { handle(receiver) }?;
        queue.get(element, deadline(timeout))?;
        // SAFETY: the caller's promise: there is room for an element.
        unsafe { give(element, into.cast(), element.len()) }.map(drop)
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_peek(
    receiver: *mut Receiver,
    count: *mut usize,
    stride: *mut usize,
    timeout: i64,
) -> *const c_void {
    address(|| {
        // SAFETY: the caller's promise.
        let Receiver { queue, stride: step, .. } = unsafe { handle(receiver) }?;
        let elements = queue.elements(deadline(timeout))?;
        let there = elements.count();
        let first = elements.nth(0).map_or(Ok(None), |view| view.piece());
        elements.leave();
        let first = first?.ok_or(Failure::Invalid("an element is not in reach"))?;
        // SAFETY: each is null, or the caller's promise.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = there;
        }
        // SAFETY: as above.
        if let Some(stride) = unsafe { stride.as_mut() } {
            *stride = *step;
        }
        Ok(first.address().as_ptr().cast::<c_void>())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_release(receiver: *mut Receiver, count: usize) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let Receiver { queue, .. } = unsafe { handle(receiver) }?;
        let mut left = count;
        while left > 0 {
            let elements = queue.try_elements()?;
            let elements = elements.ok_or(Failure::Invalid("not that many elements are there"))?;
            let now = left.min(elements.count());
            elements.take_only(now);
            left -= now;
        }
        Ok(())
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_receiver_close(receiver: *mut Receiver) {
    // SAFETY: the caller's promise.
    unsafe { close(receiver) }
}
