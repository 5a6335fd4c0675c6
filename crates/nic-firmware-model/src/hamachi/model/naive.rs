//! The host's software path: a driver that writes each frame where the list says, at once.
//! No adapter, no commands, no reports.

use landfall_placement::{Instant, Span};
use spec_defrag::{BufferId, Descriptor, Lying, Packet, Receiver};

use super::pair::Choices;
use super::side::Side;
use crate::firmware::HostMemory;
use crate::hamachi::{HostRam as _, Ram, WhenOut};

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
            self.receiver.take(now, &[Lying { at, head: &head }], &mut self.ram);
        }
        if is_due {
            self.receiver.handle_timeout(now, &mut self.ram);
        }
        self.post();
    }
}

impl Side for NaiveSide {
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
