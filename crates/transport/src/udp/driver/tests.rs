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
