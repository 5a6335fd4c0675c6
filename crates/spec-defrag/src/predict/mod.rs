//! Which unit of which flow comes next.
//!
//! `flows` knows how each flow cuts its packets and where in a packet it is,
//! `order` whose turn it is, `pace` whether acting on it pays. Everything is
//! learned from what arrives, in tables of a fixed size. The paper's predictor is
//! the same with one shape that is agreed on and the rule "the same flow again".

mod flows;
mod order;

pub use flows::Observed;

use core::hash::Hash;

use landfall_tables::HashSecret;

use flows::{Flows, Found};
use order::{NAMED, NO_UNIT, Order, Recent, STRANGER};

use crate::shape::Shape;

/// How it is guessed what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// Nothing is guessed: the conventional path alone.
    Off,
    /// As in the paper: one flow at a time, with packets of a shape that was agreed on.
    Single(Shape),
    /// Shapes and the order of flows are learned from arrivals, for this many flows.
    Learned {
        /// The most flows that are remembered.
        flows: u16,
    },
}

impl Default for Prediction {
    /// Learned, for 64 flows.
    fn default() -> Self {
        Self::Learned { flows: 64 }
    }
}

/// A unit that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Of this flow; [`NOBODY`] for what is no unit of a flow with a name.
    pub(crate) flow: u16,
    /// Which unit of its packet.
    pub(crate) index: u16,
    /// How the packet is cut, if that is known well.
    pub(crate) shape: Option<Shape>,
}

/// In place of a flow.
pub(crate) const NOBODY: u16 = Recent::NOBODY;

/// What was learned so far.
#[derive(Debug)]
pub(crate) struct Predictor<K> {
    prediction: Prediction,
    flows: Flows<K>,
    order: Order,
    recent: Recent,
}

/// A walk into the future: what is expected after what was expected.
#[derive(Debug)]
pub(crate) struct Walk<'a, K> {
    predictor: &'a Predictor<K>,
    recent: Recent,
    /// The next unit of each flow with a name.
    next: [(u16, u16); NAMED],
    /// How many unknown flows are expected.
    strangers: u16,
}

/// Flows that nobody knows have numbers from here on: no flow that is known has one.
const STRANGERS: u16 = 0xc000;

impl<K: Copy + Eq + Hash> Predictor<K> {
    pub(crate) fn new(prediction: Prediction, secret: HashSecret) -> Self {
        let flows = match prediction {
            Prediction::Learned { flows } => flows.min(STRANGERS),
            _ => NAMED as u16,
        };
        Self {
            prediction,
            flows: Flows::new(flows, secret),
            order: Order::new(),
            recent: Recent::new(),
        }
    }

    pub(crate) fn walk(&self) -> Walk<'_, K> {
        let mut next = [(NOBODY, 0); NAMED];
        for (turn, entry) in next.iter_mut().enumerate() {
            let flow = self.recent.flow(turn as u8);
            *entry = (flow, self.flows.next(flow));
        }
        Walk { predictor: self, recent: self.recent, next, strangers: 0 }
    }

    /// Which units the two flows that were heard last come to next.
    #[inline]
    fn phase(recent: &Recent, next: impl Fn(u16) -> u16) -> u32 {
        let of = |turn| u32::from(next(recent.flow(turn))) & 0xff;
        of(0) << 8 | of(1)
    }

    /// How packets of this flow are cut.
    fn shape(&self, flow: u16) -> Option<Shape> {
        match self.prediction {
            Prediction::Off => None,
            Prediction::Single(shape) => Some(shape),
            Prediction::Learned { .. } if flow == NOBODY => None,
            Prediction::Learned { .. } if flow >= STRANGERS => self.flows.common_shape(),
            Prediction::Learned { .. } => self.flows.shape(flow),
        }
    }

    /// Whose turn it was is learned, before the flow moves on.
    #[inline]
    fn heard(&mut self, flow: u16) {
        if let Prediction::Learned { .. } = self.prediction {
            let phase = Self::phase(&self.recent, |flow| self.flows.next(flow));
            self.order.learn(&self.recent, phase, self.recent.turn_of(flow));
        }
        self.recent.heard(flow);
    }

    /// The flow of a unit that came in place, if it is the one that was expected.
    #[inline]
    pub(crate) fn find(&mut self, expected: u16, key: &K) -> u16 {
        if self.flows.is(expected, key) {
            return expected;
        }
        match self.flows.find(key) {
            Found::Known(at) => at,
            Found::New { at, instead_of_another } => {
                if instead_of_another {
                    self.recent.forget(at);
                }
                at
            }
        }
    }

    /// A unit of a flow came where it was expected; `next` is the one after
    /// it, 0 if its packet, which is cut so, is whole.
    #[inline]
    pub(crate) fn unit_in_place(&mut self, flow: u16, next: u16, shape: &Shape) {
        self.heard(flow);
        self.flows.unit_in_place(flow, next, shape);
    }

    /// A unit of a flow came otherwise. Returns the name of the flow, and which unit it
    /// was taken for.
    pub(crate) fn unit_misplaced(&mut self, key: &K, unit: &Observed) -> (u16, u16) {
        let flow = self.find(NOBODY, key);
        self.heard(flow);
        let index = if unit.position == 0 { 0 } else { self.flows.next(flow) };
        self.flows.observe(flow, unit);
        (flow, index)
    }

    /// Something came that is no unit of a packet.
    pub(crate) fn other(&mut self) {
        self.heard(NOBODY);
    }

    /// How this flow cut its last packet.
    pub(crate) fn last_shape(&self, flow: u16) -> Option<Shape> {
        self.flows.last_shape(flow)
    }

    /// Whether nothing is guessed.
    pub(crate) const fn is_off(&self) -> bool {
        matches!(self.prediction, Prediction::Off)
    }

    /// Whether guesses are acted on, paying or not.
    pub(crate) const fn is_bold(&self) -> bool {
        matches!(self.prediction, Prediction::Single(_))
    }
}

impl<K: Copy + Eq + Hash> Walk<'_, K> {
    fn next(&self, flow: u16) -> u16 {
        self.next.iter().find(|(other, _)| *other == flow).map_or(0, |(_, next)| *next)
    }

    /// What is expected now, and the walk goes on behind it.
    pub(crate) fn step(&mut self) -> Expected {
        let flow = match self.turn() {
            NO_UNIT => NOBODY,
            STRANGER => self.stranger(),
            turn => self.recent.flow(turn),
        };
        let predictor = self.predictor;
        let index = self.next(flow);
        let shape = predictor.shape(flow);
        self.recent.heard(flow);
        if let Some((_, next)) = self.next.iter_mut().find(|(other, _)| *other == flow) {
            let units = shape.or_else(|| predictor.flows.last_shape(flow)).map(|s| s.units());
            *next = if units.is_none_or(|units| index + 1 < units) { index + 1 } else { 0 };
        }
        Expected { flow, index, shape }
    }

    fn turn(&self) -> u8 {
        // Only where it is learned is there a turn.
        let Prediction::Learned { .. } = self.predictor.prediction else { return 0 };
        let next = |flow| if flow == NOBODY { 0 } else { self.next(flow) };
        self.predictor.order.expect(&self.recent, Predictor::<K>::phase(&self.recent, next))
    }

    /// A flow that nobody knows begins a packet, in the place of the one with a name
    /// that was heard the longest ago.
    fn stranger(&mut self) -> u16 {
        let flow = STRANGERS + self.strangers;
        self.strangers += 1;
        let last = self.recent.flow(NAMED as u8 - 1);
        if let Some(entry) = self.next.iter_mut().find(|(other, _)| *other == last) {
            *entry = (flow, 0);
        }
        flow
    }
}

// Whether guessing pays at all, and how far ahead: the share of guesses that came
// true lately, and how many of a burst did before the first that did not.

/// Full marks.
const ONE: u32 = 1 << 16;
/// Below this share guesses are not acted on: a miss costs about as much as a hit
/// saves.
const PAYS: u32 = ONE / 2;
/// A burst changes the mean by this share.
const SHIFT: u32 = 2;
/// The shortest list: some packets of a page. The share is that of this many units at the
/// start of a burst: one thing that nobody expected displaces all that follow it, and
/// that says more about how long the list was than about the guesses.
const SHORTEST: u16 = 12;
/// A list that was right to its end is longer by so much the next time.
const LONGER: u16 = 6;

/// Which units of a burst were foreseen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    units: u16,
    /// Before the first that was not.
    run: u16,
    /// Of the first units of the burst.
    early: u16,
}

impl Tally {
    /// The next unit was foreseen, or not.
    #[inline]
    pub(crate) fn note(&mut self, is_foreseen: bool) {
        if is_foreseen {
            self.run += u16::from(self.run == self.units);
            self.early += u16::from(self.units < SHORTEST);
        }
        self.units = self.units.saturating_add(1);
    }
}

/// A moving mean over bursts. Guesses are made, and compared with what came, when
/// they are not acted on as well: so it is noticed when they would come true again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    share: u32,
    /// How many units ahead are guessed, as long as it pays.
    reach: u16,
    most: u16,
}

impl Pace {
    pub(crate) const fn new(most: u16) -> Self {
        Self { share: ONE, reach: most, most }
    }

    /// A burst was looked at.
    pub(crate) fn burst(&mut self, tally: Tally) {
        let Tally { units, run, early } = tally;
        if units == 0 {
            return;
        }
        let now = u32::from(early) * ONE / u32::from(units.min(SHORTEST));
        self.share = self.share - (self.share >> SHIFT) + (now >> SHIFT);
        let reach = if run >= units {
            // A burst that was short says nothing about a long list.
            if units >= self.reach { self.reach.saturating_add(LONGER) } else { self.reach }
        } else {
            self.reach.midpoint(run)
        };
        self.reach = reach.max(SHORTEST).min(self.most);
    }

    /// Whether to act on guesses.
    pub(crate) const fn pays(&self) -> bool {
        self.share >= PAYS
    }

    /// How long the list shall be: where nothing is guessed, the longer the better.
    pub(crate) const fn reach(&self) -> u16 {
        if self.pays() { self.reach } else { self.most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst whose first units were foreseen.
    fn burst(run: u16, of: u16) -> Tally {
        let mut tally = Tally::default();
        (0..of).for_each(|n| tally.note(n < run));
        tally
    }

    #[test]
    fn misses_stop_it_and_hits_start_it_again() {
        let mut pace = Pace::new(96);
        pace.burst(burst(0, 0));
        assert!(pace.pays());
        (0..4).for_each(|_| pace.burst(burst(1, 96)));
        assert!(!pace.pays());
        assert_eq!(pace.reach(), 96, "nothing is displaced where nothing is guessed");
        (0..4).for_each(|_| pace.burst(burst(96, 96)));
        assert!(pace.pays());
        (0..1000).for_each(|_| pace.burst(burst(u16::MAX, u16::MAX)));
        assert!(pace.share <= ONE);
    }

    #[test]
    fn lists_are_as_long_as_what_comes_undisturbed() {
        let mut pace = Pace::new(96);
        (0..20).for_each(|_| pace.burst(burst(30, pace.reach())));
        assert!((20..=40).contains(&pace.reach()), "{pace:?}");
        (0..5).for_each(|_| pace.burst(burst(3, 3)));
        assert!(pace.reach() <= 40, "short bursts are no reason");
        (0..20).for_each(|_| pace.burst(burst(pace.reach(), pace.reach())));
        assert_eq!(pace.reach(), 96);
        (0..3).for_each(|_| pace.burst(burst(7, 96)));
        assert!(pace.pays() && pace.reach() >= SHORTEST);
    }
}
