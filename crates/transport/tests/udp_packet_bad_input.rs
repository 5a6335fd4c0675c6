//! Frames that are no good datagrams for a path of UDP by a packet socket: each is refused
//! with a counter, and the good one behind it comes. As an ordinary user each test skips with
//! one line.

use std::net::{IpAddr, SocketAddr};

use landfall_inet::{Envelope, Fragment, checksum, ipv4, protocol, udp};
use landfall_placement::{Guess, Peer, Placement, Random};
use landfall_testbed::{VethEnd, VethPair, require_namespaces};
use landfall_transport::Driver;
use landfall_transport::memory::Rights;
use landfall_transport::packet::{Filter, Framing, PacketConfig};
use landfall_transport::udp_packet::UdpPacketDriver;

use crate::support::packet::rawip::{VERSIONS, Version, address};
use crate::support::packet::udp::open;
use crate::support::packet::{cable, open_as};
use crate::support::{
    LABEL, Scripted, assert_same, contents, labelled_head, lent, pattern, turn_until,
};

const PORT: u16 = 6000;

/// Writes datagrams as they are on a wire, summed by their sender.
struct Writer {
    envelope: Envelope,
    to: SocketAddr,
}

impl Writer {
    fn new(cable: &VethPair, to: SocketAddr) -> Self {
        let version = if to.is_ipv4() { Version::Four } else { Version::Six };
        let from = (cable.a.mac.0, address(&cable.a, version));
        Self { envelope: Envelope::new(from, (cable.b.mac.0, to.ip()), protocol::UDP), to }
    }

    fn frame(&self, payload: &[u8]) -> Vec<u8> {
        self.frame_of(&self.envelope, payload)
    }

    fn frame_of(&self, envelope: &Envelope, payload: &[u8]) -> Vec<u8> {
        let len = (udp::LEN + payload.len()) as u16;
        let mut frame = vec![0; envelope.header_len() + usize::from(len)];
        let at = envelope.write(&mut frame, len.into()).unwrap();
        let mut header = udp::Header {
            source: PORT.into(),
            destination: self.to.port().into(),
            len: len.into(),
            sum: 0.into(),
        };
        let mut sum = checksum::InternetSum::new();
        sum.add_word(envelope.pseudo(len.into()));
        sum.append(header.sum_of_fields());
        sum.add(payload);
        header.sum = udp::Header::sum_field(sum.checksum()).into();
        header.write(&mut frame[at..]).unwrap();
        frame[at + udp::LEN..].copy_from_slice(payload);
        frame
    }

    /// A good one with other bytes from `at` behind the Ethernet header on. The header of
    /// IPv4 is sealed again.
    fn with(&self, at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut frame = self.frame(&pattern(100, 1));
        frame[14 + at..][..bytes.len()].copy_from_slice(bytes);
        if self.to.is_ipv4() {
            ipv4::seal(&mut frame[14..34]);
        }
        frame
    }
}

/// Sends frames as they are, without offloads: nobody fills in or vouches for anything.
fn send(end: &VethEnd, frames: &[Vec<u8>]) {
    const HEAD: usize = 14;
    let (regions, source) = lent(&frames.concat(), Rights::READ);
    let framing = Framing::Ethernet { filter: Filter::ethertypes([0xffff]) };
    let mut driver = open_as(end, framing, &regions, PacketConfig::without_offload).unwrap();
    let (mut from, mut at) = (Scripted::sender(), 0);
    for frame in frames {
        let (head, payload) = frame.split_at(HEAD);
        let payload = source.span(at + HEAD as u64, payload.len() as u32);
        from.send(Peer::Unaddressed, head.to_vec(), &[payload]);
        at += frame.len() as u64;
    }
    turn_until(&mut driver, &mut from, |from, _| from.sent.len() == frames.len());
    assert_eq!(driver.counters().units_sent, frames.len() as u64);
}

/// Receives until the good one came that says so, and nothing else.
fn hear_only_the_last(receiver: &mut UdpPacketDriver) {
    let mut to = Scripted::new(|_, _| Ok(Placement::Consumed));
    turn_until(receiver, &mut to, |to, _| {
        to.seen.iter().any(|(_, head, _)| head.starts_with(b"good"))
    });
    assert_eq!(to.seen.len(), 1, "{:?}", to.seen);
}

#[test]
fn what_nobody_has_summed_is_summed_where_it_landed() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let message = pattern(1000, 3);
        let (regions, target) = lent(&[0; 1000], Rights::WRITE);
        let mut receiver = open(&cable.b, version, &regions);
        let writer = Writer::new(&cable, receiver.local_address());
        let payload = [labelled_head(0), message.clone()].concat();
        let mut wrong = writer.frame(&payload);
        *wrong.last_mut().unwrap() ^= 1;
        let padded = [writer.frame(&payload), vec![0xee; 9]].concat();
        send(&cable.a, &[wrong, padded]);
        let mut to = Scripted::labelled(target);
        // So that some of it is summed in the region, and some behind it.
        let span = target.span(0, 700);
        to.guesses = vec![Guess { span, head_len: LABEL as u16, payload_len: 700 }];
        turn_until(&mut receiver, &mut to, |to, _| to.landings.len() == 1);
        let counters = *receiver.counters();
        assert_eq!((counters.corrupt, counters.malformed), (1, 0), "{counters:?}");
        assert_eq!(counters.bytes_summed, 2 * payload.len() as u64);
        assert_eq!((to.seen.len(), to.seen[0].2), (1, payload.len() as u32), "padding is none");
        drop(receiver);
        assert_same(&contents(&regions, target), &message);
    }
}

/// What is wrong with any version of IP.
fn bad_frames(cable: &VethPair, writer: &Writer) -> Vec<Vec<u8>> {
    let payload = pattern(100, 1);
    let ip = if writer.to.is_ipv4() { 20 } else { 40 };
    let own = writer.to.ip();
    let forged =
        |source: IpAddr| writer.frame_of(&Envelope { source, ..writer.envelope }, &payload);
    let mut to_group = writer.frame(&payload);
    to_group[0] |= 1;
    let mut tagged = writer.frame(&payload);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let mut cut = writer.frame(&payload);
    cut.truncate(cut.len() - 1);
    let mut to_other = writer.frame(&payload);
    to_other[..6].copy_from_slice(&[2, 7, 7, 7, 7, 7]);
    let nobody: IpAddr = match cable.b.ipv4 {
        _ if own.is_ipv4() => [224, 0, 0, 1].into(),
        _ => "ff02::1".parse().unwrap(),
    };
    vec![
        forged(own),
        forged(nobody),
        to_group,
        tagged,
        cut,
        to_other,
        // The length of the datagram: less than its header, and more than the packet.
        writer.with(ip + 4, &[0, 7]),
        writer.with(ip + 4, &[0, 200]),
    ]
}

#[test]
fn bad_frames_are_refused_and_counted_one_by_one() {
    require_namespaces!();
    let cable = cable();
    for version in VERSIONS {
        let regions = landfall_transport::memory::Regions::new(1);
        let mut receiver = open(&cable.b, version, &regions);
        let writer = Writer::new(&cable, receiver.local_address());
        let mut frames = bad_frames(&cable, &writer);
        if version == Version::Four {
            let fragment = Some(Fragment { id: 7, offset: 0, more: true });
            frames.push(writer.frame_of(&Envelope { fragment, ..writer.envelope }, &[1; 104]));
            // The wrong sum of the header, and a packet that is longer than its frame.
            let mut unsealed = writer.frame(&[1; 100]);
            unsealed[14 + 10] ^= 1;
            frames.extend([unsealed, writer.with(2, &[1, 0])]);
            // Options: the datagram is fine, and begins one word later.
            let mut options = writer.frame(&[1; 100]);
            options.splice(34..34, [1, 1, 1, 0]);
            (options[14], options[17]) = (0x46, options[17] + 4);
            ipv4::seal(&mut options[14..38]);
            frames.push(options);
        } else {
            // UDP without a checksum.
            frames.push(writer.with(40 + 6, &[0, 0]));
        }
        let count = frames.len() as u64;
        frames.push(writer.frame(b"good"));
        send(&cable.a, &frames);
        hear_only_the_last(&mut receiver);
        let counters = receiver.counters();
        assert_eq!((counters.malformed, counters.corrupt), (count, 0), "{version:?}");
    }
}

#[test]
fn what_is_for_others_is_not_even_looked_at() {
    require_namespaces!();
    let cable = cable();
    let regions = landfall_transport::memory::Regions::new(1);
    let mut receiver = open(&cable.b, Version::Four, &regions);
    let writer = Writer::new(&cable, receiver.local_address());
    let other = |to| Writer { to, ..Writer::new(&cable, receiver.local_address()) }.frame(&[1; 9]);
    let (ip, port) = (writer.to.ip(), writer.to.port());
    let frames = vec![
        other(SocketAddr::new(ip, port ^ 1)),
        // Another protocol, another host, and a later fragment.
        writer.with(9, &[6]),
        writer.with(16, &[10, 1, 1, 1]),
        writer.with(6, &[0, 9]),
        writer.frame(b"good"),
    ];
    send(&cable.a, &frames);
    hear_only_the_last(&mut receiver);
    assert_eq!(receiver.counters().malformed, 0);
}

#[test]
fn junk_behind_good_and_bad_headers_harms_nothing() {
    require_namespaces!();
    let cable = cable();
    let regions = landfall_transport::memory::Regions::new(1);
    for version in VERSIONS {
        let mut receiver = open(&cable.b, version, &regions);
        let writer = Writer::new(&cable, receiver.local_address());
        let mut random = Random::new([9; 32]);
        let mut frames: Vec<Vec<u8>> = (0..500)
            .map(|_| {
                let len = random.below(200) as usize;
                let mut frame = writer.frame(&vec![0; len]);
                // Anything may be wrong behind the ethertype.
                for _ in 0..=random.below(6) {
                    let at = 14 + random.below(frame.len() as u64 - 14) as usize;
                    frame[at] = random.next_u32() as u8;
                }
                let keep = random.below(frame.len() as u64 - 14) as usize + 15;
                frame.truncate(keep);
                frame
            })
            .collect();
        frames.push(writer.frame(b"good"));
        send(&cable.a, &frames);
        let mut to = Scripted::new(|_, _| Ok(Placement::Consumed));
        turn_until(&mut receiver, &mut to, |to, _| {
            to.seen.iter().any(|(_, head, _)| head.starts_with(b"good"))
        });
        let from = to.seen.iter().all(|(from, ..)| matches!(from, Peer::Socket(_)));
        assert!(from && receiver.counters().malformed > 0, "{:?}", receiver.counters());
    }
}
