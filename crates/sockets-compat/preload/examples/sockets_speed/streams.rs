//! Large streams, whose receiver waits for all of a large buffer, beside what one copy takes: by
//! `memcpy`, and by the kernel into the memory of another process.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::ends::{alone, pair_of};
use crate::{Figure, Kind, Row, Workspace};

pub(crate) const ROWS: &[Row] = &[
    ("stream of 256 KiB, taken whole, Gbit/s", |ground, kind| stream(ground, kind, 256 << 10)),
    ("stream of 1 MiB, taken whole, Gbit/s", |ground, kind| stream(ground, kind, 1 << 20)),
    ("stream of 16 MiB, taken whole, Gbit/s", |ground, kind| stream(ground, kind, 16 << 20)),
    ("no socket, 256 KiB: memcpy, process_vm_writev, Gbit/s", |ground, kind| {
        copy(ground, kind, 256 << 10)
    }),
    ("no socket, 1 MiB: memcpy, process_vm_writev, Gbit/s", |ground, kind| {
        copy(ground, kind, 1 << 20)
    }),
    ("no socket, 16 MiB: memcpy, process_vm_writev, Gbit/s", |ground, kind| {
        copy(ground, kind, 16 << 20)
    }),
];

const TIME: Duration = Duration::from_millis(700);

fn stream(ground: &Workspace, kind: Kind, len: usize) -> Option<Figure> {
    pair_of(ground, kind, &["large", &len.to_string()], 1.0)
}

/// One process; the kinds are ways to copy.
fn copy(ground: &Workspace, kind: Kind, len: usize) -> Option<Figure> {
    let how = match kind {
        Kind::Kernel | Kind::Off => "memcpy",
        Kind::Ours => "process_vm_writev",
        Kind::Unix => return None,
    };
    alone(ground, &["copy", how, &len.to_string()])
}

/// The end that listens: takes pieces of this length whole.
pub(crate) fn serve(len: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    println!("{}", listener.local_addr().expect("it is bound").port());
    let (mut stream, _) = listener.accept().expect("one calls");
    turns(&mut stream);
    let (mut piece, mut sum) = (vec![0_u8; len], 0_u64);
    loop {
        // SAFETY: as many bytes as there are.
        let got = unsafe {
            libc::recv(stream.as_raw_fd(), piece.as_mut_ptr().cast(), len, libc::MSG_WAITALL)
        };
        if got <= 0 {
            break;
        }
        sum += got as u64;
    }
    stream.write_all(&sum.to_ne_bytes()).expect("the caller is there");
}

/// The end that calls, and sends such pieces.
pub(crate) fn call(len: usize, port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    turns(&mut stream);
    let piece = vec![7; len];
    let begin = Instant::now();
    while begin.elapsed() < TIME {
        stream.write_all(&piece).expect("it reads");
    }
    stream.shutdown(Shutdown::Write).expect("it is open");
    let mut sum = [0; 8];
    stream.read_exact(&mut sum).expect("it says how much it was");
    say(u64::from_ne_bytes(sum), begin);
}

/// Memory is made in the second turn of a connection.
fn turns(stream: &mut TcpStream) {
    for _ in 0..4 {
        stream.write_all(b"word").expect("it is open");
        stream.read_exact(&mut [0; 4]).expect("the other says as much");
    }
}

fn say(bytes: u64, begin: Instant) {
    println!("{} {} 0 0", bytes as f64 * 8.0 / 1e9, begin.elapsed().as_secs_f64());
}

/// Copies without sockets.
pub(crate) fn copies(how: &str, len: usize) {
    let (from, mut to) = (vec![7_u8; len], vec![3_u8; len]);
    // SAFETY: the child touches its memory, and waits until it is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // The copy that it has from its parent becomes its own.
        to.fill(4);
        std::hint::black_box(&to);
        // SAFETY: no arguments.
        unsafe { libc::pause() };
        return;
    }
    std::thread::sleep(Duration::from_millis(50));
    let (begin, mut sum) = (Instant::now(), 0_u64);
    while begin.elapsed() < TIME {
        if how == "memcpy" {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&to);
        } else {
            let part =
                |base: *const u8| libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len };
            let (own, other) = (part(from.as_ptr()), part(to.as_ptr()));
            // SAFETY: memory of this process, and of a child that has the same there.
            let went = unsafe { libc::process_vm_writev(child, &own, 1, &other, 1, 0) };
            assert_eq!(went, len as isize, "{}", std::io::Error::last_os_error());
        }
        sum += len as u64;
    }
    say(sum, begin);
    // SAFETY: a child of ours.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}
