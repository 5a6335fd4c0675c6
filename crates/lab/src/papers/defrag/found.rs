//! What was measured on a cable of this machine, for the page that has the paper and the
//! model of its adapter.

use anyhow::Result;

use super::live;
use super::tables::Scale;
use crate::reproduce::live::Found;

/// The rows of Figures 4 and 5 there, in the order of `paper::BARS`.
const ROWS: [&str; super::paper::BARS.len()] = [
    "standard",
    "defragmented in place, but copied to the user",
    "with page remapping",
    "with fast buffers",
    "our fragments, standard receiver",
    "standard sender, our receiver",
    "standard sender, our receiver, every guess missed",
];

/// Measures in some twenty seconds; gives what was found, and what could not be.
pub(crate) fn found(quick: bool) -> Result<(Vec<Found>, Vec<String>)> {
    if let Some(why) = live::why_not() {
        return Ok((Vec::new(), vec![format!("Figures 4 and 5, Table 1: {why}")]));
    }
    let measured = live::measure(if quick { Scale::Tenth } else { Scale::Full })?;
    let mut found = Vec::new();
    for (bar, row) in measured.bars.iter().zip(ROWS) {
        let exhibit = if bar.figure == 4 { "Figure 4" } else { "Figure 5" };
        let by = format!("pages of 4 KiB on a cable; {:.2} of standard", bar.of_standard);
        found.push(Found::new(exhibit, row, "MB/s (10^6)", bar.megabytes_per_second, by));
    }
    for line in &measured.table_1 {
        let row = match line.paper.foreign {
            0 => "0 packets interfered".to_owned(),
            10_000 => "10,000".to_owned(),
            other => other.to_string(),
        };
        let by = format!("{} packets, {} predictor", line.packets, line.predictor);
        let failed = line.failed as f64;
        found.push(Found::new("Table 1", row.clone(), "failed packets", failed, by.clone()));
        found.push(Found::new("Table 1", row, "MB/s (10^6)", line.megabytes_per_second, by));
    }
    Ok((found, Vec::new()))
}
