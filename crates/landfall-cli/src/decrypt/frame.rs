//! Where a sealed unit lies in a frame, and the frame with other bytes in its place.

use landfall_inet::{checksum, ethernet, fragment, ipv4, ipv6, protocol, udp, vlan};
use zerocopy::FromBytes;

const ETHERNET: u16 = 1;
const LINUX_COOKED: u16 = 113;
const LINUX_COOKED_2: u16 = 276;
/// IP and nothing before it; the first by the numbers of several systems.
const RAW_IP: [u16; 5] = [101, 12, 14, 228, 229];

const STP: u16 = 0x8181;
const CLAN: u16 = 0x88b5;
/// What a sealed frame of admission control has before its unit, its length left out. It has the
/// ethertype of CLAN.
const ADMISSION: &[u8] = b"LFAC\x01\x06";
const ADMISSION_HEAD: usize = 8;
/// STP directly on IP.
const PROTOCOL: u8 = 118;
/// STP and CLAN on UDP, unless they are told others.
const UDP_PORTS: [u16; 2] = [8181, 8182];

/// What a frame is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A unit may be in it.
    Unit(Place),
    /// A part of a packet of IP, in which a unit may be.
    Fragment,
    /// Something else.
    Other,
}

/// Where a unit lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Where it begins.
    pub(super) at: usize,
    /// Where that begins whose place it takes when it is opened: the unit, or what is around it.
    outer: usize,
    /// Where it ends, in the frame as it was.
    pub(super) end: usize,
    /// Where the header of IP begins, if there is one.
    ip: Option<usize>,
    udp: Option<usize>,
    /// STP or CLAN is expected here, and nothing else: not on any port of UDP.
    pub(super) is_ours: bool,
}

/// Looks for a unit. `len` is the length of the frame, of which these bytes were recorded.
pub(super) fn look(link_type: u16, frame: &[u8], len: usize) -> Content {
    try_look(link_type, frame, len).unwrap_or(Content::Other)
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

fn try_look(link_type: u16, frame: &[u8], len: usize) -> Option<Content> {
    let (ethertype, at) = match link_type {
        ETHERNET => behind_vlans(frame, 12)?,
        LINUX_COOKED => behind_vlans(frame, 14)?,
        LINUX_COOKED_2 => (half(frame, 0)?, 20),
        raw if RAW_IP.contains(&raw) => match frame.first()? >> 4 {
            4 => (ethernet::IPV4, 0),
            6 => (ethernet::IPV6, 0),
            _ => return None,
        },
        _ => return None,
    };
    match ethertype {
        STP | CLAN => {
            let outer = at;
            let (at, end) = in_envelope(frame, at).unwrap_or((at, len));
            Some(Content::Unit(Place { at, outer, end, ip: None, udp: None, is_ours: true }))
        }
        ethernet::IPV4 => look_in_ipv4(frame, at, len),
        ethernet::IPV6 => look_in_ipv6(frame, at, len),
        _ => None,
    }
}

/// Where the unit lies in a sealed frame of admission control.
fn in_envelope(frame: &[u8], at: usize) -> Option<(usize, usize)> {
    let len = half(frame, at + ADMISSION.len()).filter(|_| frame[at..].starts_with(ADMISSION))?;
    Some((at + ADMISSION_HEAD, at + ADMISSION_HEAD + usize::from(len)))
}

/// The ethertype at this place, behind the tags of VLANs that may be there, and where what it
/// names begins.
fn behind_vlans(frame: &[u8], at: usize) -> Option<(u16, usize)> {
    let behind = at + 2;
    let (ethertype, tags) = vlan::behind_tags(half(frame, at)?, frame.get(behind..)?)?;
    Some((ethertype, behind + tags))
}

fn look_in_ipv4(frame: &[u8], ip: usize, len: usize) -> Option<Content> {
    let header = ipv4::Header::view(frame.get(ip..)?.first_chunk()?);
    let header_len = header.header_len();
    if header.version() != 4 || header_len < ipv4::LEN {
        return None;
    }
    // Zero where the kernel has not cut it into packets yet.
    let total = match usize::from(header.total_len.get()) {
        0 => len.saturating_sub(ip),
        total => total,
    };
    carried(frame, (ip, ip + header_len), ip + total, header.protocol, header.is_fragment())
}

fn look_in_ipv6(frame: &[u8], ip: usize, len: usize) -> Option<Content> {
    let header = ipv6::read(frame.get(ip..)?).ok()?;
    let at = ip + ipv6::LEN;
    let end = match usize::from(header.payload_len.get()) {
        0 => len,
        payload => at + payload,
    };
    if header.next_header == protocol::FRAGMENT {
        let (fragment, _) = fragment::Header::ref_from_prefix(&frame[at..]).ok()?;
        return carried(frame, (ip, at + fragment::LEN), end, fragment.next_header, true);
    }
    carried(frame, (ip, at), end, header.next_header, false)
}

fn carried(
    frame: &[u8],
    (ip, at): (usize, usize),
    end: usize,
    protocol: u8,
    is_fragment: bool,
) -> Option<Content> {
    match protocol {
        PROTOCOL | protocol::UDP if is_fragment => Some(Content::Fragment),
        PROTOCOL if at <= end => Some(Content::Unit(Place {
            at,
            outer: at,
            end,
            ip: Some(ip),
            udp: None,
            is_ours: true,
        })),
        protocol::UDP => {
            let header = udp::Header::view(frame.get(at..)?.first_chunk()?);
            let is_one = |port| UDP_PORTS.contains(&u16::from(port));
            let is_ours = is_one(header.source) || is_one(header.destination);
            let udp_len = usize::from(header.len.get());
            // Of datagrams that a device cuts, IP says how long all of them are.
            let end = if udp_len < udp::LEN { end } else { end.min(at + udp_len) };
            let unit = at + udp::LEN;
            (unit <= end).then_some(Content::Unit(Place {
                at: unit,
                outer: unit,
                end,
                ip: Some(ip),
                udp: Some(at),
                is_ours,
            }))
        }
        _ => None,
    }
}

impl Place {
    /// What was recorded of the unit.
    pub(super) fn unit<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.at..self.end.min(frame.len())).unwrap_or_default()
    }

    /// The frame with these bytes in the place of the unit: lengths and checksums are theirs.
    pub(super) fn replace(&self, frame: &[u8], unit: &[u8]) -> Vec<u8> {
        let mut new = frame.get(..self.outer).unwrap_or_default().to_vec();
        new.extend_from_slice(unit);
        // What was looked at has these headers.
        let finished = self.ip.map(|ip| self.finish_ip(&mut new, ip));
        debug_assert_ne!(finished, Some(None), "the headers are in front of the unit");
        new
    }

    /// Makes lengths and checksums right: of IP, and of UDP where it carries that.
    fn finish_ip(&self, new: &mut [u8], ip: usize) -> Option<()> {
        let packet = new.get_mut(ip..)?;
        let len = packet.len();
        let (at, addresses) = if packet.first()? >> 4 == 4 {
            let (header, _) = ipv4::Header::mut_from_prefix(packet).ok()?;
            header.total_len = (len as u16).into();
            let header_len = header.header_len();
            let ends = (header.source().into(), header.destination().into());
            ipv4::seal(packet.get_mut(..header_len)?);
            (header_len, checksum::pseudo_header(ends.0, ends.1, protocol::UDP))
        } else {
            let (header, _) = ipv6::Header::mut_from_prefix(packet).ok()?;
            header.payload_len = ((len - ipv6::LEN) as u16).into();
            let ends = (header.source().into(), header.destination().into());
            (ipv6::LEN, checksum::pseudo_header(ends.0, ends.1, protocol::UDP))
        };
        if self.udp.is_none() {
            return Some(());
        }
        let datagram = packet.get_mut(at..)?;
        let len = datagram.len() as u16;
        let (header, payload) = udp::Header::mut_from_prefix(datagram).ok()?;
        (header.len, header.sum) = (len.into(), 0.into());
        let mut sum = header.sum_of_fields();
        sum.add_word(checksum::with_len(addresses, len.into()));
        sum.add(payload);
        header.sum = udp::Header::sum_field(sum.checksum()).into();
        Some(())
    }
}
