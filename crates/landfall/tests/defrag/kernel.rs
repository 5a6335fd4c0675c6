//! An ordinary kernel at the other end: what our sender cuts, any socket has; what a
//! socket sends, and its kernel cuts, our receiver joins. As an ordinary user each
//! test skips with one line.

use std::net::UdpSocket;

use super::*;
use landfall::defrag::{CutBy, Delivery, Memory, PageReceiver, ReassemblyPath};
use landfall_testbed::require_namespaces;

/// Payloads of a page, two pages, and nearly the longest datagram; and some whose
/// pieces end anywhere.
const LENS: [usize; 6] = [4096, 8192, 60_000, 1473, 1472, 5001];

/// Sends what no sender of ours had a hand in.
fn send_by_kernel(socket: &UdpSocket, to: std::net::SocketAddr, payloads: &[Vec<u8>]) {
    for payload in payloads {
        assert_eq!(socket.send_to(payload, to).unwrap(), payload.len());
    }
}

/// Fallback 2 of the paper: a standard sender.
#[test]
fn what_a_kernel_cuts_is_joined() {
    require_namespaces!();
    let cable = cable();
    for technique in TECHNIQUES {
        for delivery in deliveries(technique) {
            for is_ipv4 in [true, false] {
                let mut pages = PageReceiver::new(receiver(&cable.b, technique, delivery), PORT);
                let socket = socket(&cable.a, is_ipv4, FROM);
                let to = address(&cable.b, is_ipv4, PORT);
                for (seed, len) in (1..).zip(LENS.into_iter().filter(|len| *len > 1472)) {
                    let payloads: Vec<_> = (0..5).map(|n| noise(seed * 10 + n, len)).collect();
                    send_by_kernel(&socket, to, &payloads);
                    for payload in &payloads {
                        let page = next(&mut pages);
                        let what = format!("{technique}, {delivery}, {to}, {len} bytes");
                        assert_eq!(page.from(), address(&cable.a, is_ipv4, FROM), "{what}");
                        assert!(page.bytes() == payload.as_slice(), "{what}");
                    }
                }
                assert_eq!((pages.corrupt(), pages.others()), (0, 0));
            }
        }
    }
}

/// Fallback 1 of the paper: a standard receiver.
#[test]
fn what_a_sender_cuts_any_socket_has() {
    require_namespaces!();
    let cable = cable();
    for cut_by in [CutBy::Sender, CutBy::Auto] {
        for is_ipv4 in [true, false] {
            let mut sender = sender_as(&cable.a, |builder| builder.cut_by(cut_by));
            let socket = socket(&cable.b, is_ipv4, PORT);
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut datagrams = datagrams(&cable, is_ipv4);
            let mut into = vec![0; 1 << 16];
            for (seed, len) in (1..).zip(LENS) {
                let payloads: Vec<_> = (0..3).map(|n| noise(seed * 10 + n, len)).collect();
                let memory = sender.register(Memory::from_bytes(&payloads.concat())).unwrap();
                // One at a time: the buffer of a socket has room for few long ones.
                for (n, payload) in (0..).zip(&payloads) {
                    let part = memory.part(n * len as u64, len as u32).unwrap();
                    sender.send_datagrams(&mut datagrams, &[part]).unwrap();
                    let (came, from) = socket.recv_from(&mut into).unwrap();
                    let what = format!("{cut_by:?}, {from}, {len} bytes");
                    assert_eq!(from, address(&cable.a, is_ipv4, FROM), "{what}");
                    assert!(into[..came] == payload[..], "{what}");
                }
            }
            assert_eq!(sender.stats().failed, 0);
            assert_eq!(sender.stats().packets, 3 * LENS.len() as u64);
        }
    }
}

#[test]
fn a_sender_and_a_receiver_speculate() {
    require_namespaces!();
    let cable = cable();
    for technique in TECHNIQUES {
        for delivery in deliveries(technique) {
            for is_ipv4 in [true, false] {
                let mut pages = PageReceiver::new(receiver(&cable.b, technique, delivery), PORT);
                let mut sender = sender_as(&cable.a, |builder| builder.cut_by(CutBy::Sender));
                let payloads: Vec<_> = (0..512).map(|n| noise(n, 4096)).collect();
                let memory = sender.register(Memory::from_bytes(&payloads.concat())).unwrap();
                let mut datagrams = datagrams(&cable, is_ipv4);
                let mut ways = 0;
                for (batch, payloads) in payloads.chunks(64).enumerate() {
                    let part = |n| memory.part((batch * 64 + n) as u64 * 4096, 4096).unwrap();
                    let parts: Vec<_> = (0..payloads.len()).map(part).collect();
                    sender.send_datagrams(&mut datagrams, &parts).unwrap();
                    for payload in payloads {
                        let page = next(&mut pages);
                        let what = format!("{technique}, {delivery}, {is_ipv4}");
                        assert!(page.bytes() == payload.as_slice(), "{what}");
                        let path = page.packet().path();
                        assert_eq!(path == ReassemblyPath::Lent, page.packet().is_list());
                        ways += usize::from(path != ReassemblyPath::Conventional);
                    }
                }
                let stats = pages.receiver().stats().unwrap();
                assert_eq!(stats.packets, 512);
                // What the kernel says of itself over IPv6 may pass the filter too.
                assert_eq!(stats.joined.frames - stats.joined.ignored, 3 * 512);
                assert_eq!(ways as u64, stats.guessed_right() + stats.lent());
                assert_eq!(stats.packets, stats.guessed_right() + stats.lent() + stats.copied());
                // Where frames lie in memory that is shared, nothing is guessed.
                let what = format!("{technique}, {delivery}: {stats:?}");
                assert_eq!(stats.guessed_right() > 256, !technique.shares_memory(), "{what}");
                assert_eq!(stats.lent() > 256, delivery == Delivery::List, "{what}");
                assert!(stats.guessed_right() == 0 || stats.lent() == 0, "{what}");
            }
        }
    }
}
