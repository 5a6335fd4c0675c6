//! Several engines behind one station, without a lock between them: what comes is spread over
//! them by its flow, so that all that belongs to one connection comes to one engine.
//!
//! | what comes | who gets it |
//! | --- | --- |
//! | a segment of TCP | one member: addresses and ports say which |
//! | a datagram of UDP | one member: the port that it is for says which, no matter who sent it |
//! | a question that any of them could answer (who has this address, an echo) | the first |
//! | what all have to know (answers of neighbours, routers, errors), and fragments, which show no ports | every one |
//!
//! Drivers ask [`recipient`]; an engine knows its [`Share`], and chooses ports that are in it. The
//! figure behind both is one that a packet filter of the kernel can compute, too:
//! [`of_connection`] and [`of_port`].

use core::net::{IpAddr, SocketAddr};

use crate::{arp, ethernet, icmp4, icmp6, ipv4, ipv6, ndp, protocol, vlan};

/// 2³² divided by the golden ratio, and odd: its multiples are spread evenly over the upper half
/// of 32 bits, even those of numbers that are neighbours.
pub const SPREAD: u32 = 0x9e37_79b1;

/// The share that one of several engines has of the flows of a station.
///
/// ```
/// use landfall_inet::flow::Share;
///
/// let (ours, theirs) = ("192.0.2.1:80".parse()?, "192.0.2.2:50000".parse()?);
/// let members = [0, 1, 2].map(|index| Share::new(index, 3).expect("the third of three"));
/// // Every connection has one member.
/// assert_eq!(members.iter().filter(|share| share.has_connection(ours, theirs)).count(), 1);
/// assert!(Share::WHOLE.has_connection(ours, theirs));
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    index: u16,
    count: u16,
}

impl Share {
    /// All of it: there is one engine.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// That of the member with this number, from 0 on, of this many. None if there is no such
    /// member.
    #[must_use]
    pub const fn new(index: u16, count: u16) -> Option<Self> {
        if index < count { Some(Self { index, count }) } else { None }
    }

    /// Which member has it, from 0 on.
    #[must_use]
    pub const fn index(self) -> u16 {
        self.index
    }

    /// How many members there are.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.count
    }

    /// Is a connection between these two in it?
    #[must_use]
    #[inline]
    pub fn has_connection(self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.count == 1 || of_connection(local, remote) % u32::from(self.count) == self.index.into()
    }

    /// Are the datagrams for this port of ours in it?
    #[must_use]
    #[inline]
    pub const fn has_port(self, local: u16) -> bool {
        self.count == 1 || of_port(local) % self.count as u32 == self.index as u32
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// The number by which connections are spread: the remainder of it, divided by how many members
/// there are.
#[must_use]
pub fn of_connection(local: SocketAddr, remote: SocketAddr) -> u32 {
    let ports = u32::from(remote.port()) << 16 | u32::from(local.port());
    spread(words(local.ip()) ^ words(remote.ip()) ^ ports)
}

/// The number by which datagrams for a port of ours are spread.
#[must_use]
pub const fn of_port(local: u16) -> u32 {
    spread(local as u32)
}

const fn spread(mixed: u32) -> u32 {
    mixed.wrapping_mul(SPREAD) >> 16
}

/// The words of an address, joined.
fn words(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits >> 96) as u32 ^ (bits >> 64) as u32 ^ (bits >> 32) as u32 ^ bits as u32
        }
    }
}

/// Who gets a frame, of several engines behind one station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The one whose connection or port it is for, if that is so.
    Member(u16),
    /// Every one.
    Every,
}

impl Recipient {
    /// Who answers for all, and gets what nobody can read.
    pub const FIRST: Self = Self::Member(0);
}

const FIRST: Recipient = Recipient::FIRST;

/// As many bytes of a frame as [`recipient`] wants to see at most: two tags, the longest header of
/// IPv4, and the ports behind it.
pub const LONGEST_HEAD: usize = ethernet::LEN + 2 * vlan::LEN + ipv4::LEN_MAX + 4;

/// Who gets a frame that begins so, where there are this many. None if its head does not say: it is
/// too short, or what it carries has no flows.
///
/// ```
/// use landfall_inet::flow::{Recipient, recipient};
///
/// // The answer of a neighbour is news to all of them.
/// let mut frame = [0; 42];
/// frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
/// assert_eq!(recipient(&frame, 4), Some(Recipient::Every));
/// assert_eq!(recipient(&frame[..20], 4), None);
/// ```
#[must_use]
pub fn recipient(head: &[u8], members: u16) -> Option<Recipient> {
    let members = members.max(1);
    let (header, rest) = ethernet::read(head).ok()?;
    let (ethertype, tags) = vlan::behind_tags(header.ethertype.get(), rest)?;
    let packet = rest.get(tags..)?;
    match ethertype {
        ethernet::ARP => {
            let said = arp::Arp::read(packet).ok()?;
            Some(if said.operation == arp::Operation::Request { FIRST } else { Recipient::Every })
        }
        ethernet::IPV4 => of_ipv4(packet, members),
        ethernet::IPV6 => of_ipv6(packet, members),
        _ => None,
    }
}

fn of_ipv4(packet: &[u8], members: u16) -> Option<Recipient> {
    let (header, len) = ipv4::read(packet).ok()?;
    let payload = packet.get(len..)?;
    if header.is_fragment() {
        return Some(Recipient::Every);
    }
    let ends = (IpAddr::V4(header.source()), IpAddr::V4(header.destination()));
    match header.protocol {
        protocol::ICMP4 => Some(of_message(*payload.first()?, icmp4::ECHO_REQUEST)),
        protocol::IGMP => Some(Recipient::Every),
        other => of_transport(other, ends, payload, members),
    }
}

fn of_ipv6(packet: &[u8], members: u16) -> Option<Recipient> {
    let header = ipv6::read(packet).ok()?;
    let payload = packet.get(ipv6::LEN..)?;
    let ends = (IpAddr::V6(header.source()), IpAddr::V6(header.destination()));
    match header.next_header {
        protocol::ICMP6 => {
            let kind = *payload.first()?;
            let is_question = kind == ndp::SOLICITATION;
            Some(if is_question { FIRST } else { of_message(kind, icmp6::ECHO_REQUEST) })
        }
        protocol::TCP | protocol::UDP => of_transport(header.next_header, ends, payload, members),
        // Extension headers: fragments, and messages about groups among them.
        _ => Some(Recipient::Every),
    }
}

/// Echoes are answered once; all else is news.
fn of_message(kind: u8, echo_request: u8) -> Recipient {
    if kind == echo_request { FIRST } else { Recipient::Every }
}

/// The ports stand first, in TCP as in UDP.
fn of_transport(
    protocol: u8,
    (source, destination): (IpAddr, IpAddr),
    payload: &[u8],
    members: u16,
) -> Option<Recipient> {
    let [a, b, c, d] = *payload.first_chunk()?;
    let (theirs, ours) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let number = match protocol {
        protocol::TCP => {
            of_connection(SocketAddr::new(destination, ours), SocketAddr::new(source, theirs))
        }
        protocol::UDP => of_port(ours),
        _ => return None,
    };
    Some(Recipient::Member((number % u32::from(members)) as u16))
}
