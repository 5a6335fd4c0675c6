//! Messages arrive: the own ring is read, and each message meets its receive.

use std::task::Poll;

use landfall::stp::{Message, Operation, Received};

use super::{Link, failure, nonsense, poll, poll_once};
use crate::completion::Failure;
use crate::core::{EndpointState, Envelope};
use crate::matching::{Arrived, Body, Receive};
use crate::record::{HEADER, Kind, Record};
use crate::ring::{MOST_PAYLOAD, RING, offset};
use crate::world::World;

/// This many long messages are read at a time from one peer.
const MOST_READINGS: usize = 32;

/// A long message on its way to its place.
#[derive(Debug)]
pub(super) struct Reading {
    receive: Receive,
    envelope: Envelope,
    operation: MessagePlace,
}

/// Where it goes.
#[derive(Debug)]
enum MessagePlace {
    Place(Operation<Received>),
    /// Where the place is in several pieces.
    Memory(Operation<Message>),
}

impl Reading {
    pub(super) fn into_parts(self) -> (Receive, Envelope) {
        (self.receive, self.envelope)
    }
}

impl Link {
    /// Reads all records that are whole.
    pub(super) fn read_ring(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
    ) -> Result<(), Failure> {
        let waker = self.waker();
        loop {
            if core.must_pause() {
                core.paused.push(self.number);
                return Ok(());
            }
            let Some(shown) = self.shown() else { return Ok(()) };
            let Poll::Ready(Some(notice)) = poll_once(shown.written(), &waker) else {
                return Ok(());
            };
            if notice.at != offset(self.receive.consumed) || notice.at + notice.len > RING {
                return Err(nonsense("it writes where nothing is expected"));
            }
            let end = self.receive.consumed + notice.len;
            while self.receive.consumed < end {
                self.read_record(core, world, end)?;
            }
            self.receive.note_read();
        }
    }

    fn read_record(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        end: u64,
    ) -> Result<(), Failure> {
        let position = self.receive.consumed;
        let mut header = [0; HEADER];
        self.copy_out(position, &mut header)?;
        let record = Record::decode(&header).ok_or_else(|| nonsense("a record of no kind"))?;
        if record.position != position || record.room() > end - position {
            return Err(nonsense("a record out of place"));
        }
        let credit = self.send.note_credit(record.consumed);
        credit.map_err(|_| nonsense("it has read what was not written"))?;
        match record.kind {
            Kind::Pad | Kind::Credit => {}
            Kind::Message => self.arrive_here(core, world, &record)?,
            Kind::Offer => self.arrive_there(core, world, &record)?,
            Kind::Acknowledge => self.acknowledged(core, world, record.id),
            Kind::Written => {
                core.written(world, self.peer, record.total, record.data.unwrap_or(0));
            }
        }
        self.receive.consumed = position + record.room();
        Ok(())
    }

    fn copy_out(&self, position: u64, into: &mut [u8]) -> Result<(), Failure> {
        self.own.copy_out(offset(position), into).map_err(|error| failure(&error))
    }

    const fn envelope(&self, record: &Record) -> Envelope {
        Envelope { tag: record.tag, data: record.data, peer: self.peer, len: record.total }
    }

    /// A message is in the ring.
    fn arrive_here(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        record: &Record,
    ) -> Result<(), Failure> {
        if record.len as usize > MOST_PAYLOAD || u64::from(record.len) != record.total {
            return Err(nonsense("a message of another length"));
        }
        let mut position = self.receive.consumed + HEADER as u64;
        let len = record.len as usize;
        let envelope = self.envelope(record);
        let Some(receive) = core.matching.receive_for(record.tag, self.peer, record.total) else {
            let mut bytes = vec![0; len];
            self.copy_out(position, &mut bytes)?;
            let body = Body::Here(bytes, record.wants_acknowledge.then_some(record.id));
            core.matching.keep(self.arrived(envelope, body));
            return Ok(());
        };
        let mut copied = Ok(());
        receive.buffer.write(0, len, |piece| {
            if copied.is_ok() {
                copied = self.copy_out(position, piece);
            }
            position += piece.len() as u64;
        });
        copied?;
        if record.wants_acknowledge {
            self.acknowledges.push_back(record.id);
        }
        core.received(world, &receive, &envelope, None);
        Ok(())
    }

    /// A message is offered.
    fn arrive_there(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        record: &Record,
    ) -> Result<(), Failure> {
        if record.len != 0 {
            return Err(nonsense("an offer with bytes"));
        }
        let envelope = self.envelope(record);
        match core.matching.receive_for(record.tag, self.peer, record.total) {
            Some(receive) => self.read_offered(core, world, receive, envelope, record.id),
            None => core.matching.keep(self.arrived(envelope, Body::There(record.id))),
        }
        Ok(())
    }

    const fn arrived(&self, envelope: Envelope, body: Body) -> Arrived {
        let Envelope { tag, data, peer, len } = envelope;
        Arrived { tag, data, peer, len, link: self.number, body }
    }

    /// A message that came before meets its receive.
    pub(crate) fn deliver(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        receive: Receive,
        arrived: Arrived,
    ) {
        let Arrived { tag, data, peer, len, body, .. } = arrived;
        let envelope = Envelope { tag, data, peer, len };
        match body {
            Body::There(id) => self.read_offered(core, world, receive, envelope, id),
            Body::Here(bytes, id) => {
                receive.buffer.fill(&bytes);
                self.acknowledges.extend(id);
                core.received(world, &receive, &envelope, None);
            }
        }
    }

    /// Nobody wants a message that came.
    pub(crate) fn discard(&mut self, body: &Body) {
        match body {
            Body::There(id) => self.acknowledges.push_back(*id),
            Body::Here(_, id) => self.acknowledges.extend(*id),
        }
    }

    /// Reads a long message into its place, as much of it as there is room for.
    fn read_offered(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        receive: Receive,
        envelope: Envelope,
        id: u32,
    ) {
        let room = receive.buffer.len();
        let len = usize::try_from(envelope.len).unwrap_or(usize::MAX).min(room);
        if len == 0 {
            self.acknowledges.push_back(id);
            core.received(world, &receive, &envelope, None);
            return;
        }
        if self.readings.len() >= MOST_READINGS {
            self.waiting.push_back((receive, envelope, id));
            return;
        }
        match self.begin_reading(core, &receive, len, id) {
            Ok(operation) => self.readings.push(Reading { receive, envelope, operation }),
            Err(why) => {
                self.acknowledges.push_back(id);
                core.received(world, &receive, &envelope, Some(why));
            }
        }
    }

    fn begin_reading(
        &self,
        core: &EndpointState,
        receive: &Receive,
        len: usize,
        id: u32,
    ) -> Result<MessagePlace, Failure> {
        let Some(connection) = &self.connection else {
            return Err(nonsense("it offers before it is connected"));
        };
        if let Some((memory, at)) = receive.buffer.map(len) {
            let registered = core.stp.as_async().register_mapped(&memory);
            let part = registered.and_then(|region| region.part(at));
            let part = part.map_err(|error| failure(&error))?;
            return Ok(MessagePlace::Place(connection.read_into(&part, id).start()));
        }
        let memory = core.stp.memory(len).map_err(|error| failure(&error))?;
        Ok(MessagePlace::Memory(connection.read(memory, id).start()))
    }

    /// Takes note of long messages that are in their place.
    pub(super) fn finish_readings(&mut self, core: &mut EndpointState, world: &mut World) {
        let waker = self.waker();
        let mut at = 0;
        while let Some(reading) = self.readings.get_mut(at) {
            let result = match &mut reading.operation {
                MessagePlace::Place(operation) => poll(operation, &waker).map_ok(|_| None),
                MessagePlace::Memory(operation) => poll(operation, &waker).map_ok(Some),
            };
            let Poll::Ready(result) = result else {
                at += 1;
                continue;
            };
            let (receive, envelope) = self.readings.remove(at).into_parts();
            let why = match result {
                Ok(message) => {
                    if let Some(message) = message {
                        receive.buffer.fill(&message);
                    }
                    None
                }
                Err(failed) => Some(failure(&failed)),
            };
            core.received(world, &receive, &envelope, why);
            if let Some((receive, envelope, id)) = self.waiting.pop_front() {
                self.read_offered(core, world, receive, envelope, id);
            }
        }
    }
}
