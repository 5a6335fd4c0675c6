//! An adapter that knows nothing but descriptors, as the paper's, in memory: a trace
//! goes in, and the engine's receiver says how many packets were guessed right.

use std::time::Duration;

use anyhow::{Result, ensure};
use landfall_placement::Instant;
use serde::Serialize;
use spec_defrag::{Body, Descriptor, LEAD, Prediction, Receiver};

use super::ram::Ram;
use super::trace::Arrival;

/// Descriptors of a list: four pages in three pieces.
const LIST: u16 = 12;
const PAGE: u32 = 4096;
/// When no frame has come for so long, the driver looks at those that have: longer
/// than a frame takes on the cable, shorter than from one packet to the next.
pub(crate) const SILENCE: Duration = Duration::from_micros(20);

/// What became of the packets of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Score {
    /// Packets that were cut and came whole.
    pub(crate) packets: u64,
    /// Those that lay in their page when the driver looked.
    pub(crate) successful: u64,
    /// Bytes of payload that were moved.
    pub(crate) copied: u64,
}

impl Score {
    /// Packets that took the conventional way.
    pub(crate) const fn failed(&self) -> u64 {
        self.packets - self.successful
    }

    /// The share of packets that were guessed right.
    pub(crate) fn rate(&self) -> f64 {
        self.successful as f64 / self.packets.max(1) as f64
    }
}

/// The adapter, the driver and the engine.
#[derive(Debug)]
struct Adapter {
    receiver: Receiver,
    ram: Ram,
    /// The list, up to the first packet that it completes.
    list: Vec<Descriptor>,
    /// Lengths of the frames that have landed.
    lens: Vec<u32>,
}

impl Adapter {
    fn new(prediction: Prediction) -> Result<Self> {
        let (ram, receiver) = Ram::with_receiver(LIST, PAGE, prediction, [7; 32])?;
        Ok(Self { receiver, ram, list: Vec::new(), lens: Vec::new() })
    }

    /// The adapter raises an interrupt when it has written the last piece of a packet,
    /// so this is how long a list is.
    fn load(&mut self) {
        let ends_packet = |descriptor: &Descriptor| {
            let place = descriptor.place;
            place.len == 0
                || (place.offset + u64::from(place.len)).is_multiple_of((LEAD + PAGE).into())
        };
        let posted = self.receiver.post();
        let len = posted.iter().position(ends_packet).map_or(posted.len(), |last| last + 1);
        self.list.clear();
        self.list.extend_from_slice(&posted[..len]);
    }

    fn receive(&mut self, now: Instant, frame: &[u8]) {
        if self.list.is_empty() {
            self.load();
        }
        let slot = self.lens.len();
        if let Some(descriptor) = self.list.get(slot) {
            self.ram.land(slot, descriptor, frame);
            self.lens.push(frame.len() as u32);
        }
        if self.lens.len() >= self.list.len() {
            self.interrupt(now);
        }
    }

    /// The driver looks at what has landed, and loads the list again.
    fn interrupt(&mut self, now: Instant) {
        if self.lens.is_empty() {
            return;
        }
        self.receiver.settle(now, &self.lens, &mut self.ram);
        self.lens.clear();
        self.list.clear();
        while let Some(packet) = self.receiver.poll_packet() {
            if let Body::Buffer(buffer, _) = packet.body {
                self.receiver.release(buffer);
            }
        }
        if self.receiver.poll_timeout().is_some_and(|timeout| timeout.at <= now) {
            self.receiver.handle_timeout(now, &mut self.ram);
        }
    }
}

/// Lets a trace arrive at a receiver that guesses in some way.
pub(crate) fn score<'a>(
    arrivals: impl IntoIterator<Item = &'a Arrival>,
    prediction: Prediction,
) -> Result<Score> {
    let mut adapter = Adapter::new(prediction)?;
    let (mut last, mut packets, mut frames) = (Instant::ZERO, 0, 0);
    for arrival in arrivals {
        if arrival.at.since(last) > SILENCE {
            adapter.interrupt(last + SILENCE);
        }
        last = arrival.at;
        frames += 1;
        packets += u64::from(arrival.ends_packet());
        adapter.receive(arrival.at, &arrival.bytes());
    }
    adapter.interrupt(last + SILENCE);
    let stats = adapter.receiver.stats();
    let joined = stats.speculated + stats.conventional;
    ensure!(stats.frames == frames, "{} of {frames} frames found a descriptor", stats.frames);
    ensure!(joined == packets, "{joined} of {packets} packets were joined: {stats:?}");
    Ok(Score { packets, successful: stats.speculated, copied: stats.bytes_copied })
}
