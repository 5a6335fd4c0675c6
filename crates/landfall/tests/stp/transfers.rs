//! Transfers, reads and offers, from both ends; and regions that the other side uses: Put,
//! Get, FetchOp, and their end.

use super::{joined, memory_with, noise, pairs, run, within};
use landfall::stp::{
    ArenaConfig, Connection, Endpoint, Error, Exposed, Memory, Peer, Reason, Region, RemoteMemory,
    RemoteRights as Rights, WordFunction, WordWidth,
};

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
            assert!(error.to_string().contains("does not fit"), "{name}: {error}");
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
fn an_offer_is_limited_before_there_is_memory_for_it() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let sending = here.send(noise(1, 5_000)).start();
            let offer = within(there.offer()).await.unwrap();
            assert!(offer.limit(0).is_err(), "{name}");
            offer.limit(1_000).unwrap();
            assert!(offer.limit(900).is_err(), "{name}: twice");
            let part = within(offer.accept(Memory::zeroed(1_000))).await.unwrap();
            assert_eq!((part.len(), part.offered()), (1_000, 5_000), "{name}");
            assert!(*part == noise(1, 5_000)[..1_000]);
            assert_eq!(within(sending).await.unwrap().len, 1_000);

            // Memory holds what was said that it takes, or none of it comes.
            let sending = here.send(noise(2, 5_000)).start();
            let offer = within(there.offer()).await.unwrap();
            offer.limit(1_000).unwrap();
            let error = within(offer.accept_start(Memory::zeroed(999))).await.unwrap_err();
            assert!(error.to_string().contains("does not fit"), "{name}: {error}");
            within(sending).await.unwrap_err();
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

/// A region of the second endpoint, as both sides see it.
struct Shown {
    _here: Connection,
    _there: Connection,
    remote: RemoteMemory,
    region: Region,
    exposed: Exposed,
}

async fn expose(pair: &(Endpoint, Endpoint, Peer), len: usize, rights: Rights) -> Shown {
    let (here, there) = joined(pair).await;
    let region = pair.1.register(Memory::zeroed(len)).unwrap();
    let showing = async {
        let asked = there.region_request().await.unwrap();
        assert_eq!((asked.name(), asked.len()), (77, len as u64));
        asked.expose(&region.whole(), rights).unwrap()
    };
    let asking = here.request_region(77, len as u64, Rights::ALL);
    let (exposed, remote) = within(async { tokio::join!(showing, asking) }).await;
    Shown { _here: here, _there: there, remote: remote.unwrap(), region, exposed }
}

#[test]
fn puts_gets_and_fetch_ops_take_effect_in_order() {
    run(async {
        for (name, pair) in pairs() {
            let shown = expose(&pair, 1 << 16, Rights::ALL).await;
            let remote = &shown.remote;
            assert_eq!(remote.len(), 1 << 16);
            let bytes = noise(1, 10_000);
            within(remote.put(100, bytes.clone())).await.unwrap();
            let back = within(remote.get(100, Memory::zeroed(10_000))).await.unwrap();
            assert!(*back == bytes, "{name}");
            for n in 0..10 {
                assert_eq!(within(remote.fetch_add(32_768, 3)).await.unwrap(), n * 3, "{name}");
            }
            assert_eq!(within(remote.compare_swap(32_768, 30, 7)).await.unwrap(), 30);
            assert_eq!(within(remote.compare_swap(32_768, 30, 8)).await.unwrap(), 7);
            let word = remote.fetch_op(32_768, WordWidth::Four, WordFunction::Load);
            assert_eq!(within(word).await.unwrap() & 0xff, 7, "{name}");
            let mut there = [0; 10_000];
            shown.region.copy_out(100, &mut there).unwrap();
            assert!(there == *bytes, "{name}");
        }
    });
}

#[test]
fn many_puts_at_once_all_take_effect_and_one_tells() {
    run(async {
        for (name, pair) in pairs() {
            let shown = expose(&pair, 8 * 300, Rights::PUT.with(Rights::GET)).await;
            let puts: Vec<_> = (0..300u64)
                .map(|n| shown.remote.put(8 * n, n.to_le_bytes().to_vec()).start())
                .collect();
            for put in puts {
                within(put).await.unwrap();
            }
            within(shown.remote.put(16, vec![1; 8]).with_notice()).await.unwrap();
            let notice = within(shown.exposed.written()).await.unwrap();
            assert_eq!((notice.at, notice.len), (16, 8), "{name}");
            within(shown.exposed.revoke()).await;
            let memory = within(shown.region.take_back()).await.unwrap();
            for (n, word) in memory.as_chunks::<8>().0.iter().enumerate() {
                let wanted = if n == 2 { u64::from_le_bytes([1; 8]) } else { n as u64 };
                assert_eq!(u64::from_le_bytes(*word), wanted, "{name}");
            }
        }
    });
}

#[test]
fn rights_bounds_and_revocation_are_answered() {
    run(async {
        for (name, pair) in pairs() {
            let shown = expose(&pair, 4096, Rights::PUT).await;
            assert_eq!(shown.remote.rights(), Rights::PUT);
            let error = within(shown.remote.get(0, Memory::zeroed(8))).await.unwrap_err();
            assert!(
                matches!(&*error, Error::Refused(stp_error) if stp_error.to_string().contains("not given for that")),
                "{name}"
            );
            let error = within(shown.remote.put(4090, vec![0; 8])).await.unwrap_err();
            assert!(error.to_string().contains("outside of the remote region"), "{error}");
            within(shown.exposed.revoke()).await;
            let error = within(shown.remote.put(0, vec![0; 8])).await.unwrap_err();
            assert!(error.to_string().contains("does not exist"), "{name}: {error}");
        }
    });
}

#[test]
fn a_region_that_is_not_given_is_an_error_there() {
    run(async {
        for (name, pair) in pairs() {
            let (here, there) = joined(&pair).await;
            let refusing = async {
                there.region_request().await.unwrap().refuse(Reason::NoRegion);
                // Not answered at all: that is a refusal as well.
                drop(there.region_request().await.unwrap());
            };
            let asking = async {
                for wanted in ["does not exist", "refused"] {
                    let error = here.request_region(1, 10, Rights::ALL).await.unwrap_err();
                    assert!(error.to_string().contains(wanted), "{name}: {error}");
                }
            };
            within(async { tokio::join!(refusing, asking) }).await;
        }
    });
}

/// Bytes that are copied fit the arena or are refused; memory of one's own may be as long as it is.
#[test]
fn what_the_arena_cannot_hold_is_refused_and_memory_is_not() {
    const LEN: usize = 4 << 20;
    run(async {
        let arena = ArenaConfig { max_bytes: 1 << 20, ..ArenaConfig::default() };
        let bind = || Endpoint::builder().path(super::loopback()).arena(arena).bind().unwrap();
        let (a, b) = (bind(), bind());
        let to = b.local().unwrap();
        let (here, there) = joined(&(a, b, to)).await;
        let error = Error::from(within(here.send(noise(1, LEN))).await.unwrap_err());
        assert!(matches!(error, Error::Arena(_)), "{error}");
        let sending = here.send(memory_with(&noise(1, LEN))).start();
        let message = within(there.receive(Memory::zeroed(LEN))).await.unwrap();
        assert!(*message == noise(1, LEN));
        within(sending).await.unwrap();
    });
}
