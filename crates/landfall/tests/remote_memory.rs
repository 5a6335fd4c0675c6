//! Regions that the other side uses: Put, Get, FetchOp, and their end.

mod support;

use landfall::stp::{
    Connection, Endpoint, Error, Exposed, Memory, Peer, Reason, Region, RemoteMemory,
    RemoteRights as Rights, WordFunction, WordWidth,
};
use support::{joined, noise, pairs, run, within};

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
