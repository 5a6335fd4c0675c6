//! The tag of a VLAN (IEEE 802.1Q), where an interface has one: all else of the adapter reads
//! and writes frames without it.
//!
//! Behind the tag a frame goes on with its ethertype, as behind its stations: four bytes later
//! it reads as a frame without a tag whose stations are wrong. So nothing is copied, and only
//! where something lies is counted from another byte.

use landfall_placement::{
    Check, Offloads, PathLimits, Placement, Refusal, SumSlot, Transmit, Unit,
};
use zerocopy::FromBytes;

use crate::wire::{Stop, ethernet, vlan};

/// How many bytes the two stations have.
const STATIONS: usize = 12;
const TAG: u16 = vlan::LEN as u16;

/// Can a VLAN have this number? Zero names none, and the last one is reserved.
pub(super) const fn is_valid(id: u16) -> bool {
    id != 0 && id < 0xfff
}

/// What a path carries for an interface with a tag: four bytes less, and nothing that a device
/// cuts, for not every device knows where the headers are behind a tag.
pub(super) fn limits(mut limits: PathLimits) -> PathLimits {
    limits.unit = limits.unit.saturating_sub(TAG.into());
    limits.sure = limits.sure.saturating_sub(TAG.into());
    (limits.super_unit, limits.segments) = (limits.unit, 1);
    let no_cuts = Offloads { segment_tcp4: false, segment_tcp6: false, ..limits.offloads };
    limits.offloads = no_cuts;
    limits
}

/// A frame without its tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Untagged<'a> {
    /// It is read from its ethertype on: the stations in its head are none.
    pub(super) unit: Unit<'a>,
    pub(super) ethernet: ethernet::Header,
}

/// The frame behind the tag of this VLAN; frames without it are refused.
pub(super) fn untag<'a>(id: u16, unit: &Unit<'a>) -> Result<Untagged<'a>, Stop> {
    let least = ethernet::LEN + vlan::LEN;
    if (unit.len as usize) < least {
        return Err(Refusal::Truncated.into());
    }
    if unit.head.len() < least {
        return Err(Stop::NeedHead(least as u16));
    }
    let (ethernet, rest) = ethernet::read(unit.head)?;
    let (tag, _) = vlan::Header::ref_from_prefix(rest).map_err(|_| Refusal::Truncated)?;
    if ethernet.ethertype.get() != ethernet::VLAN || tag.id() != id {
        return Err(Refusal::WrongAddress.into());
    }
    let ethernet = ethernet::Header { ethertype: tag.ethertype, ..*ethernet };
    let head = &unit.head[vlan::LEN..];
    Ok(Untagged { unit: Unit { head, len: unit.len - u32::from(TAG), ..*unit }, ethernet })
}

/// Where a frame without its tag has its parts, counted with it; nothing where that is too far.
pub(super) fn placement_with_tag(placement: Placement) -> Option<Placement> {
    Some(match placement {
        Placement::Into { at, check, ticket } => {
            let check = match check {
                Check::InternetSum { from, len, seed } => {
                    Check::InternetSum { from: from.checked_add(TAG)?, len, seed }
                }
                check => check,
            };
            Placement::Into { at: at.checked_add(TAG)?, check, ticket }
        }
        Placement::NeedHead(len) => Placement::NeedHead(len.checked_add(TAG)?),
        other => other,
    })
}

/// Where a frame that is to be tagged is written.
pub(super) fn room(head: &mut [u8]) -> Option<&mut [u8]> {
    head.get_mut(vlan::LEN..)
}

/// Puts the tag into a frame that was written to [`room`].
pub(super) fn tag(id: u16, head: &mut [u8], unit: Transmit) -> Transmit {
    head.copy_within(vlan::LEN..vlan::LEN + STATIONS, 0);
    let [a, b, c, d] = [0x81, 0x00, (id >> 8) as u8, id as u8];
    head[STATIONS..STATIONS + vlan::LEN].copy_from_slice(&[a, b, c, d]);
    let checksum = unit.checksum.map(|slot| SumSlot { start: slot.start + TAG, ..slot });
    Transmit { head_len: unit.head_len + TAG, checksum, ..unit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_placement::{Ecn, PathId, Peer, Ticket};
    use std::vec::Vec;

    fn unit(head: &[u8]) -> Unit<'_> {
        let len = head.len() as u32;
        let (path, from, ecn) = (PathId(0), Peer::Unaddressed, Ecn::NotCapable);
        Unit { path, from, head, len, segment: None, ecn, verified: false }
    }

    fn tagged(id: u16) -> Vec<u8> {
        let mut head = [0; 64];
        room(&mut head).unwrap()[..20].copy_from_slice(&[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0, 21, 22, 23, 24, 25, 26,
        ]);
        let ticket = Ticket::new(0, 0);
        let bare = Transmit {
            to: Peer::Unaddressed,
            head_len: 20,
            segment: None,
            checksum: Some(SumSlot { start: 14, offset: 2 }),
            sum_only: 0,
            ecn: Ecn::NotCapable,
            ticket,
        };
        let with_tag = tag(id, &mut head, bare);
        assert_eq!((with_tag.head_len, with_tag.checksum.unwrap().start), (24, 18));
        head[..24].to_vec()
    }

    #[test]
    fn a_tag_stands_behind_the_stations_and_is_read_there() {
        let frame = tagged(0x123);
        assert_eq!(frame[..12], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(frame[12..18], [0x81, 0, 1, 0x23, 8, 0]);
        let read = untag(0x123, &unit(&frame)).unwrap();
        assert_eq!(read.ethernet.destination, [1, 2, 3, 4, 5, 6]);
        assert_eq!(read.ethernet.ethertype.get(), ethernet::IPV4);
        assert_eq!((&read.unit.head[14..], read.unit.len), (&frame[18..], 20));
        // The priority is no part of the number.
        let mut urgent = frame;
        urgent[14] |= 0xe0;
        assert!(untag(0x123, &unit(&urgent)).is_ok());
    }

    #[test]
    fn frames_of_others_and_short_ones_are_refused_at_every_length() {
        let frame = tagged(7);
        assert_eq!(untag(8, &unit(&frame)).err(), Some(Refusal::WrongAddress.into()));
        let mut outer = frame.clone();
        outer[12..14].copy_from_slice(&[0x88, 0xa8]);
        assert_eq!(untag(7, &unit(&outer)).err(), Some(Refusal::WrongAddress.into()));
        for len in 0..18 {
            let short = untag(7, &unit(&frame[..len])).err();
            assert_eq!(short, Some(Refusal::Truncated.into()), "{len}");
            let early = Unit { len: 24, ..unit(&frame[..len]) };
            assert_eq!(untag(7, &early).err(), Some(Stop::NeedHead(18)), "{len}");
        }
    }

    #[test]
    fn what_is_far_behind_is_refused_and_does_not_wrap() {
        let (check, ticket) = (Check::None, Ticket::new(0, 0));
        let at = |at| Placement::Into { at, check, ticket };
        assert_eq!(placement_with_tag(at(14)), Some(at(18)));
        assert_eq!(placement_with_tag(at(u16::MAX - 3)), None);
        assert_eq!(placement_with_tag(Placement::NeedHead(u16::MAX)), None);
        assert_eq!(placement_with_tag(Placement::Consumed), Some(Placement::Consumed));
    }

    #[test]
    fn numbers_that_name_no_vlan_are_known() {
        assert!(is_valid(1) && is_valid(4_094));
        assert!(!is_valid(0) && !is_valid(4_095) && !is_valid(4_096));
    }
}
