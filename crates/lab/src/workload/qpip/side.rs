//! One side of a run: an adapter with a queue pair, and its memory in slots.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use landfall::qpip::{
    Access, Adapter, Arena, ArenaConfig, Completion, CompletionQueue, Listener, Mapping,
    MemoryRegion, Operation, Part, QueuePair, QueuePairOptions,
};
use landfall_testbed::cpu::CpuMeter;
use landfall_testbed::rivals::{Amount, Plan};

use super::super::halves::Streamed;
use super::super::{JUNK, Pattern};

/// An adapter with one queue pair, and memory for this many messages.
pub(crate) struct QueuePairEnd {
    pub(crate) adapter: Adapter,
    pub(crate) pair: Option<QueuePair>,
    pub(crate) done: CompletionQueue,
    pub(crate) memory: MemoryRegion,
    pub(super) message: u64,
    pub(super) slots: u64,
    limit: Duration,
}

impl QueuePairEnd {
    /// With a queue pair of this mapping, and slots for this many messages.
    pub(crate) fn new(
        adapter: Adapter,
        mapping: Mapping,
        shape: (usize, usize),
        limit: Duration,
    ) -> Result<Self> {
        Self::with(adapter, QueuePairOptions::tcp(mapping), shape, limit)
    }

    /// The same with a queue pair of this kind, as deep as there are slots.
    pub(super) fn with(
        adapter: Adapter,
        options: QueuePairOptions,
        (message, slots): (usize, usize),
        limit: Duration,
    ) -> Result<Self> {
        let domain = adapter.domain()?;
        let depth = u32::try_from(slots)?;
        let done = adapter.completion_queue(4 * depth)?;
        let options = QueuePairOptions { send_depth: depth, receive_depth: depth, ..options };
        let pair = Some(domain.queue_pair(&options, &done, &done)?);
        // Memory that was used before, as a program's is after a while.
        let mut memory = Arena::new(ArenaConfig::default()).take(message * slots)?;
        memory.fill(JUNK);
        let memory = domain.register(memory, Access::ReadWrite)?;
        let (message, slots) = (message as u64, slots as u64);
        Ok(Self { adapter, pair, done, memory, message, slots, limit })
    }

    /// Writes into each slot what tells it from others.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut bytes = vec![0; self.message as usize];
        for slot in 0..self.slots {
            Pattern(slot).fill(&mut bytes);
            self.memory.copy_in(slot * self.message, &bytes)?;
        }
        Ok(())
    }

    pub(crate) fn pair(&mut self) -> Result<&mut QueuePair> {
        self.pair.as_mut().context("the queue pair is offered")
    }

    fn slot(&self, nth: u64) -> Result<Part> {
        let at = nth % self.slots * self.message;
        Ok(self.memory.part(at..at + self.message)?)
    }

    pub(crate) fn connect(&mut self, to: SocketAddr) -> Result<()> {
        let limit = self.limit;
        Ok(self.pair()?.connect(to).wait_for(limit).context("nobody answers")??)
    }

    /// Offers the queue pair to who connects. Then all can meet, and `accept` waits.
    pub(crate) fn listen(&mut self, at: SocketAddr) -> Result<Listener> {
        let listener = self.adapter.listen(at)?;
        listener.offer(self.pair.take().context("the queue pair is offered")?)?;
        Ok(listener)
    }

    pub(crate) fn accept(&mut self, listener: &Listener) -> Result<()> {
        self.pair = Some(listener.accept().wait_for(self.limit).context("nobody connects")??);
        Ok(())
    }

    pub(crate) fn post_send(&mut self, nth: u64) -> Result<()> {
        let part = self.slot(nth)?;
        Ok(self.pair()?.post_send(nth, &[part])?)
    }

    /// The same as a datagram, to this address.
    pub(super) fn post_send_to(&mut self, nth: u64, to: SocketAddr) -> Result<()> {
        let part = self.slot(nth)?;
        Ok(self.pair()?.post_send_to(nth, &[part], to)?)
    }

    pub(crate) fn post_receive(&mut self, nth: u64) -> Result<()> {
        let part = self.slot(nth)?;
        Ok(self.pair()?.post_receive(nth, &[part])?)
    }

    /// The next completion; drives the adapter until there is one.
    pub(crate) fn next(&mut self) -> Result<Completion> {
        let limit = self.limit;
        let next = self.done.wait_for(limit)?;
        next.with_context(|| format!("nothing was completed within {limit:?}"))
    }

    pub(crate) fn retransmitted(&self) -> u64 {
        let stats = self.pair.as_ref().and_then(QueuePair::stats);
        stats.map_or(0, |stats| stats.segments_again)
    }

    pub(crate) fn copied(&self) -> u64 {
        self.adapter.links().iter().map(|link| link.counters.bytes_copied).sum()
    }

    /// Says that nothing more is sent, and lets the other side hear it.
    pub(crate) fn finish(mut self) -> Result<()> {
        let pair = self.pair.take().context("the queue pair is offered")?;
        // An end that is reset by the other's leaving has ended, too.
        let _ = pair.close().wait_for(self.limit);
        Ok(())
    }
}

/// Sends slot after slot for as long, or as many messages, as the plan says.
pub(crate) fn stream_from(side: &mut QueuePairEnd, plan: &Plan) -> Result<Streamed> {
    let meter = CpuMeter::start()?;
    let reading = plan.idle_reading();
    let started = Instant::now();
    let (mut posted, mut done) = (0, 0);
    loop {
        let until = match plan.amount {
            Amount::Time(time) if started.elapsed() >= time => posted,
            Amount::Time(_) => u64::MAX,
            Amount::Messages(most) => most,
            Amount::Bytes(most) => most.div_ceil(side.message),
        };
        while posted < until && posted - done < side.slots {
            side.post_send(posted)?;
            posted += 1;
        }
        if done == posted {
            break;
        }
        let mut next = Some(side.next()?);
        while let Some(completion) = next {
            let in_turn = completion.operation == Operation::Send && completion.id == done;
            ensure!(
                in_turn && completion.status.is_success(),
                "{completion:?} after {done} messages"
            );
            done += 1;
            next = side.done.poll();
        }
    }
    let busy = plan.busy_since(reading.as_ref());
    let used = meter.stop()?;
    Ok(Streamed {
        started,
        cpu: used.thread,
        machine_s: used.machine_s,
        busy,
        retransmitted: side.retransmitted(),
        copied: side.copied(),
    })
}
