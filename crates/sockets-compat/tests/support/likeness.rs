//! What holds for `std::net::TcpStream` holds for ours: each case runs on a kernel's
//! connection and on one of ours, and both give the same answers, error numbers included.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::time::Duration;

use super::{Socket, kernel_pair, until, within};

/// What a case saw, in words.
type Seen = Vec<String>;

/// Runs all cases on pairs of ours, and compares with the kernel's.
pub(crate) fn is_like_the_kernels<S: Socket>(pair: fn() -> (S, S)) {
    macro_rules! cases {
        ($($case:ident),+ $(,)?) => {$(
            // Shown where the test fails.
            println!("{}", stringify!($case));
            let ours = within(move || $case(pair()));
            let kernels = within(|| $case(kernel_pair()));
            assert_eq!(ours, kernels, "{}: ours, then the kernel's", stringify!($case));
        )+};
    }
    cases!(
        bytes_then_the_end,
        half_close,
        reads_of_parts,
        empty_buffers,
        timeouts,
        timeouts_of_zero,
        without_waiting,
        a_full_way,
        writes_behind_the_own_end,
        reads_behind_the_own_end,
        writes_to_somebody_gone,
        peeks,
        vectors,
        clones,
        a_read_that_is_shut_from_elsewhere,
        much_in_both_directions,
    );
}

fn outcome<T: std::fmt::Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?} {:?}", error.kind(), error.raw_os_error()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn bytes_then_the_end<S: Socket>((one, two): (S, S)) -> Seen {
    one.write_all(b"some bytes").unwrap();
    drop(one);
    let bytes = two.read_to_end().unwrap();
    vec![text(&bytes), outcome(two.read(&mut [0; 8])), outcome(two.read(&mut [0; 8]))]
}

fn half_close<S: Socket>((one, two): (S, S)) -> Seen {
    one.write_all(b"question").unwrap();
    one.shutdown(Shutdown::Write).unwrap();
    let question = two.read_to_end().unwrap();
    two.write_all(b"answer").unwrap();
    two.write_all(b" and more").unwrap();
    drop(two);
    vec![text(&question), text(&one.read_to_end().unwrap())]
}

fn reads_of_parts<S: Socket>((one, two): (S, S)) -> Seen {
    one.write_all(b"abcdef").unwrap();
    let mut seen = Vec::new();
    for len in [1, 2, 3] {
        let mut part = vec![0; len];
        two.read_exact(&mut part).unwrap();
        seen.push(text(&part));
    }
    seen
}

fn empty_buffers<S: Socket>((one, two): (S, S)) -> Seen {
    let written = outcome(one.write(&[]));
    one.write_all(b"x").unwrap();
    let mut byte = [0];
    let peeked = outcome(two.peek(&mut byte));
    let seen = [written, peeked, outcome(two.read(&mut [])), outcome(two.read(&mut byte))];
    one.shutdown(Shutdown::Write).unwrap();
    seen.into_iter().chain([outcome(two.read(&mut byte)), outcome(two.read(&mut []))]).collect()
}

fn timeouts<S: Socket>((one, two): (S, S)) -> Seen {
    two.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let late = outcome(two.read(&mut [0; 4]));
    one.write_all(b"late").unwrap();
    two.set_read_timeout(None).unwrap();
    let mut bytes = [0; 4];
    two.read_exact(&mut bytes).unwrap();
    vec![late, text(&bytes), outcome(two.read_timeout())]
}

fn timeouts_of_zero<S: Socket>((one, _two): (S, S)) -> Seen {
    let kind = |result: io::Result<()>| format!("{:?}", result.unwrap_err().kind());
    vec![
        kind(one.set_read_timeout(Some(Duration::ZERO))),
        kind(one.set_write_timeout(Some(Duration::ZERO))),
        outcome(one.read_timeout()),
    ]
}

fn without_waiting<S: Socket>((one, two): (S, S)) -> Seen {
    two.set_nonblocking(true).unwrap();
    let empty = outcome(two.read(&mut [0; 4]));
    one.write_all(b"abc").unwrap();
    let mut bytes = [0; 4];
    let mut read = 0;
    until("the bytes come", || {
        match two.read(&mut bytes[read..]) {
            Ok(len) => read += len,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        read == 3
    });
    let again = outcome(two.read(&mut [0; 4]));
    drop(one);
    until("the end comes", || two.read(&mut [0; 4]).is_ok_and(|len| len == 0));
    vec![empty, text(&bytes[..3]), again]
}

/// How much fits is not compared; that it ends, and goes on, is.
fn a_full_way<S: Socket>((one, two): (S, S)) -> Seen {
    const MOST: usize = 256 << 20;
    one.set_nonblocking(true).unwrap();
    let bytes = vec![7; 64 << 10];
    let mut written = 0;
    let mut full = 0;
    // What is under way may still make room behind it.
    while full < 20 && written < MOST {
        match one.write(&bytes) {
            Ok(len) => (written, full) = (written + len, 0),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                full += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    let is_bounded = written < MOST;
    let error = outcome(one.write(&bytes).map(|_| "room"));
    let reading = std::thread::spawn(move || two.read_to_end().unwrap().len());
    one.set_nonblocking(false).unwrap();
    one.write_all(b"behind").unwrap();
    drop(one);
    let came = reading.join().unwrap();
    assert!(came >= written + 6, "{came} of {written}");
    vec![format!("{is_bounded}"), error.replace("\"room\"", "WouldBlock Some(11)")]
}

fn writes_behind_the_own_end<S: Socket>((one, two): (S, S)) -> Seen {
    one.shutdown(Shutdown::Write).unwrap();
    let first = outcome(one.write(b"x"));
    let again = outcome(one.shutdown(Shutdown::Write));
    two.write_all(b"y").unwrap();
    let mut byte = [0];
    one.read_exact(&mut byte).unwrap();
    vec![first, again, text(&byte)]
}

fn reads_behind_the_own_end<S: Socket>((one, two): (S, S)) -> Seen {
    two.write_all(b"before").unwrap();
    let mut first = [0; 1];
    one.read_exact(&mut first).unwrap();
    one.shutdown(Shutdown::Read).unwrap();
    let rest = one.read_to_end().unwrap();
    vec![text(&first), text(&rest), outcome(one.write(b"still"))]
}

/// Which of the two errors it is depends on the moment, with the kernel too.
fn writes_to_somebody_gone<S: Socket>((one, two): (S, S)) -> Seen {
    drop(two);
    let bytes = vec![0; 4096];
    let mut error = None;
    until("it is noticed", || {
        error = one.write(&bytes).err();
        error.is_some()
    });
    let kind = error.unwrap().kind();
    let is_known = matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
    vec![format!("{is_known}"), format!("{}", one.write(&bytes).is_err())]
}

fn peeks<S: Socket>((one, two): (S, S)) -> Seen {
    one.write_all(b"abcd").unwrap();
    let mut bytes = [0; 4];
    two.peek(&mut bytes[..1]).unwrap();
    let first = text(&bytes[..1]);
    let second = outcome(two.peek(&mut bytes[..1]));
    two.read_exact(&mut bytes).unwrap();
    vec![first, second, text(&bytes)]
}

fn vectors<S: Socket>((one, two): (S, S)) -> Seen {
    let parts = [&b"ab"[..], b"", b"cde", b"f"].map(IoSlice::new);
    let written = outcome(one.write_vectored(&parts));
    one.flush().unwrap();
    drop(one);
    let (mut a, mut b, mut c) = ([0; 1], [0; 0], [0; 9]);
    let mut all = Vec::new();
    loop {
        let mut into = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        let read = two.read_vectored(&mut into).unwrap();
        let joined = [&a[..], &c[..]].concat();
        all.extend_from_slice(&joined[..read]);
        if read == 0 {
            break;
        }
    }
    vec![written, text(&all)]
}

fn clones<S: Socket>((one, two): (S, S)) -> Seen {
    let other = one.try_clone().unwrap();
    other.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let shared = outcome(one.read_timeout());
    drop(one);
    other.write_all(b"still here").unwrap();
    drop(other);
    vec![shared, text(&two.read_to_end().unwrap())]
}

fn a_read_that_is_shut_from_elsewhere<S: Socket>((one, _two): (S, S)) -> Seen {
    let other = one.try_clone().unwrap();
    let reading = std::thread::spawn(move || outcome(other.read(&mut [0; 4])));
    // Either order gives the same.
    std::thread::sleep(Duration::from_millis(5));
    one.shutdown(Shutdown::Both).unwrap();
    vec![reading.join().unwrap()]
}

fn much_in_both_directions<S: Socket>((one, two): (S, S)) -> Seen {
    const LEN: usize = 3 << 20;
    let bytes = |seed: usize| -> Vec<u8> { (0..LEN).map(|at| (at * 31 + seed) as u8).collect() };
    let sends = |socket: S, seed| {
        std::thread::spawn(move || {
            let reader = socket.try_clone().unwrap();
            let reading = std::thread::spawn(move || reader.read_to_end().unwrap());
            for part in bytes(seed).chunks(70_000) {
                socket.write_all(part).unwrap();
            }
            socket.shutdown(Shutdown::Write).unwrap();
            reading.join().unwrap()
        })
    };
    let (first, second) = (sends(one, 1), sends(two, 2));
    let (at_one, at_two) = (first.join().unwrap(), second.join().unwrap());
    vec![format!("{}", at_one == bytes(2)), format!("{}", at_two == bytes(1))]
}
