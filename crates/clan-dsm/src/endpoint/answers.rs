//! What is owed to other hosts: answers to what they sent.
//!
//! An answer can only leave when its link has room, and a link that waits for
//! room must not keep others from being heard: so answers wait here. Answers
//! are never answered, so two hosts cannot keep each other busy with them.

use super::message::{OutOfBand, OutOfBandKind, Port};
use crate::address::HostId;
use crate::error::Reason;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use landfall_tables::AgeList;

/// One other host.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// The endpoints that have a connection with it.
    pub(super) members: AgeList,
    answers: VecDeque<Answer>,
    /// Of the answers, those that end a connection.
    aborts: usize,
    /// Requests that wait at listeners: each may yet need a refusal.
    promised: usize,
    /// What found no room among the answers.
    overrun: u32,
    /// It is in the queue of those who have answers to get.
    is_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    message: OutOfBand,
    /// It ends a connection of this side: it counts against a bound of its own.
    is_end: bool,
}

/// Those hosts that there was something with.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    hosts: Vec<Host>,
    /// Who has answers to get, once each.
    wanting: VecDeque<HostId>,
    /// The most answers that wait for one host because of what it did.
    limit: usize,
    /// Ends of connections that wait to be told, over all hosts.
    aborts: usize,
}

impl Hosts {
    pub(super) const fn new(limit: usize) -> Self {
        Self { hosts: Vec::new(), wanting: VecDeque::new(), limit, aborts: 0 }
    }

    pub(super) fn of(&mut self, host: HostId) -> &mut Host {
        let index = usize::from(host.number());
        if self.hosts.len() <= index {
            self.hosts.resize_with(index + 1, Host::default);
        }
        &mut self.hosts[index]
    }

    fn get(&self, host: HostId) -> Option<&Host> {
        self.hosts.get(usize::from(host.number()))
    }

    /// How many ends of connections wait to be told.
    pub(super) const fn aborts(&self) -> usize {
        self.aborts
    }

    pub(super) fn has_answers(&self, host: HostId) -> bool {
        self.get(host).is_some_and(|host| !host.answers.is_empty() || host.overrun > 0)
    }

    /// A host that has had no answers to get, and has some now.
    pub(super) fn poll_wanting(&mut self) -> Option<HostId> {
        while let Some(host) = self.wanting.pop_front() {
            self.of(host).is_told = false;
            if self.has_answers(host) {
                return Some(host);
            }
        }
        None
    }

    /// The next answer for this host.
    pub(super) fn poll(&mut self, host: HostId) -> Option<OutOfBand> {
        if !self.has_answers(host) {
            return None;
        }
        let record = self.of(host);
        if let Some(Answer { message, is_end }) = record.answers.pop_front() {
            record.aborts -= usize::from(is_end);
            self.aborts -= usize::from(is_end);
            return Some(message);
        }
        let number = core::mem::take(&mut record.overrun);
        Some(OutOfBand {
            from: Port(0),
            to: Port(0),
            kind: OutOfBandKind::Overrun,
            reason: Some(Reason::NoRoom),
            number,
            from_session: 0,
            to_session: 0,
            body: [0; 40],
        })
    }

    /// Answers what a host sent, or counts that there is no room for it.
    pub(super) fn answer(&mut self, host: HostId, answer: OutOfBand) {
        let limit = self.limit;
        let record = self.of(host);
        if !record.merge(&answer) {
            if record.has_room(limit) && record.overrun == 0 {
                record.answers.push_back(Answer { message: answer, is_end: false });
            } else {
                record.overrun = record.overrun.saturating_add(1);
            }
        }
        self.tell(host);
    }

    /// Tells a host that a connection is over. The caller has held the bound.
    pub(super) fn abort(&mut self, host: HostId, abort: OutOfBand) {
        let record = self.of(host);
        record.answers.push_back(Answer { message: abort, is_end: true });
        record.aborts += 1;
        self.aborts += 1;
        self.tell(host);
    }

    /// A request is to wait at a listener: is there room for its refusal?
    pub(super) fn promise(&mut self, host: HostId) -> bool {
        let limit = self.limit;
        let record = self.of(host);
        let has_room = record.has_room(limit) && record.overrun == 0;
        record.promised += usize::from(has_room);
        has_room
    }

    /// The request waits no longer.
    pub(super) fn release(&mut self, host: HostId) {
        let record = self.of(host);
        record.promised = record.promised.saturating_sub(1);
    }

    /// Nobody is there any more who could be told.
    pub(super) fn forget(&mut self, host: HostId) {
        let record = self.of(host);
        record.answers = VecDeque::new();
        record.overrun = 0;
        let aborts = core::mem::take(&mut record.aborts);
        self.aborts -= aborts;
    }

    fn tell(&mut self, host: HostId) {
        if !core::mem::replace(&mut self.of(host).is_told, true) {
            self.wanting.push_back(host);
        }
    }
}

impl Host {
    fn has_room(&self, limit: usize) -> bool {
        self.answers.len() - self.aborts + self.promised < limit
    }

    /// Messages one after the other that were not delivered for one reason are
    /// told of in one answer.
    fn merge(&mut self, answer: &OutOfBand) -> bool {
        let Some((number, count)) = answer.undelivered() else { return false };
        let Some(Answer { message: last, .. }) = self.answers.back_mut() else { return false };
        let Some((first, so_far)) = last.undelivered() else { return false };
        let follows = first.wrapping_add(so_far) == number;
        let Some(sum) = so_far.checked_add(count).filter(|_| follows) else { return false };
        let joined = OutOfBand { number: first, body: last.body, ..*answer };
        if joined != *last {
            return false;
        }
        last.set_undelivered(first, sum);
        true
    }
}

impl OutOfBand {
    /// Which messages were not delivered: the number of the first, and how many.
    pub(super) fn undelivered(&self) -> Option<(u32, u32)> {
        let [a, b, c, d, ..] = self.body;
        let count = u32::from_be_bytes([a, b, c, d]);
        (self.kind == OutOfBandKind::Undelivered && count > 0).then_some((self.number, count))
    }

    pub(super) fn set_undelivered(&mut self, first: u32, count: u32) {
        self.number = first;
        self.body = [0; 40];
        self.body[..4].copy_from_slice(&count.to_be_bytes());
    }
}
