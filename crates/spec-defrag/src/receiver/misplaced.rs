//! The clean-up: a frame that is not where it belongs is read from where it lies.
//!
//! Frames behind descriptors come here, and those that lie in a ring and are not lent.

use landfall_placement::{Instant, Refusal, assumed};

use super::settle::Landed;
use super::{Foreign, Receiver};
use crate::buffers::LEAD;
use crate::conventional::Arrived;
use crate::format::Begin;
use crate::memory::{Body, Head, Memory, Packet, Pieces, ReassemblyPath};
use crate::predict::Observed;
use crate::speculator::Page;
use crate::wire::{self, Key, Parsed, Stop};

/// As much of a frame as anybody asks for to know its headers.
const MOST_HEAD: usize = 256;

/// The first bytes of a frame, in one piece.
pub(super) struct First {
    bytes: [u8; MOST_HEAD],
    len: usize,
}

impl First {
    /// What was shown of the frame.
    pub(super) fn new(shown: &[u8]) -> Self {
        let mut first = Self { bytes: [0; MOST_HEAD], len: shown.len().min(MOST_HEAD) };
        first.bytes[..first.len].copy_from_slice(&shown[..first.len]);
        first
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Sees to it that this many bytes are shown, if the frame has them.
    pub(super) fn reach<M: Memory>(&mut self, wanted: usize, frame: &Pieces, memory: &M) {
        let wanted = wanted.min(MOST_HEAD);
        if wanted > self.len {
            let rest = frame.part(self.len as u32, (wanted - self.len) as u32);
            self.len += rest.read(&mut self.bytes[self.len..wanted], memory);
        }
    }

    /// The headers; as many bytes as that takes are shown then.
    pub(super) fn parse<M: Memory>(
        &mut self,
        frame: &Pieces,
        len: u32,
        memory: &M,
    ) -> Result<Parsed, Stop> {
        loop {
            match wire::parse(self.as_slice(), len) {
                Err(Stop::NeedHead(wanted)) => {
                    let before = self.len;
                    self.reach(usize::from(wanted), frame, memory);
                    if self.len == before {
                        // The frame has no more: it says nothing that is known here.
                        return Err(Stop::Foreign);
                    }
                }
                done => return done,
            }
        }
    }

    /// How long the transport header of a first piece is, shown with all before it.
    pub(super) fn transport<M: Memory>(
        &mut self,
        parsed: &Parsed,
        frame: &Pieces,
        memory: &M,
    ) -> Option<u16> {
        let at = usize::from(parsed.payload_at);
        let end = at + parsed.payload_len as usize;
        // Most headers are short, the others say how long they are.
        for enough in [LEAST_TRANSPORT, MOST_TRANSPORT] {
            self.reach(end.min(at + enough), frame, memory);
            let piece = self.as_slice().get(at..end.min(self.len))?;
            if let Some(len) = wire::transport_len(parsed.protocol, piece) {
                return Some(len);
            }
        }
        None
    }
}

/// The last fragment that was not in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastMisplaced {
    pub(super) key: Key,
    /// How long the transport header of its packet is.
    pub(super) split: u16,
}

/// TCP without options, and with as many as there can be.
const LEAST_TRANSPORT: usize = 20;
const MOST_TRANSPORT: usize = 60;

impl Receiver {
    /// The frame behind this descriptor is not in place.
    pub(super) fn misplaced<M: Memory>(
        &mut self,
        now: Instant,
        at: Landed,
        len: u32,
        memory: &mut M,
    ) {
        let Landed { n, arrived } = at;
        let frame = self.pieces(n, len);
        let was_guessed = self.speculator.posted().get(n).is_some_and(|d| d.place.len > 0);
        self.stats.misplaced += u64::from(was_guessed);
        let shown = self.speculator.posted().get(n).map_or(0, |d| usize::from(d.head_len));
        let head = memory.head(n as u16);
        let mut first = First::new(&head[..shown.min(len as usize).min(head.len())]);
        let parsed = first.parse(&frame, len, memory);
        // What was begun where the frame landed. It is given away after the frame was
        // read, unless the frame belongs to it.
        let broken = self.speculator.broken_by(n, arrived);
        let is_part =
            |key: &wire::Key| broken.as_ref().is_some_and(|(page, _)| page.begin.key() == *key);
        match parsed {
            Ok(parsed) if parsed.fragment.is_some() => {
                let others =
                    self.speculator.broken_where(|begin| begin.key() == parsed.key, n, arrived);
                let is_part = is_part(&parsed.key);
                let mut left = [None; 2];
                let pages = others.iter().chain(broken.iter().filter(|_| is_part));
                for ((page, is_occupied), left) in pages.zip(&mut left) {
                    let is_across = self.lies_across(page, &parsed, &frame);
                    self.hand_over(now, page, *is_occupied || is_across, memory);
                    *left = Some(page.page).filter(|_| is_across && !is_occupied);
                }
                self.give_up_list_of(&parsed.key, memory);
                self.fragment(now, Some(n), &mut first, &parsed, &frame, memory);
                // Its packet moved out, and the frame that lay there was read.
                left.into_iter().flatten().for_each(|page| _ = self.buffers.give_back(page));
                if is_part {
                    return;
                }
            }
            other => self.not_a_fragment(Some(n), &other, &first, &frame, memory),
        }
        if let Some((page, is_occupied)) = broken {
            self.hand_over(now, &page, is_occupied, memory);
        }
    }

    /// Whether a piece lies over the place in the page where it belongs, and not
    /// exactly there: it could not be moved.
    fn lies_across(&self, page: &Page<Begin>, parsed: &Parsed, frame: &Pieces) -> bool {
        // A packet in one piece has no place in a page.
        let Some(piece) = parsed.fragment else { return false };
        let split = u32::from(page.shape.head_len(0) - page.shape.head_len(1));
        let at = (LEAD + piece.offset).saturating_sub(split);
        let target = self.buffers.span(page.page, at, parsed.payload_len);
        let payload = frame.part(parsed.payload_at.into(), parsed.payload_len);
        payload.iter().any(|span| span.overlaps(&target) && span != target)
    }

    /// A fragment goes the conventional way, from where it lies.
    pub(super) fn fragment<M: Memory>(
        &mut self,
        now: Instant,
        n: Option<usize>,
        first: &mut First,
        parsed: &Parsed,
        frame: &Pieces,
        memory: &mut M,
    ) {
        let Some(piece) = assumed(parsed.fragment, "only fragments go this way") else { return };
        self.last_head = parsed.payload_at.min(crate::Shape::MOST_HEAD);
        let flow = parsed.key.flow();
        let split = match self.last {
            _ if piece.offset == 0 => first.transport(parsed, frame, memory).unwrap_or(0),
            Some(last) if last.key == parsed.key => last.split,
            _ => {
                let shape = self.speculator.last_shape(&flow);
                shape.map_or(0, |shape| shape.head_len(0).saturating_sub(shape.head_len(1)))
            }
        };
        self.last = Some(LastMisplaced { key: parsed.key, split });
        if let Some(n) = n {
            let split = if piece.offset == 0 { split } else { 0 };
            let payload_len = parsed.payload_len.saturating_sub(split.into());
            let unit = Observed {
                position: piece.offset,
                reach: parsed.payload_len,
                is_last: !piece.more,
                head_len: parsed.payload_at + split,
                payload_len: u16::try_from(payload_len).unwrap_or(u16::MAX),
            };
            self.speculator.learn(n, &flow, &unit);
        }
        self.stats.bytes_copied += u64::from(parsed.payload_len);
        let arrived = Arrived { parsed, head: first.as_slice(), frame, split };
        match self.reassembly.insert(now, &arrived, &mut self.buffers, memory) {
            Ok(Some(packet)) => self.deliver(packet),
            Ok(None) => {}
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// A frame that carries no fragment comes out as it came, unless nobody wants it.
    pub(super) fn not_a_fragment<M: Memory>(
        &mut self,
        n: Option<usize>,
        parsed: &Result<Parsed, Stop>,
        first: &First,
        frame: &Pieces,
        memory: &mut M,
    ) {
        if let Some(n) = n {
            self.speculator.learn_other(n);
        }
        if let Err(Stop::Refused(refusal)) = parsed {
            return self.refuse(*refusal);
        }
        if self.config.foreign == Foreign::Ignore {
            self.stats.ignored += 1;
            return;
        }
        let head_len = parsed.as_ref().map_or(ETHERNET, |parsed| usize::from(parsed.payload_at));
        let head = first.as_slice();
        let head = &head[..head_len.min(head.len()).min(Head::MOST)];
        let len = frame.len() as u32;
        let body_len = len - head.len() as u32;
        let Some(buffer) = self.buffers.take(body_len) else {
            return self.refuse(Refusal::NoRoom);
        };
        let span = self.buffers.span(buffer, LEAD, body_len);
        frame.part(head.len() as u32, body_len).copy_to(span, memory);
        self.stats.bytes_copied += u64::from(body_len);
        let head = Head::from_slice(head).unwrap_or_default();
        self.deliver(Packet {
            head,
            body: Body::Buffer(buffer, span),
            body_len,
            path: ReassemblyPath::Whole,
        });
    }
}

const ETHERNET: usize = 14;
