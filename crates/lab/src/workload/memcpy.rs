//! What one copy costs by itself: memory of a file that both sides of a host can map, copied
//! by `memcpy`. No protocol that copies once within a host can be faster.

use std::time::Instant;

use anyhow::{Result, bail};
use landfall_testbed::cpu::CpuMeter;
use landfall_testbed::rivals::{Amount, Plan};
use landfall_testbed::{CpuSplit, Sample};
use landfall_transport::memory::{Arena, ArenaConfig};

use super::side::place_thread;
use super::{Pattern, Role, Shape};

/// Copies message after message, through as much memory as Transfers of this shape.
pub(crate) fn stream(plan: &Plan, shape: Shape) -> Result<Sample> {
    let Amount::Time(time) = plan.amount else { bail!("copies are measured for a time") };
    place_thread(Role::Receive.side(plan))?;
    let arena = Arena::new(ArenaConfig { same_host: true, ..ArenaConfig::default() });
    let take =
        |count: usize| (0..count).map(|_| arena.take(shape.message)).collect::<Result<Vec<_>, _>>();
    let (mut from, mut to) = (take(shape.send_slots)?, take(shape.receive_slots)?);
    for (slot, memory) in (0..).zip(&mut from) {
        Pattern(slot).fill(memory);
    }
    to.iter_mut().for_each(|memory| memory.fill(super::JUNK));
    let (meter, started) = (CpuMeter::start()?, Instant::now());
    let mut messages = 0;
    while started.elapsed() < time {
        let into = &mut to[messages % shape.receive_slots];
        into.copy_from_slice(&from[messages % shape.send_slots]);
        std::hint::black_box(into);
        messages += 1;
    }
    let (seconds, used) = (started.elapsed().as_secs_f64(), meter.stop()?);
    let bytes = (messages * shape.message) as u64;
    Ok(Sample {
        bytes,
        messages: messages as u64,
        seconds,
        cpu: CpuSplit { send_s: 0.0, receive_s: used.thread.busy_s(), machine_s: used.machine_s },
        user_copied_bytes: bytes,
        ..Sample::default()
    })
}
