//! `landfall nbd copy`: everything of one device to another.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use landfall_storage::client::{Client, Pending};
use landfall_storage::device::{BlockDevice, FileDevice};
use landfall_storage::{Extent, Features};
use serde::Serialize;

use super::target::{ConnectArgs, Target};
use crate::style;
use crate::transfer::meter::{Meter, Tally};

const EXAMPLES: &str = "\
Examples:
  landfall nbd copy nbd://host/disk disk.img        a device to a file, which is made
  landfall nbd copy disk.img nbd://host/disk        a file to a device
  landfall nbd copy nbd://a/disk nbd://b/disk       from one server to another

Holes are not read, and stay holes. When it ends all is on the medium at the other end.";

/// Options of `landfall nbd copy`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// From here: nbd://HOST:PORT/NAME, nbds://HOST/NAME, nbd+unix:///NAME?socket=PATH, or a
    /// file
    #[arg(value_parser = Target::parse)]
    from: Target,
    /// To there; a file is made, or emptied before
    #[arg(value_parser = Target::parse)]
    to: Target,
    /// Requests under way at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    #[command(flatten)]
    connect: ConnectArgs,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
    /// One JSON object at the end
    #[arg(long)]
    json: bool,
}

/// What is moved at a time.
const PIECE: u64 = 256 << 10;
/// What is asked for the status of at a time.
const STATUS: u64 = 1 << 30;

#[derive(Debug, Serialize)]
struct Summary {
    bytes: u64,
    moved: u64,
    seconds: f64,
    bytes_per_second: f64,
}

/// Copies.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let from = Source::open(&args.from, &args.connect)?;
    let size = from.size();
    let to = Sink::open(&args.to, &args.connect, size)?;
    let tally = Tally::default();
    tally.total_bytes.store(size, Ordering::Relaxed);
    let meter = Meter::new(args.quiet || args.json);
    let depth = usize::from(args.depth);
    let mut copy =
        Copy { from, to, tally, meter, depth, reading: VecDeque::new(), writing: VecDeque::new() };
    copy.all(size)?;
    let seconds = copy.meter.elapsed().as_secs_f64();
    let moved = copy.tally.moved.load(Ordering::Relaxed);
    drop(copy);
    let bytes_per_second = size as f64 / seconds.max(1e-9);
    let summary = Summary { bytes: size, moved, seconds, bytes_per_second };
    if args.json {
        style::print_json(&summary)?;
    } else if !args.quiet {
        style::print(&format!(
            "{} copied in {seconds:.1} s, {}/s; {} were data\n",
            style::bytes(size),
            style::bytes(bytes_per_second as u64),
            style::bytes(moved),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

enum Source {
    Export(Client),
    File(FileDevice),
}

impl Source {
    fn open(target: &Target, how: &ConnectArgs) -> Result<Self> {
        match target {
            Target::File(path) => {
                let device = FileDevice::open(path, true);
                let cannot = || format!("cannot read {}", path.display());
                Ok(Self::File(device.with_context(cannot)?))
            }
            other => other.connect(how).map(Self::Export).context("cannot read from there"),
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Export(client) => client.export().size,
            Self::File(device) => device.size(),
        }
    }

    /// What is there from an offset on.
    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>> {
        match self {
            Self::Export(client) if client.has_status() => {
                Ok(client.status(offset, length.min(STATUS)).wait()?)
            }
            Self::Export(_) => Ok(vec![Extent::data(length)]),
            Self::File(device) => Ok(device.extents(offset, length, 1024)?),
        }
    }
}

enum Sink {
    Export(Client),
    File(File),
}

impl Sink {
    fn open(target: &Target, how: &ConnectArgs, size: u64) -> Result<Self> {
        if let Target::File(path) = target {
            return Self::file(path, size)
                .with_context(|| format!("cannot write {}", path.display()));
        }
        let client = target.connect(how).context("cannot write there")?;
        let export = client.export();
        if export.features.has(Features::READ_ONLY) {
            bail!("the export `{}` is read-only", export.name);
        }
        if export.size < size {
            let (has, needs) = (style::bytes(export.size), style::bytes(size));
            bail!("the export `{}` is too small: it has {has} of {needs}", export.name);
        }
        Ok(Self::Export(client))
    }

    /// A file of this size with nothing in it; a block device stays as it is.
    fn file(path: &Path, size: u64) -> Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if file.metadata()?.is_file() {
            file.set_len(0)?;
            file.set_len(size)?;
        }
        Ok(Self::File(file))
    }
}

/// A read that is under way, or over at once.
enum Reading {
    Pending(Pending<Vec<u8>>),
    Ready(Vec<u8>),
}

struct Copy {
    from: Source,
    to: Sink,
    tally: Tally,
    meter: Meter,
    depth: usize,
    reading: VecDeque<(u64, Reading)>,
    writing: VecDeque<Pending<Vec<u8>>>,
}

impl Copy {
    fn all(&mut self, size: u64) -> Result<()> {
        let mut at = 0;
        while at < size {
            for extent in self.from.extents(at, size - at)? {
                if extent.is_zero {
                    self.zeroes(at, extent.len)?;
                } else {
                    self.data(at, extent.len)?;
                }
                at += extent.len;
            }
        }
        while !self.reading.is_empty() {
            self.move_one()?;
        }
        while let Some(write) = self.writing.pop_front() {
            write.wait().context("writing")?;
        }
        match &self.to {
            Sink::Export(client) if client.export().features.has(Features::FLUSH) => {
                client.flush().wait().context("flushing")?;
            }
            Sink::Export(_) => {}
            Sink::File(file) => file.sync_all()?,
        }
        Ok(())
    }

    fn data(&mut self, offset: u64, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            // Pieces end where others begin, whatever extents there are.
            let at = offset + done;
            let piece = (PIECE - at % PIECE).min(len - done);
            while self.reading.len() >= self.depth {
                self.move_one()?;
            }
            let buffer = vec![0; piece as usize];
            let reading = match &self.from {
                Source::Export(client) => Reading::Pending(client.read(at, buffer)),
                Source::File(device) => {
                    let mut buffer = buffer;
                    device.read(at, &mut buffer)?;
                    Reading::Ready(buffer)
                }
            };
            self.reading.push_back((at, reading));
            done += piece;
        }
        Ok(())
    }

    /// Writes what was asked for first.
    fn move_one(&mut self) -> Result<()> {
        let Some((offset, reading)) = self.reading.pop_front() else { return Ok(()) };
        let data = match reading {
            Reading::Pending(pending) => pending.wait().context("reading")?,
            Reading::Ready(data) => data,
        };
        let len = data.len() as u64;
        match &self.to {
            Sink::Export(client) => {
                while self.writing.len() >= self.depth {
                    let first = self.writing.pop_front().expect("there is one");
                    first.wait().context("writing")?;
                }
                self.writing.push_back(client.write(offset, data));
            }
            Sink::File(file) => file.write_all_at(&data, offset).context("writing")?,
        }
        self.tally.add_moved(len);
        self.meter.show(&self.tally);
        Ok(())
    }

    fn zeroes(&mut self, offset: u64, len: u64) -> Result<()> {
        match &self.to {
            // A file was made empty.
            Sink::File(file) if file.metadata()?.is_file() => {}
            Sink::Export(client) if client.export().features.has(Features::WRITE_ZEROES) => {
                let mut done = 0;
                while done < len {
                    let piece = (len - done).min(STATUS);
                    client.write_zeroes(offset + done, piece, false).wait().context("writing")?;
                    done += piece;
                }
            }
            _ => return self.data(offset, len),
        }
        self.tally.bytes.fetch_add(len, Ordering::Relaxed);
        self.meter.show(&self.tally);
        Ok(())
    }
}
