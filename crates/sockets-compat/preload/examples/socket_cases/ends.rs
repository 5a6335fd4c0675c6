//! How connections end: in one direction, in both, suddenly.
//!
//! One thread that sends and one that receives, at the same end at the same time, each of
//! which waits for what it needs: whatever is there for one, it hears of it.

use std::thread;

use libc::{MSG_DONTWAIT, MSG_PEEK, POLLIN, POLLOUT, SHUT_RD, SHUT_RDWR, SHUT_WR};

use crate::Case;
use crate::pair::{
    Pair, Seen, call_up, close, drain, listener, poll_bits, recv, send, set_nonblocking,
};
use crate::watching::Watch;

pub(crate) const CASES: &[Case] = &[
    ("the_end_after_the_bytes", end_after_bytes),
    ("the_end_is_told_again_and_again", end_again),
    ("half_closed", half_closed),
    ("sending_after_shutting_down", send_after_shutdown),
    ("receiving_after_shutting_down", receive_after_shutdown),
    ("shut_down_both_ways", both_ways),
    ("shut_down_twice", twice),
    ("the_peer_has_closed", peer_closed),
    ("the_peer_closed_with_bytes_unread", closed_unread),
    ("the_peer_closed_abruptly", abrupt),
    ("bytes_after_an_abrupt_end", abrupt_with_bytes),
    ("an_end_for_one_who_waits", end_while_waiting),
    ("an_end_for_one_who_waits_for_room", end_while_full),
    ("a_closed_descriptor", closed_descriptor),
    ("nobody_listens", refused),
    ("closed_before_accepted", closed_early),
    ("bytes_before_accepted", bytes_early),
    ("an_error_is_told_once", error_once),
    ("two_threads_poll", |seen| each_round(seen, by_poll)),
    ("two_threads_ppoll", |seen| each_round(seen, by_ppoll)),
    ("two_threads_select", |seen| each_round(seen, by_select)),
    ("two_threads_pselect", |seen| each_round(seen, by_pselect)),
    ("two_threads_epoll", |seen| each_round(seen, by_epoll)),
    ("two_threads_poll_for_more_than_they_need", |seen| each_round(seen, for_both)),
    ("two_threads_wait_in_two_ways", |seen| each_round(seen, in_two_ways)),
];

fn shutdown(fd: i32, how: i32) -> isize {
    // SAFETY: numbers.
    unsafe { libc::shutdown(fd, how) as isize }
}

fn pairs() -> [Pair; 2] {
    [Pair::fresh(), Pair::used()]
}

fn end_after_bytes(seen: &mut Seen) {
    for pair in pairs() {
        send(pair.a, b"abc", 0);
        close(pair.a);
        let mut bytes = [0; 8];
        seen.call("recv", recv(pair.b, &mut bytes, 0));
        seen.call("recv", recv(pair.b, &mut bytes, 0));
        seen.note("poll", poll_bits(pair.b, libc::POLLIN | libc::POLLRDHUP, 1000));
        close(pair.b);
    }
}

fn end_again(seen: &mut Seen) {
    for pair in pairs() {
        shutdown(pair.a, SHUT_WR);
        for flags in [0, MSG_PEEK, MSG_DONTWAIT, 0] {
            seen.call("recv", recv(pair.b, &mut [0; 8], flags));
        }
        pair.close();
    }
}

fn half_closed(seen: &mut Seen) {
    for pair in pairs() {
        seen.call("shutdown", shutdown(pair.a, SHUT_WR));
        seen.call("end", recv(pair.b, &mut [0; 8], 0));
        seen.call("back", send(pair.b, b"still here", 0));
        let mut bytes = [0; 16];
        seen.call("recv", recv(pair.a, &mut bytes, 0));
        seen.note("bytes", bytes);
        seen.note("poll a", poll_bits(pair.a, libc::POLLIN | libc::POLLOUT, 0));
        seen.note("poll b", poll_bits(pair.b, libc::POLLIN | libc::POLLOUT, 0));
        close(pair.b);
        seen.call("end", recv(pair.a, &mut bytes, 0));
        close(pair.a);
    }
}

fn send_after_shutdown(seen: &mut Seen) {
    for pair in pairs() {
        shutdown(pair.a, SHUT_WR);
        seen.call("send", send(pair.a, b"x", 0));
        seen.call("send nothing", send(pair.a, b"", 0));
        pair.close();
    }
}

fn receive_after_shutdown(seen: &mut Seen) {
    for pair in pairs() {
        send(pair.b, b"before", 0);
        seen.note("came", poll_bits(pair.a, libc::POLLIN, 1000));
        seen.call("shutdown", shutdown(pair.a, SHUT_RD));
        let mut bytes = [0; 4];
        seen.call("recv", recv(pair.a, &mut bytes, 0));
        seen.call("recv", recv(pair.a, &mut bytes, 0));
        seen.call("recv", recv(pair.a, &mut bytes, 0));
        seen.note("poll", poll_bits(pair.a, libc::POLLIN | libc::POLLRDHUP, 0));
        seen.call("peer sends", send(pair.b, b"x", 0));
        pair.close();
    }
}

fn both_ways(seen: &mut Seen) {
    for pair in pairs() {
        seen.call("shutdown", shutdown(pair.a, SHUT_RDWR));
        seen.call("send", send(pair.a, b"x", 0));
        seen.call("recv", recv(pair.a, &mut [0; 4], 0));
        seen.call("peer", recv(pair.b, &mut [0; 4], 0));
        pair.close();
    }
}

fn twice(seen: &mut Seen) {
    let pair = Pair::used();
    seen.call("first", shutdown(pair.a, SHUT_WR));
    seen.call("second", shutdown(pair.a, SHUT_WR));
    seen.call("nonsense", shutdown(pair.a, 7));
    pair.close();
}

/// Until the other end's answer is there.
fn wait_for_error(fd: i32) {
    poll_bits(fd, 0, 1000);
}

fn peer_closed(seen: &mut Seen) {
    for pair in pairs() {
        close(pair.b);
        seen.note("poll", poll_bits(pair.a, libc::POLLIN | libc::POLLRDHUP, 1000));
        seen.call("first", send(pair.a, b"x", 0));
        wait_for_error(pair.a);
        seen.call("second", send(pair.a, b"x", 0));
        seen.call("third", send(pair.a, b"x", 0));
        seen.call("recv", recv(pair.a, &mut [0; 4], 0));
        close(pair.a);
    }
}

fn closed_unread(seen: &mut Seen) {
    for pair in pairs() {
        send(pair.a, b"nobody reads this", 0);
        poll_bits(pair.b, libc::POLLIN, 1000);
        close(pair.b);
        wait_for_error(pair.a);
        seen.note("poll", poll_bits(pair.a, libc::POLLIN | libc::POLLRDHUP, 1000));
        seen.call("recv", recv(pair.a, &mut [0; 4], 0));
        seen.call("recv", recv(pair.a, &mut [0; 4], 0));
        seen.call("send", send(pair.a, b"x", 0));
        close(pair.a);
    }
}

fn close_abruptly(fd: i32) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as u32;
    // SAFETY: an option of this length.
    unsafe {
        let option = std::ptr::from_ref(&linger).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, option, len);
    }
    close(fd);
}

fn abrupt(seen: &mut Seen) {
    for pair in pairs() {
        close_abruptly(pair.b);
        wait_for_error(pair.a);
        seen.note("poll", poll_bits(pair.a, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP, 1000));
        seen.call("recv", recv(pair.a, &mut [0; 4], 0));
        seen.call("recv", recv(pair.a, &mut [0; 4], 0));
        seen.call("send", send(pair.a, b"x", 0));
        close(pair.a);
    }
}

fn abrupt_with_bytes(seen: &mut Seen) {
    for pair in pairs() {
        send(pair.b, b"last words", 0);
        poll_bits(pair.a, libc::POLLIN, 1000);
        close_abruptly(pair.b);
        wait_for_error(pair.a);
        let mut bytes = [0; 16];
        seen.call("recv", recv(pair.a, &mut bytes, 0));
        seen.call("recv", recv(pair.a, &mut bytes, 0));
        seen.call("recv", recv(pair.a, &mut bytes, 0));
        close(pair.a);
    }
}

fn end_while_waiting(seen: &mut Seen) {
    for pair in pairs() {
        let b = pair.b;
        let waiting = std::thread::spawn(move || recv(b, &mut [0; 4], 0));
        std::thread::sleep(std::time::Duration::from_millis(20));
        close(pair.a);
        seen.note("recv", waiting.join().unwrap());
        close(pair.b);
    }
}

fn end_while_full(seen: &mut Seen) {
    for pair in pairs() {
        let a = pair.a;
        let waiting = std::thread::spawn(move || {
            let mut last = 0;
            for _ in 0..1000 {
                last = send(a, &[1; 65_536], 0);
                if last < 0 {
                    return crate::pair::told(last);
                }
            }
            last.to_string()
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        close_abruptly(pair.b);
        let how = waiting.join().unwrap();
        // Which of the two is a race.
        let is_told = how == "ECONNRESET" || how == "EPIPE";
        seen.note("ended", if is_told { "with an error" } else { how.as_str() });
        close(pair.a);
    }
}

fn closed_descriptor(seen: &mut Seen) {
    let pair = Pair::used();
    close(pair.a);
    seen.call("send", send(pair.a, b"x", 0));
    seen.call("recv", recv(pair.a, &mut [0; 4], 0));
    seen.call("shutdown", shutdown(pair.a, SHUT_WR));
    close(pair.b);
}

fn refused(seen: &mut Seen) {
    let (fd, address) = listener();
    close(fd);
    // SAFETY: an address of our own.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let to = std::ptr::from_ref(&address).cast();
        seen.call("connect", libc::connect(fd, to, size_of_val(&address) as u32) as isize);
        seen.call("send", send(fd, b"x", 0));
        seen.call("recv", recv(fd, &mut [0; 4], 0));
        close(fd);
    }
}

fn closed_early(seen: &mut Seen) {
    let (listening, address) = listener();
    let a = call_up(&address);
    send(a, b"and away", 0);
    close(a);
    // SAFETY: numbers.
    let b = unsafe { libc::accept(listening, std::ptr::null_mut(), std::ptr::null_mut()) };
    let mut bytes = [0; 16];
    seen.call("recv", recv(b, &mut bytes, 0));
    seen.call("recv", recv(b, &mut bytes, 0));
    close(b);
    close(listening);
}

fn bytes_early(seen: &mut Seen) {
    let (listening, address) = listener();
    let a = call_up(&address);
    for _ in 0..10 {
        send(a, b"0123456789", 0);
    }
    // SAFETY: numbers.
    let b = unsafe { libc::accept(listening, std::ptr::null_mut(), std::ptr::null_mut()) };
    let mut bytes = [0; 70];
    seen.call("recv", recv(b, &mut bytes, libc::MSG_WAITALL));
    for _ in 0..10 {
        send(a, b"0123456789", 0);
    }
    let mut rest = [0; 130];
    seen.call("recv", recv(b, &mut rest, libc::MSG_WAITALL));
    seen.note("bytes", String::from_utf8_lossy(&rest).into_owned());
    seen.note("drained", drain(b));
    close(a);
    close(b);
    close(listening);
}

fn error_once(seen: &mut Seen) {
    for pair in pairs() {
        close_abruptly(pair.b);
        wait_for_error(pair.a);
        for _ in 0..2 {
            let (mut error, mut len) = (0_i32, 4);
            // SAFETY: a place for a number.
            unsafe {
                let into = std::ptr::from_mut(&mut error).cast();
                libc::getsockopt(pair.a, libc::SOL_SOCKET, libc::SO_ERROR, into, &mut len);
            }
            seen.note("SO_ERROR", error);
        }
        close(pair.a);
    }
}

const BYTES: usize = 8 << 20;
const ROUNDS: usize = 2;
const PIECE: usize = 65_536;

/// Waits until a descriptor is ready for these events.
type Wait = fn(i32, i16);

fn by_poll(fd: i32, events: i16) {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&mut entry, 1, -1) };
}

fn by_ppoll(fd: i32, events: i16) {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::ppoll(&mut entry, 1, std::ptr::null(), std::ptr::null()) };
}

/// The sets that say so.
fn sets(fd: i32, events: i16) -> [libc::fd_set; 2] {
    // SAFETY: sets of our own; all descriptors here are small.
    unsafe {
        let mut sets: [libc::fd_set; 2] = std::mem::zeroed();
        for (set, event) in sets.iter_mut().zip([POLLIN, POLLOUT]) {
            if events & event != 0 {
                libc::FD_SET(fd, set);
            }
        }
        sets
    }
}

fn by_select(fd: i32, events: i16) {
    let null = std::ptr::null_mut();
    let [mut read, mut write] = sets(fd, events);
    // SAFETY: sets of our own, here and below.
    unsafe { libc::select(fd + 1, &mut read, &mut write, null, std::ptr::null_mut()) };
}

fn by_pselect(fd: i32, events: i16) {
    let (null, none) = (std::ptr::null_mut(), std::ptr::null());
    let [mut read, mut write] = sets(fd, events);
    // SAFETY: as above.
    unsafe { libc::pselect(fd + 1, &mut read, &mut write, null, none, std::ptr::null()) };
}

fn by_epoll(fd: i32, events: i16) {
    let watch = Watch::new();
    watch.change(libc::EPOLL_CTL_ADD, fd, i32::from(events));
    watch.wait(&[fd], 1, -1);
    watch.close();
}

/// Asks for the other, too, now and then: it is there and says nothing.
fn for_both(fd: i32, events: i16) {
    by_poll(fd, POLLIN | POLLOUT);
    by_poll(fd, events);
}

fn in_two_ways(fd: i32, events: i16) {
    if events == POLLIN { by_epoll(fd, events) } else { by_poll(fd, events) }
}

fn pattern(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u8
}

fn send_all(fd: i32, mut bytes: &[u8], wait: Wait) {
    while !bytes.is_empty() {
        match send(fd, bytes, 0) {
            -1 => wait(fd, POLLOUT),
            sent => bytes = &bytes[sent as usize..],
        }
    }
}

fn receive_some(fd: i32, into: &mut [u8], wait: Wait) -> usize {
    loop {
        match recv(fd, into, 0) {
            -1 => wait(fd, POLLIN),
            got => return got as usize,
        }
    }
}

/// Sends back what comes.
fn echo(fd: i32, wait: Wait) {
    let mut piece = vec![0; PIECE];
    let mut sum = 0;
    while sum < BYTES {
        let got = receive_some(fd, &mut piece, wait);
        send_all(fd, &piece[..got], wait);
        sum += got;
    }
}

fn each_round(seen: &mut Seen, wait: Wait) {
    let bytes: Vec<u8> = (0..BYTES).map(pattern).collect();
    for _ in 0..ROUNDS {
        let pair = Pair::used();
        let (a, b) = (pair.a, pair.b);
        set_nonblocking(a);
        set_nonblocking(b);
        let is_same = thread::scope(|scope| {
            scope.spawn(|| echo(b, wait));
            scope.spawn(|| send_all(a, &bytes, wait));
            let (mut piece, mut at, mut is_same) = (vec![0; PIECE], 0, true);
            while at < BYTES {
                let got = receive_some(a, &mut piece, wait);
                is_same &= piece[..got] == bytes[at..at + got];
                at += got;
            }
            is_same
        });
        seen.note("all came back", is_same);
        close(a);
        close(b);
    }
}
