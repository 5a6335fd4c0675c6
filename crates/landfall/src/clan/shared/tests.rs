//! Nodes that meet in a folder, within one process; with real processes it is tested
//! from outside (`tests/clan/shared.rs`).

use std::future::poll_fn;
use std::task::Poll;
use std::thread;

use clan_dsm::{Key, Reason};
use landfall_testkit::TemporaryFolder;

use super::*;
use crate::clan::{Dma, Local, Remote, Stage, Tripwire};

fn node_in(folder: &TemporaryFolder) -> SharedNode {
    SharedNode::open(SharedConfig::new(folder.path())).unwrap()
}

/// More than any of this takes.
fn long() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Waits for what another thread does soon.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// Numbers are taken again at once: anyone who knew the one before meets the new one, also
/// where its own thread has not noticed yet that the one before has gone.
#[test]
fn a_node_with_the_number_of_one_that_has_gone_is_met_anew() {
    let folder = TemporaryFolder::new("shared");
    let stays = node_in(&folder);
    let free = (0..).find(|number| *number != stays.host());
    let config = SharedConfig { host: free, ..SharedConfig::new(folder.path()) };
    for round in 0..300 {
        let mut comes = None;
        soon("the number is free", || {
            comes = SharedNode::open(config.clone()).ok();
            comes.is_some()
        });
        let comes = comes.unwrap();
        let (memory, cookie) = comes.expose(64, Rights::Write).unwrap();
        let mut remote = stays.map(&cookie).unwrap_or_else(|error| panic!("{round}: {error}"));
        remote.store(0, round).unwrap();
        assert_eq!(memory.load(0).unwrap(), round);
    }
}

#[test]
fn words_bytes_and_dma_arrive_and_can_be_read_back() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(5000, Rights::ReadWrite).unwrap();
    let mut remote = two.map(&cookie).unwrap();
    assert_eq!((remote.len(), memory.len()), (5000, 5000));
    remote.store(8, 0x0102_0304_0506_0708).unwrap();
    remote.write(4995, b"hello").unwrap();
    let (source, _) = two.expose(64, Rights::Read).unwrap();
    source.copy_in(0, b"by dma, in one piece of thirty-two bytes").unwrap();
    assert_eq!(remote.write_from(1024, &source, 0..32).unwrap(), Dma(1));
    remote.commit().unwrap();
    assert!(remote.is_reached(Stage::Delivered).unwrap());
    assert_eq!(memory.load(8).unwrap(), 0x0102_0304_0506_0708);
    let mut first = [0];
    memory.copy_out(8, &mut first).unwrap();
    assert_eq!(first, [8], "words are little-endian on every machine");
    let mut bytes = [0; 32];
    memory.copy_out(1024, &mut bytes).unwrap();
    assert_eq!(&bytes, b"by dma, in one piece of thirty-t");
    let mut bytes = [0; 5];
    remote.read(4995, &mut bytes, None).unwrap();
    assert_eq!(&bytes, b"hello");
}

#[test]
fn what_is_not_within_the_memory_is_refused() {
    let folder = TemporaryFolder::new("shared");
    let node = node_in(&folder);
    let (memory, cookie) = node.expose(100, Rights::ReadWrite).unwrap();
    // A node may map its own memory.
    let mut remote = node.map(&cookie).unwrap();
    assert!(matches!(remote.store(4, 1), Err(Error::Unaligned(4))));
    assert!(matches!(remote.store(96, 1), Err(Error::OutOfBounds { size: 100, .. })));
    assert!(matches!(remote.write(98, b"123"), Err(Error::OutOfBounds { .. })));
    assert!(matches!(remote.write(u64::MAX, b"1"), Err(Error::OutOfBounds { .. })));
    assert!(matches!(remote.write_from(4, &memory, 0..8), Err(Error::Unaligned(4))));
    assert!(matches!(remote.write_from(0, &memory, 96..104), Err(Error::OutOfBounds { .. })));
    assert!(node.watch(&memory, 99..101, Access::Write, None).is_err());
    assert!(node.watch(&memory, 5..5, Access::Write, None).is_err());
    assert!(matches!(node.expose(0, Rights::Read), Err(Error::BadConfig(_))));
}

#[test]
fn a_cookie_is_good_for_what_it_says_and_nothing_else() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(4096, Rights::Read).unwrap();
    memory.store(0, 7).unwrap();
    let mut remote = two.map(&cookie).unwrap();
    assert!(matches!(remote.store(0, 1), Err(Error::Forbidden)));
    let mut word = [0; 8];
    remote.read(0, &mut word, None).unwrap();
    assert_eq!(u64::from_le_bytes(word), 7);

    let (_write_only, cookie_to_write) = one.expose(4096, Rights::Write).unwrap();
    let mut remote = two.map(&cookie_to_write).unwrap();
    assert!(matches!(remote.read(0, &mut word, None), Err(Error::Forbidden)));

    let stale = |cookie| matches!(two.map(&cookie), Err(Error::StaleCookie));
    let forged = |key: u64, rights, len| {
        Cookie::new(cookie.host(), cookie.slot(), rights, Key::from_bits(key), len)
    };
    let key = cookie.key().bits();
    assert!(stale(forged(key ^ 1, Rights::Read, 4096)), "another key");
    assert!(stale(forged(key, Rights::ReadWrite, 4096)), "more rights");
    assert!(stale(forged(key, Rights::Read, 8192)), "more bytes");
    let is_free = |number: &u16| ![one.host(), two.host()].contains(number);
    let free = (0..).find(is_free).and_then(HostId::new).unwrap();
    let nobody = Cookie::new(free, 0, Rights::Read, cookie.key(), 4096);
    assert!(matches!(two.map(&nobody), Err(Error::NoRoute)));
}

#[test]
fn withdrawn_memory_is_refused_and_those_that_have_it_are_told() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(4096, Rights::Write).unwrap();
    let mut remote = two.map(&cookie).unwrap();
    let other = two.map(&cookie).unwrap();
    remote.store(0, 1).unwrap();
    memory.revoke();
    soon("it is told", || remote.check().is_err());
    assert!(matches!(remote.store(0, 2), Err(Error::Refused(Reason::BadKey))));
    assert!(matches!(other.check(), Err(Error::Refused(Reason::BadKey))));
    assert!(matches!(two.map(&cookie), Err(Error::StaleCookie)));
    assert_eq!(memory.load(0).unwrap(), 1, "its owner still has it");
    // Dropping the last handle does the same.
    let (memory, cookie) = one.expose(4096, Rights::Write).unwrap();
    let remote = two.map(&cookie).unwrap();
    drop(memory.clone());
    assert!(remote.check().is_ok());
    drop(memory);
    soon("it is told", || remote.check().is_err());
    assert!(matches!(two.map(&cookie), Err(Error::StaleCookie)));
}

#[test]
fn a_tripwire_fires_once_per_arming_for_its_range_and_access() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(4096, Rights::ReadWrite).unwrap();
    let mut remote = two.map(&cookie).unwrap();
    let writes = one.watch(&memory, 16..24, Access::Write, None).unwrap();
    let reads = one.watch(&memory, 20..21, Access::Read, None).unwrap();
    let both = one.watch(&memory, 0..4096, Access::Both, None).unwrap();
    let fired = || [&writes, &reads, &both].map(Tripwire::has_fired);
    remote.store(16, 1).unwrap();
    remote.commit().unwrap();
    assert_eq!(fired(), [false; 3], "nothing is armed");
    for wire in [&writes, &reads, &both] {
        wire.arm();
    }
    remote.store(8, 1).unwrap();
    remote.commit().unwrap();
    assert_eq!(fired(), [false, false, true]);
    remote.store(16, 2).unwrap();
    remote.commit().unwrap();
    assert_eq!(fired(), [true, false, true]);
    remote.read(16, &mut [0; 8], None).unwrap();
    assert_eq!(fired(), [true; 3]);
    writes.arm();
    assert_eq!(fired(), [false, true, true]);
    writes.disarm();
    remote.store(16, 3).unwrap();
    remote.commit().unwrap();
    assert!(!writes.has_fired());
}

#[test]
fn whoever_waits_wakes_whichever_thread_it_is() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(4096, Rights::Write).unwrap();
    const ROUNDS: u64 = 300;
    // They outlive the threads: else the last answer might find no memory any more.
    let answers = [0u64, 512, 1024].map(|at| (at, two.expose(8, Rights::Write).unwrap()));
    thread::scope(|scope| {
        for (place, (answer, to_answer)) in &answers {
            let place = *place;
            let (one, memory, mut remote) = (&one, &memory, two.map(&cookie).unwrap());
            let mut back = one.map(to_answer).unwrap();
            scope.spawn(move || {
                let wire = one.watch(memory, place..place + 8, Access::Write, None).unwrap();
                for round in 1..=ROUNDS {
                    loop {
                        wire.arm();
                        if memory.load(place).unwrap() == round {
                            break;
                        }
                        assert!(Instant::now() < long().unwrap());
                        one.wait(&[&wire], long()).unwrap();
                    }
                    back.store(0, round).unwrap();
                    back.commit().unwrap();
                }
            });
            let two = &two;
            scope.spawn(move || {
                let wire = two.watch(answer, 0..8, Access::Write, None).unwrap();
                for round in 1..=ROUNDS {
                    remote.store(place, round).unwrap();
                    remote.commit().unwrap();
                    loop {
                        wire.arm();
                        if answer.load(0).unwrap() == round {
                            break;
                        }
                        two.wait(&[&wire], long()).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_wait_ends_with_its_deadline_and_with_the_node() {
    let folder = TemporaryFolder::new("shared");
    let node = node_in(&folder);
    let (memory, _) = node.expose(64, Rights::Write).unwrap();
    let wire = node.watch(&memory, 0..8, Access::Write, None).unwrap();
    wire.arm();
    assert!(!node.wait(&[&wire], Some(Instant::now())).unwrap());
    assert!(!node.wait(&[&wire], Some(Instant::now() + Duration::from_millis(2))).unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| node.wait(&[&wire], None));
        node.close();
        assert!(matches!(waiter.join().unwrap(), Err(Error::NodeGone)));
    });
    assert!(matches!(node.expose(64, Rights::Write), Err(Error::NodeGone)));
}

#[test]
fn a_peer_that_ends_is_lost_for_all_that_depend_on_it() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, _) = one.expose(64, Rights::Write).unwrap();
    let (_theirs, cookie) = two.expose(64, Rights::Write).unwrap();
    let mut remote = one.map(&cookie).unwrap();
    let wire = one.watch(&memory, 0..8, Access::Write, Some(&remote)).unwrap();
    wire.arm();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| one.wait(&[&wire], long()));
        two.close();
        assert!(waiter.join().unwrap().unwrap(), "it fires");
    });
    assert!(matches!(remote.store(0, 1), Err(Error::PeerLost)));
    // A wire that is made when the peer is lost already has fired.
    assert!(one.watch(&memory, 0..8, Access::Write, Some(&remote)).unwrap().has_fired());
    assert!(one.map(&cookie).is_err());
    // A new node under the same number is another one.
    let mut config = SharedConfig::new(folder.path());
    config.host = Some(cookie.host().number());
    let again = SharedNode::open(config).unwrap();
    assert!(matches!(one.map(&cookie), Err(Error::StaleCookie)));
    let (_theirs, cookie) = again.expose(64, Rights::Write).unwrap();
    one.map(&cookie).unwrap().store(0, 1).unwrap();
}

/// Waits, as a task, until the first word of the memory is this one.
async fn word_comes(memory: &SharedLocal, wire: &SharedTripwire, word: u64) {
    loop {
        wire.arm();
        let fired = poll_fn(|context| {
            let fired = wire.poll_fired(context);
            // The look behind the arming.
            if memory.load(0).unwrap() == word { Poll::Ready(()) } else { fired }
        });
        tokio::time::timeout(Duration::from_secs(60), fired).await.expect("woken");
        if memory.load(0).unwrap() == word {
            return;
        }
    }
}

/// A task and a thread of one node, which take each other's rings.
#[test]
fn tasks_are_woken_beside_threads() {
    const ROUNDS: u64 = 300;
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(4096, Rights::Write).unwrap();
    let mut remote = two.map(&cookie).unwrap();
    let (back, to_back) = two.expose(64, Rights::Write).unwrap();
    let mut answer = one.map(&to_back).unwrap();
    let wire = one.watch(&memory, 0..8, Access::Write, Some(&answer)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    thread::scope(|scope| {
        let (one, memory) = (&one, &memory);
        let mut second_answer = one.map(&to_back).unwrap();
        scope.spawn(move || {
            let wire = one.watch(memory, 512..520, Access::Write, None).unwrap();
            for round in 1..=ROUNDS {
                loop {
                    wire.arm();
                    if memory.load(512).unwrap() == round {
                        break;
                    }
                    one.wait(&[&wire], long()).unwrap();
                }
                second_answer.store(8, round).unwrap();
                second_answer.commit().unwrap();
            }
        });
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                // Now the one first, now the other.
                let places = if round % 2 == 0 { [0, 512] } else { [512, 0] };
                for place in places {
                    remote.store(place, round).unwrap();
                    remote.commit().unwrap();
                    let answered = if place == 0 { 0 } else { 8 };
                    soon("an answer", || back.load(answered).unwrap() == round);
                }
            }
        });
        runtime.block_on(async {
            for round in 1..=ROUNDS {
                word_comes(memory, &wire, round).await;
                answer.store(0, round).unwrap();
                answer.commit().unwrap();
            }
        });
    });
}

#[test]
fn bounds_are_kept_and_what_is_dropped_makes_room() {
    let folder = TemporaryFolder::new("shared");
    let mut config = SharedConfig::new(folder.path());
    (config.most_apertures, config.most_tripwires, config.most_peers) = (2, 1, 1);
    let node = SharedNode::open(config).unwrap();
    let (first, cookie) = node.expose(64, Rights::Write).unwrap();
    let _second = node.expose(64, Rights::Write).unwrap();
    assert!(matches!(node.expose(64, Rights::Write), Err(Error::NoRoom(_))));
    let wire = node.watch(&first, 0..8, Access::Write, None).unwrap();
    assert!(matches!(node.watch(&first, 0..8, Access::Write, None), Err(Error::NoRoom(_))));
    drop(wire);
    let wire = node.watch(&first, 0..8, Access::Write, None).unwrap();
    let (process, late) = (node_in(&folder), node_in(&folder));
    let remote = process.map(&cookie).unwrap();
    assert!(matches!(late.map(&cookie), Err(Error::PeerLost)), "turned away");
    drop((remote, process));
    soon("there is room again", || late.map(&cookie).is_ok());
    drop((wire, first));
    node.expose(64, Rights::Write).unwrap();
}

#[test]
fn an_overflow_of_news_fires_all_the_same() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(64, Rights::Write).unwrap();
    let mut remote = two.map(&cookie).unwrap();
    let wire = one.watch(&memory, 0..8, Access::Write, None).unwrap();
    let last = one.watch(&memory, 56..64, Access::Write, None).unwrap();
    wire.arm();
    last.arm();
    // Nobody looks meanwhile, so that there is no room for the last one.
    for round in 0..5_000 {
        remote.store(0, round).unwrap();
        remote.commit().unwrap();
    }
    remote.store(56, 1).unwrap();
    remote.commit().unwrap();
    assert!(wire.has_fired() && last.has_fired());
}

/// Somebody listens at the place of a node and says nothing: who asks it waits, and nobody
/// else does.
#[test]
fn a_mute_peer_delays_only_who_asks_it() {
    let folder = TemporaryFolder::new("shared");
    let patient =
        SharedConfig { patience: Duration::from_secs(300), ..SharedConfig::new(folder.path()) };
    let (node, other) = (SharedNode::open(patient).unwrap(), node_in(&folder));
    let taken = [node.host(), other.host()];
    let free = (0..).find(|number| !taken.contains(number)).and_then(HostId::new).unwrap();
    let path = node.0.node.path_of(free);
    let mute = Listener::bind(&path, Admit::SameUser).unwrap();
    let cookie = Cookie::new(free, 0, Rights::Write, Key::from_bits(1), 64);
    let waiting = [(); 2].map(|()| {
        let node = node.clone();
        thread::spawn(move || node.map(&cookie).map(drop))
    });
    // Both are there, so neither waits for the other's turn.
    let met = [(); 2].map(|()| mute.accept(Duration::from_secs(60)).unwrap().unwrap());
    let (memory, cookie) = other.expose(64, Rights::Write).unwrap();
    let mut remote = node.map(&cookie).unwrap();
    remote.store(0, 7).unwrap();
    assert_eq!(memory.load(0).unwrap(), 7);
    assert!(waiting.iter().all(|thread| !thread.is_finished()), "the mute one is asked still");
    drop((mute, met));
    for thread in waiting {
        assert!(thread.join().unwrap().is_err(), "it has gone without a word");
    }
}

/// Two threads meet a host at a time: one meeting stays, and both have the memory.
#[test]
fn a_host_that_many_meet_at_once_is_met() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (memory, cookie) = one.expose(4096, Rights::Write).unwrap();
    let start = std::sync::Barrier::new(8);
    thread::scope(|scope| {
        for nth in 0..8u64 {
            let (two, start, cookie) = (&two, &start, &cookie);
            scope.spawn(move || {
                start.wait();
                let mut remote = two.map(cookie).unwrap();
                remote.store(nth * 8, nth + 1).unwrap();
                remote.commit().unwrap();
            });
        }
    });
    assert!((0..8).all(|nth| memory.load(nth * 8).unwrap() == nth + 1));
    soon("the other meetings were given up", || one.peers() == 1);
}

/// News of another peer do not fire what only this one can touch, and each aperture hears
/// of those who map it: also when one maps it twice, and gives it back once.
#[test]
fn each_aperture_hears_of_those_who_map_it() {
    let folder = TemporaryFolder::new("shared");
    let (owner, one, two) = (node_in(&folder), node_in(&folder), node_in(&folder));
    let (first, to_first) = owner.expose(64, Rights::Write).unwrap();
    let (second, to_second) = owner.expose(64, Rights::Write).unwrap();
    let wires =
        [&first, &second].map(|memory| owner.watch(memory, 0..8, Access::Write, None).unwrap());
    let (mut of_one, again) = (one.map(&to_first).unwrap(), one.map(&to_first).unwrap());
    let mut of_two = two.map(&to_second).unwrap();
    drop(again);
    for round in 1..=3 {
        wires.iter().for_each(Tripwire::arm);
        of_one.store(0, round).unwrap();
        of_one.commit().unwrap();
        assert!(owner.wait(&[&wires[0]], long()).unwrap());
        assert!(wires[0].has_fired() && !wires[1].has_fired());
        of_two.store(0, round).unwrap();
        of_two.commit().unwrap();
        assert!(owner.wait(&[&wires[1]], long()).unwrap() && wires[1].has_fired());
    }
}

#[test]
fn who_finds_a_name_is_answered_or_refused() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    assert!(two.try_find("prices").unwrap().is_none());
    assert!(matches!(two.find("prices", Some(Instant::now())), Err(Error::TimedOut)));
    // Who waits for it finds it when it comes.
    let waiting = thread::spawn({
        let two = two.clone();
        move || two.find("prices", long())
    });
    let offer = one.offer("prices").unwrap();
    let found = waiting.join().unwrap().unwrap();
    assert!(one.offer("prices").is_err() && two.offer("prices").is_err(), "it is taken");
    assert_eq!(two.names().unwrap(), ["prices"]);

    thread::scope(|scope| {
        scope.spawn(|| {
            let visitor = offer.accept(long()).unwrap();
            let peer = visitor.peer();
            assert_eq!(peer.pid, std::process::id() as i32);
            assert_eq!(visitor.greeting(), b"who is there?");
            visitor.answer(b"one").unwrap();
            drop(offer.accept(long()).unwrap());
            let too_long = offer.accept(long()).unwrap().answer(&[0; 129]);
            assert!(matches!(too_long, Err(Error::TooLong { len: 129, most: 128 })));
        });
        assert_eq!(found.ask(b"who is there?", long()).unwrap(), b"one");
        for _ in 0..2 {
            let refused = found.ask(b"", long());
            assert!(matches!(refused, Err(Error::Refused(Reason::Refused))), "{refused:?}");
        }
    });
    assert!(matches!(found.ask(&[0; 129], long()), Err(Error::TooLong { .. })));
    assert!(offer.try_accept().unwrap().is_none());
    assert!(matches!(offer.accept(Some(Instant::now())), Err(Error::TimedOut)));

    // Who has asked when it ends is refused, and so is who comes later.
    thread::scope(|scope| {
        let asking = scope.spawn(|| found.ask(b"late", long()));
        soon("it has asked", || !offer.is_empty());
        drop(offer);
        assert!(matches!(asking.join().unwrap(), Err(Error::Refused(_))));
    });
    assert!(matches!(found.ask(b"later", long()), Err(Error::Refused(_))));
    assert!(two.try_find("prices").unwrap().is_none());
    let offer = two.offer("prices").unwrap();
    two.close();
    assert!(matches!(offer.accept(None), Err(Error::NodeGone)));
    assert!(matches!(two.offer("others"), Err(Error::NodeGone)));
}

#[test]
fn a_name_is_for_those_who_are_admitted() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let nobody = one.offer_to("prices", Admit::Users(vec![u32::MAX - 7])).unwrap();
    let found = two.find("prices", long()).unwrap();
    assert!(matches!(found.ask(b"", long()), Err(Error::Refused(_))));
    assert!(nobody.is_empty());
    // A file of somebody who is not admitted is not believed.
    let strict = SharedConfig {
        admit: Admit::Users(vec![u32::MAX - 7]),
        ..SharedConfig::new(folder.path())
    };
    let strict = SharedNode::open(strict).unwrap();
    assert!(matches!(strict.try_find("prices"), Err(Error::Forbidden)));
    assert!(strict.names().unwrap().is_empty());
}

/// Who sleeps until something comes of a peer wakes when the peer takes its memory away.
#[test]
fn whoever_waits_is_told_when_the_memory_of_the_peer_is_withdrawn() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let (theirs, cookie) = two.expose(64, Rights::Write).unwrap();
    let (memory, _) = one.expose(64, Rights::Write).unwrap();
    let remote = one.map(&cookie).unwrap();
    let wire = one.watch(&memory, 0..8, Access::Write, Some(&remote)).unwrap();
    let waiting = thread::spawn({
        let one = one.clone();
        move || {
            wire.arm();
            let woken = one.wait(&[&wire], long()).unwrap();
            (woken, wire)
        }
    });
    drop(theirs);
    let (woken, wire) = waiting.join().unwrap();
    assert!(woken && wire.has_fired());
    assert!(matches!(remote.check(), Err(Error::Refused(Reason::BadKey))));
    let late = one.watch(&memory, 8..16, Access::Write, Some(&remote)).unwrap();
    assert!(late.has_fired(), "it is known already");
}

/// One peer loses the memory, the other goes on. (Both are this process, so the rest is
/// tested with processes: `tests/clan/shared.rs`.)
#[test]
fn a_cookie_can_be_for_one_process_and_be_taken_from_it() {
    let folder = TemporaryFolder::new("shared");
    let (one, two) = (node_in(&folder), node_in(&folder));
    let me = Peer { pid: std::process::id() as i32, uid: 0, gid: 0 };
    let other = Peer { pid: 1, ..me };
    let (memory, cookie) = one.expose(64, Rights::Write).unwrap();
    let mut remote = two.map(&cookie).unwrap();
    memory.restrict_to(&other);
    assert!(matches!(two.map(&cookie), Err(Error::StaleCookie)), "it is for another one");
    remote.store(0, 1).unwrap();
    memory.restrict_to(&me);
    let mut again = two.map(&cookie).unwrap();
    memory.revoke_from(&other);
    again.store(0, 2).unwrap();
    let wire = one.watch(&memory, 0..8, Access::Write, None).unwrap();
    memory.revoke_from(&me);
    soon("it is told", || remote.check().is_err() && again.check().is_err());
    assert!(matches!(again.store(0, 3), Err(Error::Refused(Reason::BadKey))));
    assert!(matches!(two.map(&cookie), Err(Error::StaleCookie)));
    wire.arm();
    assert!(!wire.has_fired());
    assert_eq!(memory.load(0).unwrap(), 2);
}

/// With places at random, 1,000 of 16,384 would meet another some 30 times.
#[test]
fn nodes_of_one_process_and_of_many_begin_to_look_for_a_number_far_apart() {
    let count = u32::from(HostId::MAX) + 1;
    let places = |starts: &mut dyn Iterator<Item = u32>| {
        starts.map(|start| start % count).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(places(&mut (0..1_000).map(|nth| start_of_search(4_711, nth))) > 900);
    assert!(places(&mut (0..1_000).map(|process| start_of_search(process, 0))) > 900);
    let both = (0..1_000).map(|nth| start_of_search(nth % 32, nth / 32));
    assert!(places(&mut both.into_iter()) > 900);
}
