//! Which receive takes which message.
//!
//! Receives that were posted are tried in the order in which they were posted, messages that
//! came before a receive in the order in which they came.

use std::collections::VecDeque;

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
    fn size(&self) -> usize {
        match self {
            Self::Here(bytes, _) => bytes.len(),
            Self::There(_) => 0,
        }
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

    pub(crate) fn post(&mut self, receive: Receive) {
        self.posted.push_back(receive);
    }

    pub(crate) fn keep(&mut self, arrived: Arrived) {
        self.bytes += arrived.body.size();
        self.arrived.push_back(arrived);
    }

    /// The receive for a message that comes now.
    pub(crate) fn receive_for(&mut self, tag: Option<u64>, peer: usize) -> Option<Receive> {
        let at = self.posted.iter().position(|receive| receive.wanted.takes(tag, peer))?;
        self.posted.remove(at)
    }

    /// The message for a receive that is posted now.
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
        Receive { wanted: Wanted { tag, peer }, buffer, context, tells: true }
    }

    fn message(tag: Option<u64>, peer: usize, first: u8) -> Arrived {
        let body = Body::Here(vec![first], None);
        Arrived { tag, data: None, peer, len: 1, link: 0, body }
    }

    #[test]
    fn the_first_receive_that_takes_it_gets_it() {
        let mut matching = Matching::default();
        matching.post(receive(Some((7, 0)), Some(2), 1));
        matching.post(receive(Some((7, 0)), None, 2));
        matching.post(receive(Some((0, u64::MAX)), None, 3));
        matching.post(receive(None, None, 4));
        let mut next = |tag, peer| matching.receive_for(tag, peer).map(|receive| receive.context);
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
        assert_eq!(matching.bytes(), 3);
        let any = Wanted { tag: Some((0x10, 0x0f)), peer: None };
        assert_eq!(matching.look_for(&any).and_then(|arrived| arrived.tag), Some(0x11));
        let mut next = |wanted| matching.message_for(wanted).and_then(|arrived| arrived.tag);
        assert_eq!((next(&any), next(&any), next(&any)), (Some(0x11), Some(0x12), None));
        assert_eq!(matching.bytes(), 1);
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
        matching.post(receive(Some((1, 0)), None, 5));
        assert!(matching.cancel(4).is_none());
        assert!(matching.cancel(5).is_some());
        assert!(matching.receive_for(Some(1), 0).is_none());
        assert_eq!(matching.posted(), 0);
    }
}
