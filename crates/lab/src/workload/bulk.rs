//! One side streams messages, the other receives them in place.

use std::thread;
use std::time::{Duration, Instant as StdInstant};

use anyhow::{Context, Result, bail};
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::rivals::{Amount, Plan};
use landfall_testbed::{CpuSplit, Sample, Soaked};
use landfall_transport::Driver;
use landfall_transport::memory::{Arena, Regions, Rights};

use super::side::{
    DriverLoop, OtherSideEnded, Rendezvous, Shared, both, joined, limit_of, open_route,
    place_thread,
};
use super::transport::{Role, Transport};
use super::{HasEngine, Pattern, Sink, SlotLayout, Source, Workload};

/// What junk looks like: memory is filled with it before a run, so that what
/// was not written by this run is seen.
pub(super) const JUNK: u8 = 0xa5;
/// Regions that one side has at most: its memory, and what wrappers need.
const MOST_REGIONS: u32 = 8;
/// After its time a run sends so many messages more. They are not posted
/// again, so that their bytes can be compared when the clock has stopped. So
/// much less than there are places is under way before.
const CLOSING: u64 = 4;

/// How the memory of both sides is divided into messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in a message.
    pub message: usize,
    /// Messages in the sender's memory.
    pub send_slots: usize,
    /// Messages in the receiver's memory. Another number than the sender's
    /// makes each slot hold something else in each round.
    pub receive_slots: usize,
}

impl Shape {
    /// 64 MiB on each side, in messages of 4 MiB (the receiver has one less,
    /// see there).
    pub const STREAM: Self = Self { message: 4 << 20, send_slots: 16, receive_slots: 15 };

    /// So many messages are under way at a time, before the closing ones.
    pub(super) const fn most_under_way(self) -> u64 {
        let most = (self.receive_slots as u64).saturating_sub(CLOSING);
        if most == 0 { 1 } else { most }
    }
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome<D> {
    /// In the terms that all candidates share.
    pub sample: Sample,
    /// Bytes that were compared with what was sent, after the clock stopped.
    pub compared: u64,
    /// The sender's driver.
    pub send: D,
    /// The receiver's driver.
    pub receive: D,
}

/// What the sender gave.
#[derive(Clone, Debug)]
pub(crate) struct Sent<D> {
    started: StdInstant,
    pub(crate) cpu: TaskUse,
    pub(crate) soaked: Option<Soaked>,
    pub(crate) machine_s: f64,
    pub(crate) retransmitted: u64,
    pub(crate) driver: D,
}

/// What the receiver gave.
#[derive(Clone, Debug)]
pub(crate) struct Received<D> {
    ended: StdInstant,
    /// From when both sides were ready until the last byte was told of.
    pub(crate) time: Duration,
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) cpu: TaskUse,
    pub(crate) compared: u64,
    pub(crate) driver: D,
}

/// Streams as the plan says. Both drivers come back, for their counters.
pub fn run<T: Transport, W: Workload>(
    plan: &Plan,
    shape: Shape,
    (transport, work): (&T, &W),
    arena: &Arena,
    tables: &Tables,
) -> Result<Outcome<T::Driver>>
where
    T::Driver: Send,
{
    let until = check(plan.amount, shape)?;
    let shared = Shared::default();
    let (ours, theirs) = Rendezvous::between_two(plan.limit);
    let run = Half { plan, shape, transport, work, arena, shared: &shared };
    let (sent, received) = thread::scope(|scope| {
        let send = thread::Builder::new().name("landfall-send".into());
        let send = send.spawn_scoped(scope, || {
            let (_end, meeting) = (shared.end_when_dropped(), ours);
            run.send_until(&tables.send, &meeting, until)
        });
        let receive = thread::Builder::new().name("landfall-receive".into());
        let receive = receive.spawn_scoped(scope, || {
            let (_end, meeting) = (shared.end_when_dropped(), theirs);
            run.receive(&tables.receive, &meeting)
        });
        let sent = send.context("cannot start a thread").and_then(|send| joined(send.join()));
        let received =
            receive.context("cannot start a thread").and_then(|receive| joined(receive.join()));
        both(sent, received)
    })?;
    Ok(outcome(sent, received))
}

/// The region tables of both sides: two engines share no memory.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Of the sender.
    pub send: Regions,
    /// Of the receiver.
    pub receive: Regions,
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

impl Tables {
    /// Two empty ones.
    pub fn new() -> Self {
        Self { send: Regions::new(MOST_REGIONS), receive: Regions::new(MOST_REGIONS) }
    }
}

/// How many messages are sent; `None`: as many as fit into the time.
fn check(amount: Amount, shape: Shape) -> Result<Option<u64>> {
    let messages = match amount {
        Amount::Time(_) => return Ok(None),
        Amount::Bytes(bytes) => bytes.div_ceil(shape.message as u64),
        Amount::Messages(messages) => messages,
    };
    if messages > shape.receive_slots as u64 {
        bail!(
            "{messages} messages into {} slots: a run of a fixed length has a slot for each",
            shape.receive_slots
        );
    }
    Ok(Some(messages))
}

fn outcome<D: Driver>(sent: Sent<D>, received: Received<D>) -> Outcome<D> {
    let time = received.ended.saturating_duration_since(sent.started);
    let copied = |driver: &D| driver.counters().bytes_copied;
    let sample = Sample {
        bytes: received.bytes,
        messages: received.messages,
        seconds: time.max(Duration::from_nanos(1)).as_secs_f64(),
        cpu: CpuSplit {
            send_s: sent.cpu.busy_s(),
            receive_s: received.cpu.busy_s(),
            machine_s: sent.machine_s,
        },
        soaked: sent.soaked,
        wakeups: sent.cpu.sleeps + received.cpu.sleeps,
        retransmitted: sent.retransmitted,
        user_copied_bytes: copied(&sent.driver) + copied(&received.driver),
        ..Sample::default()
    };
    let compared = received.compared;
    Outcome { sample, compared, send: sent.driver, receive: received.driver }
}

/// One side of a run. The other may be a thread, or elsewhere: they meet, and hear from
/// each other through what is shared.
#[derive(Debug)]
pub(crate) struct Half<'a, T, W> {
    pub(crate) plan: &'a Plan,
    pub(crate) shape: Shape,
    pub(crate) transport: &'a T,
    pub(crate) work: &'a W,
    pub(crate) arena: &'a Arena,
    pub(crate) shared: &'a Shared,
}

impl<T: Transport, W: Workload> Half<'_, T, W> {
    /// Streams until the plan's time is over.
    pub(crate) fn send(&self, regions: &Regions, meeting: &Rendezvous) -> Result<Sent<T::Driver>> {
        self.send_until(regions, meeting, check(self.plan.amount, self.shape)?)
    }

    fn send_until(
        &self,
        regions: &Regions,
        meeting: &Rendezvous,
        until: Option<u64>,
    ) -> Result<Sent<T::Driver>> {
        let side = &self.plan.endpoints.send;
        place_thread(side)?;
        let layout = self.lend_filled(regions)?;
        let (driver, route) = open_route(self.transport, Role::Send, side, regions, meeting)?;
        let mut source = self.work.source(route, layout)?;
        meeting.ready()?;
        let meter = CpuMeter::start()?;
        let soaking = self.plan.soaker_reading();
        let started = StdInstant::now();
        let mut driver_loop = DriverLoop::new(driver, self.plan, limit_of(self.plan));
        self.stream(&mut source, &mut driver_loop, started, until)?;
        let soaked = self.plan.soaked_since(soaking.as_ref());
        let used = meter.stop()?;
        Ok(Sent {
            started,
            cpu: used.thread,
            soaked,
            machine_s: used.machine_s,
            retransmitted: source.retransmitted(),
            driver: driver_loop.driver,
        })
    }

    fn stream(
        &self,
        source: &mut W::Source,
        driver_loop: &mut DriverLoop<T::Driver>,
        started: StdInstant,
        messages: Option<u64>,
    ) -> Result<()> {
        let mut most_under_way = self.shape.most_under_way();
        // So many, and no more: until the receiver knows that the last messages come, and
        // then with those, which stay where they landed.
        let (mut until_it_knows, mut until) = (None, None);
        loop {
            if until_it_knows.is_none() && (messages.is_some() || self.is_time_over(started)) {
                self.shared.drain();
                until_it_knows = Some(source.offered());
            }
            if until.is_none() && until_it_knows.is_some() && self.shared.is_drained() {
                until = Some(messages.unwrap_or(source.offered() + CLOSING));
                most_under_way += if messages.is_none() { CLOSING } else { 0 };
            }
            let last = until.or(until_it_knows).unwrap_or(u64::MAX);
            source.step(driver_loop.now(), last.min(source.done() + most_under_way))?;
            if until.is_some_and(|until| source.done() >= until) {
                return Ok(());
            }
            if self.shared.is_over() {
                return Err(OtherSideEnded.into());
            }
            driver_loop.turn(source.engine())?;
        }
    }

    fn is_time_over(&self, started: StdInstant) -> bool {
        matches!(self.plan.amount, Amount::Time(time) if started.elapsed() >= time)
    }

    /// Receives until the other side is over.
    pub(crate) fn receive(
        &self,
        regions: &Regions,
        meeting: &Rendezvous,
    ) -> Result<Received<T::Driver>> {
        let side = &self.plan.endpoints.receive;
        place_thread(side)?;
        let (message, slots) = (self.shape.message, self.shape.receive_slots);
        let mut memory = self.arena.take(message * slots)?;
        memory.fill(JUNK);
        let region = regions.lend(memory, Rights::READ | Rights::WRITE)?;
        let layout = SlotLayout { region, message: message as u64, slots: slots as u64 };
        let (driver, route) = open_route(self.transport, Role::Receive, side, regions, meeting)?;
        let mut sink = self.work.sink(route, layout)?;
        meeting.ready()?;
        let before = TaskUse::of_this_thread()?;
        let started = StdInstant::now();
        let mut ended = started;
        let mut driver_loop = DriverLoop::new(driver, self.plan, limit_of(self.plan));
        let mut bytes = 0;
        loop {
            // Asked before the turn: what came before the end is still seen.
            let is_over = self.shared.is_over();
            // This too: the sender counts on a place for each message that was
            // acknowledged before it began to drain, and the turn acknowledges.
            let repost = !self.shared.is_draining();
            if !repost {
                self.shared.know_of_draining();
            }
            driver_loop.turn(sink.engine())?;
            let fresh = sink.step(repost)?;
            if fresh > 0 {
                bytes += fresh;
                ended = StdInstant::now();
            }
            if is_over {
                break;
            }
        }
        let cpu = TaskUse::of_this_thread()? - before;
        let driver = driver_loop.driver;
        let memory = regions.take_back(region)?;
        let sent = SlotLayout { slots: self.shape.send_slots as u64, ..layout };
        let compared = sink.check(&memory, sent)?;
        let (time, messages) = (ended - started, sink.delivered());
        Ok(Received { ended, time, bytes, messages, cpu, compared, driver })
    }

    /// The sender's memory, with another pattern in each slot.
    fn lend_filled(&self, regions: &Regions) -> Result<SlotLayout> {
        let (message, slots) = (self.shape.message, self.shape.send_slots);
        let mut memory = self.arena.take(message * slots)?;
        for (slot, bytes) in memory.chunks_mut(message).enumerate() {
            Pattern(slot as u64).fill(bytes);
        }
        let region = regions.lend(memory, Rights::READ)?;
        Ok(SlotLayout { region, message: message as u64, slots: slots as u64 })
    }
}
