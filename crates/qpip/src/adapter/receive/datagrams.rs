//! UDP: a datagram takes the next request of the queue pair that is bound there.

use core::net::SocketAddr;

use landfall_placement::{Check, Refusal, Spans};

use super::arrival::{Arrival, is_intact, sum_of};
use crate::adapter::udp::Datagrams;
use crate::wire::{Layer, Stop, dhcp, udp};

/// A datagram in its packet.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapter) struct PacketDatagram {
    pub(in crate::adapter) local: SocketAddr,
    pub(in crate::adapter) from: SocketAddr,
    layer: Layer<udp::Header>,
}

/// What became of the request that a datagram took.
#[derive(Clone, Copy, Debug)]
pub(in crate::adapter) enum DatagramStep {
    /// A driver puts the payload into its place, and makes this pass over it.
    Places { at: u16, check: Check },
    /// Nothing has to be written, and it was looked at whole: it has landed.
    Landed { was_too_long: bool },
}

impl PacketDatagram {
    #[inline]
    pub(in crate::adapter) fn read(arrival: &Arrival<'_>) -> Result<Self, Stop> {
        let layer = arrival.ip.udp(arrival.head)?;
        let local = SocketAddr::new(arrival.ip.destination, layer.header.destination.get());
        let from = SocketAddr::new(arrival.ip.source, layer.header.source.get());
        Ok(Self { local, from, layer })
    }

    /// Is it from a server of DHCP to its clients?
    pub(in crate::adapter) const fn is_of_dhcp(&self) -> bool {
        self.local.port() == dhcp::CLIENT_PORT && self.from.port() == dhcp::SERVER_PORT
    }

    /// The payload, if it is at hand.
    pub(in crate::adapter) fn payload<'a>(&self, arrival: &Arrival<'a>) -> Result<&'a [u8], Stop> {
        let bytes = arrival.ip.payload(arrival.head)?;
        let bytes = bytes.get(udp::LEN..self.layer.len as usize);
        bytes.ok_or(Refusal::Truncated.into())
    }

    pub(in crate::adapter) const fn payload_at(&self) -> u16 {
        self.layer.payload_at as u16
    }

    /// Is its checksum right, all of which is at hand?
    pub(in crate::adapter) fn is_intact(&self, arrival: &Arrival<'_>) -> bool {
        is_intact(arrival, self.layer.at, self.layer.len)
    }

    pub(in crate::adapter) const fn payload_len(&self) -> u32 {
        self.layer.payload_len
    }

    /// The pass over a datagram. One without bytes is looked at here.
    #[inline]
    pub(in crate::adapter) fn check(&self, arrival: &Arrival<'_>) -> Result<Check, Stop> {
        let layer = &self.layer;
        if arrival.piece.is_some() || !layer.header.has_sum() {
            return Ok(Check::None);
        }
        // What is right at once needs no pass. A device that leaves checksums to others may say
        // so of one that is not.
        if layer.payload_len == 0 && is_intact(arrival, layer.at, layer.len) {
            return Ok(Check::None);
        }
        sum_of(&arrival.ip, layer.at, layer.len)
    }

    /// Takes the next request. Nothing where none is posted.
    #[inline]
    pub(in crate::adapter) fn place(
        &self,
        datagrams: &mut Datagrams,
        check: Check,
        into: &mut Spans,
    ) -> Option<DatagramStep> {
        let inbound = &mut datagrams.inbound;
        let len = self.layer.payload_len;
        // It writes nothing, and its checksum, if it has one, was looked at: no driver has to.
        if check == Check::None && (len == 0 || inbound.is_too_long(len)) {
            let was_too_long = inbound.take_landed(self.from, len)?;
            return Some(DatagramStep::Landed { was_too_long });
        }
        inbound.take(len, into)?;
        Some(DatagramStep::Places { at: self.layer.payload_at as u16, check })
    }
}
