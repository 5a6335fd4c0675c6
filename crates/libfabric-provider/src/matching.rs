//! Which receive takes which message.
//!
//! Receives that were posted are tried in the order in which they were posted, messages that
//! came before a receive in the order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffer::Buffer;

/// What a receive takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// A tag and the bits of it that don't matter; nothing for messages without a tag.
    pub(crate) tag: Option<(u64, u64)>,
    /// From this peer only.
    pub(crate) peer: Option<usize>,
}

impl Wanted {
    fn takes(&self, tag: Option<u64>, peer: usize) -> bool {
        let is_tag = match (self.tag, tag) {
            (None, None) => true,
            (Some((wanted, ignored)), Some(tag)) => (wanted ^ tag) & !ignored == 0,
            _ => false,
        };
        is_tag && self.peer.is_none_or(|wanted| wanted == peer)
    }
}

/// A receive that was posted.
#[derive(Debug)]
pub(crate) struct Receive {
    pub(crate) wanted: Wanted,
    pub(crate) buffer: Buffer,
    pub(crate) context: usize,
    /// A completion is wanted for success, too.
    pub(crate) tells: bool,
    /// It takes several messages, or is the part of one that does.
    pub(crate) several: Option<Several>,
}

/// What the parts of a receive share that takes several messages (`FI_MULTI_RECV`), one behind
/// the other in its buffer.
#[derive(Clone, Debug)]
pub(crate) struct Several {
    /// With less room than this left it takes no more.
    least: usize,
    /// Held by what is left of the receive, and by each part of it that is not complete.
    holders: Arc<()>,
}

impl Several {
    pub(crate) fn new(least: usize) -> Self {
        // An empty rest would take messages for ever.
        Self { least: least.max(1), holders: Arc::default() }
    }
}

impl Receive {
    /// What a message of this length takes of it, and what is left for others.
    fn split(mut self, len: u64) -> (Self, Option<Self>) {
        let Some(several) = self.several.clone() else { return (self, None) };
        let taken = usize::try_from(len).unwrap_or(usize::MAX).min(self.buffer.len());
        let (buffer, rest) = self.buffer.split_at(taken);
        self.buffer = buffer;
        let (wanted, context, tells) = (self.wanted, self.context, self.tells);
        let is_left = rest.len() >= several.least;
        let rest = Self { wanted, buffer: rest, context, tells, several: Some(several) };
        (self, is_left.then_some(rest))
    }

    /// It takes several messages, and this is the last part that is not complete: then the whole
    /// buffer is the program's again.
    pub(crate) fn is_last(&self) -> bool {
        self.several.as_ref().is_some_and(|several| Arc::strong_count(&several.holders) == 1)
    }
}

/// A message that came.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) peer: usize,
    /// How long the message is.
    pub(crate) len: u64,
    pub(crate) link: usize,
    pub(crate) body: Body,
}

/// Where its bytes are.
#[derive(Debug)]
pub(crate) enum Body {
    /// Here; the sender may want to know by this number that they are in their place.
    Here(Vec<u8>, Option<u32>),
    /// At the sender, to be read by this number.
    There(u32),
}

impl Body {
    /// What it takes to keep it: a message without bytes takes memory, too.
    const fn size(&self) -> usize {
        let bytes = match self {
            Self::Here(bytes, _) => bytes.len(),
            Self::There(_) => 0,
        };
        size_of::<Arrived>() + bytes
    }
}

/// Receives without a message, and messages without a receive.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    posted: VecDeque<Receive>,
    arrived: VecDeque<Arrived>,
    /// Those that were claimed, with the context by which they are received.
    claimed: Vec<(usize, Arrived)>,
    bytes: usize,
}

impl Matching {
    /// How many receives are posted.
    pub(crate) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// How many bytes of messages without a receive are kept.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes back all receives that have no message.
    pub(crate) fn take_posted(&mut self) -> VecDeque<Receive> {
        std::mem::take(&mut self.posted)
    }

    pub(crate) fn keep(&mut self, arrived: Arrived) {
        self.bytes += arrived.body.size();
        self.arrived.push_back(arrived);
    }

    /// The receive for a message of this length that comes now.
    pub(crate) fn receive_for(
        &mut self,
        tag: Option<u64>,
        peer: usize,
        len: u64,
    ) -> Option<Receive> {
        let at = self.posted.iter().position(|receive| receive.wanted.takes(tag, peer))?;
        let (receive, rest) = self.posted.remove(at)?.split(len);
        if let Some(rest) = rest {
            self.posted.insert(at, rest);
        }
        Some(receive)
    }

    /// The message for a receive that is posted now, with what it takes of the receive, and
    /// what is left of that. Without a message the receive stays for those to come.
    pub(crate) fn meet(&mut self, receive: Receive) -> Option<(Arrived, Receive, Option<Receive>)> {
        let Some(arrived) = self.message_for(&receive.wanted) else {
            self.posted.push_back(receive);
            return None;
        };
        let (receive, rest) = receive.split(arrived.len);
        Some((arrived, receive, rest))
    }

    /// The first message that came and is wanted.
    pub(crate) fn message_for(&mut self, wanted: &Wanted) -> Option<Arrived> {
        let at = self.find(wanted)?;
        let arrived = self.arrived.remove(at)?;
        self.bytes -= arrived.body.size();
        Some(arrived)
    }

    /// The same, and it stays.
    pub(crate) fn look_for(&self, wanted: &Wanted) -> Option<&Arrived> {
        self.arrived.get(self.find(wanted)?)
    }

    fn find(&self, wanted: &Wanted) -> Option<usize> {
        self.arrived.iter().position(|arrived| wanted.takes(arrived.tag, arrived.peer))
    }

    /// Sets one aside for the receive with this context.
    pub(crate) fn claim(&mut self, wanted: &Wanted, context: usize) {
        if let Some(arrived) = self.message_for(wanted) {
            self.claimed.push((context, arrived));
        }
    }

    pub(crate) fn take_claimed(&mut self, context: usize) -> Option<Arrived> {
        let at = self.claimed.iter().position(|(known, _)| *known == context)?;
        Some(self.claimed.swap_remove(at).1)
    }

    /// Takes back the receive with this context.
    pub(crate) fn cancel(&mut self, context: usize) -> Option<Receive> {
        let at = self.posted.iter().position(|receive| receive.context == context)?;
        self.posted.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(tag: Option<(u64, u64)>, peer: Option<usize>, context: usize) -> Receive {
        // SAFETY: no bytes.
        let buffer = unsafe { Buffer::new(std::ptr::null(), 0) };
        Receive { wanted: Wanted { tag, peer }, buffer, context, tells: true, several: None }
    }

    fn message(tag: Option<u64>, peer: usize, first: u8) -> Arrived {
        let body = Body::Here(vec![first], None);
        Arrived { tag, data: None, peer, len: 1, link: 0, body }
    }

    #[test]
    fn the_first_receive_that_takes_it_gets_it() {
        let mut matching = Matching::default();
        assert!(matching.meet(receive(Some((7, 0)), Some(2), 1)).is_none());
        assert!(matching.meet(receive(Some((7, 0)), None, 2)).is_none());
        assert!(matching.meet(receive(Some((0, u64::MAX)), None, 3)).is_none());
        assert!(matching.meet(receive(None, None, 4)).is_none());
        let mut next =
            |tag, peer| matching.receive_for(tag, peer, 1).map(|receive| receive.context);
        assert_eq!(next(Some(7), 1), Some(2), "another peer's");
        assert_eq!(next(Some(7), 2), Some(1));
        assert_eq!(next(None, 2), Some(4), "without a tag");
        assert_eq!(next(Some(9), 5), Some(3), "any tag");
        assert_eq!(next(Some(9), 5), None);
    }

    #[test]
    fn messages_are_taken_in_the_order_in_which_they_came() {
        let mut matching = Matching::default();
        matching.keep(message(Some(0x11), 0, 1));
        matching.keep(message(Some(0x21), 1, 2));
        matching.keep(message(Some(0x12), 0, 3));
        let one = size_of::<Arrived>() + 1;
        assert_eq!(matching.bytes(), 3 * one);
        let any = Wanted { tag: Some((0x10, 0x0f)), peer: None };
        assert_eq!(matching.look_for(&any).and_then(|arrived| arrived.tag), Some(0x11));
        let mut next = |wanted| matching.message_for(wanted).and_then(|arrived| arrived.tag);
        assert_eq!((next(&any), next(&any), next(&any)), (Some(0x11), Some(0x12), None));
        assert_eq!(matching.bytes(), one);
    }

    #[test]
    fn what_is_claimed_is_nobody_elses() {
        let mut matching = Matching::default();
        matching.keep(message(Some(1), 0, 1));
        let wanted = Wanted { tag: Some((1, 0)), peer: None };
        matching.claim(&wanted, 99);
        assert!(matching.look_for(&wanted).is_none());
        assert!(matching.take_claimed(98).is_none());
        assert!(matching.take_claimed(99).is_some());
        assert!(matching.take_claimed(99).is_none());
    }

    #[test]
    fn what_is_cancelled_takes_nothing() {
        let mut matching = Matching::default();
        assert!(matching.meet(receive(Some((1, 0)), None, 5)).is_none());
        assert!(matching.cancel(4).is_none());
        assert!(matching.cancel(5).is_some());
        assert!(matching.receive_for(Some(1), 0, 1).is_none());
        assert_eq!(matching.posted(), 0);
    }
    #[test]
    fn one_receive_takes_messages_until_too_little_is_left() {
        let mut bytes = [0_u8; 10];
        // SAFETY: the bytes outlive the receive.
        let buffer = unsafe { Buffer::new(bytes.as_mut_ptr().cast(), bytes.len()) };
        let mut whole = receive(None, None, 7);
        (whole.buffer, whole.several) = (buffer, Some(Several::new(3)));
        let mut matching = Matching::default();
        matching.keep(message(None, 0, 1));
        let (_, first, rest) = matching.meet(whole).expect("a message waits");
        assert!(matching.meet(rest.expect("nine bytes")).is_none());
        let second = matching.receive_for(None, 0, 4).expect("it is posted");
        assert_eq!((first.buffer.len(), second.buffer.len()), (1, 4));
        assert_eq!(second.buffer.address(), first.buffer.address() + 1);
        let third = matching.receive_for(None, 0, 3).expect("five bytes are left");
        assert!(matching.receive_for(None, 0, 1).is_none(), "two are too few");
        // Whichever is complete last gives the buffer back.
        assert!(!third.is_last());
        drop((third, first));
        assert!(second.is_last());
    }
}
