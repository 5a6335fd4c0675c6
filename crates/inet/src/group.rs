//! Who listens to which group: IGMP (RFC 2236, 3376) for IPv4, MLD (RFC 2710, 3810) for IPv6.
//!
//! A host says which groups it listens to, no matter who sends to them, and hears what others ask
//! and say. Lists of senders are read past.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use landfall_placement::Refusal;

use crate::checksum::{self, InternetSum};
use crate::ethernet::Mac;
use crate::{ethernet, icmp, ipv4, ipv6, protocol};

/// The kinds of messages of MLD, among those of `ICMPv6`.
pub const MLD_QUERY: u8 = 130;
/// Somebody listens to a group.
pub const MLD_REPORT: u8 = 131;
/// Somebody listens to a group no longer.
pub const MLD_DONE: u8 = 132;
/// Which groups somebody listens to.
pub const MLD_REPORT_2: u8 = 143;

const IGMP_QUERY: u8 = 0x11;
const IGMP_REPORT: u8 = 0x12;
const IGMP_REPORT_2: u8 = 0x16;
const IGMP_LEAVE: u8 = 0x17;
const IGMP_REPORT_3: u8 = 0x22;

/// Who hears reports of lists: routers, and switches that look into them.
const REPORTS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const REPORTS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
const ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The length of a record without senders.
const fn record_len(is_v4: bool) -> usize {
    if is_v4 { 8 } else { 20 }
}

/// A router of which generation asks: those before the last know no lists of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// `IGMPv1`.
    First,
    /// `IGMPv2`, or `MLDv1`.
    Second,
    /// `IGMPv3`, or `MLDv2`.
    Third,
}

/// Who listens?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// To which group; nothing: to any.
    pub group: Option<IpAddr>,
    /// Answers are to come within this time.
    pub within: Duration,
    /// Who asks.
    pub generation: Generation,
}

/// A message, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A router asks.
    Query(Query),
    /// Another host listens to this group.
    Report(IpAddr),
    /// What concerns routers only.
    Other,
}

/// What a record of a report says of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// It is listened to, no matter who sends: the answer to a query.
    Listens = 2,
    /// It is listened to no longer.
    Leaves = 3,
    /// It is listened to from now on.
    Joins = 4,
}

/// What a report says of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The group.
    pub group: IpAddr,
    /// What of it.
    pub kind: RecordKind,
}

/// The stations that listen to a group (RFC 1112, section 6.4; RFC 2464, section 7).
///
/// ```
/// let group = "239.129.2.3".parse()?;
/// assert_eq!(landfall_inet::group::stations(group), [1, 0, 0x5e, 1, 2, 3]);
/// # Ok::<(), core::net::AddrParseError>(())
/// ```
#[must_use]
pub const fn stations(group: IpAddr) -> Mac {
    match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => crate::ndp::group_mac(group),
    }
}

/// What a code of eight bits stands for: large numbers have an exponent (RFC 3376, 4.1.1).
const fn expanded(code: u8) -> u32 {
    if code < 128 { code as u32 } else { ((code & 0xf) as u32 | 0x10) << ((code >> 4 & 7) + 3) }
}

/// The same of sixteen bits (RFC 3810, 5.1.3).
const fn expanded_wide(code: u16) -> u32 {
    if code < 32_768 {
        code as u32
    } else {
        ((code & 0xfff) as u32 | 0x1000) << ((code >> 12 & 7) + 3)
    }
}

/// Reads a message of IGMP.
///
/// # Errors
/// [`Refusal::Truncated`], [`Refusal::BadChecksum`]; [`Refusal::Malformed`] for a group that is
/// none; [`Refusal::Unsupported`] for other kinds.
pub fn read_igmp(message: &[u8]) -> Result<Message, Refusal> {
    let &[kind, code, _, _, a, b, c, d, ..] = message else { return Err(Refusal::Truncated) };
    if checksum::sum_of(message) != 0xffff {
        return Err(Refusal::BadChecksum);
    }
    let group = Ipv4Addr::new(a, b, c, d);
    match kind {
        IGMP_QUERY => {
            let (generation, tenths) = match (message.len(), code) {
                (8, 0) => (Generation::First, 100),
                (8, code) => (Generation::Second, u32::from(code)),
                (12.., code) => (Generation::Third, expanded(code)),
                _ => return Err(Refusal::Malformed),
            };
            if !group.is_unspecified() && !group.is_multicast() {
                return Err(Refusal::Malformed);
            }
            let group = (!group.is_unspecified()).then_some(IpAddr::V4(group));
            let within = Duration::from_millis(u64::from(tenths) * 100);
            Ok(Message::Query(Query { group, within, generation }))
        }
        IGMP_REPORT | IGMP_REPORT_2 if group.is_multicast() => Ok(Message::Report(group.into())),
        IGMP_REPORT | IGMP_REPORT_2 => Err(Refusal::Malformed),
        IGMP_LEAVE | IGMP_REPORT_3 => Ok(Message::Other),
        _ => Err(Refusal::Unsupported),
    }
}

/// Reads a message of MLD whose checksum [`icmp6::read`](crate::icmp6::read) found right.
///
/// # Errors
/// As [`read_igmp`].
pub fn read_mld(message: &[u8]) -> Result<Message, Refusal> {
    if message.first() == Some(&MLD_REPORT_2) {
        return Ok(Message::Other);
    }
    let group = message.get(8..24).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let group = Ipv6Addr::from_octets(group.ok_or(Refusal::Truncated)?);
    if !group.is_unspecified() && !group.is_multicast() {
        return Err(Refusal::Malformed);
    }
    let named = (!group.is_unspecified()).then_some(IpAddr::V6(group));
    match (message[0], named) {
        (MLD_QUERY, group) => {
            let code = u16::from_be_bytes([message[4], message[5]]);
            let (generation, millis) = match message.len() {
                24 => (Generation::Second, u32::from(code)),
                28.. => (Generation::Third, expanded_wide(code)),
                _ => return Err(Refusal::Malformed),
            };
            let within = Duration::from_millis(millis.into());
            Ok(Message::Query(Query { group, within, generation }))
        }
        (MLD_REPORT, Some(group)) => Ok(Message::Report(group)),
        (MLD_DONE, Some(_)) => Ok(Message::Other),
        (MLD_REPORT | MLD_DONE, None) => Err(Refusal::Malformed),
        _ => Err(Refusal::Unsupported),
    }
}

/// How many records a frame of this length has room for.
#[must_use]
pub const fn records_in(len: usize, is_v4: bool) -> usize {
    let headers = if is_v4 { ipv4::LEN + 4 } else { ipv6::LEN + 8 };
    len.saturating_sub(ethernet::LEN + headers + 8) / record_len(is_v4)
}

/// Writes the frame of a report about groups of one version of IP, of a host that asks no router
/// to forward it but all to look at it. Gives its length, or `None` where there is no room, or a
/// group is of another version than the host.
pub fn write_report(
    (mac, address): (Mac, IpAddr),
    records: &[Record],
    into: &mut [u8],
) -> Option<usize> {
    let is_v4 = address.is_ipv4();
    let len = 8 + records.len() * record_len(is_v4);
    let (kind, to) = match address {
        IpAddr::V4(_) => (IGMP_REPORT_3, IpAddr::V4(REPORTS_V4)),
        IpAddr::V6(_) => (MLD_REPORT_2, IpAddr::V6(REPORTS_V6)),
    };
    frame((mac, address), to, len, into, |message| {
        message[..8].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        message[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for (record, into) in records.iter().zip(message[8..].chunks_mut(record_len(is_v4))) {
            into[..4].copy_from_slice(&[record.kind as u8, 0, 0, 0]);
            write_group(record.group, &mut into[4..])?;
        }
        Some(())
    })
}

/// The same about one group, for routers that know no lists.
pub fn write_old_report(
    us: (Mac, IpAddr),
    (group, is_leaving): (IpAddr, bool),
    generation: Generation,
    into: &mut [u8],
) -> Option<usize> {
    let (kind, to, len) = match (group, is_leaving) {
        (IpAddr::V4(_), false) if generation == Generation::First => (IGMP_REPORT, group, 8),
        (IpAddr::V4(_), false) => (IGMP_REPORT_2, group, 8),
        (IpAddr::V4(_), true) => (IGMP_LEAVE, ROUTERS_V4.into(), 8),
        (IpAddr::V6(_), false) => (MLD_REPORT, group, 24),
        (IpAddr::V6(_), true) => (MLD_DONE, ROUTERS_V6.into(), 24),
    };
    frame(us, to, len, into, |message| {
        message[..4].copy_from_slice(&[kind, 0, 0, 0]);
        let at = if len == 8 { 4 } else { 8 };
        message[4..at].fill(0);
        write_group(group, &mut message[at..])
    })
}

fn write_group(group: IpAddr, into: &mut [u8]) -> Option<()> {
    match group {
        IpAddr::V4(group) => into.get_mut(..4)?.copy_from_slice(&group.octets()),
        IpAddr::V6(group) => into.get_mut(..16)?.copy_from_slice(&group.octets()),
    }
    Some(())
}

/// A frame to a group, with the option that has routers look at it (RFC 2113, 2711), and no
/// router forward it.
fn frame(
    (mac, address): (Mac, IpAddr),
    to: IpAddr,
    len: usize,
    into: &mut [u8],
    write: impl FnOnce(&mut [u8]) -> Option<()>,
) -> Option<usize> {
    /// A router alert, of IPv4 and in a header of its own of IPv6.
    const ALERT: [u8; 4] = [0x94, 4, 0, 0];
    const HEADER: [u8; 8] = [protocol::ICMP6, 0, 5, 2, 0, 0, 1, 0];
    let (source, destination) = (address, to);
    let (ethertype, at) = match source {
        IpAddr::V4(_) => (ethernet::IPV4, ethernet::LEN + ipv4::LEN + ALERT.len()),
        IpAddr::V6(_) => (ethernet::IPV6, ethernet::LEN + ipv6::LEN + HEADER.len()),
    };
    let frame = into.get_mut(..at + len)?;
    let [high, low] = ethertype.to_be_bytes();
    frame[..6].copy_from_slice(&stations(destination));
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&[high, low]);
    let (headers, message) = frame.split_at_mut(at);
    let headers = &mut headers[ethernet::LEN..];
    write(message)?;
    let mut sum = InternetSum::new();
    let slot = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let [high, low] = ((at - ethernet::LEN + len) as u16).to_be_bytes();
            // Of the class that routers keep for the control of the network.
            headers[..12].copy_from_slice(&[
                0x46,
                0xc0,
                high,
                low,
                0,
                0,
                0x40,
                0,
                1,
                protocol::IGMP,
                0,
                0,
            ]);
            headers[12..16].copy_from_slice(&source.octets());
            headers[16..20].copy_from_slice(&destination.octets());
            headers[20..].copy_from_slice(&ALERT);
            ipv4::seal(headers);
            2
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let [high, low] = ((HEADER.len() + len) as u16).to_be_bytes();
            headers[..8].copy_from_slice(&[0x60, 0, 0, 0, high, low, protocol::HOP_BY_HOP, 1]);
            headers[8..24].copy_from_slice(&source.octets());
            headers[24..40].copy_from_slice(&destination.octets());
            headers[40..].copy_from_slice(&HEADER);
            let addresses = checksum::pseudo_header(address, to, protocol::ICMP6);
            sum.add_word(checksum::with_len(addresses, len as u32));
            2
        }
        _ => return None,
    };
    sum.add(message);
    message[slot..slot + 2].copy_from_slice(&sum.checksum().to_be_bytes());
    debug_assert!(len >= icmp::LEN, "every message has a header");
    Some(at + len)
}
