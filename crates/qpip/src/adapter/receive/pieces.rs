//! Fragments of IP, until they are a packet; and the packet's way to its place.
//!
//! No single fragment says where its bytes belong: only the first has the
//! header. So each is read whole and kept, and a packet that is whole is
//! deposited: the driver writes it where it belongs.

use alloc::collections::VecDeque;

use landfall_placement::{Instant, Placement, Refusal};

use super::arrival::{Arrival, Outcome, is_intact};
use crate::adapter::config::Config;
use crate::adapter::context::Context;
use crate::ip::reassembly::{
    self, FirstPiece, MissingPieces, ReassembledId, ReassembledPacket, Reassembly,
};
use crate::wire::{Ip, Stop, ethernet, protocol};

/// The most fragments of one packet: of the longest one on a link of 576 bytes.
const PIECES: usize = 128;

/// So much of the frame of a first piece is kept, for an error about its packet: all headers
/// and what names the ports.
const QUOTED: usize = 160;

/// A packet that became whole.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapter) struct Ready {
    pub(in crate::adapter) whole: ReassembledPacket,
    link: usize,
    ethernet: ethernet::Header,
}

/// Fragments, and packets that they became.
#[derive(Debug)]
pub(in crate::adapter) struct Pieces {
    reassembly: Reassembly,
    /// As many as `reassembly` holds at most.
    ready: VecDeque<Ready>,
}

impl Pieces {
    pub(in crate::adapter) fn new(config: &Config) -> Self {
        let config = reassembly::Config {
            packets: config.reassemblies,
            pieces: PIECES,
            bytes: config.reassembly_bytes,
            lifetime: config.reassembly_for,
        };
        Self { reassembly: Reassembly::new(config), ready: VecDeque::new() }
    }

    pub(in crate::adapter) fn next_timer(&self) -> Option<Instant> {
        self.reassembly.poll_timeout()
    }

    /// Does a packet wait to be deposited?
    pub(in crate::adapter) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(in crate::adapter) fn expire(&mut self, now: Instant) {
        self.reassembly.expire(now);
    }

    /// The next packet that did not become whole in time, though its beginning came.
    pub(in crate::adapter) fn poll_missing(&mut self) -> Option<MissingPieces> {
        self.reassembly.poll_missing()
    }

    pub(in crate::adapter) const fn counters(&self) -> &reassembly::Counters {
        self.reassembly.counters()
    }

    /// Keeps a fragment, which may make a packet whole.
    pub(in crate::adapter) fn keep(
        &mut self,
        now: Instant,
        context: &mut Context,
        arrival: &Arrival<'_>,
    ) -> Outcome {
        let bytes = arrival.ip.payload(arrival.head)?;
        let Arrival { link, ethernet, .. } = *arrival;
        if let Some(whole) = self.reassembly.insert(now, &arrival.ip, bytes)? {
            self.ready.push_back(Ready { whole, link, ethernet });
            context.stats.reassembled += 1;
        } else if arrival.ip.fragment.is_some_and(|piece| piece.offset == 0) {
            let head = arrival.head[..arrival.head.len().min(QUOTED)].to_vec();
            self.reassembly.note_first(&arrival.ip, FirstPiece { link, ethernet, head });
        }
        Ok(Placement::Consumed)
    }

    /// The next packet that became whole.
    pub(in crate::adapter) fn next(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    /// A part of what a packet was put together from.
    pub(in crate::adapter) fn bytes(
        &self,
        id: ReassembledId,
        at: usize,
        len: usize,
    ) -> Option<&[u8]> {
        self.reassembly.payload(id)?.get(at..at + len)
    }

    /// What a packet was put together from is needed no longer.
    #[inline]
    pub(in crate::adapter) fn release(&mut self, piece: Option<ReassembledId>) {
        if let Some(id) = piece {
            self.reassembly.release(id);
        }
    }

    /// Lends its buffers out, so that a packet in them can be looked at while all else is
    /// used. They have to be given back with [`Pieces::take_back`].
    pub(in crate::adapter) fn lend(&mut self) -> Lent {
        let nothing = reassembly::Config { packets: 0, ..reassembly::Config::default() };
        Lent(core::mem::replace(&mut self.reassembly, Reassembly::new(nothing)))
    }

    pub(in crate::adapter) fn take_back(&mut self, lent: Lent) {
        self.reassembly = lent.0;
    }
}

/// The buffers of packets that are whole.
pub(in crate::adapter) struct Lent(Reassembly);

impl Lent {
    /// A packet that became whole, as if it had come so. Its checksum is looked at
    /// here, as all of it is at hand.
    pub(in crate::adapter) fn arrival(&self, ready: &Ready) -> Result<Arrival<'_>, Stop> {
        let Ready { whole: ReassembledPacket { id, ip }, link, ethernet } = *ready;
        let head = self.0.payload(id).ok_or(Refusal::UnknownId)?;
        let piece = Some(id);
        let arrival = Arrival { link, ethernet, ip, head, coalesced: None, piece };
        let Ip { payload_at, payload_len, .. } = ip;
        let (at, len, has_sum) = match ip.protocol {
            protocol::TCP => (payload_at, payload_len, true),
            protocol::UDP => {
                let layer = ip.udp(head)?;
                (layer.at, layer.len, layer.header.has_sum())
            }
            _ => return Ok(arrival),
        };
        if has_sum && !is_intact(&arrival, at, len) {
            return Err(Refusal::BadChecksum.into());
        }
        Ok(arrival)
    }
}
