//! Transfers there and back, one at a time.

use std::time::Instant;

use anyhow::{Context, Result};
use landfall::stp::blocking::{Endpoint, Listener};
use landfall::stp::{Error, Memory, Peer};
use landfall_testbed::Sample;
use landfall_testbed::cpu::TaskUse;
use landfall_testbed::rivals::Plan;

use super::super::TwoSided;
use super::super::halves::{self, Answered, InitiatorResult};
use super::super::side::Rendezvous;
use super::{Run, Setup, connect, copied};

/// Transfers of this length, each of which the other side answers with another.
pub(crate) fn transfers(plan: &Plan, setup: &Setup<'_>, len: usize) -> Result<Sample> {
    let run = &Run::new(plan, setup)?;
    RoundTrips { run, len }.run(Rendezvous::between_two(plan.limit))
}

struct RoundTrips<'a> {
    run: &'a Run<'a>,
    len: usize,
}

impl TwoSided for RoundTrips<'_> {
    type Meeting = Rendezvous;
    type Begun = InitiatorResult;
    type Served = Answered;
    type Outcome = Sample;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<InitiatorResult> {
        self.run.call(meeting, |endpoint, to| ask(self.run, self.len, endpoint, to))
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Answered> {
        let (run, len) = (self.run, self.len);
        run.be_called(meeting, |endpoint, listener| answer(run, len, endpoint, listener))
    }

    fn outcome(&self, asked: InitiatorResult, answered: Answered) -> Result<Sample> {
        Ok(halves::of_talk(&asked, &answered))
    }
}

fn ask(run: &Run<'_>, len: usize, endpoint: &Endpoint, to: Peer) -> Result<InitiatorResult> {
    let time = halves::time_of(run.plan)?;
    let connection = connect(endpoint, to, run.plan.limit)?;
    let mut memory = Some((Memory::zeroed(len), Memory::zeroed(len)));
    let rounds = halves::round_trips(time, |_| {
        let (out, back) = memory.take().context("the memory comes back")?;
        let answer = connection.receive(back).start();
        let sent = connection.send(out).start();
        let back = answer.wait()?.into_memory();
        let heard = Instant::now();
        memory = Some((sent.wait()?.memory.context("the memory comes back")?, back));
        Ok(heard)
    })?;
    let copied = copied(&endpoint.stats());
    connection.close()?;
    Ok(InitiatorResult { len, rounds, copied })
}

/// Answers until the other side has gone. The next place is there before the answer leaves.
fn answer(run: &Run<'_>, len: usize, endpoint: &Endpoint, listener: &Listener) -> Result<Answered> {
    let connection = listener.accept_within(run.plan.limit)?.context("nobody calls")?;
    let mut posted = connection.receive(Memory::zeroed(len)).start();
    let (mut next, mut out) = (Memory::zeroed(len), Memory::zeroed(len));
    let before = TaskUse::of_this_thread()?;
    loop {
        let message = match posted.wait().map_err(Error::from) {
            Ok(message) => message,
            Err(Error::Closed { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        posted = connection.receive(next).start();
        let sent = connection.send(out).start();
        next = message.into_memory();
        out = match sent.wait().map_err(Error::from) {
            Ok(sent) => sent.memory.context("the memory comes back")?,
            Err(Error::Closed { .. }) => break,
            Err(error) => return Err(error.into()),
        };
    }
    let cpu = TaskUse::of_this_thread()? - before;
    Ok(Answered { cpu, copied: copied(&endpoint.stats()) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use landfall_testbed::rivals::{Amount, Endpoints};

    use super::super::LowerLayer;
    use super::*;

    #[test]
    fn transfers_go_there_and_back() {
        let time = Amount::Time(Duration::from_millis(20));
        let plan = Plan::new(Endpoints::loopback().unwrap(), time);
        for below in [LowerLayer::SameHost, LowerLayer::Udp] {
            let sample = transfers(&plan, &Setup::over(below), 64).unwrap();
            let rtt = sample.rtt.unwrap();
            assert!(rtt.count == sample.messages && 0 < rtt.min_ns && rtt.min_ns <= rtt.max_ns);
        }
    }
}
