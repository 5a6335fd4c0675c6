//! Packets that are lent where their fragments lie, as they are by default: from real senders,
//! over blocks, and while users keep them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::UdpSocket;

use super::*;
use landfall::defrag::{Packet, ReassemblyPath, ReceiverStats};
use landfall_testbed::require_namespaces;

/// Of a datagram's payload.
fn hash(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

/// Sends these by the kernel of one end. Gives their hashes.
fn send(socket: &UdpSocket, to: SocketAddr, payloads: impl Iterator<Item = Vec<u8>>) -> Vec<u64> {
    let send = |payload: Vec<u8>| {
        assert_eq!(socket.send_to(&payload, to).unwrap(), payload.len());
        hash(&payload)
    };
    payloads.map(send).collect()
}

/// As by default, but for the patience: a sender that does not run for a while makes no packet
/// wait too long.
fn opened(
    cable: &VethPair,
    adjust: impl FnOnce(ReceiverBuilder) -> ReceiverBuilder + Send,
) -> Receiver {
    receiver_as(&cable.b, |builder| adjust(builder.patience(PATIENCE))).unwrap()
}

#[test]
fn by_default_packets_are_lent_and_neither_guessed_nor_copied() {
    require_namespaces!();
    const EACH: usize = 20;
    let cable = cable();
    for is_ipv4 in [true, false] {
        let mut pages = PageReceiver::new(opened(&cable, |builder| builder), PORT);
        assert_eq!(pages.receiver().chosen().technique, Technique::PacketRing);
        assert_eq!(pages.receiver().delivery(), Delivery::List);
        let socket = socket(&cable.a, is_ipv4, FROM);
        let to = address(&cable.b, is_ipv4, PORT);
        let lens = [1473, 4096, 8192, 16_384, 61_440, 65_000];
        for (nth, len) in (0..).zip(lens) {
            let payloads = (0..EACH as u64).map(|seed| noise(nth * 100 + seed, len));
            for sent in send(&socket, to, payloads) {
                let page = next(&mut pages);
                assert_eq!((page.len(), hash(&page.bytes())), (len, sent), "{to}, {len} bytes");
                assert_eq!(page.packet().path(), ReassemblyPath::Lent);
            }
        }
        let stats = pages.receiver().stats().unwrap();
        assert_eq!(stats.lent(), (EACH * lens.len()) as u64, "{stats:?}");
        assert_eq!((stats.guessed_right(), stats.copied(), stats.bytes_copied()), (0, 0, 0));
    }
}

/// Blocks have room for two frames, so no packet lies in one.
#[test]
fn a_packet_waits_from_block_to_block_and_is_lent_from_all_of_them() {
    require_namespaces!();
    let cable = cable();
    for is_ipv4 in [true, false] {
        let receiver = opened(&cable, |builder| builder.ring(4096, 512, Duration::from_millis(1)));
        let mut pages = PageReceiver::new(receiver, PORT);
        let socket = socket(&cable.a, is_ipv4, FROM);
        let to = address(&cable.b, is_ipv4, PORT);
        let mut held = Vec::new();
        for (seed, len) in (0..).zip([4096, 60_000, 8192, 4096, 30_000]) {
            let sent = send(&socket, to, std::iter::once(noise(seed, len)));
            let page = next(&mut pages);
            assert_eq!(page.packet().path(), ReassemblyPath::Lent);
            held.push((page, sent[0]));
        }
        for (page, sent) in &held {
            assert_eq!(hash(&page.bytes()), *sent, "{} bytes, to {to}", page.len());
        }
        let stats = pages.receiver().stats().unwrap();
        assert_eq!((stats.lent(), stats.copied(), stats.kernel_drops), (5, 0, 0), "{stats:?}");
    }
}

/// The payloads of these packets are those that were sent, each once. Where the kernel goes on
/// with another ring, the last ones of the first may come behind.
fn check(kept: &[Packet], sent: &[u64], len: usize, what: &str) {
    let payload = |packet: &Packet| {
        let whole = packet.to_vec();
        hash(&whole[whole.len() - len..])
    };
    let mut hashes: Vec<_> = kept.iter().map(payload).collect();
    let mut sent = sent.to_vec();
    hashes.sort_unstable();
    sent.sort_unstable();
    assert_eq!(hashes, sent, "{what}");
}

/// All were copied at the bound, but for those that waited where they lay when it was reached.
fn check_copied(stats: &ReceiverStats) {
    let others = stats.copied() - stats.copied_at_bound();
    assert!(others <= stats.joined.lists_given_up, "{stats:?}");
}

/// Receives as many as there are, and keeps all of them.
fn keep(receiver: &mut Receiver, count: usize) -> Vec<Packet> {
    let next = |receiver: &mut Receiver| receiver.receive(PATIENCE).unwrap();
    (0..count).map(|nth| next(receiver).unwrap_or_else(|| panic!("packet {nth}"))).collect()
}

#[test]
fn beyond_what_may_be_lent_packets_are_copied_and_counted() {
    require_namespaces!();
    const COUNT: usize = 150;
    let cable = cable();
    for technique in [Technique::PacketRing, Technique::Xdp] {
        let mut receiver = opened(&cable, |builder| {
            let ring = builder.technique(technique).ring(16 << 10, 64, Duration::from_millis(1));
            ring.lend_at_most(256 << 10)
        });
        let socket = socket(&cable.a, true, FROM);
        let to = address(&cable.b, true, PORT);
        let (mut sent, mut kept) = (Vec::new(), Vec::new());
        for first in (0..COUNT).step_by(10) {
            let payloads = (first..first + 10).map(|seed| noise(seed as u64, 4096));
            sent.extend(send(&socket, to, payloads));
            kept.extend(keep(&mut receiver, 10));
        }
        // All that is kept stays as it was, lent or not.
        check(&kept, &sent, 4096, &format!("{technique}"));
        let stats = receiver.stats().unwrap();
        let (lent, copied) = (stats.lent(), stats.copied());
        let lost = (stats.kernel_drops, stats.lost);
        assert_eq!((lent + copied, lost), (COUNT as u64, (0, 0)), "{technique}: {stats:?}");
        check_copied(&stats);
        assert!(lent > 20 && copied > 20, "{technique}: {stats:?}");
        // What comes back is lent again.
        drop(kept);
        send(&socket, to, (0..10).map(|seed| noise(seed, 4096)));
        keep(&mut receiver, 10);
        assert!(receiver.stats().unwrap().lent() >= lent + 9, "{technique}");
    }
}

/// The kernel fills a ring in turn, and comes to the block of a packet that is kept again and
/// again.
#[test]
fn one_packet_that_is_kept_stops_no_other() {
    require_namespaces!();
    let cable = cable();
    let mut receiver =
        opened(&cable, |builder| builder.ring(16 << 10, 16, Duration::from_millis(1)));
    let socket = socket(&cable.a, true, FROM);
    let to = address(&cable.b, true, PORT);
    let first = send(&socket, to, std::iter::once(noise(7, 4096)));
    let kept = keep(&mut receiver, 1);
    // Ten times what the ring takes.
    for round in 0..100 {
        let sent = send(&socket, to, (0..6).map(|seed| noise(round * 10 + seed, 4096)));
        check(&keep(&mut receiver, 6), &sent, 4096, "beside one that is kept");
    }
    check(&kept, &first, 4096, "it is as it was");
    let stats = receiver.stats().unwrap();
    assert_eq!((stats.kernel_drops, stats.lost), (0, 0), "{stats:?}");
    assert!(stats.copied() > 100, "{stats:?}");
    check_copied(&stats);
    drop(kept);
    let lent = stats.lent();
    for _ in 0..10 {
        send(&socket, to, (0..6).map(|seed| noise(seed, 4096)));
        keep(&mut receiver, 6);
    }
    assert!(receiver.stats().unwrap().lent() > lent + 40, "it is lent again");
}
