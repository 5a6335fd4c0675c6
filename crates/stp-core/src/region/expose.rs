//! Request_Memory_Region and Memory_Region_Available, and revocation.

use alloc::vec::Vec;

use landfall_placement::{Area, Refusal, assumed};

use super::{Ask, Exposed, Request};
use crate::connection::{self, NONE, UnsettledCount};
use crate::context::Context;
use crate::error::{Ended, Error, check_memory};
use crate::event::Event;
use crate::ids::{ConnectionId, ExposedId, PeerRequestId, RemoteRegion, RequestId, Rights};
use crate::network::Network;
use crate::region::Regions;
use crate::seen::Serial;
use crate::wire::Reason;
use crate::wire::message::{AvailableRegion, Message};

impl Regions {
    /// Asks the other side for a region of at least `len` bytes; `name` tells its user which.
    pub(crate) fn request_region(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: ConnectionId,
        name: u32,
        len: u64,
        rights: Rights,
    ) -> Result<RequestId, Error> {
        let known = net.connection_mut(id)?;
        if !known.is_open() {
            return Err(Error::NotOpen);
        }
        let serial = known.remote_mut().next_request;
        let UnsettledCount { count: mut waiting, mut is_near } =
            net.unsettled_regions(id.index, serial);
        for request in self.requests.indices().filter_map(|index| self.requests.get(index)) {
            if request.connection == id.index {
                waiting += 1;
                is_near &= connection::is_near(request.serial, serial);
            }
        }
        if !is_near || waiting >= usize::from(net.connection(id)?.slots) {
            net.remind_of_unsettled(cx, id.index);
            return Err(Error::Busy);
        }
        let request = Request { connection: id.index, serial, name, len, rights, retries: 0 };
        let key = self.requests.insert(request).ok_or(Error::Busy)?;
        net.connection_mut(id)?.remote_mut().next_request = serial.wrapping_add(1);
        self.send_region_request(net, cx, key.index);
        self.timers.set(key.index, cx.now + net.retry_after(cx, 0));
        Ok(RequestId::of(key))
    }

    /// Makes memory available to who asked for it ([`Event::RegionRequested`]).
    pub(crate) fn expose(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: PeerRequestId,
        memory: Area,
        rights: Rights,
    ) -> Result<ExposedId, Error> {
        let ask = *self.asks.named(id.index, id.generation).ok_or(Error::Unknown)?;
        check_memory(memory)?;
        let exposed = Exposed {
            connection: ask.connection,
            memory,
            rights: rights.common(ask.rights),
            request: ask.serial,
            peer_id: ask.peer_id,
            writing: 0,
            sending: 0,
            is_revoked: false,
        };
        let key = self.exposed.insert(exposed).ok_or(Error::Busy)?;
        self.end_ask(net, id.index, Ok(()));
        self.send_region(net, cx, key.index);
        Ok(ExposedId::of(key))
    }

    /// Makes no memory available, and says why.
    pub(crate) fn refuse_region(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        id: PeerRequestId,
        reason: Reason,
    ) -> Result<(), Error> {
        let ask = *self.asks.named(id.index, id.generation).ok_or(Error::Unknown)?;
        self.refuse_request(net, cx, ask.connection, ask.peer_id, ask.serial, reason);
        self.end_ask(net, id.index, Err(reason));
        Ok(())
    }

    /// Takes a region back.
    pub(crate) fn revoke(&mut self, cx: &mut Context, id: ExposedId) -> Result<(), Error> {
        self.exposed.named(id.index, id.generation).ok_or(Error::Unknown)?;
        self.begin_revoking(cx, id.index);
        Ok(())
    }

    fn begin_revoking(&mut self, cx: &mut Context, index: u32) {
        if let Some(exposed) = self.exposed.get_mut(index) {
            exposed.is_revoked = true;
        }
        self.finish_if_unused(cx, index);
    }

    pub(super) fn finish_if_unused(&mut self, cx: &mut Context, index: u32) {
        let Some(known) =
            assumed(self.exposed.get(index), "a region stays while something of it is left")
        else {
            return;
        };
        if !known.is_revoked || known.writing > 0 || known.sending > 0 {
            return;
        }
        let id = ExposedId::of(self.exposed.key(index));
        if let Some(known) = self.exposed.remove(index) {
            cx.emit(Event::Revoked { exposed: id, memory: known.memory });
        }
    }

    /// A driver writes to a region once less.
    pub(super) fn end_writing(&mut self, cx: &mut Context, index: u32) {
        if let Some(exposed) = self.exposed.get_mut(index) {
            exposed.writing = exposed.writing.saturating_sub(1);
        }
        self.finish_if_unused(cx, index);
    }

    pub(crate) fn release_exposed(&mut self, cx: &mut Context, index: u32, generation: u32) {
        if let Some(exposed) = self.exposed.named_mut(index, generation) {
            exposed.sending = exposed.sending.saturating_sub(1);
            self.finish_if_unused(cx, index);
        }
    }

    /// What the other side calls a region of ours.
    fn handle_of(&self, net: &Network, index: u32) -> u32 {
        let owner = self.exposed.get(index).and_then(|known| net.connections.get(known.connection));
        let mask = owner.map_or(0, |owner| owner.handle_mask);
        (self.exposed.generation(index) << 16 | index & 0xffff) ^ mask
    }

    /// The region of a handle, if this connection may do that with those bytes.
    pub(super) fn usable(
        &self,
        net: &Network,
        connection: u32,
        handle: u32,
        rights: Rights,
        at: u64,
        len: u64,
    ) -> Result<u32, Reason> {
        let mask = net.connections.get(connection).ok_or(Reason::NoRegion)?.handle_mask;
        let handle = handle ^ mask;
        let (index, generation) = (handle & 0xffff, (handle >> 16) as u16);
        let known = self.exposed.named_low(index, generation).ok_or(Reason::NoRegion)?;
        if known.connection != connection || known.is_revoked {
            return Err(Reason::NoRegion);
        }
        if !known.rights.has(rights) {
            return Err(Reason::Forbidden);
        }
        if at.checked_add(len).is_none_or(|end| end > known.memory.len) {
            return Err(Reason::OutOfBounds);
        }
        Ok(index)
    }

    fn send_region_request(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(request) =
            assumed(self.requests.get(index).copied(), "a request that goes on is in the table")
        else {
            return;
        };
        net.send_unsettled_region(cx, request.connection);
        net.send_message(cx, request.connection, &request.message(index as u16));
    }

    fn send_region(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(known) =
            assumed(self.exposed.get(index).copied(), "a region that is shown is in the table")
        else {
            return;
        };
        let window = cx.config.puts_ahead;
        let result = Ok(AvailableRegion {
            handle: self.handle_of(net, index),
            len: known.memory.len,
            rights: known.rights.0,
            window,
        });
        let (d_id, serial) = (known.peer_id, known.request);
        net.send_message(
            cx,
            known.connection,
            &Message::MemoryRegionAvailable { d_id, serial, result },
        );
    }

    fn refuse_request(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        d_id: u16,
        serial: u32,
        reason: Reason,
    ) {
        let result = Err(reason);
        net.send_message(cx, connection, &Message::MemoryRegionAvailable { d_id, serial, result });
    }

    fn end_ask(&mut self, net: &mut Network, index: u32, result: Result<(), Reason>) {
        let Some(ask) = assumed(self.asks.remove(index), "a request is incoming once") else {
            return;
        };
        if let Some(known) = net.connections.get_mut(ask.connection) {
            known.remote_mut().requests_seen.end(ask.serial, result);
        }
    }

    /// The other side wants a region.
    pub(crate) fn handle_region_request(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        message: &Message,
    ) -> Result<(), Refusal> {
        let Message::RequestMemoryRegion { s_id, serial, len, name, rights } = *message else {
            return Err(Refusal::Malformed);
        };
        let Some(known) = net.connections.get_mut(connection) else {
            return Err(Refusal::UnknownId);
        };
        let is_open = known.is_open();
        match known.remote_mut().requests_seen.of(serial) {
            Serial::Beyond => return Err(Refusal::OutOfBounds),
            Serial::Forgotten => return Err(Refusal::Duplicate),
            Serial::Failed(reason) => {
                self.refuse_request(net, cx, connection, s_id, serial, reason);
                return Err(Refusal::Duplicate);
            }
            Serial::Complete => {
                let answers = |index: &u32| {
                    let exposed = self.exposed.get(*index);
                    exposed.is_some_and(|e| e.connection == connection && e.request == serial)
                };
                let found = self.exposed.indices().find(answers);
                match found {
                    Some(index) => self.send_region(net, cx, index),
                    None => self.refuse_request(net, cx, connection, s_id, serial, Reason::Gone),
                }
                return Err(Refusal::Duplicate);
            }
            Serial::Open => {}
        }
        let is_waiting = |index: u32| {
            let ask = self.asks.get(index);
            ask.is_some_and(|ask| ask.connection == connection && ask.serial == serial)
        };
        if self.asks.indices().any(is_waiting) {
            return Err(Refusal::Duplicate);
        }
        if !is_open {
            self.refuse_request(net, cx, connection, s_id, serial, Reason::Closing);
            return Err(Refusal::Unexpected);
        }
        let rights = Rights(rights).common(Rights::ALL);
        let ask = Ask { connection, serial, peer_id: s_id, rights };
        let key = self.asks.insert(ask).ok_or(Refusal::NoRoom)?;
        let (request, connection) = (PeerRequestId::of(key), net.id_of(connection));
        cx.emit(Event::RegionRequested { request, connection, name, len, rights });
        Ok(())
    }

    pub(crate) fn handle_region_answer(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        d_id: u16,
        serial: u32,
        result: Result<AvailableRegion, Reason>,
    ) -> Result<(), Refusal> {
        if net.settle_region(cx, connection, serial) {
            return Ok(());
        }
        let index = u32::from(d_id);
        let request = self.requests.get(index).ok_or(Refusal::UnknownId)?;
        if request.connection != connection || request.serial != serial {
            return Err(Refusal::UnknownId);
        }
        match result {
            Ok(AvailableRegion { handle, len, rights, window }) => {
                if let Some(known) = net.connections.get_mut(connection) {
                    let known = &mut known.remote_mut().outgoing.peer_window;
                    *known = window.max(*known);
                }
                let region = RemoteRegion { handle, len, rights: Rights(rights) };
                self.finish_request(net, cx, index, Ok(region));
            }
            Err(reason) => self.finish_request(net, cx, index, Err(Ended::There(reason))),
        }
        Ok(())
    }

    fn finish_request(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        index: u32,
        result: Result<RemoteRegion, Ended>,
    ) {
        let request = RequestId::of(self.requests.key(index));
        self.timers.remove(index);
        let Some(known) = assumed(self.requests.remove(index), "a request ends once") else {
            return;
        };
        let connection = net.id_of(known.connection);
        cx.emit(match result {
            Ok(region) => Event::RegionAvailable { request, connection, region },
            Err(why) => Event::RegionRefused { request, connection, why },
        });
    }

    pub(crate) fn time_out_request(&mut self, net: &mut Network, cx: &mut Context, index: u32) {
        let Some(request) =
            assumed(self.requests.get_mut(index), "only requests that go on have a timer")
        else {
            return;
        };
        request.retries = request.retries.saturating_add(1);
        let (retries, connection) = (request.retries, request.connection);
        // The user there may take its time; what counts is that it is alive.
        let limit = cx.config.retry_after * 64;
        let is_silent =
            net.connections.get(connection).is_none_or(|known| known.heard + limit < cx.now);
        if retries > cx.config.give_up_after && is_silent {
            if let Some(request) = self.requests.get(index).copied() {
                net.leave_region_unsettled(request);
            }
            return self.finish_request(net, cx, index, Err(Ended::Silent));
        }
        self.send_region_request(net, cx, index);
        net.suspect_move(cx, connection);
        self.timers.set(index, cx.now + net.retry_after(cx, retries));
    }

    /// All that has to do with regions of a connection ends with it.
    pub(crate) fn end_regions(
        &mut self,
        net: &mut Network,
        cx: &mut Context,
        connection: u32,
        why: Ended,
    ) {
        if net.connections.get(connection).is_none_or(|known| known.remote.is_none()) {
            return;
        }
        let requests = |index: &u32| {
            self.requests.get(*index).is_some_and(|request| request.connection == connection)
        };
        let indices: Vec<u32> = self.requests.indices().filter(requests).collect();
        for index in indices {
            self.finish_request(net, cx, index, Err(why));
        }
        let asks =
            |index: &u32| self.asks.get(*index).is_some_and(|ask| ask.connection == connection);
        let indices: Vec<u32> = self.asks.indices().filter(asks).collect();
        for index in indices {
            self.end_ask(net, index, Err(Reason::Closing));
        }
        let exposed = |index: &u32| {
            self.exposed.get(*index).is_some_and(|known| known.connection == connection)
        };
        let indices: Vec<u32> = self.exposed.indices().filter(exposed).collect();
        for index in indices {
            self.begin_revoking(cx, index);
            // What a driver still uses is nobody's: not of who gets that place in
            // the table of connections next.
            if let Some(exposed) = self.exposed.get_mut(index) {
                exposed.connection = NONE;
            }
        }
    }
}

impl Request {
    /// What asks the other side for it, by the name that it has here.
    pub(crate) const fn message(&self, s_id: u16) -> Message {
        let Self { serial, len, name, rights, .. } = *self;
        Message::RequestMemoryRegion { s_id, serial, len, name, rights: rights.0 }
    }
}
