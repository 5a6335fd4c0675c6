//! `landfall paper qpip`: Figure 7 of the paper on QPIP, live: a file system on a network block
//! device, over the kernel's sockets and over queue pairs.
//!
//! | file | what it is |
//! | --- | --- |
//! | `figure` | one device with its file system: written, synced, unmounted, mounted and read |
//! | `programs` | the processes that it takes, and how they are ended |
//! | `accounts` | whose processor time it was |
//! | `report` | the figure as a table; what the paper says |
//!
//! What does not live here: the same figure from the model of the paper's adapter
//! ([`reproduce`](crate::reproduce)).

mod accounts;
mod figure;
mod programs;
mod report;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use landfall_testbed::{Offload, VethConfig, VethPair, privileges, with_own_mounts};
use serde::Serialize;

use crate::machine::Machine;
use crate::style::{self, Progress, Style};
use figure::{Device, Phase};

const EXAMPLES: &str = "\
Examples:
  sudo landfall paper qpip                       Figure 7: 409 MB on ext2, three times each
  sudo landfall paper qpip --file-system ext4 --rounds 5
  sudo landfall paper qpip --json | jq '.rows[] | {transport, mtu, offload, write, read}'

Two hosts are made for it, with a cable between them: namespaces that end with the program. One
serves memory as a block device (`landfall nbd serve`), the other has it as a file (`landfall nbd
mount`) with a loop device and a file system on it. The fields of --json are in docs/perf-json.md.";

/// Options of `landfall paper qpip`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file that is written and read, in megabytes (10^6 bytes)
    #[arg(long, value_name = "MB", default_value_t = 409,
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    megabytes: u32,
    /// Whose file system it is
    #[arg(long, value_enum, default_value_t = FileSystem::Ext2)]
    file_system: FileSystem,
    /// So often, in turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// A small file, once: its figures say nothing
    #[arg(long, conflicts_with_all = ["megabytes", "rounds"])]
    quick: bool,
}

/// What is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileSystem {
    /// As in the paper
    Ext2,
    /// With a journal
    Ext4,
}

impl FileSystem {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ext2 => "ext2",
            Self::Ext4 => "ext4",
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) bytes: u64,
    pub(crate) rounds: u32,
    pub(crate) file_system: FileSystem,
}

/// What carries the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Sockets,
    QueuePairs,
}

impl Transport {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sockets => "kernel sockets",
            Self::QueuePairs => "queue pairs",
        }
    }
}

/// One way to reach the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) transport: Transport,
    pub(crate) mtu: u32,
    /// Super-packets cross the cable whole; otherwise each frame of the MTU does.
    pub(crate) offload: bool,
}

/// As in the paper: sockets on Gigabit Ethernet and on Myrinet, QPIP on Myrinet; frames alone, as
/// the paper's networks had them, and then as this kernel likes them.
const SETTINGS: [Setting; 6] = [
    Setting { transport: Transport::Sockets, mtu: 1500, offload: false },
    Setting { transport: Transport::Sockets, mtu: 9000, offload: false },
    Setting { transport: Transport::QueuePairs, mtu: 9000, offload: false },
    Setting { transport: Transport::Sockets, mtu: 1500, offload: true },
    Setting { transport: Transport::Sockets, mtu: 9000, offload: true },
    Setting { transport: Transport::QueuePairs, mtu: 9000, offload: true },
];

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) file_system: &'static str,
    pub(crate) bytes: u64,
    pub(crate) rounds: u32,
    pub(crate) paper: report::Stated,
    pub(crate) rows: Vec<Row>,
}

/// What was measured of one setting.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) transport: &'static str,
    pub(crate) mtu: u32,
    pub(crate) offload: bool,
    pub(crate) write: Figures,
    pub(crate) read: Figures,
}

/// Medians over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) mb_per_s: f64,
    /// Of the client's processor time: the program that has the device, the one that uses the
    /// file system, and the kernel's own threads.
    pub(crate) mb_per_client_cpu_s: f64,
    /// Of that and the server's.
    pub(crate) mb_per_cpu_s: f64,
    /// The client's seconds of processor to the seconds that it took.
    pub(crate) client_cores: f64,
    /// Whose seconds of processor they were.
    pub(crate) cpu_s: accounts::Used,
    /// From the slowest round to the fastest, of the median.
    pub(crate) spread: f64,
    /// To kernel sockets with the same MTU and offload, round by round: the throughput.
    pub(crate) ratio: Option<f64>,
    /// The same of the megabytes per second of the client's processor.
    pub(crate) client_cpu_ratio: Option<f64>,
    /// The same of everybody's.
    pub(crate) cpu_ratio: Option<f64>,
}

/// Measures, and prints.
pub fn run(args: &Args) -> Result<ExitCode> {
    let scale = if args.quick {
        Scale { bytes: 8_000_000, rounds: 1, file_system: args.file_system }
    } else {
        let bytes = u64::from(args.megabytes) * 1_000_000;
        Scale { bytes, rounds: args.rounds, file_system: args.file_system }
    };
    let lacks = lacks(scale.file_system);
    ensure!(lacks.is_empty(), "Figure 7 cannot be measured here: {}", lacks.join("; "));
    let progress = Progress::on_stderr();
    let report = measure(scale, &progress)?;
    drop(progress);
    if args.json {
        style::print_json(&report)?;
    } else {
        style::print(&report::describe(&report, Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is missing on this machine, each with what helps.
pub(crate) fn lacks(file_system: FileSystem) -> Vec<String> {
    if !privileges::is_root() {
        return vec!["it mounts a file system, which needs root: run it with sudo".into()];
    }
    let mut lacks: Vec<String> = privileges::why_no_namespaces().into_iter().collect();
    for (path, what) in
        [("/dev/fuse", "FUSE (`modprobe fuse`)"), ("/dev/loop-control", "loop devices")]
    {
        if !std::path::Path::new(path).exists() {
            lacks.push(format!("there is no {path}: this kernel has no {what}"));
        }
    }
    let maker = figure::maker(file_system);
    for (program, package) in [("losetup", "mount"), (maker, "e2fsprogs")] {
        if !programs::is_there(program) {
            lacks.push(format!("there is no `{program}`: install {package}"));
        }
    }
    lacks
}

/// All settings in turn, round by round.
pub(crate) fn measure(scale: Scale, progress: &Progress) -> Result<Report> {
    let machine = Machine::read();
    let mut phases: Vec<Vec<[Phase; 2]>> = vec![Vec::new(); SETTINGS.len()];
    for round in 1..=scale.rounds {
        for (setting, phases) in SETTINGS.iter().zip(&mut phases) {
            let name = setting.transport.name();
            let frames = if setting.offload { "super-packets" } else { "frames" };
            let Setting { mtu, .. } = *setting;
            progress.say(&format!("round {round}: {name}, MTU {mtu}, {frames}"));
            let told = || format!("{name}, MTU {mtu}, {frames}");
            phases.push(one(*setting, scale).with_context(told)?);
        }
    }
    let rows = SETTINGS.iter().zip(&phases);
    let rows = rows
        .map(|(setting, mine)| {
            let sockets = SETTINGS.iter().zip(&phases).find(|(other, _)| {
                other.transport == Transport::Sockets
                    && (other.mtu, other.offload) == (setting.mtu, setting.offload)
            });
            let beside = sockets
                .filter(|_| setting.transport != Transport::Sockets)
                .map(|(_, phases)| phases.as_slice());
            Row {
                transport: setting.transport.name(),
                mtu: setting.mtu,
                offload: setting.offload,
                write: figures(0, (mine, beside), scale),
                read: figures(1, (mine, beside), scale),
            }
        })
        .collect();
    Ok(Report {
        machine,
        file_system: scale.file_system.name(),
        bytes: scale.bytes,
        rounds: scale.rounds,
        paper: report::STATED,
        rows,
    })
}

/// One setting, once: on a cable of its own, with mounts that nobody else sees.
fn one(setting: Setting, scale: Scale) -> Result<[Phase; 2]> {
    let pair = VethPair::new(VethConfig { mtu: setting.mtu, ..VethConfig::default() })?;
    if !setting.offload {
        // Data goes either way.
        for end in pair.ends() {
            end.set_offload(Offload::TcpSegmentation, false)?;
            end.set_offload(Offload::UdpSegmentation, false)?;
            end.set_offload(Offload::GenericReceive, true)?;
        }
    }
    with_own_mounts(|| {
        let device = Device::open(&pair, setting.transport, scale)?;
        let measured = device.measure();
        let closed = device.close();
        let phases = measured?;
        closed?;
        Ok(phases)
    })?
}

/// Medians of a phase (0: writing, 1: reading).
fn figures(
    nth: usize,
    (mine, sockets): (&[[Phase; 2]], Option<&[[Phase; 2]]>),
    scale: Scale,
) -> Figures {
    let megabytes = scale.bytes as f64 / 1e6;
    let of = |figure: fn(&Phase) -> f64| median(mine.iter().map(|round| figure(&round[nth])));
    let ratio = |figure: fn(&Phase) -> f64| {
        let pairs = mine.iter().zip(sockets?);
        Some(median(pairs.map(|(ours, theirs)| figure(&theirs[nth]) / figure(&ours[nth]))))
    };
    let seconds = mine.iter().map(|round| round[nth].seconds);
    let (least, most) = seconds
        .fold((f64::MAX, 0.0), |(least, most), it| (f64::min(least, it), f64::max(most, it)));
    Figures {
        mb_per_s: megabytes / of(|phase| phase.seconds),
        mb_per_client_cpu_s: megabytes / of(Phase::client_cpu_s),
        mb_per_cpu_s: megabytes / of(Phase::cpu_s),
        client_cores: of(|phase| phase.client_cpu_s() / phase.seconds),
        cpu_s: accounts::Used {
            program_s: of(|phase| phase.used.program_s),
            user_s: of(|phase| phase.used.user_s),
            kernel_s: of(|phase| phase.used.kernel_s),
            server_s: of(|phase| phase.used.server_s),
        },
        spread: (most - least) / of(|phase| phase.seconds),
        ratio: ratio(|phase| phase.seconds),
        client_cpu_ratio: ratio(Phase::client_cpu_s),
        cpu_ratio: ratio(Phase::cpu_s),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The address of a queue pair on a cable: not the kernel's, with the same network.
fn station(of: std::net::Ipv4Addr, host: u8) -> Result<std::net::Ipv4Addr> {
    let [a, b, c, d] = of.octets();
    if d == host {
        bail!("{of} is the kernel's address");
    }
    Ok([a, b, c, host].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_and_ratios_are_of_the_same_round() {
        let phase = |seconds, program_s| {
            let used = accounts::Used { program_s, user_s: 0.0, kernel_s: 0.0, server_s: 0.5 };
            Phase { seconds, used }
        };
        let rounds = |all: [(f64, f64); 3]| all.map(|(s, cpu)| [phase(s, cpu), phase(1.0, 1.0)]);
        let ours = rounds([(1.0, 0.5), (2.0, 0.5), (4.0, 1.5)]);
        let theirs = rounds([(3.0, 1.0), (4.0, 1.0), (4.0, 1.0)]);
        let scale = Scale { bytes: 100_000_000, rounds: 3, file_system: FileSystem::Ext2 };
        let figures = figures(0, (&ours, Some(&theirs)), scale);
        assert_eq!(figures.mb_per_s, 50.0);
        assert_eq!(figures.mb_per_client_cpu_s, 200.0);
        assert_eq!(figures.mb_per_cpu_s, 100.0);
        assert_eq!(figures.spread, 1.5);
        assert_eq!((figures.ratio, figures.client_cpu_ratio), (Some(2.0), Some(2.0)));
        assert_eq!(figures.cpu_ratio, Some(1.5));
    }

    #[test]
    fn a_station_has_an_address_beside_the_kernel_s() {
        assert_eq!(station([10, 77, 1, 2].into(), 4).unwrap().octets(), [10, 77, 1, 4]);
        assert!(station([10, 77, 1, 4].into(), 4).is_err());
    }
}
