//! Where a sealed unit lies in a frame, and the frame with other bytes in its place.

use landfall_placement::checksum::{InternetSum, checksum};

const ETHERNET: u16 = 1;
const LINUX_COOKED: u16 = 113;
const LINUX_COOKED_2: u16 = 276;
/// IP and nothing before it; the first by the numbers of several systems.
const RAW_IP: [u16; 5] = [101, 12, 14, 228, 229];

const STP: u16 = 0x8181;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLANS: [u16; 2] = [0x8100, 0x88a8];
/// STP directly on IP.
const PROTOCOL: u8 = 118;
const UDP: u8 = 17;
const IPV6_FRAGMENT: u8 = 44;
/// STP on UDP, unless it is told another.
const UDP_PORT: u16 = 8181;
const UDP_HEAD: usize = 8;

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
    /// Where it ends, in the frame as it was.
    pub(super) end: usize,
    /// Where the header of IP begins, if there is one.
    ip: Option<usize>,
    udp: Option<usize>,
    /// STP is expected here, and nothing else: not on any port of UDP.
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
            4 => (IPV4, 0),
            6 => (IPV6, 0),
            _ => return None,
        },
        _ => return None,
    };
    match ethertype {
        STP => Some(Content::Unit(Place { at, end: len, ip: None, udp: None, is_ours: true })),
        IPV4 => look_in_ipv4(frame, at, len),
        IPV6 => look_in_ipv6(frame, at, len),
        _ => None,
    }
}

/// The ethertype and what is behind it.
fn behind_vlans(frame: &[u8], mut at: usize) -> Option<(u16, usize)> {
    for _ in 0..2 {
        if VLANS.contains(&half(frame, at)?) {
            at += 4;
        }
    }
    Some((half(frame, at)?, at + 2))
}

fn look_in_ipv4(frame: &[u8], ip: usize, len: usize) -> Option<Content> {
    let head = frame.get(ip..ip + 20)?;
    let head_len = usize::from(head[0] & 0x0f) * 4;
    if head[0] >> 4 != 4 || head_len < 20 {
        return None;
    }
    // Zero where the kernel has not cut it into packets yet.
    let total = match usize::from(half(head, 2)?) {
        0 => len.saturating_sub(ip),
        total => total,
    };
    let is_fragment = half(head, 6)? & 0x3fff != 0;
    carried(frame, (ip, ip + head_len), ip + total, head[9], is_fragment)
}

fn look_in_ipv6(frame: &[u8], ip: usize, len: usize) -> Option<Content> {
    let head = frame.get(ip..ip + 40)?;
    if head[0] >> 4 != 6 {
        return None;
    }
    let end = match usize::from(half(head, 4)?) {
        0 => len,
        payload => ip + 40 + payload,
    };
    if head[6] == IPV6_FRAGMENT {
        let protocol = *frame.get(ip + 40)?;
        return carried(frame, (ip, ip + 48), end, protocol, true);
    }
    carried(frame, (ip, ip + 40), end, head[6], false)
}

fn carried(
    frame: &[u8],
    (ip, at): (usize, usize),
    end: usize,
    protocol: u8,
    is_fragment: bool,
) -> Option<Content> {
    match protocol {
        PROTOCOL | UDP if is_fragment => Some(Content::Fragment),
        PROTOCOL if at <= end => {
            Some(Content::Unit(Place { at, end, ip: Some(ip), udp: None, is_ours: true }))
        }
        UDP => {
            let is_ours = [at, at + 2].iter().any(|at| half(frame, *at) == Some(UDP_PORT));
            let udp_len = usize::from(half(frame, at + 4)?);
            // Of datagrams that a device cuts, IP says how long all of them are.
            let end = if udp_len < UDP_HEAD { end } else { end.min(at + udp_len) };
            let unit = at + UDP_HEAD;
            (unit <= end).then_some(Content::Unit(Place {
                at: unit,
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
        let mut new = frame.get(..self.at).unwrap_or_default().to_vec();
        new.extend_from_slice(unit);
        let Some(ip) = self.ip else { return new };
        let is_ipv4 = new[ip] >> 4 == 4;
        if let Some(udp) = self.udp {
            self.finish_udp(&mut new, (ip, is_ipv4), udp);
        }
        if is_ipv4 {
            let head_len = usize::from(new[ip] & 0x0f) * 4;
            let total = (new.len() - ip) as u16;
            new[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
            new[ip + 10..ip + 12].fill(0);
            let sum = checksum(&new[ip..ip + head_len]);
            new[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            let payload = (new.len() - ip - 40) as u16;
            new[ip + 4..ip + 6].copy_from_slice(&payload.to_be_bytes());
        }
        new
    }

    fn finish_udp(&self, new: &mut [u8], (ip, is_ipv4): (usize, bool), udp: usize) {
        let len = (new.len() - udp) as u16;
        new[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
        new[udp + 6..udp + 8].fill(0);
        let addresses = if is_ipv4 { ip + 12..ip + 20 } else { ip + 8..ip + 40 };
        let mut sum = InternetSum::new();
        sum.add(&new[addresses]);
        sum.add(&[0, UDP]);
        sum.add(&len.to_be_bytes());
        sum.add(&new[udp..]);
        // Zero would say that there is none (RFC 768).
        let sum = if sum.checksum() == 0 { 0xffff } else { sum.checksum() };
        new[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
}
