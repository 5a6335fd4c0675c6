//! What one side says on the wire, checked against the model: what it sends is
//! what was posted, what it acknowledges is in place, and what it offers it has.

use alloc::format;
use alloc::string::String;
use core::net::SocketAddr;

use landfall_placement::{Area, Span};

use super::frame::{ACK, FIN, PSH, RST, SYN, SegmentFacts, read};
use super::ledger::{Flow, Stage};
use super::world::World;
use crate::tcp::tcb::CloseReason;

/// A window that is closed is asked with this many bytes.
const PROBE: u64 = 1;

/// Who speaks on the wire, and of which connection.
#[derive(Clone, Copy, Debug)]
struct Origin {
    index: usize,
    /// The queue pair that asked for the connection.
    asker: usize,
    /// It is the one that speaks.
    is_asker: bool,
}

impl World {
    /// One side sends this frame.
    pub(super) fn watch(&mut self, side: usize, frame: &[u8]) {
        let Some(said) = read(frame) else { return };
        if said.has(RST) {
            return;
        }
        let wrong = if said.has(SYN) {
            self.watch_opening(side, &said)
        } else {
            self.watch_segment(side, &said, frame)
        };
        if let Some(wrong) = wrong {
            self.fail(side, &format!("{wrong}: {said:?}"));
        }
    }

    fn watch_opening(&mut self, side: usize, said: &SegmentFacts) -> Option<String> {
        let offered = u64::from(said.window);
        let flow =
            Flow { first: said.seq, shift: said.shift, edge: offered, offered, reach: offered };
        let ends = self.ends_of(side, said);
        if !said.has(ACK) {
            let Some(index) = self.ledger.connection(side, ends.0, ends.1) else {
                return Some(String::from("asks for a connection that no user wants"));
            };
            let is_same = self.ledger.pairs[index].opening.ask(flow);
            return (!is_same).then(|| String::from("asks again with another number"));
        }
        // Its number tells which question it answers: that may be an earlier one.
        let question = said.ack.wrapping_sub(1);
        let asker = self.ledger.pairs.iter_mut().rev().find(|pair| {
            let is_it = pair.opening.question.is_some_and(|asked| asked.first == question);
            is_it && pair.connects(1 - side, ends.1, ends.0)
        });
        let Some(asker) = asker else {
            return Some(String::from("answers what nobody asked"));
        };
        asker.opening.answer(flow);
        None
    }

    fn ends_of(&self, side: usize, said: &SegmentFacts) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::new(self.setup.address(side), said.from);
        (local, SocketAddr::new(self.setup.address(1 - side), said.to))
    }

    /// The queue pair that said so, if it is alive.
    fn speaker(&self, side: usize, said: &SegmentFacts) -> Option<Origin> {
        let (local, remote) = self.ends_of(side, said);
        let index = self.ledger.connection(side, local, remote)?;
        let pair = &self.ledger.pairs[index];
        // What is said last may be said when the user was told already.
        let is_broken =
            matches!(pair.stage, Stage::Closed(reason) if reason != CloseReason::Finished);
        let is_asker = pair.opening.question.is_some();
        let asker = if is_asker { index } else { pair.peer? };
        (!is_broken).then_some(Origin { index, asker, is_asker })
    }

    fn watch_segment(&mut self, side: usize, said: &SegmentFacts, frame: &[u8]) -> Option<String> {
        if !said.has(ACK) {
            return Some(String::from("sends a segment without an acknowledgement"));
        }
        let speaker = self.speaker(side, said)?;
        if self.ledger.pairs[speaker.index].is_given_up {
            self.hear_last_words(speaker, said);
            return None;
        }
        let is_over = self.ledger.pairs[speaker.index].is_closed();
        let opening = &mut self.ledger.pairs[speaker.asker].opening;
        if !speaker.is_asker
            && let Some(wrong) = opening.says_of_unheard(said)
        {
            return wrong;
        }
        let is_at_start =
            opening.question.is_some_and(|asked| said.ack == asked.first.wrapping_add(1));
        if !speaker.is_asker && is_over && is_at_start {
            // The question came again after all had been said, and the answer to that was lost:
            // here is where that opening is, which nobody knows of.
            return None;
        }
        // The listener sends nothing else before it has heard this, so that it acknowledges the
        // answer and nothing else.
        if speaker.is_asker && !opening.hear(said.ack) {
            return Some(String::from("acknowledges an answer that was not given"));
        }
        let Some((flow, other)) = opening.flows(speaker.is_asker) else {
            return Some(String::from("sends before its answer was heard"));
        };
        let data = self.watch_data(speaker, (&flow, &other), said, frame);
        data.or_else(|| self.watch_acknowledgement(speaker, &other, said))
    }

    /// What was to be said before the user gave up the connection: it counts for the other side.
    fn hear_last_words(&mut self, speaker: Origin, said: &SegmentFacts) {
        let pairs = &mut self.ledger.pairs;
        let flows = pairs[speaker.asker].opening.flows(speaker.is_asker);
        let peer = pairs[speaker.index].peer;
        if let (Some((_, other)), Some(peer)) = (flows, peer) {
            let next = said.ack.wrapping_sub(other.first).wrapping_sub(1) as usize;
            let told = next.min(pairs[peer].stream.len());
            pairs[speaker.index].told = pairs[speaker.index].told.max(told);
        }
    }

    fn watch_data(
        &self,
        speaker: Origin,
        (flow, other): (&Flow, &Flow),
        said: &SegmentFacts,
        frame: &[u8],
    ) -> Option<String> {
        let (from, to) = said.payload.filter(|(from, to)| from < to)?;
        let bytes = frame.get(from..to)?;
        let pair = &self.ledger.pairs[speaker.index];
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
            let word = pair.words.get(&end).copied();
            if said.word != word {
                return Some(format!("says {:?} at {end}, and {word:?} was posted", said.word));
            }
            if said.has(PSH) != (end == next) {
                return Some(format!("pushes at {end}, and the message ends at {next}"));
            }
        }
        let is_start = start == 0 || pair.ends.contains(&start);
        if pair.has_whole_messages() && !(is_start && end == next) && bytes.len() as u64 > PROBE {
            return Some(format!("sends a part of the message that ends at {next}"));
        }
        let edge = other.reach;
        (end as u64 > edge + PROBE).then(|| format!("sends up to {end}, beyond the edge {edge}"))
    }

    fn watch_acknowledgement(
        &mut self,
        speaker: Origin,
        other: &Flow,
        said: &SegmentFacts,
    ) -> Option<String> {
        let index = speaker.index;
        let next = said.ack.wrapping_sub(other.first).wrapping_sub(1) as usize;
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
        let edge = self.watch_window(speaker, other, said, (next as u64, next > sent));
        let told = next.min(sent);
        self.ledger.pairs[index].told = told;
        let absent = self.find_absent(index, told);
        absent.map(|at| format!("acknowledges {told}, and {at} is not in place")).or(edge)
    }

    /// The right edge of what is offered never moves left (RFC 9293, SHLD-14), but
    /// for less than a unit of it (RFC 7323, 2.4), and a stream of bytes offers no
    /// more than there is, but for the same. What there was once may be offered though it is
    /// gone: the end of the stream came, and the word that leaves is older.
    fn watch_window(
        &mut self,
        speaker: Origin,
        other: &Flow,
        said: &SegmentFacts,
        (next, is_over): (u64, bool),
    ) -> Option<String> {
        let flow = self.ledger.pairs[speaker.asker].opening.flow_mut(speaker.is_asker)?;
        let shift = flow.shift_with(other);
        let edge = next + (u64::from(said.window) << shift);
        let (before, offered) = (flow.edge, flow.offered + (1 << shift));
        flow.edge = before.max(edge);
        flow.reach = flow.reach.max(edge);
        if edge + (1 << shift) <= before && !is_over {
            return Some(format!("moves the edge from {before} to {edge}"));
        }
        let pair = &self.ledger.pairs[speaker.index];
        let most = pair.memory_end as u64 + (1 << shift);
        let is_too_far = !pair.has_messages() && edge > most.max(offered).max(before);
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
