//! Two engines in one process, joined by a channel.

use anyhow::{Result, ensure};
use landfall_testbed::rivals::{Amount, Endpoints, Plan};
use landfall_transport::memory::{Arena, ArenaConfig};
use serde::Serialize;

use super::{Scale, Shown, speed};
use crate::style::bytes;
use crate::workload::bulk::{self, Tables};
use crate::workload::stp::StpWork;
use crate::workload::transport::Channel;

const STU: u32 = 8192;

#[derive(Debug, Serialize)]
struct Facts {
    goodput_bytes_per_s: f64,
    delivered_bytes: u64,
    payload_bytes: u32,
    user_copied_bytes: u64,
    retransmitted: u64,
    compared_bytes: u64,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(scale.time));
    let tables = Tables::new();
    let channel = Channel::new(&tables.send, &tables.receive)?;
    let work = StpWork::with_stu(STU);
    let arena = Arena::new(ArenaConfig::default());
    let outcome = bulk::run(&plan, StpWork::SHAPE, (&channel, &work), &arena, &tables)?;
    ensure!(outcome.sample.bytes > 0, "nothing was delivered");
    let facts = Facts {
        goodput_bytes_per_s: outcome.sample.goodput(),
        delivered_bytes: outcome.sample.bytes,
        payload_bytes: STU,
        user_copied_bytes: outcome.sample.user_copied_bytes,
        retransmitted: outcome.sample.retransmitted,
        compared_bytes: outcome.compared,
        equal: true,
    };
    let line = format!(
        "{}, {} delivered; each byte crosses in a frame, in and out: {} copied; {} compared: equal",
        speed(facts.goodput_bytes_per_s),
        bytes(facts.delivered_bytes),
        bytes(facts.user_copied_bytes),
        bytes(facts.compared_bytes)
    );
    Shown::new([line], &facts)
}
