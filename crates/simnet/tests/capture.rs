//! Captures, read back by tshark where it is installed.

use std::time::Duration;

use crate::common::{run_dry, shared, silent, tshark};
use landfall_placement::{Ecn, Instant};
use landfall_simnet::capture::Sink;
use landfall_simnet::sim::Fate;
use landfall_simnet::{Encapsulation, Frame, LinkConfig, LinkId, NodeId, PortId, Sim};
use landfall_testkit::TemporaryFolder;
use landfall_testkit::tshark::CaptureFile;

/// Two nodes, five frames: the second is taken away, the fourth is too long.
fn little_network() -> (Sim, NodeId, NodeId, LinkId) {
    let mut sim = Sim::from_number(1);
    let (a, b) = (sim.add("alice", silent).unwrap(), sim.add("bob", silent).unwrap());
    let config = LinkConfig::new().rate(8_000_000).delay(Duration::from_micros(250)).mtu(500);
    let link = sim.connect(a, b, config).unwrap();
    let mut n = 0;
    let second = move |_: Instant, _: &mut Frame| {
        n += 1;
        if n == 2 { Fate::Drop } else { Fate::Pass }
    };
    sim.intercept(link.there(), second).unwrap();
    (sim, a.id(), b.id(), link)
}

fn send_five(sim: &mut Sim, a: NodeId, b: NodeId) {
    for n in 0..5u8 {
        let len = if n == 3 { 501 } else { 100 };
        let mut frame = Frame::addressed(a.peer(), b.peer(), vec![n; len]);
        frame.ecn = Ecn::Capable0;
        sim.send(a, PortId(0), frame).unwrap();
    }
    run_dry(sim);
}

#[test]
fn tshark_reads_frames_behind_made_up_headers() {
    let (mut sim, a, b, _) = little_network();
    sim.capture_all(Encapsulation::Udp { port: 4_000 });
    send_five(&mut sim, a, b);
    let fields = [
        "frame.interface_name",
        "frame.time_epoch",
        "frame.packet_flags_direction",
        "ip.src",
        "ip.dst",
        "ip.dsfield.ecn",
        "ip.checksum.status",
        "udp.dstport",
        "udp.length",
        "frame.comment",
    ];
    let Some(lines) = tshark(&CaptureFile::new(sim.captured()), &fields) else { return };
    let line = |interface: &str, micros: u32, direction: u8, len: u32, comment: &str| {
        let time = format!("0.{micros:06}000");
        let (ends, direction) = ("10.0.0.0\t10.0.0.1", format!("0x0000000{direction}"));
        format!("{interface}\t{time}\t{direction}\t{ends}\t2\t1\t4000\t{len}\t{comment}")
    };
    // What is dropped before it is sent comes first: 100 bytes take 100 µs.
    let expected = [
        line("alice:0", 0, 2, 108, "dropped: taken by an interceptor"),
        line("alice:0", 0, 2, 509, "dropped: longer than the MTU"),
        line("alice:0", 100, 2, 108, ""),
        line("alice:0", 200, 2, 108, ""),
        line("alice:0", 300, 2, 108, ""),
        line("bob:0", 350, 1, 108, ""),
        line("bob:0", 450, 1, 108, ""),
        line("bob:0", 550, 1, 108, ""),
    ];
    // The way tshark writes flags and times differs a little between versions.
    let plain = |line: &str| line.replace("0x00000002", "2").replace("0x00000001", "1");
    let lines: Vec<_> = lines.iter().map(|line| plain(line)).collect();
    let expected: Vec<_> = expected.iter().map(|line| plain(line)).collect();
    assert_eq!(lines, expected);
}

#[test]
fn tshark_reads_ethernet_frames_and_private_ones() {
    let (mut sim, a, b, link) = little_network();
    sim.tap(link.there(), Encapsulation::Ethernet).unwrap();
    sim.tap(link.back(), Encapsulation::User(3)).unwrap();
    let mut arp = vec![0xff; 6];
    arp.extend_from_slice(&[2, 0, 0, 0, 0, 7, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.extend_from_slice(&[2, 0, 0, 0, 0, 7, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 10, 0, 0, 8]);
    sim.send(a, PortId(0), Frame::raw(arp)).unwrap();
    run_dry(&mut sim);
    sim.send(b, PortId(0), Frame::raw([1, 2, 3])).unwrap();
    run_dry(&mut sim);
    let fields = ["frame.interface_id", "frame.encap_type", "arp.src.proto_ipv4", "frame.len"];
    let Some(lines) = tshark(&CaptureFile::new(sim.captured()), &fields) else {
        return;
    };
    // Wireshark's own numbers: 1 is Ethernet, 45 + n are private kinds.
    assert_eq!(lines, ["0\t1\t10.0.0.7\t42", "1\t48\t\t42", "1\t48\t\t3", "0\t1\t\t3"]);
}

#[test]
fn a_stream_gets_what_memory_would() {
    let capture = |stream: bool| {
        let blocks = shared::<u8>();
        let (mut sim, a, b, link) = little_network();
        if stream {
            let blocks = blocks.clone();
            let write = move |block: &[u8]| blocks.borrow_mut().extend_from_slice(block);
            sim.capture_to(Sink::Stream(Box::new(write)));
        }
        sim.tap(link.there(), Encapsulation::User(0)).unwrap();
        send_five(&mut sim, a, b);
        if stream { blocks.take() } else { sim.captured().to_vec() }
    };
    assert!(!capture(true).is_empty());
    assert_eq!(capture(true), capture(false));
}

#[test]
fn invariant_5_a_capture_in_memory_ends_at_its_limit() {
    let (mut sim, a, b, link) = little_network();
    sim.capture_to(Sink::Memory { limit: 400 });
    sim.tap(link.there(), Encapsulation::User(0)).unwrap();
    send_five(&mut sim, a, b);
    let (kept, missed) = (sim.captured().len(), sim.capture_missed());
    assert!(kept <= 400 && (1..5).contains(&missed), "{kept} bytes kept, {missed} frames missed");
    let Some(lines) = tshark(&CaptureFile::new(sim.captured()), &["frame.number"]) else {
        return;
    };
    assert_eq!(lines.len() as u64 + missed, 5, "what was kept is a whole capture");
}

#[test]
fn a_capture_is_saved_to_a_file() {
    let (mut sim, a, b, _) = little_network();
    sim.capture_all(Encapsulation::User(0));
    send_five(&mut sim, a, b);
    let folder = TemporaryFolder::new("saved");
    let file = folder.join("capture.pcapng");
    sim.save_capture(&file).unwrap();
    assert!(std::fs::read(&file).unwrap() == sim.captured());
}
