//! `splice` between pipes and sockets.

use std::thread;

use libc::SPLICE_F_NONBLOCK;

use crate::Case;
use crate::pair::{Pair, Seen, close, drain, fill, recv, send, set_nonblocking, wait_for};

pub(crate) const CASES: &[Case] = &[
    ("spliced_there_and_back", there_and_back),
    ("spliced_from_nothing", from_nothing),
    ("spliced_into_what_is_full", into_full),
    ("spliced_after_the_end", after_the_end),
    ("spliced_where_that_cannot_be", impossible),
    ("spliced_in_a_relay", relay),
];

/// The reading end and the writing end.
fn pipe() -> (i32, i32) {
    let mut fds = [0; 2];
    // SAFETY: room for two numbers.
    assert_eq!(unsafe { libc::pipe(fds.as_mut_ptr()) }, 0);
    (fds[0], fds[1])
}

fn splice(from: i32, to: i32, len: usize, flags: u32) -> isize {
    let nowhere = std::ptr::null_mut();
    // SAFETY: numbers.
    unsafe { libc::splice(from, nowhere, to, nowhere, len, flags) }
}

fn write(fd: i32, bytes: &[u8]) -> isize {
    // SAFETY: a slice.
    unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) }
}

fn read(fd: i32, into: &mut [u8]) -> isize {
    // SAFETY: a slice.
    unsafe { libc::read(fd, into.as_mut_ptr().cast(), into.len()) }
}

fn there_and_back(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (out, into) = pipe();
        for _ in 0..6 {
            write(into, b"through a pipe");
            seen.call("less", splice(out, pair.a, 7, 0));
            seen.call("more", splice(out, pair.a, 100, 0));
            wait_for(pair.b, 14);
            seen.call("less", splice(pair.b, into, 8, 0));
            seen.call("more", splice(pair.b, into, 100, 0));
            let mut bytes = [0; 20];
            seen.call("read", read(out, &mut bytes));
            seen.note("bytes", bytes);
            // So that each end says something.
            send(pair.b, b"back", 0);
            recv(pair.a, &mut bytes, 0);
        }
        close(out);
        close(into);
        pair.close();
    }
}

fn from_nothing(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (out, into) = pipe();
        seen.call("empty pipe", splice(out, pair.a, 9, SPLICE_F_NONBLOCK));
        seen.call("nothing wanted", splice(out, pair.a, 0, 0));
        seen.call("nothing wanted", splice(pair.a, into, 0, 0));
        set_nonblocking(pair.a);
        seen.call("empty socket", splice(pair.a, into, 9, 0));
        let b = pair.b;
        let later = thread::spawn(move || {
            thread::sleep(std::time::Duration::from_millis(20));
            write(into, b"late");
            send(b, b"later", 0);
        });
        seen.call("waited", splice(out, pair.a, 9, 0));
        later.join().unwrap();
        // SAFETY: numbers.
        unsafe { libc::fcntl(pair.a, libc::F_SETFL, 0) };
        seen.call("waited", splice(pair.a, into, 9, 0));
        close(out);
        close(into);
        pair.close();
    }
}

fn into_full(seen: &mut Seen) {
    let pair = Pair::used();
    let (out, into) = pipe();
    set_nonblocking(pair.a);
    fill(pair.a);
    write(into, b"no room");
    seen.call("full socket", splice(out, pair.a, 9, 0));
    drain(pair.b);
    while splice(out, pair.a, 9, 0) < 0 {
        drain(pair.b);
    }
    // All of it stayed in the pipe till then.
    let mut last = Vec::new();
    let mut bytes = [0; 4096];
    while !last.ends_with(b"no room") {
        let got = recv(pair.b, &mut bytes, 0).max(0) as usize;
        last.extend_from_slice(&bytes[..got]);
        last.drain(..last.len().saturating_sub(7));
    }
    set_nonblocking(into);
    while write(into, &[1; 4096]) > 0 {}
    send(pair.b, b"no room", 0);
    wait_for(pair.a, 7);
    seen.call("full pipe", splice(pair.a, into, 9, SPLICE_F_NONBLOCK));
    seen.call("it stayed", recv(pair.a, &mut bytes, 0));
    close(out);
    close(into);
    pair.close();
}

fn after_the_end(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (out, into) = pipe();
        send(pair.a, b"last", 0);
        close(pair.a);
        wait_for(pair.b, 4);
        seen.call("last", splice(pair.b, into, 9, 0));
        seen.call("end", splice(pair.b, into, 9, 0));
        read(out, &mut [0; 9]);
        close(into);
        seen.call("end of the pipe", splice(out, pair.b, 9, 0));
        close(out);
        close(pair.b);
    }
}

fn impossible(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (out, into) = pipe();
        seen.call("two sockets", splice(pair.a, pair.b, 9, 0));
        seen.call("wrong end", splice(into, pair.b, 9, 0));
        send(pair.a, b"stays", 0);
        wait_for(pair.b, 5);
        seen.call("wrong end", splice(pair.b, out, 9, 0));
        seen.call("it stayed", recv(pair.b, &mut [0; 9], 0));
        let mut offset = 0;
        let nowhere = std::ptr::null_mut();
        // SAFETY: numbers and a place for one.
        seen.call("a place", unsafe { libc::splice(pair.a, &mut offset, into, nowhere, 9, 0) });
        close(out);
        close(into);
        pair.close();
    }
}

/// What relays do: all that one connection brings goes into another, by a pipe.
fn relay(seen: &mut Seen) {
    const ALL: usize = 3_000_000;
    let byte = |at: usize| (at.wrapping_mul(0x9E37_79B9) >> 24) as u8;
    for make in [Pair::fresh, Pair::used] {
        let (from, to) = (make(), make());
        let (a, b) = (from.a, to.b);
        let sends = thread::spawn(move || {
            let all: Vec<u8> = (0..ALL).map(byte).collect();
            for piece in all.chunks(70_000) {
                let mut rest = piece;
                while !rest.is_empty() {
                    rest = &rest[send(a, rest, 0).max(0) as usize..];
                }
            }
            close(a);
        });
        let reads = thread::spawn(move || {
            let (mut bytes, mut came, mut wrong) = (vec![0; 50_000], 0, 0);
            while let got @ 1.. = recv(b, &mut bytes, 0) {
                let right = |(at, is): (usize, &u8)| *is == byte(came + at);
                wrong += bytes[..got as usize].iter().enumerate().filter(|it| !right(*it)).count();
                came += got as usize;
            }
            close(b);
            (came, wrong)
        });
        let (out, into) = pipe();
        while let got @ 1.. = splice(from.b, into, 1 << 20, 0) {
            let mut left = got;
            while left > 0 {
                let went = splice(out, to.a, left as usize, 0);
                assert!(went > 0, "it is in the pipe");
                left -= went;
            }
        }
        [from.b, to.a, out, into].into_iter().for_each(close);
        sends.join().unwrap();
        seen.note("came", reads.join().unwrap());
    }
}
