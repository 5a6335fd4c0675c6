//! Who sleeps again and again, and what becomes of it when the program closes, doubles or forks
//! what the library sleeps by.

use std::ffi::c_int;
use std::mem::zeroed;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libc::{EPOLL_CTL_ADD, EPOLLET, EPOLLIN, POLLIN};

use crate::Case;
use crate::pair::{Pair, Seen, close, poll_bits, recv, send, set_nonblocking};
use crate::watching::Watch;

pub(crate) const CASES: &[Case] = &[
    ("a_set_sleeps_often", |seen| sleeps_often(seen, Waits::Set(0))),
    ("a_set_sleeps_often_by_edge", |seen| sleeps_often(seen, Waits::Set(EPOLLET))),
    ("poll_sleeps_often", |seen| sleeps_often(seen, Waits::Poll)),
    ("recv_sleeps_often", |seen| sleeps_often(seen, Waits::Recv)),
    ("all_descriptors_above_are_closed", closes_above),
    ("descriptors_above_become_a_file", doubles_above),
    ("a_set_that_sleeps_often_and_a_fork", forks),
    ("a_set_that_sleeps_often_and_children_that_end", children_end),
    ("two_threads_on_a_set_that_sleeps_often", two_threads),
    ("two_threads_on_a_set_have_a_byte_each", a_byte_each),
    ("recv_sleeps_while_another_shuts_down", shuts_down),
    ("recv_sleeps_while_another_polls", recv_and_poll),
];

const LONG_MS: c_int = 10_000;
/// Who waits sleeps in this time, no matter how long it looks at memory before.
const A_WHILE: Duration = Duration::from_millis(2);
const A_LONG_WHILE: Duration = Duration::from_secs(5);
const ROUNDS: usize = 12;

#[derive(Clone, Copy)]
enum Waits {
    Set(c_int),
    Poll,
    Recv,
}

/// Sends back each byte that comes, after a while, until the end.
fn echo(fd: c_int) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut byte = [0; 1];
        while recv(fd, &mut byte, 0) == 1 {
            thread::sleep(A_WHILE);
            send(fd, &byte, 0);
        }
    })
}

/// A pair of which `b` answers, and a set that watches `a`.
struct Scene {
    pair: Pair,
    watch: Watch,
    echo: thread::JoinHandle<()>,
}

impl Scene {
    fn new(edge: c_int) -> Self {
        let pair = Pair::used();
        let watch = Watch::new();
        watch.change(EPOLL_CTL_ADD, pair.a, EPOLLIN | edge);
        let echo = echo(pair.b);
        Self { pair, watch, echo }
    }

    /// How many of the rounds went as they should.
    fn rounds(&self, waits: Waits) -> usize {
        (0..ROUNDS)
            .filter(|&round| {
                let sent = [round as u8];
                let is_sent = send(self.pair.a, &sent, 0) == 1;
                let is_told = match waits {
                    Waits::Set(_) => !self.watch.wait(&[self.pair.a], 4, LONG_MS).is_empty(),
                    Waits::Poll => poll_bits(self.pair.a, POLLIN, LONG_MS) != "nothing",
                    Waits::Recv => true,
                };
                let mut came = [0];
                is_sent && is_told && recv(self.pair.a, &mut came, 0) == 1 && came == sent
            })
            .count()
    }

    fn ends(self, seen: &mut Seen) {
        close(self.pair.a);
        seen.note("echo", self.echo.join().is_ok());
        close(self.pair.b);
    }
}

fn sleeps_often(seen: &mut Seen, waits: Waits) {
    let scene = Scene::new(if let Waits::Set(edge) = waits { edge } else { 0 });
    seen.note("rounds", scene.rounds(waits));
    scene.ends(seen);
}

/// As programs do that become servers: what they do not know they close.
fn closes_above(seen: &mut Seen) {
    let scene = Scene::new(0);
    seen.note("rounds", scene.rounds(Waits::Set(0)));
    seen.note("rounds in poll", scene.rounds(Waits::Poll));
    // SAFETY: numbers; nothing of these cases is so high.
    seen.call("close_range", unsafe { libc::close_range(400, u32::MAX, 0) } as isize);
    seen.note("rounds after it", scene.rounds(Waits::Set(0)));
    seen.note("rounds in poll after it", scene.rounds(Waits::Poll));
    scene.ends(seen);
}

/// Not a byte is written to what the program puts in the place of what it does not know.
fn doubles_above(seen: &mut Seen) {
    let scene = Scene::new(0);
    seen.note("rounds", scene.rounds(Waits::Set(0)));
    seen.note("rounds in poll", scene.rounds(Waits::Poll));
    // SAFETY: a name of this case.
    let file = unsafe { libc::memfd_create(c"instead".as_ptr(), 0) };
    let places = 512..560;
    for place in places.clone() {
        // SAFETY: numbers.
        unsafe { libc::dup2(file, place) };
    }
    seen.note("rounds after it", scene.rounds(Waits::Set(0)));
    seen.note("rounds in poll after it", scene.rounds(Waits::Poll));
    // SAFETY: room for what is told.
    let status = unsafe {
        let mut status: libc::stat = zeroed();
        libc::fstat(file, &raw mut status);
        status
    };
    seen.note("length", status.st_size);
    places.for_each(close);
    close(file);
    scene.ends(seen);
}

/// Parent and child wait on one set: what one of them is told of does not go to the other.
fn forks(seen: &mut Seen) {
    let scene = Scene::new(0);
    seen.note("rounds", scene.rounds(Waits::Set(0)));
    // SAFETY: the child makes calls that are safe then, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let told = scene.watch.wait(&[scene.pair.a], 4, LONG_MS);
        let mut byte = [0];
        let is_there = recv(scene.pair.a, &mut byte, libc::MSG_PEEK) == 1;
        // SAFETY: it ends.
        unsafe { libc::_exit(c_int::from(told.is_empty() || !is_there)) };
    }
    // The child sleeps by now.
    thread::sleep(50 * A_WHILE);
    send(scene.pair.a, &[7], 0);
    let told = scene.watch.wait(&[scene.pair.a], 4, LONG_MS);
    seen.note("told", told);
    let mut status = 0;
    // SAFETY: memory of this case.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    seen.note("child", status);
    seen.call("recv", recv(scene.pair.a, &mut [0; 8], 0));
    seen.note("rounds after it", scene.rounds(Waits::Set(0)));
    scene.ends(seen);
}

/// As redis has them, to write its file: the parent sleeps often before, during and after it.
fn children_end(seen: &mut Seen) {
    let scene = Scene::new(0);
    for how in ["it ends", "it is killed", "it has waited"] {
        seen.note("rounds before", scene.rounds(Waits::Set(0)));
        // SAFETY: the child makes calls that are safe then, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            if how == "it has waited" {
                scene.watch.wait(&[scene.pair.a], 4, 0);
            }
            thread::sleep(20 * A_WHILE);
            // SAFETY: numbers.
            unsafe {
                match how {
                    "it is killed" => _ = libc::kill(libc::getpid(), libc::SIGKILL),
                    _ => libc::_exit(0),
                }
            }
        }
        seen.note("rounds beside it", scene.rounds(Waits::Set(0)));
        let mut status = 0;
        // SAFETY: memory of this case.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        seen.note(how, status);
        seen.note("rounds after it", scene.rounds(Waits::Set(0)));
    }
    scene.ends(seen);
}

/// Each byte wakes somebody, no matter which of the two took the one before.
fn two_threads(seen: &mut Seen) {
    let pair = Pair::used();
    set_nonblocking(pair.a);
    let watch = Watch::new();
    watch.change(EPOLL_CTL_ADD, pair.a, EPOLLIN);
    let count: usize = thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut count = 0;
                loop {
                    if watch.wait(&[pair.a], 4, LONG_MS).is_empty() {
                        return 1000;
                    }
                    let mut byte = [0];
                    match recv(pair.a, &mut byte, 0) {
                        1 => count += 1,
                        0 => return count,
                        _ => {}
                    }
                }
            })
        });
        for round in 0..4 * ROUNDS {
            send(pair.b, &[round as u8], 0);
            thread::sleep(A_WHILE);
        }
        close(pair.b);
        readers.into_iter().map(|reader| reader.join().unwrap_or(2000)).sum()
    });
    seen.note("bytes", count);
    close(pair.a);
}

/// Two bytes come at once, and who took one waits until the other thread has the other.
fn a_byte_each(seen: &mut Seen) {
    let pair = Pair::used();
    set_nonblocking(pair.a);
    let watch = Watch::new();
    watch.change(EPOLL_CTL_ADD, pair.a, EPOLLIN);
    let taken = AtomicUsize::new(0);
    let late = thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while recv(pair.a, &mut [0], 0) != 1 {
                        watch.wait(&[pair.a], 4, LONG_MS);
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                    let begin = Instant::now();
                    while taken.load(Ordering::Relaxed) < 2 * round {
                        if begin.elapsed() > A_LONG_WHILE {
                            return true;
                        }
                        thread::yield_now();
                    }
                }
                false
            })
        });
        for round in 0..ROUNDS {
            // Both sleep by now.
            thread::sleep(A_WHILE);
            while taken.load(Ordering::Relaxed) < 2 * round
                && !readers.iter().all(|one| one.is_finished())
            {
                thread::yield_now();
            }
            send(pair.b, &[0; 2], 0);
        }
        readers.map(|reader| reader.join().ok())
    });
    seen.note("late", late);
    pair.close();
}

fn shuts_down(seen: &mut Seen) {
    for end in [false, true] {
        let pair = Pair::used();
        let (a, by) = (pair.a, if end { pair.a } else { pair.b });
        let reader = thread::spawn(move || recv(a, &mut [0; 8], 0));
        thread::sleep(5 * A_WHILE);
        // SAFETY: numbers.
        seen.call("shutdown", unsafe { libc::shutdown(by, libc::SHUT_RDWR) } as isize);
        seen.note("recv", reader.join().ok());
        pair.close();
    }
}

/// Two threads sleep at one end, each in its own way, and each byte wakes both.
fn recv_and_poll(seen: &mut Seen) {
    let pair = Pair::used();
    let (a, rounds) = (pair.a, 2 * ROUNDS);
    let reader = thread::spawn(move || (0..rounds).filter(|_| recv(a, &mut [0], 0) == 1).count());
    let polls = thread::spawn(move || {
        (0..4).filter(|_| poll_bits(a, POLLIN | libc::POLLRDHUP, 20) != "?").count()
    });
    for round in 0..rounds {
        thread::sleep(A_WHILE);
        send(pair.b, &[round as u8], 0);
    }
    seen.note("bytes", reader.join().ok());
    seen.note("polls", polls.join().ok());
    pair.close();
}
