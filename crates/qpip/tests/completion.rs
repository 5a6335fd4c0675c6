//! Completion queues: their bounds, and that no wake-up is lost.

use crate::world::{Shape, Version, World, address, pattern};
use landfall_placement::{Area, Engine, Instant, RegionId};
use landfall_simnet::check;
use qpip::{
    Access, Adapter, Arm, Buffer, Config, Error, Event, Mapping, Object, PostError, QueuePairSetup,
    ReceiveWork, Service, Status,
};

fn setup(world: &mut World<'_>, capacity: u32, service: Service) -> QueuePairSetup {
    let domain = world.hosts[0].domain;
    let queue = world.adapter(0).create_completion_queue(capacity).unwrap();
    QueuePairSetup {
        domain,
        send_completions: queue,
        receive_completions: queue,
        service,
        send_depth: 8,
        receive_depth: 8,
        shared_receives: None,
    }
}

#[test]
fn invariant_5_a_post_without_room_for_its_completion_is_refused() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let setup = setup(&mut world, 3, Service::Udp);
        let queue = setup.receive_completions;
        let pair = world.adapter(0).create_queue_pair(&setup).unwrap();
        for id in 0..3 {
            world.post_receive(0, pair, id, (id * 100, 100)).unwrap();
        }
        let refused = world.post_receive(0, pair, 3, (300, 100));
        assert_eq!(refused, Err(PostError::CompletionQueueFull));
        // Completions keep their places until they are polled.
        let now = world.now();
        world.adapter(0).destroy_queue_pair(now, pair).unwrap();
        assert_eq!(world.adapter(0).completions(queue), 3);
        let other = world.adapter(0).create_queue_pair(&setup).unwrap();
        let refused = world.post_receive(0, other, 3, (300, 100));
        assert_eq!(refused, Err(PostError::CompletionQueueFull));
        for id in 0..3 {
            let done = world.adapter(0).poll(queue).unwrap();
            assert_eq!((done.id, done.status), (id, Status::Flushed));
        }
        assert_eq!(world.adapter(0).poll(queue), None);
        world.post_receive(0, other, 3, (300, 100)).unwrap();
    });
}

#[test]
fn invariant_5_queues_are_as_deep_as_they_were_made() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let setup = setup(&mut world, 100, Service::Tcp(Mapping::Message));
        let pair = world.adapter(0).create_queue_pair(&setup).unwrap();
        for id in 0..8 {
            world.post_receive(0, pair, id, (0, 10)).unwrap();
            world.post_send(0, pair, id, (100, 10), None).unwrap();
        }
        assert_eq!(world.post_receive(0, pair, 8, (0, 10)), Err(PostError::QueueFull));
        assert_eq!(world.post_send(0, pair, 8, (100, 10), None), Err(PostError::QueueFull));
        let deep = QueuePairSetup { send_depth: 1 << 30, ..setup };
        assert_eq!(world.adapter(0).create_queue_pair(&deep), Err(Error::BadDepth));
        let flat = QueuePairSetup { receive_depth: 0, ..setup };
        assert_eq!(world.adapter(0).create_queue_pair(&flat), Err(Error::BadDepth));
        assert_eq!(world.adapter(0).create_completion_queue(0), Err(Error::BadDepth));
    });
}

#[test]
fn a_queue_in_use_cannot_be_destroyed() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let setup = setup(&mut world, 4, Service::Udp);
        let queue = setup.send_completions;
        let pair = world.adapter(0).create_queue_pair(&setup).unwrap();
        let busy = world.adapter(0).destroy_completion_queue(queue);
        assert_eq!(busy, Err(Error::Busy(Object::CompletionQueue)));
        let now = world.now();
        world.adapter(0).destroy_queue_pair(now, pair).unwrap();
        world.adapter(0).destroy_completion_queue(queue).unwrap();
        let gone = world.adapter(0).destroy_completion_queue(queue);
        assert_eq!(gone, Err(Error::Unknown(Object::CompletionQueue)));
        assert_eq!(
            world.adapter(0).create_queue_pair(&setup),
            Err(Error::Unknown(Object::CompletionQueue))
        );
    });
}

#[test]
fn an_armed_queue_tells_once_and_one_with_something_in_it_does_not_arm() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let setup = setup(&mut world, 16, Service::Udp);
        let queue = setup.receive_completions;
        let there = world.adapter(0).create_queue_pair(&setup).unwrap();
        world.adapter(0).bind(there, address(0, Version::V4, 5)).unwrap();
        let here = world.udp(1, Version::V4, 6);
        for id in 0..4 {
            world.post_receive(0, there, id, (id * 100, 100)).unwrap();
        }
        assert!(world.adapter(0).arm(queue, Arm::Next), "there is nothing yet");
        let from = world.store(1, &pattern(1, 100));
        for id in 0..2 {
            world.post_send(1, here, id, from, Some(address(0, Version::V4, 5))).unwrap();
        }
        world.await_completions(1, 2);
        world.run_until("both came", |world| world.engine(0).completions(queue) == 2);
        assert_eq!(world.hosts[0].events.len(), 1, "one event for one arm");
        assert_eq!(world.hosts[0].events.pop_front(), Some(Event::CompletionsReady { queue }));
        assert!(!world.adapter(0).arm(queue, Arm::Next), "do not sleep: there is something");
        world.adapter(0).poll(queue).unwrap();
        world.adapter(0).poll(queue).unwrap();
        // The race that loses wake-ups elsewhere: it comes between poll and arm.
        world.post_send(1, here, 2, from, Some(address(0, Version::V4, 5))).unwrap();
        world.run_until("it came", |world| world.engine(0).completions(queue) == 1);
        assert!(!world.adapter(0).arm(queue, Arm::Next));
        assert!(world.hosts[0].events.is_empty());
        // Who is told and does not listen is not told again and again.
        let mut adapter = Adapter::new(Config::default(), [1; 32]).unwrap();
        let domain = adapter.create_domain().unwrap();
        let queue = adapter.create_completion_queue(16).unwrap();
        let setup = QueuePairSetup {
            domain,
            send_completions: queue,
            receive_completions: queue,
            service: Service::Udp,
            ..setup
        };
        let area = Area::new(RegionId::new(0, 0), 0, 100);
        let key = adapter.register(domain, area, Access::Write).unwrap();
        for id in 0..5 {
            let pair = adapter.create_queue_pair(&setup).unwrap();
            let work = ReceiveWork { id, into: &[Buffer::new(key, 0, 10)] };
            adapter.post_receive(Instant::ZERO, pair, &work).unwrap();
            assert!(adapter.arm(queue, Arm::Next));
            adapter.destroy_queue_pair(Instant::ZERO, pair).unwrap();
            assert_eq!(adapter.poll(queue).unwrap().id, id);
        }
        assert_eq!(adapter.poll_event(), Some(Event::CompletionsReady { queue }));
        assert_eq!(adapter.poll_event(), None);
    });
}

#[test]
fn solicited_completions_are_ends_of_messages_and_errors() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let setup = setup(&mut world, 16, Service::Udp);
        let queue = setup.receive_completions;
        let pair = world.adapter(0).create_queue_pair(&setup).unwrap();
        world.adapter(0).bind(pair, address(0, Version::V4, 5)).unwrap();
        world.udp(1, Version::V4, 6);
        assert!(world.adapter(0).arm(queue, Arm::Solicited));
        world.post_send(0, pair, 1, (0, 10), Some(address(1, Version::V4, 6))).unwrap();
        world.run_until("it left", |world| world.engine(0).completions(queue) == 1);
        assert!(world.hosts[0].events.is_empty(), "that a send went well wakes nobody");
        assert!(world.adapter(0).arm(queue, Arm::Solicited), "nothing solicited is there");
        world.post_receive(0, pair, 2, (0, 10)).unwrap();
        let now = world.now();
        world.adapter(0).destroy_queue_pair(now, pair).unwrap();
        let event = world.await_event(0);
        assert_eq!(event, Event::CompletionsReady { queue }, "a flush does");
        assert!(!world.adapter(0).arm(queue, Arm::Solicited));
        assert_eq!(world.adapter(0).poll(queue).unwrap().status, Status::Success);
        assert_eq!(world.adapter(0).poll(queue).unwrap().status, Status::Flushed);
        assert!(world.adapter(0).arm(queue, Arm::Solicited));
    });
}

#[test]
fn a_byte_stream_keeps_a_place_for_the_parts_that_it_reports() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let setup = setup(&mut world, 2, Service::Tcp(Mapping::Stream));
        let pair = world.adapter(0).create_queue_pair(&setup).unwrap();
        world.post_receive(0, pair, 1, (0, 100)).unwrap();
        let refused = world.post_receive(0, pair, 2, (100, 100));
        assert_eq!(refused, Err(PostError::CompletionQueueFull));
        let full = world.adapter(0).create_queue_pair(&setup);
        assert_eq!(full, Err(Error::Full(Object::CompletionQueue)));
        let now = world.now();
        world.adapter(0).destroy_queue_pair(now, pair).unwrap();
        let queue = setup.receive_completions;
        assert_eq!(world.adapter(0).poll(queue).unwrap().status, Status::Flushed);
        world.adapter(0).create_queue_pair(&setup).unwrap();
    });
}

#[test]
fn invariant_7_stale_queue_pairs_and_queues_are_refused() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let setup = setup(&mut world, 16, Service::Udp);
        let old = world.adapter(0).create_queue_pair(&setup).unwrap();
        let now = world.now();
        world.adapter(0).destroy_queue_pair(now, old).unwrap();
        let new = world.adapter(0).create_queue_pair(&setup).unwrap();
        assert_eq!((new.index, new.generation), (old.index, old.generation + 1));
        let gone = Err(Error::Unknown(Object::QueuePair));
        assert_eq!(world.adapter(0).destroy_queue_pair(now, old), gone);
        assert_eq!(world.adapter(0).shutdown(now, old), gone);
        assert_eq!(world.adapter(0).abort(now, old), gone);
        assert_eq!(world.post_receive(0, old, 1, (0, 10)), Err(PostError::UnknownQueuePair));
        assert_eq!(world.post_send(0, old, 1, (0, 10), None), Err(PostError::UnknownQueuePair));
        let into = [];
        let empty = world.adapter(0).post_receive(now, new, &ReceiveWork { id: 1, into: &into });
        assert_eq!(empty, Err(PostError::Empty));
    });
}
