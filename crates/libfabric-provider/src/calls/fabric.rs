//! Fabrics, and what is offered.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{NOT_OFFERED, closes, domain, event, give, known, of, passive, queue, take, text};
use crate::abi::*;
use crate::info::offers;

#[repr(C)]
pub(super) struct FabricHandle {
    fabric: fid_fabric,
    /// How many domains are open.
    pub(super) domains: AtomicUsize,
}

static FID_OPS: fi_ops = closes(close);
static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: domain::open,
    passive_ep: passive::open,
    eq_open: event::open,
    wait_open: NOT_OFFERED,
    trywait: queue::trywait,
    domain2: NOT_OFFERED,
};

/// `fi_getinfo` of this provider.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    // SAFETY: libfabric gives texts, hints, and a place for the list.
    let found = unsafe { offers(version, (text(node), text(service)), flags, hints.as_ref()) };
    match found {
        Ok(list) => {
            // SAFETY: see above.
            unsafe { *info = list };
            0
        }
        Err(error) => -error,
    }
}

/// `fi_fabric` of this provider.
pub(crate) unsafe extern "C" fn fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric gives attributes, or none.
    let api_version = unsafe { attr.as_ref() }.map_or(crate::API, |attr| attr.api_version);
    let handle = FabricHandle {
        fabric: fid_fabric {
            fid: known(FI_CLASS_FABRIC, context, &FID_OPS),
            ops: &raw const OPS,
            api_version,
        },
        domains: AtomicUsize::new(0),
    };
    // SAFETY: a place for the handle, which begins with its `fid_fabric`.
    unsafe { give(handle, fabric) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: a fabric of this provider.
    let handle: &FabricHandle = unsafe { of(fid) };
    if handle.domains.load(Ordering::SeqCst) > 0 {
        return -FI_EBUSY;
    }
    // SAFETY: the program uses it no more.
    drop(unsafe { take::<FabricHandle, _>(fid) });
    0
}
