//! Which frames of an interface are for a path, as a program of the kernel's
//! packet filter (classic BPF, `Documentation/networking/filter.rst`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use landfall_inet::{ethernet, vlan};

use super::step::{Step, Targets, instruction};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const TCP: u32 = 6;
const UDP: u32 = 17;
/// IPv6 extension headers (RFC 8200, 4): the one of fragments, and those that
/// may come before it.
pub(crate) const FRAGMENT: u32 = 44;
pub(crate) const BEFORE_FRAGMENT: [u32; 3] = [0, 43, 60];

/// The number of a VLAN in its tag.
const VLAN_ID: u16 = 0x0fff;
const WITHOUT_PRIORITY: Step =
    Step::plain(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, VLAN_ID as u32);

/// Which frames are for a path. The kernel looks before it queues them.
///
/// ```
/// use landfall_transport::packet::Filter;
///
/// // ARP, and whatever comes by TCP or UDP to port 7000 of this host.
/// let filter = Filter::ethertypes([0x0800, 0x0806])
///     .ipv4_to([10, 0, 0, 9].into())
///     .port(7000);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// None means any.
    ethertypes: Vec<u16>,
    station: Option<[u8; 6]>,
    /// Beside those to the station.
    groups: bool,
    host: Option<Ipv4Addr>,
    port: Option<u16>,
    /// Only UDP to this address, of its version of IP.
    socket: Option<SocketAddr>,
    fragments: bool,
    /// The interface took the frame for its own station, or for a group.
    only_received: bool,
    /// The frame is of no VLAN.
    untagged: bool,
    /// Of this VLAN, in place of none.
    vlan: Option<u16>,
    /// Of this one within that.
    inner_vlan: Option<u16>,
}

impl Filter {
    /// Every frame.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Frames of these ethertypes; at most 64, for the length of the program.
    #[must_use]
    pub fn ethertypes<const N: usize>(ethertypes: [u16; N]) -> Self {
        const { assert!(N > 0 && N <= 64, "a filter takes 1 to 64 ethertypes") };
        Self { ethertypes: ethertypes.into(), ..Self::default() }
    }

    /// Of those, the frames to exactly this station: no broadcasts.
    ///
    /// A station other than the interface's own makes the path one of its own
    /// on the same cable. The protocols of the kernel leave its frames alone,
    /// which saves their time and keeps them from answering; choose a locally
    /// administered address (RFC 9542, 2.1: `02` in the first byte).
    #[must_use]
    pub fn station(self, station: [u8; 6]) -> Self {
        Self { station: Some(station), groups: false, ..self }
    }

    /// The same, and the frames to all and to groups of stations: what a
    /// station needs that is asked for by ARP or neighbour discovery. Which
    /// groups it belongs to is for the engine to tell. The protocols of the
    /// kernel see these frames as well.
    #[must_use]
    pub fn station_and_groups(self, station: [u8; 6]) -> Self {
        Self { groups: true, ..self.station(station) }
    }

    /// Of those, no IPv4 packets but the ones to this host. Other protocols pass.
    #[must_use]
    pub fn ipv4_to(self, host: Ipv4Addr) -> Self {
        Self { host: Some(host), ..self }
    }

    /// Of those, no IPv4 packets but TCP and UDP to this port. Fragments
    /// without the port do not pass. Other protocols do.
    #[must_use]
    pub fn port(self, port: u16) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Datagrams of UDP to this address and port. The first fragment of one passes, so that
    /// its receiver can count it; the others have no port, and do not. Neither do IPv6
    /// packets with extension headers.
    #[must_use]
    pub(crate) fn udp_to(address: SocketAddr) -> Self {
        let ethertype = if address.is_ipv4() { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        Self { socket: Some(address), ..Self::ethertypes([ethertype]) }
    }

    /// Of those, no IPv4 or IPv6 packets but fragments. Other protocols pass.
    ///
    /// An IPv6 packet with other extension headers passes as well: whether a
    /// fragment header is behind them is for the receiver to see.
    #[must_use]
    pub fn fragments(self) -> Self {
        Self { fragments: true, ..self }
    }

    /// Of those, the frames of this VLAN, 1 to 4094, in place of those of none. The kernel takes
    /// their tag away before they are heard, where all protocols are
    /// ([`CapturePoint::Everything`](crate::scatter::CapturePoint)): a frame has its inner ethertype then.
    #[must_use]
    pub fn vlan(self, id: u16) -> Self {
        Self { vlan: Some(id & VLAN_ID), ..self }
    }

    /// The same for a VLAN within a VLAN (IEEE 802.1ad): the frames of the customer's VLAN `inner` in
    /// the service's `outer`. The kernel takes the outer tag away; the inner one stays in the bytes
    /// of a frame, unless a [`Ring`](crate::ring::Ring) hears it, which takes that away, too. Such a
    /// filter looks at no hosts and ports.
    #[must_use]
    pub fn vlan_in_vlan(self, outer: u16, inner: u16) -> Self {
        Self { inner_vlan: Some(inner & VLAN_ID), ..self.vlan(outer) }
    }

    /// Have the frames that pass a tag in their bytes?
    pub(crate) fn has_inner_tag(&self) -> bool {
        self.inner_vlan.is_some()
    }

    /// Bytes of tags before the ethertype.
    fn tags(&self) -> u32 {
        if self.has_inner_tag() { vlan::LEN as u32 } else { 0 }
    }

    /// Of those, no frames of another VLAN and none that are for another station or
    /// leave here: what the kernel knows of a frame and its bytes do not say.
    /// Frames to a chosen [`station`](Self::station) count as for others, so
    /// then the station alone decides.
    #[must_use]
    pub(crate) fn only_received(self, interface: [u8; 6]) -> Self {
        let own = self.station.is_none_or(|station| station == interface);
        Self { only_received: own, untagged: true, ..self }
    }

    /// The station that frames have to be for.
    pub(crate) fn only_station(&self) -> Option<[u8; 6]> {
        self.station
    }

    /// Do frames to groups pass beside those to the station?
    pub(crate) fn takes_groups(&self) -> bool {
        self.groups
    }

    /// The only ethertype that passes, if there is only one: the kernel sorts
    /// frames by it before any filter runs.
    pub(super) fn only_ethertype(&self) -> Option<u16> {
        match self.ethertypes[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The program; none where everything passes.
    pub(crate) fn program(&self) -> Vec<libc::sock_filter> {
        let steps = self.steps();
        if steps.is_empty() {
            return Vec::new();
        }
        let accept = steps.len();
        let targets = Targets { accept, reject: accept + 1 };
        let mut program: Vec<_> =
            steps.iter().enumerate().map(|(at, step)| step.assemble(at, &targets)).collect();
        program.extend([
            instruction(libc::BPF_RET | libc::BPF_K, u32::MAX),
            instruction(libc::BPF_RET | libc::BPF_K, 0),
        ]);
        program
    }

    /// The program, which lets this many bytes of a frame through.
    pub(crate) fn program_for(&self, bytes: u32) -> Vec<libc::sock_filter> {
        let mut program = self.program();
        let accept = instruction(libc::BPF_RET | libc::BPF_K, bytes);
        // Behind the steps stand the ends for frames that pass and for the others.
        match program.len().checked_sub(2) {
            Some(at) => program[at] = accept,
            None => program.push(accept),
        }
        program
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        self.ancillary_steps(&mut steps);
        if let Some([a, b, c, d, e, f]) = self.station {
            if self.groups {
                // Over the four steps that compare the station.
                steps.push(Step::byte(0));
                steps.push(Step::skip_if_set(1, 4));
            }
            steps.push(Step::word(0));
            steps.push(Step::must_be(u32::from_be_bytes([a, b, c, d])));
            steps.push(Step::half(4));
            steps.push(Step::must_be(u32::from(u16::from_be_bytes([e, f]))));
        }
        if let Some(id) = self.inner_vlan {
            steps.push(Step::half(12));
            steps.push(Step::must_be(ethernet::VLAN.into()));
            steps.push(Step::half(14));
            steps.push(WITHOUT_PRIORITY);
            steps.push(Step::must_be(id.into()));
        }
        if let Some((last, others)) = self.ethertypes.split_last() {
            steps.push(Step::half(12 + self.tags()));
            for (nth, ethertype) in others.iter().enumerate() {
                let behind_the_last = others.len() - nth;
                steps.push(Step::skip_if(u32::from(*ethertype), behind_the_last));
            }
            steps.push(Step::must_be(u32::from(*last)));
        }
        if self.fragments {
            Self::fragment_steps(&mut steps, self.tags());
        }
        if let Some(socket) = self.socket {
            Self::socket_steps(socket, &mut steps);
        }
        if self.host.is_some() || self.port.is_some() {
            steps.push(Step::half(12));
            steps.push(Step::accept_unless(u32::from(ETHERTYPE_IPV4)));
            self.ipv4_steps(&mut steps);
        }
        steps
    }

    /// What the kernel keeps beside the frame. A frame of a VLAN that is bound
    /// to a protocol has lost its tag already, but counts as for others.
    fn ancillary_steps(&self, steps: &mut Vec<Step>) {
        if self.only_received {
            steps.push(Step::ancillary(libc::SKF_AD_PKTTYPE));
            // The host's, to all, to a group: 0 to 2 (`linux/if_packet.h`).
            steps.push(Step::must_not_exceed(u32::from(libc::PACKET_MULTICAST)));
        }
        if let Some(id) = self.vlan {
            steps.push(Step::ancillary(libc::SKF_AD_VLAN_TAG_PRESENT));
            steps.push(Step::must_have(u32::MAX));
            steps.push(Step::ancillary(libc::SKF_AD_VLAN_TAG));
            steps.push(WITHOUT_PRIORITY);
            steps.push(Step::must_be(id.into()));
        } else if self.untagged {
            steps.push(Step::ancillary(libc::SKF_AD_VLAN_TAG_PRESENT));
            steps.push(Step::skip_if(0, 2));
            steps.push(Step::ancillary(libc::SKF_AD_VLAN_TAG));
            // VLAN 0 is no VLAN: the tag says a priority.
            steps.push(Step::must_lack(VLAN_ID.into()));
        }
    }

    /// Over to the host and port of IPv4, or to a decision.
    fn fragment_steps(steps: &mut Vec<Step>, tags: u32) {
        steps.push(Step::half(12 + tags));
        let not_ipv4 = 3 + BEFORE_FRAGMENT.len();
        steps.push(Step::skip_if(u32::from(ETHERTYPE_IPV4), not_ipv4));
        steps.push(Step::accept_unless(u32::from(ETHERTYPE_IPV6)));
        steps.push(Step::byte(20 + tags));
        steps.extend(BEFORE_FRAGMENT.map(Step::accept_if));
        steps.push(Step::accept_only_if(FRAGMENT));
        // More fragments, or an offset.
        steps.push(Step::half(20 + tags));
        steps.push(Step::must_have(0x3fff));
    }

    /// The ethertype is the right one already.
    fn socket_steps(socket: SocketAddr, steps: &mut Vec<Step>) {
        let port = u32::from(socket.port());
        match socket.ip() {
            IpAddr::V4(host) => {
                let udp_to = Self { host: Some(host), port: Some(socket.port()), ..Self::any() };
                steps.extend([Step::byte(23), Step::must_be(UDP)]);
                udp_to.ipv4_steps(steps);
            }
            IpAddr::V6(host) => {
                for (at, word) in (38..).step_by(4).zip(host.octets().as_chunks::<4>().0) {
                    steps.push(Step::word(at));
                    steps.push(Step::must_be(u32::from_be_bytes(*word)));
                }
                steps.extend([Step::byte(20), Step::must_be(UDP)]);
                steps.extend([Step::half(14 + 40 + 2), Step::must_be(port)]);
            }
        }
    }

    fn ipv4_steps(&self, steps: &mut Vec<Step>) {
        if let Some(host) = self.host {
            steps.push(Step::word(30));
            steps.push(Step::must_be(host.to_bits()));
        }
        if let Some(port) = self.port {
            steps.push(Step::byte(23));
            steps.push(Step::skip_if(TCP, 1));
            steps.push(Step::must_be(UDP));
            // Only the first fragment has a port.
            steps.push(Step::half(20));
            steps.push(Step::must_lack(0x1fff));
            // The port is behind an IP header of variable length.
            steps.push(Step::header_length(14));
            steps.push(Step::half_behind_header(14 + 2));
            steps.push(Step::must_be(u32::from(port)));
        }
    }
}

/// The kernel runs the programs: on datagrams between two Unix sockets, which
/// it filters like frames, and for which nobody needs a privilege.
#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    use super::Filter;
    use crate::packet::socket::attach_filter;

    const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);

    /// Does a frame pass?
    fn passes(filter: &Filter, frame: &[u8]) -> bool {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        attach_filter(receiver.as_raw_fd(), &filter.program()).unwrap();
        sender.send(frame).unwrap();
        let mut bytes = [0; 256];
        receiver.recv(&mut bytes).is_ok_and(|len| bytes[..len] == *frame)
    }

    fn frame(ethertype: u16) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[..6].copy_from_slice(&STATION);
        frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        frame
    }

    /// An IPv4 packet to [`HOST`] with this many words of options, to port 7000.
    fn ipv4(protocol: u8, option_words: u8) -> Vec<u8> {
        let mut frame = frame(0x0800);
        frame[14] = 0x45 + option_words;
        frame[23] = protocol;
        frame[30..34].copy_from_slice(&HOST.octets());
        let ports = 34 + 4 * usize::from(option_words);
        frame[ports + 2..ports + 4].copy_from_slice(&7000u16.to_be_bytes());
        frame
    }

    #[test]
    fn without_conditions_everything_passes() {
        assert!(passes(&Filter::any(), &frame(0x1234)));
        assert!(passes(&Filter::any(), &[1]));
        assert_eq!(Filter::any().only_ethertype(), None);
    }

    #[test]
    fn the_listed_ethertypes_pass() {
        let filter = Filter::ethertypes([0x0800, 0x0806, 0x88b5]);
        for ethertype in [0x0800, 0x0806, 0x88b5] {
            assert!(passes(&filter, &frame(ethertype)), "{ethertype:#x}");
        }
        for ethertype in [0x0000, 0x0801, 0x86dd, 0xffff] {
            assert!(!passes(&filter, &frame(ethertype)), "{ethertype:#x}");
        }
        assert!(!passes(&filter, &frame(0x0800)[..13]), "cut short");
        assert_eq!(filter.only_ethertype(), None);
        assert_eq!(Filter::ethertypes([0x88b5]).only_ethertype(), Some(0x88b5));
    }

    #[test]
    fn the_longest_list_has_no_jump_too_far() {
        let list: [u16; 64] = std::array::from_fn(|nth| 0x1000 + nth as u16);
        let filter = Filter::ethertypes(list).station(STATION).ipv4_to(HOST).port(7000);
        for ethertype in list {
            assert!(passes(&filter, &frame(ethertype)), "{ethertype:#x}");
        }
        assert!(!passes(&filter, &frame(0x1040)));
        assert!(!passes(&filter, &frame(0x0fff)));
    }

    #[test]
    fn frames_to_other_stations_do_not_pass() {
        let filter = Filter::any().station(STATION);
        assert!(passes(&filter, &frame(0x0800)));
        for wrong in 0..6 {
            let mut other = frame(0x0800);
            other[wrong] ^= 0x80;
            assert!(!passes(&filter, &other), "byte {wrong}");
        }
    }

    #[test]
    fn frames_to_groups_pass_where_they_are_wanted() {
        let filter = Filter::ethertypes([0x0806]).station_and_groups(STATION);
        assert!(passes(&filter, &frame(0x0806)));
        for group in [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]] {
            let to_group = |ethertype| [&group, &frame(ethertype)[6..]].concat();
            assert!(passes(&filter, &to_group(0x0806)));
            assert!(!passes(&filter, &to_group(0x0800)), "another ethertype");
            assert!(!passes(&filter.clone().station(STATION), &to_group(0x0806)));
        }
        let mut other = frame(0x0806);
        other[5] ^= 1;
        assert!(!passes(&filter, &other), "another station");
        let list: [u16; 64] = std::array::from_fn(|nth| 0x1000 + nth as u16);
        let longest = Filter::ethertypes(list).station_and_groups(STATION).ipv4_to(HOST).port(7000);
        assert!(passes(&longest, &frame(0x103f)) && !passes(&longest, &frame(0x1040)));
    }

    #[test]
    fn a_host_restricts_ipv4_alone() {
        let filter = Filter::ethertypes([0x0800, 0x0806]).ipv4_to(HOST);
        assert!(passes(&filter, &ipv4(6, 0)));
        assert!(passes(&filter, &frame(0x0806)));
        let mut other = ipv4(6, 0);
        other[33] ^= 1;
        assert!(!passes(&filter, &other));
    }

    #[test]
    fn a_port_is_found_behind_options_and_not_in_fragments() {
        let filter = Filter::ethertypes([0x0800]).ipv4_to(HOST).port(7000);
        for (protocol, option_words) in [(6, 0), (17, 0), (6, 3), (17, 4)] {
            let mut packet = ipv4(protocol, option_words);
            assert!(passes(&filter, &packet), "{protocol} {option_words}");
            let port = 34 + 4 * usize::from(option_words) + 3;
            packet[port] ^= 1;
            assert!(!passes(&filter, &packet), "another port");
        }
        assert!(!passes(&filter, &ipv4(132, 0)), "another protocol");
        let mut first = ipv4(17, 0);
        first[20] = 0x20;
        assert!(passes(&filter, &first), "the first fragment has the port");
        let mut later = ipv4(17, 0);
        later[21] = 1;
        assert!(!passes(&filter, &later), "a later one has not");
        assert!(!passes(&filter, &ipv4(17, 0)[..37]), "cut within the port");
    }

    #[test]
    fn of_ip_packets_fragments_alone_pass() {
        let filter = Filter::any().fragments();
        let with = |flags_and_offset: u16| {
            let mut packet = ipv4(17, 0);
            packet[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
            packet
        };
        for fragment in [0x2000, 0x2001, 0x0001, 0x1fff, 0x3fff, 0xe000] {
            assert!(passes(&filter, &with(fragment)), "{fragment:#x}");
        }
        for whole in [0x0000, 0x4000, 0x8000, 0xc000] {
            assert!(!passes(&filter, &with(whole)), "{whole:#x}");
        }
        let ipv6 = |next: u8| {
            let mut packet = frame(0x86dd);
            packet[20] = next;
            packet
        };
        for next in [44, 0, 43, 60] {
            assert!(passes(&filter, &ipv6(next)), "{next}");
        }
        for next in [6, 17, 58, 59, 45] {
            assert!(!passes(&filter, &ipv6(next)), "{next}");
        }
        assert!(passes(&filter, &frame(0x88b5)), "another protocol");
    }

    #[test]
    fn fragments_are_one_condition_among_others() {
        let filter = Filter::ethertypes([0x0800, 0x88b5]).fragments().ipv4_to(HOST);
        let mut fragment = ipv4(17, 0);
        fragment[21] = 1;
        assert!(passes(&filter, &fragment) && passes(&filter, &frame(0x88b5)));
        assert!(!passes(&filter, &ipv4(17, 0)), "not a fragment");
        fragment[33] ^= 1;
        assert!(!passes(&filter, &fragment), "to another host");
        let mut ipv6 = frame(0x86dd);
        ipv6[20] = 44;
        assert!(!passes(&filter, &ipv6), "not listed");
        assert!(passes(&Filter::any().fragments().ipv4_to(HOST), &ipv6), "hosts are of IPv4");
    }

    #[test]
    fn only_udp_to_one_socket_passes() {
        let filter = Filter::udp_to((HOST, 7000).into());
        assert_eq!(filter.only_ethertype(), Some(0x0800));
        assert!(passes(&filter, &ipv4(17, 0)));
        assert!(passes(&filter, &ipv4(17, 3)), "options are for the receiver to refuse");
        assert!(!passes(&filter, &ipv4(6, 0)), "TCP");
        assert!(!passes(&Filter::udp_to((HOST, 7001).into()), &ipv4(17, 0)), "another port");
        assert!(!passes(&Filter::udp_to(([10, 1, 2, 4], 7000).into()), &ipv4(17, 0)));
        let mut fragment = ipv4(17, 0);
        fragment[20] = 0x20;
        assert!(passes(&filter, &fragment), "the first one has a port");
        fragment[21] = 1;
        assert!(!passes(&filter, &fragment));

        let host: std::net::Ipv6Addr = "fd00::1:2".parse().unwrap();
        let filter = Filter::udp_to((host, 7000).into());
        let mut packet = frame(0x86dd);
        packet.resize(80, 0);
        packet[20] = 17;
        packet[38..54].copy_from_slice(&host.octets());
        packet[56..58].copy_from_slice(&7000u16.to_be_bytes());
        assert!(passes(&filter, &packet));
        for (at, byte) in [(12, 8), (20, 44), (38, 0xfe), (53, 3), (57, 0)] {
            let mut other = packet.clone();
            other[at] = byte;
            assert!(!passes(&filter, &other), "{at}");
        }
    }

    #[test]
    fn what_the_kernel_keeps_beside_a_frame_decides_first() {
        // A datagram of a Unix socket counts as for the host, without a tag; that
        // others do not pass is seen on a cable.
        let list: [u16; 64] = std::array::from_fn(|nth| 0x1000 + nth as u16);
        for filter in [Filter::any(), Filter::ethertypes(list).fragments().ipv4_to(HOST).port(7000)]
        {
            let filter = filter.only_received(STATION);
            assert!(passes(&filter, &frame(0x103f)));
        }
    }
}
