//! Bytes: how many, which, and in what pieces.

use libc::{MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};

use crate::Case;
use crate::pair::{Pair, Seen, drain, fill, recv, send, set_nonblocking, wait_for};

pub(crate) const CASES: &[Case] = &[
    ("a_part_of_what_came", part),
    ("two_sends_are_one_stream", joined),
    ("nothing_there", nothing),
    ("nothing_there_on_a_nonblocking_socket", nothing_nonblocking),
    ("nothing_wanted", zero),
    ("a_look_first", peek),
    ("a_look_at_less_and_more", peek_lengths),
    ("bytes_that_nobody_wants", discard),
    ("all_or_wait", wait_all),
    ("vectors", vectors),
    ("vectors_of_nothing", empty_vectors),
    ("too_many_vectors", too_many_vectors),
    ("a_message_has_no_address", message),
    ("many_messages", many_messages),
    ("a_full_pipe", full),
    ("how_much_waits", waiting),
    ("all_bytes_in_order", bulk),
    ("all_bytes_in_order_from_the_first_on", bulk_fresh),
    ("an_end_right_after_the_bytes", end_after_bulk),
    ("small_pieces", small_pieces),
    ("sendto_with_an_address", sendto_address),
    ("a_file", file),
    ("a_file_from_an_offset", file_offset),
    ("much_is_sent_before_anything_is_read", read_late),
];

fn part(seen: &mut Seen) {
    let pair = Pair::used();
    seen.call("send", send(pair.a, b"abcdef", 0));
    let mut bytes = [0; 4];
    seen.call("first", recv(pair.b, &mut bytes, 0));
    seen.note("bytes", bytes);
    seen.call("second", recv(pair.b, &mut bytes, 0));
    seen.note("bytes", bytes);
    pair.close();
}

fn joined(seen: &mut Seen) {
    let pair = Pair::used();
    send(pair.a, b"abc", 0);
    send(pair.a, b"def", 0);
    wait_for(pair.b, 6);
    let mut bytes = [0; 10];
    seen.call("recv", recv(pair.b, &mut bytes, MSG_WAITALL | MSG_DONTWAIT));
    seen.note("bytes", bytes);
    pair.close();
}

fn nothing(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        seen.call("recv", recv(pair.b, &mut [0; 4], MSG_DONTWAIT));
        seen.call("recv", recv(pair.a, &mut [0; 4], MSG_DONTWAIT));
        pair.close();
    }
}

fn nothing_nonblocking(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        set_nonblocking(pair.b);
        seen.call("recv", recv(pair.b, &mut [0; 4], 0));
        send(pair.a, b"xy", 0);
        wait_for(pair.b, 2);
        seen.call("recv", recv(pair.b, &mut [0; 4], 0));
        seen.call("recv", recv(pair.b, &mut [0; 4], 0));
        pair.close();
    }
}

fn zero(seen: &mut Seen) {
    let pair = Pair::used();
    seen.call("send", send(pair.a, b"", 0));
    seen.call("recv", recv(pair.b, &mut [], MSG_DONTWAIT));
    send(pair.a, b"x", 0);
    seen.call("recv", recv(pair.b, &mut [], 0));
    seen.call("recv", recv(pair.b, &mut [0; 4], 0));
    pair.close();
}

fn peek(seen: &mut Seen) {
    let pair = Pair::used();
    seen.call("nothing", recv(pair.b, &mut [0; 4], MSG_PEEK | MSG_DONTWAIT));
    send(pair.a, b"abc", 0);
    let mut bytes = [0; 4];
    for _ in 0..2 {
        seen.call("peek", recv(pair.b, &mut bytes, MSG_PEEK));
    }
    seen.call("recv", recv(pair.b, &mut bytes, 0));
    seen.note("bytes", bytes);
    seen.call("nothing", recv(pair.b, &mut bytes, MSG_DONTWAIT));
    pair.close();
}

fn peek_lengths(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        send(pair.a, b"abcdef", 0);
        wait_for(pair.b, 6);
        let mut bytes = [0; 16];
        seen.call("less", recv(pair.b, &mut bytes[..2], MSG_PEEK));
        seen.call("more", recv(pair.b, &mut bytes, MSG_PEEK));
        seen.note("bytes", bytes);
        seen.call("waitall", recv(pair.b, &mut bytes[..6], MSG_PEEK | MSG_WAITALL));
        pair.close();
    }
}

fn discard(seen: &mut Seen) {
    let pair = Pair::used();
    send(pair.a, b"abcdef", 0);
    let mut bytes = [0; 4];
    seen.call("trunc", recv(pair.b, &mut bytes, MSG_TRUNC));
    seen.note("bytes", bytes);
    seen.call("recv", recv(pair.b, &mut bytes, 0));
    seen.note("bytes", bytes);
    pair.close();
}

fn wait_all(seen: &mut Seen) {
    let pair = Pair::used();
    let a = pair.a;
    let sender = std::thread::spawn(move || {
        for byte in 0..10_u8 {
            send(a, &[byte; 100], 0);
            std::thread::yield_now();
        }
    });
    let mut bytes = [0; 1000];
    seen.call("recv", recv(pair.b, &mut bytes, MSG_WAITALL));
    seen.note("sum", bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>());
    sender.join().unwrap();
    pair.close();
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn vectors(seen: &mut Seen) {
    let pair = Pair::used();
    let out = [vector(b"ab"), vector(b""), vector(b"cdef")];
    let (first, second) = ([0_u8; 3], [0_u8; 9]);
    let into = [vector(&first), vector(&second)];
    // SAFETY: vectors of our own.
    unsafe {
        seen.call("writev", libc::writev(pair.a, out.as_ptr(), 3));
        seen.call("readv", libc::readv(pair.b, into.as_ptr(), 2));
    }
    seen.note("bytes", (std::hint::black_box(first), std::hint::black_box(second)));
    pair.close();
}

fn empty_vectors(seen: &mut Seen) {
    let pair = Pair::used();
    let none = [vector(b""), vector(b"")];
    // SAFETY: vectors of our own.
    unsafe {
        seen.call("writev", libc::writev(pair.a, none.as_ptr(), 2));
        seen.call("writev", libc::writev(pair.a, none.as_ptr(), 0));
    }
    pair.close();
}

fn too_many_vectors(seen: &mut Seen) {
    let pair = Pair::used();
    let many = vec![vector(b"x"); 1025];
    // SAFETY: vectors of our own.
    unsafe {
        seen.call("writev", libc::writev(pair.a, many.as_ptr(), 1025));
        seen.call("writev", libc::writev(pair.a, many.as_ptr(), -1));
        seen.call("writev", libc::writev(pair.a, many.as_ptr(), 1024));
        wait_for(pair.b, 1024);
        seen.call("readv", libc::readv(pair.b, many.as_ptr(), 1025));
    }
    seen.note("drained", drain(pair.b));
    pair.close();
}

fn message(seen: &mut Seen) {
    let pair = Pair::used();
    send(pair.a, b"abc", 0);
    let bytes = [0_u8; 8];
    let mut vectors = [vector(&bytes)];
    let mut name = [0_u8; 32];
    // SAFETY: zeros, then our own memory.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = 1;
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = 32;
    // SAFETY: memory and numbers of this case.
    seen.call("recvmsg", unsafe { libc::recvmsg(pair.b, &mut header, 0) });
    seen.note("name", header.msg_namelen);
    seen.note("flags", header.msg_flags);
    pair.close();
}

fn many_messages(seen: &mut Seen) {
    let pair = Pair::used();
    let (first, second) = (vector(b"abc"), vector(b"defgh"));
    // SAFETY: zeros, then our own memory.
    let mut headers: [libc::mmsghdr; 2] = unsafe { std::mem::zeroed() };
    for (header, vector) in headers.iter_mut().zip([&first, &second]) {
        header.msg_hdr.msg_iov = std::ptr::from_ref(vector).cast_mut();
        header.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: memory and numbers of this case.
    seen.call("sendmmsg", unsafe { libc::sendmmsg(pair.a, headers.as_mut_ptr(), 2, 0) } as isize);
    seen.note("lengths", headers.map(|header| header.msg_len));
    wait_for(pair.b, 8);
    seen.note("drained", drain(pair.b));
    pair.close();
}

fn full(seen: &mut Seen) {
    let pair = Pair::used();
    let sent = fill(pair.a);
    seen.note("something went", sent > 0);
    let mut got = 0;
    while got < sent {
        got += drain(pair.b);
    }
    seen.note("all came", got == sent);
    seen.call("again", send(pair.a, b"x", MSG_DONTWAIT));
    pair.close();
}

fn waiting(seen: &mut Seen) {
    let pair = Pair::used();
    for (len, sum) in [(0_usize, 0), (1, 1), (1000, 1001)] {
        send(pair.a, &vec![1; len], 0);
        wait_for(pair.b, sum);
        let mut bytes = 0_i32;
        // SAFETY: a place for a number.
        let result = unsafe { libc::ioctl(pair.b, libc::FIONREAD, &mut bytes) };
        seen.note("FIONREAD", (result, bytes));
    }
    pair.close();
}

fn stream_through(seen: &mut Seen, pair: Pair) {
    const LEN: usize = 8 << 20;
    let byte_at = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    let a = pair.a;
    let sender = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..LEN).map(byte_at).collect();
        let mut at = 0;
        let mut len = 1;
        while at < LEN {
            let piece = len.min(LEN - at);
            assert_eq!(send(a, &bytes[at..at + piece], 0), piece as isize, "a blocking send");
            at += piece;
            len = len * 7 % 100_003;
        }
    });
    let mut bytes = vec![0; 70_001];
    let (mut at, mut wrong) = (0, 0);
    while at < LEN {
        let got = recv(pair.b, &mut bytes, 0);
        assert!(got > 0, "{got}");
        let came = &bytes[..got as usize];
        wrong += came.iter().enumerate().filter(|(i, byte)| **byte != byte_at(at + i)).count();
        at += got as usize;
    }
    sender.join().unwrap();
    seen.note("bytes and wrong ones", (at, wrong));
    pair.close();
}

fn bulk(seen: &mut Seen) {
    stream_through(seen, Pair::used());
}

fn bulk_fresh(seen: &mut Seen) {
    stream_through(seen, Pair::fresh());
}

pub(crate) fn no_delay(fd: i32) {
    // SAFETY: an option of this length.
    unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, [1_i32].as_ptr().cast(), 4)
    };
}

/// The other end looks at each moment: while nothing has come, while it comes, at the end.
fn end_after_bulk(seen: &mut Seen) {
    let mut short = 0;
    for turn in 0..60_usize {
        let pair = Pair::fresh();
        let a = pair.a;
        let sender = std::thread::spawn(move || {
            for _ in 0..=turn {
                assert_eq!(send(a, &[1; 16_384], 0), 16_384);
            }
            // SAFETY: numbers.
            unsafe { libc::shutdown(a, libc::SHUT_WR) };
        });
        let (mut sum, mut bytes) = (0, vec![0; 16_384]);
        loop {
            crate::pair::poll_bits(pair.b, libc::POLLIN, 1000);
            match recv(pair.b, &mut bytes, 0) {
                0 => break,
                got => sum += usize::try_from(got).expect("no error"),
            }
        }
        short += usize::from(sum != 16_384 * (turn + 1));
        sender.join().unwrap();
        pair.close();
    }
    seen.note("streams that were cut short", short);
}

fn small_pieces(seen: &mut Seen) {
    let pair = Pair::fresh();
    let mut sum = 0;
    no_delay(pair.a);
    no_delay(pair.b);
    for turn in 0..2000_usize {
        let (from, to) = if turn % 3 == 0 { (pair.b, pair.a) } else { (pair.a, pair.b) };
        let bytes = vec![turn as u8; 1 + turn % 50];
        assert_eq!(send(from, &bytes, 0), bytes.len() as isize);
        let mut back = vec![0; bytes.len()];
        assert_eq!(recv(to, &mut back, MSG_WAITALL), bytes.len() as isize);
        assert_eq!(back, bytes);
        sum += bytes.len();
    }
    seen.note("sum", sum);
    pair.close();
}

fn sendto_address(seen: &mut Seen) {
    let pair = Pair::used();
    // SAFETY: zeros are an address without a family.
    let address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    let to = std::ptr::from_ref(&address).cast();
    // SAFETY: our own memory.
    unsafe {
        let null = std::ptr::null();
        seen.call("without", libc::sendto(pair.a, b"x".as_ptr().cast(), 1, 0, null, 0));
        let len = size_of::<libc::sockaddr_in>() as u32;
        let result = libc::sendto(pair.a, b"x".as_ptr().cast(), 1, 0, to, len);
        // Linux takes it and ignores the address.
        seen.call("with", result);
    }
    wait_for(pair.b, 2);
    seen.note("drained", drain(pair.b));
    pair.close();
}

fn scratch_file(len: usize) -> std::fs::File {
    use std::io::{Seek, Write};
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let mut file = options.open(std::env::temp_dir()).unwrap();
    file.write_all(&vec![9; len]).unwrap();
    file.rewind().unwrap();
    file
}

fn file(seen: &mut Seen) {
    use std::os::fd::AsRawFd;
    let (pair, file) = (Pair::used(), scratch_file(10_000));
    for _ in 0..2 {
        // SAFETY: numbers.
        let sent = unsafe { libc::sendfile(pair.a, file.as_raw_fd(), std::ptr::null_mut(), 6_000) };
        seen.call("sendfile", sent);
    }
    wait_for(pair.b, 10_000);
    seen.note("drained", drain(pair.b));
    pair.close();
}

fn file_offset(seen: &mut Seen) {
    use std::io::Seek;
    use std::os::fd::AsRawFd;
    let (pair, mut file) = (Pair::used(), scratch_file(10_000));
    let mut offset = 9_000;
    // SAFETY: numbers, and a place for one.
    let sent = unsafe { libc::sendfile(pair.a, file.as_raw_fd(), &mut offset, 6_000) };
    seen.call("sendfile", sent);
    wait_for(pair.b, 1000);
    seen.note("offset", offset);
    seen.note("position", file.stream_position().unwrap());
    seen.note("drained", drain(pair.b));
    pair.close();
}

/// A program that takes its time before it reads, and one that does not wait for it.
fn read_late(seen: &mut Seen) {
    let pair = Pair::fresh();
    let words = 500;
    for _ in 0..words {
        send(pair.a, b"word", 0);
    }
    let mut bytes = vec![0; 4 * words];
    seen.call("recv", recv(pair.b, &mut bytes, libc::MSG_WAITALL));
    seen.note("in order", bytes.chunks(4).all(|word| word == b"word"));
    let step = || {
        pair.exchange(pair.a, pair.b);
        pair.exchange(pair.b, pair.a);
    };
    (0..5).for_each(|_| step());
    pair.until_shared(&[pair.a, pair.b], step);
    pair.expect_shared(pair.a);
    pair.expect_shared(pair.b);
    pair.close();
}
