//! Message headers: what the kernel is told with a call, and what it tells: link-layer
//! addresses, and `PACKET_AUXDATA` beside a frame.
//!
//! A header is prepared for one call, and names memory of its own and of its
//! caller: it must stay where it is until that call, by whichever system call
//! or submission, is over.

use std::mem;

use landfall_placement::Peer;

use super::link::Frame;
use crate::exchange::{MessageHeader, control_len, set_control, set_name, set_pieces};

/// The header of a receive, with room for all that the kernel may say.
pub(crate) struct ReceiveHeader {
    header: MessageHeader,
    from: LinkAddress,
    control: Control,
}

impl ReceiveHeader {
    pub(crate) const fn new() -> Self {
        Self {
            header: MessageHeader::EMPTY,
            from: LinkAddress::unspecified(),
            control: Control::empty(),
        }
    }

    /// Ready to receive into these pieces.
    pub(crate) fn prepare(&mut self, pieces: &mut [libc::iovec]) -> *mut libc::msghdr {
        self.from = LinkAddress::unspecified();
        self.header = MessageHeader::EMPTY;
        let header = &mut self.header.0;
        set_name(header, (&raw mut self.from.0).cast(), LinkAddress::LEN);
        set_pieces(header, pieces.as_mut_ptr(), pieces.len());
        set_control(header, self.control.as_mut_ptr(), Control::LEN);
        &raw mut self.header.0
    }

    /// The header as it is now, for a call that takes several.
    pub(crate) fn prepared(&self) -> &MessageHeader {
        &self.header
    }

    /// The same, for one by which the kernel writes into it.
    #[cfg(feature = "io-uring")]
    pub(crate) fn prepared_mut(&mut self) -> *mut libc::msghdr {
        &raw mut self.header.0
    }

    /// What such a call made of it.
    pub(crate) fn note(&mut self, told: MessageHeader) {
        self.header = told;
    }

    /// What the kernel told about a receive of `len` bytes.
    pub(crate) fn frame(&self, len: usize) -> Frame {
        Frame {
            len,
            from: self.from,
            truncated: self.header.0.msg_flags & libc::MSG_TRUNC != 0,
            auxiliary: self.control.auxiliary(control_len(&self.header.0)),
        }
    }
}

/// The header of a send.
pub(crate) struct SendHeader {
    header: MessageHeader,
    to: LinkAddress,
}

impl SendHeader {
    pub(crate) const fn new() -> Self {
        Self { header: MessageHeader::EMPTY, to: LinkAddress::unspecified() }
    }

    /// Ready to send these pieces there.
    pub(crate) fn prepare(
        &mut self,
        pieces: &[libc::iovec],
        to: LinkAddress,
    ) -> *const libc::msghdr {
        self.to = to;
        self.header = MessageHeader::EMPTY;
        let header = &mut self.header.0;
        set_name(header, (&raw mut self.to.0).cast(), LinkAddress::LEN);
        // The kernel only reads the list of a send.
        set_pieces(header, pieces.as_ptr().cast_mut(), pieces.len());
        &raw const self.header.0
    }

    /// The header as it is now, for a call that sends several.
    pub(crate) fn prepared(&self) -> &MessageHeader {
        &self.header
    }
}

/// Room for the control message of one receive, and for another one.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control([u8; Self::LEN]);

/// What the kernel said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Auxiliary {
    /// The VLAN that the frame belongs to; none for the untagged network.
    pub(crate) vlan: Option<u16>,
    /// The transport checksum is known to be right, or was never computed,
    /// because the frame did not leave this machine.
    pub(crate) verified: bool,
}

/// The lower bits of a tag; those above are priorities.
const VLAN_ID: u16 = 0x0fff;

impl Control {
    pub(crate) const LEN: usize = 96;

    pub(crate) const fn empty() -> Self {
        Self([0; Self::LEN])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.0.as_mut_ptr().cast()
    }

    /// Reads what the kernel said in the first `len` bytes.
    pub(crate) fn auxiliary(&self, len: usize) -> Auxiliary {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        const WORD: usize = size_of::<usize>();
        let mut rest = &self.0[..len.min(Self::LEN)];
        while let Some((header, _)) = rest.split_at_checked(HEADER) {
            let (total, kind) = header.split_at(WORD);
            let total = usize::from_ne_bytes(total.try_into().unwrap_or_default());
            let Some(data) = rest.get(HEADER..total) else { break };
            let level_and_kind =
                [libc::SOL_PACKET.to_ne_bytes(), libc::PACKET_AUXDATA.to_ne_bytes()];
            if kind[..8] == *level_and_kind.as_flattened() {
                return Auxiliary::read(data);
            }
            rest = rest.get(total.next_multiple_of(WORD)..).unwrap_or_default();
        }
        Auxiliary::default()
    }
}

impl Auxiliary {
    /// Reads a `struct tpacket_auxdata` (`linux/if_packet.h`).
    fn read(data: &[u8]) -> Self {
        let Some(([a, b, c, d], rest)) = data.split_first_chunk() else {
            return Self::default();
        };
        let status = u32::from_ne_bytes([*a, *b, *c, *d]);
        let tag = rest.get(12..14).map_or(0, |tag| u16::from_ne_bytes([tag[0], tag[1]]));
        let tagged = status & libc::TP_STATUS_VLAN_VALID != 0;
        Self {
            vlan: Some(tag & VLAN_ID).filter(|id| tagged && *id != 0),
            verified: status & (libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_CSUM_VALID) != 0,
        }
    }
}

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

/// What makes an interface take more frames: those to one more station or group, or to
/// any group.
pub(crate) fn membership(index: u32, station: Option<[u8; 6]>) -> libc::packet_mreq {
    let kind = match station {
        Some([first, ..]) if first & 1 == 1 => libc::PACKET_MR_MULTICAST,
        Some(_) => libc::PACKET_MR_UNICAST,
        None => libc::PACKET_MR_ALLMULTI,
    };
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

    /// A control message as the kernel writes it.
    fn message(status: u32, tag: u16) -> (Control, usize) {
        let mut control = Control::empty();
        let header = size_of::<libc::cmsghdr>();
        let total = header + size_of::<libc::tpacket_auxdata>();
        control.0[..8].copy_from_slice(&total.to_ne_bytes());
        control.0[8..12].copy_from_slice(&libc::SOL_PACKET.to_ne_bytes());
        control.0[12..16].copy_from_slice(&libc::PACKET_AUXDATA.to_ne_bytes());
        control.0[header..header + 4].copy_from_slice(&status.to_ne_bytes());
        control.0[header + 16..header + 18].copy_from_slice(&tag.to_ne_bytes());
        (control, total.next_multiple_of(8))
    }

    #[test]
    fn vlans_are_told_from_priorities() {
        let vlan = |status, tag| {
            let (control, len) = message(status, tag);
            control.auxiliary(len).vlan
        };
        assert_eq!(vlan(libc::TP_STATUS_VLAN_VALID, 0x2005), Some(5));
        assert_eq!(vlan(libc::TP_STATUS_VLAN_VALID, 0x2000), None);
        assert_eq!(vlan(0, 0x2005), None);
    }

    #[test]
    fn checksums_of_frames_that_never_left_are_not_looked_at() {
        let (control, len) = message(libc::TP_STATUS_CSUMNOTREADY, 0);
        assert!(control.auxiliary(len).verified);
        let (control, len) = message(0, 0);
        assert!(!control.auxiliary(len).verified);
    }

    #[test]
    fn cut_messages_say_nothing() {
        let (mut control, len) = message(libc::TP_STATUS_CSUMNOTREADY, 0);
        for cut in 0..len - 8 {
            assert_eq!(control.auxiliary(cut), Auxiliary::default(), "{cut}");
        }
        for total in [0usize, 7, usize::MAX] {
            control.0[..8].copy_from_slice(&total.to_ne_bytes());
            assert_eq!(control.auxiliary(len), Auxiliary::default());
        }
    }

    #[test]
    fn a_station_survives_the_round_trip() {
        let station = [2, 0, 0, 1, 2, 3];
        let address = LinkAddress::interface(7, 0x88b5).to_station(station);
        assert_eq!(address.peer(), Peer::Ethernet(station));
        assert_eq!(address.0.sll_protocol.to_ne_bytes(), [0x88, 0xb5]);
        assert_eq!(LinkAddress::unspecified().peer(), Peer::Unaddressed);
    }
}
