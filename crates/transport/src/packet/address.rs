//! Link-layer addresses as the kernel wants them, and back.

use std::mem;

use landfall_placement::Peer;

/// Where a frame goes, or came from (`packet(7)`).
#[derive(Clone, Copy)]
pub(crate) struct LinkAddress(pub(crate) libc::sockaddr_ll);

impl LinkAddress {
    pub(crate) const LEN: libc::socklen_t = size_of::<libc::sockaddr_ll>() as libc::socklen_t;

    /// No address, to be overwritten by the kernel.
    pub(crate) const fn unspecified() -> Self {
        // SAFETY: the address is made of numbers, for all of which zero is good.
        Self(unsafe { mem::zeroed() })
    }

    /// An interface and an ethertype: to bind to, or to send a frame through.
    pub(crate) const fn interface(index: u32, ethertype: u16) -> Self {
        let mut address = Self::unspecified();
        address.0.sll_family = libc::AF_PACKET as libc::sa_family_t;
        address.0.sll_protocol = ethertype.to_be();
        address.0.sll_ifindex = index as libc::c_int;
        address
    }

    /// The same, to a station.
    pub(crate) fn to_station(mut self, station: [u8; 6]) -> Self {
        self.0.sll_halen = 6;
        self.0.sll_addr[..6].copy_from_slice(&station);
        self
    }

    /// Who sent the frame.
    pub(crate) fn peer(&self) -> Peer {
        match (self.0.sll_halen, self.0.sll_addr) {
            (6, [a, b, c, d, e, f, ..]) => Peer::Ethernet([a, b, c, d, e, f]),
            _ => Peer::Unaddressed,
        }
    }

    /// Was it for the interface's station, or for all? Not so: what that sent
    /// itself, and what is for others. Where a socket is bound to a protocol, a
    /// frame of a VLAN counts as for others, and has lost its tag.
    pub(crate) fn is_for_interface(&self) -> bool {
        matches!(
            self.0.sll_pkttype,
            libc::PACKET_HOST | libc::PACKET_BROADCAST | libc::PACKET_MULTICAST
        )
    }

    /// Was it for all, or for a group of stations?
    pub(crate) fn is_for_group(&self) -> bool {
        matches!(self.0.sll_pkttype, libc::PACKET_BROADCAST | libc::PACKET_MULTICAST)
    }

    /// Was it for another station?
    pub(crate) fn is_for_others(&self) -> bool {
        self.0.sll_pkttype == libc::PACKET_OTHERHOST
    }
}

/// What makes an interface take more frames: those to one more station, or to
/// any group.
pub(crate) fn membership(index: u32, station: Option<[u8; 6]>) -> libc::packet_mreq {
    let kind = if station.is_some() { libc::PACKET_MR_UNICAST } else { libc::PACKET_MR_ALLMULTI };
    let mut address = [0; 8];
    address[..6].copy_from_slice(&station.unwrap_or_default());
    libc::packet_mreq {
        mr_ifindex: index as libc::c_int,
        mr_type: kind as libc::c_ushort,
        mr_alen: 6,
        mr_address: address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_survives_the_round_trip() {
        let station = [2, 0, 0, 1, 2, 3];
        let address = LinkAddress::interface(7, 0x88b5).to_station(station);
        assert_eq!(address.peer(), Peer::Ethernet(station));
        assert_eq!(address.0.sll_protocol.to_ne_bytes(), [0x88, 0xb5]);
        assert_eq!(LinkAddress::unspecified().peer(), Peer::Unaddressed);
    }
}
