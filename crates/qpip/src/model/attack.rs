//! One adapter under any frames from somebody who sees what is said: real frames
//! that are changed, and frames made of any bytes.

use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::Duration;
use landfall_testkit::model::Packet;

use super::frame::seal;
use super::ledger::Stage;
use super::operations::Operation;
use super::world::World;

/// The side that is attacked, in the name of the other one.
const VICTIM: usize = 1;

/// What is open and under way before the attack begins.
fn prepare(world: &mut World) {
    for operation in [
        Operation::Offer { side: 0 },
        Operation::Connect { side: VICTIM },
        Operation::Settle,
        Operation::Offer { side: VICTIM },
    ] {
        world.apply(operation);
    }
    for side in [0, VICTIM] {
        for which in 0..4 {
            world.apply(Operation::Receive { side, which, len: 700, pieces: 1 });
            world.apply(Operation::Receive { side, which, len: 2_000, pieces: 0 });
            world.apply(Operation::Send { side, which, len: 500, pieces: 2 });
            world.apply(Operation::Send { side, which, len: 1_900, pieces: 0 });
        }
        world.apply(Operation::Arm { side, solicited: false });
    }
    // Answers to what is under way are under way, too.
    world.round();
    world.transmit(0, 64, false);
}

/// Takes bytes for one frame after another: a template, and changes to it.
pub(super) fn withstand(bytes: &[u8], with_story: bool) -> Vec<String> {
    let (choice, mut bytes) = bytes.split_at(bytes.len().min(1));
    let choice = choice.first().copied().unwrap_or(0);
    // Connections from the start, enough room, and neighbours that are known.
    let mut world = World::new(&[choice | 0x80, choice & 0x07, 0x80], with_story);
    prepare(&mut world);
    let mut wrong = world.findings.take_failures();
    world.is_attacked = true;
    while let [kind, which, rest @ ..] = bytes {
        let end = &world.ends[VICTIM];
        let known: Vec<&Packet> = end.under_way.known().collect();
        let template = known.get(usize::from(*which) % known.len().max(1));
        let Some(mut packet) = template.map(|packet| (*packet).clone()) else { break };
        bytes = change(&mut packet.bytes, rest, *kind);
        packet.is_changed = true;
        if *kind & 0x80 == 0 {
            seal(&mut packet.bytes);
        }
        world.ends[VICTIM].under_way.enqueue_first(packet);
        world.turn(VICTIM, 1 + usize::from(*kind >> 6 & 1), 0, *which == 0);
        match *kind >> 4 & 3 {
            1 => world.scatter(VICTIM),
            2 => world.wait(None),
            _ => {}
        }
        world.transmit(VICTIM, 4, *kind & 8 == 0);
        world.hear();
    }
    wrong.extend(world.findings.take_failures());
    aftermath(&mut world);
    wrong.extend(world.findings.take_failures());
    let mut story = world.findings.into_story();
    story.append(&mut wrong);
    story
}

/// Honest clients are served as before, and nothing was lost.
fn aftermath(world: &mut World) {
    for side in [0, VICTIM] {
        world.release(side, false);
    }
    world.let_go();
    world.check_returned();
    world.judge_contract();
    world.is_attacked = false;
    world.apply(Operation::Offer { side: VICTIM });
    world.apply(Operation::Connect { side: 0 });
    let client = world.ledger.pairs.len() - 1;
    world.run_until(Duration::from_secs(100), |world| {
        let pair = &world.ledger.pairs[client];
        pair.peer.is_some() || pair.stage != Stage::Opening
    });
    if world.ledger.pairs[client].peer.is_none() {
        world.fail(VICTIM, "does not answer an honest client any more");
    }
}

/// Overwrites fields, takes a part away, or changes all that is not the Ethernet
/// header, with what comes next.
fn change<'a>(frame: &mut Vec<u8>, mut bytes: &'a [u8], kind: u8) -> &'a [u8] {
    if kind & 7 == 7 {
        let len = bytes.len().min(64);
        let until = (14 + len).min(frame.len());
        frame.splice(14.min(until)..until, bytes[..len].iter().copied());
        return &bytes[len..];
    }
    for _ in 0..kind & 7 {
        let [at, value, rest @ ..] = bytes else { break };
        // Headers more often than payload.
        let at = usize::from(*at);
        let at = if at < 192 { 12 + at / 2 } else { at * 7 };
        match frame.get_mut(at) {
            Some(byte) => *byte = *value,
            None => frame.truncate(usize::from(*value).max(14)),
        }
        bytes = rest;
    }
    bytes
}
