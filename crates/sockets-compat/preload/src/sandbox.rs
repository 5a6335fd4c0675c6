//! Programs that lock themselves in (seccomp): from then on a call that they did not think
//! of ends them, and ours are such calls.
//!
//! So the filter that a program is about to set is run here first, for each call of ours.
//! What it would not let through is not called any more, and fails here, or is made of what
//! is left ([`self`]). No new connection is shared where that needs such a call.
//!
//! What is not seen: filters from before `exec`, and those that a program sets by an instruction of
//! its own.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, sock_filter as Step};

use crate::kernel::{Errno, Outcome, Part, call};
use crate::{kernel, table};

static IS_ON: AtomicBool = AtomicBool::new(false);
/// A bit for each call by its number.
static FORBIDDEN: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
/// A bit for each descriptor that never waits, as it was when that could be asked for.
static NEVER_WAIT: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// The calls of this library, with the argument that filters look at.
const CALLS: &[(c_long, [u64; 3])] = &[
    (libc::SYS_recvfrom, [0; 3]),
    (libc::SYS_recvmsg, [0; 3]),
    (libc::SYS_sendto, [0; 3]),
    (libc::SYS_sendmsg, [0; 3]),
    (libc::SYS_sendfile, [0; 3]),
    (libc::SYS_read, [0; 3]),
    (libc::SYS_pread64, [0; 3]),
    (libc::SYS_write, [0; 3]),
    (libc::SYS_lseek, [0; 3]),
    (libc::SYS_ppoll, [0; 3]),
    (libc::SYS_epoll_create1, [0; 3]),
    (libc::SYS_epoll_ctl, [0; 3]),
    (libc::SYS_epoll_pwait, [0; 3]),
    (libc::SYS_fcntl, [0, libc::F_GETFL as u64, 0]),
    (libc::SYS_fcntl, [0, libc::F_GETFD as u64, 0]),
    (libc::SYS_ioctl, [0, libc::FIONREAD, 0]),
    (libc::SYS_ioctl, [0, libc::TIOCOUTQ, 0]),
    (libc::SYS_getsockopt, [0, libc::IPPROTO_TCP as u64, libc::TCP_INFO as u64]),
    (libc::SYS_getsockopt, [0, libc::SOL_SOCKET as u64, libc::SO_COOKIE as u64]),
    (libc::SYS_getsockopt, [0, libc::SOL_SOCKET as u64, 71]),
    (libc::SYS_getsockopt, [0, libc::SOL_SOCKET as u64, 62]),
    (libc::SYS_setsockopt, [0, libc::IPPROTO_TCP as u64, libc::TCP_NODELAY as u64]),
    (libc::SYS_getsockname, [0; 3]),
    (libc::SYS_getpeername, [0; 3]),
    (libc::SYS_socket, [libc::AF_NETLINK as u64, 0, 0]),
    (libc::SYS_socket, [libc::AF_UNIX as u64, 0, 0]),
    (libc::SYS_connect, [0; 3]),
    (libc::SYS_newfstatat, [0; 3]),
    (libc::SYS_openat, [0; 3]),
    (libc::SYS_close, [0; 3]),
    (libc::SYS_mkdirat, [0; 3]),
    (libc::SYS_unlinkat, [0; 3]),
    (libc::SYS_ftruncate, [0; 3]),
    (libc::SYS_mmap, [0, 0, (libc::PROT_READ | libc::PROT_WRITE) as u64]),
    (libc::SYS_munmap, [0; 3]),
    (libc::SYS_madvise, [0, 0, 23]),
    (libc::SYS_getpid, [0; 3]),
    (libc::SYS_gettid, [0; 3]),
    (libc::SYS_geteuid, [0; 3]),
    (libc::SYS_kill, [0; 3]),
    (libc::SYS_futex, [0, libc::FUTEX_WAIT as u64, 0]),
    (libc::SYS_futex, [0, libc::FUTEX_WAKE as u64, 0]),
    (libc::SYS_clock_gettime, [0; 3]),
    (libc::SYS_get_robust_list, [0; 3]),
    (libc::SYS_rt_sigprocmask, [0; 3]),
    (libc::SYS_rt_sigaction, [0; 3]),
    (libc::SYS_rt_tgsigqueueinfo, [0; 3]),
];

/// Calls that would end the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forbidden([u64; 8]);

impl Forbidden {
    /// Those that this filter does not let through.
    pub(crate) fn by(filter: &[Step]) -> Self {
        Self::where_not(|number, arguments| is_let_through(filter, number, arguments))
    }

    /// All but reading and writing: how it was before there were filters.
    pub(crate) fn strictly() -> Self {
        Self::where_not(|number, _| matches!(number, libc::SYS_read | libc::SYS_write))
    }

    fn where_not(is_fine: impl Fn(c_long, &[u64; 3]) -> bool) -> Self {
        let mut forbidden = Self::default();
        for (number, arguments) in CALLS {
            if let Some((word, bit)) = place(*number)
                && !is_fine(*number, arguments)
            {
                forbidden.0[word] |= bit;
            }
        }
        forbidden
    }

    /// From now on.
    pub(crate) fn hold(self) {
        if self == Self::default() {
            return;
        }
        for (known, more) in FORBIDDEN.iter().zip(self.0) {
            known.fetch_or(more, Ordering::Relaxed);
        }
        IS_ON.store(true, Ordering::Release);
    }
}

/// Where the bit of a number is.
fn place(number: c_long) -> Option<(usize, u64)> {
    let number = usize::try_from(number).ok()?;
    (number < 512).then_some((number / 64, 1 << (number % 64)))
}

/// Whether this call would end the program.
pub(crate) fn forbids(number: c_long) -> bool {
    IS_ON.load(Ordering::Relaxed)
        && place(number)
            .is_some_and(|(word, bit)| FORBIDDEN[word].load(Ordering::Relaxed) & bit != 0)
}

/// Whether a filter is in force at all.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Whether a signal cannot be queued again that came too early: then none may come.
pub(crate) fn forbids_to_queue_signals() -> bool {
    IS_ON.load(Ordering::Relaxed) && forbids(libc::SYS_rt_tgsigqueueinfo)
}

/// Writes down what cannot be asked for later.
pub(crate) fn remember() {
    let mut fd = 0;
    while let Some(found) = table::next_from(fd) {
        fd = found + 1;
        if let Some(word) = NEVER_WAIT.get(found as usize / 64) {
            let bit = 1 << (found % 64);
            match kernel::is_nonblocking(found) {
                true => word.fetch_or(bit, Ordering::Relaxed),
                false => word.fetch_and(!bit, Ordering::Relaxed),
            };
        }
    }
}

/// Whether this descriptor never waits, as it was then.
pub(crate) fn was_nonblocking(fd: i32) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| NEVER_WAIT.get(fd / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (fd % 64)) != 0)
}

#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const MACHINE: u32 = 0;

/// Whether a filter lets a call through.
fn is_let_through(filter: &[Step], number: c_long, arguments: &[u64; 3]) -> bool {
    const ACTION: u32 = 0xFFFF_0000;
    let mut call = [0; 16];
    (call[0], call[1]) = (number as u32, MACHINE);
    for (at, argument) in arguments.iter().enumerate() {
        call[4 + 2 * at] = *argument as u32;
        call[5 + 2 * at] = (argument >> 32) as u32;
    }
    let told = run(filter, &call).map(|told| told & ACTION);
    matches!(told, Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG))
}

/// What the filter says of a call: the kernel's own machine for that, in a few lines. `None`
/// of a filter that the kernel would refuse.
fn run(filter: &[Step], call: &[u32; 16]) -> Option<u32> {
    const IMMEDIATE: u16 = 0x00;
    const ABSOLUTE: u16 = 0x20;
    const MEMORY: u16 = 0x60;
    const LENGTH: u16 = 0x80;
    let (mut sum, mut index, mut memory) = (0_u32, 0_u32, [0_u32; 16]);
    let mut at = 0;
    // Jumps lead forward only: it comes to an end.
    loop {
        let step = filter.get(at)?;
        at += 1;
        let operand = if step.code & 0x08 == 0 { step.k } else { index };
        let from = |mode: u16| match mode {
            IMMEDIATE => Some(step.k),
            ABSOLUTE => call.get(step.k as usize / 4).copied(),
            MEMORY => memory.get(step.k as usize).copied(),
            LENGTH => Some(64),
            _ => None,
        };
        match step.code & 7 {
            0 => sum = from(step.code & 0xE0)?,
            1 => index = from(step.code & 0xE0)?,
            2 => *memory.get_mut(step.k as usize)? = sum,
            3 => *memory.get_mut(step.k as usize)? = index,
            4 => sum = computed(step.code & 0xF0, sum, operand)?,
            5 if step.code & 0xF0 == 0 => at = at.checked_add(step.k as usize)?,
            5 => {
                let is_so = holds(step.code & 0xF0, sum, operand)?;
                at += usize::from(if is_so { step.jt } else { step.jf });
            }
            6 => return Some(if step.code & 0x18 == 0x10 { sum } else { step.k }),
            _ if step.code & 0x80 == 0 => index = sum,
            _ => sum = index,
        }
    }
}

fn computed(how: u16, sum: u32, operand: u32) -> Option<u32> {
    Some(match how {
        0x00 => sum.wrapping_add(operand),
        0x10 => sum.wrapping_sub(operand),
        0x20 => sum.wrapping_mul(operand),
        0x30 => sum.checked_div(operand)?,
        0x40 => sum | operand,
        0x50 => sum & operand,
        0x60 => sum.checked_shl(operand).unwrap_or(0),
        0x70 => sum.checked_shr(operand).unwrap_or(0),
        0x80 => sum.wrapping_neg(),
        0xA0 => sum ^ operand,
        _ => return None,
    })
}

fn holds(how: u16, sum: u32, operand: u32) -> Option<bool> {
    Some(match how {
        0x10 => sum == operand,
        0x20 => sum > operand,
        0x30 => sum >= operand,
        0x40 => sum & operand != 0,
        _ => return None,
    })
}

// Calls that a program forbade itself, made of those that nearly all leave: `read`,
// `write` and `poll`.

/// `recv`. What one only wants to look at is one byte, whatever it is.
///
/// # Safety
///
/// `part` may be written.
pub(crate) unsafe fn receive(fd: c_int, part: Part, flags: c_int) -> Outcome {
    let may_wait = flags & libc::MSG_DONTWAIT == 0 && !was_nonblocking(fd);
    let looks_only = flags & libc::MSG_PEEK != 0;
    if looks_only || !may_wait {
        let limit = if may_wait { -1 } else { 0 };
        if kernel::poll_one(fd, POLLIN | POLLRDHUP, limit)? == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    if looks_only {
        return Ok(1);
    }
    call!(libc::SYS_read, fd, part.base, part.len)
}

/// `recvmsg`: the first part alone, which a stream allows.
///
/// # Safety
///
/// `parts` may be written.
pub(crate) unsafe fn receive_parts(fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    let part = parts.iter().find(|part| part.len > 0);
    // SAFETY: as promised.
    part.map_or(Ok(0), |part| unsafe { receive(fd, *part, flags) })
}

/// `sendmsg`: the first part alone.
///
/// # Safety
///
/// `parts` may be read.
pub(crate) unsafe fn send(fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    let Some(part) = parts.iter().find(|part| part.len > 0) else { return Ok(0) };
    if flags & (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) != 0 {
        let ready = kernel::poll_one(fd, POLLOUT, 0)?;
        // A write to who is gone would be a signal.
        if flags & libc::MSG_NOSIGNAL != 0 && ready & (POLLERR | POLLHUP) != 0 {
            return Err(Errno(libc::EPIPE));
        }
        if flags & libc::MSG_DONTWAIT != 0 && ready & POLLOUT == 0 {
            return Err(Errno(libc::EAGAIN));
        }
    }
    call!(libc::SYS_write, fd, part.base, part.len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(code: u16, k: u32, jt: u8, jf: u8) -> Step {
        Step { code, jt, jf, k }
    }

    const LOAD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const ANSWER: u16 = 0x06;

    /// Lets these numbers through and nothing else.
    fn only(numbers: &[c_long]) -> Vec<Step> {
        let mut filter = vec![step(LOAD, 0, 0, 0)];
        for number in numbers {
            filter.push(step(IF_EQUAL, *number as u32, 0, 1));
            filter.push(step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0));
        }
        filter.push(step(ANSWER, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
        filter
    }

    fn has(forbidden: Forbidden, number: c_long) -> bool {
        let (word, bit) = place(number).unwrap();
        forbidden.0[word] & bit != 0
    }

    #[test]
    fn what_a_filter_does_not_let_through_is_known() {
        let forbidden = Forbidden::by(&only(&[libc::SYS_read, libc::SYS_getpid]));
        assert!(!has(forbidden, libc::SYS_read) && !has(forbidden, libc::SYS_getpid));
        assert!(has(forbidden, libc::SYS_recvmsg) && has(forbidden, libc::SYS_futex));
        let all = [step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0)];
        assert_eq!(Forbidden::by(&all), Forbidden::default());
        assert!(has(Forbidden::by(&[]), libc::SYS_read), "who cannot be understood forbids");
    }

    #[test]
    fn one_argument_that_is_refused_is_enough() {
        // Waits, but never wakes.
        let operation = 16 + 8;
        let filter = [
            step(LOAD, 0, 0, 0),
            step(IF_EQUAL, libc::SYS_futex as u32, 0, 3),
            step(LOAD, operation, 0, 0),
            step(IF_EQUAL, libc::FUTEX_WAKE as u32, 0, 1),
            step(ANSWER, libc::SECCOMP_RET_ERRNO | 1, 0, 0),
            step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0),
        ];
        let forbidden = Forbidden::by(&filter);
        assert!(has(forbidden, libc::SYS_futex) && !has(forbidden, libc::SYS_ppoll));
    }

    #[test]
    fn it_computes_as_the_kernels_machine_does() {
        let run_all = |steps: &[Step]| run(steps, &[7; 16]);
        // (7 + 3) * 5 - 8 = 42, by way of the memory and the index.
        let steps = [
            step(LOAD, 0, 0, 0),
            step(0x04, 3, 0, 0),
            step(0x24, 5, 0, 0),
            step(0x02, 4, 0, 0),
            step(0x01, 8, 0, 0),
            step(0x60, 4, 0, 0),
            step(0x1C, 0, 0, 0),
            step(0x16, 0, 0, 0),
        ];
        assert_eq!(run_all(&steps), Some(42));
        assert_eq!(run_all(&[step(0x34, 0, 0, 0), step(0x16, 0, 0, 0)]), None, "by nothing");
        assert_eq!(run_all(&[step(0x05, u32::MAX, 0, 0)]), None, "out of it");
        assert_eq!(run_all(&[step(LOAD, 64, 0, 0)]), None, "behind the call");
    }
}
