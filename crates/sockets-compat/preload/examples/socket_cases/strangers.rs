//! Peers that die at each step of finding each other, peers of another version, and peers
//! that write nonsense into the memory that both have; a third that moves the memory of
//! others, or says that it is one of them.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
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
    ("offers_that_are_exchanged", exchanged),
    ("an_offer_with_another_name", linked),
    ("an_offer_that_is_a_copy", copied),
    ("an_offer_that_lies", lying),
    ("an_answer_of_an_impostor", impostor),
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

/// Anyone who only writes, and waits for room in each of the ways, hears of it, too.
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

/// Where the two ends of a connection find each other; `None` where the library is not there,
/// or the ends are on different hosts.
fn meeting_place(pair: &Pair) -> Option<PathBuf> {
    let place = named_place(pair);
    let is_near = std::env::var_os("CASES_FROM").is_none();
    assert!(
        place.is_some() || !is_near || std::env::var_os("EXPECT_SHARED").is_none(),
        "no memory is offered for {pair:?}"
    );
    place
}

/// Where they find each other, if that is there.
pub(crate) fn named_place(pair: &Pair) -> Option<PathBuf> {
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
            file.and_then(|file| file.write_all_at(b"9lafdnal", SHARED)).expect("its own file");
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
        let pair = Pair::offered();
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
                    let at = SHARED + 8 + (noise >> 32) % (HEADER / 4 - 2) * 4;
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
        memory.read_exact_at(&mut page, SHARED).expect("its own file");
        for (at, word) in (SHARED..).step_by(4).zip(page.chunks_exact(4)).skip(64) {
            if word == [0; 4] {
                memory.write_all_at(&1_u32.to_ne_bytes(), at).expect("its own file");
            }
        }
    }
    all_calls(pair.a);
    pair.close();
    seen.note("it came to an end", ());
}

/// Where what both ends share begins, behind a page for each of them.
const SHARED: u64 = 2 * 4096;
/// Where the ends of a connection say who they are: first the one that called. The number of
/// its socket is followed by how many have it, and by whether it is here.
const ENDS: [u64; 2] = [SHARED + 64, SHARED + 128];
const IS_HERE: u64 = 12;
/// Where the one that was called says what it sends, and where that lies.
const SENT_BACK: u64 = SHARED + 512;
const BYTES_SENT_BACK: u64 = SHARED + 4096 + 256 * 1024;

/// What has come within a second, in the order of one that waits for it.
fn comes(fd: i32) -> String {
    let mut bytes = [0; 64];
    poll_bits(fd, libc::POLLIN, 1000);
    match recv(fd, &mut bytes, libc::MSG_DONTWAIT) {
        len @ 0.. => String::from_utf8_lossy(&bytes[..len as usize]).into_owned(),
        failed => told(failed),
    }
}

/// Each end hears what the other end of its own connection says, and nothing else.
fn talk_apart(seen: &mut Seen, pairs: &[&Pair]) {
    for turn in 0..6 {
        for (at, pair) in pairs.iter().enumerate() {
            send(pair.a, format!("to {at}, {turn}").as_bytes(), 0);
        }
        for pair in pairs {
            seen.note("is called", comes(pair.b));
        }
        for (at, pair) in pairs.iter().enumerate() {
            send(pair.b, format!("back from {at}, {turn}").as_bytes(), 0);
        }
        for pair in pairs {
            seen.note("calls", comes(pair.a));
        }
    }
}

fn path_of(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero in a path")
}

/// A third exchanges the memory of two connections before anybody has looked.
fn exchanged(seen: &mut Seen) {
    let (one, other) = (Pair::offered(), Pair::offered());
    if let (Some(one), Some(other)) = (meeting_place(&one), meeting_place(&other)) {
        let (one, other) = (path_of(&one), path_of(&other));
        let (here, how) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
        // SAFETY: two paths.
        let done = unsafe { libc::renameat2(here, one.as_ptr(), here, other.as_ptr(), how) };
        assert_eq!(done, 0, "the names of two files can be exchanged");
    }
    talk_apart(seen, &[&one, &other]);
    one.close();
    other.close();
}

/// A third has kept a name of its own for the memory of others.
fn linked(seen: &mut Seen) {
    let pair = Pair::offered();
    let link = meeting_place(&pair).map(|place| {
        let link = place.with_extension("link");
        fs::hard_link(place, &link).expect("a link within a folder");
        link
    });
    talk_apart(seen, &[&pair]);
    pair.close();
    link.into_iter().for_each(|link| fs::remove_file(link).expect("it is there"));
}

/// A third puts another file with the same bytes in the place of the memory.
fn copied(seen: &mut Seen) {
    let pair = Pair::offered();
    if let Some(place) = meeting_place(&pair) {
        let copy = place.with_extension("copy");
        fs::copy(&place, &copy).expect("it can be copied");
        fs::rename(&copy, &place).expect("it can be moved");
    }
    talk_apart(seen, &[&pair]);
    pair.close();
}

/// The memory of a connection, if there is some.
fn memory_of(pair: &Pair) -> Option<fs::File> {
    let place = meeting_place(pair)?;
    Some(fs::OpenOptions::new().read(true).write(true).open(place).expect("its own file"))
}

fn write_words(memory: &fs::File, words: &[(u64, u32)]) {
    for (at, word) in words {
        memory.write_all_at(&word.to_ne_bytes(), *at).expect("its own file");
    }
}

/// The memory says that it was offered by another socket than calls.
fn lying(seen: &mut Seen) {
    let pair = Pair::offered();
    if let Some(memory) = memory_of(&pair) {
        write_words(&memory, &[(ENDS[0], 4711)]);
    }
    talk_apart(seen, &[&pair]);
    pair.close();
}

/// A third takes the offer for itself, and sends at once what the other end never said. It
/// says of itself what it can see of the end that is there.
fn impostor(seen: &mut Seen) {
    let pair = Pair::offered();
    if let Some(memory) = memory_of(&pair) {
        let mut end = [0; 64];
        memory.read_exact_at(&mut end, ENDS[0]).expect("its own file");
        memory.write_all_at(&end, ENDS[1]).expect("its own file");
        let lie = u32::from_ne_bytes(*b"lies");
        let (head, switched) = (SENT_BACK, SENT_BACK + 8);
        write_words(&memory, &[(BYTES_SENT_BACK, lie), (head, 4), (switched, 1)]);
        let is_here = ENDS.map(|end| (end + IS_HERE, 1));
        write_words(&memory, &[(ENDS[1], 4711), is_here[0], is_here[1]]);
    }
    talk_apart(seen, &[&pair]);
    pair.close();
}
