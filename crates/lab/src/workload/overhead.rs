//! What it costs a thread to post a message and to reap it, where an adapter is
//! *offloaded*: on a thread of its own, as on a card. The time that messages are
//! on their way does not count.
//!
//! The sender's and the receiver's half are measured one after the other, so
//! that two cores suffice: one side is offloaded, the other is run inline by the
//! measuring thread while it waits.

use std::thread;
use std::time::{Duration, Instant as StdInstant};

use anyhow::{Context, Result, ensure};
use landfall::qpip::{
    Access, Adapter, Builder, ChannelConfig, CompletionQueue, Mapping, Memory, MemoryRegion, Part,
    QueuePair, QueuePairOptions, Wait,
};
use landfall_testbed::cpu;
use landfall_testbed::rivals::{Amount, Plan};
use landfall_testbed::{RttHistogram, Sample};

use super::Role;
use super::side::joined;

/// Messages between two looks at the clock.
const BATCH: u64 = 32;
/// Batches at the start that are not recorded.
const WARM_UP: u64 = 200;
/// Where the receiver listens.
const SERVER: &str = "10.79.0.2:7000";
/// Between two looks for a connection.
const GLANCE: Duration = Duration::from_micros(100);

/// Messages of one byte from queue pair to queue pair, within this process.
pub(crate) fn run(plan: &Plan) -> Result<Sample> {
    let Amount::Time(time) = plan.amount else { anyhow::bail!("overhead is measured for a time") };
    // A thread of its own, so that nobody else is pinned for good.
    let halves = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let send = Half::new(plan, Role::Send)?.measure(time / 2)?;
            let receive = Half::new(plan, Role::Receive)?.measure(time / 2)?;
            Ok([send, receive])
        });
        joined(thread.join())
    })?;
    let each = |half: &RttHistogram| half.summary().map(|batch| batch.p50_ns as f64 / BATCH as f64);
    let [send, receive] = &halves;
    let messages = halves.iter().filter_map(RttHistogram::summary).map(|half| half.count).sum();
    Ok(Sample {
        bytes: messages,
        messages,
        seconds: time.as_secs_f64(),
        overhead_ns: each(send).zip(each(receive)).map(|(send, receive)| send + receive),
        ..Sample::default()
    })
}

/// A queue pair, and what it completes in.
struct End {
    adapter: Adapter,
    pair: QueuePair,
    done: CompletionQueue,
    /// One byte.
    byte: Part,
    _memory: MemoryRegion,
}

impl End {
    fn new(adapter: Adapter) -> Result<Self> {
        let domain = adapter.domain()?;
        let done = adapter.completion_queue(4 * BATCH as u32)?;
        let options = QueuePairOptions::tcp(Mapping::Message);
        let pair = domain.queue_pair(&options, &done, &done)?;
        let memory = domain.register(Memory::zeroed(4096), Access::ReadWrite)?;
        let byte = memory.part(0..1)?;
        Ok(Self { adapter, pair, done, byte, _memory: memory })
    }

    fn post(&mut self, operation: Role) -> Result<()> {
        for id in 0..BATCH {
            match operation {
                Role::Send => self.pair.post_send(id, &[self.byte])?,
                Role::Receive => self.pair.post_receive(id, &[self.byte])?,
            }
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<()> {
        for _ in 0..BATCH {
            let done = self.done.poll().context("a completion was there")?;
            ensure!(done.status.is_success() && done.len == 1, "{done:?}");
        }
        Ok(())
    }
}

/// A connection, one end of which is offloaded and measured.
struct Half {
    measured: Role,
    sender: End,
    receiver: End,
    limit: Duration,
}

impl Half {
    fn new(plan: &Plan, measured: Role) -> Result<Self> {
        let spinning = || Adapter::builder().wait(Wait::Spin);
        let (one, two) = spinning().pair(spinning(), ChannelConfig::default())?;
        let [one, two] = [one.address("10.79.0.1/24"), two.address("10.79.0.2/24")];
        let open = |builder: Builder, role| {
            if role != measured {
                return builder.open_inline();
            }
            // The adapter's thread starts where this one is, and stays there.
            pin(plan.endpoints.receive.core);
            builder.open()
        };
        let (sender, receiver) = (open(one, Role::Send)?, open(two, Role::Receive)?);
        pin(plan.endpoints.send.core);
        let (sender, receiver) = (End::new(sender)?, End::new(receiver)?);
        Self { measured, sender, receiver, limit: plan.limit }.connected()
    }

    fn connected(mut self) -> Result<Self> {
        let at = SERVER.parse()?;
        let listener = self.receiver.adapter.listen(at)?;
        listener.offer(self.receiver.pair)?;
        let connecting = self.sender.pair.connect(at);
        let started = StdInstant::now();
        self.receiver.pair = loop {
            self.sender.adapter.turn();
            if let Some(pair) = listener.accept().wait_for(GLANCE) {
                break pair?;
            }
            ensure!(started.elapsed() < self.limit, "no connection within {:?}", self.limit);
        };
        connecting.wait_for(self.limit).context("a connection that was accepted is open")??;
        Ok(self)
    }

    fn measure(mut self, time: Duration) -> Result<RttHistogram> {
        let mut overhead = RttHistogram::new();
        let (mut started, mut batch) = (StdInstant::now(), 0);
        while batch <= WARM_UP || started.elapsed() < time {
            let spent = match self.measured {
                Role::Send => self.send_batch()?,
                Role::Receive => self.receive_batch()?,
            };
            match batch {
                0..WARM_UP => started = StdInstant::now(),
                _ => overhead.record(spent),
            }
            batch += 1;
        }
        Ok(overhead)
    }

    /// Timed: posting sends, and reaping them.
    fn send_batch(&mut self) -> Result<Duration> {
        self.receiver.post(Role::Receive)?;
        let start = StdInstant::now();
        self.sender.post(Role::Send)?;
        let posted = start.elapsed();
        self.wait_for_all()?;
        let start = StdInstant::now();
        self.sender.reap()?;
        let reaped = start.elapsed();
        self.receiver.reap()?;
        Ok(posted + reaped)
    }

    /// Timed: posting receives, and reaping them.
    fn receive_batch(&mut self) -> Result<Duration> {
        let start = StdInstant::now();
        self.receiver.post(Role::Receive)?;
        let posted = start.elapsed();
        self.sender.post(Role::Send)?;
        self.wait_for_all()?;
        let start = StdInstant::now();
        self.receiver.reap()?;
        let reaped = start.elapsed();
        self.sender.reap()?;
        Ok(posted + reaped)
    }

    /// Until all that was posted on both sides can be reaped.
    fn wait_for_all(&mut self) -> Result<()> {
        let inline = match self.measured {
            Role::Send => &self.receiver.adapter,
            Role::Receive => &self.sender.adapter,
        };
        let started = StdInstant::now();
        while (self.sender.done.len().min(self.receiver.done.len()) as u64) < BATCH {
            if !inline.turn() {
                ensure!(started.elapsed() < self.limit, "no completions within {:?}", self.limit);
                // Where both share a core, the other has to run.
                thread::yield_now();
            }
        }
        Ok(())
    }
}

/// Moves this thread to a core, where it may.
fn pin(core: Option<usize>) {
    // Without it the figures are worse, not wrong.
    let _ = core.map(cpu::pin_this_thread);
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_testbed::rivals::Endpoints;

    #[test]
    fn both_halves_are_measured() {
        let amount = Amount::Time(Duration::from_millis(20));
        let sample = run(&Plan::new(Endpoints::loopback().unwrap(), amount)).unwrap();
        assert!(sample.overhead_ns.is_some_and(|ns| ns > 0.0), "{sample:?}");
        assert!(sample.messages > 0);
    }
}
