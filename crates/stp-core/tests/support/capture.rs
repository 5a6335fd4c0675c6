//! Captures, and what tshark with `docs/wireshark/stp.lua` says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use landfall_placement::Instant;
use landfall_placement::checksum::checksum;
use landfall_simnet::{Encapsulation, Frame, LinkConfig, Outbox, PortId, Sim};
use stp_core::wire::carrier::{ETHERTYPE, IP_PROTOCOL, UDP_PORT};

/// What carries a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Ethernet,
    Ipv4,
    Ipv6,
    Udp { port: u16 },
}

impl Carrier {
    pub const ALL: [Self; 4] =
        [Self::Ethernet, Self::Ipv4, Self::Ipv6, Self::Udp { port: UDP_PORT }];

    /// The Ethernet frame around a packet, filled up as Ethernet does.
    pub fn frame(self, packet: &[u8]) -> Vec<u8> {
        const SHORTEST: usize = 60;
        let (ethertype, inside) = match self {
            Self::Ethernet => (ETHERTYPE, packet.to_vec()),
            Self::Ipv4 => (0x0800, ipv4(IP_PROTOCOL, packet)),
            Self::Ipv6 => (0x86dd, ipv6(IP_PROTOCOL, packet)),
            Self::Udp { port } => (0x0800, ipv4(17, &udp(port, packet))),
        };
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        frame.extend(ethertype.to_be_bytes());
        frame.extend(inside);
        frame.resize(frame.len().max(SHORTEST), 0);
        frame
    }
}

fn ipv4(protocol: u8, packet: &[u8]) -> Vec<u8> {
    let len = 20 + packet.len() as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = checksum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    [&bytes[..], packet].concat()
}

fn ipv6(next_header: u8, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((packet.len() as u16).to_be_bytes());
    bytes.extend([next_header, 64]);
    for last in [1, 2] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    [&bytes[..], packet].concat()
}

fn udp(port: u16, packet: &[u8]) -> Vec<u8> {
    let fields = [port, port, 8 + packet.len() as u16, 0];
    [&fields.map(u16::to_be_bytes).concat(), packet].concat()
}

/// A file that is gone when the test is over, also when it fails.
#[derive(Debug)]
pub struct CaptureFile(PathBuf);

impl CaptureFile {
    pub fn new(pcapng: &[u8], name: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the name of a file, nothing of the run")]
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("landfall-stp-{process}-{name}.pcapng"));
        std::fs::write(&path, pcapng).expect("there is room for a capture");
        Self(path)
    }

    /// A capture of these Ethernet frames, in this order.
    pub fn of_frames(frames: &[Vec<u8>], name: &str) -> Self {
        let silent = |_: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>| {};
        let mut sim = Sim::from_number(1);
        let (a, b) = (sim.add("a", silent).unwrap(), sim.add("b", silent).unwrap());
        let config = LinkConfig::new().mtu(1 << 16);
        let link = sim.connect(a, b, config).unwrap();
        sim.tap(link.there(), Encapsulation::Ethernet).unwrap();
        for frame in frames {
            sim.send(a.id(), PortId(0), Frame::raw(frame.clone())).unwrap();
            sim.run_until(Instant::FAR_FUTURE).unwrap();
        }
        Self::new(sim.captured(), name)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for CaptureFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What is wrong with a packet, in the dissector's eyes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    Truncated,
    Unsupported,
    Malformed,
    BadChecksum,
    /// The dissector itself failed, or read beyond the packet.
    Dissector,
}

/// What the dissector says of one packet.
#[derive(Debug)]
pub struct Dissected {
    pub number: u32,
    /// The number of the operation, where the packet was taken for one of ours.
    pub op: Option<u8>,
    /// "Bad", "Good", "Unverified" and "Absent" by their numbers.
    pub checksum: Option<u8>,
    pub info: String,
    pub faults: BTreeSet<Fault>,
}

const FIELDS: [(&str, Fault); 6] = [
    ("st.expert.truncated", Fault::Truncated),
    ("st.expert.unsupported", Fault::Unsupported),
    ("st.expert.malformed", Fault::Malformed),
    ("st.expert.checksum", Fault::BadChecksum),
    ("_ws.malformed", Fault::Dissector),
    ("_ws.lua.error", Fault::Dissector),
];

/// What tshark says of each packet that `filter` lets through; `None`, and a
/// line that says so, where there is no tshark.
pub fn dissect(capture: &Path, filter: &str, options: &[&str]) -> Option<Vec<Dissected>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wireshark/stp.lua");
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture);
    command.arg("-X").arg(format!("lua_script:{}", script.display()));
    command.args(["-T", "fields", "-E", "separator=/t", "-Y", filter]);
    for option in options {
        command.args(["-o", option]);
    }
    for field in ["frame.number", "st.op", "st.cksum.status", "_ws.col.Info"] {
        command.args(["-e", field]);
    }
    for (field, _) in FIELDS {
        command.args(["-e", field]);
    }
    let text = landfall_testkit::tshark::run(&mut command)?;
    Some(text.lines().map(parse).collect())
}

fn parse(line: &str) -> Dissected {
    let cells: Vec<_> = line.split('\t').collect();
    let number = |cell: &str| cell.split(',').next().and_then(|number| number.parse().ok());
    let faults = FIELDS.iter().zip(&cells[4..]).filter(|(_, cell)| !cell.is_empty());
    Dissected {
        number: cells[0].parse().expect("frames have numbers"),
        op: number(cells[1]),
        checksum: number(cells[2]),
        info: cells[3].to_owned(),
        faults: faults.map(|((_, fault), _)| *fault).collect(),
    }
}

/// Checks the capture of a run: every packet on one of the carriers of STP (of
/// UDP: on any port) must be dissected, and none be malformed. What else there
/// is, like ARP, does not matter. Where super-packets were captured that the
/// device would have segmented, that is not so: switch segmentation off.
///
/// Returns how often each operation was seen, by its number; `None`, and a
/// line that says so, where there is no tshark.
///
/// # Panics
/// Where a packet was not dissected, or is malformed, or there is none.
pub fn check_capture(path: &Path) -> Option<BTreeMap<u8, usize>> {
    let filter = format!(
        "eth.type == {ETHERTYPE} || ip.proto == {IP_PROTOCOL} || ipv6.nxt == {IP_PROTOCOL} || udp"
    );
    let packets = dissect(path, &filter, &[])?;
    assert!(!packets.is_empty(), "{}: no packet of STP in it", path.display());
    let mut seen = BTreeMap::new();
    for packet in &packets {
        let op = packet.op.unwrap_or_else(|| panic!("not dissected: {packet:?}"));
        assert!(packet.faults.is_empty(), "{packet:?}");
        *seen.entry(op).or_default() += 1;
    }
    Some(seen)
}
