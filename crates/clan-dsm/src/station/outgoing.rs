//! What waits to be sent, and in which order.
//!
//! What waits, waits in the buffers of a link of [`Nic`](crate::Nic). There a frame takes as
//! much of them as it has room for; here each packet leaves by itself.

use alloc::collections::VecDeque;

use landfall_placement::{Serial32, Span, Spans};

use super::Config;
use super::news::{Event, News};
use crate::address::{Address, HostId, WORD};
use crate::burst::Burst;
use crate::error::{Ended, Error, Reason};
use crate::ids::{LinkId, WriteId};
use crate::link::{Cargo, MAX_INLINE, Room};
use crate::memory::Memory;
use crate::native::NativeLink;
use crate::nic::line::Line;
use crate::nic::note::Note;
use crate::transfer::load::Load;
use crate::transfer::pio::WriteBuffer;
use crate::transfer::reads::Asked;
use crate::transfer::writes::Writes;
use crate::wire::{Command, ReplyTo};

/// The most words that one packet may have that is copied.
pub(super) const MOST_COPIED: u32 = MAX_INLINE as u32 / WORD;

/// A packet that a driver has.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: Serial32,
    /// What is to be done once it has left.
    note: Option<Note>,
}

/// All that waits to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Answers, what the program writes and asks, and what others read.
    line: Line,
    /// What the DMA engine writes for this host.
    moved: WriteBuffer,
    writes: Writes,
    sent: VecDeque<Sent>,
    next: Serial32,
    most_served: usize,
    pio_burst: u32,
    dma_burst: u32,
}

impl Outgoing {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            line: Line::new(LinkId::new((0, 0)), config.write_buffer),
            // The table of writes is their bound.
            moved: WriteBuffer::new(usize::MAX),
            writes: Writes::new(config.writes),
            sent: VecDeque::new(),
            next: Serial32(0),
            most_served: config.reads,
            pio_burst: config.pio_burst,
            dma_burst: config.dma_burst,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_copied() && !self.has_moved()
    }

    fn has_copied(&self) -> bool {
        self.line.next_answer().is_some() || !self.line.writes.is_empty()
    }

    fn has_moved(&self) -> bool {
        !self.line.serving.is_empty() || !self.moved.is_empty()
    }

    /// Copies bytes for another host in.
    pub(super) fn copy(&mut self, base: Address, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.line.writes.write_packets(base, offset, bytes, self.pio_burst)
    }

    /// Copies a question in.
    pub(super) fn ask(&mut self, command: &Command, host: HostId) -> Result<(), Error> {
        let (address, parameters) = command.encode(host);
        self.line.writes.command(address, &parameters, false)
    }

    /// An answer to what the other end asked. False where it asks for too many.
    pub(super) fn answer(&mut self, command: Command) -> bool {
        self.line.answer(command)
    }

    /// Moves memory to another host: whole words.
    pub(super) fn write(
        &mut self,
        base: Address,
        offset: u64,
        from: Span,
    ) -> Result<WriteId, Error> {
        let write = self.writes.begin(u64::from(from.len)).ok_or(Error::Busy)?;
        self.moved.write_from(write, base, offset, from.into())?;
        Ok(write)
    }

    /// Moves memory to who asked for it.
    pub(super) fn serve(&mut self, memory: &Memory, asked: Asked) -> Result<(), Reason> {
        self.line.serving.ask(memory, asked, self.most_served)
    }

    /// Writes the next packet into `head` and `from`: how much of the head it takes, and
    /// the number that [`sent`](Self::sent) is told.
    pub(super) fn next(
        &mut self,
        link: &mut NativeLink,
        memory: &Memory,
        unit: u32,
        head: &mut [u8],
        from: &mut Spans,
    ) -> Option<(u16, Serial32)> {
        let (room, peer) = (link.room(unit), link.peer().flatten());
        let is_engines_turn = self.line.is_memorys_turn && self.has_moved();
        let mut cargo = Cargo::default();
        if is_engines_turn || !self.has_copied() {
            let room = Room::moved(room.min(self.dma_burst));
            self.load_moved(memory, peer, &mut Load::new(room, &mut cargo));
        }
        // Where the engine refused to answer, that is to be said.
        if cargo.entries.is_empty() {
            let most = (head.len().saturating_sub(Address::LEN) / WORD as usize) as u32;
            let room = Room::copied(room.min(most).min(MOST_COPIED));
            self.load_copied(peer, &mut Load::new(room, &mut cargo));
        }
        let (burst, len) = put(&cargo, head, from)?;
        self.line.is_memorys_turn = !is_engines_turn;
        link.handle_sent(&burst);
        let number = self.next;
        self.next = number.plus(1);
        self.sent.push_back(Sent { number, note: cargo.notes.first().copied() });
        Some((len, number))
    }

    fn load_copied(&mut self, peer: Option<HostId>, load: &mut Load<'_>) {
        match (self.line.next_answer(), peer) {
            (Some(answer), Some(peer)) => {
                if load.put_command(answer, peer) {
                    self.line.drop_answer();
                }
            }
            _ => self.line.writes.load_packet(load),
        }
    }

    fn load_moved(&mut self, memory: &Memory, peer: Option<HostId>, load: &mut Load<'_>) {
        if let Some(peer) = peer {
            while let Some((asked, reason)) = self.line.serving.load(memory, peer, load) {
                let reply = ReplyTo { slot: asked.slot, nonce: asked.nonce };
                self.line.answer(Command::ReadRefused { reply, reason });
            }
        }
        if load.is_empty() {
            self.moved.load_packet(load);
        }
    }

    /// A driver has let a packet go: what is to be done now.
    pub(super) fn sent(&mut self, number: Serial32) -> Option<Note> {
        let at = self.sent.iter().position(|sent| sent.number == number)?;
        self.sent.remove(at)?.note
    }

    /// So much of a write is over. With the last of it, all of it is.
    pub(super) fn written(
        &mut self,
        write: WriteId,
        len: u64,
        result: Result<(), Ended>,
        news: &mut News,
    ) {
        if let Some(result) = self.writes.done(write, len, result) {
            news.push(Event::Written { write, result });
        }
    }

    /// The link is gone: what waits is not sent.
    pub(super) fn clear(&mut self, why: Ended, news: &mut News) {
        self.line.forget_answers();
        // It has no writes from memory.
        while self.line.writes.poll_lost().is_some() {}
        while let Some((write, len)) = self.moved.poll_lost() {
            self.written(write, len, Err(why), news);
        }
    }
}

/// Writes a packet as it stands on the wire. What lies in memory is left there.
fn put(cargo: &Cargo, head: &mut [u8], from: &mut Spans) -> Option<(Burst, u16)> {
    let entry = cargo.entries.first()?;
    let burst = Burst::new(entry.address, u32::from(entry.words).max(1))?;
    let (start, rest) = head.split_at_mut_checked(Address::LEN)?;
    start.copy_from_slice(&entry.address.to_bytes());
    from.clear();
    if let Some(span) = cargo.spans.first() {
        from.push(*span).ok()?;
        return Some((burst, Address::LEN as u16));
    }
    let words = rest.get_mut(..burst.words() as usize * WORD as usize)?;
    words.fill(0);
    let (lead, _) = entry.address.enabled();
    let places = words.iter_mut().skip(lead as usize);
    places.zip(&cargo.inline).for_each(|(place, byte)| *place = *byte);
    Some((burst, (Address::LEN + words.len()) as u16))
}
