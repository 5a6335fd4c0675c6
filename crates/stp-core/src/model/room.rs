//! What an endpoint says is granted, checked against the Blocks that are open: room that no
//! Block has is lost for ever, and a Transfer that nothing wakes waits for ever.

use alloc::format;
use alloc::string::String;

use crate::endpoint::Endpoint;
use crate::link::NO_BLOCK;
use crate::receive::{ScheduleState, State};
use crate::usage::Share;

/// What is wrong with the room that is granted; nothing where it is the sum of what open
/// Blocks have, each of them is in one list, and anyone who could go on may be woken.
pub(super) fn wrong_room(endpoint: &Endpoint) -> Option<String> {
    let mut listed = 0;
    let mut held = Share::default();
    for link in endpoint.net.links.indices() {
        let (blocks, granted) = match blocks_of(endpoint, link) {
            Ok(found) => found,
            Err(wrong) => return Some(wrong),
        };
        listed += blocks;
        let Some(known) = endpoint.net.links.get(link) else { continue };
        let is =
            known.usage().map_or(Share::default(), |usage| usage.share_of(granted, known.weight));
        if is != known.share() {
            return Some(format!("link {link} has {is:?}, and counts as {:?}", known.share()));
        }
        held.replace(Share::default(), is);
    }
    for link in endpoint.net.links.indices() {
        let said = endpoint.net.links.get(link).map_or(0, crate::link::Link::puts_under_way);
        let have: u64 = endpoint
            .net
            .connections
            .table
            .indices()
            .filter_map(|index| endpoint.net.connections.get(index)?.remote.as_deref())
            .map(|remote| remote.outgoing.flight.bytes_on(link))
            .sum();
        if said != have {
            return Some(format!("link {link} has {said} bytes of Puts under way, and not {have}"));
        }
    }
    if held != endpoint.net.links.held {
        return Some(format!(
            "{:?} is counted, of which links have {held:?}",
            endpoint.net.links.held
        ));
    }
    let (mut open, mut releasing) = (0, 0);
    for index in endpoint.receives.table.indices() {
        let receive = endpoint.receives.table.get(index)?;
        open += receive.open.len();
        releasing += usize::from(receive.releasing);
        if let Some(wrong) = wrong_turn(endpoint, index) {
            return Some(wrong);
        }
    }
    if open != listed {
        return Some(format!("Transfers have {open} Blocks, links have {listed}"));
    }
    let (free, all) =
        (endpoint.receives.granted.free.len(), endpoint.receives.granted.blocks.len());
    // Adapters hold places of Blocks for a while that nobody has any more.
    if !endpoint.receives.granted.mirror.is_on() && free + open + releasing != all {
        return Some(format!(
            "{free} of {all} places are free while {open} + {releasing} are used"
        ));
    }
    None
}

/// How many Blocks a link has, and how many bytes of them are granted.
fn blocks_of(endpoint: &Endpoint, index: u32) -> Result<(usize, u64), String> {
    let Some(link) = endpoint.net.links.get(index) else { return Ok((0, 0)) };
    let (mut count, mut bytes) = (0, 0);
    let (mut before, mut block) = (NO_BLOCK, link.first);
    while let Some(grant) = endpoint.receives.granted.grants.get(usize::from(block)) {
        let receive = endpoint.receives.table.get(grant.receive);
        let is_of_it = receive.is_some_and(|receive| receive.open.contains(&block));
        let is_open = endpoint.receives.granted.block(block).is_open();
        if grant.link != index || grant.before != before || !is_of_it || !is_open {
            return Err(format!("link {index} lists Block {block}, which is {grant:?}"));
        }
        (count, bytes) = (count + 1, bytes + u64::from(grant.granted));
        if count > endpoint.receives.granted.grants.len() {
            return Err(format!("the Blocks of link {index} have no end"));
        }
        (before, block) = (block, grant.behind);
    }
    if before != link.last {
        return Err(format!("link {index} ends with Block {before}, and says {}", link.last));
    }
    if link.unused() > bytes {
        return Err(format!("of {bytes} bytes over link {index} {} are not used", link.unused()));
    }
    if bytes != link.granted {
        return Err(format!("link {index} has {} granted, its Blocks {bytes}", link.granted));
    }
    if bytes > 0 && endpoint.net.links.timers.key_of(index).is_none() {
        return Err(format!("nothing waits for the {bytes} bytes granted over link {index}"));
    }
    Ok((count, bytes))
}

/// Has a Transfer something to be granted, and nothing leads to that?
fn wrong_turn(endpoint: &Endpoint, index: u32) -> Option<String> {
    let receive = endpoint.receives.table.get(index)?;
    if receive.state != State::Open || receive.rest == 0 {
        return None;
    }
    let is_known = match receive.turn {
        ScheduleState::Ready => endpoint.receives.ready.contains(index, receive.priority),
        ScheduleState::Waiting => {
            let mut links = endpoint.net.connections.get(receive.connection)?.links();
            links.any(|link| leads_to(endpoint, link, index))
        }
        // A Block that is complete makes it ready again.
        ScheduleState::None => receive.open.last().is_some_and(|last| {
            let block = endpoint.receives.granted.block(*last);
            block.granted() == block.stus()
                && receive.open.len() >= usize::from(endpoint.cx.config.blocks_ahead)
        }),
    };
    let (turn, rest) = (receive.turn, receive.rest);
    (!is_known).then(|| format!("Transfer {index} has {rest} bytes to be granted, and is {turn:?}"))
}

/// Does a Transfer wait for room on a link, and will the link tell of some? What is granted
/// arrives or times out, what arrived is told to the window soon, and a path that takes no
/// grants has some under way or comes up.
fn leads_to(endpoint: &Endpoint, link: u32, receive: u32) -> bool {
    endpoint.net.links.get(link).is_some_and(|known| {
        let waits_for_path = endpoint.net.paths[usize::from(known.path)].waiting.contains(&receive);
        let is_due = known.granted > 0 || known.is_fresh;
        known.is_awaited_by(receive)
            && (is_due || waits_for_path || !endpoint.net.can_send_over(&endpoint.cx, link))
    })
}
