//! Files are read through a ring: each read has its bytes, and nothing is freed too early.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use landfall_testkit::skip::skip;
use landfall_transport::memory::{AccessError, Memory, Regions, Rights, TakeBackError};
use landfall_transport::uring::{FileRing, RegionFileRing};

/// Long for whatever a test waits for.
const LIMIT: Duration = Duration::from_secs(30);
const PLACES: [(usize, usize); 2] = [(4, 4096), (2, 65_536)];

fn ring(test: &str) -> Option<FileRing> {
    match FileRing::open(&PLACES) {
        Ok(ring) => Some(ring),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

fn byte(number: u64, at: u64) -> u8 {
    (number * 31 + at * 7 + at / 251) as u8
}

/// A file whose bytes are those of this number.
fn file(number: u64, len: u64) -> Arc<File> {
    let path = env::temp_dir().join(format!("landfall-uring-{}-{number}", process::id()));
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(&(0..len).map(|at| byte(number, at)).collect::<Vec<_>>()).unwrap();
    Arc::new(file)
}

#[test]
fn each_read_of_a_file_has_its_bytes_and_no_more_are_begun_than_there_are_places() {
    let test = "each_read_of_a_file_has_its_bytes_and_no_more_are_begun_than_there_are_places";
    let Some(mut ring) = ring(test) else { return };
    let files: Vec<_> = (1..4).map(|number| file(number, 1 << 20)).collect();
    let (mut wanted, mut next, mut most) = (BTreeMap::new(), 0_u64, 0);
    let started = Instant::now();
    while next < 300 || ring.under_way() > 0 {
        assert!(started.elapsed() < LIMIT, "{} are under way", ring.under_way());
        while next < 300 {
            let (nth, offset) = ((next % 3) as usize, next * 4999 % (1 << 20));
            let len = if next % 2 == 0 { 4096 } else { 50_000 };
            if !ring.read(&files[nth], offset, len, next).unwrap() {
                break;
            }
            wanted.insert(next, (nth, offset, len));
            next += 1;
        }
        most = most.max(ring.under_way());
        let report = |token, bytes: io::Result<&[u8]>| {
            let (nth, offset, len) = wanted.remove(&token).expect("it was begun and not over");
            let there = len.min(((1 << 20) - offset) as usize);
            let bytes = bytes.unwrap();
            assert_eq!(bytes.len(), there, "up to the end of the file");
            let is_right = |(at, found): (u64, &u8)| *found == byte(nth as u64 + 1, offset + at);
            assert!((0..).zip(bytes).all(is_right), "{token}");
        };
        ring.wait(|| false, report).unwrap();
    }
    assert!(wanted.is_empty() && most <= 6, "{most} at a time");
    assert!(!ring.read(&files[0], 0, 65_537, 0).unwrap(), "no place is so long");
}

#[test]
fn errors_of_a_read_are_reported_and_are_no_end() {
    let Some(mut ring) = ring("errors_of_a_read_are_reported_and_are_no_end") else { return };
    let folder = Arc::new(File::open(env::temp_dir()).unwrap());
    let file = file(4, 100);
    assert!(ring.read(&folder, 0, 10, 1).unwrap() && ring.read(&file, 1000, 10, 2).unwrap());
    let mut heard = BTreeMap::new();
    while ring.under_way() > 0 {
        let report = |token, bytes: io::Result<&[u8]>| {
            heard.insert(token, bytes.map(<[u8]>::len).map_err(|error| error.kind()));
        };
        ring.wait(|| false, report).unwrap();
    }
    let expected = [(1, Err(io::ErrorKind::IsADirectory)), (2, Ok(0))];
    assert_eq!(heard, BTreeMap::from(expected));
}

#[test]
fn the_bell_ends_a_wait_and_work_that_is_there_prevents_it() {
    let test = "the_bell_ends_a_wait_and_work_that_is_there_prevents_it";
    let Some(mut ring) = ring(test) else { return };
    ring.wait(|| true, |_, _| panic!("nothing was begun")).unwrap();
    let (bell, started) = (ring.bell(), Instant::now());
    let ringing = thread::spawn(move || {
        // It may be rung before anybody sleeps, so more than once.
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(5));
            bell.ring();
        }
    });
    for _ in 0..2 {
        ring.wait(|| false, |_, _| panic!("nothing was begun")).unwrap();
    }
    ringing.join().unwrap();
    assert!(started.elapsed() < LIMIT);
}

/// Takes the right to lock as much memory as it likes from this thread alone.
fn obey_the_limit_of_locked_memory() {
    const VERSION: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 14;
    let header = [VERSION, 0];
    // Effective, permitted and inheritable ones, the low words first.
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: both live through the calls and have the lengths that this version says.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, &raw const header, &raw mut sets), 0);
        sets[0].iter_mut().for_each(|set| *set &= !(1 << IPC_LOCK));
        assert_eq!(libc::syscall(libc::SYS_capset, &raw const header, &raw const sets), 0);
    }
}

/// All processes of a user share the limit of locked memory: others may have used it up.
#[test]
fn without_room_in_locked_memory_files_are_read_all_the_same() {
    const TOO_MANY: [(usize, usize); 1] = [(64, 1 << 20)];
    let test = "without_room_in_locked_memory_files_are_read_all_the_same";
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) }, 0);
    let lower = 32 << 20;
    if limit.rlim_cur > lower {
        limit.rlim_cur = lower;
        // SAFETY: the same.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
    }
    thread::spawn(move || {
        obey_the_limit_of_locked_memory();
        let mut ring = match FileRing::open(&TOO_MANY) {
            Ok(ring) => ring,
            Err(error) => return skip(test, &error.to_string()),
        };
        assert!(!ring.is_registered());
        let file = file(6, 1 << 20);
        assert!(ring.read(&file, 4999, 600_000, 1).unwrap());
        let mut found = Vec::new();
        while ring.under_way() > 0 {
            ring.wait(|| false, |_, bytes| found = bytes.unwrap().to_vec()).unwrap();
        }
        assert!(found.len() == 600_000);
        assert!((4999..).zip(&found).all(|(at, found)| *found == byte(6, at)));
    })
    .join()
    .unwrap();
}

/// A pipe without bytes: the read is cancelled, and the place stays as it is until then.
#[test]
fn a_ring_with_a_read_that_does_not_end_can_be_dropped() {
    let Some(mut ring) = ring("a_ring_with_a_read_that_does_not_end_can_be_dropped") else {
        return;
    };
    let (reader, mut writer) = io::pipe().unwrap();
    let reader = Arc::new(File::from(OwnedFd::from(reader)));
    assert!(ring.read(&reader, 0, 100, 1).unwrap());
    ring.wait(|| true, |_, _| panic!("nothing has come")).unwrap();
    assert_eq!(ring.under_way(), 1);
    let started = Instant::now();
    drop(ring);
    assert!(started.elapsed() < LIMIT);
    // Nobody reads there any more.
    writer.write_all(b"later").unwrap();
    let other = file(5, 10);
    assert_eq!(other.read_at(&mut [0; 20], 0).unwrap(), 10);
}

/// A region of a table, and a ring that reads into it.
fn region_ring(test: &str) -> Option<(Regions, landfall_placement::RegionId, RegionFileRing)> {
    let regions = Regions::new(4);
    let memory = Memory::zeroed(RegionFileRing::room(&PLACES));
    let region = regions.lend(memory, Rights::READ | Rights::WRITE).unwrap();
    match RegionFileRing::open(regions.pin(region).unwrap(), &PLACES) {
        Ok(ring) => Some((regions, region, ring)),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

#[test]
fn reads_land_in_lent_memory_and_stay_until_they_are_released() {
    let test = "reads_land_in_lent_memory_and_stay_until_they_are_released";
    let Some((regions, _, mut ring)) = region_ring(test) else { return };
    let file = file(6, 1 << 20);
    let (mut held, mut next, mut wanted) = (Vec::new(), 0_u64, BTreeMap::new());
    let started = Instant::now();
    while next < 200 || ring.under_way() > 0 {
        assert!(started.elapsed() < LIMIT, "{} are under way", ring.under_way());
        while next < 200 {
            let (offset, len) =
                (next * 4999 % (1 << 20), if next % 2 == 0 { 4096 } else { 50_000 });
            if !ring.read(&file, offset, len, next).unwrap() {
                break;
            }
            wanted.insert(next, offset);
            next += 1;
        }
        assert!(ring.under_way() + held.len() <= 6, "as many as there are places");
        let has_work = !held.is_empty();
        ring.wait(
            || has_work,
            |token, span| {
                held.push((
                    wanted.remove(&token).expect("it was begun and not over"),
                    span.unwrap(),
                ));
            },
        )
        .unwrap();
        // Bytes of one are looked at while others land.
        if held.len() > 3 || next == 200 {
            for (offset, span) in held.drain(..) {
                let mut bytes = vec![0; span.len as usize];
                regions.read(&span, &mut bytes).unwrap();
                assert!((offset..).zip(&bytes).all(|(at, found)| *found == byte(6, at)));
                ring.release(&span);
            }
        }
    }
    assert!(wanted.is_empty());
}

/// Ending the grant waits for the ring, and the ring begins nothing more.
#[test]
fn memory_that_is_revoked_stays_until_the_ring_is_done_with_it() {
    let test = "memory_that_is_revoked_stays_until_the_ring_is_done_with_it";
    let Some((regions, region, mut ring)) = region_ring(test) else { return };
    let (reader, mut writer) = io::pipe().unwrap();
    let reader = Arc::new(File::from(OwnedFd::from(reader)));
    assert!(ring.read(&reader, 0, 5, 1).unwrap());
    ring.wait(|| true, |_, _| panic!("nothing has come")).unwrap();
    let refused = regions.try_take_back(region).unwrap_err();
    assert!(matches!(refused, TakeBackError::StillInUse { .. }), "{refused}");
    let ended = ring.read(&file(7, 100), 0, 10, 2).unwrap_err();
    let why = ended.get_ref().and_then(|why| why.downcast_ref::<AccessError>());
    assert!(matches!(why, Some(AccessError::Revoked(_))), "{ended}");
    // What was begun before still lands there, and nowhere else.
    writer.write_all(b"later").unwrap();
    let mut landed = None;
    while ring.under_way() > 0 {
        ring.wait(|| false, |token, span| landed = Some((token, span.unwrap()))).unwrap();
    }
    assert_eq!(landed, Some((1, region.span(0, 5))));
    drop(ring);
    assert_eq!(&regions.try_take_back(region).unwrap()[..5], b"later");
}

/// A pipe without bytes: the read is cancelled, and the memory is free behind that.
#[test]
fn a_ring_in_lent_memory_with_a_read_that_does_not_end_can_be_dropped() {
    let test = "a_ring_in_lent_memory_with_a_read_that_does_not_end_can_be_dropped";
    let Some((regions, region, mut ring)) = region_ring(test) else { return };
    let (reader, mut writer) = io::pipe().unwrap();
    let reader = Arc::new(File::from(OwnedFd::from(reader)));
    assert!(ring.read(&reader, 0, 100, 1).unwrap());
    ring.wait(|| true, |_, _| panic!("nothing has come")).unwrap();
    drop((ring, reader));
    let memory = regions.try_take_back(region).unwrap();
    assert!(writer.write_all(b"later").is_err(), "nobody reads there any more");
    assert!(memory.iter().all(|byte| *byte == 0));
}

#[test]
fn memory_that_does_not_do_for_a_ring_is_refused() {
    let regions = Regions::new(4);
    let room = RegionFileRing::room(&PLACES);
    for (len, rights) in [(room - 1, Rights::WRITE), (room, Rights::READ)] {
        let region = regions.lend(Memory::zeroed(len), rights).unwrap();
        let refused = RegionFileRing::open(regions.pin(region).unwrap(), &PLACES).unwrap_err();
        assert!(refused.get_ref().is_some_and(|why| why.is::<AccessError>()), "{refused}");
        regions.try_take_back(region).unwrap();
    }
}
