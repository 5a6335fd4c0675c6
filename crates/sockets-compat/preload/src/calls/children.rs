//! Children that run in the memory of this process: [`crate::borrowers`] has to know of them.

use std::arch::naked_asm;
use std::ffi::{c_int, c_long, c_void};

use libc::pid_t;

use crate::borrowers::{BORROWERS, Borrower};
use crate::kernel::Errno;
use crate::next::next;

/// What `vfork` gives where the kernel has refused it.
extern "C" fn refused(result: c_int) -> pid_t {
    Errno(-result).tell();
    -1
}

/// The child runs on its parent's stack, and returns before its parent does: so nothing may lie
/// there, and libc's function cannot be called. The kernel lets the parent go on when the child is
/// gone from its memory.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn counted_vfork() -> pid_t {
    naked_asm!(
        "lock inc dword ptr [rip + {borrowers}]",
        // The child will write over the place of the return address.
        "pop rdi",
        "mov eax, {vfork}",
        "syscall",
        "push rdi",
        "test eax, eax",
        "jz 2f",
        "lock dec dword ptr [rip + {borrowers}]",
        "test eax, eax",
        "js 3f",
        "2:",
        "ret",
        "3:",
        "mov edi, eax",
        "jmp {refused}",
        borrowers = sym BORROWERS,
        refused = sym refused,
        vfork = const libc::SYS_vfork,
    )
}

/// The same.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn counted_vfork() -> pid_t {
    naked_asm!(
        "adrp x9, {borrowers}",
        "add x9, x9, :lo12:{borrowers}",
        "2:",
        "ldaxr w10, [x9]",
        "add w10, w10, #1",
        "stlxr w11, w10, [x9]",
        "cbnz w11, 2b",
        "mov x0, #{flags}",
        "mov x1, xzr",
        "mov x2, xzr",
        "mov x3, xzr",
        "mov x4, xzr",
        "mov x8, #{clone}",
        "svc 0",
        "cbz x0, 4f",
        "3:",
        "ldaxr w10, [x9]",
        "sub w10, w10, #1",
        "stlxr w11, w10, [x9]",
        "cbnz w11, 3b",
        "tbnz x0, #63, 5f",
        "4:",
        "ret",
        "5:",
        "b {refused}",
        borrowers = sym BORROWERS,
        refused = sym refused,
        flags = const libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
        clone = const libc::SYS_clone,
    )
}

/// The names that libc has for it.
macro_rules! is_counted_vfork {
    ($($name:ident)*) => {$(
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> pid_t {
            #[cfg(target_arch = "x86_64")]
            naked_asm!("jmp {}", sym counted_vfork);
            #[cfg(target_arch = "aarch64")]
            naked_asm!("b {}", sym counted_vfork);
        }
    )*};
}

is_counted_vfork!(vfork __vfork);

type Entry = extern "C" fn(*mut c_void) -> c_int;

/// Which of its last three arguments there are depends on the flags: they go on as they came.
#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
    entry: Entry,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut pid_t,
    storage: *mut c_void,
    child: *mut pid_t,
) -> c_int {
    let borrower = Borrower::made_with(u64::from(flags.cast_unsigned()));
    let by_libc = next!(
        clone: fn(
            Entry,
            *mut c_void,
            c_int,
            *mut c_void,
            *mut pid_t,
            *mut c_void,
            *mut pid_t,
        ) -> c_int
    );
    // SAFETY: what the program gave.
    let made = unsafe { by_libc(entry, stack, flags, argument, parent, storage, child) };
    let is_over = made < 0 || flags & libc::CLONE_VFORK != 0;
    if let Some(borrower) = borrower.filter(|_| !is_over) {
        borrower.stays();
    }
    made
}

/// A child in this memory that a call by number makes, if that is what it does.
///
/// # Safety
///
/// The arguments are what the call asks for.
pub(super) unsafe fn made_by_number(
    number: c_long,
    first: c_long,
    second: c_long,
) -> Option<Borrower> {
    /// What the structure of `clone3` has at least.
    const FLAGS: c_long = 8;
    let flags = match number {
        libc::SYS_clone => first.cast_unsigned(),
        libc::SYS_clone3 if first != 0 && second >= FLAGS => {
            let flags = std::ptr::with_exposed_provenance::<u64>(first as usize);
            // SAFETY: as promised.
            unsafe { flags.read_unaligned() }
        }
        _ => return None,
    };
    Borrower::made_with(flags)
}
