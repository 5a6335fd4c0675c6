//! Datagrams to groups, empty ones, and those that did not arrive.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use crate::world::{BOTH, Shape, Version, World, address, ip, mac, pattern};
use landfall_placement::PathId;
use landfall_simnet::{Frame, PortId, check, sim::Fate};
use qpip::wire::group::{self, Message};
use qpip::wire::icmp::Trouble;
use qpip::wire::{Content, Envelope, icmp4, ipv4, parse, protocol};
use qpip::{Error, Event, Object, Operation, PostError, QueuePairId, SendWork, Service, Status};

fn group_of(version: Version, n: u8) -> IpAddr {
    match version {
        Version::V4 => [239, 129, 2, n].into(),
        Version::V6 => [0xff05, 0, 0, 0, 0, 0, 0x8181, u16::from(n)].into(),
    }
}

fn any(version: Version, port: u16) -> SocketAddr {
    let text = if version == Version::V4 { "0.0.0.0" } else { "::" };
    SocketAddr::new(text.parse().unwrap(), port)
}

/// A queue pair that is bound to a port of all addresses.
fn anywhere(world: &mut World<'_>, host: usize, version: Version, port: u16) -> QueuePairId {
    let pair = world.queue_pair(host, Service::Udp);
    world.adapter(host).bind(pair, any(version, port)).unwrap();
    pair
}

/// The frames that leave a host from now on.
fn watch(world: &mut World<'_>, host: usize) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (keep, direction) = (seen.clone(), world.hosts[host].link.there());
    let look = move |_, frame: &mut Frame| {
        keep.borrow_mut().push(frame.bytes.to_vec());
        Fate::Pass
    };
    world.sim.intercept(direction, look).unwrap();
    seen
}

#[test]
fn what_is_sent_to_a_group_comes_to_those_who_joined_it_only() {
    check(1..=2, |sim| {
        let shape = Shape { hosts: 4, knows_neighbours: false, ..Shape::default() };
        let mut world = World::new(sim, &shape);
        for version in BOTH {
            let (group, other) = (group_of(version, 3), group_of(version, 4));
            let here = world.udp(0, version, 900);
            let there = [1, 2, 3].map(|host| anywhere(&mut world, host, version, 2_000));
            let now = world.now();
            world.adapter(1).join(now, there[0], group, None).unwrap();
            world.adapter(2).join(now, there[1], group, Some(PathId(0))).unwrap();
            world.adapter(3).join(now, there[2], other, None).unwrap();
            let twice = world.adapter(1).join(now, there[0], group, None);
            assert_eq!(twice, Err(Error::Full(Object::Group)));
            let at = [1, 2, 3].map(|host| world.post_receives(host, there[host - 1], 1, 2, 5_000));
            let sent = watch(&mut world, 0);
            // Also in fragments: nobody is asked which station a group has.
            for len in [100, 4_000] {
                let bytes = pattern(len, len as usize);
                let from = world.store(0, &bytes);
                let to = Some(SocketAddr::new(group, 2_000));
                world.post_send(0, here, len, from, to).unwrap();
                for (host, at) in [(1, at[0]), (2, at[1])] {
                    let got = world.await_completions(host, 1)[0];
                    assert_eq!((got.status, got.len), (Status::Success, len as u32));
                    assert_eq!(got.from, Some(address(0, version, 900)));
                    let at = at + if len == 100 { 0 } else { 5_000 };
                    assert_eq!(world.read(host, at, len as u32), bytes);
                }
            }
            world.run_for(Duration::from_millis(10));
            assert!(world.hosts[3].done.is_empty(), "it listens to another group");
            for frame in sent.borrow().iter() {
                let Content::Ip(ip) = parse(frame, frame.len() as u32).unwrap().content else {
                    panic!("a neighbour was asked for");
                };
                assert_eq!((ip.destination, ip.hop_limit), (group, 1));
                assert_eq!(frame[..6], group::stations(group));
            }
            // Who has left hears nothing more, and who stays does.
            let now = world.now();
            world.adapter(1).leave(now, there[0], group).unwrap();
            let gone = world.adapter(1).leave(now, there[0], group);
            assert_eq!(gone, Err(Error::NoGroup(group)));
            world.post_receives(1, there[0], 5, 1, 100);
            world.post_receives(2, there[1], 5, 1, 100);
            let from = world.store(0, &[1; 10]);
            world.adapter(0).set_group_sending(here, 7, None).unwrap();
            world.post_send(0, here, 9, from, Some(SocketAddr::new(group, 2_000))).unwrap();
            assert_eq!(world.await_completions(2, 1)[0].len, 10);
            world.run_for(Duration::from_millis(10));
            assert!(world.hosts[1].done.is_empty());
            let last = sent.borrow().last().cloned().unwrap();
            let Content::Ip(ip) = parse(&last, last.len() as u32).unwrap().content else {
                panic!()
            };
            assert_eq!(ip.hop_limit, 7);
            for host in 0..4 {
                world.hosts[host].done.clear();
            }
        }
    });
}

#[test]
fn nobody_complains_about_what_came_to_a_group() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let group = group_of(version, 1);
            let listener = anywhere(&mut world, 1, version, 5);
            let here = world.udp(0, version, 900);
            let now = world.now();
            world.adapter(1).join(now, listener, group, None).unwrap();
            world.run_for(Duration::from_secs(5));
            let queued = world.engine(1).stats().control_queued;
            // To a port that nobody has, to one whose owner listens to no group, to a host's.
            let stranger = anywhere(&mut world, 1, version, 6);
            world.post_receives(1, stranger, 1, 1, 100);
            let from = world.store(0, &[1; 10]);
            for port in [6, 7] {
                world.post_send(0, here, 1, from, Some(SocketAddr::new(group, port))).unwrap();
            }
            world.await_completions(0, 2);
            world.run_for(Duration::from_secs(1));
            assert!(world.hosts[1].done.is_empty());
            assert_eq!(world.engine(1).stats().control_queued, queued);
        }
    });
}

#[test]
fn a_queue_pair_may_be_bound_to_a_group_and_leaves_when_it_ends() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let group = group_of(version, 9);
            let at = SocketAddr::new(group, 77);
            let (there, here) = (world.queue_pair(1, Service::Udp), world.udp(0, version, 1));
            assert_eq!(world.adapter(1).bind(there, at), Ok(at));
            let now = world.now();
            world.adapter(1).join(now, there, group, None).unwrap();
            world.post_receives(1, there, 1, 1, 100);
            let from = world.store(0, &[1; 10]);
            world.post_send(0, here, 1, from, Some(at)).unwrap();
            assert_eq!(world.await_completions(1, 1)[0].len, 10);
            world.run_for(Duration::from_secs(5));
            let said = watch(&mut world, 1);
            let now = world.now();
            world.adapter(1).destroy_queue_pair(now, there).unwrap();
            world.run_for(Duration::from_secs(5));
            assert_eq!(said.borrow().len(), 2, "that it listens no longer");
            world.hosts[1].done.clear();
        }
        let tcp = world.queue_pair(0, Service::Tcp(qpip::Mapping::Stream));
        let (now, group) = (world.now(), group_of(Version::V4, 1));
        assert_eq!(world.adapter(0).join(now, tcp, group, None), Err(Error::WrongService));
        let udp = anywhere(&mut world, 0, Version::V4, 7);
        let host = ip(1, Version::V4);
        assert_eq!(world.adapter(0).join(now, udp, host, None), Err(Error::NoGroup(host)));
        let listening = world.adapter(0).listen(SocketAddr::new(group, 7));
        assert!(matches!(listening, Err(Error::BadAddress(_))));
    });
}

/// A router's question, as a frame to host 0.
fn question(version: Version, hops: u8, older: bool) -> Frame {
    let (to, number): (IpAddr, u8) = match version {
        Version::V4 => ([224, 0, 0, 1].into(), protocol::IGMP),
        Version::V6 => ("ff02::1".parse().unwrap(), protocol::ICMP6),
    };
    let from = if version == Version::V4 { ip(99, version) } else { "fe80::99".parse().unwrap() };
    let outer = Envelope {
        hop_limit: hops,
        ..Envelope::new((mac(99), from), (group::stations(to), to), number)
    };
    let mut message = match version {
        Version::V4 => vec![0x11, 20, 0, 0, 0, 0, 0, 0],
        Version::V6 => [&[130, 0, 0, 0, 7, 0xd0, 0, 0][..], &[0; 16]].concat(),
    };
    if !older {
        message.extend([2, 125, 0, 0]);
    }
    let seed = if version == Version::V4 { 0 } else { outer.pseudo(message.len() as u32) };
    let mut sum = landfall_placement::InternetSum::new();
    sum.add_word(seed);
    sum.add(&message);
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let mut frame = vec![0; outer.header_len()];
    outer.write(&mut frame, message.len() as u32).unwrap();
    frame.extend(message);
    Frame::raw(frame)
}

#[test]
fn a_router_that_asks_is_answered_in_words_that_it_knows() {
    check(1..=3, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let group = group_of(version, 9);
            let pair = anywhere(&mut world, 0, version, 77);
            let now = world.now();
            world.adapter(0).join(now, pair, group, None).unwrap();
            world.run_for(Duration::from_secs(5));
            let said = watch(&mut world, 0);
            let switch = world.switch;
            let ask = |world: &mut World<'_>, hops, older| {
                world.sim.send(switch, PortId(0), question(version, hops, older)).unwrap();
                world.run_for(Duration::from_secs(3));
                std::mem::take(&mut *said.borrow_mut())
            };
            let kind = |frame: &[u8]| {
                let Content::Ip(ip) = parse(frame, frame.len() as u32).unwrap().content else {
                    panic!()
                };
                let message = ip.payload(frame).unwrap();
                let read = match version {
                    Version::V4 => group::read_igmp(message),
                    Version::V6 => group::read_mld(message),
                };
                (ip.destination, read.unwrap())
            };
            let answers = ask(&mut world, 1, false);
            assert_eq!(answers.len(), 1);
            let all: IpAddr = match version {
                Version::V4 => [224, 0, 0, 22].into(),
                Version::V6 => "ff02::16".parse().unwrap(),
            };
            assert_eq!(kind(&answers[0]), (all, Message::Other));
            let answers = ask(&mut world, 1, true);
            assert_eq!(answers.len(), 1);
            assert_eq!(kind(&answers[0]), (group, Message::Report(group)));
            if version == Version::V6 {
                assert!(ask(&mut world, 64, false).is_empty(), "it came through a router");
            }
            let now = world.now();
            world.adapter(0).leave(now, pair, group).unwrap();
            world.run_for(Duration::from_secs(3));
            assert!(!said.borrow().is_empty());
            said.borrow_mut().clear();
            assert!(ask(&mut world, 1, false).is_empty(), "there is nothing to tell");
        }
    });
}

#[test]
fn a_datagram_may_be_empty() {
    check(1..=2, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let (here, there) = (world.udp(0, version, 1_000), world.udp(1, version, 2_000));
            world.post_receives(1, there, 50, 3, 10);
            let to = Some(address(1, version, 2_000));
            let now = world.now();
            let nothing = SendWork { id: 1, from: &[], to, is_signaled: true, immediate: None };
            world.adapter(0).post_send(now, here, &nothing).unwrap();
            world.post_send(0, here, 2, (0, 0), to).unwrap();
            let from = world.store(0, &[7; 3]);
            world.post_send(0, here, 3, from, to).unwrap();
            let sent = world.await_completions(0, 3);
            let got = world.await_completions(1, 3);
            for (n, len) in [0, 0, 3].into_iter().enumerate() {
                assert_eq!((sent[n].status, sent[n].len), (Status::Success, len));
                assert_eq!((got[n].status, got[n].len), (Status::Success, len));
                assert_eq!((got[n].id, got[n].operation), (50 + n as u64, Operation::Receive));
                assert_eq!(got[n].from, Some(address(0, version, 1_000)));
            }
            let stream = world.queue_pair(0, Service::Tcp(qpip::Mapping::Message));
            let nothing =
                SendWork { id: 1, from: &[], to: None, is_signaled: true, immediate: None };
            let now = world.now();
            let refused = world.adapter(0).post_send(now, stream, &nothing);
            assert_eq!(refused, Err(PostError::Empty));
        }
    });
}

#[test]
fn who_sent_what_did_not_arrive_is_told_once_for_each_destination() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        for version in BOTH {
            let here = world.udp(0, version, 1);
            let from = world.store(0, &pattern(1, 100));
            let closed = address(1, version, 9);
            world.post_send(0, here, 1, from, Some(closed)).unwrap();
            let trouble = Trouble::PortUnreachable;
            let told = Event::Undelivered { queue_pair: here, remote: closed, trouble };
            assert_eq!(world.await_event(0), told);
            world.post_send(0, here, 2, from, Some(closed)).unwrap();
            assert_eq!(world.await_event(0), told, "it was sent again");
            assert_eq!(world.await_completions(0, 2)[1].status, Status::Success);
        }
    });
}

/// Nobody is told of what was not sent: by another port, to another host, or twice.
#[test]
fn forged_errors_about_datagrams_are_counted_and_not_believed() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let (here, there) = (world.udp(0, Version::V4, 1), world.udp(1, Version::V4, 2));
        world.post_receives(1, there, 1, 1, 100);
        let from = world.store(0, &pattern(1, 100));
        world.post_send(0, here, 1, from, Some(address(1, Version::V4, 2))).unwrap();
        world.await_completions(1, 1);
        let switch = world.switch;
        let claim = |world: &mut World<'_>, ours: SocketAddr, theirs: SocketAddr| {
            let (IpAddr::V4(_), IpAddr::V4(_)) = (ours.ip(), theirs.ip()) else { panic!() };
            let about = Envelope::new((mac(0), ours.ip()), (mac(1), theirs.ip()), protocol::UDP);
            let mut quoted = [0; 14 + ipv4::LEN + 8];
            let at = about.write(&mut quoted, 108).unwrap();
            quoted[at..at + 2].copy_from_slice(&ours.port().to_be_bytes());
            quoted[at + 2..at + 4].copy_from_slice(&theirs.port().to_be_bytes());
            let router = (mac(99), ip(99, Version::V4));
            let outer = Envelope::new(router, (mac(0), ip(0, Version::V4)), protocol::ICMP4);
            let mut frame = vec![0; outer.header_len() + 8 + 28];
            let at = outer.write(&mut frame, 36).unwrap();
            icmp4::write_port_unreachable(&quoted[14..], &mut frame[at..]).unwrap();
            world.sim.send(switch, PortId(0), Frame::raw(frame)).unwrap();
            world.run_for(Duration::from_millis(2));
            std::mem::take(&mut world.hosts[0].events).len()
        };
        let (ours, theirs) = (address(0, Version::V4, 1), address(1, Version::V4, 2));
        assert_eq!(claim(&mut world, address(0, Version::V4, 3), theirs), 0);
        assert_eq!(claim(&mut world, ours, address(1, Version::V4, 3)), 0);
        assert_eq!(claim(&mut world, ours, address(5, Version::V4, 2)), 0);
        assert_eq!(claim(&mut world, address(1, Version::V4, 1), theirs), 0);
        assert_eq!(world.engine(0).stats().icmp_ignored, 4);
        assert_eq!(claim(&mut world, ours, theirs), 1);
        assert_eq!(claim(&mut world, ours, theirs), 0);
    });
}
