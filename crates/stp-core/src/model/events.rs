//! What users are told of connections and Transfers, checked against the model.

use alloc::format;

use landfall_placement::{Area, Engine, Peer};

use super::calls::ADMITTED;
use super::ledger::{Connection, Receive, ReceivePurpose, Stage};
use super::setup::PATIENCE;
use super::world::{FRESH, World};
use crate::error::Ended;
use crate::event::Event;
use crate::ids::{ConnectionId, ReceiveId, SendId};
use crate::wire::Reason;

impl World {
    /// Takes in what the engines tell, and checks that it is true.
    pub(super) fn hear(&mut self) {
        for side in 0..self.sides() {
            while let Some(event) = self.ends[side].checked.poll_event() {
                self.heard += 1;
                self.findings.add(&[side as u8]);
                self.write_down(|| format!("{side} is told: {event:?}"));
                self.take_event(side, event);
            }
        }
    }

    fn take_event(&mut self, side: usize, event: Event) {
        match event {
            Event::Connected { connection, hello } => self.take_connected(side, connection, hello),
            Event::Incoming { connection, peer, hello, .. } => {
                self.take_incoming(side, connection, peer, hello);
            }
            Event::Accepted { connection, peer, hello, .. } => {
                self.take_accepted(side, connection, peer, hello);
            }
            Event::Closing { connection } => self.take_closing(side, connection),
            Event::Closed { connection, why } => self.take_closed(side, connection, why),
            Event::LinkUp { connection, .. } | Event::LinkDown { connection, .. } => {
                self.known(side, connection, "a link");
            }
            Event::Sent { send, len, .. } => self.take_sent(side, send, len),
            Event::SendEnded { send, len, why, .. } => self.take_send_ended(side, send, len, why),
            Event::SendProgress { send, len, .. } => self.take_send_progress(side, send, len),
            Event::Offered { receive, connection, len, opaque } => {
                self.take_offered(side, receive, connection, len, opaque);
            }
            Event::Received { receive, memory, len, offered, opaque, .. } => {
                self.take_received(side, receive, memory, (len, offered), opaque);
            }
            Event::ReceiveEnded { receive, connection, memory, len, why } => {
                self.take_receive_ended(side, (receive, connection), memory, len, why);
            }
            Event::Unposted { memory, .. } => self.take_unposted(side, memory),
            Event::ReceiveProgress { .. } => {}
            Event::ReadRequested { read, connection, len, opaque } => {
                let Some(known) = self.known(side, connection, "a read") else { return };
                let name = opaque as usize;
                let found = self.truth.reads.get(name).is_some_and(|read| {
                    let is_here = self.truth.is_same(read.connect, known.connect);
                    is_here && read.to == side && read.len == len && !read.is_asked
                });
                match found {
                    true => {
                        self.truth.reads[name].is_asked = true;
                        self.ends[side].user.reads_asked.push((read, connection, name));
                    }
                    false => self.fail(side, "was asked for what nobody wants to read, or twice"),
                }
            }
            _ => self.take_shared(side, event),
        }
    }

    /// The connection that an event names.
    pub(super) fn known(
        &mut self,
        side: usize,
        id: ConnectionId,
        what: &str,
    ) -> Option<Connection> {
        let known = self.ends[side].user.connection(id).copied();
        if known.is_none() {
            self.fail(side, &format!("{what} of {id}, which is unknown or closed"));
        }
        known
    }

    fn take_connected(&mut self, side: usize, id: ConnectionId, hello: u64) {
        let Some(known) = self.known(side, id, "Connected") else { return };
        if known.stage != Stage::Opening {
            return self.fail(side, &format!("{id} is connected twice"));
        }
        self.set_stage(side, id, Stage::Open);
        let own = known.connect as u64 + 1;
        if hello == 0 || hello == ADMITTED | own {
            return;
        }
        // Both sides asked at the same time: from now on it has one name.
        let (own, other) = (known.connect, hello.wrapping_sub(1) as usize);
        let is_from_there = self.truth.connects.get(other).is_some_and(|call| call.to == side);
        if !is_from_there {
            return self.fail(side, &format!("{id} is connected to who did not ask"));
        }
        let connections = self.ends.iter_mut().flat_map(|end| &mut end.user.connections);
        for known in connections.filter(|known| [own, other].contains(&known.connect)) {
            known.connect = own.min(other);
        }
    }

    fn set_stage(&mut self, side: usize, id: ConnectionId, stage: Stage) {
        let found = self.ends[side].user.connections.iter_mut().find(|known| known.id == id);
        if let Some(known) = found {
            known.stage = stage;
        }
    }

    /// The call of `connect` that somebody's connection came from.
    fn caller(&mut self, side: usize, peer: Peer, hello: u64) -> Option<usize> {
        let name = hello.wrapping_sub(1) as usize;
        let found = self.truth.connects.get(name);
        if found.is_some_and(|c| c.to == side && peer == Peer::Node(c.from as u32)) {
            return Some(name);
        }
        self.fail(side, &format!("a connection came from {peer} that nobody asked for"));
        None
    }

    fn take_incoming(&mut self, side: usize, id: ConnectionId, peer: Peer, hello: u64) {
        // It may come again, where a repeated request finds the first one forgotten.
        let Some(connect) = self.caller(side, peer, hello) else { return };
        let known = Connection { id, connect, stage: Stage::Asked, is_closing: false };
        self.ends[side].user.connections.push(known);
    }

    fn take_accepted(&mut self, side: usize, id: ConnectionId, peer: Peer, hello: u64) {
        let Some(connect) = self.caller(side, peer, hello) else { return };
        if core::mem::replace(&mut self.truth.connects[connect].is_accepted, true) {
            self.fail(side, &format!("{id} is accepted a second time"));
        }
        match self.ends[side].user.connection(id).map(|known| known.stage) {
            Some(Stage::Admitted) => self.set_stage(side, id, Stage::Open),
            Some(_) => self.fail(side, &format!("{id} is accepted and was not admitted")),
            None => {
                let known = Connection { id, connect, stage: Stage::Open, is_closing: false };
                self.ends[side].user.connections.push(known);
            }
        }
    }

    fn take_closing(&mut self, side: usize, id: ConnectionId) {
        let Some(known) = self.known(side, id, "Closing") else { return };
        if !self.truth.is_excused(known.connect) {
            self.fail(side, &format!("{id} is being closed, by nobody"));
        }
        let found = self.ends[side].user.connections.iter_mut().find(|known| known.id == id);
        if let Some(known) = found {
            known.is_closing = true;
        }
    }

    fn take_closed(&mut self, side: usize, id: ConnectionId, why: Option<Ended>) {
        let Some(known) = self.known(side, id, "Closed") else { return };
        let is_early = known.stage != Stage::Open;
        let may_be_early = is_early && (why == Some(Ended::There(Reason::Busy)))
            || matches!(known.stage, Stage::Asked | Stage::Admitted);
        if !may_be_early && !self.may_end(known.connect) {
            self.fail(side, &format!("{id} was closed by nobody: {why:?}"));
        }
        self.truth.excuse(known.connect);
        let user = &mut self.ends[side].user;
        user.connections.retain(|other| other.id != id);
        user.reads_asked.retain(|(_, other, _)| *other != id);
        user.asks.retain(|(_, other, ..)| *other != id);
        user.remotes.retain(|other| other.connection != id);
        for region in &mut self.truth.regions {
            if region.connect == known.connect
                && let Some(exposed) = &mut region.exposed
            {
                exposed.is_uncertain = true;
            }
        }
    }

    /// May what is under way on a connection end early, for all that was done?
    pub(super) fn may_end(&self, connect: usize) -> bool {
        !self.setup.is_patient()
            || self.timeouts >= u32::from(PATIENCE)
            || self.truth.is_excused(connect)
            // One that its other side had not proved may have made room for others.
            || self.ends.iter().any(|end| {
                end.has_failed || end.was_full || end.checked.engine.stats().half_open_dropped > 0
            })
    }

    fn take_sent(&mut self, side: usize, send: SendId, len: u64) {
        let Some((name, area)) = self.end_of_send(side, send) else { return };
        if self.truth.transfers[name].delivered != Some(len) {
            let have = self.truth.transfers[name].delivered;
            self.fail(side, &format!("{send} is told to be sent, {len} bytes, but is: {have:?}"));
        }
        self.take_back_sent(side, &area);
    }

    fn take_send_ended(&mut self, side: usize, send: SendId, len: u64, why: Ended) {
        let Some((name, area)) = self.end_of_send(side, send) else { return };
        let transfer = &self.truth.transfers[name];
        let is_refused = self.truth.connects[transfer.connect].was_too_long
            && matches!(why, Ended::There(Reason::TooLong | Reason::Gone));
        if !transfer.is_excused && !is_refused && !self.may_end(transfer.connect) {
            self.fail(side, &format!("{send} was ended by nobody: {why:?}"));
        } else if len > transfer.bytes.len() as u64 {
            self.fail(side, &format!("{send}: more has arrived than there is"));
        }
        self.take_back_sent(side, &area);
    }

    fn end_of_send(&mut self, side: usize, send: SendId) -> Option<(usize, Area)> {
        let sends = &mut self.ends[side].user.sends;
        let Some(at) = sends.iter().position(|(known, ..)| *known == send) else {
            self.fail(side, &format!("{send} ended that was not begun, or twice"));
            return None;
        };
        let (_, name, area) = sends.swap_remove(at);
        Some((name, area))
    }

    fn take_send_progress(&mut self, side: usize, send: SendId, len: u64) {
        let sends = &self.ends[side].user.sends;
        let found = sends.iter().find(|(known, ..)| *known == send);
        if found.is_none_or(|(_, _, area)| len > area.len) {
            self.fail(side, &format!("{send} has sent {len} bytes, which cannot be"));
        }
    }

    fn take_offered(
        &mut self,
        side: usize,
        id: ReceiveId,
        connection: ConnectionId,
        len: u64,
        opaque: u32,
    ) {
        let Some(known) = self.known(side, connection, "Offered") else { return };
        let (connect, name) = (known.connect, opaque as usize);
        let is_right = self.truth.transfers.get(name).is_some_and(|transfer| {
            transfer.to == side
                && transfer.bytes.len() as u64 == len
                && transfer.delivered.is_none()
                && !transfer.is_offered
                && self.truth.is_same(transfer.connect, connect)
        });
        if !is_right {
            return self.fail(side, &format!("{id} was offered that was not sent, or twice"));
        }
        self.truth.transfers[name].is_offered = true;
        let (memory, what) = (None, ReceivePurpose::Offer { transfer: name });
        self.ends[side].user.receives.push(Receive { id, connect, memory, what });
    }

    /// What is known of a receive that is over, where it has a name. Its
    /// memory was given when it was begun, or posted.
    fn end_of_receive(
        &mut self,
        side: usize,
        id: ReceiveId,
        memory: Option<Area>,
    ) -> Option<Receive> {
        let user = &mut self.ends[side].user;
        let at = user.receives.iter().position(|known| known.id == id);
        let known = at.map(|at| user.receives.swap_remove(at));
        if known.is_some_and(|known| known.memory.is_some() && known.memory == memory) {
            return known;
        }
        if known.is_some() && memory.is_none() {
            return known;
        }
        match user.posts.iter().position(|(_, area)| Some(*area) == memory) {
            Some(at) => {
                user.posts.remove(at);
            }
            None => self.fail(side, &format!("{id} ended that was not begun, or twice")),
        }
        known
    }

    pub(super) fn take_received(
        &mut self,
        side: usize,
        id: ReceiveId,
        memory: Area,
        (len, offered): (u64, u64),
        opaque: u32,
    ) {
        let known = self.end_of_receive(side, id, Some(memory));
        let end = &self.ends[side];
        let (have, rest) = end.bytes(&memory).split_at(len.min(memory.len) as usize);
        let rest_is_fresh = rest.iter().all(|byte| *byte == FRESH);
        let mut wrong = None;
        if let Some(transfer) = self.truth.transfers.get_mut(opaque as usize) {
            let wanted = (transfer.bytes.len() as u64).min(memory.len);
            let answers = known.and_then(|known| match known.what {
                ReceivePurpose::Read { read } => Some(read),
                _ => None,
            });
            if transfer.to != side || answers != transfer.answers {
                wrong = Some("is not for whom it came to");
            } else if transfer.delivered.replace(len).is_some() {
                wrong = Some("came twice");
            } else if (len, offered) != (wanted, transfer.bytes.len() as u64) {
                wrong = Some("has another length");
            } else if transfer.bytes.get(..len as usize) != Some(have) {
                wrong = Some("holds what was not sent");
            } else if !rest_is_fresh {
                wrong = Some("was written behind its end");
            }
        } else {
            wrong = Some("was not sent");
        }
        if let Some(wrong) = wrong {
            self.fail(side, &format!("{id}, {len} of {offered} bytes for {opaque}, {wrong}"));
        }
        self.give_back(side, &memory);
    }

    fn take_receive_ended(
        &mut self,
        side: usize,
        (id, connection): (ReceiveId, ConnectionId),
        memory: Option<Area>,
        len: u64,
        why: Ended,
    ) {
        let known = self.end_of_receive(side, id, memory);
        let connect = known
            .map(|known| known.connect)
            .or_else(|| Some(self.ends[side].user.connection(connection)?.connect));
        let Some(connect) = connect else { return };
        if why == Ended::DoesNotFit {
            self.truth.connects[connect].was_too_long = true;
        }
        let is_excused = match known.map(|known| known.what) {
            _ if why == Ended::DoesNotFit => true,
            Some(ReceivePurpose::Offer { transfer }) => self.truth.transfers[transfer].is_excused,
            Some(ReceivePurpose::Read { read }) => {
                self.truth.reads[read].is_excused || self.is_ended(read)
            }
            Some(ReceivePurpose::Get { region, may_fail, .. }) => {
                may_fail || self.is_revoked(region)
            }
            None => self.truth.transfers.iter().any(|t| t.is_excused && t.to == side),
        };
        if !is_excused && !self.may_end(connect) {
            self.fail(side, &format!("{id} was ended by nobody: {why:?}"));
        }
        let Some(memory) = memory else { return };
        let have = self.ends[side].bytes(&memory);
        let starts = |bytes: &[u8]| have.get(..len as usize) == bytes.get(..len as usize);
        let is_get = known.is_some_and(|known| matches!(known.what, ReceivePurpose::Get { .. }));
        if !is_get && len > 0 && !self.truth.transfers.iter().any(|t| starts(&t.bytes)) {
            self.fail(side, &format!("{id}: its first {len} bytes are not what was sent"));
        }
        self.give_back(side, &memory);
    }

    /// Was what answers a read ended by a user?
    fn is_ended(&self, read: usize) -> bool {
        self.truth.transfers.iter().any(|t| t.answers == Some(read) && t.is_excused)
    }

    fn take_unposted(&mut self, side: usize, memory: Area) {
        let posts = &mut self.ends[side].user.posts;
        match posts.iter().position(|(_, area)| *area == memory) {
            Some(at) => {
                posts.remove(at);
                self.give_back(side, &memory);
            }
            None => self.fail(side, "memory comes back that was not posted"),
        }
    }
}
