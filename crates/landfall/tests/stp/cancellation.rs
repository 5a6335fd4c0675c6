//! Operations are dropped in every state: nothing is lost but they, and their
//! memory comes back.

use std::time::Duration;

use super::{joined, memory_with, noise, pairs, run, within};
use landfall::stp::{Connection, Endpoint, Error, Memory, Peer, RemoteRights};

/// Waits until nothing is under way on either side and no memory is held.
async fn quiet(pair: &(Endpoint, Endpoint, Peer), regions: [u32; 2]) {
    let is_quiet = |endpoint: &Endpoint, regions| {
        let stats = endpoint.stats();
        stats.operations == 0 && stats.regions == regions && stats.granted_bytes == 0
    };
    within(async {
        while !is_quiet(&pair.0, regions[0]) || !is_quiet(&pair.1, regions[1]) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// The connection still does what it should.
async fn still_works(here: &Connection, there: &Connection) {
    let sending = here.send("still here").opaque(99).start();
    let message = within(there.receive(Memory::zeroed(10))).await.unwrap();
    assert_eq!((&*message, message.opaque()), (&b"still here"[..], 99));
    within(sending).await.unwrap();
}

#[test]
fn an_operation_that_never_began_does_nothing() {
    run(async {
        for (_, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            drop(here.send(vec![1; 1000]));
            drop(there.receive(Memory::zeroed(1000)));
            drop(here.read(Memory::zeroed(10), 1));
            still_works(&here, &there).await;
            quiet(&pair, [0, 0]).await;
        }
    });
}

#[test]
fn a_send_that_nobody_has_accepted_is_withdrawn() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            drop(here.send(memory_with(&noise(1, 100_000))).start());
            // It may have been offered before it was withdrawn, or not.
            let sending = here.send("after it").opaque(5).start();
            loop {
                let offer = within(there.offer()).await.unwrap();
                let (len, is_last) = (offer.len(), offer.opaque() == 5);
                match within(offer.accept(Memory::zeroed(len as usize))).await {
                    Ok(message) if is_last => {
                        assert_eq!(&*message, b"after it");
                        break;
                    }
                    Ok(_) => panic!("{name}: what was withdrawn arrived"),
                    Err(error) => assert!(!is_last, "{name}: {error}"),
                }
            }
            within(sending).await.unwrap();
            quiet(&pair, [0, 0]).await;
        }
    });
}

#[test]
fn sends_that_wait_for_a_slot_are_withdrawn() {
    run(async {
        for (_, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending: Vec<_> = (0..200).map(|_| here.send(vec![7; 100]).start()).collect();
            drop(sending);
            within(async {
                // Offers that were under way end; then there is room for more.
                let working = here.send("still here").opaque(99).start();
                loop {
                    let offer = there.offer().await.unwrap();
                    let is_last = offer.opaque() == 99;
                    let taken = offer.accept(Memory::zeroed(100)).await;
                    if is_last {
                        assert_eq!(&*taken.unwrap(), b"still here");
                        break;
                    }
                }
                working.await.unwrap();
            })
            .await;
            quiet(&pair, [0, 0]).await;
        }
    });
}

#[test]
fn a_receive_that_waits_is_forgotten_and_the_next_one_served() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let first = there.receive(Memory::zeroed(10)).start();
            let second = there.receive(Memory::zeroed(10)).start();
            drop(first);
            let sending = here.send("for it").start();
            assert_eq!(&*within(second).await.unwrap(), b"for it", "{name}");
            within(sending).await.unwrap();
            quiet(&pair, [0, 0]).await;
        }
    });
}

#[test]
fn transfers_are_cut_in_the_middle_from_either_end() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            for round in 0..20 {
                let bytes = noise(round, 4 << 20);
                let sending = here.send(memory_with(&bytes)).start();
                let receiving = there.receive(Memory::zeroed(bytes.len())).start();
                // However far they came by then.
                tokio::time::sleep(Duration::from_micros(300 * round)).await;
                if round % 2 == 0 {
                    drop(sending);
                    if let Ok(message) = within(receiving).await {
                        assert!(*message == bytes, "{name}: whole, or not at all");
                    }
                } else {
                    drop(receiving);
                    if let Err(error) = within(sending).await {
                        assert!(matches!(*error, Error::Ended { .. }), "{name}: {error}");
                    }
                }
            }
            still_works(&here, &there).await;
            quiet(&pair, [0, 0]).await;
        }
    });
}

#[test]
fn a_region_is_taken_back_while_transfers_into_it_are_dropped() {
    run(async {
        for (_, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            for round in 0..10 {
                let region = pair.1.register(Memory::zeroed(4 << 20)).unwrap();
                let sending = here.send(noise(round, 4 << 20)).start();
                let receiving = there.receive_into(&region.whole()).start();
                tokio::time::sleep(Duration::from_micros(500 * round)).await;
                drop(receiving);
                // Waits until the engine says that no byte is on its way there.
                let memory = within(region.take_back()).await.unwrap();
                assert_eq!(memory.len(), 4 << 20);
                drop(within(sending).await);
            }
            still_works(&here, &there).await;
            quiet(&pair, [0, 0]).await;
        }
    });
}

#[test]
fn a_region_that_is_taken_back_takes_no_more_operations() {
    run(async {
        for (_, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let region = pair.1.register(Memory::zeroed(100)).unwrap();
            let part = region.whole();
            let waiting = there.receive_into(&part).start();
            let taking = tokio::spawn(region.take_back());
            tokio::task::yield_now().await;
            let sending = here.send("lands still").start();
            // It had begun before, and is waited for.
            assert_eq!(within(waiting).await.unwrap().len, 11);
            let memory = within(taking).await.unwrap().unwrap();
            assert_eq!(&memory[..11], b"lands still");
            let error = within(there.receive_into(&part)).await.unwrap_err();
            assert!(matches!(*error, Error::TakenBack), "{error}");
            within(sending).await.unwrap();
        }
    });
}

#[test]
fn reads_gets_puts_and_requests_are_dropped_under_way() {
    run(async {
        for (_, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            drop(here.read(Memory::zeroed(1000), 1).start());
            drop(within(there.read_request()).await.unwrap());
            let reading = here.read(Memory::zeroed(1 << 20), 2).start();
            let answering =
                within(there.read_request()).await.unwrap().answer(noise(1, 1 << 20)).start();
            drop(reading);
            drop(within(answering).await);

            drop(here.request_region(1, 10, RemoteRights::ALL).start());
            drop(within(there.region_request()).await.unwrap());
            let region = pair.1.register(Memory::zeroed(4 << 20)).unwrap();
            let asking = here.request_region(2, 4 << 20, RemoteRights::ALL).start();
            let exposed = within(there.region_request()).await.unwrap();
            let exposed = exposed.expose(&region.whole(), RemoteRights::ALL).unwrap();
            let remote = within(asking).await.unwrap();
            for _ in 0..10 {
                drop(remote.get(0, Memory::zeroed(4 << 20)).start());
                drop(remote.put(0, vec![1; 20_000]).start());
                drop(remote.fetch_add(0, 1).start());
            }
            // Those that began took effect before this one.
            within(remote.put(0, vec![2; 8])).await.unwrap();
            assert_eq!(&*within(remote.get(0, Memory::zeroed(8))).await.unwrap(), &[2; 8]);
            within(exposed.revoke()).await;
            within(region.take_back()).await.unwrap();
            still_works(&here, &there).await;
            quiet(&pair, [0, 0]).await;
        }
    });
}

#[test]
fn a_connect_that_is_dropped_leaves_nothing() {
    run(async {
        for (_, pair) in pairs() {
            for _ in 0..10 {
                let connecting = pair.0.connect(pair.2, 1234);
                let _ = tokio::time::timeout(Duration::from_micros(50), connecting).await;
            }
            // Nobody is there: one of an address where nothing listens.
            within(async {
                while pair.0.stats().connections > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
        }
    });
}
