//! Requests, as C writes them.

use std::net::SocketAddr;

use landfall::verbs::{
    AtomicRequest, PostError, RdmaQueuePair, RdmaRequest, ReceiveRequest, SendRequest,
    WordFunction, clan, stp,
};

use super::address::Address;
use super::region::{PartOf, Region, range};
use crate::error::Failure;
use crate::{bytes, elements, shared};

/// Some bytes of a region: see `landfall.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PartOfRegion {
    region: *const Region,
    at: u64,
    length: u64,
}

/// A request of the send queue: see `landfall.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Work {
    id: u64,
    parts: *const PartOfRegion,
    count: u32,
    operation: u32,
    flags: u32,
    immediate: u32,
    key: *const u8,
    at: u64,
    operand: u64,
    expected: u64,
    function: u32,
    reserved: u32,
    to: *const Address,
}

/// Room for what comes: see `landfall.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Room {
    pub(super) id: u64,
    parts: *const PartOfRegion,
    count: u32,
    reserved: u32,
}

/// What is done to a word, as C has it.
pub(crate) const fn word_function(
    function: u32,
    [operand, expected]: [u64; 2],
) -> Result<WordFunction, Failure> {
    Ok(match function {
        0 => WordFunction::Load,
        1 => WordFunction::Store(operand),
        2 => WordFunction::Swap(operand),
        3 => WordFunction::Add(operand),
        4 => WordFunction::And(operand),
        5 => WordFunction::Or(operand),
        6 => WordFunction::Xor(operand),
        7 => WordFunction::CompareSwap { expected, new: operand },
        _ => return Err(Failure::Invalid("the function is not known")),
    })
}

/// The parts of a request.
///
/// # Safety
/// It points to this many parts, whose regions are open, or is null.
unsafe fn parts<P: PartOf>(from: *const PartOfRegion, count: u32) -> Result<Vec<P>, Failure> {
    // SAFETY: the caller's promise.
    let listed = unsafe { elements(from, count as usize) }?;
    let part = |part: &PartOfRegion| {
        // SAFETY: the caller's promise.
        let region = unsafe { shared(part.region) }?;
        P::of(region, range(part.at, part.length)?)
    };
    listed.iter().map(part).collect()
}

impl Room {
    /// # Safety
    /// Its pointers are what the header asks for.
    pub(super) unsafe fn parts<P: PartOf>(&self) -> Result<Vec<P>, Failure> {
        if self.reserved != 0 {
            return Err(Failure::Invalid("what is reserved is not 0"));
        }
        // SAFETY: the caller's promise.
        unsafe { parts(self.parts, self.count) }
    }

    pub(super) const fn request<'a, P>(&self, into: &'a [P]) -> ReceiveRequest<'a, P> {
        ReceiveRequest { id: self.id, into }
    }
}

/// Where a datagram goes: null where its queue pair is connected.
///
/// # Safety
/// It is null, or points to an address that does not change meanwhile.
pub(super) unsafe fn destination(to: *const Address) -> Result<Option<SocketAddr>, Failure> {
    // SAFETY: the caller's promise.
    unsafe { to.as_ref() }.map(Address::socket).transpose()
}

const SILENT: u32 = 1;
const IMMEDIATE: u32 = 2;

impl Work {
    pub(super) const fn is_send(&self) -> bool {
        self.operation == 0
    }

    /// # Safety
    /// Its pointers are what the header asks for.
    pub(super) unsafe fn parts<P: PartOf>(&self) -> Result<Vec<P>, Failure> {
        if self.flags & !(SILENT | IMMEDIATE) != 0 || self.reserved != 0 {
            return Err(Failure::Invalid("a flag is not known"));
        }
        // SAFETY: the caller's promise.
        unsafe { parts(self.parts, self.count) }
    }

    fn immediate(&self) -> Option<u32> {
        (self.flags & IMMEDIATE != 0).then_some(self.immediate)
    }

    const fn is_signaled(&self) -> bool {
        self.flags & SILENT == 0
    }

    /// Where its datagram goes.
    ///
    /// # Safety
    /// Its pointers are what the header asks for.
    pub(super) unsafe fn to(&self) -> Result<Option<SocketAddr>, Failure> {
        // SAFETY: the caller's promise.
        unsafe { destination(self.to) }
    }

    pub(super) fn send<'a, P>(&self, from: &'a [P], to: Option<SocketAddr>) -> SendRequest<'a, P> {
        let (is_signaled, immediate) = (self.is_signaled(), self.immediate());
        SendRequest { id: self.id, from, to, is_signaled, immediate }
    }

    /// Posts one that reaches memory of the other side.
    ///
    /// # Safety
    /// Its pointers are what the header asks for.
    pub(super) unsafe fn reach<Q>(&self, pair: &mut Q, local: &[Q::Part]) -> Result<(), Failure>
    where
        Q: RdmaQueuePair<Key: Key>,
    {
        // SAFETY: the caller's promise: a key has this many bytes.
        let key = Q::Key::read(unsafe { bytes(self.key, KEY) }?)?;
        let (id, at, is_signaled) = (self.id, self.at, self.is_signaled());
        let immediate = self.immediate();
        if !self.to.is_null() {
            return Err(Failure::Invalid("only a datagram is sent to an address"));
        }
        let request = RdmaRequest { id, local, key, at, is_signaled, immediate };
        let posted = match (self.operation, local, immediate) {
            (1, ..) => pair.post_write(&request),
            (2, ..) => pair.post_read(&request),
            (3, [into], None) => {
                let function = word_function(self.function, [self.operand, self.expected])?;
                let into = into.clone();
                pair.post_atomic(&AtomicRequest { id, into, key, at, function, is_signaled })
            }
            (3, [_], Some(_)) => Err(PostError::NoImmediates),
            (3, ..) => return Err(Failure::Invalid("what a word held goes into one part")),
            _ => return Err(Failure::Invalid("the operation is not known")),
        };
        Ok(posted?)
    }
}

/// How many bytes a key has, of which those that its carrier does not need are zero.
pub(super) const KEY: usize = 32;

/// How memory of the other side is named.
pub(super) trait Key: Copy {
    fn of(bytes: &[u8; KEY]) -> Option<Self>;

    fn read(bytes: &[u8]) -> Result<Self, Failure> {
        let key = bytes.try_into().ok().and_then(Self::of);
        key.ok_or(Failure::Invalid("these bytes are no key: LF_KEY bytes of lf_share"))
    }
}

/// As C has it.
pub(super) fn written(key: &[u8]) -> [u8; KEY] {
    let mut bytes = [0; KEY];
    bytes[..key.len()].copy_from_slice(key);
    bytes
}

impl Key for stp::MemoryKey {
    fn of(bytes: &[u8; KEY]) -> Option<Self> {
        let (key, zeros) = bytes.split_first_chunk()?;
        zeros.iter().all(|byte| *byte == 0).then(|| Self::from_bytes(key))?
    }
}

impl Key for clan::MemoryKey {
    fn of(bytes: &[u8; KEY]) -> Option<Self> {
        Self::from_bytes(bytes)
    }
}
