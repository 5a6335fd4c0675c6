//! Programs that lock themselves in: a call that their filter does not name ends them.

use libc::sock_filter as Step;

use crate::Case;
use crate::pair::{Pair, Seen, close, poll_bits, recv, send};

pub(crate) const CASES: &[Case] = &[
    ("locked_in_with_reading_and_writing", reading_and_writing),
    ("locked_in_and_waiting_for_room", waiting_for_room),
    ("locked_in_without_waiting", without_waiting),
];

/// What `sshd` leaves its child, more or less.
const LEFT: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_clock_gettime,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigreturn,
];

/// From here on whatever else is called ends the process.
fn lock_in() {
    crate::pair::settle_no_more();
    const LOAD_NUMBER: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const ANSWER: u16 = 0x06;
    let step = |code, k, jf| Step { code, jt: 0, jf, k };
    let mut filter = vec![step(LOAD_NUMBER, 0, 0)];
    for number in LEFT {
        filter.push(step(IF_EQUAL, *number as u32, 1));
        filter.push(step(ANSWER, libc::SECCOMP_RET_ALLOW, 0));
    }
    filter.push(step(ANSWER, libc::SECCOMP_RET_KILL_PROCESS, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives until the kernel has copied it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0), 0);
    }
}

/// A child that locks itself in and then does its job on one end; the other end is used
/// here meanwhile.
fn with_locked_in(
    seen: &mut Seen,
    pair: &Pair,
    job: fn(i32),
    meanwhile: impl FnOnce(&mut Seen, i32),
) {
    // SAFETY: numbers; the child ends without a way back.
    let child = unsafe { libc::fork() };
    if child == 0 {
        close(pair.a);
        lock_in();
        job(pair.b);
        close(pair.b);
        // SAFETY: a number.
        unsafe { libc::_exit(3) };
    }
    close(pair.b);
    meanwhile(seen, pair.a);
    seen.call("end", recv(pair.a, &mut [0; 8], 0));
    let mut status = 0;
    // SAFETY: a place for a number.
    unsafe { libc::waitpid(child, &mut status, 0) };
    seen.note("status", status);
    close(pair.a);
}

fn read(fd: i32, into: &mut [u8]) -> isize {
    // SAFETY: a slice.
    unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) }
}

fn write(fd: i32, bytes: &[u8]) -> isize {
    // SAFETY: a slice.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }
}

/// Sends back whatever comes, until the end.
fn echo(fd: i32) {
    let mut bytes = [0; 64];
    loop {
        poll_bits(fd, libc::POLLIN, -1);
        match read(fd, &mut bytes) {
            1.. => assert!(write(fd, &bytes[..5]) == 5),
            _ => return,
        }
    }
}

fn reading_and_writing(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        with_locked_in(seen, &pair, echo, |seen, fd| {
            let mut bytes = [0; 8];
            for _ in 0..20 {
                send(fd, b"words", 0);
                assert_eq!(recv(fd, &mut bytes[..5], libc::MSG_WAITALL), 5);
            }
            seen.note("bytes", bytes);
            // SAFETY: a number.
            unsafe { libc::shutdown(fd, libc::SHUT_WR) };
        });
    }
}

const MUCH: usize = 8 << 20;

fn waiting_for_room(seen: &mut Seen) {
    let job = |fd| {
        let piece = [7; 10_000];
        let mut left = MUCH;
        while left > 0 {
            let sent = write(fd, &piece[..left.min(piece.len())]);
            assert!(sent > 0);
            left -= sent as usize;
        }
    };
    with_locked_in(seen, &Pair::used(), job, |seen, fd| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let mut bytes = vec![0; MUCH];
        seen.call("recv", recv(fd, &mut bytes, libc::MSG_WAITALL));
        seen.note("right", bytes.iter().all(|byte| *byte == 7));
    });
}

fn without_waiting(seen: &mut Seen) {
    let pair = Pair::used();
    crate::pair::set_nonblocking(pair.b);
    let job = |fd| {
        let mut bytes = [0; 8];
        let at_once = read(fd, &mut bytes) == -1;
        write(fd, if at_once { b"none" } else { b"some" });
        poll_bits(fd, libc::POLLIN, -1);
        let got = read(fd, &mut bytes);
        write(fd, &bytes[..got as usize]);
    };
    with_locked_in(seen, &pair, job, |seen, fd| {
        let mut bytes = [0; 4];
        recv(fd, &mut bytes, libc::MSG_WAITALL);
        seen.note("at once", bytes);
        send(fd, b"abc", 0);
        seen.call("recv", recv(fd, &mut bytes[..3], libc::MSG_WAITALL));
        seen.note("bytes", bytes);
    });
}
