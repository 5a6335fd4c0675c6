//! The headers of a path's frames: written before what leaves, and read and checked before
//! what came.

use std::net::{IpAddr, SocketAddr};

use landfall_inet::{Content, Envelope, Mac, ethernet, ipv4, ipv6, parse, protocol, udp};
use landfall_placement::{Ecn, InternetSum, Peer, SumSlot};

use crate::exchange::Prefix;
use crate::inet::Received;
use crate::packet::{Frame, Link, VNET_HEADER, write_vnet_udp};
use crate::udp::Message;

/// What is the same in all headers of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    pub(super) link: Link,
    pub(super) local: SocketAddr,
}

/// Datagrams that came in one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagrams {
    pub(super) message: Message,
    /// Nobody looked at the checksum: the sum over all that is before the payload, where
    /// the sender made one.
    pub(super) unchecked: Option<InternetSum>,
}

impl Framing {
    /// The ethertype of its frames.
    pub(super) const fn ethertype(&self) -> u16 {
        if self.local.is_ipv4() { ethernet::IPV4 } else { ethernet::IPV6 }
    }

    /// The headers of a frame, without the one of virtio-net.
    const fn headers(&self) -> usize {
        let ip = if self.local.is_ipv4() { ipv4::LEN } else { ipv6::LEN };
        ethernet::LEN + ip + udp::LEN
    }

    /// What is in front of the first datagram's payload.
    pub(super) const fn prefix_len(&self) -> usize {
        VNET_HEADER + self.headers()
    }

    /// Writes what is in front of this many bytes of payload, which are several datagrams if
    /// there is a `unit_len`. None if they cannot go to this address.
    pub(super) fn write(
        &self,
        into: &mut Prefix,
        (station, to): (Mac, SocketAddr),
        (payload_len, unit_len): (usize, Option<u16>),
        ecn: Ecn,
    ) -> Option<usize> {
        let len = u16::try_from(udp::LEN + payload_len).ok()?;
        let own = (self.link.station(), self.local.ip());
        let mut envelope = Envelope::new(own, (station, to.ip()), protocol::UDP);
        envelope.traffic_class = ecn as u8;
        let at = envelope.write(into.get_mut(VNET_HEADER..)?, len.into())?;
        // The kernel or the device sums the rest. Of several datagrams each gets its length.
        let header = udp::Header {
            source: self.local.port().into(),
            destination: to.port().into(),
            len: len.into(),
            sum: envelope.pseudo(len.into()).into(),
        };
        header.write(&mut into[VNET_HEADER + at..])?;
        let sum = SumSlot { start: at as u16, offset: udp::SUM_OFFSET };
        write_vnet_udp(into, (at + udp::LEN) as u16, unit_len, sum);
        Some(VNET_HEADER + at + udp::LEN)
    }

    /// What came behind this prefix, if it is good datagrams for this path.
    pub(super) fn read(&self, frame: &Frame, prefix: &Prefix) -> Option<Datagrams> {
        let arrival = self.link.arrival(frame, prefix)?;
        let head = prefix.get(VNET_HEADER..self.prefix_len())?;
        let packet = parse(head, arrival.len as u32).ok()?;
        let Content::Ip(ip) = packet.content else { return None };
        let is_ours = ip.destination == self.local.ip() && ip.source != self.local.ip();
        let is_plain = ip.protocol == protocol::UDP && ip.fragment.is_none();
        if !is_ours || !is_plain || packet.ethernet.is_to_group() || is_nobody(ip.source) {
            return None;
        }
        let datagram = ip.udp(head).ok()?;
        let header = datagram.header;
        // With options or extension headers the payload begins elsewhere.
        let is_in_place = datagram.payload_at == self.headers();
        if !is_in_place || header.destination.get() != self.local.port() {
            return None;
        }
        let unchecked = (!arrival.verified && header.has_sum()).then(|| {
            let mut sum =
                landfall_inet::checksum::pseudo_header(ip.source, ip.destination, protocol::UDP);
            sum.add_word(header.len.get());
            sum.append(header.sum_of_fields());
            sum
        });
        // What was joined was checked.
        if unchecked.is_some() && arrival.coalesced.is_some() {
            return None;
        }
        let message = Message {
            len: datagram.payload_len as usize,
            from: Peer::Socket(SocketAddr::new(ip.source, header.source.get())),
            truncated: false,
            control: Received {
                unit_len: arrival.coalesced.map(usize::from),
                ecn: ip.ecn,
                is_unreachable: false,
            },
        };
        Some(Datagrams { message, unchecked })
    }
}

/// No host sends from there.
fn is_nobody(source: IpAddr) -> bool {
    match source {
        IpAddr::V4(source) => source.is_unspecified() || source.is_broadcast(),
        IpAddr::V6(source) => source.is_unspecified(),
    }
}
