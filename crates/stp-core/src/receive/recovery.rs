//! What did not come is asked for again.
//!
//! A sender sends what was granted over a link in the order of the grants. So
//! what later STUs have overtaken by a margin is lost, in a Block or before it (RFC 6675,
//! 4: `IsLost`); and if nothing comes over a link for a whole time-out, its first Blocks are.
//! What was asked for again is lost again once Data has come that was granted after it was
//! asked for (RFC 8985, 6.2), and not because a round trip took longer than others: each hole
//! is counted once for each time that it was lost.

use alloc::vec::Vec;

use landfall_placement::{Duration, Instant};

use super::{Grant, Kind, State};
use crate::context::Context;
use crate::error::Ended;
use crate::link::NO_BLOCK;
use crate::network::Network;
use crate::receive::Receives;
use crate::wire::message::Granted;

/// How many later STUs must have come before something counts as overtaken:
/// less may be reordering (as RFC 5681 has three duplicates).
const MARGIN: u16 = 3;

/// The most grants in which one Block is asked for again at a time; each names
/// up to 64 STUs.
const PIECES: usize = 16;

/// How many Blocks are looked at when one is complete, or a link times out.
const BLOCKS_AT_ONCE: usize = 32;

impl Receives {
    /// A Block is complete: those granted before it on the same link are overtaken. Gives those of
    /// which something is to be asked for again.
    pub(super) fn overtaken_by(&mut self, net: &mut Network, block: u16) -> Vec<u16> {
        let mut found = Vec::new();
        let Grant { link, at, from, .. } = self.granted.grants[usize::from(block)];
        // What was granted last of it came behind all that was granted before that.
        let stus = self.granted.block(block).stus() - from;
        let Some(link) = net.links.get(link) else { return found };
        let mut earlier = link.first;
        for _ in 0..BLOCKS_AT_ONCE {
            if earlier == block || earlier == NO_BLOCK {
                break;
            }
            let grant = self.granted.grant(earlier);
            let next = grant.behind;
            // Of what was granted in the same moment it is not sure what was granted first.
            if grant.at < at || grant.at == at && grant.asked == 0 {
                grant.passed = grant.passed.saturating_add(stus);
                if grant.passed >= MARGIN && grant.granted > 0 {
                    found.push(earlier);
                }
            }
            earlier = next;
        }
        found
    }

    /// Asks for what is missing of Blocks that were overtaken.
    pub(super) fn ask_for_overtaken(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        blocks: &[u16],
    ) {
        for block in blocks {
            // Nothing of it is granted any more where its Transfer has ended meanwhile.
            if self.granted.grant(*block).granted > 0 {
                let end = self.granted.block(*block).granted();
                self.ask_for_lost(net, cx, *block, end);
            }
        }
    }

    /// An STU came behind some of its Block that did not.
    pub(super) fn note_hole(&mut self, net: &mut Network, cx: &mut Context, block: u16) {
        let from = self.granted.grants[usize::from(block)].asked_below;
        // What lies behind that may be on its way.
        let end = self.granted.table().overtaken(block, from, MARGIN);
        self.ask_for_lost(net, cx, block, end);
    }

    /// Asks for what is missing of a Block before an STU, unless it was asked for and may be on
    /// its way.
    fn ask_for_lost(&mut self, net: &mut Network, cx: &mut Context, block: u16, end: u16) {
        let grant = self.granted.grants[usize::from(block)];
        let Some(link) = net.links.assumed(grant.link) else { return };
        let round = link.window.rtt().smoothed().unwrap_or(cx.config.retry_floor);
        // Where no window yields to losses, a Block is asked for once in a round trip, and all of
        // it: more would go into the queue that has dropped it.
        let yields = cx.config.congestion.is_some();
        if !yields && grant.asked > 0 && grant.asked_at + round > cx.now {
            return;
        }
        // The whole is looked at where what was asked for can have come.
        let is_old = grant.asked > 0 && (!yields || link.has_answered_since(grant.asked_at));
        let (from, sent) = match is_old {
            true => (0, grant.asked_at),
            // It was granted before what has overtaken it, and not long ago.
            false => (grant.asked_below, grant.at.min(link.answered().max(cx.now - round * 2))),
        };
        if end <= from {
            return;
        }
        let lost = self.granted.table().bytes_missing(block, from, end);
        if lost == 0 {
            self.granted.grant(block).asked_below = grant.asked_below.max(end);
            return;
        }
        self.count_lost(net, cx, block, sent, lost);
        self.ask_for(net, cx, block, from, end);
    }

    /// The window of its link learns that bytes, granted or asked for at `sent`, will not arrive.
    fn count_lost(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        sent: Instant,
        bytes: u32,
    ) {
        let grant = self.granted.grants[usize::from(block)];
        let config = net.congestion_on(cx, grant.link);
        landfall_placement::trace!(block, bytes, "lost");
        cx.stats.bytes_lost += u64::from(bytes);
        if let Some(link) = net.links.get_mut(grant.link) {
            link.window.handle_lost(&config, cx.now, sent, u64::from(bytes));
        }
    }

    /// What was asked for again of a Block was only late: the window need not have yielded.
    pub(super) fn note_late(&mut self, net: &mut Network, cx: &mut Context, block: u16) {
        let grant = self.granted.grants[usize::from(block)];
        let config = net.congestion_on(cx, grant.link);
        if let Some(link) = net.links.get_mut(grant.link) {
            link.note_not_lost(&config, cx.now, grant.asked_at);
        }
    }

    /// Asks for all that is missing of a Block.
    pub(crate) fn ask_again(&mut self, net: &mut Network, cx: &mut Context, block: u16) {
        self.ask_for(net, cx, block, 0, self.granted.block(block).granted());
    }

    /// Asks for what is missing of a Block from one of its STUs to before another.
    fn ask_for(&mut self, net: &mut Network, cx: &mut Context, block: u16, from: u16, before: u16) {
        if self.granted.grant(block).granted == 0 {
            // All that was granted has come; the rest waits for room.
            return;
        }
        if let Some(blocks) = self.note_long_lost(net, cx, block)
            && self.lay_out_anew(net, cx, block, &blocks)
        {
            // It was asked for, too.
            return;
        }
        let known = *self.granted.block(block);
        let grant = self.granted.grant(block);
        grant.passed = 0;
        grant.asked = grant.asked.saturating_add(1);
        grant.asked_at = cx.now;
        let (asked, index, link) = (grant.asked, grant.receive, grant.link);
        let is_stuck = grant.active + cx.config.silence() < cx.now;
        self.granted.mirror.ask(block);
        if let Some(link) = net.links.get_mut(link) {
            link.forget_issued(block, before);
        }
        cx.stats.blocks_asked_again += 1;
        // A sender that answers, and yet never sends this Block.
        if is_stuck && asked > cx.config.give_up_after {
            return self.begin_ending_receive(net, cx, index, Ended::Silent);
        }
        if known.highest() == 0 {
            // The grant itself may be what was lost.
            self.count_attempt(block);
            self.granted.grant(block).asked_below = known.granted();
            return self.send_grant(net, cx, block, 0, known.granted());
        }
        let is_get =
            self.table.get(index).is_some_and(|known| matches!(known.kind, Kind::Get { .. }));
        let mut from = from;
        for _ in 0..PIECES {
            let Some((first, bits)) = self.granted.table().missing(block, from, before) else {
                from = before;
                break;
            };
            from = if is_get {
                let end = first + bits.trailing_ones() as u16;
                self.send_grant(net, cx, block, first, end);
                end
            } else {
                self.send_grant_again(net, cx, block, first, bits);
                first.saturating_add(64)
            };
        }
        let grant = self.granted.grant(block);
        grant.asked_below = grant.asked_below.max(from.min(before));
    }

    /// Lays Blocks out in shorter STUs, and asks for them. Returns whether nothing is left to be
    /// asked for of this one as it was laid out.
    fn lay_out_anew(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        blocks: &[u16],
    ) -> bool {
        let stu = self.granted.block(block).stu();
        let link = self.granted.grants[usize::from(block)].link;
        for block in blocks {
            // To ask for one may end its Transfer, and with it others.
            if self.shorten_stus(net, *block, link) {
                self.ask_again(net, cx, *block);
            }
        }
        let known = self.granted.block(block);
        !known.is_open() || known.stu() < stu
    }

    fn count_attempt(&mut self, block: u16) {
        let grant = self.granted.grant(block);
        grant.attempt = grant.attempt.wrapping_add(1);
    }

    fn send_grant_again(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        first: u16,
        bits: u64,
    ) {
        self.count_attempt(block);
        let (offset, _) = self.granted.block(block).stu_at(first);
        let grant = self.granted.grants[usize::from(block)];
        let Some(receive) = self.assumed(grant.receive) else { return };
        let connection = receive.connection;
        landfall_placement::trace!(block, first, bits, "asked for again");
        if let Some(message) = self.clear_to_send(cx, block, offset, Granted::Again(bits)) {
            net.send_message_over(cx, grant.link, connection, &message);
        }
    }

    /// Nothing came over a link for a while, although it is expected. Returns whether it counts
    /// as dead, and others are to be taken.
    pub(crate) fn time_out_link(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
    ) -> bool {
        let (retry_after, floor) = (cx.config.retry_after, cx.config.retry_floor);
        let config = net.congestion_on(cx, index);
        self.take_unused(net, cx, index);
        let Some(link) = net.links.assumed_mut(index) else { return false };
        if link.first == NO_BLOCK {
            return false;
        }
        let due = link.active + link.patience(retry_after, floor);
        if due > cx.now {
            net.links.timers.set(index, due);
            return false;
        }
        if link.granted == 0 {
            // All that was granted has come; the next grant sets the timer.
            return false;
        }
        cx.stats.link_timeouts += 1;
        link.strikes = link.strikes.saturating_add(1);
        link.active = cx.now;
        let is_probe = link.window.handle_silence(&config, cx.now, link.strikes);
        let (strikes, is_up) = (link.strikes, link.is_up);
        let patience = link.patience(retry_after, floor);
        // Where others are heard over it, it is not the network that is silent.
        let is_heard = strikes > 3 && link.heard() + patience > cx.now;
        net.links.timers.set(index, cx.now + patience);
        self.take_unused_of_silent(net, cx, index);
        let is_late = strikes > cx.config.give_up_after || is_heard;
        if is_late && self.give_up_silent(net, cx, index, patience) {
            return false;
        }
        if is_up && strikes >= 3 && self.has_other_links(net, index) {
            return true;
        }
        if strikes > 1
            && let Some(connection) = self.first_waiting_on(net, index)
        {
            net.suspect_move(cx, connection);
        }
        // Perhaps this machine only paused: the first Block shows, and to ask for
        // all of them would double what is on its way.
        let most = if is_probe { 1 } else { usize::MAX };
        for block in self.blocks_of(net, index).into_iter().take(most) {
            let grant = self.granted.grant(block);
            // With the first all may have been.
            if grant.asked == 0 || grant.asked_at < cx.now {
                self.ask_again(net, cx, block);
            }
        }
        false
    }

    /// What was to come over a link from connections of which nothing at all has been heard
    /// for a while ends: their peer is gone. Returns whether there were any.
    fn give_up_silent(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        link: u32,
        patience: Duration,
    ) -> bool {
        // Twice as long as a peer that waits for grants is silent itself.
        let limit = patience * 2 + cx.config.silence();
        let mut any = false;
        for block in self.blocks_of(net, link) {
            let receive = self.granted.grants[usize::from(block)].receive;
            let Some(known) = self.table.get(receive) else { continue };
            let connection = net.connections.get(known.connection);
            if connection.is_none_or(|known| known.heard + limit < cx.now) {
                any = true;
                self.begin_ending_receive(net, cx, receive, Ended::Silent);
            }
        }
        any
    }

    /// The first Blocks granted over a link, in order.
    fn blocks_of(&self, net: &Network, link: u32) -> Vec<u16> {
        let mut found = Vec::new();
        let mut block = net.links.get(link).map_or(NO_BLOCK, |link| link.first);
        while let Some(grant) = self.granted.grants.get(usize::from(block)) {
            if found.len() >= BLOCKS_AT_ONCE {
                break;
            }
            found.push(block);
            block = grant.behind;
        }
        found
    }

    fn has_other_links(&self, net: &Network, link: u32) -> bool {
        let first = self.first_waiting_on(net, link);
        first.is_some_and(|connection| self.other_link(net, connection, link).is_some())
    }

    /// The connection of the first Block that is granted over a link.
    fn first_waiting_on(&self, net: &Network, link: u32) -> Option<u32> {
        let first = usize::from(net.links.get(link)?.first);
        let receive = self.granted.grants.get(first)?.receive;
        Some(self.table.get(receive)?.connection)
    }

    /// Another link of a connection that is up.
    fn other_link(&self, net: &Network, connection: u32, link: u32) -> Option<u32> {
        let known = net.connections.get(connection)?;
        let is_up =
            |other: &u32| *other != link && net.links.get(*other).is_some_and(|other| other.is_up);
        known.data_links().find(is_up).or_else(|| known.known_links().find(is_up))
    }

    /// A link died: what was granted over it is asked for over others.
    pub(crate) fn move_blocks(&mut self, net: &mut Network, cx: &mut Context, link: u32) {
        let mut left = usize::from(u16::MAX);
        loop {
            let blocks = self.blocks_of(net, link);
            let before = left;
            for block in blocks {
                left -= usize::from(self.move_block(net, cx, block, link));
            }
            if left == before {
                return;
            }
        }
    }

    fn move_block(&mut self, net: &mut Network, cx: &mut Context, block: u16, from: u32) -> bool {
        let grant = self.granted.grants[usize::from(block)];
        let Some(receive) = self.assumed(grant.receive) else { return false };
        // Its Transfer may have ended as another Block of it was asked for again: then it is
        // of no link any more.
        if !receive.open.contains(&block) {
            return false;
        }
        let connection = receive.connection;
        // The connection has one link: the Block waits for it.
        let Some(to) = self.other_link(net, connection, from) else { return false };
        // Its STUs were laid out for the old link; they must fit the new one too.
        let fits = net.stu_on(connection, to).is_some_and(|s| s >= self.granted.block(block).stu());
        if !fits && !self.shorten_stus(net, block, to) {
            return false;
        }
        let Some(link) = net.links.assumed(to) else { return false };
        let (path, peer) = (net.paths[usize::from(link.path)].id, link.peer);
        self.granted.table().redirect(block, path, peer);
        self.granted.mirror.redirect(block, path);
        self.move_to_link(net, cx, block, to);
        cx.stats.blocks_moved += 1;
        self.ask_again(net, cx, block);
        true
    }

    /// A link is back: what waited for it goes on at once.
    pub(crate) fn resume_link(&mut self, net: &mut Network, cx: &mut Context, link: u32) {
        for block in self.blocks_of(net, link) {
            self.ask_again(net, cx, block);
        }
        self.wake_waiting(net, link);
        self.grants_due = true;
    }

    /// A request of ours, or an End, was not answered.
    pub(crate) fn time_out_receive(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(receive) = self.assumed_mut(index) else {
            return;
        };
        receive.retries = receive.retries.saturating_add(1);
        let (retries, state, connection) = (receive.retries, receive.state, receive.connection);
        let gives_up = net.gives_up(cx, connection, retries);
        match state {
            State::RequestSent if gives_up => {
                return self.finish_receive(net, cx, index, Err(Ended::Silent));
            }
            State::RequestSent => self.request_to_receive(net, cx, index),
            State::Ending(_) if gives_up => return self.note_end_told(net, cx, index),
            State::Ending(_) => self.send_end_of_receive(net, cx, index),
            State::Offered | State::Open => return,
        }
        net.suspect_move(cx, connection);
        self.timers.set(index, cx.now + net.patience(cx, connection, retries));
    }
}
