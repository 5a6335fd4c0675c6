//! Packets that ended without being complete, for their senders to be told.

use alloc::vec::Vec;

use landfall_inet::{ethernet, ipv6};

use super::datagram::Datagram;
use super::frame::{Link, Vlans};
use super::kept::Frame;
use crate::memory::Head;
use crate::wire::{Key, Parsed, time_exceeded};

/// Why a packet ended that was not complete. (One whose fragments contradict each other ends
/// silently: RFC 5722.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It was not complete in time.
    Expired,
    /// Others needed the room.
    Evicted,
}

/// A packet that ended without being complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedPacket {
    /// Addresses, identification and protocol.
    pub key: Key,
    /// The VLANs that its fragments came through.
    pub vlans: Vlans,
    /// Why it ended.
    pub reason: EndReason,
    /// How many fragments were here.
    pub fragments: u16,
    /// How many bytes of the payload were here.
    pub bytes: u32,
    /// Its first fragment, if that was here.
    pub first: Option<FirstFragment>,
    link: Link,
}

/// The first fragment of a packet that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstFragment {
    /// What its headers say.
    pub parsed: Parsed,
    /// Its headers, from the link's to the IP header's end.
    pub head: Head,
    /// The bytes behind, as many as the longest answer holds; none of a packet that was evicted.
    pub payload: Vec<u8>,
}

impl EndedPacket {
    /// The smallest MTU of IPv6 without the headers of an answer (RFC 4443, section 3.3).
    const PAYLOAD_MOST: usize = ipv6::MTU_MIN as usize - ipv6::LEN - 8;

    pub(super) fn new<F: Frame>(
        link: Link,
        key: Key,
        vlans: Vlans,
        reason: EndReason,
        datagram: &Datagram<F>,
    ) -> Self {
        let first = datagram.first().and_then(|(parsed, head)| {
            // Nobody is told of what went for want of room: it costs no copy.
            let most = if reason == EndReason::Expired { Self::PAYLOAD_MOST } else { 0 };
            let payload = datagram.first_payload(most).to_vec();
            Some(FirstFragment { parsed: *parsed, head: Head::from_slice(head)?, payload })
        });
        let (fragments, bytes) = (datagram.fragments, datagram.filled());
        Self { key, vlans, reason, fragments, bytes, first, link }
    }

    /// The frame that tells the sender: ICMP "fragment reassembly time exceeded" (RFC 792; RFC
    /// 1122, section 3.2.2.4; RFC 8200, section 4.5), in the name of the packet's destination, with
    /// the link header turned round, or none as [`Link`] has it.
    ///
    /// `None` if nobody is to be told: the packet did not expire, its first fragment was not here,
    /// it went to a group, its source is no host's, or it carries an error message itself. How
    /// often such messages leave is for the caller to bound (RFC 1812, section 4.3.2.8; RFC 4443,
    /// section 2.4).
    #[must_use]
    pub fn time_exceeded(&self) -> Option<Vec<u8>> {
        /// Two stations, where there are none.
        const STATIONS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let first = self.first.as_ref().filter(|_| self.reason == EndReason::Expired)?;
        let (link, network) = first.head.split_at_checked(first.parsed.network_at.into())?;
        let stations = link.get(..STATIONS.len()).unwrap_or(&STATIONS);
        let is_v6 = self.key.protocol == Key::IPV6;
        let ethertype = if is_v6 { ethernet::IPV6 } else { ethernet::IPV4 };
        let plain = [stations, &ethertype.to_be_bytes(), network].concat();
        let parsed = Parsed {
            network_at: ethernet::LEN as u16,
            payload_at: plain.len() as u16,
            ..first.parsed
        };
        let mut frame = time_exceeded(&plain, &parsed, &first.payload)?;
        match self.link {
            Link::Ip => drop(frame.drain(..ethernet::LEN)),
            // The tags stand between the stations and what follows.
            Link::Ethernet => {
                let tags = link.get(STATIONS.len()..link.len().saturating_sub(2)).unwrap_or(&[]);
                frame.splice(STATIONS.len()..STATIONS.len(), tags.iter().copied());
            }
        }
        Some(frame)
    }
}
