//! Address vectors.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use libc::size_t;

use super::domain::domain_of;
use super::{NOT_OFFERED, closes, give, known, of, take, text, write_text};
use crate::abi::*;
use crate::address;
use crate::domain::Domain;
use crate::world::AddressVector;

#[repr(C)]
pub(super) struct BookHandle {
    fid: fid_av,
    domain: Arc<Domain>,
    pub(super) number: usize,
}

static FID_OPS: fi_ops = closes(close);
static OPS: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert,
    insertsvc,
    insertsym: NOT_OFFERED,
    remove,
    lookup,
    straddr,
    av_set: NOT_OFFERED,
};

pub(super) unsafe extern "C" fn open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open domain, and attributes or none.
    let (domain, attr) = unsafe { (domain_of(domain), attr.as_ref()) };
    if !domain.is_here() {
        return -FI_EOPBADSTATE;
    }
    // Vectors that processes share, and those that answer by events, are not offered.
    if attr.is_some_and(|attr| attr.flags != 0 || !attr.name.is_null() || attr.rx_ctx_bits != 0) {
        return -FI_ENOSYS;
    }
    let number = domain.lock().world.books.add(AddressVector::default());
    let handle = BookHandle {
        fid: fid_av { fid: known(FI_CLASS_AV, context, &FID_OPS), ops: &raw const OPS },
        domain: Arc::clone(domain),
        number,
    };
    // SAFETY: a place for the handle, which begins with its `fid_av`.
    unsafe { give(handle, av) }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: an open address vector.
    let handle: &BookHandle = unsafe { of(fid) };
    let mut state = handle.domain.lock();
    if state.world.books.get(handle.number).is_some_and(|book| book.users > 0) {
        return -FI_EBUSY;
    }
    state.world.books.remove(handle.number);
    drop(state);
    // SAFETY: the program uses it no more.
    drop(unsafe { take::<BookHandle, _>(fid) });
    0
}

unsafe extern "C" fn insert(
    av: *mut fid_av,
    addresses: *const c_void,
    count: size_t,
    numbers: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an open address vector.
    let handle: &BookHandle = unsafe { of(av) };
    // SAFETY: the program gives addresses of one family.
    let stride = unsafe { address::stride(addresses) };
    let mut state = handle.domain.lock();
    let Some(book) = state.world.books.get_mut(handle.number) else { return -FI_EINVAL };
    let mut inserted = 0;
    for at in 0..count {
        // SAFETY: one of this many.
        let name = unsafe { address::read_name(addresses.byte_add(at * stride)) };
        let number = name.map(|name| book.insert(name));
        inserted += c_int::from(number.is_some());
        if !numbers.is_null() {
            // SAFETY: a place for each number.
            unsafe { *numbers.add(at) = number.unwrap_or(FI_ADDR_NOTAVAIL) };
        }
        if flags & FI_SYNC_ERR != 0 && !context.is_null() {
            let error = if number.is_some() { 0 } else { FI_EINVAL };
            // SAFETY: with this flag the context is a place for each error.
            unsafe { *context.cast::<c_int>().add(at) = error };
        }
    }
    inserted
}

unsafe extern "C" fn insertsvc(
    av: *mut fid_av,
    node: *const c_char,
    service: *const c_char,
    number: *mut fi_addr_t,
    _: u64,
    _: *mut c_void,
) -> c_int {
    // SAFETY: an open address vector, and texts.
    let (handle, node, service): (&BookHandle, _, _) =
        unsafe { (of(av), text(node), text(service)) };
    if node.is_none() || service.is_none() {
        return -FI_EINVAL;
    }
    let Some(address) = address::resolve(node, service, false).into_iter().next() else {
        return -FI_EADDRNOTAVAIL;
    };
    let mut state = handle.domain.lock();
    let Some(book) = state.world.books.get_mut(handle.number) else { return -FI_EINVAL };
    let inserted = book.insert(address.into());
    if !number.is_null() {
        // SAFETY: a place for the number.
        unsafe { *number = inserted };
    }
    1
}

unsafe extern "C" fn remove(
    av: *mut fid_av,
    numbers: *mut fi_addr_t,
    count: size_t,
    _: u64,
) -> c_int {
    // SAFETY: an open address vector.
    let handle: &BookHandle = unsafe { of(av) };
    let mut state = handle.domain.lock();
    let Some(book) = state.world.books.get_mut(handle.number) else { return -FI_EINVAL };
    let mut result = 0;
    for at in 0..count {
        // SAFETY: the program gives this many.
        if !book.remove(unsafe { *numbers.add(at) }) {
            result = -FI_EINVAL;
        }
    }
    result
}

unsafe extern "C" fn lookup(
    av: *mut fid_av,
    number: fi_addr_t,
    address: *mut c_void,
    len: *mut size_t,
) -> c_int {
    // SAFETY: an open address vector.
    let handle: &BookHandle = unsafe { of(av) };
    let state = handle.domain.lock();
    let Some(found) = state.world.books.get(handle.number).and_then(|book| book.get(number)) else {
        return -FI_EINVAL;
    };
    // SAFETY: the program says how much room there is, and where.
    unsafe {
        address::write(&found, address, *len);
        *len = address::len_of(&found.address);
    }
    0
}

unsafe extern "C" fn straddr(
    _: *mut fid_av,
    address: *const c_void,
    into: *mut c_char,
    len: *mut size_t,
) -> *const c_char {
    // SAFETY: the program gives an address, and says how much room there is, and where.
    unsafe {
        let Some(address) = address::read(address) else { return std::ptr::null() };
        let text = address::to_text(&address);
        write_text(&text, into, *len);
        *len = text.len() + 1;
    }
    into
}
