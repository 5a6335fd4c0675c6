//! Two endpoints of one process, joined by a channel.

use anyhow::{Result, ensure};
use landfall_testbed::rivals::{Amount, Endpoints, Plan};
use serde::Serialize;

use super::{Scale, Shown, speed};
use crate::style::bytes;
use crate::workload::stp::{self, LowerLayer, Setup};

#[derive(Debug, Serialize)]
struct Facts {
    goodput_bytes_per_s: f64,
    delivered_bytes: u64,
    user_copied_bytes: u64,
    retransmitted: u64,
    compared_bytes: u64,
    equal: bool,
}

pub(super) fn play(scale: Scale) -> Result<Shown> {
    let plan = Plan::new(Endpoints::loopback()?, Amount::Time(scale.time));
    let outcome = stp::stream(&plan, &Setup::over(LowerLayer::Process), stp::SHAPE)?;
    ensure!(outcome.sample.bytes > 0, "nothing was delivered");
    let facts = Facts {
        goodput_bytes_per_s: outcome.sample.goodput(),
        delivered_bytes: outcome.sample.bytes,
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
