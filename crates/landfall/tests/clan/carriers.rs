//! The same over every way that needs privileges or a recent kernel: two nodes in
//! two network namespaces, over a virtual cable.

use std::net::SocketAddr;

use super::{builder, linked, noise, soon, until};
use landfall::clan::network::{Config, Node, OpenError, Peer, Transport, WordFunction};
use landfall::clan::{Access, Fabric, Local, Remote, Rights, Stage, Tripwire};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces, skip_unless};
use landfall_transport::uring::{Unavailable, UringUdpConfig};
use landfall_transport::{self as transport, Privilege};

const MTU: u32 = 1500;
const PORT: u16 = 4800;

/// What this machine lacks, if it is that.
fn why_not_here(error: &OpenError) -> Option<String> {
    let OpenError::Path { source, .. } = error else { return None };
    let source = source.get_ref()?;
    let no_ring = source.downcast_ref::<Unavailable>().map(ToString::to_string);
    let no_xdp = source.downcast_ref::<transport::OpenError>().and_then(|error| {
        let is_lacking = matches!(
            error,
            transport::OpenError::NoXdpSockets | transport::OpenError::NoPrivilege(Privilege::Xdp)
        );
        is_lacking.then(|| error.to_string())
    });
    no_ring.or(no_xdp)
}

/// Nodes at both ends of a cable; or why this machine has no such path.
fn over(
    cable: &VethPair,
    transport: impl Fn(&VethEnd) -> Transport + Sync,
    peer: fn(&VethEnd) -> Peer,
) -> Result<(Node, Node), String> {
    let open = |number, end: &VethEnd| {
        let builder = || builder(number).path(transport(end)).config(Config::default());
        end.namespace.enter(|| builder().open()).unwrap()
    };
    match open(1, &cable.a).and_then(|a| Ok((a, open(2, &cable.b)?))) {
        Ok(both) => Ok(linked(both, Some(peer(&cable.b)))),
        Err(error) => match why_not_here(&error) {
            Some(why) => Err(why),
            None => panic!("{error}"),
        },
    }
}

fn station(end: &VethEnd) -> Peer {
    Peer::Ethernet(end.mac.0)
}

fn address(end: &VethEnd) -> SocketAddr {
    SocketAddr::new(end.ipv4.into(), PORT)
}

fn socket(end: &VethEnd) -> Peer {
    Peer::Socket(address(end))
}

/// Small writes and long ones, tripwires, reads and words, both ways.
fn exchange((here, there): (Node, Node)) {
    for (here, there) in [(&here, &there), (&there, &here)] {
        let (memory, cookie) = here.expose(1 << 21, Rights::ReadWrite).unwrap();
        let (source, _) = there.expose(1 << 20, Rights::Read).unwrap();
        let mut window = there.map(&cookie).unwrap();
        let tripwire = here.watch(&memory, 0..8, Access::Write, None).unwrap();
        let bytes = noise(3, 1 << 20);
        source.copy_in(0, &bytes).unwrap();
        for round in 1..=20 {
            tripwire.arm();
            window.write_from(1 << 20, &source, 0..1 << 20).unwrap();
            window.write(100_003, &bytes[..1000]).unwrap();
            window.store(0, round).unwrap();
            window.commit().unwrap();
            assert!(tripwire.wait(soon()).unwrap());
            until(here, || memory.load(0).unwrap() == round);
            let mut found = vec![0; bytes.len()];
            memory.copy_out(1 << 20, &mut found).unwrap();
            assert!(found == bytes);
            memory.copy_out(100_003, &mut found[..1000]).unwrap();
            assert!(found[..1000] == bytes[..1000]);
            memory.copy_in(1 << 20, &vec![0; 1 << 20]).unwrap();
            window.wait_for(Stage::Delivered, soon()).unwrap();
        }
        assert_eq!(window.wait_change(0, WordFunction::Swap(7), soon()).unwrap(), 20);
        let mut read = [0; 1000];
        window.read(100_003, &mut read, soon()).unwrap();
        assert!(read[..] == bytes[..1000]);
    }
}

fn try_over(transport: impl Fn(&VethEnd) -> Transport + Sync, peer: fn(&VethEnd) -> Peer) {
    let cable = VethPair::new(VethConfig { mtu: MTU, ..VethConfig::default() }).unwrap();
    let pair = over(&cable, transport, peer);
    skip_unless!(pair.as_ref().err().cloned());
    if let Ok(pair) = pair {
        exchange(pair);
    }
}

#[test]
fn frames_of_ethertype_88b5_carry_it() {
    require_namespaces!();
    try_over(|end| Transport::ethernet(&*end.name), station);
}

#[test]
fn udp_carries_it_between_namespaces() {
    require_namespaces!();
    try_over(|end| Transport::udp(address(end)), socket);
}

#[test]
fn af_xdp_carries_it() {
    require_namespaces!();
    try_over(|end| Transport::xdp(&*end.name), station);
}

#[test]
fn io_uring_carries_it_as_udp() {
    require_namespaces!();
    let config = |end: &VethEnd| UringUdpConfig::new(address(end), MTU);
    try_over(|end| Transport::udp_uring(config(end)), socket);
}

#[test]
fn io_uring_carries_it_as_frames() {
    require_namespaces!();
    try_over(|end| Transport::ethernet_uring(&*end.name), station);
}
