//! Round trips by QPIP's own UDP: a queue pair at each end that is bound and not connected.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use landfall::qpip::{Adapter, Operation, QueuePairOptions, Status};
use landfall_testbed::Sample;
use landfall_testbed::cpu::TaskUse;
use landfall_testbed::rivals::Plan;

use super::super::halves::{self, Answered, InitiatorResult};
use super::super::side::Rendezvous;
use super::super::{Role, TwoSided};
use super::side::QueuePairEnd;
use super::{LONGEST_TALK, Run, Setup, TALK_DEPTH, limit_of};

/// So long a datagram is waited for before the next look at whether it is over, and before the
/// first one is sent again.
const LOOK: Duration = Duration::from_millis(50);

/// Datagrams of `len` bytes there and back, timed one by one.
pub(crate) fn talk_by_datagrams(plan: &Plan, setup: &Setup<'_>, len: usize) -> Result<Sample> {
    ensure!((1..=LONGEST_TALK).contains(&len), "{len} bytes a datagram; 1 to {LONGEST_TALK}");
    let run = &Run::new(plan, setup)?;
    Datagrams { run, len, is_over: AtomicBool::new(false) }.run(Rendezvous::between_two(plan.limit))
}

struct Datagrams<'a> {
    run: &'a Run<'a>,
    len: usize,
    /// Who asks has finished: no connection says so.
    is_over: AtomicBool,
}

/// Tells that who asks has finished, when it is dropped.
struct FinishGuard<'a>(&'a AtomicBool);

impl Drop for FinishGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A bound queue pair. Even slots are for what goes out, odd ones for what comes in.
struct Talker {
    end: QueuePairEnd,
    sent: u64,
    came: u64,
}

impl TwoSided for Datagrams<'_> {
    type Meeting = Rendezvous;
    type Begun = InitiatorResult;
    type Served = Answered;
    type Outcome = Sample;

    fn begin(&self, meeting: &mut Rendezvous) -> Result<InitiatorResult> {
        let _guard = FinishGuard(&self.is_over);
        let adapter = self.run.open(Role::Send, meeting)?;
        self.ask(self.talker(adapter, Role::Send)?, meeting)
    }

    fn serve(&self, meeting: &mut Rendezvous) -> Result<Answered> {
        let adapter = self.run.open(Role::Receive, meeting)?;
        self.answer(self.talker(adapter, Role::Receive)?, meeting)
    }

    fn outcome(&self, asked: InitiatorResult, answered: Answered) -> Result<Sample> {
        Ok(halves::of_talk(&asked, &answered))
    }
}

impl Datagrams<'_> {
    fn address(&self, role: Role) -> SocketAddr {
        self.run.setup.below.station(role).address()
    }

    fn talker(&self, adapter: Adapter, role: Role) -> Result<Talker> {
        let shape = (self.len, 4 * TALK_DEPTH as usize);
        let limit = limit_of(self.run.plan);
        let mut end = QueuePairEnd::with(adapter, QueuePairOptions::udp(), shape, limit)?;
        end.pair()?.bind(self.address(role))?;
        (0..TALK_DEPTH).try_for_each(|nth| end.post_receive(2 * nth + 1))?;
        Ok(Talker { end, sent: 0, came: 0 })
    }

    /// Asks until the plan's time is over.
    fn ask(&self, mut talk: Talker, meeting: &Rendezvous) -> Result<InitiatorResult> {
        let time = halves::time_of(self.run.plan)?;
        let to = self.address(Role::Receive);
        meeting.ready()?;
        talk.find(to, self.run.plan.limit)?;
        let rounds = halves::round_trips(time, |round| {
            talk.send(to)?;
            ensure!(talk.hear(self.run.plan.limit)?, "no answer to datagram {round}");
            Ok(Instant::now())
        })?;
        Ok(InitiatorResult { len: self.len, rounds, copied: talk.end.copied() })
    }

    /// Answers until the other side has finished.
    fn answer(&self, mut talk: Talker, meeting: &Rendezvous) -> Result<Answered> {
        let to = self.address(Role::Send);
        meeting.ready()?;
        let before = TaskUse::of_this_thread()?;
        while !self.is_over.load(Ordering::Relaxed) {
            if talk.hear(LOOK)? {
                talk.send(to)?;
            }
        }
        Ok(Answered { cpu: TaskUse::of_this_thread()? - before, copied: talk.end.copied() })
    }
}

impl Talker {
    fn send(&mut self, to: SocketAddr) -> Result<()> {
        let slot = 2 * (self.sent % TALK_DEPTH);
        self.sent += 1;
        self.end.post_send_to(slot, to)
    }

    /// Waits for a datagram, and posts its place again. False: none came in time.
    fn hear(&mut self, limit: Duration) -> Result<bool> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(done) = self.end.done.wait_for(left)? else { return Ok(false) };
            match (done.operation, done.status) {
                (Operation::Send, Status::Success) => {}
                (Operation::Receive, Status::Success) => {
                    let place = 2 * (self.came % TALK_DEPTH) + 1;
                    ensure!(done.id == place, "{done:?} as datagram {}", self.came);
                    self.came += 1;
                    self.end.post_receive(place)?;
                    return Ok(true);
                }
                _ => bail!("{done:?} as datagram {}", self.came),
            }
        }
    }

    /// Until the ends know each other's stations datagrams may be lost; then nothing is under way.
    fn find(&mut self, to: SocketAddr, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            self.send(to)?;
            if self.hear(LOOK)? {
                break;
            }
            ensure!(Instant::now() < until, "nobody answers at {to}");
        }
        while self.hear(LOOK)? {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use landfall_testbed::rivals::{Amount, Endpoints, Polling};

    use super::super::LowerLayer;
    use super::*;

    #[test]
    fn datagrams_there_and_back_are_timed() {
        for below in [LowerLayer::Tunnel(1500), LowerLayer::Process] {
            let time = Amount::Time(Duration::from_millis(20));
            let plan = Plan::new(Endpoints::loopback().unwrap(), time).polling(Polling::Spin);
            let sample = talk_by_datagrams(&plan, &Setup::over(below), 1).unwrap();
            let rtt = sample.rtt.unwrap();
            assert_eq!(rtt.count, sample.messages, "{below:?}");
            assert!(0 < rtt.min_ns && rtt.min_ns <= rtt.max_ns, "{below:?}: {rtt:?}");
        }
    }
}
