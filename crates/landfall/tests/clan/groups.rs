//! Groups of nodes: memory that one call writes in all of them.

use std::net::SocketAddr;

use clan_dsm::Error as EngineError;

use super::{builder, channel_pair_with, host, loopback, noise, soon, until};
use landfall::clan::layer::publish::{Config as Publishing, Publisher, Subscriber};
use landfall::clan::network::{Aperture, Config, Group, MemberDelivery, Node, Peer, Transport};
use landfall::clan::{Access, Error, Fabric, Local, Remote, Rights, Tripwire};
use landfall_testbed::{VethConfig, VethEnd, VethPair, require_namespaces};

const LEN: u64 = 64 << 10;

/// A node, and others to which it has links, over UDP on loopback.
fn star(others: u16, config: &Config) -> (Node, Vec<Node>) {
    let open = |number| builder(number).config(config.clone()).path(loopback()).open();
    let here = open(1).expect("loopback");
    let others: Vec<_> = (2..2 + others).map(|number| open(number).expect("loopback")).collect();
    for other in &others {
        here.link(other.local().unwrap()).unwrap().wait_up(soon()).unwrap();
        other.wait_reached(here.host(), soon()).unwrap();
    }
    (here, others)
}

/// A group with memory of each of these nodes.
fn group_of(writer: &Node, members: &[Node]) -> (Group, Vec<Aperture>) {
    let mut group = writer.found_group(LEN).unwrap();
    let joined = members.iter().map(|member| {
        let (memory, _) = member.expose(LEN, Rights::Write).unwrap();
        member.join_group(&group.cookie(), &memory).unwrap();
        memory
    });
    let memories = joined.collect();
    for member in members {
        group.add(member.host()).unwrap();
    }
    (group, memories)
}

/// Those that got it.
fn taken(told: &[MemberDelivery]) -> Vec<u16> {
    told.iter().filter(|told| told.result.is_ok()).map(|told| told.member.number()).collect()
}

fn bytes_of(memory: &Aperture, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.copy_out(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn one_call_writes_the_memory_of_all_members() {
    let (writer, members) = star(4, &Config::default());
    let (mut group, memories) = group_of(&writer, &members);
    assert!(group.members().eq((2..6).map(host)));
    let tripwires: Vec<_> = members
        .iter()
        .zip(&memories)
        .map(|(node, memory)| node.watch(memory, 0..8, Access::Write, None).unwrap())
        .collect();
    for (round, len) in [0, 1, 8, 127, 128, 129, 1000, 1004, 40_000, 1000].into_iter().enumerate() {
        tripwires.iter().for_each(Tripwire::arm);
        // Long and short, at words and between them; the flag behind them.
        let (long, odd) = (noise(round as u64, len), noise(99 + round as u64, len / 4));
        let flag = (round as u64 + 1).to_le_bytes();
        let told = group.publish(&[(64, &long), (48_003, &odd), (0, &flag)]).unwrap();
        assert_eq!(taken(&told), [2, 3, 4, 5]);
        for (memory, tripwire) in memories.iter().zip(&tripwires) {
            assert!(tripwire.wait(soon()).unwrap(), "nobody waits for `delivered`");
            assert_eq!(memory.load(0).unwrap(), round as u64 + 1);
            assert!(bytes_of(memory, 64, len) == long, "round {round}");
            assert!(bytes_of(memory, 48_003, len / 4) == odd, "round {round}");
        }
        group.wait_delivered(soon()).unwrap();
    }
}

#[test]
fn a_member_that_dies_or_leaves_stops_nobody() {
    let (writer, mut members) = star(3, &Config::default());
    let (mut group, memories) = group_of(&writer, &members);
    let gone = members.remove(0);
    members[0].leave_group(&group.cookie()).unwrap();
    let again = members[0].leave_group(&group.cookie());
    assert!(matches!(again, Err(Error::Engine(EngineError::Unknown))), "{again:?}");
    close(gone);
    let (mut round, mut told_of_the_first, mut told_of_the_second) = (0u64, None, None);
    until(&writer, || {
        round += 1;
        let body = noise(round, 3000);
        let told = group.publish(&[(64, &body), (0, &round.to_le_bytes())]).unwrap();
        for MemberDelivery { member, result } in told {
            match (member.number(), result) {
                (2, Err(error)) if !matches!(error, Error::Busy) => told_of_the_first = Some(error),
                (3, Err(error)) if !matches!(error, Error::Busy) => {
                    told_of_the_second = Some(error);
                }
                (4, result) => {
                    result.unwrap();
                    until(&members[1], || memories[2].load(0).unwrap() == round);
                    assert!(bytes_of(&memories[2], 64, 3000) == body);
                }
                _ => {}
            }
        }
        told_of_the_first.is_some() && told_of_the_second.is_some()
    });
    // It said that it goes, or was not there any more.
    let is_gone = matches!(told_of_the_first, Some(Error::PeerLost | Error::Refused(_)));
    assert!(is_gone, "{told_of_the_first:?}");
    assert!(matches!(told_of_the_second, Some(Error::StaleCookie)), "{told_of_the_second:?}");
    assert!(group.members().eq([host(4)]));
    assert_eq!(memories[1].load(0).unwrap(), 0, "it had left");
    group.wait_delivered(soon()).unwrap();
}

/// Closes a node, no matter who has handles of it.
fn close(node: Node) {
    let driving = node.clone();
    assert!(driving.wait_for(node.close(), soon()).is_ok_and(|done| done.is_some()));
}

#[test]
fn a_member_that_is_slow_is_left_out_and_then_gets_all_of_the_next() {
    let config = Config { write_buffer: 4096, frames: 4, ..Config::default() };
    let (member, writer) = channel_pair_with(&config);
    let members = [member];
    let (mut group, memories) = group_of(&writer, &members);
    let (mut busy, mut sent) = (0, 0);
    for round in 1..=3000u64 {
        let told = group.publish(&[(64, &noise(round, 2000)), (0, &round.to_le_bytes())]).unwrap();
        match &told[0].result {
            Ok(()) => sent = round,
            Err(Error::Busy) => busy += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(busy > 0 && sent > 0, "{busy} busy, {sent} sent");
    group.wait_delivered(soon()).unwrap();
    assert_eq!(memories[0].load(0).unwrap(), sent);
    assert!(bytes_of(&memories[0], 64, 2000) == noise(sent, 2000), "all of it, or nothing");
    let told = group.publish(&[(0, &7u64.to_le_bytes())]).unwrap();
    assert_eq!(taken(&told), [1], "there is room again");
}

#[test]
fn what_a_group_cannot_do_is_refused() {
    let (writer, members) = star(2, &Config { groups: 1, ..Config::default() });
    let [one, two] = &members[..] else { panic!("two") };
    let mut group = writer.found_group(100).unwrap();
    let cookie = group.cookie();
    let (short, _) = one.expose(96, Rights::Write).unwrap();
    let (memory, own) = one.expose(104, Rights::Write).unwrap();
    // Who joins.
    let mismatch = one.join_group(&cookie, &short);
    assert!(matches!(mismatch, Err(Error::Mismatch { expected: 100, found: 96 })), "{mismatch:?}");
    assert!(matches!(two.join_group(&cookie, &memory), Err(Error::BadConfig(_))), "foreign memory");
    one.join_group(&cookie, &memory).unwrap();
    let again = one.join_group(&cookie, &memory);
    assert!(matches!(again, Err(Error::Engine(EngineError::Taken))), "{again:?}");
    let other = writer.found_group(8).unwrap();
    assert!(matches!(one.join_group(&other.cookie(), &memory), Err(Error::NoRoom(_))));
    // Who is added.
    assert!(matches!(group.add(host(77)), Err(Error::NoRoute)), "nobody knows it");
    group.add(one.host()).unwrap();
    let again = group.add(one.host());
    assert!(matches!(again, Err(Error::Engine(EngineError::Taken))), "{again:?}");
    group.add(two.host()).unwrap();
    // What is written.
    for (at, len) in [(93, 8), (101, 0), (0, 101), (u64::MAX, 2)] {
        let told = group.publish(&[(0, &[1; 8]), (at, &vec![1; len])]);
        assert!(matches!(told, Err(Error::OutOfBounds { .. })), "{at}: {told:?}");
    }
    assert_eq!(memory.load(0).unwrap(), 0, "all or nothing");
    // One that never joined refuses it, and is no member then.
    until(&writer, || {
        group.publish(&[(8, &[2; 8])]).unwrap();
        group.members().eq([one.host()])
    });
    until(one, || memory.load(8).unwrap() == 0x0202_0202_0202_0202);
    // The cookie opens no window, and a window's cookie no group.
    let mut window = two.map(&cookie).unwrap();
    window.store(0, 1).unwrap();
    window.commit().unwrap();
    until(two, || window.check().is_err());
    assert!(two.join_group(&own, &two.expose(104, Rights::Write).unwrap().0).is_ok());
    group.remove(one.host());
    assert!(group.publish(&[(0, &[3; 8])]).unwrap().is_empty());
    let empty = writer.found_group(0).map(drop);
    assert!(matches!(empty, Err(Error::Engine(EngineError::BadMemory))), "{empty:?}");
}

/// Publishes until all are members and have got a publication as members. What each
/// got is what was published, in order.
pub(super) fn publish_to_members(writer: &Node, members: &[&Node]) {
    let config = Publishing::new(5000, 64);
    let mut publisher = Publisher::open(writer, config).unwrap();
    let mut subscribers: Vec<_> = members
        .iter()
        .map(|member| {
            let half = Subscriber::open(*member, config).unwrap();
            publisher.add(&half.cookie()).unwrap();
            (half.connect(&publisher.cookie()).unwrap(), 0)
        })
        .collect();
    let mut number = 0;
    let mut publish = |publisher: &mut Publisher<Node>| {
        let delivery = publisher.publish(&noise(number, number as usize * 37 % 5000)).unwrap();
        number += 1;
        (number - 1, delivery)
    };
    let receive = |subscriber: &mut Subscriber<Node>, next: &mut u64, last: u64| {
        while *next <= last {
            let publication = subscriber.next(soon()).unwrap();
            assert_eq!(publication.number, *next + publication.missed);
            let expected = noise(publication.number, publication.number as usize * 37 % 5000);
            assert!(publication.bytes == expected, "{}", publication.number);
            *next = publication.number + 1;
        }
    };
    let mut together = 0;
    while together < 200 {
        let (last, delivery) = publish(&mut publisher);
        assert_eq!(delivery.lost, 0);
        if delivery.skipped == 0 {
            for (subscriber, next) in &mut subscribers {
                receive(subscriber, next, last);
            }
        }
        together += u32::from(publisher.members() == members.len());
    }
    // One goes; the others have all that follows.
    subscribers.remove(0);
    while publisher.subscribers() == members.len() {
        publish(&mut publisher);
    }
    assert_eq!(publisher.members(), members.len() - 1);
    let mut sent = 0;
    while sent < 50 {
        let (last, delivery) = publish(&mut publisher);
        assert_eq!(delivery.lost, 0);
        if delivery.skipped == 0 {
            sent += 1;
            for (subscriber, next) in &mut subscribers {
                receive(subscriber, next, last);
            }
        }
    }
    drop(publisher);
    for (mut subscriber, _) in subscribers {
        let end = subscriber.next(soon());
        assert!(matches!(end, Err(Error::Closed)), "{end:?}");
    }
}

#[test]
fn publications_go_to_all_members_of_a_group_at_once() {
    let (writer, members) = star(3, &Config::default());
    publish_to_members(&writer, &members.iter().collect::<Vec<_>>());
}

#[test]
fn publications_go_to_a_group_over_a_cable() {
    require_namespaces!();
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let open = |number, end: &VethEnd| {
        let here = SocketAddr::new(end.ipv4.into(), 4800 + number);
        let path = Transport::udp(here);
        let node = end.namespace.enter(|| builder(number).path(path).open()).unwrap().unwrap();
        (node, Peer::Socket(here))
    };
    let (writer, _) = open(1, &cable.a);
    let members: Vec<_> = (2..5).map(|number| open(number, &cable.b)).collect();
    for (member, peer) in &members {
        writer.link(*peer).unwrap().wait_up(soon()).unwrap();
        member.wait_reached(writer.host(), soon()).unwrap();
    }
    publish_to_members(&writer, &members.iter().map(|(node, _)| node).collect::<Vec<_>>());
}

#[test]
fn of_two_subscribers_of_one_node_the_second_is_written_to_by_itself() {
    let (writer, members) = star(1, &Config::default());
    let config = Publishing::new(64, 16);
    let mut publisher = Publisher::open(&writer, config).unwrap();
    let mut subscribers = [(); 2].map(|()| {
        let half = Subscriber::open(&members[0], config).unwrap();
        publisher.add(&half.cookie()).unwrap();
        half.connect(&publisher.cookie()).unwrap()
    });
    for round in 0..100u64 {
        let delivery = publisher.publish(&round.to_le_bytes()).unwrap();
        assert_eq!((delivery.sent, delivery.lost), (2, 0));
        for subscriber in &mut subscribers {
            let publication = subscriber.next(soon()).unwrap();
            assert_eq!((publication.number, publication.missed), (round, 0));
            assert_eq!(publication.bytes, round.to_le_bytes());
        }
    }
    assert_eq!(publisher.members(), 1);
}
