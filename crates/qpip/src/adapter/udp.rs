//! [`Datagrams`]: the two queues of a queue pair that sends and receives over UDP.
//!
//! Datagrams have no positions and no order among each other: a request is one
//! datagram, and is done when that one left, or came.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use landfall_placement::Spans;

use crate::offload::Places;
use crate::queue::{Done, Gather, MessageOrigin};
use crate::work::{Operation, SharedReceiveQueueId, Status};

/// The queues of a queue pair for datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    /// The port that it is bound to, and one of our addresses, or any of them.
    pub(super) local: Option<SocketAddr>,
    /// Another is, or was, bound to the same port of another address.
    pub(super) has_rival: bool,
    /// What it has to do with groups.
    pub(super) groups: GroupUse,
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
}

/// Groups that a queue pair listens to, and how it sends to any.
#[derive(Debug)]
pub(super) struct GroupUse {
    /// On which link, by its place among all, and which group.
    pub(super) joined: Vec<(usize, IpAddr)>,
    pub(super) hops: u8,
    pub(super) link: Option<usize>,
}

/// As many destinations are remembered, so that an error about one is believed.
const REMEMBERED: usize = 16;

impl Datagrams {
    pub(super) const fn new(
        send_depth: u32,
        receive_depth: u32,
        shared: Option<SharedReceiveQueueId>,
    ) -> Self {
        Self {
            local: None,
            has_rival: false,
            groups: GroupUse { joined: Vec::new(), hops: 1, link: None },
            outbound: Outbound {
                requests: VecDeque::new(),
                depth: send_depth,
                next: 0,
                first: 0,
                sent_to: VecDeque::new(),
                is_flushed: false,
            },
            inbound: Inbound {
                requests: VecDeque::new(),
                depth: receive_depth,
                used: 0,
                course: 0,
                shared,
                is_flushed: false,
            },
        }
    }

    pub(super) fn poll_done(&mut self) -> Option<Done> {
        self.inbound.poll_done().or_else(|| self.outbound.poll_done())
    }

    /// Nothing more is begun: what waits ends, what is under way comes to its end.
    pub(super) fn flush(&mut self) {
        self.inbound.is_flushed = true;
        self.inbound.course = self.inbound.course.wrapping_add(1);
        self.outbound.is_flushed = true;
    }

    /// Is nothing posted any more?
    pub(super) fn is_empty(&self) -> bool {
        self.inbound.requests.is_empty() && self.outbound.requests.is_empty()
    }
}

/// A datagram to send.
#[derive(Debug)]
struct Outgoing {
    id: u64,
    gather: Gather,
    to: SocketAddr,
    /// Drivers that read its memory.
    holds: u32,
    is_signaled: bool,
    /// What became of it, once it left (or could not).
    status: Option<Status>,
}

/// Datagrams in the order of posting.
#[derive(Debug)]
pub(super) struct Outbound {
    requests: VecDeque<Outgoing>,
    depth: u32,
    /// The one that is sent next: all in front of it have left, or wait for a neighbour.
    next: usize,
    /// The number of the first one.
    first: u32,
    /// To whom something was sent of late, and no error was told of.
    sent_to: VecDeque<SocketAddr>,
    is_flushed: bool,
}

/// The datagram that is sent next.
#[derive(Debug)]
pub(super) struct Next<'a> {
    /// To be handed to [`Outbound::release`] for each transmission that was begun.
    pub(super) number: u32,
    pub(super) to: SocketAddr,
    pub(super) gather: &'a Gather,
}

impl Outbound {
    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < self.depth as usize
    }

    /// Adds a datagram; there must be room.
    pub(super) fn push(&mut self, id: u64, gather: Gather, to: SocketAddr, is_signaled: bool) {
        let request = Outgoing { id, gather, to, holds: 0, is_signaled, status: None };
        self.requests.push_back(request);
    }

    /// The datagram that is sent next.
    #[inline]
    pub(super) fn next(&self) -> Option<Next<'_>> {
        let Outgoing { to, gather, .. } = self.requests.get(self.next)?;
        let number = self.first.wrapping_add(self.next as u32);
        (!self.is_flushed).then_some(Next { number, to: *to, gather })
    }

    /// The next datagram leaves: drivers read its memory, this many times.
    #[inline]
    pub(super) fn begin(&mut self, holds: u32) {
        if let Some(request) = self.requests.get_mut(self.next) {
            request.holds = holds;
            request.status = Some(Status::Success);
            if !self.sent_to.contains(&request.to) {
                self.sent_to.truncate(REMEMBERED - 1);
                self.sent_to.push_front(request.to);
            }
        }
        self.go_on();
    }

    /// An error says that what was sent there did not arrive. Returns whether something was, and
    /// no error was told of since: who forges one has to know to whom.
    pub(super) fn take_sent_to(&mut self, to: SocketAddr) -> bool {
        let at = self.sent_to.iter().position(|known| *known == to);
        at.and_then(|at| self.sent_to.remove(at)).is_some()
    }

    /// The next datagram waits for a neighbour, and those behind it do not: no order is
    /// promised, and they may be for others.
    pub(super) fn wait(&mut self) {
        self.next = (self.next + 1).min(self.requests.len());
        self.go_on();
    }

    /// Those that wait for a neighbour are sent next.
    pub(super) fn retry(&mut self) {
        self.next = 0;
        self.go_on();
    }

    /// The next one is one that has not left.
    #[inline]
    fn go_on(&mut self) {
        while self.requests.get(self.next).is_some_and(|request| request.status.is_some()) {
            self.next += 1;
        }
    }

    /// The next datagram cannot leave.
    pub(super) fn fail(&mut self, status: Status) {
        if let Some(request) = self.requests.get_mut(self.next) {
            request.status = Some(status);
        }
        self.go_on();
    }

    /// One of the transmissions of this datagram is over.
    #[inline]
    pub(super) fn release(&mut self, number: u32) {
        let index = number.wrapping_sub(self.first) as usize;
        if let Some(request) = self.requests.get_mut(index) {
            request.holds = request.holds.saturating_sub(1);
        }
    }

    #[inline]
    fn poll_done(&mut self) -> Option<Done> {
        let front = self.requests.front()?;
        let status = match front.status {
            Some(status) => status,
            None if self.is_flushed => Status::Flushed,
            None => return None,
        };
        if front.holds > 0 {
            return None;
        }
        let Outgoing { id, gather, is_signaled, .. } = self.requests.pop_front()?;
        self.first = self.first.wrapping_add(1);
        self.next = self.next.saturating_sub(1);
        let len = if status.is_success() { gather.len() } else { 0 };
        Some(Done {
            id,
            operation: Operation::Send,
            status,
            len,
            offset: 0,
            ends_message: true,
            gather: Some(gather),
            origin: MessageOrigin::Peer,
            is_signaled,
        })
    }
}

/// What a request to receive waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A datagram.
    Free,
    /// The driver, which puts one there.
    Filling,
    /// Nothing: so it ended.
    Done { status: Status, len: u32, from: SocketAddr },
}

#[derive(Debug)]
struct Request {
    id: u64,
    gather: Gather,
    state: State,
}

impl Request {
    /// A datagram came, and is in place where it fits. Returns whether it was too long.
    fn finish(&mut self, from: SocketAddr, len: u32) -> bool {
        let is_too_long = len > self.gather.len();
        let status = if is_too_long { Status::TooLong } else { Status::Success };
        self.state = State::Done { status, len, from };
        is_too_long
    }
}

/// Room for datagrams, in the order of posting.
#[derive(Debug)]
pub(super) struct Inbound {
    requests: VecDeque<Request>,
    depth: u32,
    /// How many from the front on are not free.
    used: usize,
    /// Changes whenever another request is the next than was to be expected.
    course: u16,
    /// Where more room is taken from.
    pub(super) shared: Option<SharedReceiveQueueId>,
    is_flushed: bool,
}

/// A datagram whose payload is in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivedDatagram {
    pub(super) from: SocketAddr,
    /// How many bytes of payload.
    pub(super) len: u32,
}

impl Inbound {
    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < self.depth as usize
    }

    /// Adds a request; there must be room.
    pub(super) fn push(&mut self, id: u64, gather: Gather) {
        self.requests.push_back(Request { id, gather, state: State::Free });
    }

    /// A datagram of `len` bytes came: takes the next request and fills in the
    /// spans of its payload, or none where it is too long. Nothing, where no
    /// request is free.
    ///
    /// [`Inbound::land`] must follow, in the order of these calls.
    #[inline]
    pub(super) fn take(&mut self, len: u32, into: &mut Spans) -> Option<()> {
        let request = self.take_next()?;
        request.state = State::Filling;
        if len <= request.gather.len() {
            request.gather.slice(0, len, into);
        }
        Some(())
    }

    /// The same of a datagram that is known to be right and writes nothing: its request is
    /// done, though others in front of it are still being filled. Returns whether it was too
    /// long.
    pub(super) fn take_landed(&mut self, from: SocketAddr, len: u32) -> Option<bool> {
        Some(self.take_next()?.finish(from, len))
    }

    /// Is no request free, though more could come?
    pub(super) fn is_used_up(&self) -> bool {
        !self.is_flushed && self.used >= self.requests.len()
    }

    /// Is the next request too short for a datagram of `len` bytes?
    pub(super) fn is_too_long(&self, len: u32) -> bool {
        self.requests.get(self.used).is_some_and(|request| len > request.gather.len())
    }

    #[inline]
    fn take_next(&mut self) -> Option<&mut Request> {
        if self.is_flushed {
            return None;
        }
        self.course = self.course.wrapping_add(1);
        let request = self.requests.get_mut(self.used)?;
        self.used += 1;
        Some(request)
    }

    /// The memory that the next datagrams take, one request each; nothing where
    /// there is none.
    pub(super) fn predict(&self) -> Option<Places> {
        let mut places = Places::new();
        let free = self.requests.iter().skip(self.used).take_while(|_| !self.is_flushed);
        for request in free {
            if !request.gather.expect(0, &mut places) {
                break;
            }
        }
        (!places.is_empty()).then_some(places)
    }

    /// Nothing more is received.
    pub(super) const fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    #[inline]
    pub(super) const fn course(&self) -> u16 {
        self.course
    }

    /// The next request is the place of a datagram that came as predicted. As
    /// after [`Inbound::take`], [`Inbound::land`] must follow.
    #[inline]
    pub(super) fn take_predicted(&mut self) {
        if let Some(request) = self.requests.get_mut(self.used) {
            request.state = State::Filling;
            self.used += 1;
        }
    }

    /// What became of the datagram that was taken first and has not landed yet:
    /// nothing, where it failed its check. Says
    /// whether it was too long.
    #[inline]
    pub(super) fn land(&mut self, datagram: Option<ArrivedDatagram>) -> bool {
        let mut used = self.requests.iter().take(self.used);
        let filling = used.position(|request| request.state == State::Filling);
        // Its queue pair was flushed meanwhile.
        let Some(index) = filling else { return false };
        let Some(ArrivedDatagram { from, len }) = datagram else {
            // The request waits on, behind those that are being filled already.
            self.used -= 1;
            self.course = self.course.wrapping_add(1);
            if let Some(mut request) = self.requests.remove(index) {
                request.state = State::Free;
                self.requests.insert(self.used, request);
            }
            return false;
        };
        self.requests[index].finish(from, len)
    }

    #[inline]
    fn poll_done(&mut self) -> Option<Done> {
        let (status, len, origin) = match self.requests.front()?.state {
            State::Done { status, len, from } => (status, len, MessageOrigin::Address(from)),
            State::Free if self.is_flushed => (Status::Flushed, 0, MessageOrigin::Peer),
            State::Free | State::Filling => return None,
        };
        let Request { id, gather, .. } = self.requests.pop_front()?;
        self.used = self.used.saturating_sub(1);
        Some(Done {
            id,
            operation: Operation::Receive,
            status,
            len,
            offset: 0,
            ends_message: true,
            gather: Some(gather),
            origin,
            is_signaled: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Piece;
    use landfall_placement::RegionId;

    fn gather(offset: u64, len: u32) -> Gather {
        Gather::new(&[Piece { key: 0, span: RegionId::new(1, 0).span(offset, len) }]).unwrap()
    }

    fn peer() -> SocketAddr {
        ([10, 0, 0, 2], 9).into()
    }

    #[test]
    fn a_request_whose_datagram_failed_waits_behind_those_being_filled() {
        let mut queues = Datagrams::new(4, 4, None);
        for id in 0..3 {
            queues.inbound.push(id, gather(id * 100, 100));
        }
        let mut into = Spans::new();
        queues.inbound.take(10, &mut into).unwrap();
        queues.inbound.take(20, &mut into).unwrap();
        assert_eq!((into[0].offset, into[1].offset), (0, 100));
        queues.inbound.land(None);
        queues.inbound.land(Some(ArrivedDatagram { from: peer(), len: 20 }));
        let done = queues.poll_done().unwrap();
        assert_eq!((done.id, done.len, done.status), (1, 20, Status::Success));
        assert!(queues.poll_done().is_none());
        into.clear();
        queues.inbound.take(5, &mut into).unwrap();
        assert_eq!(into[0].offset, 0, "the first request is the next again");
    }

    /// One that writes nothing is known at once, and the one in front of it is not.
    #[test]
    fn a_datagram_without_bytes_is_not_taken_for_one_that_is_being_filled() {
        let mut queues = Datagrams::new(4, 4, None);
        queues.inbound.push(0, gather(0, 100));
        queues.inbound.push(1, gather(100, 100));
        queues.inbound.take(10, &mut Spans::new()).unwrap();
        assert_eq!(queues.inbound.take_landed(peer(), 0), Some(false));
        assert!(queues.poll_done().is_none(), "the first is not in place");
        queues.inbound.land(Some(ArrivedDatagram { from: peer(), len: 10 }));
        let done = [queues.poll_done().unwrap(), queues.poll_done().unwrap()];
        assert_eq!(done.map(|done| (done.id, done.len)), [(0, 10), (1, 0)]);
    }

    #[test]
    fn what_is_held_is_not_done() {
        let mut queues = Datagrams::new(4, 4, None);
        queues.outbound.push(7, gather(0, 50), peer(), true);
        let number = queues.outbound.next().unwrap().number;
        queues.outbound.begin(2);
        assert!(queues.outbound.next().is_none());
        queues.outbound.release(number);
        assert!(queues.poll_done().is_none());
        queues.outbound.release(number);
        let done = queues.poll_done().unwrap();
        assert_eq!((done.id, done.len, done.status), (7, 50, Status::Success));
    }

    #[test]
    fn a_flush_leaves_what_is_under_way() {
        let mut queues = Datagrams::new(4, 4, None);
        queues.inbound.push(1, gather(0, 50));
        queues.inbound.push(2, gather(50, 50));
        queues.outbound.push(3, gather(0, 50), peer(), true);
        queues.inbound.take(50, &mut Spans::new()).unwrap();
        queues.flush();
        assert!(queues.outbound.next().is_none());
        let done = queues.poll_done().unwrap();
        assert_eq!((done.id, done.status), (3, Status::Flushed));
        assert!(queues.poll_done().is_none() && !queues.is_empty());
        queues.inbound.land(Some(ArrivedDatagram { from: peer(), len: 50 }));
        let done = queues.poll_done().unwrap();
        assert_eq!((done.id, done.status), (1, Status::Success));
        assert_eq!(queues.poll_done().unwrap().status, Status::Flushed);
        assert!(queues.is_empty());
    }
}
