//! Shapes of several: many producers and consumers, work queues, blackboards, and waiting for
//! any of them, over nodes of one process that share memory in either way.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use landfall::clan::layer::any::{Waitable, wait_any};
use landfall::clan::layer::board::{self, Board};
use landfall::clan::layer::merge::{Merge, Spread};
use landfall::clan::layer::{message, publish, queue, rpc, stream};
use landfall::clan::shared::{SharedConfig, SharedNode};
use landfall::clan::{Error, Fabric, Threads};
use landfall_testkit::TemporaryFolder;
use proptest::prelude::*;

use super::support::{self, bytes, cases};

fn patience() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Runs a test over nodes of each kind. The last argument ends a node.
macro_rules! over_both {
    ($($test:ident($count:expr))+) => {
        mod over_threads {
            use super::*;
            $(#[test]
            fn $test() {
                let nodes = Threads::nodes($count).unwrap();
                super::$test(&nodes, Threads::end);
            })+
        }
        mod over_shared_memory {
            use super::*;
            $(#[test]
            fn $test() {
                let folder = TemporaryFolder::new("shapes");
                let open = |_| SharedNode::open(SharedConfig::new(folder.path())).unwrap();
                let nodes: Vec<_> = (0..$count).map(open).collect();
                super::$test(&nodes, SharedNode::close);
            })+
        }
    };
}
over_both! {
    many_producers_and_consumers_lose_and_repeat_nothing(5)
    what_a_consumer_leaves_goes_to_another(4)
    a_merge_goes_on_when_producers_end(4)
    readers_of_a_board_have_the_last_value(4)
    whoever_waits_for_several_hears_of_each(2)
}

/// Two producers, three consumers, and elements of which each comes out once.
fn many_producers_and_consumers_lose_and_repeat_nothing<F: Fabric>(nodes: &[F], _: fn(&F)) {
    const EACH: u64 = 3_000;
    let config = queue::Config::new(8, 16).batch(4, Duration::from_micros(50));
    let (producers, consumers) = nodes.split_at(2);
    let mut spreads: Vec<_> = producers.iter().map(Spread::new).collect();
    let mut merges: Vec<_> = consumers.iter().map(Merge::new).collect();
    for (producer, spread) in producers.iter().zip(&mut spreads) {
        for (consumer, merge) in consumers.iter().zip(&mut merges) {
            let (sender, receiver) = support::queue(producer, consumer, config);
            spread.add(sender);
            merge.add(receiver);
        }
    }
    let got = thread::scope(|scope| {
        for (nth, mut spread) in (0..).zip(spreads) {
            scope.spawn(move || {
                for number in 0..EACH {
                    spread.put(&(nth * EACH + number).to_le_bytes(), patience()).unwrap();
                }
                spread.drain(patience()).unwrap();
                assert!(spread.lost().is_empty() && spread.under_way() == 0);
            });
        }
        let consume = |mut merge: Merge<F>| {
            let (mut got, mut last) = (Vec::new(), BTreeMap::new());
            let mut element = [0; 8];
            loop {
                match merge.get(&mut element, patience()) {
                    Ok(from) => {
                        let number = u64::from_le_bytes(element);
                        let before = last.insert(from, number);
                        assert!(before.is_none_or(|before| before < number), "in their order");
                        got.push(number);
                    }
                    Err(Error::Closed) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let ended = merge.ended();
            assert!(ended.len() == 2 && ended.iter().all(|(_, why)| matches!(why, Error::Closed)));
            got
        };
        let threads: Vec<_> =
            merges.into_iter().map(|merge| scope.spawn(move || consume(merge))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(got.len() as u64, 2 * EACH, "none twice");
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), (0..2 * EACH).collect());
}

/// A consumer dies with elements that it did not take out: others get them.
fn what_a_consumer_leaves_goes_to_another<F: Fabric>(nodes: &[F], end: fn(&F)) {
    let config = queue::Config::new(8, 8).singly();
    let mut spread = Spread::new(&nodes[0]);
    let mut consumers = Vec::new();
    for node in &nodes[1..] {
        let (sender, receiver) = support::queue(&nodes[0], node, config);
        spread.add(sender);
        consumers.push(receiver);
    }
    let mut number = 0u64;
    while spread.try_put(&number.to_le_bytes()).unwrap().is_some() {
        number += 1;
    }
    assert_eq!((number, spread.under_way()), (24, 24), "all are full");
    let mut element = [0; 8];
    let mut done = BTreeSet::new();
    let mut work = |consumer: &mut queue::Receiver<F>| {
        let mut count = 0;
        while consumer.try_get(&mut element).unwrap_or(false) {
            done.insert(u64::from_le_bytes(element));
            count += 1;
        }
        count
    };
    // One takes all it has, and dies afterwards; one dies with all it has.
    assert_eq!(work(&mut consumers[0]), 8);
    end(&nodes[1]);
    end(&nodes[2]);
    let deadline = patience();
    while spread.drain(Some(Instant::now())).is_err() {
        work(&mut consumers[2]);
        assert!(Some(Instant::now()) < deadline, "{} are under way", spread.under_way());
    }
    let lost: Vec<_> = spread.lost().into_iter().map(|(id, _)| id).collect();
    assert_eq!(lost.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1]));
    assert_eq!(done, (0..24).collect());
    // Until its end is noticed the last one may be given an element: then it is the wait that
    // tells.
    end(&nodes[3]);
    let put = spread.put(&[0; 8], patience()).and_then(|_| spread.drain(patience()));
    assert!(matches!(put, Err(Error::PeerLost)), "{put:?}");
    let put = spread.put(&[0; 8], patience());
    assert!(matches!(put, Err(Error::PeerLost)), "{put:?}");
    assert!(spread.is_empty());
}

fn a_merge_goes_on_when_producers_end<F: Fabric>(nodes: &[F], end: fn(&F)) {
    let config = queue::Config::new(8, 4).singly();
    let mut merge = Merge::new(&nodes[0]);
    let mut senders = Vec::new();
    for node in &nodes[1..] {
        let (sender, receiver) = support::queue(node, &nodes[0], config);
        merge.add(receiver);
        senders.push(sender);
    }
    let mut element = [0; 8];
    assert!(merge.try_get(&mut element).unwrap().is_none());
    assert!(matches!(merge.get(&mut element, Some(Instant::now())), Err(Error::TimedOut)));
    for sender in &mut senders {
        sender.put(&[1; 8], patience()).unwrap();
    }
    // One ends in order, and one is killed: what they had put in comes before their end.
    drop(senders.remove(0));
    end(&nodes[2]);
    let mut from: Vec<_> = (0..3).map(|_| merge.get(&mut element, patience()).unwrap()).collect();
    from.sort_unstable();
    assert_eq!(from, [0, 1, 2]);
    let waiting = thread::spawn(move || {
        let got = merge.get(&mut element, patience()).unwrap();
        (merge, got)
    });
    senders[1].put(&[2; 8], patience()).unwrap();
    let (mut merge, got) = waiting.join().unwrap();
    assert_eq!(got, 2);
    let deadline = patience();
    while merge.len() > 1 {
        assert!(merge.try_get(&mut element).unwrap().is_none() && Some(Instant::now()) < deadline);
    }
    let mut ended = merge.ended();
    ended.sort_by_key(|(id, _)| *id);
    assert!(matches!(ended[..], [(0, Error::Closed), (1, Error::PeerLost)]), "{ended:?}");
    drop(senders);
    assert!(matches!(merge.get(&mut element, patience()), Err(Error::Closed)));
    assert!(merge.is_empty());
}

fn readers_of_a_board_have_the_last_value<F: Fabric>(nodes: &[F], end: fn(&F)) {
    let config = board::Config::new(3, 20);
    let mut board = Board::open(&nodes[0], config).unwrap();
    let add = |board: &mut Board<F>, node: &F| {
        let half = board::Reader::open(node, config).unwrap();
        board.add(&half.cookie()).unwrap();
        half.connect(&board.cookie()).unwrap()
    };
    let mut early = add(&mut board, &nodes[1]);
    assert!(early.get(5).unwrap().is_none());
    assert!(matches!(early.newer(5, 0, Some(Instant::now())), Err(Error::TimedOut)));
    for version in 1..=9u64 {
        board.set(5, &bytes(version, version as usize)).unwrap();
        let value = early.newer(5, version - 1, patience()).unwrap();
        assert_eq!(value, board::Value { version, bytes: bytes(version, version as usize) });
    }
    board.set(u64::MAX, b"").unwrap();
    board.set(0, &[7; 20]).unwrap();
    assert!(matches!(board.set(1, b"no room"), Err(Error::NoRoom(_))));
    assert!(matches!(board.set(0, &[0; 21]), Err(Error::TooLong { .. })));
    // Who comes later finds what is.
    let mut late = add(&mut board, &nodes[2]);
    for reader in [&mut early, &mut late] {
        assert_eq!(reader.keys().unwrap(), [0, 5, u64::MAX]);
        assert_eq!(reader.get(5).unwrap().unwrap().bytes, bytes(9, 9));
        assert_eq!(reader.get(0).unwrap().unwrap().bytes, [7; 20]);
        assert!(reader.get(u64::MAX).unwrap().unwrap().bytes.is_empty());
    }
    // One reader is killed, and nobody else notices.
    end(&nodes[1]);
    let deadline = patience();
    while board.readers() > 1 {
        board.set(5, b"again").unwrap();
        assert!(Some(Instant::now()) < deadline, "it is still a reader");
    }
    assert!(board.flush().unwrap());
    assert_eq!(late.get(5).unwrap().unwrap().bytes, b"again");
    drop(board);
    let last = late.get(5).unwrap().unwrap();
    assert_eq!(last.bytes, b"again", "it stays to be read");
    assert!(matches!(late.newer(5, last.version, patience()), Err(Error::Closed)));
}

/// A value is one that was set, whenever it is read: also while it is overwritten.
#[test]
fn no_value_of_a_board_is_a_mixture() {
    let (one, two) = Threads::pair().unwrap();
    let config = board::Config::new(2, 200);
    let mut board = Board::open(&one, config).unwrap();
    let half = board::Reader::open(&two, config).unwrap();
    board.add(&half.cookie()).unwrap();
    let mut reader = half.connect(&board.cookie()).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 1..=20_000u64 {
                let len = (round % 200) as usize;
                board.set(round % 2, &vec![round as u8; len]).unwrap();
            }
        });
        let mut last = [0; 2];
        while last.iter().sum::<u64>() < 20_000 {
            for key in 0..2 {
                let value = match reader.get(key) {
                    Ok(Some(value)) => value,
                    Ok(None) | Err(Error::Busy) => continue,
                    Err(error) => panic!("{error}"),
                };
                // The version counts this key's rounds.
                let round = 2 * value.version - key;
                assert_eq!(value.bytes, vec![round as u8; (round % 200) as usize]);
                assert!(value.version >= last[key as usize]);
                last[key as usize] = value.version;
            }
        }
    });
}

proptest! {
    #![proptest_config(cases(64))]

    /// A board beside a map: readers that come at any time, over a fabric on which each word
    /// arrives on its own and the board dies at any moment, read a value that was set, none
    /// older than one they had, and the last one where all has arrived.
    #[test]
    fn a_board_is_a_map(
        ops in proptest::collection::vec((0..4u64, 0..30usize, 0..12usize), 1..60),
        dies in any::<bool>(),
    ) {
        let (one, two) = super::lab::Lab::pair(40);
        let config = board::Config::new(3, 32);
        let mut board = Board::open(&one, config).unwrap();
        let half = board::Reader::open(&two, config).unwrap();
        board.add(&half.cookie()).unwrap();
        let mut reader = half.connect(&board.cookie()).unwrap();
        let mut set: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
        for (nth, (key, len, deliver)) in (0..).zip(ops) {
            let value = bytes(nth * 77, len);
            match board.set(key, &value) {
                Ok(()) => set.entry(key).or_default().push(value),
                Err(Error::NoRoom(_)) => prop_assert!(set.len() == 3 && !set.contains_key(&key)),
                Err(error) => panic!("{error}"),
            }
            one.deliver(deliver);
            check_board(&mut reader, &set, &mut seen);
        }
        if dies {
            one.kill();
        } else {
            loop {
                let is_done = board.flush().unwrap();
                one.deliver(usize::MAX);
                if is_done {
                    break;
                }
            }
            for (key, values) in &set {
                let value = reader.get(*key).unwrap().unwrap();
                prop_assert_eq!(&value.bytes, values.last().unwrap());
            }
        }
        check_board(&mut reader, &set, &mut seen);
    }
}

fn check_board(
    reader: &mut board::Reader<super::lab::Lab>,
    set: &BTreeMap<u64, Vec<Vec<u8>>>,
    seen: &mut BTreeMap<u64, u64>,
) {
    for key in 0..4 {
        let Some(value) = reader.get(key).unwrap() else { continue };
        assert_eq!(value.bytes, set[&key][value.version as usize - 1]);
        let before = seen.insert(key, value.version).unwrap_or(0);
        assert!(value.version >= before, "it went back");
    }
}

fn whoever_waits_for_several_hears_of_each<F: Fabric>(nodes: &[F], end: fn(&F)) {
    let (one, two) = (&nodes[0], &nodes[1]);
    let (mut put, mut elements) = support::queue(one, two, queue::Config::new(8, 4).singly());
    let (mut write, mut read) = support::stream(one, two, stream::Config::new(64));
    let (mut send, mut messages) = support::message(one, two, message::Config::new(64));
    let (mut client, mut server) = support::rpc(one, two, rpc::Config::new(8, 8));
    let (mut publisher, mut subscriber) = support::publish(one, two, publish::Config::new(8, 4));
    for round in 0..30 {
        let which = round % 5;
        thread::scope(|scope| {
            let told = scope.spawn(|| match which {
                0 => put.put(&[0; 8], patience()),
                1 => write.write_some(&[0; 8], patience()).map(drop),
                2 => send.send(&[0; 8], patience()),
                3 => client.call(&[0; 8], patience()).map(drop),
                _ => publisher.publish(&[0; 8]).map(drop),
            });
            let sources: &mut [&mut dyn Waitable<F>] =
                &mut [&mut elements, &mut read, &mut messages, &mut server, &mut subscriber];
            assert_eq!(wait_any(two, sources, patience()).unwrap(), which);
            let mut into = [0; 8];
            match which {
                0 => assert!(elements.try_get(&mut into).unwrap()),
                1 => assert_eq!(read.try_read(&mut into).unwrap(), Some(8)),
                2 => drop(messages.try_receive().unwrap().unwrap()),
                3 => server.try_next().unwrap().unwrap().reply(&[]).unwrap(),
                _ => assert_eq!(subscriber.try_next().unwrap().unwrap().bytes, [0; 8]),
            }
            told.join().unwrap().unwrap();
            let sources: &mut [&mut dyn Waitable<F>] =
                &mut [&mut elements, &mut read, &mut messages, &mut server, &mut subscriber];
            let now = Some(Instant::now());
            assert!(matches!(wait_any(two, sources, now), Err(Error::TimedOut)));
        });
    }
    // The end of the peer is something to hear of.
    thread::scope(|scope| {
        scope.spawn(|| end(one));
        assert_eq!(wait_any(two, &mut [&mut read], patience()).unwrap(), 0);
    });
    assert!(matches!(wait_any::<F>(two, &mut [], patience()), Err(Error::Closed)));
}
