//! Which associations have expanded keys: those that were used lately. The others keep the short
//! keys alone, and expand them in a microsecond at their next use.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use landfall_placement::{Duration, Instant};

use super::association::{Association, State};
use super::session::Session;

/// How long unused keys stay expanded.
const UNUSED: Duration = Duration::from_secs(1);

/// The associations with expanded keys, and when to look for unused ones.
#[derive(Debug, Default)]
pub(super) struct ExpandedKeys {
    expanded: VecDeque<u32>,
    pub(super) drop_at: Option<Instant>,
    /// The last time that is known.
    pub(super) latest: Instant,
}

impl ExpandedKeys {
    /// This one is used now.
    #[inline]
    pub(super) fn note(&mut self, id: u32, session: &Session) {
        if !session.is_expanded() {
            self.expanded.push_back(id);
            self.drop_at.get_or_insert(self.latest + UNUSED);
        }
    }

    /// Drops the expanded keys that were not used for a time.
    pub(super) fn fire(&mut self, now: Instant, table: &mut BTreeMap<u32, Box<Association>>) {
        self.latest = now;
        if self.drop_at.is_none_or(|at| at > now) {
            return;
        }
        self.expanded.retain(|id| {
            let Some(known) = table.get_mut(id) else { return false };
            let State::Open(session) = &mut known.state else { return false };
            let is_used = now.since(known.used) < UNUSED;
            if !is_used {
                session.drop_expanded();
            }
            is_used
        });
        self.drop_at = (!self.expanded.is_empty()).then(|| now + UNUSED);
        if self.expanded.is_empty() {
            self.expanded = VecDeque::new();
        }
    }
}
