//! The flows that were heard lately: how each cuts its packets, and where in a
//! packet it is.

use landfall_placement::assumed;

use core::hash::Hash;

use alloc::vec::Vec;

use landfall_tables::{HashIndex, HashSecret};

use crate::shape::{HeadLens, PayloadLens, Shape};

/// What a unit of a packet was like, for a flow that is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Where in its packet it belongs, in whatever the format counts: 0 for the first.
    pub position: u32,
    /// How far it reaches from there.
    pub reach: u32,
    /// Whether it ends its packet.
    pub is_last: bool,
    /// The length of what stands before the payload.
    pub head_len: u16,
    /// The length of the payload.
    pub payload_len: u16,
}

/// A flow is guessed for from this confidence on.
const CONFIDENT: u8 = 2;
const MOST_CONFIDENCE: u8 = 7;

#[derive(Clone, Copy, Debug)]
struct Flow<K> {
    key: K,
    /// How the last packets were cut.
    shape: Option<Shape>,
    /// How often in a row, up to a bound.
    confidence: u8,
    /// The unit that comes next.
    next: u16,
    /// Where that one belongs, while `partial` is known.
    position: u32,
    /// The packet under way, while its units come in order.
    partial: Option<Partial>,
    /// Heard since the hand of the clock passed.
    is_recent: bool,
}

/// The lengths of a packet whose units are coming.
#[derive(Clone, Copy, Debug)]
struct Partial {
    head_first: u16,
    head_rest: u16,
    first: u16,
    middle: u16,
}

impl Partial {
    const fn begin(unit: &Observed) -> Self {
        let Observed { head_len, payload_len, .. } = *unit;
        Self { head_first: head_len, head_rest: head_len, first: payload_len, middle: payload_len }
    }

    /// The packet with one unit more; `None` if its lengths make no shape.
    fn with(self, index: u16, unit: &Observed) -> Option<Self> {
        if index == 1 {
            return Some(Self { head_rest: unit.head_len, middle: unit.payload_len, ..self });
        }
        let fits =
            unit.head_len == self.head_rest && (unit.is_last || unit.payload_len == self.middle);
        fits.then_some(self)
    }

    fn shape(&self, index: u16, last: &Observed) -> Option<Shape> {
        let heads = HeadLens { first: self.head_first, rest: self.head_rest };
        let Self { first, middle, .. } = *self;
        let payloads = PayloadLens { first, middle, last: last.payload_len };
        Shape::new(index.checked_add(1)?, heads, payloads)
    }
}

/// A bounded number of flows; who was not heard for the longest is forgotten.
#[derive(Debug)]
pub(super) struct Flows<K> {
    flows: Vec<Flow<K>>,
    most: usize,
    index: HashIndex,
    hand: usize,
    /// How the last packets of all flows were cut, and how often in a row.
    common: Option<Shape>,
    confidence: u8,
}

/// A flow was found, or took the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Known(u16),
    New { at: u16, instead_of_another: bool },
}

impl<K: Copy + Eq + Hash> Flows<K> {
    pub(super) fn new(most: u16, secret: HashSecret) -> Self {
        let most = usize::from(most.max(1));
        Self {
            flows: Vec::with_capacity(most),
            most,
            index: HashIndex::new(secret),
            hand: 0,
            common: None,
            confidence: 0,
        }
    }

    /// Whether this is the flow at that place: the short way for those who thinks so.
    #[inline]
    pub(super) fn is(&self, at: u16, key: &K) -> bool {
        self.flows.get(usize::from(at)).is_some_and(|flow| flow.key == *key)
    }

    pub(super) fn find(&mut self, key: &K) -> Found {
        let flows = &self.flows;
        if let Some(at) = self.index.find(key, |at| flows[at as usize].key == *key) {
            self.flows[at as usize].is_recent = true;
            return Found::Known(at as u16);
        }
        let new = Flow {
            key: *key,
            shape: None,
            confidence: 0,
            next: 0,
            position: 0,
            partial: None,
            is_recent: false,
        };
        let instead_of_another = self.flows.len() == self.most;
        let at = if instead_of_another {
            let at = self.longest_unheard();
            self.index.remove(&self.flows[at].key, at as u32);
            self.flows[at] = new;
            at
        } else {
            self.flows.push(new);
            self.flows.len() - 1
        };
        self.index.insert(key, at as u32);
        Found::New { at: at as u16, instead_of_another }
    }

    /// The clock: who was heard since the hand passed gets one turn more.
    fn longest_unheard(&mut self) -> usize {
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.flows.len();
            if !core::mem::take(&mut self.flows[at].is_recent) {
                return at;
            }
        }
    }

    /// The unit that comes next, 0 for a flow that nobody knows.
    #[inline]
    pub(super) fn next(&self, at: u16) -> u16 {
        self.flows.get(usize::from(at)).map_or(0, |flow| flow.next)
    }

    /// How the packets of a flow are cut, if that is known well.
    #[inline]
    pub(super) fn shape(&self, at: u16) -> Option<Shape> {
        let flow = self.flows.get(usize::from(at))?;
        if flow.confidence >= CONFIDENT { flow.shape } else { None }
    }

    /// How flows cut that nobody knows: as all others did lately.
    pub(super) fn common_shape(&self) -> Option<Shape> {
        self.common.filter(|_| self.confidence >= CONFIDENT)
    }

    fn packet_was(&mut self, shape: Shape) {
        if self.common == Some(shape) {
            self.confidence = (self.confidence + 1).min(MOST_CONFIDENCE);
        } else if self.confidence > 0 {
            self.confidence -= 1;
        } else {
            (self.common, self.confidence) = (Some(shape), 1);
        }
    }

    /// How its last packet was cut, known well or not.
    pub(super) fn last_shape(&self, at: u16) -> Option<Shape> {
        self.flows.get(usize::from(at)).and_then(|flow| flow.shape)
    }

    /// A unit was where it was expected, in a packet that is cut so.
    #[inline]
    pub(super) fn unit_in_place(&mut self, at: u16, next: u16, shape: &Shape) {
        let Some(flow) = assumed(
            self.flows.get_mut(usize::from(at)),
            "what is observed is of a flow that is known",
        ) else {
            return;
        };
        flow.next = next;
        flow.partial = None;
        flow.is_recent = true;
        if next > 0 {
            return;
        }
        if flow.shape == Some(*shape) {
            flow.confidence = (flow.confidence + 1).min(MOST_CONFIDENCE);
        } else {
            (flow.shape, flow.confidence) = (Some(*shape), 1);
        }
        self.packet_was(*shape);
    }

    /// A unit came in some other way.
    pub(super) fn observe(&mut self, at: u16, unit: &Observed) {
        let Some(flow) = assumed(
            self.flows.get_mut(usize::from(at)),
            "what is observed is of a flow that is known",
        ) else {
            return;
        };
        let index = if unit.position == 0 { 0 } else { flow.next };
        let partial = match flow.partial {
            _ if unit.position == 0 => Some(Partial::begin(unit)),
            Some(partial) if unit.position == flow.position => partial.with(index, unit),
            _ => None,
        };
        flow.partial = partial.filter(|_| !unit.is_last);
        flow.position = unit.position.saturating_add(unit.reach);
        flow.next = if unit.is_last { 0 } else { index.saturating_add(1) };
        if !unit.is_last {
            return;
        }
        // Not all of its units were seen.
        let Some(shape) = partial.and_then(|partial| partial.shape(index, unit)) else { return };
        self.packet_was(shape);
        let Some(flow) =
            assumed(self.flows.get_mut(usize::from(at)), "it was looked at just above")
        else {
            return;
        };
        if flow.shape == Some(shape) {
            flow.confidence = (flow.confidence + 1).min(MOST_CONFIDENCE);
        } else if flow.confidence >= CONFIDENT {
            // One packet of another length does not make the flow another.
            flow.confidence -= CONFIDENT;
        } else {
            flow.shape = Some(shape);
            flow.confidence = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(index: u32, is_last: bool, payload_len: u16) -> Observed {
        let head_len = if index == 0 { 42 } else { 34 };
        Observed { position: index, reach: 1, is_last, head_len, payload_len }
    }

    fn page(flows: &mut Flows<u64>, at: u16, last: u16) {
        for unit in [unit(0, false, 1472), unit(1, false, 1480), unit(2, true, last)] {
            flows.observe(at, &unit);
        }
    }

    #[test]
    fn a_shape_is_believed_when_it_was_seen_twice() {
        let mut flows = Flows::new(4, HashSecret::new(1, 2));
        let Found::New { at, .. } = flows.find(&7_u64) else { panic!("nobody was known") };
        page(&mut flows, at, 1144);
        assert_eq!(flows.shape(at), None);
        page(&mut flows, at, 1144);
        let shape = flows.shape(at).unwrap();
        assert_eq!((shape.units(), shape.body_len(), shape.head_len(0)), (3, 4096, 42));
        for _ in 0..9 {
            page(&mut flows, at, 1144);
        }
        page(&mut flows, at, 8);
        assert_eq!(flows.shape(at), Some(shape), "one that is shorter changes nothing");
        for _ in 0..9 {
            page(&mut flows, at, 8);
        }
        assert_eq!(flows.shape(at).unwrap().body_len(), 2960);
    }

    #[test]
    fn units_out_of_order_teach_nothing_but_where_the_flow_is() {
        let mut flows = Flows::new(4, HashSecret::new(1, 2));
        flows.find(&7_u64);
        for _ in 0..9 {
            for unit in [unit(0, false, 1472), unit(2, true, 1144), unit(1, false, 1480)] {
                flows.observe(0, &unit);
            }
            assert_eq!((flows.shape(0), flows.last_shape(0)), (None, None));
        }
    }

    #[test]
    fn invariant_5_flows_are_bounded_and_the_heard_stay() {
        let mut flows = Flows::new(4, HashSecret::new(1, 2));
        for stranger in 10..10_000_u64 {
            flows.find(&7);
            let found = flows.find(&stranger);
            assert!(matches!(found, Found::New { .. }));
        }
        assert_eq!(flows.flows.len(), 4);
        assert!(matches!(flows.find(&7), Found::Known(_)));
    }
}
