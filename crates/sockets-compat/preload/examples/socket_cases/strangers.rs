//! Peers that die at each step of finding each other, peers of another version, and peers
//! that write nonsense into the memory that both have.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Case;
use crate::pair::{Pair, Seen, call_up, close, listener, poll_bits, port_of, recv, send, told};

pub(crate) const CASES: &[Case] = &[
    ("a_caller_dies_at_each_step", a_caller_dies),
    ("a_called_one_dies_at_each_step", a_called_one_dies),
    ("a_reader_is_killed_while_one_writes", a_reader_is_killed),
    ("a_peer_of_another_version", of_another_version),
    ("a_peer_that_writes_nonsense", nonsense),
    ("a_lock_that_is_never_given_back", kept_lock),
];

/// What the one who dies does, a letter for each step: it sends, receives, pauses, or is
/// killed. The survivor does the counterpart.
const LIVES: [&str; 7] = ["k", "sk", "srk", "srsk", "srsrk", "srsrsrssk", "srsrsrsrsrk"];

/// In a child: lives like this at this end. Never comes back.
fn live(fd: i32, life: &str) -> ! {
    for step in life.bytes() {
        match step {
            b's' => _ = send(fd, b"word", 0),
            b'r' => _ = recv(fd, &mut [0; 4], libc::MSG_WAITALL),
            // SAFETY: no arguments.
            b'p' => _ = unsafe { libc::pause() },
            // SAFETY: a number.
            _ => _ = unsafe { libc::kill(libc::getpid(), libc::SIGKILL) },
        }
    }
    // SAFETY: it was killed already.
    unsafe { libc::_exit(1) }
}

/// The other end of such a life, up to the end of it, and what is to be said then.
fn survive(seen: &mut Seen, fd: i32, life: &str, child: i32) {
    let mut bytes = [0; 4];
    for step in life.bytes() {
        match step {
            b's' => _ = seen.call("heard", recv(fd, &mut bytes, libc::MSG_WAITALL)),
            b'r' => _ = seen.call("said", send(fd, b"word", 0)),
            // SAFETY: a child of ours.
            _ => unsafe {
                libc::waitpid(child, std::ptr::null_mut(), 0);
            },
        }
    }
    poll_bits(fd, libc::POLLRDHUP, 1000);
    let ready = poll_bits(fd, libc::POLLIN | libc::POLLRDHUP, 0);
    let last = told(recv(fd, &mut bytes, 0));
    seen.note(life, (ready, last));
    // The first is refused by who is gone, if not by what the kernel knows already.
    send(fd, b"word", 0);
    poll_bits(fd, libc::POLLERR, 1000);
    seen.call("then", send(fd, b"word", 0));
    seen.call("and then", recv(fd, &mut bytes, 0));
}

fn a_caller_dies(seen: &mut Seen) {
    for life in LIVES {
        let (listening, address) = listener();
        // SAFETY: the child does not come back.
        let child = unsafe { libc::fork() };
        if child == 0 {
            live(call_up(&address), life);
        }
        // SAFETY: numbers.
        let fd = unsafe { libc::accept(listening, std::ptr::null_mut(), std::ptr::null_mut()) };
        close(listening);
        survive(seen, fd, life, child);
        close(fd);
    }
}

fn a_called_one_dies(seen: &mut Seen) {
    for life in LIVES {
        let (listening, address) = listener();
        // SAFETY: the child does not come back.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: numbers.
            let fd = unsafe { libc::accept(listening, std::ptr::null_mut(), std::ptr::null_mut()) };
            close(listening);
            live(fd, life);
        }
        let fd = call_up(&address);
        close(listening);
        survive(seen, fd, life, child);
        close(fd);
    }
}

/// Whoever only writes, and waits for room in each of the ways, hears of it, too.
fn a_reader_is_killed(seen: &mut Seen) {
    for how in ["waiting", "polling", "not waiting"] {
        let (listening, address) = listener();
        // SAFETY: the child does not come back.
        let child = unsafe { libc::fork() };
        if child == 0 {
            live(call_up(&address), "srsrsrsrsrp");
        }
        // SAFETY: numbers.
        let fd = unsafe { libc::accept(listening, std::ptr::null_mut(), std::ptr::null_mut()) };
        close(listening);
        for _ in 0..5 {
            recv(fd, &mut [0; 4], libc::MSG_WAITALL);
            send(fd, b"word", 0);
        }
        let killing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            // SAFETY: a child of ours.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        });
        let piece = vec![1; 60_000];
        let last = loop {
            let flags = if how == "waiting" { 0 } else { libc::MSG_DONTWAIT };
            let sent = send(fd, &piece, flags);
            let said = told(sent);
            match (sent, how) {
                (0.., _) => {}
                (_, "polling") if said == "EAGAIN" => {
                    poll_bits(fd, libc::POLLOUT, 10_000);
                }
                (_, "not waiting") if said == "EAGAIN" => thread::yield_now(),
                _ => break said,
            }
        };
        killing.join().unwrap();
        // Bytes that he had not read make it a reset; which of the two is a race.
        seen.note(how, matches!(last.as_str(), "EPIPE" | "ECONNRESET"));
        close(fd);
    }
}

/// Where the two ends of a connection find each other, if that is there.
fn meeting_place(pair: &Pair) -> Option<PathBuf> {
    let place = |fd| format!("00000000000000000000ffff7f000001{:04x}", port_of(fd));
    let name = place(pair.a) + &place(pair.b);
    let folders = fs::read_dir("/dev/shm").ok()?.flatten();
    let folders =
        folders.filter(|it| it.file_name().to_string_lossy().starts_with("landfall-sockets-"));
    folders.map(|folder| folder.path().join(&name)).find(|path| path.exists())
}

/// Words in both directions, as often as it takes to find each other, and more.
fn talk(seen: &mut Seen, pair: &Pair) {
    for _ in 0..100 {
        for (from, to) in [(pair.a, pair.b), (pair.b, pair.a)] {
            send(from, b"word", 0);
            let mut bytes = [0; 9];
            let came = recv(to, &mut bytes, 0);
            if &bytes != b"word\0\0\0\0\0" {
                seen.call("something else", came);
            }
        }
    }
    seen.note("talked", ());
}

/// Between the offer and the answer to it, another takes its place. The connection is what it
/// was, by TCP.
fn of_another_version(seen: &mut Seen) {
    let offers: [fn(&PathBuf); 4] = [
        |path| _ = fs::remove_file(path),
        |path| {
            let file = fs::OpenOptions::new().write(true).open(path);
            file.and_then(|file| file.write_all_at(b"9lafdnal", 0)).expect("its own file");
        },
        |path| {
            // As long as one of another version may be: the first end's memory is its own.
            let _ = fs::remove_file(path);
            fs::write(path, vec![7; 8192]).expect("a file in its place");
        },
        |path| {
            let _ = fs::remove_file(path);
            std::os::unix::fs::symlink("/dev/zero", path).expect("a link in its place");
        },
    ];
    for offer in offers {
        let pair = Pair::fresh();
        let place = meeting_place(&pair);
        if let Some(place) = &place {
            offer(place);
        }
        talk(seen, &pair);
        // SAFETY: a number.
        unsafe { libc::shutdown(pair.a, libc::SHUT_WR) };
        seen.call("end", recv(pair.b, &mut [0; 9], 0));
        pair.close();
        // What was put there is nobody's.
        place.into_iter().for_each(|place| _ = fs::remove_file(place));
    }
}

/// Calls of every kind, none of which waits: whatever they give, they come back.
fn all_calls(fd: i32) {
    let mut bytes = vec![0; 5000];
    send(fd, &bytes, libc::MSG_DONTWAIT);
    recv(fd, &mut bytes, libc::MSG_DONTWAIT);
    recv(fd, &mut bytes[..9], libc::MSG_DONTWAIT | libc::MSG_PEEK);
    poll_bits(fd, libc::POLLIN | libc::POLLOUT, 0);
    let mut waiting = 0_i32;
    // SAFETY: a place for a number.
    unsafe { libc::ioctl(fd, libc::FIONREAD, &mut waiting) };
}

/// One end of the memory is in wrong hands: the program goes on, and so do its other
/// connections.
fn nonsense(seen: &mut Seen) {
    const HEADER: u64 = 4096;
    let other = Pair::used();
    for turn in 0..4_u64 {
        let pair = Pair::used();
        let memory = meeting_place(&pair)
            .and_then(|path| fs::OpenOptions::new().write(true).open(path).ok());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut noise = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(turn + 1);
                while !is_over.load(Ordering::Relaxed) {
                    noise ^= noise << 13;
                    noise ^= noise >> 7;
                    noise ^= noise << 17;
                    // Small numbers, large ones, and such that could be: anywhere but in
                    // what says whose memory it is.
                    let value = noise >> (noise % 64);
                    let at = 8 + (noise >> 32) % (HEADER / 4 - 2) * 4;
                    if let Some(memory) = &memory {
                        memory.write_all_at(&value.to_ne_bytes(), at).expect("its own file");
                    }
                    thread::yield_now();
                }
            });
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(100) {
                all_calls(pair.a);
                all_calls(pair.b);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        pair.close();
        talk(seen, &other);
    }
    other.close();
}

/// The peer says that somebody who lives, and never gives it back, has the lock of our half.
fn kept_lock(seen: &mut Seen) {
    let pair = Pair::used();
    if let Some(path) = meeting_place(&pair) {
        let memory = fs::OpenOptions::new().read(true).write(true).open(path).expect("its own");
        // The first process lives for as long as the machine does. Locks lie where a zero was.
        let mut page = vec![0; 4096];
        memory.read_exact_at(&mut page, 0).expect("its own file");
        for (at, word) in (0..).step_by(4).zip(page.chunks_exact(4)).skip(64) {
            if word == [0; 4] {
                memory.write_all_at(&1_u32.to_ne_bytes(), at).expect("its own file");
            }
        }
    }
    all_calls(pair.a);
    pair.close();
    seen.note("it came to an end", ());
}
