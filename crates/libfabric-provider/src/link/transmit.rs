//! Messages leave: short ones are written into the ring of the other side, long ones are
//! offered there and read from where they are.

use std::task::Poll;

use landfall::stp::{Payload, ReadRequest, Reason};

use super::memory::Access;
use super::pieces::Pieces;
use super::{Link, failure, poll};
use crate::abi::FI_EIO;
use crate::buffer::Buffer;
use crate::completion::Failure;
use crate::core::{EndpointState, Report};
use crate::record::{HEADER, Kind, Record};
use crate::ring::MOST_PAYLOAD;
use crate::world::World;

/// Writes up to this length for which nobody waits are answered with later ones. Few of them
/// must not fill the ring.
pub(super) const SHORT: u64 = 2 << 10;

/// When a send is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Its memory may be used again.
    Queued,
    /// It is in memory of the other side.
    Transmitted,
    /// It is in its place at the other side.
    Delivered,
}

/// The bytes of a message.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// The program's, until the operation completes.
    Buffer(Buffer),
    /// A copy.
    Copy(Vec<u8>),
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.len(),
            Self::Copy(bytes) => bytes.len(),
        }
    }
}

/// A message to be sent.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) bytes: Bytes,
    pub(crate) level: Level,
    /// Its memory is the program's again when the call returns.
    pub(crate) injects: bool,
    pub(crate) report: Report,
}

/// What waits for its turn. All of it leaves in the order in which it was asked for.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Message(Send),
    Access(Access),
    /// A remote write has begun that the other side is to be told of: length and data.
    Written(u64, u64),
    /// Something is said of the connection.
    Control(Kind, Vec<u8>),
    /// This much of a message that was offered is asked for.
    Ask(u32, u64),
    /// What was asked for.
    Pieces(Pieces),
}

impl Outgoing {
    pub(super) fn report(self) -> Option<Report> {
        match self {
            Self::Message(send) => Some(send.report),
            Self::Access(access) => Some(access.report),
            // That of pieces is with the message that was offered.
            Self::Written(..) | Self::Control(..) | Self::Ask(..) | Self::Pieces(_) => None,
        }
    }
}

impl Link {
    /// Sends a message, at once if nothing waits before it.
    pub(crate) fn send(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        send: Send,
    ) -> Result<(), Failure> {
        self.outgoing.push_back(Outgoing::Message(send));
        self.flush(core, world)?;
        // It is the last message, if it waits: pieces of others may be behind it.
        let last = self.outgoing.iter_mut().rev().find_map(|outgoing| match outgoing {
            Outgoing::Message(send) => Some(send),
            _ => None,
        });
        if let Some(send) = last
            && let (true, Bytes::Buffer(buffer)) = (send.injects, &send.bytes)
        {
            send.bytes = Bytes::Copy(buffer.to_vec(buffer.len()));
        }
        Ok(())
    }

    /// Reads or writes memory of the other side.
    pub(crate) fn access(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        access: Access,
    ) -> Result<(), Failure> {
        self.outgoing.push_back(Outgoing::Access(access));
        self.flush(core, world)
    }

    pub(super) fn compose_waiting(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
    ) -> Result<(), Failure> {
        if !self.wire.is_writable() {
            return Ok(());
        }
        while let Some(id) = self.acknowledges.front().copied() {
            if !self.compose(Record { id, ..Record::new(Kind::Acknowledge) }, None)? {
                break;
            }
            self.acknowledges.pop_front();
        }
        while let Some(outgoing) = self.outgoing.pop_front() {
            let left = match outgoing {
                Outgoing::Message(send) => self.compose_message(core, world, send)?,
                Outgoing::Written(total, data) => {
                    let record = Record { total, data: Some(data), ..Record::new(Kind::Written) };
                    let is_composed = self.compose(record, None)?;
                    (!is_composed).then_some(Outgoing::Written(total, data))
                }
                Outgoing::Control(kind, data) => {
                    let record = Record { len: data.len() as u32, ..Record::new(kind) };
                    let bytes = Bytes::Copy(data);
                    match (self.compose(record, Some((&bytes, 0)))?, bytes) {
                        (false, Bytes::Copy(data)) => Some(Outgoing::Control(kind, data)),
                        _ => None,
                    }
                }
                Outgoing::Ask(id, total) => {
                    let record = Record { id, total, ..Record::new(Kind::Ask) };
                    (!self.compose(record, None)?).then_some(Outgoing::Ask(id, total))
                }
                Outgoing::Pieces(pieces) => match self.compose_piece(pieces)? {
                    Some(left) if left == pieces => Some(Outgoing::Pieces(left)),
                    left => {
                        self.outgoing.extend(left.map(Outgoing::Pieces));
                        None
                    }
                },
                Outgoing::Access(access) => {
                    // Bytes before it must not leave behind it.
                    self.put_composed()?;
                    match self.begin_access(core, world, access)? {
                        Some(written @ Outgoing::Written(..)) => {
                            self.outgoing.push_front(written);
                            continue;
                        }
                        left => left,
                    }
                }
            };
            if let Some(left) = left {
                self.outgoing.push_front(left);
                break;
            }
        }
        if self.receive.must_tell() {
            self.compose(Record::new(Kind::Credit), None)?;
        }
        Ok(())
    }

    /// Writes a message into the ring, or offers it there. Gives it back where there is no room.
    fn compose_message(
        &mut self,
        core: &EndpointState,
        world: &mut World,
        send: Send,
    ) -> Result<Option<Outgoing>, Failure> {
        let len = send.bytes.len();
        let mut record = Record::new(Kind::Message);
        (record.tag, record.data, record.total) = (send.tag, send.data, len as u64);
        if len <= MOST_PAYLOAD {
            record.len = len as u32;
            record.wants_acknowledge = send.level == Level::Delivered;
        } else {
            record.kind = Kind::Offer;
        }
        let is_kept = record.kind == Kind::Offer || record.wants_acknowledge;
        if is_kept {
            record.id = self.free_id();
        }
        let payload = (record.kind == Kind::Message).then_some((&send.bytes, 0));
        if !self.compose(record, payload)? {
            return Ok(Some(Outgoing::Message(send)));
        }
        if is_kept {
            let mut send = send;
            if record.kind == Kind::Message {
                // It has left: nobody reads it from here.
                send.bytes = Bytes::Copy(Vec::new());
            }
            self.offered.insert(record.id, send);
        } else if send.level == Level::Transmitted {
            self.transmitted.push_back((self.send.composed(), send.report));
        } else {
            core.report(world, &send.report, None);
        }
        Ok(None)
    }

    fn free_id(&mut self) -> u32 {
        loop {
            self.next_id = self.next_id.wrapping_add(1);
            if !self.offered.contains_key(&self.next_id) {
                return self.next_id;
            }
        }
    }

    /// Writes a record into the memory here that looks like the ring, with what is in such bytes
    /// from there on. Was there room?
    pub(super) fn compose(
        &mut self,
        mut record: Record,
        payload: Option<(&Bytes, usize)>,
    ) -> Result<bool, Failure> {
        let makes_room = record.kind == Kind::Credit;
        let Some(place) = self.send.compose(record.len as usize, makes_room) else {
            return Ok(false);
        };
        let consumed = self.receive.tell();
        if let Some((position, len)) = place.pad {
            let pad = Record { len: len as u32, consumed, position, ..Record::new(Kind::Pad) };
            self.wire.stage(position, &pad.encode())?;
        }
        (record.consumed, record.position) = (consumed, place.position);
        self.wire.stage(place.position, &record.encode())?;
        let mut at = place.position + HEADER as u64;
        match payload {
            None => {}
            Some((Bytes::Copy(bytes), from)) => {
                let end = bytes.len().min(from + record.len as usize);
                self.wire.stage(at, &bytes[from..end])?;
            }
            Some((Bytes::Buffer(buffer), from)) => {
                let mut staged = Ok(());
                buffer.read(from, record.len as usize, |piece| {
                    if staged.is_ok() {
                        staged = self.wire.stage(at, piece);
                    }
                    at += piece.len() as u64;
                });
                staged?;
            }
        }
        Ok(true)
    }

    /// What was composed is written to the other side.
    pub(super) fn put_composed(&mut self) -> Result<(), Failure> {
        while let Some(range) = self.send.next_put(self.wire.puts()) {
            let is_awaited = self.transmitted.back().is_some_and(|(end, _)| *end > range.start);
            self.wire.put(range, is_awaited)?;
        }
        Ok(())
    }

    /// Takes note of what is in the ring of the other side. Is there more than before?
    pub(super) fn finish_puts(
        &mut self,
        core: &EndpointState,
        world: &mut World,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        while let Some(end) = self.wire.next_done(&self.waker)? {
            moved = true;
            self.send.note_done(end);
            while let Some((wanted, report)) = self.transmitted.front().copied() {
                if wanted > end {
                    break;
                }
                self.transmitted.pop_front();
                core.report(world, &report, None);
            }
        }
        Ok(moved)
    }

    /// The other side has a place for a message that was offered.
    pub(super) fn answer_read(
        &mut self,
        core: &EndpointState,
        world: &mut World,
        request: ReadRequest,
    ) {
        let Some(send) = self.offered.remove(&request.opaque()) else {
            request.refuse(Reason::Refused);
            return;
        };
        let wanted = usize::try_from(request.len()).unwrap_or(usize::MAX);
        let len = wanted.min(send.bytes.len());
        match payload(core, &send.bytes, len) {
            Ok(payload) => {
                let answer = request.answer(payload).start();
                self.answers.push((answer, send));
            }
            Err(why) => {
                request.refuse(Reason::Refused);
                core.report(world, &send.report, Some(why));
            }
        }
    }

    pub(super) fn finish_answers(&mut self, core: &EndpointState, world: &mut World) {
        let waker = self.waker();
        let mut at = 0;
        while let Some((answer, _)) = self.answers.get_mut(at) {
            let Poll::Ready(result) = poll(answer, &waker) else {
                at += 1;
                continue;
            };
            let (_, send) = self.answers.remove(at);
            let why = result.err().map(|failed| failure(&failed));
            core.report(world, &send.report, why);
        }
    }

    /// A message is in its place at the other side, or as much of it as was wanted.
    pub(super) fn acknowledged(&mut self, core: &EndpointState, world: &mut World, id: u32) {
        if let Some(send) = self.offered.remove(&id) {
            core.report(world, &send.report, None);
        }
    }
}

/// The first bytes of a message, to be sent without a copy where they lie in one piece.
pub(super) fn payload(core: &EndpointState, bytes: &Bytes, len: usize) -> Result<Payload, Failure> {
    let buffer = match bytes {
        Bytes::Copy(bytes) => return Ok(Payload::from(bytes.get(..len).unwrap_or(bytes).to_vec())),
        Bytes::Buffer(buffer) => buffer,
    };
    let Some((memory, at)) = buffer.map(len) else {
        return Ok(Payload::from(buffer.to_vec(len)));
    };
    let registered = core.network.stp()?.as_async().register_mapped(&memory);
    let part = registered.and_then(|region| region.part(at));
    part.map(Payload::from).map_err(|error| Failure::new(FI_EIO, error.to_string()))
}
