//! [`Carrier`]: two queues of CLAN, one in each direction, as queue pairs use them.

use std::collections::VecDeque;
use std::fmt;
use std::task::{Context, Waker};

use super::element::{self, Element};
use super::receives::{MOST_PARTS, ReceiveQueue};
use super::region::{MemoryKey, Part, Region, Windows};
use super::sends::{Done, Request, SendQueue, misbehaved};
use super::{Address, InHost};
use crate::clan::dma::sealed::DirectMemory;
use crate::clan::layer::any::Waitable;
use crate::clan::layer::queue;
use crate::clan::{Error, Fabric, Rights, Tripwire};
use crate::verbs::software::{self, Arrived, Posted, Reach, Room};
use crate::verbs::{AtomicRequest, CloseReason, PostError, RdmaRequest, Status};

/// What one end of a queue pair has of both.
pub struct Carrier<F: DirectMemory> {
    node: F,
    /// Memory of the other end: who it is.
    peer: F::Remote,
    outbox: Outbox<F>,
    inbox: queue::Receiver<F>,
    sends: SendQueue<F>,
    receives: ReceiveQueue<F>,
    /// What is written to us wakes somebody.
    is_armed: bool,
    over: Option<CloseReason>,
}

/// What the other side is told.
struct Outbox<F: Fabric> {
    queue: queue::Sender<F>,
    /// The queue is full. They are as few as there is room on both sides, and requests.
    waiting: VecDeque<Element>,
}

impl<F: Fabric> Outbox<F> {
    fn put(&mut self, element: Element) -> Result<(), Error> {
        if !self.waiting.is_empty() || !self.queue.try_put(&element.encode())? {
            self.waiting.push_back(element);
        }
        Ok(())
    }

    /// Publishes all that fits.
    fn publish(&mut self) -> Result<(), Error> {
        while let Some(element) = self.waiting.front() {
            if !self.queue.try_put(&element.encode())? {
                break;
            }
            self.waiting.pop_front();
        }
        self.queue.publish()
    }
}

impl<F: DirectMemory> Carrier<F> {
    pub(super) fn new(
        node: &F,
        (outlet, inlet): (queue::Sender<F>, queue::Receiver<F>),
        other: &Address,
    ) -> Result<Self, Error> {
        Ok(Self {
            node: node.clone(),
            peer: node.map(&other.inlet)?,
            outbox: Outbox { queue: outlet, waiting: VecDeque::new() },
            inbox: inlet,
            sends: SendQueue::new(Windows::new(other.inlet.host())),
            receives: ReceiveQueue::new(),
            is_armed: false,
            over: None,
        })
    }

    pub(super) fn share(&self, region: &Region<F>) -> Result<MemoryKey, Error> {
        region.cookie_for(&self.node, &self.peer).map(MemoryKey)
    }

    pub(super) fn withdraw(&mut self, region: &Region<F>) -> Result<(), Error> {
        self.receives.forget(region);
        self.node.revoke_from(region.local(), &self.peer)
    }

    /// Hears all that the other side has said, and tells it of room.
    fn hear(&mut self, room: &mut Room<Part<F>>, waker: &Waker) -> Result<(), Error> {
        let mut bytes = [0; element::LEN];
        while self.inbox.try_get_quietly(&mut bytes)? {
            let element = Element::decode(&bytes).ok_or(misbehaved(bytes[0].into()))?;
            self.handle(element)?;
        }
        let Self { node, peer, outbox, receives, .. } = self;
        let cookie_of = |region: &Region<F>| region.cookie_for(node, peer);
        receives.give(room, waker, cookie_of, &mut |element| outbox.put(element))
    }

    fn handle(&mut self, element: Element) -> Result<(), Error> {
        match element {
            Element::Region { number, cookie } => self.sends.name(number, cookie),
            Element::Room { region, at, len, is_last } => {
                self.sends.add_room(region, (at, len), is_last)
            }
            Element::Arrived { len, word } => self.receives.arrive(len, word, Status::Success),
            Element::TooLong { len } => self.receives.arrive(len, None, Status::TooLong),
            Element::Wanted { messages } => self.receives.want(messages),
            Element::Aborted => Err(Error::Cut),
        }
    }

    /// It is over, for this reason if there was none before.
    fn lose(&mut self, error: &Error) -> CloseReason {
        *self.over.get_or_insert(match error {
            Error::Closed => CloseReason::Finished,
            Error::NodeGone => CloseReason::Aborted,
            Error::TimedOut => CloseReason::TimedOut,
            _ => CloseReason::Reset,
        })
    }

    /// Does something here wait for the other side?
    fn waits(&self) -> bool {
        self.sends.len() > 0 || !self.outbox.waiting.is_empty()
    }

    /// Has nobody written to us since it was armed?
    fn is_still_armed(&self) -> bool {
        self.is_armed && self.tripwires().into_iter().all(|wire| !wire.has_fired())
    }

    fn arm(&mut self, cx: &mut Context<'_>) {
        self.is_armed = true;
        for wire in self.tripwires() {
            wire.arm();
            // Whether it has fired already shows at the look that follows.
            let _ = wire.poll_fired(cx);
        }
    }

    fn tripwires(&self) -> [&F::Tripwire; 2] {
        [self.inbox.tripwire(), self.outbox.queue.tripwire()]
    }
}

impl<F: DirectMemory> software::Carrier for Carrier<F> {
    type Part = Part<F>;
    type Key = MemoryKey;
    type Node = InHost;
    type Request = Request<F>;

    /// To map memory of the other side a thread of the node has to answer: that one must not
    /// wait for itself.
    const ADVANCES_WHERE_WOKEN: bool = false;

    fn part_len(part: &Part<F>) -> u64 {
        part.len()
    }

    fn check_room(into: &[Part<F>]) -> Result<(), PostError> {
        if into.len() > MOST_PARTS {
            return Err(PostError::TooManyBuffers);
        }
        let may_be_written = |part: &Part<F>| part.region().rights().allow(Rights::Write);
        if into.iter().all(may_be_written) { Ok(()) } else { Err(PostError::NoRight) }
    }

    fn check_key(key: &MemoryKey, reach: Reach, at: u64, len: u64) -> Result<(), PostError> {
        let right = match reach {
            Reach::Write => Rights::Write,
            Reach::Read => Rights::Read,
            Reach::Change => Rights::ReadWrite,
        };
        if !key.rights().allow(right) {
            return Err(PostError::NoRight);
        }
        let is_within = at.checked_add(len).is_some_and(|end| end <= key.len());
        if is_within { Ok(()) } else { Err(PostError::OutOfBounds) }
    }

    fn message(from: &[Part<F>], word: Option<u32>) -> Result<Request<F>, PostError> {
        Ok(Request::Message { from: from.to_vec(), word })
    }

    fn inline(bytes: &[u8], word: Option<u32>) -> Request<F> {
        Request::Inline { bytes: bytes.into(), word }
    }

    fn write(request: &RdmaRequest<'_, Part<F>, MemoryKey>) -> Request<F> {
        Request::Write { from: request.local.to_vec(), key: request.key, at: request.at }
    }

    fn read(request: &RdmaRequest<'_, Part<F>, MemoryKey>) -> Request<F> {
        Request::Read { into: request.local.to_vec(), key: request.key, at: request.at }
    }

    fn atomic(request: &AtomicRequest<Part<F>, MemoryKey>) -> Request<F> {
        let AtomicRequest { into, key, at, function, .. } = request.clone();
        Request::Atomic { into, key, at, function }
    }

    fn post(&mut self, posted: Posted, request: Request<F>) {
        self.sends.post(posted, request);
    }

    fn sends(&self) -> usize {
        self.sends.len()
    }

    fn rooms_taken(&self) -> usize {
        self.receives.len()
    }

    fn receive(
        &mut self,
        room: &mut Room<Part<F>>,
        cx: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        self.hear(room, cx.waker()).map_err(|error| self.lose(&error))
    }

    fn next_received(&mut self, _: &mut Context<'_>) -> Option<Arrived> {
        self.receives.next_arrived()
    }

    fn next_sent(&mut self, _: &mut Context<'_>) -> Option<(Posted, Status)> {
        if self.over.is_some() {
            return None;
        }
        let (done, element) = match self.sends.do_next(&self.node)? {
            Done::Over(posted, status, element) => (Some((posted, status)), element),
            Done::Waits => (None, self.sends.want()),
            Done::Lost(error) => {
                self.lose(&error);
                return None;
            }
        };
        if let Some(element) = element
            && let Err(error) = self.outbox.put(element)
        {
            self.lose(&error);
            // What was not told of is not there.
            return done.map(|(posted, _)| (posted, Status::Flushed));
        }
        done
    }

    fn settle(&mut self, is_watched: bool, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        if let Err(error) = self.outbox.publish() {
            self.lose(&error);
        }
        if let Some(reason) = self.over {
            return Err(reason);
        }
        if !is_watched && !self.waits() {
            if std::mem::take(&mut self.is_armed) {
                self.tripwires().into_iter().for_each(Tripwire::disarm);
            }
            return Ok(false);
        }
        if self.is_still_armed() {
            return Ok(false);
        }
        self.arm(cx);
        Ok(true)
    }

    fn abort(&mut self) {
        // A peer that is gone needs not be told.
        let _ = self.outbox.put(Element::Aborted).and_then(|()| self.outbox.publish());
    }

    fn flush(&mut self) -> (Vec<u64>, Vec<Posted>) {
        (self.receives.flush(), self.sends.flush())
    }
}

impl<F: DirectMemory> fmt::Debug for Carrier<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Carrier");
        shown.field("sends", &self.sends.len()).field("over", &self.over).finish_non_exhaustive()
    }
}
