//! A client's connection; clients without a connection: each datagram is answered by itself.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use landfall::qpip::{
    Access, CloseReason, Completion, Mapping, Memory, MemoryRegion, Operation, Phase, PostError,
    QueuePair, QueuePairId, QueuePairOptions, Status,
};
use landfall_placement::Random;

use super::client_buffers::{ClientBuffers, PIECES};
use super::{BIN, Common, LETTERS};
use crate::serve::ledger::{Ledger, parting};
use crate::serve::{Service, answers_anything};

/// This many sends of one client are under way at most: what comes meanwhile goes together.
const SENDS: u32 = 32;
/// Of characters, which never end, this many.
const AHEAD: u32 = 4;
/// Places in the completion queue for one client; a byte stream takes one more.
pub(super) const COMPLETIONS: u32 = SENDS + PIECES as u32 + 1;

/// A queue pair's memory, before it has a client.
pub(super) struct Idle(Option<ClientBuffers>);

impl Idle {
    pub(super) fn new(common: &Common) -> Result<(Self, QueuePair)> {
        let options = QueuePairOptions {
            send_depth: SENDS,
            receive_depth: PIECES as u32,
            ..QueuePairOptions::tcp(Mapping::Stream)
        };
        let mut pair = common.domain.queue_pair(&options, &common.done, &common.done)?;
        let idle = match common.service {
            Service::Echo => Self(Some(ClientBuffers::new(&common.domain)?)),
            Service::Discard | Service::Source => Self(None),
        };
        for id in 0..PIECES {
            post(&mut pair, idle.0.as_ref(), id, common)?;
        }
        Ok((idle, pair))
    }
}

/// Room for what comes: the client's own, or what all share.
fn post(
    pair: &mut QueuePair,
    room: Option<&ClientBuffers>,
    id: usize,
    common: &Common,
) -> Result<()> {
    let part = match room {
        Some(room) => room.piece(id)?,
        None => {
            let size = (BIN / PIECES) as u64;
            common.bin.part(id as u64 * size..(id as u64 + 1) * size)?
        }
    };
    unless_over(pair.post_receive(id as u64, &[part])).map(drop)
}

/// Was it posted? A connection that is over takes nothing, and is noticed elsewhere.
fn unless_over(posted: Result<(), PostError>) -> Result<bool> {
    match posted {
        Ok(()) => Ok(true),
        Err(PostError::Ended) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A client.
pub(super) struct Session {
    pair: QueuePair,
    /// Where what is echoed lies.
    room: Option<ClientBuffers>,
    name: String,
    sending: u32,
    received: u64,
    sent: u64,
    has_peer_finished: bool,
    has_finished: bool,
    /// When something came or went last.
    moved: Instant,
}

impl Session {
    pub(super) fn new(Idle(room): Idle, pair: QueuePair) -> Self {
        let remote = pair.remote_address();
        let name = remote.map_or_else(|| "a client".to_owned(), |remote| remote.to_string());
        let (received, sent) = (0, 0);
        let (has_peer_finished, has_finished) = (false, false);
        let moved = Instant::now();
        Self {
            pair,
            room,
            name,
            sending: 0,
            received,
            sent,
            has_peer_finished,
            has_finished,
            moved,
        }
    }

    /// The host at the other end.
    pub(super) fn source(&self) -> Option<IpAddr> {
        self.pair.remote_address().map(|remote| remote.ip())
    }

    /// So long nothing came or went.
    pub(super) fn silent(&self) -> Duration {
        self.moved.elapsed()
    }

    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.pair.phase(), Phase::Closed(_))
    }

    /// Its last line: why it is over, or what else is said about that.
    pub(super) fn parting(&self, why: &dyn Display) -> String {
        match self.pair.phase() {
            Phase::Closed(CloseReason::Reset) => {
                parting(self.received, self.sent, "reset by the client")
            }
            Phase::Closed(CloseReason::TimedOut) => {
                parting(self.received, self.sent, "the client does not answer")
            }
            _ => parting(self.received, self.sent, why),
        }
    }

    /// Something that was posted is done.
    pub(super) fn completed(
        &mut self,
        next: &Completion,
        common: &Common,
        ledger: &Ledger,
    ) -> Result<()> {
        let id = next.id as usize;
        self.moved = Instant::now();
        match (next.operation, next.status) {
            (Operation::Receive, Status::Success) => {
                ledger.moved(u64::from(next.len), 0);
                self.received += u64::from(next.len);
                self.received_in(id, next, common)?;
            }
            // The other side has said all; what it wants to hear it still hears.
            (Operation::Receive, Status::Flushed) => self.has_peer_finished = true,
            (Operation::Send, Status::Success) => {
                ledger.moved(0, u64::from(next.len));
                self.sent += u64::from(next.len);
                self.sending = self.sending.saturating_sub(1);
                if let Some(room) = &mut self.room {
                    room.sent(id);
                }
            }
            (_, status) => bail!("{status}"),
        }
        self.advance(common)
    }

    fn received_in(&mut self, id: usize, next: &Completion, common: &Common) -> Result<()> {
        match &mut self.room {
            Some(room) => {
                let until = u64::from(next.offset) + u64::from(next.len);
                room.came(id, until, next.ends_request);
            }
            None if next.ends_request && !self.has_peer_finished => {
                post(&mut self.pair, None, id, common)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Sends what can be sent, makes room for what may come, and ends what is at its end.
    pub(super) fn advance(&mut self, common: &Common) -> Result<()> {
        match common.service {
            Service::Echo => self.send_back(common)?,
            Service::Discard => {}
            // It goes on until the client leaves, also where that has said all.
            Service::Source => return self.send_letters(common),
        }
        let is_drained = self.room.as_ref().is_none_or(ClientBuffers::is_drained);
        if self.has_peer_finished && is_drained && !self.has_finished && !self.is_over() {
            self.has_finished = true;
            // Reset in this moment is over all the same.
            let _ = self.pair.shutdown();
        }
        Ok(())
    }

    fn send_back(&mut self, common: &Common) -> Result<()> {
        let Some(room) = &mut self.room else { return Ok(()) };
        while self.sending < SENDS
            && let Some((id, part)) = room.next_to_send()?
        {
            if !unless_over(self.pair.post_send(id as u64, &[part]))? {
                return Ok(());
            }
            self.sending += 1;
        }
        while let Some(id) = room.take_empty() {
            if !self.has_peer_finished {
                post(&mut self.pair, Some(room), id, common)?;
            }
        }
        Ok(())
    }

    fn send_letters(&mut self, common: &Common) -> Result<()> {
        while self.sending < AHEAD {
            let part = common.letters.part(0..LETTERS as u64)?;
            if !unless_over(self.pair.post_send(0, &[part]))? {
                return Ok(());
            }
            self.sending += 1;
        }
        Ok(())
    }
}

/// This many datagrams are being answered at a time; what comes beside them is lost, as
/// datagrams may be.
const PLACES: u32 = 32;
/// Longer than any.
const PLACE: u64 = 64 << 10;
/// Answers with characters have at most this many.
const ANSWER: u64 = 512;
pub(super) const DATAGRAM_COMPLETIONS: u32 = 2 * PLACES + 1;

pub(super) struct Datagrams {
    pair: QueuePair,
    local: SocketAddr,
    memory: MemoryRegion,
    random: Random,
}

impl Datagrams {
    pub(super) fn open(common: &Common, local: SocketAddr) -> Result<Self> {
        let options = QueuePairOptions {
            send_depth: PLACES,
            receive_depth: PLACES,
            ..QueuePairOptions::udp()
        };
        let mut pair = common.domain.queue_pair(&options, &common.done, &common.done)?;
        pair.bind(local)?;
        let memory = Memory::zeroed(PLACES as usize * PLACE as usize);
        let memory = common.domain.register(memory, Access::ReadWrite)?;
        // How long an answer is nobody has to guess.
        let mut datagrams = Self { pair, local, memory, random: Random::new([8; 32]) };
        for place in 0..u64::from(PLACES) {
            datagrams.post(place)?;
        }
        Ok(datagrams)
    }

    pub(super) fn id(&self) -> QueuePairId {
        self.pair.id()
    }

    fn post(&mut self, place: u64) -> Result<()> {
        // One byte less than a place: a request of UDP's longest, and no more.
        let part = self.memory.part(place * PLACE..(place + 1) * PLACE - 1)?;
        Ok(self.pair.post_receive(place, &[part])?)
    }

    pub(super) fn completed(
        &mut self,
        next: &Completion,
        common: &Common,
        ledger: &Ledger,
    ) -> Result<()> {
        if next.operation == Operation::Send {
            if next.status == Status::Success {
                ledger.datagram_went(u64::from(next.len));
            }
            // Characters were sent from elsewhere, and their request is posted already.
            return if common.service == Service::Echo { self.post(next.id) } else { Ok(()) };
        }
        if next.status == Status::Success {
            ledger.datagram_came(u64::from(next.len));
        }
        let is_answered = next.status == Status::Success && self.answer(next, common)?;
        // What is echoed lies there until it has left.
        if is_answered && common.service == Service::Echo { Ok(()) } else { self.post(next.id) }
    }

    /// Answers a datagram, if it is to be; true: an answer is on its way.
    fn answer(&mut self, came: &Completion, common: &Common) -> Result<bool> {
        let Some(from) = came.from else { return Ok(false) };
        if answers_anything(from.port()) || from == self.local {
            return Ok(false);
        }
        let part = match common.service {
            Service::Discard => return Ok(false),
            Service::Echo => {
                let start = came.id * PLACE;
                self.memory.part(start..start + u64::from(came.len))?
            }
            Service::Source => {
                let len = 1 + self.random.below(ANSWER);
                let start = self.random.below(LETTERS as u64 - ANSWER);
                common.letters.part(start..start + len)?
            }
        };
        match self.pair.post_send_to(came.id, &[part], from) {
            Ok(()) => Ok(true),
            // Nothing to send back, or too much is under way: a datagram is lost.
            Err(PostError::Empty | PostError::QueueFull | PostError::CompletionQueueFull) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
