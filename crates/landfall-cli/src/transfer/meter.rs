//! How far it is: a bar for people who look, lines for those who read later.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::style;

/// What the working threads count, and the bar shows.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How much there is; 0 where nobody knows.
    pub(crate) total_bytes: AtomicU64,
    pub(crate) total_files: AtomicU64,
    /// Dealt with: moved, or found to be there.
    pub(crate) bytes: AtomicU64,
    pub(crate) files: AtomicU64,
    /// Of these this many crossed the network.
    pub(crate) moved: AtomicU64,
    /// What is being done now.
    now: Mutex<String>,
}

impl Tally {
    pub(crate) fn add_moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn say(&self, text: String) {
        if let Ok(mut now) = self.now.lock() {
            *now = text;
        }
    }

    fn seen(&self, elapsed: Duration) -> Seen {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Seen {
            bytes: get(&self.bytes),
            total_bytes: get(&self.total_bytes),
            files: get(&self.files),
            total_files: get(&self.total_files),
            moved: get(&self.moved),
            elapsed,
            now: self.now.lock().map(|now| now.clone()).unwrap_or_default(),
        }
    }
}

/// A look at a tally.
#[derive(Clone, Debug, Default)]
struct Seen {
    bytes: u64,
    total_bytes: u64,
    files: u64,
    total_files: u64,
    moved: u64,
    elapsed: Duration,
    now: String,
}

impl Seen {
    /// Bytes a second that crossed the network.
    fn rate(&self) -> f64 {
        self.moved as f64 / self.elapsed.as_secs_f64().max(1e-3)
    }

    fn portion(&self) -> Option<f64> {
        let whole = if self.total_bytes > 0 { self.total_bytes } else { self.total_files };
        let done = if self.total_bytes > 0 { self.bytes } else { self.files };
        (whole > 0).then(|| (done as f64 / whole as f64).min(1.0))
    }

    fn figures(&self) -> String {
        let mut text = match self.portion() {
            Some(portion) => format!(
                "{:3.0} %  {} of {}",
                (portion * 100.0).floor(),
                style::bytes(self.bytes),
                style::bytes(self.total_bytes)
            ),
            None => style::bytes(self.bytes),
        };
        let rate = self.rate();
        let _ = write!(text, "  {}/s", style::bytes(rate as u64));
        let left = self.total_bytes.saturating_sub(self.bytes) as f64;
        if left > 0.0 && rate > 1.0 {
            let _ = write!(text, "  {} left", clock(left / rate));
        }
        if self.total_files > 1 {
            let _ = write!(text, "  file {} of {}", self.files, self.total_files);
        }
        text
    }

    /// One line of at most this many columns.
    fn bar(&self, columns: usize) -> String {
        const CELLS: usize = 24;
        let filled = (self.portion().unwrap_or(0.0) * CELLS as f64) as usize;
        let (full, empty) = ("█".repeat(filled), "░".repeat(CELLS - filled));
        let line = format!("{full}{empty} {}  {}", self.figures(), self.now);
        line.chars().take(columns).collect()
    }
}

/// Seconds as people read them from a clock.
fn clock(seconds: f64) -> String {
    if !seconds.is_finite() || seconds > 359_999.0 {
        return "days".into();
    }
    let seconds = seconds.ceil() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Shows a tally on stderr.
pub(crate) struct Meter {
    how: ProgressStyle,
    started: Instant,
    shown: Option<Instant>,
    line: style::Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressStyle {
    Nothing,
    Lines,
    Bar,
}

/// Where nobody looks, a line comes so often.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// A common width of terminals, less one column that would break the line.
const COLUMNS: usize = 99;

impl Meter {
    pub(crate) fn new(is_quiet: bool) -> Self {
        let how = match (is_quiet, io::stderr().is_terminal()) {
            (true, _) => ProgressStyle::Nothing,
            (false, true) => ProgressStyle::Bar,
            (false, false) => ProgressStyle::Lines,
        };
        let line = style::Progress::on_stderr();
        Self { how, started: Instant::now(), shown: None, line }
    }

    /// Shows how far it is, if it is time to.
    pub(crate) fn show(&mut self, tally: &Tally) {
        let every = match self.how {
            ProgressStyle::Nothing => return,
            ProgressStyle::Lines => LINE_EVERY,
            ProgressStyle::Bar => Duration::ZERO,
        };
        if self.shown.unwrap_or(self.started).elapsed() < every {
            return;
        }
        self.shown = Some(Instant::now());
        let seen = tally.seen(self.started.elapsed());
        match self.how {
            ProgressStyle::Bar => self.line.say(&seen.bar(COLUMNS)),
            _ => eprintln!("{}", seen.figures()),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rate_and_time_left() {
        let half = Seen {
            bytes: 1 << 30,
            total_bytes: 2 << 30,
            moved: 1 << 30,
            elapsed: Duration::from_secs(2),
            now: "film.mkv".into(),
            ..Seen::default()
        };
        assert_eq!(half.figures(), " 50 %  1 GiB of 2 GiB  512 MiB/s  0:02 left");
        let bar = half.bar(200);
        assert_eq!(bar.matches('█').count(), 12, "{bar}");
        assert!(bar.ends_with("film.mkv") && half.bar(30).chars().count() == 30);
    }

    #[test]
    fn what_was_there_already_makes_no_rate() {
        let resumed = Seen {
            bytes: 90,
            total_bytes: 100,
            elapsed: Duration::from_secs(1),
            total_files: 3,
            files: 2,
            ..Seen::default()
        };
        assert_eq!(resumed.figures(), " 90 %  90 B of 100 B  0 B/s  file 2 of 3");
        let stream = Seen { bytes: 512, elapsed: Duration::from_secs(1), ..Seen::default() };
        assert_eq!(stream.figures(), "512 B  0 B/s", "nobody knows how much will come");
    }

    #[test]
    fn times_read_well() {
        for (seconds, text) in [(0.2, "0:01"), (61.0, "1:01"), (3600.0, "1:00:00"), (1e9, "days")] {
            assert_eq!(clock(seconds), text);
        }
    }
}
