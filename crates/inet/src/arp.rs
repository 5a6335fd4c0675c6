//! Address resolution for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use landfall_placement::Refusal;
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ethernet::{self, Mac};

/// The length of a message.
pub const LEN: usize = size_of::<Message>();

const HARDWARE_ETHERNET: u16 = 1;
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

const _: () = assert!(LEN == 28);

/// The message as it lies in a frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Message {
    hardware: U16,
    protocol: U16,
    hardware_len: u8,
    protocol_len: u8,
    operation: U16,
    sender_mac: Mac,
    sender: [u8; 4],
    target_mac: Mac,
    target: [u8; 4],
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has the sender address.
    Reply,
}

/// A message, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// What it is.
    pub operation: Operation,
    /// The station that sends.
    pub sender_mac: Mac,
    /// Its address; unspecified in a probe (RFC 5227).
    pub sender: Ipv4Addr,
    /// The station that is meant; of no meaning in a request.
    pub target_mac: Mac,
    /// The address that is asked for, or that is answered to.
    pub target: Ipv4Addr,
}

impl Arp {
    /// Reads the message that follows an Ethernet header.
    ///
    /// # Errors
    /// [`Refusal::Truncated`]; [`Refusal::Unsupported`] where it is not about
    /// IPv4 over Ethernet; [`Refusal::Malformed`] where a group claims to be one
    /// station.
    pub fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let (message, _) = Message::ref_from_prefix(bytes).map_err(|_| Refusal::Truncated)?;
        if message.hardware.get() != HARDWARE_ETHERNET
            || message.protocol.get() != ethernet::IPV4
            || (message.hardware_len, message.protocol_len) != (6, 4)
        {
            return Err(Refusal::Unsupported);
        }
        let operation = match message.operation.get() {
            REQUEST => Operation::Request,
            REPLY => Operation::Reply,
            _ => return Err(Refusal::Unsupported),
        };
        let sender = Ipv4Addr::from(message.sender);
        if ethernet::is_group(message.sender_mac) || sender.is_multicast() || sender.is_broadcast()
        {
            return Err(Refusal::Malformed);
        }
        Ok(Self {
            operation,
            sender_mac: message.sender_mac,
            sender,
            target_mac: message.target_mac,
            target: Ipv4Addr::from(message.target),
        })
    }

    /// Writes the message behind an Ethernet header and gives its length, or
    /// `None` if there is no room.
    pub fn write(&self, into: &mut [u8]) -> Option<usize> {
        let message = Message {
            hardware: HARDWARE_ETHERNET.into(),
            protocol: ethernet::IPV4.into(),
            hardware_len: 6,
            protocol_len: 4,
            operation: match self.operation {
                Operation::Request => REQUEST.into(),
                Operation::Reply => REPLY.into(),
            },
            sender_mac: self.sender_mac,
            sender: self.sender.octets(),
            target_mac: self.target_mac,
            target: self.target.octets(),
        };
        message.write_to_prefix(into).ok()?;
        Some(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST_BYTES: [u8; LEN] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

    #[test]
    fn a_request_reads_as_the_rfc_lays_it_out() {
        let arp = Arp::read(&REQUEST_BYTES).unwrap();
        assert_eq!(arp.operation, Operation::Request);
        assert_eq!(arp.sender_mac, [2, 0, 0, 0, 0, 1]);
        assert_eq!(arp.sender, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(arp.target, Ipv4Addr::new(10, 0, 0, 2));
        let mut out = [0; LEN];
        assert_eq!(arp.write(&mut out), Some(LEN));
        assert_eq!(out, REQUEST_BYTES);
        assert_eq!(arp.write(&mut out[1..]), None, "no room");
    }

    #[test]
    fn other_hardware_and_groups_are_refused() {
        for (at, value, refusal) in [
            (1, 6, Refusal::Unsupported),
            (2, 0x86, Refusal::Unsupported),
            (4, 8, Refusal::Unsupported),
            (5, 16, Refusal::Unsupported),
            (7, 3, Refusal::Unsupported),
            (8, 0x03, Refusal::Malformed),
            (14, 224, Refusal::Malformed),
        ] {
            let mut bytes = REQUEST_BYTES;
            bytes[at] = value;
            assert_eq!(Arp::read(&bytes), Err(refusal), "byte {at} = {value}");
        }
        assert_eq!(Arp::read(&REQUEST_BYTES[..LEN - 1]), Err(Refusal::Truncated));
    }

    proptest! {
        #[test]
        fn messages_survive_the_wire(bytes: [u8; LEN]) {
            let mut bytes = bytes;
            bytes[..8].copy_from_slice(&REQUEST_BYTES[..8]);
            bytes[8] &= 0xfe;
            bytes[14] &= 0x7f;
            let arp = Arp::read(&bytes).unwrap();
            let mut out = [0; LEN];
            arp.write(&mut out).unwrap();
            prop_assert_eq!(out, bytes);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Arp::read(&bytes);
        }
    }
}
