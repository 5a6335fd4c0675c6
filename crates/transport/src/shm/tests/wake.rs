//! Sleeping and waking.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::memory::Piece;
use crate::shm::wake::{Doorbell, Ringer, Sleeper, WakeError};
use crate::wait::{Wait, until_ready};

fn bell() -> (Doorbell, Ringer) {
    let memory = Piece::private(8);
    let doorbell = Doorbell::create(&memory).unwrap();
    let ringer = Ringer::new(&memory, doorbell.fd().try_clone_to_owned().unwrap()).unwrap();
    (doorbell, ringer)
}

/// Far more than any of these takes: when it is over, the test has failed.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

#[test]
fn nothing_else_is_taken_for_a_doorbell() {
    let memory = Piece::private(8);
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(Ringer::new(&memory, file.into()), Err(WakeError::NoEvent)));
    let (doorbell, _) = bell();
    let event = doorbell.fd().as_fd().try_clone_to_owned().unwrap();
    assert!(matches!(Ringer::new(&Piece::private(0), event), Err(WakeError::Memory(_))));
}

/// What a peer hands over as the descriptor of its doorbell: with a word that says that
/// somebody sleeps, a counter as it likes, and a file that makes others wait.
#[test]
fn no_descriptor_of_a_peer_makes_who_rings_wait() {
    let full = u64::MAX - 1;
    for (flags, count) in [(0, 0), (0, full), (libc::EFD_SEMAPHORE, 0), (libc::EFD_SEMAPHORE, full)]
    {
        let memory = Piece::private(8);
        // SAFETY: takes two numbers, gives a descriptor or -1.
        let fd = unsafe { libc::eventfd(0, flags) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new and nobody else's.
        let mut event = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        event.write_all(&u64::to_ne_bytes(count)).unwrap();
        let theirs = event.try_clone().unwrap();
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let ringer = Ringer::new(&memory, event.into()).unwrap();
            for sleeps_at_the_event in [1, 1, 1] {
                memory.store(0, sleeps_at_the_event).unwrap();
                ringer.ring();
            }
            done.send(memory.load(0).unwrap()).unwrap();
        });
        let left = is_done.recv_timeout(Duration::from_secs(60));
        assert_eq!(left, Ok(0), "a counter of {count} makes it wait");
        drop(theirs);
    }
}

/// The peer takes all that there is, fills the counter, and has the file wait: what was
/// handed to it is its own to spoil, and nobody else's sleep.
#[test]
fn a_peer_that_spoils_its_doorbell_holds_nobody() {
    let sleeper = Sleeper::new().unwrap();
    let (doorbell, ringer) = bell();
    sleeper.add(&doorbell).unwrap();
    let mut event = std::fs::File::from(doorbell.fd().try_clone_to_owned().unwrap());
    // SAFETY: an open descriptor and two numbers.
    let done = unsafe { libc::fcntl(event.as_raw_fd(), libc::F_SETFL, 0) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    event.write_all(&u64::to_ne_bytes((1 << 63) - 1)).unwrap();
    sleeper.arm();
    ringer.ring();
    assert!(until_ready(&[sleeper.interest()], Duration::from_secs(60)).unwrap());
    sleeper.silence().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            stop.store(true, Ordering::Relaxed);
            sleeper.wake();
        });
        let ready = &mut || stop.load(Ordering::Relaxed);
        assert!(sleeper.sleep(Wait::Block, LONG, ready).unwrap());
    });
}

/// One thread sleeps at a word all the while; doorbells come and go beside it, threads of
/// its own process wake it, and it hears whatever there is.
#[test]
fn who_sleeps_at_a_word_is_woken_by_everybody() {
    const ROUNDS: u64 = 500;
    let sleeper = Sleeper::new().unwrap();
    let (first, ring_first) = bell();
    let mut name = sleeper.add(&first).unwrap();
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                let ask = || asked.store(round, Ordering::Release);
                let (second, ring_second) = bell();
                let mut guest = None;
                match round % 4 {
                    0 => {
                        ask();
                        ring_first.ring();
                    }
                    1 => {
                        ask();
                        sleeper.wake();
                    }
                    2 => {
                        guest = Some(sleeper.add(&second).unwrap());
                        ask();
                        ring_second.ring();
                    }
                    _ => {
                        sleeper.remove(name);
                        ask();
                        sleeper.wake();
                        name = sleeper.add(&first).unwrap();
                    }
                }
                while answered.load(Ordering::Acquire) != round {
                    thread::yield_now();
                }
                if let Some(guest) = guest {
                    sleeper.remove(guest);
                }
            }
        });
        for round in 1..=ROUNDS {
            let mut came = || asked.load(Ordering::Acquire) == round;
            assert!(sleeper.sleep(Wait::Block, LONG, &mut came).unwrap(), "round {round}");
            answered.store(round, Ordering::Release);
        }
    });
}

#[test]
fn every_ring_is_heard_by_whoever_sleeps() {
    // With one the thread sleeps at its word, with several at the descriptors of all.
    [1, 3].into_iter().for_each(every_ring_of_so_many_is_heard);
}

fn every_ring_of_so_many_is_heard(count: u64) {
    const ROUNDS: u64 = 2_000;
    let sleeper = Sleeper::new().unwrap();
    let bells: Vec<_> = (0..count).map(|_| bell()).collect();
    for (doorbell, _) in &bells {
        sleeper.add(doorbell).unwrap();
    }
    let (asked, answered) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                asked.store(round, Ordering::Relaxed);
                bells[(round % count) as usize].1.ring();
                while answered.load(Ordering::Acquire) != round {
                    thread::yield_now();
                }
            }
        });
        for round in 1..=ROUNDS {
            let wait = if round % 2 == 0 { Wait::Block } else { Wait::BALANCED };
            let came = sleeper.sleep(wait, LONG, &mut || asked.load(Ordering::Relaxed) == round);
            assert!(came.unwrap(), "round {round}");
            answered.store(round, Ordering::Release);
        }
    });
}

#[test]
fn several_threads_sleep_and_each_hears_its_own() {
    const ROUNDS: u64 = 300;
    let sleeper = Sleeper::new().unwrap();
    let (doorbell, ringer) = bell();
    sleeper.add(&doorbell).unwrap();
    let places: [AtomicU64; 4] = Default::default();
    thread::scope(|scope| {
        for place in &places {
            let sleeper = &sleeper;
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let mut ready = || place.load(Ordering::Relaxed) == 2 * round - 1;
                    assert!(sleeper.sleep(Wait::Block, LONG, &mut ready).unwrap());
                    place.store(2 * round, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=ROUNDS {
            for place in &places {
                place.store(2 * round - 1, Ordering::Relaxed);
                ringer.ring();
                while place.load(Ordering::Relaxed) != 2 * round {
                    thread::yield_now();
                }
            }
        }
    });
}

#[test]
fn a_sleep_ends_with_its_time_or_from_this_process() {
    let sleeper = Arc::new(Sleeper::new().unwrap());
    let over = sleeper.sleep(Wait::Block, Some(Duration::from_millis(1)), &mut || false);
    assert!(!over.unwrap());
    let over = sleeper.sleep(Wait::Spin, Some(Duration::from_millis(1)), &mut || false);
    assert!(!over.unwrap());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            stop.store(true, Ordering::Relaxed);
            sleeper.wake();
        });
        let ready = &mut || stop.load(Ordering::Relaxed);
        assert!(sleeper.sleep(Wait::Block, LONG, ready).unwrap());
    });
}

#[test]
fn a_doorbell_that_was_removed_is_silent_and_its_name_stale() {
    let sleeper = Sleeper::new().unwrap();
    let (first, first_ringer) = bell();
    let name = sleeper.add(&first).unwrap();
    sleeper.remove(name);
    let (second, second_ringer) = bell();
    sleeper.add(&second).unwrap();
    sleeper.remove(name); // a stale name removes nothing
    sleeper.arm();
    sleeper.silence().unwrap();
    sleeper.arm();
    first_ringer.ring();
    assert!(!until_ready(&[sleeper.interest()], Duration::ZERO).unwrap());
    second_ringer.ring();
    assert!(until_ready(&[sleeper.interest()], Duration::from_secs(60)).unwrap());
    sleeper.silence().unwrap();
    assert!(!until_ready(&[sleeper.interest()], Duration::ZERO).unwrap());
    second_ringer.ring(); // nobody announced a sleep since
    assert!(!until_ready(&[sleeper.interest()], Duration::ZERO).unwrap());
}
