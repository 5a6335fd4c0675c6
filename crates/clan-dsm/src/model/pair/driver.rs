//! The driver of both sides, and the wire between them.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use landfall_placement::{
    Area, Check, Engine, Landing, PathId, PathLimits, Peer, Placement, Span, Spans, WordOp,
};
use landfall_testkit::model::{Packet, gather};

use super::side::{LANES, SHARED, Shown, Side, TARGET, touches};
use super::{Pair, UNIT};
use crate::cookie::Access;
use crate::ids::ApertureId;
use crate::wire::frame::Frame;

impl Pair {
    /// One unit of a side is put on the wire. Says whether there was one.
    pub(super) fn transmit(&mut self, side: usize) -> bool {
        let now = self.now;
        let limits = PathLimits::plain(UNIT);
        let one = &mut self.sides[side];
        let mut head = [0; 256];
        let head = &mut head[..usize::from(limits.head)];
        let mut spans = Spans::new();
        let Some(transmit) = one.nic.poll_transmit(now, PathId(0), head, &mut spans) else {
            return false;
        };
        let unit = gather(&one.memory, &transmit, head, &spans);
        let unit = unit.unwrap_or_else(|| {
            one.fail("it sends what it does not have");
            Vec::new()
        });
        if unit.len() > limits.unit as usize {
            one.fail(format!("a unit of {} bytes", unit.len()));
        }
        one.held.push_back(transmit.ticket);
        if one.held.len() > self.hold {
            self.let_go(side);
        }
        self.tell(|| format!("  {side} sends {}", spell(&unit)));
        self.wires[1 - side].push_back(unit);
        true
    }

    /// The driver holds nothing any more.
    pub(super) fn let_go(&mut self, side: usize) {
        let one = &mut self.sides[side];
        while let Some(ticket) = one.held.pop_front() {
            one.nic.handle_sent(self.now, ticket);
        }
    }

    /// A side receives so many of the units on the wire: all are placed before
    /// the first is reported. Says whether there were any.
    pub(super) fn receive(&mut self, side: usize, most: usize) -> bool {
        let count = most.min(self.wires[side].len());
        let units: Vec<Vec<u8>> = self.wires[side].drain(..count).collect();
        // What ends a link takes its placements with it: no frame but data comes
        // between the placing of a payload and its report.
        let is_data = |unit: &[u8]| unit.get(2).is_some_and(|kind| kind & 0xf == 0);
        for batch in units.chunk_by(|a, b| is_data(a) && is_data(b)) {
            self.receive_batch(side, batch);
        }
        self.deposit(side);
        count > 0
    }

    fn receive_batch(&mut self, side: usize, units: &[Vec<u8>]) {
        let mut under_way = VecDeque::new();
        for unit in units {
            let mut spans = Spans::new();
            let packet = Packet::new(PathId(0), Peer::Node(1 - side as u32), unit.clone());
            let placement = packet.place(&mut self.sides[side].nic, self.now, &mut spans).ok();
            self.tell(|| format!("  {side} gets {}: {placement:?} {spans:?}", spell(unit)));
            match placement {
                Some(Placement::Into { at, check, ticket }) => {
                    if check != Check::None {
                        self.sides[side].fail(format!("it wants {check:?}"));
                    }
                    let payload = unit.get(usize::from(at)..).unwrap_or_default();
                    under_way.push_back((ticket, Ok((spans, payload))));
                }
                Some(Placement::Word(op, ticket)) => under_way.push_back((ticket, Err(op))),
                _ => {}
            }
        }
        for (ticket, what) in under_way {
            let landing = match what {
                Ok((spans, payload)) => self.land(side, &spans, payload),
                Err(op) => self.land_word(side, &op),
            };
            self.sides[side].nic.handle_placed(self.now, ticket, landing);
        }
    }

    /// What the adapter kept goes to its place.
    fn deposit(&mut self, side: usize) {
        for _ in 0..10_000 {
            let mut spans = Spans::new();
            let Some(deposit) = self.sides[side].nic.poll_deposit(self.now, &mut spans) else {
                return;
            };
            let (bytes, ticket) = (deposit.bytes.to_vec(), deposit.ticket);
            self.tell(|| format!("  {side} deposits {} bytes at {spans:?}", bytes.len()));
            let landing = match self.land(side, &spans, &bytes) {
                Landing::Unchecked => Landing::Verified,
                other => other,
            };
            self.sides[side].nic.handle_placed(self.now, ticket, landing);
        }
        self.sides[side].fail("deposits without end");
    }

    /// Puts a payload into its spans: nothing but the next bytes that the other
    /// side wrote may ever come to lie in an aperture.
    fn land(&mut self, side: usize, spans: &Spans, mut payload: &[u8]) -> Landing {
        for span in spans.iter() {
            let Some((now, later)) = payload.split_at_checked(span.len as usize) else {
                self.sides[side].fail(format!("{span} is longer than what came"));
                return Landing::Failed;
            };
            payload = later;
            if span.region == TARGET {
                self.land_read(side, *span, now);
            } else {
                self.land_write(side, *span, now);
            }
        }
        Landing::Unchecked
    }

    fn land_read(&mut self, side: usize, span: Span, bytes: &[u8]) {
        let one = &mut self.sides[side];
        let is_inside = |area: &Area| {
            area.offset <= span.offset
                && span.end().is_some_and(|end| end <= area.offset + area.len)
        };
        if !one.pending.reads.iter().any(|(.., area)| is_inside(area)) {
            return one.fail(format!("{span} is nothing that is read into"));
        }
        one.write(span, bytes);
    }

    fn land_write(&mut self, side: usize, span: Span, bytes: &[u8]) {
        let [ref mut first, ref mut second] = self.sides;
        let (here, there) = if side == 0 { (first, second) } else { (second, first) };
        let is_inside = |area: Area| {
            area.offset <= span.offset
                && span.end().is_some_and(|end| end <= area.offset + area.len)
        };
        let is_live = |shown: &&Shown| is_inside(shown.area) && !shown.is_gone;
        if self.is_lawless {
            // Whoever has a cookie may write what and when it likes; but nowhere else.
            let Some(Shown { id, area, .. }) = here.shown.iter().find(is_live).cloned() else {
                return here.fail(format!("{span} is no aperture"));
            };
            return here.put(span, id, area, bytes);
        }
        let lane = here.shown.iter().find(|shown| is_inside(shown.area)).map(|shown| shown.lane);
        let Some(lane) = lane.filter(|lane| span.region == SHARED && *lane < LANES) else {
            return here.fail(format!("{span} is no aperture"));
        };
        let is_gone = |aperture: usize| here.shown.get(aperture).is_none_or(|shown| shown.is_gone);
        let Some(aperture) = there.lanes[lane].land(span.offset, bytes, is_gone) else {
            return here.fail(format!("{span}: not what was written next: {bytes:?}"));
        };
        let Shown { id, area, is_gone, .. } = here.shown[aperture];
        if is_gone {
            return here.fail(format!("it writes to {id}, which is gone"));
        }
        here.put(span, id, area, bytes);
    }

    fn land_word(&mut self, side: usize, op: &WordOp) -> Landing {
        let [ref mut first, ref mut second] = self.sides;
        let (here, there) = if side == 0 { (first, second) } else { (second, first) };
        let is_gone = |aperture: usize| here.shown.get(aperture).is_none_or(|shown| shown.is_gone);
        let aperture = if self.is_lawless {
            let is_inside = |shown: &Shown| {
                let area = shown.area;
                let end = op.offset + u64::from(op.width.bytes());
                !shown.is_gone && area.offset <= op.offset && end <= area.offset + area.len
            };
            here.shown.iter().position(is_inside)
        } else {
            there.lanes[0].land_word(op, is_gone)
        };
        let Some(aperture) = aperture else {
            here.fail(format!("{op:?} was not asked for next"));
            return Landing::Failed;
        };
        let Some(old) = here.memory.word(op) else {
            here.fail(format!("{op:?} is nowhere"));
            return Landing::Failed;
        };
        let shown = &here.shown[aperture];
        let (slot, at) = (shown.id.index() as u16, op.offset - shown.area.offset);
        let new = here.memory.get(&op.region.span(op.offset, op.width.bytes()));
        here.naive.put(slot, at, new.unwrap_or_default(), touches(op.function));
        Landing::Old(old)
    }
}

impl Side {
    /// Bytes come to lie where a span says, which has as many.
    fn write(&mut self, span: Span, bytes: &[u8]) {
        match self.memory.get_mut(&span) {
            Some(place) => place.copy_from_slice(bytes),
            None => self.fail(format!("{span} does not exist")),
        }
    }

    /// Bytes come to lie in an aperture.
    fn put(&mut self, span: Span, id: ApertureId, area: Area, bytes: &[u8]) {
        self.write(span, bytes);
        self.naive.put(id.index() as u16, span.offset - area.offset, bytes, Access::Write);
    }
}

/// A unit in words.
fn spell(unit: &[u8]) -> String {
    match Frame::parse(unit, unit.len() as u32) {
        Ok(frame) => format!("{:?}", frame.header()),
        Err(why) => format!("{} bytes: {why:?}", unit.len()),
    }
}
