//! The tag of a VLAN (IEEE 802.1Q), which may stand behind an Ethernet header.

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet;

/// The length of the tag.
pub const LEN: usize = size_of::<Header>();

const _: () = assert!(LEN == 4);

/// The tag as it lies behind an Ethernet header whose ethertype is
/// [`ethernet::VLAN`].
///
/// ```
/// use landfall_inet::vlan;
///
/// let tag = vlan::Header::new(5, 42, 0x0800);
/// assert_eq!((tag.priority(), tag.id(), tag.ethertype.get()), (5, 42, 0x0800));
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Header {
    /// 3 bits priority, 1 bit "may be dropped", 12 bits number of the VLAN.
    pub control: U16,
    /// What follows the tag.
    pub ethertype: U16,
}

/// What stands behind the tags of a frame, of which there may be two, where `ethertype` says
/// what `rest` is. Gives the ethertype, and how many bytes the tags take; `None` where they are
/// not at hand.
///
/// ```
/// use landfall_inet::{ethernet, vlan};
///
/// let tag = [0, 7, 0x08, 0x06];
/// assert_eq!(vlan::behind_tags(ethernet::VLAN, &tag), Some((ethernet::ARP, 4)));
/// assert_eq!(vlan::behind_tags(ethernet::ARP, &tag), Some((ethernet::ARP, 0)));
/// assert_eq!(vlan::behind_tags(ethernet::VLAN, &tag[..3]), None);
/// ```
#[must_use]
pub fn behind_tags(mut ethertype: u16, rest: &[u8]) -> Option<(u16, usize)> {
    let mut len = 0;
    for _ in 0..2 {
        if matches!(ethertype, ethernet::VLAN | ethernet::SERVICE_VLAN) {
            ethertype = Header::ref_from_prefix(rest.get(len..)?).ok()?.0.ethertype.get();
            len += LEN;
        }
    }
    Some((ethertype, len))
}

/// Takes the outer tag of an Ethernet frame away: its stations move up to what is behind the tag, so
/// that the frame begins [`LEN`] bytes later. False: it has none.
///
/// ```
/// use landfall_inet::vlan;
///
/// let mut frame = [[1; 6].as_slice(), &[2; 6], &[0x81, 0, 0, 42, 0x08, 0, 0x45]].concat();
/// assert!(vlan::take_tag_away(&mut frame));
/// assert_eq!(frame[vlan::LEN..], *[[1; 6].as_slice(), &[2; 6], &[0x08, 0, 0x45]].concat());
/// assert!(!vlan::take_tag_away(&mut frame[vlan::LEN..]));
/// ```
pub fn take_tag_away(frame: &mut [u8]) -> bool {
    const STATIONS: usize = 12;
    let Some(ethertype) = frame.get(STATIONS..).and_then(|rest| rest.first_chunk()) else {
        return false;
    };
    let is_tag = matches!(u16::from_be_bytes(*ethertype), ethernet::VLAN | ethernet::SERVICE_VLAN);
    let has_tag = is_tag && frame.len() >= ethernet::LEN + LEN;
    if has_tag {
        frame.copy_within(..STATIONS, LEN);
    }
    has_tag
}

/// The VLANs of an Ethernet frame, outer first; 0 where there is none.
///
/// ```
/// use landfall_inet::vlan;
///
/// let frame = [[1; 12].as_slice(), &[0x88, 0xa8, 0x20, 7, 0x81, 0, 0, 42, 0x08, 0]].concat();
/// assert_eq!(vlan::ids(&frame), [7, 42]);
/// ```
#[must_use]
pub fn ids(frame: &[u8]) -> [u16; 2] {
    let mut ids = [0; 2];
    let mut at = ethernet::LEN;
    for id in &mut ids {
        let ethertype = frame.get(at - 2..at).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
        let is_tag = matches!(ethertype, ethernet::VLAN | ethernet::SERVICE_VLAN);
        let tag = frame.get(at..).and_then(|rest| Header::ref_from_prefix(rest).ok());
        let Some((tag, _)) = tag.filter(|_| is_tag) else { break };
        *id = tag.id();
        at += LEN;
    }
    ids
}

impl Header {
    /// A tag of a priority (3 bits) and the number of a VLAN (12 bits; 0 names none).
    #[must_use]
    pub fn new(priority: u8, id: u16, ethertype: u16) -> Self {
        let control = u16::from(priority & 7) << 13 | id & 0x0fff;
        Self { control: control.into(), ethertype: ethertype.into() }
    }

    /// The number of the VLAN; 0 where the tag says a priority alone (section 9.6).
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.control.get() & 0x0fff
    }

    /// The priority.
    #[must_use]
    pub const fn priority(&self) -> u8 {
        (self.control.get() >> 13) as u8
    }
}
