//! A reading and a writing thread at one end of a connection, which wait at once, while the
//! other end sends all back: each has to be woken for its own.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use libc::{EPOLL_CTL_ADD, EPOLLET, EPOLLIN, EPOLLOUT, POLLIN, POLLOUT};

use crate::Case;
use crate::pair::{Pair, Seen, poll_bits, recv, send, set_nonblocking};
use crate::watching::Watch;

pub(crate) const CASES: &[Case] = &[
    ("both_ways_at_once_in_poll", |seen| both_ways(seen, Waits::Poll)),
    ("both_ways_at_once_in_select", |seen| both_ways(seen, Waits::Select)),
    ("both_ways_at_once_in_epoll", |seen| both_ways(seen, Waits::Epoll(0))),
    ("both_ways_at_once_in_epoll_by_edge", |seen| both_ways(seen, Waits::Epoll(EPOLLET))),
    ("both_ways_at_once_in_one_set_by_edge", by_one_set),
    ("both_ways_at_once_in_calls", |seen| both_ways(seen, Waits::Calls)),
];

/// More than both rings and TCP's queues hold, so that both threads wait often.
const BYTES: usize = 4 << 20;
const PIECE: usize = 48 * 1024;
/// No wait is that long, but for one that nobody ends.
const LONG_MS: c_int = 10_000;

/// How a thread waits for what a call did not give at once.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    Poll,
    Select,
    Epoll(c_int),
    /// Calls wait themselves.
    Calls,
}

/// Waits of one thread.
struct Waiting {
    how: Waits,
    fd: c_int,
    /// What is waited for, for `epoll`.
    watch: Option<Watch>,
    /// Waits that nobody has ended.
    lost: Arc<AtomicU32>,
}

impl Waiting {
    fn new(how: Waits, fd: c_int, events: c_int, lost: &Arc<AtomicU32>) -> Self {
        let watch = match how {
            Waits::Epoll(edge) => {
                let watch = Watch::new();
                watch.change(EPOLL_CTL_ADD, fd, events | edge);
                Some(watch)
            }
            _ => None,
        };
        Self { how, fd, watch, lost: Arc::clone(lost) }
    }

    /// Until the descriptor may be ready.
    fn wait(&self, events: i16) {
        let is_told = match (&self.watch, self.how) {
            (Some(watch), _) => !watch.wait(&[self.fd], 4, LONG_MS).is_empty(),
            (None, Waits::Select) => select(self.fd, events) > 0,
            _ => poll_bits(self.fd, events, LONG_MS) != "nothing",
        };
        if !is_told {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the call gives, once it gives something.
    fn call(&self, events: i16, mut call: impl FnMut() -> isize) -> usize {
        loop {
            match usize::try_from(call()) {
                Ok(bytes) => return bytes,
                // None is waited for any more once one was lost.
                Err(_) if self.lost.load(Ordering::Relaxed) > 0 => return 0,
                Err(_) => self.wait(events),
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.close();
        }
    }
}

fn select(fd: c_int, events: i16) -> c_int {
    // SAFETY: sets and a time of our own; the descriptor is small.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd, &mut set);
        let (set, nothing) = (std::ptr::from_mut(&mut set), std::ptr::null_mut());
        let mut limit = libc::timeval { tv_sec: i64::from(LONG_MS) / 1000, tv_usec: 0 };
        let (read, write) = if events == POLLIN { (set, nothing) } else { (nothing, set) };
        libc::select(fd + 1, read, write, nothing, &mut limit)
    }
}

/// Byte number so and so of the stream.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8
}

fn both_ways(seen: &mut Seen, how: Waits) {
    for pair in [Pair::fresh(), Pair::used()] {
        let lost = Arc::new(AtomicU32::new(0));
        if how != Waits::Calls {
            set_nonblocking(pair.a);
            set_nonblocking(pair.b);
        }
        let (a, b) = (pair.a, pair.b);
        let writer = {
            let lost = Arc::clone(&lost);
            thread::spawn(move || writes(&Waiting::new(how, a, EPOLLOUT, &lost), BYTES))
        };
        let echo = {
            let lost = Arc::clone(&lost);
            thread::spawn(move || sends_back(how, b, &lost))
        };
        let came = reads(&Waiting::new(how, a, EPOLLIN, &lost));
        // Who waits in a call is not woken by a lost wait: the alarm ends the case.
        let ends = [writer.join(), echo.join()].iter().all(Result::is_ok);
        seen.note("came", (came, ends));
        seen.note("waits that nobody ended", lost.load(Ordering::Relaxed));
        pair.close();
    }
}

fn writes(waiting: &Waiting, bytes: usize) {
    let mut done = 0;
    while done < bytes {
        let piece: Vec<u8> = (done..bytes.min(done + PIECE)).map(byte).collect();
        match waiting.call(POLLOUT, || send(waiting.fd, &piece, 0)) {
            0 => return,
            sent => done += sent,
        }
    }
}

/// How many bytes came as they were sent.
fn reads(waiting: &Waiting) -> usize {
    let (mut piece, mut done) = (vec![0; PIECE], 0);
    while done < BYTES {
        let got = waiting.call(POLLIN, || recv(waiting.fd, &mut piece, 0));
        let is_right = piece[..got].iter().enumerate().all(|(at, &came)| came == byte(done + at));
        if got == 0 || !is_right {
            break;
        }
        done += got;
    }
    done
}

fn sends_back(how: Waits, fd: c_int, lost: &Arc<AtomicU32>) {
    let (for_bytes, for_room) =
        (Waiting::new(how, fd, EPOLLIN, lost), Waiting::new(how, fd, EPOLLOUT, lost));
    let (mut piece, mut sum) = (vec![0; PIECE], 0);
    while sum < BYTES {
        let got = for_bytes.call(POLLIN, || recv(fd, &mut piece, 0));
        let mut done = 0;
        while done < got {
            match for_room.call(POLLOUT, || send(fd, &piece[done..got], 0)) {
                0 => return,
                sent => done += sent,
            }
        }
        if got == 0 {
            return;
        }
        sum += got;
    }
}

/// Two loops, each with one set for both ways, that do what they are told of and nothing else.
fn by_one_set(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let lost = Arc::new(AtomicU32::new(0));
        set_nonblocking(pair.a);
        set_nonblocking(pair.b);
        let echo = {
            let (lost, b) = (Arc::clone(&lost), pair.b);
            thread::spawn(move || echoes(b, &lost))
        };
        let (mut piece, mut came, mut sent) = (vec![0; PIECE], 0, 0);
        by_edges(pair.a, &lost, |ready| {
            while ready.to_send && sent < BYTES {
                let piece: Vec<u8> = (sent..BYTES.min(sent + PIECE)).map(byte).collect();
                sent += ready.sends(pair.a, &piece);
            }
            while ready.to_receive {
                let got = ready.receives(pair.a, &mut piece);
                let mut all = piece[..got].iter().enumerate();
                if !all.all(|(at, &found)| found == byte(came + at)) {
                    return true;
                }
                came += got;
            }
            came == BYTES
        });
        seen.note("came", (came, echo.join().is_ok()));
        seen.note("edges that nobody told", lost.load(Ordering::Relaxed));
        pair.close();
    }
}

fn echoes(fd: c_int, lost: &Arc<AtomicU32>) {
    let (mut piece, mut sum) = (vec![0; PIECE], 0);
    let mut kept = 0..0;
    by_edges(fd, lost, |ready| {
        loop {
            if !kept.is_empty() && ready.to_send {
                kept.start += ready.sends(fd, &piece[kept.clone()]);
            } else if kept.is_empty() && ready.to_receive {
                kept = 0..ready.receives(fd, &mut piece);
                sum += kept.end;
            } else {
                return sum == BYTES && kept.is_empty();
            }
        }
    });
}

/// What was told of a descriptor, until a call says otherwise.
#[derive(Default)]
struct Ready {
    to_receive: bool,
    to_send: bool,
}

impl Ready {
    fn sends(&mut self, fd: c_int, bytes: &[u8]) -> usize {
        let sent = usize::try_from(send(fd, bytes, 0));
        self.to_send = sent.is_ok();
        sent.unwrap_or(0)
    }

    fn receives(&mut self, fd: c_int, into: &mut [u8]) -> usize {
        let got = usize::try_from(recv(fd, into, 0));
        // What has ended has nothing more.
        self.to_receive = got.is_ok_and(|got| got > 0);
        got.unwrap_or(0)
    }
}

/// Calls `work` with each edge until it is done, or one does not come.
fn by_edges(fd: c_int, lost: &AtomicU32, mut work: impl FnMut(&mut Ready) -> bool) {
    let (watch, mut ready) = (Watch::new(), Ready::default());
    watch.change(EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET);
    while !work(&mut ready) {
        let told = watch.wait(&[fd], 4, LONG_MS);
        if told.is_empty() {
            lost.fetch_add(1, Ordering::Relaxed);
            break;
        }
        for (_, events) in told {
            ready.to_receive |= events.contains("IN");
            ready.to_send |= events.contains("OUT");
        }
    }
    watch.close();
}
