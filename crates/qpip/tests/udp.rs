//! Queue pairs for datagrams, between two adapters.

use std::time::Duration;

use crate::two::{self, Two, noise, place, ticket};
use crate::world::{BOTH, Shape, Version, World, address, ip, mac, pattern};
use landfall_placement::{Engine, Landing, Placement};
use landfall_simnet::{EngineConfig, Frame, Loss, PortId, Probability, check};
use landfall_testkit::model::Faults;
use qpip::wire::{Envelope, Fragment, protocol};
use qpip::{Mapping, Operation, PostError, Service, Status};

#[test]
fn a_message_takes_a_request_and_says_who_sent_it() {
    check(1..=3, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let (here, there) = (world.udp(0, version, 1_000), world.udp(1, version, 2_000));
            let at = world.post_receives(1, there, 50, 2, 4_096);
            let bytes = pattern(1, 1_000);
            let from = world.store(0, &bytes);
            world.post_send(0, here, 7, from, Some(address(1, version, 2_000))).unwrap();
            let sent = world.await_completions(0, 1)[0];
            assert_eq!(
                (sent.id, sent.operation, sent.status),
                (7, Operation::Send, Status::Success)
            );
            assert_eq!((sent.len, sent.queue_pair, sent.ends_request), (1_000, here, true));
            let got = world.await_completions(1, 1)[0];
            assert_eq!(
                (got.id, got.operation, got.status),
                (50, Operation::Receive, Status::Success)
            );
            assert_eq!((got.len, got.offset, got.ends_message), (1_000, 0, true));
            assert_eq!(got.from, Some(address(0, version, 1_000)));
            assert_eq!(world.read(1, at, 1_000), bytes);
            // And back, to where it came from.
            world.post_receives(0, here, 1, 1, 2_000);
            world.post_send(1, there, 2, (at, 1_000), got.from).unwrap();
            world.await_completions(1, 1);
            assert_eq!(world.await_completions(0, 1)[0].len, 1_000);
        }
    });
}

#[test]
fn messages_of_every_length_arrive_whole() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let (here, there) = (world.udp(0, version, 1_000), world.udp(1, version, 2_000));
            for len in [1, 2, 7, 8, 17, 18, 19, 1_232, 1_452, 1_453, 1_472, 1_473, 2_953, 9_000] {
                let at = world.post_receives(1, there, len, 1, len as u32 + 3);
                let bytes = pattern(len, len as usize);
                let from = world.store(0, &bytes);
                world.post_send(0, here, len, from, Some(address(1, version, 2_000))).unwrap();
                world.await_completions(0, 1);
                let got = world.await_completions(1, 1)[0];
                assert_eq!((got.status, got.len), (Status::Success, len as u32), "{version:?}");
                assert_eq!(world.read(1, at, len as u32), bytes, "{len} bytes");
            }
        }
    });
}

#[test]
fn the_longest_message_leaves_in_fragments_and_one_more_byte_is_refused() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for (version, longest) in [(Version::V4, 65_507), (Version::V6, 65_527)] {
            let (here, there) = (world.udp(0, version, 1_000), world.udp(1, version, 2_000));
            let to = Some(address(1, version, 2_000));
            let at = world.post_receives(1, there, 1, 1, 65_535);
            let bytes = pattern(9, longest as usize);
            let from = world.store(0, &bytes);
            let too_long = (from.0, longest + 1);
            assert_eq!(world.post_send(0, here, 1, too_long, to), Err(PostError::TooLong));
            world.post_send(0, here, 2, from, to).unwrap();
            world.await_completions(0, 1);
            let got = world.await_completions(1, 1)[0];
            assert_eq!((got.status, got.len), (Status::Success, longest));
            assert_eq!(world.read(1, at, longest), bytes);
        }
        assert_eq!(world.adapter(0).stats().fragmented, 2);
        assert_eq!(world.adapter(1).stats().reassembled, 2);
    });
}

#[test]
fn a_message_that_is_too_long_writes_nothing_and_says_how_long_it_was() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        // In one packet, and put together from fragments.
        for (n, len) in [(0, 500), (1, 5_000)] {
            let port = 2_000 + n;
            let (here, there) = (world.udp(0, Version::V4, port), world.udp(1, Version::V4, port));
            let at = world.post_receives(1, there, 1, 2, 499);
            let from = world.store(0, &pattern(1, len));
            let to = Some(address(1, Version::V4, port));
            world.post_send(0, here, 1, from, to).unwrap();
            world.post_send(0, here, 2, (from.0, 499), to).unwrap();
            let got = world.await_completions(1, 2);
            assert_eq!((got[0].id, got[0].status), (1, Status::TooLong));
            assert_eq!((got[0].len, got[0].ends_request), (len as u32, true));
            assert_eq!((got[1].id, got[1].status, got[1].len), (2, Status::Success, 499));
            assert_eq!(world.read(1, at, 499), vec![0; 499], "nothing was written");
            world.await_completions(0, 2);
        }
        assert_eq!(world.adapter(1).stats().datagrams_too_long, 2);
    });
}

#[test]
fn what_nobody_waits_for_is_dropped_and_counted() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let (here, there) = (world.udp(0, Version::V4, 1), world.udp(1, Version::V4, 2));
        let from = world.store(0, &pattern(1, 100));
        let to = Some(address(1, Version::V4, 2));
        world.post_send(0, here, 1, from, to).unwrap();
        world.await_completions(0, 1);
        world.run_for(Duration::from_millis(1));
        assert_eq!(world.adapter(1).stats().datagrams_unexpected, 1);
        world.post_receives(1, there, 1, 1, 100);
        world.post_send(0, here, 2, from, to).unwrap();
        assert_eq!(world.await_completions(1, 1)[0].len, 100);
    });
}

#[test]
fn a_message_to_a_closed_port_harms_nobody_and_is_answered() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let here = world.udp(0, version, 1);
            let from = world.store(0, &pattern(1, 100));
            world.post_send(0, here, 1, from, Some(address(1, version, 9))).unwrap();
            // Best effort: it left, and that is all that is known.
            assert_eq!(world.await_completions(0, 1)[0].status, Status::Success);
            world.run_for(Duration::from_millis(1));
        }
        assert_eq!(world.adapter(1).stats().control_queued, 2, "port unreachable, twice");
        assert_eq!(world.adapter(0).stats().icmp_believed, 2, "who sent it is told");
    });
}

#[test]
fn any_of_our_addresses_may_be_bound_to_at_once() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let there = world.queue_pair(1, Service::Udp);
        let any = world.adapter(1).bind(there, "0.0.0.0:77".parse().unwrap()).unwrap();
        assert_eq!(any.port(), 77);
        let here = world.queue_pair(0, Service::Udp);
        let local = world.adapter(0).bind(here, "0.0.0.0:0".parse().unwrap()).unwrap();
        assert!(local.port() >= 49_152, "a port that nobody else has");
        world.post_receives(1, there, 1, 1, 100);
        let from = world.store(0, &pattern(1, 10));
        world.post_send(0, here, 1, from, Some(address(1, Version::V4, 77))).unwrap();
        let got = world.await_completions(1, 1)[0];
        assert_eq!(got.from, Some(address(0, Version::V4, local.port())));
        // A narrower binding is asked first.
        let exact = world.udp(1, Version::V4, 77);
        world.post_receives(1, exact, 5, 1, 100);
        world.post_send(0, here, 2, from, Some(address(1, Version::V4, 77))).unwrap();
        assert_eq!(world.await_completions(1, 1)[0].queue_pair, exact);
    });
}

/// Fragments on a bad wire: each message arrives whole, once, or not at all.
#[test]
fn fragments_survive_loss_reordering_and_repetition() {
    let mut versions = BOTH.into_iter().cycle();
    check(1..=12, |sim| {
        let mut shape = Shape { depth: 256, memory: 4 << 20, ..Shape::default() };
        shape.link = shape
            .link
            .loss(Loss::Uniform(Probability::percent(3)))
            .duplication(Probability::percent(10))
            .reordering(Probability::percent(30), Duration::from_micros(300));
        let mut world = World::new(sim, &shape);
        let version = versions.next().unwrap();
        let (here, there) = (world.udp(0, version, 1), world.udp(1, version, 2));
        let at = world.post_receives(1, there, 0, 200, 8_000);
        let lens: Vec<u32> = (0..100).map(|n| 1 + n * 79).collect();
        let all: Vec<Vec<u8>> =
            lens.iter().map(|len| pattern(u64::from(*len), *len as usize)).collect();
        for (n, bytes) in all.iter().enumerate() {
            let from = world.store(0, bytes);
            world.post_send(0, here, n as u64, from, Some(address(1, version, 2))).unwrap();
        }
        assert_eq!(world.await_completions(0, 100).len(), 100);
        world.run_for(Duration::from_secs(100));
        let got: Vec<_> = world.hosts[1].done.drain(..).collect();
        assert!(got.len() > 50, "most arrive, some twice: {}", got.len());
        for done in got {
            assert_eq!(done.status, Status::Success);
            let place = at + done.id * 8_000;
            let bytes = world.read(1, place, done.len);
            let n = lens.iter().position(|len| *len == done.len).expect("a length that was sent");
            assert!(bytes == all[n], "a message of {} bytes is another", done.len);
        }
        let counters = *world.adapter(1).reassembly();
        assert!(counters.repeated > 0 && counters.expired > 0, "{counters:?}");
    });
}

/// A wire that flips bits, and no checksum of the Ethernet that would notice.
#[test]
fn invariant_3_damaged_datagrams_are_refused_and_their_request_waits_on() {
    check(1..=8, |sim| {
        let engine = EngineConfig { batch: 8, ..EngineConfig::default() };
        let shape = Shape { depth: 256, engine, ..Shape::default() };
        let mut world = World::new(sim, &shape);
        // One flip a frame: two may cancel each other out in the sum.
        let direction = world.hosts[0].link.there();
        let bad = shape.link.corruption(Probability::percent(20));
        world.sim.configure(direction, bad).unwrap();
        let (here, there) = (world.udp(0, Version::V6, 1), world.udp(1, Version::V6, 2));
        let at = world.post_receives(1, there, 0, 200, 600);
        let all: Vec<Vec<u8>> = (0..100).map(|n| pattern(n, 300 + n as usize)).collect();
        for (n, bytes) in all.iter().enumerate() {
            let from = world.store(0, bytes);
            world.post_send(0, here, n as u64, from, Some(address(1, Version::V6, 2))).unwrap();
        }
        world.await_completions(0, 100);
        world.run_for(Duration::from_secs(1));
        let got: Vec<_> = world.hosts[1].done.drain(..).collect();
        assert_eq!(got.len() as u64, world.engine(1).stats().datagrams_received);
        assert!((50..100).contains(&got.len()), "some were damaged: {}", got.len());
        for done in got {
            let bytes = world.read(1, at + done.id * 600, done.len);
            assert!(all.contains(&bytes), "request {} has what nobody sent", done.id);
        }
    });
}

/// A piece of a datagram of ours, as host 0 would send it.
fn piece(datagram: &[u8], id: u32, (from, to): (usize, usize)) -> Frame {
    let [source, destination] = [0, 1].map(|host| (mac(host), ip(host, Version::V4)));
    let mut envelope = Envelope::new(source, destination, protocol::UDP);
    let more = to < datagram.len();
    envelope.fragment = Some(Fragment { id, offset: from as u32, more });
    let mut bytes = vec![0; 64];
    let len = envelope.write(&mut bytes, (to - from) as u32).unwrap();
    bytes.truncate(len);
    bytes.extend_from_slice(&datagram[from..to]);
    Frame::raw(bytes)
}

/// A datagram with its header and checksum.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let [source, destination] = [0, 1].map(|host| (mac(host), ip(host, Version::V4)));
    let envelope = Envelope::new(source, destination, protocol::UDP);
    let len = payload.len() as u16 + 8;
    let mut bytes = [1u16, 2, len, envelope.pseudo(u32::from(len))].map(u16::to_be_bytes).concat();
    bytes.extend_from_slice(payload);
    let sum = landfall_placement::checksum::checksum(&bytes);
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Pieces of one packet that overlap with other bytes: the packet is refused as
/// a whole (RFC 5722), and the next one is not.
#[test]
fn overlapping_fragments_are_refused_as_a_whole() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let there = world.udp(1, Version::V4, 2);
        let at = world.post_receives(1, there, 0, 2, 4_000);
        let bytes = pattern(3, 2_892);
        let whole = datagram(&bytes);
        let mut forged = whole.clone();
        forged[1_400] ^= 1;
        let from = world.hosts[0].node;
        let send = |world: &mut World<'_>, frame| world.sim.send(from, PortId(0), frame).unwrap();
        // Whatever comes first, and wherever the forged piece fits in.
        let orders: [[(bool, usize, usize); 3]; 3] = [
            [(false, 0, 1_480), (true, 1_000, 1_480), (false, 1_480, 2_900)],
            [(true, 1_400, 1_600), (false, 0, 1_480), (false, 1_480, 2_900)],
            [(false, 1_480, 2_900), (true, 1_472, 1_488), (false, 0, 1_480)],
        ];
        for (n, order) in orders.into_iter().enumerate() {
            for (is_forged, start, end) in order {
                let source = if is_forged { &forged } else { &whole };
                send(&mut world, piece(source, n as u32, (start, end)));
            }
            world.run_for(Duration::from_millis(1));
            assert_eq!(world.adapter(1).reassembly().refused, n as u64 + 1, "order {n}");
        }
        assert!(world.hosts[1].done.is_empty());
        // The same without the forged one; each piece comes twice, the last first.
        for (start, end) in [(1_480, 2_900), (1_480, 2_900), (0, 1_480)] {
            send(&mut world, piece(&whole, 99, (start, end)));
        }
        let got = world.await_completions(1, 1)[0];
        assert_eq!((got.status, got.len), (Status::Success, 2_892));
        assert_eq!(world.read(1, at, 2_892), bytes);
        assert_eq!(world.adapter(1).reassembly().repeated, 1);
    });
}

/// A frame from side 0 of a [`Two`] to the port 2 of side 1, with no checksum.
fn frame_without_sum(payload: &[u8]) -> Vec<u8> {
    let station = |side: usize| [2, 0, 0, 0, 0, side as u8 + 1];
    let ends = [0, 1].map(|side| (station(side), two::address(side, 0).ip()));
    let envelope = Envelope::new(ends[0], ends[1], protocol::UDP);
    let len = payload.len() as u16 + 8;
    let mut bytes = vec![0; 64];
    let head = envelope.write(&mut bytes, u32::from(len)).unwrap();
    bytes.truncate(head);
    bytes.extend([1u16, 2, len, 0].map(u16::to_be_bytes).concat());
    bytes.extend_from_slice(payload);
    bytes
}

/// Datagrams that write nothing are done at once: no driver is asked for a placement with
/// neither bytes nor a check, and the request of the one in front waits for its bytes.
#[test]
fn invariant_2_what_writes_nothing_does_not_end_the_request_in_front_of_it() {
    let mut two = Two::new(&two::plain(), Mapping::Message, Faults::default(), 1);
    let pair = two.queue_pair(1, Service::Udp);
    two.adapter(1).bind(pair, two::address(1, 2)).unwrap();
    two.pairs[1] = pair;
    let requests = [100, 100, 100].map(|len| two.receive(1, len));
    let now = two.wire.now;
    let first = frame_without_sum(&noise(1, 50));
    let ticket = ticket(place(&mut two.wire.sides[1].engine, now, &first).unwrap());
    for payload in [&[][..], &noise(2, 101)] {
        let placement = place(&mut two.wire.sides[1].engine, now, &frame_without_sum(payload));
        assert_eq!(placement, Ok(Placement::Consumed));
    }
    two.hear();
    assert!(two.done[1].is_empty(), "the first is not in place");
    two.wire.sides[1].engine.handle_placed(now, ticket, Landing::Unchecked);
    two.hear();
    let done: Vec<_> = two.done[1].iter().map(|done| (done.id, done.status, done.len)).collect();
    let statuses = [(Status::Success, 50), (Status::Success, 0), (Status::TooLong, 101)];
    let expected = requests.iter().zip(statuses).map(|((id, _), (how, len))| (*id, how, len));
    assert_eq!(done, expected.collect::<Vec<_>>());
    two.check_contract();
}

/// A port on one address keeps what is for it from one on any, also while it has
/// no memory posted: with the offload seam and without it.
#[test]
fn a_port_on_one_address_keeps_its_datagrams_from_one_on_any() {
    for predicts in [true, false] {
        check(1..=1, |sim| {
            let mut shape = Shape::default();
            shape.config.predicts = predicts;
            let mut world = World::new(sim, &shape);
            let here = world.udp(0, Version::V4, 1_000);
            let any = world.queue_pair(1, Service::Udp);
            world.adapter(1).bind(any, "0.0.0.0:2000".parse().unwrap()).unwrap();
            world.post_receives(1, any, 1, 2, 500);
            let to = Some(address(1, Version::V4, 2_000));
            let from = world.store(0, &pattern(1, 100));
            world.post_send(0, here, 1, from, to).unwrap();
            assert_eq!(world.await_completions(1, 1)[0].queue_pair, any);
            let one = world.udp(1, Version::V4, 2_000);
            world.post_send(0, here, 2, from, to).unwrap();
            world.run_for(Duration::from_millis(5));
            assert!(world.hosts[1].done.is_empty(), "nobody took it");
            world.post_receives(1, one, 3, 1, 500);
            world.post_send(0, here, 3, from, to).unwrap();
            assert_eq!(world.await_completions(1, 1)[0].queue_pair, one);
        });
    }
}

/// A neighbour that does not answer is asked for some seconds.
#[test]
fn who_does_not_answer_holds_up_no_datagram_for_others() {
    check(1..=2, |sim| {
        let shape = Shape { hosts: 3, knows_neighbours: false, ..Shape::default() };
        let mut world = World::new(sim, &shape);
        for version in BOTH {
            let here = world.udp(0, version, 1_000);
            let others = [1, 2].map(|host| world.udp(host, version, 2_000));
            let nobody = address(77, version, 2_000);
            for (host, there) in [1, 2].into_iter().zip(others) {
                world.post_receives(host, there, 0, 4, 100);
            }
            let from = world.store(0, &pattern(1, 100));
            let start = world.now();
            // Between all others some for who is not there.
            for id in 0..4 {
                world.post_send(0, here, 10 * id, from, Some(nobody)).unwrap();
                for host in [1, 2] {
                    let to = Some(address(host, version, 2_000));
                    world.post_send(0, here, 10 * id + host as u64, from, to).unwrap();
                }
            }
            for host in [1, 2] {
                world.await_completions(host, 4);
            }
            let took = world.now().since(start);
            assert!(took < Duration::from_millis(100), "{version:?}: {took:?}");
            // All complete, in the order of posting.
            let done = world.await_completions(0, 12);
            for (nth, done) in done.iter().enumerate() {
                let (id, host) = (nth as u64 / 3, nth % 3);
                assert_eq!(done.id, 10 * id + host as u64);
                let wanted = if host == 0 { Status::Unreachable } else { Status::Success };
                assert_eq!(done.status, wanted, "{version:?} {nth}");
            }
        }
    });
}
