//! [`Placements`]: payloads that drivers are putting into their place.

use core::net::SocketAddr;

use landfall_placement::{Refusal, Ticket};
use landfall_tables::{EntryKey, Table};

use super::links::Origin;
use crate::ip::reassembly::ReassembledId;
use crate::tcp::{Claim, Segment};
use crate::wire::dhcp::Reply;
use crate::work::QueuePairId;

/// A payload that a driver is putting into its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placing {
    /// Of a segment of a connection.
    Stream { pair: QueuePairId, segment: Segment, claim: Claim, piece: Option<ReassembledId> },
    /// Of a segment that only had to be checked.
    Checked { origin: Origin, segment: Segment },
    /// Of what a server of DHCP says on a link, which only had to be checked.
    Lease { link: usize, reply: Reply },
    /// Of a datagram, with as many bytes as it had.
    Datagram { pair: QueuePairId, from: SocketAddr, len: u32, piece: Option<ReassembledId> },
}

/// All of them, by the ticket that the driver gives back.
#[derive(Debug)]
pub(super) struct Placements(Table<Placing>);

impl Placements {
    pub(super) const fn new(most: usize) -> Self {
        Self(Table::new(most))
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Keeps what a driver is to bring into its place, and names it.
    #[inline]
    pub(super) fn keep(&mut self, placing: Placing) -> Result<Ticket, Refusal> {
        let EntryKey { index, generation } = self.0.insert(placing).ok_or(Refusal::NoRoom)?;
        Ok(Ticket::new(index, generation))
    }

    /// Takes what has this name. Each ticket names something once.
    #[inline]
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Placing> {
        self.0.named(ticket.index(), ticket.generation())?;
        self.0.remove(ticket.index())
    }
}
