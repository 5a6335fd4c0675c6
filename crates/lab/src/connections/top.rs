//! `landfall top`: the connections with the most bytes first, again and again.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use landfall_socket_status::ProcessName;
use landfall_socket_status::read::{Reader, View};
use landfall_transport::signals::Endings;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};

use super::metrics::Totals;
use super::rows::Report;
use super::{Selection, complain, look, reader};
use crate::exporter::{Exporter, MetricsAddress};
use crate::style;

const EXAMPLES: &str = "\
Examples:
  landfall top                              ends with q or Ctrl-C
  landfall top --once --program nginx       one table, with rates over a second
  sudo landfall top --metrics 127.0.0.1:9184    for Prometheus, without a table";

/// How often is looked whether to end, and whether somebody asks for metrics.
const TICK: Duration = Duration::from_millis(50);

/// Options of `landfall top`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// One table, and end
    #[arg(long)]
    once: bool,
    /// JSON instead of a table; with `--once`
    #[arg(long, requires = "once")]
    json: bool,
    /// Answer Prometheus at this address (ADDRESS:PORT or unix:PATH) instead of showing a table
    #[arg(long, value_name = "ADDRESS", conflicts_with = "once")]
    metrics: Option<MetricsAddress>,
}

/// Bytes that were counted before, and when.
#[derive(Debug, Default)]
pub(super) struct Rates {
    before: HashMap<EndKey, Bytes>,
    looked_at: Option<Instant>,
}

/// One end of a connection, among all that ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct EndKey {
    user: u32,
    process: ProcessName,
    serial: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Bytes {
    /// What came since; nothing where another counts now, as when TCP became memory.
    const fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            received: self.received.saturating_sub(before.received),
        }
    }
}

impl Rates {
    /// Compares with the look before: what each end has sent and received since, in the order of
    /// the view.
    pub(super) fn update(&mut self, view: &View, now: Instant) -> Vec<Option<Bytes>> {
        let is_first = self.looked_at.is_none();
        self.looked_at = Some(now);
        let mut counted = HashMap::new();
        let mut grown = Vec::new();
        for (process, one) in view.connections() {
            let key =
                EndKey { user: process.user, process: process.name, serial: one.record.serial };
            let Some((sent, received)) = one.sent.zip(one.received) else {
                grown.push(None);
                continue;
            };
            let bytes = Bytes { sent, received };
            counted.insert(key, bytes);
            grown.push(match self.before.get(&key) {
                Some(before) => Some(bytes.since(*before)),
                // It has begun since.
                None => (!is_first).then_some(bytes),
            });
        }
        self.before = counted;
        grown
    }
}

/// Shows them until it is told to end.
pub fn run(args: &Args) -> Result<ExitCode> {
    let endings = Endings::catch().context("cannot wait for signals")?;
    let reader = reader()?;
    match args.metrics.clone() {
        Some(address) => serve(args, &reader, &endings, address)?,
        None => show(args, &reader, &endings)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Args, reader: &Reader, endings: &Endings) -> Result<()> {
    let keys = (!args.once).then(Keys::listen).flatten();
    let screen = !args.once && io::stdout().is_terminal();
    let mut rates = Rates::default();
    let (mut looked_at, first) = (Instant::now(), look(reader)?);
    rates.update(&first, looked_at);
    if !args.once {
        draw(&Report::of(&first, &args.selection), &args.selection, screen)?;
    }
    loop {
        if wait(args.interval, endings, keys.as_ref())? {
            return Ok(());
        }
        let (now, view) = (Instant::now(), look(reader)?);
        let seconds = (now - looked_at).as_secs_f64();
        looked_at = now;
        let grown = rates.update(&view, now);
        let report = Report::of(&view, &args.selection).with_rates(&view, args, &grown, seconds);
        if args.json {
            style::print_json(&report)?;
        } else {
            draw(&report, &args.selection, screen)?;
        }
        if args.once {
            complain(&view);
            return Ok(());
        }
    }
}

/// Waits until the next look; whether to end instead.
fn wait(interval: u64, endings: &Endings, keys: Option<&Keys>) -> Result<bool> {
    let until = Instant::now() + Duration::from_secs(interval);
    while Instant::now() < until {
        if endings.wait(TICK)? || keys.is_some_and(Keys::is_quit) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Report {
    /// The same with what each end moves in a second, the most first.
    fn with_rates(
        mut self,
        view: &View,
        args: &Args,
        grown: &[Option<Bytes>],
        seconds: f64,
    ) -> Self {
        let per_second = |bytes: u64| (bytes as f64 / seconds.max(0.001)) as u64;
        let chosen = view.connections().zip(grown);
        let chosen = chosen.filter(|((process, one), _)| args.selection.has(process, one));
        for (row, (_, grown)) in self.connections.iter_mut().zip(chosen) {
            row.sent_per_second = grown.map(|grown| per_second(grown.sent));
            row.received_per_second = grown.map(|grown| per_second(grown.received));
        }
        let total = |row: &super::rows::ConnectionRow| {
            row.sent_bytes.unwrap_or(0).saturating_add(row.received_bytes.unwrap_or(0))
        };
        self.connections.sort_by_key(|row| std::cmp::Reverse((row.rate(), total(row))));
        self
    }
}

/// Draws on the screen, or writes where nobody looks at one.
fn draw(report: &Report, selection: &Selection, screen: bool) -> Result<()> {
    if !screen {
        style::print(&report.describe(selection.is_any()))?;
        return Ok(());
    }
    let size = termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 4);
    let (rows, columns) =
        size.map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    let text = report.describe(selection.is_any());
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.pop().unwrap_or_default();
    let mut drawn = String::from("\x1b[H\x1b[J");
    for line in std::iter::once(last).chain(lines).take(rows - 1) {
        drawn.extend(line.chars().take(columns));
        drawn.push('\n');
    }
    let mut out = io::stdout().lock();
    match out.write_all(drawn.as_bytes()).and_then(|()| out.flush()) {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Keys, as they are pressed; the terminal is what it was when this is dropped.
#[derive(Debug)]
struct Keys(Termios);

impl Keys {
    /// `None` where stdin is no terminal, or another program has it.
    fn listen() -> Option<Self> {
        let stdin = io::stdin();
        if termios::tcgetpgrp(&stdin).ok()? != rustix::process::getpgrp() {
            return None;
        }
        let before = termios::tcgetattr(&stdin).ok()?;
        let mut at_once = before.clone();
        at_once.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        at_once.special_codes[termios::SpecialCodeIndex::VMIN] = 0;
        at_once.special_codes[termios::SpecialCodeIndex::VTIME] = 0;
        termios::tcsetattr(&stdin, OptionalActions::Now, &at_once).ok()?;
        Some(Self(before))
    }

    /// Whether somebody has pressed `q`, or has gone.
    fn is_quit(&self) -> bool {
        let mut keys = [0; 16];
        // Without a key there is nothing to read, and this does not wait.
        io::stdin().read(&mut keys).is_ok_and(|len| keys[..len].contains(&b'q'))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Answers Prometheus until it is told to end.
fn serve(args: &Args, reader: &Reader, endings: &Endings, address: MetricsAddress) -> Result<()> {
    let exporter = Exporter::listen(address)?;
    style::print(&format!("{}\n", exporter.describe()))?;
    let (mut totals, mut rates) = (Totals::default(), Rates::default());
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            next = Instant::now() + Duration::from_secs(args.interval);
            let view = look(reader)?;
            let grown = rates.update(&view, Instant::now());
            totals.update(&view, &args.selection, &grown);
        }
        exporter.answer(|metrics| totals.measure(metrics));
        if endings.wait(TICK)? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_anew_has_not_grown_by_less_than_nothing() {
        let bytes = |sent, received| Bytes { sent, received };
        assert_eq!(bytes(10, 7).since(bytes(4, 7)), bytes(6, 0));
        assert_eq!(bytes(10, 7).since(bytes(11, 9)), bytes(0, 0));
    }
}
