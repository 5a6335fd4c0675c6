//! [`wait_any`]: waits for several things at once; and [`Waitable`], what can be waited for.
//!
//! Each of them sleeps at a tripwire of its own, and anyone who waits for several sleeps at all of
//! these. The same tripwires can be registered with the event queue of the node
//! ([`Waitable::tripwire`], [`EventQueue`](crate::clan::EventQueue)), which has a descriptor for
//! `epoll`.
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::any::wait_any;
//! use landfall::clan::layer::queue::{Config, Receiver, Sender};
//!
//! let (here, there) = Threads::pair()?;
//! let config = Config::new(8, 16).singly();
//! let mut pair = || {
//!     let (sender, receiver) = (Sender::open(&here, config)?, Receiver::open(&there, config)?);
//!     let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
//!     Ok::<_, landfall::clan::Error>((sender.connect(&to_receiver)?, receiver.connect(&to_sender)?))
//! };
//! let ((_quiet, mut first), (mut sender, mut second)) = (pair()?, pair()?);
//!
//! sender.put(&[7; 8], None)?;
//! assert_eq!(wait_any(&there, &mut [&mut first, &mut second], None)?, 1);
//! let mut element = [0; 8];
//! second.get(&mut element, None)?;
//! # Ok::<(), landfall::clan::Error>(())
//! ```

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;

use crate::clan::{Error, Fabric, Tripwire};

/// The pause before a full send buffer is tried again.
const RETRY_PAUSE: Duration = Duration::from_micros(500);

/// What can be waited for with others.
pub trait Waitable<F: Fabric> {
    /// The tripwire that fires when there is something to look at.
    fn tripwire(&self) -> &F::Tripwire;

    /// Would the next `try_` call succeed? An element is there, there is room, or it has
    /// ended or failed, which the call then reports.
    ///
    /// # Errors
    /// The send buffer is full; ask again soon: [`Error::Busy`]. Everything else is
    /// reported by the next call.
    fn is_ready(&mut self) -> Result<bool, Error>;
}

/// What a look has found, in these terms.
pub(super) fn readiness<T>(looked: Result<Option<T>, Error>) -> Result<bool, Error> {
    match looked {
        Ok(found) => Ok(found.is_some()),
        Err(Error::Busy) => Err(Error::Busy),
        Err(_) => Ok(true),
    }
}

/// Waits until one of these is ready, and returns which: the first, where several are. To
/// starve none, rotate the list.
///
/// # Errors
/// The deadline is over, or the node does not run any more. With nothing to wait for it is
/// [`Error::Closed`].
pub fn wait_any<F: Fabric>(
    fabric: &F,
    sources: &mut [&mut dyn Waitable<F>],
    deadline: Option<Instant>,
) -> Result<usize, Error> {
    if sources.is_empty() {
        return Err(Error::Closed);
    }
    loop {
        if let Ok(ready) = look(sources) {
            return Ok(ready);
        }
        sources.iter().for_each(|source| source.tripwire().arm());
        let found = look(sources);
        let slept = match found {
            Ok(_) => Ok(true),
            Err(is_busy) => sleep(fabric, sources, is_busy, deadline),
        };
        sources.iter().for_each(|source| source.tripwire().disarm());
        if let Ok(ready) = found {
            return Ok(ready);
        }
        slept?;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return look(sources).map_err(|_| Error::TimedOut);
        }
    }
}

/// The first that is ready; or whether one waits for its way.
fn look<F: Fabric>(sources: &mut [&mut dyn Waitable<F>]) -> Result<usize, bool> {
    let mut is_busy = false;
    for (nth, source) in sources.iter_mut().enumerate() {
        match source.is_ready() {
            Ok(true) => return Ok(nth),
            Ok(false) => {}
            Err(_) => is_busy = true,
        }
    }
    Err(is_busy)
}

fn sleep<F: Fabric>(
    fabric: &F,
    sources: &[&mut dyn Waitable<F>],
    is_busy: bool,
    deadline: Option<Instant>,
) -> Result<bool, Error> {
    /// Up to this many need no allocation.
    const FEW: usize = 16;
    let until = if is_busy {
        let soon = Instant::now() + RETRY_PAUSE;
        Some(deadline.map_or(soon, |deadline| deadline.min(soon)))
    } else {
        deadline
    };
    let wires = sources.iter().map(|source| source.tripwire());
    if sources.len() <= FEW {
        let wires: ArrayVec<_, FEW> = wires.collect();
        fabric.wait(&wires, until)
    } else {
        fabric.wait(&wires.collect::<Vec<_>>(), until)
    }
}
