//! `landfall decrypt` as people use it: nobody reads a capture of an encrypted connection, and
//! with a key log tshark shows all of it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use landfall::clan::network::{HostId, Node, Transport as ClanTransport};
use landfall::clan::{Fabric, Remote, Rights, Stage};
use landfall::stp::blocking::Endpoint;
use landfall::stp::{Builder, Memory, Peer, Transport};
use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_testkit::TemporaryFolder;
use landfall_testkit::tshark::{self, CaptureFile};
use landfall_transport::memory::Regions;
use landfall_transport::packet::Filter;
use landfall_transport::ring::{Ring, RingConfig};
use serde_json::Value;

use crate::common::landfall;

/// Of STP on UDP.
const UDP_PORT: u16 = 8181;
const PORT: u16 = 7;
/// No other text on the wire has it.
const TEXT: &[u8] = b"nobody on the way reads this text. ";
/// What everything that is opened shows of it, as tshark's filters say it.
const SHOWS_TEXT: &str = "frame contains \"nobody on the way\"";
const PATIENCE: Duration = Duration::from_secs(60);

fn text() -> Vec<u8> {
    TEXT.iter().copied().cycle().take(60_000).collect()
}

/// One end: its paths, the addresses of those, and where its keys are written down.
fn builder(paths: Vec<Transport>, keys: &Path) -> Builder {
    let builder = landfall::stp::Endpoint::builder().preshared_key([7; 32]).key_log(keys);
    paths.into_iter().fold(builder, Builder::path)
}

/// What two ends say to each other on these cables, as somebody hears it at both ends of each.
fn overhear(
    cables: &[VethPair],
    keys: &Path,
    transport: fn(&VethEnd) -> Transport,
    peer: fn(&VethEnd) -> Peer,
) -> Vec<Vec<u8>> {
    let regions = Regions::new(16);
    let ends = cables.iter().flat_map(|cable| [&cable.a, &cable.b]);
    let ring = |end: &VethEnd| {
        let config = RingConfig::new(&*end.name, Filter::ethertypes([0x0800, 0x8181]));
        end.namespace.enter(|| Ring::open(&config, &regions)).unwrap().unwrap()
    };
    let mut rings: Vec<Ring> = ends.map(ring).collect();
    let bind = |side: fn(&VethPair) -> &VethEnd| {
        let paths = || cables.iter().map(|cable| transport(side(cable))).collect();
        let namespace = &side(&cables[0]).namespace;
        Endpoint::from(namespace.enter(|| builder(paths(), keys).bind()).unwrap().unwrap())
    };
    let (a, b) = (bind(|cable| &cable.a), bind(|cable| &cable.b));
    let listener = b.listen(PORT).unwrap();
    let here = a.connect(peer(&cables[0].b), PORT).unwrap();
    let there = listener.accept().unwrap();
    for (path, cable) in (0..).zip(cables).skip(1) {
        here.add_link(landfall::stp::PathId(path), peer(&cable.b)).unwrap();
    }
    for (from, to) in [(&here, &there), (&there, &here)] {
        let sending = from.send(text()).start();
        let received = to.receive(Memory::zeroed(60_000)).wait_for(PATIENCE).unwrap().unwrap();
        assert!(*received == text());
        sending.wait_for(PATIENCE).unwrap().unwrap();
    }
    here.close().unwrap();
    heard(&mut rings)
}

/// All frames that came to either end of a cable.
fn heard(rings: &mut [Ring]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    // Blocks that are not full are handed over after a while.
    for _ in 0..10 {
        for ring in rings.iter_mut() {
            while let Some(block) = ring.next_block() {
                frames.extend(block.frames().map(|frame| frame.bytes.to_vec()));
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    frames
}

/// How many packets of a capture pass a filter, as tshark sees it with the dissector of STP.
fn count(capture: &Path, filter: &str) -> Option<usize> {
    count_with("stp", capture, filter)
}

fn count_with(dissector: &str, capture: &Path, filter: &str) -> Option<usize> {
    let script = tshark::script(dissector);
    Some(tshark::fields(capture, &["frame.number"], &["-X", &script, "-Y", filter])?.len())
}

/// Opens a capture, and says what became of it.
fn decrypt(capture: &Path, keys: &Path, opened: &Path) -> Value {
    let [capture, keys, opened] = [capture, keys, opened].map(|path| path.to_str().unwrap());
    let output = landfall(&["decrypt", capture, "--keys", keys, "--out", opened, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

/// A capture shows nothing; opened it shows the operations and the payload.
fn check((name, cables): (&str, u64), frames: &[Vec<u8>], folder: &TemporaryFolder, keys: &Path) {
    let capture = CaptureFile::of_frames(frames);
    let shows = |bytes: &[u8]| bytes.windows(16).any(|part| part == &TEXT[..16]);
    assert!(frames.len() > 20 && !frames.iter().any(|frame| shows(frame)), "{name}");
    let opened = folder.join("opened.pcap");
    let summary = decrypt(capture.path(), keys, &opened);
    assert!(summary["opened"].as_u64() > Some(40), "{name}: {summary}");
    for reason in ["no_key", "cut", "forged", "fragments", "bad_lines"] {
        assert_eq!(summary[reason], 0, "{name}: {summary}");
    }
    // Two messages with a pre-shared key, for a link on each cable.
    assert!(summary["handshakes"].as_u64() >= Some(2 * cables), "{name}: {summary}");
    let mode = fs::metadata(&opened).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what was opened is for its owner alone");
    let Some(shown) = count(capture.path(), SHOWS_TEXT) else { return };
    assert_eq!(shown, 0, "{name}");
    assert!(count(&opened, SHOWS_TEXT) > Some(40), "{name}");
    // Each unit is an operation of STP without fault, and Data carries the text.
    let units = summary["opened"].as_u64().map(|units| units as usize);
    let faults = "st.expert.malformed || st.expert.truncated || st.expert.unsupported || \
         st.expert.checksum";
    let sound = format!("st.op && !({faults})");
    assert_eq!(count(&opened, &sound), units, "{name}: {summary}");
    let script = tshark::script("stp");
    let info = tshark::fields(&opened, &["_ws.col.Info"], &["-X", &script, "-Y", "st.op"]);
    let info = info.unwrap().concat();
    for operation in ["Request_Connection", "Request_To_Send", "Clear_To_Send", "Data"] {
        assert!(info.iter().any(|line| line.contains(operation)), "{name}: {operation} is missing");
    }
    let data = count(&opened, &format!("{SHOWS_TEXT} && st.block"));
    assert!(data > Some(40), "{name}: {data:?}");
}

#[test]
fn a_key_log_opens_captures_of_every_default() {
    require_namespaces!();
    type Case = (&'static str, u8, fn(&VethEnd) -> Transport, fn(&VethEnd) -> Peer);
    let ways: [Case; 5] = [
        (
            "UDP",
            1,
            |end| Transport::udp(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
            |end| Peer::Socket(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
        ),
        (
            "UDP by packets",
            1,
            |end| Transport::udp_packet(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
            |end| Peer::Socket(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
        ),
        ("IP", 1, |end| Transport::ip(end.ipv4.into()), |end| Peer::Ip(end.ipv4.into())),
        ("Ethernet", 1, |end| Transport::ethernet(&*end.name), |end| Peer::Ethernet(end.mac.0)),
        (
            "striped over UDP",
            2,
            |end| Transport::udp(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
            |end| Peer::Socket(SocketAddr::new(end.ipv4.into(), UDP_PORT)),
        ),
    ];
    for (name, cables, transport, peer) in ways {
        let folder = TemporaryFolder::new("decrypt");
        let keys = folder.join("keys");
        let ends = [(); 2].map(|()| Namespace::new().unwrap());
        let join = |cable| {
            let config = VethConfig { mtu: 1500, cable, ..VethConfig::default() };
            VethPair::between(&ends[0], &ends[1], config).unwrap()
        };
        let cables: Vec<_> = (0..cables).map(join).collect();
        let frames = overhear(&cables, &keys, transport, peer);
        check((name, cables.len() as u64), &frames, &folder, &keys);
    }
}

/// What two nodes of CLAN say to each other while a text is written into memory, as somebody
/// hears it at both ends.
fn overhear_clan(
    cable: &VethPair,
    keys: &Path,
    transport: fn(&VethEnd) -> ClanTransport,
    peer: fn(&VethEnd) -> Peer,
) -> Vec<Vec<u8>> {
    let regions = Regions::new(16);
    let mut rings = [&cable.a, &cable.b].map(|end| {
        let config = RingConfig::new(&*end.name, Filter::ethertypes([0x0800, 0x88b5]));
        end.namespace.enter(|| Ring::open(&config, &regions)).unwrap().unwrap()
    });
    let open = |number, end: &VethEnd| {
        let host = HostId::new(number).unwrap();
        let builder = || Node::builder(host).path(transport(end)).preshared_key([7; 32]);
        end.namespace.enter(|| builder().key_log(keys).open()).unwrap().unwrap()
    };
    let (here, there) = (open(1, &cable.a), open(2, &cable.b));
    let until = Some(Instant::now() + PATIENCE);
    here.link(peer(&cable.b)).unwrap().wait_up(until).unwrap();
    let (_memory, cookie) = there.expose(1 << 16, Rights::ReadWrite).unwrap();
    let mut window = here.map(&cookie).unwrap();
    window.write(0, &text()).unwrap();
    window.commit().unwrap();
    window.wait_for(Stage::Delivered, until).unwrap();
    heard(&mut rings)
}

#[test]
fn a_key_log_opens_captures_of_shared_memory() {
    require_namespaces!();
    type Case = (&'static str, fn(&VethEnd) -> ClanTransport, fn(&VethEnd) -> Peer);
    let ways: [Case; 2] = [
        (
            "UDP",
            |end| ClanTransport::udp(SocketAddr::new(end.ipv4.into(), 8182)),
            |end| Peer::Socket(SocketAddr::new(end.ipv4.into(), 8182)),
        ),
        ("Ethernet", |end| ClanTransport::ethernet(&*end.name), |end| Peer::Ethernet(end.mac.0)),
    ];
    for (name, transport, peer) in ways {
        let folder = TemporaryFolder::new("decrypt-clan");
        let keys = folder.join("keys");
        let cable = VethPair::new(VethConfig { mtu: 1500, ..VethConfig::default() }).unwrap();
        let frames = overhear_clan(&cable, &keys, transport, peer);
        let shows = |bytes: &[u8]| bytes.windows(16).any(|part| part == &TEXT[..16]);
        // Some are of several datagrams, which a device would cut.
        assert!(frames.len() > 5, "{name}: {}", frames.len());
        assert!(!frames.iter().any(|frame| shows(frame)), "{name}");
        let capture = CaptureFile::of_frames(&frames);
        let opened = folder.join("opened.pcap");
        let summary = decrypt(capture.path(), &keys, &opened);
        assert!(summary["opened"].as_u64() > Some(20), "{name}: {summary}");
        for reason in ["no_key", "cut", "forged", "fragments", "bad_lines"] {
            assert_eq!(summary[reason], 0, "{name}: {summary}");
        }
        let Some(shown) = count_with("clan", capture.path(), SHOWS_TEXT) else { return };
        assert_eq!(shown, 0, "{name}");
        let data = format!("{SHOWS_TEXT} && clan.data");
        assert!(count_with("clan", &opened, &data) > Some(20), "{name}");
        // Each unit is a frame of CLAN.
        let units = summary["opened"].as_u64().map(|units| units as usize);
        assert_eq!(count_with("clan", &opened, "clan.mark"), units, "{name}: {summary}");
    }
}

#[test]
fn what_cannot_be_opened_is_an_error_that_says_what_to_do() {
    let folder = TemporaryFolder::new("decrypt-errors");
    let line = format!("LANDFALL_TO_RESPONDER_0 010a0b0c0d01020304 {}\n", "07".repeat(48));
    let keys = folder.write("keys", line.as_bytes());
    let capture = CaptureFile::of_frames(&[vec![2; 60]]);
    let refused = |capture: &Path, keys: &Path, out: &Path| {
        let [capture, keys, out] = [capture, keys, out].map(|path| path.to_str().unwrap());
        let output = landfall(&["decrypt", capture, "--keys", keys, "--out", out]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let out = folder.join("opened");
    let none = folder.write("none", b"CLIENT_RANDOM 00 00\n");
    assert!(refused(capture.path(), &none, &out).contains("LANDFALL_KEYLOG"));
    assert!(refused(&none, &keys, &out).contains("no capture"));
    assert!(refused(capture.path(), &folder.join("gone"), &out).contains("gone"));
    assert!(refused(capture.path(), &keys, &keys).contains("name another file"));
    assert_eq!(fs::read(&keys).unwrap(), line.as_bytes(), "it is not written over");
    let malformed = folder.write("bad", [&[0xd4, 0xc3, 0xb2, 0xa1][..], &[0xff; 60]].concat());
    assert!(refused(&malformed, &keys, &out).contains("too long"));
}
