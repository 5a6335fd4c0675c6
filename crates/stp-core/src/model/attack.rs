//! One endpoint under any packets from somebody who has its keys: real packets
//! that are changed, and packets made of any bytes.

use alloc::string::String;
use alloc::vec::Vec;

use super::operations::Operation;
use super::world::{PATHS, World};
use crate::endpoint::Endpoint;
use crate::region::PutOptions;
use crate::wire::{Flags, HEADER_LEN, Header, Message, Op, header, proof};
use landfall_placement::PathId;
use landfall_testkit::model::Packet;

/// The side that is attacked, by the other one.
const VICTIM: usize = 1;

/// A connection from the start; the rest is the default.
const SETUP: [u8; 3] = [0x80, 0x20, 2];

/// What is under way before the attack begins.
fn prepare(world: &mut World) {
    for side in [0, 1] {
        world.apply(Operation::Ask { side, which: 0, len: 200, rights: 0 });
        world.settle();
        world.decide(1 - side, 0, 0);
        world.settle();
    }
    for side in [0, 1] {
        world.apply(Operation::Post { side, which: 0, len: 1_500, takes_part: false });
        world.apply(Operation::Send { side, which: 0, len: 1_400 });
        world.apply(Operation::Read { side, which: 1, len: 300 });
        world.apply(Operation::Put {
            side,
            which: 0,
            at: 3,
            len: 150,
            options: PutOptions::WITH_NOTICE,
        });
        world.apply(Operation::Fetch { side, which: 0, at: 8, function: 15 });
        world.apply(Operation::Get { side, which: 0, at: 5, len: 120 });
        world.apply(Operation::Send { side, which: 2, len: 700 });
    }
    // The requests arrive, and their answers are under way.
    world.round();
}

/// Takes bytes for one packet after another: a template, and changes to it.
pub(super) fn withstand(mut bytes: &[u8]) -> Vec<String> {
    let mut world = World::new(&SETUP);
    prepare(&mut world);
    world.round();
    while let [kind, which, rest @ ..] = bytes {
        let end = &world.ends[VICTIM];
        let known: Vec<&Packet> = end.under_way.known().collect();
        let template = known.get(usize::from(*which) % known.len().max(1));
        let Some(mut packet) = template.map(|packet| (*packet).clone()) else { break };
        let changes = usize::from(*kind & 7);
        bytes = change(&mut packet.bytes, rest, changes, *kind & 0x40 != 0);
        packet.is_changed = true;
        if *kind & 0x80 == 0 {
            seal(&mut packet.bytes);
            prove(&world.ends[VICTIM].checked.engine, &mut packet.bytes);
        }
        packet.path = PathId(u16::from(*kind >> 5) % PATHS);
        world.ends[VICTIM].under_way.enqueue_first(packet);
        world.place(VICTIM, 0);
        match *kind >> 3 & 3 {
            0 => world.land(VICTIM, usize::MAX, *which == 0),
            1 => world.scatter(VICTIM, PathId(0)),
            2 => world.wait(None),
            _ => {}
        }
        for path in 0..PATHS {
            world.transmit(VICTIM, PathId(path), 4, false);
        }
        // What users are told by who lies to them is not the model's to judge.
        world.findings.take_failures();
    }
    world.land(VICTIM, usize::MAX, false);
    world.judge_memory(VICTIM)
}

/// Overwrites fields, or all of the packet, with what comes next.
fn change<'a>(
    packet: &mut Vec<u8>,
    mut bytes: &'a [u8],
    changes: usize,
    is_whole: bool,
) -> &'a [u8] {
    let key = packet.get(8..12).map(<[u8]>::to_vec);
    if is_whole {
        let len = bytes.len().min(HEADER_LEN + 16);
        packet.splice(..len.min(packet.len()), bytes[..len].iter().copied());
        bytes = &bytes[len..];
        if let (Some(place), Some(key)) = (packet.get_mut(8..12), key) {
            place.copy_from_slice(&key);
        }
        return bytes;
    }
    for _ in 0..changes {
        let [at, value, rest @ ..] = bytes else { break };
        let at = usize::from(*at) % packet.len().max(1);
        if let Some(byte) = packet.get_mut(at) {
            *byte = *value;
        }
        bytes = rest;
    }
    bytes
}

/// Makes the proof of a head right, as somebody would who heard the secrets of the
/// connection that it is for; nothing where there is none, or no such connection.
pub(super) fn prove(endpoint: &Endpoint, packet: &mut [u8]) {
    let Some(header) = Header::read(packet).copied() else { return };
    let index = endpoint.net.connections.keys.get(header.d_key.get());
    let known = index.and_then(|index| endpoint.net.connections.get(index));
    let (Some(known), Ok(op)) = (known, header.operation()) else { return };
    let head = packet.get_mut(..Message::head_len(op, header.flags()));
    if let Some(head) = head {
        proof::seal(head, known.secrets_in());
    }
}

/// Makes the checksum right, where there is one.
fn seal(packet: &mut [u8]) {
    let Some(known) = Header::read(packet) else { return };
    let may_be_without = [Op::Data as u8, Op::Put as u8].contains(&known.op);
    if may_be_without && !known.flags().has(Flags::SUM) {
        return;
    }
    packet[1] |= Flags::SUM.0;
    packet[12..14].fill(0);
    header::seal(packet);
}
