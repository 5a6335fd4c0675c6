//! Messages there and back, timed one by one.

use std::thread;
use std::time::Instant as StdInstant;

use anyhow::{Context, Result, ensure};
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::rivals::{Amount, Plan};
use landfall_testbed::{CpuSplit, RttHistogram, Sample};
use landfall_transport::memory::{Memory, Regions, Rights};
use landfall_transport::{Counters, Driver};

use super::bulk::Tables;
use super::side::{
    DriverLoop, OtherSideEnded, Rendezvous, Shared, both, joined, limit_of, open_route,
    place_thread,
};
use super::transport::{Role, Transport};
use super::{HasEngine, TalkMemory, Talker, Workload};

/// Rounds at the start that are not recorded, as with the kernel's rivals.
const WARM_UP: u64 = 1000;

/// What the side saw that asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) rounds: u64,
    pub(crate) seconds: f64,
    pub(crate) round_trips: RttHistogram,
    pub(crate) cpu: TaskUse,
    pub(crate) machine_s: f64,
    pub(crate) counters: Counters,
}

/// Holds a conversation in messages of `len` bytes.
pub fn run<T: Transport, W: Workload>(
    plan: &Plan,
    len: usize,
    (transport, work): (&T, &W),
    tables: &Tables,
) -> Result<Sample> {
    let shared = Shared::default();
    let (ours, theirs) = Rendezvous::between_two(plan.limit);
    let talk = Half { plan, len, transport, work, shared: &shared };
    let (asked, answered) = thread::scope(|scope| {
        let ask = thread::Builder::new().name("landfall-ask".into());
        let ask = ask.spawn_scoped(scope, || {
            let (_end, meeting) = (shared.end_when_dropped(), ours);
            talk.ask(&tables.send, &meeting)
        });
        let answer = thread::Builder::new().name("landfall-answer".into());
        let answer = answer.spawn_scoped(scope, || {
            let (_end, meeting) = (shared.end_when_dropped(), theirs);
            talk.answer(&tables.receive, &meeting)
        });
        let asked = ask.context("cannot start a thread").and_then(|ask| joined(ask.join()));
        let answered =
            answer.context("cannot start a thread").and_then(|answer| joined(answer.join()));
        both(asked, answered)
    })?;
    let (answer_cpu, answer_counters) = answered;
    Ok(Sample {
        bytes: asked.rounds * len as u64,
        messages: asked.rounds,
        seconds: asked.seconds,
        cpu: CpuSplit {
            send_s: asked.cpu.busy_s(),
            receive_s: answer_cpu.busy_s(),
            machine_s: asked.machine_s,
        },
        rtt: asked.round_trips.summary(),
        wakeups: asked.cpu.sleeps + answer_cpu.sleeps,
        user_copied_bytes: asked.counters.bytes_copied + answer_counters.bytes_copied,
        ..Sample::default()
    })
}

/// One side of a conversation. The other is a thread, or in another process.
#[derive(Debug)]
pub(crate) struct Half<'a, T, W> {
    pub(crate) plan: &'a Plan,
    pub(crate) len: usize,
    pub(crate) transport: &'a T,
    pub(crate) work: &'a W,
    pub(crate) shared: &'a Shared,
}

impl<T: Transport, W: Workload> Half<'_, T, W> {
    /// The driver and the talker of one side, when both sides are ready.
    fn start(
        &self,
        role: Role,
        regions: &Regions,
        meeting: &Rendezvous,
    ) -> Result<(DriverLoop<T::Driver>, W::Talker)> {
        let (len, longest) = (self.len, TalkMemory::LONGEST as usize);
        ensure!((1..=longest).contains(&len), "{len} bytes a message; 1 to {longest} are possible");
        let endpoints = &self.plan.endpoints;
        let side = if role == Role::Send { &endpoints.send } else { &endpoints.receive };
        place_thread(side)?;
        let region =
            regions.lend(Memory::zeroed(TalkMemory::ROOM), Rights::READ | Rights::WRITE)?;
        let (driver, route) = open_route(self.transport, role, side, regions, meeting)?;
        let memory = TalkMemory { role, region, message: self.len as u64 };
        let talker = self.work.talker(route, regions, memory)?;
        meeting.ready()?;
        Ok((DriverLoop::new(driver, self.plan, limit_of(self.plan)), talker))
    }

    /// Asks until the plan's time is over.
    pub(crate) fn ask(&self, regions: &Regions, meeting: &Rendezvous) -> Result<Asked> {
        let (mut driver_loop, mut talker) = self.start(Role::Send, regions, meeting)?;
        let (mut question, mut answer) = (vec![0; self.len], vec![0; self.len]);
        let mut round_trips = RttHistogram::new();
        let meter = CpuMeter::start()?;
        let mut started = StdInstant::now();
        let mut round = 0;
        loop {
            let asked = StdInstant::now();
            if round == WARM_UP {
                started = asked;
            }
            if round > WARM_UP && self.is_enough(round - WARM_UP, asked - started) {
                let rounds = round - WARM_UP;
                let used = meter.stop()?;
                return Ok(Asked {
                    rounds,
                    seconds: (asked - started).as_secs_f64(),
                    round_trips,
                    cpu: used.thread,
                    machine_s: used.machine_s,
                    counters: *driver_loop.driver.counters(),
                });
            }
            self.send(&mut driver_loop, &mut talker, &question)?;
            self.receive(&mut driver_loop, &mut talker, &mut answer)?;
            let round_trip = asked.elapsed();
            ensure!(answer == question, "the answer of round {round} is wrong");
            if round >= WARM_UP {
                round_trips.record(round_trip);
            }
            round += 1;
            stamp(&mut question, round);
        }
    }

    fn is_enough(&self, rounds: u64, time: std::time::Duration) -> bool {
        match self.plan.amount {
            Amount::Time(limit) => time >= limit,
            Amount::Messages(messages) => rounds >= messages,
            Amount::Bytes(bytes) => rounds.saturating_mul(self.len as u64) >= bytes,
        }
    }

    /// Answers until the other side is over.
    pub(crate) fn answer(
        &self,
        regions: &Regions,
        meeting: &Rendezvous,
    ) -> Result<(TaskUse, Counters)> {
        let (mut driver_loop, mut talker) = self.start(Role::Receive, regions, meeting)?;
        let before = TaskUse::of_this_thread()?;
        let mut message = vec![0; self.len];
        loop {
            match self.receive(&mut driver_loop, &mut talker, &mut message) {
                Err(error) if error.is::<OtherSideEnded>() => break,
                result => result?,
            }
            self.send(&mut driver_loop, &mut talker, &message)?;
        }
        Ok((TaskUse::of_this_thread()? - before, *driver_loop.driver.counters()))
    }

    /// Says it, and lets it leave at once.
    #[inline]
    fn send(
        &self,
        driver_loop: &mut DriverLoop<T::Driver>,
        talker: &mut W::Talker,
        message: &[u8],
    ) -> Result<()> {
        while !talker.send(driver_loop.now(), message)? {
            self.turn(driver_loop, talker)?;
        }
        self.turn(driver_loop, talker)
    }

    #[inline]
    fn receive(
        &self,
        driver_loop: &mut DriverLoop<T::Driver>,
        talker: &mut W::Talker,
        message: &mut [u8],
    ) -> Result<()> {
        while !talker.receive(message)? {
            self.turn(driver_loop, talker)?;
        }
        Ok(())
    }

    #[inline]
    fn turn(&self, driver_loop: &mut DriverLoop<T::Driver>, talker: &mut W::Talker) -> Result<()> {
        if self.shared.is_over() {
            return Err(OtherSideEnded.into());
        }
        driver_loop.turn(talker.engine())
    }
}

/// Makes the messages of different rounds different.
fn stamp(message: &mut [u8], round: u64) {
    message.iter_mut().zip(round.to_le_bytes()).for_each(|(to, from)| *to = from);
}
