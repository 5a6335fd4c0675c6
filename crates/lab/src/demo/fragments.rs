//! Pages over a wire that carries less: joined where they land as long as the guess is
//! right, by copies where something foreign comes in between. Frames need privileges,
//! so the engine runs over memory here; where a cable can be had, over that as well.

use std::time::{Duration, Instant as StdInstant};

use anyhow::{Context, Result, ensure};
use landfall::defrag::Technique;
use landfall_inet::{Envelope, protocol, udp};
use landfall_placement::{Instant, Random, RegionId};
use landfall_testbed::rivals::{Amount, Endpoints, Plan, TcpThroughput};
use landfall_testbed::{Sample, VethConfig, VethPair, privileges};
use serde::Serialize;
use spec_defrag::cut::{Cutter, Df};
use spec_defrag::{Body, Prediction, ReassemblyPath, Receiver};

use super::{Scale, Shown, speed};
use crate::papers::defrag::Ram;
use crate::style::bytes;
use crate::workload::Pattern;
use crate::workload::defrag::{self, Cut, Join, Work};

const PAGE: u32 = 4096;
/// Packets of a run before, with, and after something foreign in each.
const PACKETS: u64 = 512;
const LIST: u16 = 48;
const TCP: &str = "kernel TCP, loopback";

#[derive(Debug, Serialize)]
struct Facts {
    tcp_goodput_bytes_per_s: f64,
    /// Over memory.
    goodput_bytes_per_s: f64,
    conventional_goodput_bytes_per_s: f64,
    packets: u64,
    in_place_before: u64,
    in_place_disturbed: u64,
    in_place_after: u64,
    compared_bytes: u64,
    equal: bool,
    /// Over a cable between two namespaces.
    live: Option<Live>,
    why_not_live: Option<String>,
}

#[derive(Debug, Serialize)]
struct Live {
    tcp_goodput_bytes_per_s: f64,
    /// The kernel joins, for a socket.
    kernel_goodput_bytes_per_s: f64,
    goodput_bytes_per_s: f64,
    in_place: f64,
    compared_bytes: u64,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let time = scale.time / 2;
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(time));
    let tcp = TcpThroughput::new(plan).run()?;
    let frames = Frames::new()?;
    let mut line = Rig::new(Prediction::default())?;
    let before = line.pass(&frames.plain)?;
    let disturbed = line.pass(&frames.disturbed)?;
    let after = line.pass(&frames.plain)?;
    let compared_bytes = line.compared;
    let goodput = line.speed(&frames, time)?;
    let conventional = Rig::new(Prediction::Off)?.speed(&frames, time)?;
    let why_not_live = privileges::why_no_namespaces().or_else(defrag::why_not);
    let live = match why_not_live {
        Some(_) => None,
        None => Some(live(time)?),
    };
    let facts = Facts {
        tcp_goodput_bytes_per_s: tcp.goodput(),
        goodput_bytes_per_s: goodput,
        conventional_goodput_bytes_per_s: conventional,
        packets: PACKETS,
        in_place_before: before,
        in_place_disturbed: disturbed,
        in_place_after: after,
        compared_bytes,
        // A wrong byte would have ended the run.
        equal: true,
        live,
        why_not_live,
    };
    Shown::new(lines(&facts), &facts)
}

fn lines(facts: &Facts) -> Vec<String> {
    let Facts { packets, in_place_before, in_place_disturbed, in_place_after, .. } = facts;
    let mut lines = vec![
        format!("{TCP:44} {}", speed(facts.tcp_goodput_bytes_per_s)),
        format!(
            "{:44} {}, no network: an adapter that writes where it is told",
            "fragments in memory, joined where they land",
            speed(facts.goodput_bytes_per_s)
        ),
        format!(
            "{:44} {}",
            "the same frames, joined by copies",
            speed(facts.conventional_goodput_bytes_per_s)
        ),
        format!(
            "of {packets} packets each: {in_place_before} in place; {in_place_disturbed} with \
             something foreign in each; {in_place_after} after that"
        ),
        format!("{} compared with what was sent: equal", bytes(facts.compared_bytes)),
    ];
    match (&facts.live, &facts.why_not_live) {
        (Some(live), _) => lines.push(format!(
            "on a cable: {}, {:.1} % in place; a socket, whose kernel joins them: {}; kernel TCP: \
             {}; {} compared: equal",
            speed(live.goodput_bytes_per_s),
            live.in_place * 100.0,
            speed(live.kernel_goodput_bytes_per_s),
            speed(live.tcp_goodput_bytes_per_s),
            bytes(live.compared_bytes),
        )),
        (None, why) => lines.push(format!(
            "not on a cable, since it {}; `unshare -Urn landfall demo` may have one",
            why.as_deref().unwrap_or("was not tried")
        )),
    }
    lines
}

/// The real thing, between two namespaces.
fn live(time: Duration) -> Result<Live> {
    let pair = VethPair::new(VethConfig::default())?;
    let plan = Plan::new(Endpoints::over(&pair)?, Amount::Time(time));
    let packet = Join::guessing(Technique::Packet);
    let work = |join| Work { page: PAGE, cut: Cut::Sender, join, foreign: None };
    let ours = defrag::run(&plan, &pair, work(Some(packet)))?;
    let kernel: Sample = defrag::run(&plan, &pair, work(None))?.sample;
    let tcp = TcpThroughput::new(plan).run()?;
    Ok(Live {
        tcp_goodput_bytes_per_s: tcp.goodput(),
        kernel_goodput_bytes_per_s: kernel.goodput(),
        goodput_bytes_per_s: ours.sample.goodput(),
        in_place: ours.sample.in_place.context("nothing was joined")?,
        compared_bytes: ours.compared,
    })
}

/// Fragments as they come over the wire.
struct Frames {
    plain: Vec<Vec<u8>>,
    /// With a small frame of somebody else behind one fragment of each packet.
    disturbed: Vec<Vec<u8>>,
}

impl Frames {
    fn new() -> Result<Self> {
        const NAME: RegionId = RegionId::new(0, 0);
        let mut cutter = Cutter::new(Df::Refuse, [3; 32]);
        let mut random = Random::new([4; 32]);
        let (mut plain, mut disturbed) = (Vec::new(), Vec::new());
        let mut page = vec![0; PAGE as usize];
        for packet in 0..PACKETS {
            Pattern(packet).fill(&mut page);
            let head = udp_head(packet as u16, PAGE as u16, 1);
            // It changes, so that nobody gets used to it.
            let place = random.next_u32() as usize % 3;
            for (nth, piece) in cutter.cut(&head, NAME.span(0, PAGE), 1500)?.enumerate() {
                let at = piece.payload.offset as usize;
                let mut frame = piece.head.to_vec();
                frame.extend_from_slice(&page[at..at + piece.payload.len as usize]);
                plain.push(frame.clone());
                disturbed.push(frame);
                if nth == place {
                    let mut foreign = udp_head(packet as u16, 64, 2);
                    foreign.resize(foreign.len() + 64, 0xee);
                    disturbed.push(foreign);
                }
            }
        }
        Ok(Self { plain, disturbed })
    }
}

/// Ethernet, IPv4 and UDP headers of a datagram.
fn udp_head(id: u16, len: u16, from: u8) -> Vec<u8> {
    let (us, them) = ([10, 99, 0, from], [10, 99, 0, 9]);
    let envelope = Envelope {
        id,
        dont_fragment: false,
        ..Envelope::new(([2; 6], us.into()), ([2; 6], them.into()), protocol::UDP)
    };
    let len = udp::LEN as u16 + len;
    let mut head = vec![0; envelope.header_len() + udp::LEN];
    let header = udp::Header {
        source: 7000.into(),
        destination: 7001.into(),
        len: len.into(),
        sum: 0.into(),
    };
    let at = envelope.write(&mut head, len.into()).expect("a page and its headers fit a packet");
    header.write(&mut head[at..]).expect("there is room");
    head
}

/// An adapter that writes frames behind descriptors, and the engine's receiver.
struct Rig {
    receiver: Receiver,
    ram: Ram,
    lens: Vec<u32>,
    compared: u64,
}

impl Rig {
    fn new(prediction: Prediction) -> Result<Self> {
        let (ram, receiver) = Ram::with_receiver(LIST, PAGE, prediction, [5; 32])?;
        Ok(Self { receiver, ram, lens: Vec::new(), compared: 0 })
    }

    /// Lets frames come, burst by burst. Hands each packet to the user; gives how many
    /// were joined where they landed.
    fn run(&mut self, frames: &[Vec<u8>], mut user: impl FnMut(&[u8])) -> Result<(u64, u64)> {
        let (mut rest, mut in_place, mut packets) = (frames, 0, 0);
        while !rest.is_empty() {
            let list = self.receiver.post();
            ensure!(!list.is_empty(), "the receiver has no place for a frame");
            let count = list.len().min(rest.len());
            self.lens.clear();
            for (slot, (descriptor, frame)) in list.iter().zip(rest).enumerate() {
                self.ram.land(slot, descriptor, frame);
                self.lens.push(frame.len() as u32);
            }
            rest = &rest[count..];
            self.receiver.settle(Instant::ZERO, &self.lens, &mut self.ram);
            while let Some(packet) = self.receiver.poll_packet() {
                let Body::Buffer(buffer, body) = packet.body else { continue };
                if packet.path != ReassemblyPath::Whole {
                    packets += 1;
                    in_place += u64::from(packet.path == ReassemblyPath::Speculated);
                    user(self.ram.bytes(body));
                }
                self.receiver.release(buffer);
            }
        }
        Ok((in_place, packets))
    }

    /// The same, and every byte is compared.
    fn pass(&mut self, frames: &[Vec<u8>]) -> Result<u64> {
        let (mut nth, mut wrong, mut compared) = (0, None, 0);
        let (in_place, packets) = self.run(frames, |body| {
            let at = Pattern(nth).first_difference(body);
            wrong = wrong.or(at.map(|at| (nth, at)));
            nth += 1;
            compared += body.len() as u64;
        })?;
        self.compared += compared;
        ensure!(wrong.is_none(), "packet and byte {wrong:?} are wrong");
        ensure!(packets == PACKETS, "{packets} of {PACKETS} packets came out");
        Ok(in_place)
    }

    /// Bytes a second, over and over.
    fn speed(&mut self, frames: &Frames, time: Duration) -> Result<f64> {
        let (started, mut packets) = (StdInstant::now(), 0);
        while packets == 0 || started.elapsed() < time {
            packets += self.run(&frames.plain, |_| {})?.1;
        }
        Ok((packets * u64::from(PAGE)) as f64 / started.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_foreign_costs_copies_and_no_byte() {
        let frames = Frames::new().unwrap();
        let mut line = Rig::new(Prediction::default()).unwrap();
        let before = line.pass(&frames.plain).unwrap();
        let disturbed = line.pass(&frames.disturbed).unwrap();
        let after = line.pass(&frames.plain).unwrap();
        assert!(before > PACKETS * 9 / 10, "{before} in place");
        assert!(disturbed < before, "{disturbed} in place");
        assert!(after > PACKETS * 8 / 10, "{after} in place: it guesses again");
        assert_eq!(line.compared, 3 * PACKETS * u64::from(PAGE));
        let mut copying = Rig::new(Prediction::Off).unwrap();
        assert_eq!(copying.pass(&frames.plain).unwrap(), 0);
    }
}
