//! Frames that had to be kept, put into place packet by packet.
//!
//! Each packet is checked when its turn comes, not when it arrived: what was
//! revoked meanwhile is not touched.

use core::ops::Range;

use landfall_placement::{Instant, Landing, Spans, Ticket};

use super::Nic;
use super::arrive::Checked;
use super::line::Lands;
use crate::address::Kind;
use crate::error::Reason;
use crate::ids::LinkId;
use crate::ids::{Purpose, pack};
use crate::link::Kept;
use crate::wire::Entry;

/// A kept frame whose turn it is.
#[derive(Debug)]
pub(super) struct Depositing {
    link: LinkId,
    kept: Kept,
    /// Which packet is next, and where in the payload it begins.
    entry: usize,
    at: usize,
    /// The packet that is being written. Its number is in the ticket.
    landing: Option<Lands>,
    number: u32,
}

/// What comes of looking at the next packet.
enum Step {
    /// It has to be written.
    Write(Range<usize>, Ticket),
    /// It is dealt with.
    Done,
    /// There is none.
    End,
}

impl Nic {
    /// The next bytes of a kept frame that have to be written.
    pub(super) fn next_deposit(
        &mut self,
        now: Instant,
        into: &mut Spans,
    ) -> Option<(Range<usize>, Ticket)> {
        loop {
            if self.depositing.is_none() {
                self.depositing = Some(self.take_kept()?);
            }
            let mut current = self.depositing.take()?;
            if current.landing.is_some() {
                // The driver has not said yet what became of the last one.
                self.depositing = Some(current);
                return None;
            }
            match self.step(now, &mut current, into) {
                Step::Write(range, ticket) => {
                    self.depositing = Some(current);
                    return Some((range, ticket));
                }
                Step::Done => self.depositing = Some(current),
                Step::End => {
                    self.links.give_back(current.link, current.kept);
                    self.applied(now, current.link);
                }
            }
        }
    }

    /// Is a frame of this link being put into place packet by packet?
    pub(super) fn is_depositing(&self, link: LinkId) -> bool {
        self.depositing.as_ref().is_some_and(|current| current.link == link)
    }

    /// The bytes of the kept frame that is being deposited.
    pub(super) fn deposited(&self, range: Range<usize>) -> Option<&[u8]> {
        self.depositing.as_ref()?.kept.frame()?.payload().get(range)
    }

    fn take_kept(&mut self) -> Option<Depositing> {
        while let Some(link) = self.deposits.front().copied() {
            if let Some(kept) = self.links.next_kept(link) {
                return Some(Depositing { link, kept, entry: 0, at: 0, landing: None, number: 0 });
            }
            self.deposits.pop_front();
        }
        None
    }

    fn step(&mut self, now: Instant, current: &mut Depositing, into: &mut Spans) -> Step {
        let link = current.link;
        let Some(frame) = current.kept.frame() else { return Step::End };
        let entry = frame.entries().nth(current.entry);
        let is_alive = self.lines.get(link).is_some_and(|line| line.why.is_none());
        let Some(entry) = entry.filter(|_| is_alive) else { return Step::End };
        let range = current.at..current.at + entry.payload_len() as usize;
        current.entry += 1;
        current.at = range.end;
        if entry.address.kind == Kind::Command {
            let parameters = frame.payload().get(range).unwrap_or_default();
            self.command(now, link, &entry.address, parameters);
            return Step::Done;
        }
        match self.check(link, &entry, 0) {
            Ok(Checked { span, lands }) => {
                if let Lands::Read { read, len } = lands {
                    self.reads.placed(read, len);
                }
                into.clear();
                // An empty list has room for one.
                let _ = into.push(span);
                current.landing = Some(lands);
                self.deposits_made = self.deposits_made.wrapping_add(1);
                current.number = self.deposits_made;
                Step::Write(range, pack(Purpose::Deposit, link, current.number))
            }
            Err(refusal) => {
                self.refusals.count(refusal);
                self.refused(link, &entry, Reason::from(refusal));
                Step::Done
            }
        }
    }

    /// A packet is refused, and the rest of its frame is not.
    fn refused(&mut self, link: LinkId, entry: &Entry, reason: Reason) {
        // Nobody waits for an answer to an answer.
        if entry.address.kind != Kind::Reply {
            self.complain(link, entry.address, reason);
        }
    }

    /// The packet that is being written is in place, or could not be put there.
    pub(super) fn land_deposit(&mut self, ticket: Ticket, landing: Landing) {
        let Some(current) = &mut self.depositing else { return };
        if pack(Purpose::Deposit, current.link, current.number) != ticket {
            return;
        }
        let link = current.link;
        if let Some(lands) = current.landing.take() {
            let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
            self.land_one(link, lands, is_there);
        }
    }
}
