//! Queue pairs between two processes, of which one is killed.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use landfall::clan::shared::SharedNode;
use landfall::clan::{Error, Rights};
use landfall::verbs::clan::{
    CompletionQueue, MemoryKey, Part, QueuePair, QueuePairOptions, Region,
};
use landfall::verbs::{
    AtomicRequest, Completion, CompletionQueue as _, Operation, Phase, PostError, QueuePair as _,
    RdmaQueuePair as _, ReceiveRequest, SendRequest, Status, WordFunction,
};
use landfall_testkit::TemporaryFolder;

use super::memory::rdma;
use super::{next, noise};
use crate::clan::other::Other;
use crate::support::PATIENCE;

const FOLDER: &str = "LANDFALL_TEST_VERBS_FOLDER";

/// How many requests each of both queues has under way.
const DEPTH: u64 = 8;
/// Long enough for a kill in the middle of one.
const LEN: u64 = 40_000;

/// One process, which does all that it can with the other.
struct End {
    done: CompletionQueue,
    pair: QueuePair<SharedNode>,
    out: Region<SharedNode>,
    /// Rooms lie in every other piece of it: nobody writes between them.
    room: Region<SharedNode>,
    shared: Region<SharedNode>,
    key: MemoryKey,
    sends: VecDeque<u64>,
    receives: VecDeque<u64>,
    next: u64,
}

impl End {
    /// Meets the other process by a name in the folder, and exchanges keys by messages.
    fn meet(folder: &Path, offers: bool) -> Self {
        let node = crate::clan::other::node_at(folder);
        let mut done = CompletionQueue::new(64).unwrap();
        let half = QueuePair::open(&node, &done, &done, &QueuePairOptions::default()).unwrap();
        let deadline = Some(Instant::now() + PATIENCE);
        let mut pair = if offers {
            let offer = node.offer("pairs").unwrap();
            half.accept(offer.accept(deadline).unwrap()).unwrap()
        } else {
            half.join(&node.find("pairs", deadline).unwrap(), deadline).unwrap()
        };
        let region = |len| Region::new(&node, len, Rights::ReadWrite).unwrap();
        let (out, room, shared) = (region(LEN), region(2 * DEPTH * LEN), region(LEN));
        pair.post_inline(0, &pair.share(&shared).unwrap().to_bytes(), None).unwrap();
        let into = [room.part(0..64).unwrap()];
        pair.post_receive(&ReceiveRequest { id: 0, into: &into }).unwrap();
        for _ in 0..2 {
            assert_eq!(next(&mut done).status, Status::Success);
        }
        let mut key = [0; MemoryKey::LEN];
        room.copy_out(0, &mut key).unwrap();
        room.copy_in(0, &[0; 64]).unwrap();
        let key = MemoryKey::from_bytes(&key).unwrap();
        let (sends, receives) = (VecDeque::new(), VecDeque::new());
        Self { done, pair, out, room, shared, key, sends, receives, next: 1 }
    }

    fn part(&self, nth: u64) -> Part<SharedNode> {
        self.room.part(2 * nth * LEN..(2 * nth + 1) * LEN).unwrap()
    }

    /// Posts what is missing. An error: it is over.
    fn post(&mut self) -> Result<(), PostError> {
        while (self.receives.len() as u64) < DEPTH {
            let id = self.next;
            let into = [self.part(id % DEPTH)];
            self.pair.post_receive(&ReceiveRequest { id, into: &into })?;
            self.receives.push_back(id);
            self.next += 1;
        }
        while (self.sends.len() as u64) < DEPTH {
            let (id, key) = (self.next, self.key);
            let local = [self.out.whole()];
            let (into, function) = (self.out.part(0..8).unwrap(), WordFunction::Add(1));
            let count = AtomicRequest { id, into, key, at: 8, function, is_signaled: true };
            match id % 5 {
                0 => self.pair.post_write(&rdma(id, &local, key, 0))?,
                1 => self.pair.post_read(&rdma(id, &local, key, 0))?,
                2 => self.pair.post_atomic(&count)?,
                _ => self.pair.post_send(&SendRequest::new(id, &local))?,
            }
            self.sends.push_back(id);
            self.next += 1;
        }
        Ok(())
    }

    /// Each request completes once, in the order of its queue.
    fn check(&mut self, done: &Completion) {
        let posted = match done.operation {
            Operation::Send => self.sends.pop_front(),
            Operation::Receive => self.receives.pop_front(),
        };
        assert_eq!(posted, Some(done.id), "{done:?}");
    }

    /// Goes on until it is over; `step` is called for each completion.
    fn run(&mut self, mut step: impl FnMut(u64)) {
        let began = Instant::now();
        let mut count = 0;
        while self.post().is_ok() {
            step(count);
            if let Some(done) = self.done.wait_for(Duration::from_millis(50)).unwrap() {
                self.check(&done);
                count += 1;
            }
            assert!(began.elapsed() < PATIENCE, "it is never over");
        }
        // Nothing is left out, and nothing comes twice.
        while !(self.sends.is_empty() && self.receives.is_empty()) {
            let done = next(&mut self.done);
            self.check(&done);
        }
        assert!(self.done.poll().is_none());
        assert!(matches!(self.pair.phase(), Phase::Closed(_)));
    }
}

#[test]
fn a_process_that_is_killed_at_any_step_fails_what_is_posted() {
    for kill_after in [0, 1, 2, 3, 5, 8, 30, 200, 1_000] {
        for stops_first in [false, true] {
            let folder = TemporaryFolder::new("verbs");
            let mut other = Other::start("verbs::processes::another_process", |command| {
                command.env(FOLDER, folder.path());
            });
            let mut here = End::meet(folder.path(), true);
            here.out.copy_in(0, &noise(1, LEN as usize)).unwrap();
            let mut is_killed = false;
            here.run(|count| {
                if count >= kill_after && !is_killed {
                    is_killed = true;
                    if stops_first {
                        // Anywhere, be it in the middle of a message.
                        other.stop();
                    }
                    other.kill();
                }
            });
            for nth in 0..DEPTH {
                let mut between = vec![0; LEN as usize];
                here.room.copy_out((2 * nth + 1) * LEN, &mut between).unwrap();
                assert!(between.iter().all(|byte| *byte == 0), "behind room {nth}");
            }
            drop(here.shared);
        }
    }
}

/// One that sleeps while the other is killed wakes.
#[test]
fn a_process_that_is_killed_wakes_who_sleeps() {
    let folder = TemporaryFolder::new("verbs");
    let mut other = Other::start("verbs::processes::another_process", |command| {
        command.env(FOLDER, folder.path());
    });
    let mut here = End::meet(folder.path(), true);
    // It fills all of these, and then there is no room for it.
    while here.done.wait_for(Duration::from_millis(200)).unwrap().is_some() {}
    let into = [here.part(0)];
    here.pair.post_receive(&ReceiveRequest { id: 7, into: &into }).unwrap();
    while here.done.wait_for(Duration::from_millis(200)).unwrap().is_some() {}
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.kill();
        other
    });
    let began = Instant::now();
    while !matches!(here.pair.phase(), Phase::Closed(_)) {
        assert!(began.elapsed() < PATIENCE, "it does not wake");
        if here.done.arm(landfall::verbs::Arm::Next) {
            assert!(super::sleep_at(&here.done, PATIENCE), "it was not woken");
        }
        while here.done.poll().is_some() {}
    }
    drop(killer.join().unwrap());
}

/// The process that is killed, when a test starts it.
#[test]
fn another_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut there = End::meet(&folder, false);
    there.run(|_| {});
}

/// One who has found the name for something else is refused.
#[test]
fn a_name_of_queue_pairs_is_none_of_queues() {
    let folder = TemporaryFolder::new("verbs");
    let [here, there] = [(); 2].map(|()| crate::clan::other::node_at(folder.path()));
    let deadline = Some(Instant::now() + PATIENCE);
    let offer = here.offer("pairs").unwrap();
    let asking =
        std::thread::spawn(move || there.find("pairs", deadline).unwrap().ask(b"?", deadline));
    let done = CompletionQueue::new(64).unwrap();
    let half = QueuePair::open(&here, &done, &done, &QueuePairOptions::default()).unwrap();
    let refused = half.accept(offer.accept(deadline).unwrap());
    assert!(matches!(refused, Err(Error::BadConfig(_))), "{refused:?}");
    assert!(matches!(asking.join().unwrap(), Err(Error::Refused(_))));
}
