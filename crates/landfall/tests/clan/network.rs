//! Memory over networks: what people do with handles.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::Instant;

use super::{channel_pair, channel_pair_with, noise, pairs, soon, udp_pair, until};
use landfall::clan::network::{Config, Node, WordFunction};
use landfall::clan::{Access, Error, Fabric, Local, Remote, Rights, Stage, Tripwire};

#[test]
fn writes_of_every_length_and_alignment_arrive_where_they_were_meant() {
    for (name, (here, there)) in pairs() {
        let (memory, cookie) = here.expose(300_000, Rights::ReadWrite).unwrap();
        let mut window = there.map(&cookie).unwrap();
        let mut expected = vec![0u8; 300_000];
        let mut at = 0usize;
        for (nth, len) in [0, 1, 7, 8, 9, 127, 128, 129, 1000, 4096, 65_535, 65_537, 100_001]
            .into_iter()
            .enumerate()
        {
            let bytes = noise(nth as u64, len);
            loop {
                match window.write(at as u64, &bytes) {
                    Ok(()) => break,
                    Err(Error::Busy) => window.wait_for(Stage::Room, soon()).unwrap(),
                    Err(other) => panic!("{name}: {other}"),
                }
            }
            expected[at..at + len].copy_from_slice(&bytes);
            at += len + nth;
        }
        window.commit().unwrap();
        window.wait_for(Stage::Delivered, soon()).unwrap();
        let mut found = vec![0; expected.len()];
        memory.copy_out(0, &mut found).unwrap();
        assert!(found == expected, "{name}");
        // And read back, over the network.
        let mut read = vec![1; expected.len()];
        window.read(0, &mut read, soon()).unwrap();
        assert!(read == expected, "{name}");
        let mut few = [0; 5];
        window.read(3, &mut few, soon()).unwrap();
        assert_eq!(few, expected[3..8]);
    }
}

#[test]
fn what_one_handle_writes_takes_effect_in_the_order_of_the_calls() {
    for (name, (here, there)) in pairs() {
        let (memory, cookie) = here.expose(1 << 20, Rights::Write).unwrap();
        let (source, _) = there.expose(1 << 19, Rights::Read).unwrap();
        let mut window = there.map(&cookie).unwrap();
        let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
        for round in 1..=50u64 {
            // Long from memory, then the flag: anyone who sees the flag sees all.
            source.copy_in(0, &noise(round, 1 << 19)).unwrap();
            tripwire.arm();
            let dma = window.write_from(4096, &source, 0..1 << 19).unwrap();
            window.write(600_008, &noise(round + 1, 1000)).unwrap();
            window.store(0, round).unwrap();
            window.commit().unwrap();
            until(&here, || memory.load(0).unwrap() == round);
            let mut found = vec![0; 1 << 19];
            memory.copy_out(4096, &mut found).unwrap();
            assert!(found == noise(round, 1 << 19), "{name}, round {round}");
            let mut found = vec![0; 1000];
            memory.copy_out(600_008, &mut found).unwrap();
            assert!(found == noise(round + 1, 1000), "{name}, round {round}");
            assert!(tripwire.wait(soon()).unwrap());
            window.wait_for(Stage::Sent(dma), soon()).unwrap();
        }
    }
}

#[test]
fn a_tripwire_fires_once_per_arming_and_only_for_its_range() {
    for (name, (here, there)) in pairs() {
        let (memory, cookie) = here.expose(4096, Rights::Write).unwrap();
        let mut window = there.map(&cookie).unwrap();
        let mine = here.watch(&memory, 64..128, Access::Write, None).unwrap();
        let other = here.watch(&memory, 128..136, Access::Write, None).unwrap();
        mine.arm();
        other.arm();
        window.store(56, 1).unwrap();
        window.store(136, 1).unwrap();
        window.store(120, 1).unwrap();
        window.commit().unwrap();
        assert!(mine.wait(soon()).unwrap(), "{name}");
        assert!(!other.has_fired(), "{name}");
        mine.arm();
        assert!(!mine.has_fired(), "{name}: armed anew");
        // Many that nobody waits for switch it off; arming switches it on again.
        mine.disarm();
        for round in 0..100 {
            window.store(64, round).unwrap();
            window.commit().unwrap();
            until(&here, || memory.load(64).unwrap() == round);
        }
        assert!(!mine.has_fired(), "{name}: idle");
        for round in 100..200 {
            mine.arm();
            window.store(64, round).unwrap();
            window.commit().unwrap();
            assert!(mine.wait(soon()).unwrap(), "{name}");
        }
        assert!(!other.has_fired(), "{name}");
    }
}

#[test]
fn a_tripwire_on_the_way_out_tells_that_it_has_arrived() {
    let (here, there) = udp_pair();
    let (memory, cookie) = here.expose(4096, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let tripwire = there.watch_own(&window, 8..16, Access::Write).unwrap();
    tripwire.arm();
    window.store(8, 7).unwrap();
    window.commit().unwrap();
    assert!(tripwire.wait(soon()).unwrap());
    assert_eq!(memory.load(8).unwrap(), 7);
}

#[test]
fn words_of_a_peer_are_changed_in_one_step() {
    const EACH: u64 = 200;
    let (here, there) = udp_pair();
    let (memory, cookie) = here.expose(64, Rights::ReadWrite).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let window = there.map(&cookie).unwrap();
                for _ in 0..EACH {
                    window.wait_change(8, WordFunction::Add(1), soon()).unwrap();
                }
            });
        }
        for _ in 0..EACH {
            memory.change(8, WordFunction::Add(1)).unwrap();
        }
    });
    assert_eq!(memory.load(8).unwrap(), 4 * EACH);
    let window = there.map(&cookie).unwrap();
    let swap = WordFunction::CompareSwap { expected: 4 * EACH, new: 5 };
    assert_eq!(window.wait_change(8, swap, soon()).unwrap(), 4 * EACH);
    assert_eq!(memory.load(8).unwrap(), 5);
}

#[test]
fn a_revoked_cookie_is_good_for_nothing_and_the_writer_hears_of_it() {
    for (name, (here, there)) in pairs() {
        let (memory, cookie) = here.expose(64, Rights::Write).unwrap();
        let mut window = there.map(&cookie).unwrap();
        window.store(0, 1).unwrap();
        window.commit().unwrap();
        until(&here, || memory.load(0).unwrap() == 1);
        memory.revoke();
        window.store(0, 2).unwrap();
        window.commit().unwrap();
        until(&there, || window.check().is_err());
        assert!(matches!(window.check(), Err(Error::StaleCookie)), "{name}");
        assert_eq!(memory.load(0).unwrap(), 1, "{name}");
        // The memory goes with its last handle; nothing is held any more.
        drop((memory, window));
        let (_, other) = here.expose(64, Rights::Read).unwrap();
        let mut window = there.map(&other).unwrap();
        assert!(matches!(window.store(0, 1), Err(Error::Forbidden)), "{name}");
    }
}

#[test]
fn what_is_not_there_is_told_before_anything_is_sent() {
    let (here, there) = channel_pair();
    let (memory, cookie) = here.expose(100, Rights::ReadWrite).unwrap();
    let mut window = there.map(&cookie).unwrap();
    assert_eq!(window.len(), 100);
    assert_eq!(memory.len(), 100);
    let out = |result: Result<(), Error>| assert!(matches!(result, Err(Error::OutOfBounds { .. })));
    out(window.store(96, 1));
    out(window.write(99, b"ab"));
    out(window.write(u64::MAX, b"ab"));
    out(window.read(90, &mut [0; 11], soon()));
    out(memory.store(96, 1));
    out(memory.load(u64::MAX - 7).map(drop));
    out(memory.copy_in(100, &[1]));
    out(here.watch(&memory, 90..101, Access::Write, None).map(drop));
    assert!(matches!(window.store(4, 1), Err(Error::Unaligned(4))));
    assert!(matches!(memory.load(1), Err(Error::Unaligned(1))));
    assert!(matches!(window.write_from(4, &memory, 0..8), Err(Error::Unaligned(4))));
    assert!(matches!(window.write_from(0, &memory, 0..8), Err(Error::BadConfig(_))), "foreign");
    assert!(matches!(here.expose(0, Rights::Read), Err(Error::BadConfig(_))));
    assert!(matches!(here.map(&cookie), Err(Error::NoRoute)), "to itself");
}

#[test]
fn everything_is_bounded() {
    let config = Config { apertures: 4, windows: 4, tripwires: 4, ..Config::default() };
    let (here, there) = channel_pair_with(&config);
    let made: Vec<_> = (0..4).map(|_| here.expose(64, Rights::Write).unwrap()).collect();
    assert!(matches!(here.expose(64, Rights::Write), Err(Error::NoRoom(_))));
    let (memory, cookie) = &made[0];
    let windows: Vec<_> = (0..4).map(|_| there.map(cookie).unwrap()).collect();
    assert!(matches!(there.map(cookie), Err(Error::NoRoom(_))));
    let watch = || here.watch(memory, 0..8, Access::Write, None);
    let tripwires: Vec<_> = (0..4).map(|_| watch().unwrap()).collect();
    assert!(matches!(watch(), Err(Error::NoRoom(_))));
    drop((windows, tripwires));
    there.map(cookie).unwrap();
    watch().unwrap();
    drop(made);
    here.expose(64, Rights::Write).unwrap();
}

#[test]
fn a_full_way_says_so_and_tells_when_there_is_room() {
    let config = Config { write_buffer: 4096, frames: 8, ..Config::default() };
    let (here, there) = channel_pair_with(&config);
    let (memory, cookie) = here.expose(1 << 16, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let mut busy = 0;
    for word in 0..50_000u64 {
        // Every other word: they are not joined.
        while let Err(error) = window.store(word * 16 % (1 << 16), word) {
            assert!(matches!(error, Error::Busy), "{error}");
            busy += 1;
            window.commit().unwrap();
            window.wait_for(Stage::Room, soon()).unwrap();
        }
    }
    window.commit().unwrap();
    window.wait_for(Stage::Delivered, soon()).unwrap();
    assert!(busy > 0, "it was never full");
    // Each place holds what was written there last.
    for word in 50_000 - 4_096..50_000u64 {
        assert_eq!(memory.load(word * 16 % (1 << 16)).unwrap(), word);
    }
}

#[test]
fn what_was_written_arrives_though_the_writer_is_gone_at_once() {
    let (here, there) = udp_pair();
    let (memory, cookie) = here.expose(1 << 20, Rights::Write).unwrap();
    let mut window = there.map(&cookie).unwrap();
    let bytes = noise(1, 1 << 20);
    window.write(0, &bytes).unwrap();
    drop((window, there));
    until(&here, || {
        let mut found = vec![0; 1 << 20];
        memory.copy_out(0, &mut found).unwrap();
        found == bytes
    });
}

#[test]
fn a_node_that_is_closed_says_so_to_all_who_wait() {
    let (here, there) = udp_pair();
    let (memory, cookie) = here.expose(64, Rights::Write).unwrap();
    let window = there.map(&cookie).unwrap();
    let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    let (theirs, _) = there.expose(8, Rights::Write).unwrap();
    let lost = there.watch(&theirs, 0..8, Access::Write, Some(&window)).unwrap();
    tripwire.arm();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| tripwire.wait(soon()));
        let watching = scope.spawn(|| lost.wait(soon()));
        close(&here);
        assert!(matches!(waiting.join().unwrap(), Err(Error::NodeGone)));
        // The other side hears that the peer is gone.
        assert!(watching.join().unwrap().unwrap());
    });
    assert!(matches!(window.check(), Err(Error::PeerLost)));
    assert!(matches!(here.expose(8, Rights::Write), Err(Error::NodeGone)));
}

fn close(node: &Node) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let limit = std::time::Duration::from_secs(60);
    runtime.block_on(async { tokio::time::timeout(limit, node.clone().close()).await }).unwrap();
}

/// Tells by number that a task is to go on.
struct GoesOn(usize, Sender<usize>);

impl Wake for GoesOn {
    fn wake(self: Arc<Self>) {
        // Nobody waits any more: the test is over.
        let _ = self.1.send(self.0);
    }
}

#[test]
fn of_many_windows_that_wait_only_those_that_find_room_are_told() {
    const WINDOWS: usize = 500;
    // Room for some 30 of these writes.
    let config = Config { write_buffer: 4096, ..Config::default() };
    let (here, there) = channel_pair_with(&config);
    let (_memory, cookie) = here.expose(64, Rights::Write).unwrap();
    let mut windows: Vec<_> = (0..WINDOWS).map(|_| there.map(&cookie).unwrap()).collect();
    let (tell, told) = channel();
    (0..WINDOWS).for_each(|number| tell.send(number).unwrap());
    let (mut done, mut wakes) = (0, 0);
    let deadline = soon();
    while done < WINDOWS {
        let Ok(number) = told.try_recv() else {
            there.turn();
            assert!(Some(Instant::now()) < deadline, "{done} of {WINDOWS} have written");
            continue;
        };
        wakes += 1;
        match windows[number].write(0, &[7; 64]) {
            Ok(()) => done += 1,
            Err(Error::Busy) => {
                let waker = Waker::from(Arc::new(GoesOn(number, tell.clone())));
                let context = &mut Context::from_waker(&waker);
                if windows[number].poll_reached(Stage::Room, context).is_ready() {
                    tell.send(number).unwrap();
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Each is looked at first, and once more when it was told. Were all told of any room,
    // there would be eight times as many.
    assert!(wakes <= 3 * WINDOWS, "{wakes} looks for {WINDOWS} writes");
}
