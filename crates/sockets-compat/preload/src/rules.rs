//! Which connections may become shared memory.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::kernel;
use crate::registry::Place;

static ON: AtomicBool = AtomicBool::new(true);

/// Reads what the environment says. `LANDFALL_SOCKETS=off` leaves all to the kernel.
pub(crate) fn read() {
    // SAFETY: a name that ends with zero; the library has just been loaded.
    let value = unsafe { libc::getenv(c"LANDFALL_SOCKETS".as_ptr()) };
    if value.is_null() {
        return;
    }
    // SAFETY: the environment is made of C strings.
    let value = unsafe { std::ffi::CStr::from_ptr(value) };
    ON.store(value != c"off" && value != c"0", Ordering::Relaxed);
}

/// Whether there is anything to do at all.
pub(crate) fn are_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Whether this connection may: both ends are on this host.
pub(crate) fn allow(fd: i32) -> bool {
    let place = |of_peer| kernel::name(fd, of_peer).ok().as_ref().and_then(Place::of);
    match (place(false), place(true)) {
        (Some(here), Some(there)) => there.is_loopback() || here.has_address_of(&there),
        // Not connected yet: the address of the other end is known to `connect` only.
        (Some(_), None) => true,
        _ => false,
    }
}
