//! The commands of `landfall scsi` that are an initiator over STP: their options, and what they do.
//! Signals and the terminal are their caller's.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Subcommand;
use landfall::stp::{Endpoint, Memory, Transport, blocking, read_preshared_key};
use serde_json::{Value, json};
use sockets_compat::{Address, Carrier};

use super::Lun;
use super::sst::Initiator;
use super::sst::{BLOCK, Unit, units_of};
use crate::copy::Destination;
use crate::device::{BlockDevice, FileDevice};
use crate::program::{CommandError, Program};

const EXAMPLES: &str = "\
Examples, where `landfall scsi serve --listen stp://10.9.0.2:3260` runs at the other end:
  landfall scsi list stp://10.9.0.2:3260
  landfall scsi inquiry stp://10.9.0.2:3260 --lun 1 --json
  landfall scsi copy stp://10.9.0.2:3260 disk.img             a unit to a file, which is made
  landfall scsi copy disk.img stp://10.9.0.2:3260 --lun 1     a file to a unit
  landfall scsi bench stp://10.9.0.2:3260 --depth 16

Over iSCSI units are used by libiscsi's programs and by qemu: iscsi-ls, qemu-img.";

type Result<T> = std::result::Result<T, CommandError>;

/// What is moved at a time by a copy.
const PIECE: usize = 256 << 10;

/// The commands of an initiator.
#[derive(Debug, Subcommand)]
pub enum Initiating {
    /// The logical units of a target, over STP
    List(TargetArgs),
    /// What a logical unit says of itself, over STP
    Inquiry(UnitArgs),
    /// Copy all of a logical unit to a file, or a file to a unit, over STP
    Copy(CopyArgs),
    /// Measure reads, or writes, of a logical unit over STP
    Bench(BenchArgs),
}

/// How a target is reached.
#[derive(Clone, Debug, clap::Args)]
struct ReachArgs {
    /// The name of this initiator
    #[arg(long, value_name = "IQN", default_value = "iqn.2026-01.landfall:initiator")]
    initiator: String,
    /// A file of 32 random bytes that both ends have, readable by its owner alone [default: each
    /// end proves itself by the identity of its user]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Encrypt nothing; the other end has to do the same
    #[arg(long, conflicts_with = "key_file")]
    plaintext: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Options of `landfall scsi list`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TargetArgs {
    /// The target, as `landfall scsi serve` says it
    #[arg(value_name = "stp://ADDRESS:PORT[/udp/PORT]")]
    target: Address,
    #[command(flatten)]
    reach: ReachArgs,
}

/// Options of `landfall scsi inquiry`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct UnitArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The number of the unit
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=16_383))]
    lun: u16,
}

/// Options of `landfall scsi copy`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CopyArgs {
    /// From here: stp://ADDRESS:PORT[/udp/PORT], or a file
    from: String,
    /// To there; a file is made, or emptied before
    to: String,
    /// The number of the unit
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=16_383))]
    lun: u16,
    #[command(flatten)]
    reach: ReachArgs,
}

/// Options of `landfall scsi bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    #[command(flatten)]
    unit: UnitArgs,
    /// Bytes of a command, in blocks of 512
    #[arg(long, value_name = "BYTES", default_value_t = 4096,
        value_parser = clap::value_parser!(u32).range(512..=1 << 20))]
    block: u32,
    /// Commands under way at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,
    /// One block behind another, instead of any
    #[arg(long)]
    sequential: bool,
    /// Write instead of reading: what is in the unit is overwritten
    #[arg(long)]
    write: bool,
    /// How long it runs
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
}

impl Initiating {
    /// Does what it says.
    ///
    /// # Errors
    /// What failed, in words for the user.
    pub fn run(&self, program: &mut dyn Program) -> Result<()> {
        match self {
            Self::List(args) => args.run(program),
            Self::Inquiry(args) => args.run(program),
            Self::Copy(args) => args.run(program),
            Self::Bench(args) => args.run(program),
        }
    }
}

/// An endpoint of its own, and the connection.
struct Reached {
    initiator: Option<Initiator>,
    endpoint: blocking::Endpoint,
}

impl Reached {
    fn initiator(&self) -> &Initiator {
        self.initiator.as_ref().expect("it is there until this is dropped")
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        // Before its endpoint.
        drop(self.initiator.take());
        self.endpoint.clone().close();
    }
}

impl ReachArgs {
    fn connect(&self, target: &Address) -> Result<Reached> {
        let Address::Stp { host, port, carrier: Carrier::Udp(udp) } = *target else {
            return Err(
                format!("{target} is not reached over STP by UDP: stp://ADDRESS:PORT is").into()
            );
        };
        let any: SocketAddr =
            if host.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
        let builder = Endpoint::builder().path(Transport::udp(any));
        let builder = match &self.key_file {
            Some(file) => builder.preshared_key(read_preshared_key(file)?),
            None if self.plaintext => builder.plaintext(),
            None => builder,
        };
        let endpoint = blocking::Endpoint::from(builder.bind()?);
        let connection = endpoint.connect(SocketAddr::new(host, udp), port);
        let connection = connection.map_err(|error| format!("cannot reach {target}: {error}"))?;
        let initiator = Initiator::new(connection.as_async().clone(), &self.initiator)?;
        Ok(Reached { initiator: Some(initiator), endpoint })
    }

    fn print(&self, program: &mut dyn Program, value: &Value, text: &str) -> Result<()> {
        let json = if self.json { format!("{value:#}\n") } else { text.to_owned() };
        Ok(program.print(&json)?)
    }
}

fn lun(number: u16) -> Result<Lun> {
    Lun::new(number).ok_or_else(|| format!("no unit has the number {number}").into())
}

fn described(unit: &Unit<'_>, number: u16) -> Result<Value> {
    let about = unit.inquiry()?;
    Ok(json!({
        "lun": number, "vendor": about.vendor, "product": about.product,
        "revision": about.revision, "bytes": unit.size(), "block_bytes": BLOCK,
    }))
}

fn line(value: &Value) -> String {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let (vendor, product, revision) = (text("vendor"), text("product"), text("revision"));
    format!("unit {}: {} bytes, {vendor} {product} {revision}\n", value["lun"], value["bytes"])
}

impl TargetArgs {
    fn run(&self, program: &mut dyn Program) -> Result<()> {
        let reached = self.reach.connect(&self.target)?;
        let mut units = Vec::new();
        for number in units_of(reached.initiator())? {
            units.push(described(&Unit::open(reached.initiator(), lun(number)?)?, number)?);
        }
        let text: String = units.iter().map(line).collect();
        self.reach.print(program, &json!({ "units": units }), &text)
    }
}

impl UnitArgs {
    fn run(&self, program: &mut dyn Program) -> Result<()> {
        let reached = self.target.reach.connect(&self.target.target)?;
        let unit = Unit::open(reached.initiator(), lun(self.lun)?)?;
        let told = described(&unit, self.lun)?;
        self.target.reach.print(program, &told, &line(&told))
    }
}

impl CopyArgs {
    fn run(&self, program: &mut dyn Program) -> Result<()> {
        let started = Instant::now();
        let is_target = |text: &str| text.contains("://");
        let (target, path) = match (is_target(&self.from), is_target(&self.to)) {
            (true, false) => (&self.from, &self.to),
            (false, true) => (&self.to, &self.from),
            _ => {
                return Err(
                    "one of both is a target, stp://ADDRESS:PORT, and the other a file".into()
                );
            }
        };
        let reached = self.reach.connect(&target.parse().map_err(|error| format!("{error}"))?)?;
        let unit = Unit::open(reached.initiator(), lun(self.lun)?)?;
        let named = |error: std::io::Error| format!("{path}: {error}");
        let bytes = if target == &self.from {
            let to = Destination::open(path.as_ref(), unit.size()).map_err(named)?;
            let Destination::File(file) = to else { unreachable!("a path is a file") };
            unit.read_all(PIECE, |offset, bytes| {
                end_by_signal(program)?;
                file.write_all_at(bytes, offset).map_err(named)?;
                Ok(())
            })?;
            file.sync_data().map_err(named)?;
            unit.size()
        } else {
            let file = FileDevice::open(path.as_ref(), true).map_err(named)?;
            unit.write_all(PIECE, file.size(), |offset, bytes| {
                end_by_signal(program)?;
                file.read(offset, bytes).map_err(named)?;
                Ok(())
            })?;
            file.size()
        };
        let seconds = started.elapsed().as_secs_f64();
        let rate = bytes as f64 / seconds.max(1e-9);
        let told = json!({ "bytes": bytes, "seconds": seconds, "bytes_per_second": rate });
        let text = format!("{bytes} bytes copied in {seconds:.1} s, {:.1} MB/s\n", rate / 1e6);
        self.reach.print(program, &told, &text)
    }
}

fn end_by_signal(program: &mut dyn Program) -> Result<()> {
    if program.wait(Duration::ZERO)? { Err("ended by a signal".into()) } else { Ok(()) }
}

impl BenchArgs {
    fn run(&self, program: &mut dyn Program) -> Result<()> {
        let TargetArgs { target, reach } = &self.unit.target;
        let reached = reach.connect(target)?;
        let unit = Unit::open(reached.initiator(), lun(self.unit.lun)?)?;
        let len = u64::from(self.block) / BLOCK * BLOCK;
        let places = unit.size() / len;
        if places == 0 {
            return Err(
                format!("blocks of {len} bytes do not fit into {} bytes", unit.size()).into()
            );
        }
        let (mut under_way, mut waits) = (VecDeque::new(), Vec::new());
        let (mut nth, mut random) = (0_u64, 1_u64);
        let time = Duration::from_secs_f64(self.seconds.clamp(0.01, 3600.0));
        let started = Instant::now();
        let mut free: Vec<Memory> = Vec::new();
        loop {
            let is_over = started.elapsed() >= time;
            while !is_over && under_way.len() < self.depth.into() {
                // A generator of Knuth's.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let place = if self.sequential { nth % places } else { (random >> 33) % places };
                nth += 1;
                let memory = free.pop().unwrap_or_else(|| Memory::zeroed(len as usize));
                let pending = if self.write {
                    unit.write(place * len, memory)
                } else {
                    unit.read(place * len, memory)
                };
                under_way.push_back((Instant::now(), pending));
            }
            let Some((began, pending)) = under_way.pop_front() else { break };
            let done = pending.wait()?;
            waits.push(began.elapsed().as_nanos() as f64 / 1e3);
            free.extend((!self.write).then_some(done.memory));
            end_by_signal(program)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        waits.sort_by(f64::total_cmp);
        let at = |portion: f64| waits.get((waits.len() as f64 * portion) as usize).copied();
        let (p50, p99) = (at(0.5).unwrap_or_default(), at(0.99).unwrap_or_default());
        let commands = waits.len() as f64 / seconds;
        let rate = commands * len as f64;
        let told = json!({
            "block": len, "depth": self.depth, "commands": waits.len(), "seconds": seconds,
            "commands_per_second": commands, "bytes_per_second": rate,
            "latency_us": { "p50": p50, "p99": p99 },
        });
        let rates = format!("{commands:.0} commands/s, {:.1} MB/s", rate / 1e6);
        let text = format!("{rates}; latency {p50:.1} µs, 99 % {p99:.1} µs\n");
        reach.print(program, &told, &text)
    }
}
