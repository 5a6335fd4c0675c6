//! Captures (pcapng), compared: which packet differs, in which byte, and what that is.

/// An Enhanced Packet Block (draft-ietf-opsawg-pcapng, 4.3), and where its packet begins.
const PACKET: u32 = 6;
const PACKET_AT: usize = 28;

/// What differs, packet by packet: at most the first byte of each.
pub(crate) fn differences(name: &str, is: &[u8], was: &[u8]) -> Vec<String> {
    let (is, was) = (blocks(is), blocks(was));
    let mut found = Vec::new();
    let mut packet = 0;
    for (nth, (is, was)) in is.iter().zip(&was).enumerate() {
        packet += u32::from(kind(was) == Some(PACKET));
        let at = is.iter().zip(*was).position(|(is, was)| is != was);
        let at = at.or_else(|| (is.len() != was.len()).then(|| is.len().min(was.len())));
        let Some(at) = at else { continue };
        let byte =
            |block: &[u8]| block.get(at).map_or("nothing".into(), |byte| format!("{byte:02x}"));
        let place = place(was, nth, packet, at);
        found.push(format!("{name}, {place}: {}, was {}", byte(is), byte(was)));
    }
    let packets = |blocks: &[&[u8]]| blocks.iter().filter(|b| kind(b) == Some(PACKET)).count();
    if is.len() != was.len() {
        found.push(format!("{name}: {} packets, were {}", packets(&is), packets(&was)));
    }
    found
}

/// The blocks of a capture: each begins with its type and its length.
pub(crate) fn blocks(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut blocks = Vec::new();
    while let Some(len) = word(bytes, 4) {
        let len = (len as usize).clamp(8, bytes.len().max(8)).min(bytes.len());
        let (block, rest) = bytes.split_at(len);
        blocks.push(block);
        bytes = rest;
    }
    if !bytes.is_empty() {
        blocks.push(bytes);
    }
    blocks
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

fn kind(block: &[u8]) -> Option<u32> {
    word(block, 0)
}

fn place(block: &[u8], nth: usize, packet: u32, at: usize) -> String {
    if kind(block) != Some(PACKET) {
        return format!("block {nth} (no packet), byte {at}");
    }
    let len = word(block, 20).unwrap_or(0) as usize;
    match at.checked_sub(PACKET_AT) {
        Some(at) if at < len => {
            let bytes = block.get(PACKET_AT..).unwrap_or(&[]);
            format!("packet {packet}, byte {at} ({})", field(bytes, at))
        }
        Some(_) => format!("packet {packet}, behind its {len} bytes"),
        None => format!("packet {packet}, {}", about(at)),
    }
}

/// What stands before a packet in its block.
const fn about(at: usize) -> &'static str {
    match at {
        0..8 => "the frame of its block",
        8..12 => "the link that it crossed",
        12..20 => "when it crossed the link",
        _ => "its length",
    }
}

/// Part of a header: from where on, and its name.
type Fields = &'static [(usize, &'static str)];

const ETHERNET: Fields = &[(0, "destination"), (6, "source"), (12, "type")];
const IPV4: Fields = &[
    (0, "version and header length"),
    (1, "traffic class"),
    (2, "total length"),
    (4, "identification"),
    (6, "flags and offset of the fragment"),
    (8, "time to live"),
    (9, "protocol"),
    (10, "checksum"),
    (12, "source"),
    (16, "destination"),
    (20, "options"),
];
const IPV6: Fields = &[
    (0, "version, traffic class and flow"),
    (4, "payload length"),
    (6, "next header"),
    (7, "hop limit"),
    (8, "source"),
    (24, "destination"),
];
const TCP: Fields = &[
    (0, "source port"),
    (2, "destination port"),
    (4, "sequence number"),
    (8, "acknowledgement"),
    (12, "data offset and flags"),
    (14, "window"),
    (16, "checksum"),
    (18, "urgent pointer"),
    (20, "options"),
];
const UDP: Fields = &[(0, "source port"), (2, "destination port"), (4, "length"), (6, "checksum")];
/// docs/spec/stp.md, the Schedule Header.
const STP: Fields = &[
    (0, "Op"),
    (1, "Flags"),
    (2, "Param"),
    (4, "D_Port"),
    (6, "S_Port"),
    (8, "D_Key"),
    (12, "Cksum"),
    (14, "Sync"),
    (16, "B_num"),
    (20, "Bufx"),
    (24, "Offset"),
    (28, "T_len"),
    (36, "D_id"),
    (38, "S_id"),
];

/// The name of the byte at a place of a packet: an Ethernet frame, or a packet of IP.
fn field(packet: &[u8], at: usize) -> String {
    let ip = match packet.get(12..14) {
        Some([0x08, 0x00] | [0x86, 0xdd]) => 14,
        _ if matches!(packet.first().map(|byte| byte >> 4), Some(4 | 6)) => 0,
        _ => return in_header("Ethernet", ETHERNET, 14, 0, at).unwrap_or("payload".into()),
    };
    let version = packet.get(ip).map_or(0, |byte| byte >> 4);
    let nibble = packet.get(ip).map_or(0, |byte| usize::from(byte & 15) * 4);
    let (name, fields, len, next) = match version {
        6 => ("IPv6", IPV6, 40, packet.get(ip + 6)),
        _ => ("IPv4", IPV4, nibble.max(20), packet.get(ip + 9)),
    };
    let transport = ip + len;
    let later = |at: usize| match next {
        Some(6) => {
            let len = packet.get(transport + 12).map_or(20, |byte| usize::from(byte >> 4) * 4);
            in_header("TCP", TCP, len.max(20), transport, at)
        }
        Some(17) => in_header("UDP", UDP, 8, transport, at).or_else(|| {
            let is_stp = packet.get(transport + 2..transport + 4) == Some(&8181u16.to_be_bytes());
            in_header("STP", STP, 40, transport + 8, at).filter(|_| is_stp)
        }),
        _ => None,
    };
    in_header("Ethernet", ETHERNET, ip, 0, at)
        .or_else(|| in_header(name, fields, len, ip, at))
        .or_else(|| later(at))
        .unwrap_or("payload".into())
}

fn in_header(name: &str, fields: Fields, len: usize, begin: usize, at: usize) -> Option<String> {
    let at = at.checked_sub(begin).filter(|at| *at < len)?;
    let (_, field) = fields.iter().rev().find(|(first, _)| *first <= at)?;
    Some(format!("{name}, {field}"))
}
