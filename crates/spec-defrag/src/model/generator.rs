//! The wire between senders and receiver: operations become frames under way,
//! and these become steps of the receiver.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use landfall_placement::Duration;

use super::forge;
use super::operations::{Operation, Operations, Sending};
use super::traffic::{Flow, Shape, cut, seal};

/// One thing that happens to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These frames come in one burst.
    Receive {
        /// In their order.
        frames: Vec<Vec<u8>>,
        /// They lie in memory already, and nothing was posted for them.
        lies: bool,
    },
    /// So much time passes; `None`: up to the next timeout.
    Wait(Option<Duration>),
    /// The user is done with so many of the packets that it holds.
    Release {
        /// How many.
        count: usize,
        /// The newest first, or the oldest.
        newest_first: bool,
    },
}

/// The frames that came last, to be sent again.
const REMEMBERED: usize = 64;
/// More frames are never under way.
const UNDER_WAY: usize = 4_000;
/// Once so many bytes were sent, a run brings few packets and short ones: many short runs
/// find more than few long ones. It is more than a small receiver has room for.
const LONG_RUN: usize = 100_000;
/// So many packets then are sent at once.
const FEW: u8 = 2;
/// The flows that there are: few, so that they meet.
const FLOWS: u8 = 0x77;
const MTUS: [usize; 8] = [1500, 1500, 1500, 1500, 1500, 576, 1280, 9000];

/// The steps that some bytes stand for.
#[derive(Clone, Debug)]
pub struct Steps<'a> {
    operations: Operations<'a>,
    wire: VecDeque<Vec<u8>>,
    past: VecDeque<Vec<u8>>,
    /// Counts packets, so that each has its own bytes.
    packets: u64,
    /// How many bytes came onto the wire.
    bytes_sent: usize,
}

impl<'a> Steps<'a> {
    /// The steps that these bytes stand for.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        let operations = Operations::new(bytes);
        Self { operations, wire: VecDeque::new(), past: VecDeque::new(), packets: 0, bytes_sent: 0 }
    }

    fn content(&mut self) -> u64 {
        self.packets += 1;
        self.packets
    }

    fn pick(&self, which: u8) -> Option<usize> {
        (!self.wire.is_empty()).then(|| usize::from(which) % self.wire.len())
    }

    fn send(&mut self, sending: Sending) {
        let Sending { flow, count, shape: look, fine, mtu, pattern } = sending;
        let flow = Flow(flow & FLOWS);
        let mut pieces = Vec::new();
        for nth in 0..count {
            let is_long = self.bytes_sent > LONG_RUN;
            if is_long && nth >= FEW {
                break;
            }
            let content = self.content();
            let len = match look >> 5 {
                _ if is_long => usize::from(fine) * 8,
                0..=4 => flow.page(),
                5 => usize::from(fine) * 16,
                6 => usize::from(fine) * 256 + usize::from(look & 31),
                _ => usize::from(fine),
            };
            let is_special = look & 0x18 == 0x18;
            let shape = Shape {
                len,
                // Names come again soon where that is wanted.
                id: if look & 7 == 7 { 3 } else { content as u32 },
                options: if is_special { fine & 15 } else { 0 },
                long_transport: is_special && fine & 16 != 0,
                ecn: if is_special { fine >> 6 } else { 2 },
                content,
            };
            let packet = flow.packet(&shape);
            self.bytes_sent += packet.len();
            pieces.extend(cut(&packet, MTUS[usize::from(mtu)], shape.id));
        }
        self.put(pieces, pattern);
    }

    /// Pieces come onto the wire, in one of several orders.
    fn put(&mut self, mut pieces: Vec<Vec<u8>>, pattern: u8) {
        match pattern {
            5 => pieces.reverse(),
            6 if !pieces.is_empty() => pieces.rotate_left(1),
            _ => {}
        }
        if pattern != 4 && pattern != 7 {
            self.wire.extend(pieces);
            return;
        }
        // One by one between those that are under way, from the front or the back.
        let behind = self.wire.len().saturating_sub(pieces.len());
        let start = if pattern == 4 { 0 } else { behind };
        for (nth, piece) in pieces.into_iter().enumerate() {
            let at = (start + nth * 2 + 1).min(self.wire.len());
            self.wire.insert(at, piece);
        }
    }

    fn change(&mut self, which: u8, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(at) = self.pick(which) {
            change(&mut self.wire[at]);
        }
    }

    /// A changed copy of a frame comes before or behind it.
    fn twin(&mut self, which: u8, before: bool, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(at) = self.pick(which) {
            let mut twin = self.wire[at].clone();
            change(&mut twin);
            self.wire.insert(at + usize::from(!before), twin);
        }
    }

    /// What lies over the piece: it, shifted by some units or shortened.
    fn overlap(&mut self, which: u8, shift: u8, before: bool) {
        self.twin(which, before, |frame| {
            let (units, more) = forge::offset(frame).unwrap_or_default();
            forge::invert_bytes(frame);
            match shift >> 5 {
                // Exactly over it: a repetition with other bytes.
                0 => {}
                1 => forge::shorten(frame, usize::from(shift & 31)),
                2 => forge::set_offset(frame, units.saturating_add(shift.into()), more),
                _ => forge::set_offset(frame, units.saturating_sub(shift.into()), more),
            }
        });
    }

    /// What happens to frames that are under way.
    fn tamper(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Flip { which, bit } => self.change(which, |frame| {
                // In a header, mostly.
                let bits = if bit & 0x8000 == 0 { 62 * 8 } else { frame.len() * 8 };
                let bit = usize::from(bit & 0x7fff) % bits.max(1);
                if let Some(byte) = frame.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }),
            Operation::Change { which, at, value } => self.change(which, |frame| {
                if let Some(byte) = frame.get_mut(usize::from(at) % 70) {
                    *byte = value;
                    seal(frame);
                }
            }),
            Operation::Resize { which, len } => self.change(which, |frame| {
                let padded = frame.len() + usize::from(len & 31);
                frame.resize(if len & 0x80 == 0 { len.into() } else { padded }, 0);
            }),
            Operation::Overlap { which, shift, before } => self.overlap(which, shift, before),
            Operation::Spoof { which, place } => self.twin(which, place & 1 != 0, |frame| {
                forge::invert_bytes(frame);
                forge::shorten(frame, usize::from(place & 15) + 1);
                forge::set_offset(frame, u16::from(place) * 3, place & 2 != 0);
            }),
            Operation::Mark { which, ecn } => self.change(which, |frame| forge::mark(frame, ecn)),
            _ => {}
        }
    }

    /// What comes onto the wire, goes from it, or changes its place there.
    fn carry(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Send(sending) => self.send(sending),
            Operation::Lose { which } => {
                let lost = self.pick(which);
                lost.and_then(|at| self.wire.remove(at));
            }
            Operation::Double { which, later } => {
                if let Some(at) = self.pick(which) {
                    let twin = self.wire[at].clone();
                    let place = (at + usize::from(later) + 1).min(self.wire.len());
                    self.wire.insert(place, twin);
                }
            }
            Operation::Swap { which, other } => {
                if let (Some(a), Some(b)) = (self.pick(which), self.pick(other)) {
                    self.wire.swap(a, b);
                }
            }
            Operation::Replay { which } => {
                let nth = usize::from(which) % self.past.len().max(1);
                self.wire.extend(self.past.get(nth).cloned());
            }
            Operation::Foreign { kind, place } => {
                let frame = forge::foreign(kind, self.packets);
                let at = usize::from(place) % (self.wire.len() + 1);
                self.wire.insert(at, frame);
            }
            Operation::Attack { kind, flow } => {
                let content = self.content();
                let pieces = forge::attack(kind, flow & FLOWS, content);
                self.put(pieces, kind >> 5);
            }
            Operation::Inject { flow, bytes } => self.wire.push_back(forge::injected(flow, bytes)),
            operation => self.tamper(operation),
        }
        // The newest do not fit on the wire.
        self.wire.truncate(UNDER_WAY);
    }

    fn receive(&mut self, count: usize, lies: bool) -> Step {
        let frames: Vec<_> = self.wire.drain(..count.min(self.wire.len())).collect();
        for frame in &frames {
            if self.past.len() == REMEMBERED {
                self.past.pop_front();
            }
            self.past.push_back(frame.clone());
        }
        Step::Receive { frames, lies }
    }
}

impl Iterator for Steps<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        loop {
            let Some(operation) = self.operations.next() else {
                // What is under way arrives.
                return (!self.wire.is_empty()).then(|| self.receive(48, false));
            };
            match operation {
                Operation::Receive { count, lies } => {
                    return Some(self.receive(count.into(), lies));
                }
                Operation::Settle => return Some(self.receive(self.wire.len(), false)),
                Operation::Wait { quarters } => {
                    let some = |quarters| Duration::from_millis(250 * u64::from(quarters));
                    return Some(Step::Wait(quarters.map(some)));
                }
                Operation::Release { count, newest_first } => {
                    return Some(Step::Release { count: count.into(), newest_first });
                }
                operation => self.carry(operation),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_testkit::trials::noise;

    #[test]
    fn any_bytes_are_steps_and_always_the_same() {
        for seed in 0..50 {
            let bytes = noise(seed, 400);
            let steps: Vec<Step> = Steps::new(&bytes).collect();
            assert!(Steps::new(&bytes).eq(steps.iter().cloned()));
            assert!(steps.len() <= bytes.len() + UNDER_WAY / 48 + 1);
        }
        assert_eq!(Steps::new(&[]).count(), 0);
    }
}
