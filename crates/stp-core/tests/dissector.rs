//! `docs/wireshark/stp.lua`, run by tshark where it is installed: it must agree
//! with the codec about every packet, good or bad.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use crate::support::capture::{Carrier, ST, check_capture, checksum, op};
use crate::support::{document, samples};
use landfall_placement::{Instant, Random, Refusal};
use landfall_simnet::{Encapsulation, Frame, LinkConfig, Outbox, PortId, Sim};
use landfall_testkit::tshark::{CaptureFile, Dissected};
use stp_core::wire::carrier::UDP_PORT;
use stp_core::wire::header::{is_sealed, seal};
use stp_core::wire::message::State;
use stp_core::wire::{Flags, HEADER_LEN, Header, Message, Op};

const BAD: u8 = 0;
const GOOD: u8 = 1;
const ABSENT: u8 = 3;

/// Packets as UDP datagrams, which have no padding.
fn datagrams(packets: &[Vec<u8>]) -> CaptureFile {
    let carrier = Carrier::Udp { port: UDP_PORT };
    let frames: Vec<_> = packets.iter().map(|packet| carrier.frame(packet)).collect();
    CaptureFile::of_frames(&frames)
}

fn dissect_datagrams(packets: &[Vec<u8>]) -> Option<Vec<Dissected>> {
    let dissected = ST.read(datagrams(packets).path(), "frame", &[])?;
    assert_eq!(dissected.len(), packets.len());
    Some(dissected)
}

/// Where a packet ends that may have something behind it, as far as its head says.
fn end_of(packet: &[u8]) -> usize {
    let says = match Op::from_number(packet[0]) {
        Some(Op::Data) | None => packet.len(),
        Some(Op::Put) => {
            let len = Header::read(packet).map_or(0, |header| header.offset.get());
            HEADER_LEN + len as usize
        }
        Some(Op::RequestToSend) if Flags(packet[1]).has(Flags::LAST) => {
            let len = Header::read(packet).map_or(0, |header| header.t_len.get());
            HEADER_LEN + if len > 1_024 { 0 } else { len as usize }
        }
        Some(op) => Message::head_len(op, Flags(packet[1])),
    };
    says.min(packet.len())
}

/// With a checksum that is right again, where it says that it has one.
fn resealed(mut packet: Vec<u8>) -> Vec<u8> {
    if packet.len() >= HEADER_LEN && packet[1] & Flags::SUM.0 != 0 {
        let end = end_of(&packet);
        packet[12..14].fill(0);
        seal(&mut packet[..end]);
    }
    packet
}

#[test]
fn every_operation_over_every_carrier_is_dissected() {
    let samples = samples::all();
    let mut frames = Vec::new();
    for carrier in Carrier::ALL {
        frames.extend(samples.iter().map(|sample| carrier.frame(&sample.packet())));
    }
    let capture = CaptureFile::of_frames(&frames);
    let Some(dissected) = ST.read(capture.path(), "st", &[]) else { return };
    assert_eq!(dissected.len(), frames.len(), "every packet is taken for one of STP");
    for (packet, sample) in dissected.iter().zip(samples.iter().cycle()) {
        assert_eq!(op(packet), Some(sample.op() as u8), "{}: {packet:?}", sample.name);
        assert_eq!(packet.marks, [], "{}: {packet:?}", sample.name);
        assert!(packet.info.starts_with(sample.op().as_str()), "{}: {packet:?}", sample.name);
        let expected = if is_sealed(&sample.packet()) { GOOD } else { ABSENT };
        assert_eq!(checksum(packet), Some(expected), "{}: {packet:?}", sample.name);
    }

    let mut counts = BTreeMap::new();
    for sample in &samples {
        *counts.entry(sample.op() as u8).or_default() += Carrier::ALL.len();
    }
    assert_eq!(check_capture(capture.path()), Some(counts));
}

#[test]
fn the_info_column_says_what_a_packet_is_about() {
    let expected = [
        ("Clear_To_Send", "Clear_To_Send block 3 offset 65536 +64 STUs"),
        ("Clear_To_Send again", "Clear_To_Send block 4 offset 81920 again 3 STUs limited"),
        ("Data", "Data block 3 offset 66560 16 bytes"),
        ("Data with checksum", "Data block 3 offset 130048 5 bytes last"),
        ("Request_To_Send", "Request_To_Send transfer 65538 of 5000000000 bytes"),
        ("Put", "Put 4294967295 region 0x00020007 place 4294967304 3 bytes"),
        ("FetchOp compare and swap", "FetchOp 3 region 0x00020007 place 4 compare and swap"),
        ("Connection_Answer rejected", "Connection_Answer rejected (nobody listens at that port)"),
        (
            "Request_State_Response transfer",
            "Request_State_Response Transfer 65538 blocks below 20 of 5000000000 bytes complete",
        ),
    ];
    let packets = expected.map(|(name, _)| document::vector(name));
    let Some(dissected) = dissect_datagrams(&packets) else { return };
    for (packet, (name, info)) in dissected.iter().zip(expected) {
        assert_eq!(packet.info, info, "{name}");
    }
}

#[test]
fn every_field_is_shown_by_its_name() {
    let names = ["Clear_To_Send", "Data", "Connection_Answer", "FetchOp compare and swap", "Get"];
    let packets: Vec<_> = names.iter().map(|name| document::vector(name)).collect();
    let capture = datagrams(&packets);
    let filters = [
        (
            1,
            "st.attempt == 1 && st.stu == 1432 && st.block_size == 18 && st.block == 3 \
             && st.bufx.index == 17 && st.bufx.generation == 5 && st.lead == 512 \
             && st.count == 64 && st.behind == 1 && st.d_id == 12 && st.s_id == 21",
        ),
        (2, "st.hold == 0.000262272 && st.serial == 65538 && st.opaque == 0xdeadbeef"),
        (2, "st.payload == 00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f"),
        (
            3,
            "st.version == 3 && st.max_stu == 13 && st.buffer == 16 && st.slots == 8 \
             && st.s_key == 0xc0ffee01 && st.d_key == 0xa1b2c3d4",
        ),
        (4, "st.width == 4 && st.function == 8 && st.operand == 0x11223344"),
        (4, "st.expected == 0x55667788 && st.place == 4 && st.handle == 0x20007"),
        (
            5,
            "st.after == 2 && st.get_len == 3000 && st.stu == 1432 && st.serial == 5 && st.place == 1024",
        ),
    ];
    for (number, filter) in filters {
        let Some(dissected) = ST.read(capture.path(), filter, &[]) else { return };
        let numbers: Vec<_> = dissected.iter().map(|packet| packet.number).collect();
        assert_eq!(numbers, [number], "{filter}");
    }
}

/// What the dissector must find in a packet, as the codec sees it.
fn fault_of(packet: &[u8]) -> Option<Refusal> {
    match Message::decode(packet) {
        // The codec reads heads: whether the payload is there is for others to see.
        Ok((_, Message::Put { len, .. })) if packet.len() - HEADER_LEN < len as usize => {
            Some(Refusal::Truncated)
        }
        Ok((_, Message::RequestToSend { is_eager: true, len, .. }))
            if packet.len() - HEADER_LEN < len as usize =>
        {
            Some(Refusal::Truncated)
        }
        Ok((_, Message::RequestStateResponse(State::Size { size, .. })))
            if packet.len() < size as usize =>
        {
            Some(Refusal::Truncated)
        }
        Ok(_) => None,
        Err(refusal) if ST.marks.contains(&refusal) => Some(refusal),
        Err(other) => panic!("decoding does not look at what {other} means"),
    }
}

fn assert_agrees(packets: &[Vec<u8>]) {
    let Some(dissected) = dissect_datagrams(packets) else { return };
    for (seen, packet) in dissected.iter().zip(packets) {
        let expected = fault_of(packet);
        let is_found = expected.is_none_or(|fault| seen.marks.contains(&fault));
        assert!(is_found, "{expected:?} in {packet:02x?}: {seen:?}");
        assert_eq!(seen.marks.is_empty(), expected.is_none(), "{packet:02x?}: {seen:?}");
    }
}

#[test]
fn codec_and_dissector_agree_about_every_flipped_bit() {
    let mut packets = Vec::new();
    for sample in samples::all() {
        let packet = sample.packet();
        for bit in 0..packet.len() * 8 {
            let mut packet = packet.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            packets.push(resealed(packet));
        }
    }
    assert_agrees(&packets);
}

#[test]
fn codec_and_dissector_agree_about_truncation_at_every_length() {
    let mut packets = Vec::new();
    for sample in samples::all() {
        let packet = sample.packet();
        let head_len = Message::head_len(sample.op(), Flags(packet[1]));
        // An empty datagram is shown to no dissector. Payloads are cut with a checksum that fits what is left.
        packets.extend((1..head_len).map(|len| packet[..len].to_vec()));
        packets.extend((head_len..packet.len()).map(|len| resealed(packet[..len].to_vec())));
    }
    assert_agrees(&packets);
}

#[test]
fn codec_and_dissector_agree_about_likely_junk() {
    let mut random = Random::from_number(8181);
    let packets: Vec<_> = (0..4_000)
        .map(|n| {
            let mut packet: Vec<_> = (0..60).map(|_| random.next_u32() as u8).collect();
            packet[0] = (n % 21) as u8;
            packet[1] = if n % 3 == 0 { packet[1] | Flags::SUM.0 } else { Flags::SUM.0 };
            packet[2] &= 9;
            packet[3] &= 31;
            packet.copy_within(18..20, 14);
            packet[24..26].fill(0);
            resealed(packet)
        })
        .collect();
    assert_agrees(&packets);
}

#[test]
fn bad_checksums_are_flagged() {
    let sealed = samples::all().into_iter().map(|sample| sample.packet());
    let packets: Vec<_> = sealed
        .filter(|packet| is_sealed(packet))
        .map(|mut packet| {
            packet[9] ^= 0x10; // In the key: nothing else is wrong with the packet.
            packet
        })
        .collect();
    assert!(!packets.is_empty());
    let Some(dissected) = dissect_datagrams(&packets) else { return };
    assert_eq!(dissected.len(), packets.len());
    for packet in dissected {
        assert_eq!(packet.marks, [Refusal::BadChecksum], "{packet:?}");
        assert!(!packet.is_malformed, "{packet:?}");
        assert_eq!(checksum(&packet), Some(BAD));
        assert!(packet.info.ends_with("[bad checksum]"), "{packet:?}");
    }
}

#[test]
fn a_capture_with_one_bad_packet_is_not_passed() {
    let mut packets: Vec<_> = samples::all().iter().map(|sample| sample.packet()).collect();
    let good = datagrams(&packets);
    if check_capture(good.path()).is_none() {
        return;
    }
    packets[7][20] ^= 1;
    let bad = datagrams(&packets);
    assert!(catch_unwind(|| check_capture(bad.path())).is_err());
    let empty = datagrams(&[]);
    assert!(catch_unwind(|| check_capture(empty.path())).is_err());
}

#[test]
fn other_udp_ports_are_found_by_what_they_carry() {
    let port = 40_000;
    let carrier = Carrier::Udp { port };
    let stranger = Carrier::Udp { port: 40_001 };
    let mut bad = document::vector("Request_Connection");
    bad[8] ^= 1;
    let frames = [
        stranger.frame(&document::vector("Data")),
        stranger.frame(&bad),
        stranger.frame(&[0; 40]),
        carrier.frame(&document::vector("Request_Connection")),
        carrier.frame(&document::vector("Data")),
        carrier.frame(&document::vector("Put")),
    ];
    let capture = CaptureFile::of_frames(&frames);
    let Some(dissected) = ST.read(capture.path(), "st", &[]) else { return };
    let numbers: Vec<_> = dissected.iter().map(|packet| packet.number).collect();
    assert_eq!(numbers, [4, 5, 6], "{dissected:?}");

    let Some(dissected) = ST.read(capture.path(), "st", &["-o", "st.udp_port:40001"]) else {
        return;
    };
    let numbers: Vec<_> = dissected.iter().map(|packet| packet.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "the port is a preference");
}

#[test]
fn the_capture_of_a_simulation_can_be_checked() {
    let silent = |_: Instant, _: PortId, _: Frame, _: &mut Outbox<'_>| {};
    let mut sim = Sim::from_number(1);
    let (a, b) = (sim.add("a", silent).unwrap(), sim.add("b", silent).unwrap());
    sim.connect(a, b, LinkConfig::new()).unwrap();
    sim.capture_all(Encapsulation::Udp { port: UDP_PORT });
    let samples = samples::all();
    for sample in &samples {
        let frame = Frame::addressed(a.id().peer(), b.id().peer(), sample.packet());
        sim.send(a.id(), PortId(0), frame).unwrap();
        sim.run_until(Instant::FAR_FUTURE).unwrap();
    }
    let capture = CaptureFile::new(sim.captured());
    let Some(seen) = check_capture(capture.path()) else { return };
    assert_eq!(seen.len(), Op::ALL.len());
    // Each is captured where it leaves and where it arrives.
    assert_eq!(seen.values().sum::<usize>(), 2 * samples.len());
}
