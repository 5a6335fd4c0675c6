//! What comes as predicted: the offload seam has said where it belongs, and it is booked
//! here as if the receive state machine had placed it.

use landfall_placement::{Placement, Spans, Unit};

use crate::adapter::Adapter;
use crate::adapter::landing::Placing;
use crate::offload::{Datagram, Hit, Incoming, Segment as Expected};
use crate::tcp::Segment;
use crate::wire::Options;
use crate::wire::tcp::Flags;
use crate::work::QueuePairId;

impl Adapter {
    /// Nothing, where the seam does not know what this is: then the receive state
    /// machine looks at it.
    #[inline]
    pub(super) fn take_predicted(
        &mut self,
        link: usize,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Option<Placement> {
        if !self.context.config.predicts
            || self.context.config.delegates
            || !self.placing.has_room()
        {
            return None;
        }
        let known = &self.links[link];
        let own = known.station()?;
        let incoming = Incoming {
            path: unit.path,
            station: own.mac,
            addresses: &own.addresses,
            likely: known.last_pair.map(|pair| pair.index),
            head: unit.head,
            len: unit.len,
        };
        let placement = match self.predictions.tables().receive(&incoming, into) {
            Ok(Hit::Segment(segment)) => self.book_segment(link, &segment, unit.segment),
            Ok(Hit::Datagram(datagram)) => self.book_datagram(&datagram),
            Err(miss) => {
                landfall_placement::trace!(?miss, "not predicted");
                self.predictions.count(miss);
                None
            }
        };
        if placement.is_none() {
            into.clear();
        }
        placement
    }

    #[inline]
    fn book_segment(
        &mut self,
        link: usize,
        hit: &Expected,
        coalesced: Option<u16>,
    ) -> Option<Placement> {
        let pair = self.pairs.get_mut(hit.slot)?;
        let id = pair.id;
        let (connection, _) = pair.connection_mut()?;
        let claim = connection.tcb.claim_predicted(hit.len, hit.is_pushed);
        let segment = heard(hit, coalesced);
        self.links[link].last_pair = Some(id);
        self.context.stats.segments_predicted += 1;
        let placing = Placing::Stream { pair: id, segment, claim, piece: None };
        self.promise(id, placing, (hit.at, hit.check), hit.is_spent)
    }

    #[inline]
    fn book_datagram(&mut self, hit: &Datagram) -> Option<Placement> {
        let pair = self.pairs.get_mut(hit.slot)?;
        let id = pair.id;
        pair.datagrams_mut().map(|datagrams| datagrams.inbound.take_predicted())?;
        self.context.stats.datagrams_predicted += 1;
        let placing = Placing::Datagram { pair: id, from: hit.from, len: hit.len, piece: None };
        self.promise(id, placing, (hit.at, hit.check), hit.is_spent)
    }

    #[inline]
    fn promise(
        &mut self,
        id: QueuePairId,
        placing: Placing,
        (at, check): (u16, landfall_placement::Check),
        is_spent: bool,
    ) -> Option<Placement> {
        if is_spent {
            // Whatever it is, more is to be said.
            self.predictions.tables().disarm(id.index);
            self.predict(id);
        }
        let ticket = self.keep(placing).ok()?;
        Some(Placement::Into { at, check, ticket })
    }
}

/// What a segment says that came as predicted.
#[inline]
pub(in crate::adapter) fn heard(hit: &Expected, coalesced: Option<u16>) -> Segment {
    let pushed = if hit.is_pushed { Flags::PSH } else { Flags::NONE };
    Segment {
        seq: hit.seq,
        ack: hit.ack,
        flags: Flags::ACK | pushed,
        window: hit.window,
        options: Options { timestamp: hit.timestamp, ..Options::default() },
        payload: hit.len,
        coalesced,
        ecn: hit.ecn,
    }
}
