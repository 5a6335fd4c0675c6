//! Rings: order, bounds, and what a hostile other side can do, which is nothing.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use proptest::prelude::*;

use crate::memory::Piece;
use crate::shm::ring::{
    ByteConsumer, ByteProducer, Bytes, Consumer, Corrupt, LayoutError, Producer, PushError, Records,
};

fn records(record_len: u32, capacity: u64) -> (Piece, Producer, Consumer) {
    let layout = Records::new(record_len, capacity).unwrap();
    let memory = Piece::private(layout.memory_len() as usize);
    let producer = Producer::new(&memory, layout).unwrap();
    let consumer = Consumer::new(&memory, layout).unwrap();
    (memory, producer, consumer)
}

fn bytes(capacity: u64) -> (Piece, ByteProducer, ByteConsumer) {
    let layout = Bytes::new(capacity).unwrap();
    let memory = Piece::private(layout.memory_len() as usize);
    let producer = ByteProducer::new(&memory, layout).unwrap();
    let consumer = ByteConsumer::new(&memory, layout).unwrap();
    (memory, producer, consumer)
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    for len in [0, 4, 12, 4104] {
        assert!(
            matches!(Records::new(len, 8), Err(LayoutError::RecordLength(found)) if found == len)
        );
    }
    for capacity in [0, 1, 3, 1 << 31] {
        assert!(matches!(Records::new(8, capacity), Err(LayoutError::Capacity(_))));
        assert!(matches!(Bytes::new(capacity), Err(LayoutError::Capacity(_))));
    }
    let layout = Records::new(8, 8).unwrap();
    let short = Piece::private(layout.memory_len() as usize - 8);
    assert!(matches!(Producer::new(&short, layout), Err(LayoutError::Memory(_))));
    assert!(matches!(Consumer::new(&short, layout), Err(LayoutError::Memory(_))));
}

#[test]
fn what_is_not_published_is_not_there() {
    let (_, mut producer, mut consumer) = records(8, 4);
    let mut record = [0; 8];
    producer.push(&[1; 8]).unwrap();
    assert_eq!((producer.pending(), consumer.pop(&mut record).unwrap()), (1, false));
    producer.publish();
    assert_eq!((producer.pending(), consumer.pop(&mut record).unwrap()), (0, true));
    assert_eq!(record, [1; 8]);
}

#[test]
fn a_full_ring_publishes_by_itself_and_says_so() {
    let (_, mut producer, mut consumer) = records(8, 4);
    for n in 0..4 {
        producer.push(&[n; 8]).unwrap();
    }
    assert_eq!(producer.push(&[9; 8]), Err(PushError::Full));
    let mut record = [0; 8];
    for n in 0..4 {
        assert!(consumer.pop(&mut record).unwrap());
        assert_eq!(record, [n; 8]);
    }
    // The last look at an empty ring gives all the room back.
    assert!(!consumer.pop(&mut record).unwrap());
    assert_eq!(producer.room(), Ok(4));
}

#[test]
fn records_of_another_length_are_refused() {
    let (_, mut producer, mut consumer) = records(16, 4);
    assert_eq!(producer.push(&[0; 8]), Err(PushError::Length { found: 8, expected: 16 }));
    assert_eq!(consumer.pop(&mut [0; 24]), Err(PushError::Length { found: 24, expected: 16 }));
}

#[test]
fn two_threads_pass_every_record_in_order() {
    const COUNT: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (_, mut producer, mut consumer) = records(32, 64);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < COUNT {
                let mut record = [0; 32];
                for (index, part) in record.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    *part = (next * 4 + index as u64).to_ne_bytes();
                }
                match producer.push(&record) {
                    Ok(()) => next += 1,
                    Err(PushError::Full) => thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
                if next % 7 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let (mut record, mut next) = ([0; 32], 0);
        while next < COUNT {
            if consumer.pop(&mut record).unwrap() {
                for (index, part) in record.as_chunks::<8>().0.iter().enumerate() {
                    assert_eq!(u64::from_ne_bytes(*part), next * 4 + index as u64);
                }
                next += 1;
            } else {
                thread::yield_now();
            }
        }
    });
}

#[test]
fn two_threads_pass_a_stream_of_bytes() {
    const COUNT: usize = if cfg!(miri) { 3_000 } else { 3_000_000 };
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7) as u8;
    let (_, mut producer, mut consumer) = bytes(if cfg!(miri) { 256 } else { 1 << 16 });
    thread::scope(|scope| {
        scope.spawn(move || {
            let all: Vec<u8> = (0..COUNT).map(byte).collect();
            let (mut rest, mut len) = (&all[..], 1);
            while !rest.is_empty() {
                let piece = &rest[..len.min(rest.len())];
                let done = producer.write(piece).unwrap();
                producer.publish();
                rest = &rest[done..];
                len = len % 5003 + 97;
                if done == 0 {
                    thread::yield_now();
                }
            }
        });
        let (mut into, mut at) = (vec![0; 4099], 0);
        while at < COUNT {
            let count = consumer.read(&mut into).unwrap();
            for (index, found) in into[..count].iter().enumerate() {
                assert_eq!(*found, byte(at + index), "byte {}", at + index);
            }
            at += count;
            if count == 0 {
                thread::yield_now();
            }
        }
    });
}

/// What one side does, or the other writes into the control words.
#[derive(Clone, Debug)]
enum Step {
    Push,
    Publish,
    Pop,
    GiveBack,
    Scribble { word: usize, value: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let value = prop_oneof![any::<u64>(), 0..20u64, Just(u64::MAX)];
    prop_oneof![
        Just(Step::Push),
        Just(Step::Publish),
        Just(Step::Pop),
        Just(Step::GiveBack),
        (0..64usize, value).prop_map(|(word, value)| Step::Scribble { word, value }),
    ]
}

proptest! {
    /// Each side against a queue, in one thread.
    #[test]
    fn a_ring_is_a_queue(steps in prop::collection::vec(step(), 1..200)) {
        let (_, mut producer, mut consumer) = records(16, 8);
        let (mut published, mut pending) = (std::collections::VecDeque::new(), Vec::new());
        let (mut next, mut held) = (0u64, 0);
        for step in steps {
            match step {
                Step::Push => {
                    let record = [next.to_ne_bytes(), (!next).to_ne_bytes()].concat();
                    match producer.push(&record) {
                        Ok(()) => {
                            // When it seemed full it published what was there.
                            if producer.pending() == 1 {
                                published.extend(pending.drain(..));
                            }
                            pending.push(next);
                            next += 1;
                        }
                        Err(error) => {
                            prop_assert_eq!(error, PushError::Full);
                            published.extend(pending.drain(..));
                            prop_assert_eq!(published.len() as u64 + held, 8);
                        }
                    }
                }
                Step::Publish => { producer.publish(); published.extend(pending.drain(..)); }
                Step::Pop => {
                    let mut record = [0; 16];
                    if consumer.pop(&mut record).unwrap() {
                        let found = u64::from_ne_bytes(record[..8].try_into().unwrap());
                        prop_assert_eq!(Some(found), published.pop_front());
                        held += 1;
                    } else {
                        prop_assert!(published.is_empty());
                    }
                    if held > 2 || published.is_empty() { held = 0; consumer.give_back(); }
                }
                Step::GiveBack | Step::Scribble { .. } => { held = 0; consumer.give_back(); }
            }
        }
    }

    /// Invariant 8, and the peer that scribbles: whatever is written into the shared
    /// words, the producer keeps writing into the ring only, counts no more than there
    /// is room for, and tells what is wrong.
    #[test]
    fn a_hostile_consumer_spoils_nothing(steps in prop::collection::vec(step(), 1..300)) {
        let layout = Records::new(16, 8).unwrap();
        let len = layout.memory_len();
        let guarded = Piece::private(len as usize + 256);
        guarded.copy_in(len, &[0xa5; 256]).unwrap();
        let memory = guarded.part(0..len).unwrap();
        let mut producer = Producer::new(&memory, layout).unwrap();
        for step in steps {
            match step {
                Step::Push | Step::Pop => {
                    let before = producer.pending();
                    let _ = producer.push(&[7; 16]);
                    prop_assert!(producer.pending() <= 8 && producer.pending() <= before + 1);
                }
                Step::Publish | Step::GiveBack => {
                    producer.publish();
                    let room = producer.room();
                    prop_assert!(room.is_err() || room.is_ok_and(|room| room <= 8));
                }
                Step::Scribble { word, value } => {
                    memory.words()[word % memory.words().len()].store(value, Relaxed);
                }
            }
        }
        let mut guard = [0; 256];
        guarded.copy_out(len, &mut guard).unwrap();
        prop_assert_eq!(guard, [0xa5; 256]);
    }

    /// The same for a consumer: it never reads more than the ring holds, and a counter
    /// that cannot be is told.
    #[test]
    fn a_hostile_producer_spoils_nothing(steps in prop::collection::vec(step(), 1..300)) {
        let (memory, _, mut consumer) = records(16, 8);
        let (mut read, mut record) = (0u64, [0; 16]);
        for step in steps {
            match step {
                Step::Push | Step::Pop => {
                    let published = memory.words()[0].load(Relaxed);
                    match consumer.pop(&mut record) {
                        Ok(true) => read += 1,
                        Ok(false) => prop_assert!(published <= read),
                        Err(error) => {
                            let PushError::Corrupt(Corrupt { found, least, most }) = error else {
                                panic!("{error}");
                            };
                            prop_assert!(found == published && (found < least || found > most));
                        }
                    }
                }
                Step::Publish | Step::GiveBack => {
                    consumer.give_back();
                    prop_assert_eq!(memory.words()[16].load(Relaxed), read);
                }
                Step::Scribble { word, value } => {
                    memory.words()[word % memory.words().len()].store(value, Relaxed);
                    // What the consumer last said it says again when it has read more.
                    memory.words()[16].store(read, Relaxed);
                    consumer.give_back();
                }
            }
        }
    }

    /// Bytes, with both counters under attack: no more is read or written than there
    /// is, and nothing panics.
    #[test]
    fn a_stream_survives_any_counter(
        steps in prop::collection::vec((0..4u8, 0..200usize, any::<u64>()), 1..100),
    ) {
        let (memory, mut producer, mut consumer) = bytes(64);
        for (what, len, value) in steps {
            match what {
                0 => {
                    let done = producer.write(&vec![1; len]);
                    prop_assert!(done.is_err() || done.is_ok_and(|done| done <= len));
                    prop_assert!(producer.pending() <= 64);
                }
                1 => {
                    let done = consumer.read(&mut vec![0; len]);
                    prop_assert!(done.is_err() || done.is_ok_and(|done| done <= len));
                }
                2 => producer.publish(),
                _ => memory.words()[len % memory.words().len()].store(value, Relaxed),
            }
        }
    }
}
