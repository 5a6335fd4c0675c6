//! [`RemainingFragments`]: a packet that is longer than its link carries, on its way out in
//! pieces.
//!
//! Its one checksum, in the first piece, is over the bytes of all: the driver
//! sums those of the others without sending them
//! ([`Transmit::sum_only`](landfall_placement::Transmit::sum_only)).

use alloc::boxed::Box;

use landfall_placement::{Peer, Span, Spans, SumSlot, Ticket, Transmit};

use crate::wire::{Envelope, Fragment};

/// The header above IP of a packet that is to leave, and its payload.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    /// Without a piece.
    pub(super) envelope: Envelope,
    /// The header of TCP or UDP, with the sum over the pseudo-header in its slot.
    pub(super) header: &'a [u8],
    /// Where in that header the checksum is.
    pub(super) sum_offset: u16,
    /// The length of the payload.
    pub(super) payload: u32,
    /// The device cuts it into segments of this many bytes.
    pub(super) cut: Option<landfall_placement::Segment>,
    pub(super) ticket: Ticket,
}

/// What is left of a packet of which the first piece has been sent.
#[derive(Debug)]
pub(super) struct RemainingFragments {
    envelope: Envelope,
    payload: Box<Spans>,
    /// The length of the header above IP, which was in the first piece.
    header: u32,
    /// Of header and payload: what was sent, and all.
    sent: u32,
    total: u32,
    /// How long each piece is, but the last.
    piece: u32,
    pub(super) ticket: Ticket,
}

/// How many bytes of what IP carries fit into one piece.
fn piece_len(envelope: &Envelope, mtu: u32) -> u32 {
    let piece = Envelope { fragment: Some(Fragment::default()), ..*envelope };
    mtu.saturating_sub(piece.ip_len() as u32) & !7
}

impl Outgoing<'_> {
    /// How many units it takes on a link with this MTU. None where not even the
    /// header fits into one.
    pub(super) fn units(&self, mtu: u32) -> Option<u32> {
        let total = self.header.len() as u32 + self.payload;
        if self.cut.is_some() || total + self.envelope.ip_len() as u32 <= mtu {
            return Some(1);
        }
        let piece = piece_len(&self.envelope, mtu);
        (piece >= self.header.len() as u32 + 8).then(|| total.div_ceil(piece))
    }

    /// Writes the packet, or its first piece, and what is left then. `from` has
    /// the spans of the whole payload.
    #[inline]
    pub(super) fn write(
        &self,
        mtu: u32,
        id: u32,
        head: &mut [u8],
        from: &Spans,
    ) -> Option<(Transmit, Option<RemainingFragments>)> {
        let header = self.header.len() as u32;
        let total = header + self.payload;
        let is_whole = self.units(mtu)? == 1;
        let in_unit = if is_whole { total } else { piece_len(&self.envelope, mtu) };
        let fragment = (!is_whole).then_some(Fragment { id, offset: 0, more: true });
        let envelope = Envelope { fragment, ..self.envelope };
        let at = envelope.write(head, in_unit)?;
        head.get_mut(at..at + self.header.len())?.copy_from_slice(self.header);
        let transmit = Transmit {
            to: Peer::Unaddressed,
            head_len: (at + self.header.len()) as u16,
            segment: self.cut,
            checksum: Some(SumSlot { start: at as u16, offset: self.sum_offset }),
            sum_only: total - in_unit,
            ecn: landfall_placement::Ecn::NotCapable,
            ticket: self.ticket,
        };
        let leaving = (!is_whole).then(|| RemainingFragments {
            envelope,
            payload: Box::new(from.clone()),
            header,
            sent: in_unit,
            total,
            piece: in_unit,
            ticket: self.ticket,
        });
        Some((transmit, leaving))
    }
}

impl RemainingFragments {
    /// Writes the next piece. They have one length, whatever the link has become.
    pub(super) fn next(&mut self, head: &mut [u8], from: &mut Spans) -> Option<Transmit> {
        let len = self.piece.min(self.total - self.sent);
        if len == 0 {
            return None;
        }
        let id = self.envelope.fragment.map_or(0, |fragment| fragment.id);
        let more = self.sent + len < self.total;
        self.envelope.fragment = Some(Fragment { id, offset: self.sent, more });
        let head_len = self.envelope.write(head, len)?;
        slice(&self.payload, self.sent - self.header, len, from)?;
        self.sent += len;
        Some(Transmit {
            to: Peer::Unaddressed,
            head_len: head_len as u16,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: landfall_placement::Ecn::NotCapable,
            ticket: self.ticket,
        })
    }

    /// How many units there will not be if it is given up.
    pub(super) fn units_left(&self) -> u32 {
        (self.total - self.sent).div_ceil(self.piece.max(1))
    }

    pub(super) const fn is_gone(&self) -> bool {
        self.sent >= self.total
    }
}

/// Adds the spans of the bytes `[at, at + len)` of a list.
fn slice(list: &[Span], at: u32, len: u32, into: &mut Spans) -> Option<()> {
    let (mut skip, mut wanted) = (at, len);
    for span in list {
        let (_, rest) = span.split_at(skip);
        skip = skip.saturating_sub(span.len);
        let (part, _) = rest.split_at(wanted);
        into.push(part).ok()?;
        wanted -= part.len;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use landfall_placement::RegionId;

    fn packet<'a>(payload: u32, header: &'a [u8], version: u8) -> Outgoing<'a> {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let ends = if version == 4 { ["10.0.0.1", "10.0.0.2"] } else { ["fe80::1", "fe80::2"] };
        let [source, destination] = ends.map(address);
        let envelope = Envelope::new(([2; 6], source), ([4; 6], destination), 17);
        let (sum_offset, cut) = (6, None);
        Outgoing { envelope, header, sum_offset, payload, cut, ticket: Ticket::new(1, 2) }
    }

    #[test]
    fn pieces_join_to_the_payload_and_end_on_multiples_of_eight() {
        for (version, mtu, len) in
            [(4, 1_500, 5_000), (6, 1_280, 5_000), (4, 576, 561), (6, 1_500, 1_453)]
        {
            let mut all = Spans::new();
            let region = RegionId::new(0, 0);
            all.push(region.span(1_000, 10)).unwrap();
            all.push(region.span(9_000, len - 10)).unwrap();
            let packet = packet(len, &[7; 8], version);
            let mut head = [0; 128];
            let (first, leaving) = packet.write(mtu, 77, &mut head, &all).unwrap();
            let mut units = 1;
            let mut covered = u64::from(len - first.sum_only);
            assert_eq!((covered + 8) % 8, 0);
            assert!(u32::from(first.head_len) + (len - first.sum_only) <= mtu + 14);
            let mut leaving = leaving.unwrap();
            while !leaving.is_gone() {
                let mut from = Spans::new();
                let unit = leaving.next(&mut head, &mut from).unwrap();
                let bytes = from.total_len();
                assert!(u64::from(unit.head_len) + bytes <= u64::from(mtu) + 14);
                assert_eq!(unit.checksum, None);
                let expected = if covered < 10 { 1_000 + covered } else { 9_000 - 10 + covered };
                assert_eq!(from[0].offset, expected);
                covered += bytes;
                units += 1;
            }
            assert_eq!(covered, u64::from(len));
            assert_eq!(packet.units(mtu), Some(units));
        }
    }

    #[test]
    fn what_fits_leaves_whole() {
        let packet = packet(1_472, &[7; 8], 4);
        let mut head = [0; 128];
        let (unit, leaving) = packet.write(1_500, 1, &mut head, &Spans::new()).unwrap();
        assert!(leaving.is_none());
        assert_eq!((unit.sum_only, unit.head_len), (0, 42));
        assert_eq!(packet.units(60), Some(37), "1,480 bytes in pieces of 40");
        assert_eq!(packet.units(20), None);
    }
}
