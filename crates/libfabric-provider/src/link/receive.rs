//! Messages arrive: the own ring is read, and each message meets its receive.

use std::task::Poll;

use landfall::stp::{Message, Operation, Received};

use super::transmit::Outgoing;
use super::wire::Wire;
use super::{Link, MOST_CONNECTION_DATA, MOST_HEARD, failure, nonsense, poll};
use crate::completion::Failure;
use crate::core::{EndpointState, Envelope};
use crate::matching::{Arrived, Body, Receive};
use crate::record::{HEADER, Kind, Record};
use crate::ring::MOST_PAYLOAD;
use crate::world::World;

/// This many long messages are read at a time from one peer.
const MOST_READINGS: usize = 32;

/// A long message that has met its receive.
#[derive(Debug)]
pub(super) struct Offered {
    pub(super) receive: Receive,
    envelope: Envelope,
    /// By which it is read.
    id: u32,
}

/// A receive that is complete.
#[derive(Debug)]
pub(super) struct Done {
    receive: Receive,
    envelope: Envelope,
    why: Option<Failure>,
    /// By which its message was offered, if it was.
    id: Option<u32>,
}

impl Offered {
    pub(super) fn done(self, why: Option<Failure>) -> Done {
        let Self { receive, envelope, id } = self;
        Done { receive, envelope, why, id: Some(id) }
    }
}

impl Done {
    const fn at_once(receive: Receive, envelope: Envelope) -> Self {
        Self { receive, envelope, why: None, id: None }
    }

    fn tell(&self, core: &EndpointState, world: &mut World) {
        core.received(world, &self.receive, &self.envelope, self.why.clone());
    }
}

/// A long message on its way to its place.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) offered: Offered,
    pub(super) operation: MessagePlace,
}

/// Where it goes.
#[derive(Debug)]
pub(super) enum MessagePlace {
    Place(Operation<Received>),
    /// Where the place is in several pieces.
    Memory(Operation<Message>),
    /// It was asked for, and comes in records: so much of it has come, of so much.
    Pieces {
        at: usize,
        len: usize,
    },
}

impl Reading {
    pub(super) fn into_offered(self) -> Offered {
        self.offered
    }

    pub(super) const fn is_of(&self, id: u32) -> bool {
        self.offered.id == id
    }
}

impl Link {
    /// Reads all records that are whole.
    pub(super) fn read_ring(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
    ) -> Result<(), Failure> {
        loop {
            if core.must_pause(world) {
                core.pause(self.number);
                self.is_paused = true;
                return Ok(());
            }
            let written = self.wire.next_written(self.receive.consumed, &self.waker)?;
            let Some(len) = written else { return Ok(()) };
            let end = self.receive.consumed + len;
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
        self.wire.copy_out(position, &mut header)?;
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
            Kind::Request | Kind::Accept | Kind::Reject | Kind::Shutdown => {
                self.hear(&record)?;
            }
            Kind::Ask => self.asked(&record)?,
            Kind::Piece => self.place_piece(core, world, &record)?,
            Kind::Greeting => self.greeted(core, &record)?,
            Kind::Rails => self.add_rails(core, &record)?,
            Kind::Name => self.rename(core, &record)?,
            Kind::Written => {
                core.written(world, self.peer, record.total, record.data.unwrap_or(0));
            }
        }
        self.receive.consumed = position + record.room();
        Ok(())
    }

    const fn envelope(&self, record: &Record) -> Envelope {
        Envelope { tag: record.tag, data: record.data, peer: self.peer, len: record.total }
    }

    /// The other side says something of the connection.
    fn hear(&mut self, record: &Record) -> Result<(), Failure> {
        let len = record.len as usize;
        let mut data = vec![0; len.min(MOST_CONNECTION_DATA)];
        self.wire.copy_out(self.receive.consumed + HEADER as u64, &mut data)?;
        match &mut self.heard {
            Some(heard) if heard.len() < MOST_HEARD && data.len() == len => {
                heard.push_back((record.kind, data));
                Ok(())
            }
            _ => Err(nonsense("it speaks of the connection where it may not")),
        }
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
            self.wire.copy_out(position, &mut bytes)?;
            let body = Body::Here(bytes, record.wants_acknowledge.then_some(record.id));
            core.matching.keep(self.arrived(envelope, body));
            return Ok(());
        };
        let mut copied = Ok(());
        receive.buffer.write(0, len, |piece| {
            if copied.is_ok() {
                copied = self.wire.copy_out(position, piece);
            }
            position += piece.len() as u64;
        });
        copied?;
        if record.wants_acknowledge {
            self.acknowledges.push_back(record.id);
        }
        self.finish(core, world, Done::at_once(receive, envelope));
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
            Some(receive) => self.meet(core, world, Offered { receive, envelope, id: record.id }),
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
            Body::There(id) => self.meet(core, world, Offered { receive, envelope, id }),
            Body::Here(bytes, id) => {
                receive.buffer.fill(&bytes);
                self.acknowledges.extend(id);
                self.finish(core, world, Done::at_once(receive, envelope));
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

    /// A long message meets its receive.
    fn meet(&mut self, core: &mut EndpointState, world: &mut World, offered: Offered) {
        if self.heard.is_some() {
            self.held.push_back((offered.id, None));
        }
        self.read_offered(core, world, offered);
    }

    /// A receive is complete: the program is told, unless it has to hear of others before.
    pub(super) fn finish(&mut self, core: &EndpointState, world: &mut World, done: Done) {
        match done.id.and_then(|id| self.held.iter().position(|(held, _)| *held == id)) {
            Some(at) => self.held[at].1 = Some(done),
            None if self.held.is_empty() => done.tell(core, world),
            None => self.held.push_back((0, Some(done))),
        }
        while let Some((_, Some(done))) = self.held.front() {
            done.tell(core, world);
            self.held.pop_front();
        }
    }

    /// Reads a long message into its place, as much of it as there is room for.
    fn read_offered(&mut self, core: &mut EndpointState, world: &mut World, offered: Offered) {
        let room = offered.receive.buffer.len();
        let len = usize::try_from(offered.envelope.len).unwrap_or(usize::MAX).min(room);
        if len == 0 {
            self.acknowledges.push_back(offered.id);
            self.finish(core, world, offered.done(None));
            return;
        }
        if self.readings.len() >= MOST_READINGS {
            self.waiting.push_back(offered);
            return;
        }
        match self.begin_reading(core, &offered.receive, len, offered.id) {
            Ok(operation) => self.readings.push(Reading { offered, operation }),
            Err(why) => {
                self.acknowledges.push_back(offered.id);
                self.finish(core, world, offered.done(Some(why)));
            }
        }
    }

    fn begin_reading(
        &mut self,
        core: &EndpointState,
        receive: &Receive,
        len: usize,
        id: u32,
    ) -> Result<MessagePlace, Failure> {
        let connection = match &self.wire {
            Wire::Stp(stp) => stp.connection.as_ref(),
            Wire::Qpip(_) => {
                self.outgoing.push_back(Outgoing::Ask(id, len as u64));
                return Ok(MessagePlace::Pieces { at: 0, len });
            }
        };
        let Some(connection) = connection else {
            return Err(nonsense("it offers before it is connected"));
        };
        let stp = core.network.stp()?;
        if let Some((memory, at)) = receive.buffer.map(len) {
            let registered = stp.as_async().register_mapped(&memory);
            let part = registered.and_then(|region| region.part(at));
            let part = part.map_err(|error| failure(&error))?;
            return Ok(MessagePlace::Place(connection.read_into(&part, id).start()));
        }
        let memory = stp.memory(len).map_err(|error| failure(&error))?;
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
                MessagePlace::Pieces { .. } => Poll::Pending,
            };
            let Poll::Ready(result) = result else {
                at += 1;
                continue;
            };
            let offered = self.readings.remove(at).into_offered();
            let why = match result {
                Ok(message) => {
                    if let Some(message) = message {
                        offered.receive.buffer.fill(&message);
                    }
                    None
                }
                Err(failed) => Some(failure(&failed)),
            };
            self.finish(core, world, offered.done(why));
            self.read_next(core, world);
        }
    }

    /// One less is read: the next that waits has its turn.
    pub(super) fn read_next(&mut self, core: &mut EndpointState, world: &mut World) {
        if let Some(offered) = self.waiting.pop_front() {
            self.read_offered(core, world, offered);
        }
    }
}
