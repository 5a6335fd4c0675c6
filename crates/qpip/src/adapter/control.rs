//! [`Control`]: whole packets without memory of any user: ARP, neighbour
//! discovery, ICMP, resets and what else belongs to no queue pair.

use landfall_placement::{Ecn, Peer, Ticket, Transmit};

/// The longest such packet: what every driver has room for as a head.
pub(super) const CONTROL_MAX: usize = 256;

/// The ticket of whatever holds no memory.
pub(super) const NO_TICKET: Ticket = Ticket::from_raw(u64::MAX);

/// A packet that is complete.
#[derive(Clone, Debug)]
pub(super) struct Control {
    len: u16,
    bytes: [u8; CONTROL_MAX],
}

impl Control {
    /// What `write` writes, if it found room; it gives the length.
    pub(super) fn new(write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Self> {
        let mut bytes = [0; CONTROL_MAX];
        let len = write(&mut bytes)?;
        Some(Self { len: len.min(CONTROL_MAX) as u16, bytes })
    }

    /// The packet as a unit, if `head` has room for it.
    pub(super) fn transmit(&self, head: &mut [u8]) -> Option<Transmit> {
        let len = usize::from(self.len);
        head.get_mut(..len)?.copy_from_slice(&self.bytes[..len]);
        Some(bare(self.len))
    }
}

/// A unit without payload whose checksums are right already.
pub(super) const fn bare(head_len: u16) -> Transmit {
    Transmit {
        to: Peer::Unaddressed,
        head_len,
        segment: None,
        checksum: None,
        sum_only: 0,
        ecn: Ecn::NotCapable,
        ticket: NO_TICKET,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_not_sent() {
        let control = Control::new(|bytes| {
            bytes[..3].copy_from_slice(b"abc");
            Some(3)
        });
        let control = control.unwrap();
        assert!(control.transmit(&mut [0; 2]).is_none());
        let mut head = [0; 8];
        assert_eq!(control.transmit(&mut head).unwrap().head_len, 3);
        assert_eq!(&head[..4], b"abc\0");
        assert!(Control::new(|_| None).is_none());
    }
}
