//! The reference model: what the users of both sides know, in plain lists.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use landfall_placement::Area;

use super::frame::SegmentFacts;
use crate::adapter::Service;
use crate::tcp::Mapping;
use crate::tcp::tcb::CloseReason;
use crate::work::{MemoryKey, Operation, QueuePairId};

/// A posted request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) id: u64,
    /// Its memory, in order, and under which keys.
    pub(super) places: Vec<(MemoryKey, Area)>,
    pub(super) len: usize,
    /// Of a send: where it ends in the stream.
    pub(super) end: usize,
    /// Of a receive: this many bytes were reported as parts.
    pub(super) reported: usize,
    /// Does it complete where it is done well?
    pub(super) is_signaled: bool,
}

/// How far a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Made, and for datagrams bound; or offered.
    Waiting,
    /// Asking for a connection.
    Opening,
    /// Connected.
    Open,
    /// It was told to be over.
    Closed(CloseReason),
}

/// A queue pair, and all that ever happened to it.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) side: usize,
    pub(super) id: QueuePairId,
    pub(super) service: Service,
    pub(super) stage: Stage,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    /// The queue pair at the other end.
    pub(super) peer: Option<usize>,
    /// One that was at the other end before it, and was given up: see
    /// [`World::hear_accepted`](super::world::World::hear_accepted).
    pub(super) former_peer: Option<usize>,
    /// Of the asker: what both sides said on the wire to open the connection.
    pub(super) opening: Opening,
    pub(super) is_shut: bool,
    /// The user reset or destroyed it.
    pub(super) is_given_up: bool,
    pub(super) is_destroyed: bool,
    pub(super) has_peer_finished: bool,
    /// All bytes that were posted to be sent, and where messages end in them.
    pub(super) stream: Vec<u8>,
    pub(super) ends: BTreeSet<usize>,
    /// The words of messages, by their ends.
    pub(super) words: BTreeMap<usize, u32>,
    pub(super) sends: VecDeque<Request>,
    /// How many of the silent ones are done, where it is not known yet which.
    pub(super) silently_done: u32,
    pub(super) receives: VecDeque<Request>,
    /// Where in the other side's stream the first posted receive begins.
    pub(super) front: usize,
    /// So far into the other side's stream reached the memory that was posted: not less once
    /// that stream has ended and what is left of it was given back.
    pub(super) memory_end: usize,
    /// So much of the other side's stream was acknowledged.
    pub(super) told: usize,
    /// A request of each queue ended without success: none after it succeeds.
    pub(super) has_failed: [bool; 2],
    /// Datagrams that were posted to be sent.
    pub(super) datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

impl Pair {
    pub(super) fn new(side: usize, id: QueuePairId, service: Service) -> Self {
        Self {
            side,
            id,
            service,
            stage: Stage::Waiting,
            local: None,
            remote: None,
            peer: None,
            former_peer: None,
            opening: Opening::default(),
            is_shut: false,
            is_given_up: false,
            is_destroyed: false,
            has_peer_finished: false,
            stream: Vec::new(),
            ends: BTreeSet::new(),
            words: BTreeMap::new(),
            sends: VecDeque::new(),
            silently_done: 0,
            receives: VecDeque::new(),
            front: 0,
            memory_end: 0,
            told: 0,
            has_failed: [false; 2],
            datagrams: Vec::new(),
        }
    }

    pub(super) const fn is_tcp(&self) -> bool {
        matches!(self.service, Service::Tcp(_))
    }

    /// Do its messages keep their ends?
    pub(super) const fn has_messages(&self) -> bool {
        matches!(self.service, Service::Tcp(Mapping::Segment | Mapping::Message))
    }

    /// Is each of its messages one segment?
    pub(super) const fn has_whole_messages(&self) -> bool {
        matches!(self.service, Service::Tcp(Mapping::Segment))
    }

    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed(_))
    }

    /// Does it have a connection that is alive, as far as its user knows?
    pub(super) const fn is_alive(&self) -> bool {
        matches!(self.stage, Stage::Open) && !self.is_given_up
    }

    /// Has it, or had it, a connection of these ends?
    pub(super) fn connects(&self, side: usize, local: SocketAddr, remote: SocketAddr) -> bool {
        self.side == side
            && self.is_tcp()
            && (self.local, self.remote) == (Some(local), Some(remote))
    }

    /// The requests of one of its queues.
    pub(super) const fn queue(&self, operation: Operation) -> &VecDeque<Request> {
        match operation {
            Operation::Send => &self.sends,
            Operation::Receive => &self.receives,
        }
    }

    pub(super) const fn queue_mut(&mut self, operation: Operation) -> &mut VecDeque<Request> {
        match operation {
            Operation::Send => &mut self.sends,
            Operation::Receive => &mut self.receives,
        }
    }

    /// The first end of a message behind a place in its stream.
    pub(super) fn end_behind(&self, place: usize) -> Option<usize> {
        self.ends.range(place + 1..).next().copied()
    }
}

/// What one side said about the stream that it sends and the one that it receives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    /// The number of its opening.
    pub(super) first: u32,
    /// The shift of its windows.
    pub(super) shift: Option<u8>,
    /// How far the other side may send, in its stream; and so far already with
    /// what the opening said.
    pub(super) edge: u64,
    pub(super) offered: u64,
    /// The same as `edge`, with what one has said that was at this end before and was given up:
    /// the other side may still hear of that.
    pub(super) reach: u64,
}

/// How a connection was opened: one question, and all answers to it. A listener that forgot
/// the question for want of room, and is asked again, answers with another number. The first
/// acknowledgement of the asker tells which answer it heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Opening {
    pub(super) question: Option<Flow>,
    pub(super) answers: Vec<Flow>,
    /// Which of the answers the asker heard.
    pub(super) heard: Option<usize>,
}

impl Opening {
    /// The asker sends the question, maybe again: then it may offer more. False: its number
    /// is another one than before.
    pub(super) fn ask(&mut self, said: Flow) -> bool {
        self.question.get_or_insert(said).merge(&said)
    }

    /// The other side sends an answer, maybe again.
    pub(super) fn answer(&mut self, said: Flow) {
        if !self.answers.iter_mut().any(|known| known.merge(&said)) {
            self.answers.push(said);
        }
    }

    /// The asker acknowledges this number. Its first acknowledgement is the number behind the
    /// answer that it heard. False: there is no such answer.
    pub(super) fn hear(&mut self, number: u32) -> bool {
        if self.heard.is_none() {
            let is_it = |answer: &Flow| answer.first.wrapping_add(1) == number;
            self.heard = self.answers.iter().position(is_it);
        }
        self.heard.is_some()
    }

    /// Who listens says where it is, of an answer that the asker has not heard: whether this
    /// segment is one of those, and then what is wrong with it. It acknowledges the question
    /// alone and offers what that answer did, but for less than a unit of it (RFC 7323, 2.4).
    pub(super) fn says_of_unheard(&self, said: &SegmentFacts) -> Option<Option<String>> {
        let is_it = |answer: &Flow| answer.first.wrapping_add(1) == said.seq;
        let nth = self.answers.iter().position(is_it).filter(|nth| self.heard != Some(*nth))?;
        let (question, answer) = (self.question?, self.answers[nth]);
        let shift = answer.shift_with(&question);
        let edge = u64::from(said.window) << shift;
        Some(if said.ack != question.first.wrapping_add(1) {
            Some(String::from("acknowledges more than the question before its answer was heard"))
        } else if edge > answer.edge || edge + (1 << shift) <= answer.edge {
            Some(format!("offers up to {edge}, and its answer up to {}", answer.edge))
        } else {
            None
        })
    }

    /// Who listens took an answer for new, and knows nothing of what it offered since.
    pub(super) fn begin_anew(&mut self) {
        for answer in &mut self.answers {
            answer.edge = answer.offered;
        }
    }

    /// What the asker said, or the other side as the asker heard it.
    pub(super) fn flow_mut(&mut self, of_asker: bool) -> Option<&mut Flow> {
        if of_asker { self.question.as_mut() } else { self.answers.get_mut(self.heard?) }
    }

    /// The same of both: first of the side that is meant, then of its peer.
    pub(super) fn flows(&self, of_asker: bool) -> Option<(Flow, Flow)> {
        let (question, answer) = (self.question?, *self.answers.get(self.heard?)?);
        Some(if of_asker { (question, answer) } else { (answer, question) })
    }
}

impl Flow {
    /// By how much its windows are shifted: both sides have to say that they shift.
    pub(super) fn shift_with(&self, other: &Self) -> u8 {
        self.shift.filter(|_| other.shift.is_some()).unwrap_or(0)
    }

    /// Takes in what is said again. False: the number is another one.
    fn merge(&mut self, said: &Self) -> bool {
        let is_same = self.first == said.first;
        if is_same {
            self.offered = self.offered.max(said.offered);
            self.edge = self.edge.max(said.edge);
            self.reach = self.reach.max(said.reach);
        }
        is_same
    }
}

/// What both users know.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) pairs: Vec<Pair>,
}

impl Ledger {
    /// The queue pair of this name.
    pub(super) fn find(&self, side: usize, id: QueuePairId) -> Option<usize> {
        self.pairs.iter().position(|pair| pair.side == side && pair.id == id)
    }

    /// The newest connection of these ends.
    pub(super) fn connection(
        &self,
        side: usize,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<usize> {
        self.pairs.iter().rposition(|pair| pair.connects(side, local, remote))
    }

    /// Where each posted receive of a queue pair begins and ends in the stream of
    /// its other end, as far as the ends of messages decide that.
    pub(super) fn layout(&self, index: usize) -> Option<Vec<(usize, usize)>> {
        let pair = &self.pairs[index];
        let peer = &self.pairs[pair.peer?];
        if pair.has_messages() && !peer.has_messages() {
            // A stream of bytes pushes as it likes.
            return None;
        }
        let mut start = pair.front;
        let covers = pair.receives.iter().map(|request| {
            let full = start + request.len;
            let end = peer.end_behind(start).filter(|_| pair.has_messages());
            let begin = core::mem::replace(&mut start, full.min(end.unwrap_or(full)));
            (begin, start)
        });
        Some(covers.collect())
    }
}
