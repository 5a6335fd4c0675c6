//! Protection domains, memory keys and rights.
//!
//! ARP and neighbour discovery between adapters, and echoes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use landfall_placement::{Area, RegionId};
use landfall_simnet::sim::Fate;
use landfall_simnet::{Frame, Loss, PortId, Probability, check};
use qpip::wire::icmp::Echo;
use qpip::wire::{Envelope, icmp4, icmp6, protocol};
use qpip::{
    Access, Buffer, CloseReason, DomainId, Error, Event, Mapping, MemoryKey, Object, PostError,
    ReceiveWork, SendWork, Status,
};

use crate::world::{BOTH, Shape, Version, World, address, ip, mac, pattern};

/// A world with one host, whose adapter has a queue pair for datagrams.
fn with_pair(test: impl Fn(&mut World<'_>, qpip::QueuePairId, DomainId)) {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let pair = world.udp(0, Version::V4, 5);
        let domain = world.hosts[0].domain;
        test(&mut world, pair, domain);
    });
}

const REGION: RegionId = RegionId::new(0, 0);

fn register(world: &mut World<'_>, domain: DomainId, access: Access) -> MemoryKey {
    world.adapter(0).register(domain, Area::new(REGION, 1_000, 500), access).unwrap()
}

fn send(world: &mut World<'_>, pair: qpip::QueuePairId, from: &[Buffer]) -> Result<(), PostError> {
    let (now, to) = (world.now(), Some(address(1, Version::V4, 9)));
    world.adapter(0).post_send(
        now,
        pair,
        &SendWork { id: 1, from, to, is_signaled: true, immediate: None },
    )
}

fn receive(
    world: &mut World<'_>,
    pair: qpip::QueuePairId,
    into: &[Buffer],
) -> Result<(), PostError> {
    let now = world.now();
    world.adapter(0).post_receive(now, pair, &ReceiveWork { id: 1, into })
}

#[test]
fn sends_need_the_right_to_read_and_receives_the_one_to_write() {
    with_pair(|world, pair, domain| {
        for (access, may_send, may_receive) in [
            (Access::Read, true, false),
            (Access::Write, false, true),
            (Access::ReadWrite, true, true),
        ] {
            let key = register(world, domain, access);
            let buffer = [Buffer::new(key, 0, 500)];
            let allowed = |may: bool| if may { Ok(()) } else { Err(PostError::NoRight) };
            assert_eq!(send(world, pair, &buffer), allowed(may_send), "{access:?}");
            assert_eq!(receive(world, pair, &buffer), allowed(may_receive), "{access:?}");
        }
    });
}

#[test]
fn invariant_3_nothing_outside_of_the_registered_memory_is_named() {
    with_pair(|world, pair, domain| {
        let key = register(world, domain, Access::ReadWrite);
        for (offset, len) in
            [(0, 501), (500, 1), (499, 2), (u64::MAX, 1), (u64::MAX - 1, u32::MAX), (501, 0)]
        {
            let buffer = [Buffer::new(key, offset, len)];
            assert_eq!(send(world, pair, &buffer), Err(PostError::OutOfBounds), "{offset} + {len}");
            let both = [Buffer::new(key, 0, 1), buffer[0]];
            assert_eq!(receive(world, pair, &both), Err(PostError::OutOfBounds));
        }
        receive(world, pair, &[Buffer::new(key, 499, 1)]).unwrap();
        assert_eq!(receive(world, pair, &[Buffer::new(key, 500, 0)]), Err(PostError::Empty));
        assert_eq!(send(world, pair, &[Buffer::new(key, 500, 0)]), Ok(()));
    });
}

#[test]
fn memory_of_another_domain_is_out_of_reach() {
    with_pair(|world, pair, _| {
        let other = world.adapter(0).create_domain().unwrap();
        let key = register(world, other, Access::ReadWrite);
        let buffer = [Buffer::new(key, 0, 10)];
        assert_eq!(send(world, pair, &buffer), Err(PostError::WrongDomain));
        assert_eq!(receive(world, pair, &buffer), Err(PostError::WrongDomain));
    });
}

#[test]
fn invariant_7_a_stale_key_is_refused() {
    with_pair(|world, pair, domain| {
        let old = register(world, domain, Access::ReadWrite);
        let memory = world.adapter(0).deregister(old).unwrap();
        assert_eq!(memory, Area::new(REGION, 1_000, 500));
        let new = register(world, domain, Access::ReadWrite);
        assert_eq!((new.index, new.generation), (old.index, old.generation + 1));
        let buffer = [Buffer::new(old, 0, 10)];
        assert_eq!(send(world, pair, &buffer), Err(PostError::UnknownKey));
        let gone = Err(Error::Unknown(Object::MemoryKey));
        assert_eq!(world.adapter(0).deregister(old), gone);
    });
}

#[test]
fn memory_that_requests_use_is_not_deregistered() {
    with_pair(|world, pair, domain| {
        let key = register(world, domain, Access::ReadWrite);
        let buffers = [Buffer::new(key, 0, 10), Buffer::new(key, 20, 10)];
        receive(world, pair, &buffers).unwrap();
        let busy = Err(Error::Busy(Object::MemoryKey));
        assert_eq!(world.adapter(0).deregister(key), busy);
        let now = world.now();
        world.adapter(0).destroy_queue_pair(now, pair).unwrap();
        assert_eq!(world.await_completions(0, 1)[0].status, Status::Flushed);
        world.adapter(0).deregister(key).unwrap();
    });
}

#[test]
fn a_domain_ends_when_nothing_belongs_to_it() {
    with_pair(|world, _, _| {
        let domain = world.adapter(0).create_domain().unwrap();
        let key = register(world, domain, Access::Read);
        let busy = Err(Error::Busy(Object::Domain));
        assert_eq!(world.adapter(0).destroy_domain(domain), busy);
        world.adapter(0).deregister(key).unwrap();
        world.adapter(0).destroy_domain(domain).unwrap();
        let gone = Error::Unknown(Object::Domain);
        assert_eq!(world.adapter(0).destroy_domain(domain), Err(gone));
        let area = Area::new(REGION, 0, 1);
        assert_eq!(world.adapter(0).register(domain, area, Access::Read), Err(gone));
    });
}

#[test]
fn memory_that_cannot_be_is_refused() {
    with_pair(|world, _, domain| {
        for (offset, len) in [(0, 0), (u64::MAX, 1), (1, u64::MAX)] {
            let area = Area::new(REGION, offset, len);
            let refused = world.adapter(0).register(domain, area, Access::Read);
            assert_eq!(refused, Err(Error::BadMemory), "{offset} + {len}");
        }
    });
}

#[test]
fn invariant_5_requests_have_a_bounded_number_of_buffers() {
    with_pair(|world, pair, domain| {
        let key = register(world, domain, Access::ReadWrite);
        let most = world.adapter(0).config().buffers;
        let many = vec![Buffer::new(key, 0, 1); most + 1];
        assert_eq!(send(world, pair, &many), Err(PostError::TooManyBuffers));
        receive(world, pair, &many[..most]).unwrap();
    });
}

#[test]
fn a_message_is_gathered_and_scattered() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let here = world.udp(0, Version::V6, 1);
        let there = world.udp(1, Version::V6, 2);
        let bytes = pattern(4, 3_000);
        let (at, _) = world.store(0, &bytes);
        let into = world.allocate(1, 6_000);
        // Backwards, and with gaps.
        let parts = [(2_000, 500), (0, 1), (700, 1_200)];
        let from = parts.map(|(offset, len)| world.buffer(0, at + offset, len));
        let places = [(3_000, 900), (10, 700), (1_000, 1_000)];
        let into_list = places.map(|(offset, len)| world.buffer(1, into + offset, len));
        let now = world.now();
        let work = ReceiveWork { id: 1, into: &into_list };
        world.adapter(1).post_receive(now, there, &work).unwrap();
        let to = Some(address(1, Version::V6, 2));
        world
            .adapter(0)
            .post_send(
                now,
                here,
                &SendWork { id: 2, from: &from, to, is_signaled: true, immediate: None },
            )
            .unwrap();
        assert_eq!(world.await_completions(1, 1)[0].len, 1_701);
        let sent: Vec<u8> = parts
            .iter()
            .flat_map(|(at, len)| &bytes[*at as usize..(*at + u64::from(*len)) as usize])
            .copied()
            .collect();
        let mut got = Vec::new();
        for (offset, len) in places {
            got.extend(world.read(1, into + offset, len));
        }
        assert_eq!(got[..1_701], sent);
        assert_eq!(got[1_701..], vec![0; 2_600 - 1_701], "and nothing behind it");
    });
}

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
            let arrived = world.hosts[1].done.drain(..).count();
            assert_eq!(arrived > 0, first.is_success(), "{arrived} of 20 arrived: {first}");
        }
    });
}

/// The first question gets lost for sure, and with it nothing.
#[test]
fn one_question_that_gets_lost_costs_no_message() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &strangers());
        for version in BOTH {
            let (here, there) = (world.udp(0, version, 1), world.udp(1, version, 2));
            world.post_receives(1, there, 1, 4, 100);
            let from = world.store(0, &pattern(1, 50));
            let before = world.adapter(0).stats().control_queued;
            let lost = Rc::new(Cell::new(0));
            let swallow = lost.clone();
            let first = move |_, _: &mut Frame| {
                swallow.set(swallow.get() + 1);
                if swallow.get() == 1 { Fate::Drop } else { Fate::Pass }
            };
            world.sim.intercept(world.hosts[0].link.there(), first).unwrap();
            for id in 0..3 {
                world.post_send(0, here, id, from, Some(address(1, version, 2))).unwrap();
            }
            let sent = world.await_completions(0, 3);
            assert!(sent.iter().all(|done| done.status == Status::Success), "{sent:?}");
            assert_eq!(world.await_completions(1, 3).len(), 3);
            assert_eq!(world.adapter(0).stats().control_queued, before + 2, "it is asked twice");
            assert_eq!(lost.get(), 2 + 3, "the two questions, and the messages");
        }
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
