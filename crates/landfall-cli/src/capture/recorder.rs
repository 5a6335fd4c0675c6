//! Frames out of the kernel's ring into a file, on a thread of its own.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use landfall_placement::Instant;
use landfall_simnet::capture::{self, Direction, Packet};
use landfall_transport::driver::Interest;
use landfall_transport::memory::Regions;
use landfall_transport::packet::Filter;
use landfall_transport::ring::{ReceivedFrame, Ring, RingConfig};
use landfall_transport::wait::until_ready;
use serde::Serialize;

use super::ours::CaptureFilter;

/// How long it waits before it looks whether it shall end.
const TICK: Duration = Duration::from_millis(10);
/// The kernel hands the last frames over within so long, and more.
const LAST_FRAMES: Duration = Duration::from_millis(30);
const ETHERNET: u16 = 1;

/// What was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    /// In the file.
    pub(super) frames: u64,
    /// The length of the file.
    pub(super) file_bytes: u64,
    /// They would have made the file longer than it may be.
    pub(super) not_written: u64,
    /// They came faster than they were written.
    pub(super) lost: u64,
}

/// A recording under way.
pub(super) struct Recorder {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Summary>>,
}

impl Recorder {
    /// Begins to record interfaces of the namespace that this thread is in.
    pub(super) fn start(
        out: &Path,
        interfaces: &[String],
        snap: u32,
        most: u64,
        ours: CaptureFilter,
    ) -> Result<Self> {
        let regions = Regions::new(interfaces.len() as u32);
        let open = |name: &String| {
            let config = RingConfig::new(name.as_str(), Filter::any()).overhearing(snap);
            let ring = Ring::open(&config, &regions);
            let ring = ring.with_context(|| format!("cannot record {name}"))?;
            // What goes over the loopback leaves and comes in: once is enough.
            Ok(RecordedInterface { ring, hears_leaving: name != "lo" })
        };
        let ears: Vec<RecordedInterface> = interfaces.iter().map(open).collect::<Result<_>>()?;
        let file = File::create(out);
        let file = file.with_context(|| format!("cannot write {}", out.display()))?;
        let mut sheet = Sheet {
            file: BufWriter::new(file),
            block: Vec::new(),
            most,
            count: Summary::default(),
        };
        capture::section_header(&mut sheet.block, "landfall");
        for name in interfaces {
            capture::interface(&mut sheet.block, ETHERNET, snap, name);
        }
        sheet.flush()?;
        let over = Arc::new(AtomicBool::new(false));
        let shall_end = Arc::clone(&over);
        let thread = thread::Builder::new().name("landfall-capture".into());
        let thread = thread.spawn(move || record(ears, sheet, &ours, &shall_end))?;
        Ok(Self { over, thread })
    }

    /// Writes what came until now, and ends.
    pub(super) fn finish(self) -> Result<Summary> {
        thread::sleep(LAST_FRAMES);
        self.over.store(true, Ordering::Release);
        match self.thread.join() {
            Ok(summary) => summary.context("the capture is not complete"),
            Err(_) => bail!("the recording thread panicked"),
        }
    }
}

/// An interface that is recorded.
struct RecordedInterface {
    ring: Ring,
    hears_leaving: bool,
}

fn record(
    mut ears: Vec<RecordedInterface>,
    mut sheet: Sheet,
    ours: &CaptureFilter,
    over: &AtomicBool,
) -> Result<Summary> {
    let interests: Vec<Interest> = ears.iter().map(|ear| ear.ring.interest()).collect();
    loop {
        // What came before that is written below.
        let is_over = over.load(Ordering::Acquire);
        let mut any = false;
        for (number, ear) in (0..).zip(&mut ears) {
            while let Some(block) = ear.ring.next_block() {
                any = true;
                for heard in block.heard() {
                    if (ear.hears_leaving || !heard.is_leaving) && ours.is_ours(heard.bytes) {
                        sheet.write(number, &heard)?;
                    }
                }
            }
        }
        match (any, is_over) {
            (false, true) => break,
            (false, false) => drop(until_ready(&interests, TICK)?),
            (true, _) => {}
        }
    }
    for ear in &mut ears {
        sheet.count.lost += ear.ring.statistics().map_or(0, |statistics| statistics.drops);
    }
    sheet.file.flush()?;
    Ok(sheet.count)
}

/// The file.
struct Sheet {
    file: BufWriter<File>,
    /// The block that is being made, kept for its room.
    block: Vec<u8>,
    most: u64,
    count: Summary,
}

impl Sheet {
    fn write(&mut self, interface: u32, heard: &ReceivedFrame<'_>) -> Result<()> {
        let nanos = u64::try_from(heard.at.as_nanos()).unwrap_or(u64::MAX);
        let packet = Packet {
            interface,
            at: Instant::from_nanos(nanos),
            direction: if heard.is_leaving { Direction::Outbound } else { Direction::Inbound },
            len: heard.len as usize,
            comment: "",
        };
        capture::packet(&mut self.block, &packet, &[], heard.bytes);
        if self.count.file_bytes + self.block.len() as u64 > self.most {
            self.block.clear();
            self.count.not_written += 1;
            return Ok(());
        }
        self.count.frames += 1;
        self.flush()
    }

    fn flush(&mut self) -> Result<()> {
        self.count.file_bytes += self.block.len() as u64;
        self.file.write_all(&self.block).context("is the disk full?")?;
        self.block.clear();
        Ok(())
    }
}
