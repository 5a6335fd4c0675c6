//! [`Merge`]: one consumer of any number of producers; and [`Spread`]: one producer for any
//! number of consumers. Both together are a queue of many producers and many consumers: each
//! producer spreads over the consumers, and each consumer merges the producers.
//!
//! Every pair has a [`queue`] of its own. So there is no word that all of them change, and a
//! process that is killed in the middle of anything stops nobody else: its queue ends, and the
//! others go on. The price is memory for each pair.
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::merge::{Merge, Spread};
//! use landfall::clan::layer::queue::{Config, Receiver, Sender};
//!
//! let nodes = Threads::nodes(3)?;
//! let config = Config::new(8, 16).singly();
//! let mut spread = Spread::new(&nodes[0]);
//! let mut workers = Vec::new();
//! for node in &nodes[1..] {
//!     let (sender, receiver) = (Sender::open(&nodes[0], config)?, Receiver::open(node, config)?);
//!     let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
//!     spread.add(sender.connect(&to_receiver)?);
//!     workers.push(receiver.connect(&to_sender)?);
//! }
//! for task in 0..4u64 {
//!     spread.put(&task.to_le_bytes(), None)?;
//! }
//! // Each has got two of them.
//! assert!(workers.iter_mut().all(|worker| worker.available().unwrap() == 2));
//! # Ok::<(), landfall::clan::Error>(())
//! ```

use std::collections::VecDeque;
use std::time::Instant;

use super::any::{Waitable, wait_any};
use super::queue;
use crate::clan::{Error, Fabric};

/// One consumer of many producers: elements come from each of them in its order, and nobody is
/// starved by another.
#[derive(Debug)]
pub struct Merge<F: Fabric> {
    fabric: F,
    producers: Vec<(u64, queue::Receiver<F>)>,
    ended: Vec<(u64, Error)>,
    next_id: u64,
    /// Who is asked first.
    turn: usize,
}

impl<F: Fabric> Merge<F> {
    /// Without producers yet.
    pub fn new(fabric: &F) -> Self {
        let (producers, ended) = (Vec::new(), Vec::new());
        Self { fabric: fabric.clone(), producers, ended, next_id: 0, turn: 0 }
    }

    /// From now on elements of this one come, too. Returns its number, which no other gets.
    pub fn add(&mut self, producer: queue::Receiver<F>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.producers.push((id, producer));
        id
    }

    /// How many producers there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.producers.len()
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }

    /// Producers that have ended since the last call, after all of their elements:
    /// [`Error::Closed`] is an end in order.
    pub fn ended(&mut self) -> Vec<(u64, Error)> {
        std::mem::take(&mut self.ended)
    }

    /// Takes an element out if one is there: whose it is.
    ///
    /// # Errors
    /// `into` has the wrong length for a producer.
    pub fn try_get(&mut self, into: &mut [u8]) -> Result<Option<u64>, Error> {
        let mut asked = 0;
        while asked < self.producers.len() {
            let at = (self.turn + asked) % self.producers.len();
            let (id, producer) = &mut self.producers[at];
            match producer.try_get(into) {
                Ok(true) => {
                    let id = *id;
                    self.turn = (at + 1) % self.producers.len();
                    return Ok(Some(id));
                }
                Ok(false) | Err(Error::Busy) => asked += 1,
                Err(error @ (Error::TooLong { .. } | Error::NodeGone)) => return Err(error),
                Err(error) => {
                    let (id, _) = self.producers.swap_remove(at);
                    self.ended.push((id, error));
                }
            }
        }
        Ok(None)
    }

    /// Takes an element out once one is there: whose it is.
    ///
    /// # Errors
    /// Those of [`try_get`](Self::try_get), the deadline is over, or all producers have ended
    /// ([`Error::Closed`]).
    pub fn get(&mut self, into: &mut [u8], deadline: Option<Instant>) -> Result<u64, Error> {
        loop {
            if let Some(id) = self.try_get(into)? {
                return Ok(id);
            }
            let mut sources: Vec<&mut dyn Waitable<F>> =
                self.producers.iter_mut().map(|(_, producer)| producer as _).collect();
            wait_any(&self.fabric, &mut sources, deadline)?;
        }
    }
}

/// One producer for many consumers: each element goes to one of them, to the one that has the
/// fewest under way. A work queue.
///
/// **At least once.** An element that was given to a consumer that is gone, and was not taken out
/// as far as is known, is given to another. A consumer publishes lazily what it has taken out (in
/// quarters of its queue, and whenever it finds nothing more), so what it had taken out just
/// before its end may be given out twice.
#[derive(Debug)]
pub struct Spread<F: Fabric> {
    fabric: F,
    consumers: Vec<Consumer<F>>,
    /// What was given to those that are gone.
    orphans: VecDeque<Box<[u8]>>,
    lost: Vec<(u64, Error)>,
    next_id: u64,
}

#[derive(Debug)]
struct Consumer<F: Fabric> {
    id: u64,
    sender: queue::Sender<F>,
    /// What it has not taken out, as far as is known.
    under_way: VecDeque<Box<[u8]>>,
}

impl<F: Fabric> Spread<F> {
    /// Without consumers yet.
    pub fn new(fabric: &F) -> Self {
        let (consumers, orphans, lost) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { fabric: fabric.clone(), consumers, orphans, lost, next_id: 0 }
    }

    /// From now on this one gets elements, too. Returns its number, which no other gets.
    pub fn add(&mut self, consumer: queue::Sender<F>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.consumers.push(Consumer { id, sender: consumer, under_way: VecDeque::new() });
        id
    }

    /// How many consumers there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.consumers.len()
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.consumers.is_empty()
    }

    /// Consumers that are gone since it was asked, and why. What they had is given to others.
    pub fn lost(&mut self) -> Vec<(u64, Error)> {
        std::mem::take(&mut self.lost)
    }

    /// How many elements were given out and not taken out, as far as is known.
    #[must_use]
    pub fn under_way(&self) -> usize {
        let given: usize = self.consumers.iter().map(|consumer| consumer.under_way.len()).sum();
        given + self.orphans.len()
    }

    /// Returns an element to a consumer that has room, if there is one: to whom.
    ///
    /// # Errors
    /// The element has the wrong length for a consumer, or the node has ended.
    pub fn try_put(&mut self, element: &[u8]) -> Result<Option<u64>, Error> {
        // Elements of lost consumers come first.
        while let Some(orphan) = self.orphans.pop_front() {
            match self.give(&orphan) {
                Ok(Some(_)) => {}
                other => {
                    self.orphans.push_front(orphan);
                    return other;
                }
            }
        }
        self.give(element)
    }

    /// Returns an element to a consumer once one has room: to whom.
    ///
    /// # Errors
    /// Those of [`try_put`](Self::try_put), the deadline is over, or there is no consumer
    /// (any more).
    pub fn put(&mut self, element: &[u8], deadline: Option<Instant>) -> Result<u64, Error> {
        loop {
            if let Some(id) = self.try_put(element)? {
                return Ok(id);
            }
            self.wait(deadline)?;
        }
    }

    /// Waits until all elements were taken out. Those of a consumer that is lost meanwhile are
    /// given to others.
    ///
    /// # Errors
    /// The deadline is over, the node has ended, or there is no consumer (any more).
    pub fn drain(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        loop {
            let mut at = 0;
            while at < self.consumers.len() {
                let consumer = &mut self.consumers[at];
                match consumer.sender.drain(Some(Instant::now())) {
                    Ok(()) => {
                        consumer.under_way.clear();
                        at += 1;
                    }
                    Err(Error::TimedOut | Error::Busy) => {
                        consumer.settle();
                        at += 1;
                    }
                    Err(Error::NodeGone) => return Err(Error::NodeGone),
                    Err(error) => self.lose(at, error),
                }
            }
            while let Some(orphan) = self.orphans.pop_front() {
                if self.give(&orphan)?.is_none() {
                    self.orphans.push_front(orphan);
                    break;
                }
            }
            if self.under_way() == 0 {
                return Ok(());
            }
            if self.consumers.is_empty() {
                return Err(Error::PeerLost);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TimedOut);
            }
            self.pause(deadline)?;
        }
    }

    /// Sleeps until one of them publishes something, or for a moment: a queue with room is ready
    /// always, and what is wanted here is that it is empty.
    fn pause(&self, deadline: Option<Instant>) -> Result<(), Error> {
        let soon = Instant::now() + std::time::Duration::from_micros(500);
        let until = deadline.map_or(soon, |deadline| deadline.min(soon));
        let wires: Vec<_> =
            self.consumers.iter().map(|consumer| consumer.sender.tripwire()).collect();
        self.fabric.wait(&wires, Some(until)).map(drop)
    }

    /// Waits until somebody has room, or is gone.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let mut sources: Vec<&mut dyn Waitable<F>> =
            self.consumers.iter_mut().map(|consumer| &mut consumer.sender as _).collect();
        match wait_any(&self.fabric, &mut sources, deadline) {
            Ok(_) => Ok(()),
            Err(Error::Closed) => Err(Error::PeerLost),
            Err(error) => Err(error),
        }
    }

    fn give(&mut self, element: &[u8]) -> Result<Option<u64>, Error> {
        for consumer in &mut self.consumers {
            consumer.settle();
        }
        let mut order: Vec<usize> = (0..self.consumers.len()).collect();
        // Of those that have as few the one that came first: so the order is that of a list.
        order.sort_by_key(|at| self.consumers[*at].under_way.len());
        let mut gone = Vec::new();
        let mut given = Ok(None);
        for at in order {
            let consumer = &mut self.consumers[at];
            match consumer.sender.try_put(element) {
                Ok(true) => {
                    consumer.under_way.push_back(element.into());
                    given = Ok(Some(consumer.id));
                    break;
                }
                Ok(false) | Err(Error::Busy) => {}
                Err(error @ (Error::TooLong { .. } | Error::NodeGone)) => {
                    given = Err(error);
                    break;
                }
                Err(error) => gone.push((at, error)),
            }
        }
        // From the end, so that the indices of the others stay.
        gone.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        for (at, error) in gone {
            self.lose(at, error);
        }
        given
    }

    fn lose(&mut self, at: usize, error: Error) {
        let mut consumer = self.consumers.remove(at);
        // What it took out until its end was not lost.
        consumer.settle();
        self.lost.push((consumer.id, error));
        self.orphans.extend(consumer.under_way);
    }
}

impl<F: Fabric> Consumer<F> {
    /// Forgets what it has taken out.
    fn settle(&mut self) {
        let under_way = self.sender.under_way();
        while self.under_way.len() as u64 > under_way {
            self.under_way.pop_front();
        }
    }
}
