//! Runs that are kept in the repository: what crossed the link, and what was there in
//! the end. `cargo test -p nic-firmware-model --test suite model` shows what differs, and
//! where.

use std::path::PathBuf;

/// Both parts of a run are what is kept under these names. `UPDATE_GOLDEN=1` writes
/// them anew.
pub(crate) fn expect(trace: &str, capture: &[u8], end: &str, lines: &str) {
    let (trace_path, end_path) = (path(trace), path(end));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&trace_path, capture).expect("the folder is there");
        std::fs::write(&end_path, lines).expect("the folder is there");
    }
    let was = std::fs::read(trace_path).expect("UPDATE_GOLDEN=1 writes it");
    let mut found = differences(trace, capture, &was);
    let known = std::fs::read_to_string(end_path).expect("UPDATE_GOLDEN=1 writes it");
    found.extend(lines_that_differ(end, lines, &known));
    tell(&found);
}

/// Two captures must be the same.
pub(crate) fn compare(name: &str, is: &[u8], was: &[u8]) {
    tell(&differences(name, is, was));
}

/// FNV-1a, of 64 bits: it need not withstand anybody.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn tell(found: &[String]) {
    const FIRST: usize = 20;
    assert!(
        found.is_empty(),
        "{} differences; the first of them:\n  {}\nWhere this is meant: UPDATE_GOLDEN=1 writes \
         anew what is kept.",
        found.len(),
        found[..found.len().min(FIRST)].join("\n  ")
    );
}

fn lines_that_differ(name: &str, is: &str, was: &str) -> Vec<String> {
    let (mut is, mut was) = (is.lines(), was.lines());
    let mut found = Vec::new();
    for nth in 1.. {
        match (is.next(), was.next()) {
            (None, None) => break,
            (is, was) if is == was => {}
            (is, was) => {
                let text = |line: Option<&str>| line.unwrap_or("(no such line)").to_owned();
                found.push(format!("{name}, line {nth}: {}\n    was {}", text(is), text(was)));
            }
        }
    }
    found
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

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

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).expect("it is in the repository")
}

const KEPT: [&str; 4] = ["tigon.pcapng", "lanai.pcapng", "hamachi.pcapng", "clan.pcapng"];

/// Of all bits at both ends, and of one bit in each part of what is between.
#[test]
fn no_bit_of_a_capture_changes_without_a_difference() {
    for name in KEPT {
        let was = golden(name);
        assert!(differences(name, &was, &was).is_empty(), "{name} differs from itself");
        let mut is = was.clone();
        let ends = (0..32).chain(was.len() - 32..was.len());
        let all = ends.flat_map(|at| (0..8).map(move |bit| (at, bit)));
        let some = (32..was.len() - 32).step_by(331).map(|at| (at, at % 8));
        for (at, bit) in all.chain(some) {
            is[at] ^= 1 << bit;
            assert!(!differences(name, &is, &was).is_empty(), "{name}, byte {at}");
            is[at] ^= 1 << bit;
        }
        for len in [0, 1, was.len() / 2, was.len() - 1] {
            assert!(!differences(name, &was[..len], &was).is_empty(), "{len} of {name}");
        }
    }
}

/// Where a byte of a packet is changed, the packet, the byte and its meaning are said.
#[test]
fn a_difference_says_which_packet_which_byte_and_what_it_is() {
    let was = golden("lanai.pcapng");
    // Behind the frame of the block: a header of Ethernet, then one of IP.
    let third = blocks(&was)
        .into_iter()
        .filter(|block| block.starts_with(&6u32.to_le_bytes()))
        .nth(2)
        .expect("many packets are kept");
    let start = third.as_ptr() as usize - was.as_ptr() as usize + 28;
    let version = was[start + 14] >> 4;
    let says = |at: usize| {
        let mut is = was.clone();
        is[start + at] ^= 0xff;
        let found = differences("run", &is, &was);
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap_or_default()
    };
    assert!(says(7).starts_with("run, packet 3, byte 7 (Ethernet, source): "), "{}", says(7));
    let (hops, name) =
        if version == 6 { (21, "IPv6, hop limit") } else { (22, "IPv4, time to live") };
    assert!(says(hops).starts_with(&format!("run, packet 3, byte {hops} ({name}): ")));
}
