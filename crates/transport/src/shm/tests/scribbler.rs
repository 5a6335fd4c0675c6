//! A peer that writes anything into every word that it shares, as the fuzz target
//! `shm_control_words` and the tests play it.
//!
//! The input is a list of steps. Whatever they are: nothing panics, nothing beyond the
//! shared memory changes, no counter leaves its ring, each error is one of the other
//! side's doing, and an honest peer of the same owner is heard.

use crate::memory::{Piece, SharedView};
use crate::shm::ring::{ByteConsumer, ByteProducer, Bytes, Consumer, Producer, PushError, Records};
use crate::shm::watched::{Hits, Reporter, Touch, WatchUpdate, Watched, Writer};

const CAPACITY: u64 = 8;
const STREAM: u64 = 64;
/// Bytes behind each memory, which nobody may touch.
const GUARD: u64 = 256;
const UNTOUCHED: [u8; GUARD as usize] = [0xa5; GUARD as usize];

/// The input, taken apart; zeros when it is over.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Small, huge, near a boundary, or anything.
    fn word(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=99 => u64::from(small),
            high @ 100..=149 => u64::MAX - u64::from(high - 100),
            shift @ 150..=199 => 1 << (shift % 64),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }
}

/// Memory with a guard behind it.
struct Guarded {
    whole: Piece,
    memory: Piece,
}

impl Guarded {
    fn new(len: u64) -> Self {
        let whole = Piece::private((len + GUARD) as usize);
        whole.copy_in(len, &UNTOUCHED).expect("it is as long");
        let memory = whole.part(0..len).expect("it is as long");
        Self { whole, memory }
    }

    fn scribble(&self, at: u64, value: u64) {
        let words = self.memory.len() / 8;
        self.memory.store(at % words * 8, value).expect("within it");
    }

    fn check(&self) {
        let mut guard = [0; GUARD as usize];
        self.whole.copy_out(self.memory.len(), &mut guard).expect("it is as long");
        assert_eq!(guard, UNTOUCHED, "something wrote beyond its memory");
    }
}

/// Plays the steps.
pub(crate) fn run(input: &[u8]) {
    let mut input = Input(input);
    match input.byte() % 3 {
        0 => records(&mut input),
        1 => stream(&mut input),
        _ => news(&mut input),
    }
}

fn records(input: &mut Input<'_>) {
    let layout = Records::new(16, CAPACITY).expect("possible");
    let there = Guarded::new(layout.memory_len());
    let mut producer = Producer::new(&there.memory, layout).expect("long enough");
    let mut consumer = Consumer::new(&there.memory, layout).expect("long enough");
    while !input.0.is_empty() {
        let mut record = [0x5a; 16];
        match input.byte() % 8 {
            0 => match producer.push(&record) {
                Ok(()) | Err(PushError::Full | PushError::Corrupt(_)) => {}
                Err(error) => panic!("{error}"),
            },
            1 => match consumer.pop(&mut record) {
                Ok(_) | Err(PushError::Corrupt(_)) => {}
                Err(error) => panic!("{error}"),
            },
            2 => producer.publish(),
            3 => consumer.give_back(),
            4 => assert!(producer.room().unwrap_or(0) <= CAPACITY),
            5 => _ = consumer.is_empty(),
            _ => there.scribble(input.word(), input.word()),
        }
        assert!(producer.pending() <= CAPACITY);
        there.check();
    }
}

fn stream(input: &mut Input<'_>) {
    let layout = Bytes::new(STREAM).expect("possible");
    let there = Guarded::new(layout.memory_len());
    let mut producer = ByteProducer::new(&there.memory, layout).expect("long enough");
    let mut consumer = ByteConsumer::new(&there.memory, layout).expect("long enough");
    while !input.0.is_empty() {
        match input.byte() % 8 {
            0 | 1 => {
                let bytes = vec![0x5a; usize::from(input.byte())];
                let done = producer.write(&bytes).unwrap_or(0);
                // More than the ring holds, if the other side says that it read meanwhile.
                assert!(done <= bytes.len());
            }
            2 | 3 => {
                let mut into = vec![0; usize::from(input.byte())];
                assert!(consumer.read(&mut into).unwrap_or(0) <= into.len());
            }
            4 => producer.publish(),
            5 => assert!(consumer.available().unwrap_or(0) <= STREAM),
            _ => there.scribble(input.word(), input.word()),
        }
        assert!(producer.pending() <= STREAM);
        there.check();
    }
}

/// One hostile writer and an honest one: the owner of the memory, and what it hears.
fn news(input: &mut Input<'_>) {
    const LEN: u64 = 4096;
    let watched = Watched::create("scribbled", LEN, 4).expect("memory");
    let (mut hostile, mut honest) = (hits(), hits());
    let memory = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("a descriptor");
    let words = Piece::whole(hostile.memory());
    let writer = |hits: &Hits| {
        let filter = SharedView::from_fd(memory(watched.filter_fd())).expect("a filter");
        let reporter = Reporter::new(hits.memory(), memory(hits.doorbell().fd())).expect("news");
        Writer::new(watched.data(), &filter, 1, reporter.into()).expect("as long")
    };
    // The library at the hostile end, over words that somebody else changes.
    let (mut confused, mut fine) = (writer(&hostile), writer(&honest));
    let armed = watched.arm(64..72, Touch::Write).expect("within it");
    while !input.0.is_empty() {
        match input.byte() % 4 {
            0 => {
                confused.store(64, 1).expect("within it");
                confused.commit();
            }
            1 => {
                if let Ok(Some(WatchUpdate::Hit(hit))) = hostile.poll() {
                    let _ = watched.contains(&hit) && armed.is_touched_by(&hit);
                }
            }
            _ => {
                let at = input.word() % (words.len() / 8);
                words.store(at * 8, input.word()).expect("within it");
            }
        }
    }
    fine.store(64, 2).expect("within it");
    fine.commit();
    let heard = honest.poll().expect("an honest peer");
    let Some(WatchUpdate::Hit(hit)) = heard else { panic!("it was not heard: {heard:?}") };
    assert!(armed.is_touched_by(&hit));
    watched.disarm(armed);
}

fn hits() -> Hits {
    Hits::create().expect("memory and descriptors")
}
