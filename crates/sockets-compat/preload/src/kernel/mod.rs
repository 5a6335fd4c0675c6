//! System calls, past libc: its functions of these names are ours here.
//!
//! What lives here: one thin function for each call that this library makes for itself.
//! Those of files and of memory: [`files`]. What does not: the calls of the program, which go on by way of [`crate::next`].

mod files;

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub(crate) use files::{
    give_to_group, make_folder, map, map_common, map_over, map_private, map_wiped_in_children,
    open, open_at, populate, read_file, remove_at, remove_folder, rename_to_free, set_len,
    set_rights, set_rights_of, status, status_of, status_of_itself, unmap,
};

use crate::sandbox;

/// Why a system call failed: a number of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    /// What the thread's `errno` says.
    pub(crate) fn last() -> Self {
        // SAFETY: libc gives each thread such a place, always.
        Self(unsafe { *libc::__errno_location() })
    }

    /// Leaves the reason where a C program looks for it.
    pub(crate) fn tell(self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// Bytes, a descriptor, a mask: what a call gives when it succeeds.
pub(crate) type Outcome = Result<usize, Errno>;

const fn unsigned(number: c_long) -> usize {
    number.cast_unsigned() as usize
}

pub(crate) fn outcome(result: c_long) -> Outcome {
    if result < 0 { Err(Errno::last()) } else { Ok(unsigned(result)) }
}

/// Calls the kernel, if the program has not forbidden itself that, and keeps `errno`: it belongs to the program until we tell a reason.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        if $crate::sandbox::forbids($number) {
            Err($crate::kernel::Errno(libc::EPERM))
        } else {
            let before = $crate::kernel::Errno::last();
            // SAFETY: each function that uses this hands over what its call asks for.
            let result = $crate::kernel::outcome(unsafe { libc::syscall($number $(, $argument)*) });
            before.tell();
            result
        }
    }};
}

pub(crate) use call;

/// A range of memory that the program owns, as it gave it to us.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Part {
    pub(crate) base: *mut u8,
    pub(crate) len: usize,
}

/// Receives into memory of the program.
///
/// # Safety
///
/// `part` may be written.
pub(crate) unsafe fn receive(fd: c_int, part: Part, flags: c_int) -> Outcome {
    if sandbox::forbids(libc::SYS_recvfrom) {
        // SAFETY: as promised.
        return unsafe { sandbox::receive(fd, part, flags) };
    }
    let nobody = ptr::null::<c_void>();
    call!(libc::SYS_recvfrom, fd, part.base, part.len, flags, nobody, nobody)
}

/// As much is looked at in one glance.
pub(crate) const GLANCE: usize = 64;

/// Looks at, or takes, what has come, without a use for the bytes.
pub(crate) fn glance(fd: c_int, flags: c_int) -> Outcome {
    let mut scratch = [0_u8; GLANCE];
    let part = Part { base: scratch.as_mut_ptr(), len: scratch.len() };
    // SAFETY: the scratch is ours.
    unsafe { receive(fd, part, flags) }
}

/// Takes this many bytes that have come, without a use for them.
pub(crate) fn discard(fd: c_int, mut bytes: usize) {
    let mut scratch = [0_u8; GLANCE];
    while bytes > 0 {
        let part = Part { base: scratch.as_mut_ptr(), len: bytes.min(GLANCE) };
        // SAFETY: the scratch is ours.
        match unsafe { receive(fd, part, libc::MSG_DONTWAIT) } {
            Ok(taken @ 1..) => bytes -= taken.min(bytes),
            _ => return,
        }
    }
}

/// Sends one byte whose only meaning is that it comes.
pub(crate) fn ring(fd: c_int) -> Outcome {
    let (byte, nobody) = ([0_u8; 1], ptr::null::<c_void>());
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if sandbox::forbids(libc::SYS_sendto) {
        let part = Part { base: byte.as_ptr().cast_mut(), len: 1 };
        // SAFETY: one byte of ours.
        return unsafe { sandbox::send(fd, &[part], flags) };
    }
    call!(libc::SYS_sendto, fd, byte.as_ptr(), 1_usize, flags, nobody, 0_usize)
}

/// Sends memory of the program.
///
/// # Safety
///
/// `parts` may be read.
pub(crate) unsafe fn send(fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    if let [part] = parts
        && !sandbox::forbids(libc::SYS_sendto)
    {
        // A header to read less, for the kernel.
        let nobody = ptr::null::<c_void>();
        return call!(libc::SYS_sendto, fd, part.base, part.len, flags, nobody, 0_usize);
    }
    if sandbox::forbids(libc::SYS_sendmsg) {
        // SAFETY: as promised.
        return unsafe { sandbox::send(fd, parts, flags) };
    }
    // SAFETY: a header of zeros is one without address and control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = parts.len();
    call!(libc::SYS_sendmsg, fd, ptr::from_ref(&header), flags)
}

/// Receives into several places.
///
/// # Safety
///
/// `parts` may be written.
pub(crate) unsafe fn receive_parts(fd: c_int, parts: &[Part], flags: c_int) -> Outcome {
    if let [part] = parts
        && !sandbox::forbids(libc::SYS_recvfrom)
    {
        // SAFETY: as promised.
        return unsafe { receive(fd, *part, flags) };
    }
    if sandbox::forbids(libc::SYS_recvmsg) {
        // SAFETY: as promised.
        return unsafe { sandbox::receive_parts(fd, parts, flags) };
    }
    // SAFETY: a header of zeros is one without address and control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = parts.len();
    call!(libc::SYS_recvmsg, fd, ptr::from_mut(&mut header), flags)
}

/// Waits for one descriptor, for milliseconds; negative is for ever.
pub(crate) fn poll_one(fd: c_int, events: i16, milliseconds: c_int) -> Result<i16, Errno> {
    poll_one_for(fd, events, u64::try_from(milliseconds).ok().map(Duration::from_millis))
}

/// The same for any time; none is for ever.
pub(crate) fn poll_one_for(fd: c_int, events: i16, limit: Option<Duration>) -> Result<i16, Errno> {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    poll(std::slice::from_mut(&mut entry), limit, ptr::null()).map(|_| entry.revents)
}

/// A time as the kernel has it.
fn time_of(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

/// Whether the open file of `fd` asks never to wait.
pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    if sandbox::forbids(libc::SYS_fcntl) {
        return sandbox::was_nonblocking(fd);
    }
    call!(libc::SYS_fcntl, fd, libc::F_GETFL)
        .is_ok_and(|flags| flags & libc::O_NONBLOCK.cast_unsigned() as usize != 0)
}

/// One option, of the type that the kernel has for it.
fn option_of<T: Copy>(fd: c_int, level: c_int, name: c_int, zero: T) -> Result<T, Errno> {
    let (mut value, mut len) = (zero, size_of::<T>() as libc::socklen_t);
    let (into, len_into) = (ptr::from_mut(&mut value), ptr::from_mut(&mut len));
    call!(libc::SYS_getsockopt, fd, level, name, into, len_into)?;
    Ok(value)
}

/// One option that is a number.
pub(crate) fn option(fd: c_int, level: c_int, name: c_int) -> Result<c_int, Errno> {
    option_of(fd, level, name, 0)
}

/// Whether a socket is one of TCP, or a raw one of that protocol.
pub(crate) fn is_tcp(fd: c_int) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// The number that no other socket of this boot and network namespace has.
pub(crate) fn cookie(fd: c_int) -> Result<u64, Errno> {
    option_of(fd, libc::SOL_SOCKET, libc::SO_COOKIE, 0_u64)
}

/// The number of the network namespace that a socket is in; zero where the kernel does not
/// tell (before Linux 5.14).
pub(crate) fn network_of(fd: c_int) -> u64 {
    const SO_NETNS_COOKIE: c_int = 71;
    option_of(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE, 0_u64).unwrap_or(0)
}

/// The interface that a socket is bound to; zero if it is to none.
pub(crate) fn interface_of(fd: c_int) -> u32 {
    const SO_BINDTOIFINDEX: c_int = 62;
    option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX).map_or(0, c_int::cast_unsigned)
}

/// Sets an option to what lies in `value`.
pub(crate) fn set_option<T>(fd: c_int, level: c_int, name: c_int, value: &T) -> Outcome {
    call!(libc::SYS_setsockopt, fd, level, name, ptr::from_ref(value), size_of::<T>())
}

/// The address of this end, or of the other.
pub(crate) fn name(fd: c_int, of_peer: bool) -> Result<libc::sockaddr_storage, Errno> {
    // SAFETY: an address of zeros is one without a family.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let number = if of_peer { libc::SYS_getpeername } else { libc::SYS_getsockname };
    call!(number, fd, ptr::from_mut(&mut address), ptr::from_mut(&mut len))?;
    Ok(address)
}

pub(crate) fn close(fd: c_int) -> Outcome {
    call!(libc::SYS_close, fd)
}

/// Who this is: not what libc remembers, since a child of `vfork` has its parent's memory.
pub(crate) fn process() -> u32 {
    // Who locked itself in has no child of `vfork` any more that it would run in.
    call!(libc::SYS_getpid).map_or_else(|_| crate::process::owner(), |id| id as u32)
}

pub(crate) fn thread() -> u32 {
    call!(libc::SYS_gettid).map_or_else(|_| crate::process::owner(), |id| id as u32)
}

pub(crate) fn user() -> u32 {
    call!(libc::SYS_geteuid).map_or(u32::MAX, |id| id as u32)
}

/// Whether there is such a thread, of whomever.
pub(crate) fn is_alive(thread: u32) -> bool {
    call!(libc::SYS_kill, thread, 0 as c_int) != Err(Errno(libc::ESRCH))
}

/// The head of this thread's list of locks that the kernel frees when the thread ends; null
/// where it has none.
pub(crate) fn robust_list() -> Result<*mut c_void, Errno> {
    let (mut head, mut len) = (ptr::null_mut::<c_void>(), 0_usize);
    let this: c_int = 0;
    call!(libc::SYS_get_robust_list, this, ptr::from_mut(&mut head), ptr::from_mut(&mut len))?;
    Ok(head)
}

/// Bytes of a set of signals, as the kernel has it.
const SET_LEN: usize = 8;

/// Changes which signals this thread does not get; gives those that it did not get before.
pub(crate) fn change_mask(how: c_int, mask: u64) -> Result<u64, Errno> {
    let mut before = 0_u64;
    let (new, old) = (ptr::from_ref(&mask), ptr::from_mut(&mut before));
    call!(libc::SYS_rt_sigprocmask, how, new, old, SET_LEN)?;
    Ok(before)
}

/// Sends a signal to this very thread, with what was said of it.
///
/// # Safety
///
/// The kernel has filled `info`.
pub(crate) unsafe fn queue_to_itself(signal: c_int, info: *mut libc::siginfo_t) -> Outcome {
    call!(libc::SYS_rt_tgsigqueueinfo, process(), thread(), signal, info)
}

/// Lets a signal do what it does where nobody has set anything.
pub(crate) fn reset_handler(signal: c_int) {
    // The default, no flags, no mask: all of it zeros.
    let default = [0_u64; 4];
    let none = ptr::null_mut::<c_void>();
    let _ = call!(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SET_LEN);
}

/// Sleeps while the word has this value, for a while at most.
pub(crate) fn sleep_on(word: &AtomicU32, value: u32, milliseconds: u32) -> Outcome {
    let limit = time_of(Duration::from_millis(milliseconds.into()));
    call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, ptr::from_ref(&limit))
}

/// Wakes who sleeps on the word.
pub(crate) fn wake(word: &AtomicU32, how_many: c_int) {
    let _ = call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, how_many);
}

/// What TCP has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpCounters {
    /// Bytes that the peer acknowledged.
    pub(crate) acknowledged: u64,
    /// Bytes that came, taken or not.
    pub(crate) received: u64,
}

/// What TCP has counted for this connection (`tcpi_bytes_acked`, `tcpi_bytes_received`).
pub(crate) fn counted(fd: c_int) -> Result<TcpCounters, Errno> {
    const ACKNOWLEDGED: usize = 120 / 8;
    const RECEIVED: usize = 128 / 8;
    let info = option_of(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0_u64; 32])?;
    Ok(TcpCounters { acknowledged: info[ACKNOWLEDGED], received: info[RECEIVED] })
}

/// One of the calls that tell a number of bytes: `FIONREAD`, `TIOCOUTQ`.
pub(crate) fn queued(fd: c_int, request: libc::Ioctl) -> Result<u64, Errno> {
    let mut bytes: c_int = 0;
    if sandbox::forbids(libc::SYS_ioctl) && request == libc::FIONREAD {
        // Whether there is one.
        return poll_one(fd, libc::POLLIN, 0).map(|ready| u64::from(ready & libc::POLLIN != 0));
    }
    call!(libc::SYS_ioctl, fd, request, ptr::from_mut(&mut bytes))?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// One of the two time-outs of a socket.
pub(crate) fn time_option(fd: c_int, name: c_int) -> Result<libc::timeval, Errno> {
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    option_of(fd, libc::SOL_SOCKET, name, zero)
}

/// The same as a descriptor out of the way of the program, which gets the lowest numbers.
pub(crate) fn out_of_the_way(fd: c_int) -> c_int {
    for least in [512, 64] {
        if let Ok(high) = call!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, least) {
            let _ = close(fd);
            return high as c_int;
        }
    }
    fd
}

/// Writes to a file; not all, perhaps.
pub(crate) fn write(fd: c_int, bytes: &[u8]) -> Outcome {
    call!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len())
}

/// The time of day.
pub(crate) fn now() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let _ = call!(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, ptr::from_mut(&mut now));
    now
}

/// Reads a file from its position, or from another.
pub(crate) fn read_at(fd: c_int, into: &mut [u8], at: Option<i64>) -> Outcome {
    match at {
        None => call!(libc::SYS_read, fd, into.as_mut_ptr(), into.len()),
        Some(at) => call!(libc::SYS_pread64, fd, into.as_mut_ptr(), into.len(), at),
    }
}

/// Moves the position of a file back.
pub(crate) fn step_back(fd: c_int, bytes: usize) -> Outcome {
    call!(libc::SYS_lseek, fd, -(bytes as i64), libc::SEEK_CUR)
}

/// Sends a part of a file by TCP. Memory that `offset` must not point to is refused.
pub(crate) fn send_file(out: c_int, from: c_int, offset: *mut i64, count: usize) -> Outcome {
    call!(libc::SYS_sendfile, out, from, offset, count)
}

/// Hands bytes from one queue to another.
pub(crate) fn splice(from: c_int, to: c_int, len: usize, flags: u32) -> Outcome {
    let nowhere = ptr::null_mut::<i64>();
    call!(libc::SYS_splice, from, nowhere, to, nowhere, len, flags)
}

/// Whether it is one end of a pipe.
pub(crate) fn is_pipe(fd: c_int) -> bool {
    status(fd).is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Waits for descriptors, with a mask of signals while it sleeps.
pub(crate) fn poll(
    entries: &mut [libc::pollfd],
    limit: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Outcome {
    let limit = limit.map(time_of);
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    call!(libc::SYS_ppoll, entries.as_mut_ptr(), entries.len(), limit, mask, 8_usize)
}

/// Waits for what an epoll descriptor tells, with a mask of signals while it sleeps.
pub(crate) fn epoll_wait(
    epoll: c_int,
    events: &mut [libc::epoll_event],
    milliseconds: c_int,
    mask: *const libc::sigset_t,
) -> Outcome {
    let (into, most) = (events.as_mut_ptr(), events.len() as c_int);
    call!(libc::SYS_epoll_pwait, epoll, into, most, milliseconds, mask, 8_usize)
}

/// The same for any time: the kernel's own call knows whole milliseconds only.
pub(crate) fn epoll_wait_for(
    epoll: c_int,
    events: &mut [libc::epoll_event],
    limit: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Outcome {
    const LEAST: Duration = Duration::from_millis(1);
    if let Some(limit) = limit.filter(|limit| *limit < LEAST) {
        let mut entry = libc::pollfd { fd: epoll, events: libc::POLLIN, revents: 0 };
        poll(std::slice::from_mut(&mut entry), Some(limit), mask)?;
        return epoll_wait(epoll, events, 0, ptr::null());
    }
    let milliseconds = limit.map_or(-1, |limit| {
        c_int::try_from(limit.as_nanos().div_ceil(LEAST.as_nanos())).unwrap_or(c_int::MAX)
    });
    epoll_wait(epoll, events, milliseconds, mask)
}

/// Adds to, changes or takes from what an epoll descriptor watches.
pub(crate) fn epoll_change(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: &libc::epoll_event,
) -> Outcome {
    call!(libc::SYS_epoll_ctl, epoll, operation, fd, ptr::from_ref(event))
}

pub(crate) fn is_open(fd: c_int) -> bool {
    call!(libc::SYS_fcntl, fd, libc::F_GETFD).is_ok()
}

/// Whether closing it is a reset: the program asked for no lingering.
pub(crate) fn resets_when_closed(fd: c_int) -> bool {
    let zero = libc::linger { l_onoff: 0, l_linger: 0 };
    option_of(fd, libc::SOL_SOCKET, libc::SO_LINGER, zero)
        .is_ok_and(|linger| (linger.l_onoff, linger.l_linger) == (1, 0))
}

/// Milliseconds of a clock that only goes on, the same in all processes; never zero.
pub(crate) fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place of ours. (Not by `call!`: libc asks no kernel for this.)
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000).max(1)
}

/// Breaks a TCP connection off: the other end hears of a reset, and so does this one.
pub(crate) fn break_off(fd: c_int) {
    let nobody = [0_u8; 16];
    const { assert!(libc::AF_UNSPEC == 0, "an address of zeros would be one of a family") };
    let _ = call!(libc::SYS_connect, fd, nobody.as_ptr(), nobody.len());
}
