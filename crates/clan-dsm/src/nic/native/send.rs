//! What goes into the next packet.
//!
//! It is taken from where frames are filled from. A packet has one thing in it: what is
//! copied (answers, messages, what the program writes and asks) takes turns with what lies
//! in memory (what others read, and the DMA engine's).

use alloc::collections::VecDeque;

use landfall_placement::{Ecn, Instant, PathId, Peer, Serial32, Spans, Ticket, Transmit, assumed};

use crate::address::{Address, LinkId, WORD};
use crate::link::{FramePayload, FrameRoom, MAX_INLINE};
use crate::native::Burst;
use crate::native::wire::Symbol;
use crate::nic::engine::FrameFiller;
use crate::nic::updates::Note;
use crate::nic::{MOST_ASKED, Nic};
use crate::transfer::dma::Action;
use crate::transfer::load::Load;
use crate::wire::{Command, ReplyTo};

use super::Native;

/// The most words that one packet may have that is copied.
pub(crate) const MOST_COPIED: u32 = MAX_INLINE as u32 / WORD;

/// The ticket of a symbol, which holds no memory and no place.
const NOTHING: Ticket = Ticket::from_raw(u64::MAX);

/// A packet that a driver has.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: Serial32,
    /// What is to be done once it has left.
    note: Option<Note>,
}

/// Packets that drivers have.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    sent: VecDeque<Sent>,
    next: Serial32,
}

/// How much a packet has room for, whichever it is filled with.
#[derive(Clone, Copy, Debug)]
struct PacketRooms {
    copied: FrameRoom,
    moved: FrameRoom,
}

impl Native {
    /// The next unit: how much of the head it takes, and its ticket.
    fn poll(
        &mut self,
        now: Instant,
        head: &mut [u8],
        from: &mut Spans,
        filler: &mut FrameFiller<'_>,
    ) -> Option<(u16, Ticket)> {
        if let Some(symbol) = self.link.poll_symbol(now) {
            head.get_mut(..Symbol::LEN)?.copy_from_slice(&symbol.to_bytes());
            from.clear();
            return Some((Symbol::LEN as u16, NOTHING));
        }
        let (link, room) = (self.up?, self.link.room(self.unit));
        if room == 0 {
            return None;
        }
        let most = (head.len().saturating_sub(Address::LEN) / WORD as usize) as u32;
        let rooms = PacketRooms {
            copied: FrameRoom::copied(room.min(most).min(MOST_COPIED)),
            moved: FrameRoom::moved(room.min(self.config.dma_burst)),
        };
        let mut payload = FramePayload::default();
        filler.fill_packet(link, rooms, &mut payload);
        let (burst, len) = put(&payload, head, from)?;
        self.link.handle_sent(&burst);
        let number = self.in_flight.next;
        self.in_flight.next = number.plus(1);
        self.in_flight.sent.push_back(Sent { number, note: payload.notes.first().copied() });
        Some((len, Ticket::from_raw(u64::from(number.0))))
    }
}

impl FrameFiller<'_> {
    /// Does anything wait that is copied, or that lies in memory?
    fn waiting(&self, link: LinkId) -> (bool, bool) {
        let Some(line) = self.lines.get(link) else { return (false, false) };
        let has_message = line.host.is_some_and(|host| self.endpoints.has_answers(host));
        let is_copied = has_message || line.next_answer().is_some() || !line.writes.is_empty();
        let may_read = line.reads < MOST_ASKED && self.reads.has_room();
        let is_moved = !line.serving.is_empty()
            || line.piece.is_some()
            || self.dma.has_work(link.index, may_read);
        (is_copied, is_moved)
    }

    fn fill_packet(&mut self, link: LinkId, rooms: PacketRooms, payload: &mut FramePayload) {
        let (has_copied, has_moved) = self.waiting(link);
        let Some(line) =
            assumed(self.lines.get(link), "packets are filled for links that there are")
        else {
            return;
        };
        let is_memorys_turn = line.is_memorys_turn && has_moved;
        if is_memorys_turn || !has_copied {
            self.move_one(link, rooms, payload);
        }
        // Where a read was refused, that is to be said.
        if payload.entries.is_empty() {
            self.copy_one(link, rooms, payload);
        }
        if let Some(line) = self.lines.get_mut(link).filter(|_| !payload.entries.is_empty()) {
            line.is_memorys_turn = !is_memorys_turn;
            self.stats.frames += 1;
        }
    }

    fn copy_one(&mut self, link: LinkId, rooms: PacketRooms, payload: &mut FramePayload) {
        let Some(line) =
            assumed(self.lines.get_mut(link), "packets are filled for links that there are")
        else {
            return;
        };
        let mut load = Load::new(rooms.copied, payload);
        if let Some(host) = line.host {
            if let Some(answer) = line.next_answer() {
                if load.put_command(answer, host) {
                    line.drop_answer();
                }
                return;
            }
            let fits = load.inline_room() >= crate::endpoint::OutOfBand::LEN;
            if let Some(message) = fits.then(|| self.endpoints.poll_answer(host)).flatten() {
                load.put_command(&Command::OutOfBand(message.to_bytes()), host);
                return;
            }
        }
        let room = if line.writes.is_memory_next() { rooms.moved } else { rooms.copied };
        line.writes.load_packet(&mut Load::new(room, payload));
    }

    fn move_one(&mut self, link: LinkId, rooms: PacketRooms, payload: &mut FramePayload) {
        let Some(line) =
            assumed(self.lines.get_mut(link), "packets are filled for links that there are")
        else {
            return;
        };
        if let Some(host) = line.host {
            let mut load = Load::new(rooms.moved, payload);
            while let Some((asked, reason)) = line.serving.load(self.memory, host, &mut load) {
                let reply = ReplyTo { slot: asked.slot, nonce: asked.nonce };
                line.answer(Command::ReadRefused { reply, reason });
                self.stats.refused += 1;
            }
        }
        while payload.entries.is_empty()
            && let Some(piece) = self.next_piece(link, &Load::new(rooms.moved, payload))
        {
            let room = match piece.action {
                Action::Write { .. } => rooms.moved,
                Action::Read { .. } | Action::Word { .. } => rooms.copied,
            };
            if !self.carry(link, piece, &mut Load::new(room, payload)) {
                return;
            }
        }
    }
}

impl Nic {
    /// Does anything wait to be sent over the native link?
    pub(super) fn has_payload(&mut self) -> bool {
        // The link is down.
        let Some(link) = self.native.as_ref().and_then(|native| native.up) else { return false };
        let (_, filler) = self.filler();
        let (is_copied, is_moved) = filler.waiting(link);
        is_copied || is_moved
    }

    /// The next unit for the native link.
    #[inline(never)]
    pub(in crate::nic) fn poll_packet(
        &mut self,
        now: Instant,
        path: PathId,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<Transmit> {
        let mut native =
            self.native.take_if(|native| path == native.config.path && native.unit > 0)?;
        let (_, mut filler) = self.filler();
        let next = native.poll(now, head, from, &mut filler);
        self.native = Some(native);
        let (head_len, ticket) = next?;
        Some(Transmit {
            to: Peer::Unaddressed,
            head_len,
            segment: None,
            checksum: None,
            sum_only: 0,
            ecn: Ecn::default(),
            ticket,
        })
    }

    /// A driver has let a packet go: it counts as arrived.
    #[inline(never)]
    pub(in crate::nic) fn sent_packet(&mut self, ticket: Ticket) {
        let Some(native) = assumed(self.native.as_mut(), "there is a native link") else { return };
        let sent = &mut native.in_flight.sent;
        let at = sent.iter().position(|sent| u64::from(sent.number.0) == ticket.raw());
        if let Some(Sent { note: Some(note), .. }) = at.and_then(|at| sent.remove(at)) {
            self.note(note);
        }
    }
}

/// Writes a packet as it stands on the wire. What lies in memory is left there.
fn put(payload: &FramePayload, head: &mut [u8], from: &mut Spans) -> Option<(Burst, u16)> {
    let entry = payload.entries.first()?;
    let burst = Burst::new(entry.address, u32::from(entry.words).max(1))?;
    let (start, rest) = head.split_at_mut_checked(Address::LEN)?;
    start.copy_from_slice(&entry.address.to_bytes());
    from.clear();
    if let Some(span) = payload.spans.first() {
        from.push(*span).ok()?;
        return Some((burst, Address::LEN as u16));
    }
    let words = rest.get_mut(..burst.words() as usize * WORD as usize)?;
    words.fill(0);
    let (lead, _) = entry.address.enabled();
    let places = words.iter_mut().skip(lead as usize);
    places.zip(&payload.inline).for_each(|(place, byte)| *place = *byte);
    Some((burst, (Address::LEN + words.len()) as u16))
}
