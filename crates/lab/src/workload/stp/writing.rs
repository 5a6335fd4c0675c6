//! One stream of Puts into memory that the other side shows.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use landfall::stp::blocking::{Endpoint, Listener};
use landfall::stp::{Memory, Operation, Peer, Put, RemoteRights};
use landfall_testbed::cpu::{CpuMeter, TaskUse};
use landfall_testbed::rivals::Plan;

use super::super::TwoSided;
use super::super::halves::{self, Received, Streamed};
use super::super::side::Rendezvous;
use super::{JUNK, NAME, Outcome, Pattern, Run, Setup, Shape, Stats, connect, copied};

/// Puts of one length, one stream of them, each to a place of its own in a region that is as
/// large as all that [`stream`](super::stream) receives into.
pub fn put_stream(plan: &Plan, setup: &Setup<'_>, shape: Shape) -> Result<Outcome> {
    let run = &Run::new(plan, setup)?;
    PutStream { run, shape }.run(Rendezvous::between_two(plan.limit))
}

struct PutStream<'a> {
    run: &'a Run<'a>,
    shape: Shape,
}

impl TwoSided for PutStream<'_> {
    type Meeting = Rendezvous;
    type Begun = (WriterResult, Stats);
    type Served = (Shown, Stats);
    type Outcome = Outcome;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<Self::Begun> {
        let (run, shape) = (self.run, self.shape);
        run.call(meeting, |endpoint, to| write(run, shape, endpoint, to, meeting))
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Self::Served> {
        let (run, shape) = (self.run, self.shape);
        run.be_called(meeting, |endpoint, listener| show(run, shape, endpoint, listener, meeting))
    }

    fn outcome(&self, wrote: Self::Begun, shown: Self::Served) -> Result<Outcome> {
        let ((wrote, sender), (shown, receiver)) = (wrote, shown);
        // Who is written to hears of nothing: how much came, and when, only the writer knows.
        let came = Received {
            started: wrote.sent.started,
            ended: wrote.ended,
            bytes: wrote.puts * self.shape.message as u64,
            messages: wrote.puts,
            compared: shown.compared,
            cpu: shown.cpu,
            copied: copied(&receiver),
        };
        let sample = halves::of_stream(&wrote.sent, &came);
        Ok(Outcome { sample, compared: came.compared, sender, receiver })
    }
}

/// What the side saw that wrote.
struct WriterResult {
    sent: Streamed,
    /// When the last Put was acknowledged.
    ended: Instant,
    puts: u64,
}

/// What the side saw that was written to.
struct Shown {
    cpu: TaskUse,
    compared: u64,
}

/// Writes for as long, or as many Puts, as the plan says.
fn write(
    run: &Run<'_>,
    shape: Shape,
    endpoint: &Endpoint,
    to: Peer,
    meeting: &Rendezvous,
) -> Result<(WriterResult, Stats)> {
    let Run { plan, setup, .. } = run;
    let (message, places) = (shape.message as u64, shape.receive_slots as u64);
    let connection = connect(endpoint, to, plan.limit)?;
    let remote = connection.request_region(NAME, message * places, RemoteRights::PUT).wait()?;
    let mut memory = endpoint.memory(shape.message * shape.receive_slots)?;
    for (slot, bytes) in memory.chunks_exact_mut(shape.message).enumerate() {
        Pattern(slot as u64).fill(bytes);
    }
    let region = endpoint.register(memory)?;
    let most = setup.under_way(shape);
    meeting.ready()?;
    let meter = CpuMeter::start()?;
    let reading = plan.idle_reading();
    let started = Instant::now();
    let mut under_way: VecDeque<Operation<Put>> = VecDeque::new();
    let mut begun = 0;
    loop {
        let is_over = plan.amount.is_reached(started, begun, message);
        if under_way.len() < most && !is_over {
            let at = begun % places * message;
            under_way.push_back(remote.put(at, &region.part(at..at + message)?).start());
            begun += 1;
        } else if let Some(oldest) = under_way.pop_front() {
            oldest.wait()?;
        } else {
            break;
        }
    }
    let ended = Instant::now();
    let busy = plan.busy_since(reading.as_ref());
    let used = meter.stop()?;
    let stats = endpoint.stats();
    connection.close()?;
    let sent = Streamed {
        started,
        cpu: used.thread,
        machine_s: used.machine_s,
        busy,
        retransmitted: stats.engine.operations_repeated,
        copied: copied(&stats),
    };
    Ok((WriterResult { sent, ended, puts: begun }, stats))
}

/// Shows a region, and compares what is in it when the other side has gone.
fn show(
    run: &Run<'_>,
    shape: Shape,
    endpoint: &Endpoint,
    listener: &Listener,
    meeting: &Rendezvous,
) -> Result<(Shown, Stats)> {
    let connection = listener.accept_within(run.plan.limit)?.context("nobody calls")?;
    let mut memory = endpoint.memory(shape.message * shape.receive_slots)?;
    memory.fill(JUNK);
    let region = endpoint.register(memory)?;
    let request = connection.region_request()?;
    let exposed = request.expose(&region.whole(), RemoteRights::PUT)?;
    meeting.ready()?;
    let before = TaskUse::of_this_thread()?;
    connection.closed()?;
    let cpu = TaskUse::of_this_thread()? - before;
    drop(exposed);
    let compared = compare(&endpoint.take_back(region)?, shape)?;
    Ok((Shown { cpu, compared }, endpoint.stats()))
}

/// How many bytes were written. Each place holds what belongs there, or what was there before.
fn compare(memory: &Memory, shape: Shape) -> Result<u64> {
    let mut compared = 0;
    for (slot, bytes) in memory.chunks_exact(shape.message).enumerate() {
        if bytes.iter().all(|byte| *byte == JUNK) {
            continue;
        }
        let difference = Pattern(slot as u64).first_difference(bytes);
        ensure!(difference.is_none(), "place {slot} is wrong from byte {difference:?} on");
        compared += bytes.len() as u64;
    }
    Ok(compared)
}
