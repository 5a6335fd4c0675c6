//! Descriptors that are shared: by `dup`, by `fork`, by messages, over `exec`.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::zeroed;

use crate::Case;
use crate::pair::{Pair, Seen, close, recv, send};

pub(crate) const CASES: &[Case] = &[
    ("a_duplicate", duplicate),
    ("a_duplicate_in_place_of_another", duplicate_over),
    ("a_duplicate_by_fcntl", duplicate_by_fcntl),
    ("closed_in_a_range", closed_in_a_range),
    ("a_child_goes_on", child_goes_on),
    ("a_child_and_its_parent_take_turns", child_and_parent),
    ("a_child_of_vfork_closes_for_itself", vfork_closes),
    ("a_program_that_is_spawned_closes_for_itself", spawn_closes),
    ("a_program_that_is_spawned_has_it_and_ends", spawn_inherits),
    ("a_child_of_clone_in_this_memory_closes_for_itself", clone_closes),
    ("a_child_that_libc_knows_nothing_of_closes_for_itself", bare_clone_closes),
    ("a_program_has_it_as_its_input", exec_input),
    ("a_program_has_it_before_a_word_was_said", exec_fresh),
    ("a_killed_peer", killed_peer),
    ("a_descriptor_in_a_message", in_a_message),
];

fn duplicate(seen: &mut Seen) {
    let pair = Pair::used();
    // SAFETY: numbers, here and in all functions below.
    let other = unsafe { libc::dup(pair.a) };
    close(pair.a);
    send(other, b"abc", 0);
    seen.call("recv", recv(pair.b, &mut [0; 8], 0));
    send(pair.b, b"defg", 0);
    seen.call("recv", recv(other, &mut [0; 8], 0));
    close(other);
    seen.call("end", recv(pair.b, &mut [0; 8], 0));
    close(pair.b);
}

fn duplicate_over(seen: &mut Seen) {
    let (first, second) = (Pair::used(), Pair::used());
    // SAFETY: memory and numbers of this case.
    seen.note("dup2", unsafe { libc::dup2(first.a, second.a) } == second.a);
    seen.call("end", recv(second.b, &mut [0; 8], 0));
    send(second.a, b"abc", 0);
    seen.call("recv", recv(first.b, &mut [0; 8], 0));
    // SAFETY: memory and numbers of this case.
    seen.note("itself", unsafe { libc::dup2(first.a, first.a) } == first.a);
    first.close();
    second.close();
}

fn duplicate_by_fcntl(seen: &mut Seen) {
    let pair = Pair::used();
    // SAFETY: memory and numbers of this case.
    let other = unsafe { libc::fcntl(pair.a, libc::F_DUPFD_CLOEXEC, 100) };
    seen.note("number", other >= 100);
    send(other, b"abc", 0);
    seen.call("recv", recv(pair.b, &mut [0; 8], 0));
    close(other);
    send(pair.a, b"abc", 0);
    seen.call("recv", recv(pair.b, &mut [0; 8], 0));
    pair.close();
}

fn closed_in_a_range(seen: &mut Seen) {
    let pair = Pair::used();
    // SAFETY: memory and numbers of this case.
    let high = unsafe { libc::fcntl(pair.a, libc::F_DUPFD, 500) };
    close(pair.a);
    let first = high as u32;
    // SAFETY: memory and numbers of this case.
    seen.call("close_range", unsafe { libc::close_range(first, first + 10, 0) } as isize);
    seen.call("end", recv(pair.b, &mut [0; 8], 0));
    close(pair.b);
}

/// Runs a job in a child; its exit code.
pub(crate) fn in_child(job: impl FnOnce() -> i32) -> i32 {
    // SAFETY: memory and numbers of this case.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(job());
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        libc::WEXITSTATUS(status)
    }
}

fn child_goes_on(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let code = in_child(|| {
            close(pair.b);
            send(pair.a, b"from the child", 0);
            0
        });
        seen.note("exit", code);
        let mut bytes = [0; 32];
        seen.call("recv", recv(pair.b, &mut bytes, 0));
        send(pair.a, b"from the parent", 0);
        seen.call("recv", recv(pair.b, &mut bytes, 0));
        close(pair.a);
        seen.call("end", recv(pair.b, &mut bytes, 0));
        close(pair.b);
    }
}

fn child_and_parent(seen: &mut Seen) {
    let pair = Pair::used();
    let mut sum = 0;
    for turn in 0..10_u8 {
        send(pair.a, &[turn; 3], 0);
        let first = in_child(|| {
            let mut byte = [0];
            recv(pair.b, &mut byte, 0);
            i32::from(byte[0])
        });
        let mut rest = [0; 2];
        recv(pair.b, &mut rest, libc::MSG_WAITALL);
        sum += first + i32::from(rest[0]) + i32::from(rest[1]);
    }
    seen.note("sum", sum);
    pair.close();
}

/// Calls `vfork`, and closes a descriptor in the child. It returns twice, so what calls it cannot
/// be Rust.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn vfork_and_close(fd: i32) -> libc::pid_t {
    std::arch::naked_asm!(
        "push rbx",
        "mov ebx, edi",
        "call {vfork}@PLT",
        "test eax, eax",
        "jnz 2f",
        "mov edi, ebx",
        "call {close}@PLT",
        "xor edi, edi",
        "call {exit}@PLT",
        "2:",
        "pop rbx",
        "ret",
        vfork = sym vfork,
        close = sym libc::close,
        exit = sym libc::_exit,
    )
}

/// The same.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn vfork_and_close(fd: i32) -> libc::pid_t {
    std::arch::naked_asm!(
        "stp x19, x30, [sp, #-16]!",
        "mov w19, w0",
        "bl {vfork}",
        "cbnz w0, 2f",
        "mov w0, w19",
        "bl {close}",
        "mov w0, wzr",
        "bl {exit}",
        "2:",
        "ldp x19, x30, [sp], #16",
        "ret",
        vfork = sym vfork,
        close = sym libc::close,
        exit = sym libc::_exit,
    )
}

unsafe extern "C" {
    fn vfork() -> libc::pid_t;
}

/// What a child of `clone` runs.
extern "C" fn close_in_child(fd: *mut libc::c_void) -> i32 {
    close(fd.addr() as i32);
    0
}

fn cloned_and_closes(fd: i32, flags: i32) -> bool {
    let mut stack = vec![0_u128; 4096];
    let argument = std::ptr::without_provenance_mut(fd as usize);
    // SAFETY: it runs on a stack of its own while this one waits.
    let child = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast();
        libc::clone(close_in_child, top, flags | libc::SIGCHLD, argument)
    };
    ended(child)
}

/// Waits for a child, and for nobody else.
fn ended(child: libc::pid_t) -> bool {
    let mut status = -1;
    // SAFETY: a place for it.
    unsafe { libc::waitpid(child, &mut status, 0) == child && status == 0 }
}

/// A pair where something is under way to the end that a child closes.
fn pair_with_bytes() -> Pair {
    let pair = Pair::used();
    send(pair.b, b"on its way", 0);
    pair
}

/// What a child has closed for itself is open here, and nothing is lost.
fn is_still_open(seen: &mut Seen, pair: &Pair) {
    seen.call("recv", recv(pair.a, &mut [0; 16], 0));
    send(pair.a, b"still open", 0);
    seen.call("recv", recv(pair.b, &mut [0; 16], 0));
    send(pair.b, b"both ways", 0);
    seen.call("recv", recv(pair.a, &mut [0; 16], 0));
    close(pair.a);
    seen.call("end", recv(pair.b, &mut [0; 16], 0));
    close(pair.b);
}

fn vfork_closes(seen: &mut Seen) {
    for _ in 0..3 {
        let pair = pair_with_bytes();
        // SAFETY: the child closes a descriptor, and ends.
        let child = unsafe { vfork_and_close(pair.a) };
        seen.note("ended", ended(child));
        is_still_open(seen, &pair);
    }
}

fn clone_closes(seen: &mut Seen) {
    for flags in [libc::CLONE_VM, libc::CLONE_VM | libc::CLONE_VFORK] {
        let pair = pair_with_bytes();
        seen.note("ended", cloned_and_closes(pair.a, flags));
        is_still_open(seen, &pair);
    }
}

fn bare_clone_closes(seen: &mut Seen) {
    let pair = pair_with_bytes();
    seen.note("ended", cloned_and_closes(pair.a, 0));
    is_still_open(seen, &pair);
    let pair = pair_with_bytes();
    // SAFETY: the child closes a descriptor, and ends.
    let child = unsafe {
        let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
        if child == 0 {
            close(pair.a);
            libc::_exit(0);
        }
        child as libc::pid_t
    };
    seen.note("ended", ended(child));
    is_still_open(seen, &pair);
}

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// Starts a program as a shell is started: nobody is told before that it inherits descriptors.
fn spawned(seen: &mut Seen, words: &[&CStr], closes: Option<c_int>) {
    let mut arguments: Vec<_> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    arguments.push(std::ptr::null_mut());
    // SAFETY: memory and numbers of this case.
    unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = zeroed();
        libc::posix_spawn_file_actions_init(&mut actions);
        if let Some(fd) = closes {
            libc::posix_spawn_file_actions_addclose(&mut actions, fd);
        }
        let mut child = 0;
        let result = libc::posix_spawnp(
            &mut child,
            arguments[0],
            &actions,
            std::ptr::null(),
            arguments.as_ptr(),
            environ,
        );
        seen.note("spawned", result);
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        seen.note("ended", status);
        libc::posix_spawn_file_actions_destroy(&mut actions);
    }
}

/// `posix_spawn` is a vfork with a list of what the child closes.
fn spawn_closes(seen: &mut Seen) {
    let pair = Pair::used();
    spawned(seen, &[c"true"], Some(pair.a));
    send(pair.a, b"still open", 0);
    seen.call("recv", recv(pair.b, &mut [0; 16], 0));
    pair.close();
}

/// The program that comes has the descriptors as well, uses one or none, and ends: that is its end
/// and not the connection's.
fn spawn_inherits(seen: &mut Seen) {
    let pair = Pair::used();
    for fd in [pair.a, pair.b] {
        // SAFETY: numbers.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    }
    let says = CString::new(format!("echo spoken >&{}", pair.a)).unwrap();
    for words in [&[c"true"][..], &[c"sh", c"-c", &says]] {
        spawned(seen, words, None);
        send(pair.a, b"and more", 0);
        let mut bytes = [0; 32];
        let wanted = if words.len() > 1 { 15 } else { 8 };
        seen.call("recv", recv(pair.b, &mut bytes[..wanted], libc::MSG_WAITALL));
        seen.note("bytes", String::from_utf8_lossy(&bytes[..wanted]));
        send(pair.b, b"answer", 0);
        seen.call("back", recv(pair.a, &mut bytes, 0));
    }
    close(pair.a);
    seen.call("end", recv(pair.b, &mut [0; 16], 0));
    close(pair.b);
}

fn exec_input(seen: &mut Seen) {
    through_cat(seen, &Pair::used());
}

fn exec_fresh(seen: &mut Seen) {
    through_cat(seen, &Pair::fresh());
    // One that is kept open for as long as the other end wants to know whether it is memory.
    let pair = Pair::fresh();
    // SAFETY: memory and numbers of this case.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: memory and numbers of this case.
        unsafe {
            libc::close(pair.a);
            libc::dup2(pair.b, 0);
            libc::dup2(pair.b, 1);
            let arguments = [c"cat".as_ptr(), std::ptr::null()];
            libc::execvp(c"cat".as_ptr(), arguments.as_ptr());
            libc::_exit(1);
        }
    }
    close(pair.b);
    let mut bytes = [0; 9];
    for _ in 0..10 {
        send(pair.a, b"there and", 0);
        seen.call("back", recv(pair.a, &mut bytes, libc::MSG_WAITALL));
    }
    pair.until_shared(&[pair.a], || {
        send(pair.a, b"there and", 0);
        assert_eq!(recv(pair.a, &mut bytes, libc::MSG_WAITALL), 9);
    });
    pair.expect_shared(pair.a);
    close(pair.a);
    // SAFETY: memory and numbers of this case.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

fn through_cat(seen: &mut Seen, pair: &Pair) {
    send(pair.b, b"through cat", 0);
    // SAFETY: memory and numbers of this case.
    unsafe { libc::shutdown(pair.b, libc::SHUT_WR) };
    // SAFETY: memory and numbers of this case.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: memory and numbers of this case.
        unsafe {
            libc::dup2(pair.a, 0);
            libc::dup2(pair.a, 1);
            let arguments = [c"cat".as_ptr(), std::ptr::null()];
            libc::execvp(c"cat".as_ptr(), arguments.as_ptr());
            libc::_exit(1);
        }
    }
    close(pair.a);
    let mut bytes = [0; 32];
    let mut len = 0;
    loop {
        let got = recv(pair.b, &mut bytes[len..], 0);
        if got <= 0 {
            seen.call("end", got);
            break;
        }
        len += got as usize;
    }
    seen.note("came back", String::from_utf8_lossy(&bytes[..len]).into_owned());
    let mut status = 0;
    // SAFETY: memory and numbers of this case.
    unsafe { libc::waitpid(child, &mut status, 0) };
    seen.note("status", status);
    close(pair.b);
}

fn killed_peer(seen: &mut Seen) {
    let pair = Pair::used();
    // SAFETY: memory and numbers of this case.
    let child = unsafe { libc::fork() };
    if child == 0 {
        close(pair.a);
        send(pair.b, b"last words", 0);
        loop {
            // SAFETY: memory and numbers of this case.
            unsafe { libc::pause() };
        }
    }
    close(pair.b);
    let mut bytes = [0; 16];
    seen.call("recv", recv(pair.a, &mut bytes, 0));
    let killer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        // SAFETY: memory and numbers of this case.
        unsafe { libc::kill(child, libc::SIGKILL) };
    });
    seen.call("recv", recv(pair.a, &mut bytes, 0));
    killer.join().unwrap();
    // SAFETY: memory and numbers of this case.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    seen.call("recv", recv(pair.a, &mut bytes, 0));
    close(pair.a);
}

/// Not one of the cases: ends the program in the middle of its connections.
pub(crate) fn killed_while_open() -> ! {
    let _pairs = [Pair::used(), Pair::fresh(), Pair::used()];
    // SAFETY: numbers; nothing comes after it.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
    unreachable!("it was killed")
}

fn in_a_message(seen: &mut Seen) {
    let pair = Pair::used();
    let mut ends = [0; 2];
    // SAFETY: memory and numbers of this case.
    unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr());
        let child = libc::fork();
        if child == 0 {
            close(pair.a);
            close(pair.b);
            let fd = receive_descriptor(ends[1]);
            let mut bytes = [0; 16];
            let got = recv(fd, &mut bytes, 0);
            send(fd, &bytes[..got as usize], 0);
            libc::_exit(got as i32);
        }
        send_descriptor(ends[0], pair.b);
        close(pair.b);
        send(pair.a, b"passed on", 0);
        let mut bytes = [0; 16];
        seen.call("back", recv(pair.a, &mut bytes, 0));
        seen.note("bytes", bytes);
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        seen.note("exit", libc::WEXITSTATUS(status));
    }
    seen.call("end", recv(pair.a, &mut [0; 16], 0));
    for fd in [ends[0], ends[1], pair.a] {
        close(fd);
    }
}

/// Room for one descriptor beside a message.
#[repr(align(8))]
struct Control([u8; 24]);

unsafe fn header(vector: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: memory and numbers of this case.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = 24;
    header
}

unsafe fn send_descriptor(through: i32, fd: i32) {
    let byte = [1_u8];
    let mut vector = libc::iovec { iov_base: byte.as_ptr().cast_mut().cast(), iov_len: 1 };
    let mut control = Control([0; 24]);
    // SAFETY: memory and numbers of this case.
    unsafe {
        let header = header(&mut vector, &mut control);
        let part = libc::CMSG_FIRSTHDR(&header);
        (*part).cmsg_level = libc::SOL_SOCKET;
        (*part).cmsg_type = libc::SCM_RIGHTS;
        (*part).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(part).cast::<i32>().write_unaligned(fd);
        assert_eq!(libc::sendmsg(through, &header, 0), 1);
    }
}

unsafe fn receive_descriptor(through: i32) -> i32 {
    let mut byte = [0_u8];
    let mut vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control([0; 24]);
    // SAFETY: memory and numbers of this case.
    unsafe {
        let mut header = header(&mut vector, &mut control);
        assert_eq!(libc::recvmsg(through, &mut header, 0), 1);
        libc::CMSG_DATA(libc::CMSG_FIRSTHDR(&header)).cast::<i32>().read_unaligned()
    }
}
