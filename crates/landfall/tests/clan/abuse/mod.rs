//! Each pattern of the programming layer between two processes, of which one is killed or
//! stopped at any step, or holds for ever what it has borrowed: the other one is told in time,
//! has seen nothing that is not whole and in order, and goes on where it can.
//!
//! The other process is this program itself, started again for the test that does nothing unless
//! it finds in its environment what it is for.

mod roles;

use std::process::Command;
use std::time::{Duration, Instant};

use landfall::clan::layer::merge::{Merge, Spread};
use landfall::clan::layer::queue;
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::clan::{Error, Fabric, Local, Remote, Rights};
use landfall_placement::Random;
use landfall_testkit::TemporaryFolder;
use landfall_testkit::trials::{count_kills, kills};

use self::roles::{Meeting, hold_for_ever, queue_config, step_of};
use super::other::{Other, long, node_in};

/// Where the other process meets us, and which of the roles it has.
const FOLDER: &str = "LANDFALL_CLAN_ABUSE_FOLDER";
const ROLE: &str = "LANDFALL_CLAN_ABUSE_ROLE";

/// What one process does, and what the other does with it.
const ROLES: [(&str, &str); 6] = [
    ("queue writer", "queue reader"),
    ("stream writer", "stream reader"),
    ("multipart writer", "multipart reader"),
    ("rpc client", "rpc server"),
    ("publisher", "subscriber"),
    ("board writer", "board reader"),
];

fn in_a_moment() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(20))
}

/// One with this role, whose name it offers.
fn start(folder: &TemporaryFolder, role: &str) -> Other {
    Other::start("clan::abuse::the_other_process", |command| {
        command.env(FOLDER, folder.path()).env(ROLE, role);
    })
}

/// Not a test but a process: it has the role that it finds in its environment.
#[test]
fn the_other_process() {
    let (Some(folder), Ok(role)) = (std::env::var_os(FOLDER), std::env::var(ROLE)) else { return };
    let node = SharedNode::open(SharedConfig::new(folder.as_ref())).unwrap();
    let offer = node.offer(&role).unwrap();
    let request = offer.accept(long()).unwrap();
    if role.ends_with("holder") {
        return hold_for_ever(&role, &node, request);
    }
    let role = role.split(',').next().unwrap();
    let mut step = step_of(role, &node, Meeting::Offered(request));
    loop {
        if let Err(error) = step(long()) {
            let is_end = error.is_gone() || matches!(error, Error::Closed | Error::Cut);
            assert!(is_end, "{role}: {error}");
            return;
        }
    }
}

/// Runs a test for each role that the other process may have.
fn for_each_role(mut test: impl FnMut(&TemporaryFolder, &SharedNode, (&str, &str))) {
    let folder = TemporaryFolder::new("abuse");
    let node = node_in(&folder);
    for (one, two) in ROLES {
        test(&folder, &node, (one, two));
        test(&folder, &node, (two, one));
    }
}

#[test]
fn each_pattern_tells_of_a_peer_that_is_killed_at_any_step() {
    let mut random = Random::from_number(25);
    for_each_role(|folder, node, (theirs, mine)| {
        let rounds = kills(3);
        for _ in 0..rounds {
            let mut other = start(folder, theirs);
            let found = node.find(theirs, long()).unwrap();
            let mut step = step_of(mine, node, Meeting::Found(&found));
            for _ in 0..random.below(200) {
                step(long()).unwrap_or_else(|error| panic!("{mine}: {error}"));
            }
            other.kill();
            let deadline = long();
            let error = loop {
                assert!(Some(Instant::now()) < deadline, "{mine}: it is not told");
                if let Err(error) = step(long()) {
                    break error;
                }
            };
            let is_told = error.is_gone() || matches!(error, Error::Closed | Error::Cut);
            assert!(is_told, "{mine}: {error}");
            other.0.wait().unwrap();
        }
        count_kills("one end of a pattern of CLAN", rounds);
    });
}

#[test]
fn each_pattern_outlasts_a_peer_that_is_stopped_at_any_step() {
    let mut random = Random::from_number(52);
    for_each_role(|folder, node, (theirs, mine)| {
        if mine == "multipart writer" {
            // A message that is given up in the middle is cut, and its pipe ends: by design.
            return;
        }
        let mut other = start(folder, theirs);
        let found = node.find(theirs, long()).unwrap();
        let mut step = step_of(mine, node, Meeting::Found(&found));
        for _ in 0..3 {
            for _ in 0..random.below(200) {
                step(long()).unwrap_or_else(|error| panic!("{mine}: {error}"));
            }
            other.stop();
            // Who waits for it is told in time; who need not wait for it does not.
            let waits = (0..2_000).find_map(|_| step(in_a_moment()).err());
            match waits {
                Some(error) => assert!(matches!(error, Error::TimedOut), "{mine}: {error}"),
                None => assert!(["publisher", "board writer"].contains(&mine), "{mine} waits"),
            }
            other.go_on();
            for _ in 0..100 {
                step(long()).unwrap_or_else(|error| panic!("{mine}, goes on: {error}"));
            }
        }
        drop(step);
        assert!(other.ended_well(), "{theirs} has seen all in order, and its end");
    });
}

/// A reader that keeps its elements stops its own writer and no other; a writer that keeps its
/// place shows nothing of it. When they are killed, that is told.
#[test]
fn a_loan_that_is_never_returned_holds_nobody_else_up() {
    let folder = TemporaryFolder::new("abuse");
    let node = node_in(&folder);
    let mut holder = start(&folder, "element holder");
    let mut reader = start(&folder, "queue reader");
    let meet = |role: &str| {
        let found = node.find(role, long()).unwrap();
        step_of("queue writer", &node, Meeting::Found(&found))
    };
    let (mut held, mut free) = (meet("element holder"), meet("queue reader"));
    let count = (0..100).take_while(|_| held(in_a_moment()).is_ok()).count();
    assert_eq!(count, 8, "as many as there is room for");
    for _ in 0..1000 {
        free(long()).unwrap();
    }
    assert!(matches!(held(in_a_moment()), Err(Error::TimedOut)));
    holder.kill();
    assert!(matches!(held(long()), Err(Error::PeerLost)));
    drop(free);
    assert!(reader.ended_well());

    let mut holder = start(&folder, "place holder");
    let found = node.find("place holder", long()).unwrap();
    let mut step = step_of("queue reader", &node, Meeting::Found(&found));
    step(long()).unwrap();
    assert!(matches!(step(in_a_moment()), Err(Error::TimedOut)), "it is not published");
    holder.kill();
    assert!(matches!(step(long()), Err(Error::PeerLost)));
}

/// A work queue over three processes of which one is stopped and one is killed: the third goes
/// on, and each has whole elements, none of them twice.
#[test]
fn a_work_queue_goes_on_past_workers_that_are_stopped_and_killed() {
    let folder = TemporaryFolder::new("abuse");
    let node = node_in(&folder);
    let mut spread = Spread::new(&node);
    let mut others = Vec::new();
    for role in ["queue taker, one", "queue taker, two", "queue taker, three"] {
        others.push(start(&folder, role));
        let found = node.find(role, long()).unwrap();
        let half = queue::Sender::open(&node, queue_config()).unwrap();
        spread.add(found.join(half, long()).unwrap());
    }
    let mut number = 0u64;
    let mut put = |spread: &mut Spread<SharedNode>, count: u64| {
        let mut used = [0u64; 3];
        for _ in 0..count {
            let to = spread.put(&number.to_le_bytes().repeat(8), long()).unwrap();
            used[to as usize] += 1;
            number += 1;
        }
        used
    };
    assert!(put(&mut spread, 300).iter().all(|count| *count > 0), "all work");
    others[0].stop();
    others[1].kill();
    let used = put(&mut spread, 300);
    assert!(used[0] <= 8 && used[2] >= 250, "the third does the work of all: {used:?}");
    others[0].go_on();
    let deadline = long();
    while spread.drain(in_a_moment()).is_err() {
        assert!(Some(Instant::now()) < deadline, "{} are under way", spread.under_way());
    }
    assert_eq!(spread.lost().into_iter().map(|(id, _)| id).collect::<Vec<_>>(), [1]);
    drop(spread);
    assert!(others[0].ended_well() && others[2].ended_well());
}

/// Two producers, one of which is killed: what comes of each is whole and in order, and the end
/// of the one is told while the other goes on.
#[test]
fn a_merge_goes_on_past_a_producer_that_is_killed() {
    let folder = TemporaryFolder::new("abuse");
    let node = node_in(&folder);
    let mut merge = Merge::new(&node);
    let mut others = Vec::new();
    for role in ["queue writer, one", "queue writer, two"] {
        others.push(start(&folder, role));
        let found = node.find(role, long()).unwrap();
        let half = queue::Receiver::open(&node, queue_config()).unwrap();
        merge.add(found.join(half, long()).unwrap());
    }
    let mut next = [0u64; 2];
    let mut take = |merge: &mut Merge<SharedNode>, count: u64| {
        for _ in 0..count {
            let mut element = [0; 64];
            let from = merge.get(&mut element, long()).unwrap() as usize;
            assert_eq!(element.to_vec(), next[from].to_le_bytes().repeat(8), "of {from}");
            next[from] += 1;
        }
        next
    };
    let before = take(&mut merge, 200);
    assert!(before.iter().all(|count| *count > 0), "both are heard: {before:?}");
    others[0].kill();
    let after = take(&mut merge, 200);
    assert!(after[0] <= before[0] + 8 && after[1] >= before[1] + 192, "{before:?} {after:?}");
    // It is noticed while the other goes on, be that after some more of its elements.
    let (mut ended, deadline) = (merge.ended(), long());
    while ended.is_empty() {
        assert!(Some(Instant::now()) < deadline, "nobody says that it is gone");
        take(&mut merge, 1);
        ended = merge.ended();
    }
    assert!(matches!(ended[..], [(0, Error::PeerLost)]), "{ended:?}");
}

/// A folder without room for a socket or a name, as `/dev/shm` that somebody has filled: what
/// cannot be opened says so and leaves nothing behind, what is open goes on, and when there is
/// room again all is well.
#[test]
fn a_full_folder_is_an_error_and_then_none() {
    const SCRIPT: &str = "mount -t tmpfs -o size=16k,nr_inodes=8 tmpfs \"$1\" && \
         exec \"$2\" --exact clan::abuse::the_process_in_a_full_folder --test-threads=1";
    let folder = TemporaryFolder::new("abuse");
    // Root needs no user namespace, others need one to mount.
    for flags in ["--mount", "--user=--map-root-user=--mount"] {
        let mut command = Command::new("unshare");
        command.args(flags.split('=')).args(["sh", "-c", SCRIPT, "sh"]);
        command.arg(folder.path()).arg(std::env::current_exe().unwrap());
        let output = command.env(FOLDER, folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // Or the folder of this program is not for others: root in a namespace is one of those.
        let refusals = ["unshare failed", "Operation not permitted", "Permission denied"];
        if refusals.iter().any(|refusal| said.contains(refusal)) {
            continue;
        }
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let test = "a_full_folder_is_an_error_and_then_none";
    landfall_testkit::skip::skip(test, "needs root to mount a file system of its own");
}

/// Not a test but a process, whose folder is a small file system.
#[test]
fn the_process_in_a_full_folder() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    if std::env::var(ROLE).is_ok() {
        return;
    }
    let folder = std::path::PathBuf::from(folder);
    let open = || SharedNode::open(SharedConfig::new(&folder));
    let node = open().unwrap();
    let (memory, cookie) = node.expose(1 << 20, Rights::Write).unwrap();
    let mut files = 0;
    let fill = |files: &mut u32| {
        while std::fs::write(folder.join(format!("full{files}")), vec![1; 16 << 10]).is_ok() {
            *files += 1;
        }
    };
    fill(&mut files);
    // No room for bytes.
    let error = node.offer("prices").expect_err("there is no room");
    assert!(matches!(&error, Error::System { .. }), "{error}");
    assert!(!folder.join("name-prices").exists(), "it leaves nothing behind");
    // None for files.
    while std::fs::write(folder.join(format!("file{files}")), b"").is_ok() {
        files += 1;
    }
    assert!(matches!(open(), Err(Error::System { .. })));
    assert!(matches!(node.offer("prices"), Err(Error::System { .. })));
    // Memory is elsewhere, and what is open is open.
    let mut window = node.map(&cookie).unwrap();
    window.store(0, 7).unwrap();
    window.commit().unwrap();
    assert_eq!(memory.load(0).unwrap(), 7);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    let other = open().unwrap();
    let _offer = node.offer("prices").unwrap();
    assert!(other.try_find("prices").unwrap().is_some());
}
