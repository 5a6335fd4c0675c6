//! Hosts and their Ethernet addresses.

use clan_dsm::HostId;

/// Bytes of an Ethernet address.
pub(super) const STATION: usize = 6;
/// Destination, source, type.
pub(super) const ETHERNET: usize = 14;

/// Locally administered, and "CLA".
const PREFIX: [u8; 4] = [0x02, 0x43, 0x4c, 0x41];

/// The Ethernet address of a host's interface.
#[must_use]
pub const fn station_of(host: HostId) -> [u8; STATION] {
    let [high, low] = host.number().to_be_bytes();
    let [a, b, c, d] = PREFIX;
    [a, b, c, d, high, low]
}

/// Where a frame has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// To this host.
    Host(HostId),
    /// To every host: broadcast and multicast.
    All,
    /// To nobody who could be on this network.
    Nobody,
}

impl Destination {
    pub(super) fn of(header: &[u8; ETHERNET]) -> Self {
        let [a, b, c, d, high, low, ..] = *header;
        if a & 1 == 1 {
            return Self::All;
        }
        match HostId::new(u16::from_be_bytes([high, low])) {
            Some(host) if [a, b, c, d] == PREFIX => Self::Host(host),
            _ => Self::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(to: [u8; STATION]) -> [u8; ETHERNET] {
        let mut header = [0; ETHERNET];
        header[..STATION].copy_from_slice(&to);
        header
    }

    #[test]
    fn a_station_names_its_host() {
        for number in [0, 1, 255, 256, HostId::MAX] {
            let host = HostId::new(number).unwrap();
            assert_eq!(Destination::of(&header(station_of(host))), Destination::Host(host));
        }
    }

    #[test]
    fn groups_are_for_all_and_strangers_for_nobody() {
        assert_eq!(Destination::of(&header([0xff; 6])), Destination::All);
        assert_eq!(Destination::of(&header([0x33, 0x33, 0, 0, 0, 1])), Destination::All);
        assert_eq!(Destination::of(&header([0x02, 0, 0, 0, 0, 1])), Destination::Nobody);
        assert_eq!(Destination::of(&header([2, 0x43, 0x4c, 0x41, 0x10, 0])), Destination::Nobody);
    }
}
