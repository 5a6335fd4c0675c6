//! `landfall paper defrag --pcap`: how often a receiver would have guessed right on frames that
//! were recorded.
//!
//! Each station that received fragments is looked at by itself. The paper's predictor is given
//! the shape that most packets of its trace have, which in the paper both ends agree on
//! beforehand; the other one learns shapes and the order of flows as frames arrive.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use landfall_inet::{protocol, tcp, udp};
use landfall_placement::Instant;
use serde::Serialize;
use spec_defrag::wire::{Key, Parsed, parse};
use spec_defrag::{HeadLens, LARGE, PayloadLens, Prediction, Shape};

use super::adapter::{Score, Setup, score_recorded};
use crate::capture_file::{CapturedFrame, frames};
use crate::style::Style;
use crate::table::Table;

/// What a file holds, and what became of it.
#[derive(Debug, Serialize)]
pub(super) struct Recorded {
    pub(super) file: String,
    /// Frames of all stations.
    pub(super) frames: u64,
    /// Those that received fragments.
    pub(super) stations: Vec<Station>,
}

/// A station that received fragments.
#[derive(Debug, Serialize)]
pub(super) struct Station {
    /// Its Ethernet address.
    pub(super) address: String,
    pub(super) frames: u64,
    pub(super) fragments: u64,
    /// Packets that were cut and came whole.
    pub(super) packets: u64,
    /// How packets are cut most often: the number of pieces and the length of the body.
    pub(super) pieces: u16,
    pub(super) body: u32,
    /// The page that a receiver would be set up for.
    pub(super) page: u32,
    /// With the paper's predictor and that shape.
    pub(super) single: Score,
    /// With shapes and the order of flows learned.
    pub(super) learned: Score,
}

/// Packets of so few a station are no traffic to be guessed.
const FEWEST: u64 = 2;
/// Four packets to a list, as the paper's.
const PACKETS_PER_LIST: u16 = 4;

/// Looks at a capture.
pub(super) fn study(path: &Path) -> Result<Recorded> {
    let name = path.display().to_string();
    let file = fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let all = frames(&file).with_context(|| format!("{name} is no capture"))?;
    study_frames(name, &all)
}

/// Looks at frames that came from the place of this name.
pub(super) fn study_frames(name: String, all: &[CapturedFrame]) -> Result<Recorded> {
    let mut by_station: BTreeMap<[u8; 6], Vec<&CapturedFrame>> = BTreeMap::new();
    for frame in all {
        if let Some(to) = frame.bytes.first_chunk::<6>() {
            by_station.entry(*to).or_default().push(frame);
        }
    }
    let stations = by_station.iter().filter_map(|(to, frames)| station(*to, frames).transpose());
    let stations = stations.collect::<Result<Vec<_>>>()?;
    ensure!(
        !stations.is_empty(),
        "{name}: no station received packets in fragments ({} frames); record where they arrive, \
         with at least 128 bytes of each frame",
        all.len()
    );
    Ok(Recorded { file: name, frames: all.len() as u64, stations })
}

/// Nothing for a station that received no packets in fragments.
fn station(to: [u8; 6], frames: &[&CapturedFrame]) -> Result<Option<Station>> {
    let cut = CutPackets::of(frames);
    let Some((shape, body)) = cut.usual() else { return Ok(None) };
    if cut.packets < FEWEST {
        return Ok(None);
    }
    let pieces = shape.units();
    let page = body.next_multiple_of(4096).min(LARGE);
    let frame_max = frames.iter().map(|frame| frame.len).max().unwrap_or(0).max(64);
    let setup = Setup { list: PACKETS_PER_LIST * pieces, page, frame_max };
    let start = frames[0].at;
    let arrivals = || {
        frames.iter().map(|frame| {
            // What was not kept is zeros: no receiver looks at it.
            let mut bytes = frame.bytes.clone();
            bytes.resize(frame.len as usize, 0);
            let at = Instant::ZERO + frame.at.saturating_sub(start);
            (at, bytes)
        })
    };
    let address = to.map(|byte| format!("{byte:02x}")).join(":");
    Ok(Some(Station {
        address,
        frames: frames.len() as u64,
        fragments: cut.fragments,
        packets: cut.packets,
        pieces,
        body,
        page,
        single: score_recorded(arrivals(), setup, Prediction::Single(shape))?,
        learned: score_recorded(arrivals(), setup, Prediction::default())?,
    }))
}

/// Packets that arrived in pieces.
#[derive(Debug, Default)]
struct CutPackets {
    fragments: u64,
    /// Those of which all pieces came, each once.
    packets: u64,
    /// How often each shape was seen, with the length of its body.
    shapes: HashMap<Cut, u64>,
    under_way: HashMap<Key, Vec<Piece>>,
}

/// How a packet is cut.
type Cut = (u16, (u16, u16), (u16, u16, u16));

#[derive(Clone, Copy, Debug)]
struct Piece {
    offset: u32,
    len: u32,
    more: bool,
    head: u16,
    /// The transport header at the start of the first piece.
    transport: u16,
}

impl CutPackets {
    fn of(frames: &[&CapturedFrame]) -> Self {
        let mut cut = Self::default();
        for frame in frames {
            if let Ok(parsed) = parse(&frame.bytes, frame.len)
                && let Some(fragment) = parsed.fragment
                && !fragment.is_atomic()
            {
                cut.take(&parsed, &frame.bytes);
            }
        }
        cut
    }

    fn take(&mut self, parsed: &Parsed, bytes: &[u8]) {
        let Some(fragment) = parsed.fragment else { return };
        self.fragments += 1;
        let transport = if fragment.offset == 0 { transport_len(parsed, bytes) } else { 0 };
        let piece = Piece {
            offset: fragment.offset,
            len: parsed.payload_len,
            more: fragment.more,
            head: parsed.payload_at + transport,
            transport,
        };
        let pieces = self.under_way.entry(parsed.key).or_default();
        pieces.push(piece);
        let end = pieces.iter().find(|piece| !piece.more).map(|last| last.offset + last.len);
        let here: u32 = pieces.iter().map(|piece| piece.len).sum();
        if end.is_none_or(|end| here < end) {
            return;
        }
        let mut pieces = self.under_way.remove(&parsed.key).unwrap_or_default();
        pieces.sort_unstable_by_key(|piece| piece.offset);
        let mut at = 0;
        let is_whole = pieces.iter().all(|piece| {
            let is_next = piece.offset == at;
            at += piece.len;
            is_next
        });
        if is_whole {
            self.packets += 1;
            if let Some(cut) = cut_of(&pieces) {
                *self.shapes.entry(cut).or_default() += 1;
            }
        }
    }

    /// The shape that was seen most often, and the length of its body.
    fn usual(&self) -> Option<(Shape, u32)> {
        // Of two that are as frequent the greater, so that it is the same each time.
        let (cut, _) = self.shapes.iter().max_by_key(|(cut, seen)| (**seen, **cut))?;
        let (units, heads, payloads) = *cut;
        let between = u32::from(units.saturating_sub(2)) * u32::from(payloads.1);
        let body = u32::from(payloads.0) + between + u32::from(payloads.2);
        let heads = HeadLens { first: heads.0, rest: heads.1 };
        let (first, middle, last) = payloads;
        Some((Shape::new(units, heads, PayloadLens { first, middle, last })?, body))
    }
}

/// The lengths that a packet is cut at, if those between first and last are alike.
fn cut_of(pieces: &[Piece]) -> Option<Cut> {
    let [first, between @ .., last] = pieces else { return None };
    let middle = between.first().map_or(first.len, |piece| piece.len);
    let short = |len: u32| u16::try_from(len).ok();
    if between.iter().any(|piece| piece.len != middle) {
        return None;
    }
    let first_len = short(first.len.checked_sub(first.transport.into())?)?;
    let payloads = (first_len, short(middle)?, short(last.len)?);
    Some((short(pieces.len() as u32)?, (first.head, last.head), payloads))
}

/// How long the header of UDP or TCP is at the start of a packet.
fn transport_len(parsed: &Parsed, bytes: &[u8]) -> u16 {
    match parsed.protocol {
        protocol::UDP => udp::LEN as u16,
        protocol::TCP => {
            let header = bytes.get(usize::from(parsed.payload_at)..).and_then(<[u8]>::first_chunk);
            header.map_or(tcp::LEN, |header| tcp::Header::view(header).header_len()) as u16
        }
        _ => 0,
    }
}

const ABOUT: &str = "\
Each station by itself, its frames at the times of the capture. successful: packets that lay in their\n\
page when the driver looked, with the paper's predictor, which is told the shape that most packets of\n\
the trace have; learned: shapes and the order of flows are learned from arrivals.";

/// The table, for people.
pub(super) fn describe(recorded: &Recorded, style: Style) -> String {
    let mut table = Table::new([
        "received by",
        "frames",
        "fragments",
        "packets",
        "pieces",
        "body",
        "successful",
        "learned",
        "copied, learned",
    ]);
    for station in &recorded.stations {
        let body = u64::from(station.body) * station.packets;
        table.row([
            station.address.clone(),
            station.frames.to_string(),
            station.fragments.to_string(),
            station.packets.to_string(),
            station.pieces.to_string(),
            station.body.to_string(),
            format!("{:.1} %", 100.0 * station.single.rate()),
            format!("{:.1} %", 100.0 * station.learned.rate()),
            format!("{:.1} %", 100.0 * station.learned.copied as f64 / body.max(1) as f64),
        ]);
    }
    let title = style.strong(format!("{}: {} frames", recorded.file, recorded.frames));
    format!("{title}\n{table}\n{ABOUT}\n")
}

#[cfg(test)]
mod tests {
    use super::super::adapter::score;
    use super::super::tables::{tcp, udp};
    use super::super::trace::ttcp::Disturber;
    use super::super::trace::{Arrival, sor, ttcp};
    use super::*;

    /// A capture of what arrived, of which this many bytes of each frame are kept.
    fn capture(arrivals: &[Arrival], kept: usize) -> Vec<u8> {
        let mut file = [0xa1b2_3c4d_u32, 0, 0, 0, kept as u32, 1].map(u32::to_le_bytes).concat();
        for arrival in arrivals {
            let bytes = arrival.bytes();
            let kept = bytes.len().min(kept);
            let at = arrival.at.since(Instant::ZERO);
            let numbers = [at.as_secs() as u32, at.subsec_nanos(), kept as u32, bytes.len() as u32];
            file.extend(numbers.map(u32::to_le_bytes).concat());
            file.extend(&bytes[..kept]);
        }
        file
    }

    fn studied(name: &str, file: &[u8]) -> Result<Recorded> {
        let name = format!("landfall-recorded-{name}-{}.pcap", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, file).unwrap();
        let studied = study(&path);
        fs::remove_file(&path).unwrap();
        studied
    }

    #[test]
    fn a_capture_of_simulated_frames_scores_as_they_do() {
        let mut workload = ttcp::Workload::table_1(50, Disturber::Another);
        workload.pages = 2_000;
        let disturbed = ttcp::arrivals(3, &workload).unwrap();
        let sections = sor::Workload { sections: 2, ..sor::Workload::TABLE_2 };
        let [memory, ..] = sor::arrivals(3, &sections).unwrap();
        let mut failed = 0;
        for (arrivals, prediction) in [(disturbed, tcp()), (memory, udp())] {
            let recorded = studied("same", &capture(&arrivals, 64)).unwrap();
            let [station] = &recorded.stations[..] else { panic!("{recorded:?}") };
            assert_eq!(station.frames, arrivals.len() as u64);
            assert_eq!((station.pieces, station.body, station.page), (3, 4096, 4096));
            assert_eq!(station.single, score(&arrivals, prediction).unwrap());
            assert_eq!(station.learned, score(&arrivals, Prediction::default()).unwrap());
            failed += station.single.failed();
            assert!(station.single.successful > 0, "{station:?}");
        }
        assert!(failed > 0, "a trace in which all is guessed right compares little");
    }

    #[test]
    fn a_capture_without_fragments_says_what_to_record() {
        let mut workload = ttcp::Workload::table_1(0, Disturber::Sender);
        workload.pages = 20;
        let arrivals = ttcp::arrivals(3, &workload).unwrap();
        let whole: Vec<_> = arrivals.into_iter().filter(|frame| frame.len < 100).collect();
        let why = studied("none", &capture(&whole, 64)).unwrap_err();
        assert!(why.to_string().contains("record where they arrive"), "{why}");
    }

    #[test]
    fn pieces_that_are_missing_or_repeated_make_no_packet() {
        let mut workload = ttcp::Workload::table_1(0, Disturber::Sender);
        workload.pages = 30;
        let arrivals = ttcp::arrivals(3, &workload).unwrap();
        let is_piece = |frame: &&Arrival| frame.len >= 100;
        let mut pieces: Vec<_> = arrivals.iter().filter(is_piece).copied().collect();
        assert_eq!(pieces.len(), 90);
        // Of the first the middle is missing, of the second it comes twice.
        pieces.remove(1);
        pieces.insert(4, pieces[3]);
        let recorded = studied("few", &capture(&pieces, 64)).unwrap();
        let [station] = &recorded.stations[..] else { panic!("{recorded:?}") };
        assert_eq!((station.packets, station.fragments), (28, 90));
        assert_eq!((station.pieces, station.body), (3, 4096));
        assert!(station.single.packets >= 28, "the receiver joins what is repeated: {station:?}");
    }
}
