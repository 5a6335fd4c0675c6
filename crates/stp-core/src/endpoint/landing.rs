//! A payload is in place, a transmission is over.

use landfall_placement::{Instant, Landing, Ticket};

use super::Endpoint;
use crate::ticket::Purpose;

impl Endpoint {
    #[inline]
    pub(super) fn land(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let is_in_place = matches!(landing, Landing::Verified | Landing::Unchecked);
        match Purpose::unpack(ticket) {
            Purpose::Stus(seats) => {
                if landing == Landing::Corrupt {
                    self.refusals.count(landfall_placement::Refusal::BadChecksum);
                }
                self.land_stus(now, seats, is_in_place, landing == Landing::Failed);
            }
            Purpose::Put(step) => {
                if landing == Landing::Corrupt {
                    self.refusals.count(landfall_placement::Refusal::BadChecksum);
                }
                self.land_put(now, step, landing);
            }
            Purpose::Fetch(step) => {
                let old = if let Landing::Old(old) = landing { Some(old) } else { None };
                self.land_fetch(now, step, old);
            }
            Purpose::Control
            | Purpose::Send { .. }
            | Purpose::Exposed { .. }
            | Purpose::Operation(_) => {}
        }
    }

    #[inline]
    pub(super) fn let_go(&mut self, _now: Instant, ticket: Ticket) {
        match Purpose::unpack(ticket) {
            Purpose::Send { index, generation } => self.let_go_of_send(index, generation),
            Purpose::Exposed { index, generation } => self.let_go_of_exposed(index, generation),
            Purpose::Operation(step) => self.let_go_of_operation(step),
            Purpose::Control | Purpose::Stus(_) | Purpose::Put(_) | Purpose::Fetch(_) => {}
        }
    }
}
