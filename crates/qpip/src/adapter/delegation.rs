//! [`Delegation`]: the tables of the offload seam lie in the memory of a card, and
//! this is what the host knows of them.
//!
//! The host says what comes next (`Adapter::poll_command`), the card reports what
//! came ([`Adapter::handle_report`]), and it is booked here as if the receive
//! state machine had placed it. All else comes as frames, to that state machine.
//! Why the two never write to the same memory is told in
//! [`Command`](crate::offload::Command)'s file.
//!
//! What does not live here: which commands there are to give (`commands`).

use alloc::vec::Vec;

use landfall_placement::Instant;
use landfall_tables::ChangeQueue;

use super::Adapter;
use super::queue_pair::{QueuePair, Role};
use super::receive::heard;
use crate::offload::{Datagram, Prediction, Report, Segment};
use crate::work::QueuePairId;

/// What is known of a card.
#[derive(Debug, Default)]
pub(super) struct Delegation {
    slots: Vec<Slot>,
    /// Slots for which there may be something to say.
    pub(super) changed: ChangeQueue,
    /// Links whose station is to be said, by their place among all.
    pub(super) stations: ChangeQueue,
}

/// What is known of an entry of the card.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// The name of the last command that is answered, or of the prediction.
    pub(super) mark: u16,
    pub(super) state: State,
}

/// How an entry of the card stands, as far as the host knows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    /// It has none.
    #[default]
    Free,
    /// It has no room for one.
    Refused,
    /// It was asked to enter one, or to predict nothing, and has not answered.
    Asked,
    /// Nothing was predicted when its count was this.
    Quiet { heard: u64 },
    /// This was predicted, and moved on by all that was reported.
    Armed(Prediction),
    /// What it reported does not follow from what was predicted.
    Astray,
    /// It was asked to forget it.
    Closing,
}

impl Delegation {
    pub(super) fn slot(&self, index: u32) -> Slot {
        self.slots.get(index as usize).copied().unwrap_or_default()
    }

    pub(super) fn slot_mut(&mut self, index: u32) -> &mut Slot {
        let index = index as usize;
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot::default());
        }
        &mut self.slots[index]
    }

    /// There may be something to say of this slot.
    #[inline]
    pub(super) fn touch(&mut self, index: u32) {
        self.slot_mut(index);
        self.changed.push(index);
    }

    /// The station of a link has to be said; all that was found out with it may
    /// be wrong.
    pub(super) fn touch_station(&mut self, link: usize) {
        self.stations.push(link as u32);
        for index in 0..self.slots.len() as u32 {
            self.touch(index);
        }
    }

    /// The prediction of this name, if it is still in force as far as is known.
    fn armed(&mut self, index: u32, mark: u16) -> Option<&mut Prediction> {
        let slot = self.slots.get_mut(index as usize).filter(|slot| slot.mark == mark)?;
        match &mut slot.state {
            State::Armed(next) => Some(next),
            _ => None,
        }
    }

    fn lead_astray(&mut self, index: u32) {
        self.slot_mut(index).state = State::Astray;
        self.touch(index);
    }
}

impl Adapter {
    /// A card reported something. Reports that are late, of an earlier command or
    /// of a card that was restarted, do nothing.
    pub fn handle_report(&mut self, now: Instant, report: &Report) {
        match *report {
            Report::Segment { hit, mark, is_in_place } => {
                self.book_reported_segment(now, &hit, mark, is_in_place);
            }
            Report::Datagram { hit, mark, is_in_place } => {
                self.book_reported_datagram(&hit, mark, is_in_place);
            }
            Report::Quiet { slot, mark, heard } => self.hear(slot, mark, State::Quiet { heard }),
            Report::Closed { slot, mark } => self.hear(slot, mark, State::Free),
            Report::Refused { slot, mark } => self.hear(slot, mark, State::Refused),
        }
    }

    /// The card was restarted and has forgotten everything, what was under way to
    /// memory too. What it had not reported has not arrived.
    pub fn handle_card_lost(&mut self) {
        for index in 0..self.delegation.slots.len() as u32 {
            let slot = self.delegation.slot_mut(index);
            (slot.state, slot.mark) = (State::Free, slot.mark.wrapping_add(1));
            self.delegation.touch(index);
            self.settle_slot(index);
        }
        for link in 0..self.links.len() {
            self.delegation.touch_station(link);
        }
    }

    /// A card answered.
    fn hear(&mut self, index: u32, mark: u16, answer: State) {
        let slot = self.delegation.slot(index);
        let is_awaited = match answer {
            State::Quiet { .. } => matches!(slot.state, State::Asked | State::Armed(_)),
            State::Refused => matches!(slot.state, State::Asked | State::Armed(_)),
            _ => matches!(slot.state, State::Closing),
        };
        if !is_awaited || slot.mark != mark {
            return;
        }
        self.delegation.slot_mut(index).state = answer;
        self.delegation.touch(index);
        self.settle_slot(index);
    }

    fn settle_slot(&mut self, index: u32) {
        if let Some(id) = self.pairs.get(index).map(|pair| pair.id) {
            self.settle(id);
        }
    }

    /// Is this queue pair over, while the card may still write to its memory? Then
    /// nothing of it is told before the card has let go.
    pub(super) fn is_held_by_card(&mut self, id: QueuePairId) -> bool {
        if !self.context.config.delegates {
            return false;
        }
        let Some(pair) = self.pairs.named(id.index, id.generation) else { return false };
        if !is_over(pair) {
            return false;
        }
        match self.delegation.slot(id.index).state {
            State::Free => false,
            State::Refused => {
                self.delegation.slot_mut(id.index).state = State::Free;
                false
            }
            _ => {
                self.delegation.touch(id.index);
                true
            }
        }
    }

    fn book_reported_segment(&mut self, now: Instant, hit: &Segment, mark: u16, is_good: bool) {
        let Some(next) = self.delegation.armed(hit.slot, mark) else { return };
        let pair = self.pairs.get_mut(hit.slot);
        let Some((id, (connection, _))) =
            pair.and_then(|pair| Some((pair.id, pair.connection_mut()?)))
        else {
            return;
        };
        let ends_message = hit.is_pushed && next.has_messages;
        let is_it = hit.seq == next.expected && connection.tcb.is_on_course(next);
        if !is_it || !next.places.pass(hit.len, ends_message) {
            return self.delegation.lead_astray(hit.slot);
        }
        next.expected = hit.seq.wrapping_add(hit.len);
        let claim = connection.tcb.claim_predicted(hit.len, hit.is_pushed);
        let link = connection.link;
        self.links[link].last_pair = Some(id);
        self.context.stats.segments_predicted += 1;
        self.land_segment(now, id, &heard(hit, None), (claim, is_good));
    }

    fn book_reported_datagram(&mut self, hit: &Datagram, mark: u16, is_good: bool) {
        let Some(next) = self.delegation.armed(hit.slot, mark) else { return };
        let pair = self.pairs.get_mut(hit.slot);
        let Some((id, datagrams)) = pair.and_then(|pair| Some((pair.id, pair.datagrams_mut()?)))
        else {
            return;
        };
        let is_it = next.course == datagrams.inbound.course();
        if !is_it || !next.places.pass(hit.len, true) {
            return self.delegation.lead_astray(hit.slot);
        }
        datagrams.inbound.take_predicted();
        self.context.stats.datagrams_predicted += 1;
        self.land_datagram(id, is_good.then_some((hit.from, hit.len)));
    }
}

/// Nothing more is received: what is posted goes back to its owner.
pub(super) fn is_over(pair: &QueuePair) -> bool {
    match &pair.role {
        Role::Stream(_) => pair.connection().is_some_and(|known| known.tcb.is_closed()),
        Role::Datagrams(datagrams) => datagrams.inbound.is_flushed(),
    }
}
