//! What happens once bytes are in their place, or could not be put there.
//!
//! Only now do tripwires hear of them, and only now may the link acknowledge
//! the frame.

use arrayvec::ArrayVec;
use landfall_placement::{Instant, Landing, Ticket};

use super::Nic;
use super::link_table::{PacketEffect, Placed};
use crate::address::{Address, LinkId, Purpose, TicketParts, WORD, unpack};
use crate::cookie::Access;
use crate::error::{Ended, Reason};
use crate::event::Event;
use crate::transfer::reads::{FinishedOperation, FinishedRead, Reader};
use crate::tripwire::{Place, Touched};
use crate::wire::Command;
use crate::wire::frame::MAX_ENTRIES;

impl Nic {
    /// The link that a ticket was given for, if it is still there.
    pub(super) fn link_of_ticket(&self, meaning: &TicketParts) -> Option<LinkId> {
        let link = self.lines.id_at(meaning.link)?;
        meaning.is_of(link.generation).then_some(link)
    }

    pub(super) fn land(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        // It is no ticket of ours.
        let Some(meaning) = unpack(ticket) else { return };
        match meaning.purpose {
            Purpose::Placed => {
                if let Some(link) = self.link_of_ticket(&meaning) {
                    self.land_placed(now, link, meaning.number, landing);
                }
            }
            // Its link may be gone: the next one waits for it all the same.
            Purpose::Deposit => self.land_deposit(ticket, landing),
            Purpose::GroupPlaced => self.land_group(now, &meaning, landing),
            Purpose::Sent | Purpose::SentBare | Purpose::GroupSent => {}
        }
    }

    fn land_placed(&mut self, now: Instant, link: LinkId, number: u32, landing: Landing) {
        if landing == Landing::Corrupt && self.take_back_placed(link, number) {
            return self.end_if_over(link);
        }
        let placed = self.lines.get_mut(link).and_then(|line| line.pop_placed(number));
        match placed {
            None => return,
            Some(Placed::Frame { packets }) => {
                let is_there = matches!(landing, Landing::Verified | Landing::Unchecked);
                self.land_all(link, packets, is_there);
            }
            Some(Placed::Word { address, aperture, at, len, how, reply }) => {
                let result = match landing {
                    Landing::Old(old) => Ok(old),
                    _ => Err(Reason::MemoryFailed),
                };
                match result {
                    Ok(_) => self.touched(aperture, at, len, how),
                    Err(reason) => self.complain(link, address, reason),
                }
                self.answer(link, Command::WordReply { reply, result });
            }
        }
        self.applied(now, link);
        self.end_if_over(link);
    }

    /// Once nothing of a link that has ended is on its way, its questions end.
    fn end_if_over(&mut self, link: LinkId) {
        let is_over =
            self.lines.get(link).is_some_and(|line| line.why.is_some() && line.is_settled());
        if is_over {
            self.end_questions(link);
        }
    }

    /// The payload of a frame was lost on the way to its place, though its head has come: it is
    /// as one that has not come. `false` where it is too late for that, since something behind
    /// it may have taken effect.
    fn take_back_placed(&mut self, link: LinkId, number: u32) -> bool {
        let Self { lines, reads, .. } = self;
        let is_taken_back = lines.get_mut(link).is_some_and(|line| {
            line.take_back_newest(number, |lands| {
                if let PacketEffect::Read { read, len } = lands {
                    reads.take_back(read, len);
                }
            })
        });
        if is_taken_back {
            self.links.take_back(link);
        }
        is_taken_back
    }

    /// The packets of a frame are in place, or could not be put there. What tripwires
    /// hear of them is found out for all together.
    fn land_all(&mut self, link: LinkId, packets: usize, is_there: bool) {
        let mut touched = ArrayVec::<Touched, MAX_ENTRIES>::new();
        for _ in 0..packets {
            let lands = self.lines.get_mut(link).and_then(|line| line.lands.pop_front());
            let Some(lands) = lands else { continue };
            match self.touched_by(&lands).filter(|_| is_there) {
                // It fits: a frame has no more packets.
                Some(one) => {
                    let _ = touched.try_push(one);
                }
                None => {
                    self.touch_all(&touched);
                    touched.clear();
                    self.land_one(link, lands, is_there);
                }
            }
        }
        self.touch_all(&touched);
    }

    /// What a packet that is in place touches, if it is memory that is still there.
    fn touched_by(&self, lands: &PacketEffect) -> Option<Touched> {
        let PacketEffect::Aperture { aperture, at, len, .. } = *lands else { return None };
        let slot = aperture.index as u16;
        if self.memory.id_of(slot) != Some(aperture) {
            return None;
        }
        let end = at.saturating_add(u64::from(len));
        Touched::new(Place::Local(slot), at, end, Access::Write)
    }

    /// A packet is in place, or could not be put there.
    pub(super) fn land_one(&mut self, link: LinkId, lands: PacketEffect, is_there: bool) {
        match lands {
            PacketEffect::Aperture { aperture, at, len, .. } if is_there => {
                self.touched(aperture, at, len, Access::Write);
            }
            PacketEffect::Aperture { address, .. } => {
                self.complain(link, address, Reason::MemoryFailed);
            }
            PacketEffect::Read { read, len } => {
                if let Some(over) = self.reads.landed(read, len, is_there) {
                    self.read_over(over);
                }
            }
        }
    }

    /// All of a frame is in place, or refused: it counts as arrived.
    pub(super) fn applied(&mut self, now: Instant, link: LinkId) {
        self.links.handle_applied(now, link);
        if self.links.has_next_kept(link) {
            self.deposits.push_back(super::arrive::FrameOwner::Link(link));
        }
    }

    /// A read has ended.
    pub(super) fn read_over(&mut self, over: FinishedRead) {
        let FinishedRead { read, link, reader, from, len, result } = over;
        if result.is_ok() {
            // What is read at a time has fewer bytes than that.
            self.touch_there(from, u32::try_from(len).unwrap_or(u32::MAX), Access::Read);
        }
        if let Some(line) = self.lines.at_mut(link) {
            line.reads = line.reads.saturating_sub(1);
            let id = line.id;
            // A chain of DMA requests may have waited for it.
            self.links.wake(id);
        }
        match reader {
            Reader::User => self.events.push_promised(Event::Read { read, result }),
            Reader::Dma(dma) => self.dma.handle_done(dma, result),
        }
    }

    /// This host has touched memory of another, from this byte on.
    fn touch_there(&mut self, from: Address, len: u32, how: Access) {
        let first = u64::from(from.mask.trailing_zeros().min(WORD - 1));
        let at = u64::from(from.word) * u64::from(WORD) + first;
        self.touch(Place::Remote(from.host, from.slot), at, len, how);
    }

    /// Queues an answer for the other side.
    pub(super) fn answer(&mut self, link: LinkId, answer: Command) {
        // Over a link that is gone nobody is answered.
        let Some(line) = self.lines.get_mut(link) else { return };
        if line.answer(answer) {
            self.links.wake(link);
        } else {
            self.stats.answers_lost += 1;
        }
    }

    /// Tells the other side that a packet to this address was refused.
    pub(super) fn complain(&mut self, link: LinkId, address: crate::Address, reason: Reason) {
        self.stats.refused += 1;
        self.answer(link, Command::Exception { address, reason });
    }

    /// Ends what waits for answers over a link that is gone.
    pub(super) fn end_questions(&mut self, link: LinkId) {
        // It is not down.
        let Some(why) = self.lines.get(link).and_then(|line| line.why) else { return };
        while let Some(over) = self.reads.link_gone(link.index, why) {
            self.read_over(over);
        }
        while let Some(operation) = self.operations.link_gone(link.index) {
            self.word_over(link, operation, Err(why));
        }
    }

    pub(super) fn word_over(
        &mut self,
        link: LinkId,
        over: FinishedOperation,
        result: Result<u64, Ended>,
    ) {
        let FinishedOperation { operation, at } = over;
        if result.is_ok() {
            self.touch_there(at, at.mask.count_ones(), Access::Write);
        }
        if let Some(line) = self.lines.get_mut(link) {
            line.operations = line.operations.saturating_sub(1);
        }
        self.events.push_promised(Event::Word { operation, result });
    }
}
