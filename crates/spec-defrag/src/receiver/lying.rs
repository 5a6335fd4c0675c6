//! Frames that lie somewhere already: in a ring that is shared with the kernel, in
//! the memory of a device.

use landfall_placement::{Instant, Span};

use super::astray::First;
use super::lists::{self, Gathered, MOST_OPEN};
use super::{Lend, Receiver};
use crate::memory::Lying;
use crate::memory::{Memory, Pieces};
use crate::packet::{Body, Head, ListId, Packet, Way};
use crate::wire::{self, Parsed};

impl Receiver {
    /// Frames lie there. When this returns, all that was not lent has been read, and
    /// the memory of the others is the driver's again.
    ///
    /// Only between bursts, as for `handle_timeout`.
    pub fn take<M: Memory>(&mut self, now: Instant, frames: &[Lying<'_>], memory: &mut M) {
        self.stats.frames += frames.len() as u64;
        for frame in frames {
            self.take_one(now, frame, memory);
        }
        while let Some(gathered) = self.gathered.pop() {
            self.evacuate(now, &gathered, memory);
        }
    }

    /// The pieces of a packet that was lent, in order: its body, behind the head.
    #[must_use]
    pub fn lent(&self, list: ListId) -> Option<&[Span]> {
        self.lists.get(list)
    }

    /// The pieces of a packet are needed no longer. False if they were given back
    /// before. That their memory may be used again is between driver and user.
    pub fn release_list(&mut self, list: ListId) -> bool {
        self.lists.give_back(list)
    }

    fn take_one<M: Memory>(&mut self, now: Instant, lying: &Lying<'_>, memory: &mut M) {
        let frame = Pieces::one(lying.at);
        let mut first = First::new(lying.head);
        let parsed = match first.parse(&frame, lying.at.len, memory) {
            Ok(parsed) if parsed.fragment.is_some() => parsed,
            other => return self.not_a_fragment(None, &other, &first, &frame, memory),
        };
        // A page waits for pieces of its packet by guess alone.
        while let Some(page) = self.speculator.withdraw(|begin, _| begin.key() == parsed.key) {
            self.stats.broken += 1;
            self.adopt(now, &page, page.page, memory);
        }
        if self.config.lend == Lend::List && self.gather(now, lying, &mut first, &parsed, memory) {
            return;
        }
        if let Some(at) = self.gathered.iter().position(|other| other.key == parsed.key) {
            let gathered = self.gathered.swap_remove(at);
            self.evacuate(now, &gathered, memory);
        }
        self.fragment(now, None, &mut first, &parsed, &frame, memory);
    }

    /// Whether this piece went to a list: it is the first of its packet, or the next.
    fn gather<M: Memory>(
        &mut self,
        now: Instant,
        lying: &Lying<'_>,
        first: &mut First,
        parsed: &Parsed,
        memory: &mut M,
    ) -> bool {
        let Some(piece) = parsed.fragment else { return false };
        let known = self.gathered.iter().position(|other| other.key == parsed.key);
        match known {
            None if piece.offset == 0 && piece.more && self.gathered.len() < MOST_OPEN => {
                let elsewhere =
                    !self.reassembly.is_empty() && self.reassembly.contains(&parsed.key);
                let frame = Pieces::one(lying.at);
                let transport = first.transport(parsed, &frame, memory).unwrap_or(0);
                let head_len = usize::from(parsed.payload_at + transport);
                let head = first.as_slice().get(..head_len).and_then(Head::from_slice);
                let (Some(head), false) = (head, elsewhere) else { return false };
                let mut frames = self.spare_list.take().unwrap_or_default();
                frames.clear();
                frames.push((*parsed, lying.at));
                let (key, filled) = (parsed.key, parsed.payload_len);
                self.gathered.push(Gathered { key, first: *parsed, head, frames, filled });
                true
            }
            Some(at) => {
                let gathered = &mut self.gathered[at];
                let is_next = piece.offset == gathered.filled
                    && parsed.ecn == gathered.first.ecn
                    && gathered.frames.len() < landfall_placement::Spans::CAPACITY;
                if !is_next {
                    return false;
                }
                gathered.frames.push((*parsed, lying.at));
                gathered.filled += parsed.payload_len;
                if !piece.more {
                    let gathered = self.gathered.swap_remove(at);
                    self.lend(now, gathered, memory);
                }
                true
            }
            None => false,
        }
    }

    /// All pieces of a packet lie there, in order.
    fn lend<M: Memory>(&mut self, now: Instant, gathered: Gathered, memory: &mut M) {
        let network = usize::from(gathered.first.payload_at);
        let (network, transport) = gathered.head.split_at(network.min(gathered.head.len()));
        let skip = transport.len() as u32;
        let whole = wire::whole_head(network, &gathered.first, gathered.filled, gathered.first.ecn);
        let head = whole.ok().and_then(|mut head| head.push(transport).then_some(head));
        let pieces =
            gathered.frames.iter().enumerate().map(|(n, (parsed, at))| {
                lists::payload(parsed, *at, if n == 0 { skip } else { 0 })
            });
        let list = head.and_then(|head| Some((head, self.lists.lend(pieces)?)));
        let Some((head, list)) = list else { return self.evacuate(now, &gathered, memory) };
        self.stats.lent += 1;
        self.packets.push_back(Packet {
            head,
            body: Body::Lent(list),
            body_len: gathered.filled - skip,
            way: Way::Speculated,
        });
        self.spare_list = Some(gathered.frames);
    }

    /// What was gathered goes the conventional way.
    fn evacuate<M: Memory>(&mut self, now: Instant, gathered: &Gathered, memory: &mut M) {
        for (parsed, at) in &gathered.frames {
            let frame = Pieces::one(*at);
            let mut first = First::new(&[]);
            first.reach(usize::from(parsed.payload_at), &frame, memory);
            self.fragment(now, None, &mut first, parsed, &frame, memory);
        }
    }
}
