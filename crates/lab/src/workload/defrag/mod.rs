//! Pages that are cut for the wire at one end of a cable, and joined at the other: by
//! a receiver of ours, or by the kernel for a socket.
//!
//! | file | what it is |
//! | --- | --- |
//! | `source` | who sends them, and what comes in between |
//! | `sink` | who joins them; the window, and the phases of a run |

mod sink;
mod source;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use landfall::defrag::{Delivery, HeadLens, PayloadLens, Prediction, Shape, Technique, Wanted};
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::rivals::{Amount, Plan};
use landfall_testbed::{CpuSplit, IngressLoss, Lose, Sample, VethPair, ingress};

use super::side::{Rendezvous, RunState, place_thread};
use super::{Pattern, TwoSided};
use sink::{Arrival, Flow, Phase, Sink, SinkCounts, Window};
use source::Source;

/// Where pages go.
const PORT: u16 = 7000;
/// The most bytes under way: little enough for all buffers on the way, and more than
/// a few blocks of a ring.
const WINDOW: u64 = 2 << 20;
/// Pages that are compared when the time is over.
const CLOSING: u64 = 64;
/// How often a side that sleeps looks what the other is up to.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The clock is read once in this many pages.
const PAGES_PER_LOOK: u64 = 16;

/// Who cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Our sender: each fragment is a frame that it hands over.
    Sender,
    /// The kernel, far below: it is handed whole datagrams as frames.
    Kernel,
    /// The kernel's own IP, below an ordinary socket.
    Socket,
}

/// How a receiver of ours joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    pub(crate) technique: Technique,
    pub(crate) delivery: Delivery,
    pub(crate) prediction: Prediction,
    pub(crate) wanted: Wanted,
}

impl Join {
    /// With guesses, and handed out in fast buffers.
    pub(crate) fn guessing(technique: Technique) -> Self {
        Self {
            technique,
            delivery: Delivery::FastBuffers,
            prediction: Prediction::default(),
            wanted: Wanted::Fragments,
        }
    }

    /// As a user has it who chooses nothing.
    pub(crate) fn by_default() -> Self {
        Self { delivery: Delivery::default(), ..Self::guessing(Technique::default()) }
    }

    /// The conventional path alone.
    pub(crate) fn copying(technique: Technique) -> Self {
        Self { prediction: Prediction::Off, ..Self::guessing(technique) }
    }

    /// Where frames lie, as a list.
    pub(crate) fn lending(technique: Technique) -> Self {
        Self { delivery: Delivery::List, ..Self::copying(technique) }
    }
}

/// The predictor of the paper: one flow at a time, whose packets are pages in UDP
/// datagrams, on an Ethernet.
pub(crate) fn papers_predictor() -> Prediction {
    let shape = Shape::new(
        3,
        HeadLens { first: 42, rest: 34 },
        PayloadLens { first: 1472, middle: 1480, last: 1144 },
    );
    shape.map_or(Prediction::Off, Prediction::Single)
}

/// Foreign packets, at moments of chance: one in each run of this many pages. Where it is
/// one, each page has one between its fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) every: u32,
}

/// What is sent, and who joins it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Payload of a datagram.
    pub(crate) page: u32,
    pub(crate) cut: Cut,
    /// Who joins; the kernel, if nobody else does.
    pub(crate) join: Option<Join>,
    pub(crate) foreign: Option<Foreign>,
}

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) sample: Sample,
    /// Packets that were joined by copies.
    pub(crate) failed: u64,
    /// Bytes that were compared with what was sent, after the clock stopped.
    pub(crate) compared: u64,
}

/// Why fragments cannot be kept from the kernel here; `None` when they can.
pub(crate) fn why_not() -> Option<String> {
    ingress::why_no_ingress()
}

impl Join {
    /// Why there is no such receiver here; `None` when there is.
    pub(crate) fn why_not(self, page: u32, pair: &VethPair) -> Option<String> {
        let work = Work { page, cut: Cut::Sender, join: Some(self), foreign: None };
        let opened = pair.b.namespace.enter(|| sink::builder(&work, self, pair).open().map(drop));
        match opened {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Sends pages as the plan says: for some time, or this many.
pub(crate) fn run(plan: &Plan, pair: &VethPair, work: Work) -> Result<Outcome> {
    let (time, pages) = match plan.amount {
        Amount::Time(time) => (time, u64::MAX),
        Amount::Messages(pages) => (Duration::ZERO, pages),
        Amount::Bytes(bytes) => (Duration::ZERO, bytes.div_ceil(work.page.into())),
    };
    // What a receiver of ours hears the kernel would join as well.
    let to = pair.b.ipv4.into();
    let _lost = work.join.map(|_| IngressLoss::new(&pair.b, Lose::All { to })).transpose()?;
    let (shared, flow) = (RunState::default(), Flow::default());
    let run = Run { plan, time, pages, pair, work, shared, flow };
    run.run(Rendezvous::between_two(plan.limit))
}

struct Sent {
    started: Instant,
    cpu: TaskUse,
    machine_s: f64,
    lost: u64,
}

#[derive(Default)]
struct Received {
    ended: Option<Instant>,
    pages: u64,
    cpu: TaskUse,
    told: SinkCounts,
    compared: u64,
}

fn outcome(work: &Work, sent: &Sent, received: &Received) -> Result<Outcome> {
    let ended = received.ended.context("no page came")?;
    let SinkCounts { in_place, copied, bytes_copied } = received.told;
    let joined = in_place + copied;
    let time = ended.saturating_duration_since(sent.started).max(Duration::from_nanos(1));
    let sample = Sample {
        bytes: received.pages * u64::from(work.page),
        messages: received.pages,
        seconds: time.as_secs_f64(),
        cpu: CpuSplit {
            send_s: sent.cpu.busy_s(),
            receive_s: received.cpu.busy_s(),
            machine_s: sent.machine_s,
        },
        wakeups: sent.cpu.sleeps + received.cpu.sleeps,
        user_copied_bytes: bytes_copied,
        lost_bytes: sent.lost * u64::from(work.page),
        in_place: (joined > 0).then(|| in_place as f64 / joined as f64),
        ..Sample::default()
    };
    Ok(Outcome { sample, failed: copied, compared: received.compared })
}

struct Run<'a> {
    plan: &'a Plan,
    time: Duration,
    pages: u64,
    pair: &'a VethPair,
    work: Work,
    shared: RunState,
    flow: Flow,
}

impl TwoSided for Run<'_> {
    type Meeting = Rendezvous;
    type Begun = Sent;
    type Served = Received;
    type Outcome = Outcome;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<Sent> {
        let _end = self.shared.end_when_dropped();
        self.send(meeting)
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Received> {
        let _end = self.shared.end_when_dropped();
        self.receive(meeting)
    }

    fn outcome(&self, sent: Sent, received: Received) -> Result<Outcome> {
        outcome(&self.work, &sent, &received)
    }
}

impl Run<'_> {
    fn limit(&self) -> Duration {
        self.time.saturating_add(self.plan.limit)
    }

    /// Pages in the window.
    fn window(&self) -> u64 {
        (WINDOW / u64::from(self.work.page)).max(4)
    }

    fn send(&self, meeting: &Rendezvous) -> Result<Sent> {
        place_thread(&self.plan.endpoints.send)?;
        let mut source = Source::open(&self.work, self.pair)?;
        let mut window = Window::new(&self.flow, &self.shared, self.window(), self.limit());
        meeting.ready()?;
        self.warm_up(&mut source, &mut window)?;
        window.enter(Phase::Timed)?;
        let (meter, started, lost) = (CpuMeter::start()?, Instant::now(), window.lost());
        let mut left = self.pages;
        while left > 0 && (self.time.is_zero() || started.elapsed() < self.time) {
            let batch = source.batch.min(left);
            window.take(batch)?;
            source.send(batch)?;
            left -= batch;
        }
        window.drain()?;
        let (used, lost) = (meter.stop()?, window.lost() - lost);
        window.enter(Phase::Closing)?;
        source.close();
        for _ in 0..CLOSING {
            window.take(1)?;
            source.send(1)?;
        }
        window.drain()?;
        window.until_compared()?;
        Ok(Sent { started, cpu: used.thread, machine_s: used.machine_s, lost })
    }

    /// An interface that was just switched on loses what it is given, and who learns
    /// has to see something.
    fn warm_up(&self, source: &mut Source, window: &mut Window<'_>) -> Result<()> {
        const ROUNDS: u64 = 8;
        let mut done = 0;
        while done < ROUNDS {
            let (batch, lost) = (source.batch.min(self.window()), window.lost());
            window.take(batch)?;
            source.send(batch)?;
            window.drain()?;
            done = if window.lost() == lost { done + 1 } else { 0 };
            if window.sent() > ROUNDS * 64 * batch {
                bail!("{} of the first {} pages were lost", window.lost(), window.sent());
            }
        }
        Ok(())
    }

    fn receive(&self, meeting: &Rendezvous) -> Result<Received> {
        place_thread(&self.plan.endpoints.receive)?;
        let mut sink = Sink::open(&self.work, self.pair, LOOK_EVERY)?;
        meeting.ready()?;
        let started = Instant::now();
        let (mut phase, window) = (Phase::WarmUp, self.window());
        let mut received = Received::default();
        let (mut pages, mut before) = (0, (TaskUse::of_this_thread()?, SinkCounts::default(), 0));
        let mut closing = Closing::new(source::walk(self.work.page));
        while !self.shared.is_over() {
            ensure!(started.elapsed() < self.limit(), "no end: {pages} pages came");
            if self.flow.phase() != phase {
                let told = sink.told()?;
                if phase == Phase::Timed {
                    received.cpu = TaskUse::of_this_thread()? - before.0;
                    received.pages = pages - before.2;
                    received.told = told - before.1;
                }
                phase = self.flow.phase();
                self.flow.saw(phase);
                before = (TaskUse::of_this_thread()?, told, pages);
            }
            self.take(&mut sink, (phase, window), &mut pages, &mut received, &mut closing)?;
        }
        received.compared = closing.compared;
        ensure!(received.compared > 0, "no page came that could be compared");
        Ok(received)
    }

    /// Takes what comes until nothing does, or somebody has to look around.
    fn take(
        &self,
        sink: &mut Sink,
        (phase, window): (Phase, u64),
        pages: &mut u64,
        received: &mut Received,
        closing: &mut Closing,
    ) -> Result<()> {
        for _ in 0..1024 {
            match sink.next(LOOK_EVERY)? {
                Arrival::Page => *pages += 1,
                Arrival::Other => continue,
                Arrival::Nothing => return Ok(()),
            }
            if phase == Phase::Timed
                && (pages.is_multiple_of(PAGES_PER_LOOK) || self.flow.has_all(*pages))
            {
                received.ended = Some(Instant::now());
            }
            if phase == Phase::Closing {
                closing.compare(&sink.last())?;
                if closing.compared > 0 {
                    self.flow.note_compared();
                }
            }
            self.flow.note_arrived(*pages, window);
        }
        Ok(())
    }
}

/// Pages that came when the clock had stopped.
struct Closing {
    /// This many slots were sent before.
    walk: u64,
    /// Which came already.
    came: [bool; CLOSING as usize],
    compared: u64,
}

impl Closing {
    const fn new(walk: u64) -> Self {
        Self { walk, came: [false; CLOSING as usize], compared: 0 }
    }

    /// Compares a page with what was sent: each slot once. One that was thought lost before
    /// the clock stopped, and comes late, is compared as well.
    fn compare(&mut self, page: &[u8]) -> Result<()> {
        let start = page.get(..8).context("a page is longer")?;
        let is_it = |slot: &u64| Pattern(*slot).first_difference(start).is_none();
        let ours = self.walk..self.walk + CLOSING;
        let Some(slot) = ours.clone().find(is_it).or_else(|| (0..self.walk).find(is_it)) else {
            bail!("a page begins with what nobody sent");
        };
        if let Some(at) = Pattern(slot).first_difference(page) {
            bail!("page {slot} is wrong from its byte {at} on");
        }
        if ours.contains(&slot) {
            let came = &mut self.came[(slot - self.walk) as usize];
            ensure!(!*came, "page {slot} came twice");
            *came = true;
            self.compared += page.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_and_a_page_that_comes_twice_are_found() {
        const WALK: u64 = 100;
        let mut page = vec![0; 4096];
        Pattern(WALK + 5).fill(&mut page);
        let mut closing = Closing::new(WALK);
        closing.compare(&page).unwrap();
        assert_eq!(closing.compared, 4096);
        assert!(closing.compare(&page).is_err(), "twice");
        Pattern(WALK + 6).fill(&mut page);
        page[4000] ^= 1;
        assert!(closing.compare(&page).unwrap_err().to_string().contains("byte 4000"));
        Pattern(WALK + CLOSING).fill(&mut page);
        assert!(closing.compare(&page).is_err(), "of no slot that was sent");
    }

    #[test]
    fn a_page_that_comes_late_is_compared_and_not_counted() {
        let mut page = vec![0; 4096];
        Pattern(99).fill(&mut page);
        let mut closing = Closing::new(100);
        closing.compare(&page).unwrap();
        closing.compare(&page).unwrap();
        assert_eq!(closing.compared, 0);
        page[4000] ^= 1;
        assert!(closing.compare(&page).is_err());
    }
}
