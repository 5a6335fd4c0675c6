//! Registered memory, of STP and of queue pairs.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use landfall::clan::Rights;
use landfall::clan::shared::SharedNode;
use landfall::qpip::{self, Access};
use landfall::stp::{self, Memory};
use landfall::verbs::clan;

use super::{Any, OF_ANOTHER, Verbs, each};
use crate::error::{Failure, code, pointer};
use crate::stp::Stp;
use crate::{bytes, bytes_mut, close, shared};

/// Registered memory: see `landfall.h`.
#[derive(Debug)]
pub struct Region {
    of: MemoryOf,
    rights: Rights,
}

pub(super) type MemoryOf = Any<stp::Region, clan::Region<SharedNode>, Arc<qpip::MemoryRegion>>;

/// How an offset and a length are named by the carriers.
pub(crate) fn range(at: u64, len: u64) -> Result<Range<u64>, Failure> {
    let end = at.checked_add(len).ok_or(Failure::Invalid("a range has no end"))?;
    Ok(at..end)
}

/// Some bytes of a region, as the requests of a carrier name them.
pub(crate) trait PartOf: Clone {
    fn of(region: &Region, range: Range<u64>) -> Result<Self, Failure>;
}

impl PartOf for stp::Part {
    fn of(region: &Region, range: Range<u64>) -> Result<Self, Failure> {
        let Any::Stp(region) = &region.of else { return Err(OF_ANOTHER) };
        Ok(region.part(range)?)
    }
}

impl PartOf for clan::Part<SharedNode> {
    fn of(region: &Region, range: Range<u64>) -> Result<Self, Failure> {
        let Any::Clan(region) = &region.of else { return Err(OF_ANOTHER) };
        Ok(region.part(range)?)
    }
}

impl PartOf for qpip::Part {
    fn of(region: &Region, range: Range<u64>) -> Result<Self, Failure> {
        let Any::Qpip(region) = &region.of else { return Err(OF_ANOTHER) };
        Ok(region.part(range)?)
    }
}

impl Region {
    /// The memory, of whichever carrier.
    pub(super) const fn memory(&self) -> &MemoryOf {
        &self.of
    }

    /// What the other side may do with it.
    pub(super) const fn rights(&self) -> Rights {
        self.rights
    }

    /// All of the memory of an endpoint.
    pub(super) fn whole_of_stp(&self) -> Result<stp::Part, Failure> {
        let Any::Stp(region) = &self.of else { return Err(OF_ANOTHER) };
        Ok(region.whole())
    }

    /// The memory of a node.
    pub(super) fn clan(&self) -> Result<&clan::Region<SharedNode>, Failure> {
        let Any::Clan(region) = &self.of else { return Err(OF_ANOTHER) };
        Ok(region)
    }
}

const NO_MEMORY: Failure = Failure::Invalid("there is no memory for a region of this length");

fn memory(len: u64) -> Result<Memory, Failure> {
    let len = usize::try_from(len).ok().filter(|len| *len > 0).ok_or(NO_MEMORY)?;
    Memory::try_zeroed(len).map_err(|_| NO_MEMORY)
}

/// Rights as C has them.
fn rights_of(bits: u32) -> Result<Rights, Failure> {
    match bits {
        1 => Ok(Rights::Read),
        2 => Ok(Rights::Write),
        3 => Ok(Rights::ReadWrite),
        _ => Err(Failure::Invalid("these are no rights: LF_READ, LF_WRITE, or both")),
    }
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_region_open(
    verbs: *const Verbs,
    length: u64,
    rights: u32,
) -> *mut Region {
    pointer(|| {
        // SAFETY: the caller's promise.
        let verbs = unsafe { shared(verbs) }?;
        let rights = rights_of(rights)?;
        let of = match &verbs.0 {
            Any::Stp(context) => Any::Stp(context.endpoint.register(memory(length)?)?),
            Any::Clan(_) if length == 0 => return Err(NO_MEMORY),
            Any::Clan(node) => Any::Clan(clan::Region::new(node, length, rights)?),
            Any::Qpip(host) => {
                let region = host.domain.register(memory(length)?, Access::ReadWrite);
                Any::Qpip(Arc::new(region.map_err(qpip::Error::from)?))
            }
        };
        Ok(Region { of, rights })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_stp_region_open(endpoint: *const Stp, length: u64) -> *mut Region {
    pointer(|| {
        // SAFETY: the caller's promise.
        let endpoint = unsafe { shared(endpoint) }?;
        let of = Any::Stp(endpoint.endpoint.register(memory(length)?)?);
        Ok(Region { of, rights: Rights::ReadWrite })
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_region_write(
    region: *const Region,
    at: u64,
    from: *const c_void,
    length: usize,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (region, from) = unsafe { (shared(region)?, bytes(from.cast(), length)?) };
        each!(&region.of, region => Ok(region.copy_in(at, from)?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_region_read(
    region: *const Region,
    at: u64,
    into: *mut c_void,
    length: usize,
) -> i32 {
    code(|| {
        // SAFETY: the caller's promise.
        let (region, into) = unsafe { (shared(region)?, bytes_mut(into.cast(), length)?) };
        each!(&region.of, region => Ok(region.copy_out(at, into)?))
    })
}

/// See `landfall.h`.
///
/// # Safety
/// What the header asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lf_region_close(region: *mut Region) {
    // SAFETY: the caller's promise.
    unsafe { close(region) }
}
