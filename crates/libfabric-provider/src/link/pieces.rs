//! Long messages where memory of the other side is not read: the receiver asks for one that was
//! offered once it has a place for it, and it comes in records, between others.

use super::receive::{MessagePlace, Reading};
use super::transmit::{Bytes, Outgoing};
use super::wire::Wire;
use super::{Link, nonsense};
use crate::completion::Failure;
use crate::core::EndpointState;
use crate::record::{HEADER, Kind, Record};
use crate::ring::MOST_PAYLOAD;
use crate::world::World;

/// What is left to be sent of a message that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pieces {
    id: u32,
    at: usize,
    len: usize,
}

impl Link {
    /// The other side has a place for a message that was offered, for this much of it.
    pub(super) fn asked(&mut self, record: &Record) -> Result<(), Failure> {
        let id = record.id;
        let is_coming =
            |outgoing: &Outgoing| matches!(outgoing, Outgoing::Pieces(pieces) if pieces.id == id);
        let offered = self.offered.get(&id).map_or(0, |send| send.bytes.len() as u64);
        let is_right = matches!(self.wire, Wire::Qpip(_))
            && (1..=offered).contains(&record.total)
            && !self.outgoing.iter().any(is_coming);
        if !is_right {
            return Err(nonsense("it asks for what is not offered"));
        }
        let len = record.total as usize;
        self.outgoing.push_back(Outgoing::Pieces(Pieces { id, at: 0, len }));
        Ok(())
    }

    /// Sends the next piece. Behind it others have their turn; all of them wait where there is no
    /// room.
    pub(super) fn compose_piece(&mut self, pieces: Pieces) -> Result<Option<Pieces>, Failure> {
        let Pieces { id, at, len } = pieces;
        // What was acknowledged meanwhile is the program's again.
        let Some(mut send) = self.offered.remove(&id) else { return Ok(None) };
        let now = (len - at).min(MOST_PAYLOAD);
        let record = Record { id, len: now as u32, ..Record::new(Kind::Piece) };
        let composed = self.compose(record, Some((&send.bytes, at)));
        let at = at + if matches!(composed, Ok(true)) { now } else { 0 };
        if at == len {
            // All of it has left: nobody reads it from here.
            send.bytes = Bytes::Copy(Vec::new());
        }
        self.offered.insert(id, send);
        composed?;
        Ok((at < len).then_some(Pieces { id, at, len }))
    }

    /// A piece of a message that was asked for.
    pub(super) fn place_piece(
        &mut self,
        core: &mut EndpointState,
        world: &mut World,
        record: &Record,
    ) -> Result<(), Failure> {
        let Self { readings, wire, receive, .. } = self;
        let found = readings.iter().position(|reading| reading.is_of(record.id));
        let Some(nth) = found else { return Err(nonsense("a piece that nobody has asked for")) };
        let Reading { offered, operation: MessagePlace::Pieces { at, len } } = &mut readings[nth]
        else {
            return Err(nonsense("a piece of a message that is read"));
        };
        let come = record.len as usize;
        if come == 0 || come > *len - *at {
            return Err(nonsense("a piece of another length"));
        }
        let mut position = receive.consumed + HEADER as u64;
        let mut copied = Ok(());
        offered.receive.buffer.write(*at, come, |piece| {
            if copied.is_ok() {
                copied = wire.copy_out(position, piece);
            }
            position += piece.len() as u64;
        });
        copied?;
        *at += come;
        if *at == *len {
            let offered = readings.remove(nth).into_offered();
            self.acknowledges.push_back(record.id);
            self.finish(core, world, offered.done(None));
            self.read_next(core, world);
        }
        Ok(())
    }
}
