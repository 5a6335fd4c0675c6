//! Who hears what at a port that several drivers share.

use std::mem::MaybeUninit;
use std::net::UdpSocket;

use super::*;

/// Which of these sockets has a datagram, and no other has.
fn who_heard(sockets: &[&Socket]) -> usize {
    let mut buffer = [MaybeUninit::uninit(); 16];
    let heard: Vec<_> =
        (0..sockets.len()).filter(|at| sockets[*at].recv(&mut buffer).is_ok()).collect();
    assert_eq!(heard.len(), 1, "one of them hears it");
    heard[0]
}

#[test]
fn a_peer_comes_to_the_same_socket_of_a_group_though_others_are_closed() {
    const COUNT: usize = 4;
    let config = UdpConfig::new(([127, 0, 0, 1], 0).into(), 1500);
    let mut drivers = UdpDriver::open_group(PathId(0), config, &Regions::new(16), COUNT).unwrap();
    let to = drivers[0].local_address();
    let peers: Vec<_> = (0..64).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let heard = |drivers: &[UdpDriver]| -> Vec<usize> {
        let all: Vec<_> = drivers.iter().map(|driver| &driver.socket).collect();
        let heard = |peer: &UdpSocket| {
            peer.send_to(b"hello", to).unwrap();
            who_heard(&all)
        };
        peers.iter().map(heard).collect()
    };
    let before = heard(&drivers);
    assert_eq!(heard(&drivers), before);
    assert!((0..COUNT).all(|at| before.contains(&at)), "{before:?}");
    // The last one is left, and those who came to it still do. For others nobody listens.
    let last = drivers.pop().unwrap();
    drop(drivers);
    let mut buffer = [MaybeUninit::uninit(); 16];
    for (peer, before) in peers.iter().zip(before) {
        peer.send_to(b"hello", to).unwrap();
        assert_eq!(last.socket.recv(&mut buffer).is_ok(), before == COUNT - 1);
    }
    drop(last);
    UdpSocket::bind(to).expect("the port is free again");
}

/// The peers at these addresses come to the sockets that `member_of` says. The group is bound to
/// `at`, and reached at an address of each peer's kind.
fn come_as_said(at: &str, peers: &[&str]) {
    const PEERS: usize = 50;
    for count in 1..=5 {
        let config = UdpConfig::new(at.parse().unwrap(), 1500);
        let regions = Regions::new(16);
        let drivers = UdpDriver::open_group_by_peer(PathId(0), config, &regions, count).unwrap();
        let all: Vec<_> = drivers.iter().map(|driver| &driver.socket).collect();
        let port = drivers[0].local_address().port();
        let mut has_come = vec![false; count];
        for peer in peers {
            for _ in 0..PEERS {
                let peer = UdpSocket::bind((*peer, 0)).unwrap();
                let from = peer.local_addr().unwrap();
                peer.send_to(b"hello", (from.ip(), port)).unwrap();
                let said = UdpDriver::member_of(from, count).unwrap();
                assert_eq!(who_heard(&all), said, "{from} of {count}");
                has_come[said] = true;
            }
        }
        assert!(has_come.iter().all(|has_come| *has_come), "nobody came to some: {has_come:?}");
    }
}

#[test]
fn a_peer_comes_to_the_socket_of_a_group_that_its_address_says() {
    come_as_said("127.0.0.1:0", &["127.0.0.1"]);
    come_as_said("[::1]:0", &["::1"]);
    come_as_said("[::]:0", &["127.0.0.1", "::1", "127.0.0.77"]);
    assert_eq!(UdpDriver::member_of("127.0.0.1:7".parse().unwrap(), 0), None);
}

#[test]
fn a_group_takes_no_port_that_somebody_has() {
    let config = UdpConfig::new(([127, 0, 0, 1], 0).into(), 1500);
    let regions = Regions::new(16);
    let group = UdpDriver::open_group(PathId(0), config, &regions, 2).unwrap();
    let taken = UdpConfig { bind: group[0].local_address(), ..config };
    let error = UdpDriver::open_group(PathId(0), taken, &regions, 2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let error = UdpDriver::open(PathId(0), taken, &regions).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
