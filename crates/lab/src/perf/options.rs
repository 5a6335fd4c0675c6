//! What to measure and how: the options that `local` and `client` share.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use landfall_testbed::rivals::Workload;
use serde::Serialize;

use super::chosen::Chosen;

/// The longest message that may be asked for, in bytes: both sides keep several.
const LONGEST_MESSAGE: u64 = 8 << 20;
/// What `--sweep` stands for.
const SWEEP: [usize; 8] = [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The largest share of units that may be lost: beyond, little arrives in the time of a run.
const MOST_LOSS: f64 = 0.5;

/// The protocols that there are so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// Shared memory with tripwires
    Clan,
    /// Speculative defragmentation, beside the kernel's own
    Defrag,
    /// A network block device: reads of memory at a server
    Nbd,
    /// Queue pairs on TCP
    Qpip,
    /// The Scheduled Transfer Protocol
    Stp,
    /// Kernel TCP
    Tcp,
    /// Kernel UDP with segmentation offload and GRO
    Udp,
    /// Kernel Unix sockets
    Unix,
}

/// What happens to the bytes at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Task {
    /// From memory into memory
    Plain,
    /// From a file by sendfile
    Sendfile,
    /// The receiver throws the bytes away (`MSG_TRUNC`)
    Trunc,
    /// Both
    SendfileTrunc,
    /// The receiver reads every byte
    Touch,
    /// All of these
    All,
}

/// What to measure, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// What to measure; everything if not given
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    pub(crate) protocol: Vec<Protocol>,
    /// How often each candidate runs; medians are shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    /// How long each run takes
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    pub(crate) seconds: Duration,
    /// What is handed over at once, instead of what is usual for each transport: 64, 4K, 1M
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = parse_size)]
    message: Vec<usize>,
    /// Messages of 64 bytes to 1 MiB
    #[arg(long, conflicts_with = "message")]
    sweep: bool,
    /// This many connections at a time, one thread at each end serving all
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// This share of our units is lost on purpose: 0.01 is one of a hundred
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = parse_share)]
    loss: f64,
    /// What happens to the bytes, beside plain copies
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_enum)]
    workload: Vec<Task>,
    /// CPU from outside, too: what a thread of the lowest priority gets of each core
    #[arg(long)]
    pub(crate) idle_meter: bool,
    /// A plot of the throughput: over the message length, or a bar for each row
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    pub(crate) fn wants(&self, protocol: Protocol) -> bool {
        self.protocol.is_empty() || self.protocol.contains(&protocol)
    }

    /// What was asked for, once for each message length; nothing if it was everything.
    pub(crate) fn chosen(&self) -> Vec<Chosen> {
        let mut lengths: Vec<Option<usize>> = match (self.sweep, self.message.as_slice()) {
            (true, _) => SWEEP.into_iter().map(Some).collect(),
            (false, []) => vec![None],
            (false, given) => given.iter().copied().map(Some).collect(),
        };
        let mut seen = Vec::new();
        lengths.retain(|one| {
            let is_new = !seen.contains(one);
            seen.push(*one);
            is_new
        });
        let workloads = self.workloads();
        let everything = Chosen::usual();
        let one = Chosen {
            connections: self.connections,
            loss: self.loss,
            workloads,
            ..everything.clone()
        };
        let all = lengths.into_iter().map(|message| Chosen { message, ..one.clone() });
        let all: Vec<Chosen> = all.collect();
        if all == [everything] { Vec::new() } else { all }
    }

    /// What is usual for each transport, and then messages of all lengths.
    pub(crate) fn usual_and_sweep() -> Vec<Chosen> {
        let of = |message| Chosen { message, ..Chosen::usual() };
        [None].into_iter().chain(SWEEP.map(Some)).map(of).collect()
    }

    fn workloads(&self) -> Vec<Workload> {
        let named = [
            (Task::Plain, Workload::Plain),
            (Task::Trunc, Workload::Trunc),
            (Task::Sendfile, Workload::Sendfile),
            (Task::SendfileTrunc, Workload::SendfileTrunc),
            (Task::Touch, Workload::Touch),
        ];
        let has = |task| self.workload.contains(&task) || self.workload.contains(&Task::All);
        named.into_iter().filter(|(task, _)| has(*task)).map(|(_, workload)| workload).collect()
    }
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if !(0.01..=600.0).contains(&seconds) {
        return Err("0.01 to 600 seconds are possible".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    if !(0.0..=MOST_LOSS).contains(&share) {
        return Err(format!("a share from 0 to {MOST_LOSS} is possible: 0.01 is one of a hundred"));
    }
    Ok(share)
}

/// Bytes, with a `K` or `M` behind for 2^10 or 2^20 of them.
fn parse_size(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is no length: 64, 4K and 1M would be");
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = count.checked_mul(unit).filter(|bytes| (1..=LONGEST_MESSAGE).contains(bytes));
    let bytes = bytes.ok_or_else(|| format!("1 to {LONGEST_MESSAGE} bytes are possible"))?;
    usize::try_from(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct LogLine {
        #[command(flatten)]
        options: Options,
    }

    fn chosen(arguments: &[&str]) -> Vec<Chosen> {
        let line = ["perf"].iter().chain(arguments);
        LogLine::try_parse_from(line).unwrap().options.chosen()
    }

    #[test]
    fn lengths_have_units() {
        assert_eq!(parse_size("64"), Ok(64));
        assert_eq!(parse_size("4K"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        for bad in ["", "K", "-1", "1.5K", "4X", "0", "9M", "99999999999999999999M", "é4"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_are_shares() {
        assert_eq!(parse_share("0.01"), Ok(0.01));
        for bad in ["1", "-0.1", "NaN", "much", "inf"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_chosen_is_everything_and_each_length_counts_once() {
        assert_eq!(chosen(&[]), []);
        assert_eq!(chosen(&["--rounds", "3"]), []);
        let lengths = |chosen: Vec<Chosen>| chosen.into_iter().map(|it| it.message);
        let given = chosen(&["--message", "64,4K,64"]);
        assert_eq!(lengths(given).collect::<Vec<_>>(), [Some(64), Some(4096)]);
        assert_eq!(chosen(&["--sweep"]).len(), SWEEP.len());
        let with_loss = chosen(&["--loss", "0.02", "--connections", "3"]);
        assert_eq!((with_loss[0].loss, with_loss[0].connections), (0.02, 3));
    }

    #[test]
    fn all_workloads_are_five() {
        assert_eq!(chosen(&["--workload", "all"])[0].workloads.len(), 5);
        assert_eq!(chosen(&["--workload", "touch"])[0].workloads, [Workload::Touch]);
    }
}
