//! Random sequences of operations, against a queue of bytes.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::Shutdown;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::{Socket, kernel_pair, until, within};

/// What is done, by the side that it is done at.
#[derive(Clone, Debug)]
enum Step {
    Write(Vec<usize>),
    Read(Vec<usize>),
    Peek(usize),
    Finish,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let len = prop_oneof![4 => 0usize..40, 2 => 0usize..5_000, 1 => 0usize..70_000];
    let lens = proptest::collection::vec(len, 1..4);
    let step = prop_oneof![
        8 => lens.clone().prop_map(Step::Write),
        8 => lens.prop_map(Step::Read),
        2 => (1usize..200).prop_map(Step::Peek),
        1 => Just(Step::Finish),
    ];
    (0usize..2, step)
}

/// One direction, as it must be.
#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    has_ended: bool,
    /// What the next byte is.
    next: u8,
}

/// Whatever is done, in whatever order: nothing is lost, doubled or mixed up.
pub(crate) fn nothing_is_lost<S: Socket>(cases: u32, pair: fn() -> (S, S)) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let steps = proptest::collection::vec(step(), 1..60);
    within(move || {
        let run = TestRunner::new(config).run(&steps, |steps| {
            play(pair(), &steps);
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
    });
}

/// The same questions to the kernel: so the model is right about sockets.
pub(crate) fn the_model_fits_the_kernel() {
    nothing_is_lost(16, kernel_pair);
}

fn play<S: Socket>((one, two): (S, S), steps: &[(usize, Step)]) {
    let sockets = [one, two];
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
    // Way 0 goes from socket 0 to socket 1.
    let mut ways = [Direction::default(), Direction::default()];
    for (at, step) in steps {
        let socket = &sockets[*at];
        match step {
            Step::Write(lens) => write(socket, &mut ways[*at], lens),
            Step::Read(lens) => read(socket, &mut ways[1 - *at], lens),
            Step::Peek(len) => peek(socket, &ways[1 - *at], *len),
            Step::Finish => {
                finish(socket);
                ways[*at].has_ended = true;
            }
        }
    }
    for at in [0, 1] {
        finish(&sockets[at]);
        ways[at].has_ended = true;
        while !ways[at].bytes.is_empty() {
            read(&sockets[1 - at], &mut ways[at], &[100_000]);
        }
        until("the end comes", || match sockets[1 - at].read(&mut [0; 1]) {
            Ok(len) => len == 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        });
    }
}

/// Where both directions have ended, there is no connection any more.
fn finish<S: Socket>(socket: &S) {
    if let Err(error) = socket.shutdown(Shutdown::Write) {
        assert_eq!(error.kind(), ErrorKind::NotConnected);
    }
}

fn write<S: Socket>(socket: &S, way: &mut Direction, lens: &[usize]) {
    let total: usize = lens.iter().sum();
    let bytes: Vec<u8> = (0..total).map(|at| way.next.wrapping_add(at as u8)).collect();
    let mut rest = &bytes[..];
    let parts: Vec<_> = lens
        .iter()
        .map(|len| {
            let (part, behind) = rest.split_at(*len);
            rest = behind;
            IoSlice::new(part)
        })
        .collect();
    match socket.write_vectored(&parts) {
        Ok(len) => {
            assert!(len <= total && (len > 0 || total == 0), "{len} of {total}");
            assert!(!way.has_ended || total == 0, "a write behind the end");
            way.bytes.extend(&bytes[..len]);
            way.next = way.next.wrapping_add(len as u8);
        }
        Err(error) if way.has_ended => assert_eq!(error.kind(), ErrorKind::BrokenPipe),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}

fn read<S: Socket>(socket: &S, way: &mut Direction, lens: &[usize]) {
    let mut buffers: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
    let total: usize = lens.iter().sum();
    if total == 0 {
        return;
    }
    let mut outcome = None;
    let mut look = || {
        let mut into: Vec<_> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        outcome = match socket.read_vectored(&mut into) {
            Ok(len) => Some(len),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                None
            }
        };
        outcome.is_some()
    };
    if way.bytes.is_empty() && !way.has_ended {
        assert!(!look(), "there is nothing to read");
        return;
    }
    // It is on its way, at most.
    until("bytes or the end come", look);
    let len = outcome.expect("it has come");
    assert_eq!(len == 0, way.bytes.is_empty());
    let wanted: Vec<u8> = way.bytes.drain(..len).collect();
    assert!(buffers.concat()[..len] == wanted[..], "other bytes than were written");
}

fn peek<S: Socket>(socket: &S, way: &Direction, len: usize) {
    let mut bytes = vec![0; len];
    match socket.peek(&mut bytes) {
        Ok(len) => assert!(way.bytes.iter().take(len).eq(&bytes[..len]), "other bytes"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}
