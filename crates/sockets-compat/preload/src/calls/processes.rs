//! Signals, and which of them end calls; the end of a process that skips its exit handlers.

use std::ffi::{c_int, c_long, c_ulong};
use std::mem::MaybeUninit;

use libc::{sigaction as Action, sighandler_t};

use super::{children, libuv};
use crate::kernel::Errno;
use crate::next::next;
use crate::sandbox::{self, Forbidden};
use crate::signals;
use crate::thread::Section;
use crate::{process, rules};

type SetAction = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;

/// libc's own.
fn set_action() -> SetAction {
    next!(sigaction: fn(c_int, *const Action, *mut Action) -> c_int)
}

const fn is_handler(handler: sighandler_t) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN)
}

/// What the functions here call each other by: a program may have a `sigaction` of its own, which
/// calls ours (Erlang's has one), so that theirs would never end.
///
/// # Safety
///
/// What `sigaction` asks for.
unsafe fn act(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    let _section = Section::enter();
    // SAFETY: what the program gave, here and below.
    let Some(new) = (unsafe { new.as_ref() }) else {
        // SAFETY: as above.
        let result = unsafe { set_action()(signal, std::ptr::null(), old) };
        // SAFETY: the kernel has filled it.
        if let (0, Some(old)) = (result, unsafe { old.as_mut() }) {
            signals::tells(signal, old);
        }
        return result;
    };
    let setting = signals::sets(signal, new);
    // SAFETY: a copy of what the program gave.
    let result = unsafe { set_action()(signal, &raw const setting.for_kernel, old) };
    if result != 0 {
        setting.was_refused(signal);
        return result;
    }
    // SAFETY: the kernel has filled it.
    if let Some(old) = unsafe { old.as_mut() } {
        setting.tells(old);
    }
    if process::owns_the_tables() {
        signals::was_set(signal, new.sa_flags, is_handler(new.sa_sigaction));
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: what the program gave.
    unsafe { act(signal, new, old) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: what the program gave.
    unsafe { act(signal, new, old) }
}

/// What is set for a signal, in the program's words.
fn action_of(signal: c_int) -> Option<Action> {
    let mut action = MaybeUninit::<Action>::uninit();
    // SAFETY: a place for it; it is filled if the call goes well.
    unsafe {
        let done = act(signal, std::ptr::null(), action.as_mut_ptr());
        (done == 0).then(|| action.assume_init())
    }
}

/// One of libc's older ways to set a handler: what it has set is set once more, with ours
/// before it. Gives the handler of before.
fn set_by(signal: c_int, set: impl FnOnce() -> sighandler_t) -> sighandler_t {
    let _section = Section::enter();
    let before = action_of(signal);
    let told = set();
    if told == libc::SIG_ERR {
        return told;
    }
    if let Some(action) = action_of(signal) {
        // SAFETY: what is set already.
        unsafe { act(signal, &raw const action, std::ptr::null_mut()) };
    }
    match before {
        // libc knows ours only.
        Some(before) if signals::is_ours(told) => before.sa_sigaction,
        _ => told,
    }
}

/// A function of libc that sets a handler, as it was before `sigaction`.
macro_rules! sets_a_handler {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            // SAFETY: what the program gave.
            set_by(signal, || unsafe {
                next!($name: fn(c_int, sighandler_t) -> sighandler_t)(signal, handler)
            })
        }
    )*};
}

sets_a_handler!(signal bsd_signal ssignal sysv_signal __sysv_signal sigset);

#[unsafe(no_mangle)]
unsafe extern "C" fn siginterrupt(signal: c_int, flag: c_int) -> c_int {
    let _section = Section::enter();
    // SAFETY: numbers.
    let result = unsafe { next!(siginterrupt: fn(c_int, c_int) -> c_int)(signal, flag) };
    if let Some(action) = action_of(signal).filter(|_| result == 0) {
        signals::was_set(signal, action.sa_flags, is_handler(action.sa_sigaction));
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

/// What the program is about to forbid itself by a call of another name.
///
/// # Safety
///
/// The arguments are what the call asks for.
unsafe fn forbidden_by_number(number: c_long, arguments: &[c_long; 6]) -> Option<Forbidden> {
    let [first, second, third, ..] = arguments.map(c_long::cast_unsigned);
    let (mode, program) = match number {
        libc::SYS_prctl if first == libc::PR_SET_SECCOMP as c_ulong => (second, third),
        libc::SYS_seccomp if first == c_ulong::from(libc::SECCOMP_SET_MODE_STRICT) => {
            (libc::SECCOMP_MODE_STRICT.into(), 0)
        }
        libc::SYS_seccomp if first == c_ulong::from(libc::SECCOMP_SET_MODE_FILTER) => {
            (libc::SECCOMP_MODE_FILTER.into(), third)
        }
        _ => return None,
    };
    // SAFETY: as promised.
    unsafe { forbidden_by(libc::PR_SET_SECCOMP, mode, program) }
}

/// A call of the kernel, as that answers: an error is a small number below zero.
///
/// # Safety
///
/// As the call asks for it.
#[cfg(target_arch = "x86_64")]
unsafe fn by_number(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: as promised; the kernel changes the two registers that are named, and no other.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The same.
///
/// # Safety
///
/// As the call asks for it.
#[cfg(target_arch = "aarch64")]
unsafe fn by_number(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: as promised; the kernel changes no register but the first.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

/// Calls by number go on as they came; but a filter may be set so, as `libseccomp` does it, and
/// an `io_uring` be asked for.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_io_uring_setup && libuv::is_here() {
        Errno(libc::ENOSYS).tell();
        return -1;
    }
    let arguments = [a, b, c, d, e, f];
    // SAFETY: what the program gave, here and below.
    let forbidden = unsafe { forbidden_by_number(number, &arguments) };
    if forbidden.is_some() {
        sandbox::remember();
    }
    // SAFETY: as above.
    if let Some(borrower) = unsafe { children::made_by_number(number, a, b) } {
        borrower.stays();
    }
    // SAFETY: as above.
    let result = unsafe { by_number(number, arguments) };
    let failed = (-4095..0).contains(&result);
    // A thread that could not be brought to it, too, is told by its number.
    let is_refused = failed || (result > 0 && b & TSYNC != 0);
    if let Some(forbidden) = forbidden.filter(|_| !is_refused) {
        forbidden.hold();
    }
    if number == libc::SYS_io_uring_setup && !failed {
        rules::has_io_uring();
    }
    if failed {
        Errno(-result as c_int).tell();
        return -1;
    }
    result
}

/// `SECCOMP_FILTER_FLAG_TSYNC`: for all threads.
const TSYNC: c_long = 1;

fn exit(code: c_int) -> ! {
    crate::end();
    // SAFETY: a number.
    unsafe { next!(_exit: fn(c_int) -> !)(code) }
}

#[unsafe(no_mangle)]
extern "C" fn _exit(code: c_int) -> ! {
    exit(code)
}

#[unsafe(no_mangle)]
extern "C" fn _Exit(code: c_int) -> ! {
    exit(code)
}
