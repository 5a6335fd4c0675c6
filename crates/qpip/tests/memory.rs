//! Protection domains, memory keys and rights.

use crate::world::{Shape, Version, World, address, pattern};
use landfall_placement::{Area, RegionId};
use landfall_simnet::check;
use qpip::{
    Access, Buffer, DomainId, Error, MemoryKey, Object, PostError, ReceiveWork, SendWork, Status,
};

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
    world.adapter(0).post_send(now, pair, &SendWork { id: 1, from, to })
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
        assert_eq!(send(world, pair, &[Buffer::new(key, 500, 0)]), Err(PostError::Empty));
        assert_eq!(send(world, pair, &[]), Err(PostError::Empty));
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
        world.adapter(0).post_send(now, here, &SendWork { id: 2, from: &from, to }).unwrap();
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
