//! Orders of the host are obeyed one after another: commands, behind the work requests
//! that they need, and frames to be sent.

use landfall_placement::{Instant, Spans};

use super::{Adapter, HostOrder};
use crate::firmware::Firmware;
use crate::machine::inbound::{HostWrite, Pending};
use crate::machine::parts::Engines;
use crate::machine::requests::{Posted, Request};

impl<F: Firmware> Adapter<'_, F> {
    pub(super) fn has_order(&self) -> bool {
        match self.parts.orders.front() {
            None => false,
            Some(HostOrder::Send(..)) => !self.is_fetching(),
            // Its answer must find room.
            Some(HostOrder::Command(..)) => !self.is_fetching() && self.has_room_to_answer(),
        }
    }

    fn has_room_to_answer(&self) -> bool {
        self.parts.inbound.queue.room() > 0 && self.has_room_to_tell()
    }

    /// The work requests of the next order.
    fn posted(&self) -> Option<Posted> {
        match *self.parts.orders.front()? {
            HostOrder::Command(_, posted) | HostOrder::Send(_, posted) => posted,
        }
    }

    /// Are work requests of the next order not here yet? The processor does not wait, and
    /// looks at what comes meanwhile: behind a long payload the bus is a while in coming,
    /// and what comes too early for its request is the host's, where nothing is lost by it.
    fn is_fetching(&self) -> bool {
        self.posted().is_some() && !self.parts.requests.is_ready()
    }

    /// When they can be asked for, or are here.
    pub(super) fn next_fetch(&self) -> Option<Instant> {
        let begin = self.is_fetching().then(|| self.dma_out().free_at());
        self.parts.requests.next_to_land().or(begin)
    }

    /// The requests of the next order are fetched.
    pub(super) fn fetch(&mut self, now: Instant) -> bool {
        let Some(Posted { first, .. }) = self.posted() else { return false };
        if self.parts.requests.next_to_land().is_some_and(|until| until <= now) {
            self.parts.requests.land();
            return true;
        }
        if !self.parts.requests.is_waiting() || self.dma_out().free_at() > now {
            return false;
        }
        if let Some(bell) = self.parts.requests.answer(first) {
            let bytes = u64::from(bell.count) * size_of::<Request>() as u64;
            let until = match self.costs.engines {
                Engines::One => self.dma[0].begin(now, bytes, 1, &mut self.bus),
                Engines::Two => self.dma[1].begin(now, bytes, 1, &mut self.bus),
            };
            self.parts.requests.begin(bell, until);
            // What takes no time is in force before the next frame is looked at.
            if until <= now {
                self.parts.requests.land();
            }
        }
        true
    }

    pub(super) fn obey(&mut self, now: Instant) {
        match self.parts.orders.pop() {
            Some(HostOrder::Command(mut command, posted)) => {
                if let Some(posted) = posted {
                    self.firmware.fetched(&mut command, self.parts.requests.fetched());
                    self.parts.requests.finish(posted);
                }
                self.obey_command(now, &command);
            }
            Some(HostOrder::Send(slot, posted)) => {
                let is_known = posted.is_none_or(|posted| self.take_places(slot, posted));
                let leaving = self.parts.outbound.leaving(slot);
                let route = self.firmware.send(&leaving, self.processor.begin());
                let done = self.processor.end(now);
                self.parts.outbound.queue_up(slot, route.filter(|_| is_known), done);
            }
            None => {}
        }
    }

    /// Where the payload of a frame lies is what its work requests say. False where they
    /// do not say where all of it does.
    fn take_places(&mut self, slot: u16, posted: Posted) -> bool {
        let mut from = Spans::new();
        let is_known = self.firmware.fetched_send(self.parts.requests.fetched(), &mut from);
        self.parts.requests.finish(posted);
        is_known && self.parts.outbound.set_places(slot, from)
    }

    fn obey_command(&mut self, now: Instant, command: &F::Command) {
        self.counters.commands += 1;
        let answer = self.firmware.handle_command(command, self.processor.begin());
        let done = self.processor.end(now);
        let patience = self.firmware.patience();
        if patience.is_zero() {
            self.held_until = Instant::ZERO;
        } else if self.held_until == Instant::ZERO {
            self.held_until = done + patience;
        }
        if let Some(report) = answer {
            let mut pending = Pending::new(HostWrite::Answer(report), done);
            pending.report = Some(report);
            pending.interrupts = true;
            self.parts.inbound.queue.push(pending);
        }
    }
}
