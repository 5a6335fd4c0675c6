//! Which unit of which flow comes next.
//!
//! `flows` knows how each flow cuts its packets and where in a packet it is,
//! `order` whose turn it is, `pace` whether acting on it pays. Everything is
//! learned from what arrives, in tables of a fixed size. The paper's predictor is
//! the same with one shape that is agreed on and the rule "the same flow again".

use core::hash::Hash;

use crate::shape::Shape;

mod flows;
mod order;
mod pace;

use flows::{Flows, Found};
use order::{NAMED, NO_UNIT, Order, Recent, STRANGER};

pub use flows::Observed;
pub(crate) use pace::{Pace, Tally};

/// How it is guessed what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// Nothing is guessed: the conventional path alone.
    Off,
    /// As in the paper: one flow at a time, with packets of a shape that was agreed on.
    Single(Shape),
    /// Shapes and the order of flows are learned from arrivals, for so many flows.
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
    /// So many flows are expected that nobody knows.
    strangers: u16,
}

/// Flows that nobody knows have numbers from here on: no flow that is known has one.
const STRANGERS: u16 = 0xc000;

impl<K: Copy + Eq + Hash> Predictor<K> {
    pub(crate) fn new(prediction: Prediction, secret: (u64, u64)) -> Self {
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

    /// A unit of a flow came otherwise. Gives the name of the flow, and which unit it
    /// was taken for.
    pub(crate) fn unit_astray(&mut self, key: &K, unit: &Observed) -> (u16, u16) {
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
