//! TCP: what a segment says, whose it is, and what of it is checked when.

use core::net::SocketAddr;

use landfall_placement::{Check, Refusal};

use super::arrival::{Arrival, is_intact, sum_of};
use crate::adapter::links::Origin;
use crate::tcp::{Ends, Segment};
use crate::wire::{Layer, Stop};

/// A segment in its packet.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapter) struct PacketSegment {
    pub(in crate::adapter) origin: Origin,
    pub(in crate::adapter) segment: Segment,
    /// Where its header starts, how much the checksum covers, and where the payload starts.
    at: usize,
    len: u32,
    payload_at: usize,
}

impl PacketSegment {
    #[inline]
    pub(in crate::adapter) fn read(arrival: &Arrival<'_>) -> Result<Self, Stop> {
        let layer = arrival.ip.tcp(arrival.head)?;
        let header = &layer.header;
        let local = SocketAddr::new(arrival.ip.destination, header.destination);
        let remote = SocketAddr::new(arrival.ip.source, header.source);
        let segment = Segment {
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            has_ae: header.has_ae,
            window: header.window,
            options: header.options,
            payload: layer.payload_len,
            coalesced: arrival.coalesced,
            joined: None,
            ecn: arrival.ip.ecn,
        };
        let (link, station) = (arrival.link, arrival.station());
        let origin = Origin { link, station, ends: Ends { local, remote } };
        let Layer { at, len, payload_at, .. } = layer;
        Ok(Self { origin, segment, at, len, payload_at })
    }

    /// Is all of it at hand, and its checksum right? What was put together from
    /// fragments was checked as a whole.
    ///
    /// Where the sum does not fit, the device may know better: on a virtual link
    /// it comes unfinished, and the driver can tell.
    #[inline]
    pub(in crate::adapter) fn is_intact(&self, arrival: &Arrival<'_>) -> bool {
        arrival.piece.is_some() || is_intact(arrival, self.at, self.len)
    }

    /// The pass over a segment, unless it was made already.
    #[inline]
    pub(in crate::adapter) fn check(&self, arrival: &Arrival<'_>) -> Result<Check, Stop> {
        if arrival.piece.is_some() {
            return Ok(Check::None);
        }
        sum_of(&arrival.ip, self.at, self.len)
    }

    /// Where in its packet its payload is, behind this many bytes of it. A place that no
    /// unit can name is nowhere near the start of one.
    #[inline]
    pub(in crate::adapter) fn payload_at(&self, skip: u32) -> Result<u16, Refusal> {
        u16::try_from(self.payload_at + skip as usize).map_err(|_| Refusal::Unsupported)
    }
}
