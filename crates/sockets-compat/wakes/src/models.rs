//! Sleeping and waking in every order of its steps: `RUSTFLAGS="--cfg loom" cargo test --release
//! -p landfall-socket-wakes --lib models`.
//!
//! One end with several threads, and its peer. What runs is what runs in earnest, over the words
//! of `loom`; the kernel is a count of bytes behind a mutex, whose level or edge ends a sleep. A
//! wake-up that is lost is a deadlock, which `loom` tells of. Who may sleep for a moment only
//! lets others go on and looks again.

use std::process::Command;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use super::{
    End, RoomWatchers, RoomWish, Waiters, Watch, Wishes, certain_by_tcp, drop_rings, rings_may_go,
    sleeps_for_bytes, somebody_may_need_a_ring, stops_watching, watches,
};

/// What lies in TCP's queue of the end, all of it rings but for the first `real`.
#[derive(Default)]
struct Tcp {
    queued: usize,
    real: usize,
    /// Something came that `epoll` has not told of yet.
    edge: bool,
}

/// Rules that are left out, to see that the models miss them.
#[derive(Clone, Copy, Default)]
struct LeftOut {
    /// Sleepers do not look whether the lock is held.
    the_lock: bool,
    /// A ring goes without a new wish for room.
    the_wish_for_room: bool,
    /// All of TCP's queue is taken while its way is not known.
    measuring: bool,
}

/// One end of a connection, whose rings of bytes hold one byte each.
#[derive(Default)]
struct Model {
    put: AtomicU64,
    taken: AtomicU64,
    sent: AtomicU64,
    sent_taken: AtomicU64,
    wishes: Wishes,
    waiters: Waiters,
    room_wish: RoomWish,
    room_watchers: RoomWatchers,
    lock: AtomicU32,
    /// One more than the bytes that the peer sent by TCP, once it has gone over to memory.
    switched: AtomicU64,
    by_tcp: AtomicU64,
    tcp: Mutex<Tcp>,
    arrival: Condvar,
    without: LeftOut,
}

impl End for Model {
    fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn room_watchers(&self) -> &RoomWatchers {
        &self.room_watchers
    }

    fn has_bytes(&self) -> bool {
        self.put.load(Ordering::Acquire) != self.taken.load(Ordering::Acquire)
    }

    fn wants_room(&self) {
        self.room_wish.make(1);
    }

    fn has_room(&self) -> bool {
        self.sent.load(Ordering::Relaxed) == self.sent_taken.load(Ordering::Acquire)
    }

    fn is_sending_switched(&self) -> bool {
        !self.without.the_wish_for_room
    }

    fn is_being_received(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.without.the_lock && self.lock.load(Ordering::Relaxed) != 0
    }

    fn queued(&self) -> usize {
        self.tcp.lock().unwrap().queued
    }

    fn discard(&self, bytes: usize) {
        self.tcp.lock().unwrap().queued -= bytes;
    }
}

/// The lock of the half that receives.
struct Held<'a>(&'a Model);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}

// What the peer does.
impl Model {
    fn ring(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        tcp.queued += 1;
        tcp.edge = true;
        self.arrival.notify_all();
    }

    fn peer_puts(&self) {
        self.put.fetch_add(1, Ordering::Release);
        if self.wishes.fulfil() {
            self.ring();
        }
    }

    fn peer_takes(&self) {
        self.sent_taken.fetch_add(1, Ordering::Release);
        if self.room_wish.fulfil(|| true) != 0 {
            self.ring();
        }
    }
}

// What the threads of the end do, as the preload does it.
impl Model {
    fn holds_at_once(&self) -> Option<Held<'_>> {
        let taken = self.lock.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        taken.is_ok().then(|| Held(self))
    }

    fn holds(&self) -> Held<'_> {
        loop {
            if let Some(held) = self.holds_at_once() {
                return held;
            }
            thread::yield_now();
        }
    }

    fn is_ready(&self, bytes: bool, room: bool) -> bool {
        bytes && self.has_bytes() || room && self.has_room()
    }

    /// `transfer::silence`.
    fn silence(&self, held: bool) {
        let mut has_tried = false;
        loop {
            let keeps = !held || somebody_may_need_a_ring(self);
            let queued = self.queued();
            if queued == 0 {
                return;
            }
            if !keeps {
                self.discard(queued);
            } else if !held || has_tried || !rings_may_go(self) {
                return;
            } else {
                drop_rings(self);
                has_tried = true;
            }
        }
    }

    /// `readiness::takes_rings_away`.
    fn takes_rings_away_for_room(&self) -> bool {
        let Some(_held) = self.holds_at_once() else { return false };
        let may = !somebody_may_need_a_ring(self);
        if may {
            self.silence(true);
        }
        may
    }

    /// `Shared::take_rings_away`.
    fn takes_rings_away(&self) {
        if let Some(_held) = self.holds_at_once()
            && rings_may_go(self)
        {
            drop_rings(self);
        }
    }

    /// The kernel would end each sleep at once.
    fn keeps_a_ring_for_another(&self) -> bool {
        self.waiters.count() > 1 && self.queued() > 0
    }

    fn sleeps_by_level(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        while tcp.queued == 0 {
            tcp = self.arrival.wait(tcp).unwrap();
        }
    }

    fn sleeps_by_edge(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        while !tcp.edge || tcp.queued == 0 {
            // Told of, but taken away meanwhile: that is no event.
            tcp.edge = false;
            tcp = self.arrival.wait(tcp).unwrap();
        }
        tcp.edge = false;
    }

    /// `poll` and `select`.
    fn polls(&self, bytes: bool, room: bool) {
        loop {
            if self.is_ready(bytes, room) {
                return;
            }
            let held = self.holds_at_once();
            self.silence(held.is_some());
            drop(held);
            let is_short = room && !bytes && !self.takes_rings_away_for_room();
            let watch = watches(self, bytes, room);
            let is_blind = !is_short && self.keeps_a_ring_for_another();
            if self.is_ready(bytes, room) {
                stops_watching(self, watch);
                return;
            }
            if is_short || is_blind || !watch.is_sure {
                thread::yield_now();
            } else {
                self.sleeps_by_level();
            }
            stops_watching(self, watch);
        }
    }

    /// Takes a byte if there is one; `transfer::receive_now`.
    fn takes(&self) -> bool {
        let _held = self.holds();
        if !self.has_bytes() {
            self.silence(true);
            return false;
        }
        self.taken.fetch_add(1, Ordering::Release);
        if rings_may_go(self) {
            drop_rings(self);
        }
        true
    }

    /// `recv` that waits.
    fn receives(&self) {
        while !self.takes() {
            let sleep = |is_sure: bool| {
                if is_sure && !self.keeps_a_ring_for_another() {
                    self.sleeps_by_level();
                } else {
                    thread::yield_now();
                }
            };
            if let (_, true) = sleeps_for_bytes(self, sleep) {
                self.takes_rings_away();
            }
        }
    }

    /// The same as it was: the lock is looked at after memory.
    fn receives_in_the_old_order(&self) {
        loop {
            self.waiters.adds_sleeper();
            let wish = self.wishes.make();
            if !self.has_bytes() {
                if self.is_being_received() || self.keeps_a_ring_for_another() {
                    thread::yield_now();
                } else {
                    self.sleeps_by_level();
                }
            }
            self.wishes.take_back(wish);
            if self.waiters.loses_sleeper() {
                self.takes_rings_away();
            }
            if self.takes() {
                return;
            }
        }
    }

    /// Waits in `poll` for a byte, and takes it.
    fn polls_and_takes(&self) {
        loop {
            self.polls(true, false);
            if self.takes() {
                return;
            }
        }
    }
}

/// A set of `epoll` with one entry, which several threads wait on.
#[derive(Default)]
struct Set {
    asleep: u32,
    watch: Option<Watch>,
}

impl Model {
    fn disarms(&self, set: &mut Set) {
        if let Some(watch) = set.watch.take() {
            stops_watching(self, watch);
        }
    }

    /// Waits on the set for a byte, and takes it. Who `arms_late` lets go of the watch of others
    /// before it has one of its own.
    fn waits_and_takes(&self, set: &Mutex<Set>, by_edge: bool, arms_late: bool) {
        loop {
            let is_sure = {
                let mut set = set.lock().unwrap();
                set.asleep += 1;
                if arms_late {
                    self.disarms(&mut set);
                }
                let watch = watches(self, true, false);
                self.disarms(&mut set);
                set.watch = Some(watch);
                watch.is_sure && !self.keeps_a_ring_for_another()
            };
            if !self.has_bytes() {
                match (is_sure, by_edge) {
                    (false, _) => thread::yield_now(),
                    (true, false) => self.sleeps_by_level(),
                    (true, true) => self.sleeps_by_edge(),
                }
            }
            {
                let mut set = set.lock().unwrap();
                set.asleep -= 1;
                if set.asleep == 0 {
                    self.disarms(&mut set);
                }
            }
            self.takes_rings_away();
            if self.has_bytes() && self.takes() {
                return;
            }
        }
    }
}

fn check(
    build: impl Fn() -> Model + Sync + Send + 'static,
    run: impl Fn(Arc<Model>) + Sync + Send + 'static,
) {
    check_with(3, build, run);
}

/// `preemptions`: how often a thread stops that could go on.
fn check_with(
    preemptions: usize,
    build: impl Fn() -> Model + Sync + Send + 'static,
    run: impl Fn(Arc<Model>) + Sync + Send + 'static,
) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 4_000;
    builder.check(move || run(Arc::new(build())));
}

fn spawn(model: &Arc<Model>, job: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || job(&model))
}

/// An end whose outgoing ring is full.
fn full() -> Model {
    Model { sent: AtomicU64::new(1), ..Model::default() }
}

/// One thread reads and one writes, as `reads` and `poll` do it; the peer makes room first, or
/// has something to say first.
fn reader_and_writer(build: impl Fn() -> Model + Sync + Send + Copy + 'static, reads: fn(&Model)) {
    for takes_first in [true, false] {
        check(build, move |model| {
            let reader = spawn(&model, reads);
            let writer = spawn(&model, |model| model.polls(false, true));
            if takes_first {
                model.peer_takes();
                model.peer_puts();
            } else {
                model.peer_puts();
                model.peer_takes();
            }
            reader.join().unwrap();
            writer.join().unwrap();
        });
    }
}

#[test]
fn a_reader_and_a_writer_in_poll_both_wake() {
    reader_and_writer(full, Model::polls_and_takes);
}

#[test]
fn a_blocked_reader_and_a_writer_in_poll_both_wake() {
    reader_and_writer(full, Model::receives);
}

#[test]
fn a_reader_in_epoll_by_level_and_a_writer_in_poll_both_wake() {
    reader_and_writer(full, |model| model.waits_and_takes(&Mutex::default(), false, false));
}

#[test]
fn a_reader_in_epoll_by_edge_and_a_writer_in_poll_both_wake() {
    reader_and_writer(full, |model| model.waits_and_takes(&Mutex::default(), true, false));
}

#[test]
fn one_thread_that_waits_for_bytes_and_room_wakes_for_either() {
    for takes in [true, false] {
        check(full, move |model| {
            let waiter = spawn(&model, |model| model.polls(true, true));
            if takes {
                model.peer_takes()
            } else {
                model.peer_puts()
            }
            waiter.join().unwrap();
        });
    }
}

/// A thread falls asleep while another takes rings away.
fn a_reader_beside_one_who_drops(reads: fn(&Model)) {
    check_with(4, Model::default, move |model| {
        let reader = spawn(&model, reads);
        let other = spawn(&model, |model| {
            model.takes_rings_away_for_room();
        });
        model.peer_puts();
        reader.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn who_falls_asleep_while_rings_are_taken_away_wakes() {
    a_reader_beside_one_who_drops(Model::receives);
    a_reader_beside_one_who_drops(Model::polls_and_takes);
}

/// Two threads that each want a byte.
fn two_readers(one: fn(&Model), other: fn(&Model)) {
    check_with(2, Model::default, move |model| {
        let readers = [spawn(&model, one), spawn(&model, other)];
        model.peer_puts();
        model.peer_puts();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_blocked_reader_and_one_in_poll_both_wake() {
    two_readers(Model::receives, Model::polls_and_takes);
}

#[test]
fn two_blocked_readers_or_two_in_poll_both_wake() {
    two_readers(Model::receives, Model::receives);
    two_readers(Model::polls_and_takes, Model::polls_and_takes);
}

#[test]
fn a_blocked_reader_and_one_in_epoll_both_wake() {
    two_readers(Model::receives, |model| model.waits_and_takes(&Mutex::default(), false, false));
    two_readers(Model::receives, |model| model.waits_and_takes(&Mutex::default(), true, false));
}

/// Two threads that wait on one set by level.
fn two_on_a_set(arms_late: bool) {
    check(Model::default, move |model| {
        let set = Arc::new(Mutex::new(Set::default()));
        let reader = |set: Arc<Mutex<Set>>| {
            spawn(&model, move |model| model.waits_and_takes(&set, false, arms_late))
        };
        let readers = [reader(Arc::clone(&set)), reader(set)];
        model.peer_puts();
        model.peer_puts();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn two_threads_on_one_set_by_level_both_wake() {
    two_on_a_set(false);
}

/// The peer goes over to memory behind one byte by TCP, and rings for room at once; a reader
/// takes that byte while a writer waits.
fn goes_over(without: LeftOut) {
    let build = move || Model {
        sent: AtomicU64::new(1),
        tcp: Mutex::new(Tcp { queued: 1, real: 1, edge: true }),
        without,
        ..Model::default()
    };
    check(build, |model| {
        let reader = spawn(&model, |model| {
            let _held = model.holds();
            let switched_after = || model.switched.load(Ordering::SeqCst).checked_sub(1);
            let most = if model.without.measuring {
                switched_after().unwrap_or(u64::MAX)
            } else {
                certain_by_tcp(0, || model.queued(), switched_after).unwrap()
            };
            let mut tcp = model.tcp.lock().unwrap();
            let taken = tcp.queued.min(usize::try_from(most).unwrap_or(usize::MAX));
            tcp.queued -= taken;
            tcp.real -= 1;
            model.by_tcp.store(1, Ordering::Relaxed);
        });
        let writer = spawn(&model, |model| {
            // While bytes of the program may lie in TCP's queue, `poll` looks by itself.
            while model.switched.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            let watch = watches(model, false, true);
            if !model.has_room() {
                if watch.is_sure { model.sleeps_by_room() } else { thread::yield_now() }
            }
            stops_watching(model, watch);
        });
        model.switched.store(2, Ordering::SeqCst);
        model.peer_takes();
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

impl Model {
    /// Until a ring lies behind what is the program's.
    fn sleeps_by_room(&self) {
        let mut tcp = self.tcp.lock().unwrap();
        while tcp.queued == tcp.real {
            tcp = self.arrival.wait(tcp).unwrap();
        }
    }
}

#[test]
fn a_ring_behind_the_last_bytes_by_tcp_is_left_for_others() {
    goes_over(LeftOut::default());
}

/// Rules, each with a model that runs without it.
const LEFT_OUT: &[(&str, fn())] = &[
    ("TCP's queue is measured", || goes_over(LeftOut { measuring: true, ..LeftOut::default() })),
    ("the lock is looked at", || {
        let without = LeftOut { the_lock: true, ..LeftOut::default() };
        reader_and_writer(move || Model { without, ..full() }, Model::polls_and_takes);
    }),
    ("a new wish for room is made", || {
        let without = LeftOut { the_wish_for_room: true, ..LeftOut::default() };
        reader_and_writer(move || Model { without, ..full() }, Model::polls_and_takes);
    }),
    ("the last look is the last", || {
        a_reader_beside_one_who_drops(Model::receives_in_the_old_order);
    }),
    ("one watch begins before the other ends", || two_on_a_set(true)),
];

/// The models see what is left out. A deadlock of `loom`'s ends the program, so each runs in one
/// of its own.
#[test]
fn each_rule_that_is_left_out_loses_a_wake() {
    const VARIABLE: &str = "LANDFALL_LEFT_OUT";
    if let Ok(left_out) = std::env::var(VARIABLE) {
        return LEFT_OUT.iter().filter(|(rule, _)| *rule == left_out).for_each(|(_, run)| run());
    }
    for (rule, _) in LEFT_OUT {
        let program = std::env::current_exe().unwrap();
        let this = "models::each_rule_that_is_left_out_loses_a_wake";
        let run =
            Command::new(program).args(["--exact", this]).env(VARIABLE, rule).output().unwrap();
        let said = [run.stderr, run.stdout].concat();
        assert!(
            !run.status.success() && String::from_utf8_lossy(&said).contains("deadlock"),
            "{rule}"
        );
    }
}
