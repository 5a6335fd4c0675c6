//! QPIP, frame by frame: two hosts whose cards run all of TCP at the cost of the LANai's stages.

use core::time::Duration;

use super::super::exhibit::{Design as Paper, Exhibit, Row};
use super::today::{self, CALL, CLOCK, LINKS, ON_THE_CABLE};
use super::{BREAKS_AT, NAMES, Outcome, columns, rows, up_to};
use crate::lanai::figures::{
    Design, Occupancy, Protocol, receive_side, round_trip, stream, transmit_side,
};
use crate::lanai::{Helps, LanaiSizes};
use crate::machine::{Sizes, Sram};

/// Headers of IPv6, and of TCP with time stamps.
const HEADERS: u32 = 40 + 32;
const CHUNK: u32 = 16 << 10;
const ETHERNET: u32 = 14;
const MTUS: [u32; 3] = [1_500, 9_000, CHUNK + HEADERS];
/// The memory of the card.
const SRAM: u32 = 2 << 20;
/// What may be under way on a connection.
const WINDOW: f64 = 262_144.0;

const ALL_HELPS: Helps = Helps { doorbells: true, checksum: true, lookup: true, arithmetic: true };
const NO_HELPS: Helps =
    Helps { doorbells: false, checksum: false, lookup: false, arithmetic: false };

/// The processor does not wait while a payload moves any more.
fn design(link: u64, helps: Helps) -> Design {
    let mut design = Design::PAPER;
    design.stages.bytes_in_1024_cycles = 0;
    design.helps = helps;
    design.clock = CLOCK;
    design.bus = today::PCIE;
    design.link = link;
    design.framing = ON_THE_CABLE - ETHERNET;
    design.way = today::ONE_WAY;
    design.host = Duration::from_nanos(2 * CALL as u64);
    design
}

/// Seconds of the card's processor.
#[derive(Clone, Copy, Debug)]
struct Occupied {
    /// For a segment with data that comes, and one that goes.
    data: [f64; 2],
    /// For an acknowledgement.
    ack: [f64; 2],
}

impl Occupied {
    fn by(design: &Design) -> Self {
        let sides = [receive_side(design), transmit_side(design)];
        let sum = |of: fn(&Occupancy) -> f64| {
            sides.each_ref().map(|rows| rows.iter().map(of).sum::<f64>() / 1e6)
        };
        Self { data: sum(|row| row.data), ack: sum(|row| row.ack) }
    }

    /// For a message that is a segment, and its acknowledgement, at the busier end.
    fn message(&self) -> f64 {
        f64::max(self.data[0] + self.ack[1], self.data[1] + self.ack[0])
    }
}

const fn payload(mtu: u32) -> u32 {
    let room = mtu - HEADERS;
    if room < CHUNK { room } else { CHUNK }
}

fn half_a_round_trip(design: &Design) -> f64 {
    round_trip(design, Protocol::Tcp).map_or(f64::NAN, |micros| micros / 2e6)
}

/// This many segments of this many bytes in a second: what that keeps busy.
fn busy(link: u64, payload: f64, packets: f64, processor: f64) -> [f64; 4] {
    let on_the_bus = today::on_the_bus(payload + f64::from(HEADERS + ETHERNET)) / 1e9;
    let framed = payload + f64::from(HEADERS + ON_THE_CABLE);
    let on_the_link = today::on_the_link(framed, link) / 1e9;
    [on_the_link, on_the_bus, on_the_bus, processor].map(|seconds| seconds * packets)
}

/// Chunks, one behind the other, frame by frame.
fn chunks(link: u64, mtu: u32) -> Outcome {
    let design = design(link, ALL_HELPS);
    let Some(rate) = stream(&design, mtu, 120).map(|stream| stream.rate * 1e6) else {
        return Outcome::NONE;
    };
    let payload = f64::from(payload(mtu));
    let packets = rate / payload;
    let [came, went] = Occupied::by(&design).data;
    Outcome {
        rate: rate * 8.0,
        packets,
        one_way: half_a_round_trip(&design),
        busy: busy(link, payload, packets, came.max(went)),
        names: NAMES,
    }
}

/// Messages so short that only their number counts.
fn messages(link: u64, payload: f64) -> Outcome {
    let design = design(link, ALL_HELPS);
    let processor = Occupied::by(&design).message();
    let packets = 1.0 / processor;
    Outcome {
        rate: packets * payload * 8.0,
        packets,
        one_way: half_a_round_trip(&design),
        busy: busy(link, payload, packets, processor),
        names: NAMES,
    }
}

fn now() -> Exhibit {
    let mut asked = MTUS.map(|mtu| (Some(mtu), format!("MTU {mtu}"))).to_vec();
    asked.push((None, "messages of 64 bytes".to_owned()));
    Exhibit {
        design: Paper::Qpip,
        name: "QPIP",
        title: "Chunks of 16 KiB over TCP in the card, with the LANai's stages and the four helps",
        columns: columns("processor, %"),
        rows: rows(&asked, |link, mtu| match mtu {
            Some(mtu) => chunks(link, *mtu),
            None => messages(link, 64.0),
        }),
        remarks: vec![
            "Frame by frame, but for the short messages: these are what the stages leave to one core, \
             each message acknowledged by itself. Unlike the prototype's, the processor does not \
             wait while a payload moves. Packets are counted as full ones, and the processor's \
             share is that of data alone: acknowledgements are the rest of it. One way is half a round trip of one byte.",
        ],
    }
}

/// How many queue pairs the card has room for beside its slots and rings.
fn queue_pairs() -> u16 {
    let fits = |entries: u16| {
        let mut sram = Sram::new(SRAM);
        let sizes = Sizes { arrivals: 64, departures: 32, ..Sizes::default() };
        let tables = LanaiSizes { entries, pointers: entries.saturating_mul(2), ..<_>::default() };
        sizes.reserve(&mut sram).is_ok() && tables.reserve(&mut sram).is_ok()
    };
    (4..15).map(|power| 1 << power).take_while(|entries| fits(*entries)).last().unwrap_or(0)
}

fn breaks() -> Exhibit {
    let [came, went] = Occupied::by(&design(LINKS[1], ALL_HELPS)).data;
    let [unhelped, _] = Occupied::by(&design(LINKS[1], NO_HELPS)).data;
    let mut all: Vec<Row> = Vec::new();
    for mtu in MTUS {
        let bits = f64::from(payload(mtu)) * 8.0;
        all.push(up_to(format!("processor that receives, MTU {mtu}"), bits / came));
        all.push(up_to(format!("processor that sends, MTU {mtu}"), bits / went));
    }
    // Headers alone are summed in these tables; a payload is summed besides.
    let sum = Design::PAPER.stages.sum_of_1024;
    let summed = f64::from(sum) / 1024.0 * 9_000.0 / CLOCK as f64;
    let bits = f64::from(payload(9_000)) * 8.0;
    all.push(up_to(
        "processor that receives without any help, MTU 9000",
        bits / (unhelped + summed),
    ));
    all.push(up_to("window of 256 KiB, a round trip of 10 µs", WINDOW * 8.0 / 10e-6));
    all.push(up_to("window of 256 KiB, a round trip of 1 ms", WINDOW * 8.0 / 1e-3));
    let pairs = queue_pairs();
    all.push(up_to(
        format!("the {pairs} queue pairs that fit into 2 MiB, a segment of 1428 on each, 1 ms"),
        f64::from(pairs) * 1428.0 * 8.0 / 1e-3,
    ));
    Exhibit {
        design: Paper::Qpip,
        name: "QPIP",
        title: "Where it breaks",
        columns: vec![BREAKS_AT],
        rows: all,
        remarks: vec![
            "TCP in the card costs thousands of cycles for each segment: one core that is 23 times \
             as fast does not keep up with links that are 50 and 200 times as fast. Only segments \
             as long as the chunks fill the slower of them. The search, the timers and the \
             estimators belong into hardware, as the paper asks.",
        ],
    }
}

pub(super) fn exhibits() -> Vec<Exhibit> {
    vec![now(), breaks()]
}
