//! Transfers, reads and offers, from both ends.

mod support;

use landfall::stp::{Memory, Reason};
use support::{joined, memory_with, noise, pairs, run, within};

#[test]
fn a_transfer_goes_each_way_and_is_read_where_it_landed() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            for (seed, (from, to)) in [(1, (&here, &there)), (2, (&there, &here))] {
                let bytes = noise(seed, 3_000_000);
                let sending = from.send(memory_with(&bytes)).opaque(seed as u32).start();
                let memory = pair.0.memory(bytes.len()).unwrap();
                let message = within(to.receive(memory)).await.unwrap();
                assert!(*message == *bytes, "{name}");
                assert_eq!((message.opaque(), message.offered()), (seed as u32, 3_000_000));
                let sent = within(sending).await.unwrap();
                assert_eq!(sent.len, 3_000_000);
                assert_eq!(*sent.memory.unwrap(), *bytes, "lent memory comes back");
            }
            within(here.close()).await.unwrap();
            within(there.closed()).await.unwrap();
            let stats = pair.1.stats();
            assert_eq!((stats.operations, stats.regions, stats.granted_bytes), (0, 0, 0), "{name}");
        }
    });
}

#[test]
fn every_length_arrives() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let lengths = [0, 1, 63, 64, 65, 1_000, 1_024, 4_096, 65_536, 100_001];
            let sending: Vec<_> = lengths
                .iter()
                .map(|len| here.send(noise(*len as u64, *len)).opaque(*len as u32).start())
                .collect();
            let mut arrived = Vec::new();
            for _ in lengths {
                let message = within(there.receive(Memory::zeroed(100_001))).await.unwrap();
                let len = message.opaque() as usize;
                assert!(*message.into_bytes() == noise(len as u64, len), "{name} {len}");
                arrived.push(len);
            }
            arrived.sort_unstable();
            assert_eq!(arrived, lengths, "{name}");
            for sending in sending {
                within(sending).await.unwrap();
            }
        }
    });
}

#[test]
fn more_sends_than_the_protocol_has_slots_wait_for_their_turn() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let count = 500u32;
            let sending: Vec<_> =
                (0..count).map(|n| here.send(n.to_le_bytes().to_vec()).opaque(n).start()).collect();
            let mut arrived = Vec::new();
            for _ in 0..count {
                let message = within(there.receive(Memory::zeroed(4))).await.unwrap();
                assert_eq!(*message, message.opaque().to_le_bytes(), "{name}");
                arrived.push(message.opaque());
            }
            arrived.sort_unstable();
            assert!(arrived.into_iter().eq(0..count), "{name}");
            for sending in sending {
                assert_eq!(within(sending).await.unwrap().len, 4);
            }
        }
    });
}

#[test]
fn a_registered_region_serves_many_transfers() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let bytes = noise(5, 400_000);
            let source = pair.0.register(memory_with(&bytes)).unwrap();
            let target = pair.1.register(Memory::zeroed(400_000)).unwrap();
            for n in 0..4 {
                let range = n * 100_000..(n + 1) * 100_000;
                let part = source.part(range.clone()).unwrap();
                let sending = here.send(&part).start();
                let into = target.part(range).unwrap();
                let received = within(there.receive_into(&into)).await.unwrap();
                assert_eq!((received.len, received.offered), (100_000, 100_000), "{name}");
                within(sending).await.unwrap();
            }
            let mut some = [0; 100];
            target.copy_out(250_000, &mut some).unwrap();
            assert_eq!(some, bytes[250_000..250_100]);
            assert!(*within(target.take_back()).await.unwrap() == *bytes, "{name}");
            assert!(*within(source.take_back()).await.unwrap() == *bytes, "{name}");
            assert_eq!(pair.0.stats().bytes_copied_in, 0);
        }
    });
}

#[test]
fn an_offer_tells_its_length_before_memory_is_chosen() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending = here.send(noise(1, 5_000)).opaque(9).start();
            let offer = within(there.offer()).await.unwrap();
            assert_eq!((offer.len(), offer.opaque()), (5_000, 9), "{name}");
            let message = within(offer.accept(Memory::zeroed(5_000))).await.unwrap();
            assert!(*message == noise(1, 5_000));
            within(sending).await.unwrap();

            let sending = here.send(noise(2, 100)).start();
            within(there.offer()).await.unwrap().refuse(Reason::Refused);
            let error = within(sending).await.unwrap_err().to_string();
            assert_eq!(error, "ended early, after 0 bytes: refused by the user at the other side");
        }
    });
}

#[test]
fn a_transfer_that_is_too_long_is_refused_or_taken_in_part() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending = here.send(noise(1, 5_000)).start();
            let error = within(there.receive(Memory::zeroed(4_999))).await.unwrap_err();
            assert!(error.to_string().contains("too long"), "{name}: {error}");
            let error = within(sending).await.unwrap_err();
            assert!(error.to_string().contains("too long"), "{name}: {error}");

            let sending = here.send(noise(1, 5_000)).start();
            let part = within(there.receive(Memory::zeroed(1_000)).taking_part()).await.unwrap();
            assert_eq!((part.len(), part.offered()), (1_000, 5_000), "{name}");
            assert!(*part == noise(1, 5_000)[..1_000]);
            assert_eq!(within(sending).await.unwrap().len, 1_000);
        }
    });
}

#[test]
fn a_read_is_answered_or_refused() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let answering = async {
                let request = there.read_request().await.unwrap();
                assert_eq!((request.len(), request.opaque()), (300_000, 3), "{name}");
                request.answer(noise(3, 200_000)).opaque(4).await.unwrap();
                there.read_request().await.unwrap().refuse(Reason::Refused);
            };
            let reading = async {
                let message = here.read(Memory::zeroed(300_000), 3).await.unwrap();
                assert_eq!((message.len(), message.opaque()), (200_000, 4), "{name}");
                assert!(*message == noise(3, 200_000));
                let error = here.read(Memory::zeroed(10), 5).await.unwrap_err();
                assert!(error.to_string().contains("refused"), "{error}");
            };
            within(async { tokio::join!(answering, reading) }).await;
        }
    });
}
