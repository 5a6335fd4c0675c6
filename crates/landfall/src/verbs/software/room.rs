//! Room for messages: that of one queue pair, and what many share.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use super::queue::Queue;
use super::{Carrier, CompletionQueue};
use crate::runtime::locked;
use crate::verbs::{PostError, ReceiveRequest};

/// Room for a message.
#[derive(Debug)]
pub struct PostedRoom<P> {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) into: Vec<P>,
}

/// Room that queue pairs share.
#[derive(Debug)]
pub struct SharedRoom<P>(Mutex<PostedRooms<P>>);

#[derive(Debug)]
struct PostedRooms<P> {
    posted: VecDeque<PostedRoom<P>>,
    /// Queue pairs for which there was none.
    waiting: Vec<Waker>,
}

impl<P> SharedRoom<P> {
    const fn new() -> Self {
        Self(Mutex::new(PostedRooms { posted: VecDeque::new(), waiting: Vec::new() }))
    }

    fn len(&self) -> usize {
        locked(&self.0).posted.len()
    }

    fn post(&self, room: PostedRoom<P>) {
        let mut shared = locked(&self.0);
        shared.posted.push_back(room);
        let waiting = std::mem::take(&mut shared.waiting);
        drop(shared);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn take(&self, waker: &Waker) -> Option<PostedRoom<P>> {
        let mut shared = locked(&self.0);
        let room = shared.posted.pop_front();
        if room.is_none() && !shared.waiting.iter().any(|other| other.will_wake(waker)) {
            shared.waiting.push(waker.clone());
        }
        room
    }
}

/// Where room comes from.
#[derive(Debug)]
pub enum Room<P> {
    /// It was posted to the queue pair.
    Own(VecDeque<PostedRoom<P>>),
    /// It was posted for many of them.
    Shared(Arc<SharedRoom<P>>),
}

impl<P> Room<P> {
    /// The next, if there is one; otherwise this waker is woken when shared room comes.
    pub(in crate::verbs) fn take(&mut self, waker: &Waker) -> Option<PostedRoom<P>> {
        match self {
            Self::Own(posted) => posted.pop_front(),
            Self::Shared(shared) => shared.take(waker),
        }
    }
}

/// Room for messages that come to any of many queue pairs, which take it when a message needs
/// it.
pub struct SharedReceiveQueue<C: Carrier> {
    room: Arc<SharedRoom<C::Part>>,
    completions: Arc<Queue>,
    depth: u32,
}

impl<C: Carrier> SharedReceiveQueue<C> {
    /// Of this many requests, which complete there.
    #[must_use]
    pub fn new(completions: &CompletionQueue<C::Node>, depth: u32) -> Self {
        let completions = Arc::clone(completions.queue());
        Self { room: Arc::new(SharedRoom::new()), completions, depth }
    }

    /// Posts room.
    ///
    /// # Errors
    /// [`PostError::QueueFull`], [`PostError::CompletionQueueFull`], or what is wrong with the
    /// room; nothing is posted then.
    pub fn post(&self, request: &ReceiveRequest<'_, C::Part>) -> Result<(), PostError> {
        C::check_room(request.into)?;
        if self.room.len() >= self.depth as usize {
            return Err(PostError::QueueFull);
        }
        if !self.completions.keep_place() {
            return Err(PostError::CompletionQueueFull);
        }
        self.room.post(PostedRoom { id: request.id, into: request.into.to_vec() });
        Ok(())
    }

    pub(in crate::verbs) fn room(&self) -> Room<C::Part> {
        Room::Shared(Arc::clone(&self.room))
    }

    pub(in crate::verbs) const fn completions(&self) -> &Arc<Queue> {
        &self.completions
    }
}

impl<C: Carrier> Clone for SharedReceiveQueue<C> {
    fn clone(&self) -> Self {
        let (room, completions) = (Arc::clone(&self.room), Arc::clone(&self.completions));
        Self { room, completions, depth: self.depth }
    }
}

impl<C: Carrier> fmt::Debug for SharedReceiveQueue<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SharedReceiveQueue");
        shown.field("posted", &self.room.len()).field("depth", &self.depth).finish_non_exhaustive()
    }
}
