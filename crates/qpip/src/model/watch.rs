//! What one side says on the wire, checked against the model: what it sends is
//! what was posted, what it acknowledges is in place, and what it offers it has.

use alloc::format;
use alloc::string::String;
use core::net::SocketAddr;

use landfall_placement::{Area, Span};

use super::frame::{ACK, FIN, PSH, RST, Said, read};
use super::ledger::{Flow, Stage};
use super::world::World;
use crate::tcp::tcb::CloseReason;

/// A window that is closed is asked with so many bytes.
const PROBE: u64 = 1;
/// Who forgot an opening, for want of room, answers it again with a number that is further
/// away than this: what is so far off is said of another answer.
const FURTHEST: usize = 200_000;

impl World {
    /// One side sends this frame.
    pub(super) fn watch(&mut self, side: usize, frame: &[u8]) {
        let Some(said) = read(frame) else { return };
        if said.has(RST) {
            return;
        }
        let wrong = if said.has(super::frame::SYN) {
            self.watch_opening(side, &said);
            None
        } else {
            let data = self.watch_data(side, &said, frame);
            data.or_else(|| self.watch_acknowledgement(side, &said))
        };
        if let Some(wrong) = wrong {
            self.fail(side, &format!("{wrong}: {said:?}"));
        }
    }

    fn watch_opening(&mut self, side: usize, said: &Said) {
        let name = (side, said.from, said.to);
        let known = self.ledger.flows.get(&name).copied();
        if known.is_some_and(|flow| flow.first == said.seq && flow.is_open) {
            return;
        }
        let is_confused =
            said.has(ACK) && known.is_some_and(|flow| flow.first != said.seq || flow.is_confused);
        let (first, shift, offered) = (said.seq, said.shift, u64::from(said.window));
        let flow = Flow { first, shift, edge: offered, offered, is_open: false, is_confused };
        self.ledger.flows.insert(name, flow);
        if !said.has(ACK) {
            self.ledger.flows.remove(&(1 - side, said.to, said.from));
        }
    }

    /// The queue pair that said so, if it is alive.
    fn speaker(&self, side: usize, said: &Said) -> Option<usize> {
        let names = [(side, said.from, said.to), (1 - side, said.to, said.from)];
        if names.iter().any(|name| self.ledger.flows.get(name).is_some_and(|f| f.is_confused)) {
            return None;
        }
        let local = SocketAddr::new(self.setup.address(side), said.from);
        let remote = SocketAddr::new(self.setup.address(1 - side), said.to);
        let index = self.ledger.connection(side, local, remote)?;
        let pair = &self.ledger.pairs[index];
        // What is said last may be said when the user was told already.
        let is_broken =
            matches!(pair.stage, Stage::Closed(reason) if reason != CloseReason::Finished);
        (!is_broken && !pair.is_given_up).then_some(index)
    }

    fn watch_data(&mut self, side: usize, said: &Said, frame: &[u8]) -> Option<String> {
        let (from, to) = said.payload.filter(|(from, to)| from < to)?;
        let bytes = frame.get(from..to)?;
        let index = self.speaker(side, said)?;
        let pair = &self.ledger.pairs[index];
        let flow = self.ledger.flows.get(&(side, said.from, said.to)).copied().unwrap_or_default();
        let start = said.seq.wrapping_sub(flow.first).wrapping_sub(1) as usize;
        let end = start + bytes.len();
        if pair.stream.get(start..end) != Some(bytes) {
            return Some(format!("sends what was not posted at {start}"));
        }
        let next = pair.end_behind(start).unwrap_or(usize::MAX);
        if pair.has_messages() {
            if end > next {
                return Some(format!("sends bytes of two messages, one of which ends at {next}"));
            }
            if said.has(PSH) != (end == next) {
                return Some(format!("pushes at {end}, and the message ends at {next}"));
            }
        }
        let is_start = start == 0 || pair.ends.contains(&start);
        if pair.has_whole_messages() && !(is_start && end == next) && bytes.len() as u64 > PROBE {
            return Some(format!("sends a part of the message that ends at {next}"));
        }
        // Of who has said no more than its opening since that was last seen, the edge is not
        // known: an opening that is said again, late, hides what was said in between.
        let other = self.ledger.flows.get(&(1 - side, said.to, said.from));
        let edge = other.filter(|flow| flow.is_open).map(|flow| flow.edge)?;
        (end as u64 > edge + PROBE).then(|| format!("sends up to {end}, beyond the edge {edge}"))
    }

    fn watch_acknowledgement(&mut self, side: usize, said: &Said) -> Option<String> {
        if !said.has(ACK) {
            return Some(String::from("sends a segment without an acknowledgement"));
        }
        let index = self.speaker(side, said)?;
        let other = *self.ledger.flows.get(&(1 - side, said.to, said.from))?;
        let next = said.ack.wrapping_sub(other.first).wrapping_sub(1) as usize;
        if next > FURTHEST {
            return None;
        }
        let peer = self.ledger.pairs[index].peer.map(|peer| &self.ledger.pairs[peer]);
        let (sent, is_shut) = peer.map_or((0, false), |peer| (peer.stream.len(), peer.is_shut));
        if next > sent + usize::from(is_shut) {
            return Some(format!("acknowledges {next} of {sent} bytes"));
        }
        if said.has(FIN) && !self.ledger.pairs[index].is_shut {
            return Some(String::from("says that it has finished"));
        }
        let before = self.ledger.pairs[index].told;
        if next < before {
            return Some(format!("takes back that it has {before}"));
        }
        // With the end of the stream nothing more is offered.
        let edge = self.watch_window(side, said, next as u64, next > sent);
        let told = next.min(sent);
        self.ledger.pairs[index].told = told;
        let absent = self.find_absent(index, told);
        absent.map(|at| format!("acknowledges {told}, and {at} is not in place")).or(edge)
    }

    /// The right edge of what is offered never moves left (RFC 9293, SHLD-14), but
    /// for less than a unit of it (RFC 7323, 2.4), and a stream of bytes offers no
    /// more than there is, but for the same.
    fn watch_window(
        &mut self,
        side: usize,
        said: &Said,
        next: u64,
        is_over: bool,
    ) -> Option<String> {
        let other = self.ledger.flows.get(&(1 - side, said.to, said.from))?.shift;
        let index = self.speaker(side, said)?;
        let flow = self.ledger.flows.get_mut(&(side, said.from, said.to))?;
        let shift = flow.shift.filter(|_| other.is_some()).unwrap_or(0);
        let edge = next + (u64::from(said.window) << shift);
        let is_first = !core::mem::replace(&mut flow.is_open, true);
        let (before, offered) = (flow.edge, flow.offered + (1 << shift));
        flow.edge = before.max(edge);
        if edge + (1 << shift) <= before && !is_first && !is_over {
            return Some(format!("moves the edge from {before} to {edge}"));
        }
        let pair = &self.ledger.pairs[index];
        let posted: usize = pair.receives.iter().map(|request| request.len).sum();
        let most = (pair.front + posted) as u64 + (1 << shift);
        let is_too_far = !pair.has_messages() && edge > most.max(offered);
        is_too_far.then(|| format!("offers up to {edge}, and has memory up to {most}"))
    }

    /// Payloads go to memory that was posted, and not where something is that was
    /// acknowledged (invariant 1).
    pub(super) fn check_place(&mut self, side: usize, into: &[Span]) {
        for span in into {
            let area = Area::from(*span);
            let found = self.ledger.pairs.iter().enumerate().find_map(|(index, pair)| {
                let mut requests = pair.receives.iter().enumerate();
                let nth = requests.find_map(|(nth, request)| {
                    let holds = |(_, place): &(_, Area)| {
                        place.overlaps(&area)
                            && place.offset <= area.offset
                            && area.offset + area.len <= place.offset + place.len
                    };
                    request.places.iter().position(holds).map(|place| (nth, place))
                });
                nth.filter(|_| pair.side == side).map(|nth| (index, nth))
            });
            let Some((index, (nth, place))) = found else {
                return self.fail_badly(side, &format!("{span} was not posted"));
            };
            if self.is_told(index, nth, place, &area) {
                self.fail(side, &format!("{span} holds what was acknowledged"));
            }
        }
    }

    /// Does this part of a request hold something that was acknowledged?
    fn is_told(&self, index: usize, nth: usize, place: usize, area: &Area) -> bool {
        let Some(layout) = self.ledger.layout(index) else { return false };
        let pair = &self.ledger.pairs[index];
        let told = pair.told.min(layout[nth].1).saturating_sub(layout[nth].0);
        let places = &pair.receives[nth].places;
        let before: u64 = places[..place].iter().map(|(_, area)| area.len).sum();
        before + (area.offset - places[place].1.offset) < told as u64
    }

    /// Invariant 2: the first byte that was acknowledged and is not in its place.
    fn find_absent(&self, index: usize, told: usize) -> Option<usize> {
        let pair = &self.ledger.pairs[index];
        let peer = &self.ledger.pairs[pair.peer?];
        let layout = self.ledger.layout(index)?;
        for (request, (start, end)) in pair.receives.iter().zip(&layout) {
            let here = told.min(*end).saturating_sub(*start);
            let expected = &peer.stream.get(*start..*start + here)?;
            if self.memory_of(pair.side, request).get(..here) != Some(expected) {
                return Some(*start);
            }
        }
        let covered = layout.last().map_or(pair.front, |(_, end)| *end);
        (covered < told).then_some(covered)
    }
}
