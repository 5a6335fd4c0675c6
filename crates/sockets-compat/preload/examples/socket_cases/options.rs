//! Names, options, modes, time-outs and signals.
//!
//! `splice` between pipes and sockets.

use std::thread;
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, SOL_SOCKET, SPLICE_F_NONBLOCK};

use crate::Case;
use crate::pair::{Pair, Seen, close, drain, fill, recv, send, set_nonblocking, told, wait_for};

pub(crate) const CASES: &[Case] = &[
    ("names_of_both_ends", names),
    ("a_time_limit_for_receiving", receive_limit),
    ("a_time_limit_for_sending", send_limit),
    ("nonblocking_by_ioctl", nonblocking_by_ioctl),
    ("a_signal_ends_a_wait", signal_ends),
    ("a_signal_that_does_not_end_a_wait", signal_restarts),
    ("stdio_on_a_socket", stdio),
    ("the_type_of_a_socket", kind),
    ("whether_small_pieces_wait", small_pieces_wait),
    ("spliced_there_and_back", there_and_back),
    ("spliced_from_nothing", from_nothing),
    ("spliced_into_what_is_full", into_full),
    ("spliced_after_the_end", after_the_end),
    ("spliced_where_that_cannot_be", impossible),
    ("spliced_in_a_relay", relay),
];

fn names(seen: &mut Seen) {
    let pair = Pair::used();
    let name = |fd, of_peer: bool| {
        // SAFETY: room for an address.
        unsafe {
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            let mut len = size_of::<libc::sockaddr_in>() as u32;
            let into = std::ptr::from_mut(&mut address).cast();
            if of_peer {
                libc::getpeername(fd, into, &mut len);
            } else {
                libc::getsockname(fd, into, &mut len);
            }
            (address.sin_port, address.sin_addr.s_addr)
        }
    };
    seen.note("a is b's peer", name(pair.a, false) == name(pair.b, true));
    seen.note("b is a's peer", name(pair.b, false) == name(pair.a, true));
    pair.close();
}

fn set_limit(fd: i32, name: i32, milliseconds: i64) {
    let limit = libc::timeval { tv_sec: 0, tv_usec: milliseconds * 1000 };
    let len = size_of::<libc::timeval>() as u32;
    // SAFETY: an option of this length.
    unsafe { libc::setsockopt(fd, SOL_SOCKET, name, std::ptr::from_ref(&limit).cast(), len) };
}

fn receive_limit(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        set_limit(pair.a, libc::SO_RCVTIMEO, 20);
        let begin = Instant::now();
        seen.call("recv", recv(pair.a, &mut [0; 4], 0));
        seen.note("not too early", begin.elapsed() >= Duration::from_millis(15));
        pair.close();
    }
}

fn send_limit(seen: &mut Seen) {
    let pair = Pair::used();
    set_limit(pair.a, libc::SO_SNDTIMEO, 20);
    fill(pair.a);
    let begin = Instant::now();
    seen.call("send", send(pair.a, &[0; 100_000], 0));
    seen.note("not too early", begin.elapsed() >= Duration::from_millis(15));
    pair.close();
}

fn nonblocking_by_ioctl(seen: &mut Seen) {
    let pair = Pair::used();
    for is_on in [1_i32, 0] {
        // SAFETY: a place for a number.
        unsafe { libc::ioctl(pair.a, libc::FIONBIO, &is_on) };
        // SAFETY: memory and numbers of this case.
        let flags = unsafe { libc::fcntl(pair.a, libc::F_GETFL) };
        seen.note("flags", flags & libc::O_NONBLOCK != 0);
        let flags = if is_on == 1 { 0 } else { MSG_DONTWAIT };
        seen.call("recv", recv(pair.a, &mut [0; 4], flags));
    }
    pair.close();
}

extern "C" fn nothing(_: i32) {}

fn set_handler(flags: i32) {
    // SAFETY: a handler that does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
        action.sa_flags = flags;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
}

/// Sends the signal to the calling thread again and again, until told to stop.
fn pester<R>(job: impl FnOnce() -> R) -> R {
    use std::sync::atomic::{AtomicBool, Ordering};
    // SAFETY: this thread outlives the other.
    let me = unsafe { libc::pthread_self() };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
                // SAFETY: memory and numbers of this case.
                unsafe { libc::pthread_kill(me, libc::SIGUSR1) };
            }
        });
        let result = job();
        stop.store(true, Ordering::Relaxed);
        result
    })
}

fn signal_ends(seen: &mut Seen) {
    set_handler(0);
    for pair in [Pair::fresh(), Pair::used()] {
        let result = pester(|| told(recv(pair.a, &mut [0; 4], 0)));
        seen.note("recv", result);
        fill(pair.a);
        let result = pester(|| told(send(pair.a, &[0; 1_000_000], 0)));
        seen.note("send", result);
        pair.close();
    }
}

fn signal_restarts(seen: &mut Seen) {
    set_handler(libc::SA_RESTART);
    for pair in [Pair::fresh(), Pair::used()] {
        let b = pair.b;
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            send(b, b"abc", 0);
        });
        let result = pester(|| told(recv(pair.a, &mut [0; 4], 0)));
        seen.note("recv", result);
        sender.join().unwrap();
        pair.close();
    }
}

fn stdio(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        // SAFETY: a stream of our own, closed once.
        unsafe {
            let stream = libc::fdopen(pair.a, c"r+".as_ptr());
            libc::fputs(c"hello\n".as_ptr(), stream);
            libc::fflush(stream);
            let mut bytes = [0; 16];
            seen.call("recv", recv(pair.b, &mut bytes, 0));
            seen.note("bytes", bytes);
            send(pair.b, b"first\nsecond\n", 0);
            let mut line = [0; 32];
            for _ in 0..2 {
                let got = libc::fgets(line.as_mut_ptr(), 32, stream);
                let text = if got.is_null() { None } else { Some(std::ffi::CStr::from_ptr(got)) };
                seen.note("line", text);
            }
            seen.note("fileno", libc::fileno(stream) == pair.a);
            libc::fclose(stream);
        }
        seen.call("end", recv(pair.b, &mut [0; 4], 0));
        close(pair.b);
    }
}

fn small_pieces_wait(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        for option in [libc::TCP_NODELAY, libc::TCP_CORK] {
            for wanted in [None, Some(1_i32), Some(0), Some(5), None] {
                let (mut value, mut len) = (wanted.unwrap_or(7), 4);
                let place = std::ptr::from_mut(&mut value).cast();
                // SAFETY: a place for a number.
                unsafe {
                    if wanted.is_some() {
                        let set = libc::setsockopt(pair.a, libc::IPPROTO_TCP, option, place, len);
                        seen.call("set", set as isize);
                    }
                    libc::getsockopt(pair.a, libc::IPPROTO_TCP, option, place, &mut len);
                }
                seen.note("value", (option, value, len));
                send(pair.a, b"abc", 0);
                seen.call("recv", recv(pair.b, &mut [0; 3], libc::MSG_WAITALL));
            }
        }
        pair.close();
    }
}

fn kind(seen: &mut Seen) {
    let pair = Pair::used();
    for name in [libc::SO_TYPE, libc::SO_PROTOCOL, libc::SO_DOMAIN, libc::SO_ACCEPTCONN] {
        let (mut value, mut len) = (0_i32, 4);
        // SAFETY: a place for a number.
        unsafe {
            let into = std::ptr::from_mut(&mut value).cast();
            libc::getsockopt(pair.a, SOL_SOCKET, name, into, &mut len);
        }
        seen.note("option", (name, value));
    }
    pair.close();
}

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
