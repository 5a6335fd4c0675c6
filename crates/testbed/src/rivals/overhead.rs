//! What it costs the calling thread to hand a message to a socket and to take
//! it out of another, without the time that it is on its way.

use std::io::Read;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use socket2::Socket;

use super::tcp::{Connection, TcpOptions};
use super::{Amount, Plan};
use crate::cpu;
use crate::error::{Error, Tried};
use crate::sample::{RttHistogram, Sample};

/// Messages between two looks at the clock.
const BATCH: usize = 32;
/// Batches at the start that are not recorded.
const WARM_UP: u64 = 200;

/// Short messages over TCP, one `send` and one `recv` each, by one thread that
/// has both ends and waits between the two until all is there.
#[derive(Clone, Debug)]
pub struct TcpOverhead {
    /// Where and for how long; the time that [`Amount::Time`] says.
    pub plan: Plan,
    /// Bytes per message.
    pub message: usize,
}

impl TcpOverhead {
    /// Messages of `message` bytes without Nagle's delay.
    #[must_use]
    pub const fn new(plan: Plan, message: usize) -> Self {
        Self { plan, message }
    }

    /// One run over a new connection.
    pub fn run(&self) -> Result<Sample, Error> {
        let Amount::Time(time) = self.plan.amount else {
            return Err(Error::BadRequest("overhead is measured for a time".into()));
        };
        if !(1..=1 << 12).contains(&self.message) {
            return Err(Error::BadRequest("messages of 1 to 4096 bytes are possible".into()));
        }
        let options = TcpOptions { no_delay: true, ..TcpOptions::default() };
        let connection = Connection::new(&self.plan, &options)?;
        // A thread of its own, so that nobody else is pinned for good.
        let measured = thread::scope(|scope| {
            let thread = scope.spawn(|| self.measure(&connection, time));
            thread.join().unwrap_or_else(|_| Err(Error::Panicked("the thread".into())))
        });
        let (batches, overhead) = measured?;
        let messages = batches * BATCH as u64;
        Ok(Sample {
            bytes: messages * self.message as u64,
            messages,
            seconds: time.as_secs_f64(),
            overhead_ns: overhead.summary().map(|batch| batch.p50_ns as f64 / BATCH as f64),
            ..Sample::default()
        })
    }

    fn measure(&self, ends: &Connection, time: Duration) -> Result<(u64, RttHistogram), Error> {
        if let Some(core) = self.plan.endpoints.send.core {
            cpu::pin_this_thread(core)?;
        }
        let limit = Some(self.plan.limit);
        ends.client.set_write_timeout(limit).tried("bound a wait")?;
        ends.server.set_read_timeout(limit).tried("bound a wait")?;
        let (message, mut answer) = (vec![7; self.message], vec![0; self.message]);
        let mut overhead = RttHistogram::new();
        let (mut started, mut batch) = (Instant::now(), 0);
        while batch <= WARM_UP || started.elapsed() < time {
            let start = Instant::now();
            for _ in 0..BATCH {
                let sent = ends.client.send(&message).tried("send a message")?;
                expect(sent, self.message)?;
            }
            let sent = start.elapsed();
            self.wait_for_all(&ends.server)?;
            let start = Instant::now();
            for _ in 0..BATCH {
                let got = (&ends.server).read(&mut answer).tried("receive a message")?;
                expect(got, self.message)?;
            }
            let spent = sent + start.elapsed();
            if answer != message {
                return Err(Error::WrongData("a message came with other bytes".into()));
            }
            match batch {
                0..WARM_UP => started = Instant::now(),
                _ => overhead.record(spent),
            }
            batch += 1;
        }
        Ok((batch.saturating_sub(WARM_UP), overhead))
    }

    /// Looks until the whole batch waits in the socket; takes nothing.
    fn wait_for_all(&self, socket: &Socket) -> Result<(), Error> {
        let mut all = vec![MaybeUninit::uninit(); BATCH * self.message];
        let started = Instant::now();
        while socket.peek(&mut all).tried("look for messages")? < all.len() {
            if started.elapsed() > self.plan.limit {
                let what = "messages to arrive".to_owned();
                return Err(Error::TimedOut { what, limit: self.plan.limit });
            }
            thread::yield_now();
        }
        Ok(())
    }
}

fn expect(done: usize, wanted: usize) -> Result<(), Error> {
    if done == wanted {
        return Ok(());
    }
    Err(Error::WrongData(format!("{done} bytes of a message of {wanted}")))
}

#[cfg(test)]
mod tests {
    use super::super::Endpoints;
    use super::*;

    #[test]
    fn it_says_what_a_message_costs() {
        let amount = Amount::Time(Duration::from_millis(20));
        let plan = Plan::new(Endpoints::loopback().unwrap(), amount);
        let sample = TcpOverhead::new(plan, 1).run().unwrap();
        assert!(sample.overhead_ns.is_some_and(|ns| ns > 0.0), "{sample:?}");
        assert_eq!(sample.bytes, sample.messages);
    }

    #[test]
    fn what_it_cannot_measure_it_refuses() {
        let plan = |amount| Plan::new(Endpoints::loopback().unwrap(), amount);
        let endless = TcpOverhead::new(plan(Amount::Bytes(1)), 1).run();
        assert!(matches!(endless, Err(Error::BadRequest(_))));
        let empty = TcpOverhead::new(plan(Amount::Time(Duration::from_millis(1))), 0).run();
        assert!(matches!(empty, Err(Error::BadRequest(_))));
    }
}
