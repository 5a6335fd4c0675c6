//! Opening Blocks, and Clear_To_Send.

use alloc::vec::Vec;

use landfall_placement::Span;

use super::schedule::Outcome;
use super::{Grant, Kind, Receive, ScheduleState, State};
use crate::context::Context;
use crate::issued::Issued;
use crate::link::Link;
use crate::network::Network;
use crate::network::room::PARTS;
use crate::offload::{Expected, words_per_block};
use crate::preference::Priority;
use crate::receive::Receives;
use crate::wire::message::{ClearToSend, Get, Granted, Ids, Message};

impl Receives {
    /// Grants as much as there is room for.
    pub(crate) fn grant_more(&mut self, net: &mut Network, cx: &mut Context) {
        self.update_windows(net, cx);
        // Those that wait for what others of them hold must not be in their way.
        let mut without_block = Vec::new();
        while let Some(index) = self.ready.take() {
            let Some(receive) = self.table.get_mut(index) else { continue };
            if receive.state != State::Open {
                receive.turn = ScheduleState::None;
                continue;
            }
            let outcome = self.grant_next(net, cx, index);
            let is_begun = self.has_begun_block(index);
            let Some(receive) = self.table.get_mut(index) else { continue };
            let (rest, priority) = (receive.rest, receive.priority);
            match outcome {
                // A Block that was begun is granted to its end before it is another's turn:
                // what is granted in turns comes in turns, and neither a run nor a guess gets
                // farther than to the next.
                Outcome::Granted if is_begun => self.ready.put_back(index, rest, priority),
                Outcome::Granted if rest > 0 && receive.more_in_turn > 0 => {
                    receive.more_in_turn -= 1;
                    self.ready.put_back(index, rest, priority);
                }
                Outcome::Granted if rest > 0 => self.end_turn(net, index),
                Outcome::Granted | Outcome::Enough => receive.turn = ScheduleState::None,
                Outcome::NoRoomOnLinks => self.wait_for_links(net, cx, index),
                Outcome::NoBlock => without_block.push((index, rest, priority)),
                Outcome::NoRoom => {
                    self.ready.put_back(index, rest, priority);
                    break;
                }
            }
        }
        for (index, rest, priority) in without_block.into_iter().rev() {
            self.ready.put_back(index, rest, priority);
        }
    }

    /// Tells the windows of links what arrived, and wakes what waited for room.
    pub(crate) fn update_windows(&mut self, net: &mut Network, cx: &mut Context) {
        while let Some(index) = self.fresh_links.pop() {
            let config = net.congestion_on(cx, index);
            let Some(link) = net.links.get_mut(index) else { continue };
            link.is_fresh = false;
            link.update_window(&config, cx.now);
            self.take_unused(net, cx, index);
            if net.links.get(index).is_some_and(Link::has_waiting) {
                self.wake_waiting(net, index);
            }
        }
        self.grants_due = false;
    }

    /// Grants the next STUs of a Transfer, where there is room: first of the Blocks that were
    /// begun, then of one more on a link that has none of them. So a link that is full holds up
    /// what it carries, and no other link.
    pub(super) fn grant_next(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
    ) -> Outcome {
        let Some(receive) = self.assumed(index) else {
            return Outcome::Enough;
        };
        let mut before = receive.open.len();
        let mut any_is_begun = false;
        while let Some((nth, block)) = self.begun_before(index, before) {
            let link = self.granted.grants[usize::from(block)].link;
            match self.extend_grant(net, cx, index, block, link) {
                Outcome::NoRoomOnLinks => (any_is_begun, before) = (true, nth),
                outcome => return outcome,
            }
        }
        let Some(receive) = self.assumed(index) else {
            return Outcome::Enough;
        };
        let most_are_open = receive.open.len() >= usize::from(cx.config.blocks_ahead);
        if most_are_open || receive.next_block >= receive.blocks {
            return if any_is_begun { Outcome::NoRoomOnLinks } else { Outcome::Enough };
        }
        let Some(link) = self.link_for_block(net, cx, receive) else {
            return Outcome::NoRoomOnLinks;
        };
        match self.open_block(net, cx, index, link) {
            Ok(block) => self.extend_grant(net, cx, index, block, link),
            Err(outcome) => outcome,
        }
    }

    fn is_begun(&self, block: u16) -> bool {
        let block = self.granted.block(block);
        block.granted() < block.stus()
    }

    /// The last Block before the `nth` open one of a Transfer of which not all is granted.
    fn begun_before(&self, index: u32, nth: usize) -> Option<(usize, u16)> {
        let open = &self.table.get(index)?.open;
        let mut open = open[..nth.min(open.len())].iter().copied().enumerate().rev();
        open.find(|(_, block)| self.is_begun(*block))
    }

    /// Is a Block of a Transfer begun on a link? One at a time is.
    fn has_begun_on(&self, receive: &Receive, link: u32) -> bool {
        let mut open = receive.open.iter();
        open.any(|block| {
            self.granted.grants[usize::from(*block)].link == link && self.is_begun(*block)
        })
    }

    pub(super) fn has_begun_block(&self, index: u32) -> bool {
        self.begun_before(index, usize::MAX).is_some()
    }

    /// The link that the next Block of a Transfer is granted over: the one that was chosen for
    /// it, or of those that have none of its Blocks begun the one with the most room for grants.
    /// Faster ones drain faster, so unequal rates fill in proportion by themselves.
    ///
    /// Those for Data that are up are asked first, then whatever is up. Where none is, the
    /// link was found dead with what another connection had there: a grant finds out
    /// whether it is, and its time-outs end the Transfer if so.
    fn link_for_block(&self, net: &Network, cx: &Context, receive: &Receive) -> Option<u32> {
        let (connection, block_size) = (receive.connection, receive.block_size);
        let known = net.connections.get(connection)?;
        let is_up = |link: &u32| net.links.get(*link).is_some_and(|link| link.is_up);
        // A link that came later may have STUs so small that a Block has too many.
        let most = (words_per_block(1 << cx.config.block_stus) as u64) << 6;
        let fits = |link: &u32| {
            let stu = net.sure_stu_on(connection, *link);
            stu.is_some_and(|stu| (1u64 << block_size).div_ceil(stu.into()) <= most)
        };
        let is_chosen = |link: &u32| *link == receive.link && is_up(link) && fits(link);
        if let Some(chosen) = known.known_links().find(is_chosen) {
            let is_free = net.room_on(cx, chosen) > 0 && !self.has_begun_on(receive, chosen);
            return is_free.then_some(chosen);
        }
        let carries_data = known.data_links().any(|link| is_up(&link));
        let any_is_up = known.known_links().any(|link| is_up(&link));
        let may_carry = |link: &u32| {
            fits(link)
                && (is_up(link) || !any_is_up)
                && (!carries_data || known.data_links().any(|data| data == *link))
        };
        let with_room = |link: u32| (net.room_on(cx, link), link);
        let is_free = |link: &u32| !self.has_begun_on(receive, *link);
        let links = known.known_links().filter(may_carry).filter(is_free).map(with_room);
        let (room, link) = links.max_by_key(|(room, _)| *room)?;
        (room > 0).then_some(link)
    }

    /// Enters the next Block of a Transfer, of which nothing is granted yet.
    fn open_block(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        link: u32,
    ) -> Result<u16, Outcome> {
        let expected = self.expected(net, index, link).ok_or(Outcome::NoRoomOnLinks)?;
        let Some(receive) = self.table.get(index) else { return Err(Outcome::Enough) };
        let stu = net.stu_on(receive.connection, link).ok_or(Outcome::NoRoomOnLinks)?;
        let Some(memory) = receive.memory else { return Err(Outcome::Enough) };
        let stu = (1u64 << receive.block_size).min(stu.into()) as u16;
        let position = receive.position_of(receive.next_block);
        let at = memory.offset + position;
        let size = 1u64 << receive.block_size;
        let len = (size - (at & (size - 1))).min(receive.len - position) as u32;
        let start = (at & ((1 << cx.config.buffer) - 1)) as u32;
        let block = self.granted.take_free().ok_or(Outcome::NoBlock)?;
        let span = Span { region: memory.region, offset: at, len };
        if !self.granted.table().open(block, expected, start, span, stu) {
            // More STUs than may be: this link's are too small for it.
            self.granted.give_back(block, false);
            self.free_what_left();
            return Err(Outcome::NoRoomOnLinks);
        }
        self.granted.mirror.open(block, expected.path);
        *self.granted.grant(block) = Grant::new(index, link, cx.now);
        if let Some(receive) = self.table.get_mut(index) {
            receive.open.push(block);
            receive.next_block += 1;
        }
        self.append_to_link(net, cx, link, block);
        Ok(block)
    }

    /// Who may send the next Block, and how it must be marked.
    fn expected(&self, net: &Network, index: u32, link: u32) -> Option<Expected> {
        let receive = self.table.get(index)?;
        let known = net.connections.get(receive.connection)?;
        let link = net.links.get(link)?;
        Some(Expected {
            path: net.paths[usize::from(link.path)].id,
            peer: link.peer,
            key: known.local_key,
            d_port: known.local_port,
            s_port: known.remote_port,
            d_id: index as u16,
            serial: receive.serial,
            number: receive.next_block,
        })
    }

    /// Grants more STUs of a Block: all of them, or as many as there is room for.
    fn extend_grant(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        block: u16,
        link: u32,
    ) -> Outcome {
        let known = *self.granted.block(block);
        let (granted, stus) = (known.granted(), known.stus());
        let whole = u64::from(known.bytes_of(granted, stus));
        let stu = u64::from(known.stu());
        let Some(on) = net.links.get(link) else { return Outcome::NoRoomOnLinks };
        let standing = on.usage().map(|usage| usage.standing).unwrap_or_default();
        let (held, window) = (net.links.held, cx.config.window);
        let priority = self.table.get(index).map_or(Priority::Normal, |known| known.priority);
        let (all, limit) = (held.room(window, standing), net.limit_of(cx, on, stu, priority));
        let left = limit.saturating_sub(on.granted - on.unused());
        let (on_link, has_some) = (net.room_on(cx, link).min(left), on.granted > 0);
        // Not less than a part of the window, or many small grants would go out.
        let least = whole.min(stu.max((window / PARTS).min(limit / 2)));
        let least_on_link = whole.min(stu.max(net.least_part(cx, link).min(limit / 2)));
        // One STU always may be granted where nothing is.
        if net.room_for_all(cx) < least && held.bytes > 0 {
            return Outcome::NoRoom;
        }
        if all < stu.min(whole) && held.is_used_up_by_alike(standing) {
            return Outcome::NoBlock;
        }
        if on_link < least_on_link && has_some {
            return Outcome::NoRoomOnLinks;
        }
        let room = whole.min(all.min(on_link).max(stu));
        let count = (room / stu).max(1).min(u64::from(stus - granted)) as u16;
        // What fits up to the end, the short last STU with it.
        let end = if room >= whole { stus } else { granted + count };
        let bytes = known.bytes_of(granted, end);
        self.granted.table().grant(block, end);
        self.granted.mirror.grant(block);
        let grant = self.granted.grant(block);
        grant.at = cx.now;
        grant.from = granted;
        grant.passed = 0;
        grant.attempt = grant.attempt.wrapping_add(1);
        if let Some(receive) = self.table.get_mut(index) {
            receive.rest = receive.rest.saturating_sub(u64::from(bytes));
        }
        self.take_room(net, cx, block, bytes);
        if let Some(link) = net.links.get_mut(link) {
            let generation = known.generation();
            link.note_issued(Issued { block, generation, from: granted, end, at: cx.now });
        }
        self.send_grant(net, cx, block, granted, end);
        Outcome::Granted
    }

    /// Tells the sender that it may send the STUs from `first` to before `end`.
    pub(super) fn send_grant(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        block: u16,
        first: u16,
        end: u16,
    ) {
        let grant = self.granted.grants[usize::from(block)];
        let known = *self.granted.block(block);
        let Some(receive) = self.assumed(grant.receive) else { return };
        landfall_placement::trace!(block, first, end, link = grant.link, "granted");
        let (offset, _) = known.stu_at(first);
        let message = match receive.kind {
            Kind::Get { .. } => self.get_message(block, first, end),
            Kind::Write | Kind::Read(_) => {
                let acked = receive.acked(|block| self.granted.number_of(block));
                let behind = known.expected().number - acked;
                self.clear_to_send(
                    cx,
                    block,
                    offset,
                    Granted::Next {
                        lead: receive.lead,
                        count: end - first,
                        behind: u16::try_from(behind).unwrap_or(u16::MAX),
                    },
                )
            }
        };
        if let Some(message) = message {
            net.send_message_over(cx, grant.link, receive.connection, &message);
        }
    }

    pub(super) fn clear_to_send(
        &self,
        cx: &Context,
        block: u16,
        offset: u32,
        granted: Granted,
    ) -> Option<Message> {
        let grant = self.granted.grants[usize::from(block)];
        let known = self.granted.block(block);
        let receive = self.table.get(grant.receive)?;
        Some(Message::ClearToSend(ClearToSend {
            ids: Ids { d_id: receive.peer_id, s_id: grant.receive as u16 },
            sync: receive.serial as u16,
            block: known.expected().number,
            bufx: known.bufx(block),
            offset,
            attempt: grant.attempt & 63,
            stu: known.stu(),
            block_size: receive.block_size,
            eager: cx.config.takes_eagerly(),
            is_limited: receive.is_limited(),
            granted,
        }))
    }

    /// The Get for STUs of a Block.
    pub(super) fn get_message(&self, block: u16, first: u16, end: u16) -> Option<Message> {
        let grant = self.granted.grants[usize::from(block)];
        let known = self.granted.block(block);
        let receive = self.table.get(grant.receive)?;
        let Kind::Get { handle, at, after } = receive.kind else { return None };
        let (offset, _) = known.stu_at(first);
        let within = u64::from(offset - known.stu_at(0).0);
        let number = known.expected().number;
        Some(Message::Get(Get {
            s_id: grant.receive as u16,
            after,
            handle,
            at: at + receive.position_of(number) + within,
            len: known.bytes_of(first, end),
            serial: receive.serial,
            block: number,
            bufx: known.bufx(block),
            offset,
            stu: known.stu(),
        }))
    }
}
