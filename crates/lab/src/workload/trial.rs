//! One megabyte over loopback, both ends on one thread: does batching work here?

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant as StdInstant};

use anyhow::{Result, bail};
use landfall_placement::RegionId;
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::udp::{UdpConfig, UdpDriver};
use landfall_transport::{Clock, Counters, Driver, Feature, Missing};

use super::numbered::NumberedWork;
use super::transport::PATH;
use super::{HasEngine, Pattern, Route, Sink, SlotLayout, Source, Workload};

const LEN: usize = 1 << 20;

/// What a trial showed.
#[derive(Debug)]
pub struct Trial {
    /// The sender's counters.
    pub send: Counters,
    /// The receiver's counters.
    pub receive: Counters,
    /// The memory that was filled.
    pub delivery: Delivery,
    /// Why batches do not leave with one call, if they do not.
    pub batched_send: Option<Missing>,
    /// Why batches do not arrive with one call, if they do not.
    pub batched_receive: Option<Missing>,
}

/// Memory that was lent, filled and taken back.
#[derive(Debug)]
pub struct Delivery {
    /// The table that it was lent to.
    pub regions: Regions,
    /// Its name while it was lent.
    pub region: RegionId,
    /// The memory.
    pub memory: Memory,
    /// Its address before it was lent.
    pub was_at: usize,
}

/// Does this memory hold what the trial sends?
pub fn is_as_sent(memory: &[u8]) -> bool {
    memory.len() == LEN && Pattern(0).first_difference(memory).is_none()
}

/// Tries UDP with the numbered engine.
pub fn over_udp(limit: Duration) -> Result<Trial> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (near, far) = (Regions::new(2), Regions::new(2));
    let mut memory = Memory::zeroed(LEN);
    Pattern(0).fill(&mut memory);
    let from = near.lend(memory, Rights::READ)?;
    let empty = Memory::zeroed(LEN);
    let was_at = empty.as_ptr() as usize;
    let to = far.lend(empty, Rights::READ | Rights::WRITE)?;
    let config = UdpConfig::new(any, 1500);
    let mut sending = UdpDriver::open(PATH, config, &near)?;
    let mut receiving = UdpDriver::open(PATH, config, &far)?;
    let route = |here: &UdpDriver, there: &UdpDriver| Route {
        path: PATH,
        limits: here.limits(),
        to: there.local_address().into(),
    };
    let layout = |region| SlotLayout { region, message: LEN as u64, slots: 1 };
    let work = NumberedWork::with_unit(1024);
    let mut source = work.source(route(&sending, &receiving), layout(from))?;
    let mut sink = work.sink(route(&receiving, &sending), layout(to))?;
    let (clock, started) = (Clock::start(), StdInstant::now());
    let mut arrived = 0;
    while source.done() < 1 {
        source.step(clock.now(), 1)?;
        sending.turn(source.engine(), clock.now())?;
        receiving.turn(sink.engine(), clock.now())?;
        arrived += sink.step(false)?;
        if started.elapsed() > limit {
            bail!("only {arrived} of {LEN} bytes came within {limit:?}");
        }
    }
    arrived += sink.step(false)?;
    if arrived != LEN as u64 {
        bail!("{arrived} of {LEN} bytes came");
    }
    let memory = far.take_back(to)?;
    sink.check(&memory, layout(from))?;
    let missing = |driver: &UdpDriver, feature| driver.capabilities().require(feature).err();
    Ok(Trial {
        delivery: Delivery { regions: far.clone(), region: to, memory, was_at },
        batched_send: missing(&sending, Feature::BatchedSend),
        batched_receive: missing(&receiving, Feature::BatchedReceive),
        send: *sending.counters(),
        receive: *receiving.counters(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_megabyte_crosses_and_is_right() {
        let trial = over_udp(Duration::from_secs(30)).unwrap();
        assert!(trial.receive.payload_bytes >= LEN as u64);
        assert!(trial.send.units_sent >= LEN as u64 / 1024);
    }
}
