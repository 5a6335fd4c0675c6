//! Sleeping and waking in every order of its steps: `RUSTFLAGS="--cfg loom" cargo test --release
//! -p landfall-socket-wakes --lib models`.
//!
//! One end with several threads, and its peer. What runs is what runs in earnest, over the words
//! of `loom`; the kernel is a count of bytes behind a mutex, whose level or edge ends a sleep. A
//! wake-up that is lost is a deadlock, which `loom` tells of. Who may sleep for a moment only
//! lets others go on and looks again.

mod world;

use std::process::Command;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use self::world::{LeftOut, Model, Set, Tcp};
use super::{End, certain_by_tcp, stops_watching, watches};

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
                model.peer_takes();
            } else {
                model.peer_puts();
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

#[test]
fn who_sleeps_by_a_shortcut_wakes() {
    check(Model::default, |model| {
        let reader = spawn(&model, |model| model.waits_by_shortcut_and_takes(&Mutex::default()));
        model.peer_puts();
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_by_a_shortcut_and_a_writer_in_poll_both_wake() {
    reader_and_writer(full, |model| model.waits_by_shortcut_and_takes(&Mutex::default()));
}

#[test]
fn a_reader_by_a_shortcut_and_one_without_both_wake() {
    two_readers(Model::receives, |model| model.waits_by_shortcut_and_takes(&Mutex::default()));
}

#[test]
fn who_sleeps_by_memory_wakes() {
    check(Model::default, |model| {
        let reader = spawn(&model, Model::receives_by_memory);
        model.peer_puts();
        reader.join().unwrap();
    });
}

#[test]
fn a_reader_by_memory_and_another_both_wake() {
    two_readers(Model::receives_by_memory, Model::receives_by_memory);
    two_readers(Model::receives_by_memory, Model::receives);
    two_readers(Model::receives_by_memory, Model::polls_and_takes);
}

#[test]
fn a_reader_by_memory_and_a_writer_in_poll_both_wake() {
    reader_and_writer(full, Model::receives_by_memory);
}

/// Two threads that wait on one set by a shortcut.
fn two_by_a_shortcut(without: LeftOut) {
    check_with(
        2,
        move || Model { without, ..Model::default() },
        |model| {
            let set = Arc::new(Mutex::new(Set::default()));
            let reader = |set: Arc<Mutex<Set>>| {
                spawn(&model, move |model| model.waits_by_shortcut_and_takes(&set))
            };
            let readers = [reader(Arc::clone(&set)), reader(set)];
            model.peer_puts();
            model.peer_puts();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        },
    );
}

#[test]
fn two_threads_on_one_set_with_a_shortcut_both_wake() {
    two_by_a_shortcut(LeftOut::default());
}

fn one_that_grows_idle(without: LeftOut) {
    check(
        move || Model { without, ..Model::default() },
        |model| {
            let reader = spawn(&model, Model::grows_idle_and_takes);
            model.peer_puts();
            reader.join().unwrap();
        },
    );
}

#[test]
fn who_gives_a_shortcut_up_wakes() {
    one_that_grows_idle(LeftOut::default());
}

/// The peer goes over to memory behind one byte by TCP, and rings for room at once; a reader
/// takes that byte while a writer waits.
fn goes_over(without: LeftOut) {
    let build = move || Model {
        sent: AtomicU64::new(1),
        tcp: Mutex::new(Tcp { queued: 1, real: 1, edge: true, shortcut: false, word: 0 }),
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
            let watch = watches(model, false, true, 0);
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
    ("one looks after a shortcut was given up", || {
        one_that_grows_idle(LeftOut { the_look: true, ..LeftOut::default() });
    }),
    ("the others on a set are told", || {
        two_by_a_shortcut(LeftOut { the_others: true, ..LeftOut::default() });
    }),
    ("all have to join a shortcut", || {
        let without = LeftOut { joining: true, ..LeftOut::default() };
        reader_and_writer(
            move || Model { without, ..full() },
            |model| {
                model.waits_by_shortcut_and_takes(&Mutex::default());
            },
        );
    }),
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
