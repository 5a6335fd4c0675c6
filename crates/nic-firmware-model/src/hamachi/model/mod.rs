//! The same receive path without an adapter, traffic for both, and the comparison: for
//! property tests, fuzzing and golden traces.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `pair` | both, under the same traffic and calls |
//! | `faulty` | an adapter whose firmware has a fault |
//!
//! [`ReceivingHost`]: what may happen to a host, and what it shows; and the two that are compared.
//! [`NaiveSide`] is the host's software path: a driver that writes each frame where the list
//! says, at once, without adapter, commands or reports. [`OffloadedSide`] is the host with an
//! adapter, costs off.

pub use faulty::{Fault, Faulty};
use landfall_placement::{Instant, Span};
use pair::SILENCE;
pub use pair::{Choices, Pair};
use spec_defrag::model::Steps;
use spec_defrag::{BufferId, Descriptor, MappedFrame, Packet, Receiver};

use crate::firmware::HostMemory;
use crate::hamachi::{HostRam as _, Ram, Station, WhenOut};
use crate::machine::{Coalescing, Costs};

mod faulty;
mod pair;

/// How many bytes choose how a run is set up.
pub const CHOICES: usize = spec_defrag::model::CHOICES + 2;

/// Runs the steps that these bytes stand for on both sides; all in which they disagree.
#[must_use]
pub fn disagreements(bytes: &[u8]) -> Vec<String> {
    disagreements_with(None, bytes)
}

/// The same, with a fault in the firmware.
#[must_use]
pub fn disagreements_with(fault: Option<Fault>, bytes: &[u8]) -> Vec<String> {
    let (choices, bytes) = bytes.split_at(bytes.len().min(CHOICES));
    let mut pair = Pair::new(Choices::new(choices), fault);
    for step in Steps::new(bytes) {
        pair.apply(&step);
    }
    pair.finish()
}

/// A host that receives, with an adapter or without.
pub trait ReceivingHost {
    /// A frame came off the wire.
    fn frame(&mut self, now: Instant, bytes: &[u8]);

    /// No frame came for longer than a burst has gaps: anyone who waits for more looks now.
    fn silence(&mut self, now: Instant);

    /// The engine's timer is due.
    fn timeout(&mut self, now: Instant);

    /// A packet that is whole.
    fn poll_packet(&mut self) -> Option<Packet>;

    /// The user needs a packet no longer. False if it said so before.
    fn release(&mut self, now: Instant, buffer: BufferId) -> bool;

    /// The engine.
    fn receiver(&self) -> &Receiver;

    /// The memory.
    fn ram(&self) -> &Ram;

    /// The memory, for the user.
    fn ram_mut(&mut self) -> &mut Ram;

    /// Frames that were lost since nothing was there to take them.
    fn lost(&self) -> u64;
}

/// The engine's receiver with a naive driver.
#[derive(Debug)]
pub struct NaiveSide {
    receiver: Receiver,
    ram: Ram,
    list: Vec<Descriptor>,
    lens: Vec<u32>,
    /// Frames since somebody looked.
    untold: u16,
    /// Frames that lie whole in buffers, the first in the first.
    whole: Vec<Span>,
    choices: Choices,
    lost: u64,
}

impl NaiveSide {
    /// A host that is set up so.
    #[must_use]
    pub fn new(choices: Choices) -> Self {
        let (config, ram) = choices.ram();
        let receiver = Receiver::new(config, ram.areas(), choices.seed());
        let receiver = receiver.unwrap_or_else(|error| panic!("the setups are good ones: {error}"));
        let mut side = Self {
            receiver,
            ram,
            list: Vec::new(),
            lens: Vec::new(),
            untold: 0,
            whole: Vec::new(),
            choices,
            lost: 0,
        };
        side.post();
        side
    }

    /// Whether frames came that nobody looked at yet.
    #[must_use]
    pub fn has_unseen(&self) -> bool {
        !self.lens.is_empty() || !self.whole.is_empty()
    }

    fn post(&mut self) {
        let posted = self.receiver.post();
        self.list = posted[..posted.len().min(self.choices.entries())].to_vec();
    }

    /// One byte range of the frame after the other, each to its buffer.
    fn scatter(&mut self, slot: u16, descriptor: Descriptor, frame: &[u8]) {
        let head_len = frame.len().min(descriptor.head_len.into());
        let body_end = frame.len().min(head_len + descriptor.place.len as usize);
        let parts = [&frame[..head_len], &frame[head_len..body_end], &frame[body_end..]];
        for (buffer, part) in self.ram.buffers(slot, &descriptor).into_iter().zip(parts) {
            let at = buffer.split_at(part.len() as u32).0;
            if !part.is_empty() {
                assert!(self.ram.write(at, part), "{at} is no memory");
            }
        }
        self.ram.set_head(slot, head_len as u16);
    }

    fn look(&mut self, now: Instant, is_due: bool) {
        if !self.list.is_empty() {
            self.receiver.settle(now, &self.lens, &mut self.ram);
        }
        self.lens.clear();
        self.untold = 0;
        for at in self.whole.drain(..) {
            let head = self.ram.bytes(at.split_at(192).0).to_vec();
            self.receiver.take(now, &[MappedFrame { at, head: &head }], &mut self.ram);
        }
        if is_due {
            self.receiver.handle_timeout(now, &mut self.ram);
        }
        self.post();
    }
}

impl ReceivingHost for NaiveSide {
    fn frame(&mut self, now: Instant, bytes: &[u8]) {
        self.ram.set_now(now);
        if let Some(descriptor) = self.list.get(self.lens.len()) {
            self.scatter(self.lens.len() as u16, *descriptor, bytes);
            self.lens.push(bytes.len() as u32);
            self.untold += 1;
            if self.lens.len() == self.list.len() || self.untold >= self.choices.interrupt_after() {
                self.look(now, false);
            }
            return;
        }
        let nth = self.whole.len() as u16;
        if self.choices.when_out() == WhenOut::Lose || nth == self.ram.frame_buffers() {
            self.lost += 1;
            return;
        }
        let at = self.ram.frame_buffer(nth).split_at(bytes.len() as u32).0;
        assert!(self.ram.write(at, bytes), "{at} is no memory");
        self.whole.push(at);
    }

    fn silence(&mut self, now: Instant) {
        if self.untold > 0 || !self.whole.is_empty() {
            self.look(now, false);
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.look(now, true);
    }

    fn poll_packet(&mut self) -> Option<Packet> {
        self.receiver.poll_packet()
    }

    fn release(&mut self, _now: Instant, buffer: BufferId) -> bool {
        let is_released = self.receiver.release(buffer);
        if self.list.is_empty() {
            self.post();
        }
        is_released
    }

    fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    fn ram(&self) -> &Ram {
        &self.ram
    }

    fn ram_mut(&mut self) -> &mut Ram {
        &mut self.ram
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

/// Driver and adapter.
#[derive(Debug)]
pub struct OffloadedSide {
    station: Station<Faulty>,
}

impl OffloadedSide {
    /// A host that is set up so, with a fault in its adapter or without.
    #[must_use]
    pub fn new(choices: Choices, fault: Option<Fault>) -> Self {
        let (config, ram) = choices.ram();
        let chip = choices.tables().chip(choices.when_out());
        let costs = Costs { interrupts: Self::WAITS, ..Costs::OFF };
        let chip = Faulty::new(chip, fault);
        let station = Station::new(chip, ram, &config, choices.driver(), costs, choices.seed());
        let station = station.unwrap_or_else(|error| panic!("the setups are good ones: {error}"));
        Self { station }
    }

    /// Nothing costs anything, and an interrupt waits for the end of a burst.
    const WAITS: Coalescing = Coalescing::After { time: SILENCE, reports: u32::MAX };

    /// The host.
    #[must_use]
    pub const fn station(&self) -> &Station<Faulty> {
        &self.station
    }
}

impl ReceivingHost for OffloadedSide {
    fn frame(&mut self, now: Instant, bytes: &[u8]) {
        self.station.arrive(now, bytes);
    }

    fn silence(&mut self, now: Instant) {
        self.station.run(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.station.handle_timeout(now);
    }

    fn poll_packet(&mut self) -> Option<Packet> {
        self.station.poll_packet()
    }

    fn release(&mut self, now: Instant, buffer: BufferId) -> bool {
        self.station.release(now, buffer)
    }

    fn receiver(&self) -> &Receiver {
        self.station.receiver()
    }

    fn ram(&self) -> &Ram {
        self.station.ram()
    }

    fn ram_mut(&mut self) -> &mut Ram {
        self.station.ram_mut()
    }

    fn lost(&self) -> u64 {
        let adapter = self.station.adapter();
        adapter.firmware().inner().counters().lost + adapter.counters().no_buffer
    }
}
