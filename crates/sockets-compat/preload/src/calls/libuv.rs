//! Programs of libuv (node, uvloop) ask the kernel for an `io_uring`, by which they change what
//! their sets of `epoll` watch, a few calls at once. Nobody hears of that here, so their connections would
//! all have to stay TCP. They do without where the kernel has none, and that is what they are told.

use std::ffi::{CStr, c_int, c_void};

/// Whether libuv is in this process: as a library or exported by the program, or in Python's uvloop,
/// which hides it.
pub(super) fn is_here() -> bool {
    // SAFETY: a name that ends with zero.
    let exported = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"uv_loop_init".as_ptr()) };
    let mut is_here = !exported.is_null();
    if !is_here {
        // SAFETY: the function below is called during this call only, with this place.
        unsafe { libc::dl_iterate_phdr(Some(is_uvloop), (&raw mut is_here).cast()) };
    }
    is_here
}

/// # Safety
///
/// `info` is what the loader says of an object, and `found` a place for the answer.
unsafe extern "C" fn is_uvloop(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut c_void,
) -> c_int {
    // SAFETY: as promised; names of objects end with zero.
    let name = unsafe { CStr::from_ptr((*info).dlpi_name) };
    let is_it = name.to_bytes().windows(8).any(|part| part == b"/uvloop/");
    if is_it {
        // SAFETY: as promised.
        unsafe { *found.cast::<bool>() = true };
    }
    c_int::from(is_it)
}
