//! What strangers send, and what a peer sends that keeps to no rule.

use landfall_placement::{Duration, Peer, Refusal, Unit};
use proptest::prelude::*;
use std::vec::Vec;

use super::pipe::{Faults, PATH, Packet, World};
use super::{config, exchange, serials};
use crate::address::HostId;
use crate::error::Reason;
use crate::link::hello::{self, Hello, Stage, Stranger};
use crate::link::links::Arrival;
use crate::wire::frame::{Entry, Frame, FrameFlags, FrameHeader, FrameKind, HEADER_LEN};

fn frame(header: FrameHeader, body: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0; HEADER_LEN];
    bytes.extend(body);
    header.write(&mut bytes);
    bytes
}

fn header(kind: FrameKind, tag: u64, len: usize) -> FrameHeader {
    FrameHeader {
        kind,
        flags: FrameFlags::default(),
        tag,
        seq: 0,
        ack: 0,
        sack: 0,
        credit: 64,
        marks: 0,
        entries: 0,
        payload_len: len as u16,
    }
}

fn ask(host: u16, tag: u64) -> Vec<u8> {
    let host = HostId::new(host).unwrap();
    let hello = Hello {
        stage: Stage::Ask,
        wants_sums: false,
        host,
        frames: 64,
        tag,
        incarnation: tag,
        early_bytes: 1 << 16,
    };
    frame(header(FrameKind::Hello, 0, Hello::LEN), &hello.to_bytes())
}

/// Hands bytes to host 0 as if they came from `from`.
fn hand(world: &mut World, from: Peer, bytes: &[u8]) -> Result<Arrival, Refusal> {
    let len = bytes.len() as u32;
    let ecn = landfall_placement::Ecn::NotCapable;
    let unit = Unit { path: PATH, from, head: bytes, len, segment: None, ecn };
    match Frame::parse(bytes, len) {
        Ok(frame) => world.hosts[0].links.handle_frame(world.now, &unit, &frame),
        Err(_) => Err(Refusal::Malformed),
    }
}

#[test]
fn callers_that_cannot_hear_the_answer_take_no_room() {
    let mut world = World::new(2, &config(), Faults::default(), 20);
    for n in 0..10_000 {
        let from = Peer::Node(1_000 + n);
        assert_eq!(hand(&mut world, from, &ask(77, 1 + u64::from(n))), Ok(Arrival::Consumed));
        assert_eq!(world.hosts[0].links.find(PATH, from), None);
    }
    assert_eq!(world.hosts[0].links.id_at(0), None);
    exchange(&mut world, 20);
}

#[test]
fn a_blind_stranger_neither_ends_a_link_nor_speaks_on_it() {
    let mut world = World::new(2, &config(), Faults::default(), 21);
    exchange(&mut world, 20);
    let peer = world.hosts[1].peer;
    for tag in (0..64).map(|bit| 1u64 << bit).chain([0, u64::MAX]) {
        let bye = frame(header(FrameKind::Bye, tag, 8), &hello::bye(Reason::Refused));
        assert!(hand(&mut world, peer, &bye).is_err());
        let ack = FrameHeader { ack: 20, ..header(FrameKind::Ack, tag, 0) };
        assert_eq!(hand(&mut world, peer, &frame(ack, &[])), Err(Refusal::WrongKey));
        let body = Stranger { tag, incarnation: 1 }.to_bytes();
        let stranger = frame(header(FrameKind::Stranger, 0, 16), &body);
        assert_eq!(hand(&mut world, peer, &stranger), Err(Refusal::WrongKey));
        // Who says to have been started anew has to be heard with it.
        assert_eq!(hand(&mut world, peer, &ask(2, tag.max(1))), Ok(Arrival::Consumed));
        let mut confirm = ask(2, tag.max(1));
        confirm[HEADER_LEN] = Stage::Confirm as u8;
        let confirm = frame(header(FrameKind::Hello, tag, Hello::LEN), &confirm[HEADER_LEN..]);
        assert_eq!(hand(&mut world, peer, &confirm), Err(Refusal::WrongKey));
    }
    let link = world.hosts[0].up[0].0;
    assert!(world.hosts[0].links.is_up(link));
    world.hosts[0].to_send = 10;
    world.hosts[1].to_send = 10;
    let is_done = |hosts: &[super::Host]| hosts.iter().all(|host| host.received.len() == 30);
    assert!(world.run(Duration::from_secs(60), is_done));
    assert!(world.hosts.iter().all(|host| host.received == serials(30) && host.down.is_empty()));
}

/// Frames that host 1 could send: the tag is right, and nothing else need be.
fn tagged(tag: u64, random: &mut landfall_placement::Random) -> Vec<u8> {
    let kinds = [FrameKind::Data, FrameKind::Ack, FrameKind::Data];
    let kind = kinds[random.below(3) as usize];
    let near = |random: &mut landfall_placement::Random| match random.below(4) {
        0 => random.next_u32(),
        1 => 0u32.wrapping_sub(random.below(70) as u32),
        _ => random.below(140) as u32,
    };
    let mut body = Vec::new();
    let mut entries = 0;
    if kind == FrameKind::Data {
        let (address, parameters) =
            crate::wire::Command::Barrier { number: 1 }.encode(HostId::default());
        body.extend(Entry { address, words: 1 }.to_bytes());
        body.extend(parameters);
        entries = 1;
    } else {
        body.extend((0..random.below(17) * 8).map(|_| random.next_u32() as u8));
    }
    let header = FrameHeader {
        flags: FrameFlags(random.below(16) as u8),
        seq: near(random),
        ack: near(random),
        sack: random.next_u64() & random.next_u64(),
        credit: random.next_u32() as u16,
        marks: random.next_u32() as u8,
        entries,
        ..header(kind, tag, body.len() - usize::from(entries) * Entry::LEN)
    };
    frame(header, &body)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A peer that says anything, in debug builds too: nothing panics, and what
    /// is kept for it stays within its bound.
    #[test]
    fn invariants_5_and_8_a_lawless_peer_neither_panics_us_nor_fills_us(seed: u64, count in 1u32..40) {
        let mut world = World::new(2, &config(), Faults::default(), seed);
        exchange(&mut world, 3);
        world.hosts[0].to_send = count;
        world.hosts[1].is_dead = true;
        let peer = world.hosts[1].peer;
        let mut kept = 0;
        for step in 0..2_000 {
            let links = &world.hosts[0].links;
            let Some(link) = links.find(PATH, peer) else { break };
            let tag = links.tag_of(link);
            let bytes = tagged(tag, &mut world.random);
            let arrival = hand(&mut world, peer, &bytes);
            let parsed = Frame::parse(&bytes, bytes.len() as u32).unwrap();
            if let Ok(Arrival::Next(link) | Arrival::Early(link)) = arrival {
                let ecn = landfall_placement::Ecn::NotCapable;
                world.hosts[0].links.keep(link, &parsed, &bytes, ecn).unwrap();
                kept += 1;
            }
            if step % 16 == 0 {
                world.run(Duration::from_micros(100), |_| false);
            }
        }
        prop_assert!(kept <= 64);
    }

    /// Bytes that were damaged in any way, with a CRC that is right again.
    #[test]
    fn invariant_3_damage_changes_nothing(seed: u64, bits in prop::collection::vec((any::<u16>(), any::<u16>()), 1..50)) {
        let mut world = World::new(2, &config(), Faults::default(), seed);
        exchange(&mut world, 20);
        let packets: Vec<Packet> =
            world.seen.iter().filter(|packet| packet.to == world.hosts[0].peer).cloned().collect();
        for (which, bit) in bits {
            let mut bytes = packets[usize::from(which) % packets.len()].bytes.clone();
            let bit = usize::from(bit) % (HEADER_LEN * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let peer = world.hosts[1].peer;
            prop_assert!(hand(&mut world, peer, &bytes).is_err() || (38..40).contains(&(bit / 8)));
        }
        world.hosts[0].to_send = 10;
        world.hosts[1].to_send = 10;
        let is_done = |hosts: &[super::Host]| hosts.iter().all(|host| host.received.len() == 30);
        prop_assert!(world.run(Duration::from_secs(60), is_done));
    }
}
