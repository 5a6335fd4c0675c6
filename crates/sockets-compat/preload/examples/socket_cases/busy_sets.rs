//! Sets of `epoll` that change all the time, and that several threads wait in.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLOUT};

use crate::Case;
use crate::pair::{
    Pair, Seen, close, drain, fill, fill_with, listener, poll_bits, recv, send, set_nonblocking,
};
use crate::watching::{Watch, later};

pub(crate) const CASES: &[Case] = &[
    ("epoll_taken_away_with_each_request", taken_away_each_time),
    ("epoll_taken_away_in_every_state", taken_away_states),
    ("epoll_taken_away_and_closed", taken_away_and_closed),
    ("epoll_taken_away_before_a_fork", taken_away_before_fork),
    ("epoll_changed_while_another_waits", changed_while_another_waits),
    ("epoll_added_while_another_waits", added_while_another_waits),
    ("epoll_changed_while_the_set_is_polled", changed_while_polled),
    ("epoll_of_two_threads", two_threads),
    ("epoll_watched_while_another_reads", watched_while_another_reads),
    ("epoll_nested_of_room", nested_of_room),
    ("epoll_by_edge_of_room_after_the_first_bytes", edge_first_room),
    ("epoll_by_edge_of_room_after_bytes", edge_room_after_bytes),
    ("epoll_by_edge_until_a_read_is_short", edge_until_short),
    ("epoll_of_a_socket_that_connects_later", added_before_it_connects),
    ("epoll_changed_past_libc", changed_past_libc),
];

/// What redis-benchmark does: nothing is changed, all is taken away and added.
fn taken_away_each_time(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.a]);
        for _ in 0..20 {
            watch.change(EPOLL_CTL_ADD, pair.a, EPOLLOUT);
            let writable = watch.wait(&fds, 4, 1000);
            send(pair.a, b"request", 0);
            watch.change(EPOLL_CTL_DEL, pair.a, 0);
            watch.change(EPOLL_CTL_ADD, pair.a, EPOLLIN);
            recv(pair.b, &mut [0; 16], 0);
            send(pair.b, b"reply", 0);
            let readable = watch.wait(&fds, 4, 1000);
            recv(pair.a, &mut [0; 16], 0);
            watch.change(EPOLL_CTL_DEL, pair.a, 0);
            seen.note("told", (writable, readable));
        }
        watch.close();
        pair.close();
    }
}

fn taken_away_states(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        for events in [EPOLLIN, EPOLLIN | EPOLLET, EPOLLOUT, EPOLLIN | libc::EPOLLONESHOT] {
            seen.call("add", watch.change(EPOLL_CTL_ADD, pair.b, events));
            seen.note("idle", watch.wait(&fds, 4, 5));
            seen.call("delete", watch.change(EPOLL_CTL_DEL, pair.b, 0));
            seen.call("delete again", watch.change(EPOLL_CTL_DEL, pair.b, 0));
            seen.call("change", watch.change(EPOLL_CTL_MOD, pair.b, events));
            send(pair.a, b"x", 0);
            poll_bits(pair.b, libc::POLLIN, 1000);
            seen.note("not told", watch.wait(&fds, 4, 5));
            seen.call("add", watch.change(EPOLL_CTL_ADD, pair.b, events));
            seen.call("add again", watch.change(EPOLL_CTL_ADD, pair.b, events));
            seen.note("told", watch.wait(&fds, 4, 1000));
            drain(pair.b);
            seen.call("delete", watch.change(EPOLL_CTL_DEL, pair.b, 0));
        }
        watch.close();
        pair.close();
    }
}

/// What is taken away is not told of, though another descriptor keeps it open.
fn taken_away_and_closed(seen: &mut Seen) {
    let pair = Pair::used();
    let (watch, fds) = (Watch::new(), [pair.b]);
    watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN);
    // SAFETY: a number.
    let twin = unsafe { libc::dup(pair.b) };
    watch.change(EPOLL_CTL_DEL, pair.b, 0);
    close(pair.b);
    send(pair.a, b"x", 0);
    poll_bits(twin, libc::POLLIN, 1000);
    seen.note("not told", watch.wait(&fds, 4, 5));
    // Its number is another's now.
    let next = Pair::used();
    let fds = [next.a, next.b];
    for fd in fds {
        seen.call("add", watch.change(EPOLL_CTL_ADD, fd, EPOLLIN));
    }
    send(next.a, b"y", 0);
    seen.note("told", watch.wait(&fds, 4, 1000));
    close(twin);
    close(pair.a);
    next.close();
    watch.close();
}

fn taken_away_before_fork(seen: &mut Seen) {
    let pair = Pair::used();
    let (watch, fds) = (Watch::new(), [pair.b]);
    watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN);
    watch.change(EPOLL_CTL_DEL, pair.b, 0);
    // SAFETY: the child only ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        send(pair.a, b"x", 0);
        poll_bits(pair.b, libc::POLLIN, 1000);
        let told = watch.wait(&fds, 4, 5).len();
        // SAFETY: a number.
        unsafe { libc::_exit(told as i32) };
    }
    let mut status = 0;
    // SAFETY: a place for a number.
    unsafe { libc::waitpid(child, &mut status, 0) };
    seen.note("the child", status);
    seen.call("add", watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN));
    seen.note("told", watch.wait(&fds, 4, 1000));
    watch.close();
    pair.close();
}

/// Waits in another thread; what it was told comes here.
fn waits(watch: &Watch, fds: &[i32]) -> mpsc::Receiver<String> {
    let (teller, told) = mpsc::channel();
    let (watch, fds) = (Watch(watch.0), fds.to_vec());
    thread::spawn(move || teller.send(format!("{:?}", watch.wait(&fds, 4, 10_000))));
    // So that it sleeps, most likely; else it sees the same.
    thread::sleep(Duration::from_millis(20));
    told
}

fn told(of: &mpsc::Receiver<String>) -> String {
    of.recv_timeout(Duration::from_secs(20)).unwrap_or_else(|why| why.to_string())
}

fn changed_while_another_waits(seen: &mut Seen) {
    for edge in [0, EPOLLET] {
        for pair in [Pair::fresh(), Pair::used()] {
            let (watch, fds) = (Watch::new(), [pair.b]);
            watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN | edge);
            let other = waits(&watch, &fds);
            watch.change(EPOLL_CTL_MOD, pair.b, EPOLLIN | EPOLLOUT | edge);
            seen.note("told", told(&other));
            watch.change(EPOLL_CTL_MOD, pair.b, EPOLLIN | edge);
            seen.note("no more", watch.wait(&fds, 4, 5));
            watch.close();
            pair.close();
        }
    }
}

fn added_while_another_waits(seen: &mut Seen) {
    for edge in [0, EPOLLET] {
        for pair in [Pair::fresh(), Pair::used()] {
            let (watch, fds) = (Watch::new(), [pair.b]);
            let other = waits(&watch, &fds);
            send(pair.a, b"x", 0);
            poll_bits(pair.b, libc::POLLIN, 1000);
            watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN | edge);
            seen.note("there before", told(&other));
            watch.change(EPOLL_CTL_DEL, pair.b, 0);
            drain(pair.b);
            let other = waits(&watch, &fds);
            watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN | edge);
            send(pair.a, b"y", 0);
            seen.note("comes later", told(&other));
            watch.close();
            pair.close();
        }
    }
}

fn changed_while_polled(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let watch = Watch::new();
        watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN);
        let (teller, polled) = mpsc::channel();
        let set = watch.0;
        thread::spawn(move || teller.send(poll_bits(set, libc::POLLIN, 10_000)));
        thread::sleep(Duration::from_millis(20));
        watch.change(EPOLL_CTL_MOD, pair.b, EPOLLIN | EPOLLOUT);
        seen.note("polled", told(&polled));
        watch.close();
        pair.close();
    }
}

/// Who was told first is busy; the other is told of what comes next.
fn two_threads(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN | EPOLLET);
        let (teller, tells) = mpsc::channel();
        for _ in 0..2 {
            let (watch, teller) = (Watch(watch.0), teller.clone());
            thread::spawn(move || teller.send(format!("{:?}", watch.wait(&fds, 4, 10_000))));
        }
        thread::sleep(Duration::from_millis(20));
        for _ in 0..2 {
            send(pair.a, b"x", 0);
            seen.note("told", told(&tells));
        }
        watch.close();
        pair.close();
    }
}

/// What wakes the one that watches is not taken away by the one that reads.
fn watched_while_another_reads(seen: &mut Seen) {
    let pair = Pair::used();
    let (watch, fds) = (Watch::new(), [pair.b]);
    watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN | EPOLLET);
    watch.wait(&fds, 4, 5);
    for _ in 0..20 {
        let other = waits(&watch, &fds);
        let b = pair.b;
        let reader = thread::spawn(move || recv(b, &mut [0; 16], 0));
        send(pair.a, b"x", 0);
        seen.note("read", reader.join().is_ok_and(|bytes| bytes > 0));
        // Whether it was told of those bytes is a matter of who was first.
        send(pair.a, b"y", 0);
        seen.note("told", told(&other));
        drain(pair.b);
        watch.wait(&fds, 4, 0);
    }
    watch.close();
    pair.close();
}

/// A set in a set in a list of `poll`: each is told that there is room again.
fn nested_of_room(seen: &mut Seen) {
    for edge in [0, EPOLLET] {
        for pair in [Pair::fresh(), Pair::used()] {
            let (inner, outer) = (Watch::new(), Watch::new());
            inner.change(EPOLL_CTL_ADD, pair.a, EPOLLOUT | edge);
            outer.change(EPOLL_CTL_ADD, inner.0, EPOLLIN | edge);
            seen.note("at first", (outer.wait(&[inner.0], 4, 1000), inner.wait(&[pair.a], 4, 0)));
            for _ in 0..3 {
                fill(pair.a);
                seen.note("full", (inner.wait(&[pair.a], 4, 5), outer.wait(&[inner.0], 4, 5)));
                let b = pair.b;
                let taker = thread::spawn(move || {
                    thread::sleep(Duration::from_millis(20));
                    drain(b);
                });
                seen.note("outer", outer.wait(&[inner.0], 4, 10_000));
                seen.note("poll", poll_bits(inner.0, libc::POLLIN, 10_000));
                seen.note("inner", inner.wait(&[pair.a], 4, 10_000));
                taker.join().unwrap();
                while drain(pair.b) > 0 {}
            }
            inner.close();
            outer.close();
            pair.close();
        }
    }
}

/// The first bytes that are sent are more than there is room for: all of them go by TCP, and
/// the ends find each other while the sender waits.
fn edge_first_room(seen: &mut Seen) {
    let much = vec![7; 4 << 20];
    for connector_sends in [true, false] {
        let pair = Pair::fresh();
        let (from, to) = if connector_sends { (pair.a, pair.b) } else { (pair.b, pair.a) };
        let (watch, fds) = (Watch::new(), [from]);
        watch.change(EPOLL_CTL_ADD, from, libc::EPOLLOUT | libc::EPOLLET);
        seen.note("room", watch.wait(&fds, 4, 1000));
        for _ in 0..3 {
            fill_with(from, &much);
            seen.note("full", watch.wait(&fds, 4, 5));
            send(to, b"go on", 0);
            poll_bits(from, libc::POLLIN, 1000);
            drain(from);
            let taker = later(move || while drain(to) > 0 {});
            seen.note("room", watch.wait(&fds, 4, 10_000));
            taker.join().unwrap();
            while poll_bits(to, libc::POLLIN, 5) != "nothing" {
                drain(to);
            }
        }
        watch.close();
        pair.close();
    }
}

/// One set for both: while there is no room yet, bytes are told of, and room is news all the same.
fn edge_room_after_bytes(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.a]);
        watch.change(EPOLL_CTL_ADD, pair.a, EPOLLIN | EPOLLOUT | EPOLLET);
        seen.note("at first", watch.wait(&fds, 4, 1000));
        for _ in 0..3 {
            fill(pair.a);
            send(pair.b, b"word", 0);
            // Of a kernel that finds some more room in its queues the first may tell of both.
            let first = format!("{:?}", watch.wait(&fds, 4, 1000));
            seen.note("bytes", first.contains("IN"));
            drain(pair.a);
            let b = pair.b;
            let taker = later(move || while drain(b) > 0 {});
            let has_room = |told: &str| told.contains("OUT");
            let told = has_room(&first) || has_room(&format!("{:?}", watch.wait(&fds, 4, 1000)));
            seen.note("room", told);
            taker.join().unwrap();
            while poll_bits(pair.b, libc::POLLIN, 5) != "nothing" {
                drain(pair.b);
            }
        }
        watch.close();
        pair.close();
    }
}

/// What nginx does: a read that gives less than there was room for is the last, and what comes
/// after it is an edge of its own.
fn edge_until_short(seen: &mut Seen) {
    const BYTES: usize = 12 << 20;
    for make in [Pair::fresh, Pair::offered, Pair::used] {
        let pair = make();
        set_nonblocking(pair.b);
        let (watch, fds) = (Watch::new(), [pair.b]);
        watch.change(EPOLL_CTL_ADD, pair.b, EPOLLIN | EPOLLET | libc::EPOLLRDHUP);
        let a = pair.a;
        let sender = thread::spawn(move || {
            let mut sum = 0;
            while sum < BYTES {
                sum += send(a, &vec![7; (BYTES - sum).min(70_000)], 0).max(0) as usize;
            }
        });
        let (mut sum, mut lost, mut piece) = (0, 0, [0; 8192]);
        while sum < BYTES && lost == 0 {
            lost += usize::from(watch.wait(&fds, 4, 8000).is_empty());
            while let Ok(got) = usize::try_from(recv(pair.b, &mut piece, 0)) {
                sum += got;
                if got < piece.len() {
                    break;
                }
            }
        }
        seen.note("edges that nobody told", lost);
        // A sender that waits goes on.
        while sum < BYTES {
            sum += drain(pair.b);
        }
        sender.join().unwrap();
        seen.note("came", sum);
        watch.close();
        pair.close();
    }
}

/// What nginx does with servers behind it. Nobody is left over who waits, and what has ended has
/// ended for who reads.
fn added_before_it_connects(seen: &mut Seen) {
    let (listener, address) = listener();
    // SAFETY: numbers.
    let a = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    let (watch, fds) = (Watch::new(), [a]);
    watch.change(EPOLL_CTL_ADD, a, EPOLLIN | EPOLLOUT | EPOLLET | libc::EPOLLRDHUP);
    // SAFETY: numbers, and an address of our own.
    let b = unsafe {
        let len = size_of::<libc::sockaddr_in>() as u32;
        assert_eq!(libc::connect(a, std::ptr::from_ref(&address).cast(), len), 0);
        libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut())
    };
    close(listener);
    set_nonblocking(a);
    let pair = Pair { a, b };
    for _ in 0..12 {
        send(pair.a, b"word", 0);
        recv(pair.b, &mut [0; 4], 0);
        let sender = later(move || {
            send(b, b"word", 0);
        });
        let mut got = -1;
        while got < 0 && !watch.wait(&fds, 4, 5000).is_empty() {
            got = recv(pair.a, &mut [0; 8], 0);
        }
        seen.note("came", got);
        sender.join().unwrap();
    }
    // Each sleep but the last is for bytes; an end comes behind what has woken it.
    let ender = later(move || {
        send(b, b"last", 0);
        // SAFETY: numbers.
        unsafe { libc::shutdown(b, libc::SHUT_WR) };
    });
    ender.join().unwrap();
    watch.wait(&fds, 4, 5000);
    let all = [recv(pair.a, &mut [0; 8], 0), recv(pair.a, &mut [0; 8], 0)];
    seen.note("the last, and its end", all);
    watch.close();
    pair.close();
}

/// What is watched by a call of the kernel itself, or by `io_uring`, is told in the program's words.
fn changed_past_libc(seen: &mut Seen) {
    // SAFETY: numbers and memory of this case.
    unsafe {
        let (epoll, by_libc) = (libc::epoll_create1(0), libc::eventfd(1, 0));
        let past_libc = [libc::eventfd(1, 0), libc::eventfd(1, 0)];
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 7 };
        let added = libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, by_libc, &raw mut event);
        seen.call("add", added as isize);
        for (fd, word) in past_libc.into_iter().zip([9, u64::MAX]) {
            event.u64 = word;
            let added =
                libc::syscall(libc::SYS_epoll_ctl, epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event);
            seen.call("add past libc", added as isize);
        }
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        let told = libc::epoll_wait(epoll, events.as_mut_ptr(), 8, 5000).max(0) as usize;
        let mut words: Vec<u64> = events[..told].iter().map(|told| told.u64).collect();
        words.sort_unstable();
        seen.note("words", words);
        for fd in [epoll, by_libc].into_iter().chain(past_libc) {
            close(fd);
        }
    }
}
