//! What stands in front of a packet on its journey: what the kernel left to be done,
//! and the Ethernet header.
//!
//! The kernel hands over super-packets of TCP in one piece, whatever the MTU, and sums
//! that were not computed. Both go on as they are: the memory of the other side is no
//! wire, and what carries them there checks every byte by itself.

use landfall_transport::tap::OFFLOAD_HEADER;

use super::station::ETHERNET;

/// Both headers.
pub(super) const HEADER: usize = OFFLOAD_HEADER + ETHERNET;

/// Room for any packet: IP has none that is longer than 65,535 bytes.
pub(super) const ROOM: u32 = 65_536;

/// The Ethernet header of the two.
pub(super) fn ethernet(header: &[u8; HEADER]) -> [u8; ETHERNET] {
    let mut ethernet = [0; ETHERNET];
    ethernet.copy_from_slice(&header[OFFLOAD_HEADER..]);
    ethernet
}

/// From this machine's byte order to that of the journey, which is little-endian, and
/// back: the kernel's header has two bytes, then numbers of 16 bits.
pub(super) fn in_other_order(mut header: [u8; HEADER]) -> [u8; HEADER] {
    for number in header[2..OFFLOAD_HEADER].chunks_exact_mut(2) {
        let swapped = u16::from_ne_bytes([number[0], number[1]]).to_le_bytes();
        number.copy_from_slice(&swapped);
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_travel_little_endian_and_bytes_as_they_are() {
        let mut header = [7; HEADER];
        header[2..4].copy_from_slice(&0x1234_u16.to_ne_bytes());
        header[8..10].copy_from_slice(&0x5678_u16.to_ne_bytes());
        let travels = in_other_order(header);
        assert_eq!((travels[2], travels[3], travels[8], travels[9]), (0x34, 0x12, 0x78, 0x56));
        assert_eq!(in_other_order(travels), header);
        assert_eq!(travels[..2], header[..2]);
        assert_eq!(ethernet(&travels), ethernet(&header));
    }
}
