//! UDP: a datagram takes the next request of the queue pair that is bound there.

use core::net::SocketAddr;

use landfall_placement::{Check, Instant, Placement, Refusal, Spans};

use super::{Arrival, Outcome, is_intact, sum_of};
use crate::adapter::Adapter;
use crate::adapter::demux::any_of;
use crate::adapter::landing::Placing;
use crate::adapter::queue_pair::QueuePair;
use crate::ids::QueuePairId;
use crate::ip::answer;

impl Adapter {
    #[inline]
    pub(super) fn take_udp(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        into: &mut Spans,
    ) -> Outcome {
        let layer = arrival.ip.udp(arrival.head)?;
        let local = SocketAddr::new(arrival.ip.destination, layer.header.destination.get());
        let from = SocketAddr::new(arrival.ip.source, layer.header.source.get());
        let any = SocketAddr::new(any_of(local.ip()), local.port());
        let Some(pair) = self.bound_at(local).or_else(|| self.bound_at(any)) else {
            return self.refuse_port(now, arrival);
        };
        let is_whole = arrival.piece.is_some();
        let check = if is_whole || !layer.header.has_sum() {
            Check::None
        } else {
            sum_of(&arrival.ip, layer.at, layer.len)?
        };
        let len = layer.payload_len;
        if len == 0 && check != Check::None && !is_intact(arrival, layer.at, layer.len) {
            return Err(Refusal::BadChecksum.into());
        }
        if !self.placing.has_room() {
            return Err(Refusal::NoRoom.into());
        }
        let known = self.pairs.named_mut(pair.index, pair.generation);
        let datagrams = known.and_then(QueuePair::datagrams_mut).ok_or(Refusal::UnknownId)?;
        // It writes nothing, and its checksum, if it has one, was looked at: no driver has to.
        let is_known = len == 0 || check == Check::None && datagrams.inbound.is_too_long(len);
        let taken = if is_known {
            datagrams.inbound.take_landed(from, len).map(Some)
        } else {
            datagrams.inbound.take(len, into).map(|()| None)
        };
        let Some(landed) = taken else {
            self.stats.datagrams_unexpected += 1;
            return Err(Refusal::NoRoom.into());
        };
        self.predict(pair);
        if let Some(was_too_long) = landed {
            self.datagram_came(pair, was_too_long);
            return Ok(Placement::Consumed);
        }
        let ticket = self.keep(Placing::Datagram { pair, from, len, piece: arrival.piece })?;
        Ok(Placement::Into { at: layer.payload_at as u16, check, ticket })
    }

    /// The datagram that was taken first landed, or failed its check.
    #[inline]
    pub(in crate::adapter) fn land_datagram(
        &mut self,
        pair: QueuePairId,
        datagram: Option<(SocketAddr, u32)>,
    ) {
        let known = self.pairs.named_mut(pair.index, pair.generation);
        let Some(datagrams) = known.and_then(QueuePair::datagrams_mut) else { return };
        let was_too_long = datagrams.inbound.land(datagram);
        match datagram {
            Some(_) => self.datagram_came(pair, was_too_long),
            None => self.settle(pair),
        }
    }

    #[inline]
    fn datagram_came(&mut self, pair: QueuePairId, was_too_long: bool) {
        self.stats.datagrams_received += 1;
        self.stats.datagrams_too_long += u64::from(was_too_long);
        self.settle(pair);
    }

    /// Nobody is bound there: its sender is told, if that is allowed.
    fn refuse_port(&mut self, now: Instant, arrival: &Arrival<'_>) -> Outcome {
        if self.limiter.allow(now) {
            let about = arrival.arrived();
            self.queue_control(arrival.link, |into| answer::port_unreachable(&about, into));
        }
        Err(Refusal::WrongAddress.into())
    }
}
