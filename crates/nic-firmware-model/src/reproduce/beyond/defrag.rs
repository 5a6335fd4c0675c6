//! Speculative defragmentation: pages of 4096 bytes in three frames, behind descriptors
//! that were loaded before. The adapter has no processor; the host's is the fourth
//! resource.

use super::super::exhibit::{Design as Paper, Exhibit};
use super::today::{self, COPY, DRIVER, INTERRUPT, ON_THE_CABLE, READ, REMAP, SETUP, WAY, WRITE};
use super::{BREAKS_AT, Outcome, Resource, columns, rows, up_to};

const PAGE: f64 = 4096.0;
/// 1480, 1480 and 1136 bytes.
const FRAGMENTS: f64 = 3.0;
/// Headers of IP, in each frame.
const HEADERS: f64 = 20.0;
/// The pages of a burst.
const BURST: f64 = 64.0;
/// A chip of this kind keeps so much between the wire and its descriptors.
const FIFO: f64 = 65_536.0;

/// What the host does for a page, beside its frames.
#[derive(Clone, Copy, Debug)]
struct Receiver {
    /// Pages that one interrupt stands for.
    burst: f64,
    remaps: bool,
    /// Every guess is wrong.
    misses: bool,
}

impl Receiver {
    /// Nanoseconds of the host's processor for a page.
    fn spent(&self) -> f64 {
        let copy = if self.misses { COPY * PAGE } else { 0.0 };
        let remap = if self.remaps { REMAP } else { 0.0 };
        FRAGMENTS * DRIVER + INTERRUPT / self.burst + copy + remap
    }
}

/// What is on the link for a page, and what crosses the bus.
const ON_THE_LINK: f64 = PAGE + FRAGMENTS * (HEADERS + ON_THE_CABLE as f64);
const ON_THE_BUS: f64 = PAGE + FRAGMENTS * (HEADERS + 14.0);

fn outcome(link: u64, receiver: &Receiver) -> Outcome {
    let bus = today::on_the_bus(ON_THE_BUS);
    // Two descriptors for each fragment.
    let setup = 2.0 * FRAGMENTS * SETUP;
    let stages = [
        (Resource::Link, today::on_the_link(ON_THE_LINK, link)),
        (Resource::Dma, setup + bus),
        (Resource::Processor, receiver.spent()),
    ];
    let delay = READ + WAY + WRITE + INTERRUPT;
    let mut outcome = Outcome::of_stages(&stages, delay, PAGE);
    outcome.busy[Resource::Bus as usize] = outcome.packets * bus / 1e9;
    outcome.packets *= FRAGMENTS;
    outcome.names[Resource::Processor as usize] = "the host";
    outcome
}

const KINDS: [(Receiver, &str); 4] = [
    (
        Receiver { burst: 1.0, remaps: false, misses: false },
        "fast buffers, an interrupt for each page",
    ),
    (Receiver { burst: BURST, remaps: false, misses: false }, "fast buffers, for 64 pages"),
    (Receiver { burst: BURST, remaps: true, misses: false }, "page remapping, for 64 pages"),
    (Receiver { burst: BURST, remaps: false, misses: true }, "every guess missed, for 64 pages"),
];

fn now() -> Exhibit {
    let asked = KINDS.map(|(receiver, label)| (receiver, label.to_owned()));
    Exhibit {
        design: Paper::Defrag,
        name: "Speculative defragmentation",
        title: "Pages in three frames behind the Hamachi's descriptors",
        columns: columns("host, %"),
        rows: rows(&asked, outcome),
        remarks: vec![
            "Computed: each page is on the link, behind six descriptors, and with one core of the \
             host. One way is that of a page, until the host knows.",
        ],
    }
}

fn breaks() -> Exhibit {
    let bits = |bytes: f64, nanos: f64| bytes * 8e9 / nanos;
    let mut all: Vec<_> = KINDS
        .iter()
        .map(|(receiver, label)| up_to(format!("host, {label}"), bits(PAGE, receiver.spent())))
        .collect();
    let setup = 2.0 * FRAGMENTS * SETUP + today::on_the_bus(ON_THE_BUS);
    all.push(up_to("DMA, six descriptors for a page", bits(PAGE, setup)));
    // The driver looks at all frames of the list before it loads the next.
    let change = |pages: f64| INTERRUPT + pages * FRAGMENTS * DRIVER;
    for pages in [1.0, 16.0, BURST] {
        all.push(up_to(
            format!("FIFO of 64 KiB while a list is settled, pages in it: {pages}"),
            bits(FIFO, change(pages)),
        ));
    }
    Exhibit {
        design: Paper::Defrag,
        name: "Speculative defragmentation",
        title: "Where it breaks",
        columns: vec![BREAKS_AT],
        rows: all,
        remarks: vec![
            "The host breaks first: it must look at each frame, and is interrupted at the end of a \
             list. Short lists cost interrupts; long ones leave the wire to the chip's FIFO while \
             the driver looks, since between two lists nothing may land. A change of the page \
             table, or the copy after a wrong guess, is more than all else that is done for a page. \
             The adapter's own bound are six descriptors for each page.",
        ],
    }
}

pub(super) fn exhibits() -> Vec<Exhibit> {
    vec![now(), breaks()]
}
