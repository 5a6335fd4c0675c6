//! `landfall doctor`: what this machine can do, and for each missing thing
//! what to do about it. Everything is really tried, not guessed from versions.

mod findings;
mod memory;
mod privileges;
mod sockets;
mod udp;
mod uring;

use std::process::ExitCode;

use serde::Serialize;

use crate::machine::Machine;
use crate::style::{self, Style};
pub(crate) use findings::{Feature, Finding};

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
pub(crate) struct Args {
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
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
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
    findings.extend(udp::examine());
    findings.extend(sockets::examine());
    findings.extend(uring::examine());
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
