//! A path that several engines share: it is opened once for each of them, and the kernel says
//! which of them a peer comes to.

use std::io;

use landfall_placement::{PathId, Peer};
use landfall_transport::memory::Regions;
use landfall_transport::packet::{PacketConfig, PacketDriver};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::udp_packet::{UdpPacketConfig, UdpPacketDriver};

use super::driver_source::Member;

/// A path that several engines can share.
pub(crate) enum SharedPath {
    Udp(UdpConfig),
    UdpPacket(UdpPacketConfig),
    Ethernet(PacketConfig),
}

/// By what peers that send to one port of UDP are spread over the engines. Stations of an
/// Ethernet always are [by their address](member_of).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpreadBy {
    /// A secret of the kernel's, and both addresses: nobody knows beforehand who comes where.
    #[cfg_attr(not(feature = "stp"), expect(dead_code, reason = "only STP spreads so"))]
    Kernel,
    /// The peer's address and port alone: [`member_of`] says who comes where.
    #[cfg_attr(not(feature = "clan"), expect(dead_code, reason = "only CLAN spreads so"))]
    Peer,
}

impl SharedPath {
    /// Opens it for this many engines, as the path with this number of each.
    ///
    /// # Errors
    /// Those of the drivers. Datagrams by packets are spread by the kernel alone.
    pub(crate) fn open(
        &self,
        path: PathId,
        regions: &Regions,
        (count, by): (usize, SpreadBy),
    ) -> io::Result<Vec<Member>> {
        Ok(match (self, by) {
            (Self::Udp(config), SpreadBy::Kernel) => {
                let group = UdpDriver::open_group(path, *config, regions, count)?;
                group.into_iter().map(Member::Udp).collect()
            }
            (Self::Udp(config), SpreadBy::Peer) => {
                let group = UdpDriver::open_group_by_peer(path, *config, regions, count)?;
                group.into_iter().map(Member::Udp).collect()
            }
            (Self::UdpPacket(config), SpreadBy::Kernel) => {
                let group = UdpPacketDriver::open_group(path, config, regions, count)?;
                group.into_iter().map(Member::UdpPacket).collect()
            }
            (Self::UdpPacket(_), SpreadBy::Peer) => return Err(io::ErrorKind::Unsupported.into()),
            (Self::Ethernet(config), _) => {
                let group = PacketDriver::open_group(path, config, regions, count)?;
                group.into_iter().map(Member::Packet).collect()
            }
        })
    }
}

/// Which of this many engines a peer comes to, where peers are spread by their addresses.
#[cfg(feature = "clan")]
pub(crate) fn member_of(peer: Peer, count: usize) -> usize {
    let member = match peer {
        Peer::Socket(socket) => UdpDriver::member_of(socket, count),
        Peer::Ethernet(station) => PacketDriver::member_of(station, count),
        // No shared path leads there.
        _ => None,
    };
    member.unwrap_or(0)
}
