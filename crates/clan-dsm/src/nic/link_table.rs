//! What belongs to one link, what a frame that is under way has in it, and which chains of DMA
//! requests go over it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Nic;
use crate::address::{Address, ApertureId, DmaId, HostId, LinkId, ReadId};
use crate::error::Ended;
use crate::nic::{MOST_ASKED, MOST_EXCEPTIONS};
use crate::transfer::dma::{FinishedChain, Piece};
use crate::transfer::load::Barriers;
use crate::transfer::pio::WriteBuffer;
use crate::transfer::reads::Serving;
use crate::wire::{Command, ReplyTo};

/// What is done when one packet of a frame has come to lie in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketEffect {
    /// Memory that others may write.
    Aperture { address: Address, aperture: ApertureId, at: u64, len: u32 },
    /// What was read from another host.
    Read { read: ReadId, len: u32 },
}

/// A frame between [`place`](landfall_placement::Engine::place) and
/// [`handle_placed`](landfall_placement::Engine::handle_placed).
#[derive(Clone, Copy, Debug)]
pub(super) enum Placed {
    /// A number of packets, the next of those that land.
    Frame { packets: usize },
    Word {
        address: Address,
        aperture: ApertureId,
        at: u64,
        len: u32,
        how: crate::Access,
        reply: ReplyTo,
    },
}

/// What belongs to one link.
#[derive(Debug)]
pub(super) struct LinkState {
    pub(super) id: LinkId,
    /// Who is there, once it is known.
    pub(super) host: Option<HostId>,
    pub(super) writes: WriteBuffer,
    /// Answers that wait to be sent.
    answers: VecDeque<Command>,
    /// How many of them are exceptions.
    exceptions: usize,
    pub(super) serving: Serving,
    pub(super) barriers: Barriers,
    /// How many of its frames the other side has.
    pub(super) acknowledged: u64,
    /// What the DMA engine had in its hands when the frame was full.
    pub(super) piece: Option<Piece>,
    /// Memory is the first to fill the next frame, not the program.
    pub(super) is_memorys_turn: bool,
    /// Frames on their way to their places, oldest first.
    placed: VecDeque<Placed>,
    /// The packets in them.
    pub(super) lands: VecDeque<PacketEffect>,
    /// The number of the oldest of them.
    oldest: u32,
    /// How many reads and operations on words are under way.
    pub(super) reads: usize,
    pub(super) operations: usize,
    /// Why it is over.
    pub(super) why: Option<Ended>,
    /// A place is kept for the event that it is over.
    pub(super) is_promised: bool,
}

impl LinkState {
    pub(super) fn new(id: LinkId, write_buffer: usize) -> Self {
        Self {
            id,
            host: None,
            writes: WriteBuffer::new(write_buffer),
            answers: VecDeque::new(),
            exceptions: 0,
            serving: Serving::default(),
            barriers: Barriers::default(),
            acknowledged: 0,
            piece: None,
            is_memorys_turn: false,
            placed: VecDeque::new(),
            lands: VecDeque::new(),
            oldest: 0,
            reads: 0,
            operations: 0,
            why: None,
            is_promised: false,
        }
    }

    /// Is anything of it on its way to its place?
    pub(super) fn is_settled(&self) -> bool {
        self.placed.is_empty()
    }

    /// Does nothing of it wait to be sent? What the DMA engine has is not the line's.
    pub(super) fn has_nothing_to_fill_with(&self) -> bool {
        self.piece.is_none() && self.writes.is_empty() && self.serving.is_empty()
    }

    /// A frame goes on its way; the number is for its ticket.
    pub(super) fn push_placed(&mut self, placed: Placed) -> u32 {
        let number = self.oldest.wrapping_add(self.placed.len() as u32);
        self.placed.push_back(placed);
        number
    }

    /// The frame of this number, if it is the oldest.
    pub(super) fn pop_placed(&mut self, number: u32) -> Option<Placed> {
        if number != self.oldest {
            return None;
        }
        let placed = self.placed.pop_front()?;
        self.oldest = self.oldest.wrapping_add(1);
        Some(placed)
    }

    /// The frame of this number is as if it had not come, if it is the newest and carries
    /// packets: those are given to `each`. Else something behind it may have taken effect.
    pub(super) fn take_back_newest(
        &mut self,
        number: u32,
        mut each: impl FnMut(PacketEffect),
    ) -> bool {
        let newest = self.oldest.wrapping_add(self.placed.len() as u32).wrapping_sub(1);
        // A word is changed once; and where nothing is on its way nothing comes back.
        let Some(Placed::Frame { packets }) = self.placed.back().copied() else { return false };
        if number != newest {
            return false;
        }
        self.placed.pop_back();
        let from = self.lands.len().saturating_sub(packets);
        self.lands.drain(from..).for_each(&mut each);
        true
    }

    /// How many bytes for a read are among the last this many packets.
    pub(super) fn ahead(&self, packets: usize, slot: u16) -> u64 {
        let last = self.lands.iter().rev().take(packets);
        let of_it = last.map(|lands| match lands {
            PacketEffect::Read { read, len } if read.index == u32::from(slot) => u64::from(*len),
            _ => 0,
        });
        of_it.sum()
    }

    /// An answer to what the other side asked. It never has more questions under
    /// way than there is room for answers: the answers to one that breaks this
    /// rule are lost, and only those. Returns whether there was room.
    pub(super) fn answer(&mut self, answer: Command) -> bool {
        let is_exception = matches!(answer, Command::Exception { .. });
        let has_room = match is_exception {
            true => self.exceptions < MOST_EXCEPTIONS,
            false => self.answers.len() - self.exceptions < 2 * MOST_ASKED,
        };
        // Who is behind a switch, nobody knows.
        if has_room && self.why.is_none() && self.host.is_some() {
            self.exceptions += usize::from(is_exception);
            self.answers.push_back(answer);
        }
        has_room
    }

    /// The next answer, once it is known to fit.
    pub(super) fn next_answer(&self) -> Option<&Command> {
        self.answers.front()
    }

    pub(super) fn drop_answer(&mut self) {
        if let Some(Command::Exception { .. }) = self.answers.pop_front() {
            self.exceptions -= 1;
        }
    }

    /// Forgets what can be sent no more.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
        self.exceptions = 0;
        self.serving.clear();
    }
}

/// The lines of all links, by the slots of their names.
#[derive(Debug, Default)]
pub(super) struct LinkTable(Vec<Option<LinkState>>);

impl LinkTable {
    /// A line for this link. What was in its slot is forgotten.
    pub(super) fn insert(&mut self, line: LinkState) {
        let index = line.id.index as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(line);
    }

    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&LinkState> {
        self.0.get(id.index as usize)?.as_ref().filter(|line| line.id == id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut LinkState> {
        self.0.get_mut(id.index as usize)?.as_mut().filter(|line| line.id == id)
    }

    /// The link that is in this slot now.
    #[inline]
    pub(super) fn id_at(&self, index: u32) -> Option<LinkId> {
        Some(self.0.get(index as usize)?.as_ref()?.id)
    }

    /// To be changed, by its slot.
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut LinkState> {
        self.0.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: LinkId) {
        if self.get(id).is_some() {
            self.0[id.index as usize] = None;
        }
    }

    /// The link after this slot, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LinkState> {
        self.0.iter().flatten()
    }
}

#[derive(Clone, Copy, Debug)]
struct Chain {
    dma: DmaId,
    link: LinkId,
    number: u64,
}

/// The chains that are under way, by the slots of their names.
#[derive(Debug, Default)]
pub(super) struct Chains(Vec<Option<Chain>>);

impl Chains {
    /// A chain was given to the DMA engine.
    pub(super) fn submitted(&mut self, dma: DmaId, link: LinkId, number: u64) {
        let index = dma.index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(Chain { dma, link, number });
    }

    /// A chain is done. Over which link did it go, and with which number?
    pub(super) fn done(&mut self, dma: DmaId) -> Option<(LinkId, u64)> {
        let chain = self.0.get_mut(dma.index as usize)?.take_if(|chain| chain.dma == dma)?;
        Some((chain.link, chain.number))
    }
}

impl Nic {
    /// Wakes links that the DMA engine has come to. Says whether there were any.
    #[inline]
    pub(super) fn wake_called(&mut self) -> bool {
        let mut any = false;
        while let Some(link) = self.dma.poll_called() {
            any = true;
            if let Some(link) = self.links.id_at(link) {
                self.links.wake(link);
            }
        }
        any
    }

    /// Tells of the chains that are done.
    pub(super) fn settle_chains(&mut self) {
        while let Some(FinishedChain { endpoint, dma, result }) = self.dma.poll_done() {
            self.events.push_promised(crate::Event::Dma { endpoint, dma, result });
            let Some((link, number)) = self.chains.done(dma) else { continue };
            if let Some(line) = self.lines.get_mut(link) {
                line.barriers.chain_done(number);
                self.reach_barriers(link);
            }
        }
        self.wake_called();
    }
}
