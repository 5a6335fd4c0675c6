//! What the attacker does, and what users do meanwhile.

use landfall_testkit::model::Choices;

use super::{MOST_UNDER_WAY, Packet, World};

/// The forms of handshake messages.
const HANDSHAKE: std::ops::RangeInclusive<u8> = 0xe1..=0xe3;

impl World {
    /// One decision.
    pub(super) fn step(&mut self, choices: &mut Choices<'_>) {
        let what = choices.byte();
        let side = usize::from(what >> 7);
        match what & 15 {
            0..=2 => {
                let count = choices.below(12) + 1;
                self.deliver(side, count);
            }
            3 => self.swap(side, choices),
            4 => self.withhold(side, choices),
            5 => self.again(side, choices),
            6 => self.flip(side, choices),
            7 => self.resize(side, choices),
            8 => self.splice(side, choices),
            9 => self.replay(side, choices),
            10 => self.make_up(side, choices),
            11 => self.move_address(side, choices),
            12 => {
                let len = usize::from(choices.word() % 1_500) + 1;
                self.users.transfer(&mut self.wire, side, len);
            }
            13 if side == 0 => self.users.put(&mut self.wire, choices.byte()),
            13 => self.users.fetch(&mut self.wire),
            14 => {
                self.was_withheld |= self.under_way.iter().any(|queue| !queue.is_empty());
                self.wire.pass_time();
            }
            _ => (0..2).for_each(|side| self.deliver(side, usize::MAX)),
        }
        self.pump();
    }

    /// One of the packets under way to a side, and its place.
    fn choose(&self, side: usize, choices: &mut Choices<'_>) -> Option<(usize, Packet)> {
        let queue = &self.under_way[side];
        let at = choices.below(queue.len());
        Some((at, queue.get(at)?.clone()))
    }

    /// A packet that nobody has said to this side, or not now, gets among those that were.
    fn insert(&mut self, side: usize, at: usize, bytes: Vec<u8>) {
        if self.under_way[side].len() < MOST_UNDER_WAY {
            self.under_way[side].insert(at, Packet { bytes, from: None });
        }
    }

    /// The same for one that nobody has ever said.
    fn forge(&mut self, side: usize, at: usize, bytes: Vec<u8>) {
        let is_real = self.recorded.contains(&bytes);
        let is_handshake = bytes.first().is_some_and(|form| HANDSHAKE.contains(form));
        self.is_handshake_forged |= is_handshake && !is_real;
        self.insert(side, at, bytes);
    }

    fn swap(&mut self, side: usize, choices: &mut Choices<'_>) {
        let queue = &mut self.under_way[side];
        let (one, other) = (choices.below(queue.len()), choices.below(queue.len()));
        if !queue.is_empty() {
            queue.swap(one, other);
        }
    }

    fn withhold(&mut self, side: usize, choices: &mut Choices<'_>) {
        if let Some((at, _)) = self.choose(side, choices) {
            self.under_way[side].remove(at);
            self.was_withheld = true;
        }
    }

    fn again(&mut self, side: usize, choices: &mut Choices<'_>) {
        if let Some((at, packet)) = self.choose(side, choices) {
            let behind = (at + choices.below(4)).min(self.under_way[side].len());
            self.insert(side, behind, packet.bytes);
        }
    }

    fn flip(&mut self, side: usize, choices: &mut Choices<'_>) {
        let Some((at, packet)) = self.choose(side, choices) else { return };
        let mut bytes = packet.bytes;
        let bit = usize::from(choices.word()) % (bytes.len() * 8).max(1);
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
        self.forge(side, at, bytes);
    }

    fn resize(&mut self, side: usize, choices: &mut Choices<'_>) {
        let Some((at, packet)) = self.choose(side, choices) else { return };
        let mut bytes = packet.bytes;
        if choices.flag() {
            bytes.truncate(choices.below(bytes.len() + 1));
        } else {
            let len = choices.below(40);
            bytes.extend_from_slice(choices.raw(len));
        }
        self.forge(side, at, bytes);
    }

    /// The first bytes of a packet, and the last ones of another.
    fn splice(&mut self, side: usize, choices: &mut Choices<'_>) {
        let Some((at, packet)) = self.choose(side, choices) else { return };
        let other = choices.below(self.recorded.len());
        let Some(other) = self.recorded.get(other) else { return };
        let cut = choices.below(packet.bytes.len() + 1);
        let mut bytes = packet.bytes[..cut].to_vec();
        bytes.extend_from_slice(other.get(cut..).unwrap_or_default());
        self.forge(side, at, bytes);
    }

    /// Packets that were said once, in their order: of this connection or an earlier one.
    fn replay(&mut self, side: usize, choices: &mut Choices<'_>) {
        let (from, count) = (usize::from(choices.word()), choices.below(24) + 1);
        let from = from % self.recorded.len().max(1);
        let replayed: Vec<Vec<u8>> = self.recorded.iter().skip(from).take(count).cloned().collect();
        let at = choices.below(self.under_way[side].len() + 1);
        for (nth, bytes) in replayed.into_iter().enumerate() {
            self.insert(side, (at + nth).min(self.under_way[side].len()), bytes);
        }
    }

    fn make_up(&mut self, side: usize, choices: &mut Choices<'_>) {
        let form = choices.pick(&[0xe0, 0xe0, 0xe1, 0xe2, 0xe3, 0x0a, 0xe4]);
        let mut bytes = vec![form];
        // Where it belongs is no secret.
        let known = choices.below(self.recorded.len());
        if let Some(known) = self.recorded.get(known).filter(|_| choices.flag()) {
            bytes.extend_from_slice(known.get(1..12).unwrap_or_default());
        }
        let len = choices.below(100);
        bytes.extend_from_slice(choices.raw(len));
        bytes.resize(bytes.len() + choices.below(140), 0x5a);
        let at = choices.below(self.under_way[side].len() + 1);
        self.forge(side, at, bytes);
    }

    /// A packet comes from another address, and answers to it go nowhere.
    fn move_address(&mut self, side: usize, choices: &mut Choices<'_>) {
        if let Some((at, _)) = self.choose(side, choices) {
            self.under_way[side][at].from = Some(50 + u32::from(choices.byte() % 4));
            self.was_withheld = true;
        }
    }
}
