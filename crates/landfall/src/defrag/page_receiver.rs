//! [`PageReceiver`]: the payloads of datagrams, whole.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use landfall_inet::{checksum, protocol, udp};
use landfall_placement::{Duration, InternetSum};
use spec_defrag::ReassemblyPath;

use super::error::Error;
use super::packet::Packet;
use super::receiver::Receiver;

/// Hands out the payloads of UDP datagrams to a port: pages, as a sender cut them.
///
/// It hears datagrams beside the kernel, which does not know of it: where no socket
/// is bound to the port, the kernel tells the sender so.
#[derive(Debug)]
pub struct PageReceiver {
    receiver: Receiver,
    port: u16,
    from: Option<IpAddr>,
    is_checked: bool,
    corrupt: u64,
    others: u64,
}

impl PageReceiver {
    /// Datagrams to this port, among what a receiver hands out.
    #[must_use]
    pub const fn new(receiver: Receiver, port: u16) -> Self {
        Self { receiver, port, from: None, is_checked: true, corrupt: 0, others: 0 }
    }

    /// Only those from this address.
    #[must_use]
    pub fn from_source(self, source: IpAddr) -> Self {
        Self { from: Some(source), ..self }
    }

    /// Does not look at checksums: for networks that do not corrupt.
    #[must_use]
    pub fn unchecked(self) -> Self {
        Self { is_checked: false, ..self }
    }

    /// The next page, if one comes within that time.
    ///
    /// # Errors
    /// Those of [`Receiver::receive`].
    pub fn receive(&mut self, at_most: Duration) -> Result<Option<Page>, Error> {
        let mut started = None;
        loop {
            // Most pages come in bunches: the clock is looked at once for each.
            let packet = match self.receiver.next() {
                Some(packet) => packet,
                None => {
                    let passed = started.get_or_insert_with(Instant::now).elapsed();
                    match self.receiver.receive(at_most.saturating_sub(passed))? {
                        Some(packet) => packet,
                        None => return Ok(None),
                    }
                }
            };
            match Page::of(packet) {
                Some(page) if self.is_wanted(&page) => {
                    if !self.is_checked || page.is_intact() {
                        return Ok(Some(page));
                    }
                    self.corrupt += 1;
                }
                _ => self.others += 1,
            }
            if started.get_or_insert_with(Instant::now).elapsed() >= at_most {
                return Ok(None);
            }
        }
    }

    fn is_wanted(&self, page: &Page) -> bool {
        page.to.port() == self.port && self.from.is_none_or(|from| from == page.from.ip())
    }

    /// Datagrams whose checksum was wrong.
    #[must_use]
    pub const fn corrupt(&self) -> u64 {
        self.corrupt
    }

    /// Packets that were no datagrams to this port.
    #[must_use]
    pub const fn others(&self) -> u64 {
        self.others
    }

    /// What it receives from.
    #[must_use]
    pub const fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }
}

/// The payload of a datagram. Its memory goes back when it is dropped.
#[derive(Debug)]
pub struct Page {
    from: SocketAddr,
    to: SocketAddr,
    /// Where the UDP header begins, and how long the datagram is with it.
    udp_at: usize,
    udp_len: usize,
    sum: u16,
    packet: Packet,
}

impl Page {
    /// The datagram in a packet, if it is one. Its checksum is not looked at.
    #[must_use]
    pub fn of(packet: Packet) -> Option<Self> {
        // Headers of IPv6 and options of IPv4 may be in the body of a packet that was
        // not guessed.
        let mut bytes = [0; spec_defrag::Head::MOST];
        let len = packet.copy_out(0, &mut bytes);
        let head = &bytes[..len];
        let parsed = spec_defrag::wire::parse(head, packet.len() as u32).ok()?;
        if parsed.protocol != protocol::UDP || parsed.fragment.is_some() {
            return None;
        }
        let udp_at = usize::from(parsed.payload_at);
        let header = udp::Header::view(head.get(udp_at..)?.first_chunk()?);
        let (udp_len, sum) = (usize::from(header.len.get()), header.sum.get());
        if udp_len < udp::LEN || udp_len > parsed.payload_len as usize {
            return None;
        }
        let (from, to) = parsed.key.addresses();
        let from = SocketAddr::new(from, header.source.get());
        let to = SocketAddr::new(to, header.destination.get());
        Some(Self { from, to, udp_at, udp_len, sum, packet })
    }

    /// Whether its checksum is right (RFC 768; RFC 8200, section 8.1).
    #[must_use]
    pub fn is_intact(&self) -> bool {
        let pseudo = checksum::pseudo_header(self.from.ip(), self.to.ip(), protocol::UDP);
        let pseudo = checksum::with_len(pseudo, self.udp_len as u32);
        if self.sum == 0 {
            return self.from.is_ipv4();
        }
        // What a peer on this machine sends in one frame has not been finished: a
        // device would do it, and there is none.
        if self.packet.path() == ReassemblyPath::Whole && self.sum == pseudo {
            return true;
        }
        let mut sum = InternetSum::new();
        sum.add_word(pseudo);
        self.packet.part(self.udp_at..self.udp_at + self.udp_len).for_each(|part| sum.add(part));
        sum.sum() == 0xffff
    }

    /// Who sent it.
    #[must_use]
    pub const fn from(&self) -> SocketAddr {
        self.from
    }

    /// To whom.
    #[must_use]
    pub const fn to(&self) -> SocketAddr {
        self.to
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.udp_len - udp::LEN
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, piece by piece: one piece, unless it was lent as a list.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let start = self.udp_at + udp::LEN;
        self.packet.part(start..start + self.len())
    }

    /// The bytes in one piece: where they are, if they lie so, else a copy.
    #[must_use]
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        let mut pieces = self.pieces();
        match pieces.next() {
            None => Cow::Borrowed(&[]),
            Some(only) if only.len() == self.len() => Cow::Borrowed(only),
            Some(first) => {
                let mut bytes = first.to_vec();
                pieces.for_each(|piece| bytes.extend_from_slice(piece));
                Cow::Owned(bytes)
            }
        }
    }

    /// The packet that it came in.
    #[must_use]
    pub const fn packet(&self) -> &Packet {
        &self.packet
    }
}
