//! ARP and neighbour discovery between adapters, and echoes.

use std::time::Duration;

use crate::world::{BOTH, Shape, Version, World, address, ip, mac, pattern};
use landfall_simnet::{Frame, Loss, PortId, Probability, check};
use qpip::wire::icmp::Echo;
use qpip::wire::{Envelope, icmp4, icmp6, protocol};
use qpip::{CloseReason, Event, Mapping, Status};

fn strangers() -> Shape {
    Shape { hosts: 3, knows_neighbours: false, ..Shape::default() }
}

#[test]
fn a_neighbour_is_asked_for_before_the_first_message_and_then_known() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &strangers());
        for version in BOTH {
            let (here, there) = (world.udp(0, version, 1), world.udp(1, version, 2));
            world.post_receives(1, there, 1, 4, 100);
            world.post_receives(0, here, 10, 4, 100);
            let from = world.store(0, &pattern(1, 50));
            let before = world.adapter(0).stats().control_queued;
            for id in 0..3 {
                world.post_send(0, here, id, from, Some(address(1, version, 2))).unwrap();
            }
            assert_eq!(world.await_completions(0, 3).len(), 3);
            assert_eq!(world.await_completions(1, 3).len(), 3, "all that waited left");
            assert_eq!(world.adapter(0).stats().control_queued, before + 1, "one question");
            // Who asks is known to who was asked.
            let back = world.store(1, &pattern(2, 50));
            let before = world.adapter(1).stats().control_queued;
            world.post_send(1, there, 9, back, Some(address(0, version, 1))).unwrap();
            assert_eq!(world.await_completions(0, 1)[0].len, 50);
            assert_eq!(world.adapter(1).stats().control_queued, before);
            world.await_completions(1, 1);
        }
        assert_eq!(world.adapter(2).stats().control_queued, 0, "it is not its business");
    });
}

#[test]
fn questions_are_repeated_when_they_get_lost() {
    check(1..=6, |sim| {
        let mut shape = strangers();
        shape.link = shape.link.loss(Loss::Uniform(Probability::percent(20)));
        let mut world = World::new(sim, &shape);
        let mut arrived = 0;
        for version in BOTH {
            let (here, there) = (world.udp(0, version, 1), world.udp(1, version, 2));
            world.post_receives(1, there, 1, 40, 100);
            let from = world.store(0, &pattern(1, 50));
            for id in 0..20 {
                world.post_send(0, here, id, from, Some(address(1, version, 2))).unwrap();
            }
            let done = world.await_completions(0, 20);
            let first = done[0].status;
            assert!(done.iter().all(|done| done.status == first), "all waited for one answer");
            world.run_for(Duration::from_millis(10));
            arrived += world.hosts[1].done.drain(..).count();
        }
        assert!(arrived > 0);
    });
}

#[test]
fn nobody_answers_and_what_waited_ends() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &strangers());
        for version in BOTH {
            let here = world.udp(0, version, 1);
            let from = world.store(0, &pattern(1, 50));
            let nobody = address(77, version, 2);
            for id in 0..3 {
                world.post_send(0, here, id, from, Some(nobody)).unwrap();
            }
            let done = world.await_completions(0, 3);
            assert!(done.iter().all(|done| done.status == Status::Unreachable), "{done:?}");
            assert!(done.iter().all(|done| done.len == 0));
            // A connection hears the same, long before it would give up by itself.
            let before = world.now();
            let pair = world.connect(0, address(78, version, 80), Mapping::Stream);
            let event = world.await_event(0);
            assert_eq!(event, Event::Closed { queue_pair: pair, reason: CloseReason::Unreachable });
            assert!(world.now().since(before) < Duration::from_secs(10));
        }
    });
}

#[test]
fn static_neighbours_are_never_asked_for() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let (here, there) = (world.udp(0, version, 1), world.udp(1, version, 2));
            world.post_receives(1, there, 1, 1, 100);
            let from = world.store(0, &pattern(1, 50));
            world.post_send(0, here, 1, from, Some(address(1, version, 2))).unwrap();
            world.await_completions(1, 1);
        }
        world.run_for(Duration::from_secs(300));
        assert_eq!(world.adapter(0).stats().control_queued, 0);
        assert_eq!(world.adapter(1).stats().control_queued, 0);
    });
}

/// An echo request from a station that nobody knows.
fn ping(to: usize, version: Version, data: &[u8]) -> Frame {
    let them = (mac(99), ip(99, version));
    let us = (mac(to), ip(to, version));
    let protocol = if version == Version::V4 { protocol::ICMP4 } else { protocol::ICMP6 };
    let envelope = Envelope::new(them, us, protocol);
    let len = data.len() + 8;
    let mut bytes = vec![0; envelope.header_len() + len];
    let at = envelope.write(&mut bytes, len as u32).unwrap();
    let echo = Echo { id: 7, sequence: 8, data };
    match version {
        Version::V4 => icmp4::write_echo_request(&echo, &mut bytes[at..]),
        Version::V6 => {
            icmp6::write_echo_request(&echo, &mut bytes[at..], envelope.pseudo(len as u32))
        }
    };
    Frame::raw(bytes)
}

#[test]
fn echoes_are_answered_for_our_own_addresses_only() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &strangers());
        let from = world.hosts[0].node;
        for version in BOTH {
            let before = world.adapter(1).stats().echoes;
            world.sim.send(from, PortId(0), ping(1, version, b"hello")).unwrap();
            world.run_for(Duration::from_millis(1));
            assert_eq!(world.adapter(1).stats().echoes, before + 1);
            // To its station, but to nobody's address.
            let mut other = ping(50, version, b"hello");
            other.bytes[..6].copy_from_slice(&mac(1));
            world.sim.send(from, PortId(0), other).unwrap();
            // With a damaged checksum.
            let mut damaged = ping(1, version, b"hello");
            *damaged.bytes.last_mut().unwrap() ^= 1;
            world.sim.send(from, PortId(0), damaged).unwrap();
            world.run_for(Duration::from_millis(1));
            assert_eq!(world.adapter(1).stats().echoes, before + 1);
        }
    });
}
