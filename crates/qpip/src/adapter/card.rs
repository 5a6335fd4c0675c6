//! What the driver of a card calls, on which the [`offload`](crate::offload) seam runs.

use landfall_placement::Instant;

use super::Adapter;
use super::seam::ReportStep;
use super::udp::ArrivedDatagram;
use crate::offload::{Command, Hit, Miss, Report};
use crate::tcp::{Landed, Segment};

impl Adapter {
    /// How often the [`offload`](crate::offload) seam left a unit to the engine for
    /// this reason.
    #[must_use]
    pub const fn misses(&self, reason: Miss) -> u64 {
        self.seam.misses(reason)
    }

    /// The next thing to say to the card that places what comes as expected. Where
    /// there is none ([`Config::delegates`](super::Config::delegates)), there is
    /// nothing to say.
    ///
    /// A driver asks after everything that it does with the engine, and gives what
    /// it gets to the card before anything that the engine sends later.
    pub fn poll_command(&mut self) -> Option<Command> {
        // A packet that was put together from fragments and waits for its place is
        // one that the engine has not looked at, though the card has seen it.
        if self.pieces.has_ready() {
            return None;
        }
        self.settle_all();
        self.seam.poll_command(&self.pairs, &self.links)
    }

    /// A card reported something. Reports that are late, of an earlier command or
    /// of a card that was restarted, do nothing.
    pub fn handle_report(&mut self, now: Instant, report: &Report) {
        match self.seam.handle_report(report, &self.pairs) {
            ReportStep::Nothing => {}
            ReportStep::Came { hit: Hit::Segment(hit), is_in_place } => {
                let (context, links) = (&mut self.context, &mut self.links);
                if let Some((id, claim)) = self.pairs.claim_segment(now, context, links, &hit) {
                    let segment = Segment::predicted(&hit, None);
                    self.finish_segment(now, id, &segment, Landed { claim, is_good: is_in_place });
                }
            }
            ReportStep::Came { hit: Hit::Datagram(hit), is_in_place } => {
                if let Some(id) = self.pairs.claim_datagram(&mut self.context, &hit) {
                    self.finish_datagram(
                        id,
                        is_in_place.then_some(ArrivedDatagram { from: hit.from, len: hit.len }),
                    );
                }
            }
            ReportStep::Answered { slot } => self.settle_slot(slot),
        }
    }

    /// The card was restarted and has forgotten everything, what was under way to
    /// memory too. What it had not reported has not arrived.
    pub fn handle_card_lost(&mut self) {
        for slot in 0..self.seam.forget_card(self.links.len()) {
            self.settle_slot(slot);
        }
    }

    fn settle_slot(&mut self, slot: u32) {
        if let Some(id) = self.pairs.get(slot).map(|pair| pair.id) {
            self.settle(id);
        }
    }
}
