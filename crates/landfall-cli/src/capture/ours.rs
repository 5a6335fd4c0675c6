//! Which frames of an interface belong to this family.

use landfall_inet::{ethernet, ipv4, ipv6, protocol, udp};

/// STP and CLAN directly on Ethernet.
const ETHERTYPES: [u16; 2] = [0x8181, 0x88b5];
/// STP directly on IP.
const PROTOCOL: u8 = 118;
/// STP and CLAN on UDP.
const UDP_PORTS: [u16; 2] = [8181, 8182];

/// What is recorded.
#[derive(Clone, Debug)]
pub(super) struct CaptureFilter {
    everything: bool,
    /// Of TCP and UDP.
    ports: Vec<u16>,
}

impl CaptureFilter {
    pub(super) const fn everything() -> Self {
        Self { everything: true, ports: Vec::new() }
    }

    /// What is ours by its form, and these ports of TCP and UDP.
    pub(super) fn with_ports(ports: &[u16]) -> Self {
        Self { everything: false, ports: ports.to_vec() }
    }

    /// Does this frame, of which the first bytes are here, belong to us?
    pub(super) fn is_ours(&self, frame: &[u8]) -> bool {
        self.everything || self.is_known(frame).unwrap_or(false)
    }

    fn is_known(&self, frame: &[u8]) -> Option<bool> {
        let (ethernet, packet) = ethernet::read(frame).ok()?;
        let ethertype = ethernet.ethertype.get();
        if ETHERTYPES.contains(&ethertype) {
            return Some(true);
        }
        let (protocol, rest) = match ethertype {
            ethernet::IPV4 => {
                let header = ipv4::Header::view(packet.first_chunk()?);
                // Only the first fragment has ports.
                let is_first = header.piece().offset == 0;
                (header.protocol, packet.get(header.header_len()..).filter(|_| is_first))
            }
            ethernet::IPV6 => (ipv6::read(packet).ok()?.next_header, packet.get(ipv6::LEN..)),
            _ => return Some(false),
        };
        if protocol == PROTOCOL {
            return Some(true);
        }
        let ports = udp::ports(rest?)?;
        let has = |known: &[u16]| ports.iter().any(|port| known.contains(port));
        Some(match protocol {
            protocol::UDP => has(&UDP_PORTS) || has(&self.ports),
            protocol::TCP => has(&self.ports),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        frame
    }

    fn ipv4(protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        frame(0x0800, &packet)
    }

    #[test]
    fn what_is_ours_is_known_by_its_form() {
        let plain = CaptureFilter::with_ports(&[]);
        let with_port = CaptureFilter::with_ports(&[7]);
        for (mine, frame) in [
            (true, frame(0x8181, &[])),
            (true, frame(0x88b5, &[1])),
            (false, frame(0x0806, &[0; 28])),
            (true, ipv4(118, [0, 0])),
            (true, ipv4(17, [40_000, 8181])),
            (true, ipv4(17, [8182, 40_000])),
            (false, ipv4(6, [40_000, 8181])),
            (false, ipv4(17, [40_000, 53])),
            (false, vec![0; 13]),
            (false, frame(0x0800, &[])),
        ] {
            assert_eq!(plain.is_ours(&frame), mine, "{frame:x?}");
            assert!(CaptureFilter::everything().is_ours(&frame));
        }
        assert!(with_port.is_ours(&ipv4(6, [7, 40_000])) && with_port.is_ours(&ipv4(17, [1, 7])));
        assert!(!plain.is_ours(&ipv4(6, [7, 40_000])));
        // A later fragment has bytes of the payload where ports would be.
        let mut fragment = ipv4(17, [40_000, 8181]);
        fragment[14 + 7] = 9;
        assert!(!plain.is_ours(&fragment));
        let mut ipv6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        ipv6.extend([0; 32]);
        ipv6.extend([0x1f, 0xf5, 0, 1]);
        assert!(plain.is_ours(&frame(0x86dd, &ipv6)));
    }

    #[test]
    fn no_bytes_panic() {
        let ours = CaptureFilter::with_ports(&[7]);
        for frame in [ipv4(17, [1, 8181]), frame(0x86dd, &[0; 44]), frame(0x0800, &[0x4f; 20])] {
            for len in 0..=frame.len() {
                ours.is_ours(&frame[..len]);
            }
        }
    }
}
