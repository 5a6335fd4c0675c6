//! What hosts say to a multicast group to find each other by names: a [`Query`] for a name,
//! and the [`Announcement`] of the host that offers it.
//!
//! An announcement is a hint and no proof. It says where a host is reached and which key that
//! host has; the handshake of the link decides whether that is so.
//!
//! A query is as long as the longest announcement, so that a query with a forged source address
//! makes nobody send more than its sender did. All numbers are big-endian:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0–3 | `43 4c 4e 44`: "CLND" |
//! | 4 | version 1 |
//! | 5 | 1 a query, 2 an announcement |
//! | 6 | 1: bytes 18–37 are the fingerprint of a key; 0: they are zero |
//! | 7 | how many bytes the name has: 1 to 64 |
//! | 8–15 | a number that the query chose, and its answers repeat; 0: nobody asked |
//! | 16–17 | the host |
//! | 18–37 | the fingerprint |
//! | 38 | how many addresses follow the name: 0 to 4 |
//! | 39 | zero |
//! | 40– | the name |
//! | behind it | the addresses: a byte 4, 6 or 2, then 4, 16 or 0 bytes of IP address and two of UDP port; after a 2, the six bytes of a station of the Ethernet |
//!
//! In a query bytes 6, 16–38 are zero, and zeros follow its name up to the length of the longest
//! announcement.

use core::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use landfall_placement::Peer;

use crate::address::HostId;

/// The most bytes of a name.
pub const MAX_NAME: usize = 64;

/// The most addresses of a host that are announced.
pub const MAX_PEERS: usize = 4;

/// Bytes of the longest announcement, and of each query.
pub const MAX_DATAGRAM: usize = HEAD + MAX_NAME + MAX_PEERS * LONGEST_PEER;

/// A name that is offered.
pub type Name = ArrayVec<u8, MAX_NAME>;

/// A datagram as it is sent.
pub type Datagram = ArrayVec<u8, MAX_DATAGRAM>;

const MARK: [u8; 4] = *b"CLND";
const VERSION: u8 = 1;
const HEAD: usize = 40;
const LONGEST_PEER: usize = 1 + 16 + 2;

const QUERY: u8 = 1;
const ANNOUNCEMENT: u8 = 2;

/// Who offers this name?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Not zero: what the answers repeat.
    pub nonce: u64,
    /// The name, not empty.
    pub name: Name,
}

/// A host offers a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// That of the query; zero where nobody asked.
    pub nonce: u64,
    /// The name, not empty.
    pub name: Name,
    /// Who offers it.
    pub host: HostId,
    /// The fingerprint of the key that it proves to have; none where it proves none.
    pub fingerprint: Option<[u8; 20]>,
    /// Where it is reached: sockets and stations of an Ethernet.
    pub peers: ArrayVec<Peer, MAX_PEERS>,
}

/// What was said to the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A question.
    Query(Query),
    /// An answer.
    Announcement(Announcement),
}

impl Query {
    /// As it is sent.
    #[must_use]
    pub fn encode(&self) -> Datagram {
        let mut bytes = [0; MAX_DATAGRAM];
        bytes[..6].copy_from_slice(&[b'C', b'L', b'N', b'D', VERSION, QUERY]);
        bytes[7] = self.name.len() as u8;
        bytes[8..16].copy_from_slice(&self.nonce.to_be_bytes());
        bytes[HEAD..HEAD + self.name.len()].copy_from_slice(&self.name);
        Datagram::from(bytes)
    }
}

impl Announcement {
    /// As it is sent. Addresses that are neither sockets nor stations are left out.
    #[must_use]
    pub fn encode(&self) -> Datagram {
        let mut bytes = Datagram::new();
        let mut add = |part: &[u8]| {
            // The longest fits: see `MAX_DATAGRAM`.
            let _ = bytes.try_extend_from_slice(part);
        };
        let is_sent = |peer: &&Peer| matches!(peer, Peer::Socket(_) | Peer::Ethernet(_));
        add(&MARK);
        add(&[VERSION, ANNOUNCEMENT, u8::from(self.fingerprint.is_some()), self.name.len() as u8]);
        add(&self.nonce.to_be_bytes());
        add(&self.host.number().to_be_bytes());
        add(&self.fingerprint.unwrap_or_default());
        add(&[self.peers.iter().filter(is_sent).count() as u8, 0]);
        add(&self.name);
        for peer in self.peers.iter().filter(is_sent) {
            match peer {
                Peer::Socket(SocketAddr::V4(socket)) => {
                    add(&[4]);
                    add(&socket.ip().octets());
                    add(&socket.port().to_be_bytes());
                }
                Peer::Socket(SocketAddr::V6(socket)) => {
                    add(&[6]);
                    add(&socket.ip().octets());
                    add(&socket.port().to_be_bytes());
                }
                Peer::Ethernet(station) => {
                    add(&[2]);
                    add(station);
                }
                // Filtered out above.
                _ => {}
            }
        }
        bytes
    }
}

impl Message {
    /// Reads what came. Nothing where it is none of ours or has a byte that should not be there.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let [b'C', b'L', b'N', b'D', VERSION, kind, has_key, len, ..] = *head else { return None };
        let (name, rest) = rest.split_at_checked(usize::from(len))?;
        let name = Name::try_from(name).ok().filter(|name| !name.is_empty())?;
        core::str::from_utf8(&name).ok()?;
        let (nonce, host) = (be(&head[8..16]), be(&head[16..18]) as u16);
        let fingerprint: [u8; 20] = head[18..38].try_into().ok()?;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        match kind {
            QUERY => {
                let is_query = bytes.len() == MAX_DATAGRAM
                    && nonce != 0
                    && has_key == 0
                    && is_zero(&head[16..])
                    && is_zero(rest);
                is_query.then_some(Self::Query(Query { nonce, name }))
            }
            ANNOUNCEMENT => {
                let fingerprint = match has_key {
                    1 => Some(fingerprint),
                    0 if is_zero(&fingerprint) => None,
                    _ => return None,
                };
                let peers = peers(head[38], rest).filter(|_| head[39] == 0)?;
                let host = HostId::new(host)?;
                Some(Self::Announcement(Announcement { nonce, name, host, fingerprint, peers }))
            }
            _ => None,
        }
    }
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// This many addresses, and nothing behind them.
fn peers(count: u8, mut rest: &[u8]) -> Option<ArrayVec<Peer, MAX_PEERS>> {
    let mut peers = ArrayVec::new();
    for _ in 0..count {
        let (kind, behind) = rest.split_first()?;
        let (peer, len) = match kind {
            4 => (socket::<4>(behind)?, 6),
            6 => (socket::<16>(behind)?, 18),
            2 => (Peer::Ethernet(*behind.first_chunk()?), 6),
            _ => return None,
        };
        peers.try_push(peer).ok()?;
        rest = behind.get(len..)?;
    }
    rest.is_empty().then_some(peers)
}

fn socket<const N: usize>(bytes: &[u8]) -> Option<Peer>
where
    IpAddr: From<[u8; N]>,
{
    let (address, port) = bytes.split_first_chunk::<N>()?;
    let port = u16::from_be_bytes(*port.first_chunk()?);
    Some(Peer::Socket(SocketAddr::new(IpAddr::from(*address), port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        text.as_bytes().try_into().unwrap()
    }

    fn announcement() -> Announcement {
        let socket = |text: &str| Peer::Socket(text.parse().unwrap());
        Announcement {
            nonce: 0x0102_0304_0506_0708,
            name: name("prices"),
            host: HostId::new(0x0234).unwrap(),
            fingerprint: Some([0xab; 20]),
            peers: [
                socket("192.0.2.1:8182"),
                socket("[2001:db8::1]:8182"),
                Peer::Ethernet([2, 0, 0, 0, 0, 7]),
            ]
            .into_iter()
            .collect(),
        }
    }

    #[test]
    fn an_announcement_stands_on_the_wire_as_described() {
        let bytes = announcement().encode();
        assert_eq!(bytes[..8], [b'C', b'L', b'N', b'D', 1, 2, 1, 6]);
        assert_eq!(bytes[8..18], [1, 2, 3, 4, 5, 6, 7, 8, 2, 0x34]);
        assert_eq!(bytes[18..38], [0xab; 20]);
        assert_eq!(bytes[38..40], [3, 0]);
        assert_eq!(&bytes[40..46], b"prices");
        assert_eq!(bytes[46..53], [4, 192, 0, 2, 1, 0x1f, 0xf6]);
        assert_eq!(bytes[53..58], [6, 0x20, 0x01, 0x0d, 0xb8]);
        assert_eq!(bytes[72..], [2, 2, 0, 0, 0, 0, 7]);
    }

    /// Forged queries must not make others send more than was sent.
    #[test]
    fn a_query_is_as_long_as_the_longest_announcement() {
        let query = Query { nonce: 7, name: name("x") };
        let v6 = Peer::Socket("[2001:db8::1]:1".parse().unwrap());
        let longest = Announcement {
            name: name(&"n".repeat(MAX_NAME)),
            peers: [v6; MAX_PEERS].into(),
            ..announcement()
        };
        assert_eq!(query.encode().len(), longest.encode().len());
        let short = &query.encode()[..HEAD + 1];
        assert_eq!(Message::decode(short), None, "a short query has no answer");
    }

    #[test]
    fn what_has_no_address_to_be_reached_at_is_left_out() {
        let peers = [Peer::Unaddressed, Peer::Node(1), Peer::Ethernet([2; 6])];
        let said = Announcement { peers: peers.into_iter().collect(), ..announcement() };
        let Some(Message::Announcement(heard)) = Message::decode(&said.encode()) else { panic!() };
        assert_eq!(heard.peers[..], peers[2..]);
    }

    fn any_peer() -> impl Strategy<Value = Peer> {
        prop_oneof![
            any::<([u8; 4], u16)>().prop_map(|(ip, port)| Peer::Socket((ip, port).into())),
            any::<([u8; 16], u16)>().prop_map(|(ip, port)| Peer::Socket((ip, port).into())),
            any::<[u8; 6]>().prop_map(Peer::Ethernet),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_to_the_group_is_understood(
            text in "[a-zA-Z0-9 äß]{1,20}",
            nonce in 1u64..,
            number in 0..=HostId::MAX,
            fingerprint in any::<Option<[u8; 20]>>(),
            peers in prop::collection::vec(any_peer(), 0..=MAX_PEERS),
        ) {
            let name = Name::try_from(text.as_bytes()).unwrap();
            let query = Query { nonce, name: name.clone() };
            prop_assert_eq!(Message::decode(&query.encode()), Some(Message::Query(query)));
            let (host, peers) = (HostId::new(number).unwrap(), peers.into_iter().collect());
            let said = Announcement { nonce, name, host, fingerprint, peers };
            prop_assert_eq!(Message::decode(&said.encode()), Some(Message::Announcement(said)));
        }

        /// Whatever is understood is what would be sent: nothing is read over.
        #[test]
        fn what_is_heard_from_the_group_is_what_would_be_said(
            at in 0usize..MAX_DATAGRAM,
            byte in any::<u8>(),
            cut in 0usize..=MAX_DATAGRAM,
            is_query in any::<bool>(),
        ) {
            let query = Query { nonce: 1, name: name("prices") };
            let mut bytes = if is_query { query.encode() } else { announcement().encode() };
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            bytes.truncate(cut);
            match Message::decode(&bytes) {
                Some(Message::Query(heard)) => prop_assert_eq!(heard.encode(), bytes),
                Some(Message::Announcement(heard)) => prop_assert_eq!(heard.encode(), bytes),
                None => {}
            }
        }
    }
}
