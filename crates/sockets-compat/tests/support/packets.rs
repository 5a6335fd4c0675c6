//! What holds for sockets for messages, whatever carries them.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use sockets_compat::{Messages, SeqPacket};

use super::{TOO_LONG, until};

/// Both ends of a connection.
pub(crate) type Pair<F> = (SeqPacket<F>, SeqPacket<F>);

pub(crate) fn each_write_is_one_message_and_each_read_takes_a_whole_one<F: Messages>(
    (mut one, mut two): Pair<F>,
) {
    for message in [&b"one"[..], b"", b"another one"] {
        assert_eq!(one.write(message).unwrap(), message.len());
    }
    let mut into = [0; 64];
    for message in [&b"one"[..], b"", b"another one"] {
        let len = two.read(&mut into).unwrap();
        assert_eq!(&into[..len], message);
    }
    let parts = [&b"of "[..], b"several ", b"parts"].map(IoSlice::new);
    assert_eq!(one.write_vectored(&parts).unwrap(), 16);
    assert_eq!(two.recv_message().unwrap().unwrap(), &b"of several parts"[..]);
    drop(one);
    assert_eq!(two.recv_message().unwrap(), None);
    assert_eq!(two.read(&mut into).unwrap(), 0);
}

pub(crate) fn what_is_too_long_comes_back_and_the_next_one_gets_through<F: Messages>(
    (one, two): Pair<F>,
) {
    let most = two.message_limit();
    assert_eq!(one.send(&vec![1; most]).unwrap(), most);
    assert_eq!(two.recv_message().unwrap().unwrap().len(), most);
    let error = one.send(&vec![2; most + 1]).unwrap_err();
    assert_eq!(error.raw_os_error(), TOO_LONG, "{error}");
    assert_eq!(one.send(b"and on").unwrap(), 6);
    assert_eq!(two.recv_message().unwrap().unwrap(), &b"and on"[..]);
}

pub(crate) fn a_message_stays_for_a_buffer_that_is_long_enough<F: Messages>((one, two): Pair<F>) {
    assert_eq!(one.send(b"twelve bytes").unwrap(), 12);
    for _ in 0..3 {
        let error = two.recv(&mut [0; 11]).unwrap_err();
        assert_eq!(error.raw_os_error(), TOO_LONG, "{error}");
    }
    let mut into = [0; 12];
    assert_eq!(two.peek(&mut into).unwrap(), 12);
    assert_eq!(two.recv(&mut into).unwrap(), 12);
    assert_eq!(&into, b"twelve bytes");
}

pub(crate) fn without_waiting_nothing_waits<F: Messages>((one, two): Pair<F>) {
    two.set_nonblocking(true).unwrap();
    assert_eq!(two.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    one.send(b"now").unwrap();
    until("it is there", || two.recv(&mut [0; 8]).is_ok_and(|len| len == 3));
    two.set_nonblocking(false).unwrap();
    two.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(two.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

pub(crate) fn one_direction_ends_and_the_other_goes_on<F: Messages>((one, two): Pair<F>) {
    one.send(b"last words").unwrap();
    one.shutdown(Shutdown::Write).unwrap();
    assert_eq!(one.send(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    assert_eq!(two.recv(&mut [0; 16]).unwrap(), 10);
    assert_eq!(two.recv(&mut [0; 16]).unwrap(), 0);
    two.send(b"answer").unwrap();
    drop(two);
    assert_eq!(one.recv(&mut [0; 16]).unwrap(), 6);
    assert_eq!(one.recv(&mut [0; 16]).unwrap(), 0);
}
