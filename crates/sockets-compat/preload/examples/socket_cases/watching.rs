//! `poll`, `select` and `epoll` in every state and mode.

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, POLLIN, POLLOUT, POLLRDHUP};

use crate::Case;
use crate::pair::{Pair, Seen, close, drain, fill, names, poll_bits, recv, send, told};

pub(crate) const CASES: &[Case] = &[
    ("poll_of_each_state", poll_states),
    ("poll_wakes", poll_wakes),
    ("poll_wakes_a_writer", poll_wakes_writer),
    ("poll_wakes_a_writer_that_never_hears", poll_wakes_writer_of_one_way),
    ("epoll_wakes_a_writer_that_never_hears", epoll_wakes_writer_of_one_way),
    ("poll_of_several", poll_several),
    ("poll_of_nothing", poll_nothing),
    ("poll_writes_each_answer", poll_stale),
    ("poll_of_a_closed_descriptor", poll_closed),
    ("select_of_each_set", select_sets),
    ("select_in_vain", select_in_vain),
    ("epoll_by_level", level),
    ("epoll_by_edge", edge),
    ("epoll_by_edge_of_unread_bytes", edge_unread),
    ("epoll_by_edge_of_room", edge_room),
    ("epoll_once", once),
    ("epoll_changed_with_each_request", changed),
    ("epoll_changed_from_reading_to_writing", changed_to_writing),
    ("epoll_taken_away", taken_away),
    ("epoll_in_two_sets", two_sets),
    ("epoll_nested", nested),
    ("epoll_of_an_end", of_an_end),
    ("epoll_of_a_closed_one", of_a_closed_one),
    ("epoll_refusals", refusals),
    ("epoll_wakes", wakes),
    ("epoll_before_it_is_used", before_used),
    ("epoll_many", many),
    ("epoll_few_at_a_time", few_at_a_time),
];

const ALL: i16 = POLLIN | POLLOUT | POLLRDHUP;

fn poll_states(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        seen.note("idle", poll_bits(pair.a, ALL, 0));
        send(pair.b, b"x", 0);
        poll_bits(pair.a, POLLIN, 1000);
        seen.note("bytes", poll_bits(pair.a, ALL, 0));
        seen.note("only reading", poll_bits(pair.a, POLLIN, 0));
        seen.note("only writing", poll_bits(pair.a, POLLOUT, 0));
        recv(pair.a, &mut [0; 4], 0);
        seen.note("taken", poll_bits(pair.a, POLLIN, 0));
        fill(pair.a);
        seen.note("full", poll_bits(pair.a, ALL, 0));
        drain(pair.b);
        poll_bits(pair.a, POLLOUT, 1000);
        seen.note("emptied", poll_bits(pair.a, ALL, 1000));
        // SAFETY: numbers.
        unsafe { libc::shutdown(pair.b, libc::SHUT_WR) };
        poll_bits(pair.a, POLLRDHUP, 1000);
        seen.note("half closed", poll_bits(pair.a, ALL, 1000));
        close(pair.b);
        close(pair.a);
    }
}

pub(crate) fn later(job: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        job();
    })
}

fn poll_wakes(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        for _ in 0..3 {
            let b = pair.b;
            let sender = later(move || {
                send(b, b"x", 0);
            });
            seen.note("poll", poll_bits(pair.a, POLLIN, 10_000));
            recv(pair.a, &mut [0; 4], 0);
            sender.join().unwrap();
        }
        pair.close();
    }
}

fn poll_wakes_writer(seen: &mut Seen) {
    let pair = Pair::used();
    for _ in 0..3 {
        fill(pair.a);
        let b = pair.b;
        let taker = later(move || {
            drain(b);
        });
        seen.note("poll", poll_bits(pair.a, POLLOUT, 10_000));
        taker.join().unwrap();
    }
    pair.close();
}

/// One end only sends, the other only receives: what wakes the sender must not be found
/// among the bytes that the other says at last.
fn goes_one_way(seen: &mut Seen, wait_for_room: impl Fn(i32) -> String) {
    let pair = Pair::fresh();
    for _ in 0..8 {
        send(pair.a, b"word", 0);
        recv(pair.b, &mut [0; 4], 0);
    }
    for _ in 0..3 {
        fill(pair.a);
        let b = pair.b;
        let taker = later(move || {
            drain(b);
        });
        seen.note("room", wait_for_room(pair.a));
        taker.join().unwrap();
        while poll_bits(pair.b, POLLIN, 100) == "IN" {
            drain(pair.b);
        }
    }
    seen.note("nothing to hear", poll_bits(pair.a, POLLIN, 20));
    seen.call("the answer goes", send(pair.b, b"answer", 0));
    let mut answer = [0; 64];
    let len = recv(pair.a, &mut answer, 0);
    seen.note("the answer", answer.get(..len.unsigned_abs()));
    pair.close();
}

fn poll_wakes_writer_of_one_way(seen: &mut Seen) {
    goes_one_way(seen, |fd| poll_bits(fd, POLLOUT, 10_000));
    goes_one_way(seen, |fd| poll_bits(fd, POLLOUT | POLLIN, 10_000));
}

fn epoll_wakes_writer_of_one_way(seen: &mut Seen) {
    goes_one_way(seen, |fd| {
        let watch = Watch::new();
        watch.change(EPOLL_CTL_ADD, fd, libc::EPOLLOUT);
        let told = watch.wait(&[fd], 4, 10_000);
        watch.close();
        format!("{told:?}")
    });
}

fn poll_several(seen: &mut Seen) {
    let pairs = [Pair::used(), Pair::fresh(), Pair::used()];
    let entry = |fd| libc::pollfd { fd, events: POLLIN, revents: 0 };
    let mut entries = [entry(pairs[0].b), entry(-1), entry(pairs[1].b), entry(pairs[2].b)];
    for turn in 0..8 {
        for (at, pair) in pairs.iter().enumerate() {
            if turn & (1 << at) != 0 {
                send(pair.a, b"x", 0);
                poll_bits(pair.b, POLLIN, 1000);
            }
        }
        // SAFETY: four entries.
        let count = unsafe { libc::poll(entries.as_mut_ptr(), 4, 0) };
        seen.note("poll", (count, entries.map(|entry| entry.revents)));
        for pair in &pairs {
            drain(pair.b);
        }
    }
    pairs.into_iter().for_each(Pair::close);
}

fn poll_nothing(seen: &mut Seen) {
    let pair = Pair::used();
    seen.note("in vain", poll_bits(pair.a, POLLIN, 10));
    seen.note("nothing asked", poll_bits(pair.a, 0, 0));
    pair.close();
}

fn poll_stale(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        send(pair.a, b"x", 0);
        poll_bits(pair.b, POLLIN, 1000);
        let entry = |fd| libc::pollfd { fd, events: POLLIN, revents: 0x7F };
        let mut entries = [entry(-1), entry(pair.b), entry(pair.a), entry(-7)];
        // SAFETY: four entries.
        let count = unsafe { libc::poll(entries.as_mut_ptr(), 4, 0) };
        seen.note("poll", (count, entries.map(|entry| entry.revents)));
        pair.close();
    }
}

fn poll_closed(seen: &mut Seen) {
    let pair = Pair::used();
    close(pair.a);
    seen.note("poll", poll_bits(pair.a, POLLIN, 0));
    close(pair.b);
}

fn select_of(fds: &[i32], milliseconds: i64) -> (i32, Vec<(bool, bool)>) {
    // SAFETY: sets of our own; all descriptors here are small.
    unsafe {
        let (mut read, mut write): (libc::fd_set, libc::fd_set) = std::mem::zeroed();
        for &fd in fds {
            libc::FD_SET(fd, &mut read);
            libc::FD_SET(fd, &mut write);
        }
        let mut limit = libc::timeval { tv_sec: 0, tv_usec: milliseconds * 1000 };
        let most = fds.iter().max().unwrap() + 1;
        let count = libc::select(most, &mut read, &mut write, std::ptr::null_mut(), &mut limit);
        (
            count,
            fds.iter().map(|&fd| (libc::FD_ISSET(fd, &read), libc::FD_ISSET(fd, &write))).collect(),
        )
    }
}

fn select_sets(seen: &mut Seen) {
    let (first, second) = (Pair::used(), Pair::fresh());
    seen.note("idle", select_of(&[first.a, second.a], 0));
    send(first.b, b"x", 0);
    poll_bits(first.a, POLLIN, 1000);
    seen.note("bytes", select_of(&[first.a, second.a], 1000));
    fill(first.a);
    seen.note("full", select_of(&[first.a, second.a], 1000));
    close(first.b);
    seen.note("ended", select_of(&[first.a, second.a], 1000));
    close(first.a);
    second.close();
}

fn select_in_vain(seen: &mut Seen) {
    let pair = Pair::used();
    // SAFETY: sets of our own.
    unsafe {
        let mut read: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(pair.a, &mut read);
        let mut limit = libc::timeval { tv_sec: 0, tv_usec: 5_000 };
        let null = std::ptr::null_mut();
        let count = libc::select(pair.a + 1, &mut read, null, null, &mut limit);
        seen.note("select", (count, libc::FD_ISSET(pair.a, &read), limit.tv_usec));
    }
    pair.close();
}

/// An epoll descriptor, and what is seen through it.
pub(crate) struct Watch(pub(crate) i32);

impl Watch {
    pub(crate) fn new() -> Self {
        // SAFETY: a number.
        Self(unsafe { libc::epoll_create1(0) })
    }

    pub(crate) fn change(&self, operation: i32, fd: i32, events: i32) -> isize {
        let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 + 1_000_000 };
        // SAFETY: one event.
        unsafe { libc::epoll_ctl(self.0, operation, fd, &mut event) as isize }
    }

    /// What is told, as the place of the descriptor in `fds` and the bits.
    pub(crate) fn wait(
        &self,
        fds: &[i32],
        most: usize,
        milliseconds: i32,
    ) -> Vec<(Option<usize>, String)> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; most];
        // SAFETY: room for this many.
        let count =
            unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), most as i32, milliseconds) };
        if count < 0 {
            return vec![(None, told(-1))];
        }
        let mut told: Vec<_> = events[..count as usize]
            .iter()
            .map(|event| {
                let word = event.u64;
                let place = fds.iter().position(|&fd| fd as u64 + 1_000_000 == word);
                (place, names(event.events))
            })
            .collect();
        told.sort();
        told
    }

    pub(crate) fn close(self) {
        close(self.0);
    }
}

fn level(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        seen.call("add", watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN));
        seen.note("idle", watch.wait(&fds, 4, 0));
        send(pair.a, b"abc", 0);
        seen.note("bytes", watch.wait(&fds, 4, 1000));
        seen.note("still", watch.wait(&fds, 4, 1000));
        recv(pair.b, &mut [0; 1], 0);
        seen.note("some left", watch.wait(&fds, 4, 1000));
        recv(pair.b, &mut [0; 8], 0);
        seen.note("none left", watch.wait(&fds, 4, 5));
        send(pair.a, b"abc", 0);
        seen.note("bytes", watch.wait(&fds, 4, 1000));
        watch.close();
        pair.close();
    }
}

fn edge(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN | libc::EPOLLET);
        seen.note("idle", watch.wait(&fds, 4, 0));
        for _ in 0..3 {
            send(pair.a, b"abc", 0);
            seen.note("bytes", watch.wait(&fds, 4, 1000));
            seen.note("not again", watch.wait(&fds, 4, 5));
            drain(pair.b);
        }
        seen.note("idle", watch.wait(&fds, 4, 5));
        watch.close();
        pair.close();
    }
}

fn edge_unread(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        send(pair.a, b"abc", 0);
        poll_bits(pair.b, POLLIN, 1000);
        watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN | libc::EPOLLET);
        seen.note("there before", watch.wait(&fds, 4, 1000));
        recv(pair.b, &mut [0; 1], 0);
        seen.note("some left", watch.wait(&fds, 4, 5));
        send(pair.a, b"d", 0);
        seen.note("more came", watch.wait(&fds, 4, 1000));
        watch.change(EPOLL_CTL_MOD, pair.b, libc::EPOLLIN | libc::EPOLLET);
        seen.note("asked anew", watch.wait(&fds, 4, 1000));
        watch.close();
        pair.close();
    }
}

fn edge_room(seen: &mut Seen) {
    let pair = Pair::used();
    let (watch, fds) = (Watch::new(), [pair.a]);
    watch.change(EPOLL_CTL_ADD, pair.a, libc::EPOLLOUT | libc::EPOLLIN | libc::EPOLLET);
    seen.note("room", watch.wait(&fds, 4, 1000));
    seen.note("not again", watch.wait(&fds, 4, 5));
    for _ in 0..3 {
        fill(pair.a);
        seen.note("full", watch.wait(&fds, 4, 5));
        drain(pair.b);
        seen.note("room", watch.wait(&fds, 4, 1000));
    }
    watch.close();
    pair.close();
}

fn once(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        let events = libc::EPOLLIN | libc::EPOLLONESHOT;
        watch.change(EPOLL_CTL_ADD, pair.b, events);
        for _ in 0..3 {
            send(pair.a, b"abc", 0);
            seen.note("bytes", watch.wait(&fds, 4, 1000));
            send(pair.a, b"abc", 0);
            seen.note("not again", watch.wait(&fds, 4, 5));
            seen.call("anew", watch.change(EPOLL_CTL_MOD, pair.b, events));
            seen.note("bytes", watch.wait(&fds, 4, 1000));
            drain(pair.b);
            watch.change(EPOLL_CTL_MOD, pair.b, events);
            seen.note("idle", watch.wait(&fds, 4, 5));
        }
        watch.close();
        pair.close();
    }
}

fn changed(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
        for _ in 0..20 {
            send(pair.a, b"request", 0);
            let told = watch.wait(&fds, 4, 1000);
            recv(pair.b, &mut [0; 16], 0);
            watch.change(EPOLL_CTL_MOD, pair.b, libc::EPOLLOUT);
            let writable = watch.wait(&fds, 4, 1000);
            send(pair.b, b"reply", 0);
            watch.change(EPOLL_CTL_MOD, pair.b, libc::EPOLLIN);
            recv(pair.a, &mut [0; 16], 0);
            seen.note("told", (told, writable));
        }
        seen.note("idle", watch.wait(&fds, 4, 5));
        watch.close();
        pair.close();
    }
}

fn changed_to_writing(seen: &mut Seen) {
    let pair = Pair::used();
    let (watch, fds) = (Watch::new(), [pair.a]);
    watch.change(EPOLL_CTL_ADD, pair.a, libc::EPOLLIN);
    fill(pair.a);
    watch.change(EPOLL_CTL_MOD, pair.a, libc::EPOLLIN | libc::EPOLLOUT);
    seen.note("full", watch.wait(&fds, 4, 5));
    let b = pair.b;
    let taker = later(move || {
        drain(b);
    });
    seen.note("room", watch.wait(&fds, 4, 10_000));
    taker.join().unwrap();
    watch.change(EPOLL_CTL_MOD, pair.a, libc::EPOLLIN);
    seen.note("idle", watch.wait(&fds, 4, 5));
    watch.close();
    pair.close();
}

fn taken_away(seen: &mut Seen) {
    let pair = Pair::used();
    let (watch, fds) = (Watch::new(), [pair.b]);
    watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
    send(pair.a, b"x", 0);
    seen.note("bytes", watch.wait(&fds, 4, 1000));
    seen.call("delete", watch.change(EPOLL_CTL_DEL, pair.b, 0));
    seen.note("gone", watch.wait(&fds, 4, 5));
    seen.call("again", watch.change(EPOLL_CTL_DEL, pair.b, 0));
    watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
    seen.note("back", watch.wait(&fds, 4, 1000));
    watch.close();
    pair.close();
}

fn two_sets(seen: &mut Seen) {
    let pair = Pair::used();
    let (first, second, fds) = (Watch::new(), Watch::new(), [pair.b]);
    first.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
    second.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
    for _ in 0..3 {
        send(pair.a, b"abc", 0);
        seen.note("first", first.wait(&fds, 4, 1000));
        seen.note("second", second.wait(&fds, 4, 1000));
        drain(pair.b);
        seen.note("none", (first.wait(&fds, 4, 5), second.wait(&fds, 4, 5)));
    }
    first.close();
    second.close();
    pair.close();
}

fn nested(seen: &mut Seen) {
    let pair = Pair::used();
    let (inner, outer) = (Watch::new(), Watch::new());
    inner.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
    outer.change(EPOLL_CTL_ADD, inner.0, libc::EPOLLIN);
    for _ in 0..3 {
        seen.note("idle", outer.wait(&[inner.0], 4, 5));
        send(pair.a, b"abc", 0);
        seen.note("outer", outer.wait(&[inner.0], 4, 1000));
        seen.note("inner", inner.wait(&[pair.b], 4, 1000));
        seen.note("poll", poll_bits(inner.0, POLLIN, 0));
        drain(pair.b);
        seen.note("inner", inner.wait(&[pair.b], 4, 5));
    }
    inner.close();
    outer.close();
    pair.close();
}

fn of_an_end(seen: &mut Seen) {
    for pair in [Pair::fresh(), Pair::used()] {
        let (watch, fds) = (Watch::new(), [pair.b]);
        watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN | libc::EPOLLRDHUP);
        send(pair.a, b"abc", 0);
        close(pair.a);
        poll_bits(pair.b, POLLRDHUP, 1000);
        seen.note("end", watch.wait(&fds, 4, 1000));
        drain(pair.b);
        seen.note("still", watch.wait(&fds, 4, 1000));
        watch.close();
        close(pair.b);
    }
}

fn of_a_closed_one(seen: &mut Seen) {
    let pair = Pair::used();
    let (watch, fds) = (Watch::new(), [pair.b]);
    watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
    send(pair.a, b"x", 0);
    seen.note("bytes", watch.wait(&fds, 4, 1000));
    close(pair.b);
    seen.note("none", watch.wait(&fds, 4, 5));
    let next = Pair::used();
    seen.call("add", watch.change(EPOLL_CTL_ADD, next.b, libc::EPOLLIN));
    send(next.a, b"x", 0);
    seen.note("bytes", watch.wait(&[next.b], 4, 1000));
    watch.close();
    close(pair.a);
    next.close();
}

fn refusals(seen: &mut Seen) {
    let pair = Pair::used();
    let watch = Watch::new();
    seen.call("mod before", watch.change(EPOLL_CTL_MOD, pair.a, libc::EPOLLIN));
    seen.call("del before", watch.change(EPOLL_CTL_DEL, pair.a, 0));
    seen.call("add", watch.change(EPOLL_CTL_ADD, pair.a, libc::EPOLLIN));
    seen.call("add twice", watch.change(EPOLL_CTL_ADD, pair.a, libc::EPOLLIN));
    seen.call("itself", watch.change(EPOLL_CTL_ADD, watch.0, libc::EPOLLIN));
    seen.call("nobody", watch.change(EPOLL_CTL_ADD, 9_999, libc::EPOLLIN));
    seen.call("nonsense", watch.change(77, pair.a, libc::EPOLLIN));
    seen.note("none wanted", watch.wait(&[], 0, 0));
    send(pair.b, b"x", 0);
    seen.note("still watched", watch.wait(&[pair.a], 4, 1000));
    watch.close();
    pair.close();
}

fn wakes(seen: &mut Seen) {
    for mode in [libc::EPOLLIN, libc::EPOLLIN | libc::EPOLLET] {
        for pair in [Pair::fresh(), Pair::used()] {
            let (watch, fds) = (Watch::new(), [pair.b]);
            watch.change(EPOLL_CTL_ADD, pair.b, mode);
            for _ in 0..4 {
                let a = pair.a;
                let sender = later(move || {
                    send(a, b"x", 0);
                });
                seen.note("told", watch.wait(&fds, 4, 10_000));
                drain(pair.b);
                sender.join().unwrap();
            }
            watch.close();
            pair.close();
        }
    }
}

fn before_used(seen: &mut Seen) {
    for mode in [libc::EPOLLIN, libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET] {
        let pair = Pair::fresh();
        let (watch, fds) = (Watch::new(), [pair.b]);
        watch.change(EPOLL_CTL_ADD, pair.b, mode);
        watch.wait(&fds, 4, 0);
        for _ in 0..10 {
            send(pair.a, b"request", 0);
            seen.note("told", watch.wait(&fds, 4, 1000));
            seen.note("drained", drain(pair.b));
            send(pair.b, b"reply", 0);
            recv(pair.a, &mut [0; 16], 0);
        }
        watch.close();
        pair.close();
    }
}

fn many(seen: &mut Seen) {
    let pairs: Vec<Pair> = (0..40).map(|_| Pair::used()).collect();
    let fds: Vec<i32> = pairs.iter().map(|pair| pair.b).collect();
    let watch = Watch::new();
    for &fd in &fds {
        watch.change(EPOLL_CTL_ADD, fd, libc::EPOLLIN);
    }
    for turn in 1..20 {
        let chosen = |at: &usize| (at * 7).is_multiple_of(turn);
        for at in (0..pairs.len()).filter(chosen) {
            send(pairs[at].a, b"x", 0);
            poll_bits(pairs[at].b, POLLIN, 1000);
        }
        seen.note("told", watch.wait(&fds, 64, 1000));
        for &fd in &fds {
            drain(fd);
        }
        seen.note("none", watch.wait(&fds, 64, 0));
    }
    watch.close();
    pairs.into_iter().for_each(Pair::close);
}

fn few_at_a_time(seen: &mut Seen) {
    let pairs: Vec<Pair> = (0..10).map(|_| Pair::used()).collect();
    let fds: Vec<i32> = pairs.iter().map(|pair| pair.b).collect();
    let watch = Watch::new();
    for pair in &pairs {
        watch.change(EPOLL_CTL_ADD, pair.b, libc::EPOLLIN);
        send(pair.a, b"x", 0);
        poll_bits(pair.b, POLLIN, 1000);
    }
    let mut told = std::collections::BTreeSet::new();
    for _ in 0..10 {
        told.extend(watch.wait(&fds, 3, 1000));
    }
    seen.note("all had their turn", told.len());
    watch.close();
    pairs.into_iter().for_each(Pair::close);
}
