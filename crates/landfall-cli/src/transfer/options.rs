//! What both commands are asked alike, and [`Pace`]: no faster than `--limit` on average.

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use landfall_storage::device::parse_size;

/// Options of `landfall send` and `landfall receive`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Common {
    /// How many seconds nothing may be heard of the other side before it counts as gone
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = patience)]
    pub(crate) patience: Duration,
    /// How many seconds the other side may be there without going on, while it reads, hashes
    /// or waits for its input, before the session ends
    #[arg(long, value_name = "SECONDS", default_value = "3600", value_parser = idle)]
    pub(crate) idle: Duration,
    /// Show no progress; what has to be known is shown nevertheless
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// A summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

fn patience(text: &str) -> Result<Duration, String> {
    seconds(text, 3600)
}

fn idle(text: &str) -> Result<Duration, String> {
    /// A month.
    const MOST: u32 = 31 * 24 * 3600;
    seconds(text, MOST)
}

fn seconds(text: &str, most: u32) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (1.0..=most.into()).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("{text:?} is no number of seconds from 1 to {most}")),
    }
}

/// Bytes a second, as people write them: `500K`, `20M`, `1G`, or a number.
pub(crate) fn parse_rate(text: &str) -> Result<u64, String> {
    parse_size(text)
        .map_err(|_| format!("{text:?} is no number of bytes a second: 500K, 20M or 1G would be"))
}

/// Keeps to a rate, if there is one.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Option<u64>,
    started: Instant,
    bytes: u64,
}

impl Pace {
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Self { rate, started: Instant::now(), bytes: 0 }
    }

    /// This many bytes are about to go: waits until it is their turn.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some(due) = self.rate.map(|rate| due(self.bytes, rate)) {
            thread::sleep(due.saturating_sub(self.started.elapsed()));
        }
    }
}

/// How long this many bytes take.
fn due(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs_f64((bytes as f64 / rate as f64).min(1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, rate) in [("1", 1), ("500k", 500 << 10), ("20M", 20 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "M", "0", "-1", "1T", "fast", "99999999999999999999", "99999999999G", "1µ"]
        {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        assert_eq!(due(3 << 20, 1 << 20), Duration::from_secs(3));
        assert_eq!(due(u64::MAX, 1), Duration::from_secs(1_000_000_000));
    }
}
