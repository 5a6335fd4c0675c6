//! `kill -9` of a process at random moments, a thousand times: the other one never
//! hangs, never reads what is not whole, and has everything back afterwards.
//!
//! The child is this program itself, started again for one test that does nothing
//! unless it finds where to connect in its environment.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use arrayvec::ArrayVec;
use landfall_testkit::TemporaryFolder;
use landfall_transport::memory::{Piece, SharedMemory, SharedView};
use landfall_transport::shm::rendezvous::{Admit, Channel, Listener};
use landfall_transport::shm::ring::{Consumer, Producer, PushError, Records};
use landfall_transport::shm::wake::{Doorbell, Ringer, Sleeper};
use landfall_transport::shm::watched::{Hits, Reporter, Touch, WatchUpdate, Watched, Writer};
use landfall_transport::wait::until_ready;

/// Where the child connects.
const MEET: &str = "LANDFALL_SHM_KILL";
/// What the parent says in the name of a message: what the child shall do.
const WRITE: u16 = 1;
const READ: u16 = 2;

/// More than a round takes, by far: when it is over, somebody hangs.
const LONG: Duration = Duration::from_secs(60);

const WORDS: usize = 8;
/// Memory that the child writes: a counter of the child, one of the parent, and slots
/// that are filled before the first and given back by the second.
const DONE: u64 = 0;
const BACK: u64 = 64;
const SLOTS: u64 = 128;
const SLOT: u64 = 512;
const COUNT: u64 = 4;

fn layout() -> Records {
    Records::new(8 * WORDS as u32, 64).unwrap()
}

/// A record that shows whether it is whole, and which it is.
fn record(serial: u64) -> [u8; 8 * WORDS] {
    let mut bytes = [0; 8 * WORDS];
    for (index, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mixed = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(index as u32);
        *word = (if index == 0 { serial } else { mixed }).to_ne_bytes();
    }
    bytes
}

/// Moments that differ from round to round, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A child that does not outlive its test.
struct Victim(Child);

impl Victim {
    fn start(meet: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "shm_kill::the_child", "--nocapture", "--test-threads=1"]);
        command.env(MEET, meet).stdin(Stdio::null()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// `kill -9`.
    fn kill(&mut self) {
        self.0.kill().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the parent has for one child.
struct Round {
    channel: Channel,
    ring: Piece,
    watched: Watched,
    hits: Hits,
    /// For the ring: the hits have one of their own.
    doorbell: Doorbell,
    sleeper: Sleeper,
}

impl Round {
    fn begin(listener: &Listener, what: u16) -> Self {
        let channel = listener.accept(LONG).unwrap().expect("the child connects");
        let ring = SharedMemory::create("ring", layout().memory_len() + 8).unwrap();
        let bell_at = layout().memory_len();
        let watched = Watched::create("watched", SLOTS + COUNT * SLOT, 4).unwrap();
        let hits = Hits::create().unwrap();
        let whole = Piece::whole(&ring);
        let doorbell = Doorbell::create(&whole.part(bell_at..bell_at + 8).unwrap()).unwrap();
        let sleeper = Sleeper::new().unwrap();
        sleeper.add(&doorbell).unwrap();
        sleeper.add(hits.doorbell()).unwrap();
        let fds: [BorrowedFd<'_>; 6] = [
            ring.fd(),
            doorbell.fd(),
            watched.data().fd(),
            watched.filter_fd(),
            hits.memory().fd(),
            hits.doorbell().fd(),
        ];
        channel.send(what, &[], &fds).unwrap();
        Self { channel, ring: whole, watched, hits, doorbell, sleeper }
    }

    /// Sleeps until something is there, or the child is gone.
    fn sleep(&self, is_idle: impl FnOnce() -> bool) {
        self.sleeper.arm();
        if is_idle() && !self.channel.is_gone() {
            let mut interests: ArrayVec<_, 3> = self.channel.interests().collect();
            interests.push(self.sleeper.interest());
            assert!(until_ready(&interests, LONG).unwrap(), "it hangs");
        }
        self.sleeper.silence().unwrap();
    }

    /// Looks at what the child has done in watched memory; gives how much that is.
    fn look(&mut self, seen: u64) -> u64 {
        let memory = self.watched.memory();
        let done = memory.load(DONE).unwrap();
        assert!(done >= seen && done - seen <= COUNT, "{seen} and then {done}");
        for serial in seen..done {
            let mut slot = [0; SLOT as usize];
            memory.copy_out(SLOTS + serial % COUNT * SLOT, &mut slot).unwrap();
            assert_eq!(slot, [serial as u8; SLOT as usize], "slot {serial} is not whole");
        }
        memory.store(BACK, done).unwrap();
        while let Some(news) = self.hits.poll().unwrap() {
            if let WatchUpdate::Hit(hit) = news {
                assert!(self.watched.contains(&hit) && hit.tag == 9, "{hit:?}");
            }
        }
        done
    }
}

#[test]
fn who_reads_never_hangs_and_never_reads_garbage() {
    const ROUNDS: u64 = 500;
    let folder = TemporaryFolder::new("kill-writer");
    let listener = Listener::bind(&folder.join("meet"), Admit::SameUser).unwrap();
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut total = 0;
    for _ in 0..ROUNDS {
        let mut victim = Victim::start(listener.path());
        let mut round = Round::begin(&listener, WRITE);
        let mut consumer = Consumer::new(&round.ring, layout()).unwrap();
        // Some die before the first word.
        let mut until = dice.below(4) * dice.below(2_000);
        let (mut next, mut seen, mut into) = (0, 0, [0; 8 * WORDS]);
        loop {
            if next + seen >= until {
                victim.kill();
                until = u64::MAX;
            }
            // Before the look: what it did before its end is there then.
            let is_gone = round.channel.is_gone();
            let before = (next, seen);
            while consumer.pop(&mut into).unwrap() {
                assert_eq!(into, record(next), "record {next} is not whole");
                next += 1;
            }
            seen = round.look(seen);
            if is_gone {
                break;
            }
            if before == (next, seen) {
                let armed = round.watched.arm(DONE..DONE + 8, Touch::Write).unwrap();
                let memory = round.watched.memory().clone();
                round.sleep(|| consumer.is_empty().unwrap() && memory.load(DONE).unwrap() == seen);
                round.watched.disarm(armed);
            }
        }
        total += next + seen;
    }
    assert!(total > 0, "no child ever wrote");
}

#[test]
fn who_writes_never_hangs_and_never_believes_garbage() {
    const ROUNDS: u64 = 500;
    let folder = TemporaryFolder::new("kill-reader");
    let listener = Listener::bind(&folder.join("meet"), Admit::SameUser).unwrap();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut total = 0;
    for _ in 0..ROUNDS {
        let mut victim = Victim::start(listener.path());
        let round = Round::begin(&listener, READ);
        let mut producer = Producer::new(&round.ring, layout()).unwrap();
        let mut until = dice.below(4) * dice.below(2_000);
        let mut next = 0;
        loop {
            if next >= until {
                victim.kill();
                until = u64::MAX;
            }
            let is_gone = round.channel.is_gone();
            match producer.push(&record(next)) {
                Ok(()) => next += 1,
                Err(PushError::Full) if is_gone => break,
                Err(PushError::Full) => round.sleep(|| producer.room().unwrap() == 0),
                Err(error) => panic!("{error}"),
            }
            if next % 5 == 0 {
                producer.publish();
            }
        }
        assert!(producer.room().unwrap() <= layout().capacity());
        // The doorbell of who is gone can be taken down as any.
        drop(round.doorbell);
        total += next;
    }
    assert!(total > ROUNDS * layout().capacity(), "no child ever read");
}

/// Not a test but a process: what it finds in its environment it is made for.
#[test]
fn the_child() {
    let Some(meet) = std::env::var_os(MEET) else { return };
    let channel = Channel::connect(Path::new(&meet), &Admit::SameUser).unwrap();
    let message = channel.receive(LONG).unwrap().unwrap();
    let fds: [OwnedFd; 6] =
        message.fds.into_iter().collect::<ArrayVec<_, 6>>().into_inner().unwrap();
    let [ring, bell, data, filter, hits, hits_bell] = fds;
    let ring = Piece::whole(&SharedMemory::from_fd(ring).unwrap());
    let bell_at = layout().memory_len();
    let ringer = Ringer::new(&ring.part(bell_at..bell_at + 8).unwrap(), bell).unwrap();
    if message.kind == READ {
        read_for_ever(&channel, &ring, &ringer);
    } else {
        let data = SharedMemory::from_fd(data).unwrap();
        let filter = SharedView::from_fd(filter).unwrap();
        let hits = SharedMemory::from_fd(hits).unwrap();
        let reporter = Reporter::new(&hits, hits_bell).unwrap();
        let writer = Writer::new(&data, &filter, 9, reporter.into()).unwrap();
        write_for_ever(&channel, &ring, &ringer, writer);
    }
}

fn write_for_ever(channel: &Channel, ring: &Piece, ringer: &Ringer, mut writer: Writer) {
    let mut producer = Producer::new(ring, layout()).unwrap();
    let (mut next, mut done) = (0, 0);
    loop {
        let mut is_stuck = true;
        if producer.push(&record(next)).is_ok() {
            next += 1;
            is_stuck = false;
        }
        if next % 7 == 0 || is_stuck {
            producer.publish();
            ringer.ring();
        }
        let mut back = [0; 8];
        writer.read(BACK, &mut back).unwrap();
        if done - u64::from_ne_bytes(back) < COUNT {
            writer.write(SLOTS + done % COUNT * SLOT, &[done as u8; SLOT as usize]).unwrap();
            done += 1;
            writer.store(DONE, done).unwrap();
            writer.commit();
            is_stuck = false;
        }
        if is_stuck {
            if channel.is_gone() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

fn read_for_ever(channel: &Channel, ring: &Piece, ringer: &Ringer) {
    let mut consumer = Consumer::new(ring, layout()).unwrap();
    let (mut next, mut into) = (0, [0; 8 * WORDS]);
    loop {
        if consumer.pop(&mut into).unwrap() {
            assert_eq!(into, record(next));
            next += 1;
            continue;
        }
        ringer.ring();
        if channel.is_gone() {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_descriptor_of_the_channel_says_when_the_child_is_gone() {
    let folder = TemporaryFolder::new("kill-channel");
    let listener = Listener::bind(&folder.join("meet"), Admit::SameUser).unwrap();
    let mut victim = Victim::start(listener.path());
    let channel = listener.accept(LONG).unwrap().unwrap();
    assert_eq!(channel.peer().pid, victim.0.id() as i32);
    // Somebody else still holds the socket, as a child of it would.
    let held = channel.as_fd().try_clone_to_owned().unwrap();
    assert!(!channel.is_gone());
    victim.kill();
    assert!(matches!(
        channel.receive(LONG),
        Err(landfall_transport::shm::rendezvous::RendezvousError::Gone)
    ));
    assert!(channel.is_gone());
    drop(held);
}
