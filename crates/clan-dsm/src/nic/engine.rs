//! The contract with drivers; what goes into the next frame of a link.
//!
//! What is copied (the answers that others wait for, and what the program wrote)
//! and what lies in memory (what others read, and the DMA engine's) take turns to
//! be first, so that neither has to wait for a pause of the other.

use alloc::vec::Vec;

use landfall_placement::{
    Deposit, Engine, Guess, Instant, Landing, PathId, PathLimits, PathState, Placement, Random,
    Refusal, Refusals, Spans, Ticket, Timeout, Transmit, Unit, assumed,
};

use super::link_table::{LinkState, LinkTable};
use super::windows::Windows;
use super::{LEAST_UNIT, Nic, Stats};
use crate::address::{Address, DmaId, HostId, Key, LinkId, Purpose, WORD, WindowId, pack, unpack};
use crate::endpoint::Endpoints;
use crate::error::Ended;
use crate::event::Event;
use crate::link::{FramePayload, FrameRoom, host_in};
use crate::memory::Memory;
use crate::nic::MOST_ASKED;
use crate::nic::updates::{Bytes, Note};
use crate::transfer::dma::{Action, Dma, Piece};
use crate::transfer::load::{Load, Part, cut, piece_len};
use crate::transfer::pio::FillOutcome;
use crate::transfer::reads::{Reader, Reads};
use crate::wire::{Command, Frame, ReplyTo};

impl Engine for Nic {
    type Event = Event;

    fn handle_path(&mut self, now: Instant, path: PathId, state: PathState) {
        if let Some(native) = &mut self.native {
            native.handle_path(now, path, state);
            return self.settle(now);
        }
        let known = self.paths.iter().position(|(known, _)| *known == path);
        let limits = match state {
            PathState::Up(limits) if is_of_use(&limits) => Some(limits),
            _ => None,
        };
        match (known, limits) {
            (Some(at), Some(limits)) => self.paths[at].1 = limits,
            (Some(at), None) => drop(self.paths.swap_remove(at)),
            (None, Some(limits)) if self.paths.len() < self.config.paths => {
                self.paths.push((path, limits));
            }
            (None, _) => {}
        }
        self.settle(now);
    }

    /// Never: all memory that others write is accepted memory.
    fn guess(&self, _path: PathId, _nth: usize) -> Option<Guess> {
        None
    }

    fn place(
        &mut self,
        now: Instant,
        unit: &Unit<'_>,
        into: &mut Spans,
    ) -> Result<Placement, Refusal> {
        let placed = match self.native {
            Some(_) => self.arrive_packet(now, unit, into),
            None => self.arrive(now, unit, into),
        };
        self.settle(now);
        placed.map_err(|refusal| self.refusals.count(refusal))
    }

    fn handle_placed(&mut self, now: Instant, ticket: Ticket, landing: Landing) {
        match self.native {
            Some(_) => self.land_packet(ticket, landing),
            None => self.land(now, ticket, landing),
        }
        self.settle(now);
    }

    fn poll_deposit(&mut self, now: Instant, into: &mut Spans) -> Option<Deposit<'_>> {
        let next = self.next_deposit(now, into);
        self.settle(now);
        let (range, ticket) = next?;
        Some(Deposit { bytes: self.deposited(range)?, ticket })
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        if self.native.is_some() {
            let next = self.poll_packet(now, path, head, from);
            self.settle(now);
            return next;
        }
        let limits = self.paths.iter().find(|(known, _)| *known == path)?.1;
        // Groups and links take turns to be first.
        let is_groups_turn = self.multicast.take_turn();
        if is_groups_turn && let Some(transmit) = self.poll_group(now, path, head, from) {
            return Some(transmit);
        }
        let next = loop {
            let (links, mut filler) = self.filler();
            let mut load = |link, room: &_, payload: &mut _| filler.fill(link, room, payload);
            let next = links.poll_transmit(now, path, &limits, head, from, &mut load);
            while let Some(link) = self.marked.pop() {
                self.reach_barriers(link);
            }
            // What failed at one link may have called another.
            let has_called = self.wake_called();
            if next.is_some() || !has_called {
                break next;
            }
        };
        self.settle(now);
        let Some((link, transmit)) = next else {
            return if is_groups_turn { None } else { self.poll_group(now, path, head, from) };
        };
        let purpose = match transmit.ticket.generation() {
            0 => Purpose::Sent,
            _ => Purpose::SentBare,
        };
        Some(Transmit { ticket: pack(purpose, link, transmit.ticket.index()), ..transmit })
    }

    fn handle_sent(&mut self, now: Instant, ticket: Ticket) {
        if self.native.is_some() {
            self.sent_packet(ticket);
            return self.settle(now);
        }
        // It is no ticket of ours.
        let Some(meaning) = unpack(ticket) else { return };
        if meaning.purpose == Purpose::GroupSent {
            self.multicast.handle_sent(&meaning);
            return self.settle(now);
        }
        if meaning.purpose != Purpose::Sent {
            return;
        }
        if let Some(link) = self.link_of_ticket(&meaning) {
            self.links.handle_sent(link, meaning.number);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        match &mut self.native {
            Some(native) => native.handle_timeout(now),
            None => {
                self.links.handle_timeout(now);
                self.handle_group_timeout(now);
            }
        }
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Timeout> {
        match &self.native {
            Some(native) => native.poll_timeout(),
            None => {
                let timeouts = [self.links.poll_timeout(), self.multicast.poll_timeout()];
                timeouts.into_iter().flatten().min_by_key(|timeout| timeout.at)
            }
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        if let Event::Tripwire { tripwire } = event {
            self.tripwires.event_taken(tripwire);
        }
        Some(event)
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The host that a link is opened by, or with. Over a native link nobody says who it is.
    #[inline]
    fn name_in(&self, head: &[u8]) -> Option<u32> {
        let host = host_in(head).filter(|_| self.native.is_none())?;
        Some(host.number().into())
    }

    /// There will be no link, and the peer hears so.
    fn handle_false_name(&mut self, now: Instant, unit: &Unit<'_>) -> Refusal {
        if let Ok(frame) = Frame::parse(unit.head, unit.len) {
            self.links.handle_false_name(unit, &frame);
        }
        self.settle(now);
        Refusal::BadProof
    }
}

/// Can every command cross the path, and each frame have at least a word?
fn is_of_use(limits: &PathLimits) -> bool {
    limits.unit as usize >= LEAST_UNIT && usize::from(limits.head) >= LEAST_UNIT
}

/// What the DMA engine adds to a frame that has something in it already: not
/// less than this, or memory would leave in crumbs.
const LEAST_JOINED: u32 = 256;

/// All that frames are filled from.
pub(super) struct FrameFiller<'a> {
    pub(super) lines: &'a mut LinkTable,
    pub(super) memory: &'a Memory,
    pub(super) windows: &'a Windows,
    pub(super) dma: &'a mut Dma,
    pub(super) reads: &'a mut Reads,
    pub(super) endpoints: &'a mut Endpoints,
    pub(super) random: &'a mut Random,
    pub(super) stats: &'a mut Stats,
    /// Links with a barrier that all before it was loaded of: where all of that
    /// has arrived already, nobody else would notice.
    pub(super) marked: &'a mut Vec<LinkId>,
}

/// What became of a piece that the DMA engine had.
enum PieceOutcome {
    /// It is in the frame.
    Loaded,
    /// It, or what is left of it, needs another frame.
    Waits(Piece),
    /// It will never be sent.
    Failed,
}

impl FrameFiller<'_> {
    /// Fills a frame, as far as there is anything to fill it with.
    pub(super) fn fill(&mut self, link: LinkId, room: &FrameRoom, payload: &mut FramePayload) {
        let Some(line) =
            assumed(self.lines.get_mut(link), "frames are filled for links that there are")
        else {
            return;
        };
        // Nobody has said who is there.
        let Some(host) = line.host else { return };
        let mut load = Load::new(*room, payload);
        let is_memorys_turn = line.is_memorys_turn;
        line.is_memorys_turn = !is_memorys_turn;
        if is_memorys_turn {
            self.memory(link, host, room.answers_only, &mut load);
        }
        self.programs(link, host, room.answers_only, &mut load);
        if !is_memorys_turn {
            self.memory(link, host, room.answers_only, &mut load);
        }
        let is_empty = load.is_empty();
        if let Some(line) = self.lines.get(link)
            && line.has_nothing_to_fill_with()
            && !self.dma.has_work(link.index, true)
        {
            load.mark_last();
        }
        if let Some(line) = self.lines.get_mut(link).filter(|_| !is_empty) {
            line.barriers.frame_loaded();
            self.stats.frames += 1;
        }
    }

    /// What is copied: answers, and what the program wrote.
    fn programs(&mut self, link: LinkId, host: HostId, answers_only: bool, load: &mut Load<'_>) {
        let Some(line) =
            assumed(self.lines.get_mut(link), "frames are filled for links that there are")
        else {
            return;
        };
        answers(line, host, load);
        messages(self.endpoints, host, load);
        if !answers_only {
            self.writes(link, load);
        }
    }

    fn writes(&mut self, link: LinkId, load: &mut Load<'_>) {
        let Some(line) =
            assumed(self.lines.get_mut(link), "frames are filled for links that there are")
        else {
            return;
        };
        while let FillOutcome::Mark(barrier) = line.writes.load(load) {
            line.barriers.loaded_up_to(barrier, !load.is_empty());
            self.marked.push(link);
        }
    }

    /// What lies in memory: answers to readers, and the DMA engine's.
    fn memory(&mut self, link: LinkId, host: HostId, answers_only: bool, load: &mut Load<'_>) {
        let Some(line) =
            assumed(self.lines.get_mut(link), "frames are filled for links that there are")
        else {
            return;
        };
        while !line.serving.is_empty() && load.span_room() >= WORD as usize {
            if let Some((asked, reason)) = line.serving.load(self.memory, host, load) {
                let reply = ReplyTo { slot: asked.slot, nonce: asked.nonce };
                line.answer(Command::ReadRefused { reply, reason });
                self.stats.refused += 1;
            }
        }
        if answers_only {
            return;
        }
        while let Some(piece) = self.next_piece(link, load) {
            if !self.carry(link, piece, load) {
                return;
            }
        }
    }

    /// Loads a piece of the DMA engine's. False where it, or some of it, has to wait.
    #[inline(always)]
    pub(super) fn carry(&mut self, link: LinkId, piece: Piece, load: &mut Load<'_>) -> bool {
        match self.piece(link, piece, load) {
            PieceOutcome::Loaded => {}
            PieceOutcome::Failed => self.dma.handle_done(piece.dma, Err(Ended::Here)),
            PieceOutcome::Waits(piece) => {
                if let Some(line) = self.lines.get_mut(link) {
                    line.piece = Some(piece);
                }
                return false;
            }
        }
        true
    }

    /// What the DMA engine has for this link. It is asked only when a frame has
    /// room for something.
    pub(super) fn next_piece(&mut self, link: LinkId, load: &Load<'_>) -> Option<Piece> {
        let line = self.lines.get_mut(link)?;
        if let Some(piece) = line.piece.take() {
            return Some(piece);
        }
        let room = load.span_room();
        let least = if load.is_empty() { WORD } else { LEAST_JOINED };
        if room < least as usize {
            return None;
        }
        let may_read = line.reads < MOST_ASKED && self.reads.has_room();
        // No entry counts more words.
        let most = u32::from(u16::MAX) * WORD;
        let max = u32::try_from(room).unwrap_or(most).min(most);
        self.dma.next_piece(link.index, max, may_read)
    }

    fn piece(&mut self, link: LinkId, piece: Piece, load: &mut Load<'_>) -> PieceOutcome {
        let Piece { dma, action } = piece;
        match action {
            Action::Write { window, offset, from } => {
                let len = piece_len(offset, u64::from(from.len), load.span_room());
                if len == 0 {
                    return PieceOutcome::Waits(piece);
                }
                let Some((base, parts)) = self.parts(window, offset, len) else {
                    return PieceOutcome::Failed;
                };
                let (now, rest) = from.split_at(len);
                load.put_span(&parts, now);
                if rest.len > 0 {
                    // Frames arrive in order: who has the end has all of it.
                    let bytes = Bytes { slot: base.slot, offset, len };
                    load.note(Note::Written(base.host, bytes));
                    let offset = offset + u64::from(len);
                    let action = Action::Write { window, offset, from: rest };
                    return PieceOutcome::Waits(Piece { dma, action });
                }
                load.note(note(dma, base, offset, len));
                PieceOutcome::Loaded
            }
            Action::Word { window, offset, value } => {
                if load.inline_room() < WORD as usize || !load.has_note_room() {
                    return PieceOutcome::Waits(piece);
                }
                let Some((base, parts)) = self.parts(window, offset, WORD) else {
                    return PieceOutcome::Failed;
                };
                let [part] = parts[..] else { return PieceOutcome::Failed };
                load.put_inline(part, value.to_le_bytes().into_iter());
                load.note(note(dma, base, offset, WORD));
                PieceOutcome::Loaded
            }
            Action::Read { window, offset, into } => {
                let Some(address) = self.first_byte(window, offset) else {
                    return PieceOutcome::Failed;
                };
                let nonce = Key::from_bits(self.random.next_u64());
                let reader = Reader::Dma(dma);
                let Some(read) = self.reads.begin(link.index, reader, address, into.into(), nonce)
                else {
                    return PieceOutcome::Waits(piece);
                };
                let reply = ReplyTo { slot: read.index as u16, nonce };
                let command = Command::Read { from: address, len: into.len, reply };
                if !load.put_command(&command, address.host) {
                    self.reads.forget(read);
                    return PieceOutcome::Waits(piece);
                }
                if let Some(line) = self.lines.get_mut(link) {
                    line.reads += 1;
                }
                PieceOutcome::Loaded
            }
        }
    }

    /// The packets for bytes of a window, if it is still open.
    fn parts(
        &self,
        window: WindowId,
        offset: u64,
        len: u32,
    ) -> Option<(Address, arrayvec::ArrayVec<Part, 3>)> {
        let base = self.windows.get(window).ok()?.base();
        Some((base, cut(base, offset, len)?))
    }

    fn first_byte(&self, window: WindowId, offset: u64) -> Option<Address> {
        self.windows.get(window).ok()?.byte(offset)
    }
}

fn note(dma: DmaId, base: Address, offset: u64, len: u32) -> Note {
    Note::Dma(dma, base.host, Bytes { slot: base.slot, offset, len })
}

/// Answers to what the other side asked.
fn answers(line: &mut LinkState, host: HostId, load: &mut Load<'_>) {
    while let Some(answer) = line.next_answer() {
        if !load.put_command(answer, host) {
            return;
        }
        line.drop_answer();
    }
}

/// What endpoints owe to the other side.
fn messages(endpoints: &mut Endpoints, host: HostId, load: &mut Load<'_>) {
    while load.inline_room() >= crate::endpoint::OutOfBand::LEN
        && let Some(message) = endpoints.poll_answer(host)
    {
        load.put_command(&Command::OutOfBand(message.to_bytes()), host);
    }
}

impl Nic {
    /// The parts that frames are filled from, and the links apart from them.
    pub(super) fn filler(&mut self) -> (&mut crate::link::Links, FrameFiller<'_>) {
        let filler = FrameFiller {
            lines: &mut self.lines,
            memory: &self.memory,
            windows: &self.windows,
            dma: &mut self.dma,
            reads: &mut self.reads,
            endpoints: &mut self.endpoints,
            random: &mut self.random,
            stats: &mut self.stats,
            marked: &mut self.marked,
        };
        (&mut self.links, filler)
    }
}
