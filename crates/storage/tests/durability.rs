//! What was acknowledged and flushed is there after a crash, at whatever point.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, thread};

use landfall_storage::client::{Client, Error, Pending};
use landfall_storage::device::{BlockDevice, FileAccess, FileDevice, Volatile};
use landfall_storage::server::Offer;
use landfall_testkit::trials::{count_kills, kills};
use proptest::prelude::*;

use crate::support::{Folder, connect, pattern, serve, until};

const BLOCK: usize = 4096;
/// Where the process that is to be killed finds its file.
const DISK: &str = "LANDFALL_STORAGE_TEST_DISK";
/// And how it reads it.
const ACCESS: &str = "LANDFALL_STORAGE_TEST_ACCESS";

/// The process that is to be killed: a server of the file that the environment names. As a
/// test of its own it does nothing.
#[test]
fn serve_until_killed() {
    let Ok(path) = env::var(DISK) else { return };
    let mut device = FileDevice::open(Path::new(&path), false).unwrap();
    device.set_access(env::var(ACCESS).unwrap().parse().unwrap()).unwrap();
    let (_server, address) = serve(Offer::new("disk", device));
    fs::write(format!("{path}.new"), address.to_string()).unwrap();
    fs::rename(format!("{path}.new"), format!("{path}.address")).unwrap();
    loop {
        thread::park();
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(disk: &Path, access: FileAccess) -> (Killed, SocketAddr) {
    let told = disk.with_file_name("disk.img.address");
    let _ = fs::remove_file(&told);
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "durability::serve_until_killed", "--nocapture"])
        .env(DISK, disk)
        .env(ACCESS, access.name())
        .stdout(Stdio::null())
        .spawn();
    let child = Killed(child.unwrap());
    until("it listens", || told.exists());
    let address = fs::read_to_string(&told).unwrap().parse().unwrap();
    (child, address)
}

/// What one writer knows: of each block, the last number that was acknowledged, and the last
/// that was asked for.
#[derive(Clone, Default)]
struct Known {
    acknowledged: u64,
    asked: u64,
}

const BLOCKS: u64 = 64;
const WRITERS: u64 = 4;

/// Writes random blocks of a part of its own until the server is gone.
fn write_until_gone(
    client: &Client,
    writer: u64,
    turn: u64,
    known: &mut [Known],
    acknowledged: &AtomicU64,
) {
    let mut number = turn << 32;
    let mut random = writer * 7919 + turn;
    loop {
        let mut writes: Vec<(u64, u64, Pending<Vec<u8>>)> = Vec::new();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (random >> 33) % BLOCKS;
            // One write of a block at a time: else nobody knows which is the last.
            if writes.iter().any(|(other, ..)| *other == block) {
                continue;
            }
            number += 1;
            known[block as usize].asked = number;
            let at = (writer * BLOCKS + block) * BLOCK as u64;
            let bytes = pattern(number * WRITERS + writer, BLOCK);
            let pending = if number.is_multiple_of(3) {
                client.write_durably(at, bytes)
            } else {
                client.write(at, bytes)
            };
            writes.push((block, number, pending));
        }
        for (block, number, pending) in writes {
            match pending.wait() {
                Ok(_) => {
                    known[block as usize].acknowledged = number;
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(Error::Gone(_)) => return,
                Err(error) => panic!("{error}"),
            }
        }
        if let Err(Error::Failed(error)) = client.flush().wait() {
            panic!("{error}");
        }
    }
}

#[test]
fn a_killed_server_has_lost_nothing_that_it_acknowledged() {
    kill_and_look(FileAccess::Threads);
}

#[test]
fn a_killed_server_that_reads_by_io_uring_has_lost_nothing_that_it_acknowledged() {
    let test = "a_killed_server_that_reads_by_io_uring_has_lost_nothing_that_it_acknowledged";
    match crate::uring::device(&Folder::new().disk("disk.img", 4096)) {
        Ok(_) => kill_and_look(FileAccess::Uring),
        Err(error) => landfall_testkit::skip::skip(test, &error.to_string()),
    }
}

fn kill_and_look(access: FileAccess) {
    let folder = Folder::new();
    let disk = folder.disk("disk.img", WRITERS * BLOCKS * BLOCK as u64);
    let mut known = vec![vec![Known::default(); BLOCKS as usize]; WRITERS as usize];
    let turns = kills(3);
    for turn in 1..=turns {
        let (mut server, address) = start(&disk, access);
        let acknowledged = AtomicU64::new(0);
        thread::scope(|scope| {
            for (writer, known) in (0..).zip(&mut known) {
                let (client, acknowledged) = (connect(address), &acknowledged);
                scope.spawn(move || write_until_gone(&client, writer, turn, known, acknowledged));
            }
            until("enough is written", || {
                acknowledged.load(Ordering::Relaxed) > 400 * (1 + turn % 3)
            });
            // SIGKILL, in the middle of whatever it does.
            server.0.kill().unwrap();
            server.0.wait().unwrap();
        });
        // What is looked at lies on the medium, and is read from there.
        crate::uring::forget(&disk);
        let (_server, address) = start(&disk, access);
        let client = connect(address);
        for (writer, known) in (0..).zip(&mut known) {
            for (block, known) in (0..).zip(known) {
                let at = (writer * BLOCKS + block) * BLOCK as u64;
                let there = blake3::hash(&client.read(at, vec![0; BLOCK]).wait().unwrap());
                let of = |number: u64| match number {
                    0 => blake3::hash(&[0; BLOCK]),
                    number => blake3::hash(&pattern(number * WRITERS + writer, BLOCK)),
                };
                // The one that was under way may have got there, or a part of it.
                let is_whole = there == of(known.acknowledged) || there == of(known.asked);
                let was_under_way = known.asked != known.acknowledged;
                assert!(is_whole || was_under_way, "writer {writer}, block {block}, turn {turn}");
                if there == of(known.asked) {
                    known.acknowledged = known.asked;
                } else if there != of(known.acknowledged) {
                    // Torn: written anew, so that it is known again.
                    let bytes = pattern(known.acknowledged * WRITERS + writer, BLOCK);
                    let bytes = if known.acknowledged == 0 { vec![0; BLOCK] } else { bytes };
                    client.write(at, bytes).wait().unwrap();
                }
                known.asked = known.acknowledged;
            }
        }
    }
    count_kills("a server of a block device", turns);
}

#[derive(Clone, Debug)]
enum Act {
    Write(u8),
    Durable(u8),
    Flush,
    Crash(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..16u8).prop_map(Act::Write),
        2 => (0..16u8).prop_map(Act::Durable),
        2 => Just(Act::Flush),
        1 => any::<u64>().prop_map(Act::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A medium that loses any sectors that were not flushed, and a client that knows which
    /// were.
    #[test]
    fn flushed_data_survives_any_crash(acts in prop::collection::vec(act(), 1..60)) {
        let device = Arc::new(Volatile::new(16 * BLOCK));
        let (_server, address) = serve(Offer::shared("disk", Arc::clone(&device) as Arc<dyn BlockDevice>));
        let client = connect(address);
        // Of each block: what is flushed, and what was written since.
        let mut known: Vec<(u64, Vec<u64>)> = vec![(0, Vec::new()); 16];
        let bytes = |number| if number == 0 { vec![0; BLOCK] } else { pattern(number, BLOCK) };
        for (number, act) in (1..).zip(acts) {
            match act {
                Act::Write(block) => {
                    client.write(u64::from(block) * BLOCK as u64, bytes(number)).wait().unwrap();
                    known[usize::from(block)].1.push(number);
                }
                Act::Durable(block) => {
                    let at = u64::from(block) * BLOCK as u64;
                    client.write_durably(at, bytes(number)).wait().unwrap();
                    known[usize::from(block)] = (number, Vec::new());
                }
                Act::Flush => {
                    client.flush().wait().unwrap();
                    for (flushed, since) in &mut known {
                        *flushed = since.drain(..).next_back().unwrap_or(*flushed);
                    }
                }
                Act::Crash(survivors) => {
                    device.crash(|sector| survivors >> (sector % 64) & 1 != 0);
                    for (block, (flushed, since)) in (0u64..).zip(&mut known) {
                        let at = block * BLOCK as u64;
                        let there = client.read(at, vec![0; BLOCK]).wait().unwrap();
                        let may_be: Vec<_> =
                            since.iter().chain([&*flushed]).map(|number| bytes(*number)).collect();
                        for (nth, sector) in there.chunks(512).enumerate() {
                            let same = |whole: &Vec<u8>| whole.chunks(512).nth(nth) == Some(sector);
                            prop_assert!(may_be.iter().any(same), "block {block}, sector {nth}");
                        }
                        client.write_durably(at, bytes(number)).wait().unwrap();
                        (*flushed, *since) = (number, Vec::new());
                    }
                }
            }
        }
    }
}

/// The server's promise is the device's flush: a reply to FUA comes behind one.
#[test]
fn fua_and_flush_flush_the_device_and_plain_writes_do_not() {
    let device = Arc::new(Volatile::new(64 * BLOCK));
    let (_server, address) =
        serve(Offer::shared("disk", Arc::clone(&device) as Arc<dyn BlockDevice>));
    let client = connect(address);
    client.write(0, vec![1; BLOCK]).wait().unwrap();
    assert_eq!(device.flushes(), 0);
    client.write_durably(0, vec![2; BLOCK]).wait().unwrap();
    assert_eq!(device.flushes(), 1);
    client.flush().wait().unwrap();
    assert_eq!(device.flushes(), 2);
    device.fail_flushes(true);
    assert!(client.write_durably(0, vec![3; BLOCK]).wait().is_err());
    assert!(client.flush().wait().is_err());
    device.heal();
    client.flush().wait().unwrap();
}
