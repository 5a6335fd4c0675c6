//! Endpoints of one host and user, which find each other behind their UDP addresses.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use landfall::stp::{BindError, Connection, Endpoint, Memory, Peer, Transport};
use landfall_transport::Counters;
use landfall_transport::udp::UdpConfig;

use super::{joined, loopback, noise, run, udp_pair, within};

const LEN: usize = 3 << 20;

fn counters(endpoint: &Endpoint) -> Counters {
    endpoint.stats().paths[0].counters
}

/// A Transfer of bytes that lie in memory of the endpoint, or of the heap.
async fn carry((a, here): (&Endpoint, &Connection), there: &Connection, salt: u64, heap: bool) {
    let bytes = noise(salt, LEN);
    let memory = if heap {
        Memory::from_bytes(&bytes)
    } else {
        let mut memory = a.memory(LEN).expect("memory");
        memory.copy_from_slice(&bytes);
        memory
    };
    let received = there.receive(Memory::zeroed(LEN));
    let (sent, received) = within(async { tokio::join!(here.send(memory), received) }).await;
    sent.expect("sent");
    assert!(received.expect("received")[..] == bytes[..], "the bytes differ");
}

#[test]
fn transfers_within_a_host_take_no_socket_and_one_copy() {
    run(async {
        let pair = udp_pair();
        let (here, there) = joined(&pair).await;
        let (a, b, _) = &pair;
        // By then they have met.
        for salt in 0..4 {
            carry((a, &here), &there, salt, false).await;
        }
        for heap in [false, true] {
            let before = [counters(a), counters(b)];
            carry((a, &here), &there, 99, heap).await;
            let after = [counters(a), counters(b)];
            for (before, after) in before.iter().zip(&after) {
                assert!(after.units_sent > before.units_sent);
                assert_eq!(after.send_calls, before.send_calls, "by the socket");
                assert_eq!((after.malformed, after.misplaced), (0, 0));
            }
            let copied: u64 =
                before.iter().zip(&after).map(|(b, a)| a.bytes_copied - b.bytes_copied).sum();
            assert!((LEN as u64..LEN as u64 + 10_000).contains(&copied), "{copied}");
        }
    });
}

#[test]
fn who_switches_it_off_is_reached_by_the_socket() {
    run(async {
        let config = UdpConfig::discover("127.0.0.1:0".parse().expect("an address"));
        let off = Transport::udp_with(UdpConfig { same_host: false, ..config });
        let b = Endpoint::bind(off).expect("loopback");
        let to = b.local().expect("UDP has an address");
        let pair = (Endpoint::bind(loopback()).expect("loopback"), b, to);
        let (here, there) = joined(&pair).await;
        for salt in 0..3 {
            carry((&pair.0, &here), &there, salt, false).await;
        }
        let (sent, received) = (counters(&pair.0), counters(&pair.1));
        assert!(sent.send_calls > 3 * (LEN as u64 >> 16), "{sent:?}");
        assert!(received.receive_calls > 0 && received.payload_bytes >= 3 * LEN as u64);
    });
}

/// An endpoint at this address, once nobody else is there.
async fn bind_at(at: SocketAddr) -> Endpoint {
    loop {
        match Endpoint::bind(Transport::udp(at)) {
            Ok(endpoint) => return endpoint,
            Err(BindError::Path { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn another_endpoint_at_the_address_of_one_that_is_gone_is_reached() {
    run(async {
        let mut a = Endpoint::bind(loopback()).expect("loopback");
        let mut at: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        for round in 0..3 {
            let b = within(bind_at(at)).await;
            let Some(Peer::Socket(to)) = b.local() else { panic!("UDP has an address") };
            let pair = (a, b, to.into());
            let (here, there) = joined(&pair).await;
            for salt in 0..3 {
                carry((&pair.0, &here), &there, salt + round, false).await;
            }
            drop((here, there));
            within(pair.1.close()).await;
            (a, at) = (pair.0, to);
        }
    });
}
