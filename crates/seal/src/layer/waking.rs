//! Which associations have expanded keys: those that were used of late. The others have the short
//! ones that these are made of, in a microsecond, when they are used again.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use landfall_placement::{Duration, Instant};

use super::association::{Association, State};
use super::session::Session;

/// Keys that were not used for so long are let go of.
const REST: Duration = Duration::from_secs(1);

/// The associations with expanded keys, and when it is looked for some that were not used.
#[derive(Debug, Default)]
pub(super) struct Waking {
    awake: VecDeque<u32>,
    pub(super) rest_at: Option<Instant>,
    /// The time, as far as it is known.
    pub(super) latest: Instant,
}

impl Waking {
    /// This one is used now.
    #[inline]
    pub(super) fn note(&mut self, id: u32, session: &Session) {
        if !session.is_awake() {
            self.awake.push_back(id);
            self.rest_at.get_or_insert(self.latest + REST);
        }
    }

    /// Lets go of what was not used for a time, once it is time to look for that.
    pub(super) fn fire(&mut self, now: Instant, table: &mut BTreeMap<u32, Box<Association>>) {
        self.latest = now;
        if self.rest_at.is_none_or(|at| at > now) {
            return;
        }
        self.awake.retain(|id| {
            let Some(known) = table.get_mut(id) else { return false };
            let State::Open(session) = &mut known.state else { return false };
            let is_used = now.since(known.used) < REST;
            if !is_used {
                session.rest();
            }
            is_used
        });
        self.rest_at = (!self.awake.is_empty()).then(|| now + REST);
        if self.awake.is_empty() {
            self.awake = VecDeque::new();
        }
    }
}
