//! How nodes of several engines come and go.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Instant;

use super::{ENGINES, close, delivered, star};
use crate::clan::{builder, linked, loopback, noise, soon, until};
use landfall::clan::network::{
    ChannelConfig, Config, Faults, NativeConfig, OpenError, Peer, Transport, WordFunction,
};
use landfall::clan::{Access, Error, Fabric, Local, Remote, Rights, Tripwire};
use landfall_testbed::{VethConfig, VethPair, require_namespaces};
use landfall_transport::packet::{Framing, PacketConfig, PacketDriver};

#[test]
fn what_one_engine_knows_of_its_peers_ends_with_them() {
    let (here, peers) = star();
    let (memory, cookie) = here.expose(64, Rights::ReadWrite).unwrap();
    let (gone, stays) = (&peers[0], &peers[1]);
    let about = here.map(&gone.expose(64, Rights::Read).unwrap().1).unwrap();
    let tripwire = here.watch(&memory, 0..8, Access::Write, Some(&about)).unwrap();
    tripwire.arm();
    let mut window = stays.map(&cookie).unwrap();
    let link = here.link_to(gone.host()).unwrap();
    let at = gone.local().unwrap();
    assert!(here.link_with(at).is_some_and(|link| link.is_up()));
    link.close();
    // Told that the peer is gone, by the engine that had its link.
    assert!(tripwire.wait(soon()).unwrap());
    assert!(matches!(about.check(), Err(Error::PeerLost)));
    until(&here, || here.link_to(gone.host()).is_none());
    window.store(0, 1).unwrap();
    delivered(&mut window);
    // It may come again.
    until(gone, || gone.link_to(here.host()).is_none());
    // Once the engine has forgotten it, it may come again.
    let mut again = None;
    until(&here, || {
        again = here.link(at).ok();
        again.is_some()
    });
    again.unwrap().wait_up(soon()).unwrap();
    assert!(here.link_to(gone.host()).is_some());
}

#[test]
fn closing_a_node_closes_all_its_engines() {
    let (here, peers) = star();
    let Some(Peer::Socket(at)) = here.local() else { panic!("UDP") };
    let (memory, cookie) = here.expose(64, Rights::ReadWrite).unwrap();
    let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
    let endpoint = here.endpoint(None).unwrap();
    let mut events = here.events(4).unwrap();
    let theirs: Vec<_> = peers.iter().map(|peer| peer.expose(64, Rights::Write).unwrap()).collect();
    // What was written last still arrives, from each engine.
    for (_, cookie) in &theirs {
        let mut window = here.map(cookie).unwrap();
        window.store(0, 5).unwrap();
        window.commit().unwrap();
    }
    thread::scope(|scope| {
        let waiting = scope.spawn(|| endpoint.wait_next(soon()));
        close(here.clone()).unwrap();
        assert!(matches!(waiting.join().unwrap(), Err(Error::NodeGone)));
    });
    for (peer, (memory, _)) in peers.iter().zip(&theirs) {
        assert_eq!(memory.load(0).unwrap(), 5);
        until(peer, || peer.link_to(here.host()).is_none());
        assert!(peer.map(&cookie).is_err());
    }
    assert!(matches!(tripwire.wait(soon()), Err(Error::NodeGone)));
    assert!(matches!(here.expose(8, Rights::Read), Err(Error::NodeGone)));
    assert!(matches!(events.wait(soon()), Err(Error::NodeGone)));
    // All sockets of the port go with the last of its engines.
    let deadline = soon();
    while UdpSocket::bind(at).is_err() {
        assert!(Some(Instant::now()) < deadline, "somebody still has the port");
        thread::yield_now();
    }
}

#[test]
fn a_node_that_nobody_holds_ends_at_all_engines() {
    let (here, peers) = star();
    let (memory, _) = here.expose(64, Rights::ReadWrite).unwrap();
    let number = here.host();
    drop(here);
    assert!(peers.iter().all(|peer| peer.link_to(number).is_some()), "its memory holds it");
    drop(memory);
    for peer in &peers {
        until(peer, || peer.link_to(number).is_none());
    }
}

#[test]
fn what_several_threads_cannot_do_is_refused_with_words() {
    let shared = |number| builder(number).threads(2);
    let says = |error: OpenError, words: &[&str]| {
        let said = error.to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(
            matches!(error, OpenError::NotShared(_) | OpenError::PathNotShared { path: 0, .. }),
            "{said}"
        );
    };
    let group = "239.255.76.99:8199".parse::<SocketAddr>().unwrap();
    let opened = shared(1).path(loopback()).multicast(group).open();
    says(opened.unwrap_err(), &["multicast", "`Builder::multicast` out"]);
    let channel = ChannelConfig::default();
    for (one, two) in [(shared(1), builder(2)), (builder(1), shared(2))] {
        says(one.open_pair(two, channel).unwrap_err(), &["joined", "`Builder::threads` out"]);
    }
    let opened = shared(1).path(loopback()).open_without_thread();
    says(opened.map(drop).unwrap_err(), &["reactor", "`Builder::threads` out"]);
    let native = Config { native: Some(NativeConfig::default()), ..Config::default() };
    says(shared(1).path(loopback()).config(native).open().unwrap_err(), &["native link"]);
    says(builder(1).path(loopback()).threads(65).open().unwrap_err(), &["at most 64"]);
    let lone = [
        Transport::xdp("lo"),
        Transport::driver(|path, regions| Ok(PacketDriver::open(path, &unreachable(), regions)?)),
        loopback().with_faults(Faults::loss(1), [7; 32]),
    ];
    for transport in lone {
        let opened = shared(1).path(transport).open();
        says(opened.unwrap_err(), &["cannot share path 0", "`Transport::udp`"]);
    }
    assert!(matches!(shared(1).open(), Err(OpenError::NoPath)));
    for threads in [0, 1] {
        let node = builder(1).path(loopback()).threads(threads).open().unwrap();
        assert_eq!(node.threads(), 1);
    }
}

/// Never opened.
fn unreachable() -> PacketConfig {
    let framing = Framing::Payload { ethertype: 0x88b5 };
    PacketConfig::new("lo", framing)
}

#[test]
fn stations_of_an_ethernet_are_spread_over_engines() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let open = |number, name: &str, threads| {
        let builder = builder(number).path(Transport::ethernet(name)).plaintext();
        builder.config(Config::default()).threads(threads).open().unwrap()
    };
    let here = cable.a.namespace.enter(|| open(1, &cable.a.name, ENGINES)).unwrap();
    let there = cable.b.namespace.enter(|| open(2, &cable.b.name, 2)).unwrap();
    let (here, there) = linked((here, there), None);
    let Some(Peer::Ethernet(station)) = there.local() else { panic!("Ethernet") };
    assert!(PacketDriver::member_of(station, ENGINES).is_some());
    for (here, there) in [(&here, &there), (&there, &here)] {
        let (memory, cookie) = here.expose(1 << 16, Rights::ReadWrite).unwrap();
        let mut window = there.map(&cookie).unwrap();
        let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
        tripwire.arm();
        let bytes = noise(3, 40_000);
        window.write(8, &bytes).unwrap();
        window.store(0, 7).unwrap();
        window.commit().unwrap();
        assert!(tripwire.wait(soon()).unwrap());
        let mut found = vec![0; bytes.len()];
        memory.copy_out(8, &mut found).unwrap();
        assert!(found == bytes);
        assert_eq!(window.wait_change(0, WordFunction::Swap(1), soon()).unwrap(), 7);
    }
}
