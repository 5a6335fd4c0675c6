//! Fragments of IP, until they are a packet; and the packet's way to its place.
//!
//! No single fragment says where its bytes belong: only the first has the
//! header. So each is read whole and kept, and a packet that is whole is
//! deposited: the driver writes it where it belongs.

use alloc::collections::VecDeque;

use landfall_placement::{Deposit, Instant, Landing, Placement, Refusal, Spans, Ticket};

use super::arrival::{Arrival, Outcome, is_intact};
use crate::adapter::{Adapter, Config};
use crate::ip::reassembly::{self, Reassembly, Whole, WholeId};
use crate::wire::{Ip, Stop, ethernet, protocol};

/// The most fragments of one packet: of the longest one on a link of 576 bytes.
const PIECES: usize = 128;

/// A packet that became whole.
#[derive(Clone, Copy, Debug)]
struct Ready {
    whole: Whole,
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
}

/// Stands in for the real one; takes no memory.
fn nothing_kept() -> Reassembly {
    Reassembly::new(reassembly::Config { packets: 0, ..reassembly::Config::default() })
}

/// Where the payload of a packet that was kept belongs.
struct Place {
    at: usize,
    len: usize,
    ticket: Ticket,
}

impl Adapter {
    /// What became of fragments so far.
    #[must_use]
    pub const fn reassembly(&self) -> &reassembly::Counters {
        self.pieces.reassembly.counters()
    }

    pub(super) fn take_piece(&mut self, now: Instant, arrival: &Arrival<'_>) -> Outcome {
        let bytes = arrival.ip.payload(arrival.head)?;
        if let Some(whole) = self.pieces.reassembly.insert(now, &arrival.ip, bytes)? {
            let Arrival { link, ethernet, .. } = *arrival;
            self.pieces.ready.push_back(Ready { whole, link, ethernet });
            self.context.stats.reassembled += 1;
        }
        Ok(Placement::Consumed)
    }

    /// The next packet that became whole and has a payload to be placed.
    pub(in crate::adapter) fn next_deposit(
        &mut self,
        now: Instant,
        into: &mut Spans,
    ) -> Option<Deposit<'_>> {
        loop {
            let ready = self.pieces.ready.pop_front()?;
            let id = ready.whole.id;
            into.clear();
            match self.take_whole(now, &ready, into) {
                // Nothing has to be written: it only had to be looked at whole.
                Ok(Some(Place { len: 0, ticket, .. })) => {
                    self.land(now, ticket, Landing::Verified);
                }
                Ok(Some(Place { at, len, ticket })) => {
                    let bytes = self.pieces.reassembly.payload(id)?.get(at..at + len)?;
                    return Some(Deposit { bytes, ticket });
                }
                Ok(None) => {}
                Err(stop) => {
                    if let Some(refusal) = stop.refusal() {
                        self.context.refusals.count(refusal);
                    }
                }
            }
            self.release_piece(Some(id));
        }
    }

    /// Takes a packet that became whole like one that came so, but for its
    /// checksum: that is looked at here, as all of it is at hand.
    fn take_whole(
        &mut self,
        now: Instant,
        ready: &Ready,
        into: &mut Spans,
    ) -> Result<Option<Place>, Stop> {
        let Whole { id, ip } = ready.whole;
        // The buffer is lent out for the while, so that the rest can be used.
        let reassembly = core::mem::replace(&mut self.pieces.reassembly, nothing_kept());
        let taken = match reassembly.payload(id) {
            Some(head) => {
                let Ready { link, ethernet, .. } = *ready;
                let piece = Some(id);
                let arrival = Arrival { link, ethernet, ip, head, coalesced: None, piece };
                self.take_intact(now, &arrival, into)
            }
            None => Err(Refusal::UnknownId.into()),
        };
        self.pieces.reassembly = reassembly;
        match taken? {
            Placement::Into { at, ticket, .. } => {
                Ok(Some(Place { at: usize::from(at), len: into.total_len() as usize, ticket }))
            }
            // Nobody asks for more of a head that is whole.
            Placement::Consumed | Placement::NeedHead(_) | Placement::Word(..) => Ok(None),
        }
    }

    fn take_intact(&mut self, now: Instant, arrival: &Arrival<'_>, into: &mut Spans) -> Outcome {
        let Ip { payload_at, payload_len, .. } = arrival.ip;
        let (at, len, has_sum) = match arrival.ip.protocol {
            protocol::TCP => (payload_at, payload_len, true),
            protocol::UDP => {
                let layer = arrival.ip.udp(arrival.head)?;
                (layer.at, layer.len, layer.header.has_sum())
            }
            _ => return self.take_packet(now, arrival, into),
        };
        if has_sum && !is_intact(arrival, at, len) {
            return Err(Refusal::BadChecksum.into());
        }
        self.take_packet(now, arrival, into)
    }

    /// What a packet was put together from is needed no longer.
    #[inline]
    pub(in crate::adapter) fn release_piece(&mut self, piece: Option<WholeId>) {
        if let Some(id) = piece {
            self.pieces.reassembly.release(id);
        }
    }
}
