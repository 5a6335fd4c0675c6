#![doc = include_str!("../README.md")]

pub mod calls;
pub mod error;
pub mod publications;
pub mod queues;
pub mod reassembly;
pub mod stp;
pub mod stp_memory;
pub mod stp_messages;
pub mod verbs;

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::time::{Duration, Instant};

use landfall::clan::Error;
use landfall::clan::shared::{Found, NameRequest, Offer, SharedConfig, SharedNode};

use error::{Failure, pointer};

/// The version of what `landfall.h` declares.
#[unsafe(no_mangle)]
pub extern "C" fn lf_abi() -> u32 {
    4
}

/// A node: see `landfall.h`.
#[derive(Debug)]
pub struct Node(SharedNode);

/// A name that is offered: see `landfall.h`.
#[derive(Debug)]
pub struct NamedOffer(Offer);

/// What a C program gave is there, or the call is refused.
///
/// # Safety
/// It is null, or points to a handle of this type that was opened, was not closed, and that no
/// other thread uses.
unsafe fn handle<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise is what the header asks of C.
    unsafe { pointer.as_mut() }.ok_or(Failure::Invalid("a handle is NULL"))
}

/// The same for what several threads may use at once.
///
/// # Safety
/// It is null, or points to one of this type that was opened and is not closed meanwhile.
unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise is what the header asks of C.
    unsafe { pointer.as_ref() }.ok_or(Failure::Invalid("a handle is NULL"))
}

/// # Safety
/// It is null, or a text that ends with a zero byte and does not change meanwhile.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::Invalid("a text is NULL"));
    }
    // SAFETY: not null, and the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::Invalid("a text is not UTF-8"))
}

/// # Safety
/// It is null with no bytes, or points to this many that do not change meanwhile.
unsafe fn bytes<'a>(pointer: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { elements(pointer, len) }
}

/// # Safety
/// It is null with none, or points to this many that do not change meanwhile.
unsafe fn elements<'a, T>(pointer: *const T, len: usize) -> Result<&'a [T], Failure> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(NULL),
        (false, len) if !fits::<T>(len) => Err(TOO_MANY),
        // SAFETY: not null, and the rest is the caller's promise.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(pointer, len) }),
    }
}

/// The same to be written.
///
/// # Safety
/// It is null with no bytes, or points to this many that nobody else uses meanwhile.
unsafe fn bytes_mut<'a>(pointer: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { elements_mut(pointer, len) }
}

/// # Safety
/// It is null with none, or points to this many that nobody else uses meanwhile.
unsafe fn elements_mut<'a, T>(pointer: *mut T, len: usize) -> Result<&'a mut [T], Failure> {
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(NULL),
        (false, len) if !fits::<T>(len) => Err(TOO_MANY),
        // SAFETY: not null, and the rest is the caller's promise.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) }),
    }
}

const NULL: Failure = Failure::Invalid("what is to be read or written is NULL");
const TOO_MANY: Failure = Failure::Invalid("more bytes than there can be");

/// Can there be this many?
fn fits<T>(len: usize) -> bool {
    len.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

/// Copies to where a C program said, if it fits.
///
/// # Safety
/// It is null with no room, or points to this many bytes that nobody else uses meanwhile.
unsafe fn give(found: &[u8], into: *mut u8, room: usize) -> Result<i64, Failure> {
    if found.len() > room {
        return Err(Failure::Clan(Error::TooLong { len: found.len() as u64, most: room as u64 }));
    }
    if !found.is_empty() {
        if into.is_null() {
            return Err(Failure::Invalid("bytes are NULL"));
        }
        // SAFETY: there is room, as was checked, at an address that is the caller's promise.
        unsafe { into.copy_from_nonoverlapping(found.as_ptr(), found.len()) };
    }
    Ok(found.len() as i64)
}

/// Closes a handle. Null is none.
///
/// # Safety
/// It is null, or was opened, was not closed, and is not used any more.
unsafe fn close<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: it came from a box, and the rest is the caller's promise.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// The end of a timeout in milliseconds; negative: none.
fn deadline(timeout: i64) -> Option<Instant> {
    let timeout = u64::try_from(timeout).ok()?;
    Instant::now().checked_add(Duration::from_millis(timeout))
}

/// The next who has found a name.
fn visitor(offer: &NamedOffer, until: Option<Instant>) -> Result<NameRequest, Failure> {
    Ok(offer.0.accept(until)?)
}

/// Who offers a name.
fn find(node: &Node, name: &str, until: Option<Instant>) -> Result<Found, Failure> {
    Ok(node.0.find(name, until)?)
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_node_open(folder: *const c_char) -> *mut Node {
    pointer(|| {
        // SAFETY: the caller's promise.
        let folder = unsafe { text(folder) }?;
        Ok(Node(SharedNode::open(SharedConfig::new(Path::new(folder)))?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_node_close(node: *mut Node) {
    // SAFETY: the caller's promise.
    unsafe { close(node) }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_offer_open(node: *mut Node, name: *const c_char) -> *mut NamedOffer {
    pointer(|| {
        // SAFETY: the caller's promise.
        let (node, name) = unsafe { (handle(node)?, text(name)?) };
        Ok(NamedOffer(node.0.offer(name)?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_offer_close(offer: *mut NamedOffer) {
    // SAFETY: the caller's promise.
    unsafe { close(offer) }
}
