//! [`Actions`]: tripwires that leave a mark instead of waking somebody.
//!
//! A [`Tripwire`](super::Tripwire) is for those who wait. Where many places are watched and the
//! program looks now and then, a firing need not be an event: it sets a bit of a bitmap, adds to
//! a counter, or puts a number into a queue, as the paper's adapter does (section 2.5). Nobody is
//! woken, and to look costs the same however many are watched.
//!
//! Bits, counters and the queue are those of the node: parts of a program that share a node agree
//! on their numbers. A place may have several such tripwires, with different actions.
//!
//! ```
//! use landfall::clan::actions::{Action, ActionRule, Actions};
//! use landfall::clan::{Error, Fabric, Remote, Rights, Threads};
//!
//! /// How many words of a table were written, and was the last of them?
//! fn watch_a_table<F: Actions>(here: &F, there: &F) -> Result<(u64, bool), Error> {
//!     let (memory, cookie) = here.expose(800, Rights::Write)?;
//!     let _all = here.act_on(&memory, &ActionRule::new(0..800, Action::Count(7)))?;
//!     let _last = here.act_on(&memory, &ActionRule::new(792..800, Action::Bit(1)).once())?;
//!     let mut window = there.map(&cookie)?;
//!     window.write(0, &[1; 80])?;
//!     window.store(792, 1)?;
//!     window.commit()?;
//!     Ok((here.counter(7), here.take_bit(1)))
//! }
//!
//! let (here, there) = Threads::pair()?;
//! assert_eq!(watch_a_table(&here, &there)?, (11, true));
//! # Ok::<(), landfall::clan::Error>(())
//! ```
//!
//! What does not live here: the engine's actions (`clan-dsm`), which nodes over networks use, and
//! waiting for several tripwires ([`Tripset`](super::Tripset)).

use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use super::{Access, Error, Fabric};
use crate::runtime::locked;

/// What a firing leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// This bit of the node's bitmap is set.
    Bit(u32),
    /// The number of words that were touched is added to this counter of the node.
    Count(u32),
    /// This number goes into the node's queue of identifiers, unless it waits there already for
    /// this tripwire.
    Identify(u64),
}

/// Which touches of which memory do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRule {
    /// The bytes that are watched, in whole words.
    pub range: Range<u64>,
    /// Which accesses to them.
    pub access: Access,
    /// What each of them does.
    pub action: Action,
    /// Only the first does, until the tripwire is armed again.
    pub once: bool,
}

impl ActionRule {
    /// Each write to these bytes does this.
    #[must_use]
    pub const fn new(range: Range<u64>, action: Action) -> Self {
        Self { range, access: Access::Write, action, once: false }
    }

    /// Reads, or both reads and writes.
    #[must_use]
    pub fn on(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The tripwire disarms itself as it fires.
    #[must_use]
    pub fn once(self) -> Self {
        Self { once: true, ..self }
    }
}

/// A fabric whose tripwires leave marks.
///
/// Over shared memory the writers report what they touch, and anyone who looks at a mark of the node
/// reads the reports first. Where a process touches more than 1,024 places before anybody looks,
/// reports are missing: then every bit and identifier of the memory that it maps is set, each
/// counter goes up by one, and [`take_lost`](Self::take_lost) says so.
pub trait Actions: Fabric {
    /// The tripwire. Dropping it ends it; the marks that it made stay.
    type ActionTripwire: ActionTripwire;

    /// A tripwire for memory of this node that others touch, armed at once.
    ///
    /// # Errors
    /// The range is not within the memory, there is no bit or counter of that number (of nodes as
    /// they come configured there are 4,096), or no room for one more tripwire.
    fn act_on(&self, local: &Self::Local, rule: &ActionRule)
    -> Result<Self::ActionTripwire, Error>;

    /// The same for memory of another node that this one touches, through whichever handle. It
    /// fires when what was written is in place there, and when what was read is here.
    ///
    /// # Errors
    /// As [`act_on`](Self::act_on).
    fn act_on_own(
        &self,
        remote: &Self::Remote,
        rule: &ActionRule,
    ) -> Result<Self::ActionTripwire, Error>;

    /// Clears a bit of the bitmap; gives whether it was set.
    fn take_bit(&self, number: u32) -> bool;

    /// What a counter has counted since the node was opened.
    fn counter(&self, number: u32) -> u64;

    /// The identifier that has waited for longest.
    fn next_identifier(&self) -> Option<u64>;

    /// How often since this was last asked firings were missed by counters or the queue, for
    /// want of room.
    fn take_lost(&self) -> u64;
}

/// A tripwire with an [`Action`]. It is armed from the start.
pub trait ActionTripwire: Debug + Send + Sync + 'static {
    /// Arms it (again).
    ///
    /// # Errors
    /// The memory is gone, or the node does not run any more.
    fn arm(&self) -> Result<(), Error>;

    /// Disarms it: touches do nothing. What was touched before may still be reported.
    fn disarm(&self);

    /// Does a touch fire it?
    fn is_armed(&self) -> bool;

    /// At how many touched words it has fired.
    fn firings(&self) -> u64;
}

/// How many bits, and how many counters, a node has where writers report to it.
const MOST_NUMBERS: u32 = 4096;

/// The marks of a node whose writers report to it.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    bits: OnceLock<Box<[AtomicU64]>>,
    counters: OnceLock<Box<[AtomicU64]>>,
    identifiers: Mutex<VecDeque<Arc<Mark>>>,
    lost: AtomicU64,
}

fn zeroed(count: u32) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Marks {
    fn bit_word(&self, number: u32) -> Option<(&AtomicU64, u64)> {
        let word = self.bits.get()?.get(number as usize / 64)?;
        Some((word, 1 << (number % 64)))
    }

    pub(crate) fn take_bit(&self, number: u32) -> bool {
        let Some((word, bit)) = self.bit_word(number) else { return false };
        // A look first: who polls does not take the line from those who set bits in it.
        word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, AcqRel) & bit != 0
    }

    pub(crate) fn counter(&self, number: u32) -> u64 {
        let counters = self.counters.get();
        let counter = counters.and_then(|counters| counters.get(number as usize));
        counter.map_or(0, |counter| counter.load(Acquire))
    }

    pub(crate) fn next_identifier(&self) -> Option<u64> {
        let mark = locked(&self.identifiers).pop_front()?;
        // From here on it waits again: what fires it now is seen by a later look.
        mark.is_queued.store(false, SeqCst);
        match mark.action {
            Action::Identify(number) => Some(number),
            Action::Bit(_) | Action::Count(_) => None,
        }
    }

    /// Reports are missing.
    pub(crate) fn record_loss(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }
}

/// The action of one tripwire, and what came of it.
#[derive(Debug)]
pub(crate) struct Mark {
    marks: Arc<Marks>,
    pub(crate) action: Action,
    once: bool,
    is_armed: AtomicBool,
    firings: AtomicU64,
    /// Its identifier waits.
    is_queued: AtomicBool,
}

impl Mark {
    pub(crate) fn new(marks: &Arc<Marks>, rule: &ActionRule) -> Result<Arc<Self>, Error> {
        match rule.action {
            Action::Bit(number) if number >= MOST_NUMBERS => return Err(Error::NoRoom("bit")),
            Action::Count(number) if number >= MOST_NUMBERS => {
                return Err(Error::NoRoom("counter"));
            }
            Action::Bit(_) => _ = marks.bits.get_or_init(|| zeroed(MOST_NUMBERS / 64)),
            Action::Count(_) => _ = marks.counters.get_or_init(|| zeroed(MOST_NUMBERS)),
            Action::Identify(_) => {}
        }
        Ok(Arc::new(Self {
            marks: Arc::clone(marks),
            action: rule.action,
            once: rule.once,
            is_armed: AtomicBool::new(false),
            firings: AtomicU64::new(0),
            is_queued: AtomicBool::new(false),
        }))
    }

    pub(crate) fn set_armed(&self, is_armed: bool) {
        self.is_armed.store(is_armed, SeqCst);
    }

    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed.load(SeqCst)
    }

    pub(crate) fn firings(&self) -> u64 {
        self.firings.load(Acquire)
    }

    /// This many of its words were touched. Returns whether it disarmed itself.
    pub(crate) fn fire(self: &Arc<Self>, words: u64) -> bool {
        let is_armed = match self.once {
            true => self.is_armed.swap(false, SeqCst),
            false => self.is_armed(),
        };
        if !is_armed || words == 0 {
            return false;
        }
        let words = if self.once { 1 } else { words };
        self.firings.fetch_add(words, AcqRel);
        match self.action {
            Action::Bit(number) => {
                if let Some((word, bit)) = self.marks.bit_word(number) {
                    word.fetch_or(bit, AcqRel);
                }
            }
            Action::Count(number) => {
                let counters = self.marks.counters.get();
                if let Some(counter) = counters.and_then(|all| all.get(number as usize)) {
                    counter.fetch_add(words, AcqRel);
                }
            }
            Action::Identify(_) => {
                let mut identifiers = locked(&self.marks.identifiers);
                if !self.is_queued.swap(true, SeqCst) {
                    identifiers.push_back(Arc::clone(self));
                }
            }
        }
        self.once
    }

    /// Its tripwire is gone: its identifier waits no more, so that the queue is never longer than
    /// there are tripwires.
    pub(crate) fn end(self: &Arc<Self>) {
        self.set_armed(false);
        let mut identifiers = locked(&self.marks.identifiers);
        if self.is_queued.load(SeqCst) {
            identifiers.retain(|mark| !Arc::ptr_eq(mark, self));
        }
    }
}

/// How many words of the second range of words the first touches.
pub(crate) const fn shared_words(touched: &Range<u64>, watched: &Range<u64>) -> u64 {
    let start = if touched.start > watched.start { touched.start } else { watched.start };
    let end = if touched.end < watched.end { touched.end } else { watched.end };
    end.saturating_sub(start)
}
