//! `Transport::udp` finds out by itself how long packets may be.

mod support;

use std::net::{IpAddr, SocketAddr};

use landfall::stp::{Config, Connection, Endpoint, Memory, Peer, Transport};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_transport::Feature;
use support::{joined, noise, run, udp_pair, within};

type Pair = (Endpoint, Endpoint, Peer);

/// The mean size of what came in a Transfer of so many bytes.
async fn stu_of((here, there): &(Connection, Connection), to: &Endpoint, len: usize) -> u64 {
    let before = to.stats().engine;
    let bytes = noise(len as u64, len);
    let sending = here.send(bytes.clone()).start();
    let message = within(there.receive(Memory::zeroed(len))).await.unwrap();
    assert!(*message == bytes);
    within(sending).await.unwrap();
    let after = to.stats().engine;
    (after.bytes_received - before.bytes_received) / (after.stus_received - before.stus_received)
}

/// The first Transfers may begin before the size is known.
async fn until_stu(connections: &(Connection, Connection), to: &Endpoint, wanted: u64) {
    within(async { while stu_of(connections, to, 4 << 20).await != wanted {} }).await;
}

fn over(cable: &VethPair, address: fn(&VethEnd) -> IpAddr) -> Pair {
    let bind = |end: &VethEnd, any: bool| {
        let own = address(end);
        let unspecified = if own.is_ipv4() { [0; 4].into() } else { IpAddr::from([0u16; 8]) };
        let at = SocketAddr::new(if any { unspecified } else { own }, 0);
        let builder = Endpoint::builder().path(Transport::udp(at));
        // An MTU that shrinks ends no connection, however long the machine takes.
        let config = Config { give_up_after: 100, ..Config::shared_network() };
        end.namespace.enter(|| builder.config(config).bind().unwrap()).unwrap()
    };
    // Who is at one address knows its interface, who is at none all of them.
    let (a, b) = (bind(&cable.a, true), bind(&cable.b, false));
    let to_b = b.local().unwrap();
    (a, b, to_b)
}

fn cable(mtu: u32) -> VethPair {
    VethPair::new(VethConfig { mtu, ..VethConfig::default() }).unwrap()
}

#[test]
fn loopback_has_long_packets_at_once() {
    let pair = udp_pair();
    run(async {
        let connections = joined(&pair).await;
        assert_eq!(stu_of(&connections, &pair.1, 1 << 20).await, 8192);
        let limits = pair.0.stats().paths[0].limits;
        assert!(limits.unit >= 65_000 && limits.sure == limits.unit, "{limits:?}");
        assert_eq!(pair.1.stats().regions, 0, "what is lent for it is not the user's");
    });
}

#[test]
fn a_cable_is_used_as_far_as_it_carries() {
    require_namespaces!();
    for address in [|end: &VethEnd| end.ipv4.into(), |end: &VethEnd| IpAddr::from(end.ipv6)] {
        for (mtu, stu) in [(1280, 1024), (1500, 1024), (9000, 8192)] {
            let cable = cable(mtu);
            let pair = over(&cable, address);
            run(async {
                let connections = joined(&pair).await;
                until_stu(&connections, &pair.1, stu).await;
                let back = (connections.1.clone(), connections.0.clone());
                until_stu(&back, &pair.0, stu).await;
            });
        }
    }
}

/// What was long enough is refused by the kernel now, unit by unit and batch by batch.
#[test]
fn an_interface_whose_mtu_shrinks_and_grows_is_followed() {
    require_namespaces!();
    let cable = cable(9000);
    let pair = over(&cable, |end| end.ipv4.into());
    run(async {
        let connections = joined(&pair).await;
        until_stu(&connections, &pair.1, 8192).await;
        cable.set_mtu(1500).unwrap();
        until_stu(&connections, &pair.1, 1024).await;
        let stats = [pair.0.stats(), pair.1.stats()];
        assert!(stats[1].engine.sizes_lost >= 1, "{:?}", stats[1].engine);
        assert!(stats[0].paths[0].counters.send_failed > 0);
        let (batches, broken) = (Feature::BatchedSend, &stats[0].paths[0].broken);
        assert!(stats[0].paths[0].capabilities.has(batches), "units were too long, not batches");
        assert_eq!(*broken, None);
        // A new link looks anew; this one waits for ten minutes.
        cable.set_mtu(9000).unwrap();
        let again = over(&cable, |end| end.ipv4.into());
        let connections = joined(&again).await;
        until_stu(&connections, &again.1, 8192).await;
    });
}
