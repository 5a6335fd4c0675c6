//! The CLAN adapter: bursts that name their address, and a content-addressable memory
//! that compares it with the tripwires. That memory is the fourth resource.

use super::super::exhibit::{Design as Paper, Exhibit};
use super::today::{self, CALL, CAM, INTERRUPT, READ, SETUP, STORE, WAY, WRITE};
use super::{BREAKS_AT, Outcome, Resource, columns, rows, up_to};
use crate::machine::Cam;

const WORD: f64 = 4.0;
/// A header names an address.
const HEADER: f64 = 8.0;
/// Words of a burst by DMA.
const BURST: f64 = 256.0 * WORD;
/// Bytes that are asked for at once where the CAM compares lines of a cache.
const LINE: f64 = 64.0;

/// How the bytes of a message come to the adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CopyMethod {
    /// A processor stores them, 64 at a time.
    Stores,
    /// The one DMA engine fetches them; each message is set up by the host, and ends with
    /// an interrupt.
    Dma,
    /// The next adapter chains messages by itself.
    Chain,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    bytes: f64,
    method: CopyMethod,
    /// Bytes that are compared at once.
    compared: f64,
}

fn outcome(link: u64, message: &Message) -> Outcome {
    let Message { bytes, method, compared } = *message;
    let burst = f64::min(bytes, if method == CopyMethod::Stores { LINE } else { BURST });
    let bursts = (bytes / burst).ceil();
    // Once for a message, and for each of its bursts.
    let (once, each, bus, read, name) = match method {
        CopyMethod::Stores => {
            let bus = today::stored_over_the_bus(burst, LINE);
            (0.0, STORE, bus, WRITE, "the processor that stores")
        }
        CopyMethod::Dma => {
            let bus = today::on_the_bus(burst);
            (INTERRUPT + CALL + SETUP, bus, bus, READ, "setting up the DMA engine")
        }
        CopyMethod::Chain => {
            let bus = today::on_the_bus(burst);
            (SETUP, bus, bus, READ, "the DMA engine")
        }
    };
    let on_the_link = today::on_the_link(burst + HEADER, link);
    let comparing = (burst / compared).ceil() * CAM;
    let stages = [
        (Resource::Dma, once + each * bursts),
        (Resource::Link, on_the_link * bursts),
        (Resource::Processor, comparing * bursts),
        (Resource::Bus, bus * bursts),
    ];
    let mut outcome = Outcome::of_stages(&stages, 0.0, bytes);
    // Of a message the bursts follow each other, at the pace of the slowest stage. The
    // interrupt after it delays the next message, not this one.
    let begin = if method == CopyMethod::Dma { once - INTERRUPT } else { once };
    let slowest = each.max(on_the_link).max(comparing).max(bus);
    let first = each + on_the_link + comparing + bus;
    let nanos = begin + first + (bursts - 1.0) * slowest + read + WAY + WRITE;
    outcome.one_way = nanos / 1e9;
    outcome.names[Resource::Dma as usize] = name;
    outcome.names[Resource::Processor as usize] = "the CAM";
    outcome
}

fn asked() -> Vec<(Message, String)> {
    let one = |bytes, method, compared, label: &str| {
        (Message { bytes, method, compared }, format!("{label} {bytes} bytes"))
    };
    vec![
        one(WORD, CopyMethod::Stores, WORD, "stores,"),
        one(1024.0, CopyMethod::Stores, WORD, "stores,"),
        one(1024.0, CopyMethod::Dma, WORD, "DMA,"),
        one(65_536.0, CopyMethod::Dma, WORD, "DMA,"),
        one(1024.0, CopyMethod::Chain, WORD, "chains,"),
        one(1024.0, CopyMethod::Chain, LINE, "chains, lines compared,"),
        one(65_536.0, CopyMethod::Chain, LINE, "chains, lines compared,"),
    ]
}

fn now() -> Exhibit {
    Exhibit {
        design: Paper::Clan,
        name: "CLAN",
        title: "Messages into the memory of another host",
        columns: columns("CAM, %"),
        rows: rows(&asked(), outcome),
        remarks: vec![
            "Computed. One way is until a program that spins sees the message. In the column of the \
             DMA engine are its set-up by the host, and the processor's stores where no engine is used.",
        ],
    }
}

fn breaks() -> Exhibit {
    let bits = |bytes: f64, nanos: f64| bytes * 8e9 / nanos;
    let tripwires = Cam::<u32, u32>::CLAN;
    let setup = |bytes: f64| INTERRUPT + CALL + SETUP + today::on_the_bus(bytes);
    Exhibit {
        design: Paper::Clan,
        name: "CLAN",
        title: "Where it breaks",
        columns: vec![BREAKS_AT],
        rows: vec![
            up_to("CAM that compares each word", bits(WORD, CAM)),
            up_to("CAM that compares each line of 64 bytes", bits(LINE, CAM)),
            up_to("stores of a processor, 64 bytes at a time", bits(LINE, STORE)),
            up_to("DMA set up for each message of 1 KiB", bits(1024.0, setup(1024.0))),
            up_to("DMA set up for each message of 64 KiB", bits(65_536.0, setup(65_536.0))),
            up_to(
                "chained DMA, messages of 1 KiB",
                bits(1024.0, SETUP + today::on_the_bus(1024.0)),
            ),
            up_to(
                format!("{tripwires} tripwires, a message of 64 bytes for each in 100 µs"),
                bits(tripwires as f64 * LINE, 1e5),
            ),
        ],
        remarks: vec![
            "A comparison for each word of 32 bits is what breaks first: it must become one for each \
             line, with the words of a line in its entry. Then it is the set-up of a message by the \
             host, with an interrupt: it leaves little of either link to messages of 1 KiB, and \
             is what the next adapter of the paper takes away. The entries bound how many \
             connections can be awaited, not how fast each of them is.",
        ],
    }
}

pub(super) fn exhibits() -> Vec<Exhibit> {
    vec![now(), breaks()]
}
