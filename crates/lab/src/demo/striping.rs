//! One Transfer over two paths to another process, of which one goes away in the middle.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use landfall::stp::Memory;
use serde::Serialize;

use super::other::{self, Ask, OtherProcess, Report, within_limit};
use super::{Scale, Shown, speed};
use crate::style::bytes;
use crate::workload::Pattern;

#[derive(Debug, Serialize)]
struct Facts {
    message_bytes: usize,
    goodput_bytes_per_s: f64,
    /// Over each path, when half of the bytes had come, and at the end.
    packets_at_half: [u64; 2],
    packets_at_end: [u64; 2],
    blocks_moved: u64,
    user_copied_bytes: u64,
    wakeups: u64,
    hash: String,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    // Long enough that its middle can be hit.
    let len = (scale.messages as usize) << 22;
    let mut message = Memory::try_zeroed(len).context("no memory for a message")?;
    Pattern(8).fill(&mut message);
    let hash = blake3::hash(&message).to_string();
    let endpoint = other::endpoint()?;
    let mut other = OtherProcess::start()?;
    let connection = other::connect(&endpoint, &other.doors, 2)?;
    other.ask(Ask::TransferLosingAPath { len })?;
    let started = Instant::now();
    within_limit!(connection.send(message))?;
    let took = started.elapsed();
    let told: Report = other.told()?;
    ensure!(told.hash == hash, "the other process has other bytes: {}", told.hash);
    ensure!(told.at_half.iter().all(|packets| *packets > 0), "one path carried nothing");
    let facts = Facts {
        message_bytes: len,
        goodput_bytes_per_s: len as f64 / took.as_secs_f64(),
        packets_at_half: told.at_half,
        packets_at_end: told.at_end,
        blocks_moved: told.moved,
        user_copied_bytes: told.copied,
        wakeups: told.wakeups,
        hash,
        equal: true,
    };
    Shown::new(lines(&facts), &facts)
}

fn lines(facts: &Facts) -> [String; 3] {
    let ([a, b], [c, d]) = (facts.packets_at_half, facts.packets_at_end);
    [
        format!(
            "half of {} came: {a} packets over one path, {b} over the other, which was killed then",
            bytes(facts.message_bytes as u64)
        ),
        format!(
            "all of it came, {}: {c} packets over the first path, {d} over the second; {} \
             moved from one to the other",
            speed(facts.goodput_bytes_per_s),
            match facts.blocks_moved {
                1 => "1 Block".to_owned(),
                many => format!("{many} Blocks"),
            }
        ),
        format!(
            "copied in user space: {}; woken {} times; BLAKE3 {}… at both ends: equal",
            bytes(facts.user_copied_bytes),
            facts.wakeups,
            &facts.hash[..16]
        ),
    ]
}
