//! Flows, their packets, and how packets are cut: naively, frame by frame; the wire between senders
//! and receiver: operations become frames under way, and these become steps of the receiver.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use landfall_placement::Duration;

use super::forge;
use super::naive::{ETHERNET, checksum, word};
use super::operations::{Operation, Operations, Sending};

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
    /// With options in the IP header, or extension headers: this many times eight bytes.
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

/// This many of the bytes that are left go into the next piece: all, if they fit, else a
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

/// One thing that happens to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These frames come in one burst.
    Receive {
        /// In their order.
        frames: Vec<Vec<u8>>,
        /// They lie in memory already, and nothing was posted for them.
        lies: bool,
    },
    /// So much time passes; `None`: up to the next timeout.
    Wait(Option<Duration>),
    /// The user is done with this many of the packets that it holds.
    Release {
        /// How many.
        count: usize,
        /// The newest first, or the oldest.
        newest_first: bool,
    },
}

/// The frames that came last, to be sent again.
const REMEMBERED: usize = 64;
/// More frames are never under way.
const UNDER_WAY: usize = 4_000;
/// Once this many bytes were sent, a run brings few packets and short ones: many short runs
/// find more than few long ones. It is more than a small receiver has room for.
const LONG_RUN: usize = 100_000;
/// This many packets then are sent at once.
const FEW: u8 = 2;
/// The flows that there are: few, so that they meet.
const FLOWS: u8 = 0x77;
const MTUS: [usize; 8] = [1500, 1500, 1500, 1500, 1500, 576, 1280, 9000];

/// The steps that some bytes stand for.
#[derive(Clone, Debug)]
pub struct Steps<'a> {
    operations: Operations<'a>,
    wire: VecDeque<Vec<u8>>,
    past: VecDeque<Vec<u8>>,
    /// Counts packets, so that each has its own bytes.
    packets: u64,
    /// How many bytes came onto the wire.
    bytes_sent: usize,
}

impl<'a> Steps<'a> {
    /// The steps that these bytes stand for.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        let operations = Operations::new(bytes);
        Self { operations, wire: VecDeque::new(), past: VecDeque::new(), packets: 0, bytes_sent: 0 }
    }

    fn content(&mut self) -> u64 {
        self.packets += 1;
        self.packets
    }

    fn pick(&self, which: u8) -> Option<usize> {
        (!self.wire.is_empty()).then(|| usize::from(which) % self.wire.len())
    }

    fn send(&mut self, sending: Sending) {
        let Sending { flow, count, shape: look, fine, mtu, pattern } = sending;
        let flow = Flow(flow & FLOWS);
        let mut pieces = Vec::new();
        for nth in 0..count {
            let is_long = self.bytes_sent > LONG_RUN;
            if is_long && nth >= FEW {
                break;
            }
            let content = self.content();
            let len = match look >> 5 {
                _ if is_long => usize::from(fine) * 8,
                0..=4 => flow.page(),
                5 => usize::from(fine) * 16,
                6 => usize::from(fine) * 256 + usize::from(look & 31),
                _ => usize::from(fine),
            };
            let is_special = look & 0x18 == 0x18;
            let shape = Shape {
                len,
                // Names come again soon where that is wanted.
                id: if look & 7 == 7 { 3 } else { content as u32 },
                options: if is_special { fine & 15 } else { 0 },
                long_transport: is_special && fine & 16 != 0,
                ecn: if is_special { fine >> 6 } else { 2 },
                content,
            };
            let packet = flow.packet(&shape);
            self.bytes_sent += packet.len();
            pieces.extend(cut(&packet, MTUS[usize::from(mtu)], shape.id));
        }
        self.put(pieces, pattern);
    }

    /// Pieces come onto the wire, in one of several orders.
    fn put(&mut self, mut pieces: Vec<Vec<u8>>, pattern: u8) {
        match pattern {
            5 => pieces.reverse(),
            6 if !pieces.is_empty() => pieces.rotate_left(1),
            _ => {}
        }
        if pattern != 4 && pattern != 7 {
            self.wire.extend(pieces);
            return;
        }
        // One by one between those that are under way, from the front or the back.
        let behind = self.wire.len().saturating_sub(pieces.len());
        let start = if pattern == 4 { 0 } else { behind };
        for (nth, piece) in pieces.into_iter().enumerate() {
            let at = (start + nth * 2 + 1).min(self.wire.len());
            self.wire.insert(at, piece);
        }
    }

    fn change(&mut self, which: u8, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(at) = self.pick(which) {
            change(&mut self.wire[at]);
        }
    }

    /// A changed copy of a frame comes before or behind it.
    fn twin(&mut self, which: u8, before: bool, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(at) = self.pick(which) {
            let mut twin = self.wire[at].clone();
            change(&mut twin);
            self.wire.insert(at + usize::from(!before), twin);
        }
    }

    /// What lies over the piece: it, shifted by some units or shortened.
    fn overlap(&mut self, which: u8, shift: u8, before: bool) {
        self.twin(which, before, |frame| {
            let (units, more) = forge::offset(frame).unwrap_or_default();
            forge::invert_bytes(frame);
            match shift >> 5 {
                // Exactly over it: a repetition with other bytes.
                0 => {}
                1 => forge::shorten(frame, usize::from(shift & 31)),
                2 => forge::set_offset(frame, units.saturating_add(shift.into()), more),
                _ => forge::set_offset(frame, units.saturating_sub(shift.into()), more),
            }
        });
    }

    /// What happens to frames that are under way.
    fn tamper(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Flip { which, bit } => self.change(which, |frame| {
                // In a header, mostly.
                let bits = if bit & 0x8000 == 0 { 62 * 8 } else { frame.len() * 8 };
                let bit = usize::from(bit & 0x7fff) % bits.max(1);
                if let Some(byte) = frame.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }),
            Operation::Change { which, at, value } => self.change(which, |frame| {
                if let Some(byte) = frame.get_mut(usize::from(at) % 70) {
                    *byte = value;
                    seal(frame);
                }
            }),
            Operation::Resize { which, len } => self.change(which, |frame| {
                let padded = frame.len() + usize::from(len & 31);
                frame.resize(if len & 0x80 == 0 { len.into() } else { padded }, 0);
            }),
            Operation::Overlap { which, shift, before } => self.overlap(which, shift, before),
            Operation::Spoof { which, place } => self.twin(which, place & 1 != 0, |frame| {
                forge::invert_bytes(frame);
                forge::shorten(frame, usize::from(place & 15) + 1);
                forge::set_offset(frame, u16::from(place) * 3, place & 2 != 0);
            }),
            Operation::Mark { which, ecn } => self.change(which, |frame| forge::mark(frame, ecn)),
            _ => {}
        }
    }

    /// What comes onto the wire, goes from it, or changes its place there.
    fn carry(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Send(sending) => self.send(sending),
            Operation::Lose { which } => {
                let lost = self.pick(which);
                lost.and_then(|at| self.wire.remove(at));
            }
            Operation::Double { which, later } => {
                if let Some(at) = self.pick(which) {
                    let twin = self.wire[at].clone();
                    let place = (at + usize::from(later) + 1).min(self.wire.len());
                    self.wire.insert(place, twin);
                }
            }
            Operation::Swap { which, other } => {
                if let (Some(a), Some(b)) = (self.pick(which), self.pick(other)) {
                    self.wire.swap(a, b);
                }
            }
            Operation::Replay { which } => {
                let nth = usize::from(which) % self.past.len().max(1);
                self.wire.extend(self.past.get(nth).cloned());
            }
            Operation::Foreign { kind, place } => {
                let frame = forge::foreign(kind, self.packets);
                let at = usize::from(place) % (self.wire.len() + 1);
                self.wire.insert(at, frame);
            }
            Operation::Attack { kind, flow } => {
                let content = self.content();
                let pieces = forge::attack(kind, flow & FLOWS, content);
                self.put(pieces, kind >> 5);
            }
            Operation::Inject { flow, bytes } => self.wire.push_back(forge::injected(flow, bytes)),
            operation => self.tamper(operation),
        }
        // The newest do not fit on the wire.
        self.wire.truncate(UNDER_WAY);
    }

    fn receive(&mut self, count: usize, lies: bool) -> Step {
        let frames: Vec<_> = self.wire.drain(..count.min(self.wire.len())).collect();
        for frame in &frames {
            if self.past.len() == REMEMBERED {
                self.past.pop_front();
            }
            self.past.push_back(frame.clone());
        }
        Step::Receive { frames, lies }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            let Some(operation) = self.operations.next() else {
                // What is under way arrives.
                return (!self.wire.is_empty()).then(|| self.receive(48, false));
            };
            match operation {
                Operation::Receive { count, lies } => {
                    return Some(self.receive(count.into(), lies));
                }
                Operation::Settle => return Some(self.receive(self.wire.len(), false)),
                Operation::Wait { quarters } => {
                    let some = |quarters| Duration::from_millis(250 * u64::from(quarters));
                    return Some(Step::Wait(quarters.map(some)));
                }
                Operation::Release { count, newest_first } => {
                    return Some(Step::Release { count: count.into(), newest_first });
                }
                operation => self.carry(operation),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::naive::Naive;
    use super::*;
    use landfall_placement::{Duration, Instant};
    use landfall_testkit::trials::noise;

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

    #[test]
    fn any_bytes_are_steps_and_always_the_same() {
        for seed in 0..50 {
            let bytes = noise(seed, 400);
            let steps: Vec<Step> = Steps::new(&bytes).collect();
            assert!(Steps::new(&bytes).eq(steps.iter().cloned()));
            assert!(steps.len() <= bytes.len() + UNDER_WAY / 48 + 1);
        }
        assert_eq!(Steps::new(&[]).count(), 0);
    }
}
