//! What waits to be sent, and in which order.

use alloc::collections::VecDeque;

use arrayvec::ArrayVec;
use landfall_placement::{Serial32, Span, Spans};
use landfall_tables::Table;

use super::news::{Event, News};
use super::{Config, Stats};
use crate::address::{Address, HostId, WORD};
use crate::burst::{Burst, Word};
use crate::error::Ended;
use crate::ids::WriteId;
use crate::native::NativeLink;
use crate::wire::Command;

/// The most words that one packet may have that is copied: what fits into a head.
pub(super) const MOST_COPIED: u32 = 28;

/// A packet whose words were copied.
#[derive(Clone, Debug)]
struct Copied {
    is_answer: bool,
    burst: Burst,
    words: ArrayVec<Word, { MOST_COPIED as usize }>,
}

/// What the DMA engine moves: all of it lies in memory.
#[derive(Clone, Copy, Debug)]
struct Moved {
    address: Address,
    from: Span,
    /// The write of this host, if it is one.
    write: Option<WriteId>,
}

/// A write of this host.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// How many packets of it drivers have.
    under_way: u32,
    /// There are more to come.
    has_more: bool,
    result: Result<(), Ended>,
}

/// A packet that a driver has.
#[derive(Clone, Copy, Debug)]
struct Sent {
    number: Serial32,
    write: Option<WriteId>,
}

/// All that waits to be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    copied: VecDeque<Copied>,
    copied_cost: u32,
    answers: usize,
    moved: VecDeque<Moved>,
    is_engines_turn: bool,
    writes: Table<Write>,
    serving: usize,
    sent: VecDeque<Sent>,
    next: Serial32,
    queue: u32,
    most_served: usize,
    dma_burst: u32,
}

impl Outgoing {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            copied: VecDeque::new(),
            copied_cost: 0,
            answers: 0,
            moved: VecDeque::new(),
            is_engines_turn: false,
            writes: Table::new(config.writes),
            serving: 0,
            sent: VecDeque::new(),
            next: Serial32(0),
            queue: config.queue,
            most_served: config.reads,
            dma_burst: config.dma_burst,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.moved.is_empty()
    }

    /// Do so many words more of the program's find room, headers included?
    pub(super) const fn has_room_for(&self, cost: u32) -> bool {
        self.copied_cost.saturating_add(cost) <= self.queue
    }

    /// Copies a packet in.
    pub(super) fn copy(&mut self, burst: Burst, words: impl Iterator<Item = Word>) {
        self.push(false, burst, words);
    }

    fn push(&mut self, is_answer: bool, burst: Burst, words: impl Iterator<Item = Word>) {
        let words: ArrayVec<Word, _> = words.take(MOST_COPIED as usize).collect();
        debug_assert_eq!(words.len(), burst.words() as usize);
        self.copied_cost = self.copied_cost.saturating_add(burst.cost());
        self.copied.push_back(Copied { is_answer, burst, words });
    }

    /// Copies a question in.
    pub(super) fn ask(&mut self, command: &Command, host: HostId) -> Option<()> {
        self.command(false, command, host)
    }

    fn command(&mut self, is_answer: bool, command: &Command, host: HostId) -> Option<()> {
        let (address, parameters) = command.encode(host);
        let burst = Burst::new(address, (parameters.len() as u32).div_ceil(WORD).max(1))?;
        let words = (0..burst.words() as usize).map(|nth| {
            let mut word = Word::default();
            let rest = parameters.get(nth * WORD as usize..).unwrap_or_default();
            word.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
            word
        });
        self.push(is_answer, burst, words);
        Some(())
    }

    /// The same for an answer, of which there are no more than the other side asks
    /// for. False where it asks for too many.
    pub(super) fn answer(&mut self, command: &Command, host: HostId) -> bool {
        if self.answers >= 2 * self.most_served {
            return false;
        }
        self.answers += 1;
        self.command(true, command, host).is_some()
    }

    /// Moves memory to another host. `None` where as many are under way as may be.
    pub(super) fn write(&mut self, address: Address, from: Span) -> Option<WriteId> {
        let entry = Write { under_way: 0, has_more: true, result: Ok(()) };
        let write = self.writes.insert(entry).map(WriteId::new)?;
        self.moved.push_back(Moved { address, from, write: Some(write) });
        Some(write)
    }

    /// Moves memory to who asked for it. False where as many ask as may.
    pub(super) fn serve(&mut self, address: Address, from: Span) -> bool {
        if self.serving >= self.most_served {
            return false;
        }
        self.serving += 1;
        self.moved.push_back(Moved { address, from, write: None });
        true
    }

    /// Writes the next packet into `head` and `from`: how much of the head it takes, and
    /// the number that [`sent`](Self::sent) is told.
    pub(super) fn next(
        &mut self,
        link: &mut NativeLink,
        unit: u32,
        head: &mut [u8],
        from: &mut Spans,
        stats: &mut Stats,
    ) -> Option<(u16, Serial32)> {
        let engine_first = self.is_engines_turn && !self.moved.is_empty();
        let (burst, len, write) = if engine_first || self.copied.is_empty() {
            self.next_moved(link, unit, head, from, stats)?
        } else {
            self.next_copied(link, unit, head)?
        };
        self.is_engines_turn = !engine_first;
        link.handle_sent(&burst);
        stats.packets += 1;
        let number = self.next;
        self.next = number.plus(1);
        self.sent.push_back(Sent { number, write });
        Some((len, number))
    }

    fn next_copied(
        &mut self,
        link: &NativeLink,
        unit: u32,
        head: &mut [u8],
    ) -> Option<(Burst, u16, Option<WriteId>)> {
        let room = link.room(unit);
        let front = self.copied.front_mut()?;
        let (burst, rest) = match front.burst.split_at(room) {
            Some((first, rest)) => (first, Some(rest)),
            None if front.burst.words() <= room => (front.burst, None),
            None => return None,
        };
        let count = burst.words() as usize;
        let len = Address::LEN + count * WORD as usize;
        let (start, words) = head.get_mut(..len)?.split_at_mut(Address::LEN);
        start.copy_from_slice(&burst.address().to_bytes());
        words.copy_from_slice(front.words.get(..count)?.as_flattened());
        match rest {
            Some(rest) => {
                front.words.drain(..count);
                self.copied_cost = self.copied_cost.saturating_sub(burst.words());
                front.burst = rest;
            }
            None => {
                self.copied_cost = self.copied_cost.saturating_sub(burst.cost());
                self.answers -= usize::from(front.is_answer);
                self.copied.pop_front();
            }
        }
        Some((burst, len as u16, None))
    }

    fn next_moved(
        &mut self,
        link: &NativeLink,
        unit: u32,
        head: &mut [u8],
        from: &mut Spans,
        stats: &mut Stats,
    ) -> Option<(Burst, u16, Option<WriteId>)> {
        let front = self.moved.front_mut()?;
        let words = link.room(unit).min(self.dma_burst).min(front.from.len / WORD);
        let burst = Burst::new(front.address, words)?;
        head.get_mut(..Address::LEN)?.copy_from_slice(&front.address.to_bytes());
        let (now, rest) = front.from.split_at(words * WORD);
        from.clear();
        from.push(now).ok()?;
        let write = front.write;
        if let Some(write) = write.and_then(|id| self.writes.get_mut(id.index)) {
            write.under_way += 1;
        }
        match front.address.advanced(words).filter(|_| rest.len > 0) {
            Some(address) => (front.address, front.from) = (address, rest),
            None => {
                match write {
                    Some(id) => {
                        if let Some(write) = self.writes.get_mut(id.index) {
                            write.has_more = false;
                        }
                    }
                    None => {
                        self.serving -= 1;
                        stats.served += 1;
                    }
                }
                self.moved.pop_front();
            }
        }
        Some((burst, Address::LEN as u16, write))
    }

    /// A driver has let a packet go.
    pub(super) fn sent(&mut self, number: Serial32, news: &mut News) {
        let Some(at) = self.sent.iter().position(|sent| sent.number == number) else { return };
        let Some(Sent { write: Some(write), .. }) = self.sent.remove(at) else { return };
        if let Some(entry) = self.writes.get_mut(write.index) {
            entry.under_way -= 1;
        }
        self.finish(write, news);
    }

    /// A write is over once nothing is left of it and nobody holds its memory.
    fn finish(&mut self, write: WriteId, news: &mut News) {
        let over = |entry: &&Write| entry.under_way == 0 && !entry.has_more;
        if let Some(Write { result, .. }) = self.writes.get(write.index).filter(over).copied() {
            self.writes.remove(write.index);
            news.push(Event::Written { write, result });
        }
    }

    /// The link is gone: what waits is not sent.
    pub(super) fn clear(&mut self, why: Ended, news: &mut News) {
        self.copied.clear();
        (self.copied_cost, self.answers, self.serving) = (0, 0, 0);
        while let Some(Moved { write, .. }) = self.moved.pop_front() {
            let Some(write) = write else { continue };
            if let Some(entry) = self.writes.get_mut(write.index) {
                (entry.has_more, entry.result) = (false, Err(why));
            }
            self.finish(write, news);
        }
    }
}
