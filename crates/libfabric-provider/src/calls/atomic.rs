//! Words of the other side's memory that are changed in one step.
//!
//! Integers of 32 and 64 bits, with the functions that STP's FetchOps have. Each word is one
//! FetchOp: together they are not one step, which libfabric does not ask for either.

use std::ffi::{c_int, c_void};

use landfall::stp::{WordFunction, WordWidth};
use libc::{iovec, size_t, ssize_t};

use super::endpoint::EndpointHandle;
use super::message::{Outbound, answer};
use super::of;
use super::remote::{self, Place};
use crate::abi::*;
use crate::buffer::Buffer;
use crate::link::{RmaKind, Words};

/// One call changes this many words at most.
const MOST_WORDS: usize = 64;

pub(super) static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// What a call gives back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Write,
    /// What the words held.
    Fetch,
    /// The same; they are changed only where that is what was expected.
    Compare,
}

impl Kind {
    const fn of_flags(flags: u64) -> Option<Self> {
        match flags & (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) {
            0 => Some(Self::Write),
            FI_FETCH_ATOMIC => Some(Self::Fetch),
            FI_COMPARE_ATOMIC => Some(Self::Compare),
            _ => None,
        }
    }

    const fn has(self, operation: c_int) -> bool {
        match self {
            Self::Write => {
                matches!(operation, FI_SUM | FI_BOR | FI_BAND | FI_BXOR | FI_ATOMIC_WRITE)
            }
            Self::Fetch => operation == FI_ATOMIC_READ || Self::Write.has(operation),
            Self::Compare => operation == FI_CSWAP,
        }
    }
}

const fn width_of(datatype: c_int) -> Option<WordWidth> {
    match datatype {
        FI_INT32 | FI_UINT32 => Some(WordWidth::Four),
        FI_INT64 | FI_UINT64 => Some(WordWidth::Eight),
        _ => None,
    }
}

/// What is done to a word. Those that are signed are added as the others are.
const fn function_of(operation: c_int, operand: u64, expected: u64) -> Option<WordFunction> {
    Some(match operation {
        FI_SUM => WordFunction::Add(operand),
        FI_BOR => WordFunction::Or(operand),
        FI_BAND => WordFunction::And(operand),
        FI_BXOR => WordFunction::Xor(operand),
        FI_ATOMIC_READ => WordFunction::Load,
        FI_ATOMIC_WRITE => WordFunction::Swap(operand),
        FI_CSWAP => WordFunction::CompareSwap { expected, new: operand },
        _ => return None,
    })
}

/// Which function, of what words, where.
#[derive(Clone, Copy)]
struct Target {
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
}

/// Words of the program, in pieces.
#[derive(Clone, Copy)]
struct Pieces {
    first: *const fi_ioc,
    count: size_t,
}

impl Pieces {
    const fn one(piece: &fi_ioc) -> Self {
        Self { first: piece, count: 1 }
    }

    /// # Safety
    /// There are that many pieces, or none at null.
    const unsafe fn all<'a>(self) -> &'a [fi_ioc] {
        if self.first.is_null() {
            return &[];
        }
        // SAFETY: the caller says so.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }

    /// The words themselves.
    ///
    /// # Safety
    /// As for [`all`](Self::all); and each piece has its words.
    unsafe fn words(self, width: WordWidth) -> Result<Vec<u64>, c_int> {
        let mut words = Vec::new();
        // SAFETY: the caller says so.
        for piece in unsafe { self.all() } {
            if words.len().saturating_add(piece.count) > MOST_WORDS || piece.addr.is_null() {
                return Err(FI_EINVAL);
            }
            for nth in 0..piece.count {
                // SAFETY: there is such a word, at whatever address.
                words.push(unsafe {
                    match width {
                        WordWidth::Four => {
                            piece.addr.cast::<u32>().add(nth).read_unaligned().into()
                        }
                        WordWidth::Eight => piece.addr.cast::<u64>().add(nth).read_unaligned(),
                    }
                });
            }
        }
        Ok(words)
    }

    /// Where results go.
    ///
    /// # Safety
    /// As for [`words`](Self::words), until the operation completes.
    unsafe fn buffer(self, width: WordWidth) -> Option<Buffer> {
        let len = |piece: &fi_ioc| piece.count.saturating_mul(width.bytes() as usize);
        // SAFETY: the caller says so.
        let pieces = unsafe { self.all() }.iter();
        let pieces: Vec<iovec> =
            pieces.map(|piece| iovec { iov_base: piece.addr, iov_len: len(piece) }).collect();
        // SAFETY: the caller says so.
        unsafe { Buffer::of_pieces(pieces.as_ptr(), pieces.len()) }
    }
}

/// # Safety
/// `endpoint` is one of this provider; the pieces are the program's, and those of the result
/// stay so until the operation completes.
unsafe fn change(
    endpoint: *mut fid_ep,
    target: &Target,
    operands: Pieces,
    expected: Option<Pieces>,
    result: Option<Pieces>,
    outbound: &Outbound,
) -> ssize_t {
    // SAFETY: the caller says so.
    let handle: &EndpointHandle = unsafe { of(endpoint) };
    answer((|| {
        let Target { at, key, datatype, operation } = *target;
        let kind = match (expected, result) {
            (Some(_), _) => Kind::Compare,
            (None, Some(_)) => Kind::Fetch,
            (None, None) => Kind::Write,
        };
        let width = width_of(datatype).filter(|_| kind.has(operation)).ok_or(FI_ENOSYS)?;
        let result = match result {
            // SAFETY: the caller says so.
            Some(result) => Some(unsafe { result.buffer(width) }.ok_or(FI_EINVAL)?),
            None => None,
        };
        let len = width.bytes() as usize;
        let operands = match (operation, result) {
            // It has none: there are as many words as there is room for.
            (FI_ATOMIC_READ, Some(result)) if result.len() <= MOST_WORDS * len => {
                vec![0; result.len() / len]
            }
            // SAFETY: the caller says so.
            _ => unsafe { operands.words(width)? },
        };
        let expected = match expected {
            // SAFETY: the caller says so.
            Some(expected) => unsafe { expected.words(width)? },
            None => vec![0; operands.len()],
        };
        let count = operands.len();
        let fits = |result: Buffer| result.len() == count * len;
        if count == 0 || expected.len() != count || !result.is_none_or(fits) {
            return Err(FI_EINVAL);
        }
        let functions = operands.into_iter().zip(expected);
        let functions: Option<Vec<_>> =
            functions.map(|(word, expected)| function_of(operation, word, expected)).collect();
        let functions = functions.ok_or(FI_ENOSYS)?;
        let flags = FI_ATOMIC | if kind == Kind::Write { FI_WRITE } else { FI_READ };
        let what = || RmaKind::Words(Words { width, functions, result });
        remote::begin(handle, what, Place { at, key }, outbound, flags)
    })())
}

/// # Safety
/// As for [`change`]; the program gives a message, and what it points to.
unsafe fn change_message(
    endpoint: *mut fid_ep,
    message: *const fi_msg_atomic,
    expected: Option<Pieces>,
    result: Option<Pieces>,
    flags: u64,
) -> ssize_t {
    // SAFETY: the caller says so.
    unsafe {
        let message = &*message;
        if message.rma_iov_count != 1 {
            return -FI_EINVAL as ssize_t;
        }
        let place = &*message.rma_iov;
        let (datatype, operation) = (message.datatype, message.op);
        let target = Target { at: place.addr, key: place.key, datatype, operation };
        let operands = Pieces { first: message.msg_iov, count: message.iov_count };
        let outbound =
            Outbound { flags: Some(flags), ..Outbound::new(message.addr, message.context) };
        change(endpoint, &target, operands, expected, result, &outbound)
    }
}

const fn piece(base: *const c_void, count: size_t) -> fi_ioc {
    fi_ioc { addr: base.cast_mut(), count }
}

unsafe extern "C" fn write(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: size_t,
    _: *mut c_void,
    to: fi_addr_t,
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> ssize_t {
    let target = Target { at, key, datatype, operation };
    let (words, outbound) = (piece(base, count), Outbound::new(to, context));
    // SAFETY: the program's words are there, and are copied before this returns.
    unsafe { change(endpoint, &target, Pieces::one(&words), None, None, &outbound) }
}

unsafe extern "C" fn writev(
    endpoint: *mut fid_ep,
    first: *const fi_ioc,
    _: *mut *mut c_void,
    count: size_t,
    to: fi_addr_t,
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> ssize_t {
    let target = Target { at, key, datatype, operation };
    let (words, outbound) = (Pieces { first, count }, Outbound::new(to, context));
    // SAFETY: as for `write`, piece by piece.
    unsafe { change(endpoint, &target, words, None, None, &outbound) }
}

unsafe extern "C" fn writemsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_atomic,
    flags: u64,
) -> ssize_t {
    // SAFETY: as for `writev`.
    unsafe { change_message(endpoint, message, None, None, flags) }
}

unsafe extern "C" fn inject(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: size_t,
    to: fi_addr_t,
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
) -> ssize_t {
    let target = Target { at, key, datatype, operation };
    let words = piece(base, count);
    // SAFETY: as for `write`.
    unsafe { change(endpoint, &target, Pieces::one(&words), None, None, &Outbound::silent(to)) }
}

unsafe extern "C" fn readwrite(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: size_t,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> ssize_t {
    let target = Target { at, key, datatype, operation };
    let (words, into) = (piece(base, count), piece(result, count));
    let (into, outbound) = (Some(Pieces::one(&into)), Outbound::new(to, context));
    // SAFETY: as for `write`; the result is left to the operation until it completes.
    unsafe { change(endpoint, &target, Pieces::one(&words), None, into, &outbound) }
}

unsafe extern "C" fn readwritev(
    endpoint: *mut fid_ep,
    first: *const fi_ioc,
    _: *mut *mut c_void,
    count: size_t,
    result: *mut fi_ioc,
    _: *mut *mut c_void,
    results: size_t,
    to: fi_addr_t,
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> ssize_t {
    let target = Target { at, key, datatype, operation };
    let into = Some(Pieces { first: result, count: results });
    let (words, outbound) = (Pieces { first, count }, Outbound::new(to, context));
    // SAFETY: as for `readwrite`, piece by piece.
    unsafe { change(endpoint, &target, words, None, into, &outbound) }
}

unsafe extern "C" fn readwritemsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_atomic,
    result: *mut fi_ioc,
    _: *mut *mut c_void,
    results: size_t,
    flags: u64,
) -> ssize_t {
    let into = Some(Pieces { first: result, count: results });
    // SAFETY: as for `readwritev`.
    unsafe { change_message(endpoint, message, None, into, flags) }
}

unsafe extern "C" fn compwrite(
    endpoint: *mut fid_ep,
    base: *const c_void,
    count: size_t,
    _: *mut c_void,
    expected: *const c_void,
    _: *mut c_void,
    result: *mut c_void,
    _: *mut c_void,
    to: fi_addr_t,
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> ssize_t {
    let target = Target { at, key, datatype, operation };
    let (words, expected) = (piece(base, count), piece(expected, count));
    let (into, outbound) = (piece(result, count), Outbound::new(to, context));
    let (expected, into) = (Some(Pieces::one(&expected)), Some(Pieces::one(&into)));
    // SAFETY: as for `readwrite`.
    unsafe { change(endpoint, &target, Pieces::one(&words), expected, into, &outbound) }
}

unsafe extern "C" fn compwritev(
    endpoint: *mut fid_ep,
    first: *const fi_ioc,
    _: *mut *mut c_void,
    count: size_t,
    expected: *const fi_ioc,
    _: *mut *mut c_void,
    all_expected: size_t,
    result: *mut fi_ioc,
    _: *mut *mut c_void,
    results: size_t,
    to: fi_addr_t,
    at: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> ssize_t {
    let target = Target { at, key, datatype, operation };
    let expected = Some(Pieces { first: expected, count: all_expected });
    let into = Some(Pieces { first: result, count: results });
    let (words, outbound) = (Pieces { first, count }, Outbound::new(to, context));
    // SAFETY: as for `readwritev`.
    unsafe { change(endpoint, &target, words, expected, into, &outbound) }
}

unsafe extern "C" fn compwritemsg(
    endpoint: *mut fid_ep,
    message: *const fi_msg_atomic,
    expected: *const fi_ioc,
    _: *mut *mut c_void,
    all_expected: size_t,
    result: *mut fi_ioc,
    _: *mut *mut c_void,
    results: size_t,
    flags: u64,
) -> ssize_t {
    let expected = Some(Pieces { first: expected, count: all_expected });
    let into = Some(Pieces { first: result, count: results });
    // SAFETY: as for `readwritev`.
    unsafe { change_message(endpoint, message, expected, into, flags) }
}

/// How many words of that kind one call changes.
fn most(kind: Kind, datatype: c_int, operation: c_int) -> Result<(usize, usize), c_int> {
    let width = width_of(datatype).filter(|_| kind.has(operation)).ok_or(FI_ENOSYS)?;
    Ok((MOST_WORDS, width.bytes() as usize))
}

/// # Safety
/// There is a place for a count, or null.
unsafe fn valid(kind: Kind, datatype: c_int, operation: c_int, count: *mut size_t) -> c_int {
    match most(kind, datatype, operation) {
        Err(error) => -error,
        Ok((most, _)) => {
            // SAFETY: the caller says so.
            if let Some(count) = unsafe { count.as_mut() } {
                *count = most;
            }
            0
        }
    }
}

unsafe extern "C" fn writevalid(
    _: *mut fid_ep,
    datatype: c_int,
    operation: c_int,
    count: *mut size_t,
) -> c_int {
    // SAFETY: the program gives a place.
    unsafe { valid(Kind::Write, datatype, operation, count) }
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: c_int,
    operation: c_int,
    count: *mut size_t,
) -> c_int {
    // SAFETY: the program gives a place.
    unsafe { valid(Kind::Fetch, datatype, operation, count) }
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: c_int,
    operation: c_int,
    count: *mut size_t,
) -> c_int {
    // SAFETY: the program gives a place.
    unsafe { valid(Kind::Compare, datatype, operation, count) }
}

pub(super) unsafe extern "C" fn query(
    _: *mut fid_domain,
    datatype: c_int,
    operation: c_int,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    let Some(kind) = Kind::of_flags(flags) else { return -FI_EBADFLAGS };
    match most(kind, datatype, operation) {
        Err(error) => -error,
        Ok((count, size)) => {
            // SAFETY: the program gives a place, or null.
            if let Some(attr) = unsafe { attr.as_mut() } {
                *attr = fi_atomic_attr { count, size };
            }
            0
        }
    }
}
