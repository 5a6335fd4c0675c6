//! Signals, and which of them end calls; the end of a process without its farewells.

use std::ffi::{c_int, c_ulong};

use libc::sigaction as Action;

use crate::next::next;
use crate::sandbox::{self, Forbidden};
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

/// What the program is about to forbid itself.
///
/// # Safety
///
/// The arguments are what `prctl` asks for.
unsafe fn forbidden_by(option: c_int, mode: c_ulong, program: c_ulong) -> Option<Forbidden> {
    if option != libc::PR_SET_SECCOMP {
        return None;
    }
    if mode == c_ulong::from(libc::SECCOMP_MODE_STRICT) {
        return Some(Forbidden::strictly());
    }
    let program = std::ptr::with_exposed_provenance::<libc::sock_fprog>(program as usize);
    // SAFETY: as promised; null is refused by the kernel, and here.
    let program = unsafe { program.as_ref() }?;
    if program.filter.is_null() {
        return None;
    }
    // SAFETY: as promised.
    let steps = unsafe { std::slice::from_raw_parts(program.filter, program.len.into()) };
    Some(Forbidden::by(steps))
}

/// Its further arguments are numbers or pointers: they go on as they came.
#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    // SAFETY: what the program gave.
    let forbidden = unsafe { forbidden_by(option, second, third) };
    if forbidden.is_some() {
        sandbox::remember();
    }
    // SAFETY: what the program gave.
    let result = unsafe {
        next!(prctl: fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int)(
            option, second, third, fourth, fifth,
        )
    };
    if let Some(forbidden) = forbidden.filter(|_| result == 0) {
        forbidden.hold();
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
