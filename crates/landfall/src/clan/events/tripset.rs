//! [`Tripset`]: several tripwires that are waited for together, at a cost that does not grow with
//! their number.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Instant;

use super::{Event, EventQueue, Eventful};
use crate::clan::Error;

/// Several tripwires of one node that are waited for together (section 3.3 of the paper).
///
/// A member need not be armed. Of those that have fired, the one that has for longest is given
/// first, and each is given once for all that touched it since. The memory that it watches is
/// looked at after that: what the look does not see is given again.
///
/// ```
/// use landfall::clan::{Access, Error, Eventful, Remote, Rights, Threads, Tripset};
///
/// /// Which of a thousand words was written?
/// fn which<F: Eventful>(here: &F, there: &F) -> Result<Option<usize>, Error> {
///     let (memory, cookie) = here.expose(8000, Rights::Write)?;
///     let mut set = Tripset::new(here, 1000)?;
///     for word in 0..1000 {
///         set.add(here.watch(&memory, 8 * word..8 * word + 8, Access::Write, None)?)?;
///     }
///     let mut window = there.map(&cookie)?;
///     window.store(8 * 321, 1)?;
///     window.commit()?;
///     set.wait(None)
/// }
///
/// let (here, there) = Threads::pair()?;
/// assert_eq!(which(&here, &there)?, Some(321));
/// # Ok::<(), landfall::clan::Error>(())
/// ```
pub struct Tripset<F: Eventful> {
    events: F::Events,
    /// By their places.
    members: Vec<Option<F::Tripwire>>,
    /// Places that were left.
    free: Vec<usize>,
    capacity: usize,
    /// Members that may have fired while there was no room for their events.
    recheck: Range<usize>,
}

impl<F: Eventful> Tripset<F> {
    /// One without members, which has room for this many.
    ///
    /// # Errors
    /// The process has no descriptor left, or the node does not run any more.
    pub fn new(node: &F, capacity: usize) -> Result<Self, Error> {
        let events = node.events(capacity)?;
        Ok(Self { events, members: Vec::new(), free: Vec::new(), capacity, recheck: 0..0 })
    }

    /// Adds a tripwire; gives its place in the set.
    ///
    /// # Errors
    /// There is no room, or the tripwire is of another node.
    pub fn add(&mut self, tripwire: F::Tripwire) -> Result<usize, Error> {
        let place = match self.free.last() {
            Some(place) => *place,
            None if self.members.len() < self.capacity => self.members.len(),
            None => return Err(Error::NoRoom("member of a tripset")),
        };
        self.events.register(&tripwire, place as u64)?;
        self.free.pop();
        match self.members.get_mut(place) {
            Some(member) => *member = Some(tripwire),
            None => self.members.push(Some(tripwire)),
        }
        Ok(place)
    }

    /// Takes a tripwire out; none: there is none at that place.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn remove(&mut self, place: usize) -> Result<Option<F::Tripwire>, Error> {
        let taken = self.members.get_mut(place).and_then(Option::take);
        let Some(tripwire) = taken else { return Ok(None) };
        self.free.push(place);
        self.events.unregister(&tripwire)?;
        Ok(Some(tripwire))
    }

    /// The member at this place.
    #[must_use]
    pub fn member(&self, place: usize) -> Option<&F::Tripwire> {
        self.members.get(place)?.as_ref()
    }

    /// How many members it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len() - self.free.len()
    }

    /// Has it none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The place of the member that has fired for longest, if any has. No system call, unless
    /// the set was armed before.
    pub fn next_fired(&mut self) -> Option<usize> {
        loop {
            if let Some(place) = self.next_to_recheck() {
                return Some(place);
            }
            let event = self.events.next()?;
            if let Some(place) = self.place_of(event) {
                return Some(place);
            }
        }
    }

    /// Waits on this thread; nothing if none has fired before the deadline.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<usize>, Error> {
        loop {
            if let Some(place) = self.next_to_recheck() {
                return Ok(Some(place));
            }
            let Some(event) = self.events.wait(deadline)? else {
                match deadline {
                    Some(deadline) if Instant::now() >= deadline => return Ok(None),
                    // It may return early.
                    _ => continue,
                }
            };
            if let Some(place) = self.place_of(event) {
                return Ok(Some(place));
            }
        }
    }

    /// The same for a task.
    ///
    /// # Errors
    /// The node does not run any more.
    pub fn poll_fired(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        loop {
            if let Some(place) = self.next_to_recheck() {
                return Poll::Ready(Ok(place));
            }
            match self.events.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(event)) => {
                    if let Some(place) = self.place_of(event) {
                        return Poll::Ready(Ok(place));
                    }
                }
            }
        }
    }

    /// Waits for any member, on any executor; gives its place.
    ///
    /// # Errors
    /// The node does not run any more.
    pub async fn any(&mut self) -> Result<usize, Error> {
        poll_fn(|context| self.poll_fired(context)).await
    }

    /// Call this before you sleep at the descriptor of the set: see [`EventQueue::arm`].
    #[must_use = "false: a member has fired, and the descriptor need not become readable"]
    pub fn arm(&mut self) -> bool {
        self.recheck.is_empty() && self.events.arm()
    }

    /// Which member an event is of.
    fn place_of(&mut self, event: Event) -> Option<usize> {
        match event {
            Event::Tripwire(place) => Some(place as usize),
            // Places that were left and taken again may have had several events in the queue.
            Event::Overflow { .. } => {
                self.recheck = 0..self.members.len();
                None
            }
            // Nothing else is registered.
            Event::Dma(_) | Event::OutOfBand(_) => None,
        }
    }

    fn next_to_recheck(&mut self) -> Option<usize> {
        let members = &self.members;
        self.recheck.find(|place| members.get(*place).is_some_and(Option::is_some))
    }
}

impl<F: Eventful> AsFd for Tripset<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

impl<F: Eventful> fmt::Debug for Tripset<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tripset({} of {} members)", self.len(), self.capacity)
    }
}
