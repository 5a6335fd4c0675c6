//! A cable that loses frames at random. As an ordinary user each test skips with one line.

use std::net::UdpSocket;
use std::time::Duration;

use landfall_testbed::{FrameLoss, Namespace, VethConfig, VethPair, require_namespaces};

/// How many of this many datagrams, one a frame, arrive.
fn arrivals(pair: &VethPair, sent: u32) -> u32 {
    let bind =
        |namespace: &Namespace, at| namespace.enter(|| UdpSocket::bind((at, 0))).unwrap().unwrap();
    let (from, to) = (bind(&pair.a.namespace, pair.a.ipv4), bind(&pair.b.namespace, pair.b.ipv4));
    to.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut buffer = [0; 8];
    let mut arrived = 0;
    for number in 0..sent {
        from.send_to(&number.to_le_bytes(), to.local_addr().unwrap()).unwrap();
        // A few at a time, so that no buffer is full.
        if number % 50 == 49 || number + 1 == sent {
            while to.recv(&mut buffer).is_ok() {
                arrived += 1;
                if arrived == number + 1 {
                    break;
                }
            }
        }
    }
    arrived
}

#[test]
fn a_cable_loses_the_share_of_frames_that_was_asked_for() {
    require_namespaces!();
    for mtu in [1500, 9000] {
        let pair = VethPair::new(VethConfig { mtu, ..VethConfig::default() }).unwrap();
        let none = FrameLoss::new(&pair, 0).unwrap();
        assert_eq!(arrivals(&pair, 100), 100, "MTU {mtu}");
        drop(none);
        let half = FrameLoss::new(&pair, 500_000).unwrap();
        // Nine standard deviations.
        assert!((110..=290).contains(&arrivals(&pair, 400)), "MTU {mtu}");
        drop(half);
        let all = FrameLoss::new(&pair, 1_000_000).unwrap();
        assert_eq!(arrivals(&pair, 50), 0, "MTU {mtu}");
        drop(all);
        assert_eq!(arrivals(&pair, 100), 100, "MTU {mtu}: it is a cable again");
    }
}
