//! What both commands are asked alike.

use std::time::Duration;

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
