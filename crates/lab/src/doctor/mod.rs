//! `landfall doctor`: what this machine can do, and for each missing thing
//! what to do about it. Everything is really tried, not guessed from versions.

mod memory;
mod privileges;
mod sockets;

use std::fmt;
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use crate::machine::Machine;
use crate::style;
use crate::style::Style;

/// `doctor --require` found something missing.
const REQUIRED_BUT_MISSING: u8 = 3;

const EXAMPLES: &str = "\
Examples:
  landfall doctor
  landfall doctor --json | jq '.findings[] | select(.present | not)'
  landfall doctor --require namespaces,packet    # exit code 3 if one is missing";

/// Options of `landfall doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// End with exit code 3 unless all of these are there
    #[arg(long, value_name = "FEATURE", value_delimiter = ',', value_enum)]
    require: Vec<Feature>,
}

#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    findings: Vec<Finding>,
}

/// Looks at everything, and says it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let report = Report { machine: Machine::read(), findings: examine() };
    if args.json {
        style::print_json(&report)?;
    } else {
        style::print(&describe(&report, Style::of_stdout()))?;
    }
    let lacking = |feature: &&Feature| {
        !report.findings.iter().any(|found| found.feature == **feature && found.present)
    };
    let missing: Vec<_> = args.require.iter().filter(lacking).map(Feature::to_string).collect();
    if missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("landfall: required, but missing: {}", missing.join(", "));
    Ok(ExitCode::from(REQUIRED_BUT_MISSING))
}

fn examine() -> Vec<Finding> {
    let mut findings = privileges::examine();
    findings.extend(sockets::examine_udp());
    findings.extend(sockets::examine());
    findings.extend(sockets::examine_uring());
    findings.extend(memory::examine());
    findings
}

fn describe(report: &Report, style: Style) -> String {
    let mut text = format!("{}\n\n", style.strong(report.machine.describe()));
    let width = report.findings.iter().map(|found| found.name.len()).max().unwrap_or(0);
    for found in &report.findings {
        let mark = if found.present { style.good("yes") } else { style.warn("no ") };
        text += &format!("{mark}  {:width$}  {}\n", found.name, found.detail);
        if let Some(remedy) = &found.remedy {
            text += &format!("     {:width$}  -> {remedy}\n", "");
        }
    }
    let missing = report.findings.iter().filter(|found| !found.present).count();
    text += &match missing {
        0 => "\nEverything that Landfall can use is there.\n".to_owned(),
        n => format!("\n{n} missing. What needs none of it works all the same.\n"),
    };
    text
}

/// Something that a machine may offer, by the name that `--require` and the
/// JSON use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Feature {
    /// A kernel that is new enough for everything here
    Kernel,
    /// A core for each of two threads
    TwoCores,
    /// CAP_NET_ADMIN: interfaces and forced buffer sizes
    NetAdmin,
    /// CAP_NET_RAW: packet sockets
    NetRaw,
    /// Network namespaces can be made
    Namespaces,
    /// UDP batches leave with one call (UDP_SEGMENT)
    UdpGso,
    /// UDP batches arrive with one call (UDP_GRO)
    UdpGro,
    /// Socket buffers are as large as the UDP driver asks for
    SocketBuffers,
    /// AF_PACKET sockets
    Packet,
    /// AF_PACKET with segmentation and checksum offload (PACKET_VNET_HDR)
    PacketOffload,
    /// nft, by which bigmtu keeps frames from the kernel
    Nft,
    /// TAP devices
    Tap,
    /// Raw IP sockets, for protocols with a number of their own
    RawIp,
    /// AF_XDP sockets, with the program that redirects frames to them
    Xdp,
    /// io_uring
    IoUring,
    /// Zero-copy send with io_uring (SendZc)
    SendZc,
    /// Transparent or reserved huge pages
    HugePages,
    /// Memory may be locked, as io_uring and AF_XDP need it
    LockedMemory,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("unnamed", |value| value.get_name()))
    }
}

/// What was found out about a feature.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Which.
    pub(crate) feature: Feature,
    /// What people call it.
    pub(crate) name: &'static str,
    /// Is it there?
    pub(crate) present: bool,
    /// What was seen.
    pub(crate) detail: String,
    /// What to do about it, where it is missing.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    /// It is there.
    pub(crate) fn present(feature: Feature, name: &'static str, detail: impl Into<String>) -> Self {
        Self { feature, name, present: true, detail: detail.into(), remedy: None }
    }

    /// It is not there, and this is what to do.
    pub(crate) fn missing(
        feature: Feature,
        name: &'static str,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (detail, remedy) = (detail.into(), Some(remedy.into()));
        Self { feature, name, present: false, detail, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn each_feature_is_examined_once_and_each_lack_has_a_remedy() {
        let findings = examine();
        for feature in Feature::value_variants() {
            let of_it = findings.iter().filter(|found| found.feature == *feature);
            assert_eq!(of_it.count(), 1, "{feature}");
        }
        for found in findings {
            assert!(!found.detail.is_empty(), "{found:?}");
            assert_eq!(found.present, found.remedy.is_none(), "{found:?}");
        }
    }
}
