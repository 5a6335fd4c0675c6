//! Memory that waits for Transfers.

use landfall_placement::Area;
use landfall_tables::EntryKey;

use super::{Receives, State};
use crate::connection::NONE;
use crate::context::Context;
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::ConnectionId;
use crate::network::Network;

/// Memory that waits for the next Transfer of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) memory: Area,
    /// Take the start of a Transfer that is too long, and do not refuse it.
    pub(crate) takes_part: bool,
    pub(crate) next: u32,
}

impl Receives {
    /// Posts memory for the next Transfer of a connection.
    pub(crate) fn post(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        memory: Area,
        takes_part: bool,
    ) -> Result<(), Error> {
        if !net.connection(id)?.is_open() {
            return Err(Error::NotOpen);
        }
        check_memory(memory)?;
        if takes_part && memory.len == 0 {
            return Err(Error::TooShort);
        }
        if let Some(receive) = self.oldest_offer(net, id.index) {
            self.give_memory(net, cx, receive, memory, takes_part);
            return Ok(());
        }
        let posted = Posted { memory, takes_part, next: NONE };
        let EntryKey { index, .. } = self.posted.insert(posted).ok_or(Error::Busy)?;
        let Some(known) = net.connections.assumed_mut(id.index) else { return Ok(()) };
        let last = core::mem::replace(&mut known.last_posted, index);
        if known.first_posted == NONE {
            known.first_posted = index;
        }
        if let Some(last) = self.posted.get_mut(last) {
            last.next = index;
        }
        Ok(())
    }

    /// Takes posted memory back, wherever it stands.
    pub(crate) fn withdraw(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        memory: Area,
    ) -> Result<(), Error> {
        net.connection(id)?;
        if self.unpost(net, id.index, memory) {
            let why = Ended::Here;
            cx.emit(Event::Unposted { connection: id, memory, why });
            return Ok(());
        }
        let is_there = |index: &u32| {
            self.table.get(*index).is_some_and(|receive| receive.memory == Some(memory))
        };
        let found = self.receives_of(net, id.index).into_iter().find(is_there);
        let index = found.ok_or(Error::Unknown)?;
        self.cancel_receive(net, cx, self.receive_id(index))
    }

    pub(crate) fn oldest_offer(&self, net: &Network, connection: u32) -> Option<u32> {
        let is_offered = |index: &u32| {
            self.table.get(*index).is_some_and(|receive| receive.state == State::Offered)
        };
        // The newest is the first of the list.
        self.receives_of(net, connection).into_iter().rfind(is_offered)
    }

    pub(crate) fn unpost_first(&mut self, net: &mut Network, connection: u32) -> Option<Posted> {
        let known = net.connections.get_mut(connection)?;
        let posted = self.posted.remove(known.first_posted)?;
        known.first_posted = posted.next;
        if known.first_posted == NONE {
            known.last_posted = NONE;
        }
        Some(posted)
    }

    /// Takes this memory out of the list of what is posted.
    pub(crate) fn unpost(&mut self, net: &mut Network, connection: u32, memory: Area) -> bool {
        let Some(known) = net.connections.assumed(connection) else { return false };
        let (mut before, mut index) = (NONE, known.first_posted);
        while let Some(posted) = self.posted.get(index).copied() {
            if posted.memory != memory {
                (before, index) = (index, posted.next);
                continue;
            }
            if before == NONE {
                return self.unpost_first(net, connection).is_some();
            }
            self.posted.remove(index);
            if let Some(last) = self.posted.get_mut(before) {
                last.next = posted.next;
            }
            if let Some(known) = net.connections.get_mut(connection)
                && known.last_posted == index
            {
                known.last_posted = before;
            }
            return true;
        }
        false
    }

    /// Posted memory is the user's again.
    pub(crate) fn end_posted(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        why: Ended,
    ) {
        while let Some(posted) = self.unpost_first(net, connection) {
            let connection = net.id_of(connection);
            cx.emit(Event::Unposted { connection, memory: posted.memory, why });
        }
    }
}
