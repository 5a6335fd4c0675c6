//! What the kernel says beside a frame: `PACKET_AUXDATA`.

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
}
