//! Heads of UDP datagrams, so that an ordinary socket at the other end has them.

use std::net::SocketAddr;

use landfall_inet::{Envelope, ethernet, fragment, ipv4, ipv6, protocol, udp};
use landfall_placement::{InternetSum, Random, Seed};
use spec_defrag::Head;

use super::error::Error;

/// One end of a flow of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// The Ethernet address: of the interface, or of the next hop.
    pub mac: [u8; 6],
    /// The IP address and the UDP port.
    pub address: SocketAddr,
}

/// Writes the heads of datagrams from one station to another.
#[derive(Clone, Debug)]
pub struct Datagrams {
    from: Station,
    to: Station,
    is_summed: bool,
    /// The identification of the next packet (IPv4).
    id: u16,
}

/// The most payload that one datagram has, over IPv4 without options: 65,507 bytes.
pub const DATAGRAM_MAX: u32 = ipv4::PACKET_MAX - (ipv4::LEN + udp::LEN) as u32;
/// The same over IPv6.
const DATAGRAM_MAX_IPV6: u32 = ipv6::PAYLOAD_MAX - udp::LEN as u32;

impl Datagrams {
    /// From one station to another; `None` if their addresses are of different
    /// versions of IP.
    #[must_use]
    pub fn new(from: Station, to: Station, seed: Seed) -> Option<Self> {
        if from.address.is_ipv4() != to.address.is_ipv4() {
            return None;
        }
        let id = Random::new(seed).next_u32() as u16;
        Some(Self { from, to, is_summed: true, id })
    }

    /// Leaves the checksum away, which IPv4 allows: then nobody looks whether the
    /// bytes are what was sent. Over IPv6 it is always there.
    #[must_use]
    pub const fn without_checksum(self) -> Self {
        Self { is_summed: false, ..self }
    }

    /// Whether a head needs the sum of the payload.
    #[must_use]
    pub const fn needs_sum(&self) -> bool {
        self.is_summed || self.from.address.is_ipv6()
    }

    /// The head of the next datagram, of so much payload with this sum: Ethernet, IP
    /// and UDP header.
    ///
    /// # Errors
    /// [`Error::TooLong`].
    pub fn next(&mut self, payload_len: u32, payload: InternetSum) -> Result<Head, Error> {
        self.write(payload_len, Some(payload))
    }

    /// The same with a checksum that is to be finished on the way: it has the sum of the
    /// pseudo-header.
    pub(super) fn next_unfinished(&mut self, payload_len: u32) -> Result<Head, Error> {
        self.write(payload_len, None)
    }

    fn write(&mut self, payload_len: u32, payload: Option<InternetSum>) -> Result<Head, Error> {
        let is_ipv4 = self.from.address.is_ipv4();
        let most = if is_ipv4 { DATAGRAM_MAX } else { DATAGRAM_MAX_IPV6 };
        if payload_len > most {
            return Err(Error::TooLong { len: payload_len.into(), most: most.into() });
        }
        let from = (self.from.mac, self.from.address.ip());
        let to = (self.to.mac, self.to.address.ip());
        let mut envelope = Envelope::new(from, to, protocol::UDP);
        envelope.dont_fragment = false;
        if is_ipv4 {
            self.id = self.id.wrapping_add(1);
            envelope.id = self.id;
        }
        let udp_len = payload_len + udp::LEN as u32;
        let pseudo = envelope.pseudo(udp_len);
        let mut header = udp::Header {
            source: self.from.address.port().into(),
            destination: self.to.address.port().into(),
            len: (udp_len as u16).into(),
            sum: 0.into(),
        };
        // RFC 768: over the pseudo-header, the header and the payload.
        header.sum = match payload {
            None => pseudo,
            Some(_) if !self.needs_sum() => 0,
            Some(payload) => {
                let mut sum = header.sum_of_fields();
                sum.add_word(pseudo);
                sum.append(payload);
                udp::Header::sum_field(sum.checksum())
            }
        }
        .into();
        let mut bytes = [0; Head::MOST];
        let at = envelope.write(&mut bytes, udp_len);
        let len = at.and_then(|at| Some(at + header.write(&mut bytes[at..])?));
        // `new` saw to it that the versions agree, and a head has room for all of it.
        Ok(len.and_then(|len| Head::from_slice(&bytes[..len])).unwrap_or_default())
    }
}

/// Where the UDP header begins.
pub(super) const fn udp_at(is_ipv4: bool) -> u16 {
    (ethernet::LEN + if is_ipv4 { ipv4::LEN } else { ipv6::LEN }) as u16
}

/// How much of an IP payload a fragment carries on a link with this MTU.
pub(super) const fn piece_of(is_ipv4: bool, mtu: u16) -> u16 {
    let headers = if is_ipv4 { ipv4::LEN } else { ipv6::LEN + fragment::LEN };
    mtu.saturating_sub(headers as u16) & !7
}
