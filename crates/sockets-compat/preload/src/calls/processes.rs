//! Signals, and which of them end calls; the end of a process without its farewells.

use std::ffi::c_int;

use libc::sigaction as Action;

use crate::next::next;
use crate::signals;

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: what the program gave.
    let result = unsafe {
        next!(sigaction: fn(c_int, *const Action, *mut Action) -> c_int)(signal, new, old)
    };
    if result == 0 && !new.is_null() {
        // SAFETY: the program's, and valid, since the call went well.
        let new = unsafe { &*new };
        let is_handler = !matches!(new.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
        signals::was_set(signal, new.sa_flags, is_handler);
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _exit(code: c_int) -> ! {
    crate::end();
    // SAFETY: a number.
    unsafe { next!(_exit: fn(c_int) -> !)(code) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(code: c_int) -> ! {
    // SAFETY: a number.
    unsafe { _exit(code) }
}
