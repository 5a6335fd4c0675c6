//! What is printed when a session is over.

use std::time::Duration;

use landfall::stp::PathStats;
use landfall::stp::blocking::{Connection, Endpoint};
use serde::Serialize;

use super::outcome::{Outcome, Refused};
use crate::style;

/// The summary of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    /// `send` or `receive`.
    command: &'static str,
    /// Everything is in place.
    ok: bool,
    /// Why it ended early.
    error: Option<&'a str>,
    /// Files that crossed the network, wholly or the rest of them; BLAKE3 was equal.
    files: u64,
    /// Bytes of them that crossed the network.
    bytes_moved: u64,
    /// Files whose start was there from an earlier time.
    files_resumed: u64,
    /// Files that were there already, and are the same.
    files_same: u64,
    /// Bytes that did not have to cross the network.
    bytes_there: u64,
    folders: u64,
    links: u64,
    /// What is not in place; the first thousand of them.
    refused: &'a [Refused],
    refusals: u64,
    /// Ways between the two sides.
    ways: usize,
    /// Packets, out and in, over each local address.
    packets_by_path: &'a [u64],
    seconds: f64,
    /// Of what crossed the network.
    bytes_per_second: f64,
}

/// A session that is over.
pub(crate) struct Report<'a> {
    pub(crate) command: &'static str,
    pub(crate) outcome: &'a Outcome,
    pub(crate) error: Option<&'a str>,
    pub(crate) elapsed: Duration,
    pub(crate) ways: &'a Ways,
}

/// The ways between the two sides, when a session is over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    pub(crate) count: usize,
    /// Packets, out and in, over each local address.
    pub(crate) packets: Vec<u64>,
}

impl Ways {
    pub(crate) fn of(endpoint: &Endpoint, connection: &Connection) -> Self {
        let packets = |path: PathStats| path.counters.units_sent + path.counters.units_received;
        let packets = endpoint.stats().paths.into_iter().map(packets).collect();
        Self { count: connection.links().len().max(1), packets }
    }
}

impl Report<'_> {
    pub(crate) const fn is_ok(&self) -> bool {
        self.error.is_none() && self.outcome.refusals == 0
    }

    /// On stdout, for programs.
    pub(crate) fn print_json(&self) -> anyhow::Result<()> {
        style::print_json(&self.summary())
    }

    fn summary(&self) -> Summary<'_> {
        let Outcome { files, bytes_moved, resumed, same, bytes_there, folders, links, .. } =
            *self.outcome;
        let seconds = self.elapsed.as_secs_f64();
        Summary {
            command: self.command,
            ok: self.is_ok(),
            error: self.error,
            files,
            bytes_moved,
            files_resumed: resumed,
            files_same: same,
            bytes_there,
            folders,
            links,
            refused: &self.outcome.refused,
            refusals: self.outcome.refusals,
            ways: self.ways.count,
            packets_by_path: &self.ways.packets,
            seconds,
            bytes_per_second: bytes_moved as f64 / seconds.max(1e-9),
        }
    }

    /// On stderr, for people.
    pub(crate) fn say(&self, is_quiet: bool) {
        /// More is in `--json`.
        const SHOWN: usize = 20;
        for Refused { path, why } in self.outcome.refused.iter().take(SHOWN) {
            eprintln!("not {}: {path}: {why}", self.done());
        }
        let more = self.outcome.refusals.saturating_sub(SHOWN as u64);
        if more > 0 {
            eprintln!("not {}: {more} more (--json lists them)", self.done());
        }
        if !is_quiet {
            eprintln!("{}", self.sentence());
        }
    }

    fn done(&self) -> &'static str {
        if self.command == "send" { "sent" } else { "received" }
    }

    fn sentence(&self) -> String {
        let outcome = self.outcome;
        let seconds = self.elapsed.as_secs_f64();
        let rate = style::bytes((outcome.bytes_moved as f64 / seconds.max(1e-3)) as u64);
        let mut text = format!(
            "{} {} ({}) in {seconds:.2} s, {rate}/s; BLAKE3 equal for each",
            self.done(),
            counted(outcome.files, "file"),
            style::bytes(outcome.bytes_moved)
        );
        if self.ways.count > 1 {
            text += &format!("; over {} ways", self.ways.count);
        }
        if outcome.resumed > 0 {
            text += &format!("; {} resumed", counted(outcome.resumed, "file"));
        }
        if outcome.same > 0 {
            text += &format!("; {} there already", counted(outcome.same, "file"));
        }
        if outcome.bytes_there > 0 {
            text += &format!(" ({} not sent again)", style::bytes(outcome.bytes_there));
        }
        if outcome.folders + outcome.links > 0 {
            let (folders, links) =
                (counted(outcome.folders, "folder"), counted(outcome.links, "link"));
            text += &format!("; {folders}, {links}");
        }
        text
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: Ways = Ways { count: 1, packets: Vec::new() };

    fn report(outcome: &Outcome) -> Report<'_> {
        let elapsed = Duration::from_secs(1);
        Report { command: "send", outcome, error: None, elapsed, ways: &ONE }
    }

    #[test]
    fn the_sentence_says_what_matters_and_nothing_else() {
        let mut outcome = Outcome { files: 1, bytes_moved: 1 << 30, ..Outcome::default() };
        assert_eq!(
            report(&outcome).sentence(),
            "sent 1 file (1 GiB) in 1.00 s, 1 GiB/s; BLAKE3 equal for each"
        );
        outcome.same = 2;
        outcome.bytes_there = 1024;
        let text = report(&outcome).sentence();
        assert!(text.ends_with("; 2 files there already (1 KiB not sent again)"), "{text}");
        assert!(report(&outcome).is_ok());
        outcome.refuse("x", "no");
        assert!(!report(&outcome).is_ok());
    }
}
