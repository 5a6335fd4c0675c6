//! What drivers have in hand: payloads on their way to their place, and memory
//! that is being sent from.

use landfall_placement::{Guess, Instant, Landing, PathId, Ticket};

use super::Adapter;
use super::demux::Ends;
use super::fragments::Leaving;
use crate::ids::QueuePairId;
use crate::ip::reassembly::WholeId;
use crate::queue::Hold;
use crate::tcp::{Claim, Segment};
use crate::wire::{Mac, ethernet, ipv4, ipv6};

/// A payload that a driver is putting into its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placing {
    /// Of a segment of a connection.
    Stream { pair: QueuePairId, segment: Segment, claim: Claim, piece: Option<WholeId> },
    /// Of a segment that only had to be checked.
    Checked { origin: Origin, segment: Segment },
    /// Of a datagram, with as many bytes as it had.
    Datagram { pair: QueuePairId, from: core::net::SocketAddr, len: u32, piece: Option<WholeId> },
}

/// Where a segment came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The link, by its place among all.
    pub(super) link: usize,
    /// The station that sent it.
    pub(super) station: Mac,
    pub(super) ends: Ends,
}

/// Memory that drivers read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) pair: QueuePairId,
    pub(super) what: Held,
    /// So many transmissions of it are not over.
    pub(super) left: u32,
}

/// What of a queue pair is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Requests(Hold),
    Datagram(u32),
}

impl Adapter {
    /// A payload is in its place, or failed its check.
    #[inline]
    pub(super) fn land(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        let (index, generation) = (ticket.index(), ticket.generation());
        if self.placing.named(index, generation).is_none() {
            return;
        }
        let Some(placing) = self.placing.remove(index) else { return };
        let is_good = matches!(landing, Landing::Verified | Landing::Unchecked);
        if landing == Landing::Corrupt {
            self.refusals.count(landfall_placement::Refusal::BadChecksum);
        }
        match placing {
            Placing::Stream { pair, segment, claim, piece } => {
                self.release_piece(piece);
                self.land_segment(now, pair, &segment, (claim, is_good));
            }
            Placing::Checked { origin, segment } => {
                if is_good {
                    self.take_segment(now, &origin, &segment);
                }
            }
            Placing::Datagram { pair, from, len, piece } => {
                self.release_piece(piece);
                self.land_datagram(pair, is_good.then_some((from, len)));
            }
        }
    }

    /// One of the transmissions of some memory is over.
    #[inline]
    pub(super) fn let_go(&mut self, ticket: Ticket) {
        let (index, generation) = (ticket.index(), ticket.generation());
        let Some(sending) = self.sending.named_mut(index, generation) else { return };
        sending.left = sending.left.saturating_sub(1);
        let Sending { pair, what, left } = *sending;
        if left == 0 {
            self.sending.remove(index);
        }
        let Some(known) = self.pairs.named_mut(pair.index, pair.generation) else { return };
        match (&mut known.role, what) {
            (super::queue_pair::Role::Stream(stream), Held::Requests(hold)) if left == 0 => {
                stream.queues.send.release(hold);
            }
            (super::queue_pair::Role::Datagrams(datagrams), Held::Datagram(number)) => {
                datagrams.outbound.release(number);
            }
            _ => {}
        }
        self.settle(pair);
    }

    /// What is left of a packet does not leave.
    pub(super) fn abandon(&mut self, leaving: &Leaving) {
        let ticket = leaving.ticket;
        let left = leaving.units_left();
        for _ in 0..left {
            self.let_go(ticket);
        }
    }

    /// Where the next payloads of a path will belong: behind those of the
    /// connection that something came for last.
    #[inline]
    pub(super) fn guess_next(&self, path: PathId, nth: usize) -> Option<Guess> {
        let link = &self.links[self.link_of(path)?];
        let id = link.last_pair?;
        let pair = self.pairs.named(id.index, id.generation)?;
        let super::queue_pair::Role::Stream(stream) = &pair.role else { return None };
        let connection = pair.connection()?;
        // Where devices cut, they join too, and what comes is as long as it gets.
        let joins = link.limits.filter(|limits| limits.super_unit > limits.unit);
        let most = joins.map(|limits| limits.super_unit);
        let (span, payload_len) = connection.tcb.guess(nth, most, &stream.queues)?;
        let is_v4 = connection.tcb.remote.is_ipv4();
        let ip_len = if is_v4 { ipv4::LEN } else { ipv6::LEN };
        let head_len = ethernet::LEN + ip_len + connection.tcb.header_len() as usize;
        Some(Guess { span, head_len: head_len as u16, payload_len })
    }
}
