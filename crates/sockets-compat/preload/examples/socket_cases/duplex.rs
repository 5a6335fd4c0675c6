//! One thread that sends and one that receives, at the same end at the same time, each of
//! which waits for what it needs: whatever is there for one, it hears of it.

use std::thread;

use libc::{POLLIN, POLLOUT};

use crate::Case;
use crate::pair::{Pair, Seen, close, recv, send, set_nonblocking};
use crate::watching::Watch;

pub(crate) const CASES: &[Case] = &[
    ("two_threads_poll", |seen| each_round(seen, by_poll)),
    ("two_threads_ppoll", |seen| each_round(seen, by_ppoll)),
    ("two_threads_select", |seen| each_round(seen, by_select)),
    ("two_threads_pselect", |seen| each_round(seen, by_pselect)),
    ("two_threads_epoll", |seen| each_round(seen, by_epoll)),
    ("two_threads_poll_for_more_than_they_need", |seen| each_round(seen, for_both)),
    ("two_threads_wait_in_two_ways", |seen| each_round(seen, in_two_ways)),
];

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
