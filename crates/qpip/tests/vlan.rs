//! Interfaces of a VLAN: every frame has the tag, and frames without it are nobody's.

use std::cell::RefCell;
use std::rc::Rc;

use crate::world::{BOTH, Shape, Version, World, address, ip, mac, pattern};
use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use landfall_placement::Engine;
use landfall_simnet::{Frame, PortId, check, sim::Fate};
use qpip::wire::{Envelope, ethernet, protocol, vlan};
use qpip::{Adapter, Config, Error, Interface, Mapping, OwnAddress, Status};

/// The VLAN of a frame and what it carries, as etherparse reads it; checksums are checked.
fn tag_of(frame: &[u8]) -> Option<u16> {
    let packet = SlicedPacket::from_ethernet(frame).expect("a good frame");
    if let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) =
        (&packet.net, &packet.transport)
        && !ip.is_payload_fragmented()
    {
        let header = udp.to_header();
        let sum = header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload());
        assert_eq!(sum.expect("of a length that fits"), udp.checksum(), "the checksum of UDP");
    }
    let [LinkExtSlice::Vlan(tag)] = packet.link_exts.as_slice() else { return None };
    Some(tag.vlan_identifier().value())
}

#[test]
fn every_frame_of_a_vlan_has_its_tag_and_all_services_work_behind_it() {
    check(1..=3, |sim| {
        let shape = Shape { vlan: Some(0x123), knows_neighbours: false, ..Shape::default() };
        // Devices that cut segments are not asked to: they may not know what a tag is.
        let mut world = World::new(sim, &shape.segmentation());
        let seen = Rc::new(RefCell::new(0));
        for host in 0..2 {
            let (count, direction) = (seen.clone(), world.hosts[host].link.there());
            let look = move |_, frame: &mut Frame| {
                assert_eq!(tag_of(&frame.bytes), Some(0x123));
                assert!(frame.bytes.len() <= 1_514, "{} bytes", frame.bytes.len());
                *count.borrow_mut() += 1;
                Fate::Pass
            };
            world.sim.intercept(direction, look).unwrap();
        }
        for version in BOTH {
            // Neighbours are asked for, a long datagram leaves in fragments.
            let (here, there) = (world.udp(0, version, 1_000), world.udp(1, version, 2_000));
            let bytes = pattern(5, 5_000);
            let at = world.post_receives(1, there, 1, 1, 5_000);
            let from = world.store(0, &bytes);
            world.post_send(0, here, 1, from, Some(address(1, version, 2_000))).unwrap();
            assert_eq!(world.await_completions(1, 1)[0].status, Status::Success);
            assert_eq!(world.read(1, at, 5_000), bytes);
            // A connection, whose segments are as long as the tag leaves room for.
            for mapping in [Mapping::Stream, Mapping::Message] {
                let (one, two) = world.pair_up((0, 1), version, 7, mapping);
                let bytes = pattern(6, 60_000);
                let at = world.post_receives(1, two, 1, 1, 60_000);
                let from = world.store(0, &bytes);
                world.post_send(0, one, 9, from, None).unwrap();
                let is_all = |world: &mut World<'_>| {
                    world.hosts[1].done.iter().any(|done| done.ends_request)
                };
                world.run_until("all came", is_all);
                assert_eq!(world.read(1, at, 60_000), bytes);
                world.hosts[1].done.clear();
                let now = world.now();
                world.adapter(0).destroy_queue_pair(now, one).unwrap();
                world.adapter(1).destroy_queue_pair(now, two).unwrap();
                world.run_for(std::time::Duration::from_secs(1));
                world.hosts[1].events.clear();
                world.hosts[0].events.clear();
                world.hosts[0].done.clear();
                world.hosts[1].done.clear();
            }
            let now = world.now();
            world.adapter(0).destroy_queue_pair(now, here).unwrap();
            world.adapter(1).destroy_queue_pair(now, there).unwrap();
            world.hosts[0].done.clear();
        }
        assert!(*seen.borrow() > 200, "{}", seen.borrow());
    });
}

/// An echo request to host 1.
fn echo(version: Version) -> Vec<u8> {
    let (from, to) = ((mac(99), ip(99, version)), (mac(1), ip(1, version)));
    let envelope = Envelope::new(from, to, protocol::UDP);
    let mut frame = vec![0; envelope.header_len() + 8];
    envelope.write(&mut frame, 8).unwrap();
    let at = frame.len() - 8;
    // To a port that nobody has.
    frame[at..].copy_from_slice(&[0, 9, 0, 9, 0, 8, 0, 0]);
    frame
}

fn with_tag(frame: &[u8], kind: u16, id: u16) -> Vec<u8> {
    let header = vlan::Header::new(3, id, u16::from_be_bytes([frame[12], frame[13]]));
    let kind = kind.to_be_bytes();
    let control = header.control.get().to_be_bytes();
    [&frame[..12], &kind, &control, &frame[12..]].concat()
}

#[test]
fn frames_without_the_tag_or_with_another_are_counted_and_not_accepted() {
    check(1..=1, |sim| {
        let shape = Shape { vlan: Some(42), ..Shape::default() };
        let mut world = World::new(sim, &shape);
        let bare = echo(Version::V4);
        let others = [
            bare.clone(),
            with_tag(&bare, ethernet::VLAN, 43),
            with_tag(&bare, ethernet::VLAN, 0),
            with_tag(&bare, ethernet::SERVICE_VLAN, 42),
            with_tag(&with_tag(&bare, ethernet::VLAN, 42), ethernet::VLAN, 7),
            bare[..14].to_vec(),
        ];
        let count = others.len() as u64;
        let switch = world.switch;
        let hand = |world: &mut World<'_>, frame: Vec<u8>| {
            world.sim.send(switch, PortId(1), Frame::raw(frame)).unwrap();
            world.run_for(std::time::Duration::from_millis(2));
        };
        for frame in others {
            hand(&mut world, frame);
        }
        let stats = *world.engine(1).stats();
        assert_eq!((stats.frames_of_other_vlans, stats.control_queued), (count, 0));
        let refused = world.engine(1).refusals().total();
        hand(&mut world, with_tag(&bare, ethernet::VLAN, 42));
        assert_eq!(world.engine(1).stats().control_queued, 1, "its sender is told");
        assert_eq!(world.engine(1).refusals().total(), refused + 1);
        assert_eq!(world.engine(1).stats().frames_of_other_vlans, count);
    });
}

#[test]
fn an_interface_without_a_vlan_accepts_no_tag() {
    check(1..=1, |sim| {
        let mut world = World::new(sim, &Shape::default());
        let frame = with_tag(&echo(Version::V4), ethernet::VLAN, 42);
        let switch = world.switch;
        world.sim.send(switch, PortId(1), Frame::raw(frame)).unwrap();
        world.run_for(std::time::Duration::from_millis(2));
        assert_eq!(world.engine(1).stats().control_queued, 0);
        assert_eq!(world.engine(1).refusals().total(), 1);
    });
}

#[test]
fn a_card_that_places_payloads_has_no_vlan() {
    let config = Config { delegates: true, ..Config::default() };
    let mut adapter = Adapter::new(config, [1; 32]).unwrap();
    let interface = Interface {
        mac: mac(0),
        addresses: vec![OwnAddress::new(ip(0, Version::V4), 16)],
        vlan: Some(5),
        ..Interface::default()
    };
    let path = landfall_placement::PathId(0);
    assert_eq!(adapter.add_interface(path, interface), Err(Error::VlanOnCard));
}
