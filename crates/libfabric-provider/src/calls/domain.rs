//! Domains.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::fabric::FabricHandle;
use super::{
    NOT_OFFERED, atomic, book, closes, counter, endpoint, give, known, memory, of, queue, take,
};
use crate::abi::*;
use crate::address;
use crate::domain::Domain;
use crate::settings::Settings;

#[repr(C)]
pub(super) struct DomainHandle {
    fid: fid_domain,
    pub(super) domain: Arc<Domain>,
    fabric: *mut fid_fabric,
}

static FID_OPS: fi_ops = closes(close);
static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: book::open,
    cq_open: queue::open,
    endpoint: endpoint::open,
    scalable_ep: NOT_OFFERED,
    cntr_open: counter::open,
    poll_open: NOT_OFFERED,
    stx_ctx: NOT_OFFERED,
    srx_ctx: NOT_OFFERED,
    query_atomic: atomic::query,
    query_collective: NOT_OFFERED,
    endpoint2: NOT_OFFERED,
};
static MR_OPS: fi_ops_mr = fi_ops_mr {
    size: size_of::<fi_ops_mr>(),
    reg: memory::reg,
    regv: memory::regv,
    regattr: memory::regattr,
};

/// The domain of a handle.
///
/// # Safety
/// It is an open domain of this provider.
pub(super) unsafe fn domain_of<'a, F>(fid: *mut F) -> &'a Arc<Domain> {
    // SAFETY: the caller says so.
    let handle: &DomainHandle = unsafe { of(fid) };
    &handle.domain
}

pub(super) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    let Ok(settings) = Settings::of_environment() else { return -FI_EINVAL };
    // SAFETY: the program gives an info, whose address is as long as its family says.
    let address = unsafe { info.as_ref().and_then(|info| address::read(info.src_addr)) };
    // SAFETY: an open fabric of this provider.
    let parent: &FabricHandle = unsafe { of(fabric) };
    parent.domains.fetch_add(1, Ordering::SeqCst);
    let handle = DomainHandle {
        fid: fid_domain {
            fid: known(FI_CLASS_DOMAIN, context, &FID_OPS),
            ops: &raw const OPS,
            mr: &raw const MR_OPS,
        },
        domain: Domain::new(settings, address),
        fabric,
    };
    // SAFETY: a place for the handle, which begins with its `fid_domain`.
    unsafe { give(handle, domain) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: an open domain.
    if Arc::strong_count(unsafe { domain_of(fid) }) > 1 {
        return -FI_EBUSY;
    }
    // SAFETY: the program uses it no more.
    let handle: Box<DomainHandle> = unsafe { take(fid) };
    // SAFETY: its fabric cannot be closed before.
    let parent: &FabricHandle = unsafe { of(handle.fabric) };
    parent.domains.fetch_sub(1, Ordering::SeqCst);
    0
}
