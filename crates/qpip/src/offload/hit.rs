//! [`Hit`]: a unit that came as predicted. What its header says, and the checks
//! that it passed.
//!
//! A frame read as far as an adapter reads it: plain headers of IP, and nothing
//! between them and what they carry.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::{Check, Ecn, InternetSum, PathId, Serial32, Spans};
use zerocopy::FromBytes;

use super::entry::{Known, Prediction};
use super::tables::{Ends, Tables};
use super::talk::OwnAddress;
use crate::wire::checksum::{sum_of_words, with_len};
use crate::wire::tcp::Flags;
use crate::wire::{Mac, ethernet, ipv4, ipv6, tcp, udp};

/// A unit that came as predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The next segment of a connection.
    Segment(Segment),
    /// A datagram for a bound port.
    Datagram(Datagram),
}

/// The next segment of a connection: its sequence number is the one that was
/// expected. It counts when the payload is in place and its sum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The queue pair.
    pub slot: u32,
    /// Its sequence number.
    pub seq: u32,
    /// What it acknowledges.
    pub ack: u32,
    /// Its window field.
    pub window: u16,
    /// It has PSH.
    pub is_pushed: bool,
    /// Their clock, and what they heard of ours.
    pub timestamp: Option<(u32, u32)>,
    /// What the network said of congestion.
    pub ecn: Ecn,
    /// Where in the unit its payload starts.
    pub at: u16,
    /// How long its payload is.
    pub len: u32,
    /// The pass that its checksum needs.
    pub check: Check,
    /// The engine's mark of the prediction that it came under.
    pub course: u16,
    /// Fewer places are left behind it than it took: another one like it would
    /// not fit. It is time to say what follows.
    pub is_spent: bool,
}

/// A datagram; it takes the next request of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The queue pair.
    pub slot: u32,
    /// Who sent it.
    pub from: SocketAddr,
    /// Where in the unit its payload starts.
    pub at: u16,
    /// How long its payload is.
    pub len: u32,
    /// The pass that its checksum needs.
    pub check: Check,
    /// No predicted request is left behind it.
    pub is_spent: bool,
}

impl Tables<'_> {
    /// Header prediction: is it the segment that was expected, in every respect?
    #[inline]
    pub(super) fn take_segment(
        &mut self,
        slot: u32,
        unit: &Incoming<'_>,
        packet: &Packet,
        into: &mut Spans,
        is_intact: impl FnOnce(Check) -> bool,
    ) -> Result<Segment, Miss> {
        let Some(Known::Stream(stream)) = self.known_mut(slot) else { return Err(Miss::Unknown) };
        if !stream.is_armed || stream.path != unit.path {
            return Err(Miss::Unarmed);
        }
        let bytes = unit.head.get(packet.at..).unwrap_or_default();
        let (header, rest) = tcp::Header::ref_from_prefix(bytes).map_err(|_| Miss::Short)?;
        let next = &mut stream.next;
        let (timestamp, options) = options(header.words, rest, next.recent)?;
        let is_pushed = header.flags.contains(Flags::PSH);
        if header.flags.without(Flags::PSH) != Flags::ACK {
            return Err(Miss::Flags);
        }
        let (seq, ack) = (header.seq.get(), header.ack.get());
        if seq != next.expected {
            return Err(Miss::Sequence);
        }
        if !is_awaited(ack, next) {
            return Err(Miss::Acknowledgement);
        }
        let header_len = tcp::LEN + options;
        let len = packet.len.checked_sub(header_len as u32).ok_or(Miss::Short)?;
        if len == 0 {
            return Err(Miss::Empty);
        }
        if len > next.window() {
            return Err(Miss::Window);
        }
        let (before, check) = (next.places, packet.check(packet.len));
        if !next.places.take(len, is_pushed && next.has_messages, into) {
            return Err(Miss::Places);
        }
        if !is_intact(check) {
            next.places = before;
            into.clear();
            return Err(Miss::Sum);
        }
        next.expected = seq.wrapping_add(len);
        Ok(Segment {
            slot,
            seq,
            ack,
            window: header.window.get(),
            is_pushed,
            timestamp,
            ecn: packet.ecn,
            at: (packet.at + header_len) as u16,
            len,
            check,
            course: next.course,
            is_spent: !next.places.have(len),
        })
    }

    /// Can this segment, which was not expected, take no place whatever the engine
    /// makes of it? It has no payload, and neither opens nor ends anything.
    pub(super) fn is_bare(unit: &Incoming<'_>, packet: &Packet) -> bool {
        let bytes = unit.head.get(packet.at..).unwrap_or_default();
        // It ends within its header: the engine counts that.
        let Ok((header, _)) = tcp::Header::ref_from_prefix(bytes) else { return false };
        let header_len = u32::from(header.words >> 4) * 4;
        header_len == packet.len && !header.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST)
    }

    /// It is for an address of ours, and from one that somebody else can have.
    #[inline]
    pub(super) fn check_address(
        &self,
        unit: &Incoming<'_>,
        local: SocketAddr,
        from: SocketAddr,
    ) -> Result<(), Miss> {
        let has = |address: IpAddr| unit.addresses.iter().any(|own| own.ip == address);
        let is_plain = has(local.ip()) && !has(from.ip()) && is_sender(from.ip());
        if is_plain { Ok(()) } else { Err(Miss::Unknown) }
    }

    #[inline]
    pub(super) fn take_datagram(
        &mut self,
        slot: u32,
        unit: &Incoming<'_>,
        packet: &Packet,
        into: &mut Spans,
        is_intact: impl FnOnce(Check) -> bool,
    ) -> Result<Datagram, Miss> {
        let Some(Known::Port(port)) = self.known_mut(slot) else { return Err(Miss::Unknown) };
        if !port.is_armed {
            return Err(Miss::Unarmed);
        }
        let bytes = unit.head.get(packet.at..).unwrap_or_default();
        let (header, _) = udp::Header::ref_from_prefix(bytes).map_err(|_| Miss::Short)?;
        let whole = u32::from(header.len.get());
        let len = whole.checked_sub(udp::LEN as u32).filter(|_| whole <= packet.len);
        let len = len.ok_or(Miss::Damaged)?;
        let (_, from) = packet.ends.addresses();
        let check = match header.has_sum() {
            true => packet.check(whole),
            false if from.is_ipv4() => Check::None,
            false => return Err(Miss::Unchecked),
        };
        if len == 0 {
            return Err(Miss::Empty);
        }
        let (room, before) = (port.places.first_request(), port.places);
        if room.is_some_and(|room| u64::from(len) > room) || !port.places.take(len, true, into) {
            return Err(Miss::Places);
        }
        if !is_intact(check) {
            port.places = before;
            into.clear();
            return Err(Miss::Sum);
        }
        let (at, is_spent) = ((packet.at + udp::LEN) as u16, port.places.is_empty());
        Ok(Datagram { slot, from, at, len, check, is_spent })
    }
}

/// The options have to be a timestamp, laid out as everybody does (RFC 7323,
/// appendix A), and not older than the latest; or there are none, where the two
/// sides use none. Returns them and their length.
#[inline]
fn options(
    words: u8,
    bytes: &[u8],
    recent: Option<u32>,
) -> Result<(Option<(u32, u32)>, usize), Miss> {
    let Some(recent) = recent else {
        return if words == 0x50 { Ok((None, 0)) } else { Err(Miss::Options) };
    };
    if words != 0x80 {
        return Err(Miss::Options);
    }
    let option = bytes.first_chunk::<12>().ok_or(Miss::Short)?;
    let [1, 1, 8, 10, a, b, c, d, e, f, g, h] = *option else { return Err(Miss::Options) };
    let (value, echo) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    if Serial32(value).precedes(Serial32(recent)) {
        return Err(Miss::Old);
    }
    Ok((Some((value, echo)), option.len()))
}

/// Does it acknowledge something between what was acknowledged and what was sent?
#[inline]
const fn is_awaited(ack: u32, next: &Prediction) -> bool {
    ack.wrapping_sub(next.acknowledged) <= next.sent.wrapping_sub(next.acknowledged)
}

// `Miss`: why a unit goes to the engine; `UnitOwner`: for whom it may matter there.

macro_rules! misses {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)+) => {
        /// Why this path does not take a unit. Nothing was changed, and nothing is
        /// said about the unit but that the engine has to look at it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Miss { $($(#[$doc])* $name,)+ }

        impl Miss {
            /// Every reason there is.
            pub const ALL: [Self; [$($words),+].len()] = [$(Self::$name),+];

            /// The reason in a few words.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $words,)+ }
            }
        }
    };
}

misses! {
    /// Its headers are not at hand, or longer than it is.
    Short = "headers are not at hand",
    /// It went to another station, to a group, or to all.
    Station = "not for this station alone",
    /// It is neither version of IP, or a header has options or extensions.
    Header = "not a plain header of IP",
    /// It is a piece of a packet.
    Fragment = "a fragment",
    /// The checksum of its IPv4 header is wrong, or its lengths contradict each
    /// other.
    Damaged = "damaged",
    /// It carries neither TCP nor UDP.
    Protocol = "neither TCP nor UDP",
    /// It is for nobody known, or from an address that nobody there can have.
    Unknown = "no such connection or port",
    /// Its connection or port has no prediction, or not for this path.
    Unarmed = "nothing is predicted",
    /// It has other flags than ACK, or ACK and PSH.
    Flags = "other flags",
    /// Its options are not just what is expected: a timestamp, or none.
    Options = "other options",
    /// Its timestamp is older than the latest.
    Old = "an old timestamp",
    /// It is not the next segment.
    Sequence = "not the next segment",
    /// It acknowledges what was acknowledged before, or never sent.
    Acknowledgement = "an acknowledgement out of range",
    /// It has no payload.
    Empty = "no payload",
    /// Its payload reaches beyond the window.
    Window = "beyond the window",
    /// Its payload reaches beyond the places that are predicted.
    Places = "beyond the predicted places",
    /// A datagram of version 6 has no checksum.
    Unchecked = "no checksum",
    /// Its checksum is wrong, as an adapter finds that has all of it at hand.
    Sum = "a wrong checksum",
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A unit that goes to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Why it does.
    pub why: Miss,
    /// Whose expectations the engine may have to change for it.
    pub whose: UnitOwner,
}

/// For which queue pairs a unit may bring something that takes a place. Those
/// have to wait for the engine, if it and the tables are in different machines:
/// what the engine does with the unit, and what the tables would do with the
/// next one, must not meet in the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitOwner {
    /// For none: an acknowledgement, ARP, ICMP, or a packet for nobody known.
    Nobody,
    /// For this one.
    Slot(u32),
    /// That was not read: a fragment, or headers that are not plain.
    Anybody,
}

/// A unit as it comes in: a whole Ethernet frame, of which the first bytes are
/// at hand.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// The path it came over.
    pub path: PathId,
    /// Our station on that path.
    pub station: Mac,
    /// Our addresses there; the lengths of their prefixes do not matter here.
    pub addresses: &'a [OwnAddress],
    /// The connection that it is probably for, by its slot: the last one.
    pub likely: Option<u32>,
    /// Its first bytes.
    pub head: &'a [u8],
    /// The length of the whole unit.
    pub len: u32,
}

/// What IP says of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) ends: Ends,
    pub(super) protocol: u8,
    pub(super) ecn: Ecn,
    /// Where its payload starts in the unit.
    pub(super) at: usize,
    /// How long its payload is.
    pub(super) len: u32,
    /// The sum over both addresses.
    addresses: u16,
}

/// Reads a frame up to the ports of what it carries.
#[inline]
pub(super) fn read(unit: &Incoming<'_>) -> Result<Packet, Miss> {
    let (header, rest) = ethernet::Header::ref_from_prefix(unit.head).map_err(|_| Miss::Short)?;
    if header.destination != unit.station || header.is_to_group() {
        return Err(Miss::Station);
    }
    let len = unit.len.saturating_sub(ethernet::LEN as u32);
    match header.ethertype.get() {
        ethernet::IPV4 => read_v4(rest, len),
        ethernet::IPV6 => read_v6(rest, len),
        _ => Err(Miss::Header),
    }
}

/// Whom a unit may concern whose headers were not read to the end.
pub(super) fn unread(unit: &Incoming<'_>, why: Miss) -> UnitOwner {
    let Ok((header, _)) = ethernet::Header::ref_from_prefix(unit.head) else {
        return UnitOwner::Nobody;
    };
    let is_ip = matches!(header.ethertype.get(), ethernet::IPV4 | ethernet::IPV6);
    // What goes to a group is none of the packets that take a place; but what goes
    // to another station may go to what is ours from now on.
    let is_to_one = !header.is_to_group() || why != Miss::Station;
    if is_ip && is_to_one { UnitOwner::Anybody } else { UnitOwner::Nobody }
}

/// `len`: how many bytes follow the header of Ethernet; padding may be among them.
#[inline]
fn read_v4(bytes: &[u8], len: u32) -> Result<Packet, Miss> {
    let (raw, rest) = bytes.split_first_chunk::<{ ipv4::LEN }>().ok_or(Miss::Short)?;
    let header = ipv4::Header::ref_from_bytes(raw).map_err(|_| Miss::Short)?;
    // The version, and a length of five words: no options.
    if header.version_and_words != 0x45 {
        return Err(Miss::Header);
    }
    if header.is_fragment() {
        return Err(Miss::Fragment);
    }
    let payload = u32::from(header.total_len.get()).checked_sub(ipv4::LEN as u32);
    let payload = payload.filter(|payload| payload + ipv4::LEN as u32 <= len);
    let payload = payload.filter(|_| ipv4::is_intact(raw)).ok_or(Miss::Damaged)?;
    let ports = *rest.first_chunk::<4>().filter(|_| payload >= 4).ok_or(Miss::Short)?;
    Ok(Packet {
        ends: Ends::of_v4(header.source, header.destination, ports),
        protocol: header.protocol,
        ecn: header.ecn(),
        at: ethernet::LEN + ipv4::LEN,
        len: payload,
        addresses: sum(&header.source, &header.destination),
    })
}

/// What follows the header has to be TCP or UDP itself: every other next header
/// is one of an extension, and not looked at.
#[inline]
fn read_v6(bytes: &[u8], len: u32) -> Result<Packet, Miss> {
    let (header, rest) = ipv6::Header::ref_from_prefix(bytes).map_err(|_| Miss::Short)?;
    if header.version() != 6 {
        return Err(Miss::Header);
    }
    let payload = u32::from(header.payload_len.get());
    if payload + ipv6::LEN as u32 > len {
        return Err(Miss::Damaged);
    }
    let ports = *rest.first_chunk::<4>().filter(|_| payload >= 4).ok_or(Miss::Short)?;
    Ok(Packet {
        ends: Ends::of_v6(header.source, header.destination, ports),
        protocol: header.next_header,
        ecn: header.ecn(),
        at: ethernet::LEN + ipv6::LEN,
        len: payload,
        addresses: sum(&header.source, &header.destination),
    })
}

#[inline]
fn sum(source: &[u8], destination: &[u8]) -> u16 {
    let mut sum = InternetSum::new();
    sum.add_word(sum_of_words(source));
    sum.add_word(sum_of_words(destination));
    sum.sum()
}

impl Packet {
    #[inline]
    pub(super) const fn is_v4(&self) -> bool {
        self.ends.is_v4()
    }

    /// The pass over `len` bytes of what the packet carries.
    #[inline]
    pub(super) const fn check(&self, len: u32) -> Check {
        let mut sum = InternetSum::new();
        sum.add_word(self.addresses);
        sum.add_word(self.protocol as u16);
        Check::InternetSum { from: self.at as u16, len, seed: with_len(sum, len) }
    }
}

/// Can a host there send from this address (RFC 1122, section 3.2.1.3; RFC 4291,
/// sections 2.5.3 and 2.7)?
#[inline]
pub(super) const fn is_sender(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !address.is_multicast() && !address.is_broadcast() && !address.is_loopback()
        }
        IpAddr::V6(address) => !address.is_multicast() && !address.is_loopback(),
    }
}
