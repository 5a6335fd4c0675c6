//! Whose unit comes next: learned from who came after whom before.
//!
//! Flows are named by how recently they were heard, so that a pattern is the same
//! anyone who takes part in it: *the same again*, *the one before*, … What follows is
//! looked up under the last turns, and under which flows stand at the start of a
//! packet. A short memory answers where the long one has seen nothing yet; where
//! both have not, the same flow is expected again, as the paper does.

use alloc::vec::Vec;

/// How many flows have names.
pub(super) const NAMED: usize = 4;
/// Somebody else.
pub(super) const STRANGER: u8 = NAMED as u8;
/// No unit of a packet at all.
pub(super) const NO_UNIT: u8 = STRANGER + 1;

/// How many turns are remembered, three bits each.
const LONG: u32 = 8;
const SHORT: u32 = 2;
const CELLS: usize = 1024;
const MOST_CONFIDENCE: u8 = 3;

/// The flows that were heard last, and in which turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recent {
    flows: [u16; NAMED],
    turns: u32,
}

impl Recent {
    pub(super) const NOBODY: u16 = u16::MAX;

    pub(super) const fn new() -> Self {
        Self { flows: [Self::NOBODY; NAMED], turns: 0 }
    }

    pub(super) const fn flow(&self, turn: u8) -> u16 {
        if (turn as usize) < NAMED { self.flows[turn as usize] } else { Self::NOBODY }
    }

    /// By which name a flow goes now.
    #[inline]
    pub(super) fn turn_of(&self, flow: u16) -> u8 {
        if flow == Self::NOBODY {
            return NO_UNIT;
        }
        self.flows.iter().position(|other| *other == flow).map_or(STRANGER, |at| at as u8)
    }

    /// A unit of this flow came; nobody for what is no unit of a packet.
    #[inline]
    pub(super) fn heard(&mut self, flow: u16) {
        let turn = self.turn_of(flow);
        self.turns = (self.turns << 3 | u32::from(turn)) & ((1 << (3 * LONG)) - 1);
        if turn == 0 || flow == Self::NOBODY {
            return;
        }
        let last = usize::from(turn).min(NAMED - 1);
        self.flows.copy_within(..last, 1);
        self.flows[0] = flow;
    }

    /// A flow is forgotten.
    pub(super) fn forget(&mut self, flow: u16) {
        for other in &mut self.flows {
            if *other == flow {
                *other = Self::NOBODY;
            }
        }
    }

    /// Nothing but one flow for a long time.
    #[inline]
    const fn is_monotone(&self) -> bool {
        self.turns == 0
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    tag: u8,
    turn: u8,
    confidence: u8,
}

/// What came after what.
#[derive(Debug)]
pub(super) struct Order {
    cells: Vec<Cell>,
}

impl Order {
    pub(super) fn new() -> Self {
        Self { cells: alloc::vec![Cell::default(); CELLS] }
    }

    /// The turn that is expected. `phase` says which of the flows stand where in
    /// their packets.
    #[inline]
    pub(super) fn expect(&self, recent: &Recent, phase: u32) -> u8 {
        if recent.is_monotone() {
            return 0;
        }
        for turns in [LONG, SHORT] {
            let (at, tag) = place(recent, phase, turns);
            let cell = self.cells[at];
            if cell.tag == tag && cell.confidence > 0 {
                return cell.turn;
            }
        }
        0
    }

    /// A turn came after these.
    #[inline]
    pub(super) fn learn(&mut self, recent: &Recent, phase: u32, turn: u8) {
        if recent.is_monotone() {
            return;
        }
        for turns in [LONG, SHORT] {
            let (at, tag) = place(recent, phase, turns);
            let cell = &mut self.cells[at];
            if cell.tag == tag && cell.turn == turn {
                cell.confidence = (cell.confidence + 1).min(MOST_CONFIDENCE);
            } else if cell.confidence > 0 {
                cell.confidence -= 1;
            } else {
                *cell = Cell { tag, turn, confidence: 1 };
            }
        }
    }
}

/// Where the last turns are looked up, and by which mark they are told from others.
#[inline]
const fn place(recent: &Recent, phase: u32, turns: u32) -> (usize, u8) {
    let known = recent.turns & ((1 << (3 * turns)) - 1);
    let key = known as u64 | (phase as u64) << 32 | (turns as u64) << 60;
    // Fibonacci hashing: the high bits of the product depend on all of the key.
    let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash >> 54) as usize % CELLS, (hash >> 40) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the last half of a pattern were foreseen.
    fn foreseen(pattern: impl Iterator<Item = u16> + Clone) -> (usize, usize) {
        let (mut recent, mut order) = (Recent::new(), Order::new());
        let all = pattern.clone().count();
        let mut right = 0;
        for (n, flow) in pattern.enumerate() {
            let expected = order.expect(&recent, 0);
            let turn = recent.turn_of(flow);
            right += usize::from(n >= all / 2 && expected == turn);
            order.learn(&recent, 0, turn);
            recent.heard(flow);
        }
        (right, all - all / 2)
    }

    #[test]
    fn patterns_are_learned() {
        let patterns: [&[u16]; 5] =
            [&[1], &[1, 2], &[1, 1, 2], &[1, 2, 3, 4], &[1, 2, 1, 1, 2, 2, 1]];
        for pattern in patterns {
            let (right, of) = foreseen(pattern.iter().copied().cycle().take(600));
            assert_eq!(right, of, "{pattern:?}");
        }
    }

    #[test]
    fn a_forgotten_flow_has_no_name() {
        let mut recent = Recent::new();
        (1..=5).for_each(|flow| recent.heard(flow));
        assert_eq!([5, 4, 3, 2, 1].map(|flow| recent.turn_of(flow)), [0, 1, 2, 3, STRANGER]);
        recent.forget(4);
        assert_eq!([5, 4, 3, 2].map(|flow| recent.turn_of(flow)), [0, STRANGER, 2, 3]);
        recent.heard(Recent::NOBODY);
        assert_eq!(recent.flow(0), 5, "what is no unit changes no name");
    }
}
