//! What the frames of a path look like: who writes which header, where a unit
//! goes, and which frames that came are units of the path.

use landfall_placement::{Ecn, Offloads, PathLimits, Peer};

use super::message::{Auxiliary, LinkAddress};
use super::socket::Found;
use super::vnet::VNET_HEADER;
use super::{ETHERNET_HEADER, Framing, vnet};
use crate::driver::plain_limits;
use crate::exchange::{Arrival, LONGEST, Prefix};

/// The longest IPv4 packet.
const LONGEST_PACKET: u32 = 65_535;
/// GRO coalesces this many segments at most.
const MOST_SEGMENTS: u16 = 64;

/// The link of a path, as its socket has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) interface: Found,
    /// The path is a station of its own, beside the interface's: the filter
    /// lets only its frames in.
    own_station: Option<[u8; 6]>,
    /// The filter tells frames to this station and to groups from others.
    takes_groups: bool,
    /// Units have no link header; this is the ethertype of their frames.
    payload_of: Option<u16>,
    /// A virtio-net header is in front of every frame.
    offload: bool,
}

/// A frame that came.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    /// With the virtio-net header.
    pub(crate) len: usize,
    pub(crate) from: LinkAddress,
    pub(crate) truncated: bool,
    pub(crate) auxiliary: Auxiliary,
}

impl Link {
    pub(super) fn new(interface: Found, framing: &Framing, offload: bool) -> Self {
        let (payload_of, station, takes_groups) = match framing {
            Framing::Ethernet { filter } => (None, filter.only_station(), filter.takes_groups()),
            Framing::Payload { ethertype } => (Some(*ethertype), None, false),
        };
        let is_group = |station: &[u8; 6]| station[0] & 1 == 1;
        let own_station = station.filter(|own| *own != interface.station && !is_group(own));
        Self { interface, own_station, takes_groups, payload_of, offload }
    }

    /// The station that the path is, if that is not the interface's own.
    pub(crate) const fn own_station(&self) -> Option<[u8; 6]> {
        self.own_station
    }

    /// Does it hear what is for groups of stations, all of them?
    pub(super) const fn takes_groups(&self) -> bool {
        self.takes_groups
    }

    /// The address that peers send to.
    pub(crate) fn station(&self) -> [u8; 6] {
        self.own_station.unwrap_or(self.interface.station)
    }

    /// Does the kernel write and read the link header?
    pub(super) const fn is_payload(&self) -> bool {
        self.payload_of.is_some()
    }

    /// How many bytes the driver puts in front of each frame.
    pub(crate) const fn prefix_len(&self) -> usize {
        if self.offload { VNET_HEADER } else { 0 }
    }

    /// What the path carries at once.
    pub(crate) fn limits(&self) -> PathLimits {
        let mtu = self.interface.mtu;
        if self.payload_of.is_some() {
            let unit = mtu.min(LONGEST as u32);
            return plain_limits(unit);
        }
        let mut limits = whole_frames(mtu, self.offload);
        // The kernel says of each frame what is known of its checksum.
        limits.offloads.sum_receive = true;
        limits
    }

    /// Where a unit goes. None if that cannot be told.
    ///
    /// Of a whole frame the true ethertype has to be said: the kernel segments by it.
    pub(crate) fn destination(&self, to: Peer, head: &[u8]) -> Option<LinkAddress> {
        let index = self.interface.index;
        match (self.payload_of, to) {
            (None, _) => {
                let head: &[u8; ETHERNET_HEADER] = head.first_chunk()?;
                let ethertype = u16::from_be_bytes([head[12], head[13]]);
                Some(LinkAddress::interface(index, ethertype))
            }
            (Some(ethertype), Peer::Ethernet(station)) => {
                Some(LinkAddress::interface(index, ethertype).to_station(station))
            }
            (Some(_), _) => None,
        }
    }

    /// What came behind this prefix, if the path carries such frames.
    pub(crate) fn arrival(&self, frame: &Frame, prefix: &Prefix) -> Option<Arrival> {
        let len = frame.len.checked_sub(self.prefix_len())?;
        let for_this_station = match self.own_station {
            Some(_) if self.takes_groups && frame.from.is_for_group() => true,
            Some(_) => frame.from.is_for_others(),
            None => frame.from.is_for_interface(),
        };
        if frame.truncated || !for_this_station || frame.auxiliary.vlan.is_some() {
            return None;
        }
        let mut told = vnet::Received::default();
        if self.offload {
            told = vnet::read(prefix);
        } else if self.payload_of.is_none() {
            // What the kernel knows of TCP and UDP says nothing of other protocols.
            told.verified = frame.auxiliary.verified;
        }
        let from = match self.payload_of {
            Some(_) => frame.from.peer(),
            None => Peer::Unaddressed,
        };
        Some(Arrival {
            len,
            unit_len: len.max(1),
            from,
            ecn: Ecn::NotCapable,
            coalesced: told.coalesced,
            verified: told.verified,
        })
    }
}

/// What an interface of this MTU carries at once, in whole frames, with a
/// virtio-net header in front of each or without.
pub(crate) fn whole_frames(mtu: u32, offload: bool) -> PathLimits {
    let header = ETHERNET_HEADER as u32;
    let unit = mtu.saturating_add(header).min(LONGEST as u32);
    let plain = plain_limits(unit);
    if !offload {
        return plain;
    }
    PathLimits {
        super_unit: unit.max(LONGEST_PACKET + header),
        segments: MOST_SEGMENTS,
        offloads: Offloads {
            segment_tcp4: true,
            segment_tcp6: true,
            sum_send: true,
            sum_receive: true,
        },
        ..plain
    }
}
