//! The queues of the DMA engine: one per endpoint, served in turn (section 3.4
//! of the paper).
//!
//! Each endpoint has a queue of chains of requests, which can be added to while
//! the engine is busy. Queues that are not empty stand in a circle; each sends
//! this many bytes and then the next has its turn. A link that takes nothing keeps
//! only those waiting that want to send on it: each link has a circle.
//!
//! A chain goes over one link. Its requests are carried out in order, and it is
//! done as one: when all that it wrote has been acknowledged and all that it
//! read is there. A write behind a read waits until the read is done. If a
//! piece fails, nothing more of the chain is begun.
//!
//! What does not live here: frames, windows, keys, who is told of the end.

#[cfg(test)]
mod tests;

use crate::address::{DmaId, EndpointId, WORD, WindowId};
use crate::error::{Ended, Error};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use landfall_placement::{Area, Span, assumed};
use landfall_tables::{AgeLinks, AgeList, EntryKey, Table};

/// One request of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaRequest {
    /// Write memory of this host into a window.
    Write {
        /// What.
        from: Area,
        /// Where to.
        window: WindowId,
        /// From which byte of the window on.
        offset: u64,
    },
    /// Read from a window into memory of this host.
    Read {
        /// Where from.
        window: WindowId,
        /// From which byte of the window on.
        offset: u64,
        /// Where to, and how much.
        into: Area,
    },
    /// Write one word into a window: the flag behind the data.
    Word {
        /// Where to.
        window: WindowId,
        /// Which byte of the window, a multiple of 8.
        offset: u64,
        /// The word.
        value: u64,
    },
}

/// What can be done in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Write { from: Span, window: WindowId, offset: u64 },
    Read { window: WindowId, offset: u64, into: Span },
    Word { window: WindowId, offset: u64, value: u64 },
}

/// A piece of a chain. Each comes back once, by [`Dma::handle_done`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) dma: DmaId,
    pub(crate) action: Action,
}

/// A chain that is done, or broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FinishedChain {
    pub(crate) endpoint: EndpointId,
    pub(crate) dma: DmaId,
    pub(crate) result: Result<(), Ended>,
}

#[derive(Clone, Debug)]
struct Chain {
    endpoint: EndpointId,
    link: u32,
    /// Requests that are not all handed out.
    steps: AgeList,
    /// How much of the first of them is.
    at: u64,
    /// How many requests it had: this many count against the bound of its endpoint.
    requests: usize,
    /// Pieces that have not come back.
    pieces: u32,
    /// A read was handed out: a write behind it waits until all came back.
    has_read: bool,
    result: Result<(), Ended>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    generation: u32,
    /// Chains that are not all handed out.
    chains: AgeList,
    /// Requests of chains that are not done.
    requests: usize,
    /// How many bytes it may still send in this turn.
    turn: u32,
    /// When it came to its place in the circle.
    since: u64,
    place: Option<QueuePosition>,
}

/// In which circle a queue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueuePosition {
    link: u32,
    circle: RoundRobin,
}

/// Those who want to read stand apart: reads may be at their bound when writes
/// are not. Who came to its place first has its turn first, across both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundRobin {
    Writes = 0,
    Reads = 1,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    circles: [AgeList; 2],
    /// All chains that go over it and are not done.
    chains: AgeList,
}

/// The DMA engine's queues.
#[derive(Clone, Debug)]
pub(crate) struct Dma {
    queues: Vec<Queue>,
    chains: Table<Chain>,
    steps: Table<DmaRequest>,
    links: Vec<Link>,
    /// Steps in their chains, chains in their queues and on their links, queues
    /// in their circles.
    step_links: AgeLinks,
    queue_links: AgeLinks,
    chain_links: AgeLinks,
    circle_links: AgeLinks,
    done: VecDeque<FinishedChain>,
    /// Links that a queue has come to from elsewhere: they may have had nothing to send.
    called: Vec<u32>,
    /// How many requests wait at one endpoint.
    limit: usize,
    turn: u32,
    now: u64,
}

impl Dma {
    /// No requests. `limit` of them may wait at each of this many endpoints; each
    /// sends `turn` bytes before it is the next one's turn.
    pub(crate) fn new(endpoints: usize, limit: usize, turn: u32) -> Self {
        let limit = limit.max(1);
        let all = endpoints.saturating_mul(limit).min(u32::MAX as usize / 2);
        Self {
            queues: Vec::new(),
            chains: Table::new(all),
            steps: Table::new(all),
            links: Vec::new(),
            step_links: AgeLinks::new(),
            queue_links: AgeLinks::new(),
            chain_links: AgeLinks::new(),
            circle_links: AgeLinks::new(),
            done: VecDeque::new(),
            called: Vec::new(),
            limit,
            turn: turn.max(WORD),
            now: 0,
        }
    }

    /// Adds a chain to the queue of an endpoint, which must exist. All of it
    /// goes over one link.
    pub(crate) fn submit(
        &mut self,
        endpoint: EndpointId,
        link: u32,
        chain: &[DmaRequest],
    ) -> Result<DmaId, Error> {
        chain.iter().try_for_each(DmaRequest::check)?;
        if chain.is_empty() || chain.len() > self.limit {
            return Err(Error::TooLong);
        }
        let waiting = self.queue(endpoint).requests;
        if waiting + chain.len() > self.limit {
            return Err(Error::Busy);
        }
        let (requests, result) = (chain.len(), Ok(()));
        let mut entry = Chain {
            endpoint,
            link,
            steps: AgeList::new(),
            at: 0,
            requests,
            pieces: 0,
            has_read: false,
            result,
        };
        if !self.chains.has_room() {
            return Err(Error::Busy);
        }
        for (n, request) in chain.iter().enumerate() {
            let Some(EntryKey { index: step, .. }) = self.steps.insert(*request) else {
                debug_assert_eq!(n, 0, "each endpoint has room for as many as it may have");
                self.drop_steps(&mut entry.steps);
                return Err(Error::Busy);
            };
            self.step_links.push(&mut entry.steps, step);
        }
        let Some(key) = self.chains.insert(entry) else { return Err(Error::Busy) };
        self.chain_links.push(&mut link_of(&mut self.links, link).chains, key.index);
        let queue = self.queue(endpoint);
        queue.requests += requests;
        let was_idle = queue.chains.is_empty();
        let place = endpoint.index as usize;
        self.queue_links.push(&mut self.queues[place].chains, key.index);
        if was_idle {
            self.enlist(endpoint.index);
        }
        Ok(DmaId::of(key))
    }

    /// Would there be a piece for this link?
    pub(crate) fn has_work(&self, link: u32, may_read: bool) -> bool {
        self.first(link, may_read).is_some()
    }

    /// The next piece for this link: of a write at most `max` bytes, and up to
    /// the end of a word of the window wherever that is possible. Without
    /// `may_read`, those who want to read wait.
    pub(crate) fn next_piece(&mut self, link: u32, max: u32, may_read: bool) -> Option<Piece> {
        let index = self.first(link, may_read)?;
        let turn = self.queues[index as usize].turn;
        let place = self.queues[index as usize].chains.oldest()?;
        let chain = self.chains.get_mut(place)?;
        let step = chain.steps.oldest()?;
        let request = self.steps.get(step)?;
        let (action, len) = request.cut(chain.at, max.max(1), turn.max(WORD));
        chain.pieces += 1;
        chain.has_read |= matches!(action, Action::Read { .. });
        chain.at += u64::from(len);
        let is_step_over = chain.at >= request.len();
        if is_step_over {
            chain.at = 0;
            self.step_links.remove(&mut chain.steps, step);
            self.steps.remove(step);
        }
        let is_handed_out = chain.steps.is_empty();
        let dma = DmaId::of(self.chains.key(place));
        let queue = &mut self.queues[index as usize];
        queue.turn = turn.saturating_sub(len);
        if is_handed_out {
            self.queue_links.remove(&mut queue.chains, place);
        }
        if queue.turn == 0 || is_step_over {
            self.relist(index);
        }
        Some(Piece { dma, action })
    }

    /// A piece came back: acknowledged, read, or failed.
    pub(crate) fn handle_done(&mut self, dma: DmaId, result: Result<(), Ended>) {
        // It is over.
        let Some(chain) = self.chains.named_mut(dma.index, dma.generation) else { return };
        chain.pieces = chain.pieces.saturating_sub(1);
        if let Err(why) = result {
            self.stop(dma.index, why);
        } else if chain.pieces == 0 {
            chain.has_read = false;
            let endpoint = chain.endpoint.index;
            if chain.steps.is_empty() {
                self.finish(dma.index);
            } else if self.queues[endpoint as usize].place.is_none() {
                self.enlist(endpoint);
            }
        }
    }

    /// Ends what waits at an endpoint. A chain that was begun ends once its
    /// pieces came back; one that is handed out whole is not affected.
    pub(crate) fn cancel(&mut self, endpoint: EndpointId) {
        let index = endpoint.index as usize;
        while let Some(queue) = self.queues.get(index)
            && queue.generation == endpoint.generation
            && let Some(chain) = queue.chains.oldest()
        {
            self.stop(chain, Ended::Here);
        }
    }

    /// A link is gone: all chains that go over it end, each once its pieces
    /// came back.
    pub(crate) fn handle_link_gone(&mut self, link: u32, why: Ended) {
        if let Some(chains) = self.links.get(link as usize).map(|link| link.chains) {
            let mut next = chains.oldest();
            while let Some(chain) = next {
                next = self.chain_links.newer(chain);
                self.stop(chain, why);
            }
        }
    }

    /// The next chain that is done.
    pub(crate) fn poll_done(&mut self) -> Option<FinishedChain> {
        self.done.pop_front()
    }

    /// A link that there is work for now, and was not before: each queue has chains for several,
    /// and goes on to the next by itself.
    #[inline]
    pub(crate) fn poll_called(&mut self) -> Option<u32> {
        self.called.pop()
    }

    /// How many requests of an endpoint are not done.
    pub(crate) fn waiting(&self, endpoint: EndpointId) -> usize {
        let queue = self.queues.get(endpoint.index as usize);
        queue.filter(|queue| queue.generation == endpoint.generation).map_or(0, |q| q.requests)
    }

    /// The queue of an endpoint; a new one, if an earlier endpoint had it last.
    fn queue(&mut self, endpoint: EndpointId) -> &mut Queue {
        let index = endpoint.index as usize;
        if self.queues.len() <= index {
            self.queues.resize(index + 1, Queue::default());
        }
        if self.queues[index].generation != endpoint.generation {
            let earlier = EndpointId { generation: self.queues[index].generation, ..endpoint };
            self.cancel(earlier);
            let queue = &mut self.queues[index];
            queue.generation = endpoint.generation;
            queue.requests = 0;
        }
        &mut self.queues[index]
    }

    /// Whose turn it is on a link.
    fn first(&self, link: u32, may_read: bool) -> Option<u32> {
        let [writes, reads] = self.links.get(link as usize)?.circles;
        let since = |index: &u32| self.queues[*index as usize].since;
        let reader = reads.oldest().filter(|_| may_read);
        writes.oldest().into_iter().chain(reader).min_by_key(since)
    }

    /// Where a queue belongs: nowhere, if it is empty or waits for a read.
    fn place_of(&self, index: u32) -> Option<QueuePosition> {
        let chain = self.chains.get(self.queues[index as usize].chains.oldest()?)?;
        let request = self.steps.get(chain.steps.oldest()?)?;
        let circle = match request {
            DmaRequest::Read { .. } => RoundRobin::Reads,
            DmaRequest::Write { .. } | DmaRequest::Word { .. } => RoundRobin::Writes,
        };
        let waits = chain.has_read && chain.at == 0 && circle == RoundRobin::Writes;
        (!waits).then_some(QueuePosition { link: chain.link, circle })
    }

    /// Puts a queue at the end of the circle where it belongs, with a new turn.
    fn enlist(&mut self, index: u32) {
        let place = self.place_of(index);
        let queue = &mut self.queues[index as usize];
        let before = core::mem::replace(&mut queue.place, place);
        if let Some(QueuePosition { link, circle }) = place {
            if before.is_none_or(|before| before.link != link) {
                self.called.push(link);
            }
            self.now += 1;
            queue.since = self.now;
            queue.turn = self.turn;
            let circles = &mut link_of(&mut self.links, link).circles;
            self.circle_links.push(&mut circles[circle as usize], index);
        }
    }

    /// Something of a queue has changed. While it belongs where it stands and
    /// its turn is not over, it stays there.
    fn relist(&mut self, index: u32) {
        let queue = self.queues[index as usize];
        if queue.turn > 0 && queue.place == self.place_of(index) {
            return;
        }
        if let Some(QueuePosition { link, circle }) = queue.place {
            let circles = &mut link_of(&mut self.links, link).circles;
            self.circle_links.remove(&mut circles[circle as usize], index);
        }
        self.enlist(index);
    }

    /// Nothing more of a chain is begun.
    fn stop(&mut self, index: u32, why: Ended) {
        let Some(chain) =
            assumed(self.chains.get_mut(index), "a chain that is stopped is in the table")
        else {
            return;
        };
        if chain.result.is_ok() {
            chain.result = Err(why);
        }
        let (endpoint, pieces) = (chain.endpoint.index, chain.pieces);
        let mut steps = core::mem::take(&mut chain.steps);
        self.drop_steps(&mut steps);
        if self.queue_links.remove(&mut self.queues[endpoint as usize].chains, index) {
            self.relist(endpoint);
        }
        if pieces == 0 {
            self.finish(index);
        }
    }

    fn drop_steps(&mut self, steps: &mut AgeList) {
        while let Some(step) = steps.oldest() {
            self.step_links.remove(steps, step);
            self.steps.remove(step);
        }
    }

    fn finish(&mut self, index: u32) {
        let dma = DmaId::of(self.chains.key(index));
        let Some(chain) = assumed(self.chains.remove(index), "a chain ends once") else { return };
        self.chain_links.remove(&mut link_of(&mut self.links, chain.link).chains, index);
        let queue = &mut self.queues[chain.endpoint.index as usize];
        if queue.generation == chain.endpoint.generation {
            queue.requests -= chain.requests;
        }
        self.done.push_back(FinishedChain { endpoint: chain.endpoint, dma, result: chain.result });
    }
}

fn link_of(links: &mut Vec<Link>, link: u32) -> &mut Link {
    let index = link as usize;
    if links.len() <= index {
        links.resize(index + 1, Link::default());
    }
    &mut links[index]
}

impl DmaRequest {
    /// Bytes that it moves.
    pub(crate) const fn len(&self) -> u64 {
        match self {
            Self::Write { from: area, .. } | Self::Read { into: area, .. } => area.len,
            Self::Word { .. } => WORD as u64,
        }
    }

    pub(crate) const fn offset(&self) -> u64 {
        match self {
            Self::Write { offset, .. } | Self::Read { offset, .. } | Self::Word { offset, .. } => {
                *offset
            }
        }
    }

    /// The window that it goes to.
    pub(crate) const fn window(&self) -> WindowId {
        match self {
            Self::Write { window, .. } | Self::Read { window, .. } | Self::Word { window, .. } => {
                *window
            }
        }
    }

    /// Does it make sense by itself? Whether it lies inside of its window, the
    /// owner of windows knows.
    fn check(&self) -> Result<(), Error> {
        match self {
            Self::Write { from: area, .. } | Self::Read { into: area, .. } if !area.is_valid() => {
                Err(Error::BadMemory)
            }
            Self::Word { offset, .. } if offset % u64::from(WORD) != 0 => Err(Error::Unaligned),
            _ if self.offset().checked_add(self.len()).is_none() => Err(Error::OutOfBounds),
            _ => Ok(()),
        }
    }

    /// The piece from byte `at` on, and how long it is.
    fn cut(&self, at: u64, max: u32, turn: u32) -> (Action, u32) {
        let offset = self.offset() + at;
        let left = self.len() - at;
        match *self {
            Self::Word { window, value, .. } => (Action::Word { window, offset, value }, WORD),
            Self::Write { from, window, .. } => {
                let len = up_to_a_word(offset, left, max.min(turn));
                (Action::Write { from: from.span(at, len), window, offset }, len)
            }
            Self::Read { window, into, .. } => {
                let len = up_to_a_word(offset, left, turn);
                (Action::Read { window, offset, into: into.span(at, len) }, len)
            }
        }
    }
}

/// As many of the `left` bytes as `max` allows; not all of them, then up to the
/// end of a word, if a word ends among them.
fn up_to_a_word(offset: u64, left: u64, max: u32) -> u32 {
    match u32::try_from(left) {
        Ok(left) if left <= max => left,
        _ => {
            let rest = ((offset + u64::from(max)) % u64::from(WORD)) as u32;
            if rest < max { max - rest } else { max }
        }
    }
}
