//! The same over every way that needs privileges or a recent kernel: two
//! endpoints in two network namespaces, over a virtual cable.

use std::net::{IpAddr, SocketAddr};

use super::{joined, noise, run, within};
use landfall::stp::{
    BindError, Config, Connection, Endpoint, Memory, Peer, RemoteRights, Transport, UDP_PORT,
};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces, skip_unless};
use landfall_transport::udp_packet::UdpPacketConfig;
use landfall_transport::uring::{Unavailable, UringUdpConfig};
use landfall_transport::{self as transport, Privilege};

const MTU: u32 = 1500;

/// Endpoints at both ends of a cable; or why this machine has no such path.
fn over(
    cable: &VethPair,
    transport: impl Fn(&VethEnd) -> Transport + Sync,
    peer: fn(&VethEnd) -> Peer,
) -> Result<(Endpoint, Endpoint, Peer), String> {
    let bind = |end: &VethEnd| {
        let builder = || Endpoint::builder().path(transport(end)).config(Config::default());
        end.namespace.enter(|| builder().bind()).unwrap()
    };
    let both = bind(&cable.a).and_then(|a| Ok((a, bind(&cable.b)?)));
    match both {
        Ok((a, b)) => Ok((a, b, peer(&cable.b))),
        Err(error) => match why_not_here(&error) {
            Some(why) => Err(why),
            None => panic!("{error}"),
        },
    }
}

/// What this machine lacks, if it is that.
fn why_not_here(error: &BindError) -> Option<String> {
    let BindError::Path { source, .. } = error else { return None };
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

fn cable() -> VethPair {
    VethPair::new(VethConfig { mtu: MTU, ..VethConfig::default() }).unwrap()
}

fn station(end: &VethEnd) -> Peer {
    Peer::Ethernet(end.mac.0)
}

fn host(end: &VethEnd) -> Peer {
    Peer::Ip(end.ipv4.into())
}

fn socket(end: &VethEnd) -> Peer {
    Peer::Socket(SocketAddr::new(end.ipv4.into(), UDP_PORT))
}

/// Transfers both ways, and a Put.
async fn exchange((here, there): (Connection, Connection), pair: &(Endpoint, Endpoint, Peer)) {
    let bytes = noise(1, 2_000_000);
    for (from, to) in [(&here, &there), (&there, &here)] {
        let sending = from.send(bytes.clone()).start();
        let message = within(to.receive(Memory::zeroed(bytes.len()))).await.unwrap();
        assert!(*message == bytes);
        within(sending).await.unwrap();
    }
    let region = pair.1.register(Memory::zeroed(4096)).unwrap();
    let asking = here.request_region(1, 4096, RemoteRights::ALL).start();
    let asked = within(there.region_request()).await.unwrap();
    let exposed = asked.expose(&region.whole(), RemoteRights::ALL).unwrap();
    let remote = within(asking).await.unwrap();
    within(remote.put(8, "in its place")).await.unwrap();
    assert_eq!(within(remote.fetch_add(0, 5)).await.unwrap(), 0);
    within(exposed.revoke()).await;
    let memory = within(region.take_back()).await.unwrap();
    assert_eq!(&memory[8..20], b"in its place");
    within(here.close()).await.unwrap();
    within(there.closed()).await.unwrap();
}

fn try_over(transport: impl Fn(&VethEnd) -> Transport + Sync, peer: fn(&VethEnd) -> Peer) {
    let cable = cable();
    let pair = over(&cable, transport, peer);
    skip_unless!(pair.as_ref().err().cloned());
    let Ok(pair) = pair else { return };
    run(async {
        let connections = joined(&pair).await;
        assert_eq!(connections.0.links().len(), 1);
        exchange(connections, &pair).await;
    });
}

#[test]
fn frames_of_ethertype_8181_carry_it() {
    require_namespaces!();
    try_over(|end| Transport::ethernet(&*end.name), station);
}

#[test]
fn ip_protocol_118_carries_it_over_both_versions() {
    require_namespaces!();
    try_over(|end| Transport::ip(end.ipv4.into()), host);
    try_over(|end| Transport::ip(IpAddr::from(end.ipv6)), |end| Peer::Ip(end.ipv6.into()));
}

#[test]
fn udp_by_packets_carries_it_to_its_like_and_to_ordinary_sockets() {
    require_namespaces!();
    let four = |end: &VethEnd| SocketAddr::new(end.ipv4.into(), UDP_PORT);
    let six = |end: &VethEnd| SocketAddr::new(end.ipv6.into(), UDP_PORT);
    try_over(|end| Transport::udp_packet(four(end)), socket);
    try_over(
        |end| Transport::udp_packet(six(end)),
        |end| Peer::Socket(SocketAddr::new(end.ipv6.into(), UDP_PORT)),
    );
    // By custom the first end has this name, the other one that.
    let is_first = |end: &VethEnd| end.name.ends_with('a');
    for first in [true, false] {
        try_over(
            |end| match is_first(end) == first {
                true => Transport::udp_packet(four(end)),
                false => Transport::udp(four(end)),
            },
            socket,
        );
    }
}

#[test]
fn af_xdp_carries_it() {
    require_namespaces!();
    try_over(|end| Transport::xdp(&*end.name), station);
}

#[test]
fn io_uring_carries_it_as_udp() {
    require_namespaces!();
    let config =
        |end: &VethEnd| UringUdpConfig::new(SocketAddr::new(end.ipv4.into(), UDP_PORT), MTU);
    try_over(|end| Transport::udp_uring(config(end)), socket);
}

#[test]
fn io_uring_carries_it_as_udp_by_packets() {
    require_namespaces!();
    let config =
        |end: &VethEnd| UdpPacketConfig::discover(SocketAddr::new(end.ipv4.into(), UDP_PORT));
    try_over(|end| Transport::udp_packet_uring(config(end)), socket);
}

#[test]
fn io_uring_carries_it_as_frames() {
    require_namespaces!();
    try_over(|end| Transport::ethernet_uring(&*end.name), station);
}

#[test]
fn one_connection_uses_paths_of_several_kinds() {
    require_namespaces!();
    let cable = cable();
    let bind = |end: &VethEnd| {
        let udp = Transport::udp(SocketAddr::new(end.ipv4.into(), UDP_PORT));
        let builder = Endpoint::builder()
            .path(udp)
            .path(Transport::ethernet(&*end.name))
            .path(Transport::ip(end.ipv4.into()))
            .config(Config::default());
        end.namespace.enter(|| builder.bind()).unwrap().unwrap()
    };
    let pair = (bind(&cable.a), bind(&cable.b), socket(&cable.b));
    run(async {
        let (here, there) = joined(&pair).await;
        let paths = pair.0.paths();
        here.add_link(paths[1], station(&cable.b)).unwrap();
        here.add_link(paths[2], host(&cable.b)).unwrap();
        // The other side learns of the links by itself.
        within(async {
            while there.links().iter().filter(|link| link.is_up).count() < 3 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        })
        .await;
        let bytes = noise(9, 16 << 20);
        let sending = here.send(bytes.clone()).start();
        let message = within(there.receive(Memory::zeroed(bytes.len()))).await.unwrap();
        assert!(*message == bytes);
        within(sending).await.unwrap();
        for path in pair.1.stats().paths {
            assert!(path.counters.payload_bytes > 0, "{path:?}");
        }
    });
}
