//! Watched memory: against a naive model, and against hostile writers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::memory::{Piece, SharedMemory, SharedMemoryError, SharedView};
use crate::shm::watched::{
    Armed, Hit, Hits, ReadOnly, Reporter, Touch, WatchUpdate, Watched, WatchedError, Writer,
};

const LEN: u64 = 64 << 10;

fn reporter(hits: &Hits) -> Arc<Reporter> {
    let memory = SharedMemory::from_fd(hits.memory().fd().try_clone_to_owned().unwrap()).unwrap();
    Arc::new(Reporter::new(&memory, hits.doorbell().fd().try_clone_to_owned().unwrap()).unwrap())
}

fn filter(watched: &Watched) -> SharedView {
    SharedView::from_fd(watched.filter_fd().try_clone_to_owned().unwrap()).unwrap()
}

fn writer(watched: &Watched, tag: u32, reporter: &Arc<Reporter>) -> Writer {
    let data = SharedMemory::from_fd(watched.data().fd().try_clone_to_owned().unwrap()).unwrap();
    Writer::new(&data, &filter(watched), tag, Arc::clone(reporter)).unwrap()
}

fn drain(hits: &mut Hits) -> Vec<Hit> {
    std::iter::from_fn(|| hits.poll().unwrap())
        .map(|news| match news {
            WatchUpdate::Hit(hit) => hit,
            WatchUpdate::Lost => panic!("nothing was lost"),
        })
        .collect()
}

#[test]
fn two_tripwires_on_a_word_count() {
    let watched = Watched::create("count", LEN, 4).unwrap();
    let mut hits = Hits::create().unwrap();
    let mut writer = writer(&watched, 1, &reporter(&hits));
    let mut touch = || {
        writer.store(8, 1).unwrap();
        writer.commit();
        drain(&mut hits).len()
    };
    let first = watched.arm(8..16, Touch::Write).unwrap();
    let second = watched.arm(0..24, Touch::Write).unwrap();
    assert_eq!(touch(), 1);
    watched.disarm(first);
    assert_eq!(touch(), 1, "the second still covers it");
    watched.disarm(second);
    assert_eq!((touch(), watched.armed()), (0, 0));
}

#[test]
fn what_cannot_be_armed_is_refused() {
    let watched = Watched::create("refused", 100, 1).unwrap();
    assert!(matches!(watched.arm(8..8, Touch::Read), Err(WatchedError::Empty)));
    assert!(matches!(
        watched.arm(96..101, Touch::Read),
        Err(WatchedError::Memory(SharedMemoryError::OutOfBounds { .. }))
    ));
    let armed = watched.arm(96..100, Touch::Read).unwrap();
    assert!(matches!(watched.arm(0..8, Touch::Read), Err(WatchedError::Full(1))));
    // The token of another memory disarms nothing here.
    let other = Watched::create("other", 100, 1).unwrap();
    watched.disarm(other.arm(96..100, Touch::Read).unwrap());
    assert_eq!(watched.armed(), 1);
    watched.disarm(armed);
    assert_eq!(watched.armed(), 0);
}

#[test]
fn nobody_but_the_owner_writes_the_filter_or_what_is_only_to_be_read() {
    let watched = Watched::create("sealed", LEN, 4).unwrap();
    let filter = watched.filter_fd().try_clone_to_owned().unwrap();
    assert!(matches!(
        SharedMemory::from_fd(filter),
        Err(SharedMemoryError::System { call: "mmap", .. })
    ));
    // A writer that would take the memory from the next one cannot.
    let writable = SharedMemory::from_fd(watched.data().fd().try_clone_to_owned().unwrap());
    assert!(writable.unwrap().seal_for_readers().is_err());
    let watched = Watched::create_for_readers("readers", LEN, 4).unwrap();
    let data = || watched.data().fd().try_clone_to_owned().unwrap();
    assert!(SharedMemory::from_fd(data()).is_err());
    let hits = Hits::create().unwrap();
    let view = SharedView::from_fd(data()).unwrap();
    let reader = ReadOnly::new(&view, &self::filter(&watched), 1, reporter(&hits)).unwrap();
    watched.memory().store(64, 42).unwrap();
    let mut word = [0; 8];
    reader.read(64, &mut word).unwrap();
    assert_eq!(u64::from_ne_bytes(word), 42);
}

#[test]
fn reads_are_told_where_reads_are_armed() {
    let watched = Watched::create("reads", LEN, 4).unwrap();
    let mut hits = Hits::create().unwrap();
    let mut writer = writer(&watched, 5, &reporter(&hits));
    let armed = watched.arm(512..520, Touch::Read).unwrap();
    writer.store(512, 1).unwrap();
    writer.commit();
    assert_eq!(drain(&mut hits), []);
    writer.read(500, &mut [0; 100]).unwrap();
    let hit = Hit { tag: 5, touch: Touch::Read, offset: 500, len: 100 };
    assert_eq!(drain(&mut hits), [hit]);
    assert!(armed.is_touched_by(&hit));
    assert!(!armed.is_touched_by(&Hit { touch: Touch::Write, ..hit }));
    assert!(!armed.is_touched_by(&Hit { offset: 520, ..hit }));
    watched.disarm(armed);
}

#[test]
fn an_overflow_is_told_and_the_memory_is_right_all_the_same() {
    let watched = Watched::create("overflow", LEN, 4).unwrap();
    let mut hits = Hits::create().unwrap();
    let mut writer = writer(&watched, 1, &reporter(&hits));
    let armed = watched.arm(0..8, Touch::Write).unwrap();
    for n in 1..=5_000 {
        writer.store(0, n).unwrap();
        writer.commit();
    }
    let news: Vec<_> = std::iter::from_fn(|| hits.poll().unwrap()).collect();
    assert!(news.contains(&WatchUpdate::Lost), "{} pieces of news", news.len());
    assert_eq!(watched.memory().load(0).unwrap(), 5_000);
    // Afterwards everything is told again.
    writer.store(0, 1).unwrap();
    writer.commit();
    assert_eq!(drain(&mut hits).len(), 1);
    watched.disarm(armed);
}

/// Whether one side of a test has ended, however it did.
#[derive(Default)]
struct EndedFlag(AtomicBool);

impl EndedFlag {
    fn is_over(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn when_dropped(&self) -> impl Drop + '_ {
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        End(&self.0)
    }
}

/// The pattern that everybody uses to sleep: look, arm, look again, wait for the hit.
/// Were the race between store and arming open, a round would never end.
#[test]
fn a_store_races_with_an_arming_and_one_of_them_sees_the_other() {
    const ROUNDS: u64 = 20_000;
    const ENOUGH: u64 = 200;
    let watched = Watched::create("race", LEN, 4).unwrap();
    let mut hits = Hits::create().unwrap();
    let mut writer = writer(&watched, 1, &reporter(&hits));
    let (over, begin) = (EndedFlag::default(), Instant::now());
    thread::scope(|scope| {
        let memory = watched.memory();
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                writer.store(0, round).unwrap();
                writer.commit();
                while memory.load(1024).unwrap() != round && !over.is_over() {
                    thread::yield_now();
                }
            }
        });
        // Anyone who fails here is not waited for by the other.
        let _end = over.when_dropped();
        for round in 1..=ROUNDS {
            // On a machine that is busy with other things a round takes long.
            if round > ENOUGH && begin.elapsed() > Duration::from_secs(20) {
                break;
            }
            let patience = Instant::now() + Duration::from_secs(60);
            let armed = watched.arm(0..8, Touch::Write).unwrap();
            if memory.load(0).unwrap() != round {
                // Not there yet: so the hit must come. One of the round before may come
                // late, from a writer that saw the filter before it was disarmed.
                while hits.poll().unwrap().is_none() || memory.load(0).unwrap() != round {
                    assert!(Instant::now() < patience, "no hit in round {round}");
                    thread::yield_now();
                }
            }
            watched.disarm(armed);
            // A hit that was told although the word was seen belongs to this round.
            memory.store(1024, round).unwrap();
            while hits.poll().unwrap().is_some() {}
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Arm { start: u64, len: u64, touch: Touch },
    Disarm(usize),
    Write { start: u64, len: usize },
    Store { word: u64, value: u64 },
    Read { start: u64, len: usize },
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![1..20u64, 1..LEN / 2];
    let touch = prop_oneof![Just(Touch::Read), Just(Touch::Write)];
    prop_oneof![
        (0..LEN, len(), touch).prop_map(|(start, len, touch)| Step::Arm { start, len, touch }),
        any::<usize>().prop_map(Step::Disarm),
        (0..LEN, len()).prop_map(|(start, len)| Step::Write { start, len: len as usize }),
        (0..LEN / 8, any::<u64>()).prop_map(|(word, value)| Step::Store { word: word * 8, value }),
        (0..LEN, len()).prop_map(|(start, len)| Step::Read { start, len: len as usize }),
        Just(Step::Commit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Memory and the set of tripwires that fire are those of a naive model: an array
    /// of bytes and a list of ranges.
    #[test]
    fn memory_and_hits_are_those_of_the_naive_model(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let watched = Watched::create("model", LEN, 32).unwrap();
        let mut hits = Hits::create().unwrap();
        let mut writer = writer(&watched, 9, &reporter(&hits));
        let mut naive = vec![0u8; LEN as usize];
        let mut armed: Vec<(Armed, std::ops::Range<u64>, Touch)> = Vec::new();
        for (serial, step) in steps.into_iter().enumerate() {
            let touched = match step {
                Step::Arm { start, len, touch } => {
                    let range = start..(start + len).min(LEN);
                    if let Ok(token) = watched.arm(range.clone(), touch) {
                        armed.push((token, range.start / 8..range.end.div_ceil(8), touch));
                    }
                    None
                }
                Step::Disarm(index) => {
                    if !armed.is_empty() {
                        let (token, ..) = armed.swap_remove(index % armed.len());
                        watched.disarm(token);
                    }
                    None
                }
                Step::Write { start, len } => {
                    let bytes: Vec<u8> = (0..len).map(|at| (at + serial) as u8).collect();
                    if start as usize + len > naive.len() {
                        prop_assert!(writer.write(start, &bytes).is_err());
                        None
                    } else {
                        writer.write(start, &bytes).unwrap();
                        naive[start as usize..][..len].copy_from_slice(&bytes);
                        Some((Touch::Write, start, len as u64))
                    }
                }
                Step::Store { word, value } => {
                    writer.store(word, value).unwrap();
                    naive[word as usize..][..8].copy_from_slice(&value.to_ne_bytes());
                    Some((Touch::Write, word, 8))
                }
                Step::Read { start, len } => {
                    let mut into = vec![0; len];
                    if start as usize + len > naive.len() {
                        prop_assert!(writer.read(start, &mut into).is_err());
                        None
                    } else {
                        writer.read(start, &mut into).unwrap();
                        prop_assert_eq!(&into[..], &naive[start as usize..][..len]);
                        Some((Touch::Read, start, len as u64))
                    }
                }
                Step::Commit => None,
            };
            writer.commit();
            let told = drain(&mut hits);
            let Some((touch, start, len)) = touched else {
                prop_assert_eq!(told, []);
                continue;
            };
            let words = start / 8..(start + len).div_ceil(8);
            let expected = |(_, range, what): &&(Armed, std::ops::Range<u64>, Touch)| {
                *what == touch && range.start < words.end && words.start < range.end
            };
            let fired: Vec<_> = armed.iter().filter(expected).map(|(token, ..)| token).collect();
            prop_assert_eq!(told.is_empty(), fired.is_empty());
            for token in fired {
                prop_assert!(told.iter().any(|hit| token.is_touched_by(hit)));
            }
        }
        let mut found = vec![0; LEN as usize];
        watched.memory().copy_out(0, &mut found).unwrap();
        prop_assert_eq!(found, naive);
    }

    /// A writer that scribbles over all that it can reach: the owner reads news that
    /// may be wrong, or that they cannot be, and goes on.
    #[test]
    fn a_hostile_writer_spoils_only_its_own_news(
        scribbles in prop::collection::vec((0..200usize, any::<u64>(), any::<bool>()), 1..100),
    ) {
        let watched = Watched::create("hostile", LEN, 4).unwrap();
        let (mut hostile, mut honest) = (Hits::create().unwrap(), Hits::create().unwrap());
        let mut writer = writer(&watched, 2, &reporter(&honest));
        let armed = watched.arm(0..8, Touch::Write).unwrap();
        let words = Piece::whole(hostile.memory());
        for (at, value, small) in scribbles {
            let value = if small { value % 2_000 } else { value };
            words.words()[at].store(value, Relaxed);
            for _ in 0..3 {
                if let Ok(Some(WatchUpdate::Hit(hit))) = hostile.poll() {
                    // Believed only within the memory.
                    let _ = watched.contains(&hit) && armed.is_touched_by(&hit);
                }
            }
        }
        writer.store(0, 3).unwrap();
        writer.commit();
        prop_assert_eq!(drain(&mut honest).len(), 1);
        watched.disarm(armed);
    }
}
