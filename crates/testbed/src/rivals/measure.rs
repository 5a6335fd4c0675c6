//! The frame of every run: two pinned threads that start together, their CPU
//! accounts, goals and deadlines.

use std::hint;
use std::io;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::{Amount, Plan, Polling, WorkerPlace};
use crate::cpu::{self, CpuMeter, TaskUse};
use crate::error::{Error, Tried};
use crate::sample::{CoresBusy, CpuSplit};

/// A spinning thread looks at the clock once in this many tries.
const TRIES_PER_LOOK: u32 = 256;

/// What both threads gave, and what it cost.
pub(super) struct Measured<S, R> {
    pub(super) sent: S,
    pub(super) received: R,
    pub(super) cpu: CpuSplit,
    pub(super) busy: Option<CoresBusy>,
    pub(super) wakeups: u64,
}

/// Runs both sides at once, each on its core.
pub(super) fn measure<S: Send, R: Send>(
    plan: &Plan,
    send: impl FnOnce(&Patience) -> Result<S, Error> + Send,
    receive: impl FnOnce(&Patience) -> Result<R, Error> + Send,
) -> Result<Measured<S, R>, Error> {
    let barrier = Barrier::new(3);
    let patience = Patience::of(plan);
    thread::scope(|scope| {
        // A thread that cannot start leaves the other at the barrier, so the
        // barrier is reached by a stand-in.
        let sender = start(scope, "landfall-send", &plan.endpoints.send, &barrier, patience, send);
        let receiver =
            start(scope, "landfall-receive", &plan.endpoints.receive, &barrier, patience, receive);
        let meter = CpuMeter::start();
        let reading = plan.idle_reading();
        barrier.wait();
        let sent = join("the sender", sender);
        let received = join("the receiver", receiver);
        let busy = plan.busy_since(reading.as_ref());
        let machine_s = meter?.stop()?.machine_s;
        let ((sent, send_use), (received, receive_use)) = both(sent, received)?;
        let cpu =
            CpuSplit { send_s: send_use.busy_s(), receive_s: receive_use.busy_s(), machine_s };
        let wakeups = send_use.sleeps + receive_use.sleeps;
        Ok(Measured { sent, received, cpu, busy, wakeups })
    })
}

type Outcome<T> = Result<(T, TaskUse), Error>;

fn start<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: &str,
    side: &WorkerPlace,
    barrier: &'scope Barrier,
    patience: Patience,
    work: impl FnOnce(&Patience) -> Result<T, Error> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Outcome<T>>, Error> {
    let core = side.core;
    let body = move || {
        let pinned = core.map_or(Ok(()), cpu::pin_this_thread);
        let before = TaskUse::of_this_thread();
        barrier.wait();
        pinned?;
        let done = work(&patience.starting_now())?;
        Ok((done, TaskUse::of_this_thread()? - before?))
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn_scoped(scope, body)
        .tried("start a thread")
        .inspect_err(|_| {
            // The others still meet at the barrier.
            scope.spawn(|| barrier.wait());
        })
}

fn join<T>(who: &str, thread: Result<ScopedJoinHandle<'_, Outcome<T>>, Error>) -> Outcome<T> {
    thread?.join().unwrap_or_else(|_| Err(Error::Panicked(who.to_owned())))
}

/// Both results, or the error that explains the other: when one side fails,
/// its peer usually runs out of time, or out of a peer.
fn both<S, R>(sent: Result<S, Error>, received: Result<R, Error>) -> Result<(S, R), Error> {
    match (sent, received) {
        (Ok(sent), Ok(received)) => Ok((sent, received)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(Error::TimedOut { .. }), Err(error)) | (Err(error), Err(_)) => Err(error),
    }
}

/// How long and in which way a thread waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    polling: Polling,
    gives_way: bool,
    limit: Duration,
    until: Instant,
}

impl Patience {
    pub(super) fn of(plan: &Plan) -> Self {
        let own = match plan.amount {
            Amount::Time(time) => time,
            Amount::Bytes(_) | Amount::Messages(_) => Duration::ZERO,
        };
        Self {
            polling: plan.polling,
            gives_way: plan.endpoints.share_a_core(),
            limit: own.saturating_add(plan.limit),
            until: Instant::now(),
        }
    }

    pub(super) fn starting_now(mut self) -> Self {
        let now = Instant::now();
        self.until = now.checked_add(self.limit).unwrap_or(now + Duration::from_secs(1 << 30));
        self
    }

    pub(super) fn polling(&self) -> Polling {
        self.polling
    }

    /// Readies a socket for this way of waiting.
    pub(super) fn prepare(&self, socket: &Socket) -> Result<(), Error> {
        match self.polling {
            Polling::Spin => socket.set_nonblocking(true),
            Polling::Block => socket
                .set_read_timeout(Some(self.limit))
                .and_then(|()| socket.set_write_timeout(Some(self.limit))),
        }
        .tried("set how a socket waits")
    }

    /// Fails when the time is over.
    pub(super) fn check(&self, what: &str, now: Instant) -> Result<(), Error> {
        if now < self.until { Ok(()) } else { Err(self.timed_out(what)) }
    }

    fn timed_out(&self, what: &str) -> Error {
        Error::TimedOut { what: what.to_owned(), limit: self.limit }
    }

    /// Repeats `call` until it does not say "would block", or time is over.
    /// `what` ends the sentence "cannot …".
    #[inline]
    pub(super) fn wait_for<T>(
        &self,
        what: &str,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> Result<T, Error> {
        let mut tries = 0u32;
        loop {
            let error = match call() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // A blocking socket says so when its time-out is over.
                io::ErrorKind::WouldBlock if self.polling == Polling::Block => {
                    return Err(self.timed_out(what));
                }
                io::ErrorKind::WouldBlock => self.give_way(),
                _ => return Err(Error::system(what, error)),
            }
            tries = tries.wrapping_add(1);
            if tries.is_multiple_of(TRIES_PER_LOOK) {
                self.check(what, Instant::now())?;
            }
        }
    }

    /// One turn of a spinning thread.
    #[inline]
    pub(super) fn give_way(&self) {
        if self.gives_way { thread::yield_now() } else { hint::spin_loop() }
    }
}

/// When a sender has sent enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    bytes: u64,
    time: Option<Duration>,
}

impl Goal {
    pub(super) fn new(amount: Amount, message: usize) -> Self {
        let (bytes, time) = match amount {
            Amount::Time(time) => (u64::MAX, Some(time)),
            Amount::Bytes(bytes) => (bytes, None),
            Amount::Messages(count) => (count.saturating_mul(message as u64), None),
        };
        Self { bytes, time }
    }

    /// How many bytes are left to send; 0 when done.
    pub(super) fn left(&self, done: u64, running: Duration) -> u64 {
        match self.time {
            Some(time) if running >= time => 0,
            _ => self.bytes.saturating_sub(done),
        }
    }
}

/// A repeating pattern, so that the byte sum of any piece is known without
/// reading it: each 256 bytes hold every value once.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(pattern_byte).collect()
}

fn pattern_byte(at: usize) -> u8 {
    // An odd factor makes this a permutation of 0 to 255.
    (at as u8).wrapping_mul(167)
}

/// The byte sum of `len` bytes of the pattern from `at`.
pub(super) fn pattern_sum(at: usize, len: usize) -> u64 {
    const PERIOD_SUM: u64 = 255 * 256 / 2;
    let tail = at + len / 256 * 256..at + len;
    (len / 256) as u64 * PERIOD_SUM + tail.map(|at| u64::from(pattern_byte(at))).sum::<u64>()
}

/// The byte sum of what is really there.
pub(super) fn byte_sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

#[cfg(test)]
mod tests {
    use super::super::Endpoints;
    use super::*;

    #[test]
    fn sums_of_pieces_are_known_without_reading() {
        let bytes = pattern(2000);
        for (at, len) in [(0, 0), (0, 256), (1, 255), (7, 1500), (300, 1023)] {
            assert_eq!(pattern_sum(at, len), byte_sum(&bytes[at..at + len]), "{len} at {at}");
        }
    }

    #[test]
    fn goals_end() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Goal::new(Amount::Bytes(10), 4).left(7, hour), 3);
        assert_eq!(Goal::new(Amount::Messages(3), 4).left(12, hour), 0);
        assert_eq!(Goal::new(Amount::Messages(u64::MAX), 4).left(0, hour), u64::MAX);
        assert_eq!(Goal::new(Amount::Time(hour), 4).left(1, hour), 0);
        assert!(Goal::new(Amount::Time(hour), 4).left(1, Duration::ZERO) > 0);
    }

    #[test]
    fn failures_and_panics_of_one_side_end_the_run_with_their_reason() {
        let plan = Plan::new(Endpoints::loopback().unwrap(), Amount::Bytes(1));
        let wrong = || Error::WrongData("on purpose".into());
        let late = |patience: &Patience| patience.timed_out("waiting");
        let outcome = measure::<(), ()>(&plan, |p| Err(late(p)), |_| Err(wrong()));
        assert!(matches!(outcome, Err(Error::WrongData(_))));
        let outcome = measure::<(), ()>(&plan, |_| Err(wrong()), |p| Err(late(p)));
        assert!(matches!(outcome, Err(Error::WrongData(_))));
        let outcome = measure::<(), ()>(&plan, |_| panic!("on purpose"), |_| Ok(()));
        assert!(matches!(outcome, Err(Error::Panicked(_))));
        let mut nowhere = plan;
        nowhere.endpoints.send.core = Some(usize::MAX);
        assert!(matches!(measure(&nowhere, |_| Ok(()), |_| Ok(())), Err(Error::System { .. })));
    }

    #[test]
    fn spinning_ends_when_the_time_is_over() {
        let mut plan = Plan::new(Endpoints::loopback().unwrap(), Amount::Bytes(1));
        plan = plan.polling(Polling::Spin);
        plan.limit = Duration::from_millis(1);
        let never = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        let patience = Patience::of(&plan).starting_now();
        assert!(matches!(patience.wait_for("wait", never), Err(Error::TimedOut { .. })));
    }
}
