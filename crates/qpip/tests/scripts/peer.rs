//! The peer in a script: it makes what comes, and looks at what leaves.

use std::net::SocketAddr;

use landfall_placement::{Ecn, Instant};
use qpip::model::seal;
use qpip::wire::tcp_options::AccurateOption;
use qpip::wire::{Content, Envelope, FastOpenCookie, Flags, Options, Tcp, parse, protocol};

use super::text::{FastOpen, Icmp, Packet, Stamp};

pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// The peer's opening: near the wrap of its numbers.
const PEER_FIRST: u32 = 0xffff_f000;
const ETHERNET: usize = 14;
/// The length of a header of TCP without options.
const HEADER: usize = 20;

/// The byte at a position of a stream.
pub fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(7) + position / 251) as u8
}

/// A segment that left.
#[derive(Clone, Debug)]
pub struct Left {
    pub at: Instant,
    pub tcp: Tcp,
    pub payload: Vec<u8>,
    pub ecn: Ecn,
    pub class: u8,
    pub frame: Vec<u8>,
}

/// What the peer knows.
#[derive(Debug)]
pub struct Peer {
    /// The end that is tested, and the peer's.
    pub ends: (SocketAddr, SocketAddr),
    /// The number of the tested end's opening.
    local_first: Option<u32>,
    /// The last timestamp of the tested end.
    stamp: Option<u32>,
    /// The last cookie that the tested end gave out.
    cookie: Option<FastOpenCookie>,
    /// Timestamps are sent where the script says nothing of them.
    stamps: bool,
    /// What left last, as expected.
    last: Option<Left>,
    /// Whether all that was sent is what belongs there.
    pub is_true: bool,
}

impl Peer {
    pub fn new(ends: (SocketAddr, SocketAddr), stamps: bool) -> Self {
        Self {
            ends,
            local_first: None,
            stamp: None,
            cookie: None,
            stamps,
            last: None,
            is_true: true,
        }
    }

    /// A frame left. Whatever is no segment is passed over.
    pub fn note(&mut self, at: Instant, frame: Vec<u8>) -> Option<Left> {
        let packet = parse(&frame, frame.len() as u32).expect("a good frame");
        let Content::Ip(ip) = packet.content else { return None };
        if ip.protocol != protocol::TCP {
            return None;
        }
        let layer = ip.tcp(&frame).expect("a good segment");
        let payload =
            frame[layer.payload_at..layer.payload_at + layer.payload_len as usize].to_vec();
        let tcp = layer.header;
        if tcp.flags.contains(Flags::SYN) {
            self.local_first = Some(tcp.seq);
        }
        if let Some((value, _)) = tcp.options.timestamp {
            self.stamp = Some(value);
        }
        if let Some(cookie) = tcp.options.fast_open.filter(|cookie| !cookie.is_empty()) {
            self.cookie = Some(cookie);
        }
        // Data of an opening is behind that.
        let opening = u32::from(tcp.flags.contains(Flags::SYN));
        let first = self.local_first.unwrap_or(0).wrapping_sub(opening);
        for (n, byte) in payload.iter().enumerate() {
            let position = tcp.seq.wrapping_sub(first).wrapping_add(n as u32);
            // A question whether somebody is there may carry a byte of the past, that is
            // anything.
            let is_past = position == 0;
            assert!(
                is_past || *byte == byte_at(u64::from(position)),
                "position {position} of what left"
            );
        }
        let is_v4 = self.ends.0.is_ipv4();
        let class = if is_v4 { frame[15] } else { frame[14] << 4 | frame[15] >> 4 };
        Some(Left { at, tcp, payload, ecn: ip.ecn, class, frame })
    }

    /// What left is what the script says: what else comes is about it.
    pub fn remember(&mut self, left: &Left) {
        self.last = Some(left.clone());
    }

    /// Is what left as the script wants it? Windows are looked at where `sees_windows`.
    pub fn compare(&self, left: &Left, wanted: &Packet, sees_windows: bool) -> Result<(), String> {
        let tcp = &left.tcp;
        let flags = if wanted.flags.contains(Flags::PSH) {
            tcp.flags
        } else {
            tcp.flags.without(Flags::PSH)
        };
        same("flags", &wanted.flags, &flags)?;
        same("AE", &wanted.has_ae, &tcp.has_ae)?;
        let first = if wanted.is_absolute { 0 } else { self.local_first.unwrap_or(0) };
        let start = tcp.seq.wrapping_sub(first);
        same("start", &wanted.start, &start)?;
        same("end", &wanted.end, &start.wrapping_add(left.payload.len() as u32))?;
        if tcp.flags.contains(Flags::ACK) {
            let ack = wanted.ack.ok_or("the script must say what is acknowledged")?;
            same("ack", &ack, &tcp.ack.wrapping_sub(PEER_FIRST))?;
        }
        if let Some(window) = wanted.window
            && sees_windows
        {
            same("window", &window, &tcp.window)?;
        }
        if let Some(urgent) = wanted.urgent {
            same("urgent", &urgent, &tcp.urgent)?;
        }
        if wanted.mss.is_some() {
            same("mss", &wanted.mss, &tcp.options.mss)?;
        }
        if wanted.scale.is_some() && sees_windows {
            same("scale", &wanted.scale, &tcp.options.window_scale)?;
        }
        if let Some(permitted) = wanted.sack_permitted {
            same("sackok", &permitted, &tcp.options.sack_permitted)?;
        }
        same("sack", &wanted.sack, &blocks(left))?;
        if let Some(wanted) = wanted.fast_open {
            let is = match tcp.options.fast_open {
                None => FastOpen::None,
                Some(FastOpenCookie::REQUEST) => FastOpen::Request,
                Some(cookie) if matches!(wanted, FastOpen::Byte(_)) => FastOpen::Byte(cookie[0]),
                Some(_) => FastOpen::Cookie,
            };
            same("fast open", &wanted, &is)?;
        }
        if let Some(accurate) = wanted.accurate {
            let is = tcp.options.accurate.map(|option| option.counters());
            same("accurate", &accurate, &is)?;
        }
        if let Some(immediate) = wanted.immediate {
            same("immediate", &immediate, &tcp.options.immediate)?;
        }
        match wanted.stamp {
            Stamp::Unsaid => {}
            Stamp::None => same("timestamp", &None, &tcp.options.timestamp)?,
            Stamp::Some => same("timestamp", &true, &tcp.options.timestamp.is_some())?,
            Stamp::Value { value: echo, .. } | Stamp::Echo(echo) => {
                same("echo", &Some(echo), &tcp.options.timestamp.map(|(_, echo)| echo))?;
            }
        }
        self.compare_ip(left, wanted)
    }

    /// What the header of IP says.
    fn compare_ip(&self, left: &Left, wanted: &Packet) -> Result<(), String> {
        if let Some(ecn) = wanted.ecn {
            same("ecn", &ecn, &(left.ecn as u8))?;
        }
        if let Some(has_label) = wanted.label {
            let label = &left.frame[15..18];
            let label = (label[0] & 15, label[1], label[2]) != (0, 0, 0);
            same("label", &has_label, &label)?;
        }
        if let Some(dscp) = wanted.dscp {
            same("dscp", &dscp, &(left.class >> 2))?;
        }
        Ok(())
    }

    pub fn describe(&self, left: &Left) -> String {
        let first = self.local_first.unwrap_or(0);
        let start = left.tcp.seq.wrapping_sub(first);
        format!(
            "at {} {}{} {start}:{} ack {} win {} sack {:?} mss {:?} ts {:?}",
            left.at,
            letters(left.tcp.flags),
            if left.tcp.has_ae { "A" } else { "" },
            start.wrapping_add(left.payload.len() as u32),
            left.tcp.ack.wrapping_sub(PEER_FIRST),
            left.tcp.window,
            blocks(left),
            left.tcp.options.mss,
            left.tcp.options.timestamp,
        ) + &left
            .tcp
            .options
            .accurate
            .map_or(String::new(), |said| format!(" {:?}", said.counters()))
    }

    /// The frame of a segment that comes now.
    pub fn segment(&mut self, now: Instant, packet: &Packet) -> Vec<u8> {
        let clock = (now.as_nanos() / 1_000_000) as u32 + 7_000;
        let timestamp = match packet.stamp {
            Stamp::None => None,
            Stamp::Value { value, back } => {
                Some((value, self.stamp.map_or(0, |stamp| stamp.wrapping_sub(back))))
            }
            Stamp::Unsaid if !self.stamps => None,
            _ => Some((clock, self.stamp.unwrap_or(0))),
        };
        let first = self.local_first.unwrap_or(0);
        let options = Options {
            mss: packet.mss,
            window_scale: packet.scale,
            sack_permitted: packet.sack_permitted.unwrap_or(false),
            timestamp,
            sack: packet
                .sack
                .iter()
                .map(|(a, b)| (first.wrapping_add(*a), first.wrapping_add(*b)))
                .collect(),
            fast_open: match packet.fast_open {
                None | Some(FastOpen::None) => None,
                Some(FastOpen::Request) => Some(FastOpenCookie::REQUEST),
                Some(FastOpen::Cookie) => self.cookie,
                Some(FastOpen::Byte(byte)) => FastOpenCookie::new(&[byte; 8]),
            },
            immediate: packet.immediate.flatten(),
            accurate: packet.accurate.flatten().map(option_of),
        };
        let is_absolute = packet.is_absolute;
        let tcp = Tcp {
            source: self.ends.1.port(),
            destination: self.ends.0.port(),
            seq: if is_absolute { packet.start } else { PEER_FIRST.wrapping_add(packet.start) },
            ack: packet.ack.map_or(0, |ack| first.wrapping_add(ack)),
            flags: packet.flags,
            has_ae: packet.has_ae,
            window: packet.window.unwrap_or(u16::MAX),
            urgent: packet.urgent.unwrap_or(0),
            options: if packet.options.is_empty() { options } else { Options::default() },
        };
        let len = packet.end.wrapping_sub(packet.start);
        // Data of an opening is behind that.
        let from = packet.start.wrapping_add(u32::from(packet.flags.contains(Flags::SYN)));
        let positions = (0..len).map(|n| u64::from(from.wrapping_add(n)));
        let payload: Vec<u8> =
            positions.map(|at| packet.fill.unwrap_or_else(|| byte_at(at))).collect();
        self.is_true &= packet.fill.is_none();
        self.frame(&tcp, packet, &payload)
    }

    fn frame(&self, tcp: &Tcp, packet: &Packet, payload: &[u8]) -> Vec<u8> {
        let (us, peer) = ((MAC, self.ends.0.ip()), (PEER_MAC, self.ends.1.ip()));
        let mut envelope = Envelope::new(peer, us, protocol::TCP);
        envelope.traffic_class = packet.ecn.unwrap_or(0) | packet.dscp.unwrap_or(0) << 2;
        let raw = packet.options.len();
        let header = tcp.header_len() + raw;
        let mut frame = vec![0; envelope.header_len() + header + payload.len()];
        let at = envelope.write(&mut frame, (header + payload.len()) as u32).unwrap();
        tcp.write(&mut frame[at..], 0).unwrap();
        if raw > 0 {
            frame[at + HEADER..at + HEADER + raw].copy_from_slice(&packet.options);
        }
        let words = packet.words.unwrap_or((header / 4) as u8);
        frame[at + 12] = words << 4 | u8::from(packet.has_ae);
        frame[at + header..].copy_from_slice(payload);
        seal(&mut frame);
        if packet.is_damaged {
            frame[at + 16] ^= 0x55;
        }
        frame
    }

    /// The frame of an error about what left last, or about another number.
    pub fn icmp(&self, kind: Icmp, about: Option<u32>) -> Result<Vec<u8>, String> {
        let last = self.last.as_ref().ok_or("nothing has left so far")?;
        let mut quoted = last.frame[ETHERNET..ETHERNET + 28].to_vec();
        if let Some(about) = about {
            let seq = self.local_first.unwrap_or(0).wrapping_add(about);
            quoted[24..28].copy_from_slice(&seq.to_be_bytes());
        }
        let (kind, code, rest) = match kind {
            Icmp::Host => (3, 1, [0; 4]),
            Icmp::Port => (3, 3, [0; 4]),
            Icmp::TooBig(mtu) => (3, 4, [0, 0, (mtu >> 8) as u8, mtu as u8]),
            Icmp::Quench => (4, 0, [0; 4]),
        };
        let (us, router) = ((MAC, self.ends.0.ip()), (PEER_MAC, self.ends.1.ip()));
        let envelope = Envelope::new(router, us, protocol::ICMP4);
        let mut frame = vec![0; envelope.header_len() + 8 + quoted.len()];
        let at = envelope.write(&mut frame, 8 + quoted.len() as u32).unwrap();
        frame[at] = kind;
        frame[at + 1] = code;
        frame[at + 4..at + 8].copy_from_slice(&rest);
        frame[at + 8..].copy_from_slice(&quoted);
        seal(&mut frame);
        Ok(frame)
    }
}

/// The option that says these counters: the first of them.
fn option_of(counters: [Option<u32>; 3]) -> AccurateOption {
    let count = counters.iter().take_while(|counter| counter.is_some()).count();
    AccurateOption::new(counters.map(Option::unwrap_or_default), count as u8, false)
}

/// The selective acknowledgements of a segment that left.
fn blocks(left: &Left) -> Vec<(u32, u32)> {
    let blocks = left.tcp.options.sack.iter();
    blocks.map(|(a, b)| (a.wrapping_sub(PEER_FIRST), b.wrapping_sub(PEER_FIRST))).collect()
}

pub fn same<T: PartialEq + std::fmt::Debug + ?Sized>(
    what: &str,
    wanted: &T,
    is: &T,
) -> Result<(), String> {
    if wanted == is { Ok(()) } else { Err(format!("{what}: {wanted:?} is wanted, is {is:?}")) }
}

fn letters(flags: Flags) -> String {
    let all = [
        (Flags::SYN, 'S'),
        (Flags::FIN, 'F'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::ACK, '.'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
    ];
    all.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, letter)| *letter).collect()
}
