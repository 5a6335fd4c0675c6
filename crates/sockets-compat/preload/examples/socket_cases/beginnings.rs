//! From the first byte to memory: connections that end before, threads that wait meanwhile,
//! and processes that share one before it is memory.

use std::sync::mpsc;
use std::thread;

use crate::Case;
use crate::basics::no_delay;
use crate::forks::in_child;
use crate::pair::{Pair, Seen, close, recv, send, set_nonblocking, told};
use crate::strangers::named_place;

pub(crate) const CASES: &[Case] = &[
    ("one_request_and_its_answer", one_request),
    ("a_thread_that_waits_from_the_first_byte", waits_from_the_beginning),
    ("many_bytes_in_one_direction", one_direction),
    ("a_question_and_a_long_answer", long_answer),
    ("an_end_after_one_word", half_closed),
    ("two_processes_after_one_word", two_processes),
    ("a_program_has_it_after_one_word", exec_after_a_word),
    ("two_threads_that_receive_from_the_first_byte", two_receivers),
];

/// A connection for one request is not worth memory: none is made for it.
fn one_request(seen: &mut Seen) {
    for at in 0..20 {
        let pair = Pair::fresh();
        pair.exchange(pair.a, pair.b);
        // In two pieces, the second of which finds somebody who has heard.
        send(pair.b, b"head", 0);
        seen.call("head", recv(pair.a, &mut [0; 4], 0));
        send(pair.b, &[7; 5000], 0);
        seen.call("body", recv(pair.a, &mut [0; 5000], libc::MSG_WAITALL));
        // Between hosts it is offered before it is known whether it is worth it.
        let is_near = std::env::var_os("CASES_FROM").is_none();
        seen.note("memory", is_near && named_place(&pair).is_some());
        close(pair.b);
        seen.call("end", recv(pair.a, &mut [0; 9], 0));
        seen.note("request", at);
        close(pair.a);
    }
}

/// The thread that receives has never seen memory when the other makes it.
fn waits_from_the_beginning(seen: &mut Seen) {
    let pair = Pair::fresh();
    let (a, b) = (pair.a, pair.b);
    let (tell, told) = mpsc::channel();
    let receives = thread::spawn(move || {
        let mut bytes = [0; 8];
        while recv(a, &mut bytes, libc::MSG_WAITALL) == 8 {
            tell.send(u64::from_ne_bytes(bytes)).expect("somebody listens");
        }
    });
    let sends_back = thread::spawn(move || {
        let mut bytes = [0; 8];
        while recv(b, &mut bytes, libc::MSG_WAITALL) == 8 {
            send(b, &bytes, 0);
        }
        // SAFETY: numbers.
        unsafe { libc::shutdown(b, libc::SHUT_WR) };
    });
    let mut wrong = 0;
    for word in 0..200_u64 {
        send(a, &word.to_ne_bytes(), 0);
        wrong += u32::from(told.recv() != Ok(word));
    }
    seen.note("wrong", wrong);
    pair.expect_shared(a);
    // SAFETY: numbers.
    unsafe { libc::shutdown(a, libc::SHUT_WR) };
    receives.join().unwrap();
    sends_back.join().unwrap();
    pair.close();
}

const MANY: usize = 24 << 20;

/// Byte number so and so.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 11) as u8
}

/// Receives until the end; how many bytes came, and how many of them were others than were sent.
fn receive_all(fd: i32) -> (usize, usize) {
    let (mut piece, mut at, mut wrong) = (vec![0; 50_000], 0, 0);
    loop {
        match recv(fd, &mut piece, 0) {
            0 => return (at, wrong),
            got @ 1.. => {
                wrong += piece[..got as usize]
                    .iter()
                    .enumerate()
                    .filter(|&(index, &came)| came != byte(at + index))
                    .count();
                at += got as usize;
            }
            failed => panic!("{}", told(failed)),
        }
    }
}

fn send_all(fd: i32, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        let piece: Vec<u8> = (at..bytes.min(at + 60_000)).map(byte).collect();
        let mut done = 0;
        while done < piece.len() {
            let sent = send(fd, &piece[done..], 0);
            assert!(sent > 0, "{}", told(sent));
            done += sent as usize;
        }
        at += piece.len();
    }
}

/// Nobody ever answers, yet it is worth memory.
fn one_direction(seen: &mut Seen) {
    for is_up in [true, false] {
        let pair = Pair::fresh();
        let (from, to) = if is_up { (pair.a, pair.b) } else { (pair.b, pair.a) };
        let sends = thread::spawn(move || {
            send_all(from, MANY);
            Pair::expect_sends_by_memory(from);
            // SAFETY: numbers.
            unsafe { libc::shutdown(from, libc::SHUT_WR) };
        });
        seen.note("bytes and wrong ones", receive_all(to));
        sends.join().unwrap();
        pair.close();
    }
}

fn long_answer(seen: &mut Seen) {
    let pair = Pair::fresh();
    pair.exchange(pair.a, pair.b);
    let b = pair.b;
    let sends = thread::spawn(move || {
        send_all(b, MANY);
        Pair::expect_sends_by_memory(b);
        close(b);
    });
    seen.note("bytes and wrong ones", receive_all(pair.a));
    sends.join().unwrap();
    close(pair.a);
}

/// What is asked is all that is asked: the answer, however long, comes by TCP.
fn half_closed(seen: &mut Seen) {
    let pair = Pair::fresh();
    pair.exchange(pair.a, pair.b);
    // SAFETY: numbers.
    unsafe { libc::shutdown(pair.a, libc::SHUT_WR) };
    seen.call("end", recv(pair.b, &mut [0; 4], 0));
    let b = pair.b;
    let sends = thread::spawn(move || {
        send_all(b, MANY);
        close(b);
    });
    seen.note("bytes and wrong ones", receive_all(pair.a));
    sends.join().unwrap();
    seen.call("refused", send(pair.a, b"more", 0));
    close(pair.a);
}

/// Each end in turn is shared with a child, which says and hears some words, and ends; its
/// parent goes on.
fn two_processes(seen: &mut Seen) {
    for is_caller in [true, false] {
        let pair = Pair::fresh();
        let (forked, other) = if is_caller { (pair.a, pair.b) } else { (pair.b, pair.a) };
        pair.exchange(pair.a, pair.b);
        pair.exchange(pair.b, pair.a);
        let sends_back = thread::spawn(move || {
            let (mut bytes, mut words) = ([0; 4], 0);
            while recv(other, &mut bytes, libc::MSG_WAITALL) == 4 {
                send(other, &bytes, 0);
                words += 1;
            }
            close(other);
            words
        });
        let talk = |words: u32| {
            let mut wrong = 0;
            for word in 0..words {
                send(forked, &word.to_ne_bytes(), 0);
                let mut bytes = [0; 4];
                recv(forked, &mut bytes, libc::MSG_WAITALL);
                wrong += i32::from(u32::from_ne_bytes(bytes) != word);
            }
            wrong
        };
        seen.note("wrong in the child", in_child(|| talk(20)));
        seen.note("wrong in its parent", talk(30));
        seen.note("wrong in the next child", in_child(|| talk(10)));
        seen.note("wrong at last", talk(10));
        pair.expect_shared(forked);
        close(forked);
        seen.note("words", sends_back.join().unwrap());
    }
}

/// A shell that reads a line and leaves the rest to others.
fn exec_after_a_word(seen: &mut Seen) {
    for is_caller in [true, false] {
        let pair = Pair::fresh();
        let (given, other) = if is_caller { (pair.a, pair.b) } else { (pair.b, pair.a) };
        pair.exchange(other, given);
        pair.exchange(given, other);
        // SAFETY: memory and numbers of this case.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: memory and numbers of this case.
            unsafe {
                libc::close(other);
                libc::dup2(given, 0);
                libc::dup2(given, 1);
                let script = c"head -c 9 | cat; exec cat";
                let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), script.as_ptr(), std::ptr::null()];
                libc::execvp(c"sh".as_ptr(), arguments.as_ptr());
                libc::_exit(1);
            }
        }
        close(given);
        let mut bytes = [0; 9];
        for _ in 0..20 {
            send(other, b"there and", 0);
            seen.call("back", recv(other, &mut bytes, libc::MSG_WAITALL));
            seen.note("bytes", bytes);
        }
        close(other);
        // SAFETY: memory and numbers of this case.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
}

/// Two threads take turns at one end, waiting or not, while the ways change.
fn two_receivers(seen: &mut Seen) {
    for waits in [true, false] {
        let pair = Pair::fresh();
        let (a, b) = (pair.a, pair.b);
        no_delay(b);
        if !waits {
            set_nonblocking(b);
        }
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                thread::spawn(move || {
                    let (mut sum, mut bytes) = (0_u64, [0; 1]);
                    loop {
                        match recv(b, &mut bytes, 0) {
                            0 => return sum,
                            1 => {
                                sum += u64::from(bytes[0]);
                                send(b, &bytes, 0);
                            }
                            _ => thread::yield_now(),
                        }
                    }
                })
            })
            .collect();
        let (mut sent, mut heard) = (0_u64, 0_u64);
        for turn in 0..2000_usize {
            let word = [byte(turn), byte(turn + 1)];
            send(a, &word, 0);
            sent += u64::from(word[0]) + u64::from(word[1]);
            let mut back = [0; 2];
            recv(a, &mut back, libc::MSG_WAITALL);
            heard += u64::from(back[0]) + u64::from(back[1]);
        }
        // SAFETY: numbers.
        unsafe { libc::shutdown(a, libc::SHUT_WR) };
        let took: u64 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
        seen.note("sent, heard and took", (sent, heard, took));
        pair.close();
    }
}
