//! What every part of the engine is handed: the time, the configuration, and where it counts
//! and tells what happened. No state of the protocol lives here.

use alloc::collections::VecDeque;

use landfall_placement::{Ecn, Instant, Random, Refusals};

use crate::config::Config;
use crate::event::Event;
use crate::stats::Stats;

/// How many events wait at most, for each place in the queue of a path, before
/// nothing more is taken in.
const EVENTS_PER_PLACE: usize = 4;

/// What all parts share.
#[derive(Debug)]
pub(crate) struct Context {
    /// The time of the call that is being handled.
    pub(crate) now: Instant,
    pub(crate) config: Config,
    pub(crate) random: Random,
    pub(crate) stats: Stats,
    pub(crate) refusals: Refusals,
    pub(crate) events: VecDeque<PendingEvent>,
}

/// An event that waits for the user.
#[derive(Debug)]
pub(crate) struct PendingEvent {
    pub(crate) event: Event,
    /// Not before this many Blocks that were taken back are free.
    after: u64,
}

impl Context {
    pub(crate) fn new(config: Config, random: Random) -> Self {
        Self {
            now: Instant::ZERO,
            config,
            random,
            stats: Stats::default(),
            refusals: Refusals::new(),
            events: VecDeque::new(),
        }
    }

    /// Tells the user something.
    pub(crate) fn emit(&mut self, event: Event) {
        self.emit_after(event, 0);
    }

    /// The same, once this many Blocks have become free: an event that gives memory back waits
    /// until nothing is under way to it.
    pub(crate) fn emit_after(&mut self, event: Event, after: u64) {
        // Who listens asks for the endpoint's events, wherever they are kept.
        landfall_placement::trace!(target: "stp_core::endpoint", ?event);
        self.events.push_back(PendingEvent { event, after });
    }

    /// The event that was told last, if the user has not taken it.
    pub(crate) fn last_event(&mut self) -> Option<&mut Event> {
        self.events.back_mut().map(|pending| &mut pending.event)
    }

    /// The next event of the user, where this many Blocks have become free.
    #[inline]
    pub(crate) fn take_event(&mut self, freed: u64) -> Option<Event> {
        if self.events.front()?.after > freed {
            return None;
        }
        Some(self.events.pop_front()?.event)
    }

    /// Does nobody take the events? Whatever comes then will be sent again.
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.config.queue * EVENTS_PER_PLACE
    }

    /// Payload of ours says that it yields to congestion, where it does.
    pub(crate) const fn ecn(&self) -> Ecn {
        if self.config.congestion.is_some() { Ecn::Capable0 } else { Ecn::NotCapable }
    }
}
