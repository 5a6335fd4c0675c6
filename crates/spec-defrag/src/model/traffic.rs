//! Flows, their packets, and how packets are cut: naively, frame by frame.

use alloc::vec;
use alloc::vec::Vec;

use super::read::{ETHERNET, checksum, word};

/// Who sends to whom, and what. The number says all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(pub u8);

/// How a packet differs from the flow's usual ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Bytes behind the transport header.
    pub len: usize,
    /// The identification; IPv4 takes the lower half.
    pub id: u32,
    /// With options in the IP header, or extension headers: so many times eight bytes.
    pub options: u8,
    /// With more options in the TCP header.
    pub long_transport: bool,
    /// The congestion mark.
    pub ecn: u8,
    /// Every packet has bytes of its own.
    pub content: u64,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// For experiments (RFC 3692): nobody knows how long its header is.
const EXPERIMENT: u8 = 253;

impl Flow {
    /// Is it of IPv4?
    #[must_use]
    pub const fn is_v4(self) -> bool {
        self.0 & 1 == 0
    }

    /// What follows the IP headers.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self.0 >> 1 & 7 {
            0..=2 => UDP,
            3..=5 => TCP,
            6 if self.is_v4() => ICMP,
            6 => ICMP6,
            _ => EXPERIMENT,
        }
    }

    /// How many bytes are usual behind the transport header.
    #[must_use]
    pub const fn page(self) -> usize {
        match self.0 >> 4 & 7 {
            0..=4 => 4096,
            5 | 6 => 8192,
            _ => 16_384,
        }
    }

    /// A packet in one piece: the frame that would come over a wire with room.
    #[must_use]
    pub fn packet(self, shape: &Shape) -> Vec<u8> {
        let transport = self.transport(shape);
        let options = self.options(shape);
        let most = 65_535 - options - if self.is_v4() { 20 } else { 0 };
        let mut payload = transport;
        let header = payload.len();
        payload.reserve(shape.len.next_multiple_of(8));
        for nth in 0..shape.len.div_ceil(8) {
            payload.extend_from_slice(&content(shape.content, nth as u64).to_le_bytes());
        }
        payload.truncate(most.min(header + shape.len));
        let mut frame = self.link_header();
        if self.is_v4() {
            self.ip_v4(shape, payload.len(), &mut frame);
        } else {
            self.ip_v6(shape, payload.len(), &mut frame);
        }
        frame.extend_from_slice(&payload);
        frame
    }

    /// An acknowledgement on its way back on the same flow, or what is like it.
    #[must_use]
    pub fn small(self, content: u64) -> Vec<u8> {
        let shape = Shape { len: content as usize % 7, content, ..Shape::default() };
        let mut frame = self.packet(&shape);
        // Ethernet has no shorter ones.
        frame.resize(frame.len().max(60), 0);
        frame
    }

    /// How many bytes of options there are: IPv4 has room for 40.
    fn options(self, shape: &Shape) -> usize {
        let most = if self.is_v4() { 5 } else { 12 };
        usize::from(shape.options.min(most)) * 8
    }

    fn link_header(self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, self.0];
        let ethertype: u16 = if self.is_v4() { 0x0800 } else { 0x86dd };
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame
    }

    /// The header of the transport; its checksum is anything, nobody here looks.
    fn transport(self, shape: &Shape) -> Vec<u8> {
        let mut header = vec![self.0; 8];
        match self.protocol() {
            UDP => header[4..6].copy_from_slice(&((shape.len + 8) as u16).to_be_bytes()),
            TCP => {
                let words = if shape.long_transport { 15 } else { 8 };
                header.resize(words * 4, 1);
                header[12] = (words as u8) << 4;
            }
            ICMP | ICMP6 => header[0] = 128,
            _ => {}
        }
        header
    }

    fn ip_v4(self, shape: &Shape, payload: usize, frame: &mut Vec<u8>) {
        let options = self.options(shape);
        let total = 20 + options + payload;
        let [_, _, high, low] = shape.id.to_be_bytes();
        let mut header = vec![0x40 | ((20 + options) / 4) as u8, shape.ecn & 3];
        header.extend_from_slice(&(total as u16).to_be_bytes());
        header.extend_from_slice(&[high, low, 0, 0, 64, self.protocol(), 0, 0]);
        header.extend_from_slice(&[10, 0, 0, self.0, 10, 0, 1, 1]);
        for nth in 0..options / 8 {
            // In turn, an option that every piece has, and one that only the first
            // has: both for experiments (RFC 4727).
            let kind = if nth % 2 == 0 { 0x80 | 30 } else { 30 };
            header.extend_from_slice(&[kind, 8, 0, 0, 0, 0, 0, 0]);
        }
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend_from_slice(&header);
    }

    fn ip_v6(self, shape: &Shape, payload: usize, frame: &mut Vec<u8>) {
        let options = self.options(shape);
        let mut header = vec![0x60, (shape.ecn & 3) << 4, 0, 0];
        header.extend_from_slice(&((options + payload) as u16).to_be_bytes());
        header.extend_from_slice(&[if options > 0 { 0 } else { self.protocol() }, 64]);
        for host in [self.0, 0xff] {
            header.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        if options > 0 {
            // Hop-by-hop options that pad.
            let (words, padding) = (options / 8, options - 4);
            let words = words as u8 - 1;
            header.extend_from_slice(&[self.protocol(), words, 1, padding as u8]);
            header.resize(header.len() + padding, 0);
        }
        frame.extend_from_slice(&header);
    }
}

/// Eight bytes of a packet: no two packets, and no two places of one, have the same.
const fn content(packet: u64, place: u64) -> u64 {
    let mixed = (packet << 32 | place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Cuts a whole packet into frames for this MTU; `id` names it in IPv6. What
/// cannot be cut stays whole.
#[must_use]
pub fn cut(packet: &[u8], mtu: usize, id: u32) -> Vec<Vec<u8>> {
    if packet.len() <= ETHERNET + mtu {
        return vec![packet.to_vec()];
    }
    let pieces = match word(packet, 12) {
        Some(0x0800) => cut_v4(packet, mtu),
        Some(0x86dd) => cut_v6(packet, mtu, id),
        _ => None,
    };
    pieces.unwrap_or_else(|| vec![packet.to_vec()])
}

/// So many of the bytes that are left go into the next piece: all, if they fit, else a
/// multiple of eight.
fn room(mtu: usize, header: usize, left: usize) -> Option<usize> {
    let room = mtu.checked_sub(header)?;
    let taken = if left <= room { left } else { room & !7 };
    Some(taken).filter(|taken| *taken > 0)
}

fn cut_v4(packet: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let header = usize::from(packet[ETHERNET] & 15) * 4;
    let first = &packet[..ETHERNET + header];
    let mut later = first[..ETHERNET + 20].to_vec();
    for option in first[ETHERNET + 20..].chunks(8).filter(|option| option[0] & 0x80 != 0) {
        later.extend_from_slice(option);
    }
    later[ETHERNET] = 0x40 | ((later.len() - ETHERNET) / 4) as u8;
    let payload = &packet[ETHERNET + header..];
    let mut pieces = Vec::new();
    let mut offset = 0;
    while offset < payload.len() {
        let head = if offset == 0 { first } else { &later };
        let end = offset + room(mtu, head.len() - ETHERNET, payload.len() - offset)?;
        let mut frame = [head, &payload[offset..end]].concat();
        let flags = (offset / 8) as u16 | if end < payload.len() { 0x2000 } else { 0 };
        let total = (frame.len() - ETHERNET) as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[20..22].copy_from_slice(&flags.to_be_bytes());
        seal(&mut frame);
        pieces.push(frame);
        offset = end;
    }
    Some(pieces)
}

fn cut_v6(packet: &[u8], mtu: usize, id: u32) -> Option<Vec<Vec<u8>>> {
    let (mut says, mut at) = (ETHERNET + 6, ETHERNET + 40);
    if packet[says] == 0 {
        let len = (usize::from(packet[at + 1]) + 1) * 8;
        (says, at) = (at, at + len);
    }
    let mut head = packet[..at].to_vec();
    let next = core::mem::replace(&mut head[says], 44);
    let payload = &packet[at..];
    let mut pieces = Vec::new();
    let mut offset = 0;
    while offset < payload.len() {
        let end = offset + room(mtu, at - ETHERNET + 8, payload.len() - offset)?;
        let (bytes, more) = (&payload[offset..end], end < payload.len());
        let mut frame = head.clone();
        frame.extend_from_slice(&[next, 0]);
        frame.extend_from_slice(&(offset as u16 | u16::from(more)).to_be_bytes());
        frame.extend_from_slice(&id.to_be_bytes());
        frame.extend_from_slice(bytes);
        let len = (frame.len() - ETHERNET - 40) as u16;
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        pieces.push(frame);
        offset = end;
    }
    Some(pieces)
}

/// Makes the checksum of an IPv4 header right, where the frame is long enough to
/// have one: for tests that change frames and want them heard.
pub fn seal(frame: &mut [u8]) {
    if word(frame, 12) != Some(0x0800) || frame.len() < 34 {
        return;
    }
    let end = ETHERNET + usize::from(frame[ETHERNET] & 15) * 4;
    if (34..=frame.len()).contains(&end) {
        frame[24..26].fill(0);
        let sum = checksum(&frame[ETHERNET..end]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::naive::Naive;
    use super::*;
    use landfall_placement::{Duration, Instant};

    #[test]
    fn what_was_cut_comes_out_as_it_was() {
        for flow in (0..128).map(Flow) {
            for (mtu, len, options, ecn) in
                [(1500, flow.page(), 0, 0), (576, 3000, 2, 1), (1280, 5001, 3, 3), (150, 777, 1, 2)]
            {
                let shape = Shape { len, id: 7, options, ecn, content: 5, ..Shape::default() };
                let packet = flow.packet(&shape);
                let pieces = cut(&packet, mtu, 7);
                assert!(pieces.len() > 1 && pieces.iter().all(|p| p.len() <= ETHERNET + mtu));
                for turned in [0, 1, pieces.len() / 2] {
                    let mut naive = Naive::new(Duration::from_secs(30));
                    let mut order = pieces.clone();
                    order.rotate_left(turned);
                    let came: Vec<_> =
                        order.iter().filter_map(|f| naive.receive(Instant::ZERO, f)).collect();
                    assert_eq!(came, core::slice::from_ref(&packet), "{flow:?}, {mtu}");
                    assert!(naive.is_empty());
                }
            }
        }
    }
}
