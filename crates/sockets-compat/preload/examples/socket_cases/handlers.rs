//! Handlers of signals that use sockets, in the middle of calls that do the same: POSIX
//! lets them. And what is said of the handlers themselves.

use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::thread;

use crate::Case;
use crate::pair::{Pair, Seen, call_up, close, listener, poll_bits, recv, send};
use crate::watching::Watch;

pub(crate) const CASES: &[Case] = &[
    ("a_handler_sends_where_a_send_was", sends_within_sends),
    ("a_handler_receives_where_a_receive_was", receives_within_receives),
    ("a_handler_closes_where_a_set_is_changed", closes_within_changes),
    ("a_handler_changes_a_set_that_is_changed", changes_within_changes),
    ("a_handler_makes_calls_where_memory_is_asked_for", calls_within_malloc),
    ("a_handler_forks_where_a_send_was", forks_within_sends),
    ("all_that_is_queued_is_heard_once", queued),
    ("what_is_set_for_a_signal_is_told", told_as_set),
    ("a_handler_for_one_time", one_time),
    ("a_handler_on_a_stack_of_its_own", own_stack),
];

const SIGNAL: c_int = libc::SIGUSR2;
static FD: AtomicI32 = AtomicI32::new(-1);
static OTHER: AtomicI32 = AtomicI32::new(-1);
static RUNS: AtomicU64 = AtomicU64::new(0);
static SUM: AtomicI64 = AtomicI64::new(0);

fn fd() -> c_int {
    FD.load(Ordering::Relaxed)
}

fn set(handler: extern "C" fn(c_int), flags: c_int) {
    // SAFETY: an action of ours.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(SIGNAL, &action, null_mut()), 0);
    }
}

/// A timer that interrupts the calling thread again and again, wherever it is.
struct Timer(libc::timer_t);

impl Timer {
    fn start(microseconds: i64) -> Self {
        // SAFETY: structures of ours, and this very thread.
        unsafe {
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = SIGNAL;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = null_mut();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
            let mut times: libc::itimerspec = zeroed();
            times.it_value.tv_nsec = microseconds * 1000;
            times.it_interval = times.it_value;
            assert_eq!(libc::timer_settime(timer, 0, &times, null_mut()), 0);
            Self(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: it was started.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Interrupts the calling thread at least this many times while it works, which asks whether
/// that is enough. What takes long happens seldom: the work has to go on, too.
fn interrupted<R>(
    (times, microseconds): (u64, i64),
    handler: extern "C" fn(c_int),
    work: impl FnOnce(&dyn Fn() -> bool) -> R,
) -> R {
    RUNS.store(0, Ordering::Relaxed);
    set(handler, libc::SA_RESTART);
    let _timer = Timer::start(microseconds);
    work(&|| RUNS.load(Ordering::Acquire) >= times)
}

const MARK: u8 = 0xFF;

extern "C" fn sends_a_mark(_: c_int) {
    if send(fd(), &[MARK], 0) == 1 {
        SUM.fetch_add(1, Ordering::Relaxed);
    }
    RUNS.fetch_add(1, Ordering::Release);
}

/// Each byte comes once and in its order, with marks between them.
fn sends_within_sends(seen: &mut Seen) {
    let pair = Pair::used();
    FD.store(pair.a, Ordering::Relaxed);
    SUM.store(0, Ordering::Relaxed);
    let b = pair.b;
    let reader = thread::spawn(move || {
        let (mut bytes, mut next, mut breaks, mut marks) = (vec![0; 65_536], 0_u8, 0, 0);
        loop {
            let got = recv(b, &mut bytes, 0);
            if got <= 0 {
                return (next, breaks, marks);
            }
            for &byte in &bytes[..got as usize] {
                if byte == MARK {
                    marks += 1;
                } else {
                    breaks += u64::from(byte != next);
                    next = (byte + 1) % 64;
                }
            }
        }
    });
    let mut at = 0_usize;
    interrupted((1000, 307), sends_a_mark, |is_enough| {
        let piece: Vec<u8> = (0..20_000 + 64).map(|at| (at % 64) as u8).collect();
        while !is_enough() {
            let sent = send(pair.a, &piece[at % 64..][..20_000], 0);
            assert!(sent > 0);
            at += sent as usize;
        }
    });
    close(pair.a);
    let (next, breaks, marks) = reader.join().unwrap();
    seen.note("breaks", breaks);
    seen.note("to the last", usize::from(next) == at % 64);
    seen.note("all marks", marks == SUM.load(Ordering::Relaxed));
    seen.note("many marks", marks >= 1000);
    close(b);
}

extern "C" fn takes_some(_: c_int) {
    let mut bytes = [0; 700];
    let got = recv(fd(), &mut bytes, libc::MSG_DONTWAIT);
    adds(&bytes, got);
    RUNS.fetch_add(1, Ordering::Release);
}

fn adds(bytes: &[u8], got: isize) {
    let got = usize::try_from(got).unwrap_or(0);
    SUM.fetch_add(bytes[..got].iter().map(|&byte| i64::from(byte) + 256).sum(), Ordering::Relaxed);
}

/// Each byte is taken once, here or there.
fn receives_within_receives(seen: &mut Seen) {
    let pair = Pair::used();
    FD.store(pair.b, Ordering::Relaxed);
    SUM.store(0, Ordering::Relaxed);
    let (a, is_enough) = (pair.a, AtomicBool::new(false));
    let sent = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut sum, mut byte) = (0, 0_u8);
            while !is_enough.load(Ordering::Acquire) {
                byte = byte.wrapping_add(7);
                let sent = send(a, &[byte; 3000], 0);
                sum += (i64::from(byte) + 256) * sent as i64;
            }
            // SAFETY: a number.
            unsafe { libc::shutdown(a, libc::SHUT_WR) };
            sum
        });
        interrupted((1000, 307), takes_some, |is_over| {
            let mut bytes = vec![0; 5000];
            loop {
                let got = recv(pair.b, &mut bytes, 0);
                adds(&bytes, got);
                if got <= 0 {
                    seen.call("end", got);
                    break;
                }
                if is_over() {
                    is_enough.store(true, Ordering::Release);
                }
            }
        });
        writer.join().unwrap()
    });
    seen.note("each byte once", SUM.load(Ordering::Relaxed) == sent);
    pair.close();
}

extern "C" fn doubles_and_closes(_: c_int) {
    // SAFETY: numbers.
    unsafe { libc::close(libc::dup(fd())) };
    RUNS.fetch_add(1, Ordering::Release);
}

fn changes(seen: &mut Seen, handler: extern "C" fn(c_int)) {
    let (pair, watch) = (Pair::used(), Watch::new());
    FD.store(pair.a, Ordering::Relaxed);
    OTHER.store(watch.0, Ordering::Relaxed);
    let went_well = interrupted((1000, 307), handler, |is_over| {
        let mut went_well = true;
        while !is_over() {
            went_well &= watch.change(libc::EPOLL_CTL_ADD, pair.a, libc::EPOLLIN) == 0;
            went_well &= watch.wait(&[pair.a], 4, 0).is_empty();
            went_well &= watch.change(libc::EPOLL_CTL_DEL, pair.a, 0) == 0;
        }
        went_well
    });
    seen.note("went well", went_well);
    watch.change(libc::EPOLL_CTL_ADD, pair.a, libc::EPOLLIN);
    send(pair.b, b"x", 0);
    seen.note("told", watch.wait(&[pair.a], 4, 10_000));
    watch.close();
    pair.close();
}

fn closes_within_changes(seen: &mut Seen) {
    changes(seen, doubles_and_closes);
}

extern "C" fn watches_and_closes(_: c_int) {
    // SAFETY: numbers, and one event.
    unsafe {
        let double = libc::dup(fd());
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        let watch = OTHER.load(Ordering::Relaxed);
        libc::epoll_ctl(watch, libc::EPOLL_CTL_ADD, double, &mut event);
        libc::epoll_ctl(watch, libc::EPOLL_CTL_DEL, double, &mut event);
        libc::close(double);
    }
    RUNS.fetch_add(1, Ordering::Release);
}

fn changes_within_changes(seen: &mut Seen) {
    changes(seen, watches_and_closes);
}

/// A bit of each kind of call. None of them waits.
extern "C" fn makes_calls(_: c_int) {
    let (near, far) = (fd(), OTHER.load(Ordering::Relaxed));
    send(near, b"word", libc::MSG_DONTWAIT);
    poll_many(far);
    recv(far, &mut [0; 4], libc::MSG_DONTWAIT);
    // SAFETY: numbers, and places of ours.
    unsafe {
        let mut read: libc::fd_set = zeroed();
        libc::FD_SET(near, &mut read);
        let mut limit: libc::timeval = zeroed();
        libc::select(near + 1, &mut read, null_mut(), null_mut(), &mut limit);
        let double = libc::fcntl(near, libc::F_DUPFD_CLOEXEC, 60);
        libc::dup2(far, double);
        libc::close(double);
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        libc::close(socket);
        let mut value = 0;
        let mut len = 4;
        libc::getsockopt(
            near,
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw mut value).cast(),
            &mut len,
        );
    }
    RUNS.fetch_add(1, Ordering::Release);
}

/// With as many entries as fit into no memory of a few bytes.
fn poll_many(fd: c_int) {
    let mut entries = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }; 600];
    // SAFETY: this many entries.
    unsafe { libc::poll(entries.as_mut_ptr(), 600, 0) };
}

/// Also one that connects and accepts.
extern "C" fn connects(signal: c_int) {
    let (listening, address) = listener();
    let near = call_up(&address);
    // SAFETY: numbers.
    let far = unsafe { libc::accept(listening, null_mut(), null_mut()) };
    send(near, b"word", 0);
    recv(far, &mut [0; 4], 0);
    for fd in [listening, near, far] {
        close(fd);
    }
    makes_calls(signal);
}

fn calls_within_malloc(seen: &mut Seen) {
    let pair = Pair::used();
    FD.store(pair.a, Ordering::Relaxed);
    OTHER.store(pair.b, Ordering::Relaxed);
    // Where there are several threads, memory is given out under a lock.
    let (ends, end) = std::sync::mpsc::channel::<()>();
    let idle = thread::spawn(move || end.recv().is_err());
    for (handler, how_often) in
        [(makes_calls as extern "C" fn(c_int), (500, 2003)), (connects, (50, 20_011))]
    {
        interrupted(how_often, handler, |is_over| {
            let mut kept = vec![null_mut(); 64];
            let mut at = 0_usize;
            while !is_over() {
                at += 1;
                let place = at % kept.len();
                // SAFETY: each is given back once.
                unsafe {
                    libc::free(kept[place]);
                    kept[place] = libc::malloc(at * 37 % 9000 + 1200);
                }
            }
            // SAFETY: as above.
            kept.into_iter().for_each(|piece: *mut c_void| unsafe { libc::free(piece) });
        });
    }
    drop(ends);
    seen.note("it came to an end", idle.join().unwrap());
    pair.close();
}

extern "C" fn forks(_: c_int) {
    // SAFETY: the child does what it may, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let sent = send(OTHER.load(Ordering::Relaxed), b"child", 0);
            libc::_exit(i32::from(sent != 5));
        }
        let mut status = 0;
        libc::waitpid(child, &mut status, 0);
        SUM.fetch_add(i64::from(status), Ordering::Relaxed);
    }
    RUNS.fetch_add(1, Ordering::Release);
}

/// The children find nothing locked by a thread that they do not have: not what was
/// interrupted, nor what another thread is about.
fn forks_within_sends(seen: &mut Seen) {
    const TIMES: u64 = 40;
    let (pair, other) = (Pair::used(), Pair::used());
    OTHER.store(other.a, Ordering::Relaxed);
    SUM.store(0, Ordering::Relaxed);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let watch = Watch::new();
                watch.change(libc::EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
                poll_bits(pair.b, libc::POLLIN, 0);
                watch.close();
            }
        });
        interrupted((TIMES, 20_011), forks, |is_enough| {
            let mut bytes = [0; 3000];
            while !is_enough() {
                send(pair.a, &bytes.clone(), 0);
                recv(pair.b, &mut bytes, libc::MSG_WAITALL);
            }
        });
        is_over.store(true, Ordering::Release);
    });
    seen.note("all ended well", SUM.load(Ordering::Relaxed));
    let runs = RUNS.load(Ordering::Relaxed) as usize;
    let mut words = vec![0; 5 * runs];
    let came = recv(other.b, &mut words, libc::MSG_WAITALL);
    seen.note("all words", came == words.len() as isize);
    pair.close();
    other.close();
}

extern "C" fn adds_value(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: what the kernel has filled in.
    let (value, from) = unsafe { ((*info).si_value().sival_ptr as i64, (*info).si_pid()) };
    // SAFETY: no arguments.
    if from == unsafe { libc::getpid() } {
        SUM.fetch_add(value, Ordering::Relaxed);
        RUNS.fetch_add(1, Ordering::Release);
    }
}

/// Values that go with signals come once each, however busy the thread is.
fn queued(seen: &mut Seen) {
    const TIMES: u64 = 3000;
    const AT_ONCE: u64 = 100;
    let pair = Pair::used();
    let signal = libc::SIGRTMIN() + 5;
    SUM.store(0, Ordering::Relaxed);
    RUNS.store(0, Ordering::Relaxed);
    // SAFETY: an action of ours, and this thread outlives the other.
    let me = unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = adds_value as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(signal, &action, null_mut()), 0);
        libc::pthread_self()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 0..TIMES as usize {
                // All that wait nest, in one stack.
                while value as u64 - RUNS.load(Ordering::Acquire) >= AT_ONCE {
                    thread::yield_now();
                }
                let value = libc::sigval { sival_ptr: value as *mut c_void };
                // SAFETY: as above. The queue may be full.
                while unsafe { libc::pthread_sigqueue(me, signal, value) } != 0 {
                    thread::yield_now();
                }
            }
        });
        let mut bytes = [0; 300];
        while RUNS.load(Ordering::Acquire) < TIMES {
            send(pair.a, &bytes.clone(), 0);
            recv(pair.b, &mut bytes, 0);
        }
    });
    seen.note("runs", RUNS.load(Ordering::Relaxed));
    seen.note("sum", SUM.load(Ordering::Relaxed));
    pair.close();
}

extern "C" fn nothing(_: c_int) {}
extern "C" fn nothing_else(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}

/// What `sigaction` says is set, by a name.
fn what_is_set(signal: c_int) -> (String, c_int, bool) {
    // SAFETY: a place for it.
    let action = unsafe {
        let mut action: libc::sigaction = zeroed();
        assert_eq!(libc::sigaction(signal, null(), &mut action), 0);
        action
    };
    // SAFETY: a set that was filled.
    let masks = unsafe { libc::sigismember(&action.sa_mask, libc::SIGHUP) } == 1;
    (name_of(action.sa_sigaction), action.sa_flags & !0x0400_0000, masks)
}

fn name_of(handler: usize) -> String {
    let known = [
        (libc::SIG_DFL, "default"),
        (libc::SIG_IGN, "ignored"),
        (nothing as *const () as usize, "nothing"),
        (nothing_else as *const () as usize, "nothing else"),
    ];
    let found = known.iter().find(|(known, _)| *known == handler);
    found.map_or("somebody else's", |(_, name)| name).to_owned()
}

fn told_as_set(seen: &mut Seen) {
    unsafe extern "C" {
        fn siginterrupt(signal: c_int, flag: c_int) -> c_int;
        fn sysv_signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    }
    let signal = libc::SIGUSR1;
    let handlers = [nothing as *const () as usize, nothing_else as *const () as usize];
    for flags in [0, libc::SA_SIGINFO, libc::SA_RESTART | libc::SA_RESETHAND, libc::SA_NODEFER] {
        for handler in [handlers[0], libc::SIG_IGN, handlers[1], libc::SIG_DFL] {
            // SAFETY: actions of ours.
            let old = unsafe {
                let (mut action, mut old): (libc::sigaction, libc::sigaction) = zeroed();
                (action.sa_sigaction, action.sa_flags) = (handler, flags);
                libc::sigaddset(&mut action.sa_mask, libc::SIGHUP);
                assert_eq!(libc::sigaction(signal, &action, &mut old), 0);
                old
            };
            seen.note("before", name_of(old.sa_sigaction));
            seen.note("set", what_is_set(signal));
        }
    }
    // SAFETY: handlers of ours, and numbers.
    unsafe {
        seen.note("signal", name_of(libc::signal(signal, handlers[0])));
        seen.note("set", what_is_set(signal));
        seen.note("siginterrupt", siginterrupt(signal, 1));
        seen.note("set", what_is_set(signal));
        seen.note("signal", name_of(libc::signal(signal, handlers[0])));
        seen.note("set", what_is_set(signal));
        siginterrupt(signal, 0);
        seen.note("set", what_is_set(signal));
        seen.note("sysv_signal", name_of(sysv_signal(signal, handlers[0])));
        seen.note("set", what_is_set(signal));
        seen.note("signal", name_of(libc::signal(signal, libc::SIG_DFL)));
        seen.note("refused", libc::signal(libc::SIGKILL, handlers[0]) == libc::SIG_ERR);
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handlers[0];
        seen.note("refused", libc::sigaction(libc::SIGSTOP, &action, null_mut()));
        seen.note("refused", libc::sigaction(700, &action, null_mut()));
    }
}

extern "C" fn counts(_: c_int) {
    RUNS.fetch_add(1, Ordering::Release);
}

fn one_time(seen: &mut Seen) {
    RUNS.store(0, Ordering::Relaxed);
    set(counts, libc::SA_RESETHAND);
    // SAFETY: a number.
    unsafe { libc::raise(SIGNAL) };
    seen.note("runs", RUNS.load(Ordering::Relaxed));
    seen.note("set", what_is_set(SIGNAL).0);
    // And where it comes in the middle of something.
    let pair = Pair::used();
    // SAFETY: this thread outlives the other.
    let me = unsafe { libc::pthread_self() };
    for turn in 0..100 {
        set(counts, libc::SA_RESETHAND | libc::SA_RESTART);
        thread::scope(|scope| {
            // SAFETY: as above.
            scope.spawn(|| unsafe { libc::pthread_kill(me, SIGNAL) });
            while RUNS.load(Ordering::Acquire) == turn + 1 {
                pair.exchange(pair.a, pair.b);
            }
        });
    }
    seen.note("runs", RUNS.load(Ordering::Relaxed));
    seen.note("set", what_is_set(SIGNAL).0);
    pair.close();
}

static STACK: AtomicU64 = AtomicU64::new(0);
const STACK_LEN: u64 = 64 * 1024;

extern "C" fn looks_where_it_is(_: c_int) {
    let here = 0_u8;
    let at = (&raw const here).addr() as u64;
    let base = STACK.load(Ordering::Relaxed);
    SUM.fetch_add(i64::from((base..base + STACK_LEN).contains(&at)), Ordering::Relaxed);
    RUNS.fetch_add(1, Ordering::Release);
}

fn own_stack(seen: &mut Seen) {
    const TIMES: u64 = 1000;
    let (pair, mut stack) = (Pair::used(), vec![0_u8; STACK_LEN as usize]);
    STACK.store(stack.as_mut_ptr().addr() as u64, Ordering::Relaxed);
    SUM.store(0, Ordering::Relaxed);
    RUNS.store(0, Ordering::Relaxed);
    // SAFETY: a stack that lives until it is taken away again.
    unsafe {
        let mut new: libc::stack_t = zeroed();
        let mut old: libc::stack_t = zeroed();
        (new.ss_sp, new.ss_size) = (stack.as_mut_ptr().cast(), stack.len());
        assert_eq!(libc::sigaltstack(&new, &mut old), 0);
        set(looks_where_it_is, libc::SA_ONSTACK | libc::SA_RESTART);
        let timer = Timer::start(307);
        while RUNS.load(Ordering::Acquire) < TIMES {
            pair.exchange(pair.a, pair.b);
        }
        drop(timer);
        libc::sigaltstack(&old, null_mut());
    }
    let is_on_it = SUM.load(Ordering::Relaxed) == RUNS.load(Ordering::Relaxed) as i64;
    seen.note("on its stack", is_on_it);
    pair.close();
}
