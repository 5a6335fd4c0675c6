//! What programs do that nobody should: too early, too late, too much, and in the middle.
//!
//! Programs that lock themselves in: a call that their filter does not name ends them.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::sock_filter as Step;

use crate::Case;
use crate::forks::in_child;
use crate::pair::{Pair, Seen, call_up, close, drain, listener, poll_bits, recv, send};

pub(crate) const CASES: &[Case] = &[
    ("before_any_library_began", before_any_library),
    ("errno_is_left_alone", errno_is_left),
    ("in_a_handler_of_a_signal", in_a_handler),
    ("closed_from_here_on", closed_from),
    ("closing_what_is_not_there", closing_nothing),
    ("no_descriptor_is_left", no_descriptor_left),
    ("a_sender_is_killed_in_the_middle", killed_in_the_middle),
    ("locked_in_with_reading_and_writing", reading_and_writing),
    ("locked_in_and_waiting_for_room", waiting_for_room),
    ("locked_in_without_waiting", without_waiting),
];

static EARLY_A: AtomicI32 = AtomicI32::new(-1);
static EARLY_B: AtomicI32 = AtomicI32::new(-1);

/// The loader calls this before it begins any library: ours is not there yet.
extern "C" fn early() {
    let pair = Pair::fresh();
    send(pair.a, b"early", 0);
    send(pair.b, b"early", 0);
    EARLY_A.store(pair.a, Ordering::Relaxed);
    EARLY_B.store(pair.b, Ordering::Relaxed);
}

#[used]
#[unsafe(link_section = ".preinit_array")]
static EARLY: extern "C" fn() = early;

fn before_any_library(seen: &mut Seen) {
    let pair = Pair { a: EARLY_A.load(Ordering::Relaxed), b: EARLY_B.load(Ordering::Relaxed) };
    seen.call("before", recv(pair.a, &mut [0; 5], libc::MSG_WAITALL));
    for _ in 0..5 {
        let mut bytes = [0; 5];
        seen.call("recv", recv(pair.b, &mut bytes, libc::MSG_WAITALL));
        seen.note("bytes", bytes);
        send(pair.b, b"later", 0);
        seen.call("back", recv(pair.a, &mut bytes, libc::MSG_WAITALL));
        send(pair.a, b"later", 0);
    }
    pair.close();
}

fn set_errno(value: i32) {
    // SAFETY: each thread has such a place.
    unsafe { *libc::__errno_location() = value };
}

fn errno() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

fn errno_is_left(seen: &mut Seen) {
    let pair = Pair::used();
    for (name, call) in [
        ("send", (|pair: &Pair| send(pair.a, b"abcdef", 0)) as fn(&Pair) -> isize),
        ("recv", |pair| recv(pair.b, &mut [0; 2], 0)),
        ("peek", |pair| recv(pair.b, &mut [0; 2], libc::MSG_PEEK)),
        ("drain", |pair| recv(pair.b, &mut [0; 9], 0)),
        // SAFETY: numbers.
        ("dup", |pair| isize::from(unsafe { libc::close(libc::dup(pair.a)) } == 0)),
        // SAFETY: as above.
        ("shutdown", |pair| unsafe { libc::shutdown(pair.a, libc::SHUT_WR) } as isize),
        ("end", |pair| recv(pair.b, &mut [0; 9], 0)),
    ] {
        set_errno(77);
        let result = call(&pair);
        let after = errno();
        seen.note(name, (result, after));
    }
    set_errno(77);
    pair.close();
    seen.note("close", errno());
}

static IN_HANDLER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn handler(_: i32) {
    send(IN_HANDLER.load(Ordering::Relaxed), b"!", 0);
}

/// A thread is interrupted again and again, in the middle of its sends, by a handler that
/// uses another connection.
fn in_a_handler(seen: &mut Seen) {
    const ROUNDS: usize = 2000;
    let (pair, other) = (Pair::used(), Pair::used());
    IN_HANDLER.store(other.a, Ordering::Relaxed);
    // SAFETY: a handler that sends a byte.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut());
    }
    // SAFETY: this thread outlives the other.
    let me = unsafe { libc::pthread_self() };
    let all_came = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                // SAFETY: as above.
                unsafe { libc::pthread_kill(me, libc::SIGUSR2) };
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        (0..ROUNDS).all(|_| {
            let mut bytes = [0; 7];
            send(pair.a, b"between", 0) == 7
                && recv(pair.b, &mut bytes, libc::MSG_WAITALL) == 7
                && &bytes == b"between"
        })
    });
    seen.note("all came", all_came);
    seen.note("the handler's came", drain(other.b) > 0);
    pair.close();
    other.close();
}

fn closed_from(seen: &mut Seen) {
    unsafe extern "C" {
        fn closefrom(first: i32);
    }
    let pair = Pair::used();
    // SAFETY: numbers above all that are open.
    unsafe {
        let high = libc::fcntl(pair.a, libc::F_DUPFD, 700);
        close(pair.a);
        closefrom(high);
        seen.note("is closed", libc::fcntl(high, libc::F_GETFD));
    }
    seen.call("end", recv(pair.b, &mut [0; 8], 0));
    close(pair.b);
}

/// As daemons do that want to be sure.
fn closing_nothing(seen: &mut Seen) {
    let pair = Pair::used();
    let highest = pair.a.max(pair.b);
    for fd in highest + 1..2000 {
        close(fd);
    }
    close(-1);
    close(i32::MAX);
    send(pair.a, b"still there", 0);
    seen.call("recv", recv(pair.b, &mut [0; 16], 0));
    pair.close();
}

fn no_descriptor_left(seen: &mut Seen) {
    let (listening, address) = listener();
    let mut held = Vec::new();
    // SAFETY: limits and numbers of this process.
    unsafe {
        let mut before: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut before);
        libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur: 200, ..before });
        // All but the two that a connection takes: none for files of the library.
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        close(fd);
        while let more @ 0.. = libc::dup(listening) {
            held.push(more);
        }
        held.drain(..2).for_each(close);
        let a = call_up(&address);
        let b = libc::accept(listening, std::ptr::null_mut(), std::ptr::null_mut());
        let refused = libc::accept(listening, std::ptr::null_mut(), std::ptr::null_mut());
        seen.note("one more", (refused, errno() == libc::EMFILE));
        let pair = Pair { a, b };
        for _ in 0..20 {
            send(pair.a, b"scarce", 0);
            seen.call("recv", recv(pair.b, &mut [0; 9], 0));
            send(pair.b, b"scarce", 0);
            seen.call("back", recv(pair.a, &mut [0; 9], 0));
        }
        held.into_iter().for_each(close);
        pair.close();
        libc::setrlimit(libc::RLIMIT_NOFILE, &before);
    }
    close(listening);
}

/// Two processes send at one end, and one is killed wherever it is just then: what it held
/// is not held for ever.
fn killed_in_the_middle(seen: &mut Seen) {
    for turn in 0..20 {
        let pair = Pair::used();
        // SAFETY: numbers; the child does not come back.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                send(pair.a, &[1; 500], 0);
            }
        }
        let mut bytes = vec![0; 4096];
        for _ in 0..50 * turn {
            recv(pair.b, &mut bytes, 0);
        }
        // SAFETY: a child of ours.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let a = pair.a;
        let after = std::thread::spawn(move || {
            let sent = send(a, b"after", 0);
            close(a);
            sent
        });
        let mut last = Vec::new();
        while let got @ 1.. = recv(pair.b, &mut bytes, 0) {
            last.extend_from_slice(&bytes[..got as usize]);
            last.drain(..last.len().saturating_sub(5));
        }
        seen.note("sent", after.join().unwrap());
        seen.note("last", last);
        close(pair.b);
    }
}

/// Not one of the cases: where there is memory for a connection and no more than a part of
/// its bytes. What has no room ends that connection and no program, and the next one is TCP's.
pub(crate) fn without_memory() {
    let pair = Pair::used();
    let piece = [7; 8192];
    while send(pair.a, &piece, libc::MSG_DONTWAIT) >= 0 {}
    assert_eq!(errno(), libc::ECONNRESET, "{}", std::io::Error::last_os_error());
    let next = Pair::fresh();
    for _ in 0..20 {
        next.exchange(next.a, next.b);
        next.exchange(next.b, next.a);
    }
    next.close();
    pair.close();
    println!("it came to an end");
}

/// Files of connections that this process has mapped. One more says of all what becomes of them.
fn rings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_ring = |line: &&str| line.contains("landfall-sockets") && !line.contains("/process-");
    maps.lines().filter(is_ring).count()
}

/// Not one of the cases: this many connections, one after the other; what is left of them.
pub(crate) fn many(count: usize) {
    let entries = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
    let mappings = || std::fs::read_to_string("/proc/self/maps").map_or(0, |it| it.lines().count());
    Pair::used().close();
    let before = (entries("/proc/self/fd"), mappings());
    for at in 0..count {
        let pair = if at % 8 == 0 { Pair::used() } else { Pair::fresh() };
        // So that the kernel, too, forgets it at once, and has ports enough.
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        let len = size_of::<libc::linger>() as u32;
        let value = std::ptr::from_ref(&at_once).cast();
        // SAFETY: an option of this length.
        unsafe { libc::setsockopt(pair.a, libc::SOL_SOCKET, libc::SO_LINGER, value, len) };
        pair.close();
    }
    assert_eq!(rings(), 0, "memory of connections is left");
    let after = (entries("/proc/self/fd"), mappings());
    assert_eq!(before.0, after.0, "descriptors are left");
    assert!(after.1 <= before.1 + 16, "mappings are left: {before:?} {after:?}");
}

/// Not one of the cases: as many connections at a time as descriptors allow, up to this many, each
/// with a request and its answer behind it; what memory they take.
pub(crate) fn idle(count: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for it.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    let count = count.min((limit.rlim_cur as usize - 100) / 2);
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").expect("it tells of itself");
        let pages = text.split(' ').nth(1).and_then(|word| word.parse::<usize>().ok());
        4096 * pages.expect("a number of pages")
    };
    let before = resident();
    let pairs: Vec<Pair> = (0..count)
        .map(|_| {
            let pair = Pair::fresh();
            pair.exchange(pair.a, pair.b);
            pair.exchange(pair.b, pair.a);
            pair
        })
        .collect();
    println!(
        "{count} connections, {} bytes each, {} rings",
        (resident() - before) / count,
        rings()
    );
    // All of them are good for memory still.
    let (first, last) = (&pairs[0], &pairs[count - 1]);
    for pair in [first, last] {
        for _ in 0..4 {
            pair.exchange(pair.a, pair.b);
            pair.exchange(pair.b, pair.a);
        }
        pair.expect_shared(pair.a);
        pair.expect_shared(pair.b);
    }
    // Those that a child gets, too, are some of them memory from now on, and the others never.
    assert_eq!(in_child(|| 0), 0);
    for pair in &pairs {
        for _ in 0..3 {
            pair.exchange(pair.a, pair.b);
            pair.exchange(pair.b, pair.a);
        }
    }
    println!(
        "{} of them are memory after a fork",
        pairs.iter().filter(|it| it.is_shared()).count()
    );
}

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

/// How a filter is set.
#[derive(Clone, Copy)]
enum LockedBy {
    Prctl,
    /// As `libseccomp` does it.
    Number,
}

/// From here on whatever else is called ends the process.
fn lock_in(by: LockedBy) {
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
        let done = match by {
            LockedBy::Prctl => {
                let mode = libc::SECCOMP_MODE_FILTER;
                libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0).into()
            }
            LockedBy::Number => {
                let mode = libc::SECCOMP_SET_MODE_FILTER;
                libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program)
            }
        };
        assert_eq!(done, 0);
    }
}

/// A child that locks itself in and then does its job on one end; the other end is used
/// here meanwhile.
fn with_locked_in(
    seen: &mut Seen,
    pair: &Pair,
    by: LockedBy,
    job: fn(i32),
    meanwhile: impl FnOnce(&mut Seen, i32),
) {
    // SAFETY: numbers; the child ends without a way back.
    let child = unsafe { libc::fork() };
    if child == 0 {
        close(pair.a);
        lock_in(by);
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
    for by in [LockedBy::Prctl, LockedBy::Number] {
        for pair in [Pair::fresh(), Pair::used()] {
            with_locked_in(seen, &pair, by, echo, |seen, fd| {
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
    with_locked_in(seen, &Pair::used(), LockedBy::Prctl, job, |seen, fd| {
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
    with_locked_in(seen, &pair, LockedBy::Prctl, job, |seen, fd| {
        let mut bytes = [0; 4];
        recv(fd, &mut bytes, libc::MSG_WAITALL);
        seen.note("at once", bytes);
        send(fd, b"abc", 0);
        seen.call("recv", recv(fd, &mut bytes[..3], libc::MSG_WAITALL));
        seen.note("bytes", bytes);
    });
}
