//! Memory is lent, filled by a driver, taken back, and read where the bytes
//! landed; anyone who kept its old name is refused.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use landfall_transport::memory::{Memory, Regions, Rights};
use serde::Serialize;

use super::{Scale, Shown};
use crate::style::bytes;
use crate::workload::trial;

#[derive(Debug, Serialize)]
struct Facts {
    region: String,
    delivered_bytes: usize,
    user_copied_bytes: u64,
    read_where_it_landed: bool,
    stale_use: String,
    next_region: String,
}

pub(super) fn play(_scale: Scale) -> Result<Shown> {
    let delivered = trial::over_udp(Duration::from_secs(20))?;
    let read_where_it_landed = delivered.memory.as_ptr() as usize == delivered.was_at;
    ensure!(read_where_it_landed, "the memory came back from elsewhere");
    let (regions, len) = (Regions::new(2), delivered.memory.len());
    let region = regions.lend(delivered.memory, Rights::READ | Rights::WRITE)?;
    let memory = regions.take_back(region)?;
    let Err(stale) = regions.write(&region.span(0, 4), b"late") else {
        bail!("a write to memory that was taken back was not refused");
    };
    let unharmed = trial::is_as_sent(&memory);
    ensure!(unharmed, "a write to memory that was taken back changed it");
    // The slot is given out again, under another generation.
    let next = regions.lend(Memory::zeroed(4096), Rights::WRITE)?;
    ensure!(next != region, "a name was given out twice");
    let facts = Facts {
        region: region.to_string(),
        delivered_bytes: len,
        user_copied_bytes: delivered.receiver.counters.bytes_copied,
        read_where_it_landed,
        stale_use: stale.to_string(),
        next_region: next.to_string(),
    };
    Shown::new(lines(&facts), &facts)
}

fn lines(facts: &Facts) -> [String; 3] {
    [
        format!(
            "{}: {} came by UDP; taken back, they are where they landed; copied by the receiver: {}",
            facts.region,
            bytes(facts.delivered_bytes as u64),
            bytes(facts.user_copied_bytes)
        ),
        format!("a late write is refused and changes nothing: \"{}\"", facts.stale_use),
        format!("the next memory in that slot has another name: {}", facts.next_region),
    ]
}
