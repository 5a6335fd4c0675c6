//! A run: the hosts of a plan, what happens to them, and what must hold.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use landfall_placement::{Instant, Random};
use landfall_simnet::{Error, Sim};

use crate::clan::Clan;
use crate::ctx::{Ctx, Part};
use crate::net::{Net, NetStats};
use crate::plan::{Act, Plan, Plane, Step, Work};
use crate::qpip::Qpip;
use crate::story::{Story, StoryLine};
use crate::stp::Stp;

/// How long what was begun may take to end once faults are over.
const PATIENCE: Duration = Duration::from_secs(150);
/// After severe faults so much time passes before new work is tried: who was cut off hears of
/// it by then.
const QUARANTINE: Duration = Duration::from_secs(40);
/// This many events are far more than any plan needs: two that answer each other without end.
const MOST_EVENTS: u64 = 6_000_000;
/// So often users may wait for who does nothing.
const MOST_IDLE: u32 = 3;
/// How long users who wait for something look away.
const SLICE: Duration = Duration::from_millis(50);

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was not as it must be; nothing, if all was well.
    pub wrong: Vec<String>,
    /// How often things happened, by their names.
    pub tally: BTreeMap<&'static str, u64>,
    /// Frames that reached engines.
    pub frames: u64,
    /// Events of the simulator, after each of which everything was checked.
    pub events: u64,
    /// A fingerprint of all frames: equal runs have equal ones.
    pub digest: u64,
    /// How long it took, in virtual time.
    pub time: Duration,
    pub(crate) lines: Vec<StoryLine>,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &Plan) -> Report {
    run_with(plan, false)
}

/// Runs a plan, and writes down what happens where it is to be told.
pub(crate) fn run_with(plan: &Plan, is_told: bool) -> Report {
    let story = Story::new(is_told);
    let told = story.clone();
    let result = catch_unwind(AssertUnwindSafe(|| run_quietly(plan, story)));
    let mut report = match result {
        Ok(Ok(report)) => report,
        Ok(Err(error)) => failed(error.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            failed(format!("a panic: {}", text.unwrap_or_default()))
        }
    };
    report.lines = told.lines();
    report
}

fn failed(what: String) -> Report {
    Report { wrong: vec![what], ..Report::default() }
}

fn run_quietly(plan: &Plan, story: Story) -> Result<Report, Error> {
    let mut world = World::build(plan, story)?;
    let mut wrong = None;
    if let Err(error) = world.live() {
        // What the simulator found, it found first.
        wrong = Some(error.to_string());
    }
    let World { mut ctx, events, .. } = world;
    ctx.wrong.extend(wrong);
    let NetStats { frames, lost, doubled, reordered, damaged, asked } = ctx.net.stats(&ctx.sim);
    let faults = [
        ("frames lost", lost),
        ("frames doubled", doubled),
        ("frames delayed", reordered),
        ("frames damaged", damaged),
        ("sealed handshakes asked for proof", asked),
    ];
    for (what, count) in faults {
        *ctx.tally.entry(what).or_default() += count;
    }
    Ok(Report {
        frames,
        events,
        digest: ctx.sim.digest(),
        time: ctx.now().since(Instant::ZERO),
        wrong: ctx.wrong,
        tally: ctx.tally,
        lines: Vec::new(),
    })
}

/// What is done at a moment.
#[derive(Clone, Copy, Debug)]
enum Todo {
    Begin(Act),
    /// A fault that lasts is over.
    End(Act),
}

struct World {
    ctx: Ctx,
    stp: Stp,
    qpip: Qpip,
    clan: Clan,
    todo: VecDeque<(Instant, Todo)>,
    events: u64,
    /// How often each thing is cut off: faults may last at the same time.
    cut: BTreeMap<(u8, u8, bool), u32>,
    /// Until when the users of each host take no events, or did.
    frozen_until: Vec<Instant>,
}

impl World {
    fn build(plan: &Plan, story: Story) -> Result<Self, Error> {
        let mut sim = Sim::from_number(plan.seed);
        let net = Net::build(&mut sim, plan, &story)?;
        let hosts = usize::from(plan.hosts);
        let is_harsh = plan.planes.iter().any(Plane::is_harsh);
        let mut ctx = Ctx {
            sim,
            net,
            plan: plan.clone(),
            random: Random::from_number(plan.seed ^ 0x05e25),
            story,
            is_severe: is_harsh,
            was_severe: is_harsh,
            is_healed: false,
            is_closing: false,
            frozen: vec![false; hosts],
            wrong: Vec::new(),
            tally: BTreeMap::new(),
        };
        let (stp, qpip, clan) =
            (Stp::build(&mut ctx)?, Qpip::build(&mut ctx)?, Clan::build(&mut ctx)?);
        let mut todo: Vec<_> = plan.steps.iter().flat_map(moments).collect();
        todo.sort_by_key(|(at, _)| *at);
        let (cut, frozen_until) = (BTreeMap::new(), vec![Instant::ZERO; hosts]);
        Ok(Self { ctx, stp, qpip, clan, todo: todo.into(), events: 0, cut, frozen_until })
    }

    fn parts(&mut self) -> (&mut Ctx, [&mut dyn Part; 3]) {
        (&mut self.ctx, [&mut self.stp, &mut self.qpip, &mut self.clan])
    }

    fn each(&mut self, mut act: impl FnMut(&mut dyn Part, &mut Ctx)) {
        let (ctx, parts) = self.parts();
        for part in parts {
            act(part, ctx);
        }
    }

    /// The whole run.
    fn live(&mut self) -> Result<(), Error> {
        while let Some((at, todo)) = self.todo.pop_front() {
            if !self.pass(at)? {
                return Ok(());
            }
            match todo {
                Todo::Begin(act) => self.begin(at, act)?,
                Todo::End(act) => self.end(at, act)?,
            }
        }
        self.ctx.is_healed = true;
        self.ctx.net.heal(&mut self.ctx.sim)?;
        self.ctx.story.note(self.ctx.now(), None, || "faults are over".into());
        if !self.await_nothing("what was begun", |part, ctx| part.left(ctx))? {
            return Ok(());
        }
        self.prove_life()?;
        if !self.ctx.wrong.is_empty() {
            return Ok(());
        }
        self.ctx.is_closing = true;
        self.each(|part, ctx| part.close(ctx));
        self.await_nothing("what was opened", |part, ctx| part.open(ctx))?;
        Ok(())
    }

    /// Lets time pass up to a moment, and checks after each event; false once something is
    /// wrong.
    fn pass(&mut self, until: Instant) -> Result<bool, Error> {
        while self.ctx.sim.step(until)? {
            self.events += 1;
            if self.events > MOST_EVENTS {
                self.ctx.wrong.push(format!("more than {MOST_EVENTS} events"));
                return Ok(false);
            }
            self.each(|part, ctx| {
                part.hear(ctx);
                part.check(ctx);
            });
            if !self.ctx.wrong.is_empty() {
                return Ok(false);
            }
        }
        self.ctx.sim.run_until(until)?;
        Ok(self.ctx.wrong.is_empty())
    }

    /// Whatever was begun ends in bounded time, once faults are over.
    fn await_nothing(
        &mut self,
        what: &str,
        left: impl Fn(&mut dyn Part, &mut Ctx) -> Vec<String>,
    ) -> Result<bool, Error> {
        let deadline = self.ctx.now() + PATIENCE;
        let mut idle = 0;
        loop {
            let mut all = Vec::new();
            self.each(|part, ctx| {
                part.settle(ctx);
                all.extend(left(part, ctx));
            });
            if !self.ctx.wrong.is_empty() || all.is_empty() {
                return Ok(self.ctx.wrong.is_empty());
            }
            // Without a timer nothing happens any more, and time does not pass either.
            idle = if self.ctx.sim.next_at().is_none() { idle + 1 } else { 0 };
            if self.ctx.now() >= deadline || idle > MOST_IDLE {
                let seconds = PATIENCE.as_secs();
                let all = all.join("; ");
                self.ctx.wrong.push(format!("{what} is not over after {seconds} s: {all}"));
                return Ok(false);
            }
            let next = self.ctx.now() + SLICE;
            if !self.pass(next)? {
                return Ok(false);
            }
        }
    }

    /// Once faults are over everything works, for everybody.
    fn prove_life(&mut self) -> Result<(), Error> {
        if self.ctx.is_severe && !self.pass(self.ctx.now() + QUARANTINE)? {
            return Ok(());
        }
        self.ctx.is_severe = false;
        let hosts: Vec<u8> = (0..self.ctx.plan.hosts).filter(|n| self.ctx.plan.uses(*n)).collect();
        let before = self.qpip.datagrams_sent();
        for (n, from) in hosts.iter().enumerate() {
            let to = hosts[(n + 1) % hosts.len()];
            if to == *from {
                continue;
            }
            for work in LIFE {
                self.work(*from, to, work);
            }
        }
        if !self.await_nothing("the proof of life", |part, ctx| part.left(ctx))? {
            return Ok(());
        }
        let (came, sent) = self.qpip.datagrams_came(before);
        if came < sent {
            self.ctx.wrong.push(format!("{came} of {sent} datagrams came over a perfect network"));
        }
        Ok(())
    }

    fn work(&mut self, from: u8, to: u8, work: Work) {
        self.ctx.count(work.name());
        self.each(|part, ctx| part.apply(ctx, from, to, work));
    }

    fn begin(&mut self, at: Instant, act: Act) -> Result<(), Error> {
        self.ctx.is_severe |= act.is_severe();
        self.ctx.was_severe |= act.is_severe();
        if !act.is_work() {
            self.ctx.count(act.name());
            self.ctx.story.note(self.ctx.now(), None, || format!("{act:?}"));
        }
        match act {
            Act::Work { from, to, work } => self.work(from, to, work),
            Act::Restart { host } => self.each(|part, ctx| part.restart(ctx, host)),
            Act::Freeze { host, time } => self.freeze(host, at, at + time),
            Act::Unplug { host, plane, .. } => self.unplug(host, plane, true)?,
            Act::LinkDown { host, plane, .. } => {
                if self.count_cut(host, plane, false, true) {
                    self.ctx.net.set_port(&mut self.ctx.sim, host, plane, false)?;
                }
            }
            Act::Partition { below, .. } => self.partition(below, true)?,
            Act::Replay { host, count } => self.ctx.net.replay(&mut self.ctx.sim, host, count)?,
        }
        Ok(())
    }

    fn end(&mut self, at: Instant, act: Act) -> Result<(), Error> {
        match act {
            Act::Freeze { host, .. } => self.thaw(host, at),
            Act::Unplug { host, plane, .. } => self.unplug(host, plane, false)?,
            Act::LinkDown { host, plane, .. } if self.count_cut(host, plane, false, false) => {
                self.ctx.net.set_port(&mut self.ctx.sim, host, plane, true)?;
            }
            Act::Partition { below, .. } => self.partition(below, false)?,
            _ => {}
        }
        Ok(())
    }

    /// Who is frozen already is not frozen for longer: a host that answers nobody until callers
    /// give up is another fault, and a severe one.
    fn freeze(&mut self, host: u8, at: Instant, until: Instant) {
        let frozen_until = &mut self.frozen_until[usize::from(host)];
        if *frozen_until <= at {
            *frozen_until = until;
            self.set_frozen(host, true);
        }
    }

    fn thaw(&mut self, host: u8, at: Instant) {
        if self.frozen_until[usize::from(host)] == at {
            self.set_frozen(host, false);
        }
    }

    fn set_frozen(&mut self, host: u8, is_frozen: bool) {
        self.ctx.frozen[usize::from(host)] = is_frozen;
        self.each(|part, ctx| part.freeze(ctx, host, is_frozen));
    }

    /// Notes one more, or one less, that cuts something off; is it the first, or the last?
    fn count_cut(&mut self, host: u8, plane: u8, is_uplink: bool, is_cut: bool) -> bool {
        let count = self.cut.entry((host, plane, is_uplink)).or_default();
        *count = if is_cut { *count + 1 } else { *count - 1 };
        *count == u32::from(is_cut)
    }

    fn unplug(&mut self, host: u8, plane: u8, is_cut: bool) -> Result<(), Error> {
        if self.count_cut(host, plane, true, is_cut) {
            self.ctx.net.unplug(&mut self.ctx.sim, host, plane, !is_cut)?;
        }
        Ok(())
    }

    /// With one switch a plane, who is cut off from the others is cut off from all; so it is
    /// one side of the partition that hears nobody.
    fn partition(&mut self, below: u8, is_cut: bool) -> Result<(), Error> {
        for host in 0..below {
            for plane in 0..self.ctx.plan.planes.len() as u8 {
                self.unplug(host, plane, is_cut)?;
            }
        }
        Ok(())
    }
}

/// What everybody can do when all is well.
const LIFE: [Work; 11] = [
    Work::Send { len: 20_000 },
    Work::Put { at: 8, len: 1_000, notice: false },
    Work::Fetch { word: 1, kind: 0, value: 1 },
    Work::Message { kind: 0, len: 3_000 },
    Work::Message { kind: 1, len: 3_000 },
    Work::Disk { kind: 0, at: 3, count: 8, fua: false },
    Work::Disk { kind: 5, at: 0, count: 20, fua: false },
    Work::Datagram { speculates: false, len: 2_000 },
    Work::Datagram { speculates: true, len: 5_000 },
    Work::Write { at: 3, len: 700 },
    Work::Dma { at: 5, len: 4_000 },
];

/// When a step begins, and when it is over.
fn moments(step: &Step) -> Vec<(Instant, Todo)> {
    let at = Instant::ZERO + step.at;
    let begin = (at, Todo::Begin(step.act));
    match step.act {
        Act::Freeze { time, .. }
        | Act::Unplug { time, .. }
        | Act::LinkDown { time, .. }
        | Act::Partition { time, .. } => vec![begin, (at + time, Todo::End(step.act))],
        _ => vec![begin],
    }
}
