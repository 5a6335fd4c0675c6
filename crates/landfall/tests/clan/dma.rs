//! DMA queues: the same program over every carrier.

use landfall::clan::dma::{DmaEngine, DmaEvents, DmaQueue, Request};
use landfall::clan::{Access, Error, Event, EventQueue, Fabric, Local, Rights, Tripwire};

use super::{noise, on_every_carrier, shared_pair, soon};

fn chains<F: DmaEngine>(name: &str, here: &F, there: &F) {
    const DEPTH: usize = 8;
    let (memory, cookie) = here.expose(1 << 16, Rights::ReadWrite).unwrap();
    let (source, _) = there.expose(1 << 16, Rights::Read).unwrap();
    let (back, _) = there.expose(1 << 16, Rights::Read).unwrap();
    let window = there.map(&cookie).unwrap();
    let mut queue = there.dma_queue(DEPTH).unwrap();
    let mut events = there.events(4).unwrap();
    events.register_dma(&queue, 3).unwrap();
    let bytes = noise(5, 1 << 16);
    source.copy_in(0, &bytes).unwrap();
    let flag = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    let own = there.watch_own(&window, 0..8, Access::Both).unwrap();
    flag.arm();
    own.arm();
    let (mut put, mut done) = (0, 0);
    while done < 200 {
        let chain = [
            Request::Write { from: &source, range: 0..4096, to: &window, offset: 8192 },
            Request::Word { to: &window, offset: 0, word: put + 1 },
            Request::Read { from: &window, offset: 0, into: &back, range: 16..24 },
        ];
        if put < 200 {
            match queue.push(&chain) {
                Ok(number) => {
                    assert_eq!(number, put, "{name}");
                    put += 1;
                    continue;
                }
                Err(Error::Busy) => assert!(queue.under_way() >= 2, "{name}"),
                Err(other) => panic!("{name}: {other}"),
            }
        }
        assert_eq!(events.wait(soon()).unwrap(), Some(Event::Dma(3)), "{name}");
        while let Some(over) = queue.try_done() {
            assert_eq!(over.chain, done, "{name}");
            over.result.unwrap();
            done += 1;
            assert!(memory.load(0).unwrap() >= done, "{name}");
            assert!(back.load(16).unwrap() >= done, "{name}");
        }
    }
    assert!(here.wait(&[&flag], soon()).unwrap(), "{name}: the flag wakes");
    assert!(there.wait(&[&own], soon()).unwrap(), "{name}: this node's own, too");
    let mut found = vec![0; 4096];
    memory.copy_out(8192, &mut found).unwrap();
    assert!(found == bytes[..4096], "{name}");
    assert_eq!(queue.under_way(), 0, "{name}");
    assert!(queue.wait_done(soon()).unwrap().is_none(), "{name}: nothing is under way");
    // Not registered any more: nothing is told, and it is done all the same.
    events.unregister_dma(&queue).unwrap();
    while events.next().is_some() {}
    queue.push(&[Request::Word { to: &window, offset: 8, word: 1 }]).unwrap();
    assert!(queue.wait_done(soon()).unwrap().expect("a chain").result.is_ok(), "{name}");
    assert_eq!((events.next(), memory.load(8).unwrap()), (None, 1), "{name}");
    // One that is done before it is registered tells at once.
    queue.push(&[Request::Word { to: &window, offset: 8, word: 2 }]).unwrap();
    events.register_dma(&queue, 4).unwrap();
    assert_eq!(events.wait(soon()).unwrap(), Some(Event::Dma(4)), "{name}");
}

#[test]
fn one_program_has_dma_queues_on_every_carrier() {
    on_every_carrier!(chains);
}

fn refusals<F: DmaEngine>(name: &str, here: &F, there: &F) {
    let (_memory, cookie) = here.expose(4096, Rights::Read).unwrap();
    let (source, _) = there.expose(4096, Rights::Read).unwrap();
    let window = there.map(&cookie).unwrap();
    let mut queue = there.dma_queue(2).unwrap();
    let nothing = queue.push(&[]);
    assert!(matches!(nothing, Err(Error::BadConfig(_))), "{name}: {nothing:?}");
    let word = |offset| Request::Word { to: &window, offset, word: 1 };
    assert!(matches!(queue.push(&[word(4)]), Err(Error::Unaligned(4))), "{name}");
    assert!(matches!(queue.push(&[word(4096)]), Err(Error::OutOfBounds { .. })), "{name}");
    assert!(matches!(queue.push(&[word(u64::MAX - 7)]), Err(Error::OutOfBounds { .. })), "{name}");
    let three = [word(0), word(0), word(0)];
    assert!(matches!(queue.push(&three), Err(Error::TooLong { len: 3, most: 2 })), "{name}");
    for (range, offset) in [(0..4104, 0), (8..4096, 16), (0..0, 0), (4..12, 0), (0..8, 4)] {
        let request = Request::Write { from: &source, range: range.clone(), to: &window, offset };
        assert!(queue.push(&[request]).is_err(), "{name}: {range:?} to {offset}");
    }
    // Of another node.
    let mut other = here.dma_queue(2).unwrap();
    assert!(matches!(other.push(&[word(0)]), Err(Error::BadConfig(_))), "{name}");
    let foreign = here.events(2).unwrap().register_dma(&queue, 1);
    assert!(matches!(foreign, Err(Error::BadConfig(_))), "{name}: {foreign:?}");
    assert_eq!((queue.under_way(), other.under_way()), (0, 0), "{name}");
    // What the cookie does not allow ends the chain, and nothing of it is done.
    let back = Request::Read { from: &window, offset: 0, into: &source, range: 0..8 };
    source.store(0, 9).unwrap();
    queue.push(&[word(0), back]).unwrap();
    let done = queue.wait_done(soon()).unwrap().expect("a chain");
    assert!(matches!(done.result, Err(Error::Forbidden)), "{name}: {:?}", done.result);
    assert_eq!(source.load(0).unwrap(), 9, "{name}");
}

#[test]
fn chains_that_cannot_be_are_refused_on_every_carrier() {
    on_every_carrier!(refusals);
}

/// A chain for a node that ended says so, and the queue goes on with others.
#[test]
fn a_chain_for_a_peer_that_is_gone_ends_with_that() {
    let (_folder, (here, there)) = shared_pair();
    let (memory, cookie) = here.expose(4096, Rights::Write).unwrap();
    let (_kept, other) = there.expose(64, Rights::Write).unwrap();
    let (window, own) = (there.map(&cookie).unwrap(), there.map(&other).unwrap());
    let mut queue = there.dma_queue(4).unwrap();
    drop(memory);
    // Told by the thread of this node.
    let deadline = soon();
    let refused = loop {
        queue.push(&[Request::Word { to: &window, offset: 0, word: 1 }]).unwrap();
        match queue.wait_done(soon()).unwrap().expect("a chain").result {
            Ok(()) => assert!(Some(std::time::Instant::now()) < deadline, "it is not told"),
            Err(error) => break error,
        }
    };
    assert!(refused.is_gone(), "{refused}");
    queue.push(&[Request::Word { to: &own, offset: 0, word: 1 }]).unwrap();
    queue.wait_done(soon()).unwrap().expect("a chain").result.unwrap();
    there.close();
    assert!(matches!(
        queue.push(&[Request::Word { to: &own, offset: 0, word: 1 }]),
        Err(Error::NodeGone)
    ));
}
